"""Strings: copied (`$1809=1809$`), reversed (`$5962=2695$`), or read for their parity (`$1011=1101$`) (paper 1, App. C)."""

import re
from abc import abstractmethod
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import numpy as np

from longhand.data.formatting import check_longest, lay_out
from longhand.data.tasks.covering import CoveringProblems
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.reader import AS_WRITTEN, AnswerReader
from longhand.modeling.inputs import PromptFormat
from longhand.modeling.vocabulary import BOS, EQUALS


@dataclass(frozen=True)
class StringTask(DecoderTask):
    """Base of the tasks about one string. Its length is uniform, and the string is uniform among the strings of its length.

    A string is an operand whose "ones digit" is its first symbol. A group holds the strings of one length.
    """

    operands: ClassVar[int] = 1
    size_names: ClassVar[tuple[str, str]] = ("symbols of the string",) * 2
    sized_problems: ClassVar[tuple[str, str]] = ("strings of", "symbol")
    every_problem: ClassVar[str] = "strings of every length"
    symbols: ClassVar[int] = 10
    reader: ClassVar[AnswerReader] = AS_WRITTEN

    @property
    def prompt_format(self):
        symbol = f"[0-{self.symbols - 1}]"
        return PromptFormat(f"{symbol}+=", f"{self.example_question}=", response=f"{symbol}*")

    def draw_operands(self, generator, lengths):
        strings = generator.integers(0, self.symbols, size=(*lengths.shape, lengths.max()), dtype=np.uint8)
        return np.where(np.arange(lengths.max()) < lengths[..., None], strings, np.uint8(0))

    @abstractmethod
    def respond(self, strings: np.ndarray) -> np.ndarray:
        """The responses to strings (count, length), without the end token."""

    def format(self, digits, lengths):
        strings = digits[:, 0]
        check_longest(digits, lengths)
        return lay_out([BOS, strings, EQUALS, self.respond(strings), self.end_token], query_parts=3)

    def covering(self, window, layers):
        """All strings of up to two symbols."""
        self.check_window(window, layers)
        widths = (1, 2)
        return CoveringProblems(
            count=sum(self.symbols**width for width in widths),
            batches=(
                (
                    np.array(list(product(range(self.symbols), repeat=width)), dtype=np.uint8)[:, None],
                    np.full((self.symbols**width, 1), width),
                )
                for width in widths
            ),
            argument=(
                "A token of the response, and `=`, sees `$` and the one symbol of the query that comes next, which is "
                "absent at the end. What is right next follows from that symbol and the token itself. A token and the "
                "symbol after it occur in the string of these two symbols; `=` and the last token occur in a string of "
                "one symbol."
            ),
        )

    def prompt(self, question):
        match = re.fullmatch(rf"\s*([0-{self.symbols - 1}]+)\s*=?\s*", question, flags=re.ASCII)
        if match is None:
            raise ValueError(
                f"the question {question!r} is not a string of 0 to {self.symbols - 1} such as {self.example_question!r}"
            )
        return f"{match[1]}="
