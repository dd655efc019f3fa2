"""Models of legal configurations that are drawn at random, with inputs for them."""

from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np
import torch
from huggingface_hub.errors import StrictDataclassError
from position_subjects import tokens_of

from longhand.data.tasks.registry import build_tokenizer
from longhand.modeling import (
    CoupledGPTConfig,
    CoupledGPTForCausalLM,
    PairwiseBertForTokenClassification,
)

DECODER_CHOICES: dict[str, list[Any]] = {
    "hidden_size": [8, 16],
    "num_hidden_layers": [1, 2],
    "num_attention_heads": [2, 4],
    "head_dim": [None, 4, 6],
    "mlp": ["geglu", "plain"],
    "hidden_act": ["gelu_pytorch_tanh", "relu"],
    "norm": ["rms", "layer", "none"],
    "norm_placement": ["pre", "post", "pre_post", "sandwich"],
    "final_norm": [None, "rms", "layer", "none"],
    "init": ["fan_in", "t5"],
    "tie_word_embeddings": [False, True],
    "attention_scale": ["sqrt", "none", "log_length", "zero"],
    "qk_norm": [False, True],
    "position_encoding": ["none", "learned", "sinusoidal", "rotary", "pairwise", "pairwise", "alibi", "t5", "fire"],
    "coupling": ["addition", "sequential", "given", "given", "abacus"],
    "position_levels": [None, None, 2],
    "num_relations": [None, 4],
    "share_level_tables": [True, False],
    "position_init": ["normal", "orthogonal"],
    "randomized_positions": [False, False, True],
    "relation_range": [None, None, [-1, 1]],
    "relation_init": ["normal", "one_per_head"],
    "windowed": [True, False],
}
ENCODER_CHOICES: dict[str, list[Any]] = {
    "hidden_size": [8, 16],
    "num_hidden_layers": [1, 2],
    "num_attention_heads": [2, 2],
    "hidden_act": ["gelu", "relu"],
    "hidden_dropout_prob": [0.1, 0.0],
    "attention_probs_dropout_prob": [0.1, 0.0],
    "absolute_positions": ["none", "all", "text", "given"],
    "pair_maps": [
        None,
        ["uniform"],
        ["uniform"],
        ["coupled"],
        ["given"],
        ["none"],
        ["relative", "coupled"],
        ["given", "relative"],
    ],
    "num_relations": [None, 4],
    "position_levels": [None, None, 2],
    "share_over_heads": [True, False],
    "where_relations_enter": ["key", "query", "score"],
    "with_self": [False, True],
    "relation_range": [None, [-1, 1]],
    "relation_init": [None, "normal", "scores", "one_per_head"],
    "windowed": [False, True],
    "num_loops": [1, 2],
    "settle_weight": [0.0, 0.0, 0.1],
    "settle_tolerance": [None, 0.01],
    "label_states": [False, False, True],
    "sink": [False, True],
    "num_labels": [None, 1, 2, 3, 11],
}
TEXT = tokens_of("_12+_95", "_35+_49")
SUMS = build_tokenizer()(["653+049=2070", "753+149=2090"], return_tensors="pt").input_ids


@cache
def draw_config(kind: type, seed: int):
    """A legal configuration: values of single fields are drawn again until they fit each other."""
    generator = np.random.default_rng(seed)
    is_decoder = kind is CoupledGPTConfig
    choices = DECODER_CHOICES if is_decoder else ENCODER_CHOICES
    given: dict[str, Any] = {"intermediate_size": 8}
    given |= {"max_position_ids": 40} if is_decoder else {"max_position_embeddings": 20}
    # What fits depends on these most.
    first = [
        name
        for name in ("num_attention_heads", "coupling", "position_encoding", "pair_maps", "num_relations")
        if name in choices
    ]
    for name in [*first, *generator.permutation([name for name in choices if name not in first]).tolist()]:
        for place in generator.permutation(len(choices[name])).tolist():
            value = choices[name][place]
            if value is None:
                break
            own = given | {name: value}
            try:
                kind(**own)
            except (ValueError, StrictDataclassError):
                continue
            given = own
            break
    return kind(**given)


def draw_model(kind: type, seed: int):
    torch.manual_seed(seed)
    config = deepcopy(draw_config(kind, seed))
    head = CoupledGPTForCausalLM if kind is CoupledGPTConfig else PairwiseBertForTokenClassification
    return head(config).eval()


def inputs_of(model) -> dict[str, torch.Tensor]:
    """Tokens, and the structure that the model asks of every call."""
    config = model.config
    tokens = SUMS if model.can_generate() else TEXT
    inputs, columns = {"input_ids": tokens}, tokens.shape[1]
    if not config.takes_structure:
        return inputs
    reads_map = bool(config.num_relations)
    levels = config.position_levels or 1
    ids = torch.arange(columns).remainder(7).add(1).expand(1, levels, -1)
    if reads_map:
        inputs["pair_map"] = torch.arange(columns).remainder(5).sub(1).expand(1, columns, -1)
    if model.can_generate():
        reads_ids = not reads_map and model.model.position_encoding.uses_position_ids
    else:
        reads_ids = config.absolute_positions == "given" or ("given" in config.pair_maps and not reads_map)
    return inputs | ({"position_ids": ids} if reads_ids else {})
