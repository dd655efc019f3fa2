"""Models of both families with every kind of positions, with random weights in double precision, and texts for them."""

import copy
from typing import Any

import torch
from transformers import BatchEncoding

from longhand import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.data.tasks.registry import build_tokenizer
from longhand.data.tokenization import build_encoder_tokenizer
from longhand.modeling import PairwiseBertConfig, PairwiseBertForTokenClassification
from longhand.modeling.encoder_maps import NO_MAP, derive_pair_map, virtual_indices
from longhand.modeling.query_forms import unplanned
from longhand.modeling.vocabulary import BOS, PAD

UNCOUPLED = {"coupling": "sequential"}
DECODERS = {
    "none": {"position_encoding": "none", "norm": "none", "norm_placement": "pre"},
    "learned": {"position_encoding": "learned", "norm": "layer", "norm_placement": "post"},
    "learned, uncoupled": {"position_encoding": "learned", **UNCOUPLED},
    "learned, abacus": {"position_encoding": "learned", "coupling": "abacus"},
    "learned, randomized": {"position_encoding": "learned", **UNCOUPLED, "randomized_positions": True},
    "learned, coupled and randomized": {"position_encoding": "learned", "randomized_positions": True},
    "sinusoidal": {"position_encoding": "sinusoidal", **UNCOUPLED},
    "sinusoidal, coupled": {"position_encoding": "sinusoidal"},
    "rotary": {"position_encoding": "rotary", **UNCOUPLED},
    "rotary, coupled": {"position_encoding": "rotary", "norm_placement": "pre_post", "qk_norm": True},
    "rotary, randomized": {"position_encoding": "rotary", **UNCOUPLED, "randomized_positions": True},
    "pairwise": {"position_encoding": "pairwise", "windowed": False, "attention_scale": "log_length"},
    "windowed": {"position_encoding": "pairwise"},
    "windowed, no content": {"position_encoding": "pairwise", "attention_scale": "zero", "norm_placement": "pre_post"},
    "windowed, scaled": {"position_encoding": "pairwise", "attention_scale": "log_length", "qk_norm": True},
    "alibi": {"position_encoding": "alibi", **UNCOUPLED},
    "t5": {"position_encoding": "t5", **UNCOUPLED},
    "fire": {"position_encoding": "fire", **UNCOUPLED},
    "fire, randomized": {"position_encoding": "fire", **UNCOUPLED, "randomized_positions": True},
}
ENCODERS = {
    "no vectors": {"pair_maps": ["none"]},
    "absolute": {"pair_maps": ["none"], "absolute_positions": "all"},
    "relative": {"pair_maps": ["relative"]},
    "relative, sink": {"pair_maps": ["relative"], "sink": True},
    "uniform": {"pair_maps": ["uniform"], "relation_range": [-2, 2]},
    "coupled": {"pair_maps": ["coupled"], "relation_range": [-1, 2], "share_over_heads": False},
    "mixed": {"pair_maps": ["relative", "none", "relative", "coupled"], "absolute_positions": "text"},
    "mixed, own": {"pair_maps": ["coupled", "uniform", "none", "coupled"], "share_over_heads": False, "sink": True},
    "coupled window": {"pair_maps": ["coupled"], "relation_range": [0, 1], "windowed": True},
    "uniform window": {"pair_maps": ["uniform"], "relation_range": [-1, 0], "windowed": True, "share_over_heads": False},
    "relative, in queries": {"pair_maps": ["relative"], "where_relations_enter": "query"},
    "mixed, in scores": {
        "pair_maps": ["coupled", "relative", "none", "coupled"],
        "where_relations_enter": "score",
        "share_over_heads": False,
    },
    "uniform, without self": {"pair_maps": ["uniform"], "relation_range": [-2, 2], "with_self": False},
    "loops": {"pair_maps": ["coupled"], "relation_range": [0, 1], "windowed": True, "num_loops": 3},
}
SETTLING = {
    name: {**ENCODERS[name], "label_states": True, "sink": True, "num_hidden_layers": 1}
    for name in ("coupled window", "uniform window")
}
SUBJECTS = [*DECODERS, *ENCODERS, *(f"settling, {name}" for name in SETTLING)]
LIKE_OTHERS = (
    *("learned, uncoupled", "learned, randomized", "sinusoidal, coupled", "rotary", "rotary, randomized"),
    *("windowed, scaled", "fire", "no vectors", "relative", "uniform", "coupled", "mixed, own", "coupled window"),
    "settling, coupled window",
)
"""Subjects each of whose settings another one has too: contracts of all subjects try them before a release."""

PROMPTS = ["653+049=", "7+12=", "1+1="]
SUMS = ["653+049=2070$", "7+12=910$", "1+1=2$"]
INPUTS = ["_12+_95", "1+5", "23*_12"]
WITH_TEXT = "a1+b_5c"
"""An input whose text, under a window, sees nothing."""

tokenizer = build_tokenizer()


def texts_of(name: str) -> list[str]:
    """Whole texts of several lengths."""
    if name in DECODERS:
        return SUMS
    return INPUTS if "window" in name or name == "loops" else [*INPUTS, WITH_TEXT]


def encode(name: str, *texts: str, side: str | None = None) -> BatchEncoding:
    """A batch, by default padded on the side that the family's tokenizer pads."""
    own = tokenizer if name in DECODERS else build_encoder_tokenizer()
    return own(list(texts), padding=True, padding_side=side, return_tensors="pt")


def tokens_of(*texts: str) -> torch.LongTensor:
    """Token ids of an encoder's inputs."""
    return encode("relative", *texts).input_ids


def build(name="windowed", **options):
    """A tiny model, the same at every call."""
    kept = f"{name}, {options}"
    if kept not in _BUILT:
        _BUILT[kept] = _make(name, options)
    torch.manual_seed(0)
    return copy.deepcopy(_BUILT[kept])


_BUILT: dict[str, Any] = {}


def _make(name: str, options: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    if name in DECODERS:
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48, "max_position_ids": 60}
        model = CoupledGPTForCausalLM(CoupledGPTConfig(**(sizes | DECODERS[name] | options)))
    else:
        sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
        sizes |= {"max_position_embeddings": 20, "initializer_range": 0.3, "max_multiplier_length": 3}
        sizes |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        own = ENCODERS[name] if name in ENCODERS else SETTLING[name.removeprefix("settling, ")]
        model = PairwiseBertForTokenClassification(PairwiseBertConfig(**(sizes | own | options)))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
    if hasattr(encoding := getattr(model.model, "position_encoding", None), "bias_threshold_factor"):
        # Thresholds of about 3 and 10 tokens: short inputs stand on both sides.
        encoding.bias_threshold_factor.data = torch.tensor([0.006, -0.02])
    return model.double().eval()


def assert_close(actual, expected, tolerance=1e-9):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def maps_of(config: PairwiseBertConfig, input_ids: torch.LongTensor) -> dict[str, torch.LongTensor]:
    """The pair map of each rule of an encoder, (batch, tokens, tokens)."""
    limits = (config.relation_range, config.windowed, config.max_multiplier_length, config.with_self)
    present = input_ids != PAD
    every_token = present.cumsum(1).masked_fill(~present, 0)
    maps = {}
    for name in {*config.head_maps} - {NO_MAP}:
        numbers_all = name == "relative" and not config.has_text
        indices = every_token if numbers_all else virtual_indices(input_ids)
        maps[name] = derive_pair_map(name, input_ids, indices, *limits)
    return {name: pair_map.expand(len(input_ids), -1, -1) for name, pair_map in maps.items()}


def visible_keys(model, batch) -> torch.BoolTensor:
    """Which tokens each token sees in one layer, (batch, tokens, tokens)."""
    tokens, present = batch.input_ids.shape[1], batch.attention_mask.bool().unsqueeze(1)
    if isinstance(model, PairwiseBertForTokenClassification):
        seen = present.expand(-1, tokens, -1)
        return seen & (next(iter(maps_of(model.config, batch.input_ids).values())) >= 0) if model.config.windowed else seen
    seen = torch.ones(tokens, tokens).tril().bool() & present
    if model.model.position_encoding.windowed:
        ids = model.model.plan_position_ids(batch.input_ids, tokens)
        seen = seen & (model.model.position_encoding.pair_map(ids, ids) >= 0) & ~unplanned(batch.input_ids, ids).unsqueeze(1)
    return seen


def assert_written_as_by_full_forwards(model, batch, **options) -> BatchEncoding:
    """Let a decoder write without `$`; compare the logits of every step with those of one forward pass of each row alone.

    Returns what `generate` returns.
    """
    output = model.generate(**batch, suppress_tokens=[BOS], **options, output_logits=True, return_dict_in_generate=True)
    count, copies = len(output.logits), len(output.sequences) // len(batch.input_ids)
    for row, (tokens, logits) in enumerate(zip(output.sequences, torch.stack(output.logits, dim=1), strict=True)):
        alone = tokens[batch.attention_mask[row // copies].argmax() :].unsqueeze(0)
        expected = model(alone).logits[0, -count - 1 : -1]
        assert_close(logits, expected.float(), 1e-5)
        if not options.get("do_sample"):
            logits[:, BOS] = -torch.inf
            assert torch.equal(tokens[-count:], logits.argmax(-1))
    return output
