"""What the card of a checkpoint says of its folder: the model, its results and its certificate, all of the same weights."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig

from longhand.data import Task
from longhand.hub_cards.checkpoints.checkpoint import (
    BEST_FOLDER,
    CERTIFICATE_FILE,
    PLOT_FILE,
    check_loadable,
    copy_verifier,
    hash_files,
    read_certificate,
    save_code,
    trained_lengths,
)
from longhand.hub_cards.checkpoints.load import load_checkpoint, zoo
from longhand.hub_cards.commands import read_object, write_atomically
from longhand.hub_cards.evaluation.results import RESULTS_FILE, Row, read_results


@dataclass(frozen=True)
class CheckpointFolder:
    """What the card of a folder's model needs: the model's facts, and what was measured and proved of it.

    Attributes:
        parameters: number of weights.
        recipe: the arguments that made it; empty if it has no recipe.
        rows: results of the last checkpoint; empty if it was not evaluated.
        best_rows: results of the checkpoint in `best`; empty if that is spare.
        spare_best: why `best` is not published: it adds nothing to the last checkpoint. None if it adds something or is
            missing.
        certificate: the fields of `Certificate`; None if there is none.
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
    spare_best: str | None
    certificate: dict[str, Any] | None
    has_plot: bool

    @property
    def trained_lengths(self) -> tuple[int, int] | None:
        """Shortest and longest trained operand in digits; None if unknown, or for a model that was built, not trained."""
        return trained_lengths(self.recipe)


def read_checkpoint(folder: Path) -> CheckpointFolder:
    """Load the checkpoints of a folder, and check that all that stands beside them belongs to them.

    Raises:
        ValueError: the folder, or `best` in it, is no checkpoint of this package or damaged, lacks what others need to load
            it, or has results of other weights or a certificate that does not fit (`read_certificate`); or it needs a
            plugin that is not loaded.
    """
    last = load_checkpoint(str(folder))
    check_loadable(folder)
    # Configurations name their code by themselves. The file does not where the code was left out.
    last.model.config.auto_map = read_object(folder / "config.json").get("auto_map")
    certificate, spare, file = read_certificate(last), None, folder / RESULTS_FILE
    rows, best_rows = read_results(file) if file.is_file() else [], []
    measured = {"the folder": (last.weights, rows)}
    if (place := folder / BEST_FOLDER).is_dir():
        best = load_checkpoint(str(place)).weights
        check_loadable(place)
        best_rows = [row for row in rows if row["model"].endswith(f"/{BEST_FOLDER}")]
        rows = [row for row in rows if row not in best_rows]
        measured = {"the folder": (last.weights, rows), place.name: (best, best_rows)}
        if best == last.weights:
            spare = "the last checkpoint has the same weights"
        elif certificate is not None and certificate["certified"]:
            spare = "the last checkpoint is certified"
    for name, (weights, own) in measured.items():
        if any(row.get("weights") != weights for row in own):
            raise ValueError(
                f"{file} is of another checkpoint: {name} has other weights or another configuration; remove the file, or "
                "take that of a new evaluation by eval.py"
            )
    return CheckpointFolder(
        folder=folder,
        name=folder.resolve().name,
        config=last.model.config,
        task=last.own_task,  # type: ignore[arg-type]  # named by the recipe or the configuration, or not loaded
        parameters=last.model.num_parameters(),
        recipe=last.recipe,
        rows=rows,
        best_rows=[] if spare else best_rows,
        spare_best=spare,
        certificate=certificate,
        has_plot=(folder / PLOT_FILE).is_file(),
    )


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
