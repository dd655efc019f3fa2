"""No step of training waits for the device, in any kind of recipe: what the host reads of a batch, it keeps."""

import pytest
import torch
from accelerator import CUDA, Accelerator, place_training
from kinds import few_problems, recipes_of_kinds
from transformers import TrainerCallback

from longhand.hub_cards.training.arguments import parse_run
from longhand.modeling.values import on_host, send
from longhand.train import make_trainer

FAST = ("addition", "addition-absolute", "encoder-addition", "encoder-addition-settling")
RECIPES = [recipe if recipe in FAST else pytest.param(recipe, marks=pytest.mark.release) for recipe in recipes_of_kinds()]


class Counted(Exception):
    """The step that is counted is over."""


class CountSecondStep(TrainerCallback):
    """Does the second step on the accelerator: the first one, which compares ids with the rule once, is done before."""

    def __init__(self, trainer):
        self.trainer, self.accelerator = trainer, Accelerator()

    def on_step_end(self, arguments, state, control, optimizer=None, **rest):
        if state.global_step == 2:
            self.accelerator.__exit__(None, None, None)
            raise Counted
        place_training(self.trainer, optimizer)
        vars(arguments)["_setup_devices"] = CUDA
        # From here on, so that the next batch is drawn and sent as it would be.
        self.accelerator.__enter__()


def waits_of_a_step(recipe, folder, *options):
    sizes = ["--batch_size", "4", "--gradient_accumulation_steps", "1", "--eval_steps", "1000", "--use_cpu", "True"]
    sizes += few_problems(recipe)
    trainer = make_trainer(parse_run([recipe, *sizes, *options, "--max_steps", "1001", "--output_dir", str(folder / "run")]))
    count = CountSecondStep(trainer)
    trainer.add_callback(count)
    with pytest.raises(Counted):
        trainer.train()
    # Clipping asks the processor's own code where gradients lie, which the simulation does not see.
    return [wait for wait in count.accelerator.waits if "clip_grad.py" not in wait]


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_step_of_training_does_not_wait(recipe, tmp_path):
    assert waits_of_a_step(recipe, tmp_path) == []


def test_what_was_sent_is_read_without_a_wait_until_it_is_changed():
    with Accelerator() as accelerator:
        sent = send(torch.tensor([[1, 2, 3]]), CUDA)
        assert on_host(sent).tolist() == [[1, 2, 3]] and not accelerator.waits
        # A part, or what is computed, is another tensor.
        assert on_host(sent[:, 1:]).tolist() == [[2, 3]] and len(accelerator.waits) == 1
        sent[0, 0] = 7
        assert on_host(sent).tolist() == [[7, 2, 3]] and len(accelerator.waits) == 2
