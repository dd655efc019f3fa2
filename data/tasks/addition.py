"""Addition of two numbers: `$653+049=2070$` (paper 1, Secs. 2 and 4)."""

from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from longhand.data.digits import add_digits, extend_digits, number_lengths
from longhand.data.formatting import check_longest, lay_out, pad_beyond
from longhand.data.tasks.complexity import cascade_lengths
from longhand.data.tasks.covering import Sight, search_covering
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.lengths import LongestOperandLengths
from longhand.data.tasks.questions import NUMBER, NUMBER_ONES_FIRST
from longhand.data.tasks.reader import ONES_FIRST, AnswerReader
from longhand.data.tasks.registry import register_task
from longhand.data.tasks.search import ABSENT, Graph, build_graph
from longhand.modeling.inputs import PromptFormat
from longhand.modeling.vocabulary import BOS, EQUALS, PLUS

_COUPLING = {"response_reversed": "addition", "all_reversed": "addition_all_reversed", "plain": "addition_plain"}


@register_task
@dataclass(frozen=True)
class Addition(LongestOperandLengths, DecoderTask):
    """Sums of two numbers of decimal digits.

    Lengths are balanced: each operand's length is uniform, then the operand is uniform among the numbers of that length. A
    group holds the problems whose longer operand has the same length. With zero-padding they have the same layout.
    """

    name: ClassVar[str] = "addition"
    sign: ClassVar[str] = "+"
    operands: ClassVar[int] = 2
    example_question: ClassVar[str] = "653+49"

    zero_padding: bool = field(
        default=True, metadata={"help": "pad both operands to the longer one's length L, the sum to L + 1 digits"}
    )
    order: Literal["response_reversed", "all_reversed", "plain"] = field(
        default="response_reversed", metadata={"help": "which numbers are written with the ones digit first"}
    )

    @property
    def coupling(self) -> str:
        return _COUPLING[self.order]

    @property
    def reader(self) -> AnswerReader:
        return replace(ONES_FIRST, ones_first=self.order != "plain")

    @property
    def prompt_format(self):
        ones_first = self.order == "all_reversed"
        shortest = NUMBER_ONES_FIRST if ones_first else NUMBER
        number = "[0-9]+" if self.zero_padding else shortest
        padded = "356+940=" if ones_first else "653+049="
        return PromptFormat(
            rf"{number}\+{number}=",
            padded if self.zero_padding else padded.replace("0", ""),
            response="[0-9]*",
            equal_widths=self.zero_padding,
            ones_first=ones_first,
        )

    def read_question(self, question):
        """Leading zeros count as digits if numbers are padded; otherwise they are removed."""
        numbers = super().read_question(question)
        return numbers if self.zero_padding else [number.lstrip("0") or "0" for number in numbers]

    def format(self, digits, lengths):
        first, second = digits[:, 0], digits[:, 1]
        total = add_digits(first, second)
        if not self.zero_padding:
            longest = lengths.max(axis=1)
            has_carry = np.take_along_axis(total, longest[:, None], axis=1)[:, 0] > 0
            total = pad_beyond(total, longest + has_carry)
            first, second = pad_beyond(first, lengths[:, 0]), pad_beyond(second, lengths[:, 1])
        else:
            check_longest(digits, lengths)
        if self.order != "all_reversed":
            first, second = first[:, ::-1], second[:, ::-1]
        if self.order == "plain":
            total = total[:, ::-1]
        return lay_out([BOS, first, PLUS, second, EQUALS, total, self.end_token], query_parts=5)

    def rewrite(self, generator, digits, lengths):
        return super().rewrite(generator, digits, self._written_lengths(digits))

    def _written_lengths(self, digits: np.ndarray) -> np.ndarray:
        """Lengths (count, operands) of numbers whose zeros on top count as digits only if numbers are padded."""
        return np.full(digits.shape[:2], digits.shape[2]) if self.zero_padding else number_lengths(digits)

    def covering(self, window, layers):
        """Every neighbourhood in one layer, by search.

        A token sees, in each column of the window, the digits of both operands in any order, and `+` and `=` below the ones;
        and what is written so far.
        """
        low, high = window
        if layers != 1:
            raise ValueError(f"the neighbourhoods of {self.name} are searched for one layer, not for {layers}")
        if self.order == "plain":
            raise ValueError("with the order 'plain' the next digit needs a carry from below, which no window can hold")
        sees = [(column, word) for column in range(low, high + 1) for word in ((0, 1, 2) if column <= 0 else (0, 1))]
        return search_covering([Sight(_runs(self), 2, sees, [column - low for column, _ in sees], (0, 1))], self)

    def vary(self, generator, digits, max_length):
        """Extend half of the problems by random columns above; the columns below do not see them."""
        return extend_digits(generator, digits, max_length)

    def extra_columns(self, digits):
        return {"longest_cascade": pa.array(cascade_lengths(digits[:, 0], digits[:, 1]).astype(np.int32))}


@lru_cache(maxsize=4)
def _runs(task: Addition) -> Graph:
    """All sums. Words: two operands and the sum. A state is a phase, the carry, and how far each operand is.

    The phases are the start, among the columns, after the carry, and the end. An operand that is not padded ends behind its
    first digit (1) or behind another that is not 0 (2), but not behind a 0 (3); then it is absent (4).
    """

    def step(states, symbols):
        phase, carry, ends = states[:, 0], states[:, 1], states[:, 2:]
        absent = symbols == ABSENT
        after = absent.all(axis=1)
        total = np.where(absent, 0, symbols).sum(axis=1) + carry
        has_carry = task.zero_padding | (carry > 0)
        written = np.where(after & ((phase == 2) | ~has_carry), task.end_token, total % 10)
        following = np.where(after, np.where((phase == 1) & has_carry, 2, 3), 1)
        legal = np.where(after, (phase == 1) | (phase == 2), phase <= 1)
        if task.zero_padding:
            legal &= after | ~absent.any(axis=1)
        else:
            legal &= np.where(absent, (ends != 0) & (ends != 3), ends != 4).all(axis=1)
            ends = np.where(absent, 4, np.where(ends == 0, 1, np.where(symbols > 0, 2, 3)))
        return np.column_stack([symbols, written]), np.column_stack([following, total // 10, ends]), legal

    digits = [symbol for symbol in product(range(ABSENT, 10), repeat=2) if symbol != (ABSENT, ABSENT)]
    starts, marks = np.zeros((1, 4), dtype=np.int64), np.array([[PLUS, ABSENT, EQUALS]])
    return build_graph(starts, marks, (4, 2, 5, 5), np.array(digits), step, lambda states: states[:, 0] == 3)
