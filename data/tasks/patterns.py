"""Regular expressions, as the code of functions holds them and as a domain is given: their symbols, and texts that fit.

They are read by the module of Python that compiles them, which has no public name.
"""

# Used by: domain.py, data/learning/questions, hub_cards/research/theories. Changed freely.

import random
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

PRINTABLE = "".join(map(chr, range(33, 127)))
"""Symbols that a class of symbols stands for."""

MORE_REPEATS = 3
"""A part that may be repeated is repeated at most so many times more than it must be."""

_CATEGORIES = {"DIGIT": r"\d", "NOT_DIGIT": r"\D", "WORD": r"\w", "NOT_WORD": r"\W", "SPACE": r"\s", "NOT_SPACE": r"\S"}
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_SYMBOLS = ("LITERAL", "NOT_LITERAL", "ANY", "IN")


def read_pattern(text: str) -> Any:
    """A regular expression as its parts; None if the text is none, or has no part that stands for several texts."""
    try:
        tree = import_module("re._parser").parse(text)
    except (re.error, RecursionError, OverflowError):
        return None
    return tree if any(str(operation) not in ("LITERAL", "AT") for operation, _ in tree) else None


def readings_of_pattern(text: str) -> Iterator[str]:
    """The patterns that a text may be: as it stands, and, with spaces or comments in it, as `re.VERBOSE` reads it."""
    readings = (text, f"(?x:{text}\n)") if re.search(r"[\s#]", text) else (text,)
    return (reading for reading in readings if read_pattern(reading) is not None)


def symbols_of_pattern(text: str) -> str:
    """The symbols of the texts that fit a regular expression."""
    return "".join(sorted(set(_symbols_of(import_module("re._parser").parse(text)))))


def _symbols_of(tree: Any) -> Iterator[str]:
    for operation, value in tree:
        name = str(operation)
        if name in _SYMBOLS:
            yield from _class_of(name, value)
        elif name == "BRANCH":
            for part in value[1]:
                yield from _symbols_of(part)
        elif name in ("SUBPATTERN", *_REPEATS):
            yield from _symbols_of(value[-1])
        elif name == "ATOMIC_GROUP":
            yield from _symbols_of(value)


def text_of_pattern(tree: Any, generator: random.Random, more: int = MORE_REPEATS) -> str:
    """A text that a regular expression, as its parts, is likely to fit: what it looks ahead to or refers to is left out.

    Args:
        more: as `MORE_REPEATS`.
    """
    text = ""
    for operation, value in tree:
        name = str(operation)
        if name in _SYMBOLS:
            text += generator.choice(_class_of(name, value) or [""])
        elif name == "BRANCH":
            text += text_of_pattern(generator.choice(value[1]), generator, more)
        elif name == "SUBPATTERN":
            text += text_of_pattern(value[-1], generator, more)
        elif name == "ATOMIC_GROUP":
            text += text_of_pattern(value, generator, more)
        elif name in _REPEATS:
            least, most, part = value
            times = generator.randint(least, max(least, min(int(most), least + more)))
            text += "".join(text_of_pattern(part, generator, more) for _ in range(times))
    return text


def _class_of(name: str, value: Any) -> Sequence[str]:
    """The symbols that one part of a regular expression stands for."""
    return [chr(value)] if name == "LITERAL" else _symbols_in(tuple(value) if name == "IN" else ((name, value),))


@lru_cache(maxsize=1024)
def _symbols_in(items: tuple[tuple[object, Any], ...]) -> Sequence[str]:
    """The symbols that the items of a class stand for together."""
    if any(str(operation) == "ANY" for operation, _ in items):
        return PRINTABLE
    text = ""
    for operation, part in items:
        kind = str(operation)
        if kind in ("NEGATE", "NOT_LITERAL"):
            text += "^"
        if kind in ("LITERAL", "NOT_LITERAL"):
            text += re.escape(chr(part))
        elif kind == "RANGE":
            text += f"{re.escape(chr(part[0]))}-{re.escape(chr(part[1]))}"
        elif kind == "CATEGORY":
            text += _CATEGORIES[str(part).removeprefix("CATEGORY_")]
    return re.findall(f"[{text}]", PRINTABLE)
