"""Tasks: a task draws, solves, writes and reads problems.

A task knows what each token means. Its fields are its format. `Task.family` is the family of models that learns it:
`decoder_task.py` and `encoder_task.py` hold the base of each family's tasks.
"""

# Used by: composite.py, decoder_task.py, encoder_task.py, registry.py, data, data/learning, data/proofs,
# data/proofs/lengths, eval.py, hub_cards, hub_cards/checkpoints, hub_cards/evaluation, hub_cards/publishing,
# hub_cards/research, hub_cards/research/theories, hub_cards/training. Changed freely.

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import ClassVar, Literal, Self, get_args, get_origin

import numpy as np
import pyarrow as pa

from longhand.data.digits import uniform_digits
from longhand.data.families import Family
from longhand.data.formatting import Examples, LabelledTokens
from longhand.data.lengths import Lengths, rows_of_groups
from longhand.data.machines.covering import CoveringCases, CoveringNeighbourhoods
from longhand.data.machines.texts import TextRuns
from longhand.data.splits import PARTITIONED_DIGITS, SPLITS, make_generator, problem_keys, split_of
from longhand.data.tasks.reader import AnswerReader
from longhand.modeling.checks import check_integer
from longhand.modeling.inputs import PromptFormat, PromptFormats
from longhand.modeling.relations import Window
from longhand.modeling.transducer import Transducer
from longhand.modeling.vocabulary import BOS, TOKENS

_FEW_PROBLEMS = 8
"""Only sizes up to this length may have so few problems that a split holds none: there are 256 strings of so many bits."""

_SMALLEST = 16
"""Sizes of one shortest length that are looked at: of boards, there are some with few rows and some with few columns."""

_SAMPLES = (64, 1024)
"""Problems of one size that are drawn to see whether a split holds any: more only if there is none among few."""


@dataclass(frozen=True)
class Task(Lengths, ABC):
    """Base of all tasks.

    A task's file says how problems are drawn (`draw_operands`, if not uniformly by length), solved and written (`format` of
    `DecoderTask`, `solve` of `EncoderTask`), how a question becomes a prompt, how an answer is read (`reader`), and what a
    certificate must cover (`runs` of a `DecoderTask` on columns, else `covering`). All else has a default. `Lengths` holds
    what concerns sizes.

    Attributes:
        family: the family of models that learns the task.
        operands: numbers in a problem; missing if problems differ in it.
        reader: how the answer is read from a response.
        example_question: a question, as a person asks it.
        sign: stands between the numbers of a question; empty if there is one number, or no sign.
        learned: the facts about a machine that was found, see `data/learning/report.py`; None for a step that was written.
        every_problem: what a certificate is about, after "for".
        length_complexity: the least length such that problems of up to this length show every neighbourhood; None if it has
            not been searched.
        suggested_arguments: arguments of a training run, with their values where a recipe says nothing.
        partitioned_digits: problems with at most this many digits in all belong to one split, by a hash. Longer problems may
            be drawn for any split; there must be so many that two splits practically never share one. None if all problems
            are partitioned.
        most_digits: longest operands of a problem that is drawn. The tokens of one such problem, and what is computed on the
            way, fit into the memory of an ordinary computer.
        most_answered: most tokens of a question and its response; each takes 100 bytes and more while it is answered.
        ones_come_first: whether columns are read from the ones on, for practice.

    A field of whole numbers says in its metadata, as `range`, the least and the largest that are legal.
    """

    family: ClassVar[Family]
    operands: ClassVar[int]
    sign: ClassVar[str] = ""
    learned: ClassVar[Mapping[str, str] | None] = None
    every_problem: ClassVar[str] = "operands of every length"
    length_complexity: ClassVar[int | None] = None
    suggested_arguments: ClassVar[Mapping[str, object]] = {}
    partitioned_digits: ClassVar[int | None] = PARTITIONED_DIGITS
    most_digits: ClassVar[int] = 1_000_000
    most_answered: ClassVar[int] = 2**27
    ones_come_first: ClassVar[bool] = True

    def __post_init__(self):
        for option in fields(self):
            value = getattr(self, option.name)
            if "range" in option.metadata and (value is not None or option.default is not None):
                check_integer(option.name, value, *option.metadata["range"])
            if option.type is bool and not isinstance(value, bool):
                raise ValueError(f"{option.name} must be True or False, got {value!r}")
            if get_origin(option.type) is Literal and value not in (legal := get_args(option.type)):
                raise ValueError(f"{option.name} {value!r} is unknown: choose one of {', '.join(legal)}")

    def check_worked_examples(self) -> None:
        """Raise ValueError if the task computes another answer than one that it states by hand; most tasks state none."""

    def check_answered(self, tokens: int) -> None:
        """Raise ValueError if a question and its response have more tokens than are answered."""
        if tokens > self.most_answered:
            raise ValueError(
                f"the question and its response have {tokens:,} tokens, {self.most_answered:,} are answered at most"
            )

    @property
    @abstractmethod
    def reader(self) -> AnswerReader: ...

    @property
    @abstractmethod
    def example_question(self) -> str: ...

    @property
    def transducer(self) -> Transducer | None:
        """The task as a table, if it is a column task that the coupling rule `columns` reads."""
        return None

    @property
    def prompt_format(self) -> PromptFormat | PromptFormats | None:
        """Which prompts are legal, for the configuration of the task's models; None if prompts are not checked."""
        return None

    def prompt_fault(self, prompt: str) -> str | None:
        """What is wrong with a prompt by the task's format; None if it is legal, or nothing is checked."""
        prompt_format = self.prompt_format
        if prompt_format is None:
            return None
        begin = "" if prompt_format.response is None else TOKENS[BOS]
        return prompt_format.fault(begin + prompt)

    @property
    def answers_questions(self) -> bool:
        """Whether a model can answer a question without being given a part of the response."""
        return True

    @property
    def prompts_tell_sizes(self) -> bool:
        """Whether a prompt, asked as a question, tells the sizes of its operands."""
        return True

    @property
    def for_evaluation(self) -> Self:
        """The task whose problems are used for validation and tests; it differs if training draws other problems."""
        return self

    @property
    def before_augmentation(self) -> "Task":
        """The task that draws training problems as `augment` takes them; it differs if `augment` does what its draws do."""
        return self

    @property
    def parts(self) -> tuple["Task", ...]:
        """The tasks that are validated, tested and certified; several if this one is made of others, see `CompositeTask`."""
        return (self,)

    def choose_tasks(self, generator: np.random.Generator, count: int, split: str) -> list[tuple["Task", np.ndarray]]:
        """The tasks that `count` problems, or batches, of a split are drawn from, each with its places among them."""
        return [(self, np.arange(count))]

    def part_of(self, question: str) -> "Task":
        """The part that answers a question.

        Raises:
            ValueError: there is none, or more than one.
        """
        return self

    def check_question(self, question: str) -> None:
        """Raise ValueError for a question of a person that means nothing, though texts of this form have an answer.

        Args:
            question: without spaces and a sign at its end.
        """

    def are_questions(self, digits: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Which problems (count,) a person may ask, see `check_question`, and evaluation draws."""
        return np.ones(len(digits), dtype=bool)

    @property
    def most_text(self) -> int:
        """Most tokens of random text around a problem, which no model reads anything from."""
        return 0

    @property
    def padded_width(self) -> int | None:
        """The tokens to which the tokenizer pads a number's field; None if it pads none."""
        return None

    @property
    def widest(self) -> "Task":
        """The task that always writes the longest problems of training; it differs if the format varies."""
        return self

    def draw_operands(self, generator: np.random.Generator, lengths: np.ndarray) -> np.ndarray:
        """Operands (count, operands, width) of these lengths, uniform among the numbers of each length."""
        return uniform_digits(generator, lengths)

    def split_of(self, digits: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """The split of each problem, see `splits.split_of`."""
        return split_of(self.problem_keys(digits, lengths))

    def problem_keys(self, digits: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """A hash of each problem that belongs to one split, else 0; see `splits.problem_keys`."""
        return problem_keys(digits, lengths, self.partitioned_digits)

    def draw(self, generator: np.random.Generator, lengths: np.ndarray, split: str) -> np.ndarray:
        """Operands (count, operands, width) of these lengths that belong to a split.

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

    def draw_mixed(
        self, generator: np.random.Generator, count: int, longest: int, split: str
    ) -> list[tuple["Task", np.ndarray, np.ndarray]]:
        """Problems of a split whose operands have any sizes up to one, in groups.

        Returns:
            Of each group the task that writes it, digits (count, operands, width), and lengths (count, operands).
        """
        lengths = self.sample_lengths(generator, count, self.shortest_of(split, longest), longest)
        layouts = self.layouts(generator, lengths)
        return [(task, task.draw(generator, lengths[rows], split), lengths[rows]) for task, rows in layouts]

    def has_problems(self, split: str, min_length: int, max_length: int) -> bool:
        """Whether a split holds problems of each of the smallest sizes that are drawn from these lengths."""
        return all(
            any(self._holds_one(split, np.tile(smallest, (count, 1))) for count in _SAMPLES)
            for smallest in self.shortest_lengths(min_length, max_length, _SMALLEST)
        )

    def _holds_one(self, split: str, lengths: np.ndarray) -> bool:
        """Whether a split holds one of the problems of these lengths that are drawn here."""
        splits = self.split_of(self.draw_operands(make_generator("smallest"), lengths), lengths)
        return bool(((splits < 0) | (splits == SPLITS.index(split))).any())

    def shortest_of(self, split: str, max_length: int) -> int:
        """The least `min_length` from which on a split holds problems of every size up to `max_length`.

        A size of few problems, such as the two strings of one bit, may have none in a split that holds out one in sixteen.
        """
        tried = range(1, min(max_length, _FEW_PROBLEMS) + 1)
        return 1 + max((length for length in tried if not self.has_problems(split, length, max_length)), default=0)

    @abstractmethod
    def examples(self, generator: np.random.Generator, lengths: np.ndarray, split: str) -> Examples | LabelledTokens:
        """Draw, solve and write problems of these lengths. Cost is linear in the number of tokens."""

    def layouts(self, generator: np.random.Generator, lengths: np.ndarray) -> list[tuple["Task", np.ndarray]]:
        """The rows of `lengths` that a dataset writes at once, each with the task that writes them."""
        return [(self, rows) for _, rows in rows_of_groups(self.group(lengths))]

    def augment(self, generator: np.random.Generator, examples: Examples | LabelledTokens) -> Examples | LabelledTokens:
        """Return examples with the random changes that training makes each time it sees them; evaluation makes none."""
        return examples

    def answer_length(self, lengths: tuple[int, ...]) -> int | None:
        """Tokens at the end of a response that are the answer and the end token; None if there is no scratchpad."""
        return None

    def extra_columns(self, digits: np.ndarray) -> dict[str, pa.Array]:
        """Columns of a dataset that only this task has, from operands (count, operands, width)."""
        return {}

    def covering(self, window: Window, layers: int) -> CoveringNeighbourhoods | CoveringCases:
        """All neighbourhoods, and with them every right next token, that the format allows; of an encoder, all cases.

        A neighbourhood is what a response token sees after a correct prefix: directly within the window (see `pair_maps`),
        and through every layer what the tokens in the window see.

        Raises:
            ValueError: the neighbourhoods are not known, or no model with this window can be right.
        """
        raise ValueError(f"the neighbourhoods of the task {self.name!r} have not been worked out")

    def text_runs(self, ordered: bool) -> TextRuns:
        """The runs as texts of one length, for a proof up to a length (hub_cards/PROOF.md, "Attention to all tokens").

        Args:
            ordered: whether a token can tell the operands of a column apart; if not, one order of its symbols is enough.

        Raises:
            ValueError: problems of one length have no single layout of columns.
        """
        raise ValueError(f"problems of one length of the task {self.name!r} have no single layout of columns")

    def drawn_lengths(self, digits: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Lengths (count, operands) with which `draw` would draw these operands; they differ if a format pads."""
        return lengths

    def vary(self, generator: np.random.Generator, digits: np.ndarray, max_length: int) -> np.ndarray:
        """Random problems that contain the same neighbourhoods as these covering problems, at the same positions.

        Args:
            digits: (count, operands, width), one group.
            max_length: longest operand of the variations.

        Returns:
            Digits (count, operands, width) of operands that are all as long as the digits are wide.
        """
        return digits

    @abstractmethod
    def rewrite(self, generator: np.random.Generator, digits: np.ndarray, lengths: np.ndarray) -> Examples | LabelledTokens:
        """Solve and write problems of `vary`, for practice."""

    def deciding_keys(self, tokens: np.ndarray) -> np.ndarray | None:
        """Which tokens decide the answer at each token, (tokens, tokens) bool: sigma of paper 2, Sec. 3.1.

        Args:
            tokens: (tokens,) of one problem without text.

        Returns:
            None if the task does not say it.
        """
        return None

    @abstractmethod
    def prompt(self, question: str) -> str:
        """The text that a model is given for a question such as `example_question`.

        Raises:
            ValueError: the question is not of the task's form.
        """

    @property
    def columns_needed(self) -> np.ndarray | None:
        """(neighbourhoods,) columns of a shortest problem that shows each neighbourhood; None if no search found that."""
        return None

    def describe_sizes(self, longest: int) -> list[str]:
        """Lines that say which problems show every neighbourhood, and whether training draws them; none if unknown.

        Args:
            longest: symbols of the longest operand that training draws.
        """
        return []

    def describe_windows(self) -> list[str]:
        """A line for each pass of a step on columns: its window, and how many keys a token sees in it."""
        return []

    def describe(self) -> dict[str, object]:
        """Name and format, for recipes and results."""
        return {"task": self.name, **asdict(self)}
