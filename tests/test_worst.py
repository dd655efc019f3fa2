"""The search for the worst problem: what it calls wrong is wrong, and it changes no problem into one that is not legal."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from longhand.data import build_task
from longhand.hub_cards.evaluation.worst import _Search, find_worst, lowest_leads

SIZES = {
    "addition": (3,),
    "subtraction": (3,),
    "multiplication": (3, 2),
    "division": (3,),
    "minesweeper": (3, 3),
    "reverse": (4,),
    "addition_scratchpad": (2, 2),
    "encoder_addition": (3,),
    "encoder_multiplication": (2,),
}


def untrained(name):
    """A model of a task with random weights."""
    torch.manual_seed(0)
    task = build_task(name)
    small = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    model_class = task.family.model_class
    model = model_class(model_class.config_class(**{**task.family.config_options(task), **small})).eval()
    return SimpleNamespace(model=model, task=task)


@pytest.mark.parametrize("name", SIZES)
def test_an_untrained_model_is_wrong_in_every_task(name):
    checkpoint = untrained(name)
    operands = checkpoint.task.operand_lengths(*SIZES[name])
    found = find_worst(checkpoint, operands, seconds=1)
    assert found.answer is not None and found.answer != found.right and found.lead <= 0


@pytest.mark.parametrize("name", SIZES)
def test_changed_problems_are_legal(name):
    checkpoint = untrained(name)
    task = checkpoint.task
    search = _Search(checkpoint, task.operand_lengths(*SIZES[name]), seed=0)
    digits = search._draw(20)
    changed, batch = search._written(search._changed(digits, 40))
    assert len(changed) and changed.shape[1:] == digits.shape[1:] and len(batch["input_ids"]) == len(changed)
    if name == "addition":
        assert (changed[:, :, -1] > 0).all()
        assert not np.array_equal(changed[:20], digits)


def test_the_lowest_lead_is_that_of_the_weakest_token():
    logits = torch.tensor([[[0.0, 3.0, 1.0], [5.0, 0.0, 1.0], [9.0, 9.0, 9.0]]])
    labels = torch.tensor([[-100, 1, 0]])
    assert lowest_leads(logits, labels, ahead=1).tolist() == [2.0]
    assert lowest_leads(logits, torch.tensor([[1, 0, 2]]), ahead=0).tolist() == [0.0]
