"""A saved checkpoint in a process that does not have this package."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from longhand import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.data.tokenization import build_tokenizer

PROMPTS = ["653+049=", "7+12="]
CHECKPOINTS = {
    "learned": {
        "position_encoding": "learned",
        "position_init": "orthogonal",
        "max_position_ids": 20,
        "init": "t5",
        "attention_scale": "none",
        "norm_placement": "pre_post",
        "tie_word_embeddings": True,
    },
    "rotary": {"position_encoding": "rotary", "qk_norm": True, "qk_norm_init": 2.5, "norm": "layer"},
    "fire": {"position_encoding": "fire", "coupling": "sequential", "randomized_positions": True, "max_position_ids": 90},
    "pairwise": {"position_encoding": "pairwise", "attention_scale": "log_length", "log_length_init": 0.7},
}
SCRIPT = """
import sys
sys.modules["longhand"] = None
import torch
from safetensors.torch import save_file
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

folder, output, *prompts = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
assert type(model).__module__.startswith("transformers_modules."), type(model)
batch = AutoTokenizer.from_pretrained(folder)(prompts, padding=True, return_tensors="pt")
results = {
    "tokens": batch.input_ids,
    "logits": model(**batch).logits,
    "hidden": AutoModel.from_pretrained(folder, trust_remote_code=True)(**batch).last_hidden_state,
    "generated": model.generate(**batch),
}
torch.manual_seed(0)
for name, parameter in type(model)(model.config).named_parameters():
    results["fresh." + name] = parameter
save_file({name: value.detach().clone() for name, value in results.items()}, output)
"""


def build(name: str) -> CoupledGPTForCausalLM:
    return CoupledGPTForCausalLM(CoupledGPTConfig(hidden_size=64, num_hidden_layers=2, **CHECKPOINTS[name])).eval()


@pytest.fixture(scope="module", params=CHECKPOINTS)
def checkpoint(request, tmp_path_factory) -> tuple[str, CoupledGPTForCausalLM, dict[str, torch.Tensor]]:
    """A configuration's name, its saved model, and what the other process computed with it."""
    torch.manual_seed(5)
    model = build(request.param)
    folder: Path = tmp_path_factory.mktemp("remote")
    model.save_pretrained(folder / "checkpoint")
    build_tokenizer().save_pretrained(folder / "checkpoint")
    script, output = folder / "script.py", folder / "results.safetensors"
    script.write_text(SCRIPT)
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / "home"),
        "HF_MODULES_CACHE": str(folder / "modules"),
    }
    subprocess.run(
        [sys.executable, "-I", script, folder / "checkpoint", output, *PROMPTS],
        env=environment, cwd=folder, check=True, timeout=300,
    )  # fmt: skip
    return request.param, model, load_file(output)


def batch():
    return build_tokenizer()(PROMPTS, padding=True, return_tensors="pt")


def test_remote_tokenizer_gives_the_same_tokens(checkpoint):
    assert torch.equal(checkpoint[2]["tokens"], batch().input_ids)


def test_remote_logits_are_bitwise_equal(checkpoint):
    _, model, results = checkpoint
    assert torch.equal(results["logits"], model(**batch()).logits)


def test_remote_base_model_is_bitwise_equal(checkpoint):
    _, model, results = checkpoint
    assert torch.equal(results["hidden"], model.model(**batch()).last_hidden_state)


def test_remote_generation_is_equal(checkpoint):
    _, model, results = checkpoint
    assert torch.equal(results["generated"], model.generate(**batch()))


def test_fresh_model_of_the_remote_class_begins_as_one_of_the_package(checkpoint):
    name, _, results = checkpoint
    torch.manual_seed(0)
    expected = {"fresh." + name: parameter for name, parameter in build(name).named_parameters()}
    assert expected.keys() == {name for name in results if name.startswith("fresh.")}
    assert [name for name, parameter in expected.items() if not torch.equal(results[name], parameter)] == []
