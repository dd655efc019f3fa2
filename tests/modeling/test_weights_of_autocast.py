"""In mixed precision, a run casts the weights of its matrices together: the gradients are those of autocast, bit for bit."""

from unittest.mock import patch

import pytest
import torch
from kinds import few_problems, recipes_of_kinds

from longhand.hub_cards.training import trainer as training
from longhand.hub_cards.training.arguments import parse_run
from longhand.train import make_trainer

FAST = ("addition", "addition-absolute", "encoder-addition", "encoder-addition-settling")
RECIPES = [recipe if recipe in FAST else pytest.param(recipe, marks=pytest.mark.release) for recipe in recipes_of_kinds()]


def gradients(recipe, folder, *options):
    sizes = ["--batch_size", "4", "--use_cpu", "True", "--bf16", "True", "--eval_steps", "1000", *few_problems(recipe)]
    trainer = make_trainer(parse_run([recipe, *sizes, *options, "--max_steps", "1001", "--output_dir", str(folder / "run")]))
    model = trainer.accelerator.prepare(trainer.model).train()
    torch.manual_seed(0)
    loss = trainer.compute_loss(model, dict(trainer.train_dataset[0]))
    loss.backward()
    return loss, {name: weights.grad for name, weights in trainer.model.named_parameters()}


@pytest.mark.parametrize("recipe", RECIPES)
def test_gradients_are_those_of_autocast(recipe, tmp_path):
    with patch.object(training.CastTogether, "apply", wraps=training.CastTogether.apply) as cast:
        loss, found = gradients(recipe, tmp_path)
    assert len(cast.call_args.args) > 2
    with patch.object(training.BatchTrainer, "compute_loss", training.Trainer.compute_loss):
        expected_loss, expected = gradients(recipe, tmp_path)
    assert loss == expected_loss
    for name, gradient in expected.items():
        if gradient is None:
            assert found[name] is None
        else:
            assert gradient.dtype == found[name].dtype and torch.equal(gradient, found[name]), name


def test_checkpointed_gradients_go_without(tmp_path):
    """They compute layers again where the cast weights are gone."""
    _, found = gradients("encoder-addition", tmp_path, "--gradient_checkpointing", "True")
    assert any(gradient is not None for gradient in found.values())


def test_weights_that_a_step_does_not_use_or_train_have_no_gradient():
    model = torch.nn.ModuleDict({name: torch.nn.Linear(4, 4) for name in ("used", "unused", "frozen")})
    model["frozen"].requires_grad_(False)
    weights = training.autocast_weights(model)
    assert {*weights} == {"used.weight", "used.bias", "unused.weight", "unused.bias"}
    cast = dict(zip(weights, training.CastTogether.apply(torch.bfloat16, *weights.values()), strict=True))
    states = torch.nn.functional.linear(torch.ones(2, 4, dtype=torch.bfloat16), cast["used.weight"], cast["used.bias"])
    states.sum().backward()
    assert {name for name, own in model.named_parameters() if own.grad is not None} == {"used.weight", "used.bias"}
