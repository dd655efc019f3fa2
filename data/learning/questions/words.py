"""Numbers and texts as words: the arguments of a function, column by column.

A *letter* is one column: one symbol of each operand. Letters are numbered as the inputs of a table are, the first operand
most significant. A *word* is a tuple of letters, the top column first.
"""

# Used by: data/learning/questions, data/learning. Changed freely.

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, product

from longhand.data.digits import DIGITS as DIGITS

LETTERS = "abcdefghijklmnopqrstuvwxyz"
"""The alphabet of texts if none is given."""

MOST_LETTERS = 10_000
"""A task with more different columns is refused: each is an input of every state."""

GROUPS = 1_000
"""A number is cut into groups of digits, of which there are so many at most, or which are one digit each. The digits of a
long number are found in half the time that digit by digit takes."""

Word = tuple[int, ...]
Argument = int | str


def number_as_text(value: int, alphabet: str) -> str:
    """A number, 0 or more, in the base whose digits are the alphabet."""
    digits: list[str] = []
    while value or not digits:
        value, digit = divmod(value, len(alphabet))
        digits.append(alphabet[digit])
    return "".join(reversed(digits))


@dataclass(frozen=True)
class Words:
    """How the arguments of a function are words.

    Attributes:
        alphabet: the symbols of an operand; of numbers, the digits of their base.
        operands: how many arguments there are.
        are_numbers: whether arguments are numbers; otherwise they are texts.
        fragments: texts over the alphabet that are strewn into random words, such as constants of the function's code.
        single_out: makes `singled_out` when it is asked for first: many functions are refused before.
        untried: what the code holds and no word can show, in words; empty if there is nothing.
    """

    alphabet: str
    operands: int
    are_numbers: bool
    fragments: tuple[str, ...] = ()
    single_out: Callable[[], Iterable[Word]] = field(default=tuple, repr=False, compare=False)
    untried: str = ""

    @cached_property
    def singled_out(self) -> tuple[Word, ...]:
        """Words that hold the constants of the function's code, see `single_out` in `operands.py`."""
        return tuple(self.single_out())

    @cached_property
    def base(self) -> int:
        """Number of symbols."""
        return len(self.alphabet)

    @cached_property
    def count(self) -> int:
        """How many letters there are."""
        return self.base**self.operands

    @cached_property
    def letters(self) -> list[tuple[int, ...]]:
        """The places in the alphabet of each letter, one for each operand."""
        return list(product(range(self.base), repeat=self.operands))

    @cached_property
    def _symbols(self) -> list[str]:
        """For each operand, the symbol that it has in each letter."""
        return ["".join(self.alphabet[letter[operand]] for letter in self.letters) for operand in range(self.operands)]

    @cached_property
    def _are_bytes(self) -> bool:
        """Whether letters and symbols are bytes, which Python translates at once."""
        return self.count <= 256 and all(symbol < chr(256) for symbol in self.alphabet)

    @cached_property
    def _tables(self) -> list[bytes]:
        """As `_symbols`, as bytes are translated."""
        return [symbols.encode("latin-1").ljust(256) for symbols in self._symbols]

    @cached_property
    def _places(self) -> dict[str, int]:
        """The place of each symbol in the alphabet."""
        return {symbol: self.alphabet.index(symbol) for symbol in self.alphabet}

    @cached_property
    def _groups(self) -> list[tuple[int, ...]]:
        """The digits of each group, the ones first, by the number that it stands for."""
        columns = next(columns for columns in range(9, 0, -1) if columns == 1 or self.base**columns <= GROUPS)
        return [digits[::-1] for digits in product(range(self.base), repeat=columns)]

    def texts(self, word: Word) -> list[str]:
        """The operands of a word as texts."""
        if self._are_bytes:
            letters = bytes(word)
            return [letters.translate(table).decode("latin-1") for table in self._tables]
        return ["".join(map(symbols.__getitem__, word)) for symbols in self._symbols]

    def arguments(self, word: Word) -> list[Argument]:
        """The operands of a word, as a function takes them."""
        texts = self.texts(word)
        # A message may name the empty word.
        return [int(text or "0", self.base) for text in texts] if self.are_numbers else list(texts)

    def columns(self, operands: Sequence[str]) -> Word:
        """The word of operands, which are padded with the first symbol to the width of the longest one.

        Raises:
            ValueError: an operand has another symbol.
        """
        width = max(map(len, operands))
        try:
            padded = [operand.rjust(width, self.alphabet[0]) for operand in operands]
            first, *others = ([*map(self._places.__getitem__, operand)] for operand in padded)
        except KeyError as error:
            raise ValueError(f"{error.args[0]!r} is not in the alphabet {self.alphabet!r}") from error
        word = first
        for places in others:
            word = [letter * self.base + place for letter, place in zip(word, places, strict=True)]
        return tuple(word)

    def width(self, value: int) -> int:
        """The columns of a number that is not negative."""
        return len(number_as_text(value, self.alphabet))

    def digits(self, value: int, count: int) -> list[int]:
        """The lowest digits of a number that is not negative, the ones first."""
        groups, found = self._groups, list[int]()
        while len(found) < count:
            value, group = divmod(value, len(groups))
            found += groups[group]
        return found[:count]

    def uniform_word(self, generator: random.Random, length: int) -> Word:
        """A word of so many letters, each drawn by itself."""
        return tuple(generator.choices(range(self.count), k=length))

    def notable_words(self) -> list[Word]:
        """Numbers that functions single out and that random words never hit.

        Several operands are equal, follow each other, or one of them is the square of all others. The numbers are squares
        and cubes, powers of the small numbers, factorials, Fibonacci's numbers, and their neighbours.
        """
        if not self.are_numbers:
            return []
        numbers = {number**power for number in range(40, 400, 7) for power in (2, 3)}
        numbers |= {number**power for number in range(2, 11) for power in range(2, 60)}
        numbers |= {math.factorial(number) for number in range(4, 30)}
        first, second = 1, 2
        while second < 10**30:
            numbers.add(second)
            first, second = second, first + second
        numbers |= {number + more for number in numbers for more in (-1, 1)}
        rows = [[number] * self.operands for number in sorted(numbers)]
        if self.operands > 1:
            others = self.operands - 1
            rows += [[number, *[after] * others] for number, after in pairwise(sorted(numbers))]
            roots = [number for number in sorted(numbers) if number < 10**8]
            rows += [[root**2, *[root] * others] for root in roots] + [[*[root] * others, root**2] for root in roots]
        return [self.columns([number_as_text(number, self.alphabet) for number in row]) for row in rows]

    def random_word(self, generator: random.Random, shortest: int, longest: int) -> Word:
        """A word of some length.

        A third of them are uniform. The others are over two or three letters, which rare parts are made of; runs of few
        letters, in which carries go far; rows of one short word and then of another one, which a counter must tell apart;
        or a part and its copy or mirror image. If there are fragments, three in ten are made of parts of them.
        """
        length = generator.randint(shortest, longest)
        if self.fragments and generator.random() < 0.3:
            return self.columns([self._strewn(generator, length) for _ in range(self.operands)])
        kind = generator.choices(("uniform", "few letters", "rows", "copies", "runs"), (7, 4, 3, 2, 4))[0]
        letters = range(self.count)
        if kind == "uniform":
            return self.uniform_word(generator, length)
        if kind == "few letters":
            few = letters if self.count < 3 else generator.sample(letters, generator.randint(2, 3))
            return tuple(generator.choices(few, k=length))
        if kind == "rows":
            first, second = (generator.choices(letters, k=generator.randint(1, 3)) for _ in range(2))
            border = generator.randint(0, length)
            return tuple((first * length)[:border] + (second * length)[: length - border])
        if kind == "copies":
            part = generator.choices(letters, k=(length + 1) // 2)
            return tuple(part + part[:: generator.choice((1, -1))])[-length:]
        word = [generator.randrange(self.count)]
        while len(word) < length:
            word.append(generator.randrange(self.count) if generator.random() < 0.1 else word[-1])
        return tuple(word)

    def _strewn(self, generator: random.Random, length: int) -> str:
        """A text of fragments, some of them cut off, and of single symbols."""
        text = ""
        while len(text) < length:
            part = generator.choice((*self.fragments, generator.choice(self.alphabet)))
            if generator.random() < 0.5:
                part = part[: generator.randint(1, len(part))]
            text += part
        return text[:length]
