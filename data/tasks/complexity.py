"""How hard sums and products are: cascades of carries, runs of carries, levels of products (paper 2, Sec. 4, App. C.4).

A column of a sum is of one of three kinds, by the sum of its two digits: low (8 or less), which never carries; nine, which
carries if the column below does; high (10 or more), which carries on its own. Of the 100 pairs of digits, 45 are low, 10
nine and 45 high.
"""

# Used by: addition.py, encoder_addition.py, encoder_multiplication.py, multiplication.py, hub_cards/research/theories.
# Changed freely.

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from longhand.data.digits import multiply_digits
from longhand.modeling.checks import check_integer

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
    return _longest_cascades(first + second)


def _longest_cascades(sums: np.ndarray) -> np.ndarray:
    """`cascade_lengths` from the sums (count, width) of the columns, of which none is above 18."""
    place = np.arange(1, sums.shape[1] + 1, dtype=np.int16 if sums.shape[1] < 2**14 - 1 else np.int64)
    # The last column that is not a nine, up to the column itself, decides whether the column is part of a cascade.
    decided = np.maximum.accumulate((2 * place + (sums > 9)) * (sums != 9), axis=1)
    return ((place + 1 - (decided >> 1)) * (decided & 1)).max(axis=1, initial=0).astype(np.int64)


def dependency_lengths(multiplier: np.ndarray, number: np.ndarray) -> np.ndarray:
    """The dependency length of each product, the number of levels that its carries take (paper 2, Fig. 3a, App. C.4).

    The first level holds the multiplier times each digit of the number, each in its column. From one level to the next,
    every column keeps its ones, and its tens, hundreds, ... go to the columns above. The length is the number of levels
    after the first until all columns are single digits. For 7 * 368: 21 42 56, then 2 5 7 6 after one level, so it is 1.

    Args:
        multiplier, number: (count, width) digits, ones first; the widths may differ.

    Returns:
        (count,) levels; 0 if the multiplier times each digit is below 10.
    """
    count, places = len(number), multiplier.shape[1] + 1
    columns = np.zeros((count, number.shape[1] + places), dtype=np.min_scalar_type(9 * places))
    is_large = np.zeros(count, dtype=bool)
    for digit in range(1, 10):
        # The first move of carries at once: the multiplier times a digit has its digits in these columns.
        product = multiply_digits(multiplier, np.full((count, 1), digit, dtype=np.uint8))
        here = number == digit
        is_large |= here.any(axis=1) & (product[:, 1:] > 0).any(axis=1)
        for place in range(places):
            columns[:, place : place + number.shape[1]] += here * product[:, place, None]
    levels = is_large.astype(np.int64)
    while columns.max(initial=0) > 18:
        levels += columns.max(axis=1) > 9
        ones, carried = columns % 10, columns // 10
        columns, place = np.zeros_like(columns), 0
        columns += ones
        while carried.any():
            place += 1
            columns[:, place:] += carried[:, :-place] % 10
            carried = carried // 10
    # No column passes more than one carry from here on.
    return levels + _longest_cascades(columns.astype(np.uint8))


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


MOST_CLASSED_DIGITS = 64
"""Most digits of a number whose products are drawn by class: the cost of a class grows with the square of this number."""


def draw_dependencies(generator: np.random.Generator, longest: np.ndarray, digits: int) -> tuple[np.ndarray, np.ndarray]:
    """Random products of a multiplier 1..9 and a number below 10^digits, uniform among those with a dependency length.

    Args:
        longest: (count,) integers in 0..digits, see `dependency_lengths`.
        digits: width of the numbers, 1 to `MOST_CLASSED_DIGITS`.

    Returns:
        The multipliers (count, 1) and the numbers (count, digits), uint8 both, ones first.

    Raises:
        ValueError: `digits` is not legal, or a class is not in 0..digits.
    """
    check_integer("digits", digits, 1, MOST_CLASSED_DIGITS)
    if (illegal := longest[(longest < 0) | (longest > digits)]).size:
        raise ValueError(f"the dependency length must be 0..{digits} in products of {digits} digits, got {illegal[0]}")
    multipliers = np.empty((len(longest), 1), dtype=np.uint8)
    numbers = np.empty((len(longest), digits), dtype=np.uint8)
    for length in np.unique(longest):
        rows = np.flatnonzero(longest == length)
        following, ends_well, first_states = _product_states(int(length), digits)
        shares = np.exp(ends_well[digits][first_states] - ends_well[digits][first_states].max())
        chosen = generator.choice(9, size=len(rows), p=shares / shares.sum())
        multipliers[rows, 0] = chosen + 1
        state = first_states[chosen]
        for place in range(digits):
            after = ends_well[digits - place - 1][following[state]]
            bounds = np.cumsum(np.exp(after - ends_well[digits - place][state][:, None]), axis=1)
            # A digit of probability 0 has equal bounds on both sides, so it is never drawn: draws are below the last bound.
            draw = generator.random(len(rows)) * bounds[:, -1]
            digit = (draw[:, None] >= bounds[:, :-1]).sum(axis=1)
            numbers[rows, place] = digit
            state = following[state, digit]
    return multipliers, numbers


@lru_cache(maxsize=MOST_CLASSED_DIGITS + 1)
def _product_states(length: int, digits: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The chain of columns of all products of one dependency length, column by column from the ones on.

    After the first move of carries a column holds the ones of its own product and the tens of the product below, and the
    remaining levels are the longest cascade in these columns. So a state is the multiplier, the tens of the column below,
    the length that the cascade has reached, and whether the wanted length has been reached.

    Returns:
        The next state of every state and digit (states + 1, 10), the last state being that of products of another length;
        the logarithm of the number of ways in which a state, with so many columns left, ends in the class (digits + 1,
        states + 1); and the first state of each multiplier (9,).
    """
    wanted = max(length - 1, 0)
    shape = (9, 9, wanted + 1, 2)
    multiplier, tens, live, done, digit = np.ogrid[1:10, 0:9, 0 : wanted + 1, 0:2, 0:10]
    next_tens, ones = np.divmod(multiplier * digit, 10)
    column = ones + tens
    next_live = np.where(column > 9, 1, np.where((column == 9) & (live > 0), live + 1, 0))
    reached = next_tens > 0 if length == 1 else next_live >= wanted
    legal = (next_tens == 0) if length == 0 else next_live <= wanted
    parts = np.broadcast_arrays(multiplier - 1, next_tens, np.minimum(next_live, wanted), (done == 1) | reached)
    dead = int(np.prod(shape))
    states = np.where(legal, np.ravel_multi_index([part.astype(np.int64) for part in parts], shape), dead)
    following = np.concatenate([states.reshape(dead, 10), np.full((1, 10), dead)])
    ends_well = np.full((digits + 1, dead + 1), -np.inf)
    ends_well[0, :dead].reshape(shape)[..., 1] = 0
    for left in range(1, digits + 1):
        ends_well[left, :dead] = np.logaddexp.reduce(ends_well[left - 1][following[:dead]], axis=1)
    first = np.ravel_multi_index([np.arange(9), np.zeros(9, int), np.zeros(9, int), np.full(9, int(length == 0))], shape)
    return following, ends_well, first
