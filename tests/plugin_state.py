"""The state of a new process, in which no plugin is loaded."""

import sys

from longhand.data.tasks.plugins import HELPERS, PACKAGE, PLUGINS
from longhand.data.tasks.registry import TASKS
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.encoder_maps import PAIR_MAP_RULES
from longhand.modeling.position_encodings import POSITION_ENCODINGS

KEPT = [(registry, dict(registry)) for registry in (TASKS, COUPLING_RULES, POSITION_ENCODINGS, PAIR_MAP_RULES)]


def forget_plugins():
    """Bring back the state of a new process, except what a plugin registers in transformers."""
    for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
        del sys.modules[name]
    PLUGINS.clear()
    HELPERS.clear()
    for registry, before in KEPT:
        registry.clear()
        registry.update(before)
