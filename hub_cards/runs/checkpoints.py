"""What a checkpoint's folder holds, checked before any of it is shown or published."""

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel

from longhand.data import TASKS, Task
from longhand.data.certificates import hash_weights
from longhand.hub_cards.reports.results import RESULTS_FILE, Row, read_results
from longhand.hub_cards.runs.recipes import RECIPE_FILE, read_recipe

CERTIFICATE_FILE = "certificate.json"
PLOT_FILE = "accuracy.png"
BEST_FOLDER = "best"
PICKLE_SUFFIXES = (".bin", ".ckpt", ".joblib", ".npy", ".npz", ".pickle", ".pkl", ".pt", ".pth")


@dataclass(frozen=True)
class CheckpointFolder:
    """A folder's model as far as its card needs it, and what was measured and proved of it.

    Attributes:
        name: how its results refer to it.
        parameters: number of weights.
        recipe: the arguments that made it.
        rows: results of the last checkpoint; empty where it was not evaluated.
        best_rows: results of the checkpoint in `best`.
        certificate: the fields of `Certificate`; None where there is none.
        weights: `hash_weights` of its model, and of that in `best` if there is one, by how results refer to them.
        has_plot: whether there is a plot of its results.
    """

    folder: Path
    name: str
    config: PreTrainedConfig
    task: Task
    parameters: int
    recipe: dict[str, Any]
    rows: list[Row]
    best_rows: list[Row]
    certificate: dict[str, Any] | None
    weights: dict[str, str]
    has_plot: bool

    @property
    def trained_lengths(self) -> tuple[int, int] | None:
        """Shortest and longest trained operand in digits; None for a model that was built, not trained."""
        if not {"min_length", "max_length"} <= set(self.recipe):
            return None
        return self.recipe["min_length"], self.recipe["max_length"]


def is_best(folder: Path) -> bool:
    """Whether a folder holds the best checkpoint of the run in whose folder it is; a run itself may have that name too."""
    return folder.is_dir() and folder.name == BEST_FOLDER and (folder.parent / RECIPE_FILE).is_file()


def read_checkpoint(folder: Path, name: str | None = None) -> CheckpointFolder:
    """Reads a checkpoint's folder.

    Args:
        name: how its results refer to it, if that is known; by default the folder's own name.

    Raises:
        ValueError: the folder, or `best` in it, is no checkpoint of this package or damaged, or holds pickles, results of
            another checkpoint or a certificate of other weights.
    """
    if not (folder / "config.json").is_file():
        raise ValueError(f"{folder} is not a checkpoint: it holds no config.json")
    check_pickles(folder)
    if not any(folder.glob("*.safetensors")):
        raise ValueError(f"{folder} is not a checkpoint: it holds no .safetensors file")
    if not (folder / RECIPE_FILE).is_file():
        raise ValueError(f"{folder} holds no {RECIPE_FILE}, which says what task the model is for: train.py writes one")
    recipe = read_recipe(folder / RECIPE_FILE)
    task = _read_task(recipe, folder / RECIPE_FILE)
    model = _load_model(folder, task)
    name = name or folder.resolve().name
    weights = {name: hash_weights(model)}
    if (folder / BEST_FOLDER).is_dir():
        weights[f"{name}/{BEST_FOLDER}"] = hash_weights(_load_model(folder / BEST_FOLDER, task))
        _check_best(folder / BEST_FOLDER, task, weights)
    rows = _read_rows(folder, task, weights)
    return CheckpointFolder(
        folder=folder,
        name=name,
        config=model.config,
        task=task,
        parameters=model.num_parameters(),
        recipe=recipe,
        rows=[row for row in rows if not row["model"].endswith(f"/{BEST_FOLDER}")],
        best_rows=[row for row in rows if row["model"].endswith(f"/{BEST_FOLDER}")],
        certificate=_read_certificate(folder, weights[name], task),
        weights=weights,
        has_plot=(folder / PLOT_FILE).is_file(),
    )


def _check_best(folder: Path, task: Task, weights: dict[str, str]) -> None:
    """Raises ValueError where something beside the weights of `best` is of another checkpoint."""
    if (folder / RECIPE_FILE).is_file():
        own = _read_task(read_recipe(folder / RECIPE_FILE), folder / RECIPE_FILE)
        if own != task:
            raise ValueError(f"{folder} is of another task ({own.describe()}), the recipe's is {task.describe()}")
    _read_rows(folder, task, weights)
    name, *_ = weights
    _read_certificate(folder, weights[f"{name}/{BEST_FOLDER}"], task)


def _read_task(recipe: dict[str, Any], file: Path) -> Task:
    """The task that a recipe names, after a look at what else a card reads from it."""
    name = recipe.get("task")
    if not isinstance(name, str) or name not in TASKS:
        raise ValueError(f"{file}: task must be one of {', '.join(TASKS)}, got {name!r}")
    if not isinstance(description := recipe.get("description", ""), str):
        raise ValueError(f"{file}: description must be text, got {description!r}")
    for argument in ("min_length", "max_length"):
        if isinstance(digits := recipe.get(argument, 1), bool) or not isinstance(digits, int):
            raise ValueError(f"{file}: {argument} must be a whole number of digits, got {digits!r}")
    kind = TASKS[name]
    try:
        return kind(**{field.name: recipe[field.name] for field in fields(kind) if field.name in recipe})
    except (TypeError, ValueError) as error:
        raise ValueError(f"{file}: {error}") from error


def check_pickles(folder: Path) -> None:
    """Raises ValueError where a file that would be published can run code when it is loaded."""
    pickles = [
        file
        for place in (folder, folder / BEST_FOLDER)
        for file in sorted(place.glob("*"))
        if file.suffix in PICKLE_SUFFIXES
    ]
    if pickles:
        listed = ", ".join(str(file.relative_to(folder)) for file in pickles)
        raise ValueError(f"{folder} holds pickles ({listed}): only safetensors are published, remove them first")


def check_loadable(folder: Path, config: PreTrainedConfig) -> None:
    """Raises ValueError where others could not load the checkpoint: tokenizer and code must be beside the weights."""
    classes = (config.auto_map or {}).values()
    modules = sorted({f"{name.rpartition('--')[2].partition('.')[0]}.py" for name in classes if isinstance(name, str)})
    if missing := [name for name in ("tokenizer.json", *modules) if not (folder / name).is_file()]:
        raise ValueError(f"{folder} is incomplete: it lacks {', '.join(missing)}; save model and tokenizer into it again")


def _load_model(folder: Path, task: Task) -> PreTrainedModel:
    try:
        config, own = AutoConfig.from_pretrained(folder), task.family.model_class.config_class
        if not isinstance(config, own):
            raise ValueError(
                f"it is a {config.model_type!r} model, but the task {task.name!r} is for {own.model_type!r} ones"
            )
        task.family.check_config(task, config)
        model, loading = task.family.model_class.from_pretrained(folder, use_safetensors=True, output_loading_info=True)
    except (OSError, ValueError, RuntimeError, SafetensorError, StrictDataclassError) as error:
        raise ValueError(f"{folder} cannot be loaded: {' '.join(str(error).split())}") from error
    check_loadable(folder, config)
    if missing := sorted(map(str, (*loading["missing_keys"], *loading["mismatched_keys"]))):
        raise ValueError(f"{folder} is damaged: it lacks weights ({', '.join(missing)})")
    return model


def _read_rows(folder: Path, task: Task, weights: dict[str, str]) -> list[Row]:
    file, (name, *_) = folder / RESULTS_FILE, weights
    if not file.is_file():
        return []
    rows = read_results(file)
    strangers = sorted({row["model"] for row in rows} - {name, f"{name}/{BEST_FOLDER}"})
    if strangers:
        raise ValueError(
            f"{file} is of another checkpoint ({', '.join(strangers)}, not {name}): evaluate this one with eval.py, or give "
            "the folder the name that it was evaluated under"
        )
    if other := sorted({row["task"] for row in rows} - {task.name}):
        raise ValueError(f"{file} is of another task ({', '.join(other)}), the recipe's is {task.name!r}")
    if stale := sorted({row["model"] for row in rows if "weights" in row and row["weights"] != weights.get(row["model"])}):
        raise ValueError(
            f"{file} is of another checkpoint, what it calls {' and '.join(stale)} had other weights or another "
            "configuration: remove it and evaluate again with eval.py"
        )
    return rows


def _read_certificate(folder: Path, weights: str, task: Task) -> dict[str, Any] | None:
    file = folder / CERTIFICATE_FILE
    if not file.is_file():
        return None
    try:
        certificate = json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{file} is not JSON: {error}") from error
    if not isinstance(certificate, dict) or not {"weights", "task"} <= set(certificate):
        raise ValueError(f"{file} is not a certificate: it must map names such as weights and task to values")
    if certificate["weights"] != weights:
        raise ValueError(
            f"{file} is of another checkpoint, its weights or configuration differ: run eval.py {folder} --certify again"
        )
    if certificate["task"] != task.describe():
        raise ValueError(f"{file} is of another format ({certificate['task']}), the recipe's is {task.describe()}")
    return certificate
