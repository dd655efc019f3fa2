import itertools
import re

import numpy as np
import pytest

from longhand.data import SPLITS, TASKS, CouplingCollator, Subtraction, make_generator
from longhand.data.digits import numbers_below, subtract_digits
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.relations import NOT_RELATED, coupled_pair_map
from longhand.modeling.vocabulary import decode

RULE = COUPLING_RULES["subtraction"]
TASK = Subtraction()


def to_digits(numbers, width):
    return np.array([[int(digit) for digit in str(number).zfill(width)[::-1]] for number in numbers], dtype=np.uint8)


def write(first, second, task=TASK):
    width = max(len(str(first)), len(str(second)))
    digits = np.stack([to_digits([first], width), to_digits([second], width)], axis=1)
    return decode(task.format(digits, np.array([[len(str(first)), len(str(second))]])).tokens[0])


def test_format_is_zero_padded_and_the_difference_reversed():
    assert write(653, 49) == "$653-049=406$"
    assert write(7, 7) == "$7-7=0$"
    assert write(1000, 1) == "$1000-0001=9990$"
    assert write(10, 9, Subtraction(separate_eos=True)) == "$10-09=10<eos>"


@pytest.mark.parametrize("longest", [1, 2, 5, 19, 40])
def test_text_of_every_example_is_the_difference_of_its_operands(longest):
    lengths = TASK.group_lengths(make_generator(longest), np.array([longest, 1]), 300, 1)
    for tokens, row in zip(TASK.examples(make_generator(0), lengths, "train").tokens, lengths.tolist(), strict=True):
        text = decode(tokens)
        first, second = text[1 : text.index("=")].split("-")
        assert [len(str(int(number))) for number in (first, second)] == row and len(first) == len(second) == longest
        assert text == f"${first}-{second}={str(int(first) - int(second)).zfill(longest)[::-1]}$"


def test_digit_arithmetic_is_that_of_integers():
    generator = make_generator(0)
    first, second = generator.integers(0, 10, size=(2, 500, 30), dtype=np.uint8)
    second[:100, 3:] = first[:100, 3:]
    second[:3] = first[:3]

    def integers(digits):
        return [int("".join(map(str, row[::-1]))) for row in digits.tolist()]

    pairs = list(zip(integers(first), integers(second), strict=True))
    below = [a < b for a, b in pairs]
    assert numbers_below(first, second).tolist() == below and 0 < sum(below[:100]) < 100
    kept = ~np.array(below)
    expected = [a - b for a, b in pairs if a >= b]
    assert integers(subtract_digits(first[kept], second[kept])) == expected


def test_lengths_are_those_of_two_independent_numbers_the_longer_first():
    sampled = TASK.sample_lengths(make_generator(0), 60_000, 2, 4)
    rows = [(longer, shorter) for longer in (2, 3, 4) for shorter in range(2, longer + 1)]
    for longer, shorter in rows:
        share = 60_000 / 9 * (1 if longer == shorter else 2)
        assert abs((sampled == (longer, shorter)).all(axis=1).sum() - share) < 5 * share**0.5
    drawn = TASK.group_lengths(make_generator(1), np.array([4, 3]), 50_000, 2)
    given = sampled[TASK.group(sampled) == 4]
    for shorter in (2, 3, 4):
        assert abs((drawn[:, 1] == shorter).mean() - (given[:, 1] == shorter).mean()) < 0.02
    assert (drawn[:, 0] == 4).all()


def test_the_larger_number_is_first_and_all_pairs_are_equally_likely():
    digits = TASK.draw_operands(make_generator(0), np.tile([1, 1], (110_000, 1)))[:, :, 0].astype(int)
    counts = np.zeros((10, 10), dtype=int)
    np.add.at(counts, (digits[:, 0], digits[:, 1]), 1)
    assert (np.triu(counts, 1) == 0).all()
    share = np.tril(np.full((10, 10), 2200.0), -1) + np.diag(np.full(10, 1100.0))
    assert np.abs(counts - share).max() < 5 * 2200**0.5


def test_splits_share_no_short_problem():
    lengths = np.tile([2, 1], (300, 1))
    drawn = {split: {row.tobytes() for row in TASK.draw(make_generator(1), lengths, split)} for split in SPLITS}
    for first, second in itertools.combinations(SPLITS, 2):
        assert not drawn[first] & drawn[second]


def seen(digits):
    """What every token of the responses sees, keys in a fixed order, and what comes next."""
    examples = TASK.format(digits, np.full(digits.shape[:2], digits.shape[2]))
    batch = CouplingCollator("subtraction", 100)(examples)
    related = coupled_pair_map(batch["position_ids"], batch["position_ids"], RULE.relations, True)[0]
    tokens = batch["input_ids"].numpy()
    found = set()
    for column in range(tokens.shape[1] - batch["logits_to_keep"], tokens.shape[1] - 1):
        keys = [key for key in range(1, column + 1) if related[column, key] != NOT_RELATED]
        relations = tuple(related[column, keys].tolist())
        columns = [column, *keys, column + 1]
        found |= {(relations, *row) for row in np.unique(tokens[:, columns], axis=0).tolist() for row in [tuple(row)]}
    return found


@pytest.fixture(scope="module")
def covered():
    covering = TASK.covering(RULE.relations, 1)
    batches = list(covering.batches)
    assert sum(len(digits) for digits, _ in batches) == covering.count
    return set().union(*(seen(digits) for digits, _ in batches))


@pytest.mark.parametrize("max_length", [4, 9])
def test_variations_keep_the_problem_below_and_the_larger_number_first(max_length):
    digits = TASK.draw_operands(make_generator(0), np.tile([4, 2], (50, 1)))
    widths = set()
    for index in range(60):
        varied = TASK.vary(make_generator(index), digits, max_length)
        widths.add(varied.shape[2])
        lengths = np.full(varied.shape[:2], varied.shape[2])
        assert (varied[:, :, :4] == digits).all()
        assert not numbers_below(varied[:, 0], varied[:, 1]).any()
        drawn = TASK.drawn_lengths(varied, lengths)
        assert (drawn <= lengths).all() and (TASK.split_of(varied, drawn) >= -1).all()
    assert max(widths) <= max_length and (len(widths) > 1) == (max_length > 4)


@pytest.mark.parametrize(("window", "layers"), [((0, 1), 1), (RULE.relations[:2], 1), (RULE.relations, 2)])
def test_other_windows_are_refused(window, layers):
    with pytest.raises(ValueError, match="worked out for one layer and the window of the coupling rule 'subtraction' only"):
        TASK.covering(window, layers)


def test_answer_is_read_back_as_the_difference():
    for first, second in ((653, 49), (10**30, 1), (5, 5), (0, 0), (100, 99)):
        query, response = write(first, second).strip("$").split("=")
        assert TASK.prompt(f"{first}-{second}") == TASK.prompt(f" {first} - {second} = ") == f"{query}="
        assert TASK.reader.read(response) == str(first - second)


@pytest.mark.parametrize("question", ["", "-", "5-", "-5", "5--3", "5-3-1", "5+3", "5-3==", "5-3=2", "a-b"])
def test_malformed_questions_are_refused(question):
    with pytest.raises(ValueError, match=f"^the question {re.escape(repr(question))} is not a subtraction"):
        TASK.prompt(question)


def test_a_negative_difference_is_refused():
    with pytest.raises(ValueError, match="the first number of the question '49-653' must not be smaller"):
        TASK.prompt("49-653")
    with pytest.raises(ValueError, match="first operand must not be smaller"):
        write(49, 53)
    with pytest.raises(ValueError, match="must not be longer than the first, got 5 and 3"):
        TASK.operand_lengths(3, 5)


def test_mixed_lengths_in_one_batch_are_refused():
    with pytest.raises(ValueError, match="must have one longest operand, got 2 and 3"):
        TASK.format(np.zeros((2, 2, 3), dtype=np.uint8), np.array([[3, 1], [2, 2]]))


def test_format_describes_itself():
    for task in (TASK, Subtraction(separate_eos=True)):
        description = task.describe()
        assert TASKS[description.pop("task")](**description) == task
    with pytest.raises(ValueError, match="separate_eos must be True or False, got 1"):
        Subtraction(separate_eos=1)
