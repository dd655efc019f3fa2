"""The registry of tasks, and how a recipe becomes a task."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from longhand.data.tasks.column_task import TABLES, ColumnTask, task_of_table
from longhand.data.tasks.settling_columns import SETTLING, settling_task
from longhand.data.tasks.task import Task
from longhand.modeling.registry import check_free


class Tasks(dict[str, type[Task]]):
    """All tasks by name. A column task has a second name, `settling_` and its own, as a task of an encoder that settles."""

    def __missing__(self, name: str) -> type[Task]:
        kind = self.get(name.removeprefix(SETTLING)) if isinstance(name, str) and name.startswith(SETTLING) else None
        if kind is None or not issubclass(kind, ColumnTask):
            raise KeyError(name)
        return settling_task(kind)

    def __contains__(self, name: object) -> bool:
        try:
            return self[name] is not None  # type: ignore[index]
        except (KeyError, TypeError):
            return False


TASKS = Tasks()


def register_task(task: type[Task]) -> type[Task]:
    """Class decorator: make the task known by its name.

    A class may replace itself, so that its file can be loaded again.

    Raises:
        ValueError: another task has the name.
    """
    check_free("task", task.name, task, TASKS.get(task.name))
    TASKS[task.name] = task
    return task


def register_table(name: str, values: Mapping[str, Any]) -> None:
    """Make a task known that a configuration holds as a table, unless the task is known; it replaces an earlier table.

    Raises:
        ValueError: the table is not legal.
    """
    name = name.removeprefix(SETTLING)
    if name not in TASKS or TASKS[name].__module__ == TABLES:
        TASKS[name] = task_of_table(name, values)


def find_task(name: Any) -> type[Task]:
    """The class of the task of this name.

    Raises:
        ValueError: there is no such task.
    """
    if not isinstance(name, str) or name not in TASKS:
        raise ValueError(f"task {name!r} is unknown: choose one of {', '.join(TASKS)}")
    return TASKS[name]


def build_task(name: str, /, **task_fields: Any) -> Task:
    """The task of this name and format; fields that are not given have their defaults.

    Raises:
        ValueError: there is no such task or field, or a value is not legal.
    """
    kind = find_task(name)
    legal = [option.name for option in fields(kind)]
    if unknown := [given for given in task_fields if given not in legal]:
        raise ValueError(f"the task {name!r} has no field {unknown[0]!r}: choose one of {', '.join(legal)}")
    return kind(**task_fields)


def task_from_recipe(recipe: Mapping[str, Any]) -> Task:
    """The task that a recipe names, in the format that the recipe gives; other keys of the recipe are left alone.

    Raises:
        ValueError: there is no such task, or the value of a field is not legal.
    """
    kind = find_task(recipe.get("task"))
    try:
        return kind(**{option.name: recipe[option.name] for option in fields(kind) if option.name in recipe})
    except TypeError as error:
        raise ValueError(str(error)) from error
