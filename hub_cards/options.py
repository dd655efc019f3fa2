"""Options of commands: a dataclass says what a command takes, and from it follow the parser, the help and the checks.

    @dataclass(frozen=True)
    class Options:
        models: list[str] = option("a folder, a Hub id, or a name of --list", metavar="MODEL", positional=True)
        ask: str | None = option("answer a question", None)
        seconds: float = option("seconds for each length", 10.0, above=0, purpose="measuring", excludes=("ask",))

    options = parse(parser_of(Options, prog="my-command"), Options, ["addition", "--seconds", "5"])

`hub_cards/training/fields.py` has the arguments of `train.py`, of which recipes give values too.
"""

# Used by: harness.py, push.py, eval.py, hub_cards/page, hub_cards/research, hub_cards/research/structured,
# hub_cards/research/theories, hub_cards/training. Changed freely.

import argparse
import dataclasses
import difflib
import operator
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import MISSING, Field, fields
from inspect import get_annotations
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, TypeVar, Union, cast, get_args, get_origin, get_type_hints

Declared = TypeVar("Declared")

MOST_NUMBERS = 10_000
"""Numbers of a list that an option takes."""

BOUNDS = {"least": ("at least", operator.ge), "most": ("at most", operator.le)}
BOUNDS |= {"above": ("above", operator.gt), "below": ("below", operator.lt)}
_LARGEST = 1e12


class OnceAction(argparse.Action):
    """An option with one value. argparse takes the last one of several; here the second is refused."""

    def __call__(self, parser, namespace, values, option_string=None):
        if option_string is not None:
            if self.dest in parser.given:
                first = getattr(namespace, self.dest)
                raise ValueError(f"{option_string} is given twice, {first} and {values}: give it once")
            parser.given.add(self.dest)
        setattr(namespace, self.dest, values)


class NumbersAction(OnceAction):
    """An option whose value is a list of numbers: `3 5`, `3,5`, `10:200:10` or `3,10:200:10`, for all commands alike."""


class OneLineParser(argparse.ArgumentParser):
    """Parser that raises ValueError instead of printing its usage and exiting, for `refusing_in_one_line`.

    Attributes:
        given: the options of the command line that were read so far, see `OnceAction`.
    """

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.given: set[str] = set()
        self.register("action", None, OnceAction)
        self.register("action", "store", OnceAction)

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)

    def parse_args(self, args=None, namespace=None):
        """As argparse; of an argument that is unknown, the message names those that may have been meant."""
        chosen, unknown = self.parse_known_args(args, namespace)
        if unknown:
            commands = [action for action in self._actions if isinstance(action, argparse._SubParsersAction)]
            parser = commands[0].choices[getattr(chosen, commands[0].dest)] if commands else self
            parser.refuse_unknown(unknown[0].partition("=")[0])
        return chosen

    def refuse_unknown(self, name: str) -> NoReturn:
        """Raise ValueError for an argument that is unknown."""
        close = difflib.get_close_matches(name, self._option_string_actions, n=3)
        raise ValueError(f"unknown argument {name!r}" + (f": did you mean {' or '.join(close)}?" if close else ""))

    def parse_known_args(self, args=None, namespace=None, **options):
        """As argparse; the words of a list of numbers are one, so that they end where a model's name begins."""
        words = sys.argv[1:] if args is None else list(args)
        self.given.clear()
        return super().parse_known_args(self._with_joined_numbers(words), namespace, **options)

    def _with_joined_numbers(self, words: list[str]) -> list[str]:
        listing = [name for action in self._actions if isinstance(action, NumbersAction) for name in action.option_strings]
        joined: list[str] = []
        is_listed = has_value = False
        for word in words:
            if is_listed and re.fullmatch(r"[\d,:]+", word):
                if has_value:
                    joined[-1] = f"{joined[-1].rstrip(',')},{word}"
                else:
                    joined.append(word)
                has_value = True
                continue
            name, has_value = word.partition("=")[0], "=" in word
            is_known = name in self._option_string_actions and name not in listing
            is_listed = (
                re.match("--.", name) is not None
                and not is_known
                and any(listed_name.startswith(name) for listed_name in listing)
            )
            joined.append(word)
        return joined


def read_numbers(text: str, least: int, most: int) -> list[int]:
    """Return `"10:200:10"` (both ends included), `"30,60,100"` or both mixed as a list; an empty one if the text is neither.

    Args:
        least: the least number that is legal.
        most: how many numbers are legal.
    """
    numbers: list[int] = []
    try:
        for part in text.split(","):
            start, *ends = map(int, part.split(":"))
            stop, *step = ends or [start]
            new = range(start, stop + 1, *step)
            if new.step < 1 or not 0 < len(new) <= most - len(numbers):
                return []
            numbers += new
    except (TypeError, ValueError):
        return []
    return numbers if min(numbers) >= least else []


def numbers_of(text: str) -> list[int]:
    """The type of an option that is a list of numbers, see `NumbersAction`."""
    numbers = read_numbers(text, 0, MOST_NUMBERS)
    if not numbers:
        raise argparse.ArgumentTypeError(
            f"give numbers such as 3 5 or 3,5, or START:STOP:STEP such as 10:200:10, at most "
            f"{MOST_NUMBERS:,} of them, got {text!r}"
        )
    return numbers


def option(meaning: str, default: object = MISSING, *, group: str = "", **about: Any) -> Any:
    """Return the field of an option.

    Args:
        meaning: what help says of it; `%(default)s` and `%(const)s` stand for the default and for `bare`.
        group: title of its group in the help.
        about: `metavar`; `choices`, the legal values; `bare`, the value of an option that is given without one;
            `positional`, whether it is given without its name; `purpose`, what the option is for, with the names of options
            that it `needs` or `excludes`; and bounds of each number, `least`, `most`, `above` or `below`. Others are for the
            command itself.
    """
    bounds = {name: about.pop(name) for name in BOUNDS if name in about}
    metadata = {"help": meaning, "group": group, "bounds": bounds, **about}
    if isinstance(default, list | dict):
        return dataclasses.field(default_factory=lambda: copy(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def default_of(declared: Field) -> Any:
    """Return the default of a field; MISSING if it has none."""
    return declared.default if declared.default_factory is MISSING else declared.default_factory()


def parser_of(kind: type, **described: Any) -> OneLineParser:
    """Return the parser of the options that a dataclass declares, in their groups.

    Args:
        described: as for `argparse.ArgumentParser`.
    """
    parser = OneLineParser(formatter_class=argparse.RawDescriptionHelpFormatter, **described)
    add_options(parser, kind)
    return parser


def add_options(parser: argparse.ArgumentParser, kind: type, group: str = "") -> None:
    """Add the options that a dataclass declares, in their groups: its own ones, then those that it inherits.

    Args:
        group: title of the group of options that name none.
    """
    hints, groups = get_type_hints(kind), {"": cast(argparse._ActionsContainer, parser)}
    own = get_annotations(kind)
    for declared in sorted(fields(kind), key=lambda field: field.name not in own):
        about = declared.metadata
        how = _how_it_is_read(hints[declared.name]) | {"help": about["help"], "default": default_of(declared)}
        how |= {name: about[name] for name in ("metavar", "choices") if name in about}
        if "bare" in about:
            how |= {"nargs": "?", "const": about["bare"]}
        if about.get("positional"):
            how.pop("action", None)
            if how["default"] is MISSING:
                del how["default"]
            else:
                how["nargs"] = "*" if "nargs" in how else "?"
        title = about["group"] or group
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        groups[title].add_argument(declared.name if about.get("positional") else f"--{declared.name}", **how)


def _how_it_is_read(hint: Any) -> dict[str, Any]:
    """Return what argparse needs to read the values of a type, such as `list[int] | None`."""
    is_union = get_origin(hint) in (Union, UnionType)
    kind = next(part for part in get_args(hint) if part is not NoneType) if is_union else hint
    if kind is bool:
        return {"action": "store_true"}
    if kind == list[int]:
        return {"action": NumbersAction, "type": numbers_of}
    if get_origin(kind) is list:
        return {"action": "extend", "nargs": "+", "type": get_args(kind)[0]}
    if get_origin(kind) is Literal:
        return {"choices": get_args(kind)}
    return {"type": kind}


def parse(parser: argparse.ArgumentParser, kind: type[Declared], words: Sequence[str] | None) -> Declared:
    """Return the options of a command line; None is that of the process.

    Raises:
        ValueError: an option is unknown or its value is not legal, or it does not go with another one.
    """
    options = kind(**vars(parser.parse_args(words)))
    check(options)
    return options


def check(options: Any) -> None:
    """Raise ValueError for an option out of its bounds, without what it needs, or beside what it excludes."""
    declared = {field.name: field for field in fields(options)}
    check_bounds(declared.values(), vars(options), "--")
    given = [name for name, field in declared.items() if getattr(options, name) != default_of(field)]
    for name in given:
        about = declared[name].metadata
        for excluded in about.get("excludes", ()):
            if excluded in given:
                raise ValueError(f"--{name} is for {about['purpose']}: leave it out with {_shown(declared[excluded])}")
        needs = about.get("needs", ())
        if not {*needs} <= {*given}:
            listed = " and ".join(f"--{needed}" for needed in needs)
            raise ValueError(f"--{name} is for {about['purpose']}: give {listed} too, or leave it out")


def _shown(field: Field) -> str:
    """What help calls an option."""
    return field.metadata.get("metavar", field.name) if field.metadata.get("positional") else f"--{field.name}"


def check_bounds(declared: Iterable[Field], values: Mapping[str, object], dashes: str = "") -> None:
    """Raise ValueError if a value breaks a bound of its field, or is infinite, NaN or very large.

    Args:
        values: by the names of the fields.
        dashes: what stands before the name of a field where it is given.
    """
    for field in declared:
        name, value = f"{dashes}{field.name}", values[field.name]
        for number in value if isinstance(value, list) else [value]:
            if not isinstance(number, int | float):
                continue
            for bounded, bound in field.metadata.get("bounds", {}).items():
                words, holds = BOUNDS[bounded]
                if not holds(number, bound):
                    raise ValueError(f"{name} must be {words} {bound}, got {value}")
            if not abs(number) < _LARGEST:
                raise ValueError(f"{name} must be a number below {_LARGEST:.0e}, got {value}")
