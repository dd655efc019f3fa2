"""Constants on which no answer was seen to turn: each is changed in a copy of the function, which is asked the same words.

A text that is compared with what becomes of an operand, such as that of a cipher, may be tried in all ways and never be hit.
Then the changed function answers as the function does, and what the constant is for was not seen.
"""

import copy
import dis
import reprlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from types import CellType, CodeType, FunctionType
from typing import Any

from longhand.data.learning.questions.constants import SHOWN, is_of_python, nested_codes
from longhand.data.learning.questions.functions import AskedFunction, OutOfTime, alarm, has_alarm
from longhand.data.learning.questions.operands import WithinDomain

LEAST_NUMBER, LEAST_TEXT = 100, 2
"""Smaller numbers and shorter texts are not changed: loops may end by them, and answers are seen to turn on nearly all."""

MOST_CHANGED = 40
"""So many constants are changed, each for itself."""

WORDS_ASKED = 4_000
"""Words that a changed function is asked."""

SECONDS_OF_ONE = 3.0
"""A changed function that takes longer may never end. It is taken for one that answers otherwise."""


def unseen_constants(function: Callable[..., object], asked: AskedFunction) -> str:
    """The constants of a function on which none of its answers turns, in words for a card; empty if there is none.

    Args:
        asked: the function as it was asked, with its answers.
    """
    # A changed function may never end.
    if not isinstance(function, FunctionType) or not has_alarm():
        return ""
    answers = asked.some_answers(WORDS_ASKED)
    unseen: dict[str, None] = {}
    for constant, changed in islice(_changed_functions(function, ()), MOST_CHANGED):
        within = replace(asked.function, function=changed) if isinstance(asked.function, WithinDomain) else changed
        if not _answers_otherwise(AskedFunction(within, asked.words, SECONDS_OF_ONE), answers):
            unseen[reprlib.repr(constant)] = None
    if not unseen:
        return ""
    more = f" and {len(unseen) - SHOWN:,} more" if len(unseen) > SHOWN else ""
    return f"no answer was seen to turn on {', '.join([*unseen][:SHOWN])}{more} of its code"


def _answers_otherwise(changed: AskedFunction, answers: Mapping[Any, int | str]) -> bool:
    """Whether a changed function answers a word in another way, or fails, or does not come to an end."""
    try:
        with alarm(SECONDS_OF_ONE):
            return any(changed(word) != answer for word, answer in answers.items())
    except (ValueError, OutOfTime):
        return True


def _changed_functions(function: FunctionType, within: tuple[FunctionType, ...]) -> Iterator[tuple[Any, FunctionType]]:
    """For each constant of a function, the constant and the function with another one, wherever it has it from.

    Args:
        within: the functions in which this one is a constant.
    """
    if function in within or is_of_python(function):
        return
    within = (*within, function)
    names = {name for code in nested_codes(function.__code__) for name in code.co_names}
    # What a changed function writes into a table that is kept must not be found there by the function itself.
    named = {
        name: copy.copy(value) if isinstance(value, dict | list | set) else value
        for name, value in function.__globals__.items()
    }
    cells = [cell.cell_contents for cell in function.__closure__ or () if cell != CellType()]
    closed = len(cells) == len(function.__closure__ or ())
    defaults = function.__defaults__ or ()

    def made(code: CodeType, named: dict[str, Any], cells: list[Any], defaults: tuple[Any, ...]) -> FunctionType:
        held = tuple(map(CellType, cells)) if closed else function.__closure__
        copied = FunctionType(code, named, function.__name__, defaults, held)
        copied.__kwdefaults__ = function.__kwdefaults__
        return copied

    for constant, code in _changed_codes(function.__code__):
        yield constant, made(code, named, cells, defaults)
    for constant, changed in _changed(defaults, within):
        yield constant, made(function.__code__, named, cells, changed)
    for constant, changed in _changed(cells, within) if closed else ():
        yield constant, made(function.__code__, named, changed, defaults)
    for name in sorted(names & named.keys()):
        for constant, changed in _changed(named[name], within):
            yield constant, made(function.__code__, named | {name: changed}, cells, defaults)


def _changed_codes(code: CodeType) -> Iterator[tuple[Any, CodeType]]:
    """For each constant of a code and the codes in it, the constant and the code with another one."""
    loads = {each.arg for each in dis.get_instructions(code) if each.opcode in dis.hasconst and each.opname != "KW_NAMES"}
    for place, held in enumerate(code.co_consts):
        changes = _changed_codes(held) if isinstance(held, CodeType) else _changed(held, ())
        for constant, changed in changes if place in loads else ():
            yield constant, code.replace(co_consts=(*code.co_consts[:place], changed, *code.co_consts[place + 1 :]))


def _changed(value: Any, within: tuple[FunctionType, ...]) -> Iterator[tuple[Any, Any]]:
    """For each constant in a value, the constant and the value with another one."""
    if isinstance(value, FunctionType):
        yield from _changed_functions(value, within)
    elif type(value) in (int, float) and LEAST_NUMBER <= abs(value) < float("inf"):
        yield value, value + 1
    elif type(value) is str and len(value) >= LEAST_TEXT and any(map(str.isalnum, value)):
        last = max(place for place, symbol in enumerate(value) if symbol.isalnum())
        other = next(symbol for symbol in "34bcBC" if symbol != value[last] and _alike(symbol, value[last]))
        yield value, value[:last] + other + value[last + 1 :]
    elif type(value) in (list, tuple, set, frozenset):
        items = list(value)
        for place, item in enumerate(items):
            for constant, changed in _changed(item, within):
                yield constant, type(value)([*items[:place], changed, *items[place + 1 :]])
    elif type(value) is dict:
        for constant, changed in _changed(list(value.items()), within):
            yield constant, dict(changed)


def _alike(one: str, other: str) -> bool:
    """Whether two symbols are both digits, both small letters, both capitals, or neither of the second is any of these."""
    kinds = (str.isdecimal, str.islower, str.isupper)
    return [kind(one) for kind in kinds] == [kind(other) for kind in kinds] or not any(kind(other) for kind in kinds)
