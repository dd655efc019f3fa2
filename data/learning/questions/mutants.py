"""Constants on which no answer was seen to turn: each is changed in a copy of the function, which is asked the same words.

A text that is compared with what becomes of an operand, such as that of a cipher, may be tried in all ways and never be hit.
Then the changed function answers as the function does, and what the constant is for was not seen. Names and the messages of
errors are no such constants.
"""

# Used by: data/learning. Changed freely.

import copy
import dis
import math
import reprlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

from longhand.data.learning.questions.constants import Constants, constants_of, is_of_python, named, nested_codes
from longhand.data.learning.questions.functions import AskedFunction, OutOfTime, alarm, has_alarm
from longhand.data.learning.questions.operands import WithinDomain

MOST_CHANGED = 100
"""So many constants are changed, each for itself."""

WORDS_ASKED = 4_000
"""Words that a changed function is asked."""

MOST_WITHIN = 4
"""So many functions and objects within each other are entered."""

SECONDS_OF_ONE, SECONDS_OF_ALL = 3.0, 20.0
"""A changed function that takes longer may never end. It is taken for one that answers otherwise. No further constant is
changed when all together have taken the longer time."""


def unseen_constants(function: Callable[..., object], asked: AskedFunction, held: Constants) -> str:
    """The constants of a function on which none of its answers turns, in words for a card; empty if there is none.

    Nothing is said of a function that has kept something since, such as answers in a table: a changed one would find these.

    Args:
        asked: the function as it was asked, with its answers.
        held: the constants of the function before it was asked.
    """
    # A changed function may never end.
    if not isinstance(function, FunctionType) or not has_alarm() or constants_of(function) != held:
        return ""
    answers, began = asked.telling_answers(WORDS_ASKED), time.process_time()
    is_seen: dict[str, bool] = {}
    for constant, changed in islice(_changed_functions(function, ()), MOST_CHANGED):
        if time.process_time() - began > SECONDS_OF_ALL:
            break
        within = replace(asked.function, function=changed) if isinstance(asked.function, WithinDomain) else changed
        # A constant that stands in several places is seen if it is in one.
        shown = reprlib.repr(constant)
        is_seen[shown] = is_seen.get(shown, False) or _answers_otherwise(
            AskedFunction(within, asked.words, SECONDS_OF_ONE), answers
        )
    unseen = [shown for shown, seen in is_seen.items() if not seen]
    return f"no answer was seen to turn on {named(unseen)} of its code" if unseen else ""


def _answers_otherwise(changed: AskedFunction, answers: Mapping[Any, int | str]) -> bool:
    """Whether a changed function answers a word in another way, or fails, or does not come to an end."""
    try:
        with alarm(SECONDS_OF_ONE, lambda: changed.call_began):
            return any(changed(word) != answer for word, answer in answers.items())
    except (ValueError, OutOfTime):
        return True


def _changed_functions(function: FunctionType, within: tuple[Any, ...]) -> Iterator[tuple[Any, FunctionType]]:
    """For each constant of a function, the constant and the function with another one, wherever it has it from.

    Args:
        within: the functions and objects in which this one is a constant.
    """
    if any(function is outer for outer in within) or is_of_python(function):
        return
    within = (*within, function)
    # A class within a function names its module.
    names = {name for code in nested_codes(function.__code__) for name in code.co_names if not name.startswith("__")}
    # What a changed function writes into a table must not be found there by the function itself.
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

    for constant, code in _changed_codes(function.__code__, _names_in(function.__code__)):
        yield constant, made(code, named, cells, defaults)
    for constant, changed in _changed(defaults, within):
        yield constant, made(function.__code__, named, cells, changed)
    for constant, changed in _changed(cells, within) if closed else ():
        yield constant, made(function.__code__, named, changed, defaults)
    for name in sorted(names & named.keys()):
        for constant, changed in _changed(named[name], within):
            yield constant, made(function.__code__, named | {name: changed}, cells, defaults)


def _names_in(code: CodeType) -> set[str]:
    """The names in a code, which its instructions load as texts where it imports, annotates and makes classes."""
    names = {"return", *code.co_names}
    _, *within = nested_codes(code)
    for inner in within:
        names.update(inner.co_names, inner.co_varnames, inner.co_cellvars, (inner.co_name, inner.co_qualname))
    return names


def _changed_codes(code: CodeType, names: set[str]) -> Iterator[tuple[Any, CodeType]]:
    """For each constant of a code and the codes in it, but for names, the constant and the code with another one."""
    instructions = [*dis.get_instructions(code)]
    raising = {_line_of(instruction) for instruction in instructions if instruction.opname == "RAISE_VARARGS"} - {None}
    loads = {
        instruction.arg
        for instruction in instructions
        if instruction.opcode in dis.hasconst and instruction.opname != "KW_NAMES" and _line_of(instruction) not in raising
    }
    for place, held in enumerate(code.co_consts):
        changes = _changed_codes(held, names) if isinstance(held, CodeType) else _changed(held, ())
        for constant, changed in changes if place in loads else ():
            if constant not in names:
                yield constant, code.replace(co_consts=(*code.co_consts[:place], changed, *code.co_consts[place + 1 :]))


def _line_of(instruction: dis.Instruction) -> int | None:
    """The line of the source that an instruction comes from, if that is known."""
    return instruction.positions.lineno if instruction.positions else None


def _changed(value: Any, within: tuple[Any, ...]) -> Iterator[tuple[Any, Any]]:
    """For each constant in a value, the constant and the value with another one."""
    if isinstance(value, FunctionType):
        yield from _changed_functions(value, within)
    elif type(value) is int:
        yield value, value + 1
    elif type(value) is float and abs(value) < math.inf:
        # Among large floats, the next one is more than 1 away.
        yield value, value + max(1.0, math.ulp(value))
    elif type(value) is str and any(map(str.isalnum, value)):
        last = max(place for place, symbol in enumerate(value) if symbol.isalnum())
        other = next(symbol for symbol in "34bcBC" if symbol != value[last] and _alike(symbol, value[last]))
        yield value, value[:last] + other + value[last + 1 :]
    elif type(value) is bytes:
        for _, changed in _changed(value.decode("latin-1"), within):
            yield value, changed.encode("latin-1")
    elif type(value) in (list, tuple, set, frozenset):
        # Texts in a set have another order in each process.
        items = sorted(value, key=repr) if isinstance(value, set | frozenset) else list(value)
        for place, item in enumerate(items):
            for constant, changed in _changed(item, within):
                yield constant, type(value)([*items[:place], changed, *items[place + 1 :]])
    elif type(value) is slice:
        for constant, (start, stop, step) in _changed((value.start, value.stop, value.step), within):
            yield constant, slice(start, stop, step)
    elif type(value) is dict:
        for constant, changed in _changed(list(value.items()), within):
            yield constant, dict(changed)
    elif len(within) < MOST_WITHIN and hasattr(value, "__dict__") and not is_of_python(value):
        yield from _changed_attributes(value, within)


def _changed_attributes(value: Any, within: tuple[Any, ...]) -> Iterator[tuple[Any, Any]]:
    """As `_changed`, of the attributes of an object, a class or a module that code names, or a method that code names."""
    kind = value if isinstance(value, type) else type(value)
    named = _attributes_in(within)
    named |= _attributes_in([held for name, held in vars(kind).items() if name in named])
    for name in sorted(named & vars(value).keys()):
        for constant, changed in _changed(vars(value)[name], (*within, value)):
            try:
                copied = _with_attribute(value, name, changed)
            except Exception:
                # It is of a kind that is not copied.
                break
            yield constant, copied


def _attributes_in(values: Iterable[Any]) -> set[str]:
    """The names in the codes of the functions among some values."""
    functions = [value for value in values if isinstance(value, FunctionType)]
    return {name for function in functions for code in nested_codes(function.__code__) for name in code.co_names}


def _with_attribute(value: Any, name: str, changed: Any) -> Any:
    """A copy of an object or a module, or a class of a class, that has another attribute."""
    if isinstance(value, type):
        return type(value)(value.__name__, (value,), {name: changed})
    copied = ModuleType(value.__name__) if isinstance(value, ModuleType) else copy.copy(value)
    vars(copied).update({**vars(value), name: changed})
    return copied


def _alike(symbol: str, other_symbol: str) -> bool:
    """Whether two symbols are both digits, both small letters, both capitals, or neither of the second is any of these."""
    kinds = [kind(symbol) for kind in (str.isdecimal, str.islower, str.isupper)]
    other_kinds = [kind(other_symbol) for kind in (str.isdecimal, str.islower, str.isupper)]
    return kinds == other_kinds or not any(other_kinds)
