"""Every recipe's model on the device against the CPU: losses, gradients, precisions, answers."""

# Used by: whoever runs or imports it. Changed freely.

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedModel

from longhand.data.batches import EvaluationBatches, draw_batch
from longhand.data.collator import IGNORED
from longhand.data.families import to_device
from longhand.data.formatting import Batch
from longhand.hub_cards.recipes import list_recipes
from longhand.hub_cards.research.gpu.record import Record
from longhand.hub_cards.result_rows import Row
from longhand.hub_cards.training.arguments import Run, parse_run
from longhand.modeling import parallel_greedy

ROWS, DIGITS = 4, 3
"""Problems of a batch, and their digits."""

CLOSE = 1e-8
"""The largest difference of numbers near 1 that two devices may have in double precision."""

OF_FLOAT32, FLOAT32_CLOSE = ("rotary", "sinusoidal", "alibi", "t5"), 5e-7
"""Encodings that compute angles, slopes or logarithms of positions in float32 in any precision, and how close they come."""

HALF_CLOSE = 0.02
"""The largest share by which autocast may move a loss."""

SMALL_RECIPES = ("addition", "encoder-addition", "paper-attention-probe")


def run(record: Record) -> None:
    """Compare all recipes."""
    for name in SMALL_RECIPES if record.small else list_recipes():
        record.measure(name, partial(compare, name, record.device))


def compare(recipe: str, device: torch.device) -> Row:
    """What a recipe's model computes on a device and on the CPU, in several precisions, and in what the two differ."""
    run = parse_run([recipe, "--use_cpu", "True", "--bf16", "False"])
    # The same numbers whatever is drawn where: dropout has a source of its own on every device.
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        if hasattr(run.config, name):
            setattr(run.config, name, 0.0)
    torch.manual_seed(0)
    model = run.task.family.model_class(run.config)
    batches = list(map(partial(training_batch, run), run.task.parts))
    row: Row = {"what": "model", "parameters": model.num_parameters()}
    row["difference"] = max(difference(model, batch, device) for batch in batches)
    row |= half_precisions(model.float(), batches[0], device)
    if run.task.family.writes and run.task.parts[0].answers_questions:
        row["answers_differ"] = answers_differ(run, model, device)
    faults = [name for name in ("float32", "bf16", "fp16") if not row[name] <= HALF_CLOSE]
    close = FLOAT32_CLOSE if getattr(run.config, "position_encoding", None) in OF_FLOAT32 else CLOSE
    if not row["difference"] < close:
        faults.append("float64")
    if row.get("answers_differ"):
        faults.append("answers")
    return row | {"faults": faults, "passed": not faults}


def training_batch(run: Run, part: Any) -> Batch:
    """A batch of short problems with the ids of training."""
    digits = max(run.data.min_length, min(DIGITS, run.data.max_length))
    lengths = part.operand_lengths(digits)
    return EvaluationBatches(part, lengths, ROWS, 0, "train", ROWS, collator=run.training_collator)[0]


def step(model: Any, batch: Batch, device: torch.device) -> list[torch.Tensor]:
    """Loss and gradients of a training step, on the CPU."""
    return gradients(model, batch, device, lambda output: output.loss)


def gradients(model: Any, batch: Batch, device: torch.device, end: Callable[[Any], torch.Tensor]) -> list[torch.Tensor]:
    """A number that follows from a model's output in training mode, and its derivatives by all weights, on the CPU."""
    model.to(device).train().zero_grad()
    torch.manual_seed(0)
    number = end(model(**to_device(batch, device)))
    number.backward()
    derivatives = [weights.grad for weights in model.parameters() if weights.grad is not None]
    # Copies: a gradient moves with its model.
    return [value.detach().cpu().clone() for value in (number, *derivatives)]


def weighed(output: Any) -> torch.Tensor:
    """The sum of all logits, each with a weight of its own: transformers computes losses in float32 in any precision."""
    logits = output.logits
    weights = torch.linspace(-1, 1, logits.numel(), dtype=logits.dtype, device=logits.device)
    return (logits * weights.view_as(logits)).mean()


def difference(model: PreTrainedModel, batch: Batch, device: torch.device) -> float:
    """The largest difference of logits, weighed, and their derivatives between a device and the CPU, in double precision.

    Of a tensor with numbers above 1, it is a share of the largest.
    """
    model.double()
    expected, found = (gradients(model, batch, where, weighed) for where in (torch.device("cpu"), device))
    assert len(expected) == len(found)
    pairs = zip(expected, found, strict=True)
    return max(float((right - value).abs().max()) / max(1.0, float(right.abs().max())) for right, value in pairs)


def half_precisions(model: PreTrainedModel, batch: Batch, device: torch.device) -> Row:
    """By how much the loss differs in each precision from that of double precision, as a share of it; infinite for NaN."""
    expected = float(step(model.double(), batch, device)[0])
    model.float()
    row: Row = {}
    for name, dtype in (("float32", None), ("bf16", torch.bfloat16), ("fp16", torch.float16)):
        with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
            loss, *gradients = step(model, batch, device)
        finite = bool(loss.isfinite()) and all(bool(gradient.isfinite().all()) for gradient in gradients)
        row[name] = abs(float(loss) - expected) / abs(expected) if finite else math.inf
    return row


def answers_differ(run: Run, model: PreTrainedModel, device: torch.device) -> int:
    """How many greedy answers of a device and of the CPU differ, by each way to decode, in double precision."""
    task = run.task.parts[0].for_evaluation
    lengths = task.operand_lengths(max(run.data.min_length, DIGITS))
    batch = draw_batch(model, task, lengths, ROWS, split="train")
    # Rows of tasks whose queries differ in length have no common prompt.
    first = (batch["labels"] != IGNORED).int().argmax(1)
    if len(set(first.tolist())) > 1:
        return 0
    prompts = batch["input_ids"][:, : int(first[0])]
    ways: list[dict[str, Any]] = [{}]
    if model.model.position_encoding.windowed:
        ways.append({"custom_generate": parallel_greedy})
    wrong = 0
    for way in ways:
        written = [_write(model.double(), prompts, where, way) for where in (torch.device("cpu"), device)]
        wrong += ROWS if written[0].shape != written[1].shape else int((written[0] != written[1]).any(1).sum())
    return wrong


def _write(model: Any, prompts: torch.Tensor, device: torch.device, way: dict[str, Any]) -> torch.Tensor:
    model.to(device).eval()
    given = prompts.to(device)
    return model.generate(given, attention_mask=torch.ones_like(given), do_sample=False, max_new_tokens=12, **way).cpu()
