"""Recipes: the arguments of a training run, one YAML file for each published model."""

# Used by: eval.py, hub_cards/checkpoints, hub_cards/page, hub_cards/publishing, hub_cards/research, hub_cards/research/gpu,
# hub_cards/research/structured, hub_cards/research/theories, hub_cards/training, train.py. Changed freely.

import copy
import difflib
import re
import textwrap
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from longhand.data.families import DECODER
from longhand.data.tasks.registry import find_task, register_table, task_named
from longhand.hub_cards.commands import one_line, read_object, read_text, write_atomically

Recipe = dict[str, Any]
"""Arguments by name, with values as YAML has them: numbers, texts, truth values, lists, mappings. `parse_run` checks these
values against the types of the arguments."""

MODELS_FOLDER = Path(__file__).parent / "models"
RECIPE_FILE = "recipe.yaml"


def list_recipes() -> dict[str, str]:
    """Return name and description of every recipe of the package."""
    files = sorted(MODELS_FOLDER.glob(f"*/{RECIPE_FILE}"))
    return {file.parent.name: read_recipe(file).get("description", "") for file in files}


class RecipeGroup(StrEnum):
    """The groups of the package's recipes, as lists show them."""

    COMPARED = "decoders compared with each other"
    ENCODER = "encoders"
    CERTIFIED = "trained until a certificate proves every answer right"
    PAPER = "the papers' own sizes, for a GPU"


SHOWN_GROUPS = (RecipeGroup.CERTIFIED, RecipeGroup.COMPARED, RecipeGroup.ENCODER, RecipeGroup.PAPER)
"""In the order in which they are listed."""


def group_of(name: str) -> RecipeGroup:
    """The group of a recipe of the package."""
    if name.startswith("paper-"):
        return RecipeGroup.PAPER
    recipe = load_recipe(name)
    if recipe.get("until_certified"):
        return RecipeGroup.CERTIFIED
    return RecipeGroup.COMPARED if find_task(recipe["task"]).family is DECODER else RecipeGroup.ENCODER


def describe_recipes() -> str:
    """Return all recipes with their descriptions, in groups."""
    lines: dict[RecipeGroup, list[str]] = {group: ["", group] for group in SHOWN_GROUPS}
    for name, description in list_recipes().items():
        described = f"  {name:35} {description}"
        lines[group_of(name)] += textwrap.wrap(described, 118, subsequent_indent=" " * 38, break_on_hyphens=False)
    return "\n".join(chain.from_iterable(lines.values())).lstrip("\n")


def load_recipe(name: str) -> Recipe:
    """Return the recipe of that name, or in that file or folder. A recipe with a `base` is that recipe with its changes.

    Raises:
        ValueError: there is no such recipe.
    """
    path = Path(name)
    is_file = path.suffix in (".yaml", ".yml")
    published = [MODELS_FOLDER / name / RECIPE_FILE] if path.name == name else []
    found = [file for file in (*published, path if is_file else path / RECIPE_FILE) if file.is_file()]
    if not found and (is_file or path.is_dir() or path.name != name):
        raise ValueError(f"there is no recipe file {path if is_file else path / RECIPE_FILE}")
    if not found:
        names = list(list_recipes())
        close = difflib.get_close_matches(name, names, n=3)
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        raise ValueError(f"recipe {name!r} is unknown: {hint}choose one of {', '.join(names)}, or give a recipe.yaml file")
    recipe = read_recipe(found[0])
    return {**load_recipe(base), **recipe} if (base := recipe.pop("base", None)) else recipe


def read_recipe(file: Path) -> Recipe:
    """Read a recipe file.

    Raises:
        ValueError: the file is not a mapping of names to values; or it has anchors, and a few hundred bytes of anchors can
            stand for gigabytes.
    """
    # Whoever reads a recipe may change it.
    return copy.deepcopy(_read_mapping(file, _parse_recipe))


def is_repository(source: str) -> bool:
    """Whether a recipe is named by a repository USER/NAME on the Hub: no file or folder has that name here."""
    is_name = re.fullmatch(r"[\w.-]+/[\w.-]+", source) is not None
    return is_name and not source.endswith((".yaml", ".yml")) and not Path(source).exists()


def read_settings(file: Path) -> Recipe:
    """Read a file of this package that maps names to values, such as a study; it may have anchors.

    Raises:
        ValueError: the file is not such a mapping.
    """
    return _read_mapping(file, lambda text: yaml.load(text, _FAST_LOADER))


_FAST_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The loader in C, ten times faster, where PyYAML was built with it."""


class RecipeLoader(yaml.SafeLoader):
    """Reads YAML without anchors and aliases."""

    def fetch_anchor(self):
        """Refuse `&NAME`."""
        raise yaml.YAMLError("it has anchors (&NAME), which no recipe needs")

    def fetch_alias(self):
        """Refuse `*NAME`."""
        raise yaml.YAMLError("it has aliases (*NAME), which no recipe needs")


@lru_cache(maxsize=256)
def _parse_recipe(text: str) -> object:
    """What a recipe's text stands for. Recipes are read many times, and reading one takes milliseconds."""
    return yaml.load(text, RecipeLoader)


def _read_mapping(file: Path, parse: Callable[[str], object]) -> Recipe:
    try:
        settings = parse(read_text(file))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ValueError(f"{file} is not a recipe in YAML: {one_line(error)}") from error
    if not isinstance(settings, dict):
        raise ValueError(f"{file} is not a recipe: it must map argument names to values")
    return settings


def differences(before: Recipe, now: Recipe) -> list[str]:
    """Return the arguments in which two recipes differ. One that a recipe lacks is None, as in an earlier version."""
    return [name for name in {**before, **now} if before.get(name) != now.get(name)]


def write_recipe(recipe: Recipe, file: Path) -> None:
    """Write a recipe atomically."""
    write_atomically(file, yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True))


def learned_facts(recipe: Recipe) -> dict[str, str] | None:
    """The recipe's facts about a machine that was found, see `ColumnTask.learned`; None if it has none."""
    facts = recipe.get("learned")
    is_legal = isinstance(facts, dict) and all(isinstance(text, str) for pair in facts.items() for text in pair)
    return facts if is_legal else None


def know_table(source: str, recipe: Mapping[str, object], facts: Mapping[str, str]) -> None:
    """Make the task of an earlier run known, whose machine was found: its table is in the configuration beside the recipe.

    Raises:
        ValueError: the table is not legal.
    """
    path = Path(source)
    file = (path.parent if path.suffix in (".yaml", ".yml") else path) / "config.json"
    if not file.is_file():
        if task_named(recipe.get("task")) is None:
            raise ValueError(
                f"{source} is the recipe of a machine that was found, whose table is in the config.json beside it, and that "
                "is missing: give the folder of the run, or the repository USER/NAME, in place of its recipe alone"
            )
        return
    table = read_object(file).get("transducer")
    if isinstance(table, dict):
        register_table(str(recipe.get("task")), table, facts)
