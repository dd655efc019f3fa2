"""Multiplication of any two numbers with a scratchpad: `$294*68=2532+4671=25320>29991$` (the follow-up of paper 1)."""

from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from typing import ClassVar

import numpy as np

from longhand.data.digits import add_digits, multiply_digits, uniform_digits
from longhand.data.formatting import lay_out
from longhand.data.tasks.covering import Sight, search_covering
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.reader import NUMBER, ONES_FIRST
from longhand.data.tasks.registry import register_task
from longhand.data.tasks.search import ABSENT, Columns, Graph, grow
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
        """All neighbourhoods, 98,487 in base 10, by search; the coupling rule says what a token sees."""
        self.check_window(window, layers)
        parts, sums = _partial_products(self.radix), _running_sums(self.radix, self.end_token)
        return search_covering(
            [
                Sight(parts, 3, ((1, 0), (1, 1)), (4, 5)),
                Sight(parts, 4, ((0, 0), (1, 0), (0, 1), (0, 2)), range(4)),
                Sight(sums, 4, ((0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 3)), range(6, 12)),
            ]
        )

    def read_question(self, question):
        """Numbers are written without leading zeros, as in training."""
        return [number.lstrip("0") or "0" for number in super().read_question(question)]


@lru_cache(maxsize=4)
def _partial_products(base: int) -> Graph:
    """All partial products. Words: A, its digit of B, the next one; the separator and the ones; the ones and all above.

    A state is both digits of B, the carry, and how far A is, see `grow`; and, before the first column, the separator.
    """

    def step(state, digit):
        own, after, carry, kind, _ = state
        grown = grow(kind, digit)
        if kind == 4 or grown is None:
            return None
        carry, written = divmod(max(digit, 0) * own + carry, base)
        return (digit, own, after, ABSENT if kind else written, written), (own, after, carry, grown, None)

    def ends(state):
        _, after, _, kind, _ = state
        return (*[ABSENT] * 4, EQUALS if after == ABSENT else PLUS) if kind == 4 else None

    factors = product(range(base), range(ABSENT, base), (EQUALS, PLUS))
    starts = {(own, after, 0, 0, sign): (*[ABSENT] * 3, sign, ABSENT) for own, after, sign in factors}
    return Columns(starts, range(ABSENT, base), step, ends).graph


@lru_cache(maxsize=4)
def _running_sums(base: int, end_token: int) -> Graph:
    """All running sums. Words: the row above, the partial product, `+` of the row below, `*`, and the running sum.

    A state is the carry, where the newest column is, what begins the row above, `ABSENT` if there is none, and whether this
    row is the last one. A column is below the ones of the partial product (1), among its digits but the top one (2), at its
    top (3), a carry below base - 1, or above it (4). Running sum j is less than base^(N + j + 1), where A has N digits: so
    from the top of a partial product on the row above holds 0, and nothing is carried out of the product.
    """
    moves = {(1, 1), (1, 2), (2, 2), (2, 3), (3, 4), (4, 4)}

    def step(state, symbol):
        carry, place, begins, is_last = state
        above, partial, where = symbol
        legal = (place, where) in moves or (place, where) == (0, 2 if begins == ABSENT else 1)
        if not legal or (above and begins == ABSENT) or (where == 4 and is_last):
            return None
        carry, written = divmod(above + partial + carry, base)
        labels = (
            ABSENT if begins == ABSENT else above,
            partial if where in (2, 3) else ABSENT,
            ABSENT if is_last else PLUS,
            ABSENT,
            written,
        )
        return labels, (carry, where, begins, is_last)

    def ends(state):
        carry, place, _, is_last = state
        fits = carry == 0 and place == (3 if is_last else 4)
        return (*[ABSENT] * 3, TIMES, end_token if is_last else GREATER) if fits else None

    digits = range(base)
    symbols = [(above, 0, 1) for above in digits] + [(*pair, 2) for pair in product(digits, digits)]
    symbols += [(0, top, 3) for top in digits[:-1]] + [(0, 0, 4)]
    starts = {
        (0, 0, begins, is_last): (
            begins,
            ABSENT,
            ABSENT if is_last else PLUS,
            ABSENT,
            EQUALS if begins == ABSENT else GREATER,
        )
        for begins, is_last in product((ABSENT, EQUALS, GREATER), (False, True))
    }
    return Columns(starts, symbols, step, ends).graph
