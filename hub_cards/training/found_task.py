"""A task that is found: what the command line says of it, and how it is registered.

A function is code of the user's own, as a plugin is. A checkpoint holds the table of the machine that was found.
"""

import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, cast

from longhand.data.learning.examples import learn_task_from_examples, read_examples
from longhand.data.learning.learn import LearningOptions, learn_task
from longhand.data.learning.report import Learned
from longhand.data.tasks.column_task import TABLES
from longhand.data.tasks.plugins import PACKAGE, load_plugin
from longhand.data.tasks.registry import register_task, task_named
from longhand.data.tasks.task import Task


class Asked(Protocol):
    """The words of the command line; see `arguments.Learning`."""

    function: str | None
    examples: str | None
    base: int
    alphabet: str | None
    name: str | None
    seconds: float
    complete: bool


def find_asked(asked: Asked, write_states: bool | None) -> Learned:
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
        learned = learn_task_from_examples(
            read_examples(file), name=name, source=file.name, complete=asked.complete, **options
        )
    else:
        function, name = read_function(asked.function)
        learned = learn_task(function, name=asked.name or name, source=asked.function.strip(), **options)
        test_by_examples(type(learned.task), asked)
    kind = type(learned.task)
    kind.learned = learned.report.facts
    holder = task_named(kind.name)
    if holder is not None and holder.__module__ != TABLES:
        raise ValueError(f"there is a task {kind.name!r} already: give another --name")
    register_task(kind)
    return learned


def test_by_examples(kind: type[Task], asked: Asked) -> None:
    """Give a column task the examples of a file, if there is one, by which it is tested before training."""
    if asked.examples is not None:
        cast(Any, kind).worked_examples = dict(read_examples(Path(asked.examples)))


def _as_name(text: str) -> str:
    """The name of a task for a file of this name."""
    return re.sub(r"\W", "_", text)


def read_function(text: str) -> tuple[Callable[..., object], str]:
    """A function from the command line, and the name of its task: a lambda, or `FILE.py:NAME`.

    Raises:
        ValueError: it is neither.
    """
    file, _, name = text.strip().rpartition(":")
    if file.endswith(".py"):
        load_plugin(file)
        function = getattr(sys.modules[f"{PACKAGE}.{Path(file).stem}"], name, None)
        if not callable(function):
            raise ValueError(f"{file} has no function {name!r}")
        return function, name
    try:
        function = eval(text, {"math": math})
    except Exception as error:
        raise ValueError(f"--function {text!r} is no function: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise ValueError(f"--function must be a lambda or FILE.py:NAME, got {text!r}")
    return function, "learned"
