"""What loading says or refuses: reduced precision under a certificate, and tied weights that differ."""

import copy
import json
import os
from multiprocessing import get_context

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

import longhand
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM, PairwiseBertForTokenClassification
from longhand.modeling.pretrained import reduced_precision

assert os


def said_after(statement: str) -> str | None:
    """What is said after a setting. It cannot be taken back, so a process of its own makes it."""
    context = get_context("fork")
    here, there = context.Pipe()

    def set_and_ask():
        exec(statement)
        there.send(reduced_precision(torch.nn.Linear(1, 1)))

    process = context.Process(target=set_and_ask)
    process.start()
    assert here.poll(60)
    process.join()
    return here.recv()


@pytest.mark.parametrize(
    "statement",
    [
        "torch.set_float32_matmul_precision('high')",
        "torch.backends.fp32_precision = 'tf32'",
        "torch.backends.cuda.matmul.allow_tf32 = True",
        "torch.backends.mkldnn.matmul.fp32_precision = 'bf16'",
        "torch.autocast('cpu').__enter__()",
        "os.environ['DNNL_DEFAULT_FPMATH_MODE'] = 'BF16'",
    ],
)
def test_every_setting_of_torch_below_float32_is_seen(statement):
    assert said_after("pass") is None and said_after(statement)


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


class Quantized(torch.Tensor):
    """Weights in another format, which give the type that they stand for as their own, as those of torchao and quanto."""


def replace_by_quantized(model):
    layer = model.lm_head
    layer.weight = torch.nn.Parameter(layer.weight.detach().as_subclass(Quantized))
    return model


def change_in_place(model):
    with torch.no_grad():
        model.lm_head.weight[0, 0] += 1e-6
    return model


def fine_tune(model):
    loss = model.train()(ADDED, labels=ADDED).loss
    loss.backward()
    torch.optim.SGD(model.parameters(), lr=1e-3).step()
    return model.eval()


ADDED = torch.tensor([[17, 6, 5, 3, 10, 0, 4, 9, 13]])
OTHER_WEIGHTS = {
    "quantized": replace_by_quantized,
    "dynamically quantized": lambda model: torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}),
    "changed": change_in_place,
    "fine-tuned": fine_tune,
    "rounded before": lambda model: model.bfloat16().float(),
    "with an adapter": lambda model: get_peft_model(model, LoraConfig(target_modules=["v_proj"])).base_model.model,
}
SAME_WEIGHTS = {
    "as they are": lambda model: model,
    "double": lambda model: model.double(),
    "copied": copy.deepcopy,
    "loaded": lambda model: (model.load_state_dict(copy.deepcopy(model.state_dict())), model)[1],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("change", [*OTHER_WEIGHTS, *SAME_WEIGHTS])
def test_weights_that_are_not_the_certified_numbers_are_said_once(change, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr("longhand.modeling.pretrained.logger.warning", said.append)
    for asked_before in (False, True):
        said.clear()
        model = CoupledGPTForCausalLM.from_pretrained(longhand.zoo("addition-tiny")).eval()
        if asked_before:
            model(ADDED)
        model = (OTHER_WEIGHTS | SAME_WEIGHTS)[change](model)
        for _ in range(2):
            model(ADDED)
        assert len(said) == (change in OTHER_WEIGHTS), said


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
