"""The help of train.py and eval.py: all recipes, the arguments that one recipe takes, with meanings, legal values and
defaults, and all checkpoints of the zoo."""

import argparse
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any

from transformers import TrainingArguments
from transformers.hf_argparser import string_to_bool

from longhand.data import TASKS, Task
from longhand.hub_cards.recipes import group_recipes, list_recipes
from longhand.hub_cards.training.argument_parser import BOUNDS, UNSET, Parser
from longhand.hub_cards.training.arguments import DataArguments, read_arguments
from longhand.hub_cards.training.training_arguments import PUBLISHING_ARGUMENTS, RunArguments
from longhand.modeling.coupling import any_text_rules
from longhand.modeling.encoder_maps import NO_MAP, PAIR_MAP_RULES
from longhand.modeling.position_encodings import POSITION_ENCODINGS, PositionEncoding

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

_PLUGIN = "Python files of your own that register tasks, coupling rules or position encodings; copied into the run's folder"
OTHERS = (
    "Many other arguments of transformers.TrainingArguments work too, such as --weight_decay, --bf16, "
    "--gradient_accumulation_steps and --report_to. One that would do nothing here is refused. "
    f"The value {UNSET} takes back what the recipe gives, so that the argument's own default holds."
)
WIDTH = 118

_TYPES = {int: "INTEGER", float: "NUMBER", string_to_bool: "{True,False}"}

_POSITIONS = re.compile("position|relati|rotary|pair_map|windowed|share_|multiplier|coupling")
"""Names of the arguments of models that are about positions."""

_NEEDS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "wrap_position_ids": lambda values: values["position_sampling"] in ("random_start", "batch_start"),
    "max_multiplier": lambda values: values["position_sampling"] == "multiplier",
    "log_length_init": lambda values: values["attention_scale"] == "log_length",
    "qk_norm_init": lambda values: values["qk_norm"],
    "max_multiplier_length": lambda values: "uniform" in (values["pair_maps"] or ()),
    "settle_weight": lambda values: values["num_loops"] > 1,
    "certified_ratio": lambda values: values["until_certified"],
}
"""Whether an argument does anything, by the values of the others. `PositionEncoding.options` says it for some others."""


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Shows arguments with their legal values, and below each its meaning."""

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=6, width=WIDTH)

    def _format_action_invocation(self, action):
        return f"{action.option_strings[0]} {action.metavar}{' [...]' if action.nargs == '+' else ''}"

    def _split_lines(self, text, width):
        return _wrap(text, width)


def describe_recipes() -> str:
    """Return the recipes in groups, and the arguments that all of them take."""
    lines, descriptions = [USAGE, "recipes"], list_recipes()
    for title, recipes in group_recipes().items():
        lines += ["", f"  {title}"]
        for name in recipes:
            lines += _wrap(f"    {name:35} {descriptions[name]}", indent=40)
    lines += ["", "Arguments of every recipe. Most recipes have other values than these defaults."]
    data = [option.name for option in fields(DataArguments)]
    groups = {"data and lengths": data, "training": RunArguments.__annotations__}
    kinds: Any = (DataArguments, RunArguments)
    return _describe("\n".join(lines), Parser(kinds, add_help=False), groups)


def describe_recipe(words: list[str]) -> str:
    """Return the arguments that a recipe takes with a command line, which may change its task, encoding and values.

    Raises:
        ValueError: the recipe or an argument is unknown, or a value is not legal.
    """
    given = read_arguments(words)
    task, model, data, _, *own = [[option.name for option in fields(kind)] for kind in given.kinds]
    of_family = [name for names in own for name in names]
    everything = [*task, *model, *data, *RunArguments.__annotations__, *of_family]
    to_trainer = [name for name in given.values if name not in (*everything, *PUBLISHING_ARGUMENTS)]
    values = {name: given.values.get(name, given.parser.argument(name).initial) for name in [*everything, *to_trainer]}
    unused = _unused(values)
    groups = {
        f"format of the task {given.task.name}": task,
        "data and lengths": data,
        "model": [name for name in model if not _POSITIONS.search(name)],
        "position encoding and position ids": [*filter(_POSITIONS.search, model), *of_family],
        "training": [*RunArguments.__annotations__, *to_trainer],
    }
    used = {title: [name for name in names if name not in unused] for title, names in groups.items()}
    title = "\n".join(_wrap(f"{given.name}: {given.description or 'a recipe without description'}"))
    note = f"Without effect for these values: {', '.join(f'--{name}' for name in sorted(unused))}."
    return _describe(title, given.parser, used, values, _legal_values(given.task, values), note if unused else "")


def _describe(
    title: str,
    parser: Parser,
    groups: Mapping[str, Iterable[str]],
    values: dict[str, Any] | None = None,
    legal: dict[str, tuple[str, ...]] | None = None,
    note: str = "",
) -> str:
    """Return the help of some of a parser's arguments in groups, with the given values as defaults."""
    page = argparse.ArgumentParser(usage=argparse.SUPPRESS, description=title, formatter_class=_Formatter, add_help=False)
    page.epilog = "\n".join(_wrap(OTHERS) + _wrap(note))
    page.add_argument_group("code of your own").add_argument("--plugin", nargs="+", metavar="FILE", help=_PLUGIN)
    of_transformers = {option.name for option in fields(TrainingArguments)} - RunArguments.__annotations__.keys()
    for heading, names in {**groups, "publishing": PUBLISHING_ARGUMENTS}.items():
        group = page.add_argument_group(heading)
        for name in names:
            action = parser.argument(name)
            meaning = PUBLISHING_ARGUMENTS.get(name) or action.help
            if name in of_transformers:
                # The first sentence says what an argument is.
                meaning = " ".join(meaning.split()).partition(". ")[0]
            choices = (legal or {}).get(name) or [str(choice) for choice in action.choices or ()]
            action.metavar, more = f"{{{','.join(choices)}}}", ""
            if not choices:
                action.metavar = _TYPES.get(action.type, "TEXT")
            elif len(action.metavar) > WIDTH // 2:
                action.metavar, more = "NAME", f": {', '.join(choices)}"
            more += "".join(f"; {BOUNDS[bound][0]} {limit}" for bound, limit in action.bounds.items())
            value = (values or {}).get(name, action.initial)
            default = UNSET if value is None else " ".join(map(str, value)) if isinstance(value, list) else value
            action.help = f"{meaning.rstrip('.')}{more} (default: {default})".replace("%", "%%")
            group._add_action(action)
    return page.format_help().rstrip("\n")


def _legal_values(kind: type[Task], values: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the legal values, by argument, that depend on the task, on the encoding or on what is registered."""
    legal: dict[str, tuple[str, ...]] = {"task": tuple(TASKS)}
    if "position_encoding" in values:
        task: Any = kind(**{option.name: values[option.name] for option in fields(kind)})
        encoding = POSITION_ENCODINGS.get(values["position_encoding"])
        legal["position_encoding"] = tuple(POSITION_ENCODINGS)
        legal["position_sampling"] = encoding.position_samplings if encoding else ()
        legal["coupling"] = tuple(dict.fromkeys((*task.couplings, *any_text_rules())))
    if "pair_maps" in values:
        legal["pair_maps"] = (*PAIR_MAP_RULES, NO_MAP)
    return legal


def _unused(values: dict[str, Any]) -> set[str]:
    """Return the names of arguments that change nothing for these values."""
    unused = {name for name, needed in _NEEDS.items() if name in values and not needed(values)}
    if "position_encoding" in values:
        own = POSITION_ENCODINGS.get(values["position_encoding"], PositionEncoding).options
        unused |= {name for encoding in POSITION_ENCODINGS.values() for name in encoding.options} - {*own}
        if values["position_sampling"] != "fixed":
            unused.discard("max_position_ids")
    return unused


def _wrap(text: str, width: int = WIDTH, indent: int = 0) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=" " * indent, break_on_hyphens=False, break_long_words=False)
