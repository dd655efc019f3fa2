"""The highest exact match on m-digit addition of a one-layer decoder without position encoding (paper 1, Prop. 5.2)."""

import numpy as np

MAX_DIGITS = 5
"""With longer operands a key and its count do not fit into 64 bits together."""

_CHUNK = 4_000_000
"""Keys merged at a time, so that memory does not grow with their number; 32 MB an array."""


def nope_ceiling(digits: int) -> tuple[int, int]:
    """How many sums of two numbers of exactly `digits` digits can be right at most, and how many there are.

    Attention without position encoding is a weighted mean over a set of tokens, so one layer of it predicts from the last
    token and the multiset of the tokens before it. For a query `$A+B=` these are the multiset of the 2m digits, and
    constants; each further token sees besides only what was written, which the same multiset decided. Greedy decoding
    therefore gives one response to all queries with one multiset of digits, and is right for at most as many of them as
    share their most frequent sum. A format only writes sums in another way, so the bound is the same for all formats.

    The bound is exactly the maximum over all functions from multisets to responses: the one that answers with a most
    frequent sum attains it. For a decoder it is an upper bound. Its third token is predicted from the query's digits and
    those written, mixed; two multisets whose responses begin differently can look alike there. Written zero-padded with the
    ones first, two-digit sums have a choice of most frequent sums without such a clash, so some decoder (with a wide enough
    MLP) attains the bound; three-digit sums have none, so every decoder stays below it (the tests show both). Training aims
    lower still: the most probable next token need not begin the most probable sum.

    The key of a pair is its digits' counts and its sum as one integer, which is itself a sum of one key for each column. So
    columns are added one by one from the ones on, and equal keys merged with their counts. The leading column is added for
    a few values of the sum's last m - 1 digits at a time, since only the maximum over the sums of each multiset is kept.
    Cost grows about 45-fold with a digit: at m = 5, 3.4e8 keys are sorted, in 20 seconds and 1 GB on one core; at m = 4 it
    takes below a second.

    Args:
        digits: m, 1 to 5. Operands have no leading zeros; with one digit they are 1 to 9.

    Returns:
        Right pairs at most, and all pairs: 81 * 100^(m-1).

    Raises:
        ValueError: `digits` is not in 1..5.
    """
    if not 1 <= digits <= MAX_DIGITS:
        raise ValueError(f"digits must be 1 to {MAX_DIGITS}, got {digits}")
    sum_bits = (2 * 10**digits - 1).bit_length()
    keys, counts = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)
    for place in range(digits - 1):
        keys, counts = _add_column(keys, counts, *_column_keys(digits, place, sum_bits))

    residues = (keys & ((1 << sum_bits) - 1)) % 10 ** (digits - 1)
    order = np.argsort(residues)
    keys, counts, residues = keys[order], counts[order], residues[order]
    column_keys, column_counts = _column_keys(digits, digits - 1, sum_bits)
    # Pairs with one sum have one residue: none may be cut in two.
    size = _CHUNK // len(column_keys)
    edges = np.unique(np.searchsorted(residues, residues[::size]))
    multisets, most_frequent = [], []
    for begin, end in zip(edges, [*edges[1:], len(keys)], strict=True):
        chunk_keys, chunk_counts = _add_column(keys[begin:end], counts[begin:end], column_keys, column_counts)
        chunk_multisets = chunk_keys >> sum_bits
        first = _first_of_equal(chunk_multisets)
        multisets.append(chunk_multisets[first])
        most_frequent.append(np.maximum.reduceat(chunk_counts, first))
    multiset, count = np.concatenate(multisets), np.concatenate(most_frequent)
    order = np.argsort(multiset)
    right = np.maximum.reduceat(count[order], _first_of_equal(multiset[order])).sum()
    return int(right), 81 * 100 ** (digits - 1)


def _column_keys(digits: int, place: int, sum_bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys of the unordered pairs of digits in the column of 10^place, and how many ordered pairs each stands for.

    A key is the multiset's code times 2^sum_bits plus the sum. In the code a digit counts (2m + 1)^(digit - 1) and a zero
    nothing, since the number of zeros follows from the others.
    """
    first, second = np.triu_indices(10)
    if place == digits - 1:
        first, second = first[first > 0], second[first > 0]
    code = np.concatenate([[0], (2 * digits + 1) ** np.arange(9)])
    return ((code[first] + code[second]) << sum_bits) + (first + second) * 10**place, np.where(first == second, 1, 2)


def _add_column(
    keys: np.ndarray, counts: np.ndarray, column_keys: np.ndarray, column_counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Keys of all pairs extended by all of a column, sorted and merged where equal, and the counts of each."""
    # A count in the low bits of its key travels along in a plain sort, several times faster than an argsort.
    bits = int(counts.max() * column_counts.max()).bit_length()
    packed = (np.add.outer(keys, column_keys) << bits) + np.multiply.outer(counts, column_counts)
    packed = np.sort(packed, axis=None)
    keys = packed >> bits
    first = _first_of_equal(keys)
    return keys[first], np.add.reduceat(packed & ((1 << bits) - 1), first)


def _first_of_equal(values: np.ndarray) -> np.ndarray:
    """Where in sorted values, none below 0, each distinct one begins."""
    return np.flatnonzero(np.diff(values, prepend=-1))
