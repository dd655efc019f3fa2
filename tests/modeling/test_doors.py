"""What a user of other libraries tries first: it works, or it is refused by its own name."""

from types import SimpleNamespace

import pytest
import torch
from accelerate import cpu_offload, disk_offload
from huggingface_hub.errors import RevisionNotFoundError
from refusals import refusal
from transformers.integrations.neftune import activate_neftune

import longhand
from longhand import eval as evaluation
from longhand import train
from longhand.data import TASKS, load_task_dataset
from longhand.data.batches import draw_batch
from longhand.hub_cards.checkpoints import load
from longhand.hub_cards.checkpoints.load import load_checkpoint


@pytest.mark.parametrize("name", ["addition-tiny", "encoder-addition-settling", "reader"])
@pytest.mark.parametrize("place", ["cpu", "disk"])
def test_offloaded_weights_are_fetched_as_a_whole_or_the_option_that_does_so_is_named(name, place, small_encoder, tmp_path):
    source = str(small_encoder) if name == "reader" else longhand.zoo(name)
    checkpoint = load_checkpoint(source)
    inputs = draw_batch(checkpoint.model, checkpoint.task, checkpoint.task.operand_lengths(3))
    wanted = checkpoint.model(**inputs).logits
    base = type(checkpoint.model.base_model).__name__

    def offloaded(**options):
        model = load_checkpoint(source).model
        folder = () if place == "cpu" else (tmp_path / str(len(options)),)
        (cpu_offload if place == "cpu" else disk_offload)(model, *folder, execution_device=torch.device("cpu"), **options)
        return model

    if name == "encoder-addition-settling":
        assert offloaded()(**inputs).logits.equal(wanted)
        return
    with pytest.raises(ValueError, match=rf"preload_module_classes=\['{base}'\]"):
        offloaded()(**inputs)
    assert offloaded(preload_module_classes=[base])(**inputs).logits.equal(wanted)


def test_noise_on_embeddings_reaches_an_encoder_that_settles():
    """`neftune_noise_alpha` of Trainer."""
    checkpoint = load_checkpoint(longhand.zoo("encoder-addition-settling"))
    inputs = draw_batch(checkpoint.model, checkpoint.task, checkpoint.task.operand_lengths(3))
    exact = checkpoint.model(**inputs).loss
    activate_neftune(checkpoint.model, 50.0)
    assert checkpoint.model(**inputs).loss.equal(exact)
    checkpoint.model.train()
    noisy = checkpoint.model(**inputs).loss
    assert noisy.isfinite() and not noisy.allclose(exact)


def test_a_question_may_begin_with_a_minus(capsys):
    message = refusal(capsys, evaluation.main, "addition-tiny", "--ask", "-1+2")
    assert "the question '-1+2'" in message
    assert "expected one argument" in refusal(capsys, evaluation.main, "addition-tiny", "--ask", "--certify")


def test_a_revision_that_a_repository_lacks_is_named(monkeypatch, capsys):
    def find(*_, **__):
        raise RevisionNotFoundError("404", response=SimpleNamespace(status_code=404, headers={}, request=None))

    monkeypatch.setattr(load, "snapshot_download", find)
    message = refusal(capsys, evaluation.main, "user/addition", "--revision", "nope", "--ask", "1+2")
    assert "--revision nope" in message and "user/addition" in message and "did you mean" not in message


def test_a_finished_run_says_how_to_push_it(main_job, capsys):
    message = refusal(capsys, train.main, "addition", "--push_to_hub", "--output_dir", main_job)
    assert "holds a finished run: --resume pushes it" in message


@pytest.mark.parametrize("task", ["bitwise", "parity"])
def test_what_a_task_refuses_while_rows_are_made_is_said_as_it_says_it(task, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise ValueError("there is no such problem")

    arguments = {"split": "train", "min_length": 4, "max_length": 5, "num_samples": 10, "cache_dir": str(tmp_path)}
    monkeypatch.setattr("longhand.data.builder.TaskDatasetBuilder._table", refuse)
    assert task in TASKS
    with pytest.raises(ValueError, match="there is no such problem"):
        load_task_dataset(task, **arguments)
