"""Configurations and inputs that the models refuse."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from position_subjects import SUMS, build, encode, tokens_of

from longhand.modeling import CoupledGPTConfig, PairwiseBertConfig

TOKENS = encode("learned", SUMS[0]).input_ids
SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
SETTLING = {"label_states": True, "windowed": True, "pair_maps": ["coupled"], "attention_probs_dropout_prob": 0.0}
UNFIT_TO_SETTLE = (
    {"where_relations_enter": "score"},
    {"num_hidden_layers": 2},
    {"windowed": False},
    {"num_loops": 2},
    {"num_labels": 11},
)
DECODERS = [
    *({name: 0} for name in (*SIZES, "max_position_ids")),
    *({name: "unknown"} for name in ("mlp", "norm", "norm_placement", "init", "attention_scale", "hidden_act")),
    *({name: "unknown"} for name in ("position_encoding", "position_init", "coupling")),
    {"attention_scale": "zero", "position_encoding": "learned"},
    {"qk_norm": True, "attention_scale": "zero"},
    {"position_levels": 2},
    *({"relation_range": bounds} for bounds in ([1, 0], [0, 1, 2])),
    {"hidden_size": 30},
    {"hidden_size": "64"},
    {"eos_token_id": 3},
    *({"position_encoding": name, "randomized_positions": True} for name in ("pairwise", "none")),
    *({"position_encoding": name} for name in ("alibi", "t5", "fire")),
    # What nothing reads.
    *({name: 7} for name in ("n_layer", "dropout", "num_key_value_heads", "attention_probs_dropout_prob")),
    *({"relation_range": [0, 1], "position_encoding": name} for name in ("none", "learned", "sinusoidal", "rotary")),
    {"relation_range": [0, 1], "position_encoding": "t5", "coupling": "sequential"},
]
ENCODERS = [
    *({name: 0} for name in (*SIZES, "max_position_embeddings", "max_multiplier_length", "num_loops")),
    *({"pair_maps": maps} for maps in (["rotary"], ["relative", "none"], [], "relative")),
    *({"relation_range": bounds} for bounds in ([1, 2], [0], [-1, 0, 1])),
    *({"pair_maps": maps, "windowed": True} for maps in (["none"], ["relative", "coupled"] * 4)),
    {"relation_init": "one_per_head"},
    {"absolute_positions": "some"},
    {"hidden_size": 100, "num_attention_heads": 8},
    {"hidden_act": "swoosh"},
    {"hidden_dropout_prob": 1.1},
    {"attention_probs_dropout_prob": -0.1},
    {"layer_norm_eps": 0.0},
    *({"initializer_range": value} for value in (-1.0, float("inf"))),
    {"settle_tolerance": 0.0},
    {"settle_weight": 0.1},
    {"where_relations_enter": "value"},
    {"where_relations_enter": "query", "sink": True},
    {"where_relations_enter": "score", "relation_init": "one_per_head", "relation_range": [0, 1]},
    {"with_self": False},
    *({"settle_weight": weight, "num_loops": 2} for weight in (-0.1, float("inf"))),
    {"num_hidden_layers": 2.0},
    *({name: 7} for name in ("n_layer", "dropout", "num_key_value_heads", "num_relation", "d_model")),
    *(unfit | {"num_hidden_layers": 1, **SETTLING} | unfit for unfit in UNFIT_TO_SETTLE),
]


@pytest.mark.parametrize(
    ("kind", "options"),
    [*((CoupledGPTConfig, options) for options in DECODERS), *((PairwiseBertConfig, options) for options in ENCODERS)],
    ids=str,
)
def test_illegal_value_of_a_configuration_is_refused_by_name(kind, options):
    with pytest.raises((ValueError, StrictDataclassError), match=next(iter(options))):
        kind(**options)


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("learned", {}),
        ("learned", {"input_ids": TOKENS, "inputs_embeds": torch.zeros(1, 14, 32)}),
        *(("learned", {"input_ids": TOKENS, "attention_mask": torch.ones(shape)}) for shape in ((1, 12), (2, 14), (14,))),
        ("relative", {"input_ids": tokens_of("1+5"), "attention_mask": torch.ones(1, 4)}),
        ("relative", {"input_ids": tokens_of("1+5", "_12+_95")}),
        ("coupled", {"input_ids": tokens_of("1+5")[0]}),
        ("coupled", {"input_ids": tokens_of("1+5")[:0]}),
        ("coupled", {"input_ids": tokens_of("125")}),
        ("uniform", {"input_ids": tokens_of("1257*7")}),
        ("absolute", {"input_ids": tokens_of("1+5" + "0" * 18)}),
        ("coupled", {"input_ids": tokens_of("1+5"), "inputs_embeds": torch.zeros(1, 3, 16)}),
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


@pytest.mark.parametrize("encoding", ["learned", "rotary, coupled", "pairwise", "windowed"])
def test_missing_ids_beside_a_cache_are_refused(encoding):
    model = build(encoding)
    cache = model(TOKENS[:, :9], use_cache=True).cache
    with pytest.raises(ValueError, match="position_ids cannot be derived"):
        model(TOKENS[:, 9:10], cache=cache)
    if model.model.position_encoding.uses_pair_map:
        with pytest.raises(ValueError, match="those of the cached tokens too"):
            model(TOKENS[:, 9:10], position_ids=torch.tensor([[4]]), cache=cache)
