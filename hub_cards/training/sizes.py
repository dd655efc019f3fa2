"""Whether a training run fits into memory, before any of its files is written."""

from copy import copy
from typing import Any

import torch
from transformers import PreTrainedModel

from longhand.data import Task
from longhand.data.checks import check_integer
from longhand.data.memory import INPUT_BYTES, PROBLEM_BYTES, check_memory
from longhand.hub_cards.evaluation.measure import batch_shape, check_lengths
from longhand.hub_cards.training.arguments import Run

MOST_VALIDATED = 1000
"""Most validation lengths: every validation measures all of them, and every checkpoint lists what was measured."""

_TRAINED_BYTES = 16
"""Memory of a weight in training: the weight, its gradient and two moments of AdamW, in float32."""


def check_model(run: Run) -> None:
    """Raise ValueError if lengths are illegal, or the model with its optimizer does not fit into memory; nothing is made."""
    data = run.data
    for name in ("max_length", "validation_lengths", "test_lengths"):
        given = getattr(data, name)
        check_integer(name, max(given) if isinstance(given, list) else given, 1, run.task.most_digits)
    if (count := len(set(data.validation_lengths))) > MOST_VALIDATED:
        raise ValueError(f"validation_lengths must be {MOST_VALIDATED:,} lengths at most, got {count:,}")
    # Layers are alike: two of them tell the size of any number.
    layers = getattr(run.config, "num_hidden_layers", 1)
    one, two = (count_parameters(run, count) for count in (1, 2))
    parameters = one + (layers - 1) * (two - one)
    what = f"{parameters:,} weights in training, with gradients and optimizer,"
    check_memory(parameters * _TRAINED_BYTES, what, "hidden_size or the model's other sizes", run.training.device)


def count_parameters(run: Run, layers: int | None = None) -> int:
    """Return the number of parameters of a run's model, or of one with so many layers; nothing is made."""
    config: Any = copy(run.config)
    if layers is not None:
        config.num_hidden_layers = layers
    with torch.device("meta"):
        model = run.task.family.model_class(config)
    return sum(parameter.numel() for parameter in model.parameters())


def check_training(run: Run, model: PreTrainedModel, part: Task, longest: dict[str, Any]) -> None:
    """Raise ValueError if a batch of training or validation, of the longest problems, does not fit into memory.

    Args:
        part: of the run's task.
        longest: a batch of one problem, as large as a trained one can be.
    """
    training, data, family, tested = run.training, run.data, part.family, part.for_evaluation
    tokens, kept = batch_shape(longest)
    drawn = training.batch_size * tokens * (PROBLEM_BYTES + INPUT_BYTES)
    what = f"batches of {training.batch_size:,} problems of up to {tokens:,} tokens (max_length {data.max_length:,})"
    smaller = "batch_size or max_length"
    check_memory(drawn, what, smaller)
    rows = training.batch_size // (training.world_size * training.gradient_accumulation_steps)
    needed = family.forward_bytes(run.config, rows, tokens, kept, training=True)
    check_memory(needed + drawn, f"training steps on {what}", smaller, run.training.device)
    validated = [tested.operand_lengths(length) for length in data.validation_lengths]
    rows = -(-data.validation_samples // training.world_size)
    check_lengths(model, tested, validated, data.validation_samples, rows, "validation_samples or validation_lengths")
