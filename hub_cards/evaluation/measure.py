"""Measuring a checkpoint: accuracy by length and by output place, position maps, attention."""

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm
from transformers import PreTrainedModel

from longhand.data import EvaluationBatches, Task
from longhand.data.collator import IGNORED
from longhand.data.families import to_device
from longhand.data.metrics import generated_matches, measure, place_accuracy
from longhand.hub_cards.checkpoints.checkpoint import Checkpoint
from longhand.hub_cards.evaluation.results import Row, hardware
from longhand.modeling.modeling_pairwise_bert import RelationVectors
from longhand.modeling.parallel_decoding import parallel_greedy

RESPONSE_TOKENS_PER_BATCH = 4096
"""Size of one batch of an evaluation. What is computed of this many tokens still fits into a processor's caches."""


def check_lengths(model: PreTrainedModel, task: Task, lengths: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Check operands before any time is spent, and return them.

    Raises:
        ValueError: the model cannot take the operands.
    """
    checked = list(lengths)
    for operands in tqdm(checked, desc="checking lengths", disable=None, leave=False, delay=1):
        task.family.check_inputs(task, model, draw_batch(model, task, operands))
    return checked


def _batch_size(one: dict[str, Any], num_samples: int) -> int:
    """Return how many problems are evaluated at once, from a batch of one."""
    return min(num_samples, max(1, RESPONSE_TOKENS_PER_BATCH // int((one["labels"] != IGNORED).sum())))


def draw_batch(
    model: PreTrainedModel, task: Task, operands: tuple[int, ...], count: int = 1, seed: int = 0, split: str = "test"
) -> dict[str, Any]:
    """Return problems of a size as one batch of inputs for a model."""
    return EvaluationBatches(task, operands, count, seed, split, count, collator=task.family.collator(model.config))[0]


def evaluate_lengths(
    checkpoint: Checkpoint,
    lengths: Iterable[tuple[int, ...]],
    *,
    num_samples: int = 200,
    seed: int = 0,
    split: str = "test",
    decode: str = "teacher_forced",
) -> list[Row]:
    """Measure every metric by operand lengths.

    Args:
        checkpoint: of one task, see `Checkpoint.by_part`.
        lengths: digits of every operand, as `check_lengths` returns them.
        decode: `"teacher_forced"` (one forward pass; the same event), `"generate"` (greedy decoding, token by token) or
            `"parallel"` (greedy decoding in few passes).

    Returns:
        One row of results.jsonl for each of `lengths`.

    Raises:
        ValueError: the model cannot generate responses.
    """
    model, task, name = checkpoint.model, checkpoint.task, checkpoint.name
    if decode != "teacher_forced":
        task.family.check_generation(task)
    rows = []
    for operands in tqdm(lengths, desc=f"evaluating {name}", disable=None, leave=False, delay=1):
        began = time.perf_counter()
        accuracy = _measure_accuracy(model, task, operands, num_samples, seed, split, decode)
        took = {"seconds": round(time.perf_counter() - began, 3), "hardware": hardware(model.device)}
        took["weights"] = checkpoint.weights
        if checkpoint.run_seconds is not None:
            took["run_seconds"] = checkpoint.run_seconds
        rows.append({**describe(name, task, operands, num_samples, seed), "decode": decode, **accuracy, **took})
    return rows


def describe(name: str, task: Task, operands: tuple[int, ...], num_samples: int, seed: int) -> Row:
    """Return the fields of a row that say what was measured."""
    length, length_b = task.size(operands)
    size = {"model": name, "task": task.name, "length": length, "length_b": length_b}
    return {**size, "num_samples": num_samples, "seed": seed}


def _divided(
    model: PreTrainedModel, task: Task, operands: tuple[int, ...], num_samples: int, seed: int, split: str = "test"
) -> Iterator[dict[str, Any]]:
    """Yield problems of a size as batches of inputs that a forward pass takes at once."""
    batch_size = _batch_size(draw_batch(model, task, operands, 1, seed, split), num_samples)
    collator = task.family.collator(model.config)
    batches = EvaluationBatches(task, operands, num_samples, seed, split, batch_size, collator=collator)
    for index in range(len(batches)):
        yield batches[index]


def _measure_accuracy(
    model: PreTrainedModel, task: Task, operands: tuple[int, ...], num_samples: int, seed: int, split: str, decode: str
) -> dict[str, float]:
    batches = _divided(model, task, operands, num_samples, seed, split)
    counts: dict[str, Callable[..., torch.Tensor]] = {
        "teacher_forced": task.family.forward_matches,
        "generate": generated_matches,
        "parallel": partial(generated_matches, custom_generate=parallel_greedy),
    }
    answer_length = task.answer_length(operands)
    with torch.inference_mode():
        matches = torch.cat([counts[decode](model, batch, answer_length) for batch in batches]).numpy()
    return measure(matches)


def measure_places(checkpoint: Checkpoint, lengths: Iterable[tuple[int, ...]], num_samples: int, seed: int) -> list[Row]:
    """Measure the accuracy of every place of the answer, the last place being 1 (paper 2, Table 1).

    Returns:
        A row for each of `lengths` and each place.
    """
    task, rows = checkpoint.task, []
    for operands in lengths:
        masks = []
        for batch in _divided(checkpoint.model, task, operands, num_samples, seed):
            with torch.inference_mode():
                masks.append([mask.cpu() for mask in task.family.right_tokens(checkpoint.model, batch)])
        accuracy = place_accuracy(*(torch.cat(parts) for parts in zip(*masks, strict=True)))
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


def read_attention(
    checkpoint: Checkpoint, operands: tuple[int, ...], num_samples: int, seed: int
) -> tuple[list[torch.Tensor], dict[str, Any]]:
    """Return the attention of every token that predicts to all tokens, and the batch of problems.

    Returns:
        For each layer (problems, heads, queries, tokens), with the last queries of the sequence; and the inputs.
    """
    model, task = checkpoint.model, checkpoint.task
    batch = draw_batch(model, task, operands, num_samples, seed)
    implementation = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        with torch.inference_mode():
            outputs = model(**to_device(batch, model.device), **task.family.forward_options, output_attentions=True)
    finally:
        model.set_attn_implementation(implementation)
    # The last token of a response predicts nothing.
    queries = slice(-batch["logits_to_keep"], -1) if "logits_to_keep" in batch else slice(None)
    return [weights[:, :, queries].float().cpu() for weights in outputs.attentions], batch


def measure_attention(checkpoint: Checkpoint, operands: tuple[int, ...], num_samples: int, seed: int) -> list[Row]:
    """Measure which tokens every head looks at, by the difference of their ids from the query's (paper 1, Fig. 7).

    Ids are those of the first level; without any, the places of tokens. In a sum, a column has the id of its digits, and
    the next column the id below.

    Returns:
        A row for each layer and head: the mean weight on tokens with the `same_id`, the `id_below`, the `id_above`, with
        `no_id` (the beginning), and on all `others`, a sink among them.
    """
    maps, batch = read_attention(checkpoint, operands, num_samples, seed)
    tokens = batch["input_ids"].shape[1]
    ids = batch["position_ids"][0, 0].cpu() if "position_ids" in batch else torch.arange(1, tokens + 1)
    rows = []
    for layer, weights in enumerate(maps, 1):
        end = tokens - 1 if "logits_to_keep" in batch else tokens
        difference = ids - ids[end - weights.shape[2] : end, None]
        kinds = {name: (difference == by) & (ids > 0) for name, by in (("same_id", 0), ("id_below", -1), ("id_above", 1))}
        kinds["no_id"] = (ids == 0).expand_as(difference)
        # A sink is a key behind the tokens.
        for head, own in enumerate(weights.mean(0)[..., :tokens], 1):
            shares = {name: float((own * kind).sum(1).mean()) for name, kind in kinds.items()}
            others = max(0.0, 1 - sum(shares.values()))
            described = describe(checkpoint.name, checkpoint.task, operands, num_samples, seed)
            rows.append({**described, "layer": layer, "head": head, **shares, "others": others})
    return rows


def measure_position_maps(checkpoint: Checkpoint) -> list[Row]:
    """Measure how dispersed the pairwise vectors of every layer are over the differences of ids.

    The share of a vector is its squared length divided by the sum of all squared lengths. `effective_relations` is e to the
    entropy of the shares: n if n vectors have the same length and all others are 0. Vectors of a multiplier's digits are
    left out, so that RPE and UPE compare (paper 2, App. C.3, which judges by eye). `after` has the shares of the vectors
    for the three keys after the query, the nearest first, which in a number are the next less significant digits. They are
    in multiples of an equal share, and 0 outside the window.

    Returns:
        A row for each layer and rule.
    """
    low, high = checkpoint.model.config.relation_range
    rows = []
    for layer, module in enumerate(checkpoint.model.model.layers, 1):
        for rule in module.self_attn.relations:
            table = rule.weight.detach()[: high - low + 1].float().flatten(1).cpu().numpy()
            lengths = np.square(table).sum(1)
            shares = lengths / lengths.sum()
            entropy = -(shares * np.log(np.maximum(shares, np.finfo(np.float32).tiny))).sum()
            strongest = int(shares.argmax())
            measured = {"strongest": strongest + low, "share": float(shares[strongest])}
            measured |= {"effective_relations": float(np.exp(entropy)), "relations": high - low + 1}
            after = [-place - low for place in (1, 2, 3)]
            measured["after"] = [float(shares[at] * len(shares)) if 0 <= at < len(shares) else 0.0 for at in after]
            rows.append({"model": checkpoint.name, "layer": layer, "rule": rule.name, **measured})
    return rows
