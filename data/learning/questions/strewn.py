"""The constants of a function's code, as its words have them.

A constant is a text over the alphabet, a number of repeats, columns or places, or, of functions of numbers, a value. Values
are also combined as code does it: `a * P == Q` turns on the quotient of two constants.
"""

# Used by: drawing.py, operands.py. Changed freely.

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from longhand.data.learning.questions.constants import LONGEST_CONSTANT, Constants
from longhand.data.learning.questions.words import Words, number_as_text
from longhand.data.tasks.patterns import readings_of_pattern

FRAGMENTS_DRAWN, LONGEST_DRAWN = 40, 20
"""Fragments, the short ones first, that stand in random words, and their symbols."""

MOST_REPEATS = 300
"""A number of up to so much is tried as a number of repeats, and as a place, of any symbol."""

MOST_COMBINED = 40
"""So many numbers, the small ones first, are combined with each other."""

MOST_VALUES = 3_000
"""Values, those of code first, that are tried."""

MOST_PATTERNS = 20
"""Regular expressions of which texts are drawn."""

BASES_OF_TEXTS = (2, 8, 10, 16)
"""Bases in which code writes numbers as texts."""


@dataclass(frozen=True)
class Strewn:
    """The constants of a function's code, as its words have them.

    Attributes:
        fragments: texts over the alphabet, the short ones first.
        values: of functions of numbers: numbers that the code holds, and combinations of them.
        counts: numbers of repeats, and places.
        long_counts: numbers of repeats that are larger, up to the columns of the longest words.
        patterns: regular expressions that code may hold.
        untried: what cannot be tried, in words; empty if there is nothing.
    """

    fragments: tuple[str, ...] = ()
    values: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
    long_counts: tuple[int, ...] = ()
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
        tuple(number for number in numbers if MOST_REPEATS < number <= longest),
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
    held = list(dict.fromkeys([*constants.numbers, *written]))
    few = sorted(held)[:MOST_COMBINED]
    pairs = [abs(value) for first, second in product(few, repeat=2) for value in _combined(first, second)]
    most = LONGEST_CONSTANT * math.log2(10)
    twice: list[int] = []
    if len(pairs) * len(few) <= MOST_VALUES:
        twice = [value for first, second in product(dict.fromkeys(pairs), few) for value in _combined(first, second)]
    found = dict.fromkeys(value for value in (*held, *pairs, *twice) if value >= 0 and value.bit_length() < most)
    return list(found)[:MOST_VALUES]


def _combined(first: int, second: int) -> Iterator[int]:
    """Numbers that code makes of two others, and of operands that it compares with them."""
    yield from (first + second, first - second, first * second, first ^ second, math.isqrt(first))
    if second:
        yield first // second
    if second <= MOST_REPEATS:
        yield first << second
        if first.bit_length() * second < 2_000:
            yield first**second
