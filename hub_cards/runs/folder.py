"""The folder of a run: what it may hold before, what is resumed from it, and what a finished run leaves in it."""

import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from longhand.hub_cards.runs.arguments import CHECKPOINTS_FOLDER, Run
from longhand.hub_cards.runs.checkpoints import BEST_FOLDER, check_weights
from longhand.hub_cards.runs.files import write_atomically
from longhand.hub_cards.runs.plugins import copy_plugins
from longhand.hub_cards.runs.recipes import RECIPE_FILE, read_recipe, write_recipe
from longhand.hub_cards.runs.results import RESULTS_FILE
from longhand.hub_cards.runs.trainer import BatchTrainer


def claim_folder(run: Run) -> Path | None:
    """Check that the output folder is new, or holds this very run unfinished. Return the checkpoint to resume from.

    Raises:
        ValueError: the folder holds a finished run, an unfinished one without `--resume`, or another run's files.
    """
    folder = run.folder
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--output_dir {folder} is a file: choose a folder")
    # The training states are removed last: with one of them, a run with results was cut off before its end.
    if (folder / RESULTS_FILE).exists() and not _checkpoints(folder / CHECKPOINTS_FOLDER):
        advice = "nothing is left to resume" if run.training.resume else "remove it or choose another --output_dir"
        raise ValueError(f"{folder} holds a finished run: {advice}")
    recipe_file = folder / RECIPE_FILE
    if not recipe_file.exists():
        if any(path.is_file() for path in folder.rglob("*")):
            raise ValueError(f"{folder} holds files but no run ({RECIPE_FILE} is missing): choose another --output_dir")
        if run.training.resume:
            raise ValueError(f"--resume: {folder} holds no run to continue")
        return None
    if not run.training.resume:
        raise ValueError(f"{folder} holds an unfinished run: continue it with --resume, or remove it")
    before = read_recipe(recipe_file)
    different = [key for key in {**before, **run.recipe} if before.get(key) != run.recipe.get(key)]
    if different:
        listed = ", ".join(f"{key} was {before.get(key)!r}, now {run.recipe.get(key)!r}" for key in different)
        raise ValueError(f"--resume: {folder} holds a run of another configuration ({listed})")
    return last_checkpoint(folder / CHECKPOINTS_FOLDER)


def last_checkpoint(folder: Path) -> Path | None:
    """Return the latest complete checkpoint, or None. Trainer writes trainer_state.json last: one without it was cut off."""
    for checkpoint in sorted(_checkpoints(folder), key=_step, reverse=True):
        try:
            json.loads((checkpoint / "trainer_state.json").read_text())
            check_weights(checkpoint)
            for file in checkpoint.glob("*.pt"):
                if not zipfile.is_zipfile(file):
                    raise ValueError(f"{file} is truncated")
        except (OSError, ValueError):
            print(f"{checkpoint} was cut off while it was written and is passed over")
        else:
            return checkpoint
    return None


def _checkpoints(folder: Path) -> list[Path]:
    return list(folder.glob(f"{PREFIX_CHECKPOINT_DIR}-[0-9]*"))


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def start_folder(run: Run) -> None:
    """Make the folder and write what says which run it holds: the recipe and the plugins."""
    run.folder.mkdir(parents=True, exist_ok=True)
    write_recipe(run.recipe, run.folder / RECIPE_FILE)
    copy_plugins(run.plugins, run.folder)


def relocate_best(checkpoint: Path) -> None:
    """Correct the path of the best checkpoint in a checkpoint's state: the run may have been moved since it was written."""
    file = checkpoint / "trainer_state.json"
    state = json.loads(file.read_text())
    if state["best_model_checkpoint"] is not None:
        state["best_model_checkpoint"] = str(checkpoint.parent / Path(state["best_model_checkpoint"]).name)
        write_atomically(file, json.dumps(state, indent=2, sort_keys=True) + "\n")


def save_final(trainer: BatchTrainer, run: Run) -> None:
    """Put the last weights at the run's root and the best ones in `best`, each whole or not at all."""
    trainer.check_weights()
    partial = run.folder / ".partial"
    shutil.rmtree(partial, ignore_errors=True)
    model = trainer.accelerator.unwrap_model(trainer.model)
    model.save_pretrained(partial)
    tokenizer: Any = trainer.processing_class
    tokenizer.save_pretrained(partial)
    if (best := trainer.state.best_model_checkpoint) is not None:
        keep = ("*.safetensors", "*.py", "config.json", "generation_config.json", "tokenizer*", "special_tokens_map.json")
        (partial / BEST_FOLDER).mkdir()
        for file in (file for pattern in keep for file in Path(best).glob(pattern)):
            shutil.copy2(file, partial / BEST_FOLDER / file.name)
        write_recipe(run.recipe, partial / BEST_FOLDER / RECIPE_FILE)
        copy_plugins(run.plugins, partial / BEST_FOLDER)
    shutil.rmtree(run.folder / BEST_FOLDER, ignore_errors=True)
    for path in partial.iterdir():
        os.replace(path, run.folder / path.name)
    partial.rmdir()


def remove_checkpoints(run: Run) -> None:
    """Remove the training states of a finished run."""
    folder = run.folder / CHECKPOINTS_FOLDER
    for checkpoint in _checkpoints(folder):
        shutil.rmtree(checkpoint)
    if not any(folder.iterdir()):
        folder.rmdir()
