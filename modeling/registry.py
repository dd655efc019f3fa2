"""Tables that users extend by decorators, and whose keys configurations name."""

from collections.abc import Callable, Iterable
from typing import Any


class Registry(dict[str, Any]):
    """What is registered, by name. Looking up a name that is missing raises ValueError with the legal names."""

    def __init__(self, kind: str):
        """Take what a name stands for, such as "coupling rule"."""
        super().__init__()
        self.kind = kind

    def __missing__(self, name: str) -> Any:
        raise ValueError(f"the {self.kind} {name!r} is unknown: choose one of {', '.join(self)}")


def check_free(kind: str, name: str, definition: Callable[..., Any], holder: Callable[..., Any] | None) -> None:
    """Raise ValueError if a name belongs to another definition. A module that is imported again may replace its own.

    Args:
        kind: what the name stands for, such as "coupling rule".
        definition: the function or class to be registered under the name.
        holder: the function or class that has the name now; None if nothing has it.
    """
    if holder is None:
        return
    new, old = (f"{each.__module__}.{each.__qualname__}" for each in (definition, holder))
    if new != old:
        raise ValueError(f"the {kind} {name!r} exists already, as {old}: choose another name for {new}")


def check_known(field: str, value: str, table: Iterable[str], plugins: Iterable[str] | None = None) -> None:
    """Raise ValueError, with the legal names, unless the value of a field is a name of the table.

    Args:
        plugins: names of the plugins that the model needs, as far as it says so; None if plugins cannot add to the table.
    """
    if value not in table:
        hint = ""
        if plugins is not None:
            files = " ".join(plugins) or "FILE"
            hint = f"; a model made with a plugin needs it: --plugin {files}, or trust_remote_code=True"
        raise ValueError(f"{field} {value!r} is unknown: choose one of {', '.join(table)}{hint}")
