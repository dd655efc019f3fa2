"""Subtraction of a number that is not larger: `$653-049=406$`."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from longhand.data.digits import count_up, extend_digits, numbers_below, subtract_digits
from longhand.data.formatting import check_longest, lay_out
from longhand.data.tasks.covering import CoveringProblems
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.lengths import LongestOperandLengths
from longhand.data.tasks.reader import ONES_FIRST
from longhand.data.tasks.registry import register_task
from longhand.modeling.inputs import PromptFormat
from longhand.modeling.vocabulary import BOS, EQUALS, MINUS


@register_task
@dataclass(frozen=True)
class Subtraction(LongestOperandLengths, DecoderTask):
    """Differences A - B of decimal numbers with A >= B, so that every digit follows from its column and a borrow.

    Lengths are balanced: each operand's length is uniform, then the operand is uniform among the numbers of that length. The
    larger number is written first. Both are zero-padded to the L digits of the longer one. The difference has L digits, the
    ones first. A group holds the problems of one L.
    """

    name: ClassVar[str] = "subtraction"
    sign: ClassVar[str] = "-"
    coupling: ClassVar[str] = "subtraction"
    operands: ClassVar[int] = 2
    example_question: ClassVar[str] = "653-49"
    reader = ONES_FIRST
    every_problem: ClassVar[str] = "operands of every length, the first not smaller than the second"

    prompt_format = PromptFormat("[0-9]+-[0-9]+=", "653-049=", response="[0-9]*", equal_widths=True, larger_first=True)

    def operand_lengths(self, length, other=None):
        if other is not None and other > length:
            raise ValueError(f"the second operand must not be longer than the first, got {other} and {length} digits")
        return super().operand_lengths(length, other)

    def sample_lengths(self, generator, count, min_length, max_length):
        return np.sort(super().sample_lengths(generator, count, min_length, max_length), axis=1)[:, ::-1]

    def group_lengths(self, generator, lengths, count, min_length):
        # (max, max) is one of the pairs with this maximum; every shorter length is in two of them.
        longest = int(lengths.max())
        choice = generator.integers(0, 2 * (longest - min_length) + 1, size=count)
        return np.stack([np.full(count, longest), min_length + choice // 2], axis=1)

    def read_question(self, question):
        first, second = super().read_question(question)
        width = max(len(first), len(second))
        if first.zfill(width) < second.zfill(width):
            raise ValueError(f"the first number of the question {question!r} must not be smaller than the second")
        return [first, second]

    def draw_operands(self, generator, lengths):
        return _larger_first(super().draw_operands(generator, lengths))

    def format(self, digits, lengths):
        check_longest(digits, lengths)
        first, second = digits[:, 0], digits[:, 1]
        if (below := numbers_below(first, second)).any():
            smaller, larger = ("".join(map(str, operand[below.argmax(), ::-1])).lstrip("0") for operand in (first, second))
            raise ValueError(f"the first operand must not be smaller than the second, got {smaller or '0'}-{larger}")
        difference = subtract_digits(first, second)
        return lay_out([BOS, first[:, ::-1], MINUS, second[:, ::-1], EQUALS, difference, self.end_token], query_parts=5)

    def covering(self, window, layers):
        """All problems of one and two digits, and all of four digits with ones 0-0 or 0-9 and top column 1-0.

        One column is enough for the effect of all columns below those in sight, and one for all columns above:

            column     3  2  1  0
            A          1  a  a  0       the token in column 1 sees the digits marked a and its own, c; a borrow from column 1
            B          0  a  a  9       is made by 0-9, and whatever column 2 borrows is made good by 1-0
            A - B         .  c  1
        """
        self.check_window(window, layers)

        def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            for width in (1, 2):
                digits = count_up(0, 100**width, width, numbers=2)
                digits = digits[~numbers_below(digits[:, 0], digits[:, 1])]
                yield digits, np.full((len(digits), 2), width)
            middle = count_up(0, 10_000, 2, numbers=2)
            for borrow in (0, 9):
                digits = np.zeros((len(middle), 2, 4), dtype=np.uint8)
                digits[:, 1, 0], digits[:, 0, 3], digits[:, :, 1:3] = borrow, 1, middle
                yield digits, np.full((len(digits), 2), 4)

        return CoveringProblems(
            count=55 + 5050 + 20_000,
            batches=batches(),
            argument=(
                "Call the ones column 0; `-` and `=` stand in column -1. A response token in column j sees `$` and, told "
                "apart, the digits of both operands in columns j and j+1; `=` sees `$`, `-` and the ones. What is right "
                "next follows from these, from the token's own digit, and from whether column j+1 exists: the own digit "
                "tells whether column j was borrowed from. Replace the columns below j by one column; they pass on "
                "nothing but a borrow: 0-9 if there is one, else 0-0. If column j+1 exists, replace the columns above it, "
                "which are not seen, by 1-0, so that the first operand stays the larger one: a problem of four digits. If "
                "j is the top, the result has two digits, and the first operand is not smaller, since nothing is borrowed "
                "from above. For `=`, replace the columns above the ones by 1-0: two digits, or one if there were none. "
                "The neighbourhoods and the right next tokens are the same. All these problems are checked."
            ),
        )

    def vary(self, generator, digits, max_length):
        """Extend half of the problems by random columns above, in which the first number is not smaller."""
        width = digits.shape[2]
        digits = extend_digits(generator, digits, max_length)
        digits[:, :, width:] = _larger_first(digits[:, :, width:])
        return digits


def _larger_first(digits: np.ndarray) -> np.ndarray:
    """Pairs of numbers (count, 2, width), the larger number of each first."""
    swapped = numbers_below(digits[:, 0], digits[:, 1])
    return np.where(swapped[:, None, None], digits[:, ::-1], digits)
