"""The plugins of a run: recorded in its recipe, copied beside its checkpoints, and asked for when these are loaded."""

import argparse
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from longhand.data.plugins import PLUGINS, Plugin, is_plugin_name, load_plugin
from longhand.hub_cards.files import write_atomically


def add_plugin_option(parser: argparse._ActionsContainer) -> None:
    """Add `--plugin`, the plugins that a command is given, for `load_plugin`."""
    described = "Python files that the model was made with"
    parser.add_argument("--plugin", nargs="+", action="extend", type=Path, default=[], metavar="FILE", help=described)


def named_plugins(recipe: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the plugins that a recipe names, with the sha256 of each; None if the recipe does not say.

    A finished run's recipe maps names to hashes. A recipe written by hand may give a name, or a list of names.

    Raises:
        ValueError: `plugin` is neither.
    """
    given = recipe.get("plugin") or []
    names = [given] if isinstance(given, str) else given
    if isinstance(names, list | dict) and all(map(is_plugin_name, names)):
        named = names if isinstance(names, dict) else dict.fromkeys(names)
        if all(isinstance(sha256, str | None) for sha256 in named.values()):
            return named
    raise ValueError(f"plugin must name Python files without their folder, such as my_task.py, got {given!r}")


def require_plugins(
    recipe: Mapping[str, Any], source: str, advise: Callable[[str], str], fetch: Callable[[str], Path] | None = None
) -> list[Plugin]:
    """Return the loaded plugins that a recipe names.

    Args:
        source: what the recipe belongs to, for messages.
        advise: from the name of a plugin that is not loaded to what the user can do.
        fetch: from a plugin's name to its copy beside the checkpoint, if the user trusts that. Its code is run if the
            plugin is not loaded.

    Raises:
        ValueError: a plugin is not loaded, or is not the one that the recipe was made with.
    """
    for name, sha256 in named_plugins(recipe).items():
        if name not in PLUGINS:
            if fetch is None:
                raise ValueError(f"{source} was made with the plugin {name}, which is code: {advise(name)}")
            load_plugin(fetch(name), sha256)
        if sha256 not in (None, PLUGINS[name].sha256):
            raise ValueError(
                f"{source} was made with another plugin {name}: its sha256 is {sha256}, that of the one given is "
                f"{PLUGINS[name].sha256}"
            )
    return [PLUGINS[name] for name in named_plugins(recipe)]


def record_plugins(plugins: Iterable[Plugin]) -> dict[str, Any]:
    """Return what a recipe says of its plugins: nothing if it has none."""
    recorded = {plugin.name: plugin.sha256 for plugin in plugins}
    return {"plugin": recorded} if recorded else {}


def copy_plugins(plugins: Iterable[Plugin], folder: Path) -> None:
    """Write the plugins beside a checkpoint, byte for byte as they were loaded."""
    for plugin in plugins:
        write_atomically(folder / plugin.name, plugin.code)
