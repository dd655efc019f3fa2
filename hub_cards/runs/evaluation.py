"""Measuring a checkpoint: accuracy by length and by output place, position maps, attention."""

import platform
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm
from transformers import PreTrainedModel

from longhand.data import EvaluationBatches, Task
from longhand.data.certificates import hash_weights
from longhand.data.collator import IGNORED
from longhand.data.metrics import generated_matches, place_accuracy
from longhand.hub_cards.metrics.exact_match_by_length.counting import summarize
from longhand.hub_cards.runs.checkpoints import Checkpoint
from longhand.hub_cards.runs.results import Row
from longhand.modeling.modeling_pairwise_bert import RelationVectors

RESPONSE_TOKENS_PER_BATCH = 4096
"""Size of one batch of an evaluation. What is computed of this many tokens still fits into a processor's caches."""


def check_lengths(model: PreTrainedModel, task: Task, lengths: list[tuple[int, ...]]) -> None:
    """Raise ValueError for operands that the model cannot take, before any time is spent."""
    for operands in lengths:
        task.family.check_inputs(task, model, draw_batch(model, task, operands))


def draw_batch(
    model: PreTrainedModel, task: Task, operands: tuple[int, ...], count: int = 1, seed: int = 0, split: str = "test"
) -> dict[str, Any]:
    """Return problems of a size as one batch of inputs for a model."""
    return EvaluationBatches(task, operands, count, seed, split, count, collator=task.family.collator(model.config))[0]


def evaluate_lengths(
    model: PreTrainedModel,
    task: Task,
    lengths: list[tuple[int, ...]],
    *,
    name: str,
    num_samples: int = 200,
    seed: int = 0,
    split: str = "test",
    decode: str = "teacher_forced",
) -> list[Row]:
    """Measure exact match and per-token accuracy by operand lengths; for a task with a scratchpad, the answer's alone too.

    Args:
        lengths: digits of every operand.
        name: the model's name in the results.
        decode: `"teacher_forced"` (one forward pass; the same event) or `"generate"` (greedy decoding).

    Returns:
        One row of results.jsonl for each of `lengths`.

    Raises:
        ValueError: operands that the model cannot take, or responses that it cannot generate.
    """
    check_lengths(model, task, lengths)
    if decode == "generate":
        task.family.check_generation(task)
    rows, weights = [], hash_weights(model)
    for operands in tqdm(lengths, desc=f"evaluating {name}", disable=not sys.stderr.isatty(), leave=False):
        began = time.perf_counter()
        accuracy = _measure_accuracy(model, task, operands, num_samples, seed, split, decode)
        took = {"seconds": round(time.perf_counter() - began, 3), "hardware": hardware(model.device), "weights": weights}
        rows.append({**describe(name, task, operands, num_samples, seed), "decode": decode, **accuracy, **took})
    return rows


def describe(name: str, task: Task, operands: tuple[int, ...], num_samples: int, seed: int) -> Row:
    """Return the fields of a row that say what was measured."""
    length, length_b = task.size(operands)
    size = {"model": name, "task": task.name, "length": length, "length_b": length_b}
    return {**size, "num_samples": num_samples, "seed": seed}


def _measure_accuracy(
    model: PreTrainedModel, task: Task, operands: tuple[int, ...], num_samples: int, seed: int, split: str, decode: str
) -> dict[str, float]:
    one = draw_batch(model, task, operands, 1, seed, split)
    batch_size = min(num_samples, max(1, RESPONSE_TOKENS_PER_BATCH // int((one["labels"] != IGNORED).sum())))
    collator = task.family.collator(model.config)
    batches = EvaluationBatches(task, operands, num_samples, seed, split, batch_size, collator=collator)
    measure: Callable[..., torch.Tensor] = generated_matches if decode == "generate" else task.family.forward_matches
    answer_length = task.answer_length(operands)
    with torch.inference_mode():
        matches = torch.cat([measure(model, batches[index], answer_length) for index in range(len(batches))]).numpy()
    exact, right, supervised = matches[:, :3].T
    accuracy = summarize(exact, right, supervised, np.zeros(len(matches)))
    answer = {} if answer_length is None else {"answer_match": float(matches[:, 3].mean())}
    return {"exact_match": accuracy["exact_match"], **answer, "token_accuracy": accuracy["token_accuracy"]}


def measure_places(checkpoint: Checkpoint, lengths: list[tuple[int, ...]], num_samples: int, seed: int) -> list[Row]:
    """Measure the accuracy of every place of the answer, the last place being 1 (paper 2, Table 1).

    Returns:
        A row for each of `lengths` and each place.
    """
    task, rows = checkpoint.task, []
    for operands in lengths:
        batch = draw_batch(checkpoint.model, task, operands, num_samples, seed)
        with torch.inference_mode():
            logits, labels = task.family.forward(checkpoint.model, batch)
            masks: Any = task.family.right_tokens(logits, labels)
            accuracy = place_accuracy(*(mask.cpu() for mask in masks))
        shared = describe(checkpoint.name, task, operands, num_samples, seed)
        rows += [{**shared, "place": place, "accuracy": share} for place, share in enumerate(accuracy.tolist(), 1)]
    return rows


def check_position_maps(checkpoint: Checkpoint) -> None:
    """Raise ValueError if the model has no pairwise vectors."""
    if not any(isinstance(module, RelationVectors) for module in checkpoint.model.modules()):
        raise ValueError(f"--position_maps: {checkpoint.name} has no pairwise vectors")


def check_attentions(checkpoint: Checkpoint) -> None:
    """Raise ValueError if the model records no attention weights."""
    if "attentions" not in checkpoint.model.can_record_outputs:
        raise ValueError(f"--attentions: {checkpoint.name} has no attention")


def position_maps(model: PreTrainedModel) -> list[dict[str, np.ndarray]]:
    """Return the pairwise vectors of every layer by rule: (relations, elements), with the vectors of all heads in a row."""
    return [
        {rule.name: rule.weight.detach().float().flatten(1).cpu().numpy() for rule in layer.self_attn.relations}
        for layer in model.model.layers
    ]


def measure_position_maps(checkpoint: Checkpoint) -> list[Row]:
    """Measure how dispersed the pairwise vectors of every layer are over the differences of ids.

    The share of a vector is its squared length divided by the sum of all squared lengths. `effective_relations` is e to the
    entropy of the shares: n if n vectors have the same length and all others are 0. Vectors of a multiplier's digits are
    left out, so that RPE and UPE compare (paper 2, App. C.3, which judges by eye).

    Returns:
        A row for each layer and rule.
    """
    low, high = checkpoint.model.config.relation_range
    rows = []
    for layer, tables in enumerate(position_maps(checkpoint.model), 1):
        for rule, table in tables.items():
            lengths = np.square(table[: high - low + 1]).sum(1)
            shares = lengths / lengths.sum()
            entropy = -(shares * np.log(np.maximum(shares, np.finfo(np.float32).tiny))).sum()
            strongest = int(shares.argmax())
            measured = {"strongest": strongest + low, "share": float(shares[strongest])}
            measured |= {"effective_relations": float(np.exp(entropy)), "relations": high - low + 1}
            rows.append({"model": checkpoint.name, "layer": layer, "rule": rule, **measured})
    return rows


def hardware(device: torch.device) -> str:
    """Return what a number was measured on: the accelerator's name, or the processor's kind and the threads in use."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
