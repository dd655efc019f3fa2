"""`--muon_learning_rate`: Muon for the matrices of layers, beside another optimizer."""

import pytest
import torch
from test_train import SMALL
from torch import nn

from longhand.hub_cards.training.arguments import parse_run
from longhand.hub_cards.training.trainer import MuonBeside
from longhand.train import make_trainer

MUON = [*SMALL, "--muon_learning_rate", "0.02", "--weight_decay", "0.3"]
ENCODER = ["encoder-addition", "--max_steps", "2", "--muon_learning_rate", "0.02"]


@pytest.mark.parametrize("words", [MUON, ENCODER])
def test_muon_trains_the_matrices_of_layers_and_optim_all_other_weights(words, tmp_path):
    trainer = make_trainer(parse_run([*words, "--output_dir", str(tmp_path)]))
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


def test_both_parts_step_as_they_do_alone():
    def trained(make):
        generator = torch.Generator().manual_seed(0)
        *weights, inputs = (torch.randn(shape, generator=generator) for shape in [(8, 4), (4, 8), (4,), (5, 4)])
        weights = list(map(nn.Parameter, weights))
        optimizers = make(weights)
        for _ in range(5):
            hidden = inputs
            for matrix in weights[:-1]:
                hidden = (hidden @ matrix.T).tanh()
            grown = torch.autograd.grad((hidden @ weights[-1]).square().sum(), weights)
            for weight, gradient in zip(weights, grown, strict=True):
                weight.grad = gradient
            for optimizer in optimizers:
                optimizer.step()
        return weights

    alone = trained(lambda own: [torch.optim.Muon(own[:-1], lr=0.02), torch.optim.AdamW(own[-1:], lr=0.01)])
    beside = trained(lambda own: [MuonBeside(own[:-1], torch.optim.AdamW(own, lr=0.01), lr=0.02)])
    assert all(one.equal(other) for one, other in zip(alone, beside, strict=True))


@pytest.mark.parametrize(
    ("kind", "arguments"), [("polynomial", "{}"), ("cosine_with_min_lr", '{"min_lr": 1e-5}'), ("constant_with_warmup", "{}")]
)
def test_schedules_read_the_rate_of_the_other_optimizer(kind, arguments, tmp_path):
    schedule = ["--lr_scheduler_type", kind, "--lr_scheduler_kwargs", arguments, "--output_dir", str(tmp_path)]
    made = [make_trainer(parse_run([*words, *schedule])).lr_scheduler for words in (SMALL, MUON)]
    plain, beside_muon = ([rate(step) for step in range(20)] for rate in (one.lr_lambdas[0] for one in made))
    assert beside_muon == plain
