"""How long the operands of problems are: how lengths are drawn, the sizes under which results are filed, and groups.

`lengths` are everywhere (count, operands) arrays of digits. If problems differ in their number of operands, the operands
that a problem does not have come last and have the length 0.
"""

# Used by: batches.py, data/tasks. Changed freely.

from typing import ClassVar

import numpy as np

from longhand.data.digits import number_lengths
from longhand.data.splits import make_generator
from longhand.modeling.checks import check_integer


class Lengths:
    """Lengths that are uniform and independent of each other; a group holds the problems of one size.

    Attributes:
        name: name of the task.
        operands: numbers in a problem; missing if problems differ in it.
        size_names: the names of the two numbers of `size`, under which results are filed.
        sized_problems: the things whose size `min_length` and `max_length` bound, and the unit that both count, see
            `describe_lengths`.
    """

    name: ClassVar[str]
    operands: ClassVar[int]
    size_names: ClassVar[tuple[str, str]] = ("digits of the first operand", "digits of the second operand")
    sized_problems: ClassVar[tuple[str, str]] = ("operands of", "digit")

    @classmethod
    def equal_size_name(cls) -> str:
        """The word for a number that is both numbers of `size`."""
        if cls.size_names[0] == cls.size_names[1]:
            return cls.size_names[0]
        return f"{cls.sized_problems[1]}s of {'the operand' if getattr(cls, 'operands', None) == 1 else 'each operand'}"

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
        """(count, 2), the two numbers under which results of these lengths are filed; `size_names` has their names."""
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
        problems, unit = self.sized_problems
        lengths = f"{shortest:,} to {longest:,}" if shortest < longest else f"{longest:,}"
        return f"{problems} {lengths} {unit}{'' if longest == 1 else 's'}"

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

    def shortest_lengths(self, min_length: int, max_length: int, count: int = 1) -> np.ndarray:
        """Lengths (count at most, operands) of the smallest problems that are drawn, the smallest first."""
        generator = make_generator("lengths", min_length)
        drawn = self.sample_lengths(generator, 4096, min_length, min(max_length, min_length + 4))
        # Where few are different, as of few numbers, a set finds them sooner than `np.unique` sorts all.
        different = sorted({*map(tuple, drawn.tolist())}, key=lambda lengths: (sum(lengths), lengths))
        return np.array(different[:count], dtype=drawn.dtype)

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

    @classmethod
    def equal_size_name(cls):
        return f"{cls.size_names[0]}, and {cls.size_names[1]}"

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
