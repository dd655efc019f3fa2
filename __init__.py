"""Transformers that do arithmetic longhand: trained on short numbers, right on long ones."""

from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM, CoupledGPTModel

__version__ = "0.1.0"

__all__ = ["CoupledGPTConfig", "CoupledGPTForCausalLM", "CoupledGPTModel", "__version__"]
