"""Multiplication of any two numbers with a scratchpad: `$294*68=2532+4671=25320>29991$` (the follow-up of paper 1)."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import ClassVar

import numpy as np

from longhand.data.digits import add_digits, multiply_digits, uniform_digits
from longhand.data.formatting import lay_out
from longhand.data.tasks.covering import Case, CoveringNeighbourhoods, combine, list_neighbourhoods
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.reader import NUMBER, ONES_FIRST
from longhand.data.tasks.registry import register_task
from longhand.modeling.inputs import PromptFormat
from longhand.modeling.vocabulary import BOS, EQUALS, GREATER, PAD, PLUS, TIMES


@register_task
@dataclass(frozen=True)
class MultiplicationScratchpad(DecoderTask):
    """Products of two numbers, by partial products and running sums, all written with the ones digit first.

    Let the operands have N and M digits. First come M partial products of N + 1 digits: the first operand times each digit
    of the second, from the ones on. Then come the M running sums of the partial products, each shifted to its place, of
    N + M digits. The last running sum is the answer. Lengths are uniform, then each operand is uniform among the numbers of
    its length. A group holds the problems of one N and M.
    """

    name: ClassVar[str] = "multiplication_scratchpad"
    sign: ClassVar[str] = "*"
    coupling: ClassVar[str] = "multiplication_scratchpad"
    operands: ClassVar[int] = 2
    most_digits: ClassVar[int] = 2000
    reader = replace(ONES_FIRST, separators=">=")

    radix: int = field(default=10, metadata={"help": "base of the numbers, 2 to 10", "range": (2, 10)})

    @property
    def example_question(self):
        return "294*68" if self.radix == 10 else "101*11"

    @property
    def prompt_format(self):
        last = self.radix - 1
        number = NUMBER.replace("9", str(last))
        return PromptFormat(
            rf"{number}\*{number}=", f"{self.example_question}=", response=f"(?:[0-{last}]+[+=>])*[0-{last}]*"
        )

    def draw_operands(self, generator, lengths):
        return uniform_digits(generator, lengths, self.radix)

    def answer_length(self, lengths):
        return sum(lengths) + 1

    def prompt(self, question):
        # As `format` writes it, without the work: a product of long numbers takes minutes.
        return f"{self.sign.join(self.read_question(question))}="

    def format(self, digits, lengths):
        count, (first_length, second_length) = len(digits), self.one_size(lengths)
        first, second = digits[:, 0, :first_length], digits[:, 1, :second_length]
        partial = multiply_digits(np.repeat(first, second_length, axis=0), second.reshape(-1, 1), self.radix)
        partial = partial.reshape(count, second_length, first_length + 1)
        sums = np.zeros((count, second_length, first_length + second_length), dtype=np.uint8)
        sums[:, 0, : first_length + 1] = partial[:, 0]
        for row in range(1, second_length):
            # Below its own place a partial product adds nothing.
            sums[:, row, :row] = sums[:, row - 1, :row]
            sums[:, row, row : row + first_length + 1] = add_digits(
                sums[:, row - 1, row : row + first_length + 1], partial[:, row], self.radix
            )[:, :-1]
        parts = [BOS, first[:, ::-1], TIMES, second[:, ::-1]]
        for row in range(second_length):
            parts += [PLUS if row else EQUALS, partial[:, row]]
        for row in range(second_length):
            parts += [GREATER if row else EQUALS, sums[:, row]]
        return lay_out([*parts, self.end_token], query_parts=5)

    def covering(self, window, layers):
        """All neighbourhoods, 98,487 in base 10, each once; `_partial_products` and `_running_sums` list them."""
        self.check_window(window, layers)
        cases = chain(_partial_products(self.radix), _running_sums(self.radix, self.end_token))
        listed = list(list_neighbourhoods(cases, np.arange(12)))
        return CoveringNeighbourhoods(
            count=sum(len(batch.tokens) for batch in listed),
            batches=(part for batch in listed for part in batch.batches(_COVERING_BATCH)),
            argument=(
                "Let the operands have N and M digits in base B. Columns count from 0, the ones. Rows count from 0: row j "
                "is partial product j, shifted by j places, and running sum j. Every token sees `$`, which itself sees "
                "nothing else, and at most one key of each relation. (1) The separator before a partial product sees the "
                "first operand's ones and b, the second operand's digit of its row. (2) In the column of a digit a of the "
                "first operand, a partial product's digit d sees a, the first operand's next digit (absent at the top), "
                "b, and the second operand's next digit (absent in the last row). The carry c into the column is below b, "
                "or 0 if b is 0, and follows from d = (a * b + c) mod B. Right next is the next column's digit, or at "
                "the top the carry out. At the top, a is 0 only in the number 0, and then c is 0. (3) A partial product's "
                "top digit is that carry; it sees b and the second operand's next digit. Right next is `=` if the latter "
                "is absent, else `+`. (4) A running sum and its separator, below its ones, see the row above and their "
                "partial product, each in the token's column and the next as far as they reach. They also see the `+` of "
                "the row below, absent in the last row. (5) Row 0 copies its partial product from column 0 to N; further "
                "up it is 0. (6) In row j > 0 the columns below j copy the row above. In columns j to j+N-1 the digit is "
                "(x + p + c) mod B, with x of the row above and p of the partial product, and the carry c of 0 or 1 "
                "follows from it. Running sum j is less than B**(N+j+1). So in column j+N the row above is 0, the digit "
                "is p + c with p a last carry of 0 to B - 2, nothing is carried out, and all digits further up are 0. (7) "
                "In the top column of the product, N+M-1, a running sum sees `*` and no next column. In the last row this "
                "column is the partial product's top; in other rows it lies above it. Right next is `>` if there is a row "
                "below, else the end token. All these cases are checked with all digits and carries that they leave open."
            ),
        )

    def read_question(self, question):
        """Numbers are written without leading zeros, as in training."""
        return [number.lstrip("0") or "0" for number in super().read_question(question)]


_COVERING_BATCH = 10_000

# The slots of a neighbourhood, in the order of the coupling rule's relations.
(A, A_NEXT, B, B_NEXT, A_OF_SEPARATOR, B_OF_SEPARATOR,
 ABOVE, ABOVE_NEXT, PARTIAL, PARTIAL_NEXT, NEXT_ROW, TOP) = range(12)  # fmt: skip


def _partial_products(base: int) -> Iterator[Case]:
    """Separators, digits in columns of the first operand, and the last carries."""
    digits = np.arange(base)
    ones, multiplier = combine(digits, digits)
    for separator in (EQUALS, PLUS):
        yield separator, ones * multiplier % base, {A_OF_SEPARATOR: ones, B_OF_SEPARATOR: multiplier}

    # A carry is below the digit of the second operand that all digits of the row are multiplied by.
    multipliers, carries = np.nonzero(np.maximum(digits, 1)[:, None] > digits)
    cases, next_multipliers = np.arange(len(carries)), np.array([*digits, PAD])

    case, digit, next_digit, next_multiplier = combine(cases, digits, digits, next_multipliers)
    multiplier = multipliers[case]
    total = digit * multiplier + carries[case]
    keys = {A: digit, B: multiplier, B_NEXT: next_multiplier, A_NEXT: next_digit}
    yield total % base, (next_digit * multiplier + total // base) % base, keys

    case, digit, next_multiplier = combine(cases, digits, next_multipliers)
    # The top digit is 0 in the number 0 only.
    reachable = (digit > 0) | (carries[case] == 0)
    case, digit, next_multiplier = case[reachable], digit[reachable], next_multiplier[reachable]
    total = digit * multipliers[case] + carries[case]
    yield total % base, total // base, {A: digit, B: multipliers[case], B_NEXT: next_multiplier}

    case, next_multiplier = combine(cases, next_multipliers)
    right = np.where(next_multiplier == PAD, EQUALS, PLUS)
    yield carries[case], right, {B: multipliers[case], B_NEXT: next_multiplier}


def _running_sums(base: int, end_token: int) -> Iterator[Case]:
    """The first row, which copies; then of every other row, from its separator to its top."""
    digits, last_carries, next_rows = np.arange(base), np.arange(base - 1), (PLUS, PAD)
    digit, next_digit = combine(digits, digits)
    for next_row in next_rows:
        yield EQUALS, digits, {PARTIAL_NEXT: digits, NEXT_ROW: next_row}
        yield digit, next_digit, {PARTIAL: digit, PARTIAL_NEXT: next_digit, NEXT_ROW: next_row}
    yield last_carries, end_token, {PARTIAL: last_carries, TOP: TIMES}
    yield last_carries, 0, {PARTIAL: last_carries, NEXT_ROW: PLUS}
    yield 0, 0, {NEXT_ROW: PLUS}
    yield 0, GREATER, {NEXT_ROW: PLUS, TOP: TIMES}

    for next_row in next_rows:
        for separator in (EQUALS, GREATER):
            yield GREATER, digits, {ABOVE: separator, ABOVE_NEXT: digits, NEXT_ROW: next_row}
        # Below the partial product; in the column before its ones; and from its ones on, with a carry.
        above, above_next = combine(digits, digits)
        yield above, above_next, {ABOVE: above, ABOVE_NEXT: above_next, NEXT_ROW: next_row}
        above, above_next, partial_next = combine(digits, digits, digits)
        keys = {ABOVE: above, ABOVE_NEXT: above_next, PARTIAL_NEXT: partial_next, NEXT_ROW: next_row}
        yield above, (above_next + partial_next) % base, keys
        above, partial, above_next, partial_next, carry = combine(digits, digits, digits, digits, np.arange(2))
        total = above + partial + carry
        keys = {ABOVE: above, PARTIAL: partial, ABOVE_NEXT: above_next, PARTIAL_NEXT: partial_next, NEXT_ROW: next_row}
        yield total % base, (above_next + partial_next + total // base) % base, keys
    # Between the partial product and the top, the row above is all 0 and is copied as it is below the partial product.
    last, carry = combine(last_carries, np.arange(2))
    yield last + carry, end_token, {ABOVE: 0, PARTIAL: last, TOP: TIMES}
    yield last + carry, 0, {ABOVE: 0, ABOVE_NEXT: 0, PARTIAL: last, NEXT_ROW: PLUS}
    yield 0, GREATER, {ABOVE: 0, NEXT_ROW: PLUS, TOP: TIMES}
