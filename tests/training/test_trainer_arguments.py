"""Arguments of transformers.TrainingArguments that meet batches and a schedule of this package, and Muon."""

import pytest
import torch
from test_train import LEARNED, MIXED, SMALL, refusal
from torch import nn

from longhand.hub_cards.training.arguments import parse_run
from longhand.hub_cards.training.muon import MuonBeside
from longhand.train import make_trainer

TINY = [*SMALL, *LEARNED, *MIXED, "--max_steps", "4", "--eval_steps", "2"]
SAME = {"use_cpu": "True", "full_determinism": "True", "disable_tqdm": "True", "dataloader_num_workers": "2"}


def trained(folder, **values):
    words = [word for name, value in values.items() for word in (f"--{name}", *value.split())]
    trainer = make_trainer(parse_run([*TINY, *words, "--output_dir", str(folder)]))
    trainer.train()
    return trainer.model.state_dict()


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("usual"))


@pytest.mark.parametrize("values", [{"gradient_accumulation_steps": "4"}, {"gradient_checkpointing": "True"}])
def test_parts_of_a_batch_and_layers_computed_again_change_weights_by_rounding_alone(values, usual, tmp_path):
    torch.testing.assert_close(trained(tmp_path, **values), usual, atol=1e-3, rtol=1e-3)


def test_arguments_of_the_machine_leave_the_weights_as_they_are(usual, tmp_path):
    weights = trained(tmp_path, **SAME)
    assert all(weights[key].equal(usual[key]) for key in usual)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("gradient_accumulation_steps", ["0", "100000000000000000000"]),
        ("max_grad_norm", ["-1", "nan", "inf"]),
        ("adam_beta1", ["1"]),
        ("learning_rate", ["0"]),
        ("eval_steps", ["0.5"]),
        ("save_steps", ["1"]),
    ],
)
def test_value_that_cannot_work_is_refused_by_name(name, values, tmp_path, capsys):
    for value in values:
        message = refusal(capsys, [*TINY, f"--{name}", value, "--output_dir", tmp_path / "run"])
        assert name in message
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind,arguments", [("cosine_with_min_lr", '{"min_lr_rate": 0.1}'), ("linear", "{}")])
def test_learning_rate_falls_in_decay_steps_and_then_stays(kind, arguments, tmp_path):
    def rates(*words: str) -> list[float]:
        schedule = ["--lr_scheduler_type", kind, "--lr_scheduler_kwargs", arguments, "--warmup_steps", "2"]
        run = parse_run([*SMALL, "--eval_steps", "5", *schedule, *words, "--output_dir", str(tmp_path)])
        trainer = make_trainer(run)
        seen = []
        for _ in range(run.training.max_steps):
            seen.append(trainer.lr_scheduler.get_last_lr()[0])
            trainer.optimizer.step()
            trainer.lr_scheduler.step()
        return seen

    short, held = rates("--max_steps", "10"), rates("--max_steps", "25", "--decay_steps", "10")
    assert held == [*short, *[short[-1]] * 15]
    assert short[-1] == min(short[2:])
    # More steps than the run has are its own number of steps.
    assert rates("--max_steps", "10", "--decay_steps", "25") == short


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
