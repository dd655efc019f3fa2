"""Numbers as arrays of digits, decimal unless a base is given: drawing and arithmetic.

The ones digit comes first. Numbers may have any length: they never become integers here.
"""

# Used by: columns.py, lengths.py, data/learning, data/learning/questions, data/tasks. Changed freely.

import numpy as np

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
"""The digits of the largest base."""


def number_lengths(digits: np.ndarray) -> np.ndarray:
    """The number of digits of each number (..., width), ones first, without leading zeros; 1 for zero."""
    place = np.arange(1, digits.shape[-1] + 1)
    return np.where(digits > 0, place, 1).max(axis=-1)


def uniform_digits(generator: np.random.Generator, lengths: np.ndarray, base: int = 10) -> np.ndarray:
    """Random numbers of given lengths, uniform among the numbers of each length (0 to base - 1 for one digit).

    Args:
        lengths: (...) digits of each number; 0 stands for a missing number, whose digits are all 0.

    Returns:
        (..., longest) uint8, ones first, 0 beyond a number's length.
    """
    width = int(lengths.max())
    digits = generator.integers(0, base, size=(*lengths.shape, width), dtype=np.uint8)
    leading = generator.integers(1, base, size=lengths.shape, dtype=np.uint8)
    leading = np.where(lengths > 1, leading, digits[..., 0])
    rows = digits.reshape(-1, width)
    rows[np.arange(len(rows)), lengths.reshape(-1) - 1] = leading.reshape(-1)
    if lengths.min() < width:
        digits *= np.arange(width, dtype=np.int32) < lengths[..., None].astype(np.int32)
    return digits


def uniform_words(generator: np.random.Generator, lengths: np.ndarray, symbols: int) -> np.ndarray:
    """Random words (..., longest) of given lengths (...) over so many symbols, 0 beyond a word's length."""
    words = generator.integers(0, symbols, size=(*lengths.shape, lengths.max()), dtype=np.uint8)
    return np.where(np.arange(lengths.max()) < lengths[..., None], words, np.uint8(0))


def add_digits(first: np.ndarray, second: np.ndarray, base: int = 10) -> np.ndarray:
    """Sums of numbers given as (count, width) digits, ones first; (count, width + 1) uint8.

    The last column below whose sum is not base - 1 decides a column's carry. One running maximum finds it for all columns.
    """
    count, width = first.shape
    sums = first + second
    decided = np.zeros((count, width + 1), dtype=np.int16 if width < 2**14 else np.int64)
    np.multiply(sums != base - 1, np.arange(1, width + 1, dtype=decided.dtype) * 2, out=decided[:, 1:])
    decided[:, 1:] += sums >= base
    carries = (np.maximum.accumulate(decided, axis=1) & 1).astype(np.uint8)
    carries[:, :-1] += sums
    return np.where(carries >= base, carries - base, carries)


def numbers_below(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Whether each first number is smaller than the second, from (count, width) digits, ones first; (count,) bool."""
    top_first = slice(None, None, -1)
    differs = np.concatenate([(first != second)[:, top_first], np.ones((len(first), 1), dtype=bool)], axis=1)
    highest = differs.argmax(axis=1)
    less = np.concatenate([(first < second)[:, top_first], np.zeros((len(first), 1), dtype=bool)], axis=1)
    return less[np.arange(len(first)), highest]


def subtract_digits(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Differences of numbers given as (count, width) digits, ones first; (count, width) uint8.

    The first number must not be smaller. Nines' complement: first - second = 99...9 - ((99...9 - first) + second).
    """
    return 9 - add_digits(9 - first, second)[:, :-1]


def extend_digits(generator: np.random.Generator, digits: np.ndarray, max_length: int) -> np.ndarray:
    """Numbers (count, operands, width), half of the time extended by columns of random digits above, all equally far.

    Args:
        max_length: most digits of an extended number.
    """
    count, operands, width = digits.shape
    extra = int(generator.integers(0, max_length - width + 1)) * int(generator.integers(2))
    if extra == 0:
        return digits
    return np.concatenate([digits, uniform_digits(generator, np.full((count, operands), extra))], axis=2)


def multiply_digits(first: np.ndarray, second: np.ndarray, base: int = 10) -> np.ndarray:
    """Products of numbers given as (count, width) digits, ones first; (count, both widths together) uint8.

    `base` is at most 128, so that a sum of two digits is a byte. Cost grows with the product of the widths. The carries of
    all column sums move one column up at once, a few times, until each column is a sum of two digits. `add_digits` then
    resolves all carries at once.
    """
    width = first.shape[1]
    shorter = min(width, second.shape[1])
    # A column sums up to `shorter` products, of at most (base - 1)^2 each, and a carry of less than (base - 1) * shorter.
    largest_sum = base * (base - 1) * shorter
    columns = np.zeros((len(first), width + second.shape[1]), dtype=np.min_scalar_type(largest_sum))
    multiplicand = first.astype(columns.dtype)
    for place in range(second.shape[1]):
        columns[:, place : place + width] += multiplicand * second[:, place : place + 1]
    while columns.max(initial=0) > 2 * (base - 1):
        carried = columns // base
        columns -= base * carried
        columns[:, 1:] += carried[:, :-1]
    columns = columns.astype(np.uint8)
    largest = np.minimum(columns, base - 1)
    return add_digits(largest, columns - largest, base)[:, :-1]


def divide_digits(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quotients and remainders of numbers (count, width), ones first, and numbers of one digit (count,), from 1 to 9.

    What remains of the digits from a column up follows from what remains of its lowest digits and of those above them.

    Returns:
        Two (count, width) uint8: the quotients, and what remains of the digits from each column up.
    """
    second = second[:, None]
    remainders, power, reach = first % second, 10 % second, 1
    while reach < first.shape[1]:
        remainders[:, :-reach] = (remainders[:, :-reach] + power * remainders[:, reach:]) % second
        power, reach = power * power % second, 2 * reach
    totals = first.copy()
    totals[:, :-1] += 10 * remainders[:, 1:]
    return totals // second, remainders


def shift_digits(generator: np.random.Generator, digits: np.ndarray, operands: slice, width: int) -> np.ndarray:
    """Problems (count, 2, any width) with zeros appended to some operands, equally many to all operands of a problem.

    Every number of zeros is equally likely that keeps the operands within `width` digits (paper 2, Secs. 3.1, 3.2).

    Returns:
        (count, 2, at least `width`).
    """
    zeros = generator.integers(0, width - number_lengths(digits[:, operands]).max(axis=1) + 1)
    width = max(width, digits.shape[2])
    wide = np.zeros((*digits.shape[:2], width), dtype=np.uint8)
    wide[:, :, : digits.shape[2]] = digits
    place = np.arange(width) - zeros[:, None]
    shifted = np.take_along_axis(wide[:, operands], np.maximum(place, 0)[:, None], axis=2)
    wide[:, operands] = np.where(place[:, None] >= 0, shifted, 0)
    return wide
