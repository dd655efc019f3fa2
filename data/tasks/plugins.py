"""Plugins: a user's own files that register tasks, coupling rules or position encodings.

A plugin is one Python file. Importing it runs its code, so a plugin is loaded only if the user names it. Recipes record the
plugins of a run by name and hash, and copies lie beside its checkpoints. Rules and encodings also travel as a checkpoint's
own code, see `modeling/configuration_coupled_gpt.py`.
"""

# Used by: data, eval.py, hub_cards, hub_cards/checkpoints, hub_cards/publishing, hub_cards/training. Changed freely.

import ast
import hashlib
import linecache
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.util import decode_source, resolve_name
from os import PathLike
from pathlib import Path
from types import FrameType, ModuleType

from longhand.modeling.registry import PLUGIN

PACKAGE = "longhand_plugins"
"""Package of the modules that plugins become. Nothing else is in it."""


@dataclass(frozen=True)
class Plugin:
    """A plugin that is loaded.

    Attributes:
        name: name of its file, such as `my_task.py`.
        code: its content.
        path: the file.
    """

    name: str
    code: bytes
    path: Path = field(compare=False)

    @property
    def sha256(self) -> str:
        """SHA-256 of the file."""
        return hashlib.sha256(self.code).hexdigest()

    def __reduce__(self):
        """Pickle as the call that loads it: so a process that unpickles what a plugin defines has the plugin first."""
        return _load, (self.name, self.code, self.path)


PLUGINS: dict[str, Plugin] = {}
"""All loaded plugins by name."""

HELPERS: dict[str, str] = {}
"""SHA-256 of every file of a user's own that loaded plugins import or read, when they did, by its path."""

_INSTALLED = ("site-packages", "dist-packages")
"""Names of folders whose modules are no user's own."""

_STANDARD_LIBRARY = sysconfig.get_path("stdlib")


def is_plugin_name(name: object) -> bool:
    """Whether a plugin's file may have this name: that of a Python module, in no folder."""
    return isinstance(name, str) and re.fullmatch(r"[^\W\d]\w*\.py", name) is not None


def load_plugin(file: str | PathLike[str], sha256: str | None = None) -> Plugin:
    """Import a plugin as the module `longhand_plugins.<stem>`. A file of the same name and content is imported once.

    Args:
        sha256: hash that the file must have; with another one it is not run.

    Raises:
        ValueError: the file cannot be read, has another hash or fails, or another plugin has its name.
    """
    file = Path(file)
    if not is_plugin_name(file.name):
        raise ValueError(f"plugin {file}: the name of the file must be that of a Python module, such as my_task.py")
    try:
        code = file.read_bytes()
    except OSError as error:
        raise ValueError(f"plugin {file} cannot be read: {error.strerror}") from error
    if sha256 not in (None, found := hashlib.sha256(code).hexdigest()):
        raise ValueError(f"{file} has changed: its sha256 is {found}, not {sha256}")
    return _load(file.name, code, file)


def _load(name: str, code: bytes, file: Path) -> Plugin:
    """The plugin of this content, run if it is not loaded.

    Raises:
        ValueError: as `load_plugin`.
    """
    plugin = Plugin(name, code, file.absolute())
    loaded = PLUGINS.setdefault(plugin.name, plugin)
    if loaded is plugin:
        try:
            _run(plugin, file)
        except BaseException:
            del PLUGINS[plugin.name]
            raise
    elif loaded != plugin:
        raise ValueError(
            f"plugin {file}: another plugin {plugin.name} is loaded already (sha256 {loaded.sha256}, not "
            f"{plugin.sha256}): rename one of them, or start Python anew if you changed the file"
        )
    return loaded


def _run(plugin: Plugin, file: Path) -> None:
    """Run exactly the bytes that were read, in a new module."""
    _watch_reading()
    parent = sys.modules.setdefault(PACKAGE, ModuleType(PACKAGE, "Plugins that are loaded."))
    # A package has a path. With an empty one, nothing is imported that `load_plugin` did not load.
    parent.__path__ = []
    module = ModuleType(f"{PACKAGE}.{file.stem}")
    sys.modules[module.__name__] = module
    module.__file__ = path = str(plugin.path)
    setattr(module, PLUGIN, plugin)
    try:
        text = decode_source(plugin.code)
        # `inspect.getsource` reads this. An entry without a time of change stays, even if the file changes.
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
        exec(compile(plugin.code, path, "exec"), module.__dict__)
    # A script ends with SystemExit, and would end the command with it.
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        place = f" at line {lines[-1]}" if lines else ""
        raise ValueError(f"plugin {file} fails{place}: {type(error).__name__}: {' '.join(str(error).split())}") from error
    _record_helpers(text)


@lru_cache(maxsize=1)
def _watch_reading() -> None:
    """From now on, add to `HELPERS` each file of data that the code of a plugin opens: tables that decide rows.

    Python's audit events name what is opened, whoever opens it. Such a hook stays as long as the process.
    """
    is_noting = False

    def note(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal is_noting
        if event != "open" or is_noting or not isinstance(arguments[0], str | bytes | PathLike):
            return
        if not isinstance(arguments[2], int) or arguments[2] & (os.O_WRONLY | os.O_RDWR):
            return
        is_noting = True
        try:
            path = os.path.abspath(os.fsdecode(arguments[0]))
            if _is_data(path) and _is_in_plugin(sys._getframe(1)):
                HELPERS[path] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        finally:
            is_noting = False

    sys.addaudithook(note)


def _is_data(path: str) -> bool:
    """Whether a file may be a user's data, and is no part of Python, of a package or of the system."""
    is_code = path.endswith((".py", ".pyc")) or set(_INSTALLED) & {*Path(path).parts}
    return not is_code and not path.startswith((_STANDARD_LIBRARY, "/proc/", "/sys/", "/dev/")) and os.path.isfile(path)


def _is_in_plugin(frame: FrameType | None) -> bool:
    """Whether a call was made by the code of a plugin, however far away."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(f"{PACKAGE}."):
            return True
        frame = frame.f_back
    return False


def _record_helpers(text: str, package: str = "") -> None:
    """Add to `HELPERS` the files of a user's own that a source imports, wherever in it, and those that they import.

    Args:
        package: the package that the source is a module of.
    """
    for name in _imported_names(text, package):
        path = _file_of(name)
        if path is None or path in HELPERS or Path(path).suffix != ".py" or path.startswith(_STANDARD_LIBRARY):
            continue
        if name.partition(".")[0] in (__name__.partition(".")[0], PACKAGE) or set(_INSTALLED) & {*Path(path).parts}:
            continue
        code = Path(path).read_bytes()
        HELPERS[path] = hashlib.sha256(code).hexdigest()
        _record_helpers(decode_source(code), name if Path(path).name == "__init__.py" else name.rpartition(".")[0])


def _imported_names(text: str, package: str) -> list[str]:
    """The full names of all modules that a source may import, packages before their modules."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            with suppress(ImportError):
                base = resolve_name("." * node.level + (node.module or ""), package)
                names |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    paths = (name.split(".") for name in names)
    return sorted({".".join(path[: end + 1]) for path in paths for end in range(len(path))})


def _file_of(name: str) -> str | None:
    """The file of a module, whether it is imported or not; None if there is none. Nothing is imported."""
    if name in sys.modules:
        return getattr(sys.modules[name], "__file__", None)
    places, spec, parts = None, None, name.split(".")
    for end in range(len(parts)):
        spec = PathFinder.find_spec(".".join(parts[: end + 1]), places)
        if spec is None or (end + 1 < len(parts) and spec.submodule_search_locations is None):
            return None
        places = spec.submodule_search_locations
    return spec.origin if spec else None


def plugin_hashes(defined: type) -> list[str]:
    """The hashes of all loaded plugins if a plugin defines this class, since plugins may use each other; else nothing.

    With them are those of a user's own modules that plugins import, and of the files of data that they have read by now, as
    they were then.
    """
    if not defined.__module__.startswith(f"{PACKAGE}."):
        return []
    return sorted(plugin.sha256 for plugin in PLUGINS.values()) + sorted(HELPERS.values())


PLUGINS_MEANING = "Python files that the model was made with"
"""What the option `--plugin` of a command means."""


def named_plugins(recipe: Mapping[str, object]) -> dict[str, str | None]:
    """Return the plugins that a recipe names, with the sha256 of each; None if the recipe does not say.

    Raises:
        ValueError: `plugin` does not map names of Python files.
    """
    named = recipe.get("plugin") or {}
    if not isinstance(named, dict) or not all(map(is_plugin_name, named)):
        raise ValueError(f"plugin must map Python files without their folder, such as my_task.py, to hashes, got {named!r}")
    return named


def require_plugins(
    recipe: Mapping[str, object], source: str, advise: Callable[[str], str], fetch: Callable[[str], Path] | None = None
) -> list[Plugin]:
    """Return the loaded plugins that a recipe names.

    Args:
        source: the run or checkpoint that the recipe belongs to, for messages.
        advise: from the name of a plugin that is not loaded to advice for the user.
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


def copy_plugins(plugins: Iterable[Plugin], folder: Path) -> None:
    """Write the plugins beside a checkpoint, byte for byte as they were loaded."""
    for plugin in plugins:
        (folder / plugin.name).write_bytes(plugin.code)
