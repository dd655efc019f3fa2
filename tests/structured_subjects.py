"""Small models of others with structure, and what they are given."""

from typing import Any

import torch
from transformers import (
    BertConfig,
    BertForTokenClassification,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

import longhand

RELATIONS, TOKENS, COLUMNS = 5, 9, 15

SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
}
GROUPED = {**SIZES, "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
UNDROPPED = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def plain(kind: str = "llama", implementation: str = "eager") -> Any:
    """A model without structure, whose layers have grouped queries and, except for Llama's, windows of 6 tokens."""
    torch.manual_seed(0)
    model: Any
    if kind == "llama":
        model = LlamaForCausalLM(LlamaConfig(**GROUPED, attn_implementation=implementation))
    elif kind == "mistral":
        model = MistralForCausalLM(MistralConfig(**GROUPED, sliding_window=6, attn_implementation=implementation))
    elif kind == "gemma3":
        layers = ["sliding_attention", "full_attention"]
        config = Gemma3TextConfig(**GROUPED, sliding_window=6, layer_types=layers, attn_implementation=implementation)
        model = Gemma3ForCausalLM(config)
    else:
        model = BertForTokenClassification(BertConfig(**SIZES, **UNDROPPED, attn_implementation=implementation))
    return model.eval()


def structured(kind: str = "llama", implementation: str = "eager", **options: Any) -> Any:
    """A model with random tables."""
    options = options or {"num_relations": RELATIONS}
    model = longhand.with_structure(plain(kind, implementation), **options)
    with torch.no_grad():
        model.structure.table.copy_(torch.randn(model.structure.table.shape, generator=torch.Generator().manual_seed(3)))
    return model


def ids_of(rows: int = 2, tokens: int = TOKENS) -> torch.Tensor:
    """Token ids without those of padding and ends."""
    return torch.randint(3, 60, (rows, tokens), generator=torch.Generator().manual_seed(1))


def map_of(rows: int = 2, columns: int = TOKENS, *heads: int) -> torch.Tensor:
    """A random pair map."""
    return torch.randint(-1, RELATIONS, (rows, *heads, columns, columns), generator=torch.Generator().manual_seed(2))


def in_pairs(input_ids: torch.Tensor, attention_mask: torch.Tensor) -> dict[str, torch.Tensor]:
    """A rule: two tokens have one position."""
    return {"position_ids": attention_mask.cumsum(1) // 2}
