"""The arguments of a training run: a recipe and a command line become one checked `Run`."""

import argparse
import difflib
import inspect
import json
import operator
import re
from collections.abc import Callable
from copy import copy
from dataclasses import MISSING, Field, dataclass, field, fields, make_dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from huggingface_hub.errors import StrictDataclassError
from transformers import HfArgumentParser, PreTrainedConfig, TrainingArguments

from longhand.data import Task
from longhand.data.certificates import LARGEST_RATIO, ROUNDING_FACTOR
from longhand.data.families import Family
from longhand.data.plugins import Plugin, load_plugin
from longhand.data.tasks.registry import find_task
from longhand.hub_cards.runs.console import one_line
from longhand.hub_cards.runs.plugins import record_plugins, require_plugins
from longhand.hub_cards.runs.recipes import load_recipe

DEFAULT_RECIPE = "addition"
_LARGEST = 1e12
CHECKPOINTS_FOLDER = "checkpoints"

_NOT_ARGUMENTS = {
    *("vocab_size", "use_cache", "bos_token_id", "eos_token_id", "pad_token_id"),
    *("coupling", "randomized_positions"),
}
"""Fields of configurations that follow from the task and the other arguments."""


def field_meanings(kind: type) -> dict[str, str]:
    """Return the meaning of each field by its name, from the `Args:` or `Attributes:` section of a class docstring."""
    lines = (inspect.getdoc(kind) or "").splitlines()
    titles = [number for number, line in enumerate(lines) if line in ("Args:", "Attributes:")]
    meanings: dict[str, str] = {}
    name = None
    for line in lines[titles[0] + 1 :] if titles else ():
        if line and not line.startswith(" "):
            break
        if match := re.fullmatch(r" {4}(\w+): (.*)", line):
            name, meanings[match[1]] = match[1], match[2]
        elif name and line.strip():
            meanings[name] += f" {line.strip()}"
    return meanings


@cache
def model_arguments(family: Family) -> type:
    """Return a dataclass of what a recipe may set of the configuration of a family's models."""
    config_class: Any = family.model_class.config_class
    own, meanings = config_class.__annotations__, field_meanings(config_class)
    options = []
    for option in fields(config_class):
        if option.name in own and option.name not in _NOT_ARGUMENTS:
            options.append((option.name, own[option.name], argument(default_of(option), meanings.get(option.name, ""))))
    return make_dataclass(f"{config_class.__name__}Arguments", options)


def argument(default: Any, meaning: str, **bounds: float) -> Any:
    """Return the field of an argument, with its meaning and the `BOUNDS` of its value, or of each of its values."""
    metadata = {"help": meaning, **bounds}
    if isinstance(default, list | dict):
        return field(default_factory=lambda: copy(default), metadata=metadata)
    return field(default=default, metadata=metadata)


BOUNDS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "least": ("at least", operator.ge),
    "above": ("above", operator.gt),
    "below": ("below", operator.lt),
    "most": ("at most", operator.le),
}
"""What an argument may declare of its value, by name: the words for it, and whether a value holds it."""


@dataclass
class DataArguments:
    """What is trained on, validated and tested. Lengths are digits of the operands."""

    task: str = argument("addition", "name of the task")
    min_length: int = argument(1, "digits of the shortest trained operand")
    max_length: int = argument(30, "digits of the longest trained operand")
    num_train_samples: int | None = argument(None, "problems of a fixed training set; unset, every batch is new", least=1)
    validation_lengths: list[int] = argument([30, 60, 100], "digits of operands, validated during training", least=1)  # noqa: RUF009
    validation_samples: int = argument(100, "problems of each validated length", least=1)
    test_lengths: list[int] = argument([30, 60, 100, 200], "digits of operands, tested at the end", least=1)  # noqa: RUF009
    test_samples: int = argument(200, "problems of each tested length", least=1)


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
    lr_scheduler_type: str = argument(
        "cosine_with_min_lr", "name of the schedule of the learning rate, see transformers.SchedulerType"
    )
    lr_scheduler_kwargs: dict | str | None = argument({"min_lr_rate": 0.1}, "arguments of the schedule, as JSON")  # noqa: RUF009
    warmup_steps: float = argument(0.01, "steps of warm-up, or below 1 their share of all steps", least=0)
    adam_beta2: float = argument(0.95, "second beta of AdamW", least=0, below=1)
    logging_steps: float = argument(100, "steps between logged losses, or below 1 their share of all steps", above=0)
    eval_steps: float | None = argument(500, "steps between validations; each also saves a checkpoint", least=1)
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
    "metric_for_best_model": "validation_lengths (exact match at those beyond max_length)",
    "greater_is_better": "validation_lengths (exact match at those beyond max_length)",
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

_LIMITS: dict[str, dict[str, float]] = {
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


class Parser(HfArgumentParser):
    """Parser that raises ValueError, in one line, instead of printing a usage of several screens and exiting."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)

    def add_argument(self, *name_or_flags: str, **options: Any) -> argparse.Action:
        """Add an argument that has no value unless one is given; `initial`, `help` and `bounds` of it are for the help."""
        bounds = {name: options.pop(name) for name in BOUNDS if name in options}
        meaning = options.pop("help", "")
        action: Any = super().add_argument(*name_or_flags, **options)
        action.initial, action.default, action.help, action.bounds = action.default, argparse.SUPPRESS, meaning, bounds
        return action

    def argument(self, name: str) -> Any:
        """Return the argument of that name as it was added; None if there is none."""
        action = self._option_string_actions.get(f"--{name}")
        return action if action and action.dest == name else None

    def read_words(self, words: list[str]) -> dict[str, Any]:
        """Return what a command line gives, with the right types. An unknown argument is refused with close names."""
        given, unknown = self.parse_known_args(words)
        if unknown:
            raise ValueError(self._describe_unknown(unknown[0]))
        return vars(given)

    def read_recipe(self, recipe: dict[str, Any], source: str) -> dict[str, Any]:
        """Return what a recipe gives, as values of the types that the command line gives; null leaves a default.

        Args:
            source: name or file of the recipe, for errors.
        """
        given = {}
        for name, value in recipe.items():
            if (action := self.argument(name)) is None:
                raise ValueError(f"the recipe {source} has the {self._describe_unknown(f'--{name}')}")
            values = value if isinstance(value, list) else [json.dumps(value) if isinstance(value, dict) else value]
            if value is None:
                continue
            if action.nargs != "+" and len(values) != 1:
                raise ValueError(f"{name} takes one value, got {value!r}")
            try:
                given[name] = self._get_values(action, list(map(str, values)))
            except argparse.ArgumentError as error:
                raise ValueError(str(error)) from error
        return given

    def _describe_unknown(self, name: str) -> str:
        close = difflib.get_close_matches(name, self._option_string_actions, n=3)
        hint = f": did you mean {' or '.join(close)}?" if close else ""
        return f"unknown argument {name!r}{hint}"

    def make(self, given: dict[str, Any]) -> tuple[Any, ...]:
        """Return an instance of every dataclass of the parser."""
        try:
            return self.parse_dict(given)
        except json.JSONDecodeError as error:
            raise ValueError(f"an argument that takes JSON got {error.doc!r}: {error}") from error
        except ValueError as error:
            # The choices of an enumeration come without the argument's name.
            named = [name for name, value in given.items() if str(error).startswith(f"{value} is not a valid ")]
            raise ValueError(": ".join([*named[:1], str(error)])) from error


@dataclass(frozen=True)
class Given:
    """What a recipe and a command line say, the latter winning; typed, not yet checked against each other.

    Attributes:
        name: the recipe's name.
        task: class of the task.
        kinds: dataclasses of all arguments that the run takes: task, model, data, training, and the family's own if any.
        values: what is given, by argument.
    """

    name: str
    description: str
    plugins: tuple[Plugin, ...]
    task: type[Task]
    kinds: tuple[type, ...]
    parser: Parser
    values: dict[str, Any]


def read_arguments(arguments: list[str]) -> Given:
    """Read a recipe and a command line.

    Raises:
        ValueError: a recipe, plugin, task or argument is unknown, or a value has the wrong type.
    """
    source = DEFAULT_RECIPE
    if arguments and not arguments[0].startswith("-"):
        source, *arguments = arguments
    # These two decide which other arguments there are.
    first = Parser((), allow_abbrev=False, add_help=False)
    first.add_argument("--plugin", nargs="+", action="extend")
    first.add_argument("--task")
    chosen, words = first.parse_known_args(arguments)
    plugins = [load_plugin(file) for file in getattr(chosen, "plugin", ())]
    recipe = load_recipe(source)
    needed = require_plugins(recipe, f"the recipe {source}", lambda name: "read it, then pass it with --plugin")
    recipe.pop("plugin", None)
    name, description = recipe.pop("recipe", Path(source).stem), recipe.pop("description", "")
    if not isinstance(name, str) or name in ("", ".", "..") or name != Path(name).name:
        raise ValueError(f"recipe must be a name without folders, got {name!r}: --output_dir says where a run is written")
    # How a construction was built says nothing of how to train.
    recipe.pop("command", None)
    if hasattr(chosen, "task"):
        recipe["task"] = chosen.task
    task = find_task(recipe.get("task", DataArguments.task))
    family = task.family
    own = () if family.training_arguments is None else (family.training_arguments,)
    kinds = (task, model_arguments(family), DataArguments, RunArguments, *own)
    parser = Parser(kinds, allow_abbrev=False, add_help=False)
    values = {**parser.read_recipe(recipe, source), **parser.read_words(words)}
    return Given(name, description, tuple(dict.fromkeys([*plugins, *needed])), task, kinds, parser, values)


@dataclass(frozen=True)
class Run:
    """Everything that a run is made from, checked as far as possible without starting it.

    Attributes:
        folder: where it writes.
        positions: arguments of the family, such as `PositionArguments`; None if it has none.
        training_collator: makes the inputs for training.
        publishing: where the finished run goes on the Hub; None if nowhere.
        recipe: what recipe.yaml says of it: all that decides its weights and results.
    """

    name: str
    folder: Path
    task: Task
    config: PreTrainedConfig
    data: DataArguments
    positions: Any
    training_collator: Callable[..., dict[str, Any]]
    training: RunArguments
    publishing: Publishing | None
    recipe: dict[str, Any]
    plugins: tuple[Plugin, ...]


def parse_run(arguments: list[str]) -> Run:
    """Return the checked run of a recipe and a command line, the latter winning.

    Raises:
        ValueError: a recipe, argument or value is unknown or not legal.
    """
    given = read_arguments(arguments)
    _check_supported(given.values)
    _check_bounds(given)
    task, model, data, training, *rest = given.parser.make(given.values)
    _check_values(task, data, training)
    positions, family = rest[0] if rest else None, task.family
    try:
        config = family.model_class.config_class(**{**vars(model), **family.config_options(task, positions)})
    except StrictDataclassError as error:
        raise ValueError(one_line(error.__cause__ or error)) from error
    collator = family.training_collator(config, positions)
    folder = Path(given.values.get("output_dir", Path("outputs", given.name)))
    training.output_dir = str(folder / CHECKPOINTS_FOLDER)
    described = {"recipe": given.name, "description": given.description, **record_plugins(given.plugins), **task.describe()}
    own = {**vars(data), **(vars(positions) if positions else {}), **vars(model)}
    recipe = json.loads(json.dumps({**described, **own, **_kept_training(given.values)}))
    publishing = _take_publishing(training, folder.resolve().name)
    return Run(given.name, folder, task, config, data, positions, collator, training, publishing, recipe, given.plugins)


def _kept_training(values: dict[str, Any]) -> dict[str, Any]:
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


def default_of(option: Field) -> Any:
    """Return the default value of a dataclass field."""
    return option.default if option.default_factory is MISSING else option.default_factory()


def _take_publishing(training: RunArguments, name: str) -> Publishing | None:
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


def _check_supported(values: dict[str, Any]) -> None:
    """Raise ValueError for an argument of `TrainingArguments` that would do nothing here, or something else than it says."""
    own = {*RunArguments.__annotations__, *PUBLISHING_ARGUMENTS, *SUPPORTED}
    for name in (option.name for option in fields(TrainingArguments) if option.name in values):
        if name in DERIVED:
            raise ValueError(f"{name} cannot be set: it follows from {DERIVED[name]}")
        if name not in own:
            raise ValueError(
                f"{name} cannot be set: it is an argument of Trainer that this package does not use, leave it out"
            )


def _check_bounds(given: Given) -> None:
    """Raise ValueError if an argument breaks a declared bound, is infinite, NaN or very large, or an empty list or name."""
    declared = {option.name: option.metadata for kind in given.kinds for option in fields(kind)}
    for name, value in given.values.items():
        bounds = _LIMITS.get(name, declared[name])
        if value == [] and BOUNDS.keys() & bounds.keys():
            raise ValueError(f"{name} must be one length or more, got none")
        if name == "output_dir" and not value.strip():
            raise ValueError(f"{name} must be a folder, got {value!r}")
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, int | float):
                for bound, (words, holds) in BOUNDS.items():
                    if bound in bounds and not holds(number, bounds[bound]):
                        raise ValueError(f"{name} must be {words} {bounds[bound]}, got {value}")
                if not abs(number) < _LARGEST:
                    raise ValueError(f"{name} must be a number below {_LARGEST:.0e}, got {value}")


def _check_values(task: Task, data: DataArguments, training: RunArguments) -> None:
    if not 1 <= data.min_length <= data.max_length:
        raise ValueError(f"need 1 <= min_length <= max_length, got {data.min_length} and {data.max_length}")
    if training.eval_steps != int(training.eval_steps or 0):
        raise ValueError(f"eval_steps must be a whole number, got {training.eval_steps}")
    if training.fp16 and training.device.type == "cpu":
        raise ValueError("fp16 needs a GPU: on a CPU, use bf16 with use_cpu")
    if training.torch_compile:
        _check_compilation(training)
    if training.until_certified and data.num_train_samples is not None:
        raise ValueError("until_certified draws failing problems again: leave num_train_samples unset")
    if training.until_certified and training.dataloader_num_workers:
        workers = training.dataloader_num_workers
        raise ValueError(f"until_certified changes what is drawn: dataloader_num_workers must be 0, got {workers}")
    if getattr(task, "varied_field", False) and data.num_train_samples is not None:
        raise ValueError("varied_field draws a field for every batch: leave num_train_samples unset")


def _check_compilation(training: RunArguments) -> None:
    """Raise ValueError if torch does not know the backend or the mode of `torch_compile`; it would say so in training."""
    # Imported here, because importing them takes seconds.
    from torch._dynamo import list_backends
    from torch._inductor import list_mode_options

    legal = {"torch_compile_backend": list_backends(exclude_tags=()), "torch_compile_mode": list(list_mode_options())}
    for name, known in legal.items():
        if (value := getattr(training, name)) not in (None, *known):
            raise ValueError(f"{name} {value!r} is unknown: choose one of {', '.join(known)}")
