"""The arguments of `transformers.TrainingArguments` that a run takes, with its own defaults, and those that it refuses."""

import json
import os
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from transformers import TrainingArguments

from longhand.data.certificates import LARGEST_RATIO, ROUNDING_FACTOR
from longhand.hub_cards.training.argument_parser import argument, default_of


@dataclass
class RunArguments(TrainingArguments):
    """`transformers.TrainingArguments` with this project's defaults and a global batch size."""

    output_dir: str | None = argument(None, "folder of the run; unset, outputs/RECIPE")
    until_certified: bool = argument(
        False, "stop at the first validation at which the model is certified; practise what fails until then"
    )
    certified_ratio: float = argument(
        float(ROUNDING_FACTOR),
        "lead over rounding bound at which until_certified stops",
        least=ROUNDING_FACTOR,
        most=LARGEST_RATIO,
    )
    resume: bool = argument(False, "continue a run that was cut off, from its last checkpoint")
    batch_size: int = argument(256, "examples of one optimizer step, over all processes and accumulated parts", least=1)
    max_steps: int = argument(1000, "optimizer steps", least=1)
    seed: int = argument(0, "seed of the model's initial weights", least=0, most=2**32 - 1)
    data_seed: int = argument(0, "seed of the training data and validation problems", least=0, most=2**32 - 1)
    learning_rate: float = argument(1e-3, "largest learning rate", above=0)
    muon_learning_rate: float | None = argument(
        None, "largest learning rate of Muon for the matrices of layers; unset, `optim` trains them too", above=0
    )
    lr_scheduler_type: str = argument(
        "cosine_with_min_lr", "name of the schedule of the learning rate, see transformers.SchedulerType"
    )
    lr_scheduler_kwargs: dict | str | None = argument({"min_lr_rate": 0.1}, "arguments of the schedule, as JSON")  # noqa: RUF009
    decay_steps: int | None = argument(
        None, "steps of the schedule, if fewer than max_steps; the learning rate then stays at its last value", least=1
    )
    warmup_steps: float = argument(0.01, "steps of warm-up, or below 1 their share of the schedule's steps", least=0)
    adam_beta2: float = argument(0.95, "second beta of AdamW", least=0, below=1)
    logging_steps: float = argument(100, "steps between logged losses, or below 1 their share of all steps", above=0)
    eval_steps: float | None = argument(500, "steps between validations; each also saves a checkpoint", least=1)
    metric_for_best_model: Literal["exact_match", "loss"] = argument(
        "exact_match",
        "what chooses the best checkpoint: mean `exact_match` at validation_lengths beyond max_length, or `loss` at the "
        "longest (as in paper 1's code)",
    )
    save_total_limit: int | None = argument(2, "checkpoints kept, the best one among them", least=1)


@dataclass(frozen=True)
class Publishing:
    """Where a finished run goes on the Hub, from the arguments that Trainer would push by.

    Attributes:
        name: `user/name`, or a name of the token's user.
        token: a token, if not the one that is logged in.
    """

    name: str
    private: bool
    revision: str | None
    token: str | None = field(repr=False)


PUBLISHING_ARGUMENTS = {
    "push_to_hub": "push the finished run to the Hub, once",
    "hub_model_id": "USER/NAME of the repository; unset, the name of the run's folder",
    "hub_private_repo": "make the repository private",
    "hub_revision": "branch to push to; unset, main",
    "hub_token": "token of the Hub; unset, the one that is logged in",
}
"""Arguments of `TrainingArguments` that say where a run goes, and their meanings here. No recipe holds them, least of all
the token."""

DERIVED = {
    "per_device_train_batch_size": "batch_size",
    "per_device_eval_batch_size": "validation_samples",
    "num_train_epochs": "max_steps",
    "eval_strategy": "eval_steps",
    "eval_delay": "eval_steps",
    "save_strategy": "eval_steps",
    "save_steps": "eval_steps",
    "logging_strategy": "logging_steps",
    "resume_from_checkpoint": "resume, which takes the last complete checkpoint",
    "greater_is_better": "metric_for_best_model",
    "load_best_model_at_end": "nothing: the best checkpoint is kept in best/",
    "hub_strategy": "push_to_hub: the finished run is pushed, once",
    "hub_always_push": "push_to_hub: the finished run is pushed, once",
    "local_rank": "the launcher, such as torchrun or accelerate launch",
    "auto_find_batch_size": "batch_size; gradient_accumulation_steps divides it into smaller parts",
    **dict.fromkeys(("do_train", "do_eval", "do_predict"), "nothing: every run trains, validates and tests"),
    **dict.fromkeys(
        ("save_only_model", "enable_jit_checkpoint"), "eval_steps: every validation saves all that resume needs"
    ),
    **dict.fromkeys(
        ("ignore_data_skip", "restore_callback_states_from_checkpoint"), "resume, which continues with the same data"
    ),
    **dict.fromkeys(("train_sampling_strategy", "length_column_name"), "the task: every batch is drawn by its number"),
    "logging_nan_inf_filter": "nothing: training stops at the first loss that is not finite",
}
"""Arguments of `TrainingArguments` that a run sets by itself or never needs, and what decides instead."""

SUPPORTED = {
    *("optim", "weight_decay", "adam_beta1", "adam_epsilon", "gradient_accumulation_steps", "max_grad_norm"),
    *("bf16", "fp16", "tf32", "use_cpu", "full_determinism", "torch_empty_cache_steps", "skip_memory_metrics", "debug"),
    *("activation_checkpointing", "activation_checkpointing_kwargs"),
    *("gradient_checkpointing", "gradient_checkpointing_kwargs"),
    *("torch_compile", "torch_compile_backend", "torch_compile_mode"),
    *("logging_first_step", "log_level", "log_level_replica", "log_on_each_node", "disable_tqdm", "eval_on_start"),
    *("include_num_input_tokens_seen", "report_to", "run_name", "project"),
    *("trackio_space_id", "trackio_bucket_id", "trackio_static_space_id"),
    *("dataloader_num_workers", "ddp_backend", "ddp_timeout", "ddp_find_unused_parameters", "ddp_bucket_cap_mb"),
    *("ddp_broadcast_buffers", "ddp_static_graph"),
}
"""Other arguments of `TrainingArguments` that do here what they say. All that are named nowhere are refused."""

LIMITS: dict[str, dict[str, float]] = {
    "gradient_accumulation_steps": {"least": 1},
    "dataloader_num_workers": {"least": 0},
    "torch_empty_cache_steps": {"least": 1},
    "max_grad_norm": {"least": 0},
    "weight_decay": {"least": 0},
    "adam_beta1": {"least": 0, "below": 1},
    "adam_epsilon": {"above": 0},
    "ddp_timeout": {"least": 1},
    "ddp_bucket_cap_mb": {"least": 1},
}
"""The `BOUNDS` of arguments of `TrainingArguments`."""


def kept_training(values: dict[str, Any]) -> dict[str, Any]:
    """Return the training arguments that a recipe keeps, as given: `TrainingArguments` fills in what depends on the machine.

    These are all of `RunArguments`, and of `TrainingArguments` those that are given.
    """
    left_out = {"output_dir", "resume", "disable_tqdm", "report_to", *PUBLISHING_ARGUMENTS}
    kept = {
        option.name: values.get(option.name, default_of(option))
        for option in fields(RunArguments)
        if option.name not in left_out and (option.name in values or option.name in RunArguments.__annotations__)
    }
    if isinstance(kept["lr_scheduler_kwargs"], str):
        try:
            kept["lr_scheduler_kwargs"] = json.loads(kept["lr_scheduler_kwargs"])
        except json.JSONDecodeError as error:
            raise ValueError(f"lr_scheduler_kwargs must be JSON, got {error.doc!r}: {error}") from error
    return kept


def take_publishing(training: RunArguments, name: str) -> Publishing | None:
    """Take from Trainer what it would push every checkpoint by, with optimizer states and a card of its own."""
    chosen = [argument for argument in list(PUBLISHING_ARGUMENTS)[1:] if getattr(training, argument) is not None]
    if not training.push_to_hub:
        if chosen:
            raise ValueError(f"{chosen[0]} is for push_to_hub, which is not set")
        return None
    private = bool(training.hub_private_repo)
    publishing = Publishing(training.hub_model_id or name, private, training.hub_revision, training.hub_token)
    training.push_to_hub, training.hub_token = False, None
    return publishing


def check_supported(values: dict[str, Any]) -> None:
    """Raise ValueError for an argument of `TrainingArguments` that would do nothing here, or something else than it says."""
    own = {*RunArguments.__annotations__, *PUBLISHING_ARGUMENTS, *SUPPORTED}
    for name in (option.name for option in fields(TrainingArguments) if option.name in values):
        if name in DERIVED:
            raise ValueError(f"{name} cannot be set: it follows from {DERIVED[name]}")
        if name not in own:
            raise ValueError(
                f"{name} cannot be set: it is an argument of Trainer that this package does not use, leave it out"
            )


def check_compilation(training: RunArguments) -> None:
    """Raise ValueError if torch does not know the backend or the mode of `torch_compile`; it would say so in training."""
    # Imported here, because importing them takes seconds.
    from torch._dynamo import list_backends
    from torch._inductor import list_mode_options

    legal = {"torch_compile_backend": list_backends(exclude_tags=()), "torch_compile_mode": list(list_mode_options())}
    for name, known in legal.items():
        if (value := getattr(training, name)) not in (None, *known):
            raise ValueError(f"{name} {value!r} is unknown: choose one of {', '.join(known)}")


def check_processes(training: RunArguments) -> None:
    """Say so if a launcher was asked for several processes and each of them, or the only one, trains alone.

    Raises:
        ValueError: several processes do not know of each other, and would all write the same folder.
    """
    if (started := int(os.environ.get("WORLD_SIZE") or 1)) > training.world_size:
        raise ValueError(f"the launcher started {started} processes, but torch has no GPUs for them: add --use_cpu True")
    # Without several GPUs, accelerate sets the address for the processes and then starts one alone.
    if {"ACCELERATE_MIXED_PRECISION", "MASTER_ADDR"} <= os.environ.keys() and "RANK" not in os.environ:
        print("note: accelerate launch started one process; --multi_gpu before train.py starts several, on CPUs too")
