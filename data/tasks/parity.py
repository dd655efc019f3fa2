"""The parity of a string of bits: `$1011=1101$` (paper 1, App. C)."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from longhand.data.tasks.reader import AnswerReader
from longhand.data.tasks.registry import register_task
from longhand.data.tasks.strings import StringTask


@register_task
@dataclass(frozen=True)
class Parity(StringTask):
    """Whether a string of bits has an odd number of ones.

    With a scratchpad, the response is the parity of the string's first bit, of its first two bits, and so on; the last
    parity is the answer. Without a scratchpad, the response is the answer alone, which no windowed model can know.
    """

    name: ClassVar[str] = "parity"
    coupling: ClassVar[str] = "copy"
    example_question: ClassVar[str] = "1011"
    symbols: ClassVar[int] = 2
    partitioned_digits: ClassVar[int] = 60
    reader: ClassVar[AnswerReader] = AnswerReader(last=1)

    scratchpad: bool = field(
        default=True, metadata={"help": "respond with the running parities, not with the last one alone"}
    )

    def answer_length(self, lengths):
        return 2 if self.scratchpad else None

    def respond(self, strings):
        parities = np.bitwise_xor.accumulate(strings, axis=1)
        return parities if self.scratchpad else parities[:, -1:]

    def step(self, state, symbols):
        return state ^ symbols

    def covering(self, window, layers):
        if not self.scratchpad:
            raise ValueError("without a scratchpad the parity depends on the whole string, which no window can hold")
        return super().covering(window, layers)
