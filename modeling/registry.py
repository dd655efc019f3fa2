"""Tables that users extend by decorators, whose keys configurations name, and checks of the fields of configurations."""

from collections.abc import Callable
from typing import Any

from huggingface_hub.dataclasses import as_validated_field


def check_free(kind: str, name: str, definition: Callable[..., object], holder: Callable[..., object] | None) -> None:
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


@as_validated_field
def at_least_one(value: int | None = None) -> None:
    """A field of a configuration that is at least 1, or None."""
    if value is not None and value < 1:
        raise ValueError(f"must be at least 1, got {value}")


@as_validated_field
def above_zero(value: float | None = None) -> None:
    """A field of a configuration that is finite and above 0, or None."""
    if value is not None and not 0 < value < float("inf"):
        raise ValueError(f"must be above 0, got {value}")


def check_heads(config: Any, hint: str = "") -> None:
    """Raise ValueError, with a hint, if the heads do not divide `hidden_size`."""
    size, heads = config.hidden_size, config.num_attention_heads
    if heads < 1 or size % heads:
        raise ValueError(f"hidden_size {size} is not a multiple of num_attention_heads {heads}{hint}")
