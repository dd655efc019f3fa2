"""The most sums that one layer without positions can get right, for 1 to 5 digits (paper 1, Prop. 5.2).

python -m longhand.hub_cards.research nope_ceiling
"""

# Used by: whoever runs or imports it. Changed freely.

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from longhand.hub_cards.result_rows import Row

RESULTS = Path(__file__).with_suffix(".jsonl")

MAX_DIGITS = 5
"""For longer operands, a key and its count do not fit into 64 bits together."""


def nope_ceiling(digits: int) -> tuple[int, int]:
    """The most sums of two numbers of exactly `digits` digits that can be right, and the number of all sums.

    **Bound.** Attention without position encoding is a weighted mean over a set of tokens. So one layer of it predicts from
    the last token and the multiset of the tokens before it. For a query `$A+B=` this multiset is constants and the 2m
    digits. Each further token also sees what was written, which the same multiset decided. Greedy decoding therefore gives
    one response to all queries with one multiset of digits. It is right for at most the queries that share their most
    frequent sum. A format only writes sums in another way, so the bound is the same for all formats.

    **Is it attained?** The bound is the exact maximum over all functions from multisets to responses: the function that
    answers with a most frequent sum attains it. For a decoder it is an upper bound. A decoder predicts its third token from
    a mixture of the digits of the query and the digits written, in which two multisets whose responses begin differently
    can look alike. Three-digit sums, zero-padded and written ones first, have no choice of most frequent sums without such
    a clash, so every decoder stays below the bound (a test shows it). Training aims lower still: the most probable next
    token need not begin the most probable sum.

    **Computation.** The key of a pair holds the counts of its digits and its sum in one integer. A key is a sum of one key
    for each column. So columns are added one by one, from the ones on, and equal keys are merged with their counts. The
    leading column is added for one value of the sum's last two digits at a time, since only the maximum over the sums of
    each multiset is kept: this bounds memory. Cost grows about 45-fold with each digit: m = 5 sorts 3.4e8 keys in 11 seconds
    and 1.4 GB on one core; m = 4 takes less than a second.

    Args:
        digits: m, 1 to 5. Operands have no leading zeros; with one digit they are 1 to 9.

    Returns:
        The most pairs that can be right, and the number of all pairs, 81 * 100^(m-1).

    Raises:
        ValueError: `digits` is not in 1..5.
    """
    if not 1 <= digits <= MAX_DIGITS:
        raise ValueError(f"digits must be 1 to {MAX_DIGITS}, got {digits}")
    sum_bits = (2 * 10**digits - 1).bit_length()
    keys, counts = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)
    for place in range(digits - 1):
        keys, counts = _add_column(keys, counts, *_column_keys(digits, place, sum_bits))

    # The leading column leaves the last digits of a sum as they are. So all pairs with one sum are in one part.
    last_digits = (keys & ((1 << sum_bits) - 1)) % 10 ** min(digits - 1, 2)
    leading = _column_keys(digits, digits - 1, sum_bits)
    multisets, most_frequent = [], []
    for part in (last_digits == value for value in np.unique(last_digits)):
        chunk_keys, chunk_counts = _add_column(keys[part], counts[part], *leading)
        chunk_multisets = chunk_keys >> sum_bits
        first = _first_of_equal(chunk_multisets)
        multisets.append(chunk_multisets[first])
        most_frequent.append(np.maximum.reduceat(chunk_counts, first))
    multiset, count = np.concatenate(multisets), np.concatenate(most_frequent)
    order = np.argsort(multiset)
    right = np.maximum.reduceat(count[order], _first_of_equal(multiset[order])).sum()
    return int(right), 81 * 100 ** (digits - 1)


def _column_keys(digits: int, place: int, sum_bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys of the unordered pairs of digits in the column of 10^place, and the number of ordered pairs of each.

    A key is the multiset's code times 2^sum_bits plus the sum. In the code a digit counts (2m + 1)^(digit - 1). A zero
    counts nothing: the number of zeros follows from the other digits.
    """
    first, second = np.triu_indices(10)
    if place == digits - 1:
        first, second = first[first > 0], second[first > 0]
    code = np.concatenate([[0], (2 * digits + 1) ** np.arange(9)])
    return ((code[first] + code[second]) << sum_bits) + (first + second) * 10**place, np.where(first == second, 1, 2)


def _add_column(
    keys: np.ndarray, counts: np.ndarray, column_keys: np.ndarray, column_counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Keys of all pairs, each extended by all pairs of a column, sorted and without repetition; and their counts."""
    # With the count in the low bits of its key a plain sort is enough. It is several times faster than an argsort.
    bits = int(counts.max() * column_counts.max()).bit_length()
    packed = (np.add.outer(keys, column_keys) << bits) + np.multiply.outer(counts, column_counts)
    packed = np.sort(packed, axis=None)
    keys = packed >> bits
    first = _first_of_equal(keys)
    return keys[first], np.add.reduceat(packed & ((1 << bits) - 1), first)


def _first_of_equal(values: np.ndarray) -> np.ndarray:
    """The index at which each distinct value begins, in sorted values that are not negative."""
    return np.flatnonzero(np.diff(values, prepend=-1))


def ceiling_row(digits: int) -> Row:
    """Return the ceiling as a row of the results; `right` and `num_pairs` are exact."""
    right, pairs = nope_ceiling(digits)
    return {"model": "ceiling", "length": digits, "right": right, "num_pairs": pairs, "exact_match": right / pairs}


def measure() -> Iterator[Row]:
    """Yield the ceilings."""
    return map(ceiling_row, range(1, MAX_DIGITS + 1))
