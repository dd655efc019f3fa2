"""Models, coupling rules and position encodings. Importing registers both with transformers' Auto classes."""

from typing import TYPE_CHECKING

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from .configuration_coupled_gpt import CoupledGPTConfig
from .configuration_pairwise_bert import PairwiseBertConfig
from .coupling import COUPLING_RULES, CouplingRule, Plan, coupling_rule, shift_position_ids
from .encoder_maps import PAIR_MAP_RULES, pair_map_rule
from .modeling_coupled_gpt import CoupledGPTForCausalLM, CoupledGPTModel
from .modeling_pairwise_bert import (
    PairwiseBertForSequenceClassification,
    PairwiseBertForTokenClassification,
    PairwiseBertModel,
)
from .parallel_decoding import parallel_greedy
from .position_encodings import POSITION_ENCODINGS, PositionEncoding, position_encoding
from .relations import coupled_pair_map

if TYPE_CHECKING:
    from .structured_models import coupled_generate, with_structure
else:

    def __getattr__(name):
        """What models of others need, imported when asked for. Type checkers see the import above instead."""
        if name not in ("coupled_generate", "with_structure"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from . import structured_models

        return getattr(structured_models, name)


AutoConfig.register(CoupledGPTConfig.model_type, CoupledGPTConfig, exist_ok=True)
AutoModel.register(CoupledGPTConfig, CoupledGPTModel, exist_ok=True)
AutoModelForCausalLM.register(CoupledGPTConfig, CoupledGPTForCausalLM, exist_ok=True)
AutoConfig.register(PairwiseBertConfig.model_type, PairwiseBertConfig, exist_ok=True)
AutoModel.register(PairwiseBertConfig, PairwiseBertModel, exist_ok=True)
AutoModelForSequenceClassification.register(PairwiseBertConfig, PairwiseBertForSequenceClassification, exist_ok=True)
AutoModelForTokenClassification.register(PairwiseBertConfig, PairwiseBertForTokenClassification, exist_ok=True)

__all__ = [
    "COUPLING_RULES",
    "PAIR_MAP_RULES",
    "POSITION_ENCODINGS",
    "CoupledGPTConfig",
    "CoupledGPTForCausalLM",
    "CoupledGPTModel",
    "CouplingRule",
    "PairwiseBertConfig",
    "PairwiseBertForSequenceClassification",
    "PairwiseBertForTokenClassification",
    "PairwiseBertModel",
    "Plan",
    "PositionEncoding",
    "coupled_generate",
    "coupled_pair_map",
    "coupling_rule",
    "pair_map_rule",
    "parallel_greedy",
    "position_encoding",
    "shift_position_ids",
    "with_structure",
]
