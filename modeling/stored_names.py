"""Parameters whose names in files, and in the hashes of certificates, are not those that they have in a model.

Trainer decays all parameters but those of norms and those whose names say norm or bias. So a factor of scores has such a
name in a model. In files it has its earlier name, so that files, and what was proved about them, stay as they are. A class
with such parameters has `stored_names`: the names in files by its own. `from_pretrained`, `load_state_dict` and Trainer read
both; accelerate's `load_checkpoint_in_model` compares names by itself, and warns that it leaves such parameters as they are.
"""

# Used by: modeling_coupled_gpt.py, position_encodings.py, pretrained.py, data/proofs, data/proofs/lengths. Bound by: the
# digest of the code that travels with a checkpoint: run .ci/code.

import copy
from functools import cache
from typing import Any

from torch import Tensor, nn


def find_stored_names(model: nn.Module) -> dict[str, str]:
    """Return the whole names in files of a model's parameters that have others there, by those in the model."""
    return {
        f"{path}.{name}": f"{path}.{stored}"
        for path, module in model.named_modules()
        for name, stored in getattr(module, "stored_names", {}).items()
        if name in module._parameters
    }


def read_stored_names(module: Any, state_dict: dict[str, Tensor], prefix: str, *_: object) -> None:
    """Take what a file has for a module with `stored_names`: a hook before `load_state_dict`, by which Trainer resumes."""
    for name, stored in module.stored_names.items():
        if prefix + stored in state_dict:
            state_dict[prefix + name] = state_dict.pop(prefix + stored)


def read_as_stored(model: Any) -> Any:
    """Return a view of a model, which shares everything with it, whose `state_dict()` has the names of files."""
    if not find_stored_names(model):
        return model
    view = copy.copy(model)
    kind: Any = type(model)
    view.__class__ = _stored_class(kind)
    return view


@cache
def _stored_class(kind: Any) -> Any:
    """Return the subclass of a model's class whose `state_dict()` has the names of files."""

    def state_dict(self: Any, *arguments: Any, **options: Any) -> dict[str, Tensor]:
        stored = find_stored_names(self)
        return {stored.get(name, name): weights for name, weights in kind.state_dict(self, *arguments, **options).items()}

    return type(kind.__name__, (kind,), {"state_dict": state_dict, "__module__": kind.__module__, "__doc__": kind.__doc__})
