"""`--muon_learning_rate`: Muon for the matrices of layers, beside another optimizer, in one run that can be cut off."""

import copy

import pytest
import torch
from test_resuming import contents
from test_train import SMALL, Cut
from torch import nn

from longhand import train
from longhand.hub_cards.training.arguments import parse_run
from longhand.hub_cards.training.muon import MuonBeside, layer_matrices
from longhand.modeling import PairwiseBertConfig, PairwiseBertForTokenClassification
from longhand.train import make_trainer

MUON = [*SMALL, "--muon_learning_rate", "0.02", "--weight_decay", "0.3"]
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
    assert parts[1].param_groups[0]["weight_decay"] == trainer.args.weight_decay
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


@pytest.mark.parametrize(
    ("kind", "arguments"), [("polynomial", "{}"), ("cosine_with_min_lr", '{"min_lr": 1e-5}'), ("constant_with_warmup", "{}")]
)
def test_schedules_read_the_rate_of_the_other_optimizer(kind, arguments, tmp_path):
    schedule = ["--lr_scheduler_type", kind, "--lr_scheduler_kwargs", arguments]
    made = [trainer_of([*words, *schedule], tmp_path).lr_scheduler for words in (SMALL, MUON)]
    plain, beside_muon = ([rate(step) for step in range(20)] for rate in (one.lr_lambdas[0] for one in made))
    assert beside_muon == plain


def test_optimizers_that_ask_whether_steps_follow_are_told():
    class Asking(torch.optim.SGD):
        def train(self):
            self.training = True

        def eval(self):
            self.training = False

    weights, _ = drawn()
    other = Asking(weights, lr=0.1)
    optimizer = MuonBeside(weights[:-1], other, lr=0.02)
    optimizer.train()
    assert other.training
    optimizer.eval()
    assert not other.training
    beside(weights).train()


def test_model_without_linear_maps_in_layers_is_refused():
    config = PairwiseBertConfig(hidden_size=8, num_attention_heads=1, intermediate_size=8)
    model = PairwiseBertForTokenClassification(config)
    model.model.layers = nn.ModuleList()
    with pytest.raises(ValueError, match="PairwiseBertForTokenClassification has none: leave it unset"):
        layer_matrices(model)


def test_training_that_diverges_names_both_rates(tmp_path, capsys):
    rates = ["--learning_rate", "1e11", "--muon_learning_rate", "1e11", "--warmup_steps", "0"]
    words = [*SMALL, *rates, "--output_dir", str(tmp_path / "run")]
    with pytest.raises(SystemExit):
        train.main(words)
    assert "or a muon_learning_rate below 100000000000.0" in capsys.readouterr().err
