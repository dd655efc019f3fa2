"""Muon beside another optimizer, as one optimizer."""

# Used by: trainer.py. Changed freely.

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


def layer_matrices(model: Any) -> list[Tensor]:
    """Return the weights of all linear maps in a model's layers, which are what Muon is for (Jordan et al., 2024)."""
    return [module.weight for module in model.base_model.layers.modules() if isinstance(module, nn.Linear)]


class MuonBeside(Optimizer):
    """Muon and another optimizer as one, so that they are scheduled, saved and loaded together.

    The step of a matrix is its momentum with all singular values close to 1, see `torch.optim.Muon`.

    Args:
        matrices: what Muon trains; the other optimizer's groups lose them.
        other: an optimizer that has made no step yet. Its defaults are those that schedules read.
        options: arguments of `torch.optim.Muon`.
    """

    def __init__(self, matrices: list[Tensor], other: Optimizer, **options: Any):
        taken = set(map(id, matrices))
        for group in other.param_groups:
            group["params"] = [weights for weights in group["params"] if id(weights) not in taken]
        self.parts = (other, torch.optim.Muon(matrices, **options))
        super().__init__([group for part in self.parts for group in part.param_groups], {})
        self.defaults = other.defaults
        self._share()

    def _share(self) -> None:
        """Give both parts the groups and the state of this optimizer; loading replaces them."""
        begin = 0
        for part in self.parts:
            end = begin + len(part.param_groups)
            part.param_groups, part.state = self.param_groups[begin:end], self.state
            begin = end

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        self._share()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = self.parts[0].step(closure)
        self.parts[1].step()
        return loss
