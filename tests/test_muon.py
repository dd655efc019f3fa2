"""`--muon_learning_rate`: Muon for the matrices of layers, beside another optimizer, in one run that can be cut off."""

import copy

import pytest
import torch
from test_resuming import contents
from test_train import SMALL, Cut, refusal
from torch import nn

from longhand import train
from longhand.hub_cards.runs.arguments import parse_run
from longhand.hub_cards.runs.muon import MuonBeside
from longhand.hub_cards.runs.trainer import make_trainer

MUON = [*SMALL, "--muon_learning_rate", "0.02"]
ENCODER = ["encoder-addition", "--max_steps", "2", "--muon_learning_rate", "0.02"]


def trainer_of(words, folder):
    return make_trainer(parse_run([*words, "--output_dir", str(folder)]))


@pytest.mark.parametrize("words", [MUON, ENCODER])
def test_muon_trains_the_matrices_of_layers_and_optim_all_other_weights(words, tmp_path):
    trainer = trainer_of(words, tmp_path)
    names = {id(weights): name for name, weights in trainer.model.named_parameters()}
    parts = trainer.optimizer.parts
    other, muon = ({names[id(one)] for group in part.param_groups for one in group["params"]} for part in parts)
    assert isinstance(parts[1], torch.optim.Muon)
    assert muon | other == set(names.values()) and not muon & other
    assert muon == {name for name in names.values() if ".layers." in name and "_proj.weight" in name}
    rates = [group["initial_lr"] for group in trainer.optimizer.param_groups]
    # Logs show the rate of the first group.
    assert rates == [*[trainer.args.learning_rate] * (len(rates) - 1), 0.02]


def steps(optimizers, weights, inputs, count):
    for _ in range(count):
        for optimizer in optimizers:
            optimizer.zero_grad()
        hidden = inputs
        for matrix in weights[:-1]:
            hidden = (hidden @ matrix.T).tanh()
        (hidden @ weights[-1]).square().sum().backward()
        for optimizer in optimizers:
            optimizer.step()


def drawn():
    generator = torch.Generator().manual_seed(0)
    *weights, inputs = (torch.randn(shape, generator=generator) for shape in [(8, 4), (4, 8), (4,), (5, 4)])
    return list(map(nn.Parameter, weights)), inputs


def beside(weights):
    return MuonBeside(weights[:-1], torch.optim.AdamW(weights, lr=0.01), lr=0.02)


def test_both_parts_step_as_they_do_alone():
    weights, inputs = drawn()
    alone = [torch.optim.Muon(weights[:-1], lr=0.02), torch.optim.AdamW(weights[-1:], lr=0.01)]
    steps(alone, weights, inputs, 5)
    others, inputs = drawn()
    steps([beside(others)], others, inputs, 5)
    assert all(one.equal(other) for one, other in zip(weights, others, strict=True))


def test_state_that_is_loaded_continues_as_if_nothing_had_stopped():
    weights, inputs = drawn()
    optimizer = beside(weights)
    steps([optimizer], weights, inputs, 3)
    state = copy.deepcopy(optimizer.state_dict())
    others = [nn.Parameter(matrix.detach().clone()) for matrix in weights]
    continued = beside(others)
    continued.load_state_dict(state)
    steps([optimizer], weights, inputs, 3)
    steps([continued], others, inputs, 3)
    assert all(one.equal(other) for one, other in zip(weights, others, strict=True))


def test_run_that_is_cut_off_resumes_to_the_same_bits(tmp_path, monkeypatch):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train.main([*MUON, "--output_dir", str(whole)])
    with monkeypatch.context() as patch, pytest.raises(Cut):
        original = torch.optim.Muon.step
        calls = []

        def stop(self, *arguments):
            calls.append(1)
            if len(calls) == 13:
                raise Cut
            return original(self, *arguments)

        patch.setattr(torch.optim.Muon, "step", stop)
        train.main([*MUON, "--output_dir", str(cut)])
    train.main([*MUON, "--output_dir", str(cut), "--resume"])
    assert contents(cut) == contents(whole)


def test_torch_without_muon_is_refused_before_training(tmp_path, monkeypatch, capsys):
    monkeypatch.delattr(torch.optim, "Muon")
    message = refusal(capsys, [*MUON, "--output_dir", tmp_path / "run"])
    assert "Muon needs torch 2.9 or later" in message
