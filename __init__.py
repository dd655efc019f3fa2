"""Transformers that do arithmetic longhand: trained on short numbers, right on long ones."""

from importlib import import_module
from typing import TYPE_CHECKING

from longhand.modeling import (
    CoupledGPTConfig,
    CoupledGPTForCausalLM,
    CoupledGPTModel,
    PairwiseBertConfig,
    PairwiseBertForTokenClassification,
    PairwiseBertModel,
)

if TYPE_CHECKING:
    from longhand.data import CouplingCollator, collate_rows, compute_metrics, preprocess_logits
    from longhand.hub_cards.checkpoints.load import zoo
    from longhand.hub_cards.checkpoints.solver import load
    from longhand.hub_cards.metrics.exact_match_by_length.counting import exact_match_reward

__version__ = "0.2.0"

__all__ = [
    "CoupledGPTConfig",
    "CoupledGPTForCausalLM",
    "CoupledGPTModel",
    "CouplingCollator",
    "PairwiseBertConfig",
    "PairwiseBertForTokenClassification",
    "PairwiseBertModel",
    "__version__",
    "collate_rows",
    "compute_metrics",
    "exact_match_reward",
    "load",
    "preprocess_logits",
    "zoo",
]

_ON_DEMAND = dict.fromkeys(("CouplingCollator", "collate_rows", "compute_metrics", "preprocess_logits"), "longhand.data")
_ON_DEMAND |= {"load": "longhand.hub_cards.checkpoints.solver", "zoo": "longhand.hub_cards.checkpoints.load"}
_ON_DEMAND |= {"exact_match_reward": "longhand.hub_cards.metrics.exact_match_by_length.counting"}

if not TYPE_CHECKING:

    def __getattr__(name):
        """What Trainer needs, and the zoo, imported when asked for. Type checkers see the imports above instead."""
        if name not in _ON_DEMAND:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_ON_DEMAND[name]), name)
