"""Words that hold the constants of a function's code: alone, changed, repeated, joined, and with random columns around them.

A constant is a text over the alphabet, a number of repeats, columns or places, or, of functions of numbers, a value. Values
are also combined as code does it: `a * P == Q` turns on the quotient of two constants.
"""

# Used by: operands.py, probes.py. Changed freely.

import math
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from longhand.data.learning.questions.constants import LONGEST_CONSTANT, Constants
from longhand.data.learning.questions.words import Word, Words, number_as_text
from longhand.data.tasks.patterns import read_pattern, readings_of_pattern, text_of_pattern

MOST_FRAGMENTS = 300
"""Texts over the alphabet of which all is tried, the short ones first; of others, each is tried alone and changed."""

FRAGMENTS_DRAWN, LONGEST_DRAWN = 40, 20
"""Fragments, the short ones first, that stand in random words, and their symbols."""

MOST_REPEATS = 300
"""A number of up to so much is tried as a number of repeats and as a place of any symbol."""

MOST_LONG_REPEATS = 4
"""So many larger numbers are tried as numbers of repeats and as places, of the shortest `UNITS_REPEATED_LONG` texts."""

UNITS_REPEATED_LONG = 12

MOST_COMBINED = 40
"""So many numbers, the small ones first, are combined with each other."""

MOST_VALUES = 3_000
"""Values, those of code first, that are tried."""

MOST_JOINED = 3_000
"""Pairs of a fragment and a fragment, a number of repeats, a number of columns: of each kind so many are tried."""

MOST_PATTERNS, TEXTS_OF_A_PATTERN = 20, 1_000
"""Regular expressions of which texts are drawn, and the texts of each; as many more have one symbol changed."""

WORDS_OF_A_LENGTH = 40
BASES_OF_TEXTS = (2, 8, 10, 16)
"""Bases in which code writes numbers as texts."""


@dataclass(frozen=True)
class Strewn:
    """The constants of a function's code, as its words have them.

    Attributes:
        fragments: texts over the alphabet, the short ones first.
        values: of functions of numbers: numbers that the code holds, and combinations of them.
        counts: numbers of repeats, and places.
        lengths: numbers of columns that are tried.
        patterns: regular expressions that code may hold.
        untried: what cannot be tried, in words; empty if there is nothing.
    """

    fragments: tuple[str, ...] = ()
    values: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()
    patterns: tuple[str, ...] = ()
    untried: str = ""

    @property
    def drawn(self) -> tuple[str, ...]:
        """The fragments that stand in random words."""
        return tuple(text for text in self.fragments if len(text) <= LONGEST_DRAWN)[:FRAGMENTS_DRAWN]


def strewn_of(constants: Constants, words: Words) -> Strewn:
    """The constants of a function's code, as its words have them."""
    written = {int(run) for text in constants.texts for run in re.findall("[0-9]{1,5}", text)}
    numbers = sorted({*constants.numbers, *written})
    longest = longest_of(words)
    lengths = [number for number in numbers if 0 < number <= longest]
    beyond = [number for number in constants.numbers if number > longest]
    untried = list(constants.untried)
    if beyond:
        more = f" and {len(beyond) - 1:,} more" if len(beyond) > 1 else ""
        untried.append(f"{_as_columns(min(beyond))}{more} as a number of columns")
    values = _values(constants) if words.are_numbers else []
    fragments = dict.fromkeys(
        text for text in _fragments(constants, words) if len(text) <= longest and set(text) <= set(words.alphabet)
    )
    ordered = sorted(fragments, key=lambda text: (len(text), text))
    return Strewn(
        tuple(ordered),
        tuple(values),
        tuple(number for number in numbers if 0 < number <= MOST_REPEATS),
        tuple(lengths),
        tuple(reading for text in constants.texts for reading in readings_of_pattern(text))[:MOST_PATTERNS],
        replace(constants, untried=tuple(untried)).sentence,
    )


def longest_of(words: Words) -> int:
    """Columns of the longest words that are tried: Python writes no number of more than 4,300 digits."""
    return int(LONGEST_CONSTANT / max(1.0, math.log10(words.base))) if words.are_numbers else LONGEST_CONSTANT


def _as_columns(number: int) -> str:
    return f"{number:,}" if number.bit_length() < 64 else f"a number of {number.bit_length():,} bits"


def _fragments(constants: Constants, words: Words) -> Iterator[str]:
    """Texts over the alphabet that the code holds, in any case and from either end."""
    for text in constants.texts:
        for spelt in dict.fromkeys((text, text.lower(), text.upper(), text.swapcase())):
            runs = _runs(spelt, words.alphabet)
            # Together they are the text without its other signs, such as those of `48,151,623`.
            for run in dict.fromkeys((*runs, *(["".join(runs)] if runs else []))):
                yield run
                yield run[::-1]
                if words.are_numbers:
                    yield from _in_other_bases(run, words)
    for number in constants.numbers:
        for near in {max(0, number - 1), number, number + 1}:
            if words.are_numbers:
                if near >= words.base:
                    yield number_as_text(near, words.alphabet)
            else:
                for spelt in (str(near), format(near, "x"), format(near, "b"), format(near, "o")):
                    if set(spelt) <= set(words.alphabet):
                        yield spelt


def _runs(text: str, alphabet: str) -> list[str]:
    """The longest parts of a text that are over an alphabet."""
    return re.findall(f"[{re.escape(alphabet)}]+", text)


def _in_other_bases(run: str, words: Words) -> Iterator[str]:
    """What a text of digits is as a number, if it is written in a base that code writes."""
    for base in BASES_OF_TEXTS:
        if base != words.base and all(int(symbol, 36) < base for symbol in run):
            yield number_as_text(int(run, base), words.alphabet)


def _values(constants: Constants) -> list[int]:
    """Numbers that the code holds, and combinations of two and of three of them."""
    written = [int(run) for text in constants.texts for run in re.findall("[0-9]+", text)]
    own = list(dict.fromkeys([*constants.numbers, *written]))
    few = sorted(own)[:MOST_COMBINED]
    pairs = [abs(value) for one, other in product(few, repeat=2) for value in _combined(one, other)]
    most = LONGEST_CONSTANT * math.log2(10)
    twice: list[int] = []
    if len(pairs) * len(few) <= MOST_VALUES:
        twice = [value for one, other in product(dict.fromkeys(pairs), few) for value in _combined(one, other)]
    found = dict.fromkeys(value for value in (*own, *pairs, *twice) if value >= 0 and value.bit_length() < most)
    return list(found)[:MOST_VALUES]


def _combined(one: int, other: int) -> Iterator[int]:
    """What code makes of two numbers, and of what it compares with them."""
    yield from (one + other, one - other, one * other, one ^ other, math.isqrt(one))
    if other:
        yield one // other
    if other <= MOST_REPEATS:
        yield one << other
        if one.bit_length() * other < 2_000:
            yield one**other


def strewn_words(strewn: Strewn, words: Words) -> list[Word]:
    """The words that hold constants; the same ones whenever they are asked for."""
    generator = random.Random(0)
    longest = longest_of(words)
    texts = list(dict.fromkeys(text for text in _texts(strewn, words, generator) if 0 < len(text) <= longest))
    rows = [[text] * words.operands for text in texts]
    if words.operands > 1:
        rows += list(_rows(strewn, words, texts, generator))
    rows += [[number_as_text(value, words.alphabet)] * words.operands for value in _near(strewn.values)]
    return list(dict.fromkeys(words.columns(row) for row in rows if any(row)))


def _near(values: Sequence[int]) -> list[int]:
    """Values and their neighbours."""
    return list(dict.fromkeys(max(0, value + more) for value in values for more in (0, -1, 1)))


def _texts(strewn: Strewn, words: Words, generator: random.Random) -> Iterator[str]:
    """Operands that hold constants."""
    drawing, longest = _Drawing(words.alphabet, generator), longest_of(words)
    fragments = strewn.fragments[:MOST_FRAGMENTS]
    yield from _of_patterns(strewn.patterns, drawing)
    for number, text in enumerate(strewn.fragments):
        yield from _changed(text, drawing)
        if number < MOST_FRAGMENTS:
            yield from _around(text, drawing)
    yield from _joined(fragments, drawing)
    units = list(dict.fromkeys((*fragments, *words.alphabet[:36])))
    long = [length for length in strewn.lengths if length > MOST_REPEATS][:MOST_LONG_REPEATS]
    long_repeats = list(product(units[:UNITS_REPEATED_LONG], long))
    for unit, count in (*drawing.some(list(product(units, strewn.counts))), *long_repeats):
        yield from _repeated(unit, count, longest, drawing)
    for unit, place in (*drawing.some(list(product(units, strewn.counts))), *long_repeats):
        for at in (place - 1, place, place + 1):
            yield from (drawing.of(at) + unit + drawing.up_to(9), drawing.up_to(9) + unit + drawing.of(at))
    filled = drawing.some(list(product(fragments, strewn.lengths)))
    for text, length in filled:
        times = min(WORDS_OF_A_LENGTH, 1 + MOST_JOINED // len(filled))
        for columns in (length - 1, *times * [length], length + 1):
            rest = columns - len(text)
            if rest > 0:
                yield from (text + drawing.of(rest), drawing.of(rest) + text)
    times = max(2, min(WORDS_OF_A_LENGTH, MOST_JOINED // max(1, len(strewn.lengths)))) // 2
    for length in strewn.lengths:
        for columns in (length - 1, length, length + 1):
            yield from _of_length(columns, times, drawing)


class _Drawing(NamedTuple):
    """Texts and choices that are drawn."""

    alphabet: str
    generator: random.Random

    def between(self, shortest: int, most: int) -> str:
        """A text with as many symbols."""
        return "".join(self.generator.choices(self.alphabet, k=self.generator.randint(shortest, most)))

    def of(self, length: int) -> str:
        """A text of a length."""
        return self.between(length, length)

    def up_to(self, most: int) -> str:
        """A text of so many symbols at most."""
        return self.between(0, most)

    def some(self, choices: Sequence[tuple]) -> Sequence[tuple]:
        """So many of the choices as are joined."""
        return choices if len(choices) <= MOST_JOINED else self.generator.sample(choices, MOST_JOINED)

    def with_one_changed(self, text: str) -> str:
        """A text with another symbol at one place, or the same."""
        place = self.generator.randrange(len(text))
        return text[:place] + self.generator.choice(self.alphabet) + text[place + 1 :]


def _of_patterns(patterns: Sequence[str], drawing: _Drawing) -> Iterator[str]:
    """Texts that a pattern matches, and such with one symbol changed."""
    for pattern in patterns:
        tree = read_pattern(pattern)
        for _ in range(TEXTS_OF_A_PATTERN // len(patterns)):
            text = text_of_pattern(tree, drawing.generator)
            if text and set(text) <= set(drawing.alphabet):
                yield from (text, drawing.with_one_changed(text))


def _changed(text: str, drawing: _Drawing) -> Iterator[str]:
    """A constant, and what is one symbol away from it."""
    yield from (text, text[:-1], text[1:])
    for _ in range(3):
        yield drawing.with_one_changed(text)


def _around(text: str, drawing: _Drawing) -> Iterator[str]:
    """A constant with symbols around it, few and many, and repeated."""
    drawn = drawing.between
    for _ in range(4):
        yield from (drawn(1, 3) + text, text + drawn(1, 3), drawn(1, 8) + text + drawn(1, 8))
    yield from (drawn(9, 60) + text, text + drawn(9, 60), drawn(9, 60) + text + drawn(9, 60))
    yield text[: drawing.generator.randint(1, len(text))] + drawn(1, 3)
    for times in range(2, 6):
        yield from (text * times, (text + drawn(1, 1)) * times)


def _joined(fragments: Sequence[str], drawing: _Drawing) -> Iterator[str]:
    """Two constants in one text, and three to six."""
    drawn, generator = drawing.up_to, drawing.generator
    for one, other in drawing.some(list(product(fragments, repeat=2))):
        yield from (one + other, drawn(2) + one + drawn(4) + other + drawn(2))
        if len(one) + len(other) > 2:
            # Two constants that overlap, as the beginning of one is the end of the other.
            yield from _overlapped(one, other)
    for _ in range(min(MOST_JOINED, 20 * len(fragments) ** 2)):
        row = generator.choices(fragments, k=generator.randint(3, 6))
        yield drawn(3) + "".join(each + drawn(2) * generator.randint(0, 1) for each in row)


def _repeated(unit: str, count: int, longest: int, drawing: _Drawing) -> Iterator[str]:
    """A text so many times, once less and once more, with something between or not."""
    drawn, between = drawing.between, drawing.up_to(2)
    for times in (count - 1, count, count + 1):
        if len(unit + between) * times <= longest:
            yield from (unit * times, (unit + between) * times, drawn(1, 5) + unit * times + drawn(1, 5))
        if times <= MOST_REPEATS and len(unit) * times <= longest:
            # A sign between so many parts, such as the dots of an address.
            for most in (1, 2, 4):
                yield drawn(1, most) + "".join(unit + drawn(1, most) for _ in range(times))


def _of_length(columns: int, times: int, drawing: _Drawing) -> Iterator[str]:
    """Texts of a length, some over few symbols."""
    alphabet, generator = drawing.alphabet, drawing.generator
    for _ in range(times if columns else 0):
        few = "".join(generator.sample(alphabet, min(len(alphabet), generator.randint(1, 3))))
        yield from (drawing.of(columns), "".join(generator.choices(few, k=columns)))
    if columns and len(alphabet) > 1:
        yield alphabet[1] + alphabet[0] * (columns - 1)


def _overlapped(one: str, other: str) -> Iterator[str]:
    """Two texts of which the end of the first is the beginning of the second, where there is such an end."""
    for shared in range(min(len(one), len(other)) - 1, 0, -1):
        if one.endswith(other[:shared]):
            yield one + other[shared:]
            return


def _rows(strewn: Strewn, words: Words, texts: Sequence[str], generator: random.Random) -> Iterator[list[str]]:
    """Operands of one question, of which some hold constants."""
    alphabet, operands = words.alphabet, words.operands

    def drawn(length: int) -> str:
        return "".join(generator.choices(alphabet, k=length))

    def fitted(text: str, length: int) -> str:
        """A text of a length: texts that are operands have one length."""
        return text if words.are_numbers else (text + drawn(max(0, length - len(text))))[:length]

    for text in texts:
        place = generator.randrange(operands)
        yield [text if own == place else drawn(len(text)) for own in range(operands)]
        if words.are_numbers:
            yield [text if own == place else "" for own in range(operands)]
    fragments = strewn.fragments[:MOST_FRAGMENTS] or ("",)
    for _ in range(min(MOST_JOINED, 10 * len(fragments) ** operands)):
        row = generator.choices(fragments, k=operands)
        length = max(map(len, row))
        yield [fitted(text, length) for text in row]
        half = generator.choice(fragments)
        cut = len(half) // 2
        yield [
            fitted(half[cut * own : cut * (own + 1)] if own < operands - 1 else half[cut * own :], cut)
            for own in range(operands)
        ]
    for value in strewn.values[:MOST_COMBINED]:
        for _ in range(3):
            first = generator.randrange(value + 1)
            more = generator.randrange(10 ** generator.randint(1, 12))
            others = [0] * (operands - 2)
            for numbers in ([first, value - first], [more + value, more], [more, more + value], [more, more ^ value]):
                yield [number_as_text(number, alphabet) for number in (*numbers, *others)]
