"""Multiplication by a number of fixed length: `$653*49=79913$` (paper 1, Sec. 6.1)."""

import re
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from longhand.data.formatting import lay_out, pad_beyond
from longhand.data.sampling import add_digits
from longhand.data.task import Task, register_task
from longhand.modeling.vocabulary import BOS, EQUALS, TIMES


def multiply_digits(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Products of numbers given as (count, width) digits, ones first; (count, both widths together) uint8.

    Cost grows with the product of the widths. Column sums are halved in length a few times by moving their tens one
    column up, until each is a sum of two digits, whose carries `add_digits` resolves at once.
    """
    width, shorter = first.shape[1], min(first.shape[1], second.shape[1])
    # A column holds up to `shorter` products of digits, and tens moved into it.
    columns = np.zeros((len(first), width + second.shape[1]), dtype=np.min_scalar_type(90 * shorter))
    for place in range(second.shape[1]):
        columns[:, place : place + width] += first * second[:, place : place + 1]
    while columns.max(initial=0) > 18:
        tens = columns // 10
        columns -= 10 * tens
        columns[:, 1:] += tens[:, :-1]
    columns = columns.astype(np.uint8)
    nines = np.minimum(columns, 9)
    return add_digits(nines, columns - nines)[:, :-1]


@register_task
@dataclass(frozen=True)
class Multiplication(Task):
    """Products of a number of any length and one of `multiplier_length` digits.

    Both operands are written with the most significant digit first and without padding; the product is written with the
    ones digit first, padded to as many digits as both operands have together. The first operand's length is uniform, then
    each operand is uniform among the numbers of its length. A group holds the problems whose first operand has one length.
    """

    name: ClassVar[str] = "multiplication"
    operands: ClassVar[int] = 2
    example_question: ClassVar[str] = "653*49"

    multiplier_length: int = field(default=2, metadata={"help": "digits of the second operand"})

    def __post_init__(self):
        length = self.multiplier_length
        if isinstance(length, bool) or not isinstance(length, int) or length < 1:
            raise ValueError(f"multiplier_length must be an integer of at least 1, got {length!r}")
        if not isinstance(self.separate_eos, bool):
            raise ValueError(f"separate_eos must be True or False, got {self.separate_eos!r}")

    @property
    def coupling(self) -> str:
        return "multiplication"

    @property
    def couplings(self) -> tuple[str, ...]:
        return ("multiplication", "multiplication_by_digits")

    def operand_lengths(self, length, other=None):
        if other not in (None, self.multiplier_length):
            raise ValueError(f"the second operand has multiplier_length = {self.multiplier_length} digits, not {other}")
        return (length, self.multiplier_length)

    def sample_lengths(self, generator, count, min_length, max_length):
        first = generator.integers(min_length, max_length + 1, size=count)
        return np.stack([first, np.full(count, self.multiplier_length)], axis=1)

    def group(self, lengths):
        return lengths[:, 0]

    def group_lengths(self, generator, lengths, count, min_length):
        return np.tile(lengths, (count, 1))

    def format(self, digits, lengths):
        first, second = (digits[:, place, : lengths[:, place].max()] for place in range(2))
        product = multiply_digits(first, second)
        first, second = pad_beyond(first, lengths[:, 0]), pad_beyond(second, lengths[:, 1])
        product = pad_beyond(product, lengths.sum(axis=1))
        return lay_out([BOS, first[:, ::-1], TIMES, second[:, ::-1], EQUALS, product, self.end_token], query_parts=5)

    def prompt(self, question):
        """A shorter second operand is zero-padded to `multiplier_length`."""
        match = re.fullmatch(r"\s*([0-9]+)\s*\*\s*([0-9]+)\s*=?\s*", question, flags=re.ASCII)
        if match is None:
            raise ValueError(f"the question {question!r} is not a multiplication such as {self.example_question!r}")
        first, second = match.groups()
        if len(second) > self.multiplier_length:
            raise ValueError(
                f"the second number of the question {question!r} must have at most multiplier_length = "
                f"{self.multiplier_length} digits, got {len(second)}"
            )
        return f"{first}*{second.zfill(self.multiplier_length)}="

    def read_answer(self, response):
        return response[::-1].lstrip("0") or response[:1]
