"""A task that is found: what the command line says of it, and how it is registered.

A function is code of the user's own, as a plugin is. A checkpoint holds the table of the machine that was found.
"""

# Used by: arguments.py. Changed freely.

import inspect
import linecache
import math
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast

from longhand.data.learning.example_files import read_examples
from longhand.data.learning.examples import learn_task_from_examples
from longhand.data.learning.learn import LearningOptions, learn_task
from longhand.data.learning.machine_task import check_name
from longhand.data.learning.questions.constants import nested_codes
from longhand.data.learning.report import Learned
from longhand.data.tasks.column_task import CODE, MEANING, TABLES
from longhand.data.tasks.plugins import PACKAGE, load_plugin
from longhand.data.tasks.registry import register_task, task_named
from longhand.data.tasks.task import Task
from longhand.hub_cards.commands import one_line

MOST_SHOWN = 300
"""Symbols of a constant beside a function that its source is shown with."""


class LearningWords(Protocol):
    """The words of the command line; see `fields.Learning`."""

    function: str | None
    examples: str | None
    base: int
    alphabet: str | None
    name: str | None
    seconds: float
    complete: bool
    domain: str | None
    drop_wrong: int
    private_source: bool


def find_asked(asked: LearningWords, write_states: bool | None) -> Learned:
    """Find the task that is asked for, and register it.

    Args:
        write_states: as of `learn_task`.

    Raises:
        ValueError: it cannot be found, as `learn_task` and `learn_task_from_examples` say, or its name is taken.
    """
    options: LearningOptions = {
        "base": asked.base,
        "alphabet": asked.alphabet,
        "seconds": asked.seconds,
        "write_states": write_states,
    }
    if asked.function is None:
        file = Path(str(asked.examples))
        name = asked.name or _as_name(file.stem)
        check_free(name)
        learned = learn_task_from_examples(
            read_examples(file), name=name, source=file.name, complete=asked.complete, drop_wrong=asked.drop_wrong, **options
        )
    else:
        function, name, source = read_function(asked.function)
        check_free(asked.name or name)
        told = {} if asked.private_source else told_of(function, source)
        source = f"the private function {name}" if asked.private_source else source
        learned = learn_task(function, name=asked.name or name, source=source, domain=asked.domain, **options)
        report = replace(learned.report, told=told)
        learned = learned._replace(report=report.without_source() if asked.private_source else report)
        test_by_examples(type(learned.task), asked)
    kind = type(learned.task)
    kind.learned = learned.report.facts
    register_task(kind)
    return learned


def check_free(name: str) -> None:
    """Raise ValueError if a task that is to be found cannot have a name; the search, which takes long, comes after this."""
    check_name(name)
    holder = task_named(name)
    if holder is not None and holder.__module__ != TABLES:
        raise ValueError(f"there is a task {name!r} already: give another --name")


def test_by_examples(kind: type[Task], asked: LearningWords) -> None:
    """Give a column task the examples of a file, if there is one, by which it is tested before training."""
    if asked.examples is not None:
        cast(Any, kind).worked_examples = {
            example.question: example.answer for example in read_examples(Path(asked.examples))
        }


def _as_name(text: str) -> str:
    """The name of a task for a file of this name."""
    return re.sub(r"\W", "_", text)


def read_function(text: str) -> tuple[Callable[..., object], str, str]:
    """A function from the command line: a lambda, `FILE.py:NAME`, or a file with one function.

    Returns:
        The function, the name of its task, and what it is called on cards, which never is a path.

    Raises:
        ValueError: it is none of these.
    """
    file, _, name = text.strip().rpartition(":")
    if text.strip().endswith(".py"):
        file, name = text.strip(), ""
    if file.endswith(".py"):
        path = Path(file).expanduser()
        if not path.is_file():
            raise ValueError(f"--function {text.strip()}: there is no file {file}")
        # A file imports those beside it, as it does as a script; behind all others, so that none of these is hidden.
        if (folder := str(path.resolve().parent)) not in sys.path:
            sys.path.append(folder)
        load_plugin(path)
        module = sys.modules[f"{PACKAGE}.{path.stem}"]
        functions = [name for name, value in vars(module).items() if _is_function_of(module, value)]
        public = [name for name in functions if not name.startswith("_")]
        if not name and len(public) != 1:
            held = ", ".join(public) or "none"
            raise ValueError(f"--function {file}: the file must hold one function, and holds {held}: name one, FILE.py:NAME")
        name = name or public[0]
        function = getattr(module, name, None)
        if not callable(function):
            raise ValueError(f"--function {file} has no function {name!r}: it holds {', '.join(public) or 'none'}")
        return function, name, f"{path.name}:{name}"
    shown = text.strip()
    # Its source is shown where a card names a part of it.
    linecache.cache[shown] = (len(shown), None, [shown], shown)
    try:
        function = eval(compile(shown, shown, "eval"), {"math": math, "re": re})
    except Exception as error:
        raise ValueError(
            f"--function {text!r} is neither a lambda nor FILE.py:NAME: {type(error).__name__}: {one_line(error)}"
        ) from error
    if not callable(function):
        raise ValueError(f"--function must be a lambda, FILE.py or FILE.py:NAME, got {text!r}")
    return function, "learned", text.strip()


def _is_function_of(module: ModuleType, value: object) -> bool:
    """Whether a value is a function that a module makes, be it decorated, bound, or an object that is called."""
    if not callable(value) or isinstance(value, type) or getattr(value, "__module__", None) != module.__name__:
        return False
    # A name for a type, such as `NewType("Digit", int)`, is called too.
    return inspect.isroutine(value) or hasattr(value, "__wrapped__") or type(value).__module__ == module.__name__


def told_of(function: Callable[..., object], source: str) -> dict[str, str]:
    """What a card tells of a function: its docstring, and its source with that of the functions beside it that it names."""
    function = inspect.unwrap(function)
    meaning = inspect.getdoc(function) if inspect.isfunction(function) else None
    told = {MEANING: meaning} if meaning else {}
    module = sys.modules.get(getattr(function, "__module__", "") or "")
    if module is None or not module.__name__.startswith(f"{PACKAGE}."):
        return told
    texts: dict[str, str] = {}
    waiting: list[object] = [function]
    for value in waiting:
        code = getattr(value, "__code__", None)
        if code is None or value.__name__ in texts:  # type: ignore[attr-defined]
            continue
        texts[value.__name__] = inspect.getsource(value).rstrip()  # type: ignore[arg-type, attr-defined]
        for name in dict.fromkeys(name for nested in nested_codes(code) for name in nested.co_names):
            held = vars(module).get(name)
            if inspect.isfunction(held) and held.__module__ == module.__name__:
                waiting.append(held)
            elif isinstance(held, str | int | float | tuple | list | dict | set | frozenset):
                shown = f"{name} = {held!r}"
                texts.setdefault(name, shown if len(shown) <= MOST_SHOWN else f"{name} = ...  # {len(shown):,} symbols")
    return told | {CODE: "\n\n".join(reversed(texts.values()))}
