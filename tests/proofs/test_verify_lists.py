"""The lists of the verifier: they are those of the package, and of all problems that are tried."""

import json
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache
from hashlib import sha256
from itertools import product

import numpy as np
import pytest
import torch
from cases import drawn
from certificate_subjects import untrained
from neighbourhood_search import as_set, listed_neighbourhoods, rows_of
from test_certificates import is_certifiable, ruled
from test_column_tasks import all_problems, seen, widths
from test_settling import GRIDS, MAPS, PRODUCTS, SUMS

from longhand.data import ColumnTask
from longhand.data.proofs import Check, coverings, verify_certificate
from longhand.data.proofs.certificate import _conclude, longest_operands
from longhand.data.proofs.verify_certificate import (
    RELATED,
    Refused,
    check_prompt_format,
    find_task,
    list_neighbourhoods,
)
from longhand.data.tasks import column_task
from longhand.data.tasks.column_task import ColumnPass
from longhand.data.tasks.registry import build_task
from longhand.data.tasks.settling_columns import settling_task
from longhand.modeling.settling import NO_STATE, LabelCases, cases_at, find_labels
from longhand.modeling.transducer import table_of
from longhand.modeling.vocabulary import BOS, PAD

LISTS = {
    (6217, "8c0a1b8d4c980e4c"): build_task("addition"),
    (6217, "4286c56f432e4d78"): build_task("addition", order="all_reversed", separate_eos=True),
    (7514, "5b251445a73d55ba"): build_task("addition", zero_padding=False),
    (7514, "954cccc892db1a40"): build_task("addition", zero_padding=False, order="all_reversed", separate_eos=True),
    (6107, "7e983f42bcfc0700"): build_task("multi_operand_addition", operands=2),
    (145423, "cc51cedc65ce1f68"): build_task("multi_operand_addition"),
    (20200, "1bf6651b149aabee"): build_task("subtraction"),
    (20528, "02ef7e507aa828a1"): build_task("signed_subtraction"),
    (120, "5f13025bffa8e2fd"): build_task("copy"),
    (120, "7bedb803c63739ff"): build_task("reverse", separate_eos=True),
    (8, "572c74974f2e44a4"): build_task("parity"),
    (2405, "92d1a822f76639e8"): build_task("minesweeper"),
    (5625, "c84aa9439e36ea4e"): build_task("division"),
    (6156, "0df5d812dff0eed2"): build_task("addition_scratchpad"),
    (98487, "2222b49604d6af65"): build_task("multiplication_scratchpad"),
    (125171, "d0560064697401e3"): build_task("calculator"),
    (124740, "9aee4b0d0e620cf0"): build_task("multiplication", multiplier_length=1),
    (1720300, "e96cbe5010ae2f00"): build_task("multiplication", multiplier_length=2),
    (73108, "e17a749ca07af26b"): SUMS,
    (13620, "3d66aba86f604188"): PRODUCTS,
    (31976, "e8160c6930dcb7b3"): GRIDS,
}
"""Tasks by the sizes and the beginnings of the SHA-256 of their lists, as they were when people had worked them out."""


@lru_cache
def found_by_verifier(task, encoder: bool = False) -> np.ndarray:
    table = table_of(getattr(task, "transducer", None))
    return list_neighbourhoods(find_task(task.describe(), table, encoder))


def found_by_package(task) -> set[bytes]:
    """The neighbourhoods, or cases, of the package."""
    if task in MAPS:
        covered = task.covering(MAPS[task][1], 1)
        return as_set(rows_of(task, covered.cases, covered.right))
    coupling = "multiplication_by_digits" if task.name == "multiplication" else task.couplings[0]
    model, found = untrained(task, coupling=coupling, eos_token_id=task.end_token), set()
    beginning = RELATED * (len(find_task(task.describe()).window) + 1) + BOS
    for batch in (batch for covered in coverings(model, task) for batch in covered.batches):
        codes = np.where(batch.keys == PAD, 0, RELATED * (batch.relations + 1) + batch.keys)
        found |= as_set(np.column_stack([batch.tokens, batch.right, codes, np.full(len(codes), beginning)]))
    return found


@pytest.mark.parametrize(("count", "digest"), LISTS, ids=lambda value: "")
def test_lists_have_the_size_and_the_hash_of_those_that_were_worked_out_by_hand(count, digest):
    rows = found_by_verifier(LISTS[count, digest])
    assert (len(rows), sha256(rows.astype("<u2").tobytes()).hexdigest()[:16]) == (count, digest)


@pytest.mark.parametrize(
    "task", drawn((task for (count, _), task in LISTS.items() if count < 10**6), 8), ids=lambda task: task.name
)
def test_both_list_the_same(task):
    rows = found_by_verifier(task)
    assert len(as_set(rows)) == len(rows) and as_set(rows) == found_by_package(task)


@pytest.mark.parametrize("task", [build_task("calculator"), *LISTS.values()], ids=lambda task: task.name)
def test_both_write_the_same_form_of_queries(task):
    written = task.prompt_format and json.loads(json.dumps(asdict(task.prompt_format)))
    expected = find_task(task.describe()).prompt_format
    check_prompt_format(written, expected)
    for each in written.get("formats", [written]):
        for other in ({"pattern": "1+1="}, {"example": "1"}, {"response": ".*"}, {"larger_first": 1}, {"hint_step": 1}):
            before = dict(each)
            each.update(other)
            with pytest.raises(Refused):
                check_prompt_format(written, expected)
            each.update(before)


def random_task(seed: int, passes: int) -> type[ColumnTask]:
    """A column task whose tables are drawn, with two states and two symbols, for which some window is enough."""
    generator = np.random.default_rng(seed)
    while True:
        operands, drawn = int(generator.integers(1, 3)), []
        directions = generator.choice(["ones_first", "top_first"], passes).tolist()
        for place, direction in enumerate(directions):
            entries = generator.integers(2, size=[2] * (2 + operands + place))
            own = lambda state, symbols, entries=entries: tuple(entries[(state, *symbols)].tolist())  # noqa: E731
            flush = int(generator.integers(3)) * (len({*directions}) == 1 or direction == "ones_first")
            drawn.append(ColumnPass(own, direction=direction, flush=flush, reads=tuple(range(operands + place))))
        fields = {"name": "random", "operands": operands, "sign": "+" * (operands - 1), "alphabet": "01"}
        kind = type("Random", (ColumnTask,), fields | {"passes": tuple(drawn)})
        with suppress(ValueError):
            kind().transducer  # noqa: B018
            return kind


@pytest.mark.parametrize("seed", drawn(range(12), 6))
def test_random_transducers_are_searched_whole(seed):
    task = random_task(seed, passes=1 + seed % 2)()
    beginning, rows = RELATED * (len(task.rule.relations) + 1), set()
    for own, right, *codes in found_by_verifier(task).tolist():
        pairs = sorted(divmod(code - RELATED, RELATED) for code in codes if 0 < code < beginning)
        rows.add((own, tuple(pairs), right))
    assert rows == set(listed_neighbourhoods(task.covering(task.rule.relations, 1))) == seen(task, widths(task, 6, 5000))


def cases_of_all_problems(task, widths) -> set[bytes]:
    """The cases of passes over all problems of these widths: a label is right next if all that look alike have it."""
    unknown, parts = len(task.labels) - 1, []
    for width, own, before, odd in product(widths, *[(False, True)] * 3):
        examples = task.write(np.array(list(all_problems(task, width)), dtype=np.uint8)[:, :, ::-1])
        tokens, labels = (torch.from_numpy(part).long() for part in (examples.tokens, examples.labels))
        places, _, keys, relations = find_labels(task.transducer, tokens)
        mine = (torch.arange(tokens.shape[1]) % 2 == odd).expand_as(tokens)
        for known in (torch.zeros_like(mine), torch.where(mine, own, before)):
            states = torch.where(labels >= 0, torch.where(known, labels, unknown), NO_STATE).flatten()
            parts.append(cases_at(tokens.flatten(), states, places, keys, relations))
        kept = mine.flatten()[places]
        parts[-2:] = [LabelCases(*(part[kept] for part in cases)) for cases in parts[-2:]]
        parts.append(labels.flatten()[places][kept])
    hidden, cases = (LabelCases(*map(torch.cat, zip(*parts[place::3], strict=True))) for place in (0, 1))
    labels = torch.cat(parts[2::3])
    codes = torch.where(hidden.relations >= 0, 1000 * hidden.relations + hidden.keys, -1).sort().values
    group = codes.unique(dim=0, return_inverse=True)[1]
    different = torch.stack([group, labels]).unique(dim=1)[0].bincount()
    known = (cases.key_states != unknown) | (cases.relations < 0)
    settled = (different == 1)[group] | known[:, 1:].all(1)
    right = torch.where(settled, labels, unknown)
    kept = (cases.states == unknown) | (right != unknown)
    return as_set(rows_of(task, LabelCases(*(part[kept] for part in cases)), right[kept]))


@pytest.mark.parametrize("seed", [*drawn(range(12), 5), 52])  # In 52 all labels are the first one.
def test_random_encoders_are_searched_whole(seed):
    task = settling_task(random_task(seed, passes=1))()
    covered, listed = task.covering(None, 1), as_set(found_by_verifier(task, encoder=True))
    assert listed == as_set(rows_of(task, covered.cases, covered.right))
    assert listed == cases_of_all_problems(task, widths(task, 6, 5000))


@pytest.mark.parametrize("window", [(-1, 1), (0, 2), (1, 3), (0, 4)], ids=str)
def test_encoders_that_see_columns_further_on_are_searched_whole(window):
    fields = {"name": "wide", "alphabet": "01", "direction": "top_first", "window": window}
    kind = type("Wide", (ColumnTask,), fields | {"step": lambda self, above, symbols: (above ^ symbols[0],) * 2})
    task = settling_task(kind)()
    covered, listed = task.covering(None, 1), as_set(found_by_verifier(task, encoder=True))
    assert listed == as_set(rows_of(task, covered.cases, covered.right))
    assert listed == cases_of_all_problems(task, range(1, 7))


def too_many_tokens(table):
    """An alphabet, and symbols that are written, of 256 characters each."""
    first, second = (" ".join(map(chr, range(begin, begin + 256))).replace(" ", "") for begin in (0x4E00, 0x6E00))
    own = table["passes"][0]
    table["alphabet"], own["writes"] = first, second
    own["write"] = own["next"] = [[0] * 256] * len(own["write"])


def too_many_operands(table):
    """Thirty operands, of which the first one is read."""
    table.update(operands=30, sign="+")
    table["passes"][0].update(reads=[0], symmetric=False)


@pytest.mark.parametrize("change", [too_many_tokens, too_many_operands])
def test_what_cannot_be_listed_is_refused_before_anything_is_built(change):
    task = build_task("gray_code")
    table = table_as_json(build_task("digit_sum"))
    change(table)
    with pytest.raises(Refused, match="more than"):
        find_task(task.describe() | {"task": "of_a_user"}, table)


def test_a_search_ends_where_it_would_take_too_much_memory(monkeypatch):
    for limit in ("MOST_ENTRIES", "MOST_NUMBERS"):
        with monkeypatch.context() as patch, pytest.raises(Refused, match="more than"):
            patch.setattr(verify_certificate, limit, 50)
            list_neighbourhoods(find_task(build_task("division").describe()))


@pytest.mark.thorough
def test_limits_are_those_of_the_package():
    """All that the code accepts, and of problems of one size the longest."""
    compared = set()
    for task, rule in ruled():
        model = untrained(task, coupling=rule)
        if not is_certifiable(model, task):
            continue
        mine = find_task(task.describe(), table_of(task.transducer))
        if mine.coupling == rule:
            assert _conclude(Check(wrong=1), model, task).limits == mine.limits
            compared.add(task.name)
    for task in (SUMS, PRODUCTS, GRIDS, build_task("settling_base_addition", radix=3), build_task("settling_comparison")):
        mine = find_task(task.describe(), table_of(task.transducer), encoder=True)
        assert mine.limits.get("length") == longest_operands(task, {"tokens": mine.limits["tokens"]})
        compared.add(task.name)
    assert {*verify_certificate.TASKS} - {"calculator"} <= compared
    assert find_task(build_task("addition").describe()).limits["length"] == 1_012_333_498


OPERATIONS = {
    "base_addition": {"radix": 3}, "plus_one": {}, "constant_multiplication": {"factor": 12}, "remainder": {"modulus": 5},
    "digit_sum": {}, "comparison": {}, "bitwise": {"operation": "xor"}, "gray_code": {},
}  # fmt: skip


def table_as_json(task) -> dict:
    return json.loads(json.dumps(table_of(task.transducer)))


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_entry_of_a_table_that_is_named_as_an_operation_is_that_operations(name):
    task = build_task(name, **OPERATIONS[name])
    table = table_as_json(task)
    (own,) = table["passes"]
    find_task(task.describe(), table)
    entries = [
        (field, state, entry)
        for field in ("write", "next")
        for state, row in enumerate(own[field])
        for entry in range(len(row))
    ]
    for field, state, entry in entries:
        most = len(own["writes"]) if field == "write" else len(own["write"])
        if most > 1:
            right = own[field][state][entry]
            own[field][state][entry] = (right + 1) % most
            with pytest.raises(Refused, match="does not hold"):
                find_task(task.describe(), table)
            own[field][state][entry] = right


def turn_words(table):
    """The alphabet with its first two symbols exchanged, and what is written too."""
    for words, name in ((table, "alphabet"), (table["passes"][0], "writes")):
        words[name] = words[name][1] + words[name][0] + words[name][2:]


NOT_OPERATIONS = {
    "remainder from the ones on": ("remainder", lambda table: table["passes"][0].update(direction="ones_first")),
    "sums from the top": ("base_addition", lambda table: table["passes"][0].update(direction="top_first")),
    "sums of other digits": ("base_addition", turn_words),
    "sums with another sign": ("base_addition", lambda table: table.update(sign="-")),
    "sums that end early": ("base_addition", lambda table: table["passes"][0].update(flush=0)),
    "sums that begin with a carry": ("base_addition", lambda table: table["passes"][0].update(start=1)),
    "sums of which the last digit is read": ("base_addition", lambda table: table.update(answer="last")),
    "sums of one number": ("base_addition", lambda table: table.update(table_as_json(build_task("digit_sum")))),
    "a remainder and its copy": ("remainder", lambda table: table["passes"].append(dict(table["passes"][0], reads=[0]))),
    "another remainder": ("remainder", lambda table: table.update(table_as_json(build_task("remainder", modulus=7)))),
}
"""Tables whose entries may be arithmetic, and which are not what their name says, all the same."""


@pytest.mark.parametrize("settling", [False, True], ids=["decoder", "encoder"])
@pytest.mark.parametrize(("name", "change"), NOT_OPERATIONS.values(), ids=NOT_OPERATIONS)
def test_a_table_that_is_not_what_its_name_says_is_refused(name, change, settling):
    task = build_task(name, **OPERATIONS[name])
    table = table_as_json(task)
    described = build_task(f"settling_{name}", **OPERATIONS[name]).describe() if settling else task.describe()
    find_task(described, table, encoder=settling)
    change(table)
    with pytest.raises(Refused):
        find_task(described, table, encoder=settling)


def test_an_option_that_an_operation_does_not_take_is_refused():
    task = build_task("remainder", modulus=5)
    for other in ({"modulus": 7}, {"modulus": 5.0}, {"modulus": 5, "radix": 10}, {}):
        described = {name: value for name, value in task.describe().items() if name != "modulus"}
        with pytest.raises(Refused):
            find_task(described | other, table_as_json(task))


@pytest.mark.parametrize("name", ["base_addition", "remainder"])
def test_a_step_that_is_not_the_arithmetic_of_its_name_is_refused_by_the_package(name, monkeypatch):
    task = build_task(name, **OPERATIONS[name])
    right = type(task).step
    monkeypatch.setattr(type(task), "step", lambda self, state, symbols: (0, right(self, state, symbols)[1]))
    column_task._transducer.cache_clear()
    with pytest.raises(ValueError):
        task.transducer  # noqa: B018
    column_task._transducer.cache_clear()


@pytest.mark.parametrize(
    ("field", "value"), [("operands", 10**9), ("sign", "++"), ("sign", "0"), ("window", [-(10**9), 1]), ("flush", -1)]
)
def test_a_table_that_is_none_is_refused_before_it_is_searched(field, value):
    task = build_task("base_addition", radix=3)
    table = json.loads(json.dumps(table_of(task.transducer)))
    (table if field in table else table["passes"][0])[field] = value
    with pytest.raises(Refused, match=field):
        find_task(task.describe(), table)


@pytest.mark.parametrize("passes", range(1, 5))
@pytest.mark.parametrize("operands", range(1, 5))
def test_tables_of_every_shape_have_a_longest_operand(operands, passes):
    """The ids of rows do not grow with the operands, and may be larger than those of columns of short problems."""
    copied = ColumnPass(lambda state, symbols: (symbols[0], 0))
    fields = {"name": "copied", "operands": operands, "sign": "+" if operands > 1 else "", "alphabet": "01"}
    task = type("Copied", (ColumnTask,), {**fields, "passes": (copied,) * passes})()
    mine = find_task(task.describe(), table_of(task.transducer))
    assert _conclude(Check(wrong=1), untrained(task), task).limits == mine.limits
    assert mine.limits["length"] > 10**6
