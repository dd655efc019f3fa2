import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import torch

from longhand.data import AdditionScratchpad, make_generator
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.vocabulary import TOKENS

RULE = COUPLING_RULES["addition_scratchpad"]
SAMPLINGS = ("uniform", "partially_uniform")
SIZES = [(1, 2), (1, 9), (1, 10), (1, 11), (1, 12), (2, 2), (2, 100), (2, 101), (3, 5), (10, 10), (30, 30), (60, 3)]
"""Digits of the operands, operands."""


@pytest.mark.parametrize(("longest", "operands"), SIZES)
def test_width_is_that_of_the_largest_sum(longest, operands):
    text = AdditionScratchpad().prompt("+".join(["9" * longest] * operands))
    width, needed = text.index("+"), len(str(operands * (10**longest - 1)))
    assert width == needed if operands <= 10**longest else width >= needed


def expected_lengths(sampling: str, low: int, high: int, max_operands: int) -> dict[tuple[int, ...], Fraction]:
    """Probability of every row of lengths, by enumeration."""
    shares, lengths = Counter(), range(low, high + 1)
    for operands in range(2, max_operands + 1):
        for row in itertools.product(lengths, repeat=operands):
            own, shared = Fraction(1, len(lengths) ** operands), Fraction(len(set(row)) == 1, len(lengths))
            share = own if sampling == "uniform" else (own + shared) / 2
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


@pytest.mark.parametrize("lengths", [[1, 1], [3, 3], [1, 2, 3], [1] * 18, [17, 1]])
def test_split_does_not_depend_on_the_room_for_further_operands_and_digits(lengths):
    task = AdditionScratchpad()
    lengths = np.tile(lengths, (200, 1))
    digits = task.draw_operands(make_generator(0), lengths)
    split = task.split_of(digits, lengths)
    assert set(split) == {0, 1, 2}
    for operands, width in ((1, 0), (30, 0), (0, 25), (4, 3)):
        wider = np.pad(digits, ((0, 0), (0, operands), (0, width)))
        assert (task.split_of(wider, np.pad(lengths, ((0, 0), (0, operands)))) == split).all()


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
