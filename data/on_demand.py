"""Packages whose names are imported when they are asked for, so that a command loads what it uses."""

# Used by: whoever runs or imports it. Changed freely.

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


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


def import_after(first: str, then: str) -> None:
    """Import a module right after another one; now, if that one is imported already."""
    if first in sys.modules:
        import_module(then)
    else:
        sys.meta_path.insert(0, _FinderOfFirst(first, then))


class _FinderOfFirst(MetaPathFinder):
    """Finds one module as all other finders do, once, and has a second one imported after it."""

    def __init__(self, first: str, then: str):
        self.first, self.then = first, then

    def find_spec(self, fullname: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self.first:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _LoaderOfBoth(spec.loader, self.then)
        return spec


class _LoaderOfBoth(Loader):
    """Loads a module by its own loader, which it gives back to it, and then imports a second one."""

    def __init__(self, loader: Loader, then: str):
        self.loader, self.then = loader, then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        import_module(self.then)
