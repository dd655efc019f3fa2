"""The help of train.py: all recipes, or the arguments that one recipe takes, with meanings, legal values and defaults."""

import re
import textwrap
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, replace
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from transformers import TrainingArguments

from longhand.data import TASKS, Task
from longhand.hub_cards.runs.arguments import (
    PUBLISHING_ARGUMENTS,
    DataArguments,
    RunArguments,
    default_of,
    field_meanings,
    read_arguments,
)
from longhand.hub_cards.runs.recipes import group_recipes, list_recipes
from longhand.modeling.coupling import ANY_TASK
from longhand.modeling.encoder_maps import NO_MAP, PAIR_MAP_RULES
from longhand.modeling.position_encodings import POSITION_ENCODINGS

USAGE = """Train a model by a recipe, evaluate it and write its folder.

python train.py [RECIPE] [--ARGUMENT VALUE ...]     RECIPE is a name below, or a recipe.yaml or the folder of a run
python train.py RECIPE --help                       the arguments that a recipe takes, with its own values as defaults
python train.py --list                              all recipes

examples
  python train.py                                   the main job: the recipe "addition"
  python train.py addition-absolute --learning_rate 2e-3
  python train.py addition --push_to_hub            publish the finished run as USER/addition (--hub_model_id USER/NAME)
  python train.py addition --plugin my_task.py --task my_task
  accelerate launch --num_processes 2 train.py      several processes, the same global batches
"""

_PLUGIN = (
    "  --plugin FILE [...]",
    "      Python files of your own that register tasks, coupling rules or position encodings; copied into the run's folder",
)
OTHERS = (
    "All other arguments of transformers.TrainingArguments work too, such as --weight_decay, --bf16, "
    "--gradient_accumulation_steps and --report_to."
)
WIDTH = 118

_OF_RUNS = tuple(RunArguments.__annotations__)
"""The arguments of training that this project declares. Those of transformers are many more."""

_TYPES = {int: "INTEGER", float: "NUMBER", str: "TEXT", dict: "JSON", bool: "{True,False}"}

_POSITIONS = re.compile("position|relati|rotary|pair_map|windowed|share_|multiplier|coupling")
"""Names of the arguments of models that are about positions."""

_ENCODINGS = {
    "learned": ("share_level_tables", "position_init"),
    "rotary": ("rotary_base",),
    "pairwise": ("relation_range", "relation_init", "windowed"),
    "t5": ("relative_attention_num_buckets", "relative_attention_max_distance"),
}
"""Arguments that one position encoding of the decoder alone reads."""

_NEEDS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "max_position_ids": lambda values: values["position_encoding"] == "learned" or values["position_sampling"] != "fixed",
    "wrap_position_ids": lambda values: values["position_sampling"] in ("random_start", "batch_start"),
    "max_multiplier": lambda values: values["position_sampling"] == "multiplier",
    "log_length_init": lambda values: values["attention_scale"] == "log_length",
    "qk_norm_init": lambda values: values["qk_norm"],
    "max_multiplier_length": lambda values: "uniform" in (values["pair_maps"] or ()),
    "settle_weight": lambda values: values["num_loops"] > 1,
    "certified_margin": lambda values: values["until_certified"],
}
"""Whether an argument does anything, by the values of the others. An argument that is not named here always does."""


@dataclass(frozen=True)
class Argument:
    """An argument as the help shows it.

    Attributes:
        type: type of one value.
        many: whether it takes several values.
        legal: the legal values; empty if the type says all.
        default: its value if none is given.
        least: its smallest legal value; None if it has no bound.
    """

    name: str
    meaning: str
    type: Any
    many: bool
    legal: tuple[str, ...]
    default: Any
    least: float | None

    def describe(self) -> list[str]:
        """Return a line with name and legal values, then the meaning and the default."""
        values, more = f"{{{','.join(self.legal)}}}", "" if self.least is None else f"; at least {self.least}"
        if not self.legal:
            values = _TYPES.get(self.type, "VALUE")
        elif len(values) > WIDTH // 2:
            values, more = "NAME", f": {', '.join(self.legal)}"
        default = " ".join(map(str, self.default)) if isinstance(self.default, list) else self.default
        text = f"{self.meaning.rstrip('.')}{more} (default: {'unset' if default is None else default})"
        return [f"  --{self.name} {values}{' [...]' if self.many else ''}", *_wrap(f"      {text}", 6)]


def arguments_of(kind: type, names: Collection[str] | None = None) -> list[Argument]:
    """Return arguments that a dataclass declares, in the order of `names` if given."""
    options, types, meanings = {option.name: option for option in fields(kind)}, get_type_hints(kind), field_meanings(kind)
    arguments = []
    for name in options if names is None else names:
        option, parts = options[name], get_args(types[name])
        one = types[name]
        if get_origin(one) in (Union, UnionType):
            one = dict if dict in parts else next(part for part in parts if part is not NoneType)
        many = get_origin(one) is list
        if many:
            (one,) = get_args(one)
        legal = tuple(map(str, get_args(one))) if get_origin(one) is Literal else ()
        meaning = option.metadata.get("help") or meanings.get(name, "")
        arguments.append(Argument(name, meaning, one, many, legal, default_of(option), option.metadata.get("least")))
    return arguments


def describe_recipes() -> str:
    """Return the recipes in groups, and the arguments that all of them take."""
    lines, descriptions = [USAGE, "recipes"], list_recipes()
    for title, names in group_recipes().items():
        lines += ["", f"  {title}"]
        for name in names:
            lines += _wrap(f"    {name:35} {descriptions[name]}", 40)
    lines += ["", "Arguments of every recipe. Most recipes have other values than these defaults.", "", *_PLUGIN]
    lines += _describe_group("data and lengths", arguments_of(DataArguments))
    lines += _describe_group("training", arguments_of(RunArguments, _OF_RUNS))
    return "\n".join([*lines, *_describe_publishing(), "", *_wrap(OTHERS, 0)])


def describe_recipe(words: list[str]) -> str:
    """Return the arguments that a recipe takes with a command line, which may change its task, encoding and values.

    Raises:
        ValueError: the recipe or an argument is unknown, or a value is not legal.
    """
    given = read_arguments(words)
    task, model, data, _, *own = map(arguments_of, given.kinds)
    training = arguments_of(RunArguments, _OF_RUNS) + _given_to_trainer(given.values)
    of_family = [argument for arguments in own for argument in arguments]
    everything = [*task, *model, *data, *training, *of_family]
    values = {argument.name: given.values.get(argument.name, argument.default) for argument in everything}
    legal, unused = _legal_values(given.task, values), _unused(values)
    of_positions = [argument for argument in model if _POSITIONS.search(argument.name)]
    groups = {
        f"format of the task {given.task.name}": task,
        "data and lengths": data,
        "model": [argument for argument in model if argument not in of_positions],
        "position encoding and position ids": of_positions + of_family,
        "training": training,
    }
    lines = [*_wrap(f"{given.name}: {given.description or 'a recipe without description'}", 0), "", *_PLUGIN]
    for title, group in groups.items():
        shown = [argument for argument in group if argument.name not in unused]
        lines += _describe_group(
            title,
            [
                replace(argument, default=values[argument.name], legal=legal.get(argument.name, argument.legal))
                for argument in shown
            ],
        )
    lines += [*_describe_publishing(), "", *_wrap(OTHERS, 0)]
    if unused:
        lines += _wrap(f"Without effect for these values: {', '.join(f'--{name}' for name in sorted(unused))}.", 0)
    return "\n".join(lines)


def _legal_values(kind: type[Task], values: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the legal values, by argument, that depend on the task, on the encoding or on what is registered."""
    legal: dict[str, tuple[str, ...]] = {"task": tuple(TASKS)}
    if "position_encoding" in values:
        task: Any = kind(**{option.name: values[option.name] for option in fields(kind)})
        encoding = POSITION_ENCODINGS.get(values["position_encoding"])
        legal["position_encoding"] = tuple(POSITION_ENCODINGS)
        legal["position_sampling"] = encoding.position_samplings if encoding else ()
        legal["coupling"] = tuple(dict.fromkeys((*task.couplings, *ANY_TASK)))
    if "pair_maps" in values:
        legal["pair_maps"] = (*PAIR_MAP_RULES, NO_MAP)
    return legal


def _unused(values: dict[str, Any]) -> set[str]:
    unused = {name for name, needed in _NEEDS.items() if name in values and not needed(values)}
    if (encoding := values.get("position_encoding")) is not None:
        unused |= {name for other, names in _ENCODINGS.items() if other != encoding for name in names}
    return unused


def _given_to_trainer(values: dict[str, Any]) -> list[Argument]:
    """Return the arguments of transformers that a recipe gives. Of their meanings, the first sentence says what they are."""
    own = {*_OF_RUNS, *PUBLISHING_ARGUMENTS}
    names = [option.name for option in fields(TrainingArguments) if option.name in values and option.name not in own]
    return [
        replace(argument, meaning=" ".join(argument.meaning.split()).partition(". ")[0])
        for argument in arguments_of(TrainingArguments, names)
    ]


def _describe_group(title: str, arguments: list[Argument]) -> list[str]:
    lines = [line for argument in arguments for line in argument.describe()]
    return ["", title, *lines] if lines else []


def _describe_publishing() -> list[str]:
    arguments = arguments_of(TrainingArguments, PUBLISHING_ARGUMENTS)
    meanings = PUBLISHING_ARGUMENTS.values()
    return _describe_group(
        "publishing", [replace(argument, meaning=text) for argument, text in zip(arguments, meanings, strict=True)]
    )


def _wrap(line: str, indent: int) -> list[str]:
    return textwrap.wrap(line, WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False, break_long_words=False)
