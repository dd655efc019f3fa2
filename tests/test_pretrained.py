"""What loading says or refuses: reduced precision under a certificate, and tied weights that differ."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

import longhand
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM, PairwiseBertForTokenClassification

# A setting cannot be taken back, so a process of its own makes each.
SETTINGS = """
import os, torch
from longhand.modeling.pretrained import reduced_precision
for statement in (
    "pass",
    "torch.set_float32_matmul_precision('high')",
    "torch.backends.fp32_precision = 'tf32'",
    "torch.backends.cuda.matmul.allow_tf32 = True",
    "torch.backends.mkldnn.matmul.fp32_precision = 'bf16'",
    "torch.autocast('cpu').__enter__()",
    "os.environ['DNNL_DEFAULT_FPMATH_MODE'] = 'BF16'",
):
    if not os.fork():
        exec(statement)
        print(reduced_precision(torch.nn.Linear(1, 1)), flush=True)
        os._exit(0)
    os.wait()
"""


def test_every_setting_of_torch_below_float32_is_seen():
    exact, *reduced = subprocess.check_output([sys.executable, "-c", SETTINGS], text=True).splitlines()
    assert exact == "None" and len(reduced) == 6 and "None" not in reduced


@pytest.mark.parametrize(
    ("kind", "name", "tokens"),
    [
        (CoupledGPTForCausalLM, "addition-tiny", [17, 6, 5, 3, 10, 0, 4, 9, 13]),
        # Only single lengths are proved.
        (CoupledGPTForCausalLM, "addition-absolute-proved", [17, 0, 6, 5, 3, 10, 0, 0, 4, 9, 13]),
        (PairwiseBertForTokenClassification, "encoder-addition-settling", [*[16] * 6, 6, 10, *[16] * 6, 4]),
    ],
)
def test_a_proved_model_below_float32_says_so_once(kind, name, tokens, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr("longhand.modeling.pretrained.logger.warning", said.append)
    model = kind.from_pretrained(longhand.zoo(name)).eval()
    model(torch.tensor([tokens]))
    assert not said
    model.to(torch.bfloat16)
    for _ in range(2):
        model(torch.tensor([tokens]))
    assert len(said) == 1


@pytest.mark.parametrize(
    ("stated", "count"),
    [
        ({"certified": False, "lengths": [{"verdict": "refuted"}, {"verdict": "proved"}]}, 1),
        ({"certified": False, "lengths": [{"verdict": "refuted"}, {"verdict": "open"}]}, 0),
        ({"certified": False, "lengths": None}, 0),
        ({"certified": False, "lengths": ["proved"]}, 0),
        ({"certified": False, "lengths": "proved"}, 0),
    ],
)
def test_a_model_of_which_nothing_is_proved_says_nothing(stated, count, tmp_path, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr("longhand.modeling.pretrained.logger.warning", said.append)
    CoupledGPTForCausalLM(CoupledGPTConfig(intermediate_size=8)).save_pretrained(tmp_path)
    (tmp_path / "certificate.json").write_text(json.dumps(stated))
    model = CoupledGPTForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16).eval()
    model(torch.tensor([[17, 6, 5, 3, 10, 0, 4, 9, 13]]))
    assert len(said) == count


def test_tied_weights_that_differ_are_refused(tmp_path):
    model = CoupledGPTForCausalLM(CoupledGPTConfig(tie_word_embeddings=True, intermediate_size=8))
    model.save_pretrained(tmp_path)
    CoupledGPTForCausalLM.from_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    save_file({**weights, "lm_head.weight": weights["model.embed_tokens.weight"] + 1}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="tie_word_embeddings"):
        CoupledGPTForCausalLM.from_pretrained(tmp_path)
