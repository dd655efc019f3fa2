"""Code of a user's own that a checkpoint needs: rules and encodings from other files are saved with it.

A checkpoint with such a plugin holds `plugin_NAME.py`, a copy of the plugin that imports its siblings, and
`with_plugins.py`, which loads the copies before configuration and model. `auto_map` names `with_plugins.py`, so
`trust_remote_code=True` runs copies and model.
"""

# Used by: configuration_coupled_gpt.py, configuration_pairwise_bert.py. Bound by: the digest of the code that travels with a
# checkpoint: run .ci/code.

import inspect
import re
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar, cast

from huggingface_hub.dataclasses import strict

from .inputs import TaskConfig
from .registry import pickled_with

_ENTRY = "with_plugins"
"""Module of a saved checkpoint that loads its plugins."""

_PREFIX = "plugin_"
"""Beginning of the name of a copy that travels."""


def plugin_modules(definitions: Collection[Callable[..., object]]) -> list[str]:
    """Return the names of the modules, outside this package, that define functions or classes."""
    package = __name__.rpartition(".")[0]
    modules = dict.fromkeys(definition.__module__ for definition in definitions)
    return [module for module in modules if module.rpartition(".")[0] != package or plugin_name(module) != _last(module)]


def _last(module: str) -> str:
    return module.rpartition(".")[2]


def plugin_name(module: str) -> str:
    """Return a plugin's own name, without packages and without the prefix of a copy that travels."""
    return _last(module).removeprefix(_PREFIX)


def save_plugins(modules: list[str], folder: Path, own_code: Mapping[str, str]) -> None:
    """Write copies of plugins, and the module that loads them, into a checkpoint's folder.

    Imports from `longhand.modeling.NAME` become imports from the sibling `NAME`, which travels too.

    Args:
        own_code: see `PluginConfig`.

    Raises:
        OSError: a plugin's code is not in a file.
        ValueError: a plugin imports `longhand.modeling` in another way.
    """
    for module in modules:
        text = inspect.getsource(sys.modules[module])
        text = re.sub(r"^([ \t]*)from longhand\.modeling\.(\w+) import", r"\1from .\2 import", text, flags=re.MULTILINE)
        if found := re.search(r"^[ \t]*(from longhand\.modeling import|import longhand\.modeling).*", text, re.MULTILINE):
            raise ValueError(
                f"the plugin {module} cannot be saved with a model: it has the line {found[0].strip()!r}; import from the "
                "module that defines the name, such as `from longhand.modeling.coupling import Plan`"
            )
        (folder / f"{_PREFIX}{plugin_name(module)}.py").write_text(text, encoding="utf-8")
    lines = ['"""Loads the plugins of this checkpoint before its configuration and model."""', ""]
    lines += [f"from .{_PREFIX}{plugin_name(module)} import *" for module in modules]
    lines += [f"from .{path.replace('.', ' import ')}" for path in own_code.values()]
    (folder / f"{_ENTRY}.py").write_text("\n".join(lines) + "\n", encoding="utf-8")


@strict
class PluginConfig(TaskConfig):
    """A configuration whose fields may name rules or encodings from plugins.

    Args:
        task: see `TaskConfig`.
        prompt_format: see `TaskConfig`.

    Attributes:
        own_code: module and name of configuration and models, by the Auto class that loads each.
    """

    own_code: ClassVar[Mapping[str, str]] = {}

    def definitions(self) -> list[Callable[..., object]]:
        """Return the functions and classes that fields name, as far as they are known here."""
        raise NotImplementedError

    def unknown_names(self) -> list[tuple[str, str, Collection[str]]]:
        """Return each field with a name that is unknown here, the name, and the known ones."""
        raise NotImplementedError

    def to_dict(self):
        """Name the plugins, and in `auto_map` the module that loads them, if there are plugins."""
        values = super().to_dict()
        modules = plugin_modules(self.definitions())
        if modules:
            values["plugins"] = [f"{plugin_name(module)}.py" for module in modules]
        if modules or self.lacks_plugins:
            values["auto_map"] = {head: f"{_ENTRY}.{_last(path)}" for head, path in self.auto_map.items()}
        return values

    def __reduce_ex__(self, protocol):
        """Pickle with the rules and encodings that fields name, see `pickled_with`."""
        return pickled_with(self.definitions(), cast(Any, super().__reduce_ex__(protocol)))

    def save_pretrained(self, save_directory, **kwargs):
        """Save the configuration like transformers, with the code of rules and encodings from plugins."""
        if modules := plugin_modules(self.definitions()):
            Path(save_directory).mkdir(parents=True, exist_ok=True)
            save_plugins(modules, Path(save_directory), self.own_code)
        super().save_pretrained(save_directory, **kwargs)

    @property
    def lacks_plugins(self) -> bool:
        """Whether a checkpoint's plugins are not loaded here. Only the code that travels with it can make the model then."""
        return bool(getattr(self, "plugins", ())) and bool(self.unknown_names())

    def check_known(self):
        """Raise ValueError if a field names what is unknown here."""
        plugins = " ".join(getattr(self, "plugins", ())) or "FILE"
        for field, name, known in self.unknown_names():
            raise ValueError(
                f"{field} {name!r} is unknown: choose one of {', '.join(known)}; a model made with a plugin needs it: "
                f"--plugin {plugins}, or trust_remote_code=True"
            )
