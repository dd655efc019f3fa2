"""Rows of integers as single numbers."""

import itertools

import pytest
import torch

from longhand.modeling.relations import distinct_rows, fits_in_one_number, pack

SIZES = [
    [4],
    [4, 3, 5],
    [2**62, 2],  # every number of 63 bits is used
    [2**40, 2**23],
    [2**40, 2**40, 2**40],  # only with ranks
    [7, *[2**12] * 30],
]


def columns_below(sizes: list[int], rows: int = 400) -> list[torch.Tensor]:
    """Random columns with many equal rows, whose first and last columns hold the largest values that are legal."""
    generator = torch.Generator().manual_seed(0)
    few = [torch.tensor([0, 1, size // 2, size - 1]) for size in sizes]
    return [values[torch.randint(0, 4, (rows,), generator=generator)] for values in few]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_packed_numbers_compare_as_the_rows_do(sizes):
    columns = columns_below(sizes)
    rows, packed = list(zip(*(column.tolist() for column in columns), strict=True)), pack(columns, sizes).tolist()
    for (row, number), (other, other_number) in itertools.pairwise(sorted(zip(rows, packed, strict=True))):
        assert number >= 0 and (row < other) == (number < other_number) and (row == other) == (number == other_number)


def test_numbers_of_two_calls_are_comparable_if_they_fit():
    sizes = [2**31, 2**32]
    first, second = columns_below(sizes), [column.flip(0) for column in columns_below(sizes)]
    assert fits_in_one_number(sizes) and torch.equal(pack(first, sizes), pack(second, sizes).flip(0))
    assert not fits_in_one_number([2**31, 2**32 + 1])


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_distinct_rows_are_all_rows_once_in_their_order(sizes):
    columns = [column.view(20, 20) for column in columns_below(sizes)]
    example, index = distinct_rows(columns, sizes)
    rows = torch.stack([column.flatten() for column in columns], dim=1)
    distinct = rows[example]
    assert index.shape == (20, 20) and torch.equal(distinct[index.flatten()], rows)
    assert list(map(tuple, distinct.tolist())) == sorted(set(map(tuple, rows.tolist())))


def test_rows_that_do_not_fit_even_as_ranks_are_refused():
    columns = [torch.arange(3), torch.arange(3)]
    with pytest.raises(ValueError, match=r"3 different rows and values below \d+ do not fit into 64 bits together"):
        pack(columns, [2**40, 2**62])


def test_no_rows_are_no_distinct_rows():
    example, index = distinct_rows([torch.zeros(0, dtype=torch.long)] * 3, [2**40] * 3)
    assert len(example) == 0 and len(index) == 0
