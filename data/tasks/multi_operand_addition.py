"""Addition of several numbers: `$0653+0049+0871=3751$` (paper 1, App. B)."""

from dataclasses import dataclass, field
from functools import lru_cache, reduce
from itertools import combinations_with_replacement
from typing import ClassVar

import numpy as np

from longhand.data.digits import add_digits, extend_digits
from longhand.data.formatting import check_longest, lay_out
from longhand.data.tasks.covering import Sight, search_covering
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.lengths import LongestOperandLengths
from longhand.data.tasks.reader import ONES_FIRST
from longhand.data.tasks.registry import register_task
from longhand.data.tasks.search import ABSENT, Graph, build_graph
from longhand.modeling.inputs import PromptFormat
from longhand.modeling.vocabulary import BOS, EQUALS, PLUS


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
    operands: int = field(default=3, metadata={"help": "how many numbers are added, 2 to 10", "range": (2, 10)})  # type: ignore[misc]

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
        """Every neighbourhood, by search. A token sees the digits of a column in any order, so one order is enough."""
        if tuple(window) != (0, 1) or layers != 1:
            raise ValueError(
                f"the neighbourhoods of {self.name} are searched for relation_range [0, 1] and one layer, "
                f"not for {list(window)} and {layers}"
            )
        every = range(self.operands)
        sees = [(column, word) for column in (0, 1) for word in every] + [(0, self.operands)]
        return search_covering([Sight(_runs(self), self.operands, sees, [column for column, _ in sees], every)], self)

    def vary(self, generator, digits, max_length):
        """Shuffle the digits of every column; half of the time, also extend the problems by random columns above."""
        return extend_digits(generator, generator.permuted(digits, axis=1), max_length)


@lru_cache(maxsize=4)
def _runs(task: MultiOperandAddition) -> Graph:
    """All sums. Words: the operands and the sum. A state is a phase and the carry; above the top column stands one of zeros.

    The phases are the start, among the columns, after the zeros, and the end.
    """

    def step(states, symbols):
        phase, carry = states.T
        after = symbols[:, 0] == ABSENT
        ends = after & (phase == 2)
        digits = np.where(after[:, None] & ~ends[:, None], 0, symbols)
        total = np.where(after, 0, symbols.sum(axis=1)) + carry
        legal = np.where(after, (phase == 1) | (phase == 2), phase <= 1)
        written = np.where(ends, task.end_token, total % 10)
        return np.column_stack([digits, written]), np.column_stack([np.where(after, phase + 1, 1), total // 10]), legal

    digits = np.array(list(combinations_with_replacement(range(10), task.operands)))
    marks = np.array([[*[PLUS] * (task.operands - 1), ABSENT, EQUALS]])
    return build_graph(np.zeros((1, 2), int), marks, (4, 10), digits, step, lambda states: states[:, 0] == 3)
