"""The folder of a run: empty or the same run before; then checkpoints, from which it is resumed; afterwards its results."""

# Used by: trainer.py, hub_cards/publishing, hub_cards/research, hub_cards/research/gpu, hub_cards/research/structured,
# train.py. Changed freely.

import json
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from longhand.data.tasks.plugins import copy_plugins
from longhand.hub_cards.checkpoints.checkpoint import BEST_FOLDER, RESTARTS_FILE, hash_files
from longhand.hub_cards.commands import TEMPORARY_FILES, one_line, read_object, write_atomically
from longhand.hub_cards.recipes import RECIPE_FILE, differences, read_recipe, write_recipe
from longhand.hub_cards.result_rows import RESULTS_FILE, read_results, write_results
from longhand.hub_cards.training.arguments import CHECKPOINTS_FOLDER, Run

HASHES_FILE = "hashes.json"
"""The SHA-256 of every other file of a checkpoint but trainer_state.json, which is written after it."""

STATE_FILE = "trainer_state.json"
TENSOR_FILES = "*.safetensors"

REMOVED_FOLDER = ".checkpoints.partial"
"""Holds training states while they are removed."""


@dataclass(frozen=True)
class GivenUp:
    """A seed of the weights that was given up, after which the run begins again with the next one.

    Attributes:
        seed: of the weights.
        steps: optimizer steps that it took.
        wrong: the fewest wrong predictions that a check found.
        predictions: of a check.
    """

    seed: int
    steps: int
    wrong: int
    predictions: int

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.steps:,} steps, {self.wrong:,} of {self.predictions:,} predictions wrong at best"


def read_given_up(folder: Path) -> list[GivenUp]:
    """Return the seeds that a run's folder says were given up, the first one first."""
    file = folder / RESTARTS_FILE
    return [GivenUp(**row) for row in read_results(file)] if file.is_file() else []


def give_up(folder: Path, seeds: Sequence[GivenUp]) -> None:
    """Remove the training states of the last of these seeds, and write all of them into the run's folder.

    The states go first: a run that is cut off between the two trains the seed once more, and gives it up again.
    """
    remove_checkpoints(folder)
    write_results([vars(seed) for seed in seeds], folder / RESTARTS_FILE)


def claim_folder(run: Run) -> Path | None:
    """Check that the output folder is new, or holds this very run unfinished. Return the checkpoint to resume from.

    A complete run that is still to be pushed passes too, see `is_complete`.

    Raises:
        ValueError: the folder holds a finished run, an unfinished one without `--resume`, or another run's files.
    """
    folder, resume = run.folder, run.training.resume
    recipe_file = folder / RECIPE_FILE
    if resume and recipe_file.exists():
        remove_remains(folder)
    if is_complete(folder) and not (resume and run.publishing):
        advice = "nothing is left to resume" if resume else "remove it or choose another --output_dir"
        if run.publishing:
            advice = "--resume pushes it; to train anew, " + advice
        raise ValueError(f"{folder} holds a finished run: {advice}")
    if not recipe_file.exists():
        # A kill may leave the lock and files under temporary names.
        if any(path.is_file() and path.suffix not in (".lock", ".partial") for path in folder.rglob("*")):
            raise ValueError(f"{folder} holds files but no run ({RECIPE_FILE} is missing): choose another --output_dir")
        if resume:
            raise ValueError(f"--resume: {folder} holds no run to continue")
        remove_remains(folder)
        return None
    if not resume:
        raise ValueError(f"{folder} holds an unfinished run: continue it with --resume, or remove it")
    before = read_recipe(recipe_file)
    if different := differences(before, run.recipe):
        listed = ", ".join(f"{key} was {before.get(key)!r}, now {run.recipe.get(key)!r}" for key in different)
        raise ValueError(f"--resume: {folder} holds a run of another configuration ({listed})")
    return last_checkpoint(folder / CHECKPOINTS_FOLDER)


def is_complete(folder: Path) -> bool:
    """Whether a run's folder holds all that the run leaves. The training states are removed last."""
    return (folder / RESULTS_FILE).exists() and not list_checkpoints(folder / CHECKPOINTS_FOLDER)


def start_folder(run: Run) -> None:
    """Make the folder and write what says which run it holds: the recipe and the plugins."""
    run.folder.mkdir(parents=True, exist_ok=True)
    write_recipe(run.recipe, run.folder / RECIPE_FILE)
    copy_plugins(run.plugins, run.folder)


def save_final(run: Run, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, best: Path | None) -> None:
    """Put the last weights at the run's root and the best ones in `best`, each whole or not at all.

    Args:
        best: the checkpoint of the best weights.
    """
    partial = run.folder / ".partial"
    shutil.rmtree(partial, ignore_errors=True)
    model.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    if best is not None:
        keep = (TENSOR_FILES, "*.py", "config.json", "generation_config.json", "tokenizer*", "special_tokens_map.json")
        (partial / BEST_FOLDER).mkdir()
        for file in (file for pattern in keep for file in best.glob(pattern)):
            shutil.copy2(file, partial / BEST_FOLDER / file.name)
        write_recipe(run.recipe, partial / BEST_FOLDER / RECIPE_FILE)
        copy_plugins(run.plugins, partial / BEST_FOLDER)
    shutil.rmtree(run.folder / BEST_FOLDER, ignore_errors=True)
    for path in partial.iterdir():
        os.replace(path, run.folder / path.name)
    partial.rmdir()


def keep_as_best(folder: Path) -> None:
    """Put the last weights of a run into `best`, in the place of those that its validations chose."""
    best = folder / BEST_FOLDER
    others = [file for file in best.glob(TENSOR_FILES) if not (folder / file.name).is_file()]
    for file in folder.glob(TENSOR_FILES):
        partial = best / f".{file.name}.partial"
        shutil.copy2(file, partial)
        os.replace(partial, best / file.name)
    for file in others:
        file.unlink()


def write_hashes(checkpoint: Path) -> None:
    """Write the hashes of a checkpoint's files beside them."""
    write_atomically(checkpoint / HASHES_FILE, json.dumps(hash_files(checkpoint, ["*"]), indent=1) + "\n")


def remove_checkpoints(folder: Path) -> None:
    """Remove the training states of a finished run, or of a given-up seed; what its reporters put beside them stays."""
    states, removed = folder / CHECKPOINTS_FOLDER, folder / REMOVED_FOLDER
    if list_checkpoints(states):
        # One renaming removes all states together: a folder with some of the states would look like a run that was cut off.
        states.rename(removed)
    for checkpoint in list_checkpoints(removed):
        shutil.rmtree(checkpoint)
    if removed.exists():
        removed.rename(states)
    with suppress(OSError):
        states.rmdir()


def remove_remains(folder: Path) -> None:
    """Remove what a run that was killed left under temporary names: training states half removed, files half written."""
    if is_complete(folder) or (folder / REMOVED_FOLDER).exists():
        remove_checkpoints(folder)
    for file in folder.glob(TEMPORARY_FILES):
        file.unlink()


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, the latest first."""
    found = folder.glob(f"{PREFIX_CHECKPOINT_DIR}-[0-9]*")
    return sorted(found, key=lambda checkpoint: int(checkpoint.name.rpartition("-")[2]), reverse=True)


def last_checkpoint(folder: Path) -> Path | None:
    """Return the latest complete checkpoint, or None. Print which ones are passed over, and why."""
    found = list_checkpoints(folder)
    for checkpoint in found:
        try:
            check_complete(checkpoint)
        except (OSError, ValueError) as error:
            print(f"{checkpoint} is passed over: {one_line(error)}")
        else:
            return checkpoint
    if found:
        print(f"no checkpoint in {folder} is complete: the run starts from its beginning")
    return None


def check_complete(checkpoint: Path) -> None:
    """Raise ValueError that names the file if one that a run continues from is missing or is not what was written.

    The best checkpoint, which a finished run keeps too, may be another one. Its files are checked too.
    """
    if not (checkpoint / STATE_FILE).exists():
        raise ValueError(f"it was cut off while it was written ({STATE_FILE}, the last file, is missing)")
    state = read_object(checkpoint / STATE_FILE)
    best = state.get("best_model_checkpoint")
    for folder in {checkpoint, checkpoint if best is None else checkpoint.parent / Path(best).name}:
        written, now = read_object(folder / HASHES_FILE), hash_files(folder, ["*"])
        if changed := [name for name, value in written.items() if now.get(name) != value]:
            raise ValueError(f"{folder.name} was damaged after it was written ({', '.join(changed)})")


def relocate_best(checkpoint: Path) -> None:
    """Correct the path of the best checkpoint in a checkpoint's state: the run may have been moved since it was written."""
    file = checkpoint / STATE_FILE
    state = read_object(file)
    if state["best_model_checkpoint"] is not None:
        state["best_model_checkpoint"] = str(checkpoint.parent / Path(state["best_model_checkpoint"]).name)
        write_atomically(file, json.dumps(state, indent=2, sort_keys=True) + "\n")
