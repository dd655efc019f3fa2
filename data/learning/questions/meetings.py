"""What operands meet while a function runs: values that its code computes stand nowhere in it.

A function is asked with numbers and texts that note what they are compared with. What operators and methods make of them,
such as `a % 97` or `str(a)[2:]`, notes it too; what is made of them otherwise, such as `int(text)`, does not.
"""

# Used by: operands.py. Changed freely.

import math
import random
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from types import MethodDescriptorType, WrapperDescriptorType
from typing import Any

from longhand.data.learning.questions.constants import LONGEST_CONSTANT, Constants, constants_of
from longhand.data.learning.questions.functions import PATIENCE, SECONDS, OutOfTime, alarm
from longhand.data.learning.questions.words import Words

MOST_MET = 100
"""So many numbers and so many texts are noted."""

RANDOM_ASKED = 150
"""Random words with which the function is asked, besides its constants."""

SHARE = 10
"""A function is asked here for one of so many parts of the seconds in which it has to be learned."""

FEW = 300
"""Smaller numbers that are added to operands or divide them are everywhere, and are not noted."""

NUMBERS: tuple[type[Any], ...] = (int, float, Decimal, Fraction)

_COMPARISONS = {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__contains__", "startswith", "endswith"}
_COMPARISONS |= {"find", "rfind", "index", "rindex", "count", "removeprefix", "removesuffix", "split", "partition"}

_LEFT = {"__new__", "__init__", "__hash__", "__getattribute__", "__sizeof__", "__getnewargs__", "__iter__"}
_LEFT |= {"__int__", "__float__", "__index__", "__bool__", "__len__", "__trunc__", "__bytes__", "__buffer__", "join"}
"""Methods that stay as they are, since Python asks for plain values there, or that are no operations."""

_UNSEEN = "a collection that the code makes and looks operands up in"
_TOO_SLOW = "what the code computes, which takes too long to be watched"


@dataclass
class Met:
    """What operands met.

    Attributes:
        is_looked_up: whether an operand was looked up in a set or a mapping.
    """

    numbers: dict[int, None] = field(default_factory=dict)
    texts: dict[str, None] = field(default_factory=dict)
    is_looked_up: bool = False

    def note(self, values: Iterable[Any], least: int) -> None:
        """Note numbers from the least one on, and texts of several symbols, that are not made of operands."""
        value: Any
        for value in values:
            if isinstance(value, tuple):
                self.note(value, least)
            elif isinstance(value, _MadeOfOperands | bool):
                continue
            elif isinstance(value, bytes):
                self.note([value.decode("latin-1")], least)
            elif isinstance(value, str) and 1 < len(value) <= LONGEST_CONSTANT and len(self.texts) < MOST_MET:
                self.texts[value] = None
            elif not isinstance(value, NUMBERS) or len(self.numbers) >= MOST_MET:
                continue
            elif value == value and least <= abs(value) < 10**LONGEST_CONSTANT:
                self.numbers |= dict.fromkeys((abs(math.floor(value)), abs(math.ceil(value))))


class _MadeOfOperands:
    """An operand, or what was made of one."""


def with_what_operands_meet(
    constants: Constants, function: Callable[..., object], words: Words, seconds: float = SECONDS
) -> Constants:
    """The constants, and what a function's operands meet that is none of them.

    Args:
        words: how its arguments are words, with the constants as fragments.
        seconds: of processor time in which the function has to be learned; this takes up to a tenth.
    """
    met, asked = Met(), set()
    kinds = _noting_kinds(met)
    generator = random.Random(0)
    chosen = [words.random_word(generator, 1, 20) for _ in range(RANDOM_ASKED)]
    chosen += [words.columns([text] * words.operands) for text in words.fragments]
    began, is_watched = time.monotonic(), False
    with suppress(OutOfTime), alarm(seconds / SHARE):
        for word in chosen:
            # A function that catches everything catches the alarm too.
            if time.monotonic() - began > PATIENCE * seconds / SHARE:
                break
            arguments = words.arguments(word)
            asked.update(arguments)
            with suppress(Exception, SystemExit):
                function(*(kinds[type(argument)](argument) for argument in arguments))
        else:
            is_watched = True
    # The function may have made values that it keeps, such as a table; what it was asked may be among them.
    kept = constants_of(function)
    made_numbers = [number for number in kept.numbers[: len(constants.numbers) + MOST_MET] if number not in asked]
    made_texts = [text for text in kept.texts[: len(constants.texts) + MOST_MET] if text not in asked]
    unseen = [_UNSEEN] if met.is_looked_up and not kept.has_tables else []
    unseen += [] if is_watched else [_TOO_SLOW]
    return replace(
        constants,
        numbers=tuple(dict.fromkeys((*constants.numbers, *met.numbers, *made_numbers))),
        texts=tuple(dict.fromkeys((*constants.texts, *met.texts, *made_texts))),
        untried=tuple(dict.fromkeys((*constants.untried, *kept.untried, *unseen))),
    )


def _noting_kinds(met: Met) -> dict[type, type]:
    """For each kind of value, one that does the same and notes what it meets."""
    kinds: dict[type, type] = {}

    def made(result: Any) -> Any:
        """A result of an operation, which notes what it meets."""
        kind = type(result)
        if kind in (list, tuple):
            return kind(map(made, result))
        return kinds[kind](result) if kind in kinds else result

    def noting(kind: type, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """A method that notes its arguments."""
        least = 0 if name in _COMPARISONS else FEW
        # An integer leaves operations with a fraction to that.
        as_fraction = getattr(float, name, None) if kind is int else None

        def operation(self: Any, *arguments: Any, **options: Any) -> Any:
            met.note(arguments, least)
            result = method(self, *arguments, **options)
            if result is NotImplemented and as_fraction and isinstance(arguments[0], float):
                result = as_fraction(float(self), *arguments)
            return made(result)

        return operation

    def symbols(self: Any) -> Iterable[Any]:
        """The symbols of a text, which note what they meet."""
        return map(made, str.__iter__(self))

    def looked_up(self: Any) -> int:
        # Single digits and symbols are counted, not looked up.
        met.is_looked_up |= len(str(self)) > 2
        return kinds_of[type(self)].__hash__(self)

    for kind in (int, float, str, bytes):
        methods = {
            name: noting(kind, name, method)
            for name, method in vars(kind).items()
            if isinstance(method, MethodDescriptorType | WrapperDescriptorType) and name not in _LEFT
        }
        if kind is str:
            # A text of a text is itself.
            methods = {name: method for name, method in methods.items() if name not in ("__str__", "__repr__")}
            methods["__iter__"] = symbols
        kinds[kind] = type(f"noting_{kind.__name__}", (_MadeOfOperands, kind), methods | {"__hash__": looked_up})
    kinds_of: dict[type, Any] = {noted: kind for kind, noted in kinds.items()}
    return kinds
