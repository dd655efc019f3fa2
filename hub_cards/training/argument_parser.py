"""How a recipe or a command line is read: arguments with meanings and bounds, and a parser that refuses in one line."""

import argparse
import difflib
import json
import operator
from collections.abc import Callable
from copy import copy
from dataclasses import MISSING, Field, field
from typing import Any, NoReturn

from transformers import HfArgumentParser


def argument(default: Any, meaning: str, **bounds: float) -> Any:
    """Return the field of an argument, with its meaning and the `BOUNDS` of its value, or of each of its values."""
    metadata = {"help": meaning, **bounds}
    if isinstance(default, list | dict):
        return field(default_factory=lambda: copy(default), metadata=metadata)
    return field(default=default, metadata=metadata)


BOUNDS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "least": ("at least", operator.ge),
    "above": ("above", operator.gt),
    "below": ("below", operator.lt),
    "most": ("at most", operator.le),
}
"""What an argument may declare of its value, by name: the words for it, and whether a value holds it."""


UNSET = "unset"
"""As the only value on a command line: what a recipe gives is taken back, and the argument's own default holds."""


class Parser(HfArgumentParser):
    """Parser that raises ValueError, in one line, instead of printing a usage of several screens and exiting."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)

    def add_argument(self, *name_or_flags: str, **options: Any) -> argparse.Action:
        """Add an argument that has no value unless one is given; `initial`, `help` and `bounds` of it are for the help."""
        bounds = {name: options.pop(name) for name in BOUNDS if name in options}
        meaning = options.pop("help", "")
        action: Any = super().add_argument(*name_or_flags, **options)
        action.initial, action.default, action.help, action.bounds = action.default, argparse.SUPPRESS, meaning, bounds
        return action

    def argument(self, name: str) -> Any:
        """Return the argument of that name as it was added; None if there is none."""
        action = self._option_string_actions.get(f"--{name}")
        return action if action and action.dest == name else None

    def _get_values(self, action: argparse.Action, words: list[str]) -> Any:
        # A parser without dataclasses reads what chooses the arguments, before a recipe is known.
        return None if self.dataclass_types and words == [UNSET] else super()._get_values(action, words)

    def read_words(self, words: list[str]) -> dict[str, Any]:
        """Return what a command line gives, with the right types, None for `UNSET`.

        An unknown argument is refused with close names.
        """
        given, unknown = self.parse_known_args(words)
        if unknown:
            raise ValueError(self._describe_unknown(unknown[0]))
        return vars(given)

    def read_recipe(self, recipe: dict[str, Any], source: str) -> dict[str, Any]:
        """Return what a recipe gives, as values of the types that the command line gives; null leaves a default.

        Args:
            source: name or file of the recipe, for errors.
        """
        given = {}
        for name, value in recipe.items():
            if (action := self.argument(name)) is None:
                raise ValueError(f"the recipe {source} has the {self._describe_unknown(f'--{name}')}")
            values = value if isinstance(value, list) else [json.dumps(value) if isinstance(value, dict) else value]
            if value is None:
                continue
            if action.nargs != "+" and len(values) != 1:
                raise ValueError(f"{name} takes one value, got {value!r}")
            try:
                given[name] = super()._get_values(action, list(map(str, values)))
            except argparse.ArgumentError as error:
                raise ValueError(str(error)) from error
        return given

    def _describe_unknown(self, name: str) -> str:
        close = difflib.get_close_matches(name, self._option_string_actions, n=3)
        hint = f": did you mean {' or '.join(close)}?" if close else ""
        return f"unknown argument {name!r}{hint}"

    def make(self, given: dict[str, Any]) -> tuple[Any, ...]:
        """Return an instance of every dataclass of the parser."""
        try:
            return self.parse_dict(given)
        except json.JSONDecodeError as error:
            raise ValueError(f"an argument that takes JSON got {error.doc!r}: {error}") from error
        except ValueError as error:
            # The choices of an enumeration come without the argument's name.
            named = [name for name, value in given.items() if str(error).startswith(f"{value} is not a valid ")]
            raise ValueError(": ".join([*named[:1], str(error)])) from error


def default_of(option: Field) -> Any:
    """Return the default value of a dataclass field."""
    return option.default if option.default_factory is MISSING else option.default_factory()
