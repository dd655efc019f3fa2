"""Column tasks: what follows from a step is what the step says, and the search finds what occurs and nothing else."""

import hashlib
import json
import re
import time
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from certificate_subjects import untrained

from longhand.data import ColumnPass, ColumnTask, build_task
from longhand.data.batches import FreshBatches
from longhand.data.machines.covering import Practice
from longhand.data.machines.states import Reason
from longhand.data.proofs import check_neighbourhoods
from longhand.data.proofs.check import covering
from longhand.data.splits import SPLITS
from longhand.data.tasks.column_task import run_pass, task_of_table
from longhand.data.tasks.numbers_by_columns import compare
from longhand.data.tasks.registry import TASKS
from longhand.data.tasks.written_states import layout_of, task_with_states, work_of
from longhand.hub_cards.checkpoints.load import load_checkpoint
from longhand.modeling.transducer import read_transducer, table_of
from longhand.modeling.vocabulary import BOS, PAD


class Sums(ColumnTask):
    name, operands, sign, alphabet, flush = "sums", 2, "+", "012", 1

    def step(self, carry, symbols):
        return (sum(symbols) + carry) % 3, (sum(symbols) + carry) // 3


class TimesThree(ColumnTask):
    name, alphabet, flush = "times_three", "0123", 1

    def step(self, carry, symbols):
        return (3 * symbols[0] + carry) % 4, (3 * symbols[0] + carry) // 4


class Halves(ColumnTask):
    """Remainders from the top, then the quotient."""

    name, alphabet = "halves", "01234"
    passes = (
        ColumnPass(lambda state, symbols: ((state + symbols[0]) % 2,) * 2, writes="01", direction="top_first"),
        ColumnPass(lambda rest, symbols: ((5 * rest + symbols[0]) // 2, symbols[1]), direction="top_first", reads=(0, 1)),
    )


def absolute_difference(state, symbols):
    """Step from the ones: the sign in the ones column is that of the whole. Letters stand for digits below 0."""
    first, second, sign = symbols
    sign, borrow = (sign, 0) if state is None else state
    digit = (first - second if sign < 2 else second - first) - borrow
    return digit % 2 + 2 * (sign == 2), (sign, digit < 0)


class Differences(ColumnTask):
    """Two directions: a comparison from the top, and what is left of the larger number from the ones."""

    name, operands, sign, alphabet = "differences", 2, "~", "01"
    passes = (
        ColumnPass(compare, writes="_+-", direction="top_first"),
        ColumnPass(absolute_difference, writes="01ab", start=None, reads=(0, 1, 2), flush=1),
    )


class RunningSums(ColumnTask):
    """A pass for each operand but the first, which adds it to what the pass before wrote."""

    name, operands, sign, alphabet = "running_sums", 3, "+", "01"
    passes = tuple(
        ColumnPass(
            lambda carry, symbols: ((sum(symbols) + carry) % 2, (sum(symbols) + carry) // 2), flush=place + 1, reads=own
        )
        for place, own in enumerate([(0, 1), (2, 3)])
    )


class Backwards(ColumnTask):
    """Two directions, the ones first: what is left from the ones, and from the top whether a one was written."""

    name, alphabet = "backwards", "01"
    passes = (
        ColumnPass(lambda state, symbols: (state ^ symbols[0],) * 2, flush=2),
        ColumnPass(lambda state, symbols: (state | symbols[1],) * 2, writes="01", direction="top_first", reads=(0, 1)),
    )


class Emptied(ColumnTask):
    """From the top: what the first pass writes behind the ones is read by the second one."""

    name, alphabet, direction = "emptied", "01", "top_first"
    passes = (
        ColumnPass(lambda state, symbols: (state, symbols[0]), start=1, flush=2, direction="top_first"),
        ColumnPass(lambda state, symbols: (symbols[0] ^ symbols[1], 0), flush=1, direction="top_first", reads=(0, 1)),
    )


class Alternating(ColumnTask):
    """Zeros and ones in turn: the second operand is not read, so no token may see it in the place of the first one."""

    name, operands, sign, alphabet = "alternating", 2, "+", "01"
    passes = (ColumnPass(lambda state, symbols: (state, 1 - state), reads=(0,)),)


REGISTERED = [
    build_task(name, **({"radix": 3} if name == "base_addition" else {}))
    for name, kind in TASKS.items()
    if issubclass(kind, ColumnTask)
]
every_task = pytest.mark.parametrize(
    "task",
    [Sums(), TimesThree(), Halves(), Differences(), RunningSums(), Backwards(), Emptied(), Alternating(), *REGISTERED],
    ids=lambda task: task.name,
)


def widths(task, most: int = 5, problems: int = 1000) -> range:
    """Widths from 1 on with few problems."""
    return range(1, 1 + min(most, max(1, int(np.log(problems) / np.log(len(task.alphabet) ** task.operands)))))


def run(task, words: list[list[int]]) -> str:
    """The response to words of one width, the top symbol first, step by step."""
    width, rows, parts = len(words[0]), [list(word[::-1]) for word in words], []
    passes = task.passes or [ColumnPass(task.step, task.writes, task.start, task.flush, task.direction)]
    for own in passes:
        state, written = own.start, []
        reads = range(task.operands) if own.reads is None else own.reads
        columns = [*range(width)] if own.direction == "ones_first" else [*range(width)][::-1]
        for place in [*columns, *range(width, width + own.flush)]:
            symbols = tuple(rows[source][place] if place < len(rows[source]) else 0 for source in reads)
            symbol, state = own.step(state, symbols)
            written.append(symbol)
        parts.append("".join((own.writes or task.alphabet)[symbol] for symbol in written))
        rows.append([*(written[:width] if own.direction == "ones_first" else reversed(written[:width])), *written[width:]])
    return ">".join(parts)


def text_of(task, words) -> str:
    return task.sign.join("".join(task.alphabet[symbol] for symbol in word) for word in words)


def all_problems(task, width: int):
    words = list(product(range(len(task.alphabet)), repeat=width))
    return product(words, repeat=task.operands)


@every_task
def test_responses_are_the_step_run_column_by_column(task):
    for width in widths(task):
        problems = list(all_problems(task, width))
        digits = np.array(problems, dtype=np.uint8)[:, :, ::-1]
        examples = task.format(digits, np.full(digits.shape[:2], width))
        for words, tokens in zip(problems, examples.tokens, strict=True):
            text = "".join(task.tokens[token] for token in tokens)
            assert text == f"${text_of(task, words)}={run(task, words)}$"


@pytest.mark.parametrize("columns", [1, 2, 99, 1000])
def test_blocks_of_columns_give_what_columns_one_by_one_give(columns):
    generator = np.random.default_rng(columns)
    write, following = generator.integers(0, 7, (2, 5, 4))[:, :, :]
    following = following % 5
    inputs = generator.integers(0, 4, (3, columns))
    found = run_pass(write, following, 2, inputs)
    for row, symbols in zip(found, inputs, strict=True):
        state = 2
        for own, symbol in zip(row, symbols, strict=True):
            assert own == write[state, symbol]
            state = following[state, symbol]


def seen(task, widths) -> set:
    """(pass, token, what it sees, right next) of all problems of these widths, from the ids and relations of the rule."""
    rule, every = task.rule, set()
    for width in widths:
        problems = np.array(list(all_problems(task, width)), dtype=np.uint8)[:, :, ::-1]
        examples = task.format(problems, np.full(problems.shape[:2], width))
        tokens = torch.from_numpy(examples.tokens).long()
        ids = rule.plan(tokens[:1], tokens.shape[1]).position_ids[0]
        for column in range(int(examples.query_lengths[0]) - 1, tokens.shape[1] - 1):
            keys = []
            for key in range(column):
                difference = tuple((ids[:, column] - ids[:, key]).tolist())
                if ids[:, key].all() and difference in rule.relations:
                    keys.append((rule.relations.index(difference), key))
            for row in tokens.tolist():
                sees = tuple(sorted((relation, row[key]) for relation, key in keys))
                every.add((row[column], sees, row[column + 1]))
    return every


@every_task
def test_the_search_finds_what_short_problems_show_and_nothing_else(task):
    listed = set()
    for batch in task.covering(task.rule.relations, 1).batches:
        for token, keys, right in zip(batch.tokens.tolist(), batch.keys.tolist(), batch.right.tolist(), strict=True):
            pairs = [(relation, key) for relation, key in zip(batch.relations.tolist(), keys, strict=True) if key != PAD]
            listed.add((token, tuple(sorted(pairs)), right))
    assert len({(token, keys) for token, keys, _ in listed}) == len(listed), "one neighbourhood has two right next tokens"
    occurring = seen(task, widths(task, problems=5000))
    assert occurring <= listed
    if len(task.alphabet) ** task.operands < 10 and all(len(own.write) < 10 for own in task.transducer.passes):
        assert occurring == listed


@every_task
def test_problems_of_some_columns_show_the_neighbourhoods_that_need_no_more(task):
    needed = task.columns_needed
    for width in widths(task, problems=5000):
        assert (needed <= width).sum() == len(seen(task, range(1, width + 1)))
    assert task.length_complexity == needed.max() <= task.trained_length


@every_task
def test_no_smaller_window_is_enough(task):
    passes = [(own.writes, own.start, own.flush, own.direction, own.reads, own.window) for own in task.transducer.passes]
    for place, (*_, (low, high)) in enumerate(passes):
        assert high == 1
        if low < 1:
            own = (task.passes or (ColumnPass(task.step, task.writes, task.start, task.flush, task.direction),))[place]
            narrow = [*task.passes] or [own]
            narrow[place] = replace(own, window=(low + 1, 1))
            with pytest.raises(ValueError, match=rf"the columns {low} to 1"):
                table_of(type("Narrow", (type(task),), {"passes": tuple(narrow)})(**fields_of(task)).transducer)


def fields_of(task) -> dict:
    return {name: value for name, value in task.describe().items() if name != "task"}


@every_task
def test_every_neighbourhood_is_practised_in_a_problem_that_shows_it(task):
    for batch in task.covering(task.rule.relations, 1).batches:
        practice = Practice()
        batch.practise(np.zeros(batch.count), practice)
        assert sum(len(part.digits) for part in practice.problems) == batch.count == len(batch.tokens)
        shown = set()
        for part in practice.problems:
            examples = task.format(part.digits, part.lengths)
            for row in examples.tokens.tolist():
                shown |= set(pairwise(row))
        assert set(zip(batch.tokens.tolist(), batch.right.tolist(), strict=True)) <= shown


@every_task
def test_the_table_is_the_task(task):
    table = table_of(task.transducer)
    again = task_of_table(task.name, table)()
    assert read_transducer(table) == task.transducer and table_of(again.transducer) == table
    assert again.rule.relations == task.rule.relations and again.tokens == task.tokens
    assert again.reader == task.reader or type(task).reader is not ColumnTask.reader


def test_a_checkpoint_answers_without_the_file_of_its_task(tmp_path):
    task = Sums()
    untrained(task).save_pretrained(tmp_path)
    task.family.tokenizer(task).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | {"task": task.describe()}
    (tmp_path / "config.json").write_text(json.dumps(config))
    checkpoint = load_checkpoint(str(tmp_path))
    assert type(checkpoint.task) is not Sums and table_of(checkpoint.task.transducer) == config["transducer"]
    expected = task.family.answer(task, checkpoint.model, checkpoint.tokenizer, "21+2")
    assert checkpoint.answer("21+2") == expected and (tmp_path / "transducer.py").is_file()
    with pytest.raises(ValueError, match=r"a legal prompt is"):
        checkpoint.model.generate(**checkpoint.tokenizer("21+2=", return_tensors="pt"))


@every_task
def test_training_draws_trained_sizes_of_its_own_split_only(task):
    model = untrained(task)
    batches = FreshBatches(
        task,
        1,
        5,
        0,
        collator=task.family.training_collator(model.config, task.family.training_arguments()),
        batch_size=32,
        num_batches=12,
    )
    batches.practise(check_neighbourhoods(model, task).failing)
    for index in range(12):
        examples, _ = batches.global_batch(index)
        for row, query in zip(examples.tokens, examples.query_lengths, strict=True):
            words = "".join(task.tokens[token] for token in row[1 : query - 1]).split(task.sign or None)
            digits = np.array([[[task.alphabet.index(symbol) for symbol in word[::-1]] for word in words]], dtype=np.uint8)
            assert 1 <= digits.shape[2] <= 5
            assert task.split_of(digits, np.full(digits.shape[:2], digits.shape[2]))[0] in (-1, SPLITS.index("train"))


def broken(**changes):
    return type("Broken", (ColumnTask,), {"name": "broken", "alphabet": "01", **changes})()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"step": lambda self, state, symbols: (2, 0)}, r"step\(0, \(0,\)\) of 'broken' writes 2: .* 0 to 1"),
        ({"step": lambda self, state, symbols: (0, [])}, r"step\(0, \(0,\)\) .* not hashable"),
        ({"step": lambda self, state, symbols: (0, 0), "start": []}, "start .* not hashable"),
        ({"step": lambda self, state, symbols: (0, state + 1)}, r"10,000 states; the last ones are 9998, 9999, 10000"),
        ({"step": lambda self, state, symbols: 0}, "must return .symbol to write, next state., got 0"),
        ({"step": lambda self, state, symbols: (0, time.perf_counter_ns())}, "when it is called again"),
        ({"step": lambda self, state, symbols: (0, np.zeros(2))}, r"step\(0, \(0,\)\) .* not hashable"),
        ({"step": lambda self, state, symbols: (symbols[1], 0)}, r"step\(0, \(0,\)\) .* IndexError"),
        ({"direction": "up"}, "direction .* 'up'"),
        ({"flush": -1}, "flush -1"),
        ({"window": (2, 1)}, r"window \(2, 1\)"),
        ({"passes": (ColumnPass(max, reads=(1,)),)}, r"\(1,\)"),
        ({"step": lambda self, state, symbols: (0, 0), "alphabet": "0="}, "'=', which is reserved"),
        ({"step": lambda self, state, symbols: (0, 0), "operands": 2}, "sign must be one character"),
    ],
)  # fmt: skip
def test_a_step_without_a_table_is_refused_by_its_entry(changes, expected):
    with pytest.raises(ValueError, match=expected):
        table_of(broken(**changes).transducer)


def test_a_conflict_shows_two_problems_that_look_the_same_and_what_would_do():
    with pytest.raises(ValueError, match="is not local") as refused:
        table_of(type("Narrow", (Sums,), {"window": (1, 1)})().transducer)
    problems = re.findall(r"([012]+\+[012]+)= before '(.)'", str(refused.value))
    assert len(problems) == 2 and problems[0][1] != problems[1][1]
    assert "the smallest window that would do has the columns 0 to 1" in str(refused.value)


def test_a_task_that_no_window_shows_must_write_its_states():
    hidden = broken(step=lambda self, state, symbols: (0 if not symbols[0] else state, state ^ symbols[0]))
    with pytest.raises(ValueError, match="no window of 6 columns would do: write the states"):
        table_of(hidden.transducer)


@pytest.mark.thorough
def test_too_many_neighbourhoods_are_refused_with_their_number_and_width():
    alphabet = "".join(map(chr, range(0x100, 0x100 + 200)))
    wide = {"alphabet": alphabet, "operands": 2, "sign": "+", "window": (0, 1), "step": lambda self, s, x: (max(x), 0)}
    with pytest.raises(ValueError, match=r"too many neighbourhoods: a window of 2 columns has [\d,]+ cases"):
        table_of(broken(**wide).transducer)


STATED = [Sums(), TimesThree(), Halves(), Differences(), RunningSums(), Backwards(), Emptied(), Alternating()]


@pytest.mark.parametrize("task", STATED, ids=lambda task: task.name)
def test_a_task_that_writes_its_states_answers_alike_and_sees_few_columns(task):
    stated = task_with_states(type(task))()
    generator = np.random.default_rng(0)
    for _ in range(50):
        words = task.words(generator.integers(0, len(task.alphabet), size=(1, task.operands, int(generator.integers(1, 9)))))
        question = task.sign.join(words[0])
        assert stated.answer_to(question) == task.answer_to(question)
        assert stated.prompt(question) == task.prompt(question)
    for own in stated.transducer.passes:
        assert own.window[0] >= -own.flush and (len(own.write) == 1 or len(own.writes) >= len(own.write))
    layout = layout_of(task, stated)
    assert layout.states == (2 * work_of(stated) < work_of(task)) and "less than half" in layout.reason


def test_whatever_the_step_a_task_that_writes_its_states_has_a_window():
    def step(self, state, symbols):
        return (0 if not symbols[0] else state), state ^ symbols[0]

    hidden = broken(step=step)
    stated = task_with_states(type(hidden))()
    assert layout_of(hidden, stated) == (True, Reason.NO_WINDOW)
    assert stated.name == "states_of_broken" and stated.transducer.passes[0].window == (1, 1)
    with pytest.raises(ValueError, match="in it"):
        task_with_states(type(broken(step=step, answer="joined")))().transducer  # noqa: B018


def test_too_many_neighbourhoods_hide_no_conflict():
    """Who leads so far is not seen where the numbers agree since: no window helps, and wide ones have too many cases."""

    def larger(self, leads, symbols):
        first, second = symbols
        leads = leads or (first > second) - (first < second)
        return (second if leads < 0 else first), leads

    task = broken(alphabet="0123456789", operands=2, sign="~", direction="top_first", step=larger)
    with pytest.raises(ValueError, match="is not local") as refused:
        table_of(task.transducer)
    problems = re.findall(r"([0-9]+)~([0-9]+)= before '(.)'", str(refused.value))
    assert len({right for _, _, right in problems}) == 2 == len({problem[:2] for problem in problems})
    assert re.search(r"columns has [0-9,]+ cases\): write the states", str(refused.value))


@pytest.mark.parametrize("reads", [None, (0,)])
def test_operands_whose_columns_are_too_many_are_refused_before_they_are_listed(reads):
    own = ColumnPass(lambda state, symbols: (symbols[0], 0), reads=reads)
    with pytest.raises(ValueError, match=f"one of {2**40:,} inputs"):
        table_of(broken(operands=40, sign="+", passes=(own,)).transducer)


def test_an_alphabet_of_one_symbol_has_problems_of_every_size_in_every_split():
    task = broken(alphabet="1", writes="01", step=lambda self, state, symbols: (state, 1 - state))
    for split in SPLITS:
        for length in (1, 2, 100):
            assert task.examples(np.random.default_rng(0), np.array([[length]]), split).tokens.shape[1] == 2 * length + 3


LISTS = {
    "addition": ({}, None, 6_217, "053bdc2779f6c7cf"),
    "addition, unpadded": ({"zero_padding": False}, None, 7_514, "f2df543d008058af"),
    "multi_operand_addition": ({}, None, 145_423, "dc3925c1c25e1d2d"),
    "subtraction": ({}, None, 20_200, "c21de2bd0a92436e"),
    "signed_subtraction": ({}, None, 20_528, "7c09af09f17881fc"),
    "division": ({}, None, 5_625, "6db6949a0332fd61"),
    "multiplication": ({"multiplier_length": 1}, "multiplication_by_digits", 124_740, "93e778bfa4fb2db3"),
    "addition_scratchpad": ({}, None, 6_156, "4b2cca8ed9f6632c"),
    "multiplication_scratchpad": ({}, None, 98_487, "546d222ee404652e"),
    "copy": ({}, None, 120, "b8d3d64a18c054a5"),
    "reverse": ({}, None, 120, "b8d3d64a18c054a5"),
    "parity": ({}, None, 8, "8714ee0d1bd91eb4"),
}
"""Size and hash of the list of every task, as it was when the lists were made by hand."""


@pytest.mark.parametrize("name", LISTS)
def test_searched_lists_are_those_that_were_worked_out_by_hand(name):
    fields, coupling, size, digest = LISTS[name]
    task = build_task(name.partition(",")[0], **fields)
    model = untrained(task, coupling=coupling or task.coupling)
    rows = listed_rows(covering(model, task), model)
    assert len(rows) == size
    assert hashlib.sha256(rows.astype(np.int32).tobytes()).hexdigest()[:16] == digest


def listed_rows(covered, model) -> np.ndarray:
    """Token, right next token, keys and relations of every neighbourhood, `$` among the keys; sorted, without repeats."""
    window, parts = model.model.position_encoding.window, []
    beginning = len(window)
    for batch in covered.batches:
        absent = batch.keys == PAD
        count = len(batch.keys)
        relations = np.where(absent, -1, batch.relations)
        most = max([beginning, *batch.relations.tolist()]) + 1
        code = np.where(absent, 0, batch.keys.astype(np.int64) * most + relations + 1)
        code = np.concatenate([code, np.full((count, 1), BOS * most + beginning + 1)], axis=1)
        code = -np.sort(-code, axis=1)
        keys, seen = np.maximum(code - 1, 0) // most, np.where(code > 0, (code - 1) % most, -1)
        parts.append((batch.tokens, batch.right, keys, seen))
    width = max(part[2].shape[1] for part in parts)
    rows = [
        np.column_stack([
            tokens, right, np.pad(keys, ((0, 0), (0, width - keys.shape[1]))),
            np.pad(seen, ((0, 0), (0, width - seen.shape[1])), constant_values=-1),
        ])
        for tokens, right, keys, seen in parts
    ]  # fmt: skip
    rows = np.unique(np.concatenate(rows), axis=0)
    # A slot that is empty everywhere says nothing.
    return rows[:, ((rows != 0) & (rows != -1)).any(axis=0)]
