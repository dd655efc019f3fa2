"""What a task is, and the registry of tasks.

A task knows what each token means: how problems are drawn and solved, and how they are written. A task's fields are its
format. `Task.family` is the family of models that learns it; `decoder_task.py` and `encoder_task.py` are the bases of each.
"""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Literal, get_args, get_origin

import numpy as np

from longhand.data.digits import uniform_digits
from longhand.data.families.family import Family
from longhand.data.formatting import Examples, LabelledTokens
from longhand.data.splits import PARTITIONED_DIGITS, SPLITS, split_of


@dataclass(frozen=True)
class Task(ABC):
    """Base of all tasks.

    `lengths` are everywhere (count, operands) arrays of digits; where problems have different numbers of operands, 0 is the
    length of those that a problem does not have, which come last.

    Attributes:
        operands: numbers in a problem, where all problems have equally many.
        size_names: what the two numbers are under which results are filed, see `size`.
        sized_problems: what `min_length` and `max_length` bound, and what of it is counted, see `describe_lengths`.
        every_problem: what a certificate is about, after "for".
        partitioned_digits: problems of at most so many digits in all belong to one split, by a hash; of longer ones there
            must be so many that two splits practically never share one. None where all problems do.
        most_digits: longest operands of a dataset; the tokens of one such problem, and what is made on the way, fit into the
            memory of an ordinary computer.
        family: the family of models that learns the task.
    """

    family: ClassVar[Family]
    name: ClassVar[str]
    operands: ClassVar[int]
    example_question: ClassVar[str]
    size_names: ClassVar[tuple[str, str]] = ("digits of the first operand", "digits of the second operand")
    sized_problems: ClassVar[tuple[str, str]] = ("operands of", "digit")
    every_problem: ClassVar[str] = "operands of every length"
    partitioned_digits: ClassVar[int | None] = PARTITIONED_DIGITS
    most_digits: ClassVar[int] = 1_000_000

    def __post_init__(self):
        for option in fields(self):
            value = getattr(self, option.name)
            if option.type is bool and not isinstance(value, bool):
                raise ValueError(f"{option.name} must be True or False, got {value!r}")
            if get_origin(option.type) is Literal and value not in (legal := get_args(option.type)):
                raise ValueError(f"{option.name} {value!r} is unknown: choose one of {', '.join(legal)}")

    @property
    def answers_questions(self) -> bool:
        """Whether a model can answer a question that is all it is given."""
        return True

    @property
    def for_evaluation(self) -> "Task":
        """The task whose problems are validated and tested, where training draws others."""
        return self

    @property
    def widest(self) -> "Task":
        """The task whose problems are as long as training draws them at most, where its format varies."""
        return self

    def operand_lengths(self, length: int, other: int | None = None) -> tuple[int, ...]:
        """Digits of every operand of the problems that tables and plots file under one length, or under two (grids).

        Raises:
            ValueError: there are no such problems.
        """
        if other is None:
            return (length,) * self.operands
        if self.operands != 2:
            raise ValueError(f"problems of the task {self.name!r} have one size, {self.size_names[0]}, not two")
        if other < 1:
            raise ValueError(f"{self.size_names[1]} must be at least 1, got {other}")
        return (length, other)

    def size(self, lengths: tuple[int, ...]) -> tuple[int, int]:
        """The two numbers under which results of these operand lengths are filed; what they are say `size_names`."""
        return lengths[0], lengths[-1]

    def describe_lengths(self, shortest: int, longest: int) -> str:
        """Problems of these lengths in words, such as "operands of 1 to 30 digits"."""
        what, unit = self.sized_problems
        lengths = f"{shortest:,} to {longest:,}" if shortest < longest else f"{longest:,}"
        return f"{what} {lengths} {unit}{'' if longest == 1 else 's'}"

    def answer_length(self, lengths: tuple[int, ...]) -> int | None:
        """Tokens at the end of a response that are the answer itself and the end token, for a task with a scratchpad."""
        return None

    @abstractmethod
    def sample_lengths(self, generator: np.random.Generator, count: int, min_length: int, max_length: int) -> np.ndarray:
        """Operand lengths (count, operands), drawn as the paper does for training."""

    @abstractmethod
    def group_lengths(self, generator: np.random.Generator, lengths: np.ndarray, count: int, min_length: int) -> np.ndarray:
        """Operand lengths (count, operands) drawn from those that share a batch with `lengths` (operands,)."""

    @abstractmethod
    def group(self, lengths: np.ndarray) -> np.ndarray:
        """(count,) integer; examples of one group fit into one batch with little or no padding."""

    @abstractmethod
    def prompt(self, question: str) -> str:
        """The text that a model is given for a question such as `example_question`.

        Raises:
            ValueError: the question is not of the task's form.
        """

    @abstractmethod
    def read_answer(self, response: str) -> str:
        """The answer as a person writes it, from the response's text without the end token."""

    def show_answer(self, question: str, answer: str) -> str:
        """Return the answer as a terminal shows it."""
        return answer

    def draw_operands(self, generator: np.random.Generator, lengths: np.ndarray) -> np.ndarray:
        """Operands (count, operands, width) of the given lengths, uniform among the numbers of so many digits."""
        return uniform_digits(generator, lengths)

    def split_of(self, digits: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """The split of each problem, see `sampling.split_of`."""
        return split_of(digits, lengths, self.partitioned_digits)

    def draw(self, generator: np.random.Generator, lengths: np.ndarray, split: str) -> np.ndarray:
        """Operands (count, operands, width) of the given lengths that belong to a split.

        Raises:
            ValueError: the split is unknown, or holds no problem of these lengths.
        """
        if split not in SPLITS:
            raise ValueError(f"split {split!r} is unknown: choose one of {', '.join(SPLITS)}")
        digits = self.draw_operands(generator, lengths)
        assigned = self.split_of(digits, lengths)
        for _ in range(1000):
            rejected = np.flatnonzero((assigned >= 0) & (assigned != SPLITS.index(split)))
            if len(rejected) == 0:
                return digits
            redrawn = self.draw_operands(generator, lengths[rejected])
            digits[rejected, :, : redrawn.shape[2]] = redrawn
            assigned[rejected] = self.split_of(digits[rejected], lengths[rejected])
        size = " and ".join(map(str, lengths[rejected[0]].tolist()))
        raise ValueError(
            f"the {split} split holds no problem of the task {self.name!r} of the sizes {size}: take longer ones"
        )

    @abstractmethod
    def examples(self, generator: np.random.Generator, lengths: np.ndarray, split: str) -> Examples | LabelledTokens:
        """Draws, solves and writes problems of the given lengths. Cost is linear in the number of tokens."""

    def augment(self, generator: np.random.Generator, examples: Examples | LabelledTokens) -> Examples | LabelledTokens:
        """What training does to examples anew every time that it sees them; evaluation leaves them as they are."""
        return examples

    def describe(self) -> dict[str, Any]:
        """Name and format, for recipes and results."""
        return {"task": self.name, **asdict(self)}


TASKS: dict[str, type[Task]] = {}


def register_task(task: type[Task]) -> type[Task]:
    """Class decorator: makes the task known by its name."""
    TASKS[task.name] = task
    return task
