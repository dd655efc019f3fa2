"""Addition of several numbers: `$0653+0049+0871=3751$` (paper 1, App. B)."""

import re
from dataclasses import dataclass, field
from functools import reduce
from typing import ClassVar

import numpy as np

from longhand.data.formatting import lay_out
from longhand.data.sampling import add_digits
from longhand.data.task import Task, register_task
from longhand.modeling.vocabulary import BOS, EQUALS, PLUS


@register_task
@dataclass(frozen=True)
class MultiOperandAddition(Task):
    """Sums of `operands` numbers of decimal digits.

    Lengths are balanced: each operand's is uniform, then the operand is uniform among the numbers of that length. Where the
    longest operand has L digits, all are zero-padded to the L + 1 digits that no sum of up to ten exceeds, and the sum,
    written with the ones digit first, is too. A group holds the problems of one L; they have the same layout.
    """

    name: ClassVar[str] = "multi_operand_addition"

    operands: int = field(default=3, metadata={"help": "how many numbers are added, 2 to 10"})

    def __post_init__(self):
        if isinstance(self.operands, bool) or not isinstance(self.operands, int) or not 2 <= self.operands <= 10:
            raise ValueError(f"operands must be an integer from 2 to 10, got {self.operands!r}")
        if not isinstance(self.separate_eos, bool):
            raise ValueError(f"separate_eos must be True or False, got {self.separate_eos!r}")

    @property
    def coupling(self) -> str:
        return "multi_operand_addition"

    @property
    def example_question(self) -> str:
        return "+".join(["653", "49", "871", "8", "20", "999", "5", "46", "7", "10"][: self.operands])

    def sample_lengths(self, generator, count, min_length, max_length):
        return generator.integers(min_length, max_length + 1, size=(count, self.operands))

    def group(self, lengths):
        return lengths.max(axis=1)

    def group_lengths(self, generator, lengths, count, min_length):
        # Uniform over the tuples with this maximum. Those where operand j is the first to reach it number
        # shorter^j (shorter + 1)^(operands - 1 - j): operands before j are shorter, those after it need not be.
        longest = int(lengths.max())
        shorter = longest - min_length
        place = np.arange(self.operands)
        share = (shorter / (shorter + 1)) ** place
        first = generator.choice(self.operands, size=(count, 1), p=share / share.sum())
        below = generator.integers(min_length, max(longest, min_length + 1), size=(count, self.operands))
        any_length = generator.integers(min_length, longest + 1, size=(count, self.operands))
        return np.where(place < first, below, np.where(place == first, longest, any_length))

    def format(self, digits, lengths):
        longest = digits.shape[2]
        if (short := int(lengths.max(axis=1).min())) < longest:
            raise ValueError(f"problems of one batch must have one longest operand, got {short} and {longest} digits")
        padded = np.zeros((len(digits), self.operands, longest + 1), dtype=np.uint8)
        padded[:, :, :longest] = digits
        operands = [padded[:, place] for place in range(self.operands)]
        total = reduce(lambda first, second: add_digits(first, second)[:, : longest + 1], operands)
        query = [part for operand in operands for part in (operand[:, ::-1], PLUS)]
        query[-1] = EQUALS
        return lay_out([BOS, *query, total, self.end_token], query_parts=len(query) + 1)

    def prompt(self, question):
        form = r"\s*[0-9]+\s*(\+\s*[0-9]+\s*)+=?\s*"
        numbers = re.findall("[0-9]+", question) if re.fullmatch(form, question, flags=re.ASCII) else []
        if len(numbers) != self.operands:
            raise ValueError(
                f"the question {question!r} is not an addition of {self.operands} numbers such as {self.example_question!r}"
            )
        width = max(map(len, numbers)) + 1
        return "+".join(number.zfill(width) for number in numbers) + "="

    def read_answer(self, response):
        return response[::-1].lstrip("0") or response[:1]
