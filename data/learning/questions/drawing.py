"""Questions that are made of the constants of a function's code, and questions that are made of others.

Each operand is a text. The same ways serve both: a part is put at a place, repeated or joined to another text; a text is
cut, filled up to a length, or calculated as a number.
"""

# Used by: operands.py, probes.py. Changed freely.

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise, product

from longhand.data.learning.questions.strewn import MOST_REPEATS, Strewn, longest_of
from longhand.data.learning.questions.words import Word, Words, number_as_text
from longhand.data.tasks.patterns import read_pattern, text_of_pattern

MOST_FRAGMENTS = 300
"""Constants of which questions are made, the short ones first; of others, each is tried alone and changed."""

MOST_UNITS = 36
"""Single symbols that are repeated and put at places, besides constants."""

MOST_LONG_REPEATS, UNITS_REPEATED_LONG = 4, 12
"""So many large numbers are tried as numbers of repeats and as places, of so many texts, the short ones first."""

MOST_PAIRED = 3_000
"""Pairs of a text and a number of repeats that are tried."""

BESIDE_OTHERS = 10
"""Times that each constant is one of several operands, besides what is made of it."""

LONGEST_CHANGED = 60
"""Columns of the longest questions of which others are made."""

MOST_CUTS = 20
"""Ways in which the parts of a constant are the operands of a question."""

CONSTANTS_IN_TEXT = (1, 1, 1, 2, 3, 4)
"""Numbers of constants of a drawn text, each as often as it stands here."""

SYMBOLS_BETWEEN = (0, 0, 2)
"""Largest numbers of symbols between two constants of a drawn text, each as often as it stands here."""

MADE_BY_CHANCE = 1_000
"""Questions of constants alone that are drawn; as many more are made of these by several ways."""

NEAR_MISSES = 40
"""Questions that are made by chance of each question by which the code went a new way."""

TEXTS_OF_PATTERNS = 1_000
"""Texts of the regular expressions of a code; as many more have one symbol changed."""

MOST_SYMBOLS_HELD, MOST_PLACES = 60, 60
"""Symbols of constants, and places that code names, which are taken more often than others."""


@dataclass
class Drawing:
    """Ways to make the operands of questions.

    Attributes:
        strewn: the constants of the code.
        words: how questions are words.
        generator: draws what is left open.
        pool: questions of which parts are taken.
    """

    strewn: Strewn
    words: Words
    generator: random.Random
    pool: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        held = "".join(self.strewn.fragments)
        self._symbols = [*dict.fromkeys(symbol for symbol in held if symbol in self.words.alphabet)][:MOST_SYMBOLS_HELD]
        self._symbols = self._symbols or [*self.words.alphabet]
        self._places = [0, *self.strewn.counts[:MOST_PLACES]]
        self._longest = min(longest_of(self.words), 2 + 2 * max(12, *self._places))
        self._fragments = self.strewn.fragments[:MOST_FRAGMENTS]

    def words_with_constants(self) -> list[Word]:
        """The words that hold constants: alone, changed, repeated, at places, and made by chance."""
        words, longest = self.words, longest_of(self.words)
        texts = [text for text in dict.fromkeys(self.texts()) if 0 < len(text) <= longest]
        rows = [[text] * words.operands for text in texts]
        if words.operands > 1:
            rows += [row for text in (*texts, *self._fragments * BESIDE_OTHERS) for row in self.rows_with(text)]
            rows += [row for text in self._fragments for row in self._cut(text)]
        rows += self.made_by_chance()
        values = dict.fromkeys(max(0, value + more) for value in self.strewn.values for more in (0, -1, 1))
        rows += [[number_as_text(value, words.alphabet)] * words.operands for value in values]
        return list(dict.fromkeys(words.columns(row) for row in rows if any(row)))

    def texts(self) -> Iterator[str]:
        """Operands that hold constants, each constant in each way."""
        yield from self._of_patterns()
        for text in self.strewn.fragments:
            yield from (text, text[:-1], text[1:], *(self._with_one_changed(text) for _ in range(3)))
            yield from self._around(text)
        units = list(dict.fromkeys((*self._fragments, *self.words.alphabet[:MOST_UNITS])))
        pairs = self._some(list(product(units, self.strewn.counts)), MOST_PAIRED)
        long = self.strewn.long_counts[:MOST_LONG_REPEATS]
        for unit, count in (*pairs, *product(units[:UNITS_REPEATED_LONG], long)):
            for near in (count - 1, count, count + 1):
                yield from self._repeats(unit, near)
                yield from (self._drawn(near) + unit + self._between(0, 9), self._between(0, 9) + unit + self._drawn(near))

    def rows_with(self, text: str) -> Iterator[list[str]]:
        """Operands of which one is a text; the others have its length, or any, or are 0, or a digit before zeros."""
        place, numbers = self.generator.randrange(self.words.operands), range(self.words.operands)
        kinds = [[self._drawn(len(text)) for _ in numbers]]
        if self.words.are_numbers:
            widths = [self.generator.randint(0, 2 * len(text)) for _ in numbers]
            kinds.append([""] * self.words.operands)
            kinds.append([self._drawn(width) for width in widths])
            kinds.append([self._drawn(1) + self.words.alphabet[0] * width for width in widths])
        for others in kinds:
            yield [*others[:place], text, *others[place + 1 :]]

    def made_by_chance(self) -> Iterator[list[str]]:
        """Questions whose operands are constants, one or several in a text, and questions that are made of these."""
        fragments = [text for text in self._fragments if len(text) <= LONGEST_CHANGED] or self._symbols
        self.pool = [[text] for text in fragments]
        for _ in range(MADE_BY_CHANCE):
            row = self._fitted([self._one_or_several(fragments) for _ in range(self.words.operands)])
            yield from (row, self.changed(row))

    def changed(self, row: Sequence[str]) -> list[str]:
        """A question that is made of another one by one to three ways."""
        changed = list(row)
        for _ in range(self.generator.choice((1, 1, 2, 3))):
            place = self.generator.randrange(len(changed))
            if self.words.are_numbers and self.generator.random() < 0.2:
                text = self._calculated(changed[place], changed)
            else:
                text = self.generator.choice(self._ways)(changed[place])
            changed[place] = text[: self._longest] or self.words.alphabet[0]
        return self._fitted(changed)

    def near_misses(self, row: Sequence[str], most: int) -> Iterator[list[str]]:
        """Questions that differ from another one in a symbol at a place that code names, and questions that are made of it.

        Args:
            most: so many of the first.
        """
        choices = list(product(range(len(row)), self._symbols, self._places, (True, False)))
        for number, symbol, place, from_end in self._some(choices, most):
            yield self._fitted([*row[:number], self._put(row[number], symbol, place, from_end), *row[number + 1 :]])
        for _ in range(NEAR_MISSES):
            yield self.changed(row)

    def _one_or_several(self, fragments: Sequence[str]) -> str:
        """One constant, or up to four one behind the other, with something between or not."""
        parts = self.generator.choices(fragments, k=self.generator.choice(CONSTANTS_IN_TEXT))
        most = self.generator.choice(SYMBOLS_BETWEEN)
        return parts[0] + "".join(self._between(0, most) + part for part in parts[1:])

    def _cut(self, text: str) -> Iterator[list[str]]:
        """Operands that make a text together, one behind the other."""
        choices = list(combinations(range(1, min(len(text), LONGEST_CHANGED)), self.words.operands - 1))
        for places in self._some(choices, MOST_CUTS):
            yield self._fitted([text[first:end] for first, end in pairwise((0, *places, len(text)))])

    def _some(self, choices: list[tuple], most: int) -> list[tuple]:
        """So many of some choices, or all of them if these are fewer."""
        return choices if len(choices) <= most else self.generator.sample(choices, most)

    def _fitted(self, row: Sequence[str]) -> list[str]:
        """Operands as the function takes them: texts have the length of the first one."""
        if self.words.are_numbers:
            return list(row)
        width = len(row[0])
        return [text[:width] + self._drawn(width - len(text)) for text in row]

    @property
    def _ways(self) -> Sequence[Callable[[str], str]]:
        ways = [self._with_symbol, self._with_symbol, self._with_symbol, self._with_fragment, self._of_a_length]
        return [*ways, self._with_repeats, self._joined, self._without_a_part]

    def _drawn(self, count: int) -> str:
        """A text of so many random symbols."""
        return "".join(self.generator.choices(self.words.alphabet, k=max(0, count)))

    def _between(self, shortest: int, longest: int) -> str:
        """A text with as many random symbols."""
        return self._drawn(self.generator.randint(shortest, longest))

    def _symbol(self) -> str:
        return self.generator.choice(self._symbols if self.generator.random() < 0.8 else self.words.alphabet)

    def _with_one_changed(self, text: str) -> str:
        """A text with another symbol at one place, or the same."""
        place = self.generator.randrange(len(text))
        return text[:place] + self._drawn(1) + text[place + 1 :]

    def _put(self, text: str, part: str, place: int, from_end: bool) -> str:
        """A text with a part at a place, counted from the beginning or from the end; what is missing is drawn."""
        if from_end:
            text = self._drawn(place + len(part) - len(text)) + text
            end = len(text) - place
            return text[: max(0, end - len(part))] + part + text[end:]
        text += self._drawn(place - len(text))
        return text[:place] + part + text[place + len(part) :]

    def _put_somewhere(self, text: str, part: str) -> str:
        """A text with a part at a place that the code names, or at one of the text."""
        is_named = self.generator.random() < 0.6
        place = self.generator.choice(self._places) if is_named else self.generator.randint(0, len(text))
        return self._put(text, part, place, self.generator.random() < 0.5)

    def _around(self, text: str) -> Iterator[str]:
        """A text with few or many symbols before it, behind it, and on both sides."""
        for most in (1, 3, 9, 60):
            yield from (self._between(1, most) + text, text + self._between(1, most))
            yield self._between(1, most) + text + self._between(1, most)

    def _repeats(self, unit: str, count: int) -> Iterator[str]:
        """A text so many times, with something between or not, and with something around it or not."""
        between = self._between(0, 2)
        if (len(unit) + len(between)) * count > longest_of(self.words):
            return
        repeated = unit * count
        yield from (repeated, (unit + between) * count, self._between(1, 5) + repeated + self._between(1, 5))
        if count <= MOST_REPEATS:
            # A sign between so many parts, such as the dots of an address.
            for most in (1, 2, 4):
                yield self._between(1, most) + "".join(unit + self._between(1, most) for _ in range(count))

    def _of_patterns(self) -> Iterator[str]:
        """Texts that a pattern matches, and such with one symbol changed."""
        for pattern in self.strewn.patterns:
            tree = read_pattern(pattern)
            for _ in range(TEXTS_OF_PATTERNS // len(self.strewn.patterns)):
                text = text_of_pattern(tree, self.generator)
                if text and set(text) <= set(self.words.alphabet):
                    yield from (text, self._with_one_changed(text))

    def _with_symbol(self, text: str) -> str:
        return self._put_somewhere(text, self._symbol())

    def _with_fragment(self, text: str) -> str:
        part = self.generator.choice(self._fragments or self._symbols)
        return part if self.generator.random() < 0.3 else self._put_somewhere(text, part)

    def _near_a_place(self, *further: int) -> int:
        """A place that the code names, or the one before or behind it, 1 or more."""
        return max(1, self.generator.choice((*further, *self._places)) + self.generator.choice((-1, 0, 0, 1)))

    def _of_a_length(self, text: str) -> str:
        length = self._near_a_place()
        return text[:length] + self._drawn(length - len(text))

    def _with_repeats(self, text: str) -> str:
        at = self.generator.randint(0, len(text))
        return text[:at] + self._symbol() * self._near_a_place(1) + text[at:]

    def _joined(self, text: str) -> str:
        """The beginning of a text, and the end of an operand of the pool."""
        further = self.generator.choice(self.generator.choice(self.pool))
        return text[: self.generator.randint(0, len(text))] + further[self.generator.randint(0, len(further)) :]

    def _without_a_part(self, text: str) -> str:
        first = self.generator.randint(0, len(text))
        return text[:first] + text[first + self.generator.randint(1, 3) :]

    def _calculated(self, text: str, row: Sequence[str]) -> str:
        """A number that is made of an operand, of one of its question, and of a constant."""
        number, further = (int(operand, self.words.base) for operand in (text, self.generator.choice(row)))
        near = self.generator.choice(self.strewn.values or (1,)) + self.generator.choice((-1, 0, 0, 0, 1))
        made = [number + near, number - near, further + near, further - near, near - further, further * near, near]
        return number_as_text(abs(self.generator.choice(made)), self.words.alphabet)
