"""Saved checkpoints in a process that does not have this package."""

import os
import subprocess
import sys

import pytest
import torch
from comparing import assert_same_weights
from safetensors.torch import load_file

from longhand import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.data import Addition
from longhand.data.families import DECODER
from longhand.data.tokenization import build_tokenizer

pytestmark = pytest.mark.thorough

PROMPTS = ["653+49=", "7+12="]
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
    "rotary": {"position_encoding": "rotary", "qk_norm": True, "qk_norm_init": 2.5, "norm": "layer"}
    | DECODER.format_options(Addition(zero_padding=False)),
    "fire": {"position_encoding": "fire", "coupling": "sequential", "randomized_positions": True, "max_position_ids": 90},
    "pairwise": {"position_encoding": "pairwise", "attention_scale": "log_length", "log_length_init": 0.7},
}
SCRIPT = """
import sys
sys.modules["longhand"] = None
import torch
from safetensors.torch import save_file
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

count, *words = sys.argv[1:]
folders, prompts = words[:int(count)], words[int(count):]
for folder in folders:
    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
    assert type(model).__module__.startswith("transformers_modules."), type(model)
    batch = AutoTokenizer.from_pretrained(folder)(prompts, padding=True, return_tensors="pt")
    results = {
        "tokens": batch.input_ids,
        "logits": model(**batch).logits,
        "hidden": AutoModel.from_pretrained(folder, trust_remote_code=True)(**batch).last_hidden_state,
        "generated": model.generate(**batch),
    }
    results |= {"loaded." + name: parameter for name, parameter in model.named_parameters()}
    torch.manual_seed(0)
    results |= {"fresh." + name: parameter for name, parameter in type(model)(model.config).named_parameters()}
    try:
        model.generate(**AutoTokenizer.from_pretrained(folder)("653+049=", return_tensors="pt"))
        refusal = "none"
    except ValueError as error:
        refusal = str(error)
    results["refusal"] = torch.tensor(list(refusal.encode()))
    save_file({name: value.detach().clone() for name, value in results.items()}, folder + ".safetensors")
"""


def build(name: str) -> CoupledGPTForCausalLM:
    return CoupledGPTForCausalLM(CoupledGPTConfig(hidden_size=64, num_hidden_layers=2, **CHECKPOINTS[name])).eval()


def parameters(results: dict[str, torch.Tensor], kind: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(kind): value for name, value in results.items() if name.startswith(kind)}


def assert_close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_the_code_that_travels_gives_what_the_package_gives(tmp_path):
    models = {}
    for name in CHECKPOINTS:
        torch.manual_seed(5)
        models[name] = build(name)
        models[name].save_pretrained(tmp_path / name)
        build_tokenizer().save_pretrained(tmp_path / name)
    (tmp_path / "script.py").write_text(SCRIPT)
    places = {"HF_HOME": str(tmp_path / "home"), "HF_MODULES_CACHE": str(tmp_path / "modules")}
    environment = os.environ | {"HF_HUB_OFFLINE": "1"} | places
    command = [sys.executable, "-I", "script.py", str(len(models)), *models, *PROMPTS]
    subprocess.run(command, env=environment, cwd=tmp_path, check=True, timeout=300)
    batch = build_tokenizer()(PROMPTS, padding=True, return_tensors="pt")
    for name, model in models.items():
        results = load_file(tmp_path / f"{name}.safetensors")
        assert torch.equal(results["tokens"], batch.input_ids)
        assert_same_weights(parameters(results, "loaded."), dict(model.named_parameters()))
        assert_close(results["logits"], model(**batch).logits)
        assert_close(results["hidden"], model.model(**batch).last_hidden_state)
        assert torch.equal(results["generated"], model.generate(**batch))
        refusal = bytes(results["refusal"].tolist()).decode()
        assert ("'653+49='" in refusal) if model.config.prompt_format else (refusal == "none")
        torch.manual_seed(0)
        fresh, expected = parameters(results, "fresh."), dict(build(name).named_parameters())
        assert fresh.keys() == expected.keys()
        for parameter, value in expected.items():
            # Orthogonal tables come out of a factorization, which is rounded.
            assert_close(fresh[parameter], value)
