"""Addition of several numbers: `$0653+0049+0871=3751$` (paper 1, App. B)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from itertools import combinations_with_replacement
from math import comb
from typing import ClassVar

import numpy as np

from longhand.data.checks import check_integer
from longhand.data.digits import add_digits, extend_digits
from longhand.data.formatting import check_longest, lay_out
from longhand.data.tasks.covering import CoveringProblems
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.lengths import LongestOperandLengths
from longhand.data.tasks.reader import ONES_FIRST
from longhand.data.tasks.registry import register_task
from longhand.modeling.inputs import PromptFormat
from longhand.modeling.vocabulary import BOS, EQUALS, PLUS

_COVERING_BATCH = 10_000


@register_task
@dataclass(frozen=True)
class MultiOperandAddition(LongestOperandLengths, DecoderTask):
    """Sums of `operands` numbers of decimal digits.

    Lengths are balanced: each operand's length is uniform, then the operand is uniform among the numbers of that length. If
    the longest operand has L digits, all operands and the sum are zero-padded to L + 1 digits, which no sum of up to ten
    operands exceeds. The sum is written with the ones digit first. A group holds the problems of one L; they have the same
    layout.
    """

    name: ClassVar[str] = "multi_operand_addition"
    sign: ClassVar[str] = "+"
    coupling: ClassVar[str] = "multi_operand_addition"
    reader = ONES_FIRST

    # What other tasks fix is part of this one's format.
    operands: int = field(default=3, metadata={"help": "how many numbers are added, 2 to 10"})  # type: ignore[misc]

    def __post_init__(self):
        super().__post_init__()
        check_integer("operands", self.operands, 2, 10)

    @property
    def example_question(self) -> str:
        return "+".join(["653", "49", "871", "8", "20", "999", "5", "46", "7", "10"][: self.operands])

    @property
    def prompt_format(self):
        numbers = [number.zfill(4) for number in self.example_question.split("+")]
        pattern = rf"0[0-9]+(?:\+0[0-9]+){{{self.operands - 1}}}="
        return PromptFormat(pattern, f"{'+'.join(numbers)}=", response="[0-9]*", equal_widths=True)

    def format(self, digits, lengths):
        longest = digits.shape[2]
        check_longest(digits, lengths)
        padded = np.zeros((len(digits), self.operands, longest + 1), dtype=np.uint8)
        padded[:, :, :longest] = digits
        operands = [padded[:, place] for place in range(self.operands)]
        total = reduce(lambda first, second: add_digits(first, second)[:, : longest + 1], operands)
        query = [part for operand in operands for part in (operand[:, ::-1], PLUS)]
        query[-1] = EQUALS
        return lay_out([BOS, *query, total, self.end_token], query_parts=len(query) + 1)

    def covering(self, window, layers):
        """All problems of one digit, and of three digits for each carry that the ones can make.

        A token sees the digits of a column in any order, so one order is enough: with n operands there are C(n + 9, 9)
        columns. With n = 3:

            column     3  2  1  0
            A          0  a  a  9       the token in column 1 sees the digits marked a and c of columns 1 and 2; a carry
            B          0  a  a  9       of 0, 1 or 2 into column 1 is made by no, two or three 9s in the ones
            C          0  a  a  0
            sum           .  c  8
        """
        if tuple(window) != (0, 1) or layers != 1:
            raise ValueError(
                f"the neighbourhoods of {self.name} have been worked out for relation_range [0, 1] and one layer, "
                f"not for {list(window)} and {layers}"
            )
        columns = comb(self.operands + 9, 9)

        def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            digits = np.array(list(combinations_with_replacement(range(10), self.operands)), dtype=np.uint8)
            yield digits[:, :, None], np.ones(digits.shape, dtype=np.int64)
            for carry in range(self.operands):
                ones = np.where(np.arange(self.operands) < carry + (carry > 0), 9, 0)
                for first in range(0, columns**2, _COVERING_BATCH):
                    index = np.arange(first, min(first + _COVERING_BATCH, columns**2))
                    low, high = digits[index % columns], digits[index // columns]
                    problems = np.stack([np.broadcast_to(ones.astype(np.uint8), low.shape), low, high], axis=2)
                    yield problems, np.full(low.shape, 3)

        return CoveringProblems(
            count=columns + self.operands * columns**2,
            batches=batches(),
            argument=(
                "Call the ones column 0; every `+` and `=` stands in column -1. A response token in column j sees `$`, "
                "its own digit, and the operands' digits in columns j and j+1; `=` sees `$`, the signs and the ones. The "
                "operands' digits of one column stand in one relation. By locality their order does not matter, and one "
                "order of each column is enough. What is right next follows from what is seen and from whether column j+1 "
                f"exists: the own digit tells the carry c into column j, which is at most {self.operands - 1}. If column "
                "j+1 exists, remove the columns above it; they are not seen. Replace the columns below j by one column; "
                "they pass on nothing but the carry: zeros if c is 0, else c+1 nines and zeros. The result is a problem "
                "of three digits. If j is the top, its digits are zeros, since the padding leaves no carry out, and the "
                "own digit is c: so it is in a problem of three digits with c in its top column. `=` sees the same in a "
                "problem of one digit. The neighbourhoods and the right next tokens are the same. All such problems, with "
                "one order of each column, are checked."
            ),
        )

    def vary(self, generator, digits, max_length):
        """Shuffle the digits of every column; half of the time, also extend the problems by random columns above."""
        return extend_digits(generator, generator.permuted(digits, axis=1), max_length)
