"""Small pieces of text that cards share."""

from collections.abc import Iterable

from longhand.data import Task


def sentence(text: str) -> str:
    """The text with a capital at its beginning, without a full stop."""
    return text[:1].upper() + text[1:].rstrip(".")


def count(number: int, noun: str) -> str:
    """The number and the noun, in the plural if needed, such as "2 layers"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def format_fields(task: Task) -> str:
    """The fields of the task's format with their values, such as "order plain"."""
    return ", ".join(f"{name} {value}" for name, value in task.describe().items() if name != "task")


def by_configuration(values: dict[str, str], configurations: Iterable[str]) -> str:
    """The value that all configurations of a dataset have, or each value with the configurations that have it.

    Args:
        values: a value by the name of its configuration; some configurations may have none.
        configurations: the names of all configurations.
    """
    if len(set(values.values())) == 1 and values.keys() == set(configurations):
        return next(iter(values.values()))
    groups: dict[str, list[str]] = {}
    for name, value in values.items():
        groups.setdefault(value, []).append(f"`{name}`")
    return "; ".join(f"{value} in {', '.join(names)}" for value, names in groups.items())
