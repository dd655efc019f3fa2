"""Parameters whose names in files, and in the hashes of certificates, are not those that they have in a model.

Trainer decays all parameters but those of norms and those whose names say norm or bias. So a factor of scores has such a
name in a model. In files it has its earlier name, so that files, and what was proved about them, stay as they are. A class
with such parameters has `stored_names`: the names in files by its own.
"""

from typing import Any

from torch import Tensor, nn


def find_stored_names(model: nn.Module) -> dict[str, str]:
    """Return the whole names in files of a model's parameters that have others there, by those in the model."""
    return {
        f"{path}.{own}": f"{path}.{stored}"
        for path, module in model.named_modules()
        for own, stored in getattr(module, "stored_names", {}).items()
        if own in module._parameters
    }


def read_stored_names(module: Any, state_dict: dict[str, Tensor], prefix: str, *_: object) -> None:
    """Take what a file has for a module with `stored_names`: a hook before `load_state_dict`, by which Trainer resumes."""
    for own, stored in module.stored_names.items():
        if prefix + stored in state_dict:
            state_dict[prefix + own] = state_dict.pop(prefix + stored)
