"""The race against the authors' code: it runs without a checkout, and with a small stand-in for one."""

import json
import os
import subprocess
import sys
from argparse import ArgumentTypeError
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from longhand.hub_cards.research.tables import race_table

RACE = Path(__file__).parent / "benchmarks" / "race.py"

HYDRA = """
from contextlib import nullcontext
from types import SimpleNamespace

def initialize_config_dir(**options):
    return nullcontext()

def compose(overrides, **options):
    phases = {phase: SimpleNamespace() for phase in ("train", "val", "val_long")}
    optimizer = {"type": "AdamW", "lr": 1e-4}
    training = SimpleNamespace(optimizer=optimizer, grad_clip=1.0, scheduler=SimpleNamespace(min_lr_ratio=0.1))
    return SimpleNamespace(task=phases, training=training, overrides=overrides)
"""

DATA = """
import torch

def build_dataset(settings, verbose):
    print("a line that is no answer")
    return {phase: (task.n_data, getattr(task, "max_n_digits", 30)) for phase, task in settings.task.items()}

def build_loader(settings, dataset, tokenizer, device):
    loaders = {}
    for phase, (count, digits) in dataset.items():
        size = settings.training.batch_size_train if phase == "train" else 20
        ids = torch.ones(min(count, size), 3 * digits + 5, dtype=torch.long)
        labels = torch.where(torch.arange(ids.shape[1]) < 2 * digits + 3, -100, ids)
        batch = {"input_ids": ids, "labels": labels, "position_ids": ids}
        loaders[phase] = [batch] * -(-count // size)
    return loaders
"""

MODEL = """
from types import SimpleNamespace
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.generation_config = torch.nn.Embedding(2, 2), SimpleNamespace()

    def num_parameters(self):
        return 4

    def forward(self, input_ids, **rest):
        logits = self.embedding(input_ids)
        return SimpleNamespace(logits=logits, loss=logits.mean())

    def generate(self, prompts, position_ids, max_new_tokens):
        return torch.cat([prompts, prompts[:, :max_new_tokens]], dim=1)

def build_model_from_scratch(settings, tokenizer, device):
    return Model()
"""

TOKENIZATION = """
from types import SimpleNamespace

def build_tokenizer(settings):
    return SimpleNamespace(pad_token_id=0)
"""

EVALUATE = """
def get_tokenwise_accuracy(*answers, division):
    pass

get_instancewise_accuracy = get_tokenwise_accuracy
"""

TRAINING = """
from torch.optim.lr_scheduler import ConstantLR

def get_custom_cosine_schedule_with_warmup(optimizer, *steps):
    return ConstantLR(optimizer)
"""

SOURCES = {"data": DATA, "model": MODEL, "tokenization": TOKENIZATION, "evaluate": EVALUATE, "training": TRAINING}


def checkout(folder: Path) -> Path:
    """A folder with the files of a checkout."""
    files = {f"src/{name}/__init__.py": text for name, text in SOURCES.items()}
    for name, text in (files | {"hydra.py": HYDRA, "configs/config.yaml": ""}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def run_race(*options) -> subprocess.CompletedProcess:
    command = [sys.executable, str(RACE), "--rounds", "1", "--size", "1", *map(str, options)]
    # Nothing is compiled, which would take a while and a compiler.
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"TORCHDYNAMO_DISABLE": "1"})


@pytest.fixture
def race(monkeypatch):
    monkeypatch.syspath_prepend(RACE.parent)
    return import_module("race")


@pytest.mark.thorough
def test_this_package_runs_alone_without_a_checkout(tmp_path):
    done = run_race("generation", "decoding", "--output", tmp_path / "race.jsonl")
    assert done.returncode == 0, done.stderr
    assert "no --peer CHECKOUT: this package runs alone" in done.stdout
    rows = [json.loads(line) for line in (tmp_path / "race.jsonl").read_text().splitlines()]
    assert {row["benchmark"].split(",")[0] for row in rows} == {"generation", "decoding"}
    assert all(row["longhand"] > 0 and "ratio" not in row for row in rows)
    assert all(row["longhand"] * row["multiply_adds"] < row["peak"] for row in rows)
    assert len(race_table(rows).splitlines()) == len(rows) + 4


@pytest.mark.thorough
def test_both_sides_run_in_turn_with_a_checkout(tmp_path):
    done = run_race("--peer", checkout(tmp_path / "peer"), "--output", tmp_path / "race.jsonl")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "race.jsonl").read_text().splitlines()]
    assert {row["benchmark"].split(",")[0] for row in rows} == {"generation", "training", "evaluation", "decoding"}
    assert all(row["ratio"] == pytest.approx(row["longhand"] / row["peer"]) for row in rows)
    assert len(race_table(rows).splitlines()) == len(rows) + 4


def test_a_checkout_that_reads_other_problems_is_refused(race):
    same = {"tokens": 605, "supervised": 202, "parameters": 1}
    race.check_same(race.paper_model(), same)
    with pytest.raises(SystemExit, match="do not read the same sums of 200 digits"):
        race.check_same(race.paper_model(), same | {"tokens": 606})


@pytest.mark.thorough
def test_a_checkout_that_fails_is_reported_in_its_last_words(race, tmp_path):
    folder = checkout(tmp_path / "peer")
    (folder / "src/model/__init__.py").write_text("raise ImportError('no part that it needs')")
    peer = race.Peer(sys.executable, folder, str(tmp_path))
    with pytest.raises(SystemExit, match=r"failed at generation, .*: ImportError: no part that it needs"):
        peer.ask("generation", 1)


def test_a_folder_that_is_no_checkout_is_refused(race, tmp_path):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "config.yaml").touch()
    missing = r"no checkout .*: it has no src/data/__init__.py, .*, src/training/__init__.py"
    with pytest.raises(ArgumentTypeError, match=missing):
        race.peer_folder(str(tmp_path))
    assert race.peer_folder(str(checkout(tmp_path))) == tmp_path.resolve()


def test_the_least_multiplications_are_counted_for_each_predicted_token(race):
    config = SimpleNamespace(hidden_size=2, intermediate_size=3, vocab_size=21)
    # One digit: three tokens are predicted, which see 5, 6 and 7 keys.
    assert race.multiply_adds(config, 1) == 3 * (2 * 2 + 3 * 2 * 3 + 2 * 21) + 2 * 2 * (5 + 6 + 7)
