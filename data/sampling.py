"""Random numbers for tasks: seeded generators, numbers as arrays of digits, and which split a problem belongs to.

Numbers are arrays of digits with the ones first, so they may have any length; they never become integers here.
"""

import hashlib

import numpy as np

SPLITS = ("train", "validation", "test")

PARTITIONED_DIGITS = 18
"""Problems with at most this many digits in all operands together are assigned to a split by a hash. Longer ones are not:
two splits of a million such problems share one with a probability below 1e-6."""

_HELD_OUT_PART = 16
"""One in so many short problems is a validation problem, and one in so many a test problem."""


def make_generator(*key: int | str) -> np.random.Generator:
    """A generator seeded by a hash of `key`, such as (seed, split, index): neighbouring keys share nothing."""
    plain = tuple(part if isinstance(part, str) else int(part) for part in key)
    digest = hashlib.sha256(repr(plain).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))


def uniform_digits(generator: np.random.Generator, lengths: np.ndarray) -> np.ndarray:
    """Numbers drawn uniformly from those with exactly so many decimal digits (0 to 9 for one digit).

    Args:
        lengths: (...) digits of each number; 0 for a number that a problem does not have, all of whose digits are 0.

    Returns:
        (..., longest) uint8, ones first, 0 beyond a number's length.
    """
    width = int(lengths.max())
    digits = generator.integers(0, 10, size=(*lengths.shape, width), dtype=np.uint8)
    leading = generator.integers(1, 10, size=lengths.shape, dtype=np.uint8)
    leading = np.where(lengths > 1, leading, digits[..., 0])
    rows = digits.reshape(-1, width)
    rows[np.arange(len(rows)), lengths.reshape(-1) - 1] = leading.reshape(-1)
    if lengths.min() < width:
        digits *= np.arange(width, dtype=np.int32) < lengths[..., None].astype(np.int32)
    return digits


def add_digits(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Sums of numbers given as (count, width) digits, ones first; (count, width + 1) uint8.

    A column's carry is decided by the last column below whose sum is not 9, found for all columns by one running maximum.
    """
    count, width = first.shape
    sums = first + second
    decided = np.zeros((count, width + 1), dtype=np.int16 if width < 2**14 else np.int64)
    np.multiply(sums != 9, np.arange(1, width + 1, dtype=decided.dtype) * 2, out=decided[:, 1:])
    decided[:, 1:] += sums > 9
    carries = (np.maximum.accumulate(decided, axis=1) & 1).astype(np.uint8)
    carries[:, :-1] += sums
    return np.where(carries > 9, carries - 10, carries)


def numbers_below(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Which of the first numbers are smaller than the second, given as (count, width) digits, ones first; (count,) bool."""
    top_first = slice(None, None, -1)
    differs = np.concatenate([(first != second)[:, top_first], np.ones((len(first), 1), dtype=bool)], axis=1)
    highest = differs.argmax(axis=1)
    less = np.concatenate([(first < second)[:, top_first], np.zeros((len(first), 1), dtype=bool)], axis=1)
    return less[np.arange(len(first)), highest]


def subtract_digits(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Differences of numbers given as (count, width) digits, ones first, the first not smaller; (count, width) uint8.

    By the nines' complement: first - second = 99...9 - ((99...9 - first) + second).
    """
    return 9 - add_digits(9 - first, second)[:, :-1]


def extend_digits(generator: np.random.Generator, digits: np.ndarray, max_length: int) -> np.ndarray:
    """Numbers (count, operands, width) as they are half of the time, else all extended by columns of random digits above.

    Args:
        max_length: most digits of an extended number.
    """
    count, operands, width = digits.shape
    extra = int(generator.integers(0, max_length - width + 1)) * int(generator.integers(2))
    if extra == 0:
        return digits
    return np.concatenate([digits, uniform_digits(generator, np.full((count, operands), extra))], axis=2)


def split_of(digits: np.ndarray, lengths: np.ndarray, partitioned_digits: int = PARTITIONED_DIGITS) -> np.ndarray:
    """The split that each short problem belongs to, for every seed and format alike.

    Args:
        digits: (count, operands, width) uint8.
        lengths: (count, operands) digits.
        partitioned_digits: most digits of a problem, all operands together, that is assigned to a split.

    Returns:
        (count,) index into `SPLITS`, or -1 for longer problems, which may be drawn in any.
    """
    split = np.full(len(digits), -1, dtype=np.int8)
    short = np.flatnonzero(lengths.sum(axis=1) <= partitioned_digits)
    if len(short) == 0:
        return split
    operands = digits.shape[1]
    key = np.concatenate(
        [lengths[short].astype(np.uint64), digits[short, :, :partitioned_digits].reshape(len(short), -1)], axis=1
    )
    columns = np.arange(key.shape[1])
    # A digit's multiplier must depend on its place alone, not on how wide the array happens to be.
    width = min(digits.shape[2], partitioned_digits)
    place = np.where(columns < operands, columns, 0)
    offset = columns - operands
    place = np.where(columns < operands, place, operands + offset % width * operands + offset // width)
    hashed = (key * _mix(place.astype(np.uint64))).sum(axis=1, dtype=np.uint64)
    part = _mix(hashed) % np.uint64(_HELD_OUT_PART)
    split[short] = np.select([part == 0, part == 1], [SPLITS.index("test"), SPLITS.index("validation")], 0)
    return split


def _mix(values: np.ndarray) -> np.ndarray:
    """The finalizer of splitmix64 (Steele et al., 2014): scrambles 64-bit integers one to one."""
    with np.errstate(over="ignore"):
        values = values + np.uint64(0x9E3779B97F4A7C15)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))
