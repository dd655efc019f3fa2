"""Models of others with structure, in each precision and implementation of attention, against double precision.

A part of the script for a GPU (`research gpu --parts structure`). A small model of each family has heads of 16, the
narrowest that flex attention takes on CUDA, and a random table of relations.
"""

# Used by: whoever runs or imports it. Changed freely.

import time
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

import longhand
from longhand.hub_cards.research.gpu.record import Record
from longhand.hub_cards.research.structured.families import NEW, RELATIONS, TOKENS, fill_tables, given_input, small_model
from longhand.hub_cards.result_rows import Row

FAMILIES = ("llama", "qwen3", "mistral", "mixtral", "gemma2", "gemma3_text", "gpt2", "gpt_neox", "olmo2", "phi3")
SMALL_FAMILIES = ("llama", "gpt2")
WIDTHS: dict[str, Any] = {**dict.fromkeys(("hidden_size", "n_embd"), 64), "head_dim": 16, "sliding_window": 64}
"""Sizes by which four heads have 16 numbers each."""

CLOSE = {torch.float32: 1e-3, torch.bfloat16: 0.25, torch.float16: 0.05}
"""The largest difference from double precision, as a share of the largest number, in each precision."""
IMPLEMENTATIONS = ("eager", "sdpa", "flex_attention")
LACKS = "is not there"
"""What a row says of an implementation that a family does not have."""

SUMS, SUM_DIGITS = 100_000, 20
"""Questions of one call of `longhand.load("addition")`, and digits of their numbers."""


def measure_part(record: Record) -> None:
    """Compare all families, and ask a shipped model many sums at once."""
    for kind in SMALL_FAMILIES if record.small else FAMILIES:
        # Flex attention compiles: on a processor this takes a minute, and there are no derivatives.
        for implementation in IMPLEMENTATIONS[: 2 if record.small else None]:
            for dtype in CLOSE:
                name = f"{kind}, {implementation}, {str(dtype).removeprefix('torch.')}"
                record.measure(name, partial(compare, kind, implementation, dtype, record.device), needs=3)
    record.measure("many sums", partial(ask_sums, 100 if record.small else SUMS), needs=20)


def wide_model(kind: str, implementation: str) -> Any:
    """Return a small model of a family with structure, with heads of 16 and a random table."""
    small = small_model(kind).config
    fields = small.to_dict()
    config = type(small)(**{**fields, **{name: width for name, width in WIDTHS.items() if name in fields}})
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_config(config, attn_implementation=implementation)
    model = longhand.with_structure(base, num_relations=RELATIONS, share_layers=True)
    fill_tables(model)
    return model.eval()


def answer(model: Any, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the logits of a model, and the derivatives of their weighed mean with respect to its table of relations."""
    ids, pair_map = (tensor.to(device) for tensor in given_input())
    model.zero_grad()
    logits = model(input_ids=ids, pair_map=pair_map).logits
    weights = torch.linspace(-1, 1, logits.numel(), dtype=torch.float64, device=device).view_as(logits)
    (logits.double() * weights).mean().backward()
    return logits.detach().double().cpu(), model.structure.table.grad.double().cpu()


def write(model: Any, device: torch.device) -> list[int]:
    """Return what a model writes greedily after the first row of the input."""
    ids, plan = (tensor.to(device) for tensor in given_input(TOKENS + NEW))
    written = model.generate(
        ids[:1], pair_map=plan[:1], max_new_tokens=NEW, do_sample=False, pad_token_id=0, eos_token_id=None
    )
    return written[0].tolist()


def compare(kind: str, implementation: str, dtype: torch.dtype, device: torch.device) -> Row:
    """Return how far a model in a precision on a device is from the same model in double precision on a processor."""
    exact = wide_model(kind, "eager").double()
    try:
        model = wide_model(kind, implementation).to(device, dtype)
    except ValueError:
        return {"what": "structure", "passed": True, "said": LACKS}
    row: Row = {"what": "structure"}
    pairs = zip(("logits", "derivatives"), answer(model, device), answer(exact, torch.device("cpu")), strict=True)
    for name, found, right in pairs:
        row[name] = float((found - right).abs().max() / right.abs().max())
    row["passed"] = max(row["logits"], row["derivatives"]) <= CLOSE[dtype]
    if dtype == torch.float32:
        row["writes_the_same"] = write(model, device) == write(exact, torch.device("cpu"))
        row["passed"] = row["passed"] and row["writes_the_same"]
    return row


def ask_sums(count: int) -> Row:
    """Return how long one call with many sums takes, and how many answers are wrong."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(10, (2, count, SUM_DIGITS), generator=generator).tolist()
    first, second = ([int("".join(map(str, digits))) for digits in numbers] for numbers in drawn)
    solver = longhand.load("addition")
    began = time.perf_counter()
    answers = solver([f"{augend}+{addend}" for augend, addend in zip(first, second, strict=True)])
    seconds = time.perf_counter() - began
    wrong = sum(int(said) != augend + addend for said, augend, addend in zip(answers, first, second, strict=True))
    return {"what": "questions", "questions": count, "wrong": wrong, "seconds": round(seconds, 2), "passed": not wrong}
