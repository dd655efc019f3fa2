"""The constants that a function's code names or reaches: its answers may turn on them, and no random word shows it.

The walk goes from the function's code to nested functions, default arguments, closures, globals and modules that the code
names, their attributes that it names, helpers, classes with their methods and bases, and what objects and collections hold.
Functions of Python's own library are not entered.
"""

# Used by: data/learning/questions, data/learning, hub_cards/training. Changed freely.

import dis
import inspect
import math
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from importlib import import_module
from types import CodeType, FunctionType, ModuleType
from typing import Any

MOST_VALUES = 20_000
"""The walk ends after so many values."""

MOST_CONSTANTS = 1_000
"""So many numbers and so many texts are kept, those nearest to the function first."""

LONGEST_CONSTANT = 3_000
"""Symbols of the longest text, and decimal digits of the largest number, that is tried: Python writes 4,300 digits."""

SHOWN = 3
"""Things that a sentence names, before it counts the others."""

_ASCII = range(32, 127)

_HOLDING = ("__func__", "__self__", "func", "args", "keywords", "pattern", "start", "stop", "step", "fget", "__wrapped__")
"""Attributes in which methods, patterns, ranges and other objects of Python's own have what they are made of."""


@dataclass(frozen=True)
class Constants:
    """What a function's code compares with.

    Attributes:
        numbers: whole numbers, 0 or more; fractions are rounded both ways.
        texts: texts, patterns of regular expressions among them, and collections of symbols joined.
        untried: what was found and cannot be tried, in words.
        has_tables: whether there are sets or mappings among what the code reaches.
        codes: of the functions that were entered, and of those within them.
    """

    numbers: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()
    untried: tuple[str, ...] = ()
    has_tables: bool = False
    codes: tuple[CodeType, ...] = ()

    @property
    def sentence(self) -> str:
        """What cannot be tried, in words for a card; empty if there is nothing."""
        return f"not tried of what the code holds: {named(self.untried)}" if self.untried else ""


def named(things: Sequence[str], separator: str = ", ") -> str:
    """The first of some things by name, and how many more there are."""
    more = f" and {len(things) - SHOWN:,} more" if len(things) > SHOWN else ""
    return f"{separator.join(things[:SHOWN])}{more}"


def constants_of(function: Callable[..., object]) -> Constants:
    """The constants that a function's code names or reaches."""
    walk = _Walk()
    walk.waiting.append((function, frozenset()))
    while walk.waiting and walk.visited < MOST_VALUES:
        value, names = walk.waiting.popleft()
        walk.visit(value, names)
    if walk.waiting:
        walk.untried.append(f"{len(walk.waiting):,} values beyond the first {MOST_VALUES:,}")
    numbers, texts = walk.kept(walk.numbers, "numbers"), walk.kept(walk.texts, "texts")
    return Constants(numbers, texts, tuple(dict.fromkeys(walk.untried)), walk.has_tables, tuple(walk.codes))


@dataclass
class _Walk:
    """A walk over what a function reaches, the nearest first.

    Attributes:
        waiting: values, and the names that the code which reached them uses.
    """

    waiting: deque[tuple[Any, frozenset[str]]] = field(default_factory=deque)
    visited: int = 0
    seen: dict[tuple[int, frozenset[str] | None], object] = field(default_factory=dict)
    numbers: dict[int, None] = field(default_factory=dict)
    texts: dict[str, None] = field(default_factory=dict)
    untried: list[str] = field(default_factory=list)
    has_tables: bool = False
    codes: dict[CodeType, None] = field(default_factory=dict)

    def kept(self, found: Mapping[Any, None], kind: str) -> tuple:
        """The first constants of a kind."""
        if len(found) > MOST_CONSTANTS:
            self.untried.append(f"{len(found) - MOST_CONSTANTS:,} of {len(found):,} {kind}")
        return tuple(found)[:MOST_CONSTANTS]

    def visit(self, value: Any, names: frozenset[str]) -> None:
        """Keep a constant, or go on to what a value holds."""
        self.visited += 1
        if value is None or isinstance(value, bool):
            return
        if isinstance(value, int | float | complex | Decimal | Fraction):
            self.add_number(value)
        elif isinstance(value, str | bytes | bytearray):
            self.add_text(str.__str__(value) if isinstance(value, str) else value.decode("latin-1"))
            self.add_length(value, names)
        else:
            # Other code may name other attributes of a module.
            key = id(value), names if isinstance(value, ModuleType) else None
            if key not in self.seen:
                # Kept alive, so that no other value gets its id.
                self.seen[key] = value
                self.go_on(value, names)

    def add_number(self, value: Any) -> None:
        """Keep a number, or both whole numbers around it."""
        parts = (value.real, value.imag) if isinstance(value, complex) else (value,)
        for part in parts:
            if part != part or part in (math.inf, -math.inf):
                continue
            for whole in {abs(math.floor(part)), abs(math.ceil(part))}:
                if whole.bit_length() > LONGEST_CONSTANT * math.log2(10):
                    self.untried.append(f"a number of {whole.bit_length():,} bits")
                else:
                    self.numbers[whole] = None

    def add_text(self, text: str) -> None:
        """Keep a text."""
        if len(text) > LONGEST_CONSTANT:
            self.untried.append(f"the text {text[:10]!r}... of {len(text):,} symbols")
        elif text:
            self.texts[text] = None

    def add_length(self, value: Any, names: frozenset[str]) -> None:
        """Keep how many things a value holds, if the code asks for it."""
        if "len" in names:
            self.add_number(len(value))

    def push(self, values: Iterable[Any], names: frozenset[str]) -> None:
        """Values to visit later."""
        self.waiting.extend((value, names) for value in values)

    def go_on(self, value: Any, names: frozenset[str]) -> None:
        """What a value holds is visited later."""
        # A cached function looks its arguments up too.
        self.has_tables |= (isinstance(value, Mapping | set | frozenset) and bool(value)) or hasattr(value, "cache_info")
        if isinstance(value, FunctionType):
            if not is_of_python(value):
                self.enter_function(value)
        elif isinstance(value, ModuleType):
            held = vars(value)
            self.push((held[name] for name in sorted(names) if name in held), names)
        elif isinstance(value, Mapping):
            self.add_length(value, names)
            self.push(value.keys(), names)
            self.push((*value.values(), getattr(value, "default_factory", None)), names)
        elif isinstance(value, list | tuple | set | frozenset | deque):
            self.add_length(value, names)
            items = sorted(value, key=repr) if isinstance(value, set | frozenset) else list(value)
            if not isinstance(value, set | frozenset):
                self.push(_joined(items), names)
            self.push(items, names)
        elif isinstance(value, type):
            if not is_of_python(value):
                self.push((held for name, held in vars(value).items() if _is_own(name, held)), names)
                self.push((*value.__bases__, type(value)), names)
        elif callable(getattr(value, "tolist", None)):
            self.push((value.tolist(),), names)
        else:
            self.enter_object(value, names)

    def enter_function(self, function: FunctionType) -> None:
        """The constants of a function's code, what it names and imports, and what it was made with."""
        codes = list(nested_codes(function.__code__))
        self.codes |= dict.fromkeys(codes)
        constants = [constant for code in codes for constant in _loaded(code)]
        # A text may be a name too, of `getattr` or `globals`.
        texts = {constant for constant in constants if isinstance(constant, str) and constant.isidentifier()}
        names = frozenset(texts.union(*(code.co_names for code in codes)))
        self.push(constants, names)
        self.push(map(_module, sorted({name for code in codes for name in _imported(code)})), names)
        self.push((function.__defaults__, function.__kwdefaults__ or {}, *vars(function).values()), names)
        for cell in function.__closure__ or ():
            try:
                self.push((cell.cell_contents,), names)
            except ValueError:
                continue
        held = function.__globals__
        self.push((held[name] for name in sorted(names) if name in held), names)

    def enter_object(self, value: Any, names: frozenset[str]) -> None:
        """What an object holds, and the functions of its class."""
        kind = type(value)
        is_made_by_python = any(map(is_of_python, kind.__mro__[:-1]))
        held = [getattr(value, name) for name in _HOLDING if hasattr(value, name)] if is_made_by_python else []
        # A function of a module, such as `math.floor`, does not hold the module.
        held = [part for part in held if not isinstance(part, ModuleType)]
        attributes = vars(value) if hasattr(value, "__dict__") else {}
        # Python's own wrappers keep the names and texts of what they wrap.
        held += [part for name, part in attributes.items() if not (is_of_python(kind) and name.startswith("__"))]
        held += [getattr(value, name) for name in getattr(kind, "__slots__", ()) if hasattr(value, name)]
        if not held and not hasattr(value, "__dict__") and is_of_python(kind) and not _is_known_empty(value):
            self.untried.append(f"an object of type {kind.__name__}")
            # What it is made of, and its attributes that code names, may be constants all the same.
            with suppress(Exception):
                held += [*value.__reduce__()[1:], *(getattr(value, name) for name in sorted(names & {*dir(value)}))]
        self.push(held, names)
        self.push((kind,), names)


def nested_codes(code: CodeType) -> Iterator[CodeType]:
    """A code and those of the functions and comprehensions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from nested_codes(constant)


def _loaded(code: CodeType) -> Iterator[Any]:
    """The constants that a code's instructions load; the text of a function that no instruction loads is none."""
    for instruction in dis.get_instructions(code):
        name = instruction.opname
        # Newer versions of Python keep small numbers in the instructions themselves.
        if (instruction.opcode in dis.hasconst and name != "KW_NAMES") or name == "LOAD_SMALL_INT":
            yield instruction.argval


def _imported(code: CodeType) -> Iterator[str]:
    """The modules that a code imports."""
    instructions = dis.get_instructions(code)
    return (instruction.argval for instruction in instructions if instruction.opname == "IMPORT_NAME")


def _module(name: str) -> ModuleType | None:
    """The module of a name, which the function would import; None if it is of Python's own library, or is not found."""
    if name.partition(".")[0] in sys.stdlib_module_names:
        return None
    with suppress(Exception):
        return import_module(name)
    return None


def _is_own(name: str, held: Any) -> bool:
    """Whether something that a class holds is code of its author, or a value: of names with `__`, methods are."""
    return not name.startswith("__") or isinstance(held, FunctionType | staticmethod | classmethod)


def is_of_python(value: Any) -> bool:
    """Whether a function, class or module is of Python's own library, whose constants no function turns on."""
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")
    module = str(name).partition(".")[0]
    return module in sys.stdlib_module_names and module != "__main__"


def _is_known_empty(value: Any) -> bool:
    """Whether an object of Python's own library holds nothing that an answer could turn on."""
    return value is Ellipsis or value is NotImplemented or inspect.isroutine(value) or type(value) in (object, CodeType)


def _joined(items: list[Any]) -> list[str]:
    """Symbols or small numbers that stand in a row, as the text that they make."""
    if len(items) < 2 or any(isinstance(item, bool) for item in items):
        return []
    if all(isinstance(item, str) for item in items) and sum(map(len, items)) <= LONGEST_CONSTANT:
        return ["".join(items)]
    if not all(isinstance(item, int) for item in items):
        return []
    joined = ["".join(map(str, items))] if all(0 <= item < 36 for item in items) else []
    return joined + (["".join(map(chr, items))] if all(item in _ASCII for item in items) else [])
