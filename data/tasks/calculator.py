"""Sums of any number of numbers, differences in any order, and products, by one model."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from longhand.data.families.decoder import DECODER
from longhand.data.splits import problem_keys
from longhand.data.tasks.addition_scratchpad import AdditionScratchpad
from longhand.data.tasks.composite import CompositeTask
from longhand.data.tasks.multiplication_scratchpad import MultiplicationScratchpad
from longhand.data.tasks.registry import register_task
from longhand.data.tasks.subtraction import SignedSubtraction


class LargeSums(AdditionScratchpad):
    """Sums of as many numbers as training has, of one length, whose digits are large in part of the problems.

    A running sum has a large top digit only if it adds many large numbers. Among uniform numbers these are too rare to learn
    what comes next. Here every digit is 9 less a share of a uniform digit, and the share is uniform for each problem. Small
    shares give the same problem again and again, at every length, so problems of every length belong to one split.
    """

    def sample_lengths(self, generator, count, min_length, max_length):
        return np.tile(generator.integers(min_length, max_length + 1, size=(count, 1)), self.max_operands)

    def draw_operands(self, generator, lengths):
        share = generator.random((len(lengths), 1, 1))
        return 9 - (super().draw_operands(generator, lengths) * share).astype(np.uint8)

    def problem_keys(self, digits, lengths):
        keys = super().problem_keys(digits, lengths)
        return np.where(keys > 0, keys, problem_keys(digits, lengths, None))


@register_task
@dataclass(frozen=True)
class Calculator(CompositeTask):
    """The three operations that are local: each is written with the work that a person would write on paper."""

    family = DECODER
    name: ClassVar[str] = "calculator"
    coupling: ClassVar[str] = "calculator"
    members = (AdditionScratchpad, SignedSubtraction, MultiplicationScratchpad)
    trained = {AdditionScratchpad: 2, LargeSums: 1, SignedSubtraction: 2, MultiplicationScratchpad: 5}  # noqa: RUF012

    separate_eos: bool = field(default=False, metadata={"help": "end sequences with a token of their own, not `$`"})
    max_operands: int = field(default=10, metadata={"help": "most operands of a drawn sum, 2 to 10,000"})
