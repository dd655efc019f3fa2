"""A function read column by column: in a direction, with an answer that has a symbol for each column or is one symbol.

A function is *sequential* in a reading if what is written in a column depends on the columns that were read so far, through
finitely many states. Words stand in the order of reading here.
"""

# Used by: operands.py, data/learning. Changed freely.

from longhand.data.learning.questions.functions import AskedFunction, shown
from longhand.data.learning.questions.words import Word
from longhand.modeling.transducer import MOST_SYMBOLS, RESERVED

LONGEST_KEPT = 16
"""What is written for words of so many columns is kept, since each machine that is tried is compared on all short words."""

CAUSAL_WORDS = 400
"""Words whose beginnings are all asked before anything is learned."""


class NotSequential(Exception):
    """A function is not sequential in a reading; the message shows why.

    Attributes:
        counts: whether a machine has to count, in whatever direction it reads.
    """

    counts: bool = False


def is_written(symbol: str) -> bool:
    """Whether a pass may write a symbol."""
    return symbol not in RESERVED and symbol.isprintable() and not symbol.isspace()


class Reading:
    """A function in one reading.

    Args:
        answer: `"all"` if a symbol is written for each column, `"last"` if the answer is one symbol, the last one.

    Attributes:
        values: what each symbol of an answer stands for, in the order of its number. Digits of numbers are not in it.
    """

    def __init__(self, asked: AskedFunction, direction: str, answer: str):
        self.asked, self.direction, self.answer = asked, direction, answer
        self.values: list[int | str] = []
        self._numbers: dict[int | str, int] = {}
        self._written: dict[Word, tuple[int, ...]] = {}

    @property
    def writes_digits(self) -> bool:
        """Whether the answer is a number of which a digit is written for each column."""
        return self.answer == "all" and self.asked.words.are_numbers

    @property
    def name(self) -> str:
        """The direction, and whether one symbol answers, in words for a message."""
        order = "read from the ones" if self.direction == "ones_first" else "read from the top"
        order = order if self.asked.words.are_numbers else order.replace("ones", "end").replace("top", "beginning")
        return order if self.answer == "all" else f"{order} for one symbol"

    def turned(self, word: Word) -> Word:
        """A word in the order of reading, with its top column first; or back."""
        return word if self.direction == "top_first" else word[::-1]

    def written(self, word: Word) -> tuple[int, ...]:
        """The symbols that are written at the columns of a word.

        Raises:
            NotSequential: the answer has no symbol for each column.
        """
        if self.answer == "last":
            return tuple(self.last(word[:end]) for end in range(1, len(word) + 1))
        if len(word) > LONGEST_KEPT:
            return self._in_columns(word)
        if (known := self._written.get(word)) is None:
            known = self._written[word] = self._in_columns(word)
        return known

    def _in_columns(self, word: Word) -> tuple[int, ...]:
        """As `written`, of an answer that has a symbol for each column."""
        asked, top_first = self.asked, self.turned(word)
        value = asked(top_first)
        if not asked.words.are_numbers:
            if not isinstance(value, str) or len(value) != len(word):
                length = f"{len(value)} symbols" if isinstance(value, str) else "no text"
                raise NotSequential(f"{asked.equation(top_first)} has {length} for {len(word)} columns: write one for each")
            return tuple(map(self._number, self.turned(value)))  # type: ignore[arg-type]
        if not isinstance(value, int):
            raise NotSequential(f"{asked.equation(top_first)} is no number")
        if value < 0:
            raise NotSequential(f"{asked.equation(top_first)} is negative, and numbers are written without a sign")
        digits = asked.words.digits(value, len(word))
        if self.direction == "ones_first":
            return tuple(digits)
        if value >= asked.words.base ** len(word):
            raise NotSequential(f"{asked.equation(top_first)} is longer than its operands, and has no column at the top")
        return tuple(digits[::-1])

    def whole(self, word: Word) -> Word:
        """A word, its top column first, with zeros on top that its answer needs if it has a digit for each column."""
        if not self.writes_digits:
            return word
        value, width = self.asked(word), len(word)
        if not isinstance(value, int) or value < 0:
            return word
        return (0,) * (1 + max(0, self.asked.words.width(value) - width)) + word

    def last(self, word: Word) -> int:
        """The symbol that is written at the last column of a word."""
        if self.answer == "last":
            return self._number(self.asked(self.turned(word)))
        return self.written(word)[-1]

    def _number(self, value: int | str) -> int:
        """The number of a symbol.

        Raises:
            NotSequential: there are too many, or it cannot be written.
        """
        if value not in self._numbers:
            if self.answer == "all" and not is_written(str(value)):
                raise NotSequential(f"{self.asked.shown(self.asked.last_word)} has the reserved symbol {value!r}")
            if len(self.values) == MOST_SYMBOLS:
                raise NotSequential(f"it answers with more than {MOST_SYMBOLS} different symbols, {shown(value)} among them")
            self._numbers[value] = len(self.values)
            self.values.append(value)
        return self._numbers[value]

    def check_beginnings(self, generator) -> None:
        """Check that the first columns of a word are answered as these columns alone are answered.

        Raises:
            NotSequential: it is not; the message shows two problems.
        """
        if self.answer == "last":
            return
        for trial in range(CAUSAL_WORDS):
            word = self.asked.words.random_word(generator, 2, 4 if trial < CAUSAL_WORDS // 2 else 12)
            for end in range(1, len(word)):
                self.check_beginning(word, end)

    def check_beginning(self, word: Word, end: int) -> None:
        """As `check_beginnings`, of the first columns of one word."""
        asked, part, whole = self.asked, self.written(word[:end]), self.written(word)[:end]
        if part == whole:
            return
        first = next(column for column in range(end) if part[column] != whole[column])
        side = "last" if self.direction == "ones_first" else "first"
        columns = f"{side} {end} columns" if end > 1 else f"{side} column"
        raise NotSequential(
            f"{asked.equation(self.turned(word[:end]))} and {asked.equation(self.turned(word))} have the same {columns}, "
            f"and their answers differ {_nth(first)} of these"
        )


def _nth(column: int) -> str:
    return "in the first" if column == 0 else f"in number {column + 1}"
