"""Checkpoints whose certificates are tested: untrained, trained and damaged models, and files that were changed."""

import json

import pytest
import torch

from longhand.data import Addition
from longhand.data.proofs import check_neighbourhoods
from longhand.data.tasks.task import Task
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.modeling.transducer import table_of


def load(folder) -> CoupledGPTForCausalLM:
    return CoupledGPTForCausalLM.from_pretrained(folder).eval()


def untrained(task: Task | None = None, **options) -> CoupledGPTForCausalLM:
    torch.manual_seed(0)
    task = task or Addition()
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8}
    sizes |= {"coupling": task.coupling, "vocab_size": len(task.tokens), "transducer": table_of(task.transducer)}
    return CoupledGPTForCausalLM(CoupledGPTConfig(**(sizes | options))).eval()


@pytest.fixture(scope="module")
def damaged(main_job) -> dict[int, CoupledGPTForCausalLM]:
    """The main job's model with more and more noise on its weights, by the number of wrong predictions; 0 comes last."""
    models = {}
    for strength in range(1, 40):
        model = load(main_job)
        torch.manual_seed(strength)
        with torch.no_grad():
            for parameter in model.model.layers.parameters():
                parameter += 0.02 * strength * parameter.std(correction=0) * torch.randn_like(parameter)
        wrong = check_neighbourhoods(model, Addition()).wrong
        models.setdefault(wrong, model) if wrong else models.update({0: model})
        if len(models) == 5:
            break
    return models


def slightly_wrong(damaged) -> CoupledGPTForCausalLM:
    return damaged[min(wrong for wrong in damaged if wrong)]


def change_json(file, **changes) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def swap_digits(folder) -> None:
    text = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(text.replace('"3": 3', '"3": 4').replace('"4": 4', '"4": 3'))
