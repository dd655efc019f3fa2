"""Tasks of *Neural Networks and the Chomsky Hierarchy* (Deletang et al., ICLR 2023, arXiv 2207.02098) as column tasks.

Work is shown: a response has one symbol for each column, and the answer of the paper's task is its last symbol, or follows
from it as each task says. Further tasks of the paper are `parity`, `reverse` and sums in base 2 (`base_addition`).
"""

# Used by: whoever runs or imports it. Changed freely.

import re
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from longhand.data.digits import uniform_words
from longhand.data.tasks.column_task import Automaton, ColumnPass, ColumnTask
from longhand.data.tasks.registry import register_task

Sampling = Literal["questions", "words"]


@dataclass(frozen=True)
class SomeWords(Automaton):
    """Base of the tasks that ask some of the words that their machine reads, see `check_question`.

    Attributes:
        sampling: `"questions"` draws what a person may ask. `"words"` draws other words too, for training: the machine has
            a right answer to each, and a certificate covers them all. Validation and tests draw questions.
    """

    sampling: Sampling = field(
        default="questions",
        metadata={"help": "what is drawn: questions alone, or for training other words too, which the machine answers"},
    )

    @property
    def for_evaluation(self):
        return replace(self, sampling="questions")

    def draw_operands(self, generator, lengths):
        draw = self.draw_questions if self.sampling == "questions" else self.draw_words
        return draw(generator, lengths)

    def are_questions(self, digits, lengths):
        texts = [self.sign.join(words) for words in self.words(digits)]
        return np.array([self.sampling == "words" or self._is_question(text) for text in texts], dtype=bool)

    def _is_question(self, text: str) -> bool:
        try:
            self.check_question(text)
        except ValueError:
            return False
        return True

    @abstractmethod
    def draw_questions(self, generator: np.random.Generator, lengths: np.ndarray) -> np.ndarray:
        """Operands (count, operands, width) of questions of these lengths (count, operands), uniform among them."""

    def draw_words(self, generator: np.random.Generator, lengths: np.ndarray) -> np.ndarray:
        """Operands (count, operands, width) of these lengths, so that training shows all that the machine may read."""
        return super().draw_operands(generator, lengths)


@register_task
class EvenPairs(Automaton):
    """Whether the number of 01 and 10 in a word is even (0) or odd (1), of what was read so far: 00101 -> 00101, so 1.

    The number is even if and only if the last bit is the first one.
    """

    name = "even_pairs"
    alphabet = "01"
    start = None
    example_question = "00101"

    def step(self, state, symbols):
        (bit,) = symbols
        first = bit if state is None else state
        return first ^ bit, first


@register_task
class CycleNavigation(Automaton):
    """The place on a ring of five after moves: 0 stays, 1 goes right, 2 goes left. Running places are written."""

    name = "cycle_navigation"
    alphabet = "012"
    writes = "01234"
    example_question = "10121"

    def step(self, place, symbols):
        return ((place + (0, 1, -1)[symbols[0]]) % 5,) * 2


PLUS, MINUS, TIMES = 5, 6, 7
"""Places of the operators in the alphabet of `ModularArithmetic`."""


@register_task
class ModularArithmetic(SomeWords):
    """The value modulo 5 of an expression of digits 0 to 4 and + - *, without brackets: 2*3-4 -> 2.

    A - may stand in front of the first digit, so that there are expressions of every length.

    Behind a number, the state is (sum before the term, term); behind an operator it is (sum before, factor of the next
    number). Both are written as a letter, and the value is written in one column more. Words that are no expressions have an
    answer too: a number behind a number ends the expression, and an operator without a number before it begins at 0.
    """

    name = "modular_arithmetic"
    alphabet = "01234+-*"
    writes = "01234" + "ABCDEFGHIJKLMNOPQRSTUVWXY" + "abcdefghijklmnopqrstuvwxy"
    flush = 1
    start = ("factor", 0, 1)
    example_question = "2*3-4"

    def check_question(self, question):
        """Raise ValueError for a word that is no expression, though the machine has an answer."""
        if not re.fullmatch(r"-?[0-4]([+*-][0-4])*", question):
            raise ValueError(
                f"the question {question!r} is no expression of digits 0 to 4 with + - * between them, such as "
                f"{self.example_question} or -3+4"
            )

    def step(self, state, symbols):
        (symbol,) = symbols
        kind, total, last = state
        is_number = symbol < PLUS
        if kind == "ended":
            return total, state
        if is_number and kind == "term":
            value = (total + last) % 5
            return value, ("ended", value, 0)
        if is_number:
            product = last * symbol % 5
            return 5 + 5 * total + product, ("term", total, product)
        term = last if kind == "term" else 0
        if symbol == TIMES:
            factor = term
        else:
            total = (total + term) % 5
            factor = 1 if symbol == PLUS else 4
        # The letters of factors come behind those of terms.
        return 5 + 25 + 5 * total + factor, ("factor", total, factor)

    def draw_questions(self, generator, lengths):
        """A digit in every other place from the ones on, and an operator between them; one that comes first is a -."""
        words = uniform_words(generator, lengths, 5)
        place = np.arange(lengths.max())
        is_operator = (place % 2 == 1) & (place < lengths[..., None])
        operators = PLUS + generator.integers(0, 3, size=words.shape, dtype=np.uint8)
        operators[place == lengths[..., None] - 1] = MINUS
        return np.where(is_operator, operators, words)

    def draw_words(self, generator, lengths):
        """Words of which most are expressions: a digit in odd places from the front, and an operator in even ones."""
        words = super().draw_words(generator, lengths)
        width = lengths.max()
        from_front = lengths[..., None] - 1 - np.arange(width)
        legal = np.where(from_front % 2 == 0, words % 5, 5 + words % 3).astype(np.uint8)
        kept = generator.random((*lengths.shape, 1)) < 0.8
        return np.where((from_front >= 0) & kept, legal, words)


def repeat(state, symbols):
    """Step of a copy."""
    return symbols[0], 0


@register_task
class DuplicateString(ColumnTask):
    """A word twice: 101 -> 101>101."""

    name = "duplicate_string"
    alphabet = "01"
    passes = (ColumnPass(repeat, direction="top_first"), ColumnPass(repeat, direction="top_first", reads=(0,)))
    answer = "joined"
    example_question = "101"


def every_other(chosen, symbols):
    """Step that writes every other symbol and a blank, 2, for the rest; the state is whether it writes the next one."""
    return symbols[0] if chosen else 2, not chosen


@register_task
class OddsFirst(ColumnTask):
    """The symbols in odd places, then those in even ones: 00110101 -> 0_1_0_0_>_0_1_1_1, so 01000111."""

    name = "odds_first"
    alphabet = "01"
    passes = (
        ColumnPass(every_other, writes="01_", start=True, direction="top_first"),
        ColumnPass(every_other, writes="01_", start=False, direction="top_first", reads=(0,)),
    )
    answer = "joined"
    example_question = "00110101"


@register_task
class MissingDuplicate(SomeWords):
    """Two equal words of which one symbol is hidden by 2, the second one behind a comma: 101,121 -> 0, the hidden symbol.

    2 is written until a hidden symbol is found, and then the symbol that stands opposite.
    """

    name = "missing_duplicate"
    operands = 2
    sign = ","
    alphabet = "012"
    start = 2
    example_question = "101,121"

    def operand_lengths(self, length, other=None):
        if other not in (None, length):
            raise ValueError(f"the two words of {self.name!r} have one length, got {length} and {other}")
        return super().operand_lengths(length)

    def sample_lengths(self, generator, count, min_length, max_length):
        lengths = super().sample_lengths(generator, count, min_length, max_length)
        return np.repeat(lengths[:, :1], 2, axis=1) if self.sampling == "questions" else lengths

    def group_lengths(self, generator, lengths, count, min_length):
        if self.sampling == "questions":
            return np.full((count, 2), lengths.max())
        return super().group_lengths(generator, lengths, count, min_length)

    def draw_questions(self, generator, lengths):
        """A word of 0 and 1 twice, of which 2 hides one symbol."""
        count, length = len(lengths), lengths[:, 0]
        operands = np.repeat(uniform_words(generator, lengths[:, :1], 2), 2, axis=1)
        hidden = generator.integers(0, length)
        operands[np.arange(count), generator.integers(0, 2, size=count), hidden] = 2
        return operands

    def check_question(self, question):
        """Raise ValueError for words of which no symbol is hidden, though the machine has an answer."""
        first, _, second = question.partition(",")
        different = [pair for pair in zip(first, second, strict=False) if pair[0] != pair[1]]
        hidden = [pair for pair in different if "2" in pair]
        if len(first) != len(second) or len(different) != 1 or not hidden or (first + second).count("2") != 1:
            raise ValueError(
                f"the question {question!r} is no word twice, of which 2 hides one symbol, such as {self.example_question}"
            )

    def step(self, found, symbols):
        first, second = symbols
        if found == 2 and 2 in symbols:
            found = second if first == 2 else first
        return found, found
