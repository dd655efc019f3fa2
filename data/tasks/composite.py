"""Tasks made of other tasks: one model learns them all, and each is validated, tested and certified by itself."""

# Used by: whoever runs or imports it. Changed freely.

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np

from longhand.data.families import DECODER, ENCODER
from longhand.data.lengths import rows_of_groups
from longhand.data.splits import problem_keys
from longhand.data.tasks.addition_scratchpad import AdditionScratchpad
from longhand.data.tasks.encoder_addition import EncoderAddition
from longhand.data.tasks.encoder_multiplication import EncoderMultiplication
from longhand.data.tasks.multiplication_scratchpad import MultiplicationScratchpad
from longhand.data.tasks.registry import register_task
from longhand.data.tasks.subtraction import SignedSubtraction
from longhand.data.tasks.task import Task
from longhand.modeling.coupling import COUPLING_RULES, CouplingRule
from longhand.modeling.inputs import PromptFormats
from longhand.modeling.vocabulary import STATES


def _field_of(member: type[Any], name: str) -> dict[str, object]:
    """The metadata of a field that is handed on to a member."""
    return dict(member.__dataclass_fields__[name].metadata)


@dataclass(frozen=True)
class TaskOfTasks(Task):
    """Base of the tasks of several kinds of problems, whose prompts tell which kind a problem is of.

    A subclass names its members. Its fields are handed on to the members that have fields of these names; members' other
    fields have their defaults. Every batch of training holds problems of one task. All else is done part by part:
    `Task.parts`.

    Attributes:
        members: classes of the tasks, of one family.
        trained: how often each is trained, in proportion. Subclasses of a member may draw its problems in other ways.
    """

    members: ClassVar[tuple[type[Any], ...]]
    trained: ClassVar[dict[type[Any], float]]

    def __post_init__(self):
        super().__post_init__()
        _ = self.parts  # Every part checks its own fields.

    @property
    def parts(self) -> tuple[Any, ...]:
        return tuple(map(self._make, self.members))

    def _make(self, member: type[Any]) -> Any:
        """The task of a class, with the fields that it has too."""
        values = {option.name: getattr(self, option.name) for option in fields(self)}
        return member(**{option.name: values[option.name] for option in fields(member) if option.name in values})

    def choose_tasks(self, generator, count, split):
        # Subclasses of members draw problems for practice, so validation and test have none of them.
        drawn = {kind: share for kind, share in self.trained.items() if split == "train" or kind in self.members}
        kinds, shares = zip(*drawn.items(), strict=True)
        chosen = generator.choice(len(kinds), size=count, p=np.array(shares) / sum(shares))
        return [(self._make(kinds[place]), rows) for place, rows in rows_of_groups(chosen)]

    def part_of(self, question):
        # A task of strings has no sign.
        signs = {part: part.sign for part in self.parts}
        fitting = [part for part, sign in signs.items() if sign and sign in question]
        fitting = fitting or [part for part, sign in signs.items() if not sign]
        if len(fitting) == 1:
            return fitting[0]
        examples = " or ".join(repr(part.example_question) for part in self.parts)
        raise ValueError(f"the question {question!r} is not one that the task {self.name!r} answers, such as {examples}")

    @property
    def tokens(self) -> tuple[str, ...]:
        return max((part.tokens for part in self.parts), key=len)

    @property
    def most_digits(self) -> int:  # type: ignore[override]
        return min(part.most_digits for part in self.parts)

    @property
    def prompt_format(self):
        return PromptFormats(formats=[part.prompt_format for part in self.parts])

    @property
    def example_question(self) -> str:
        return self.parts[0].example_question

    @property
    def every_problem(self) -> str:  # type: ignore[override]
        return "; ".join(f"{part.name}: {part.every_problem}" for part in self.parts)

    def prompt(self, question):
        return self.part_of(question).prompt(question)

    @property
    def reader(self):
        return self._by_part("has no reader of its own")

    def examples(self, generator, lengths, split):
        return self._by_part("draws no problems of its own")

    def rewrite(self, generator, digits, lengths):
        return self._by_part("writes no problems of its own")

    def operand_lengths(self, length, other=None):
        return self._by_part("has no sizes of its own")

    def sample_lengths(self, generator, count, min_length, max_length):
        return self._by_part("draws no problems of its own")

    def _by_part(self, reason: str):
        raise ValueError(f"the task {self.name!r} {reason}: choose one of {', '.join(part.name for part in self.parts)}")


@dataclass(frozen=True)
class CompositeTask(TaskOfTasks):
    """Base of the tasks of several tasks of decoders. A subclass also names a coupling rule that joins those of its members.

    Attributes:
        coupling: name of the coupling rule, see `joined_rule` of `modeling/coupling.py`.
    """

    family = DECODER
    coupling: ClassVar[str]

    @property
    def couplings(self) -> tuple[str, ...]:
        return (self.coupling,)

    @property
    def further_couplings(self) -> tuple[str, ...]:
        return ()

    @property
    def rule(self) -> CouplingRule:
        return COUPLING_RULES[self.coupling]

    @property
    def end_token(self) -> int:
        return self.parts[0].end_token


@dataclass(frozen=True)
class CompositeEncoderTask(TaskOfTasks):
    """Base of the tasks of several tasks of encoders, told apart by the operators of their problems."""

    family = ENCODER
    labels: ClassVar[tuple[str, ...]] = STATES
    settling_map: ClassVar[str | None] = None

    @property
    def most_text(self) -> int:
        return max(part.most_text for part in self.parts)

    @property
    def padded_width(self) -> int | None:
        widths = {part.padded_width for part in self.parts}
        return widths.pop() if len(widths) == 1 else None

    def check_settling(self) -> None:
        """Raise ValueError: an encoder that settles has the cases of one task."""
        self._by_part("has no cases of its own, so no encoder with label_states learns it")


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
    """Sums, differences and products by one model, each with the work that a person would write on paper."""

    name: ClassVar[str] = "calculator"
    coupling: ClassVar[str] = "calculator"
    members = (AdditionScratchpad, SignedSubtraction, MultiplicationScratchpad)
    trained = {AdditionScratchpad: 2, LargeSums: 1, SignedSubtraction: 2, MultiplicationScratchpad: 5}  # noqa: RUF012

    separate_eos: bool = field(default=False, metadata={"help": "end sequences with a token of their own, not `$`"})
    max_operands: int = field(default=10, metadata={"help": "most operands of a drawn sum, 2 to 10,000"})


@register_task
@dataclass(frozen=True)
class EncoderCalculator(CompositeEncoderTask):
    """Sums of two numbers, and products of one digit and a number, within random text (paper 2, Sec. 3.3, Fig. 6).

    In Fig. 6 some heads have the pair map of sums and some that of products: `pair_maps` "add" and "multiply".
    """

    name: ClassVar[str] = "encoder_calculator"
    members = (EncoderAddition, EncoderMultiplication)
    trained = {EncoderAddition: 1, EncoderMultiplication: 1}  # noqa: RUF012

    field_width: int | None = field(default=None, metadata=_field_of(EncoderAddition, "field_width"))
    text_tokens: int = field(default=0, metadata=_field_of(EncoderAddition, "text_tokens"))
    multiplier_length: int = field(default=1, metadata=_field_of(EncoderMultiplication, "multiplier_length"))
