"""Encoders of every kind of positions, and texts that they read."""

import torch

from longhand.data.families import build_encoder_tokenizer
from longhand.modeling import PairwiseBertConfig, PairwiseBertForTokenClassification

TEXTS = ["_12+_95", "a1+b_5c"]
ENCODERS = {
    "none": {"pair_maps": ["none"]},
    "absolute": {"pair_maps": ["none"], "absolute_positions": "all"},
    "relative": {"pair_maps": ["relative"]},
    "uniform": {"pair_maps": ["uniform"], "relation_range": [-2, 2]},
    "coupled": {"pair_maps": ["coupled"], "relation_range": [-1, 2], "share_over_heads": False},
    "mixed": {"pair_maps": ["relative", "none", "relative", "coupled"], "absolute_positions": "text"},
    "mixed_own": {"pair_maps": ["coupled", "uniform", "none", "coupled"], "share_over_heads": False},
    "windowed": {"pair_maps": ["coupled"], "relation_range": [0, 1], "windowed": True},
    "windowed_own": {
        "pair_maps": ["uniform"],
        "relation_range": [-1, 0],
        "windowed": True,
        "share_over_heads": False,
    },
    "loops": {"pair_maps": ["coupled"], "relation_range": [0, 1], "windowed": True, "num_loops": 3},
}


def build(name="windowed", **options) -> PairwiseBertForTokenClassification:
    """A tiny model with random weights, the same at every call, in double precision and without dropout."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
    sizes |= {"max_position_embeddings": 20, "initializer_range": 0.3, "max_multiplier_length": 3}
    sizes |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = PairwiseBertConfig(**(sizes | ENCODERS[name] | options))
    model = PairwiseBertForTokenClassification(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def tokens_of(*texts: str) -> torch.LongTensor:
    return build_encoder_tokenizer()(list(texts), padding=True, return_tensors="pt").input_ids


def encode(*texts: str):
    return build_encoder_tokenizer()(list(texts), padding=True, return_tensors="pt")


def assert_close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)
