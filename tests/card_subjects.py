"""What cards are written of: results, models that have learned nothing, and datasets without rows."""

import shutil
from pathlib import Path

import pytest
from datasets import DatasetInfo, Features, Value

from longhand.data.certificates import hash_weights
from longhand.hub_cards.evaluation.results import write_results
from longhand.hub_cards.publishing.dataset import render_dataset_card
from longhand.hub_cards.recipes import write_recipe
from longhand.hub_cards.research.constructions.study import run as construct
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM


def row(length, exact_match, model="adder", **changes):
    values = {"model": model, "task": "addition", "length": length, "length_b": length, "num_samples": 1234, "seed": 7}
    values |= {"decode": "teacher_forced", "exact_match": exact_match, "token_accuracy": 0.987654, "seconds": 0.1}
    return values | {"hardware": "some CPU", **changes}


ROWS = [row(5, 1.0), row(40, 0.8125)]


def measured(length, exact_match, model, folder, **changes):
    """A row as an evaluation of the folder's model gives it."""
    return row(length, exact_match, model, weights=hash_weights(CoupledGPTForCausalLM.from_pretrained(folder)), **changes)


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "adder"
    construct("addition", 60, folder)
    write_results(ROWS, folder / "results.jsonl")
    return folder


@pytest.fixture
def folder(built, tmp_path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "adder"))


def save_model(folder: Path, task, **options) -> Path:
    """A model that has learned nothing."""
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    CoupledGPTForCausalLM(CoupledGPTConfig(**sizes, **options)).save_pretrained(folder)
    task.family.tokenizer(task).save_pretrained(folder)
    write_recipe(task.describe(), folder / "recipe.yaml")
    return folder


def info_of(**columns) -> DatasetInfo:
    return DatasetInfo(features=Features({name: Value(kind) for name, kind in columns.items()}))


def dataset_card(task, configurations, num_samples, columns=None) -> str:
    infos = {name: info_of(**(columns or {}).get(name, {"input_ids": "uint8"})) for name in configurations}
    return render_dataset_card(task, "user/sums", configurations, num_samples, infos, 0)
