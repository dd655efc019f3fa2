import sys

import numpy as np
import pytest

from longhand.data.digits import add_digits, uniform_digits
from longhand.data.splits import PARTITIONED_DIGITS, make_generator, problem_keys, split_of


def to_digits(numbers, width):
    """Python integers as (count, width) digits, ones first."""
    return np.array([[int(digit) for digit in str(number).zfill(width)[::-1]] for number in numbers], dtype=np.uint8)


def to_numbers(digits):
    return [int("".join(map(str, row[::-1]))) for row in digits.tolist()]


@pytest.fixture
def any_integer():
    """Lifts Python's limit on the digits of an integer that is read from text."""
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    yield
    sys.set_int_max_str_digits(limit)


def test_neighbouring_keys_share_no_value():
    keys: list = [(0,), (1,), (0, 0), (0, 1), (1, 0), (0, "1"), ("0", 1), (0, "train"), (0, "test"), (0, "train", 1)]
    keys += [(0, "train", 11), (0, "train", 1, 1), (12, 3), (1, 23), ("12", "3")]
    values = np.concatenate([make_generator(*key).integers(0, 2**62, 1000) for key in keys])
    assert len(np.unique(values)) == len(values)


@pytest.mark.parametrize("shape", [(500,), (250, 2)])
def test_uniform_digits_have_exactly_the_asked_length(shape):
    lengths = make_generator(1).integers(1, 30, size=shape)
    digits = uniform_digits(make_generator(2), lengths)
    assert digits.shape == (*shape, lengths.max()) and digits.dtype == np.uint8
    beyond = np.arange(lengths.max()) >= lengths[..., None]
    assert digits[beyond].sum() == 0 and digits.max() == 9


@pytest.mark.parametrize("length", [1, 2])
def test_uniform_digits_are_uniform_among_numbers_of_the_length(length):
    # Longer neighbours in the same array must not change the distribution.
    lengths = np.where(np.arange(120_000) % 2, length, 3)
    numbers = to_numbers(uniform_digits(make_generator(0), lengths)[lengths == length])
    smallest = 10 ** (length - 1) if length > 1 else 0
    counts = np.bincount(numbers, minlength=10**length)[smallest:]
    expected = len(numbers) / len(counts)
    degrees = len(counts) - 1
    assert ((counts - expected) ** 2 / expected).sum() < degrees + 5 * np.sqrt(2 * degrees)


@pytest.mark.parametrize("width", [1, 2, 50, 2**14 - 1, 2**14, 2**14 + 3])
def test_sums_equal_python_integers(width, any_integer):
    count = 500 if width < 100 else 3
    first, second = uniform_digits(make_generator(width), np.full((count, 2), width)).swapaxes(0, 1)
    total = add_digits(first, second)
    assert total.shape == (count, width + 1) and total.dtype == np.uint8 and total.max() < 10
    assert to_numbers(total) == [left + right for left, right in zip(to_numbers(first), to_numbers(second), strict=True)]


@pytest.mark.parametrize("width", [1, 2, 50, 2**14, 2**14 + 3])
def test_carries_run_through_whole_chains_of_nines(width):
    nines, zero = np.full((1, width), 9, dtype=np.uint8), np.zeros((1, width), dtype=np.uint8)
    one = zero.copy()
    one[0, 0] = 1
    total = add_digits(np.concatenate([nines, one, nines, nines]), np.concatenate([one, nines, nines, zero]))
    power = [0] * width + [1]
    assert total.tolist() == [power, power, [8] + [9] * (width - 1) + [1], [9] * width + [0]]


def drawn(*lengths, count=20_000):
    rows = np.tile(lengths, (count, 1))
    return uniform_digits(make_generator(0), rows), rows


@pytest.mark.parametrize("lengths", [(1, 3), (2, 2), (4, 1), (9, 9), (17, 1)])
def test_a_sixteenth_is_held_out_for_each_split(lengths):
    digits, rows = drawn(*lengths)
    different = np.unique(problem_keys(digits, rows))
    share = np.bincount(split_of(different), minlength=3) / len(different)
    assert share[1:] == pytest.approx([1 / 16, 1 / 16], abs=5 * np.sqrt(1 / 16 * 15 / 16 / len(different)))


@pytest.mark.parametrize("width", [3, 7, PARTITIONED_DIGITS, PARTITIONED_DIGITS + 1, 60])
def test_split_does_not_depend_on_width_of_array(width):
    digits, lengths = drawn(1, 2)
    wide = np.pad(digits, [(0, 0), (0, 0), (0, width - digits.shape[2])])
    assert (split_of(problem_keys(wide, lengths)) == split_of(problem_keys(digits, lengths))).all()


def test_split_depends_on_every_digit_and_on_order_of_operands():
    digits, lengths = drawn(9, 9, count=3000)
    split = split_of(problem_keys(digits, lengths))
    for operand, place in [(operand, place) for operand in range(2) for place in range(9)]:
        changed = digits.copy()
        changed[:, operand, place] = changed[:, operand, place] % 9 + 1
        assert (split_of(problem_keys(changed, lengths)) != split).mean() > 0.15
    assert (split_of(problem_keys(digits[:, ::-1], lengths)) != split).mean() > 0.15


@pytest.mark.parametrize(("lengths", "assigned"), [((9, 9), True), ((17, 1), True), ((10, 9), False), ((18, 1), False)])
def test_only_problems_of_few_digits_are_assigned_to_a_split(lengths, assigned):
    assert ((split_of(problem_keys(*drawn(*lengths, count=50))) >= 0) == assigned).all()
