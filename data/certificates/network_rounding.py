"""What the bounds of all networks have in common: weights, precision, and the parts that have a bound."""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from longhand.data.certificates.rounding import ACTIVATIONS, LARGEST, MOST_TERMS, UNIT, Pair, Weight, bound_leads

CHUNK = {"cpu": 2**21, "cuda": 2**27}
"""Most derivatives of some inputs by their hidden units that are held at once."""


class NetworkRounding:
    """A network in exact arithmetic, with the rounding of its own precision.

    Attributes:
        bounded: settings of the configuration, and the values that have a bound of their rounding.
    """

    bounded: ClassVar[dict[str, tuple[Any, ...]]] = {}

    @classmethod
    def check_bounded(cls, model: PreTrainedModel) -> None:
        """Raise ValueError if the model has a part whose rounding has no bound; the message names it."""
        for name, legal in {**cls.bounded, "hidden_act": tuple(ACTIVATIONS)}.items():
            if (value := getattr(model.config, name)) not in legal:
                known = ", ".join(map(str, legal))
                raise ValueError(f"{name} {value!r} has no bound of its rounding: choose one of {known}")
        kinds = {weight.dtype for weight in model.state_dict().values()}
        if len(kinds) > 1 or not kinds <= {*UNIT}:
            found = " and ".join(sorted(map(str, kinds)))
            raise ValueError(f"rounding in {found} has no bound: choose one of {', '.join(map(str, UNIT))}")
        if (widest := max(max(weight.shape) for weight in model.state_dict().values())) > MOST_TERMS:
            raise ValueError(f"the rounding of sums has a bound for {MOST_TERMS:,} terms at most, the model has {widest:,}")

    def __init__(self, model: PreTrainedModel):
        self.check_bounded(model)
        self.config: Any = model.config
        self.unit = UNIT[model.dtype]
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
            return lead, bound if self.proved else torch.full_like(bound, torch.inf)

        return bound_leads(join, torch.arange(inputs, device=next(iter(self.weights.values())).device))

    def split(self, places: Tensor, ends: int, units: int) -> tuple[Tensor, ...]:
        """Parts of some places, such that the derivatives of so many ends by so many units can be held."""
        return places.split(max(1, CHUNK.get(places.device.type, CHUNK["cpu"]) // (ends * units)))
