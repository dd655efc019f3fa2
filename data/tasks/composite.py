"""Tasks made of other tasks: one model learns them all, and each is validated, tested and certified by itself."""

from dataclasses import dataclass, field, fields
from typing import ClassVar

import numpy as np

from longhand.data.families import DECODER
from longhand.data.lengths import rows_of_groups
from longhand.data.splits import problem_keys
from longhand.data.tasks.addition_scratchpad import AdditionScratchpad
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.multiplication_scratchpad import MultiplicationScratchpad
from longhand.data.tasks.registry import register_task
from longhand.data.tasks.subtraction import SignedSubtraction
from longhand.data.tasks.task import Task
from longhand.modeling.coupling import COUPLING_RULES, CouplingRule
from longhand.modeling.inputs import PromptFormats


@dataclass(frozen=True)
class CompositeTask(Task):
    """Base of the tasks of several kinds of problems, whose prompts tell which kind a problem is of.

    A subclass names its members and a coupling rule that joins theirs (`modeling/coupling.py`). Its fields are handed on
    to the members that have fields of these names; members' other fields have their defaults. Every batch of training holds
    problems of one task. All else is done part by part: `Task.parts`.

    Attributes:
        members: classes of the tasks, of one family.
        trained: how often each is trained, in proportion. Subclasses of a member may draw its problems in other ways.
        coupling: name of the coupling rule.
    """

    members: ClassVar[tuple[type[DecoderTask], ...]]
    trained: ClassVar[dict[type[DecoderTask], float]]
    coupling: ClassVar[str]

    def __post_init__(self):
        super().__post_init__()
        _ = self.parts  # Every part checks its own fields.

    @property
    def parts(self) -> tuple[DecoderTask, ...]:
        return tuple(map(self._make, self.members))

    def _make(self, member: type[DecoderTask]) -> DecoderTask:
        """The task of a class, with the fields that it has too."""
        own = {option.name: getattr(self, option.name) for option in fields(self)}
        return member(**{option.name: own[option.name] for option in fields(member) if option.name in own})

    def choose_tasks(self, generator, count, split):
        # Subclasses of members draw problems for practice, so validation and test have none of them.
        drawn = {kind: share for kind, share in self.trained.items() if split == "train" or kind in self.members}
        kinds, shares = zip(*drawn.items(), strict=True)
        chosen = generator.choice(len(kinds), size=count, p=np.array(shares) / sum(shares))
        return [(self._make(kinds[place]), rows) for place, rows in rows_of_groups(chosen)]

    def part_of(self, question):
        # A task of strings has no sign.
        signs = {part: getattr(part, "sign", "") for part in self.parts}
        fitting = [part for part, sign in signs.items() if sign and sign in question]
        fitting = fitting or [part for part, sign in signs.items() if not sign]
        if len(fitting) == 1:
            return fitting[0]
        examples = " or ".join(repr(part.example_question) for part in self.parts)
        raise ValueError(f"the question {question!r} is not one that the task {self.name!r} answers, such as {examples}")

    @property
    def couplings(self) -> tuple[str, ...]:
        return (self.coupling,)

    @property
    def rule(self) -> CouplingRule:
        return COUPLING_RULES[self.coupling]

    @property
    def tokens(self) -> tuple[str, ...]:
        return max((part.tokens for part in self.parts), key=len)

    @property
    def end_token(self) -> int:
        return self.parts[0].end_token

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
