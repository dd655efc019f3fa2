"""Multiplication of any two numbers with a scratchpad: `$294*68=2532+4671=25320>29991$` (the follow-up of paper 1)."""

# Used by: composite.py. Changed freely.

from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import lru_cache
from itertools import product
from typing import ClassVar, NamedTuple

import numpy as np

from longhand.data.digits import add_digits, multiply_digits, uniform_digits
from longhand.data.formatting import lay_out
from longhand.data.machines.columns import (
    ABSENT,
    ANY_COLUMN,
    Columns,
    Graph,
    Ids,
    Number,
    Rows,
    by_column,
    grow,
    one_token,
)
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.reader import NUMBER, ONES_FIRST
from longhand.data.tasks.registry import register_task
from longhand.modeling.inputs import PromptFormat
from longhand.modeling.vocabulary import BOS, EQUALS, GREATER, PLUS, TIMES


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
    further_couplings: ClassVar[tuple[str, ...]] = ("multiplication_scratchpad_followup",)
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

    def runs(self, ordered=False):
        return _partial_products(self.radix), _running_sums(self.radix, self.end_token)

    def read_question(self, question):
        """Numbers are written without leading zeros, as in training."""
        return [number.lstrip("0") or "0" for number in super().read_question(question)]


class PartialProduct(NamedTuple):
    """A state of `_partial_products`.

    Attributes:
        factor: the digit of B by which A is multiplied.
        next_factor: the digit of B above it; `ABSENT` if there is none.
        carry: from the column before.
        number: how far A has been read.
        begins: before the first column, the token that begins the row; None behind this column.
    """

    factor: int
    next_factor: int
    carry: int
    number: Number
    begins: int | None


@lru_cache(maxsize=4)
def _partial_products(base: int) -> Graph:
    """All partial products, each by itself: A, two digits of B, and the partial product.

    $ 9 4 * 6 8 = 2 5 7 + 4 6 5 =
    0 2 3 0 0 0 4 3 2 1 4 3 2 1 0      significance in A
    0 0 0 0 2 1 1 1 1 1 2 2 2 2 1      row
    0 0 0 1 0 0 0 5 4 3 0 4 3 2 6      significance in the product, in which the token before a row has none
    """

    def ids_written(column: int) -> tuple[int, ...]:
        significance = ANY_COLUMN - column
        return significance, 2, significance if column >= 0 else 0

    def step(state: PartialProduct, digit: int):
        number = grow(state.number, digit)
        if state.number == Number.ENDED or number is None:
            return None
        carry, written = divmod(max(digit, 0) * state.factor + state.carry, base)
        labels = (digit, state.factor, state.next_factor, written)
        return labels, PartialProduct(state.factor, state.next_factor, carry, number, begins=None)

    def ends(state: PartialProduct):
        if state.number != Number.ENDED:
            return None
        return ABSENT, state.factor, state.next_factor, EQUALS if state.next_factor == ABSENT else PLUS

    starts = {
        PartialProduct(factor, next_factor, 0, Number.BEFORE, begins): (ABSENT, factor, next_factor, begins)
        for factor, next_factor, begins in product(range(base), range(ABSENT, base), (EQUALS, PLUS))
    }
    rows = Rows([by_column(-1, 0, 0), one_token(0, 2, 0), one_token(0, 3, 0), ids_written])
    return Columns(rows, starts, range(ABSENT, base), step, ends).graph


class Where(IntEnum):
    """Where a column of a running sum is."""

    START = 0
    """Before the first column."""

    BELOW = 1
    """Below the ones of the partial product."""

    IN = 2
    """Among its digits but the top one."""

    TOP = 3
    """At its top, a carry below base - 1."""

    ABOVE = 4
    """Above it."""


FOLLOWS = {
    Where.BELOW: (Where.BELOW, Where.IN),
    Where.IN: (Where.IN, Where.TOP),
    Where.TOP: (Where.ABOVE,),
    Where.ABOVE: (Where.ABOVE,),
}
"""Where the column behind a column may be. The first row begins among the digits of its partial product, others below."""


class ProductRow(NamedTuple):
    """A state of `_running_sums`.

    Attributes:
        carry: from the column before.
        where: the column before.
        begins: the token that begins the row above; `ABSENT` if this is the first row.
        is_last: whether no row follows.
    """

    carry: int
    where: Where
    begins: int
    is_last: bool


@lru_cache(maxsize=4)
def _running_sums(base: int, end_token: int) -> Graph:
    """All running sums, each by itself. A symbol: the digit of the row above, that of the partial product, `Where`.

    The rows are the running sum above and the token that begins it, which the first running sum has not; the partial product
    that is added; `+` of the next partial product, which says that this row is not the last one; `*`, behind A; and the
    running sum.

        $ 9 4 * 6 8 = 2 5 7 + 4 6 5 = 2 5 7 0 > 2 9 3 6 $
        0 0 0 0 2 1 1 1 1 1 2 2 2 2 1 1 1 1 1 2 2 2 2 2 0      row
        0 0 0 1 0 0 0 5 4 3 0 4 3 2 6 5 4 3 2 6 5 4 3 2 0      significance in the product

    Of a token's significance in A, a running sum sees whether there is any: 1 stands for all.

    Running sum j is less than base^(N + j + 1), where A has N digits: so from the top of a partial product on the row above
    holds 0, and nothing is carried out of the product.
    """

    def step(state: ProductRow, symbol: tuple[int, int, Where]):
        above, partial, where = symbol
        is_first = state.begins == ABSENT
        if state.where == Where.START:
            legal = where == (Where.IN if is_first else Where.BELOW)
        else:
            legal = where in FOLLOWS[state.where]
        # The first row adds to nothing, and the last one ends at the top of its partial product.
        if not legal or (above and is_first) or (where == Where.ABOVE and state.is_last):
            return None
        carry, written = divmod(above + partial + state.carry, base)
        labels = (
            ABSENT if is_first else above,
            partial if where in (Where.IN, Where.TOP) else ABSENT,
            ABSENT if state.is_last else PLUS,
            ABSENT,
            written,
        )
        return labels, ProductRow(carry, where, state.begins, state.is_last)

    def ends(state: ProductRow):
        if state.carry or state.where != (Where.TOP if state.is_last else Where.ABOVE):
            return None
        return ABSENT, ABSENT, ABSENT, TIMES, end_token if state.is_last else GREATER

    digits = range(base)
    symbols = [(above, 0, Where.BELOW) for above in digits]
    symbols += [(above, partial, Where.IN) for above, partial in product(digits, digits)]
    symbols += [(0, top, Where.TOP) for top in digits[:-1]]
    symbols.append((0, 0, Where.ABOVE))
    starts = {
        ProductRow(0, Where.START, begins, is_last): (
            begins,
            ABSENT,
            ABSENT if is_last else PLUS,
            ABSENT,
            EQUALS if begins == ABSENT else GREATER,
        )
        for begins, is_last in product((ABSENT, EQUALS, GREATER), (False, True))
    }

    def ids(significance: int, row: int) -> Ids:
        """Ids by column of the product."""
        return lambda column: (significance, row, ANY_COLUMN - column)

    rows = Rows([ids(0, 1), ids(1, 2), one_token(1, 3, 0), ids(0, 0), ids(0, 2)])
    return Columns(rows, starts, symbols, step, ends).graph
