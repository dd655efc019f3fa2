"""The texts that a rule is about: those that fit a regular expression, and texts close to these.

Random texts over an alphabet hardly ever fit one, so a rule is tested by texts that do, and by near misses.
"""

# Used by: column_task.py. Changed freely.

import random
import re
from functools import lru_cache

import numpy as np

from longhand.data.tasks.patterns import read_pattern, text_of_pattern

TEXTS_DRAWN = 4_000
"""Texts of an expression from which those of a length are taken."""

MORE_REPEATS = 64
"""A part that may be repeated is repeated at most so many times more than it must be."""


@lru_cache(maxsize=16)
def texts_of_domain(expression: str, alphabet: str) -> tuple[str, ...]:
    """Texts over an alphabet that fit a regular expression, the same ones every time."""
    tree, generator = read_pattern(expression), random.Random(expression)
    drawn = [text_of_pattern(tree, generator, MORE_REPEATS) for _ in range(TEXTS_DRAWN)] if tree else [expression]
    fits = re.compile(expression).fullmatch
    return tuple(dict.fromkeys(text for text in drawn if text and set(text) <= set(alphabet) and fits(text)))


@lru_cache(maxsize=256)
def _words_of_length(expression: str, alphabet: str, length: int) -> np.ndarray:
    """Texts of a domain as (count, length) places in the alphabet, the first symbol first.

    Where no text has the length, texts are cut off or go on at random: they are near misses.
    """
    texts = texts_of_domain(expression, alphabet)
    generator = random.Random(f"{expression} {length}")
    fitting = [text for text in texts if len(text) == length]
    if not fitting:
        fitting = [(text + "".join(generator.choices(alphabet, k=length)))[:length] for text in texts]
    places = {symbol: place for place, symbol in enumerate(alphabet)}
    return np.array([[places[symbol] for symbol in text] for text in fitting], dtype=np.uint8).reshape(-1, length)


def lengths_of_domain(expression: str, alphabet: str, most: int) -> list[int]:
    """So many lengths at most of the texts of a domain: the least, the largest, and some between them."""
    lengths = sorted({len(text) for text in texts_of_domain(expression, alphabet)})
    chosen = np.linspace(0, len(lengths) - 1, min(most, len(lengths))).round().astype(int)
    return [lengths[place] for place in chosen]


def near_domain(
    generator: np.random.Generator, count: int, operands: int, width: int, expression: str, alphabet: str
) -> np.ndarray:
    """Problems whose operands are texts of a domain, or near misses: one symbol is changed, or two neighbours are swapped.

    Returns:
        (count, operands, width) places in the alphabet, the last symbol first; half of them are texts of the domain.
    """
    words = _words_of_length(expression, alphabet, width)
    chosen = words[generator.integers(len(words), size=(count, operands))]
    kind = generator.choice(("changed", "swapped", "kept", "kept"), size=count)
    rows, operand = np.arange(count), generator.integers(operands, size=count)
    place = generator.integers(width, size=count)
    after = (place + 1) % width
    first, second = chosen[rows, operand, place], chosen[rows, operand, after]
    other = generator.integers(len(alphabet), size=count, dtype=np.uint8)
    chosen[rows, operand, place] = np.select([kind == "changed", kind == "swapped"], [other, second], first)
    chosen[rows, operand, after] = np.where(kind == "swapped", first, chosen[rows, operand, after])
    return chosen[:, :, ::-1]
