"""Transformers that do arithmetic longhand: trained on short numbers, right on long ones."""

from importlib import import_module

from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM, CoupledGPTModel

__version__ = "0.1.0"

_ON_DEMAND = dict.fromkeys(("collate_rows", "compute_metrics", "preprocess_logits"), "longhand.data")
_ON_DEMAND |= {"HubCard": "longhand.hub_cards.publishing.hub_card", "zoo": "longhand.hub_cards.checkpoints.zoo"}

__all__ = ["CoupledGPTConfig", "CoupledGPTForCausalLM", "CoupledGPTModel", "__version__", *_ON_DEMAND]


def __getattr__(name: str):
    """What Trainer needs, and the zoo, imported when asked for."""
    if name not in _ON_DEMAND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ON_DEMAND[name]), name)
