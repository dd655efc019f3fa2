"""Every argument of transformers.TrainingArguments that a run takes does what it says; others are refused by name."""

import pytest
import torch
from test_train import LEARNED, MIXED, SMALL, refusal
from transformers import TrainingArguments

from longhand.hub_cards.training.arguments import RunArguments, parse_run
from longhand.train import make_trainer

TINY = [*SMALL, *LEARNED, *MIXED, "--max_steps", "4", "--eval_steps", "2"]

CHANGES = {
    "optim": "sgd",
    "weight_decay": "0.5",
    "adam_beta1": "0.5",
    "adam_epsilon": "0.1",
    "max_grad_norm": "0.01",
    "bf16": "True --use_cpu True",
}
"""Arguments that change the weights of a run on a CPU, and a value that does."""

ROUNDED = {"gradient_accumulation_steps": "4", "gradient_checkpointing": "True"}
"""Arguments that change the weights by rounding alone."""

SAME = {
    "use_cpu": "True",
    "full_determinism": "True",
    "disable_tqdm": "True",
    "report_to": "none",
    "run_name": "mine",
    "dataloader_num_workers": "2",
    "ddp_timeout": "60",
}
"""Arguments that leave the weights of a run in one process as they are."""

ELSEWHERE = {"fp16", "tf32", "torch_compile", "ddp_backend"}
"""Arguments that need a GPU, minutes, or several processes."""


OWN = {
    *("output_dir", "max_steps", "seed", "data_seed", "learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs"),
    *("warmup_steps", "adam_beta2", "eval_steps", "metric_for_best_model", "save_total_limit", "logging_steps"),
}
"""Arguments of `TrainingArguments` with defaults of this package, which other tests set."""


def test_every_argument_that_is_taken_from_transformers_is_tried():
    taken = {name for name in RunArguments.__annotations__ if name in TrainingArguments.__dataclass_fields__}
    assert taken == {*CHANGES, *ROUNDED, *SAME, *ELSEWHERE, *OWN}


@pytest.mark.parametrize(
    ("name", "instead"), [("save_steps", "eval_steps"), ("num_train_epochs", "max_steps"), ("deepspeed", None)]
)
def test_another_argument_of_transformers_is_refused_by_name(name, instead, tmp_path, capsys):
    message = refusal(capsys, [*TINY, f"--{name}", "1", "--output_dir", tmp_path / "run"])
    assert f"--{name}" in message and (instead is None or f"--{instead}" in message) and not list(tmp_path.iterdir())


def trained(folder, **values):
    words = [word for name, value in values.items() for word in (f"--{name}", *value.split())]
    trainer = make_trainer(parse_run([*TINY, *words, "--output_dir", str(folder)]))
    trainer.train()
    return trainer.model.state_dict()


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("usual"))


@pytest.mark.parametrize("name", [*CHANGES, *ROUNDED])
def test_argument_changes_the_weights_as_it_says(name, usual, tmp_path):
    weights = trained(tmp_path, **{name: {**CHANGES, **ROUNDED}[name]})
    assert not all(weights[key].equal(usual[key]) for key in usual)
    if name in ROUNDED:
        torch.testing.assert_close(weights, usual, atol=1e-3, rtol=1e-3)


def test_arguments_of_the_machine_leave_the_weights_as_they_are(usual, tmp_path):
    weights = trained(tmp_path, **SAME)
    assert all(weights[key].equal(usual[key]) for key in usual)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("gradient_accumulation_steps", ["0", "-1", "100000000000000000000"]),
        ("max_grad_norm", ["-1", "nan", "inf"]),
        ("weight_decay", ["-1", "nan", "inf"]),
        ("adam_beta1", ["-1", "1", "nan"]),
        ("adam_beta2", ["-1", "1.5", "nan"]),
        ("adam_epsilon", ["-1", "0", "nan"]),
        ("warmup_steps", ["-1", "nan", "inf"]),
        ("learning_rate", ["0", "nan", "inf"]),
        ("muon_learning_rate", ["0", "nan", "inf"]),
        ("max_steps", ["0", "-5", "100000000000000000000"]),
        ("eval_steps", ["0.5", "1.5", "nan", "inf"]),
        ("logging_steps", ["0", "-1", "nan", "inf"]),
        ("save_total_limit", ["0", "-1"]),
        ("dataloader_num_workers", ["-1"]),
        ("test_samples", ["100000000000000000000"]),
        ("hidden_size", ["100000000000000000000"]),
        ("fp16", ["True"]),
    ],
)
def test_value_that_cannot_work_is_refused_by_name(name, values, tmp_path, capsys):
    for value in values:
        message = refusal(capsys, [*TINY, f"--{name}", value, "--output_dir", tmp_path / "run"])
        assert name in message
        assert not list(tmp_path.iterdir())


def test_values_at_the_bounds_are_legal(tmp_path):
    words = (
        "--max_grad_norm 0 --warmup_steps 0 --weight_decay 0 --adam_beta1 0 --save_total_limit 1 --lr_scheduler_type linear"
    )
    parse_run([*TINY, *words.split(), "--lr_scheduler_kwargs", "{}", "--output_dir", str(tmp_path)])


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


def test_decay_steps_within_the_warm_up_are_refused(tmp_path):
    words = [*SMALL, "--max_steps", "40", "--eval_steps", "5", "--warmup_steps", "10", "--output_dir", str(tmp_path)]
    with pytest.raises(ValueError, match="decay_steps must be above the 10 steps of warm-up, got 10"):
        parse_run([*words, "--decay_steps", "10"])
    # Below 1 the warm-up is a share of the schedule's steps.
    share = [*words, "--warmup_steps", "0.5", "--decay_steps", "20"]
    rates = make_trainer(parse_run(share)).lr_scheduler.lr_lambdas[0]
    assert max(range(40), key=rates) == 10
