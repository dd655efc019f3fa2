"""The arguments of a training run: a recipe and a command line become one checked `Run`."""

import difflib
import json
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Any, NoReturn

from huggingface_hub.errors import StrictDataclassError
from transformers import HfArgumentParser, PreTrainedConfig, TrainingArguments

from longhand.data import TASKS, Task
from longhand.data.families import FAMILIES
from longhand.data.families.decoder import PositionArguments
from longhand.hub_cards.runs.recipes import load_recipe

DEFAULT_RECIPE = "addition"
CHECKPOINTS_FOLDER = "checkpoints"

_NOT_ARGUMENTS = {
    *("vocab_size", "use_cache", "bos_token_id", "eos_token_id", "pad_token_id"),
    *("coupling", "randomized_positions"),
}


def _model_arguments(config_class: type[PreTrainedConfig]) -> type:
    """Every field of a model's configuration that a recipe may set."""
    own = config_class.__annotations__
    described = {"help": f"see {config_class.__name__}"}
    return make_dataclass(
        f"{config_class.__name__}Arguments",
        [
            (
                option.name,
                own[option.name],
                field(default=option.default, default_factory=option.default_factory, metadata=described),
            )
            for option in fields(config_class)
            if option.name in own and option.name not in _NOT_ARGUMENTS
        ],
    )


MODEL_ARGUMENTS = {family.name: _model_arguments(family.model_class.config_class) for family in FAMILIES.values()}
"""What a recipe may set of the configuration of each family of models."""


@dataclass
class DataArguments:
    """What is trained on, validated and tested. Lengths are digits of the operands."""

    task: str = field(default="addition", metadata={"help": "name of the task"})
    min_length: int = field(default=1, metadata={"help": "shortest trained operand"})
    max_length: int = field(default=30, metadata={"help": "longest trained operand"})
    num_train_samples: int | None = field(
        default=None, metadata={"help": "size of a fixed training set; unset, every batch is new"}
    )
    validation_lengths: list[int] = field(
        default_factory=lambda: [30, 60, 100], metadata={"help": "lengths validated during training"}
    )
    validation_samples: int = field(default=100, metadata={"help": "problems for each validated length"})
    test_lengths: list[int] = field(
        default_factory=lambda: [30, 60, 100, 200], metadata={"help": "lengths tested at the end"}
    )
    test_samples: int = field(default=200, metadata={"help": "problems for each tested length"})


@dataclass
class RunArguments(TrainingArguments):
    """`transformers.TrainingArguments` with this project's defaults and a global batch size."""

    output_dir: str | None = field(default=None, metadata={"help": "folder of the run; default outputs/RECIPE"})
    until_certified: bool = field(
        default=False,
        metadata={"help": "stop at the first validation at which the model is certified; what fails is practised more"},
    )
    certified_margin: float = field(
        default=1.0, metadata={"help": "lead of every right token's logit at which until_certified stops"}
    )
    resume: bool = field(default=False, metadata={"help": "continue a run that was cut off, from its last checkpoint"})
    batch_size: int = field(
        default=256, metadata={"help": "examples of one optimizer step, all processes and accumulated parts together"}
    )
    max_steps: int = field(default=1000, metadata={"help": "optimizer steps"})
    seed: int = field(default=0, metadata={"help": "seed of the model's initial weights"})
    data_seed: int = field(default=0, metadata={"help": "seed of the training data and validation problems"})
    learning_rate: float = field(default=1e-3, metadata={"help": "largest learning rate"})
    lr_scheduler_type: str = field(default="cosine_with_min_lr", metadata={"help": "name of the schedule"})
    lr_scheduler_kwargs: dict | str | None = field(
        default_factory=lambda: {"min_lr_rate": 0.1}, metadata={"help": "arguments of the schedule, as JSON"}
    )
    warmup_steps: float = field(default=0.01, metadata={"help": "warm-up in steps, or as a share of all if below 1"})
    adam_beta2: float = field(default=0.95, metadata={"help": "second beta of AdamW"})
    logging_steps: float = field(default=100, metadata={"help": "steps between logged losses"})
    eval_steps: float | None = field(
        default=500, metadata={"help": "steps between validations; each also saves a checkpoint"}
    )
    save_total_limit: int | None = field(default=2, metadata={"help": "checkpoints kept, the best one among them"})


@dataclass(frozen=True)
class Publishing:
    """Where a finished run goes on the Hub, from the arguments that Trainer would push by.

    Attributes:
        name: `user/name`, or a name of the token's user.
        token: if not the one that is logged in.
    """

    name: str
    private: bool
    revision: str | None
    token: str | None


_HUB_ARGUMENTS = ("push_to_hub", "hub_model_id", "hub_private_repo", "hub_revision", "hub_token")
"""Say where a run goes and not what it is, so that no recipe holds them, least of all the token."""

_DERIVED = {
    "per_device_train_batch_size": "batch_size",
    "per_device_eval_batch_size": "validation_samples",
    "num_train_epochs": "max_steps",
    "eval_strategy": "eval_steps",
    "save_strategy": "eval_steps",
    "save_steps": "eval_steps",
    "metric_for_best_model": "validation_lengths (the loss at the longest)",
    "greater_is_better": "validation_lengths (the loss at the longest)",
    "load_best_model_at_end": "nothing: the best checkpoint is kept in best/",
    "hub_strategy": "push_to_hub: the finished run is pushed, once",
    "hub_always_push": "push_to_hub: the finished run is pushed, once",
}
"""Arguments of `TrainingArguments` that a run sets by itself, and what from."""


class Parser(HfArgumentParser):
    """Raises ValueError, in one line, where argparse would print a usage of several screens."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)

    def parse_known(self, arguments: list[str]) -> tuple[Any, ...]:
        """Instances of the dataclasses; an unknown argument is refused with those whose names are close."""
        try:
            *parsed, unknown = self.parse_args_into_dataclasses(arguments, return_remaining_strings=True)
        except json.JSONDecodeError as error:
            raise ValueError(f"an argument that takes JSON got {error.doc!r}: {error}") from error
        if unknown:
            names = [option for action in self._actions for option in action.option_strings]
            close = difflib.get_close_matches(unknown[0], names, n=3)
            hint = f": did you mean {' or '.join(close)}?" if close else ""
            raise ValueError(f"unknown argument {unknown[0]!r}{hint}")
        return tuple(parsed)


@dataclass(frozen=True)
class Run:
    """Everything that a run is made from, checked as far as can be without starting it."""

    name: str
    folder: Path
    task: Task
    config: PreTrainedConfig
    data: DataArguments
    positions: PositionArguments | None
    training_collator: Callable[..., dict[str, Any]]
    training: RunArguments
    publishing: Publishing | None
    recipe: dict[str, Any]


def parse_run(arguments: list[str]) -> Run:
    """Recipe and command line, the latter winning, as a checked run.

    Raises:
        ValueError: a recipe, argument or value is unknown or not legal.
    """
    name = DEFAULT_RECIPE
    if arguments and not arguments[0].startswith("-"):
        name, *arguments = arguments
    recipe = load_recipe(name)
    name = recipe.pop("recipe", Path(name).stem)
    description = recipe.pop("description", "")
    # How a construction was built says nothing of how to train.
    recipe.pop("command", None)
    arguments = [*_as_arguments(recipe), *arguments]

    chosen = Parser(DataArguments, allow_abbrev=False).parse_known_args(arguments)[0].task
    if chosen not in TASKS:
        raise ValueError(f"task {chosen!r} is unknown: choose one of {', '.join(TASKS)}")
    family = TASKS[chosen].family
    own = () if family.training_arguments is None else (family.training_arguments,)
    kinds = (TASKS[chosen], MODEL_ARGUMENTS[family.name], DataArguments, RunArguments, *own)
    parser = Parser(kinds, allow_abbrev=False)
    task, model, data, training, *rest = parser.parse_known(arguments)
    _check_values(data, training)
    if getattr(task, "varied_field", False) and data.num_train_samples is not None:
        raise ValueError("varied_field draws a field for every batch: leave num_train_samples unset")
    positions = rest[0] if rest else None
    options = {**vars(model), **family.config_options(task, positions)}
    try:
        config = family.model_class.config_class(**options)
    except StrictDataclassError as error:
        raise ValueError(" ".join(str(error.__cause__ or error).split())) from error
    collator = family.training_collator(config, positions)

    # As given: TrainingArguments fills in what depends on the machine.
    values = vars(parser.parse_args(arguments))
    named = {word[2:].partition("=")[0].replace("-", "_") for word in arguments if word.startswith("--")}
    kept = named | set(RunArguments.__annotations__)
    changed = {option.name: values[option.name] for option in fields(RunArguments) if option.name in kept}
    if isinstance(changed["lr_scheduler_kwargs"], str):
        changed["lr_scheduler_kwargs"] = json.loads(changed["lr_scheduler_kwargs"])
    for derived, instead in _DERIVED.items():
        if derived in named:
            raise ValueError(f"{derived} cannot be set: it follows from {instead}")
    folder = Path(changed.pop("output_dir") or Path("outputs", name))
    training.output_dir = str(folder / CHECKPOINTS_FOLDER)
    for harmless in ("resume", "disable_tqdm", "report_to", *_HUB_ARGUMENTS):
        changed.pop(harmless, None)
    own = {**vars(data), **(vars(positions) if positions else {}), **vars(model)}
    resolved = {"recipe": name, "description": description, **task.describe(), **own, **changed}
    publishing = _take_publishing(training, folder.resolve().name)
    return Run(name, folder, task, config, data, positions, collator, training, publishing, json.loads(json.dumps(resolved)))


def _take_publishing(training: RunArguments, name: str) -> Publishing | None:
    """Takes from Trainer what it would push by: every checkpoint, with optimizer states and a card of its own."""
    chosen = [argument for argument in _HUB_ARGUMENTS[1:] if getattr(training, argument) is not None]
    if chosen and not training.push_to_hub:
        raise ValueError(f"{chosen[0]} is for push_to_hub, which is not set")
    publishing = None
    if training.push_to_hub:
        private = bool(training.hub_private_repo)
        publishing = Publishing(training.hub_model_id or name, private, training.hub_revision, training.hub_token)
    training.push_to_hub, training.hub_token = False, None
    return publishing


def _as_arguments(recipe: dict[str, Any]) -> list[str]:
    """A recipe as command-line words, so that the parser checks both alike."""
    words = []
    for name, value in recipe.items():
        if value is None:
            continue
        words.append(f"--{name}")
        if isinstance(value, dict):
            words.append(json.dumps(value))
        else:
            words += map(str, value) if isinstance(value, list) else [str(value)]
    return words


def _check_values(data: DataArguments, training: RunArguments) -> None:
    if not 1 <= data.min_length <= data.max_length:
        raise ValueError(f"need 1 <= min_length <= max_length, got {data.min_length} and {data.max_length}")
    for name in ("validation_lengths", "test_lengths"):
        if not getattr(data, name) or min(getattr(data, name)) < 1:
            raise ValueError(f"{name} must be lengths of at least 1 digit, got {getattr(data, name)}")
    counts = {name: getattr(data, name) for name in ("validation_samples", "test_samples", "num_train_samples")}
    counts |= {name: getattr(training, name) for name in ("batch_size", "max_steps", "eval_steps")}
    for name, value in counts.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if not 0 <= training.certified_margin < float("inf"):
        raise ValueError(f"certified_margin must be 0 or above, got {training.certified_margin}")
    if training.until_certified and data.num_train_samples is not None:
        raise ValueError("until_certified draws failing problems again: leave num_train_samples unset")
    if training.until_certified and training.dataloader_num_workers:
        raise ValueError(
            f"until_certified changes what is drawn: dataloader_num_workers must be 0, got {training.dataloader_num_workers}"
        )
    for name in ("seed", "data_seed"):
        if not 0 <= getattr(training, name) < 2**32:
            raise ValueError(f"{name} must be in 0..2**32-1, got {getattr(training, name)}")
    if not 0 < training.learning_rate < float("inf"):
        raise ValueError(f"learning_rate must be above 0, got {training.learning_rate}")


def describe_arguments() -> str:
    """A line for every argument of this project, with its default; those of transformers are left to its own pages."""
    lines = []
    for kind in (*TASKS.values(), *MODEL_ARGUMENTS.values(), DataArguments, PositionArguments, RunArguments):
        own = kind.__annotations__ if kind is RunArguments else {option.name for option in fields(kind)}
        for option in fields(kind):
            if option.name in own:
                default = option.default if option.default_factory is MISSING else option.default_factory()
                lines.append(f"  --{option.name:24} {option.metadata['help']} (default {default})")
    return "\n".join(lines)
