"""Transformers that do arithmetic longhand: trained on short numbers, right on long ones.

Importing registers the models with transformers' Auto classes; they are imported with transformers, or when asked for.
"""

from typing import TYPE_CHECKING

from longhand.data.on_demand import import_after, names_on_demand

if TYPE_CHECKING:
    from longhand.data.collator import CouplingCollator, collate_rows
    from longhand.data.metrics import compute_metrics, preprocess_logits
    from longhand.hub_cards.checkpoints.load import zoo
    from longhand.hub_cards.checkpoints.solver import load
    from longhand.hub_cards.metrics.exact_match_by_length.counting import exact_match_reward
    from longhand.modeling import (
        CoupledGPTConfig,
        CoupledGPTForCausalLM,
        CoupledGPTModel,
        PairwiseBertConfig,
        PairwiseBertForSequenceClassification,
        PairwiseBertForTokenClassification,
        PairwiseBertModel,
    )
    from longhand.modeling.numbers_in_text import numbers_in_text
    from longhand.modeling.structure_rules import check_rule, structure_rule
    from longhand.modeling.structured_models import structure_parameters, with_structure
else:
    # Type checkers see the imports above instead.
    __getattr__, __dir__ = names_on_demand(
        __name__,
        {
            "CoupledGPTConfig": "longhand.modeling",
            "CoupledGPTForCausalLM": "longhand.modeling",
            "CoupledGPTModel": "longhand.modeling",
            "CouplingCollator": "longhand.data.collator",
            "PairwiseBertConfig": "longhand.modeling",
            "PairwiseBertForSequenceClassification": "longhand.modeling",
            "PairwiseBertForTokenClassification": "longhand.modeling",
            "PairwiseBertModel": "longhand.modeling",
            "check_rule": "longhand.modeling.structure_rules",
            "collate_rows": "longhand.data.collator",
            "compute_metrics": "longhand.data.metrics",
            "exact_match_reward": "longhand.hub_cards.metrics.exact_match_by_length.counting",
            "load": "longhand.hub_cards.checkpoints.solver",
            "numbers_in_text": "longhand.modeling.numbers_in_text",
            "preprocess_logits": "longhand.data.metrics",
            "structure_parameters": "longhand.modeling.structured_models",
            "structure_rule": "longhand.modeling.structure_rules",
            "with_structure": "longhand.modeling.structured_models",
            "zoo": "longhand.hub_cards.checkpoints.load",
        },
    )

__version__ = "0.2.0"

__all__ = [
    "CoupledGPTConfig",
    "CoupledGPTForCausalLM",
    "CoupledGPTModel",
    "CouplingCollator",
    "PairwiseBertConfig",
    "PairwiseBertForSequenceClassification",
    "PairwiseBertForTokenClassification",
    "PairwiseBertModel",
    "__version__",
    "check_rule",
    "collate_rows",
    "compute_metrics",
    "exact_match_reward",
    "load",
    "numbers_in_text",
    "preprocess_logits",
    "structure_parameters",
    "structure_rule",
    "with_structure",
    "zoo",
]

import_after("transformers", then="longhand.modeling")
