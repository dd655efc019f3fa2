"""Configurations and inputs that PairwiseBert refuses."""

import pytest
import torch
from encoder_subjects import build, tokens_of
from huggingface_hub.errors import StrictDataclassError

from longhand.modeling import PairwiseBertConfig

SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")


@pytest.mark.parametrize(
    "options",
    [
        *({name: 0} for name in (*SIZES, "max_position_embeddings", "max_multiplier_length", "num_loops")),
        *({"pair_maps": maps} for maps in (["rotary"], ["relative", "none"], [], "relative")),
        *({"relation_range": bounds} for bounds in ([1, 2], [0], [-1, 0, 1])),
        *({"pair_maps": maps, "windowed": True} for maps in (["none"], ["relative", "coupled"] * 4)),
        {"relation_init": "one_per_head"},
        {"absolute_positions": "some"},
        {"hidden_size": 100, "num_attention_heads": 8},
        {"hidden_act": "swoosh"},
        {"hidden_dropout_prob": 1.0},
        {"attention_probs_dropout_prob": -0.1},
        {"layer_norm_eps": 0.0},
        {"initializer_range": -1.0},
        {"initializer_range": float("inf")},
        {"settle_tolerance": 0.0},
        {"settle_weight": 0.1},
        *({"settle_weight": weight, "num_loops": 2} for weight in (-0.1, float("inf"))),
        {"num_hidden_layers": 2.0},
    ],
    ids=str,
)
def test_illegal_config_value_is_refused_by_name(options):
    with pytest.raises((ValueError, StrictDataclassError), match=next(iter(options))):
        PairwiseBertConfig(**options)


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("relative", {"input_ids": tokens_of("1+5"), "attention_mask": torch.ones(1, 4)}),
        ("coupled", {"input_ids": tokens_of("1+5")[0]}),
        ("coupled", {"input_ids": tokens_of("1+5")[:0]}),
        ("coupled", {"input_ids": tokens_of("125")}),
        ("uniform", {"input_ids": tokens_of("1257*7")}),
        ("absolute", {"input_ids": tokens_of("1+5" + "0" * 18)}),
    ],
)
def test_bad_inputs_are_refused(name, inputs):
    with pytest.raises(ValueError):
        build(name)(**inputs)


@pytest.mark.parametrize(("name", "text"), [("coupled", "125"), ("uniform", "1257*7"), ("absolute", "1+5" + "0" * 18)])
def test_inputs_are_checked_without_a_forward_pass(name, text):
    model = build(name).model
    model.check_inputs(tokens_of("1+5"))
    with pytest.raises(ValueError):
        model.check_inputs(tokens_of(text))


@pytest.mark.parametrize("name", ["pair_map", "position_ids", "inputs_embeds"])
def test_inputs_that_the_model_derives_are_refused(name):
    with pytest.raises(ValueError, match=name):
        build("coupled")(tokens_of("125+125"), **{name: torch.zeros(1, 7)})
