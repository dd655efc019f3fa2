import itertools
import re
from collections import Counter
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest
import torch

from longhand.data import AdditionScratchpad, make_generator
from longhand.data.tasks.addition_scratchpad import LengthSampling
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.vocabulary import TOKENS, decode

RULE = COUPLING_RULES["addition_scratchpad"]
SAMPLINGS = get_args(LengthSampling)
SIZES = [(1, 2), (1, 9), (1, 10), (1, 11), (1, 12), (2, 2), (2, 100), (2, 101), (3, 5), (10, 10), (30, 30), (60, 3)]
"""Digits of the operands, operands."""


def as_digits(problems: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Digits and lengths of problems with equally many operands."""
    lengths = np.array([[len(str(number)) for number in numbers] for numbers in problems])
    width = lengths.max()
    digits = [[[int(digit) for digit in str(number).zfill(width)[::-1]] for number in numbers] for numbers in problems]
    return np.array(digits, dtype=np.uint8), lengths


def write(task, *numbers: int) -> str:
    """The text of one problem."""
    return decode(task.format(*as_digits([list(numbers)])).tokens[0])


def expected_text(*numbers: int) -> str:
    """The text of a problem, made of Python integers."""
    width = max(len(str(number)) for number in numbers) + len(str(len(numbers) - 1))
    sums = [0, *itertools.accumulate(numbers)]
    query = "+".join(str(number).zfill(width) for number in numbers)
    return f"${query}={'>'.join(str(total).zfill(width)[::-1] for total in sums)}$"


def draw(length: int, operands: int, count: int, *seed: int) -> np.ndarray:
    """Digits of any operands of up to `length` digits; the last problems are full of nines and zeros."""
    generator = make_generator(length, operands, *seed)
    digits = generator.integers(0, 10, (count, operands, length)).astype(np.uint8)
    digits[count // 2 :] = 9 * generator.integers(0, 2, digits[count // 2 :].shape)
    digits[-1] = 9
    return digits


@pytest.mark.parametrize(("longest", "operands"), SIZES)
def test_width_is_that_of_the_largest_sum(longest, operands):
    text = write(AdditionScratchpad(), *[10**longest - 1] * operands)
    width, needed = len(text.split(">")[-1]) - 1, len(str(operands * (10**longest - 1)))
    assert width == needed if operands <= 10**longest else width >= needed


@pytest.mark.parametrize(("longest", "operands"), SIZES)
def test_text_of_every_example_is_the_running_sums_of_its_operands(longest, operands):
    task = AdditionScratchpad(max_operands=operands + 3)
    lengths = task.group_lengths(make_generator(longest), np.array([longest] * operands + [0] * 3), 40, 1)
    lengths[:, 0] = longest
    examples = task.examples(make_generator(longest, 1), lengths, "train")
    assert examples.same_layout and len(examples) == 40
    for tokens, query, row in zip(examples.tokens, examples.query_lengths, lengths.tolist(), strict=True):
        text = decode(tokens)
        numbers = [int(number) for number in text[1 : text.index("=")].split("+")]
        assert [len(str(number)) for number in numbers] + [0] * 3 == row
        assert text == expected_text(*numbers)
        assert text.index("=") + 1 == query


def test_carries_run_through_all_running_sums():
    nines = 10**50 - 1
    for numbers in ([nines] * 12, [nines, 1, nines, 1], [1] + [0] * 20 + [nines], [0, 0]):
        assert write(AdditionScratchpad(), *numbers) == expected_text(*numbers)


def expected_lengths(sampling: str, low: int, high: int, max_operands: int) -> dict[tuple[int, ...], Fraction]:
    """Probability of every row of lengths, by enumeration."""
    shares, lengths = Counter(), range(low, high + 1)
    for operands in range(2, max_operands + 1):
        for row in itertools.product(lengths, repeat=operands):
            own = Fraction(1, len(lengths) ** operands)
            shared = Fraction(len(set(row)) == 1, len(lengths))
            if sampling == "uniform":
                share = own
            elif sampling == "partially_uniform":
                share = (own + shared) / 2
            elif sampling == "uniform_with_longest":
                share = own * len(lengths) * Fraction(row.count(high), operands)
            else:
                numbers = {length: 10**length - (10 ** (length - 1) if length > 1 else 0) for length in lengths}
                share = Fraction()
                for longest in range(max(row), high + 1):
                    total = sum(numbers[length] for length in range(low, longest + 1))
                    share += Fraction(np.prod([numbers[length] for length in row], dtype=object), total**operands)
                share /= len(lengths)
            shares[(*row, *[0] * (max_operands - operands))] += share / (max_operands - 1)
    assert sum(shares.values()) == 1
    return shares


def assert_distributed(lengths: np.ndarray, shares: dict[tuple[int, ...], Fraction]) -> None:
    counts, total = Counter(map(tuple, lengths.tolist())), sum(shares.values())
    assert not set(counts) - {row for row, share in shares.items() if share}
    for row, share in shares.items():
        expected = float(share / total) * len(lengths)
        assert abs(counts[row] - expected) <= 5 * max(expected, 1) ** 0.5 + 1, row


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize(("low", "high", "max_operands"), [(1, 3, 4), (2, 3, 3), (4, 4, 2), (1, 1, 5)])
def test_lengths_are_distributed_as_described(sampling, low, high, max_operands):
    task = AdditionScratchpad(max_operands=max_operands, length_sampling=sampling)
    lengths = task.sample_lengths(make_generator(0), 60_000, low, high)
    assert lengths.shape == (60_000, max_operands)
    assert_distributed(lengths, expected_lengths(sampling, low, high, max_operands))


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize(("low", "high", "max_operands"), [(1, 3, 4), (2, 3, 3), (1, 1, 2)])
def test_group_lengths_are_sampled_lengths_given_their_group(sampling, low, high, max_operands):
    """For `partially_uniform` given also whether all are equal, which every batch keeps."""
    task = AdditionScratchpad(max_operands=max_operands, length_sampling=sampling)
    shares = expected_lengths(sampling, low, high, max_operands)

    def batch_of(row):
        equal = sampling == "partially_uniform" and len(set(row) - {0}) == 1
        return *task.size(row), equal

    for group in {batch_of(row) for row, share in shares.items() if share}:
        same = {row: share for row, share in shares.items() if share and batch_of(row) == group}
        for given in (min(same), max(same)):
            drawn = task.group_lengths(make_generator(1), np.array(given), 10_000, low)
            assert_distributed(drawn, same)
            assert len(np.unique(task.group(drawn))) == 1


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("longest", [40, 500])
def test_lengths_of_large_groups_are_legal(sampling, longest):
    task = AdditionScratchpad(max_operands=60, length_sampling=sampling)
    for lengths in task.sample_lengths(make_generator(longest), 20, 3, longest):
        drawn = task.group_lengths(make_generator(2), lengths, 50, 3)
        assert (task.group(drawn) == task.group(lengths[None])).all()
        assert drawn[drawn > 0].min() >= 3 and ((drawn > 0) == (lengths > 0)).all()


@pytest.mark.parametrize("lengths", [[1, 1], [3, 3], [1, 2, 3], [1] * 18, [17, 1]])
def test_split_does_not_depend_on_the_room_for_further_operands_and_digits(lengths):
    task = AdditionScratchpad()
    digits = draw(max(lengths), len(lengths), 200)
    digits *= np.arange(max(lengths)) < np.array(lengths)[:, None]
    lengths = np.tile(lengths, (200, 1))
    split = task.split_of(digits, lengths)
    assert set(split) == {0, 1, 2}
    for operands, width in ((1, 0), (30, 0), (0, 25), (4, 3)):
        wider = np.pad(digits, ((0, 0), (0, operands), (0, width)))
        assert (task.split_of(wider, np.pad(lengths, ((0, 0), (0, operands)))) == split).all()


@pytest.mark.parametrize("lengths", [[10, 9], [1] * 19, [1] * 40])
def test_long_problems_belong_to_no_split(lengths):
    digits = draw(max(lengths), len(lengths), 100)
    assert (AdditionScratchpad().split_of(digits, np.tile(lengths, (100, 1))) == -1).all()


def test_sizes_are_digits_and_operands():
    task = AdditionScratchpad()
    assert task.operand_lengths(5) == (5,) * 5 and task.operand_lengths(1) == (1, 1)
    assert task.size((3, 12, 1, 0, 0)) == (12, 3)
    with pytest.raises(ValueError, match="number of operands must be at least 2, got 1"):
        task.operand_lengths(5, 1)


@pytest.mark.parametrize(("width", "operands"), [(2, 2), (1, 3), (4, 2), (3, 12)])
def test_ids_are_significance_and_row(width, operands):
    significance = list(range(2, width + 2))
    expected = [(0, 0)]
    for operand in range(1, operands + 1):
        expected += [(column, operand) for column in significance]
        expected.append((1, operand) if operand < operands else (1, 0))
    for row in range(1, operands + 2):
        expected += [(column, row) for column in reversed(significance)]
        expected.append((width + 2, row + 1) if row <= operands else (0, 0))
    text = "$" + "+".join(["1" * width] * operands) + "="
    plan = RULE.plan(torch.tensor([[TOKENS.index(token) for token in text]]), len(expected) + 2)
    assert plan.position_ids[0].T.tolist() == [*map(list, expected), [0, 0], [0, 0]]
    assert plan.response_length == (operands + 1) * (width + 1)


@pytest.mark.parametrize("limit", [6, 13])
def test_capacity_is_the_largest_problem_whose_ids_fit(limit):
    operands, width = map(int, re.findall(r"(\d+)", RULE.capacity(limit)))
    text = "$" + "+".join(["1" * width] * operands) + "="
    plan = RULE.plan(torch.tensor([[TOKENS.index(token) for token in text]]), 500)
    assert plan.position_ids.amax((0, 2)).tolist() == [limit, limit]


@pytest.mark.parametrize("text", ["$65=", "$65+4=", "$6+54=", "$65+49+=", "$65-49=", "$65+49", "$65+49>12=", "+65+49="])
def test_malformed_prompt_is_refused_and_shown(text):
    with pytest.raises(ValueError, match=re.escape(repr(text)) + " is not of the form '[$]A[+]B[+]...='"):
        RULE.plan(torch.tensor([[TOKENS.index(token) for token in text]]), 20)
