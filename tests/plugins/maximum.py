"""A task of a user's own: the larger of two numbers, `$35>17=35$`."""

import re
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from longhand.data import register_task
from longhand.data.digits import numbers_below
from longhand.data.formatting import lay_out
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.reader import AS_WRITTEN, ONES_FIRST
from longhand.modeling.vocabulary import BOS, EQUALS, GREATER


@register_task
@dataclass(frozen=True)
class Maximum(DecoderTask):
    """The larger of two numbers that have the same number of digits.

    Attributes:
        reverse: write the answer with the ones digit first.
    """

    name: ClassVar[str] = "maximum"
    operands: ClassVar[int] = 2
    example_question: ClassVar[str] = "35>17"
    coupling = "sequential"

    reverse: bool = False

    def sample_lengths(self, generator, count, min_length, max_length):
        return np.repeat(generator.integers(min_length, max_length + 1, size=(count, 1)), 2, axis=1)

    def group(self, lengths):
        return lengths[:, 0]

    def group_lengths(self, generator, lengths, count, min_length):
        return np.tile(lengths, (count, 1))

    def format(self, digits, lengths):
        first, second = digits[:, 0, ::-1], digits[:, 1, ::-1]
        larger = np.where(numbers_below(digits[:, 0], digits[:, 1])[:, None], second, first)
        larger = larger[:, ::-1] if self.reverse else larger
        return lay_out([BOS, first, GREATER, second, EQUALS, larger, self.end_token], query_parts=5)

    def prompt(self, question):
        if not re.fullmatch("[0-9]+>[0-9]+", question):
            raise ValueError(f"a question looks like {self.example_question!r}, got {question!r}")
        return f"{question}="

    @property
    def reader(self):
        return ONES_FIRST if self.reverse else AS_WRITTEN
