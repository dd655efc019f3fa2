"""Several GPUs in one process, as a plain Trainer takes them (`nn.DataParallel`): every row of every batch is computed."""

import pytest
import torch
from accelerator import SeveralGPUs
from cases import all_but
from kinds import few_problems, recipes_of_kinds
from position_subjects import DECODERS, ENCODERS, LIKE_OTHERS, build, encode, texts_of
from torch import nn
from transformers import Trainer, TrainingArguments

import longhand
from longhand.data import TASKS, load_task_dataset
from longhand.data.batches import draw_batch
from longhand.data.families import to_device
from longhand.data.formatting import is_repeated
from longhand.hub_cards.training.arguments import parse_run
from longhand.hub_cards.training.fields import Parser, RunArguments
from longhand.hub_cards.training.launcher import idle_gpus
from longhand.hub_cards.training.trainer import training_batches, validation_batches

FAST = ("addition", "addition-absolute", "paper-addition", "encoder-addition", "encoder-addition-settling")
RECIPES = [recipe if recipe in FAST else pytest.param(recipe, marks=pytest.mark.release) for recipe in recipes_of_kinds()]


def check(model, batch, devices=3):
    """Every row gets the logits of one device, and the loss its gradients."""
    model.zero_grad()
    expected = model(**batch)
    # An encoder that settles is trained by single passes.
    learns = expected.loss.requires_grad
    if learns:
        expected.loss.backward()
    before = [None if weights.grad is None else weights.grad.clone() for weights in model.parameters()]
    model.zero_grad()
    several = SeveralGPUs(model, devices)
    found = several(**batch)
    assert sum(several.rows[0]) == len(batch["input_ids"]) and len(several.rows[0]) == devices
    torch.testing.assert_close(found.logits, expected.logits, rtol=1e-4, atol=1e-5)
    if not learns:
        return
    # The loss of a replica is the mean over its supervised tokens.
    counts = torch.stack([(labels != -100).sum() for labels in batch["labels"].split(several.rows[0])])
    (found.loss * counts / counts.sum()).sum().backward()
    for own, other in zip(before, model.parameters(), strict=True):
        if own is not None:
            torch.testing.assert_close(other.grad, own, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("recipe", RECIPES)
def test_batches_of_runs_are_divided_by_rows(recipe, tmp_path):
    words = ["--use_cpu", "True", "--bf16", "False", "--batch_size", "6", "--gradient_accumulation_steps", "1"]
    words += [*few_problems(recipe), "--batching", "one_length", "--output_dir", str(tmp_path / "run")]
    run = parse_run([recipe, *words])
    model = run.task.family.model_class(run.config).eval()
    for batch in (training_batches(run)[0], next(iter(validation_batches(run, model).values()))[0]):
        sizes = {name: len(value) for name, value in batch.items() if isinstance(value, torch.Tensor)}
        assert set(sizes.values()) == {6}, sizes
        check(model, batch)


def test_a_row_of_ids_that_all_problems_share_is_computed_once():
    """On one device it stays one row, in memory and in the model, though the batch has a row for each problem."""
    run = parse_run(["addition", "--use_cpu", "True", "--batch_size", "8"])
    model = run.task.family.model_class(run.config)
    batch = draw_batch(model, run.task, (3, 3), 8)
    assert is_repeated(batch["position_ids"]) and batch["position_ids"].shape[0] == 8
    moved = to_device(batch, torch.device("cpu"))
    assert is_repeated(moved["position_ids"])
    seen = []
    hooked = model.model.position_encoding
    neighbours = hooked.neighbours
    hooked.neighbours = lambda query_ids, *rest: (seen.append(len(query_ids)), neighbours(query_ids, *rest))[1]
    model.eval()(**batch)
    assert set(seen) == {1}


@pytest.mark.parametrize("name", all_but(LIKE_OTHERS, [*DECODERS, *ENCODERS]))
def test_every_encoding_computes_every_row(name):
    model = build(name).float()
    texts = texts_of(name)[:1] * 6
    batch = dict(encode(name, *texts))
    batch["labels"] = batch["input_ids"].clamp(max=10)
    check(model, batch)


class Rows(Trainer):
    """A plain Trainer that trains in the order of its rows."""

    def _get_train_sampler(self, *args, **kwargs):
        return torch.utils.data.SequentialSampler(self.train_dataset)


def trained(model, rows, collator, gpus, folder, monkeypatch):
    """The weights of a model that a plain Trainer has trained on so many GPUs, four rows a step."""
    monkeypatch.setattr(nn, "DataParallel", SeveralGPUs)
    options = {"max_steps": 3, "per_device_train_batch_size": 4 // gpus, "learning_rate": 0.1, "optim": "sgd"}
    options |= {"save_strategy": "no", "report_to": "none", "use_cpu": True, "disable_tqdm": True, "max_grad_norm": 0}
    arguments = TrainingArguments(str(folder), **options)
    arguments._n_gpu = gpus
    trainer = Rows(model, arguments, train_dataset=rows, data_collator=collator)
    trainer.train()
    if gpus > 1:
        assert isinstance(trainer.model_wrapped, SeveralGPUs)
        assert all(len(own) == gpus and sum(own) == 4 for own in trainer.model_wrapped.rows)
    return model.state_dict()


@pytest.mark.parametrize("name", ["addition", "minesweeper", "encoder_addition"])
@pytest.mark.parametrize("collate", ["rows", "for_model"])
def test_a_plain_trainer_trains_on_two_gpus_as_on_one(name, collate, tmp_path, monkeypatch):
    task = TASKS[name]()
    kind = task.family.model_class
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    sizes |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0} if name.startswith("encoder") else {}
    if name.startswith("encoder"):
        options = {"max_length": 3}
    else:
        options = {"min_length": 5, "max_length": 5, "position_ids": collate == "for_model"}
        sizes |= {"position_encoding": "learned", "max_position_ids": 60}
    rows = load_task_dataset(name, split="train", num_samples=12, **options)
    found = []
    for gpus in (1, 2):
        torch.manual_seed(0)
        model = kind(kind.config_class(**task.family.config_options(task), **sizes))
        collator = longhand.collate_rows
        if collate == "for_model" and not name.startswith("encoder"):
            collator = longhand.CouplingCollator.for_model(model)
        found.append(trained(model, rows, collator, gpus, tmp_path, monkeypatch))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def test_train_takes_one_gpu_and_says_how_to_use_all(tmp_path, monkeypatch):
    """A process divides no batch among GPUs; several are used by a process for each."""
    words = ["addition", "--use_cpu", "True", "--output_dir", str(tmp_path / "run")]
    make = Parser.make

    def make_with_gpus(parser, kind, values):
        made = make(parser, kind, values)
        if kind is RunArguments:
            made._n_gpu = 8
        return made

    monkeypatch.setattr(Parser, "make", make_with_gpus)
    run = parse_run([*words, "--batch_size", "64"])
    assert (run.training.n_gpu, run.training.train_batch_size) == (1, 64)
    note = idle_gpus({}, 8)
    assert note.count("\n") == 0 and "accelerate launch --config_file hub_cards/launch/gpus.yaml --num_processes 8" in note
    assert idle_gpus({}, 1) is None and idle_gpus({"WORLD_SIZE": "8"}, 8) is None
