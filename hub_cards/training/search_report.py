"""Reports of the search for neighbourhoods about a run: before its first step, in a dry run, and if the run stops short."""

# Used by: train.py. Changed freely.

import time

import numpy as np
import torch
from transformers import PreTrainedModel

from longhand.data.batches import Batches
from longhand.data.proofs.check import Check, covering, coverings
from longhand.data.splits import make_generator
from longhand.data.tasks.task import Task
from longhand.hub_cards.training.arguments import Run
from longhand.hub_cards.training.trainer import BatchTrainer

TIMED_STEPS = 3
"""Batches whose forward and backward pass a dry run times, after one that is not timed."""

WORKED_PROBLEMS = 2
"""Problems that a dry run shows."""


def describe_problems(task: Task, longest: int) -> list[str]:
    """Return lines with problems of a task, each with its response or labels."""
    lengths = np.tile(np.array(task.operand_lengths(min(longest, 4))), (WORKED_PROBLEMS, 1))
    examples = task.examples(make_generator("dry run", task.name), lengths, "train")
    tokenizer = task.family.tokenizer(task)
    lines = []
    for row in range(len(lengths)):
        text = "".join(tokenizer.convert_ids_to_tokens(examples.tokens[row].tolist()))
        lines.append(f"  {text}{examples.shown_labels(row)}")
    return lines


def describe_run(run: Run, trainer: BatchTrainer) -> str:
    """Return what a run would do: what is searched and drawn, at most how many seconds it trains, and worked problems.

    Raises:
        CannotCertify: as `coverings`.
    """
    model, task, data = trainer.model, run.task.for_evaluation, run.data
    parameters = sum(parameter.numel() for parameter in model.parameters())
    drawn = task.describe_lengths(data.min_length, data.max_length)
    lines = [f"{run.name}: {parameters:,} parameters; training draws {drawn}"]
    if run.training.until_certified:
        for part, covered in zip(task.parts, coverings(model, task), strict=True):
            lines.append(f"{part.name}: {covered.count:,} neighbourhoods or cases are checked at every validation")
    lines += [*task.describe_windows(), *task.describe_sizes(data.max_length)]
    seconds = time_step(run, trainer)
    lines.append(
        f"a step takes {seconds:.2g} seconds here now: {seconds * run.training.max_steps:,.0f} seconds at most for "
        f"{run.training.max_steps:,} steps, validations and checks not counted"
    )
    for part in task.parts:
        lines += [f"problems of {part.name}:", *describe_problems(part, data.max_length)]
    return "\n".join([*lines, "nothing was written: without --dry_run, this run is trained"])


def time_step(run: Run, trainer: BatchTrainer) -> float:
    """Return the median seconds of the forward and backward pass of a batch; the weights stay as they are."""
    assert isinstance(trainer.train_dataset, Batches)
    measured = []
    for index in range(1 + TIMED_STEPS):
        began = time.perf_counter()
        batch = trainer._prepare_inputs(dict(trainer.train_dataset[index]))
        trainer.model.train()
        trainer.model(**batch).loss.backward()
        trainer.model.zero_grad()
        measured.append(time.perf_counter() - began)
    return float(np.median(measured[1:])) * run.training.gradient_accumulation_steps


def describe_rest(model: PreTrainedModel, task: Task, longest: int) -> list[str]:
    """Return what keeps a trained model from its certificate, and whether training can show it.

    Args:
        longest: symbols of the longest operand that training draws.
    """
    lines = []
    for part in task.parts:
        with torch.inference_mode():
            check = Check()
            leads = np.concatenate([check.add(model, batch) for batch in covering(model, part).batches])
        wrong = ~(leads > 0)
        if not wrong.any():
            lines.append(f"{part.name}: every prediction is right, the smallest lead is {check.margin:.3g}")
            continue
        lines.append(f"{part.name}: {check.wrong:,} of {check.predictions:,} predictions are wrong:")
        lines += [
            f"  {failure.problem}: {failure.right!r} is right, not {failure.instead!r}" for failure in check.failures[:3]
        ]
        needed = part.columns_needed
        if needed is not None and len(needed) == len(wrong):
            most = int(needed[wrong].max())
            shown = "and training draws them" if most <= longest else f"but training draws at most {longest}"
            lines.append(f"  problems of up to {most} columns show them, {shown}")
    return lines
