"""What tests of cards and pushes share: results, checkpoints that have learned nothing, and what the Hub holds."""

import errno
import json
import os
import re
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

from longhand.data.proofs import hash_weights
from longhand.hub_cards.checkpoints.checkpoint import hash_files
from longhand.hub_cards.checkpoints.load import read_checkpoint
from longhand.hub_cards.publishing.cards import render_card
from longhand.hub_cards.publishing.dataset import GeneratedDataset, render_dataset_card
from longhand.hub_cards.publishing.publications import model_publication
from longhand.hub_cards.recipes import write_recipe
from longhand.hub_cards.result_rows import write_results
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM

CONFIGURATIONS = {"short": {"max_length": 6}, "plain": {"max_length": 9, "order": "plain"}}
NUM_SAMPLES = {"train": 40, "validation": 10, "test": 10}
SUMS = GeneratedDataset("addition", CONFIGURATIONS, NUM_SAMPLES, 3)


def row(length, exact_match, model="adder", **changes):
    values = {"model": model, "task": "addition", "length": length, "length_b": length, "num_samples": 1234, "seed": 7}
    values |= {"decode": "teacher_forced", "exact_match": exact_match, "token_accuracy": 0.987654, "seconds": 0.1}
    return values | {"hardware": "some CPU", **changes}


def measure(folder: Path, accuracies: dict[int, float], best: dict[int, float] | None = None, **changes) -> None:
    """Write results with these accuracies by length, as an evaluation of the folder's models gives them."""
    rows = []
    for place, own in ((folder, accuracies), (folder / "best", best or {})):
        model = "adder/best" if place != folder else "adder"
        weights = hash_weights(CoupledGPTForCausalLM.from_pretrained(place)) if own else ""
        rows += [row(length, share, model, weights=weights, **changes) for length, share in own.items()]
    write_results(rows, folder / "results.jsonl")


def contents(files) -> dict[str, bytes]:
    return {path: content if isinstance(content, bytes) else content.read_bytes() for path, content in files.items()}


def held(hub, name="user/adder", kind="model", revision="main") -> dict[str, bytes]:
    """What the repository holds, but for what every new one does."""
    files = hub.repositories[kind, name].find(revision).files
    return {path: content for path, content in files.items() if path != ".gitattributes"}


def committed(hub) -> list[str]:
    """The requests that changed a repository."""
    asked = re.compile("repos/create|/branch/|preupload|validate-yaml|info/lfs|paths-info")
    return [path for method, path in hub.requests if method in ("POST", "PUT", "DELETE") and not asked.search(path)]


def fill_disk(monkeypatch, folder: Path) -> None:
    """Leave no room for new files of a folder."""
    open_file = os.open

    def fill(path, *options, **named):
        if str(path).endswith(".partial") and Path(path).is_relative_to(folder):
            raise OSError(errno.ENOSPC, "No space left on device")
        return open_file(path, *options, **named)

    monkeypatch.setattr("longhand.hub_cards.commands.os.open", fill)


def change_a_weight(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    next(iter(weights.values())).mul_(2)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def make_best(folder: Path) -> None:
    (folder / "best").mkdir()
    for file in [file for file in folder.iterdir() if file.is_file() and file.name not in ("results.jsonl", "README.md")]:
        shutil.copy(file, folder / "best")
    change_a_weight(folder / "best")


def write_certificate(folder: Path, weights: str, **fields) -> dict:
    """A certificate with numbers of its own."""
    task = {"task": "addition", "separate_eos": False, "zero_padding": True, "order": "response_reversed"}
    certificate = {"certified": True, "ratio": 20.0, "weights": weights, "task": task, "files": hash_files(folder)}
    certificate |= {"limits": {}, "transducer": None}
    certificate |= fields
    (folder / "certificate.json").write_text(json.dumps(certificate))
    return certificate


def save_model(folder: Path, task, **options) -> Path:
    """A model that has learned nothing."""
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    CoupledGPTForCausalLM(CoupledGPTConfig(**sizes, **options)).save_pretrained(folder)
    task.family.tokenizer(task).save_pretrained(folder)
    write_recipe(task.describe(), folder / "recipe.yaml")
    return folder


class AnySize(dict):
    """Sizes of files that were not made."""

    def __missing__(self, path):
        return 1


def dataset_card(task, configurations, num_samples) -> str:
    return render_dataset_card(GeneratedDataset(task, configurations, num_samples), "user/sums", AnySize(), AnySize())


def model_files(folder: Path, repo_id: str) -> dict[str, bytes]:
    """The content of the files that pushing a checkpoint's folder to a new repository writes, by path."""
    return contents(model_publication(read_checkpoint(folder), repo_id).make_files(folder, None))


def model_card(folder: Path, *names: str) -> str:
    """The card of a checkpoint's folder, for a repository and with a dataset if they are named."""
    return render_card(read_checkpoint(folder), *names)
