"""Structure in families of transformers: which carry it, how far implementations of attention agree, and who is refused.

Of each type that `AutoModelForCausalLM` or `AutoModelForTokenClassification` makes, a small model with random weights is
given a pair map (`longhand.with_structure`). Each number is a largest difference of logits or derivatives; FAMILIES.md says
what is compared. A quarter of an hour of one core:

python -m longhand.hub_cards.research families

Rows are written to families.jsonl, or to `--output`; `python -m longhand.hub_cards.research.pages` fills FAMILIES.md with
them.
"""

# Used by: precisions.py. Changed freely.

import copy
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForTokenClassification
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
)
from transformers.utils import logging

import longhand
from longhand.hub_cards.recipes import read_settings
from longhand.hub_cards.research.output import show_row, write_output
from longhand.hub_cards.result_rows import Row

RESULTS = Path(__file__).with_suffix(".jsonl")

CAUSAL, CLASSIFIES = "causal language model", "token classification"

MAKERS: dict[str, Any] = {CAUSAL: AutoModelForCausalLM, CLASSIFIES: AutoModelForTokenClassification}

TYPES: dict[str, list[str]] = {
    CAUSAL: sorted({*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES} - {"coupled_gpt"}),
    CLASSIFIES: sorted({*MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES} - {"pairwise_bert"}),
}
"""The types of transformers that have a head; this package's own take structure by themselves."""

FLEX = ("llama", "gemma2", "gemma3_text", "phi", "opt", "bert", "modernbert")
"""Types whose flex attention is measured, which is compiled for each."""

CARRIES, DIFFERS, REFUSED, NOT_BUILT, FAILS = "carries", "differs", "refused", "not built", "fails"

OUTCOMES = (CARRIES, DIFFERS, REFUSED, NOT_BUILT, FAILS)
"""What a type may do; one that differs carries structure, but not as its model without structure lets expect."""

CLOSE = 2e-5
"""A larger difference has another cause than rounding."""

SETTINGS = read_settings(Path(__file__).with_suffix(".yaml"))
"""Fields of configurations; the file says which are of which types."""

SMALL: dict[str, Any] = {name: size for size, names in SETTINGS["small"].items() for name in names} | SETTINGS["tokens"]
"""Sizes of the small models, for the fields that a configuration has."""

LARGEST = 60_000_000
"""Parameters of a model that is built."""

TOKENS, NEW, RELATIONS, PADDING = 9, 3, 5, 3
"""Tokens of the input and of a response, relations of the map, and tokens of padding."""


def small_config(kind: str) -> Any:
    """Return the configuration of a small model of a type."""
    fields = AutoConfig.for_model(kind)
    latent = SETTINGS["latent"] if hasattr(fields, "kv_lora_rank") else {}
    chosen = {name: value for name, value in (SMALL | latent).items() if _has(fields, name)} | SETTINGS["own"].get(kind, {})
    return AutoConfig.for_model(kind, **{name: value for name, value in chosen.items() if value is not None})


def _has(fields: Any, name: str) -> bool:
    """Return whether a configuration has a field for all layers; some have one for each."""
    try:
        return getattr(fields, name, None) is not None
    except ValueError:
        return False


def small_model(kind: str, head: str = CAUSAL) -> Any:
    """Return a model of a type with few random weights; without any if its small form is large."""
    config = small_config(kind)
    if head == CAUSAL and hasattr(config, "is_decoder"):
        # Encoders are causal language models if their configuration says so.
        config.is_decoder = True
    with torch.device("meta"):
        model = MAKERS[head].from_config(config)
    if sum(weights.numel() for weights in model.parameters()) > LARGEST:
        return model
    torch.manual_seed(0)
    return MAKERS[head].from_config(config, attn_implementation="eager").eval()


def fill_tables(model: Any) -> None:
    """Fill the table of a model, which is one for all layers, with random numbers."""
    with torch.no_grad():
        model.structure.table.copy_(torch.randn(model.structure.table.shape, generator=torch.Generator().manual_seed(3)))


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


def measure(kind: str, head: str = CAUSAL, flex: bool = False) -> Row:
    """Return the row of a type: whether it carries structure, the largest differences, or why it is refused.

    Args:
        flex: whether flex attention is measured, which is compiled first.
    """
    row: Row = {"family": kind, "head": head}
    try:
        plain = small_model(kind, head)
    # Each configuration fails in a way of its own where sizes do not go together.
    except Exception as error:
        return {**row, "outcome": NOT_BUILT, "why": f"{type(error).__name__} {' '.join(str(error).split()):.160}"}
    row["class"] = type(plain).__name__
    try:
        structured = longhand.with_structure(copy.deepcopy(plain), num_relations=RELATIONS, share_layers=True)
    except ValueError as error:
        is_large = any(weights.is_meta for weights in plain.parameters()) and "could not be asked" in str(error)
        why = "a small configuration is not small" if is_large else str(error)
        return {**row, "outcome": NOT_BUILT if is_large else REFUSED, "why": why}
    row |= compare(plain, structured, flex)
    unexplained = [name for name in DIFFERENCES if exceeds(row, name) and not exceeds(row, f"plain_{name}")]
    return {**row, "outcome": DIFFERS if unexplained else CARRIES}


def exceeds(row: Row, name: str) -> bool:
    """Return whether a row has a difference that rounding does not explain."""
    return isinstance(row.get(name), float) and row[name] > CLOSE


def compare(plain: Any, eager: Any, flex: bool) -> Row:
    """Return the largest differences of a model, and of the same with structure, which has tables of zeros before.

    Where a difference is large, `plain_` and its name is that of the model without structure: what is the family's own.
    """
    ids, pair_map = given_input()
    row: Row = {"layers": eager.structure_config.layers}
    takes_positions = bool(own_positions(plain, ids))
    with torch.no_grad():
        before = plain(ids).logits
        row["zeros"] = max(largest(before, eager(ids, pair_map=pair_map).logits), largest(before, eager(ids).logits))
        fill_tables(eager)
        expected = eager(ids, pair_map=pair_map).logits
        row["changed"] = largest(before, expected)
        # A mask of pairs takes the place of a window, and an index would choose keys by it.
        if not any(getattr(plain.config, name, None) for name in ("sliding_window", "local_attention", "index_topk")):
            row["mask"] = mask_difference(plain, eager, ids, pair_map, expected)
    row["gradients"] = gradient_difference(eager, ids, pair_map)
    if flex:
        row["flex"] = implementation_difference(eager, "flex_attention", ids, {"pair_map": pair_map})
    _, plan = given_input(TOKENS + NEW)
    compared: dict[str, Callable[[Any, dict[str, Tensor]], float | str]] = {
        "sdpa": lambda model, maps: implementation_difference(model, "sdpa", ids, maps),
        "padding": lambda model, maps: padding_difference(model, ids, maps, takes_positions),
    }
    for name, difference in compared.items():
        row[name] = difference(eager, {"pair_map": pair_map})
        if exceeds(row, name):
            row[f"plain_{name}"] = difference(plain, {})
    if hasattr(eager, "generate"):
        row["generate"] = generated_difference(eager, {"pair_map": plan})
        if exceeds(row, "generate"):
            row["plain_generate"] = generated_difference(plain, {})
    return row


def mask_difference(plain: Any, eager: Any, ids: Tensor, pair_map: Tensor, expected: Tensor) -> float | str:
    """Return the largest difference of logits from those of the own class with a mask that loops over pairs made."""
    is_causal = sees_no_later_token(plain, ids)
    mask = added_by_loops(eager.structure.table[0], pair_map, lambda query, key: is_causal and key > query)
    try:
        return largest(expected, plain(ids, attention_mask=mask, **own_positions(plain, ids)).logits)
    except (RuntimeError, ValueError):
        return NOT_SUPPORTED


def with_implementation(model: Any, implementation: str) -> Any | None:
    """Return a copy of a model with another implementation of attention; None if transformers has none for it."""
    try:
        other = copy.deepcopy(model)
        other.set_attn_implementation(implementation)
    except (ValueError, ImportError):
        return None
    return other


def implementation_difference(model: Any, implementation: str, ids: Tensor, maps: dict[str, Tensor]) -> float | str:
    """Return the largest difference of logits from eager attention."""
    other = with_implementation(model, implementation)
    if other is None:
        return NOT_SUPPORTED
    with torch.no_grad():
        return largest(model(ids, **maps).logits, other(ids, **maps).logits)


def gradient_difference(eager: Any, ids: Tensor, pair_map: Tensor) -> float | str:
    """Return the largest difference of the table's derivatives in sdpa from those in eager attention."""
    other = with_implementation(eager, "sdpa")
    if other is None:
        return NOT_SUPPORTED
    slopes = []
    for model in (eager, other):
        model.structure.table.grad = None
        model(ids, pair_map=pair_map).logits.square().mean().backward()
        slopes.append(model.structure.table.grad)
    return largest(*slopes)


def sees_no_later_token(model: Any, ids: Tensor) -> bool:
    """Return whether the first token's logits are the same whatever follows."""
    changed = ids.clone()
    changed[:, -1] = ids[:, -1] % 50 + 4
    return torch.equal(model(ids).logits[:, 0], model(changed).logits[:, 0])


def generated_difference(model: Any, maps: dict[str, Tensor]) -> float:
    """Return the largest difference of logits at the tokens that are generated, with a cache from without."""
    ids, _ = given_input()
    written = []
    for use_cache in (True, False):
        options = {"do_sample": False, "min_new_tokens": NEW, "output_logits": True, "return_dict_in_generate": True}
        answer = model.generate(ids, attention_mask=torch.ones_like(ids), use_cache=use_cache, **options, **maps)
        written.append(torch.stack(answer.logits[:NEW]))
    return largest(*written)


def padding_difference(model: Any, ids: Tensor, maps: dict[str, Tensor], takes_positions: bool) -> float:
    """Return the largest difference of logits with padding on the left, whose positions are those without it."""
    padded = torch.nn.functional.pad(ids, (PADDING, 0), value=0)
    mask = (torch.arange(padded.shape[1]) >= PADDING).long().expand_as(padded)
    given = {name: torch.nn.functional.pad(part, (PADDING, 0, PADDING, 0), value=-1) for name, part in maps.items()}
    if takes_positions:
        given["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        return largest(model(ids, **maps).logits, model(padded, attention_mask=mask, **given).logits[:, PADDING:])


def run(output: Path) -> None:
    """Measure every type, print its row, and write the rows and what they sum up to."""
    logging.set_verbosity_error()
    rows: list[Row] = []
    for head, kinds in TYPES.items():
        for kind in kinds:
            try:
                row = measure(kind, head, kind in FLEX)
            # A fault of one type is a row, and hides no other.
            except Exception as error:
                row = {"family": kind, "head": head, "outcome": FAILS, "why": f"{type(error).__name__} {error}"}
            rows.append(row)
            show_row(row)
            write_output([*map(shown, rows), *summary(rows)], output)


DIFFERENCES = ("zeros", "mask", "sdpa", "flex", "gradients", "generate", "padding")

SAID = {"sdpa": "sdpa against eager", "generate": "a cache against none", "padding": "left padding against none"}
"""What the differences are called that are measured without structure too."""


def summary(rows: list[Row]) -> list[Row]:
    """Return rows of what the types of each head sum up to.

    These are how many carry structure, and the largest differences of all that have none of their own; what differs in a
    family without structure too; and the names of the types of each outcome.
    """
    lines: list[Row] = []
    for head in dict.fromkeys(row["head"] for row in rows):
        types = [row for row in rows if row["head"] == head]
        counts = {outcome: sum(row["outcome"] == outcome for row in types) for outcome in OUTCOMES}
        most = {}
        for name in DIFFERENCES:
            found = [row[name] for row in types if isinstance(row.get(name), float) and f"plain_{name}" not in row]
            if found:
                most[name] = max(found)
        lines.append({"summary": "differences", "head": head, "types": len(types), **counts, **shown(most)})
    for row in rows:
        for name, said in SAID.items():
            if f"plain_{name}" in row:
                line: Row = {"summary": "own", "family": row["family"], "head": row["head"], "what": said}
                line |= {"structured": row[name], "plain": row[f"plain_{name}"]}
                lines.append(shown(line))
    for outcome in OUTCOMES:
        for head in TYPES:
            names = [f"`{row['family']}`" for row in rows if row["head"] == head and row["outcome"] == outcome]
            if names:
                lines.append({"summary": "names", "head": head, "outcome": outcome, "names": ", ".join(names)})
    return lines


def shown(row: Row) -> Row:
    """Return a row with its differences as a table shows them."""
    return {name: f"{value:.0e}" if isinstance(value, float) and value else value for name, value in row.items()}
