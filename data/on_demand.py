"""Packages whose names are imported when they are asked for, so that a command loads what it uses."""

# Used by: whoever runs or imports it. Changed freely.

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec


def names_on_demand(
    package: str, places: Mapping[str, str], source: str | None = None
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package, by which names and submodules are imported when they are asked for.

    Args:
        package: the package's name.
        places: for each name, the module that defines it.
        source: a module all of whose public names the package has too.
    """

    def public_names() -> list[str]:
        more = import_module(source).__all__ if source else []
        return sorted({*places, *more})

    def get(name: str) -> object:
        # `from package import *` asks for it.
        if name == "__all__":
            return public_names()
        if name in places:
            value = getattr(import_module(places[name]), name)
        elif name.startswith("__"):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        elif find_spec(f"{package}.{name}") is not None:
            return import_module(f"{package}.{name}")
        elif source is not None and name in public_names():
            value = getattr(import_module(source), name)
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *public_names()})
