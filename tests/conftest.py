"""What several test files share: one run of the main job, an encoder's checkpoint, and a Hub on loopback."""

import time
from pathlib import Path

import pytest
import torch
from huggingface_hub import HfApi, constants
from loopback_hub import LoopbackHub

from longhand import train
from longhand.data import EncoderAddition
from longhand.hub_cards.reports.results import write_results
from longhand.hub_cards.runs.recipes import write_recipe
from longhand.modeling import PairwiseBertConfig, PairwiseBertForTokenClassification


@pytest.fixture(scope="session")
def main_job(tmp_path_factory) -> Path:
    """The finished folder of the default recipe, tested at fewer lengths than it names itself."""
    folder = tmp_path_factory.mktemp("runs") / "addition"
    train.main(["addition", "--test_lengths", "30", "200", "--test_samples", "50", "--output_dir", str(folder)])
    return folder


@pytest.fixture(scope="session")
def small_encoder(tmp_path_factory) -> Path:
    """The folder of an encoder that has learned nothing, with results made up: what it says is the same everywhere."""
    folder, task = tmp_path_factory.mktemp("encoder") / "reader", EncoderAddition(field_width=5)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = PairwiseBertConfig(pair_maps=["relative", "coupled"], initializer_range=0.5, **sizes)
    PairwiseBertForTokenClassification(config).save_pretrained(folder)
    task.family.tokenizer(task).save_pretrained(folder)
    write_recipe({"recipe": "reader", **task.describe(), "min_length": 1, "max_length": 4}, folder / "recipe.yaml")
    row = {"model": "reader", "task": task.name, "length": 4, "length_b": 4, "num_samples": 1234, "seed": 7, "seconds": 0.1}
    row |= {"decode": "teacher_forced", "exact_match": 0.25, "token_accuracy": 0.875, "hardware": "some CPU"}
    write_results([row], folder / "results.jsonl")
    return folder


@pytest.fixture
def hub():
    with LoopbackHub() as hub:
        yield hub


@pytest.fixture
def waits(monkeypatch) -> list[float]:
    """Seconds that would have been waited."""
    waits = []
    monkeypatch.setattr(time, "sleep", waits.append)
    return waits


@pytest.fixture
def api(hub, waits, monkeypatch) -> HfApi:
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    return HfApi(endpoint=hub.endpoint, token=hub.add_token("secret", "user"))
