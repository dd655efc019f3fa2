import itertools
import re

import numpy as np
import pytest

from longhand.data import SPLITS, Addition, make_generator
from longhand.data.splits import problem_keys, split_of
from longhand.modeling.vocabulary import decode

ORDERS = ("response_reversed", "all_reversed", "plain")
FORMATS = [Addition(zero_padding=padding, order=order) for padding in (True, False) for order in ORDERS]
ALL_FORMATS = [
    Addition(zero_padding=padding, order=order, separate_eos=eos)
    for padding, order, eos in itertools.product((True, False), ORDERS, (False, True))
]
WRITTEN = {
    (True, "response_reversed"): "$653+049=2070$",
    (True, "all_reversed"): "$356+940=2070$",
    (True, "plain"): "$653+049=0702$",
    (False, "response_reversed"): "$653+49=207$",
    (False, "all_reversed"): "$356+94=207$",
    (False, "plain"): "$653+49=702$",
}


def write(task, first, second):
    """The text of one problem."""
    lengths = np.array([[len(str(first)), len(str(second))]])
    width = lengths.max()
    digits = [[[int(digit) for digit in str(number).zfill(width)[::-1]] for number in (first, second)]]
    return decode(task.format(np.array(digits, dtype=np.uint8), lengths).tokens[0])


def texts_of(examples):
    return [decode(row) for row in examples.tokens]


def expected_text(task, first, second, width):
    """The text of a problem, made of Python integers; `width` is the longer operand's number of digits."""
    numbers = [str(first), str(second), str(first + second)]
    if task.zero_padding:
        numbers = [number.zfill(size) for number, size in zip(numbers, (width, width, width + 1), strict=True)]
    reverse = {"response_reversed": (0, 0, 1), "all_reversed": (1, 1, 1), "plain": (0, 0, 0)}[task.order]
    first, second, total = (text[::-1] if flip else text for text, flip in zip(numbers, reverse, strict=True))
    return f"${first}+{second}={total}{'<eos>' if task.separate_eos else '$'}"


@pytest.mark.parametrize("task", FORMATS)
def test_format_is_written_as_in_the_paper(task):
    text = WRITTEN[task.zero_padding, task.order]
    assert write(task, 653, 49) == text


@pytest.mark.parametrize("task", ALL_FORMATS)
def test_text_of_every_example_is_the_sum_of_its_operands(task):
    for width in (1, 2, 5, 19, 40):
        if task.zero_padding:
            lengths = task.group_lengths(make_generator(width), np.array([width, width]), 200, 1)
        else:
            lengths = task.sample_lengths(make_generator(width), 200, 1, width)
        texts = texts_of(task.examples(make_generator(width, 1), lengths, "train"))
        assert len(texts) == 200
        for text, row in zip(texts, lengths.tolist(), strict=True):
            operands = re.fullmatch(r"\$([0-9]+)\+([0-9]+)=[0-9]+(?:\$|<eos>)", text).groups()
            flip = -1 if task.order == "all_reversed" else 1
            first, second = (int(operand[::flip]) for operand in operands)
            assert [len(str(first)), len(str(second))] == row
            assert text == expected_text(task, first, second, max(row))


@pytest.mark.parametrize("task", FORMATS)
def test_full_carry_chain_adds_a_digit(task):
    digits = str(10**30) if task.order == "plain" else str(10**30)[::-1]
    assert write(task, 10**30 - 1, 1).endswith(f"={digits}$")


@pytest.mark.parametrize(("low", "high"), [(1, 6), (3, 7), (4, 4)])
def test_lengths_of_each_operand_are_uniform_and_independent(low, high):
    lengths = Addition().sample_lengths(make_generator(0), 60_000, low, high)
    assert lengths.min() == low and lengths.max() == high
    size = high - low + 1
    counts = np.bincount((lengths[:, 0] - low) * size + lengths[:, 1] - low, minlength=size**2)
    assert np.abs(counts - 60_000 / size**2).max() <= 4.5 * np.sqrt(60_000) / size


def test_draws_of_mixed_lengths_keep_lengths_and_split():
    lengths = make_generator(0).integers(1, 14, size=(2000, 2))
    digits = Addition().draw(make_generator(1), lengths, "test")
    assigned = split_of(problem_keys(digits, lengths))
    assert set(assigned.tolist()) == {-1, SPLITS.index("test")}
    place = np.arange(digits.shape[2])
    significant = np.where(digits > 0, place + 1, 1).max(axis=2)
    assert (significant == lengths).all()


def test_draws_of_one_split_are_uniform_over_its_problems():
    lengths = np.ones((40_000, 2), dtype=int)
    digits = Addition().draw(make_generator(0), lengths, "train")[:, :, 0]
    counts = np.bincount(digits[:, 0] * 10 + digits[:, 1], minlength=100)
    counts = counts[counts > 0]
    expected = 40_000 / len(counts)
    assert len(counts) > 70 and np.abs(counts - expected).max() < 5 * np.sqrt(expected)
