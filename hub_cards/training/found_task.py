"""A task that is found: what the command line says of it, and how it is registered.

A function is code of the user's own, as a plugin is. What a checkpoint holds is the table of the machine that was found.
"""

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from longhand.data.learning.examples import learn_task_from_examples, read_examples
from longhand.data.learning.learn import learn_task
from longhand.data.learning.report import Learned
from longhand.data.tasks.column_task import TABLES
from longhand.data.tasks.plugins import PACKAGE, load_plugin
from longhand.data.tasks.registry import register_task, task_named


class Asked(Protocol):
    """What the command line says; see `arguments.Learning`."""

    function: str | None
    examples: str | None
    base: int | None
    alphabet: str | None
    name: str | None
    seconds: float
    write_states: bool
    complete: bool


def find_asked(asked: Asked) -> Learned | None:
    """Find the task that is asked for, and register it; None if none is asked for.

    Raises:
        ValueError: it cannot be found, as `learn_task` and `learn_task_from_examples` say, or its name is taken.
    """
    if asked.function is None and asked.examples is None:
        return None
    options: dict[str, Any] = {"base": asked.base or 10, "alphabet": asked.alphabet}
    if asked.function is None:
        file = Path(str(asked.examples))
        options |= {"name": asked.name or _as_name(file.stem), "complete": asked.complete, "source": file.name}
        learned = learn_task_from_examples(read_examples(file), **options)
    else:
        function, name = read_function(asked.function)
        options |= {"name": asked.name or name, "source": asked.function.strip(), "seconds": asked.seconds}
        learned = learn_task(function, write_states=asked.write_states, **options)
        if asked.examples is not None:
            type(learned.task).worked_examples = dict(read_examples(Path(asked.examples)))
            learned.task.check_worked_examples()
    kind = type(learned.task)
    holder = task_named(kind.name)
    if holder is not None and holder.__module__ != TABLES:
        raise ValueError(f"there is a task {kind.name!r} already: give another --name")
    register_task(kind)
    return learned


def read_function(text: str) -> tuple[Callable[..., Any], str]:
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
