"""What the card of a checkpoint says of its folder: the model, its results and its certificate, all of the same weights."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig

from longhand.data import Task
from longhand.hub_cards.checkpoints.certificate_file import copy_verifier, read_certificate
from longhand.hub_cards.checkpoints.files import (
    ADAPTER_CONFIG,
    BEST_FOLDER,
    CERTIFICATE_FILE,
    PLOT_FILE,
    Checkpoint,
    check_loadable,
    check_pickles,
    hash_files,
    save_code,
    trained_lengths,
)
from longhand.hub_cards.checkpoints.load import load_checkpoint
from longhand.hub_cards.checkpoints.zoo import zoo
from longhand.hub_cards.evaluation.results import RESULTS_FILE, Row, read_results
from longhand.hub_cards.files import read_object, write_atomically
from longhand.hub_cards.recipes import RECIPE_FILE


@dataclass(frozen=True)
class CheckpointFolder:
    """What the card of a folder's model needs: the model's facts, and what was measured and proved of it.

    Attributes:
        name: how its results refer to it.
        parameters: number of weights.
        recipe: the arguments that made it; empty if it has no recipe.
        rows: results of the last checkpoint; empty if it was not evaluated.
        best_rows: results of the checkpoint in `best`.
        certificate: the fields of `Certificate`; None if there is none.
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
        """Shortest and longest trained operand in digits; None if unknown, or for a model that was built, not trained."""
        return trained_lengths(self.recipe)

    @property
    def spare_best(self) -> str | None:
        """Why `best` is not published: it adds nothing to the last checkpoint. None if it adds something or is missing."""
        last, *best = self.weights.values()
        if best == [last]:
            return "the last checkpoint has the same weights"
        if best and self.certificate is not None and self.certificate["certified"]:
            return "the last checkpoint is certified"
        return None


def read_checkpoint(folder: Path) -> CheckpointFolder:
    """Load the checkpoints of a folder, and check that all that stands beside them belongs to them.

    Raises:
        ValueError: the folder, or `best` in it, is no checkpoint of this package or damaged, or holds pickles, results of
            another checkpoint or a certificate that does not fit (`read_certificate`); or it needs a plugin that is not
            loaded.
    """
    if (folder / ADAPTER_CONFIG).is_file():
        raise ValueError(
            f"{folder} is an adapter, which has no card here: push it by PEFT's push_to_hub, or save the merged model, "
            f"load_checkpoint({str(folder)!r}).model, and its tokenizer into another folder"
        )
    check_pickles(folder)
    last = _load_published(folder)
    task: Any = last.own_task
    # A folder may have been renamed since its results were written.
    name = _measured_name(folder, last.weights) or folder.resolve().name
    weights = {name: last.weights}
    if (place := folder / BEST_FOLDER).is_dir():
        best = _load_published(place)
        weights[f"{name}/{BEST_FOLDER}"] = best.weights
        if best.own_task != task:
            raise ValueError(f"{place} is of another task ({best.task.describe()}), the recipe's is {task.describe()}")
        _read_rows(place, task, weights)
        read_certificate(best)
    rows = _read_rows(folder, task, weights)
    return CheckpointFolder(
        folder=folder,
        name=name,
        config=last.model.config,
        task=task,
        parameters=last.model.num_parameters(),
        recipe=last.recipe,
        rows=[row for row in rows if not row["model"].endswith(f"/{BEST_FOLDER}")],
        best_rows=[row for row in rows if row["model"].endswith(f"/{BEST_FOLDER}")],
        certificate=read_certificate(last),
        weights=weights,
        has_plot=(folder / PLOT_FILE).is_file(),
    )


def _load_published(folder: Path) -> Checkpoint:
    """Load a checkpoint that others could load too, and check what a card reads from its recipe."""
    checkpoint = load_checkpoint(str(folder))
    check_loadable(folder)
    # Configurations name their code by themselves. The file does not where the code was left out.
    checkpoint.model.config.auto_map = read_object(folder / "config.json").get("auto_map")
    if not isinstance(description := checkpoint.recipe.get("description", ""), str):
        raise ValueError(f"{folder / RECIPE_FILE}: description must be text, got {description!r}")
    for argument in ("min_length", "max_length"):
        # Not isinstance: True is an int.
        if type(digits := checkpoint.recipe.get(argument, 1)) is not int:
            raise ValueError(f"{folder / RECIPE_FILE}: {argument} must be a whole number of digits, got {digits!r}")
    return checkpoint


def _measured_name(folder: Path, weights: str) -> str | None:
    """Return how the results in a folder refer to these weights, those of its last checkpoint; None if they do not."""
    file = folder / RESULTS_FILE
    rows = read_results(file) if file.is_file() else []
    named = [row["model"] for row in rows if row.get("weights") == weights]
    return next((name for name in named if not name.endswith(f"/{BEST_FOLDER}")), None)


def _read_rows(folder: Path, task: Task, weights: dict[str, str]) -> list[Row]:
    file, (name, *_) = folder / RESULTS_FILE, weights
    if not file.is_file():
        return []
    rows = read_results(file)
    if strangers := sorted({row["model"] for row in rows} - {name, f"{name}/{BEST_FOLDER}"}):
        raise ValueError(
            f"{file} is of another checkpoint ({', '.join(strangers)}, not {name}): evaluate this one with eval.py, or give "
            "the folder the name that it was evaluated under"
        )
    if other := sorted({row["task"] for row in rows} - {part.name for part in task.parts}):
        raise ValueError(f"{file} is of another task ({', '.join(other)}), the recipe's is {task.name!r}")
    if stale := sorted({row["model"] for row in rows if "weights" in row and row["weights"] != weights.get(row["model"])}):
        raise ValueError(
            f"{file} is of another checkpoint, what it calls {' and '.join(stale)} had other weights or another "
            "configuration: remove it and evaluate again with eval.py"
        )
    return rows


def unpack(name: str, place: Path) -> Path:
    """Write a checkpoint of the zoo as its run left it, with the code that runs it where this package is not installed.

    Args:
        place: an existing folder; the checkpoint's folder is made in it.

    Returns:
        The checkpoint's folder, whose certificate names the code too.
    """
    folder = Path(shutil.copytree(zoo(name), place / name))
    checkpoint = load_checkpoint(str(folder))
    save_code(checkpoint.model.config, checkpoint.task, folder)
    certificate = read_object(folder / CERTIFICATE_FILE) | {"files": hash_files(folder)}
    write_atomically(folder / CERTIFICATE_FILE, json.dumps(certificate, indent=2) + "\n")
    copy_verifier(folder)
    return folder
