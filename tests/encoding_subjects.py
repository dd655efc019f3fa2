"""Decoders of every position encoding, with random weights."""

import torch

from longhand import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.data.families import build_tokenizer
from longhand.modeling.vocabulary import BOS

ENCODINGS = {
    "none": {"position_encoding": "none"},
    "learned": {"position_encoding": "learned"},
    "learned, uncoupled": {"position_encoding": "learned", "coupling": "sequential"},
    "learned, abacus": {"position_encoding": "learned", "coupling": "abacus"},
    "learned, randomized": {"position_encoding": "learned", "coupling": "sequential", "randomized_positions": True},
    "learned, coupled and randomized": {"position_encoding": "learned", "randomized_positions": True},
    "sinusoidal": {"position_encoding": "sinusoidal", "coupling": "sequential"},
    "sinusoidal, coupled": {"position_encoding": "sinusoidal"},
    "rotary": {"position_encoding": "rotary", "coupling": "sequential"},
    "rotary, coupled": {"position_encoding": "rotary"},
    "rotary, randomized": {"position_encoding": "rotary", "coupling": "sequential", "randomized_positions": True},
    "pairwise": {"position_encoding": "pairwise", "windowed": False},
    "windowed": {"position_encoding": "pairwise"},
    "alibi": {"position_encoding": "alibi", "coupling": "sequential"},
    "t5": {"position_encoding": "t5", "coupling": "sequential"},
    "fire": {"position_encoding": "fire", "coupling": "sequential"},
    "fire, randomized": {"position_encoding": "fire", "coupling": "sequential", "randomized_positions": True},
}

BY_COLUMN = ("none", "learned", "rotary, coupled", "pairwise", "windowed")
"""One encoding of each form of attention, by the ids of `addition`."""

TEXTS = ["653+049=", "7+12=", "1+1="]

tokenizer = build_tokenizer()


def build(encoding="windowed", **options) -> CoupledGPTForCausalLM:
    """A tiny model with random weights, the same at every call."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48, "max_position_ids": 60}
    model = CoupledGPTForCausalLM(CoupledGPTConfig(**(sizes | ENCODINGS[encoding] | options))).eval()
    if hasattr(model.model.position_encoding, "threshold_factor"):
        # Thresholds of about 3 and 10 tokens: short inputs stand on both sides.
        model.model.position_encoding.threshold_factor.data = torch.tensor([0.006, -0.02])
    return model


def greedy(model, tokens, count) -> torch.LongTensor:
    """The tokens (1, count) that are the argmax of full forwards; `$` is not allowed."""
    prompt_length = tokens.shape[1]
    for _ in range(count):
        logits = model(tokens, attention_mask=present(model, tokens, prompt_length), use_cache=False).logits[:, -1]
        logits[:, BOS] = -torch.inf
        tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], dim=1)
    return tokens[:, prompt_length:]


def present(model, tokens, prompt_length) -> torch.LongTensor:
    """The attention mask of a prompt and what follows: under a window, tokens beyond the planned response are hidden."""
    mask = torch.ones_like(tokens)
    if model.model.position_encoding.windowed:
        ids = model.model.plan_position_ids(tokens, tokens.shape[1])
        mask[:, prompt_length:] = (ids[:, :, prompt_length:] > 0).any(1)
    return mask
