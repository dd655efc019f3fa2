"""Structure in families of transformers: which carry it, how far implementations of attention agree, and who is refused.

A small model of each family with random weights is given a pair map (`longhand.with_structure`). Each number is a largest
difference of logits or derivatives; FAMILIES.md says what is compared. Minutes on two cores:

python -m longhand.hub_cards.research families

Rows are written to families.jsonl, or to `--output`; `python -m longhand.hub_cards.research.pages` fills FAMILIES.md with
them.
"""

import argparse
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoModelForTokenClassification
from transformers.utils import logging

import longhand
from longhand.hub_cards.research.output import add_output, show_row, write_output
from longhand.hub_cards.result_rows import Row

RESULTS = Path(__file__).with_suffix(".jsonl")

# fmt: off
DECODERS = [
    "llama", "qwen2", "qwen3", "mistral", "gemma", "gemma2", "gemma3_text", "phi", "phi3", "gpt2", "gpt_neox", "opt",
    "olmo", "olmo2", "smollm3", "granite", "starcoder2", "cohere", "cohere2", "glm", "glm4", "ernie4_5", "helium",
    "bitnet", "exaone4", "persimmon", "biogpt", "gptj", "codegen", "gpt_oss", "mixtral", "qwen2_moe", "qwen3_moe",
    "deepseek_v3", "stablelm", "nemotron", "gpt_neo", "falcon", "bloom", "mpt", "mamba", "rwkv", "falcon_h1", "jamba",
    "recurrent_gemma", "qwen3_next",
]
ENCODERS = [
    "bert", "roberta", "distilbert", "electra", "modernbert", "albert", "xlm-roberta", "camembert", "esm",
    "deberta-v2", "mpnet", "nystromformer", "convbert", "fnet",
]
# fmt: on
OTHERS = ("t5", "bart")
"""Families with an encoder and a decoder."""

SMALL: dict[str, Any] = {
    **dict.fromkeys(("vocab_size", "max_position_embeddings", "n_positions", "max_seq_len"), 64),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "dim", "word_embed_proj_dim", "embedding_size"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "hidden_dim", "moe_intermediate_size", "n_inner"), 48),
    **dict.fromkeys(("num_key_value_heads", "num_experts_per_tok"), 2),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("n_group", "topk_group", "first_k_dense_replace"), 1),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank"), 16),
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "head_dim", "rotary_dim"), 8),
    **dict.fromkeys(("attn_pdrop", "resid_pdrop", "embd_pdrop", "attention_dropout", "hidden_dropout_prob", "dropout"), 0.0),
    "attention_probs_dropout_prob": 0.0,
    "sliding_window": 6,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.3,
}
"""Sizes of the small models, for the fields that a configuration has."""

OWN: dict[str, dict[str, Any]] = {
    "deepseek_v3": {"head_dim": None, "num_key_value_heads": 4},
    "esm": {"position_embedding_type": "rotary", "mask_token_id": 63, "pad_token_id": 0, "vocab_size": 64},
    "falcon": {"head_dim": None},
    "gpt_neo": {"attention_types": [[["global"], 2]]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "use_mamba_kernels": False},
    "nemotron": {"num_key_value_heads": 2, "head_dim": 8},
}
"""Fields of single families; None leaves a field out."""

TOKENS, NEW, RELATIONS, PADDING = 9, 6, 5, 3
"""Tokens of the input and of a response, relations of the map, and tokens of padding."""


def small_model(kind: str, implementation: str = "eager") -> Any:
    """Return a model of a family with few random weights."""
    fields = AutoConfig.for_model(kind)
    chosen = {name: value for name, value in SMALL.items() if getattr(fields, name, None) is not None} | OWN.get(kind, {})
    chosen = {name: value for name, value in chosen.items() if value is not None}
    torch.manual_seed(0)
    makers: dict[str, Any] = dict.fromkeys(ENCODERS, AutoModelForTokenClassification)
    maker = (makers | dict.fromkeys(OTHERS, AutoModelForSeq2SeqLM)).get(kind, AutoModelForCausalLM)
    return maker.from_config(AutoConfig.for_model(kind, **chosen), attn_implementation=implementation).eval()


def with_random_tables(kind: str, implementation: str) -> Any:
    """Return a small model with structure whose table, one for all layers, is random."""
    model = longhand.with_structure(small_model(kind, implementation), num_relations=RELATIONS, share_layers=True)
    with torch.no_grad():
        model.structure.table.copy_(torch.randn(model.structure.table.shape, generator=torch.Generator().manual_seed(3)))
    return model


def given_input(columns: int = TOKENS) -> tuple[Tensor, Tensor]:
    """Return token ids (2, tokens) and a pair map (2, columns, columns)."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, 60, (2, TOKENS), generator=generator)
    return ids, torch.randint(-1, RELATIONS, (2, columns, columns), generator=generator)


def added_by_loops(table: Tensor, pair_map: Tensor, hidden: Callable[[int, int], bool]) -> Tensor:
    """Return a mask (batch, heads, queries, keys) with what each relation adds, pair by pair."""
    batch, tokens, _ = pair_map.shape
    mask = torch.zeros(batch, table.shape[1], tokens, tokens)
    for row in range(batch):
        for query in range(tokens):
            for key in range(tokens):
                relation = int(pair_map[row, query, key])
                if hidden(query, key):
                    mask[row, :, query, key] = torch.finfo(mask.dtype).min
                elif relation >= 0:
                    mask[row, :, query, key] = table[relation]
    return mask


def own_positions(model: Any, ids: Tensor) -> dict[str, Tensor]:
    """Return the positions that a model counts by itself, as an argument; none if it counts from another number than 0."""
    counted = {"position_ids": torch.arange(ids.shape[1]).unsqueeze(0)}
    if "position_ids" not in signature(model.forward).parameters:
        return {}
    return counted if torch.equal(model(ids).logits, model(ids, **counted).logits) else {}


NOT_SUPPORTED = "not there"
"""What stands for what transformers does not have for a family, on this device."""


def largest(first: Tensor, second: Tensor) -> float:
    """Return the largest difference of two tensors."""
    return float((first - second).abs().max())


def measure(kind: str, flex: bool = True) -> Row:
    """Return the row of a family: whether it carries structure, the largest differences, or why it is refused.

    Args:
        flex: whether flex attention is measured, which is compiled first.
    """
    ids, pair_map = given_input()
    plain = small_model(kind)
    row: Row = {"family": kind, "class": type(plain).__name__, "carries": True}
    try:
        longhand.with_structure(small_model(kind), num_relations=RELATIONS)
    except ValueError as error:
        return {**row, "carries": False, "refused": str(error)}
    is_decoder = kind in DECODERS
    with torch.no_grad():
        before = plain(ids).logits
        fresh = longhand.with_structure(small_model(kind), num_relations=RELATIONS)
        row["zeros"] = max(largest(before, fresh(ids, pair_map=pair_map).logits), largest(before, fresh(ids).logits))
        eager = with_random_tables(kind, "eager")
        expected = eager(ids, pair_map=pair_map).logits
        row["changed"] = largest(before, expected)
        row["layers"] = eager.structure_config.layers
        # A mask of pairs takes the place of a window.
        if not any(getattr(plain.config, name, None) for name in ("sliding_window", "local_attention")):
            mask = added_by_loops(eager.structure.table[0], pair_map, lambda query, key: is_decoder and key > query)
            try:
                row["mask"] = largest(expected, plain(ids, attention_mask=mask, **own_positions(plain, ids)).logits)
            except RuntimeError:
                row["mask"] = NOT_SUPPORTED
        for name, implementation in (("sdpa", "sdpa"), ("flex", "flex_attention"))[: 1 + flex]:
            try:
                other = with_random_tables(kind, implementation)
                row[name] = largest(expected, other(ids, pair_map=pair_map).logits)
            except (ValueError, ImportError):
                row[name] = NOT_SUPPORTED
    row["gradients"] = gradient_difference(kind, ids, pair_map)
    if is_decoder:
        row["generate"] = generated_difference(kind)
    with torch.no_grad():
        row["padding"] = padding_difference(eager, ids, pair_map, expected)
    return row


def gradient_difference(kind: str, ids: Tensor, pair_map: Tensor) -> float | str:
    """Return the largest difference of the tables' derivatives in eager and sdpa."""
    slopes = []
    for implementation in ("eager", "sdpa"):
        try:
            model = with_random_tables(kind, implementation)
        except (ValueError, ImportError):
            return NOT_SUPPORTED
        model(ids, pair_map=pair_map).logits.square().mean().backward()
        slopes.append(model.structure.table.grad)
    return largest(*slopes)


def generated_difference(kind: str) -> float:
    """Return the number of tokens that differ, of all that are generated with and without a cache."""
    ids, plan = given_input(TOKENS + NEW)
    model, written = with_random_tables(kind, "eager"), []
    for use_cache in (True, False):
        options = {"do_sample": False, "use_cache": use_cache, "min_new_tokens": NEW}
        written.append(model.generate(ids, attention_mask=torch.ones_like(ids), pair_map=plan, **options))
    return float((written[0] != written[1]).sum())


def padding_difference(model: Any, ids: Tensor, pair_map: Tensor, expected: Tensor) -> float:
    """Return the largest difference of logits with padding on the left, whose positions are those without it."""
    padded = torch.nn.functional.pad(ids, (PADDING, 0), value=0)
    mask = (torch.arange(padded.shape[1]) >= PADDING).long().expand_as(padded)
    given = {"pair_map": torch.nn.functional.pad(pair_map, (PADDING, 0, PADDING, 0), value=-1), "attention_mask": mask}
    if own_positions(model, ids):
        given["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    return largest(expected, model(padded, **given).logits[:, PADDING:])


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add where the rows are written."""
    add_output(parser, RESULTS)


def run(output: Path) -> None:
    """Measure every family, print its row, and write the rows."""
    logging.set_verbosity_error()
    rows = []
    for kind in (*DECODERS, *ENCODERS, *OTHERS):
        rows.append(shown(measure(kind)))
        show_row(rows[-1])
        write_output(rows, output)


def shown(row: Row) -> Row:
    """Return a row with its differences as a table shows them."""
    return {name: f"{value:.0e}" if isinstance(value, float) and value else value for name, value in row.items()}
