"""The lists of the verifier: they are those of the package, and of all problems that are tried."""

import json
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from itertools import product

import numpy as np
import pytest
import torch
from certificate_subjects import untrained
from neighbourhood_search import as_set, listed_neighbourhoods
from test_certificates import certifiable
from test_column_tasks import all_problems, seen, widths
from test_settling import GRIDS, MAPS, PRODUCTS, SUMS
from test_settling_columns import rows_of

from longhand.data import (
    Addition,
    AdditionScratchpad,
    Calculator,
    ColumnTask,
    Copy,
    Division,
    Minesweeper,
    MultiOperandAddition,
    Multiplication,
    MultiplicationScratchpad,
    Parity,
    Reverse,
    SignedSubtraction,
    Subtraction,
)
from longhand.data.certificates import Check, coverings, verify_certificate
from longhand.data.certificates.certificate import _conclude, longest_operands
from longhand.data.certificates.verify_certificate import RELATED, SINK, TOKENS, Refused, find_task, list_neighbourhoods
from longhand.data.tasks import column_task
from longhand.data.tasks.column_task import ColumnPass
from longhand.data.tasks.covering import CoveringCases
from longhand.data.tasks.registry import build_task
from longhand.data.tasks.settling_columns import settling_task
from longhand.modeling.settling import NO_STATE, Cases, cases_at, find_labels
from longhand.modeling.transducer import table_of
from longhand.modeling.vocabulary import BOS, PAD

LISTS = {
    (6217, "8c0a1b8d4c980e4c"): Addition(),
    (6217, "4286c56f432e4d78"): Addition(order="all_reversed", separate_eos=True),
    (7514, "5b251445a73d55ba"): Addition(zero_padding=False),
    (7514, "954cccc892db1a40"): Addition(zero_padding=False, order="all_reversed", separate_eos=True),
    (6107, "7e983f42bcfc0700"): MultiOperandAddition(operands=2),
    (145423, "cc51cedc65ce1f68"): MultiOperandAddition(),
    (20200, "1bf6651b149aabee"): Subtraction(),
    (20528, "02ef7e507aa828a1"): SignedSubtraction(),
    (120, "5f13025bffa8e2fd"): Copy(),
    (120, "7bedb803c63739ff"): Reverse(separate_eos=True),
    (8, "572c74974f2e44a4"): Parity(),
    (2405, "92d1a822f76639e8"): Minesweeper(),
    (5625, "c84aa9439e36ea4e"): Division(),
    (6156, "0df5d812dff0eed2"): AdditionScratchpad(),
    (98487, "2222b49604d6af65"): MultiplicationScratchpad(),
    (125171, "d0560064697401e3"): Calculator(),
    (124740, "9aee4b0d0e620cf0"): Multiplication(multiplier_length=1),
    (1720300, "e96cbe5010ae2f00"): Multiplication(multiplier_length=2),
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
    """The neighbourhoods, or cases, of the package, in the form of `list_neighbourhoods`."""
    if task in MAPS:
        rows = rows_of_cases(task.covering(MAPS[task][1], 1))
        return as_set(rows[:, 0], rows[:, 1], rows[:, 2:])
    coupling = "multiplication_by_digits" if task.name == "multiplication" else task.couplings[0]
    model, found = untrained(task, coupling=coupling, eos_token_id=task.end_token), set()
    beginning = len(find_task(task.describe()).window)
    for batch in (batch for covered in coverings(model, task) for batch in covered.batches):
        codes = np.where(batch.keys == PAD, 0, RELATED * (batch.relations + 1) + batch.keys)
        codes = np.column_stack([codes, np.full(len(codes), RELATED * (beginning + 1) + BOS)])
        found |= as_set(batch.tokens, batch.right, codes)
    return found


def rows_of_cases(covered: CoveringCases) -> np.ndarray:
    """The cases of encoders in the form of `list_neighbourhoods`."""
    cases = covered.cases
    own = cases.tokens + len(TOKENS) * (cases.states + 1)
    codes = RELATED * (cases.relations + 1) + cases.keys + len(TOKENS) * (cases.key_states + 1)
    sink = torch.full((covered.count, 1), RELATED * (int(cases.relations.max()) + 2) + SINK)
    rows = [own.unsqueeze(1), covered.right.unsqueeze(1), codes.where(cases.relations >= 0, 0), sink]
    return torch.cat(rows, dim=1).numpy()


@pytest.mark.parametrize(("count", "digest"), LISTS, ids=lambda value: "")
def test_lists_have_the_size_and_the_hash_of_those_that_were_worked_out_by_hand(count, digest):
    rows = found_by_verifier(LISTS[count, digest])
    assert (len(rows), sha256(rows.astype("<u2").tobytes()).hexdigest()[:16]) == (count, digest)


@pytest.mark.parametrize("task", [task for (count, _), task in LISTS.items() if count < 10**6], ids=lambda task: task.name)
def test_both_list_the_same(task):
    rows = found_by_verifier(task)
    mine = as_set(rows[:, 0], rows[:, 1], rows[:, 2:])
    assert len(mine) == len(rows) and mine == found_by_package(task)


def random_task(seed: int, passes: int) -> type[ColumnTask]:
    """A column task whose tables are drawn, with two states and two symbols, for which some window is enough."""
    generator = np.random.default_rng(seed)
    while True:
        operands, drawn = int(generator.integers(1, 3)), []
        directions = generator.choice(["ones_first", "top_first"], passes).tolist()
        for place, direction in enumerate(directions):
            write, following = generator.integers(2, size=(2, *[2] * (1 + operands + place)))
            step = lambda state, symbols, *entries: tuple(int(entry[(state, *symbols)]) for entry in entries)  # noqa: E731
            own = lambda state, symbols, step=step, w=write, f=following: step(state, symbols, w, f)  # noqa: E731
            flush = int(generator.integers(3)) * (len({*directions}) == 1 or direction == "ones_first")
            drawn.append(ColumnPass(own, direction=direction, flush=flush, reads=tuple(range(operands + place))))
        fields = {"name": "random", "operands": operands, "sign": "+" * (operands - 1), "alphabet": "01"}
        kind = type("Random", (ColumnTask,), fields | {"passes": tuple(drawn)})
        with suppress(ValueError):
            kind().transducer  # noqa: B018
            return kind


@pytest.mark.parametrize("seed", range(12))
def test_random_transducers_are_searched_whole(seed):
    task = random_task(seed, passes=1 + seed % 2)()
    known, rows = find_task(task.describe(), table_of(task.transducer)), set()
    for own, right, *codes in found_by_verifier(task).tolist():
        pairs = sorted(
            (code // RELATED - 1, code % RELATED) for code in codes if 0 < code < RELATED * (len(known.window) + 1)
        )
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
        parts[-2:] = [Cases(*(part[kept] for part in cases)) for cases in parts[-2:]]
        parts.append(labels.flatten()[places][kept])
    hidden, cases = (Cases(*map(torch.cat, zip(*parts[place::3], strict=True))) for place in (0, 1))
    labels = torch.cat(parts[2::3])
    codes = torch.where(hidden.relations >= 0, 1000 * hidden.relations + hidden.keys, -1).sort().values
    _, group = codes.unique(dim=0, return_inverse=True)
    least, most = (
        torch.full((len(labels),), 0).scatter_reduce(0, group, labels, kind, include_self=False) for kind in ("amin", "amax")
    )
    known = (cases.key_states != unknown) | (cases.relations < 0)
    settled = (least == most)[group] | known[:, 1:].all(1)
    right = torch.where(settled, labels, unknown)
    kept = (cases.states == unknown) | (right != unknown)
    return rows_of(task, Cases(*(part[kept] for part in cases)), right[kept])


@pytest.mark.parametrize("seed", range(12))
def test_random_encoders_are_searched_whole(seed):
    task = settling_task(random_task(seed, passes=1))()
    covered, rows = task.covering(None, 1), found_by_verifier(task, encoder=True)
    mine = as_set(rows[:, 0], rows[:, 1], rows[:, 2:])
    assert mine == rows_of(task, covered.cases, covered.right) == cases_of_all_problems(task, widths(task, 6, 5000))


def test_limits_are_those_of_the_package():
    """All that the code accepts, and of problems of one size the longest."""
    compared = set()
    for task, rule in certifiable():
        mine = find_task(task.describe(), table_of(task.transducer))
        if mine.coupling == rule:
            assert _conclude(Check(wrong=1), untrained(task, coupling=rule), task).limits == mine.limits
            compared.add(task.name)
    for task in (SUMS, PRODUCTS, GRIDS, build_task("settling_base_addition", radix=3), build_task("settling_comparison")):
        mine = find_task(task.describe(), table_of(task.transducer), encoder=True)
        assert mine.limits.get("length") == longest_operands(task, {"tokens": mine.limits["tokens"]})
        compared.add(task.name)
    assert {*verify_certificate.TASKS} - {"calculator"} <= compared
    assert find_task(Addition().describe()).limits["length"] == 1_012_333_498


ARITHMETIC = {
    "base_addition": {"radix": 3}, "plus_one": {}, "constant_multiplication": {}, "remainder": {"modulus": 5},
    "digit_sum": {},
}  # fmt: skip


@pytest.mark.parametrize("name", ARITHMETIC)
def test_a_table_that_is_not_the_arithmetic_of_its_name_is_refused_by_both(name, monkeypatch):
    task = build_task(name, **ARITHMETIC[name])
    table = json.loads(json.dumps(table_of(task.transducer)))
    (own,) = table["passes"]
    for row in (own["write"][-1], own["next"][0]):
        row[-1], row[2] = row[2], row[-1]
        with pytest.raises(Refused, match="does not hold"):
            list_neighbourhoods(find_task(task.describe(), table))
        row[-1], row[2] = row[2], row[-1]
    list_neighbourhoods(find_task(task.describe(), table))
    right = type(task).step
    monkeypatch.setattr(type(task), "step", lambda self, state, symbols: (0, right(self, state, symbols)[1]))
    column_task._transducer.cache_clear()
    with pytest.raises(ValueError):
        task.transducer  # noqa: B018
    column_task._transducer.cache_clear()
