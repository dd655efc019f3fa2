"""What the bounds of all networks have in common: weights, precision, and the parts that have a bound."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from transformers import PreTrainedModel

from longhand.data.certificates.rounding import ACTIVATIONS, LARGEST, MOST_TERMS, PROVED, UNIT, Pair, Weight, bound_leads

CHUNK = {"cpu": 2**21, "cuda": 2**27}
"""Most derivatives of some inputs by their hidden units that are held at once."""


def check_parts(model: PreTrainedModel, activation: str) -> None:
    """Raise ValueError if a model's precision, activation or width has no bound; the message names it."""
    kinds, legal = {weight.dtype for weight in model.state_dict().values()}, ", ".join(map(str, UNIT))
    if len(kinds) > 1:
        found = " and ".join(sorted(map(str, kinds)))
        raise ValueError(f"the rounding of weights in {found} together has no bound: choose one of {legal}")
    if model.dtype not in UNIT:
        raise ValueError(f"rounding in {model.dtype} has no bound: choose one of {legal}")
    if activation not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise ValueError(f"hidden_act {activation!r} has no bound of its rounding: choose one of {known}")
    if (widest := max(max(weight.shape) for weight in model.state_dict().values())) > MOST_TERMS:
        raise ValueError(f"the rounding of sums has a bound for {MOST_TERMS:,} terms at most, the model has {widest:,}")


class NetworkRounding:
    """A network in exact arithmetic, with the rounding of its own precision.

    In a precision that is not in `PROVED`, the bound is that of float32 times the quotient of their units: an estimate to
    first order, which proves nothing.
    """

    def __init__(self, model: PreTrainedModel):
        self.unit = UNIT[model.dtype if model.dtype in PROVED else torch.float32]
        self.coarser = UNIT[model.dtype] / self.unit
        self.weights = {name: weight.detach().double() for name, weight in model.state_dict().items()}
        self.matrices = {name: Weight(weight) for name, weight in self.weights.items() if weight.ndim == 2}
        self.proved = all(bool((weight.abs() <= LARGEST).all()) for weight in self.weights.values())

    def bound_leads(self, leads: Callable[[Tensor, int], Iterable[Pair]], inputs: int) -> Pair:
        """Leads and bounds; see `rounding.bound_leads`.

        Args:
            leads: gives those of some of the inputs, in parts.
            inputs: their number.
        """

        def join(places: Tensor, effort: int) -> Pair:
            lead, bound = map(torch.cat, zip(*leads(places, effort), strict=True))
            return lead, bound * self.coarser if self.proved else torch.full_like(bound, torch.inf)

        return bound_leads(join, torch.arange(inputs, device=next(iter(self.weights.values())).device))

    def split(self, places: Tensor, ends: int, units: int) -> tuple[Tensor, ...]:
        """Parts of some places, such that the derivatives of so many ends by so many units can be held."""
        return places.split(max(1, CHUNK.get(places.device.type, CHUNK["cpu"]) // (ends * units)))
