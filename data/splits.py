"""Which problems are drawn: seeded generators, the split that a problem belongs to, and how long its operands are.

`lengths` are everywhere (count, operands) arrays of digits. If problems differ in their number of operands, the operands
that a problem does not have come last and have the length 0.
"""

import hashlib
from typing import Any, ClassVar

import numpy as np

from longhand.data.digits import number_lengths

SPLITS = ("train", "validation", "test")


PARTITIONED_DIGITS = 18
"""Problems with at most this many digits, all operands together, are assigned to a split by a hash.

Longer problems are not: two splits of a million of them share a problem with a probability below 1e-6.
"""


_HELD_OUT_PART = 16
"""Of this many short problems, one is a validation problem and one is a test problem."""


def make_generator(*key: int | str) -> np.random.Generator:
    """A generator seeded by a hash of `key`, such as (seed, split, index). Neighbouring keys share nothing."""
    plain = tuple(part if isinstance(part, str) else int(part) for part in key)
    digest = hashlib.sha256(repr(plain).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))


def problem_keys(digits: np.ndarray, lengths: np.ndarray, partitioned_digits: int | None = PARTITIONED_DIGITS) -> np.ndarray:
    """A hash of each short problem. It is the same for every seed and format.

    Args:
        digits: (count, operands, width) uint8.
        lengths: (count, operands) digits.
        partitioned_digits: most digits of a short problem, all operands together; None if all are short.

    Returns:
        (count,) uint64; 0 for longer problems.
    """
    keys = np.zeros(len(digits), dtype=np.uint64)
    if partitioned_digits is None:
        partitioned_digits = int(lengths.sum(axis=1).max(initial=0))
    short = np.flatnonzero(lengths.sum(axis=1) <= partitioned_digits)
    if len(short) == 0:
        return keys
    operands = digits.shape[1]
    parts = np.concatenate(
        [lengths[short].astype(np.uint64), digits[short, :, :partitioned_digits].reshape(len(short), -1)], axis=1
    )
    columns = np.arange(parts.shape[1])
    # A digit's multiplier must depend on its place alone, not on how wide the array happens to be.
    width = min(digits.shape[2], partitioned_digits)
    offset = columns - operands
    place = np.where(columns < operands, columns, operands + offset % width * operands + offset // width)
    keys[short] = _mix((parts * _mix(place.astype(np.uint64))).sum(axis=1, dtype=np.uint64))
    return keys


def split_of(keys: np.ndarray) -> np.ndarray:
    """The split of each problem by its key, see `problem_keys`.

    Returns:
        (count,) index into `SPLITS`, or -1 for longer problems, which may be drawn in any.
    """
    part = keys % np.uint64(_HELD_OUT_PART)
    held_out = [keys == 0, part == 0, part == 1]
    return np.select(held_out, [-1, SPLITS.index("test"), SPLITS.index("validation")], 0).astype(np.int8)


def _mix(values: np.ndarray) -> np.ndarray:
    """The finalizer of splitmix64 (Steele et al., 2014): scrambles 64-bit integers one to one."""
    with np.errstate(over="ignore"):
        values = values + np.uint64(0x9E3779B97F4A7C15)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))


def check_integer(name: str, value: Any, least: int, most: int | None = None) -> None:
    """Raise ValueError if a value is not an integer from `least` to `most`; True and False are no integers here."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer or value < least or (most is not None and value > most):
        legal = f"of at least {least}" if most is None else f"from {least} to {most:,}"
        given = f"{value:,}" if is_integer else repr(value)
        raise ValueError(f"{name} must be an integer {legal}, got {given}")


class Lengths:
    """Lengths that are uniform and independent of each other; a group holds the problems of one size.

    Attributes:
        name: name of the task.
        operands: numbers in a problem; missing if problems differ in it.
        size_names: what the two numbers of `size` are, under which results are filed.
        sized_problems: what `min_length` and `max_length` bound, and the unit they count, see `describe_lengths`.
    """

    name: ClassVar[str]
    operands: ClassVar[int]
    size_names: ClassVar[tuple[str, str]] = ("digits of the first operand", "digits of the second operand")
    sized_problems: ClassVar[tuple[str, str]] = ("operands of", "digit")

    def operand_lengths(self, length: int, other: int | None = None) -> tuple[int, ...]:
        """Digits of every operand of the problems that tables and plots file under one length, or under two (grids).

        Raises:
            ValueError: there are no such problems.
        """
        if other is None:
            return (length,) * self.operands
        if self.operands != 2:
            raise ValueError(f"problems of the task {self.name!r} have one size, {self.size_names[0]}, not two")
        if other < 1:
            raise ValueError(f"{self.size_names[1]} must be at least 1, got {other}")
        return (length, other)

    def sizes(self, lengths: np.ndarray) -> np.ndarray:
        """(count, 2), the two numbers under which results of these lengths are filed; `size_names` says what they are."""
        return lengths[:, [0, -1]]

    def size(self, lengths: tuple[int, ...]) -> tuple[int, int]:
        """`sizes` of one problem."""
        return self.one_size(np.array([lengths]))

    def one_size(self, lengths: np.ndarray) -> tuple[int, int]:
        """`size` of problems that stand in one batch.

        Raises:
            ValueError: they have different sizes.
        """
        sizes = self.sizes(lengths)
        if (different := (sizes != sizes[0]).any(axis=1)).any():
            given = " and ".join(" x ".join(map(str, size)) for size in (sizes[0], sizes[different.argmax()]))
            raise ValueError(f"problems of one batch must have one size ({' x '.join(self.size_names)}), got {given}")
        return int(sizes[0, 0]), int(sizes[0, 1])

    def describe_lengths(self, shortest: int, longest: int) -> str:
        """Problems of these lengths in words, such as "operands of 1 to 30 digits"."""
        what, unit = self.sized_problems
        lengths = f"{shortest:,} to {longest:,}" if shortest < longest else f"{longest:,}"
        return f"{what} {lengths} {unit}{'' if longest == 1 else 's'}"

    def sample_lengths(self, generator: np.random.Generator, count: int, min_length: int, max_length: int) -> np.ndarray:
        """Operand lengths (count, operands), drawn as the paper does for training."""
        return generator.integers(min_length, max_length + 1, size=(count, self.operands))

    def group(self, lengths: np.ndarray) -> np.ndarray:
        """(count,) integer; examples of one group fit into one batch with little or no padding."""
        first, second = self.sizes(lengths).astype(np.int64).T
        return first << 32 | second

    def group_lengths(self, generator: np.random.Generator, lengths: np.ndarray, count: int, min_length: int) -> np.ndarray:
        """Operand lengths (count, operands) drawn from the group of `lengths` (operands,)."""
        return np.tile(lengths, (count, 1))

    def shortest_lengths(self, min_length: int, max_length: int) -> np.ndarray:
        """Lengths (1, operands) of the smallest problem that is drawn."""
        generator = make_generator("lengths", min_length)
        drawn = np.unique(self.sample_lengths(generator, 4096, min_length, min(max_length, min_length + 4)), axis=0)
        return drawn[drawn.sum(axis=1).argmin()][None]

    def longest_lengths(self, max_length: int) -> np.ndarray:
        """Lengths (1, operands) of the largest problem that is drawn."""
        lengths = self.sample_lengths(make_generator("longest"), 1, max_length, max_length)
        return np.where(lengths > 0, lengths, max_length)


class LongestOperandLengths(Lengths):
    """Lengths of operands that are zero-padded to the longest one; a group holds the problems whose longest is the same."""

    def group(self, lengths):
        return lengths.max(axis=1)

    def drawn_lengths(self, digits: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Lengths (count, operands) with which these digits are drawn: zeros in front only pad."""
        return number_lengths(digits)

    def group_lengths(self, generator, lengths, count, min_length):
        # Uniform over the tuples with this maximum. Operand j is the first to reach the maximum in
        # shorter^j (shorter + 1)^(operands - 1 - j) tuples: operands before j are shorter, operands after it need not be.
        longest = int(lengths.max())
        shorter = longest - min_length
        place = np.arange(self.operands)
        share = (shorter / (shorter + 1)) ** place
        first = generator.choice(self.operands, size=(count, 1), p=share / share.sum())
        below = generator.integers(min_length, max(longest, min_length + 1), size=(count, self.operands))
        any_length = generator.integers(min_length, longest + 1, size=(count, self.operands))
        return np.where(place < first, below, np.where(place == first, longest, any_length))


class AnyNumberOfOperands(Lengths):
    """Lengths of problems with different numbers of operands; a group has one number of operands and one longest operand.

    Attributes:
        fewest_operands: fewest operands of a problem.
    """

    fewest_operands: ClassVar[int] = 1
    most_digits: ClassVar[int] = 2000

    def operand_lengths(self, length, other=None):
        """Lengths of `other` operands of `length` digits each; by default as many operands as digits."""
        if other is not None and other < self.fewest_operands:
            raise ValueError(f"{self.size_names[1]} must be at least {self.fewest_operands}, got {other}")
        # A problem has as many digits as both numbers multiplied.
        check_integer("lengths", max(length, other or 0), 1, self.most_digits)
        return (length,) * (other or max(self.fewest_operands, length))

    def sizes(self, lengths):
        return np.stack([lengths.max(axis=1), (lengths > 0).sum(axis=1)], axis=1)


def rows_of_groups(groups: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Each group, the smallest first, with its rows in order, from the group (count,) of every row."""
    values, sizes = np.unique(groups, return_counts=True)
    rows = np.split(np.argsort(groups, kind="stable"), np.cumsum(sizes)[:-1])
    return list(zip(values.tolist(), rows, strict=True))
