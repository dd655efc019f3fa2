import itertools
import re

import numpy as np
import pytest

from longhand.data import SPLITS, TASKS, CouplingCollator, EvaluationBatches, MultiOperandAddition, make_generator
from longhand.data.collator import IGNORED
from longhand.data.splits import problem_keys, split_of
from longhand.modeling.relations import coupled_pair_map
from longhand.modeling.vocabulary import decode

OPERANDS = [2, 3, 4, 7, 10]


def write(task, *numbers):
    """The text of one problem."""
    lengths = np.array([[len(str(number)) for number in numbers]])
    width = lengths.max()
    digits = [[[int(digit) for digit in str(number).zfill(width)[::-1]] for number in numbers]]
    return decode(task.format(np.array(digits, dtype=np.uint8), lengths).tokens[0])


def expected_text(*numbers):
    """The text of a problem, made of Python integers."""
    longest = max(len(str(number)) for number in numbers)
    width = len(str(len(numbers) * (10**longest - 1)))
    return f"${'+'.join(str(n).zfill(width) for n in numbers)}={str(sum(numbers)).zfill(width)[::-1]}$"


def test_format_is_zero_padded_to_the_longest_possible_sum():
    assert write(MultiOperandAddition(), 653, 49, 871) == "$0653+0049+0871=3751$"
    assert write(MultiOperandAddition(operands=2, separate_eos=True), 9, 9) == "$09+09=81<eos>"
    assert write(MultiOperandAddition(operands=10), *[9] * 10) == f"${'+'.join(['09'] * 10)}=09$"


@pytest.mark.parametrize("operands", OPERANDS)
def test_text_of_every_example_is_the_sum_of_its_operands(operands):
    task = MultiOperandAddition(operands=operands)
    for longest in (1, 2, 5, 19, 40):
        lengths = task.group_lengths(make_generator(longest), np.full(operands, longest), 200, 1)
        examples = task.examples(make_generator(longest, 1), lengths, "train")
        assert examples.same_layout and len(examples) == 200
        for tokens, query, row in zip(examples.tokens, examples.query_lengths, lengths.tolist(), strict=True):
            text = decode(tokens)
            numbers = [int(number) for number in text[1 : text.index("=")].split("+")]
            assert [len(str(number)) for number in numbers] == row
            assert text == expected_text(*numbers)
            assert text.index("=") + 1 == query


@pytest.mark.parametrize("operands", OPERANDS)
def test_carries_run_through_the_whole_sum(operands):
    task = MultiOperandAddition(operands=operands)
    nines = 10**50 - 1
    for numbers in ([nines] * operands, [nines, 1] + [0] * (operands - 2), [nines] + [9] * (operands - 1)):
        assert write(task, *numbers) == expected_text(*numbers)


@pytest.mark.parametrize("operands", [2, 4])
def test_lengths_of_each_operand_are_uniform_and_independent(operands):
    lengths = MultiOperandAddition(operands=operands).sample_lengths(make_generator(0), 60_000, 3, 5)
    counts = np.bincount((lengths - 3) @ 3 ** np.arange(operands), minlength=3**operands)
    share = 60_000 / 3**operands
    assert lengths.shape == (60_000, operands) and len(counts) == 3**operands
    assert np.abs(counts - share).max() <= 4.5 * share**0.5


@pytest.mark.parametrize(("operands", "min_length", "longest"), [(2, 1, 4), (3, 1, 1), (3, 2, 4), (4, 1, 3), (3, 5, 5)])
def test_group_lengths_are_sampled_lengths_given_their_maximum(operands, min_length, longest):
    task, count = MultiOperandAddition(operands=operands), 30_000
    rows = itertools.product(range(min_length, longest + 1), repeat=operands)
    rows = [row for row in rows if max(row) == longest]
    sampled = task.sample_lengths(make_generator(0), 4 * count, min_length, longest)
    sampled = sampled[task.group(sampled) == longest]
    given = np.full(operands, min_length)
    given[-1] = longest
    drawn = task.group_lengths(make_generator(1), given, count, min_length)
    assert drawn.shape == (count, operands)
    for lengths in (sampled, drawn):
        counts = np.array([(lengths == row).all(axis=1).sum() for row in rows])
        assert counts.sum() == len(lengths)
        share = 1 / len(rows)
        assert np.abs(counts - len(lengths) * share).max() <= 4.5 * np.sqrt(len(lengths) * share * (1 - share))


def test_mixed_longest_operands_in_one_batch_are_refused():
    with pytest.raises(ValueError, match="must have one longest operand, got 2 and 3 digits"):
        MultiOperandAddition().examples(make_generator(0), np.array([[1, 1, 3], [2, 1, 2]]), "train")


@pytest.mark.parametrize("split", SPLITS)
def test_short_draws_belong_to_the_asked_split(split):
    lengths = np.tile([2, 1, 3], (300, 1))
    digits = MultiOperandAddition().draw(make_generator(0), lengths, split)
    assert (split_of(problem_keys(digits, lengths)) == SPLITS.index(split)).all()


@pytest.mark.parametrize("operands", OPERANDS)
def test_evaluation_batches_supervise_the_response(operands):
    task = MultiOperandAddition(operands=operands)
    collator = CouplingCollator(task.coupling, 30)
    batch = EvaluationBatches(task, task.operand_lengths(6), 5, 0, "test", 5, collator=collator)[0]
    assert task.operand_lengths(6) == (6,) * operands
    assert ((batch["labels"] != IGNORED).sum(1) == 8).all() and batch["logits_to_keep"] == 9
    assert len(batch["position_ids"]) == 1


@pytest.mark.parametrize("operands", OPERANDS)
def test_answer_is_read_back_as_the_integer_sum(operands):
    task, generator = MultiOperandAddition(operands=operands), make_generator(operands)
    rows = [[0] * operands, [10**30 - 1] * operands, *generator.integers(0, 10**6, (50, operands)).tolist()]
    for numbers in rows:
        query, response = write(task, *numbers).strip("$").split("=")
        assert task.prompt("+".join(map(str, numbers))) == f"{query}="
        assert task.reader.read(response) == str(sum(numbers))


@pytest.mark.parametrize("question", ["653+49+871", "653+49+871=", " 653 + 49 + 871 ", "653+ 49 +871 =\n"])
def test_question_may_have_spaces_and_an_equals_sign(question):
    assert MultiOperandAddition().prompt(question) == "0653+0049+0871="


@pytest.mark.parametrize(
    "question",
    ["", "+", "3", "3+4", "3+4+5+6", "3+4+", "+3+4+5", "3++4+5", "3+4-5", "3+4+5==", "3+4+5=12", "3+4+5.0", "3+4 5", "٣+4+5",
     "3+4+5\u00a0", "a+b+c", "3*4*5"],
)  # fmt: skip
def test_malformed_question_is_refused_by_name(question):
    with pytest.raises(ValueError, match=f"^the question {re.escape(repr(question))} is not an addition of 3 numbers"):
        MultiOperandAddition().prompt(question)


@pytest.mark.parametrize("operands", OPERANDS)
def test_example_question_is_one_of_the_task(operands):
    task = MultiOperandAddition(operands=operands)
    assert task.prompt(task.example_question).count("+") == operands - 1


@pytest.mark.parametrize("value", [1, 11, 0, -2, 3.0, True, None, "3"])
def test_illegal_numbers_of_operands_are_refused(value):
    with pytest.raises(ValueError, match=f"operands must be .* got {re.escape(repr(value))}"):
        MultiOperandAddition(operands=value)


def test_format_describes_itself():
    for task in (MultiOperandAddition(), MultiOperandAddition(separate_eos=True, operands=7)):
        description = task.describe()
        assert TASKS[description.pop("task")](**description) == task
    with pytest.raises(ValueError, match="separate_eos must be True or False, got 1"):
        MultiOperandAddition(separate_eos=1)


def seen(task, digits):
    """What every token of the responses sees, in no order, and what comes next."""
    examples = task.format(digits, np.full(digits.shape[:2], digits.shape[2]))
    batch = CouplingCollator(task.coupling, 100)(examples)
    related = coupled_pair_map(batch["position_ids"], batch["position_ids"], (0, 1), True)[0]
    tokens = batch["input_ids"].numpy()
    found = set()
    for column in range(tokens.shape[1] - batch["logits_to_keep"], tokens.shape[1] - 1):
        parts = [tokens[:, [column, column + 1]]]
        for relation in (0, 1):
            keys = [key for key in range(1, column) if related[column, key] == relation]
            parts.append(np.sort(np.pad(tokens[:, keys].astype(int), ((0, 0), (0, 9 - len(keys))), constant_values=99)))
        found |= set(map(tuple, np.unique(np.concatenate(parts, axis=1), axis=0).tolist()))
    return found


@pytest.mark.parametrize(("window", "layers"), [((0, 1), 2), ((-1, 1), 1), (((0,), (1,)), 1)])
def test_other_windows_are_refused(window, layers):
    with pytest.raises(ValueError, match=r"searched for relation_range \[0, 1\] and one layer"):
        MultiOperandAddition().covering(window, layers)


def test_variations_hold_the_same_columns():
    task = MultiOperandAddition()
    digits = task.draw_operands(make_generator(0), np.full((50, 3), 3))
    widths = set()
    for index in range(40):
        varied = task.vary(make_generator(index), digits, 8)
        widths.add(varied.shape[2])
        assert (np.sort(varied[:, :, :3], axis=1) == np.sort(digits, axis=1)).all()
    assert len(widths) > 1 and max(widths) <= 8
    assert task.drawn_lengths(np.array([[[1, 0], [0, 0], [0, 7]]]), None).tolist() == [[1, 1, 2]]
