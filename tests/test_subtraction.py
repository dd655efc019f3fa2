import numpy as np
import pytest

from longhand.data import Subtraction, make_generator
from longhand.data.digits import numbers_below, subtract_digits
from longhand.modeling.vocabulary import decode

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


def test_a_negative_difference_is_refused():
    with pytest.raises(ValueError, match="the first number of the question '49-653' must not be smaller"):
        TASK.prompt("49-653")
    with pytest.raises(ValueError, match="first operand must not be smaller"):
        write(49, 53)
    with pytest.raises(ValueError, match="must not be longer than the first, got 5 and 3"):
        TASK.operand_lengths(3, 5)
