"""What a task is, and the registry of tasks.

A task knows what each token means: how problems are drawn and solved, how they are written, and which coupling rule reads
what was written. A task's fields are its format.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np

from longhand.data.formatting import Examples
from longhand.data.sampling import PARTITIONED_DIGITS, SPLITS, split_of, uniform_digits
from longhand.modeling.pair_maps import Window
from longhand.modeling.vocabulary import BOS, SEPARATE_EOS, TOKENS


@dataclass(frozen=True)
class CoveringProblems:
    """Short problems in which every neighbourhood occurs that a response token can have in a problem of any size.

    Attributes:
        count: number of problems.
        batches: their operands, (count, operands, width) digits with the ones first, and lengths (count, operands).
        argument: why nothing else can occur, for the certificate.
    """

    count: int
    batches: Iterable[tuple[np.ndarray, np.ndarray]]
    argument: str


@dataclass(frozen=True)
class CoveringNeighbourhoods:
    """Every neighbourhood that a response token can have in a problem of any size, and the token that is right next.

    Every token also sees the `$` at the beginning; the keys see nothing else. A token's own column is not among its keys.

    Attributes:
        count: number of neighbourhoods.
        batches: (tokens, keys, relations, right): the token itself (count,); its keys (count, slots), `PAD` where there is
            none; the relation of each slot (slots,), a place in the coupling rule's list; the right next token (count,).
        argument: why nothing else can occur, for the certificate.
    """

    count: int
    batches: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]
    argument: str


@dataclass(frozen=True)
class Task(ABC):
    """Base of all tasks.

    `lengths` are everywhere (count, operands) arrays of digits; where problems have different numbers of operands, 0 is the
    length of those that a problem does not have, which come last.

    Attributes:
        operands: numbers in a problem, where all problems have equally many.
        size_names: what the two numbers are under which results are filed, see `size`.
        every_problem: what a certificate is about, after "for".
        partitioned_digits: problems of at most so many digits in all belong to one split, by a hash; of longer ones there
            must be so many that two splits practically never share one.
        vocab_size: tokens of a model's vocabulary, the first ones of `vocabulary.ALL_TOKENS`.
    """

    name: ClassVar[str]
    operands: ClassVar[int]
    example_question: ClassVar[str]
    size_names: ClassVar[tuple[str, str]] = ("digits of the first operand", "digits of the second operand")
    every_problem: ClassVar[str] = "operands of every length"
    partitioned_digits: ClassVar[int] = PARTITIONED_DIGITS
    vocab_size: ClassVar[int] = len(TOKENS)

    separate_eos: bool = field(default=False, metadata={"help": "end sequences with a token of their own, not `$`"})

    @property
    @abstractmethod
    def coupling(self) -> str:
        """Name of the coupling rule for this format."""

    @property
    def couplings(self) -> tuple[str, ...]:
        """Names of all coupling rules that read this format, `coupling` first; those of `ANY_TASK` read every format."""
        return (self.coupling,)

    def operand_lengths(self, length: int, other: int | None = None) -> tuple[int, ...]:
        """Digits of every operand of the problems that tables and plots file under one length, or under two (grids).

        Raises:
            ValueError: there are no such problems.
        """
        if other is None:
            return (length,) * self.operands
        if self.operands != 2:
            raise ValueError(f"problems of the task {self.name!r} have one size, {self.size_names[0]}, not two")
        return (length, other)

    def size(self, lengths: tuple[int, ...]) -> tuple[int, int]:
        """The two numbers under which results of these operand lengths are filed; what they are say `size_names`."""
        return lengths[0], lengths[-1]

    def answer_length(self, lengths: tuple[int, ...]) -> int | None:
        """Tokens at the end of a response that are the answer itself and the end token, for a task with a scratchpad."""
        return None

    @property
    def writes_whole_response(self) -> bool:
        """Whether a model learns every token of its response; else it must be given some and cannot decode on its own."""
        return True

    @property
    def end_token(self) -> int:
        return SEPARATE_EOS if self.separate_eos else BOS

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
    def format(self, digits: np.ndarray, lengths: np.ndarray) -> Examples:
        """Writes problems, (count, operands, width) digits with the ones first, and their answers as tokens."""

    @abstractmethod
    def prompt(self, question: str) -> str:
        """The text that a model is given for a question such as `example_question`.

        Raises:
            ValueError: the question is not of the task's form.
        """

    @abstractmethod
    def read_answer(self, response: str) -> str:
        """The answer as a person writes it, from the response's text without the end token."""

    def drawn_lengths(self, digits: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Lengths (count, operands) with which `draw` would draw these operands; they differ where a format pads."""
        return lengths

    def covering_problems(self, window: Window, layers: int) -> CoveringProblems:
        """Problems that hold every neighbourhood, and with it every right next token, that the format allows.

        A neighbourhood is what a response token sees after a correct prefix: within the window (see `pair_maps`) directly,
        and so on through every layer.

        Raises:
            ValueError: they are not known, or no model of such a window can be right.
        """
        raise ValueError(f"the neighbourhoods of the task {self.name!r} have not been worked out")

    def covering_neighbourhoods(self, window: Window, layers: int) -> CoveringNeighbourhoods | None:
        """In place of covering problems, for tasks where neighbourhoods are easier to list than problems that hold them.

        Raises:
            ValueError: they are not known for this window.
        """
        return None

    def vary(self, generator: np.random.Generator, digits: np.ndarray, max_length: int) -> tuple[np.ndarray, np.ndarray]:
        """Problems of one group that hold the neighbourhoods of these covering problems, each in its place.

        Args:
            digits: (count, operands, width), one group.
            max_length: longest operand of the variations.

        Returns:
            Digits and lengths (count, operands).
        """
        return digits, np.full(digits.shape[:2], digits.shape[2])

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
        raise ValueError(f"the {split} split holds no problem of {lengths[rejected[0]].tolist()} digits")

    def examples(self, generator: np.random.Generator, lengths: np.ndarray, split: str) -> Examples:
        """Draws, solves and writes problems of the given lengths. Cost is linear in the number of tokens."""
        return self.format(self.draw(generator, lengths, split), lengths)

    def augment(self, generator: np.random.Generator, examples: Examples) -> Examples:
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
