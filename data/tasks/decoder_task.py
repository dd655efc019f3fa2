"""Tasks of the decoder: a query, then a response that is written token by token, with a coupling rule that reads both."""

# Used by: data/tasks, data/proofs, data/proofs/lengths, hub_cards/publishing, hub_cards/research/theories,
# hub_cards/training. Changed freely.

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch

from longhand.data.families import DECODER, Family
from longhand.data.formatting import Examples
from longhand.data.machines.columns import Graph, TextLayout
from longhand.data.machines.covering import search_covering
from longhand.data.machines.sights import sights_of
from longhand.data.machines.texts import TextRuns
from longhand.data.tasks.reader import digits_of, read_numbers
from longhand.data.tasks.task import Task
from longhand.modeling.coupling import COUPLING_RULES, CouplingRule, joining_rules
from longhand.modeling.relations import Window
from longhand.modeling.vocabulary import ALL_TOKENS, BOS, SEPARATE_EOS, TOKENS, decode


@dataclass(frozen=True)
class DecoderTask(Task):
    """Base of the tasks that a CoupledGPT learns.

    Attributes:
        vocab_size: tokens of a model's vocabulary, the first ones of `vocabulary.ALL_TOKENS`.
        keys_are_alone: whether the tokens that a response sees see nothing but `$`; then the neighbourhoods are known for
            any number of layers.
    """

    family: ClassVar[Family] = DECODER
    vocab_size: ClassVar[int] = len(TOKENS)
    keys_are_alone: ClassVar[bool] = False

    separate_eos: bool = field(default=False, metadata={"help": "end sequences with a token of their own, not `$`"})

    @property
    @abstractmethod
    def coupling(self) -> str:
        """Name of the coupling rule for this format."""

    @property
    def rule(self) -> CouplingRule:
        """The coupling rule for this format."""
        return COUPLING_RULES[self.coupling]

    @property
    def tokens(self) -> tuple[str, ...]:
        """The vocabulary of the task's models."""
        return ALL_TOKENS[: self.vocab_size]

    @property
    def couplings(self) -> tuple[str, ...]:
        """Names of all coupling rules for this format, `coupling` first; `any_text_rules` read every format."""
        own = self.coupling
        return (own, *joining_rules(own))

    @property
    def further_couplings(self) -> tuple[str, ...]:
        """Names of further rules that read this format. Their windows see other tokens, of which nothing is proved."""
        return ()

    @property
    def end_token(self) -> int:
        return SEPARATE_EOS if self.separate_eos else BOS

    @abstractmethod
    def format(self, digits: np.ndarray, lengths: np.ndarray) -> Examples:
        """Write problems, (count, operands, width) digits with the ones first, and their answers as tokens.

        Raises:
            ValueError: the problems cannot stand in one batch.
        """

    def written(self, digits: np.ndarray, lengths: np.ndarray) -> Examples:
        """As `format`: problems as evaluation writes them."""
        return self.format(digits, lengths)

    @property
    def written_names(self) -> tuple[str, ...]:
        """The texts of what the task's models write, by id."""
        return self.tokens

    def read_question(self, question: str) -> list[str]:
        """The numbers of a question as text, with the leading zeros that count as digits.

        Raises:
            ValueError: the question is not of the task's form.
        """
        return read_numbers(question, self.sign, self.example_question, getattr(self, "operands", None))

    def prompt(self, question):
        numbers = self.read_question(question)
        examples = self.format(digits_of(numbers), np.array([[len(number) for number in numbers]]))
        return decode(examples.tokens[0, 1 : examples.query_lengths[0]], self.tokens)

    def question_ids(self, question: str) -> torch.Tensor | None:
        """The position ids (1, levels, columns) of a question's prompt and response, where its prompt does not tell them.

        None if the coupling rule reads them from the prompt.

        Raises:
            ValueError: the question is not of the task's form.
        """
        return None

    def examples(self, generator, lengths, split):
        return self.format(self.draw(generator, lengths, split), lengths)

    def rewrite(self, generator, digits, lengths):
        return self.format(digits, lengths)

    def runs(self, ordered: bool = False) -> Sequence[Graph]:
        """The task as columns with ids, see `Columns`; none if its problems are not columns.

        Args:
            ordered: whether operands of a column that no token can tell apart come in every order, not in one alone.

        Raises:
            ValueError: no window of columns decides what comes next.
        """
        return ()

    @property
    def known_window(self) -> Window | None:
        """The window of a model for which neighbourhoods are known; None for every window, no entries for none at all."""
        return self.rule.relations or ()

    def covering(self, window, layers):
        """Every neighbourhood, by search, if problems are columns: what a token sees follows from the ids of their rows."""
        if not (every := self.runs()):
            return super().covering(window, layers)
        self.check_window(window, layers)
        return search_covering([sight for runs in every for sight in sights_of(runs, window)], self)

    def text_runs(self, ordered):
        every = self.runs(ordered)
        if len(every) != 1 or every[0].rows.layout is None:
            return super().text_runs(ordered)
        return texts_of(every[0], every[0].rows.layout)

    def check_window(self, window: Window, layers: int) -> None:
        """Raise ValueError unless neighbourhoods are known for this window and so many layers."""
        known = tuple(window) if self.known_window is None else self.known_window
        if tuple(window) != known or (layers != 1 and not self.keys_are_alone):
            depth = "" if self.keys_are_alone else "one layer and "
            named = (f"of the coupling rule {rule.name!r}" for rule in COUPLING_RULES.values() if rule.relations == known)
            raise ValueError(
                f"the neighbourhoods of {self.name} are known for {depth}the window {next(named, list(known))} only, not "
                f"for {layers} layer(s) and {list(window)}"
            )


def texts_of(graph: Graph, layout: TextLayout, low: int = 0) -> TextRuns:
    """The runs as texts of one length: of rows, of which one is written, all others are operands.

    Args:
        low: as in `TextRuns`.
    """
    (response,) = graph.rows.written
    operands, following = tuple(range(response)), response + graph.rows.passes
    return TextRuns(graph, operands, response, following, *layout, low)
