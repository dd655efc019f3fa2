"""The worst problem of a size of a checkpoint: searched for, or proved not to be."""

# Used by: measure.py. Changed freely.

import time

from transformers import PreTrainedModel

from longhand.data.proofs.worst import Worst, search_wrong
from longhand.data.tasks.task import Task
from longhand.hub_cards.checkpoints.checkpoint import Checkpoint


def find_worst(
    checkpoint: Checkpoint,
    operands: tuple[int, ...],
    seconds: float,
    seed: int = 0,
    split: str = "test",
    num_samples: int = 1,
) -> Worst:
    """Search for a problem of a size that the model gets wrong, until one is found or the time is over.

    The search starts from the problems of an evaluation, so it finds one if the evaluation did. Where one length can be
    proved (`LengthProver`), half of the time is for that. What was begun when the time is over is finished: the problems of
    the evaluation, a few changed problems, a proof's tables.

    Args:
        checkpoint: of one task, see `Checkpoint.by_part`.
        operands: digits of every operand, as `check_lengths` returns them.
        seed, split, num_samples: of the evaluation.
    """
    began = time.perf_counter()
    model, task = checkpoint.model, checkpoint.task
    # The changes first: they cost little, and a proof takes what it is given.
    search, wrong = search_wrong(model, task, operands, began + seconds / 2, seed, split, num_samples)
    return wrong or _prove(model, task, operands, began + seconds - time.perf_counter()) or search.find(began + seconds)


def _prove(model: PreTrainedModel, task: Task, operands: tuple[int, ...], seconds: float) -> Worst | None:
    """What a proof of one length finds; None if it is open, or if no proof is possible."""
    from longhand.data.proofs.lengths.up_to_length import LengthProver

    length = task.size(operands)[0]
    if seconds <= 0 or operands != task.operand_lengths(length):
        return None
    try:
        found = LengthProver(model, task).verdict(length, seconds)
    except ValueError:
        return None
    if found.verdict == "proved":
        return Worst("proved", found.cases, found.lead, None)
    if found.verdict == "refuted":
        return Worst("refuted", found.cases, found.lead, found.problem, found.answer, found.right)
    return None
