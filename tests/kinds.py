"""One recipe and one shipped model for each kind: what decides which code runs, beside the sizes."""

import json
from collections.abc import Iterable
from pathlib import Path

from longhand.data import TASKS
from longhand.data.tasks.column_task import ColumnTask
from longhand.hub_cards.checkpoints.load import list_zoo, zoo
from longhand.hub_cards.recipes import list_recipes, load_recipe

DECIDE = ("position_encoding", "coupling", "pair_maps", "label_states", "sampling", "norm_placement")
"""Settings of a recipe by which the code of a training step differs."""


def _first_of_each(kinds: Iterable[tuple[object, str]]) -> list[str]:
    """The first name of each kind, of pairs of a kind and a name."""
    found: dict[str, str] = {}
    for kind, name in kinds:
        found.setdefault(json.dumps(kind), name)
    return [*found.values()]


def _kind_of_recipe(name: str) -> list[object]:
    """A recipe's task and what decides which code trains it; tasks of columns are one kind."""
    recipe = load_recipe(name)
    # A task that is not there comes from a plugin.
    known = TASKS.get(recipe["task"])
    task = "columns" if known is not None and issubclass(known, ColumnTask) else recipe["task"]
    return [task, (recipe.get("num_loops") or 1) > 1, *(recipe.get(setting) for setting in DECIDE)]


def recipes_of_kinds() -> list[str]:
    """A recipe of each kind."""
    return _first_of_each((_kind_of_recipe(name), name) for name in list_recipes())


def few_problems(recipe: str) -> list[str]:
    """Arguments by which a run of a recipe draws few problems: a fixed training set may have a million."""
    own = ["--validation_samples", "6"]
    return own if load_recipe(recipe).get("num_train_samples") is None else [*own, "--num_train_samples", "5000"]


def shipped_of_kinds(model_type: str) -> list[str]:
    """A shipped model of each kind, of one family: a coupling rule and a position encoding."""
    configs = ((name, json.loads(Path(zoo(name), "config.json").read_text(encoding="utf-8"))) for name in list_zoo())
    kinds = (
        ([config.get(setting) for setting in DECIDE[:3]], name)
        for name, config in configs
        if config["model_type"] == model_type
    )
    return _first_of_each(kinds)
