"""Configurations and inputs that PairwiseBert refuses."""

import re

import pytest
import torch
from encoder_subjects import build, tokens_of
from huggingface_hub.errors import StrictDataclassError

from longhand.modeling import PairwiseBertConfig


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pair_maps": ["rotary"]}, "pair_maps 'rotary' unknown: choose from relative, uniform, coupled, grid and none"),
        ({"pair_maps": ["relative", "none"]}, "one for each of 8 heads, got 2"),
        ({"pair_maps": []}, "one for each of 8 heads, got 0"),
        ({"pair_maps": "relative"}, "pair_maps"),
        ({"relation_range": [1, 2]}, "low <= 0 <= high, got [1, 2]"),
        ({"relation_range": [0]}, "low <= 0 <= high, got [0]"),
        ({"relation_range": [-1, 0, 1]}, "low <= 0 <= high, got [-1, 0, 1]"),
        ({"windowed": True, "pair_maps": ["none"]}, "windowed needs one rule for all heads, got pair_maps ['none']"),
        ({"relation_init": "one_per_head"}, "needs orthogonal vectors, got 201 relations and 96 dimensions per head"),
        ({"windowed": True, "pair_maps": ["relative", "coupled"] * 4}, "windowed needs one rule for all heads"),
        ({"absolute_positions": "some"}, "absolute_positions"),
        ({"hidden_size": 100, "num_attention_heads": 8}, "hidden_size 100 is not a multiple of num_attention_heads 8"),
        ({"hidden_act": "swoosh"}, "hidden_act 'swoosh' is unknown"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob must be in 0..1, below 1, got 1.0"),
        ({"attention_probs_dropout_prob": -0.1}, "attention_probs_dropout_prob must be in 0..1, below 1, got -0.1"),
        ({"layer_norm_eps": 0.0}, "layer_norm_eps must be above 0, got 0.0"),
        ({"initializer_range": -1.0}, "initializer_range must be above 0, got -1.0"),
        ({"settle_tolerance": 0.0}, "settle_tolerance must be above 0, got 0.0"),
        ({"settle_weight": 0.1}, "settle_weight must be 0, or above it with num_loops of at least 2, got 0.1"),
        ({"settle_weight": -0.1, "num_loops": 2}, "settle_weight must be 0, or above it"),
        ({"settle_weight": float("inf"), "num_loops": 2}, "settle_weight must be 0, or above it"),
        ({"initializer_range": float("inf")}, "initializer_range must be above 0, got inf"),
        ({"num_hidden_layers": 2.0}, "num_hidden_layers"),
        *(
            ({name: 0}, f"{name} must be at least 1, got 0")
            for name in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
        ),
        *(
            ({name: 0}, f"{name} must be at least 1, got 0")
            for name in ("max_position_embeddings", "max_multiplier_length", "num_loops")
        ),
    ],
)
def test_illegal_config_value_is_refused_by_name(options, message):
    with pytest.raises((ValueError, StrictDataclassError), match=re.escape(message)):
        PairwiseBertConfig(**options)


@pytest.mark.parametrize(
    ("name", "inputs", "message"),
    [
        ("relative", {}, "exactly one of input_ids and inputs_embeds"),
        ("relative", {"input_ids": tokens_of("1+5"), "inputs_embeds": torch.zeros(1, 3, 16)}, "exactly one of"),
        ("relative", {"inputs_embeds": torch.zeros(1, 3, 16).double()}, "from inputs_embeds: pass pair_map"),
        ("mixed", {"inputs_embeds": torch.zeros(1, 3, 16).double()}, "from inputs_embeds: pass pair_map"),
        (
            "relative",
            {"input_ids": tokens_of("1+5"), "attention_mask": torch.ones(1, 4)},
            "attention_mask must be (1, 3), got (1, 4)",
        ),
        (
            "relative",
            {"input_ids": tokens_of("1+5"), "pair_map": torch.zeros(1, 3, 4).int()},
            "pair_map must be (batch or 1, 3, 3), got (1, 3, 4)",
        ),
        (
            "coupled",
            {"input_ids": tokens_of("1+5"), "pair_map": torch.full((1, 3, 3), 4)},
            "pair_map must hold relations -1..3, got 4..4",
        ),
        (
            "mixed",
            {"input_ids": tokens_of("1+5"), "pair_map": torch.zeros(1, 3, 3).int()},
            "this model's heads have relative, coupled",
        ),
        (
            "relative",
            {"input_ids": tokens_of("1+5"), "position_ids": torch.ones(1, 4).long()},
            "position_ids must be (batch or 1, 3 tokens), got (1, 4)",
        ),
        ("coupled", {"input_ids": tokens_of("1+5")[0]}, "input_ids must be (batch, tokens), at least one of both, got (3,)"),
        (
            "coupled",
            {"input_ids": tokens_of("1+5")[:0]},
            "input_ids must be (batch, tokens), at least one of both, got (0, 3)",
        ),
        (
            "coupled",
            {"input_ids": tokens_of("1+5", "2+6"), "pair_map": torch.zeros(3, 3, 3).int()},
            "pair_map must have 1 row or 2, got 3",
        ),
        (
            "relative",
            {"input_ids": tokens_of("1+5", "2+6"), "position_ids": torch.ones(3, 3).long()},
            "position_ids must have 1 row or 2, got 3",
        ),
        ("coupled", {"input_ids": tokens_of("125")}, "row 0 of input_ids must have one '+' or '*'"),
        ("uniform", {"input_ids": tokens_of("1257*7")}, "max_multiplier_length = 3 digits, got 4"),
        ("absolute", {"input_ids": tokens_of("1+5" + "0" * 18)}, "max_position_embeddings = 20 tokens, got 21"),
    ],
)
def test_bad_inputs_are_refused_by_name(name, inputs, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        build(name)(**inputs)


@pytest.mark.parametrize(("name", "text"), [("coupled", "125"), ("uniform", "1257*7"), ("absolute", "1+5" + "0" * 18)])
def test_inputs_are_checked_without_a_forward_pass(name, text):
    model = build(name).model
    model.check_inputs(tokens_of("1+5"))
    with pytest.raises(ValueError):
        model.check_inputs(tokens_of(text))
