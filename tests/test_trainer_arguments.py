"""Every argument of transformers.TrainingArguments does here what it says, or is refused by its name."""

from dataclasses import fields

import pytest
import torch
from safetensors.torch import load_file
from test_train import SMALL, refusal
from transformers import TrainingArguments

from longhand import train
from longhand.hub_cards.training.arguments import parse_run
from longhand.hub_cards.training.trainer import make_trainer
from longhand.hub_cards.training.training_arguments import DERIVED, PUBLISHING_ARGUMENTS, SUPPORTED, RunArguments

TINY = [*SMALL, "--max_steps", "4", "--eval_steps", "2"]
OWN = {*RunArguments.__annotations__, *PUBLISHING_ARGUMENTS}
UNUSED = {
    *(
        "average_tokens_across_devices",
        "optim_args",
        "optim_target_modules",
        "label_smoothing_factor",
        "neftune_noise_alpha",
    ),
    *("bf16_full_eval", "fp16_full_eval", "use_liger_kernel", "liger_kernel_config", "use_cache", "label_names"),
    *("prediction_loss_only", "eval_do_concat_batches", "eval_use_gather_object", "eval_accumulation_steps"),
    *("include_for_metrics", "batch_eval_metrics", "save_on_each_node", "remove_unused_columns"),
    *("accelerator_config", "parallelism_config", "fsdp", "fsdp_config", "deepspeed"),
    *("dataloader_drop_last", "dataloader_pin_memory", "dataloader_persistent_workers", "dataloader_prefetch_factor"),
    *("dataloader_multiprocessing_context", "dataloader_in_order"),
}
"""Tried one by one: each is without effect on a run of this package, makes it fail, or makes it another than it says."""

OF_TRAINER = [option.name for option in fields(TrainingArguments)]

CHANGES = {
    "optim": "sgd",
    "weight_decay": "0.5",
    "adam_beta1": "0.5",
    "adam_epsilon": "0.1",
    "gradient_accumulation_steps": "2",
    "max_grad_norm": "0.01",
    "bf16": "True --use_cpu True",
}
"""Arguments that change the weights of a run on a CPU, and a value that does."""

SAME = {
    "use_cpu": "True",
    "full_determinism": "True",
    "torch_empty_cache_steps": "2",
    "skip_memory_metrics": "False",
    "debug": "underflow_overflow",
    "activation_checkpointing": "True",
    "activation_checkpointing_kwargs": '{"use_reentrant":false}',
    "gradient_checkpointing": "True",
    "gradient_checkpointing_kwargs": '{"use_reentrant":false}',
    "logging_first_step": "True",
    "log_level": "error",
    "log_level_replica": "error",
    "log_on_each_node": "False",
    "disable_tqdm": "True",
    "eval_on_start": "True",
    "include_num_input_tokens_seen": "True",
    "report_to": "none",
    "run_name": "mine",
    "project": "mine",
    "trackio_space_id": "mine",
    "trackio_bucket_id": "mine",
    "trackio_static_space_id": "mine",
    "dataloader_num_workers": "1",
    "ddp_timeout": "60",
    "ddp_find_unused_parameters": "False",
    "ddp_bucket_cap_mb": "1",
    "ddp_broadcast_buffers": "False",
    "ddp_static_graph": "True",
}
"""Arguments that leave the weights of a run in one process as they are."""

ELSEWHERE = {"fp16", "tf32", "torch_compile", "torch_compile_backend", "torch_compile_mode", "ddp_backend"}
"""Arguments that need a GPU, minutes, or several processes."""


def test_every_argument_of_this_version_of_transformers_has_its_place():
    places = [OWN, SUPPORTED, set(DERIVED), UNUSED]
    assert sorted(OF_TRAINER) == sorted(name for place in places for name in place if name in OF_TRAINER)
    assert {*CHANGES, *SAME, *ELSEWHERE} == SUPPORTED <= {*OF_TRAINER}


HOOKED = ("debug", "activation_checkpointing", "gradient_checkpointing")
"""Arguments that hook the embedding. Every token is then embedded, not only distinct ones, and sums round otherwise."""


def value_of(name: str) -> str:
    """A value of the right type."""
    kind = str({option.name: option.type for option in fields(TrainingArguments)}[name])
    return "True" if "bool" in kind and "dict" not in kind else "{}" if "dict" in kind else "1"


@pytest.mark.parametrize("name", sorted({*DERIVED, *UNUSED} - {"parallelism_config", "liger_kernel_config"}))
def test_argument_without_effect_is_refused_by_name(name, tmp_path, capsys):
    # The two that are left out take no value that a command line can give.
    choices = {"save_strategy": "no", "eval_strategy": "no", "logging_strategy": "no", "hub_strategy": "end"}
    choices |= {"train_sampling_strategy": "sequential", "dataloader_multiprocessing_context": "spawn"}
    value = choices.get(name, value_of(name))
    message = refusal(capsys, [*TINY, f"--{name}", value, "--output_dir", tmp_path / "run"])
    assert f"{name} cannot be set: " in message and not list(tmp_path.iterdir())


def trained(folder, *words):
    train.main([*TINY, *words, "--output_dir", str(folder)])
    return load_file(folder / "model.safetensors")


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("usual") / "run")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({**CHANGES, **SAME}))
def test_argument_does_what_it_says(name, usual, tmp_path):
    weights = trained(tmp_path / "run", f"--{name}", *{**CHANGES, **SAME}[name].split(" "))
    if name in HOOKED:
        torch.testing.assert_close(weights, dict(usual), atol=1e-3, rtol=1e-3)
    else:
        assert all(weights[key].equal(usual[key]) for key in usual) == (name in SAME)


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
        assert message.startswith(f"error: {name} ") and (
            f"got {value}" in message or name in ("fp16", "eval_steps", "max_grad_norm")
        )
        assert not list(tmp_path.iterdir())


def test_values_at_the_bounds_are_legal(tmp_path):
    words = [
        "--max_grad_norm",
        "0",
        "--warmup_steps",
        "0",
        "--weight_decay",
        "0",
        "--adam_beta1",
        "0",
        "--save_total_limit",
        "1",
    ]
    parse_run([*TINY, *words, "--lr_scheduler_type", "linear", "--lr_scheduler_kwargs", "{}", "--output_dir", str(tmp_path)])


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
