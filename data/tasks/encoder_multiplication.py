"""Multiplication in the encoder's format (paper 2, Eq. 3.2)."""

# Used by: composite.py. Changed freely.

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from longhand.data.digits import multiply_digits, number_lengths
from longhand.data.machines.columns import by_column, one_token
from longhand.data.tasks.complexity import dependency_lengths, draw_dependencies
from longhand.data.tasks.encoder_task import SHIFTED, FieldTask, write_field
from longhand.data.tasks.registry import register_task
from longhand.modeling.inputs import PromptFormat
from longhand.modeling.relations import NEITHER, ONLY_KEY, ONLY_QUERY
from longhand.modeling.vocabulary import FIELD_PAD, TIMES


@register_task
@dataclass(frozen=True)
class EncoderMultiplication(FieldTask):
    """Products of a multiplier of fixed length, not padded, and a number padded on the left to its field (paper 2, Eq. 3.2).

    The product's digits are read at the number; with `spill`, also at the operator and at all but the first digit of the
    multiplier:

        input    5 6 * _ _ 4 2 9 7        input    5 6 * 4 2 9 7
        label    . . . 2 4 0 6 3 2        label    . 2 4 0 6 3 2

    The number is uniform below 10^length. The multiplier is uniform among the numbers of its length, 1 to 9 for one digit.
    Kinds of sampling for training:

    - `"uniform"`: as above.
    - `"shifted"`: appends a random number of zeros to the number, as far as the field has room (Sec. 3.2, M3).
    - `"sparse"`: draws a probability for every problem, uniform in 0..1. Every digit but the multiplier's first becomes a
      zero with this probability, so that products of few digits are learned first.
    - `"uniform_complexity"`: uniform over the dependency lengths, then over the products with it (Sec. 4, App. C.4), for
      multipliers of one digit.
    - `"mixed"`: half `"uniform"`, half `"uniform_complexity"`.

    For tests, `"dependencies"` has products whose dependency length is given as the class.
    """

    name: ClassVar[str] = "encoder_multiplication"
    operator: ClassVar[int] = TIMES
    every_problem: ClassVar[str] = "a first number of multiplier_length digits and a second number of every length"
    settling_map: ClassVar[str] = "uniform"
    settling_window = (-1, 0)
    # The multiplier's relations come after those of `settling_window`.
    settling_relations = ((-1, NEITHER), (0, NEITHER), (ONLY_QUERY, ONLY_KEY))
    settling_ids = (one_token(0, 1), by_column(-1, 0))
    class_samplings: ClassVar[tuple[str, ...]] = ("dependencies",)
    size_names: ClassVar[tuple[str, str]] = ("digits of the second number", "dependency length")
    sized_problems: ClassVar[tuple[str, str]] = ("second numbers of", "digit")
    in_field: ClassVar[slice] = slice(1, None)

    multiplier_length: int = field(
        default=1, metadata={"help": "digits of the first number", "range": (1, FieldTask.most_digits)}
    )
    spill: bool = field(default=False, metadata={"help": "read the product's top digits at the operator and the multiplier"})
    sampling: Literal["uniform", "shifted", "sparse", "uniform_complexity", "mixed", "dependencies"] = field(
        default="uniform", metadata={"help": "which products are drawn, see EncoderMultiplication"}
    )

    def __post_init__(self):
        super().__post_init__()
        if self.sampling in ("uniform_complexity", "mixed", "dependencies") and self.multiplier_length > 1:
            raise ValueError(
                f"sampling {self.sampling!r} draws products by their dependency length, which is known for a "
                f"multiplier_length of 1, not {self.multiplier_length}"
            )

    @classmethod
    def equal_size_name(cls):
        return cls.size_names[0]

    @property
    def example_question(self) -> str:
        return f"{'7351'[: self.multiplier_length].ljust(self.multiplier_length, '3')}*653"

    @property
    def prompt_format(self):
        # Not spilled, the product has as many more tokens than the number as the multiplier has digits.
        spare = 0 if self.spill else self.multiplier_length
        multiplier = "[0-9]" if self.multiplier_length == 1 else f"[1-9][0-9]{{{self.multiplier_length - 1}}}"
        text, example = self.text_pattern, self.prompt(f"{self.example_question.partition('*')[0]}*6")
        return PromptFormat(rf"{text}{multiplier}{text}\*{self.number_pattern(spare)}{text}", example)

    @property
    def for_evaluation(self):
        task = super().for_evaluation
        return task if self.sampling in self.class_samplings else replace(task, sampling="uniform")

    def _parse(self, question):
        digits = super()._parse(question)
        if (length := int(number_lengths(digits[:, 0])[0])) != self.multiplier_length:
            raise ValueError(
                f"the first number of the question {question!r} must have multiplier_length = {self.multiplier_length} "
                f"digits, got {length}"
            )
        return digits

    def draw_operands(self, generator, lengths):
        count, bound, length = len(lengths), int(lengths[:, 0].max()), self.multiplier_length
        digits = np.zeros((count, 2, max(bound, length)), dtype=np.uint8)
        if self.sampling in self.class_samplings:
            digits[:, 0, :1], digits[:, 1] = draw_dependencies(generator, lengths[:, 1], bound)
            return digits
        digits[:, 1, :bound] = generator.integers(0, 10, size=(count, bound), dtype=np.uint8)
        digits[:, 0, :length] = generator.integers(0, 10, size=(count, length), dtype=np.uint8)
        if self.sampling == "sparse":
            digits[generator.random(digits.shape) < generator.random((count, 1, 1))] = 0
        digits[:, 0, length - 1] = generator.integers(1, 10, size=count, dtype=np.uint8)
        by_class = np.full(count, self.sampling == "uniform_complexity")
        if self.sampling == "mixed":
            by_class = generator.integers(2, size=count) == 1
        if by_class.any():
            classes = generator.integers(0, bound + 1, size=int(by_class.sum()))
            digits[by_class, 0, :1], digits[by_class, 1] = draw_dependencies(generator, classes, bound)
        return self.shift(generator, digits, self._field(self.needed_field(bound))) if self.sampling == SHIFTED else digits

    def extra_columns(self, digits):
        multiplier = digits[:, 0, : self.multiplier_length]
        return {"dependency_length": pa.array(dependency_lengths(multiplier, digits[:, 1]).astype(np.int32))}

    def needed_field(self, length):
        return length if self.spill else length + self.multiplier_length

    def answer_width(self, field_width):
        return field_width + self.multiplier_length if self.spill else field_width

    def first_field(self, digits, field_width):
        return write_field(digits, self.multiplier_length, FIELD_PAD)

    def solve(self, digits):
        return multiply_digits(digits[:, 1], digits[:, 0, : self.multiplier_length])
