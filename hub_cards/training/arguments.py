"""The arguments of a training run: a recipe and a command line become one checked `Run`."""

import inspect
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, make_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig

from longhand.data import TASKS, ColumnTask, Task
from longhand.data.families import Family
from longhand.data.plugins import PACKAGE, Plugin, load_plugin
from longhand.data.tasks.registry import find_task
from longhand.hub_cards.console import one_line
from longhand.hub_cards.plugins import record_plugins, require_plugins
from longhand.hub_cards.recipes import load_recipe
from longhand.hub_cards.training.argument_parser import BOUNDS, Parser, argument, default_of
from longhand.hub_cards.training.training_arguments import (
    LIMITS,
    Publishing,
    RunArguments,
    check_compilation,
    check_supported,
    kept_training,
    take_publishing,
)

DEFAULT_RECIPE = "addition"
_LARGEST = 1e12
CHECKPOINTS_FOLDER = "checkpoints"

_NOT_ARGUMENTS = {
    *("vocab_size", "use_cache", "bos_token_id", "eos_token_id", "pad_token_id"),
    *("coupling", "randomized_positions", "transducer"),
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


@dataclass
class DataArguments:
    """What is trained on, validated and tested. Lengths are digits of the operands."""

    task: str = argument("addition", "name of the task")
    min_length: int = argument(1, "digits of the shortest trained operand")
    max_length: int = argument(30, "digits of the longest trained operand")
    num_train_samples: int | None = argument(None, "problems of a fixed training set; unset, every batch is new", least=1)
    batching: Literal["one_length", "mixed"] = argument(
        "one_length",
        "lengths in a batch: one, or drawn for each problem and padded, as in paper 1's code",
    )
    validation_lengths: list[int] = argument([30, 60, 100], "digits of operands, validated during training", least=1)  # noqa: RUF009
    validation_samples: int = argument(100, "problems of each validated length", least=1)
    test_lengths: list[int] = argument([30, 60, 100, 200], "digits of operands, tested at the end", least=1)  # noqa: RUF009
    test_samples: int = argument(200, "problems of each tested length", least=1)


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
    elif replaced := _own_column_task(recipe, plugins):
        recipe["task"] = name = replaced
    task = find_task(recipe.get("task", DataArguments.task))
    family = task.family
    own = () if family.training_arguments is None else (family.training_arguments,)
    kinds = (task, model_arguments(family), DataArguments, RunArguments, *own)
    parser = Parser(kinds, allow_abbrev=False, add_help=False)
    values = {**parser.read_recipe(recipe, source), **parser.read_words(words)}
    values = {name: value for name, value in values.items() if value is not None}
    return Given(name, description, tuple(dict.fromkeys([*plugins, *needed])), task, kinds, parser, values)


def _own_column_task(recipe: dict[str, Any], plugins: list[Plugin]) -> str | None:
    """Return the one column task that plugins define, which takes the place of a recipe's column task; None if none does."""
    if not issubclass(TASKS.get(recipe.get("task", ""), Task), ColumnTask):
        return None
    modules = [f"{PACKAGE}.{Path(plugin.name).stem}" for plugin in plugins]
    own = [name for name, task in TASKS.items() if task.__module__ in modules and issubclass(task, ColumnTask)]
    return own[0] if len(own) == 1 else None


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
    check_supported(given.values)
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
    recipe = json.loads(json.dumps({**described, **own, **kept_training(given.values)}))
    publishing = take_publishing(training, folder.resolve().name)
    return Run(given.name, folder, task, config, data, positions, collator, training, publishing, recipe, given.plugins)


def _check_bounds(given: Given) -> None:
    """Raise ValueError if an argument breaks a declared bound, is infinite, NaN or very large, or an empty list or name."""
    declared = {option.name: option.metadata for kind in given.kinds for option in fields(kind)}
    for name, value in given.values.items():
        bounds = LIMITS.get(name, declared[name])
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
        check_compilation(training)
    if training.decay_steps and training.decay_steps < training.max_steps:
        warmup = training.get_warmup_steps(training.decay_steps)
        if training.decay_steps <= warmup:
            raise ValueError(f"decay_steps must be above the {warmup} steps of warm-up, got {training.decay_steps}")
    if training.until_certified and data.num_train_samples is not None:
        raise ValueError("until_certified draws failing problems again: leave num_train_samples unset")
    if training.until_certified and training.dataloader_num_workers:
        workers = training.dataloader_num_workers
        raise ValueError(f"until_certified changes what is drawn: dataloader_num_workers must be 0, got {workers}")
    if getattr(task, "varied_field", False) and data.num_train_samples is not None:
        raise ValueError("varied_field draws a field for every batch: leave num_train_samples unset")
