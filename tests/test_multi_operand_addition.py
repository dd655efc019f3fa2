import numpy as np
import pytest

from longhand.data import MultiOperandAddition, make_generator
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
