"""Measuring a checkpoint, and what an evaluation prints, draws and files.

The functions measure accuracy by length and by output place, attention, and pairwise vectors.
"""

# Used by: eval.py, hub_cards/research, train.py. Changed freely.

import json
import operator
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from tqdm.auto import tqdm
from transformers import PreTrainedModel
from transformers.utils import logging

from longhand.data.batches import EvaluationBatches, draw_batch
from longhand.data.collator import IGNORED
from longhand.data.families import to_device
from longhand.data.formatting import Batch
from longhand.data.metrics import generated_matches, measure, place_accuracy
from longhand.data.splits import make_generator
from longhand.data.tasks.registry import find_task
from longhand.data.tasks.task import Task
from longhand.hub_cards.checkpoints.checkpoint import PLOT_FILE, Checkpoint, RefusedQuestion, file_name, is_best
from longhand.hub_cards.evaluation.budget import rows_at_once
from longhand.hub_cards.evaluation.plots import plot_attention, plot_attention_of_response, plot_position_maps, plot_results
from longhand.hub_cards.result_rows import (
    ATTENTION_FILE,
    ATTENTION_KINDS,
    ATTENTION_MAPS_FILE,
    MIXED,
    PLACES_FILE,
    POSITION_MAPS_FILE,
    RESULTS_FILE,
    Row,
    format_comparison,
    format_fields,
    format_medians,
    format_places,
    format_table,
    hardware,
    write_results,
)
from longhand.modeling.modeling_pairwise_bert import RelationVectors
from longhand.modeling.parallel_decoding import parallel_greedy

logger = logging.get_logger(__name__)

OF_ONE_RUN = ("recipe", "description", "seed", "data_seed")
"""Fields of a recipe in which seeds of one model may differ."""

POSITION_MAPS_PLOT = "positions.png"

Lengths = Mapping[Task, list[tuple[int, ...]]]
"""What `check_lengths` returns, by task."""


def report(
    rows: list[Row], folder: Path, trained_lengths: tuple[int, int] | None, groups: Mapping[str, str] | None = None
) -> None:
    """Write results.jsonl and the plot, and print the table.

    Args:
        trained_lengths: shortest and longest trained operand in digits, shaded in the plot; None if unknown.
        groups: from the name of each model to what it is a seed of, see `seed_groups`: medians over seeds are printed and
            drawn, and several groups are compared. None if nothing is compared. Models of equal weights are printed once.
    """
    folder.mkdir(parents=True, exist_ok=True)
    firsts: dict[tuple[str, str], str] = {}
    for row in rows:
        firsts.setdefault((str(row.get("weights", row["model"])), row["task"]), row["model"])
    first_of = {row["model"]: firsts[str(row.get("weights", row["model"])), row["task"]] for row in rows}
    print(format_table([row for row in rows if first_of[row["model"]] == row["model"]]))
    for name, first in first_of.items():
        if first != name:
            print(f"{name} has the weights of {first}")
    titles = set((groups or {}).values())
    if groups and len(titles) > 1:
        print(f"\n{format_comparison(rows, groups)}")
    elif groups and len(groups) > 1:
        print(f"\n{format_medians(rows)}")
    # The rows first: they are kept if a picture cannot be drawn or written.
    write_results(rows, folder / RESULTS_FILE)
    print(f"\nwrote {folder / RESULTS_FILE}")
    plot_results(rows, folder / PLOT_FILE, trained_lengths, find_task(rows[0]["task"]), groups or {})
    print(f"wrote {folder / PLOT_FILE}")


def seed_groups(checkpoints: Sequence[Checkpoint]) -> dict[str, str]:
    """What each checkpoint, by its name, is a seed of: those whose recipes differ in their seeds alone are of one group.

    A group of one has the checkpoint's own name; a larger one has the name of the first without its seed, or that of the
    recipe, and says of how many checkpoints it is.
    """
    alike: dict[str, list[Checkpoint]] = {}
    for checkpoint in checkpoints:
        known = {name: value for name, value in checkpoint.recipe.items() if name not in OF_ONE_RUN}
        # Without a recipe, nothing says that two checkpoints are alike.
        key = json.dumps(known, sort_keys=True, default=str) if known else checkpoint.name
        alike.setdefault(f"{key} {is_best(checkpoint.folder)}", []).append(checkpoint)
    groups: dict[str, str] = {}
    taken: set[str] = set()
    for members in alike.values():
        names = [checkpoint.name for checkpoint in members]
        shared = re.sub(r"[-_. ]?(seed)?[-_. ]?\d+$", "", names[0]) or members[0].recipe.get("recipe", names[0])
        title = names[0] if len(names) == 1 else f"{shared} (median of {len(names)})"
        title = title if title not in taken else ", ".join(names)
        taken.add(title)
        groups |= dict.fromkeys(names, title)
    return groups


def evaluate_lengths(
    checkpoint: Checkpoint,
    lengths: Iterable[tuple[int, ...]],
    *,
    num_samples: int = 200,
    seed: int = 0,
    split: str = "test",
    decode: str = "teacher_forced",
    worst: float | None = None,
    start: int = 1,
    mixed: Sequence[tuple[int, ...]] = (),
) -> list[Row]:
    """Measure every metric by operand lengths.

    Args:
        checkpoint: of one task, see `Checkpoint.by_part`.
        lengths: digits of every operand, as `check_lengths` returns them.
        decode: `"teacher_forced"` (one forward pass; the same event), `"generate"` (greedy decoding, token by token) or
            `"parallel"` (greedy decoding in few passes).
        worst: seconds to search each size for the worst problem; None not to.
        start: the smallest position id of every problem; a model derives 1.
        mixed: those of `lengths` of which `measure_mixed` is a field of the row too.

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
        accuracy = _measure_accuracy(model, task, operands, num_samples, seed, split, decode, start)
        took = {"seconds": round(time.perf_counter() - began, 3), "hardware": hardware(model.device)}
        took["weights"] = checkpoint.weights
        if checkpoint.run_seconds is not None:
            took["run_seconds"] = checkpoint.run_seconds
        if start != 1:
            took["start"] = start
        row = {**describe(name, task, operands, num_samples, seed), "decode": decode, **accuracy, **took}
        if worst is not None:
            from longhand.hub_cards.evaluation.worst import find_worst

            row |= find_worst(checkpoint, operands, worst, seed, split, num_samples).fields
        if operands in mixed and task.answers_questions and task.prompts_tell_sizes:
            row[MIXED] = measure_mixed(checkpoint, row["length"], num_samples, seed, split)
        rows.append(row)
    return rows


def measure_mixed(checkpoint: Checkpoint, longest: int, num_samples: int, seed: int, split: str = "test") -> float:
    """The share of right answers to problems whose operands have any sizes up to one, asked as `load` asks them."""
    from longhand.hub_cards.evaluation.other_models import problem_texts

    task, right = checkpoint.task, 0
    for part, digits, lengths in task.draw_mixed(
        make_generator("mixed", task.name, longest, seed), num_samples, longest, split
    ):
        questions, answers = problem_texts(part, digits, lengths)
        right += sum(map(operator.eq, _answers_or_none(checkpoint, questions), answers))
    return right / num_samples


def _answers_or_none(checkpoint: Checkpoint, questions: list[str]) -> list[str | None]:
    """The answers to questions; None where a model has none, since its labels do not settle."""
    try:
        return list(checkpoint.answers(questions))
    except RefusedQuestion:
        raise
    except ValueError as error:
        if len(questions) == 1:
            return [None]
        logger.debug(f"{checkpoint.name} is asked one question at a time: {error}")
    return [answer for question in questions for answer in _answers_or_none(checkpoint, [question])]


def describe(name: str, task: Task, operands: tuple[int, ...], num_samples: int, seed: int) -> Row:
    """Return the fields of a row that say what was measured."""
    length, length_b = task.size(operands)
    size = {"model": name, "task": task.name, "length": length, "length_b": length_b}
    return {**size, "num_samples": num_samples, "seed": seed}


def _divided(
    model: PreTrainedModel,
    task: Task,
    operands: tuple[int, ...],
    num_samples: int,
    seed: int,
    split: str = "test",
    start: int = 1,
) -> Iterator[Batch]:
    """Yield problems of a size as batches of inputs that a forward pass takes at once, whose ids begin with `start`."""
    one = draw_batch(model, task, operands, 1, seed, split)
    batch_size = rows_at_once(model.config, one, num_samples, model.device)
    collator = task.family.collator(model.config, start)
    batches = EvaluationBatches(task, operands, num_samples, seed, split, batch_size, collator=collator)
    for index in range(len(batches)):
        yield batches[index]


def _measure_accuracy(
    model: PreTrainedModel,
    task: Task,
    operands: tuple[int, ...],
    num_samples: int,
    seed: int,
    split: str,
    decode: str,
    start: int,
) -> dict[str, float]:
    batches = _divided(model, task, operands, num_samples, seed, split, start)
    generated = generated_matches if start == 1 else partial(generated_matches, start=start)
    counts: dict[str, Callable[..., torch.Tensor]] = {
        "teacher_forced": task.family.forward_matches,
        "generate": generated,
        "parallel": partial(generated, custom_generate=parallel_greedy),
    }
    answer_length = task.answer_length(operands)
    with torch.inference_mode():
        matches = torch.cat([counts[decode](model, batch, answer_length) for batch in batches]).numpy()
    return measure(matches)


def _write_table(rows: list[Row], file: Path, table: str) -> None:
    write_results(rows, file)
    print(f"\n{table}\n\nwrote {file}")


def write_places(checkpoints: list[Checkpoint], lengths: Lengths, num_samples: int, seed: int, folder: Path) -> None:
    """Measure and write the accuracy of every digit of the answer."""
    measured = [measure_places(checkpoint, lengths[checkpoint.task], num_samples, seed) for checkpoint in checkpoints]
    rows = [row for rows in measured for row in rows]
    _write_table(rows, folder / PLACES_FILE, format_places(rows))


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


def check_attentions(checkpoint: Checkpoint) -> None:
    """Raise ValueError if the model records no attention weights."""
    if "attentions" not in checkpoint.model.can_record_outputs:
        raise ValueError(f"--attentions: {checkpoint.name} has no attention")


def write_attention(checkpoints: list[Checkpoint], lengths: Lengths, num_samples: int, seed: int, folder: Path) -> None:
    """Plot the attention of decoders or encoders, and write it, and which tokens each head looks at (paper 1, Fig. 7)."""
    rows, drawn = [], []
    for checkpoint in checkpoints:
        task, operands = checkpoint.task, lengths[checkpoint.task][0]
        batch = draw_batch(checkpoint.model, task, operands, num_samples, seed)
        maps = mean_attention(checkpoint, batch)
        described = describe(checkpoint.name, task, operands, num_samples, seed)
        asked = maps[:, :, 1 - batch["logits_to_keep"] :] if "logits_to_keep" in batch else maps
        decides = task.deciding_keys(batch["input_ids"][0].numpy(force=True))
        of_answer = {} if decides is None else {"decides": decides.astype(int).tolist()}
        shares = shares_of_deciding(maps, decides)
        rows += [{**described, **row, **share} for row, share in zip(attention_rows(asked, batch), shares, strict=True)]
        names = getattr(checkpoint.model.config, "tokens", task.family.tokens)
        map_rows = [{**described, **row, **of_answer} for row in attention_map_rows(maps, batch, names)]
        part = f"-{task.name}" if len(lengths) > 1 else ""
        for draw, suffix in ((plot_attention, ""), (plot_attention_of_response, "-response")):
            draw(map_rows, file := folder / f"attention-{file_name(checkpoint.name)}{part}{suffix}.png")
            print(f"wrote {file}")
        drawn += map_rows
    write_results(drawn, folder / ATTENTION_MAPS_FILE)
    columns = ["layer", "head", *ATTENTION_KINDS]
    if all("sigma" in row for row in rows):
        columns.append("sigma")
    _write_table(rows, folder / ATTENTION_FILE, format_fields(rows, columns))


def shares_of_deciding(maps: torch.Tensor, decides: np.ndarray | None) -> list[dict[str, float]]:
    """Return what each head gives to the tokens that decide a label (sigma of paper 2), the mean over tokens with a label.

    Args:
        maps: see `mean_attention`.
        decides: `Task.deciding_keys`, (tokens, tokens); None if the task does not say it.

    Returns:
        `sigma` for each layer and head, or nothing.
    """
    heads = maps.flatten(0, 1)
    if decides is None:
        return [{}] * len(heads)
    labelled = torch.from_numpy(decides.any(1))
    keys = torch.from_numpy(decides)[labelled]
    return [{"sigma": float((head[labelled, : keys.shape[1]] * keys).sum(1).mean())} for head in heads]


def mean_attention(checkpoint: Checkpoint, batch: Batch) -> torch.Tensor:
    """Return the attention of every token that predicts to all tokens, averaged over the problems of a batch.

    Returns:
        (layers, heads, queries, tokens).
    """
    model, count, totals = checkpoint.model, len(batch["input_ids"]), []
    # The last token of a response predicts nothing.
    queries = slice(-1) if "logits_to_keep" in batch else slice(None)
    # Weights of every layer are kept, so that a pass has a share of the bytes for each.
    size = max(1, rows_at_once(model.config, batch, count, model.device) // model.config.num_hidden_layers)
    implementation = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        for first in range(0, count, size):
            # One row of ids stands for all problems.
            part = {
                name: value[first : first + size] if len(value) == count else value
                for name, value in to_device(batch, model.device).items()
                if isinstance(value, torch.Tensor)
            }
            with torch.inference_mode():
                outputs = model(**part, **checkpoint.task.family.forward_options, output_attentions=True)
            totals.append(torch.stack([weights[:, :, queries].float().sum(0).cpu() for weights in outputs.attentions]))
    finally:
        model.set_attn_implementation(implementation)
    return torch.stack(totals).sum(0) / count


def attention_rows(maps: torch.Tensor, batch: Batch) -> list[Row]:
    """Return which tokens every head looks at, by the difference of their ids from the query's.

    Ids are those of the first level; without any, the places of tokens. In a sum, a column has the id of its digits, and
    the next column the id below.

    Args:
        maps: see `mean_attention`.

    Returns:
        A row for each layer and head: the mean weight on tokens with the `same_id`, the `id_below`, the `id_above`, with
        `no_id` (the beginning), and on all `others`, a sink among them.
    """
    tokens = batch["input_ids"].shape[1]
    ids = batch["position_ids"][0, 0].cpu() if "position_ids" in batch else torch.arange(1, tokens + 1)
    end = tokens - 1 if "logits_to_keep" in batch else tokens
    difference = ids - ids[end - maps.shape[2] : end, None]
    kinds = {name: (difference == by) & (ids > 0) for name, by in (("same_id", 0), ("id_below", -1), ("id_above", 1))}
    kinds["no_id"] = (ids == 0).expand_as(difference)
    rows = []
    for layer, heads in enumerate(maps, 1):
        # A sink is a key behind the tokens.
        for head, head_map in enumerate(heads[..., :tokens], 1):
            shares = {name: float((head_map * kind).sum(1).mean()) for name, kind in kinds.items()}
            rows.append({"layer": layer, "head": head, **shares, "others": max(0.0, 1 - sum(shares.values()))})
    return rows


def attention_map_rows(maps: torch.Tensor, batch: Batch, names: Sequence[str]) -> list[Row]:
    """Return a row for each layer and head with its attention, for pictures.

    Args:
        maps: see `mean_attention`.
        names: the texts of tokens by their ids.

    Returns:
        Rows with `tokens`, their texts, `#` for those that differ among the problems; `ids`, the position ids of each, None
        if the model has none; `response`, the queries that predict the response; and `weights` (queries, keys), to 5
        places. An encoder may have one key more, a sink.
    """
    tokens, labels = batch["input_ids"], batch["labels"][0]
    texts = [names[int(token)] if (tokens[:, place] == token).all() else "#" for place, token in enumerate(tokens[0])]
    response = (labels != IGNORED).nonzero().flatten()
    if "logits_to_keep" in batch:
        response = response - 1
    ids = batch["position_ids"][0].T.tolist() if "position_ids" in batch else None
    common = {"tokens": texts, "ids": ids, "response": response.tolist()}
    return [
        {
            "layer": layer,
            "head": head,
            **common,
            "weights": [[round(value, 5) for value in row] for row in head_map.tolist()],
        }
        for layer, heads in enumerate(maps, 1)
        for head, head_map in enumerate(heads, 1)
    ]


def check_position_maps(checkpoint: Checkpoint) -> None:
    """Raise ValueError if the model has no pairwise vectors."""
    if not any(isinstance(module, RelationVectors) for module in checkpoint.model.modules()):
        raise ValueError(f"--position_maps: {checkpoint.name} has no pairwise vectors")


def write_position_maps(checkpoints: list[Checkpoint], folder: Path) -> None:
    """Write how dispersed the pairwise vectors of encoders are, and draw their norms."""
    rows = [row for checkpoint in checkpoints for row in measure_position_maps(checkpoint)]
    plot_position_maps(rows, folder / POSITION_MAPS_PLOT)
    print(f"wrote {folder / POSITION_MAPS_PLOT}")
    fields = ("layer", "rule", "strongest", "share", "effective_relations", "relations")
    _write_table(rows, folder / POSITION_MAPS_FILE, format_fields(rows, fields))


def measure_position_maps(checkpoint: Checkpoint) -> list[Row]:
    """Measure how dispersed the pairwise vectors of every layer are over the differences of ids.

    The share of a vector is its squared length divided by the sum of all squared lengths. `effective_relations` is e to the
    entropy of the shares: n if n vectors have the same length and all others are 0. Vectors of a multiplier's digits are
    left out, so that RPE and UPE compare (paper 2, App. C.3, which judges by eye). `after` has the shares of the vectors
    for the three keys after the query, the nearest first, which in a number are the next less significant digits. They are
    in multiples of an equal share, and 0 outside the window.

    Returns:
        A row for each layer and rule. `norms` are the lengths of the vectors, from the relation `first_relation` on.
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
            measured |= {"first_relation": low, "norms": [round(float(length), 6) for length in np.sqrt(lengths)]}
            measured["after"] = [float(shares[at] * len(shares)) if 0 <= at < len(shares) else 0.0 for at in after]
            rows.append({"model": checkpoint.name, "layer": layer, "rule": rule.name, **measured})
    return rows
