"""Models, coupling rules and position encodings. Importing registers both with transformers' Auto classes."""

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from .configuration_coupled_gpt import CoupledGPTConfig
from .coupling import COUPLING_RULES, CouplingRule, Plan, shift_position_ids
from .modeling_coupled_gpt import CoupledGPTForCausalLM, CoupledGPTModel
from .pair_maps import coupled_pair_map

AutoConfig.register(CoupledGPTConfig.model_type, CoupledGPTConfig, exist_ok=True)
AutoModel.register(CoupledGPTConfig, CoupledGPTModel, exist_ok=True)
AutoModelForCausalLM.register(CoupledGPTConfig, CoupledGPTForCausalLM, exist_ok=True)

__all__ = [
    "COUPLING_RULES",
    "CoupledGPTConfig",
    "CoupledGPTForCausalLM",
    "CoupledGPTModel",
    "CouplingRule",
    "Plan",
    "coupled_pair_map",
    "shift_position_ids",
]
