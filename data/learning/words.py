"""Numbers and texts as words: the arguments of a function, column by column.

A *letter* is one column: one symbol of each operand. Letters are numbered as the inputs of a table are, the first operand
most significant. A *word* is a tuple of letters, the top column first.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
"""The digits of the largest base."""

LETTERS = "abcdefghijklmnopqrstuvwxyz"
"""The alphabet of texts if none is given."""

MOST_LETTERS = 10_000
"""A task with more different columns is refused: each is an input of every state."""

Word = tuple[int, ...]
Argument = int | str


@dataclass(frozen=True)
class Words:
    """How the arguments of a function are words.

    Attributes:
        alphabet: the symbols of an operand; of numbers, the digits of their base.
        operands: how many arguments there are.
        are_numbers: whether arguments are numbers; otherwise they are texts.
    """

    alphabet: str
    operands: int
    are_numbers: bool

    @property
    def base(self) -> int:
        return len(self.alphabet)

    @property
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

    def texts(self, word: Word) -> list[str]:
        """The operands of a word as texts."""
        return ["".join([symbols[letter] for letter in word]) for symbols in self._symbols]

    def arguments(self, word: Word) -> list[Argument]:
        """The operands of a word, as a function takes them."""
        texts = self.texts(word)
        return [int(text, self.base) for text in texts] if self.are_numbers else list(texts)

    def columns(self, operands: Sequence[str]) -> Word:
        """The word of operands, which are padded with the first symbol to the width of the longest one.

        Raises:
            ValueError: an operand has another symbol.
        """
        width = max(map(len, operands))
        word = [0] * width
        for operand in operands:
            for column, symbol in enumerate(operand.rjust(width, self.alphabet[0])):
                word[column] = word[column] * self.base + self.alphabet.index(symbol)
        return tuple(word)

    def digits(self, value: int, count: int) -> list[int]:
        """The lowest digits of a number that is not negative, the ones first."""
        found = []
        for _ in range(count):
            value, digit = divmod(value, self.base)
            found.append(digit)
        return found

    def random_word(self, generator: random.Random, shortest: int, longest: int) -> Word:
        """A word of some length; three in ten are runs of few letters, in which carries go far."""
        length = generator.randint(shortest, longest)
        if generator.random() < 0.7:
            return tuple(generator.choices(range(self.count), k=length))
        word = [generator.randrange(self.count)]
        while len(word) < length:
            word.append(generator.randrange(self.count) if generator.random() < 0.1 else word[-1])
        return tuple(word)
