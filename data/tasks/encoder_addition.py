"""Addition in the encoder's format (paper 2, Eq. 3.1)."""

# Used by: composite.py. Changed freely.

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from longhand.data.digits import add_digits
from longhand.data.machines.columns import by_column
from longhand.data.tasks.complexity import cascade_lengths, draw_carry_runs, draw_cascades
from longhand.data.tasks.encoder_task import SHIFTED, FieldTask, write_field
from longhand.data.tasks.registry import register_task
from longhand.modeling.inputs import PromptFormat
from longhand.modeling.vocabulary import FIELD_PAD, PLUS

AdditionSampling = Literal[
    "uniform", "shifted", "uniform_complexity", "mixed", "no_carries", "cascades", "carry_runs", "nines"
]


@register_task
@dataclass(frozen=True)
class EncoderAddition(FieldTask):
    """Sums of two numbers, each padded on the left to its field (paper 2, Eq. 3.1).

    The sum's digits are read at the second number, its overflow at the operator:

        input    _ 1 2 3 + 4 0 9 5
        label    . . . . _ 4 2 1 8

    Kinds of sampling for training:

    - `"uniform"`: uniform below 10^length.
    - `"shifted"`: uniform, with a random number of zeros appended to both numbers, as far as the field has room
      (augmentation, Sec. 3.1). Training draws the zeros anew each time it sees a problem.
    - `"uniform_complexity"`: uniform over the lengths of the longest cascade, then over the sums with it (Sec. 4).
    - `"mixed"`: half `"uniform"`, half `"uniform_complexity"`.
    - `"no_carries"`: uniform over the sums without a carry (App. C.2).

    Kinds of sampling for tests:

    - `"cascades"`: sums whose longest cascade has the length that is given as the class (Fig. 8).
    - `"carry_runs"`: sums whose longest run of columns that carry on their own has that length (Fig. 8).
    - `"nines"`: sums whose every column is 9. No digit carries, but only the last column tells whether the first one does.
    """

    name: ClassVar[str] = "encoder_addition"
    operator: ClassVar[int] = PLUS
    class_samplings: ClassVar[tuple[str, ...]] = ("cascades", "carry_runs")
    settling_map: ClassVar[str] = "coupled"
    settling_window = (0, 1)
    settling_ids = (by_column(1), by_column(1))
    example_question: ClassVar[str] = "653+49"
    size_names: ClassVar[tuple[str, str]] = ("digits", "length of the cascade or run of carries")

    sampling: AdditionSampling = field(default="uniform", metadata={"help": "which sums are drawn, see EncoderAddition"})

    @property
    def prompt_format(self):
        number, text = self.number_pattern(), self.text_pattern
        return PromptFormat(rf"{text}{number}{text}\+{number}{text}", self.prompt("6+4"), equal_widths=True)

    @property
    def for_evaluation(self):
        task = super().for_evaluation
        return task if self.sampling in (*self.class_samplings, "no_carries", "nines") else replace(task, sampling="uniform")

    def draw_operands(self, generator, lengths):
        count, bound = len(lengths), int(lengths[:, 0].max())
        if self.sampling == "no_carries":
            return _without_carries(generator, count, bound)
        if self.sampling in self.class_samplings:
            draw = draw_cascades if self.sampling == "cascades" else draw_carry_runs
            return np.stack(draw(generator, lengths[:, 1], bound), axis=1)
        digits = generator.integers(0, 10, size=(count, 2, bound), dtype=np.uint8)
        if self.sampling == "nines":
            digits[:, 1] = 9 - digits[:, 0]
        if self.sampling == SHIFTED:
            return self.shift(generator, digits, self._field(bound))
        by_class = np.full(count, self.sampling == "uniform_complexity")
        if self.sampling == "mixed":
            by_class = generator.integers(2, size=count) == 1
        if by_class.any():
            classes = generator.integers(0, bound + 1, size=int(by_class.sum()))
            digits[by_class] = np.stack(draw_cascades(generator, classes, bound), axis=1)
        return digits

    def extra_columns(self, digits):
        return {"longest_cascade": pa.array(cascade_lengths(digits[:, 0], digits[:, 1]).astype(np.int32))}

    def needed_field(self, length):
        return length

    def answer_width(self, field_width):
        return field_width + 1

    def first_field(self, digits, field_width):
        return write_field(digits, field_width, FIELD_PAD)

    def solve(self, digits):
        return add_digits(digits[:, 0], digits[:, 1])


def _without_carries(generator: np.random.Generator, count: int, width: int) -> np.ndarray:
    """Pairs (count, 2, width) of digits, uniform among the 55 that sum to 9 at most."""
    first, second = np.nonzero(np.add.outer(np.arange(10), np.arange(10)) <= 9)
    pairs = np.stack([first, second], axis=1).astype(np.uint8)
    return pairs[generator.integers(len(pairs), size=(count, width))].transpose(0, 2, 1)
