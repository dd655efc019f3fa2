"""Strings: copied (`$1809=1809$`), reversed (`$5962=2695$`), or read for their parity (`$1011=1101$`) (paper 1, App. C)."""

# Used by: whoever runs or imports it. Changed freely.

import re
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from longhand.data.digits import uniform_words
from longhand.data.formatting import check_longest, lay_out
from longhand.data.machines.columns import ABSENT, Columns, Rows, TextLayout, by_column
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.reader import AS_WRITTEN, AnswerReader
from longhand.data.tasks.registry import register_task
from longhand.modeling.inputs import PromptFormat
from longhand.modeling.vocabulary import BOS, EQUALS


@dataclass(frozen=True)
class StringTask(DecoderTask):
    """Base of the tasks about one string. Its length is uniform, and the string is uniform among the strings of its length.

    A string is an operand whose "ones digit" is its first symbol. A group holds the strings of one length.

    Attributes:
        direction: 1 if position ids grow from column to column in the order in which the response is written, else -1.
    """

    operands: ClassVar[int] = 1
    size_names: ClassVar[tuple[str, str]] = ("symbols of the string",) * 2
    sized_problems: ClassVar[tuple[str, str]] = ("strings of", "symbol")
    every_problem: ClassVar[str] = "strings of every length"
    symbols: ClassVar[int] = 10
    direction: ClassVar[int] = 1
    reader: ClassVar[AnswerReader] = AS_WRITTEN

    @property
    def prompt_format(self):
        symbol = f"[0-{self.symbols - 1}]"
        return PromptFormat(f"{symbol}+=", f"{self.example_question}=", response=f"{symbol}*")

    def draw_operands(self, generator, lengths):
        return uniform_words(generator, lengths, self.symbols)

    @abstractmethod
    def respond(self, strings: np.ndarray) -> np.ndarray:
        """The responses to strings (count, length), without the end token."""

    def format(self, digits, lengths):
        strings = digits[:, 0]
        check_longest(digits, lengths)
        return lay_out([BOS, strings, EQUALS, self.respond(strings), self.end_token], query_parts=3)

    def step(self, state: int, symbol: int) -> tuple[int, int]:
        """The token that is written at a symbol, and the next state. The first state is 0."""
        return symbol, 0

    def runs(self, ordered=False):
        """All strings. A token sees the symbol that comes next."""

        def step(state, symbol):
            symbol_written, following = self.step(state, symbol)
            return (symbol, symbol_written), following

        def ends(state):
            return ABSENT, self.end_token

        layout = TextLayout(last_first=not self.ones_come_first)
        rows = Rows([by_column(self.direction)] * 2, practised=[0], layout=layout)
        return (Columns(rows, {0: (ABSENT, EQUALS)}, range(self.symbols), step, ends).graph,)

    def prompt(self, question):
        match = re.fullmatch(rf"\s*([0-{self.symbols - 1}]+)\s*=?\s*", question, flags=re.ASCII)
        if match is None:
            raise ValueError(
                f"the question {question!r} is not a string of 0 to {self.symbols - 1} such as {self.example_question!r}"
            )
        return f"{match[1]}="


@register_task
@dataclass(frozen=True)
class Copy(StringTask):
    """The same string of decimal digits again; symbols may repeat."""

    name: ClassVar[str] = "copy"
    coupling: ClassVar[str] = "copy"
    example_question: ClassVar[str] = "1809"

    def respond(self, strings):
        return strings


@register_task
@dataclass(frozen=True)
class Reverse(StringTask):
    """The string of decimal digits backwards; symbols may repeat."""

    name: ClassVar[str] = "reverse"
    coupling: ClassVar[str] = "reverse"
    direction: ClassVar[int] = -1
    ones_come_first: ClassVar[bool] = False
    example_question: ClassVar[str] = "5962"

    def respond(self, strings):
        return strings[:, ::-1]


@register_task
@dataclass(frozen=True)
class Parity(StringTask):
    """Whether a string of bits has an odd number of ones.

    With a scratchpad, the response is the parity of the string's first bit, of its first two bits, and so on; the last
    parity is the answer. Without a scratchpad, the response is the answer alone, which no windowed model can know.
    """

    name: ClassVar[str] = "parity"
    coupling: ClassVar[str] = "copy"
    example_question: ClassVar[str] = "1011"
    symbols: ClassVar[int] = 2
    partitioned_digits: ClassVar[int] = 60
    reader: ClassVar[AnswerReader] = AnswerReader(last=1)

    scratchpad: bool = field(
        default=True, metadata={"help": "respond with the running parities, not with the last one alone"}
    )

    def answer_length(self, lengths):
        return 2 if self.scratchpad else None

    def respond(self, strings):
        parities = np.bitwise_xor.accumulate(strings, axis=1)
        return parities if self.scratchpad else parities[:, -1:]

    def step(self, state, symbol):
        return state ^ symbol, state ^ symbol

    def runs(self, ordered=False):
        if not self.scratchpad:
            raise ValueError(
                "without a scratchpad the parity depends on the whole string, which no window can hold and no few symbols "
                "decide"
            )
        return super().runs(ordered)
