"""What transformers' Trainer leaves and pushes: read without a recipe, and with the card of `longhand.HubCard`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from fine_tuning import TASKS as NAMES
from fine_tuning import make_trainer, small_model, some_rows
from huggingface_hub import ModelCard

import longhand
from longhand import eval as evaluation
from longhand.data import build_task
from longhand.hub_cards import push as command
from longhand.hub_cards.evaluation.results import read_results
from longhand.hub_cards.publishing.publications import push_model
from longhand.hub_cards.recipes import read_recipe, write_recipe

OWN = {name: build_task(name, **({} if name == "addition" else {"text_tokens": 3})) for name in NAMES}
"""The tasks of `some_rows`."""

every_family = pytest.mark.parametrize("name", NAMES)

PUSHES = """
import sys

import longhand
from fine_tuning import make_trainer, some_rows
from longhand import eval as evaluation
from longhand.data import TASKS

names, places = (word.split(",") for word in sys.argv[1:])
for name in names:
    rows, family = some_rows(name, 32, cache_dir="cache"), TASKS[name].family
    base = f"user/{name}"
    for place in places:
        options = {"max_steps": 4, "hub_model_id": f"{base}-{place}", "hub_always_push": True}
        if place == "every":
            options |= {"push_to_hub": True, "save_strategy": "steps", "save_steps": 2}
        trainer = make_trainer(family.auto_class.from_pretrained(base), f"{name}-{place}", rows, **options)
        if place != "plain":
            trainer.add_callback(longhand.HubCard(trainer, [3, 5], num_samples=8, dataset="user/sums"))
        trainer.train()
        if place != "every":
            trainer.push_to_hub()
    if "plain" in places:
        evaluation.main([f"{base}-plain", "--lengths", "3", "--num_samples", "4", "--output_dir", f"{name}-out"])
"""


def labelled_model(name):
    """A small model whose configuration names its task."""
    model = small_model(name)
    model.config.update(OWN[name].family.format_options(OWN[name]))
    return model


def trained(name, folder, steps=2, card=None, **options):
    """The Trainer of a short run, which has saved its model."""
    rows = some_rows(name, 16, cache_dir=str(folder / "cache"))
    trainer = make_trainer(labelled_model(name), folder / "model", rows, max_steps=steps, **options)
    if card:
        trainer.add_callback(longhand.HubCard(trainer, **card))
    trainer.processing_class = OWN[name].family.tokenizer(OWN[name])
    trainer.train()
    trainer.save_model()
    return trainer


@every_family
def test_a_folder_that_trainer_left_is_evaluated_and_pushed(name, hub, api, tmp_path, capsys, monkeypatch):
    folder = Path(trained(name, tmp_path, save_strategy="steps", save_steps=1).args.output_dir)
    assert (folder / "training_args.bin").is_file() and (folder / "checkpoint-1").is_dir()
    monkeypatch.chdir(tmp_path)
    evaluation.main(["model", "--lengths", "3", "--num_samples", "4"])
    command.main(["card", "model"])
    card = (folder / "README.md").read_text()
    assert (
        "Not known: no `recipe.yaml` says how." in card and "recipe.yaml</code>" not in card and "## Reproduce" not in card
    )
    command.main(["model", "model", "user/model"])
    shown = capsys.readouterr().out
    assert "note: training_args.bin" in shown and "checkpoint-1" not in shown
    push_model(folder, "user/model", api=api)
    held = hub.repositories["model", "user/model"].head.files
    assert {"model.safetensors", "README.md"} <= held.keys() and not any("training_args" in path for path in held)


@every_family
def test_every_model_has_tags_of_its_own_for_the_cards_of_trainer(name):
    model, own = small_model(name), ["longhand", "longhand-model"]
    model.add_model_tags("mine")
    assert (model.model_tags, small_model(name).model_tags) == ([*own, "mine"], own)


def test_a_model_that_names_no_task_is_refused(tmp_path):
    folder = Path(trained("addition", tmp_path).args.output_dir)
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace('"task": "addition"', '"order": "plain"'))
    with pytest.raises(ValueError, match=r"recipe\.yaml"):
        push_model(folder, "user/model")


def push_by_trainer(hub, api, place, names, places, launcher=()):
    """Push a base for every name, and what Trainer makes of it in each way, from a process of its own."""
    for name in names:
        folder, task = place / name, OWN[name]
        labelled_model(name).save_pretrained(folder)
        task.family.tokenizer(task).save_pretrained(folder)
        write_recipe(task.describe(), folder / "recipe.yaml")
        push_model(folder, f"user/{name}", api=api)
    tests = Path(__file__).parent
    environment = os.environ | hub.environment(place / "home", token="secret")
    environment["PYTHONPATH"] = os.pathsep.join([str(tests), *filter(None, sys.path)])
    (place / "pushes.py").write_text(PUSHES)
    command = [sys.executable, *launcher, "pushes.py", ",".join(names), ",".join(places)]
    done = subprocess.run(command, env=environment, cwd=place, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.thorough
def test_trainer_pushes_the_card_with_what_was_measured(hub, api, tmp_path):
    push_by_trainer(hub, api, tmp_path, NAMES, ["plain", "end", "every"])
    for name in NAMES:
        # The tags of the model are on Trainer's own card, so a push knows the repository.
        folder = tmp_path / f"{name}-plain"
        with pytest.raises(ValueError, match=r"tokenizer\.json"):
            push_model(folder, f"user/{name}-plain", api=api)
        OWN[name].family.tokenizer(OWN[name]).save_pretrained(folder)
        assert "README.md" in push_model(folder, f"user/{name}-plain", api=api).changed
        for place in ("end", "every"):
            repository = hub.repositories["model", f"user/{name}-{place}"]
            assert_measured(repository.head.files, name, steps=4)
        during = [commit for commit in repository.history(repository.head) if "in progress" in commit.title]
        assert during
        for commit in during:
            assert_measured(commit.files, name, steps=int(commit.title.rpartition(" ")[2]))


@pytest.mark.thorough
def test_two_processes_push_what_one_of_them_measured(hub, api, tmp_path):
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    push_by_trainer(hub, api, tmp_path, ["addition"], ["end", "every"], launcher)
    for place in ("end", "every"):
        assert_measured(hub.repositories["model", f"user/addition-{place}"].head.files, "addition", steps=4, batch_size=8)


def assert_measured(files, name, steps, batch_size=4):
    card, recipe = ModelCard(files["README.md"].decode()), yaml.safe_load(files["recipe.yaml"])
    assert "## Accuracy by length" in card.text and "| 5 | " in card.text and f"pushed at step {steps}." in card.text
    assert (card.data.base_model, card.data.datasets) == (f"user/{name}", ["user/sums"])
    assert {result.dataset_type for result in card.data.eval_results} == {"user/sums"}
    assert {result.dataset_config for result in card.data.eval_results} == {"length_3", "length_5"}
    assert (recipe["task"], recipe["max_steps"], recipe["batch_size"], recipe["learning_rate"]) == (
        name,
        4,
        batch_size,
        0.01,
    )
    assert {"tokenizer.json", "results.jsonl", "accuracy.png", "vocabulary.py"} <= files.keys()


@every_family
def test_the_card_changes_nothing_of_the_training(name, tmp_path, monkeypatch):
    """The pushes are left out: only what comes before them is run."""
    monkeypatch.setattr("transformers.Trainer.init_hf_repo", lambda self, **_: None)
    monkeypatch.setattr(
        "transformers.Trainer._push_from_checkpoint",
        lambda self, folder: self.callback_handler.on_push_begin(self.args, self.state, self.control),
    )
    monkeypatch.setattr("transformers.Trainer.push_to_hub", lambda self, **_: None)
    options = {"steps": 4, "push_to_hub": True, "save_strategy": "steps", "save_steps": 1}
    plain = trained(name, tmp_path / "plain", **options)
    carded = trained(
        name, tmp_path / "carded", card={"lengths": [3], "num_samples": 4, "trained_lengths": (1, 6)}, **options
    )
    for own, other in zip(plain.model.parameters(), carded.model.parameters(), strict=True):
        assert torch.equal(own, other)
    folder = Path(carded.args.output_dir)
    assert (read_recipe(folder / "recipe.yaml")["max_length"], len(read_results(folder / "results.jsonl"))) == (6, 1)
    assert "trained on" in (folder / "README.md").read_text()


def test_what_the_card_cannot_have_is_refused_before_training(tmp_path):
    def refusal(model, **options):
        with pytest.raises(ValueError) as refused:
            longhand.HubCard(make_trainer(model, tmp_path), **{"lengths": [3]} | options)
        return str(refused.value)

    assert "task" in refusal(small_model("addition"))
    model = labelled_model("addition")
    assert "lengths" in refusal(model, lengths=[])
    assert "sums" in refusal(model, dataset="sums")
    (tmp_path / "certificate.json").write_text("{}")
    assert "certificate.json" in refusal(model)
    (tmp_path / "certificate.json").unlink()
    trainer = make_trainer(model, tmp_path)
    card = longhand.HubCard(trainer, [3])
    assert trainer.create_model_card == card.create_model_card
    with pytest.raises(ValueError, match="license"):
        trainer.create_model_card(model_name="model", license="mit")
