"""A task of a user's own: the larger of two numbers, `$35>17=35$`."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from longhand.data.digits import numbers_below
from longhand.data.formatting import check_longest, lay_out
from longhand.data.lengths import LongestOperandLengths
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.reader import AnswerReader
from longhand.data.tasks.registry import register_task
from longhand.modeling.vocabulary import BOS, EQUALS, GREATER


@register_task
@dataclass(frozen=True)
class Maximum(LongestOperandLengths, DecoderTask):
    """The larger of two numbers, all three zero-padded to the length of the longer one."""

    name: ClassVar[str] = "maximum"
    sign: ClassVar[str] = ">"
    operands: ClassVar[int] = 2
    example_question: ClassVar[str] = "35>17"
    coupling: ClassVar[str] = "sequential"

    reverse: bool = field(default=False, metadata={"help": "write the answer with the ones digit first"})

    @property
    def reader(self):
        return AnswerReader(ones_first=self.reverse, leading_zeros=False)

    def format(self, digits, lengths):
        check_longest(digits, lengths)
        first, second = digits[:, 0], digits[:, 1]
        larger = np.where(numbers_below(first, second)[:, None], second, first)
        answer = larger if self.reverse else larger[:, ::-1]
        return lay_out([BOS, first[:, ::-1], GREATER, second[:, ::-1], EQUALS, answer, self.end_token], query_parts=5)
