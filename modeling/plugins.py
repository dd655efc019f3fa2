"""Plugins that travel: rules and encodings from other files are saved with a checkpoint, as its own code is.

A saved checkpoint then holds `plugin_NAME.py`, a copy of the plugin that imports its siblings, and `with_plugins.py`, which
loads the copies before configuration and model. `auto_map` names the latter, so `trust_remote_code=True` runs both.
"""

import inspect
import re
import sys
from pathlib import Path

from .coupling_rules import COUPLING_RULES, sequential
from .position_encodings import POSITION_ENCODINGS, PositionEncoding

ENTRY = "with_plugins"
"""Module of a saved checkpoint that loads its plugins."""

_ENTRY_TEXT = '''"""Loads the plugins of this checkpoint before its configuration and model."""

{plugins}
from .configuration_coupled_gpt import CoupledGPTConfig
from .modeling_coupled_gpt import CoupledGPTForCausalLM, CoupledGPTModel
'''


def plugin_modules(coupling: str, position_encoding: str) -> list[str]:
    """Return the names of the modules, outside this package, that define a coupling rule or a position encoding."""
    rule, encoding = COUPLING_RULES.get(coupling), POSITION_ENCODINGS.get(position_encoding)
    modules = dict.fromkeys(definition.__module__ for definition in (rule and rule.plan, encoding) if definition)
    return [module for module in modules if module not in (sequential.__module__, PositionEncoding.__module__)]


def plugin_name(module: str) -> str:
    """Return a plugin's own name, without packages and without the prefix of a copy that travels."""
    return module.rpartition(".")[2].removeprefix("plugin_")


def save_plugins(modules: list[str], folder: Path) -> None:
    """Write copies of plugins, and the module that loads them, into a checkpoint's folder.

    Imports from `longhand.modeling.NAME` become imports from the sibling `NAME`, which travels too.

    Raises:
        ValueError: a plugin's code is not in a file, or imports `longhand.modeling` in another way.
    """
    for module in modules:
        try:
            text = inspect.getsource(sys.modules[module])
        except (KeyError, OSError, TypeError) as error:
            raise ValueError(f"the plugin {module} cannot be saved with a model: its code is not in a file") from error
        text = re.sub(r"^([ \t]*)from longhand\.modeling\.(\w+) import", r"\1from .\2 import", text, flags=re.MULTILINE)
        if found := re.search(r"^[ \t]*(from longhand\.modeling import|import longhand\.modeling).*", text, re.MULTILINE):
            raise ValueError(
                f"the plugin {module} cannot be saved with a model: it has the line {found[0].strip()!r}; import from the "
                "module that defines the name, such as `from longhand.modeling.coupling import Plan`"
            )
        (folder / f"plugin_{plugin_name(module)}.py").write_text(text, encoding="utf-8")
    plugins = "\n".join(f"from .plugin_{plugin_name(module)} import *" for module in modules)
    (folder / f"{ENTRY}.py").write_text(_ENTRY_TEXT.format(plugins=plugins), encoding="utf-8")
