"""Recipes: the arguments of a training run, one YAML file for each published model."""

import os
from pathlib import Path
from typing import Any

import yaml

MODELS_FOLDER = Path(__file__).parents[1] / "models"
RECIPE_FILE = "recipe.yaml"


def list_recipes() -> dict[str, str]:
    """Name and description of every recipe of the package."""
    files = sorted(MODELS_FOLDER.glob(f"*/{RECIPE_FILE}"))
    return {file.parent.name: read_recipe(file).get("description", "") for file in files}


def load_recipe(name: str) -> dict[str, Any]:
    """The recipe of that name, or in that file or folder; with `base`, that recipe with these changes.

    Raises:
        ValueError: there is none.
    """
    path = Path(name)
    if path.name == name and (MODELS_FOLDER / name / RECIPE_FILE).is_file():
        recipe = read_recipe(MODELS_FOLDER / name / RECIPE_FILE)
    elif path.suffix in (".yaml", ".yml") and path.is_file():
        recipe = read_recipe(path)
    elif (path / RECIPE_FILE).is_file():
        recipe = read_recipe(path / RECIPE_FILE)
    else:
        raise ValueError(
            f"recipe {name!r} is unknown: choose one of {', '.join(list_recipes())}, or give a recipe.yaml file"
        )
    return {**load_recipe(base), **recipe} if (base := recipe.pop("base", None)) else recipe


def read_recipe(file: Path) -> dict[str, Any]:
    """Reads a recipe file.

    Raises:
        ValueError: the file is not a mapping of names to values.
    """
    try:
        recipe = yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"{file} is not YAML: {error}") from error
    if not isinstance(recipe, dict):
        raise ValueError(f"{file} is not a recipe: it must map argument names to values")
    return recipe


def write_recipe(recipe: dict[str, Any], file: Path) -> None:
    """Writes a recipe so that a crash leaves the old file or the new one, never half of it."""
    replace_file(file, yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True))


def replace_file(file: Path, text: str) -> None:
    """Writes text under another name first and moves it into place."""
    partial = file.with_name(f".{file.name}.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, file)
