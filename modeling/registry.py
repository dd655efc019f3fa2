"""Tables that users extend by decorators, whose keys configurations name, and checks of the fields of configurations."""

# Used by: modeling, data/tasks. Bound by: the digest of the code that travels with a checkpoint: run .ci/code.

import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from transformers.utils.type_validators import interval

PLUGIN = "__plugin__"
"""Attribute of the module of a plugin: an object that loads the plugin when it is unpickled."""


def check_free(kind: str, name: str, definition: Callable[..., object], holder: Callable[..., object] | None) -> None:
    """Raise ValueError if a name belongs to another definition. A module that is imported again may replace its own.

    Args:
        kind: what the name stands for, such as "coupling rule".
        definition: the function or class to be registered under the name.
        holder: the function or class that has the name now; None if nothing has it.
    """
    if holder is None:
        return
    new, old = (f"{defined.__module__}.{defined.__qualname__}" for defined in (definition, holder))
    if new != old:
        raise ValueError(f"the {kind} {name!r} exists already, as {old}: choose another name for {new}")


def pickled_with(definitions: Iterable[Callable[..., object]], reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what `__reduce_ex__` gives, so that modules are loaded first where an object is made again.

    A data loader may start processes that have imported nothing. A name is in a table only after the module that defines it
    was imported, and a plugin of a user's own is in no package from which it could be: its module names, as `plugin`, an
    object that loads the plugin when it is unpickled.

    Args:
        definitions: functions and classes that the object needs, by reference or by name.
        reduced: what `__reduce_ex__` would give without them.
    """
    modules = dict.fromkeys(definition.__module__ for definition in definitions)
    sources = [getattr(sys.modules.get(module), PLUGIN, None) or module for module in modules]
    make, arguments, *state = reduced
    return _make_again, (sources, make, arguments), *state


def _make_again(sources: list[object], make: Callable[..., object], arguments: tuple[Any, ...]) -> object:
    for source in sources:
        if isinstance(source, str):
            import_module(source)
    return make(*arguments)


above_zero = interval(min=0, max=float("inf"), exclude_min=True, exclude_max=True)
"""A field of a configuration that is finite and above 0."""


def check_heads(config: Any, hint: str = "") -> None:
    """Raise ValueError, with a hint, if the heads do not divide `hidden_size`."""
    size, heads = config.hidden_size, config.num_attention_heads
    if heads < 1 or size % heads:
        raise ValueError(f"hidden_size {size} is not a multiple of num_attention_heads {heads}{hint}")
