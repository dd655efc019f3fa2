"""Transformers that do arithmetic longhand: trained on short numbers, right on long ones."""

from importlib import import_module

from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM, CoupledGPTModel

__version__ = "0.1.0"

_FOR_TRAINER = dict.fromkeys(("collate_rows", "compute_metrics", "preprocess_logits"), "longhand.data")
_FOR_TRAINER["HubCard"] = "longhand.hub_cards.publishing.hub_card"

__all__ = ["CoupledGPTConfig", "CoupledGPTForCausalLM", "CoupledGPTModel", "__version__", *_FOR_TRAINER]


def __getattr__(name: str):
    """What Trainer needs, imported when it is asked for: it imports `datasets`, which takes long."""
    if name not in _FOR_TRAINER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_FOR_TRAINER[name]), name)
