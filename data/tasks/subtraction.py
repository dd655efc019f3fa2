"""Subtraction of a number that is not larger: `$653-049=406$`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from longhand.data.certificates.neighbourhoods import CoveringProblems
from longhand.data.digits import extend_digits, numbers_below, subtract_digits
from longhand.data.formatting import lay_out
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.reader import ONES_FIRST
from longhand.data.tasks.registry import register_task
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.vocabulary import BOS, EQUALS, MINUS


@register_task
@dataclass(frozen=True)
class Subtraction(DecoderTask):
    """Differences A - B of decimal numbers with A >= B, so that every digit follows from its column and a borrow.

    Lengths are balanced: each operand's is uniform, then the operand is uniform among the numbers of that length; the larger
    number is then the first. Both are zero-padded to the longer one's L digits; the difference has L digits, the ones first.
    A group holds the problems of one L.
    """

    name: ClassVar[str] = "subtraction"
    operands: ClassVar[int] = 2
    example_question: ClassVar[str] = "653-49"
    reader = ONES_FIRST
    every_problem: ClassVar[str] = "operands of every length, the first not smaller than the second"

    @property
    def coupling(self) -> str:
        return "subtraction"

    def operand_lengths(self, length, other=None):
        if other is not None and other > length:
            raise ValueError(f"the second operand must not be longer than the first, got {other} and {length} digits")
        return super().operand_lengths(length, other)

    def sample_lengths(self, generator, count, min_length, max_length):
        return np.sort(generator.integers(min_length, max_length + 1, size=(count, 2)), axis=1)[:, ::-1]

    def group(self, lengths):
        return lengths[:, 0]

    def group_lengths(self, generator, lengths, count, min_length):
        # Of the pairs with this maximum, (max, max) is one, and every shorter length makes two.
        longest = int(lengths.max())
        choice = generator.integers(0, 2 * (longest - min_length) + 1, size=count)
        return np.stack([np.full(count, longest), min_length + choice // 2], axis=1)

    def draw_operands(self, generator, lengths):
        return _larger_first(super().draw_operands(generator, lengths))

    def format(self, digits, lengths):
        if (short := int(lengths.max(axis=1).min())) < digits.shape[2]:
            raise ValueError(f"problems of one batch must have one length, got {short} and {digits.shape[2]} digits")
        first, second = digits[:, 0], digits[:, 1]
        if numbers_below(first, second).any():
            raise ValueError("the first operand must not be smaller than the second")
        difference = subtract_digits(first, second)
        return lay_out([BOS, first[:, ::-1], MINUS, second[:, ::-1], EQUALS, difference, self.end_token], query_parts=5)

    def drawn_lengths(self, digits, lengths):
        place = np.arange(1, digits.shape[2] + 1)
        return np.where(digits > 0, place, 1).max(axis=2)

    def covering_problems(self, window, layers):
        """All problems of one and two digits, and those of four whose ones are 0-0 or 0-9 and whose top column is 1-0.

        What the columns below and above those in sight do takes one column each:

            column     3  2  1  0
            A          1  a  a  0       the token in column 1 sees the digits marked a and its own, c; a borrow from column 1
            B          0  a  a  9       is made by 0-9, and whatever column 2 borrows is made good by 1-0
            A - B         .  c  1
        """
        relations = COUPLING_RULES[self.coupling].relations
        if tuple(window) != relations or layers != 1:
            raise ValueError(
                f"the neighbourhoods of {self.name} have been worked out for one layer and the relations of its rule only"
            )

        def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            for width in (1, 2):
                digits = (np.arange(100**width)[:, None] // 10 ** np.arange(2 * width) % 10).reshape(-1, 2, width)
                digits = digits[~numbers_below(digits[:, 0], digits[:, 1])].astype(np.uint8)
                yield digits, np.full((len(digits), 2), width)
            middle = (np.arange(10_000)[:, None] // 10 ** np.arange(4) % 10).reshape(-1, 2, 2)
            for borrow in (0, 9):
                digits = np.zeros((len(middle), 2, 4), dtype=np.uint8)
                digits[:, 1, 0], digits[:, 0, 3], digits[:, :, 1:3] = borrow, 1, middle
                yield digits, np.full((len(digits), 2), 4)

        return CoveringProblems(
            count=55 + 5050 + 20_000,
            batches=batches(),
            argument=(
                "Call the ones column 0; `-` and `=` stand in column -1. A response token in column j sees `$` and the "
                "digits of both operands, told apart, in columns j and j+1; `=` sees `$`, `-` and the ones. What is "
                "right next follows from these, from its own digit, and from whether column j+1 exists: the own digit "
                "tells whether column j was borrowed from. Put one column in the place of those below j, which pass on "
                "nothing but a borrow: 0-9 if there is one, else 0-0. If column j+1 exists, put 1-0 in the place of the "
                "columns above it, which are not seen, so that the first operand stays the larger one: a problem of four"
                " digits. If j is the top, what is left has two digits, and the first operand is not smaller, since "
                "nothing is borrowed from above. For `=`, put 1-0 in the place of the columns above the ones: two "
                "digits, or one if there were none. The neighbourhoods and the right next tokens are the same. All these"
                " problems are checked."
            ),
        )

    def vary(self, generator, digits, max_length):
        """As they are half of the time, else extended by random columns above, the larger number first."""
        width = digits.shape[2]
        digits = extend_digits(generator, digits, max_length)
        digits[:, :, width:] = _larger_first(digits[:, :, width:])
        return digits, np.full(digits.shape[:2], digits.shape[2])

    def prompt(self, question):
        match = re.fullmatch(r"\s*([0-9]+)\s*-\s*([0-9]+)\s*=?\s*", question, flags=re.ASCII)
        if match is None:
            raise ValueError(f"the question {question!r} is not a subtraction such as {self.example_question!r}")
        width = max(map(len, match.groups()))
        first, second = (number.zfill(width) for number in match.groups())
        if first < second:
            raise ValueError(f"the question {question!r} must not subtract the larger number from the smaller one")
        return f"{first}-{second}="


def _larger_first(digits: np.ndarray) -> np.ndarray:
    """Pairs of numbers (count, 2, width), swapped where the first is smaller."""
    swapped = numbers_below(digits[:, 0], digits[:, 1])
    return np.where(swapped[:, None, None], digits[:, ::-1], digits)
