"""Multiplication by a number of fixed length: `$653*49=79913$` (paper 1, Sec. 6.1)."""

# Used by: whoever runs or imports it. Changed freely.

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from longhand.data.digits import multiply_digits
from longhand.data.formatting import lay_out, pad_beyond
from longhand.data.machines.columns import ABSENT, Columns, Graph, Number, Rows, by_column, grow, one_token
from longhand.data.tasks.complexity import dependency_lengths
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.reader import NUMBER, ONES_FIRST
from longhand.data.tasks.registry import register_task
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.inputs import PromptFormat
from longhand.modeling.vocabulary import BOS, EQUALS, TIMES


@register_task
@dataclass(frozen=True)
class Multiplication(DecoderTask):
    """Products of a number of any length and one of `multiplier_length` digits.

    Both operands are written with the most significant digit first. The first operand is not padded, the second is padded to
    `multiplier_length` digits. The product is written with the ones digit first, padded to the number of digits of both
    operands together. The first operand's length is uniform, then the operand is uniform among the numbers of its length.
    The second operand is uniform among all numbers of up to `multiplier_length` digits. A group holds the problems whose
    first operand has one length.

    Splits share no problem within one format. Splits of two formats may: with a `multiplier_length` of 2, 3*1 is written
    3*01, and may belong to another split.
    """

    name: ClassVar[str] = "multiplication"
    sign: ClassVar[str] = "*"
    coupling: ClassVar[str] = "multiplication"
    operands: ClassVar[int] = 2
    reader = ONES_FIRST
    sized_problems: ClassVar[tuple[str, str]] = ("first operands of", "digit")
    every_problem: ClassVar[str] = "a first operand of every length and every second operand"

    multiplier_length: int = field(
        default=2, metadata={"help": "digits of the second operand", "range": (1, DecoderTask.most_digits)}
    )

    @property
    def couplings(self) -> tuple[str, ...]:
        windowed = ("multiplication_by_digits",) if self.multiplier_length <= 2 else ()
        return ("multiplication", *windowed, "multiplication_marked_top")

    @property
    def example_question(self) -> str:
        return f"653*{'49'[: self.multiplier_length]}"

    @property
    def prompt_format(self):
        pattern = rf"{NUMBER}\*[0-9]{{{self.multiplier_length}}}="
        return PromptFormat(pattern, self.prompt(self.example_question), response="[0-9]*")

    def operand_lengths(self, length, other=None):
        if other not in (None, self.multiplier_length):
            raise ValueError(f"the second operand has multiplier_length = {self.multiplier_length} digits, not {other}")
        return (length, self.multiplier_length)

    def sample_lengths(self, generator, count, min_length, max_length):
        first = generator.integers(min_length, max_length + 1, size=count)
        return np.stack([first, np.full(count, self.multiplier_length)], axis=1)

    def draw_operands(self, generator, lengths):
        digits = super().draw_operands(generator, lengths)
        length = self.multiplier_length
        digits[:, 1, :length] = generator.integers(0, 10, size=(len(digits), length), dtype=np.uint8)
        return digits

    def format(self, digits, lengths):
        first, second = (digits[:, place, : lengths[:, place].max()] for place in range(2))
        product = multiply_digits(first, second)
        first, second = pad_beyond(first, lengths[:, 0]), pad_beyond(second, lengths[:, 1])
        product = pad_beyond(product, lengths.sum(axis=1))
        return lay_out([BOS, first[:, ::-1], TIMES, second[:, ::-1], EQUALS, product, self.end_token], query_parts=5)

    def extra_columns(self, digits):
        multiplier = digits[:, 1, : self.multiplier_length]
        return {"dependency_length": pa.array(dependency_lengths(multiplier, digits[:, 0]).astype(np.int32))}

    keys_are_alone = True

    @property
    def known_window(self):
        return COUPLING_RULES["multiplication_by_digits"].relations

    def runs(self, ordered=False):
        """The token d sees four digits x of A and both of B, y and z; n comes next:

        A              .  x  x  x  x  .
        times B                    y  z
        product           n  d  .  .  .
        """
        if self.multiplier_length > 2:
            raise ValueError(
                "the neighbourhoods of multiplication are searched for a multiplier_length of 1 or 2 only, not for "
                f"{self.multiplier_length}"
            )
        return (_multiples(self.multiplier_length, self.end_token),)

    def read_question(self, question):
        """Leading zeros are removed; then the second operand is zero-padded to `multiplier_length`."""
        first, second = (number.lstrip("0") or "0" for number in super().read_question(question))
        if len(second) > self.multiplier_length:
            raise ValueError(
                f"the second number of the question {question!r} must have at most multiplier_length = "
                f"{self.multiplier_length} digits, got {len(second)}"
            )
        return [first, second.zfill(self.multiplier_length)]


class Multiple(NamedTuple):
    """A state of `_multiples`.

    Attributes:
        ones, tens: digits of B; `ABSENT` for the tens if B has one digit.
        newest: the digit of A in the column before, 0 if there is none.
        carry: from the column before.
        number: how far A has been read.
        beyond: how many columns above A have been read.
    """

    ones: int
    tens: int
    newest: int
    carry: int
    number: Number
    beyond: int


@lru_cache(maxsize=2)
def _multiples(multiplier_length: int, end_token: int) -> Graph:
    """All products.

    $ 6 5 3 * 4 9 = 7 9 9 1 3 $
    0 3 4 5 0 0 0 6 5 4 3 2 1 0      significance, for B none
    0 0 0 0 4 1 2 3 3 3 3 3 3 0      digits of B; the product
    """

    def seen(state: Multiple) -> tuple[int, ...]:
        """B in the order of the text."""
        return state.tens, state.ones

    def step(state: Multiple, digit: int):
        number = grow(state.number, digit)
        beyond = state.beyond + (digit == ABSENT)
        if number is None or beyond > multiplier_length:
            return None
        newest = max(digit, 0)
        carry, written = divmod(newest * state.ones + state.newest * max(state.tens, 0) + state.carry, 10)
        return (digit, *seen(state), written), Multiple(state.ones, state.tens, newest, carry, number, beyond)

    def ends(state: Multiple):
        return (ABSENT, *seen(state), end_token) if state.beyond == multiplier_length else None

    factors = product(range(10), range(10) if multiplier_length > 1 else [ABSENT])
    states = [Multiple(ones, tens, newest=0, carry=0, number=Number.BEFORE, beyond=0) for ones, tens in factors]
    starts = {state: (ABSENT, *seen(state), EQUALS) for state in states}
    # A multiplier of one digit has no tens.
    rows = Rows([by_column(-1, 0), one_token(0, 1), one_token(0, 2), by_column(-1, 3)])
    return Columns(rows, starts, range(ABSENT, 10), step, ends).graph
