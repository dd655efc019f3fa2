"""Saved checkpoints in a process that does not have this package."""

import os
import subprocess
import sys

import pytest
import torch
from comparing import assert_same_weights
from safetensors.torch import load_file
from test_plugins import modules, with_plugins

from longhand import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.data import Addition
from longhand.data.families import DECODER
from longhand.data.tasks.registry import build_tokenizer
from longhand.data.tokenization import build_encoder_tokenizer
from longhand.modeling import PairwiseBertConfig, PairwiseBertForTokenClassification

assert modules

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
BERT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "num_attention_heads": 4, "relation_range": [-1, 2]}
ENCODERS = {
    "encoder_mixed": {"pair_maps": ["coupled", "uniform", "none", "coupled"], "share_over_heads": False},
    "encoder_loops": {"pair_maps": ["coupled"], "windowed": True, "num_loops": 3},
    "encoder_settling": {
        "pair_maps": ["coupled"],
        "windowed": True,
        "num_hidden_layers": 1,
        "label_states": True,
        "sink": True,
    },
}
PLUGINS = "plugins"
"""A checkpoint whose rule and encoding are a user's own."""
ENCODER_PROMPTS = ["_12+_95", "1+5"]
SCRIPT = """
import sys
sys.modules["longhand"] = None
import torch
from safetensors.torch import save_file
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForTokenClassification, AutoTokenizer

count, *words = sys.argv[1:]
folders, prompts = words[:int(count)], words[int(count):]
for folder in folders:
    encoder = folder.startswith("encoder")
    head = AutoModelForTokenClassification if encoder else AutoModelForCausalLM
    model = head.from_pretrained(folder, trust_remote_code=True)
    assert type(model).__module__.startswith("transformers_modules."), type(model)
    batch = AutoTokenizer.from_pretrained(folder)(prompts[2:] if encoder else prompts[:2], padding=True, return_tensors="pt")
    results = {"tokens": batch.input_ids, "logits": model(**batch).logits}
    base = AutoModel.from_pretrained(folder, trust_remote_code=True)
    if not getattr(model.config, "label_states", False):
        results["hidden"] = base(**batch).last_hidden_state
    if not encoder:
        results["generated"] = model.generate(**batch)
    results |= {"loaded." + name: parameter for name, parameter in model.named_parameters()}
    torch.manual_seed(0)
    results |= {"fresh." + name: parameter for name, parameter in type(model)(model.config).named_parameters()}
    try:
        encoder or model.generate(**AutoTokenizer.from_pretrained(folder)("653+049=", return_tensors="pt"))
        refusal = "none"
    except ValueError as error:
        refusal = str(error)
    results["refusal"] = torch.tensor(list(refusal.encode()))
    if folder == "plugins":
        model.save_pretrained("again")
    save_file({name: value.detach().clone() for name, value in results.items()}, folder + ".safetensors")
"""


def build(name: str) -> CoupledGPTForCausalLM | PairwiseBertForTokenClassification:
    if name == PLUGINS:
        return with_plugins()
    if name in ENCODERS:
        options = {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 48} | BERT | ENCODERS[name]
        return PairwiseBertForTokenClassification(PairwiseBertConfig(**options)).eval()
    return CoupledGPTForCausalLM(CoupledGPTConfig(hidden_size=64, num_hidden_layers=2, **CHECKPOINTS[name])).eval()


def parameters(results: dict[str, torch.Tensor], kind: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(kind): value for name, value in results.items() if name.startswith(kind)}


def assert_close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_the_code_that_travels_gives_what_the_package_gives(modules, tmp_path):
    models = {}
    for name in (*CHECKPOINTS, PLUGINS, *ENCODERS):
        torch.manual_seed(5)
        models[name] = build(name)
        models[name].save_pretrained(tmp_path / name)
        (build_encoder_tokenizer() if name in ENCODERS else build_tokenizer()).save_pretrained(tmp_path / name)
    (tmp_path / "script.py").write_text(SCRIPT)
    places = {"HF_HOME": str(tmp_path / "home"), "HF_MODULES_CACHE": str(tmp_path / "modules")}
    environment = os.environ | {"HF_HUB_OFFLINE": "1"} | places
    command = [sys.executable, "-I", "script.py", str(len(models)), *models, *PROMPTS, *ENCODER_PROMPTS]
    subprocess.run(command, env=environment, cwd=tmp_path, check=True, timeout=300)
    of_decoders = build_tokenizer()(PROMPTS, padding=True, return_tensors="pt")
    of_encoders = build_encoder_tokenizer()(ENCODER_PROMPTS, padding=True, return_tensors="pt")
    for name, model in models.items():
        results, batch = load_file(tmp_path / f"{name}.safetensors"), of_encoders if name in ENCODERS else of_decoders
        assert torch.equal(results["tokens"], batch.input_ids)
        assert_same_weights(parameters(results, "loaded."), dict(model.named_parameters()))
        assert_close(results["logits"], model(**batch).logits)
        assert ("hidden" in results) == (name != "encoder_settling")
        if "hidden" in results:
            assert_close(results["hidden"], model.model(**batch).last_hidden_state)
        if name not in ENCODERS:
            assert torch.equal(results["generated"], model.generate(**batch))
        refusal = bytes(results["refusal"].tolist()).decode()
        assert ("'653+49='" in refusal) if model.config.prompt_format else (refusal == "none")
        torch.manual_seed(0)
        fresh, expected = parameters(results, "fresh."), dict(build(name).named_parameters())
        assert fresh.keys() == expected.keys()
        for parameter, value in expected.items():
            # Orthogonal tables come out of a factorization, which is rounded.
            assert_close(fresh[parameter], value)
    # What was loaded with the code beside it can be saved again, with the same code.
    for file in ("plugin_distance_rule.py", "plugin_recency_encoding.py", "with_plugins.py", "config.json"):
        assert (tmp_path / "again" / file).read_text() == (tmp_path / PLUGINS / file).read_text(), file
