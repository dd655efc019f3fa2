"""What tests of pushes share: checkpoints that are made up, the repository that a push leaves, a small dataset."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from longhand.hub_cards.checkpoints.files import hash_files
from longhand.hub_cards.evaluation.results import write_results
from longhand.hub_cards.publishing.commits import Repository, commit_files
from longhand.hub_cards.publishing.dataset import push_dataset
from longhand.hub_cards.publishing.publications import is_model_file, model_files
from longhand.hub_cards.research.constructions.study import run as construct

ROW = {"model": "adder", "task": "addition", "length": 5, "length_b": 5, "num_samples": 20, "seed": 0, "seconds": 0.1}
ROW |= {"decode": "teacher_forced", "exact_match": 0.95, "token_accuracy": 0.99, "hardware": "CPU"}
CONFIGURATIONS = {"short": {"max_length": 6}, "plain": {"max_length": 9, "order": "plain"}}
NUM_SAMPLES = {"train": 40, "validation": 10, "test": 10}


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "adder"
    construct("addition", 30, folder)
    write_results([ROW], folder / "results.jsonl")
    (folder / "checkpoints" / "checkpoint-10").mkdir(parents=True)
    (folder / "checkpoints" / "checkpoint-10" / "optimizer.pt").write_bytes(b"moments")
    (folder / "trainer_state.json").write_text("{}")
    return folder


@pytest.fixture(scope="module")
def files(built) -> dict[str, bytes]:
    """What is published of the checkpoint."""
    return contents(model_files(built, "user/adder"))


@pytest.fixture
def folder(built, tmp_path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "adder"))


def contents(files: dict) -> dict[str, bytes]:
    return {path: content if isinstance(content, bytes) else content.read_bytes() for path, content in files.items()}


def held(hub, name="user/adder", kind="model") -> dict[str, bytes]:
    """What the repository holds, but for what every new one does."""
    files = hub.repositories[kind, name].head.files
    return {path: content for path, content in files.items() if path != ".gitattributes"}


def send(api, files):
    """As `push_model` does, without reading the folder."""
    return commit_files(files, Repository("user/adder", "model", "model", api=api), "Push adder", is_model_file)


def written(hub) -> list[tuple[str, str]]:
    """Requests that could change something."""
    return [(method, path) for method, path in hub.requests if method in ("POST", "PUT", "DELETE")]


def make_best(folder):
    (folder / "best").mkdir()
    for file in [file for file in folder.iterdir() if is_model_file(file.name) and file.name != "results.jsonl"]:
        shutil.copy(file, folder / "best")
    weights = load_file(folder / "model.safetensors")
    next(iter(weights.values())).mul_(2)
    save_file(weights, folder / "best" / "model.safetensors", metadata={"format": "pt"})


def write_certificate(folder, weights, **format_fields):
    task = {"task": "addition", "separate_eos": False, "zero_padding": True, "order": "response_reversed", **format_fields}
    certificate = {"certified": True, "ratio": 20.0, "weights": weights, "task": task, "files": hash_files(folder)}
    (folder / "certificate.json").write_text(json.dumps(certificate))


def push_sums(api, **changes):
    options = {"num_samples": NUM_SAMPLES, "seed": 3, **changes}
    return push_dataset("addition", "user/sums", options.pop("configurations", CONFIGURATIONS), api=api, **options)
