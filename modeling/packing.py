"""Rows of several non-negative integers as one 64-bit number each, so that rows are sorted and compared at once."""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor


def fits_in_one_number(sizes: Sequence[int]) -> bool:
    """Return whether columns of numbers below these sizes pack without a collision: their product is at most 2**63."""
    return prod(sizes) <= 2**63


def pack(columns: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """Write each row of integers as one number. Numbers are equal if and only if their rows are, and sort like the rows.

    The numbers are mixed-radix, with the first column as the most significant digit. If they would overflow, the numbers of
    the columns so far are replaced by their ranks. Ranks keep equality and order within one call, but numbers of two calls
    are comparable only if `fits_in_one_number(sizes)`.

    Args:
        columns: tensors of one shape; every value is 0 or above.
        sizes: for every column, a number that its values are below.

    Returns:
        A tensor of the columns' shape.

    Raises:
        ValueError: the numbers do not fit into 64 bits even with ranks.
    """
    packed, size = columns[0], sizes[0]
    for column, column_size in zip(columns[1:], sizes[1:], strict=True):
        if not fits_in_one_number((size, column_size)):
            distinct, packed = packed.unique(return_inverse=True)
            size = len(distinct)
            if not fits_in_one_number((size, column_size)):
                raise ValueError(f"{size} different rows and values below {column_size} do not fit into 64 bits together")
        packed, size = packed * column_size + column, size * column_size
    return packed


def distinct_rows(columns: Sequence[Tensor], sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Find the different rows of integers.

    Args:
        columns: as for `pack`.
        sizes: as for `pack`.

    Returns:
        `(example, index)`: `example` (distinct,) is the place of one such row in the flattened columns, in increasing order
        of the rows; `index`, of the columns' shape, says which of the distinct rows each row equals.

    Raises:
        ValueError: as `pack`.
    """
    packed = pack(columns, sizes)
    if prod(sizes) <= packed.numel():
        # There are few possible rows, so that no sorting is needed.
        present = torch.bincount(packed.flatten(), minlength=1) > 0
        distinct, index = present.nonzero().squeeze(1), (present.cumsum(0) - 1)[packed]
    else:
        distinct, index = packed.unique(return_inverse=True)
    places = torch.arange(index.numel(), device=index.device)
    return torch.empty_like(distinct).scatter_(0, index.flatten(), places), index
