"""Tasks of the decoder: a query, then a response that is written token by token, with a coupling rule that reads both."""

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from longhand.data.certificates.neighbourhoods import CoveringNeighbourhoods, CoveringProblems
from longhand.data.families.decoder import DECODER
from longhand.data.formatting import Examples
from longhand.data.tasks.task import Task
from longhand.modeling.pair_maps import Window
from longhand.modeling.vocabulary import BOS, SEPARATE_EOS, TOKENS


@dataclass(frozen=True)
class DecoderTask(Task):
    """Base of the tasks that a CoupledGPT learns.

    Attributes:
        vocab_size: tokens of a model's vocabulary, the first ones of `vocabulary.ALL_TOKENS`.
    """

    family = DECODER
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

    @property
    def writes_whole_response(self) -> bool:
        """Whether a model learns every token of its response; else it must be given some and cannot decode on its own."""
        return True

    @property
    def end_token(self) -> int:
        return SEPARATE_EOS if self.separate_eos else BOS

    @property
    def answers_questions(self):
        return self.writes_whole_response

    @abstractmethod
    def format(self, digits: np.ndarray, lengths: np.ndarray) -> Examples:
        """Writes problems, (count, operands, width) digits with the ones first, and their answers as tokens."""

    def examples(self, generator, lengths, split):
        return self.format(self.draw(generator, lengths, split), lengths)

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
