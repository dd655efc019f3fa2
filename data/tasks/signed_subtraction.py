"""Subtraction of any two numbers: `$653-049=406$`, and with the work that a negative answer needs `$049-653=693-406$`."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from longhand.data.digits import numbers_below, subtract_digits
from longhand.data.formatting import check_longest, lay_out
from longhand.data.tasks.covering import DIGITS, Case, CoveringNeighbourhoods, combine, list_neighbourhoods
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.lengths import LongestOfTwoLengths
from longhand.data.tasks.paper import LINE, plain, write_columns
from longhand.data.tasks.reader import ONES_FIRST
from longhand.data.tasks.registry import register_task
from longhand.modeling.inputs import PromptFormat
from longhand.modeling.vocabulary import BOS, EQUALS, MINUS, PAD


@register_task
@dataclass(frozen=True)
class SignedSubtraction(LongestOfTwoLengths, DecoderTask):
    """Differences A - B of decimal numbers in any order.

    Both numbers are zero-padded to the L digits of the longer one. First come the L digits of A - B, the ones first, as if a
    borrow out of the top column were free. If A >= B, this is the answer. Else it is 10**L too large, so `-` follows, and
    then the L digits that are missing to 10**L: the answer without its sign. Only the top column tells which number is
    larger, and it comes last: that is why a negative answer takes two rows.

    Lengths are balanced: each operand's length is uniform, then the operand is uniform among the numbers of that length. A
    group holds the problems of one L.
    """

    name: ClassVar[str] = "signed_subtraction"
    sign: ClassVar[str] = "-"
    coupling: ClassVar[str] = "signed_subtraction"
    operands: ClassVar[int] = 2
    example_question: ClassVar[str] = "49-653"
    shows_work: ClassVar[bool] = True

    reader = replace(ONES_FIRST, separators="-", negative="-")

    # One of the numbers has no zero in front.
    prompt_format = PromptFormat(
        "[1-9][0-9]*-[0-9]+=|[0-9]+-[1-9][0-9]*=|0-0=", "049-653=", response="[0-9]*(?:-[0-9]*)?", equal_widths=True
    )

    def format(self, digits, lengths):
        check_longest(digits, lengths)
        first, second = digits[:, 0], digits[:, 1]
        negative = numbers_below(first, second)[:, None]
        sign = np.where(negative, np.uint8(MINUS), np.uint8(PAD))
        missing = np.where(negative, subtract_digits(second, first), np.uint8(PAD))
        query = [BOS, first[:, ::-1], MINUS, second[:, ::-1], EQUALS]
        return lay_out([*query, subtract_digits(first, second), sign, missing, self.end_token], query_parts=5)

    def read_question(self, question):
        """Leading zeros are removed: numbers are padded to the longer one."""
        return list(map(plain, super().read_question(question)))

    def show_work(self, question, response):
        first, second = self.read_question(question)
        row, minus, _ = response.partition("-")
        rows = [("", first), ("-", second), LINE, ("", plain(row[::-1]))]
        if minus:
            rows += [("-", f"1{'0' * len(row)}"), LINE, ("", self.reader.read(response))]
        return write_columns(rows)

    def covering(self, window, layers):
        """All 20,528 neighbourhoods, each once; `_every_neighbourhood` lists them."""
        self.check_window(window, layers)
        return CoveringNeighbourhoods(
            count=20_528,
            batches=list_neighbourhoods(_every_neighbourhood(self.end_token), np.arange(4)),
            argument=(
                "Call the ones column 0; the signs stand in column -1. Every token sees `$`, which itself sees nothing "
                "else. (1) `=` sees the first `-` and the ones of A and B. (2) A digit d of the first row sees, told apart, "
                "the digits a of A and b of B in its own column and, below the top, in the next one. It is (a - b - c) mod "
                "10 with a borrow c of 0 or 1, which it tells. Right next is the next column's digit; at the top it is the "
                "end token, or `-` if a - b - c is below 0. There a and b are both 0 in 0-0 only, where c is 0. (3) The `-` "
                "in the response sees `=` and the ones of the first row. (4) A digit of the second row sees the first row's "
                "digits in its own column and, below the top, in the next one. It is 10 less the digit in the first column "
                "that is not 0, 0 below that column, and 9 less the digit above it; it tells which. Right next is the next "
                "column's digit, or at the top the end token. The first row is not all 0, since A and B differ by less than "
                "10**L. All these cases are checked."
            ),
        )


# The slots of a neighbourhood, in the order of the coupling rule's relations. The second row has the first one in A's place.
A, B, A_NEXT, B_NEXT = range(4)


def _every_neighbourhood(end_token: int) -> Iterator[Case]:
    """Every neighbourhood once."""
    first, second = combine(DIGITS, DIGITS)
    yield EQUALS, (first - second) % 10, {A: MINUS, A_NEXT: first, B_NEXT: second}
    yield MINUS, -DIGITS % 10, {A: EQUALS, A_NEXT: DIGITS}

    first, second, next_first, next_second = combine(DIGITS, DIGITS, DIGITS, DIGITS)
    top_first, top_second = combine(DIGITS, DIGITS)
    digit, next_digit = combine(DIGITS, DIGITS)
    for borrow in (0, 1):
        total = first - second - borrow
        keys = {A: first, B: second, A_NEXT: next_first, B_NEXT: next_second}
        yield total % 10, (next_first - next_second - (total < 0)) % 10, keys
        total = top_first - top_second - borrow
        # Both numbers begin with 0 in 0-0 only.
        possible = (top_first > 0) | (top_second > 0) | (borrow == 0)
        first_there, second_there, total = (values[possible] for values in (top_first, top_second, total))
        yield total % 10, np.where(total < 0, MINUS, end_token), {A: first_there, B: second_there}

        # Below and in the first column that is not 0 nothing has been borrowed; above it, 1 has.
        still_zero = (digit == 0) & (borrow == 0)
        right = (9 + still_zero - next_digit) % 10
        yield (10 - borrow - digit) % 10, right, {A: digit, A_NEXT: next_digit}
        top = DIGITS[1 - borrow :]
        yield (10 - borrow - top) % 10, end_token, {A: top}
