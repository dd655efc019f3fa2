"""How hard sums are: cascades of carries and runs of plain carries (paper 2, Sec. 4).

A column of a sum is of one of three kinds, by the sum of its two digits: low (8 or less), which never carries; nine, which
carries if the column below does; high (10 or more), which carries on its own. Of the 100 pairs of digits, 45 are low, 10
nine and 45 high.
"""

from collections.abc import Callable

import numpy as np

from longhand.data.checks import check_integer

_SUMS = np.add.outer(np.arange(10), np.arange(10)).ravel()
_KINDS = np.stack([_SUMS < 9, _SUMS == 9, _SUMS > 9])
"""(3, 100), whether a column is low, nine or high; the index of a pair of digits is ten times one plus the other."""

KIND_SHARES = _KINDS.mean(axis=1)
"""Probabilities that a column of two random digits is low, nine or high."""

# 90 is a multiple of 45 and of 10, so that one uniform index picks a pair of any kind.
_PAIRS_OF_KIND = np.stack([np.resize(np.flatnonzero(kind), 90) for kind in _KINDS]).astype(np.uint8)

_MAX_CELLS = 4_000_000
"""States times columns whose probabilities are held at a time, unless a single class has more; about 32 MB."""


def cascade_lengths(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The length of each sum's longest cascade of carries.

    A cascade is a column that carries on its own, and the consecutive columns right above it that sum to 9 (paper 2,
    Sec. 4). The cascade of 95 + 7 has 2 columns, the cascade of 999 + 1 has 3.

    Args:
        first, second: (count, width) digits, ones first.

    Returns:
        (count,) columns; 0 for a sum without carries.
    """
    sums = first + second
    place = np.arange(1, sums.shape[1] + 1, dtype=np.int16 if sums.shape[1] < 2**14 - 1 else np.int64)
    # The last column that is not a nine, up to the column itself, decides whether the column is part of a cascade.
    decided = np.maximum.accumulate((2 * place + (sums > 9)) * (sums != 9), axis=1)
    return ((place + 1 - (decided >> 1)) * (decided & 1)).max(axis=1, initial=0).astype(np.int64)


def draw_cascades(generator: np.random.Generator, longest: np.ndarray, digits: int) -> tuple[np.ndarray, np.ndarray]:
    """Random sums of two numbers below 10^digits, uniform among the sums whose longest cascade has the given length.

    Args:
        longest: (count,) integers in 0..digits, see `cascade_lengths`.
        digits: width of the numbers, at least 1.

    Returns:
        The two numbers of each sum, (count, digits) uint8 both, ones first.

    Raises:
        ValueError: `digits` is below 1, or a class is not in 0..digits.
    """

    def advance(live):
        return np.stack([np.zeros_like(live), np.where(live > 0, live + 1, 0), np.ones_like(live)])

    return _draw_sums(generator, longest, digits, advance, "cascade")


def draw_carry_runs(generator: np.random.Generator, longest: np.ndarray, digits: int) -> tuple[np.ndarray, np.ndarray]:
    """Random sums of two numbers below 10^digits, uniform among the sums whose longest run of carries has the given length.

    A run consists of columns that carry on their own. No column of 9 stands right above a column that carries, so cascades
    have one column, and sums of different classes differ in their runs alone (paper 2, Sec. 4, C1).

    Args:
        longest: (count,) integers in 0..digits, 0 for a sum without carries.
        digits: width of the numbers, at least 1.

    Returns:
        The two numbers of each sum, (count, digits) uint8 both, ones first.

    Raises:
        ValueError: `digits` is below 1, or a class is not in 0..digits.
    """

    def advance(live):
        return np.stack([np.zeros_like(live), np.where(live > 0, -1, 0), live + 1])

    return _draw_sums(generator, longest, digits, advance, "run of carries")


def _draw_sums(
    generator: np.random.Generator, longest: np.ndarray, digits: int, advance: Callable[[np.ndarray], np.ndarray], name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Random sums for `draw_cascades` and `draw_carry_runs`, uniform among the sums whose longest `name` has a given length.

    Args:
        advance: from the lengths (states,) that the cascades or runs have reached at a column to the lengths (3, states) at
            the next column, if that column is low, nine or high; -1 if it must not be of that kind.
    """
    check_integer("digits", digits, 1)
    if (illegal := longest[(longest < 0) | (longest > digits)]).size:
        raise ValueError(f"the longest {name} must be 0..{digits} columns in sums of {digits} digits, got {illegal[0]}")
    longest = longest.astype(np.int64)
    classes, member = np.unique(longest, return_inverse=True)
    group = np.cumsum((2 * classes + 1) * digits) // _MAX_CELLS
    kinds = np.empty((len(longest), digits), dtype=np.uint8)
    for part in np.unique(group):
        chosen = np.flatnonzero(group[member] == part)
        kinds[chosen] = _draw_kinds(generator, longest[chosen], digits, advance)
    pick = generator.integers(0, _PAIRS_OF_KIND.shape[1], size=kinds.shape, dtype=np.uint8)
    return np.divmod(_PAIRS_OF_KIND[kinds, pick], np.uint8(10))


def _draw_kinds(
    generator: np.random.Generator, longest: np.ndarray, digits: int, advance: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Kinds of the columns of such sums, 0 low, 1 nine, 2 high; (count, digits) uint8.

    The class of a sum is the length wanted. A state is a class, the length reached at the present column, and whether the
    wanted length has been reached before. Class k has the states 0..k-1 before that and 0..k after it. For each state and
    number of columns left, the probability is computed that the sum ends in its class. It gives the probability of each kind
    at each column. Probabilities are logarithms, since a cascade of a thousand columns has a probability of 1e-1000.
    """
    classes, member = np.unique(longest, return_inverse=True)
    size = 2 * classes + 1
    begin = np.cumsum(size) - size
    wanted, first_state = np.repeat(classes, size), np.repeat(begin, size)
    dead = len(wanted)
    state = np.arange(dead) - first_state
    done = state >= wanted
    following = advance(state - wanted * done)
    legal = (following >= 0) & (following <= wanted)
    following = np.where(legal, first_state + following + wanted * (done | (following == wanted)), dead)
    following = np.pad(following, ((0, 0), (0, 1)), constant_values=dead)

    log_shares = np.log(KIND_SHARES)[:, None]
    ends_well = np.full((digits + 1, dead + 1), -np.inf)
    ends_well[0, :dead][done] = 0
    for left in range(1, digits + 1):
        ends_well[left] = np.logaddexp.reduce(log_shares + ends_well[left - 1][following])

    state = begin[member]
    kinds = np.empty((len(longest), digits), dtype=np.uint8)
    for place in range(digits):
        left = digits - place
        shares = np.exp(log_shares + ends_well[left - 1][following[:, state]] - ends_well[left][state])
        bounds = np.cumsum(shares, axis=0)
        # A kind of probability 0 has equal bounds on both sides, so it is never drawn: draws are below the last bound.
        draw = generator.random(len(state)) * bounds[2]
        kind = (draw >= bounds[0]).astype(np.uint8) + (draw >= bounds[1])
        kinds[:, place] = kind
        state = following[kind, state]
    return kinds
