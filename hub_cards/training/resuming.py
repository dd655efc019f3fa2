"""From which checkpoint a run that was cut off continues: the latest one of which every file is there and can be read."""

import json
import zipfile
from pathlib import Path

import torch
from transformers.trainer_pt_utils import safe_globals
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from longhand.hub_cards.checkpoints.files import check_weights
from longhand.hub_cards.console import one_line
from longhand.hub_cards.files import read_object, write_atomically

STATE_FILE = "trainer_state.json"

_STATES = {"optimizer.pt": {"state", "param_groups"}, "scheduler.pt": {"last_epoch"}}
"""What Trainer saves beside the weights, with keys that each holds. A file that is missing it would pass over in silence."""


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, the latest first."""
    return sorted(folder.glob(f"{PREFIX_CHECKPOINT_DIR}-[0-9]*"), key=_step, reverse=True)


def last_checkpoint(folder: Path, processes: int = 1) -> Path | None:
    """Return the latest complete checkpoint, or None. Print which ones are passed over, and why.

    Args:
        processes: how many processes continue the run.
    """
    found = list_checkpoints(folder)
    for checkpoint in found:
        try:
            check_complete(checkpoint, processes)
        except (OSError, ValueError) as error:
            print(f"{checkpoint} is passed over: {one_line(error)}")
        else:
            return checkpoint
    if found:
        print(f"no checkpoint in {folder} is complete: the run starts from its beginning")
    return None


def check_complete(checkpoint: Path, processes: int) -> None:
    """Raise ValueError that names the file if one that a run continues from is missing or damaged.

    The best checkpoint, which a finished run keeps too, may be another one. Its weights are checked.
    """
    if not (checkpoint / STATE_FILE).exists():
        raise ValueError(f"it was cut off while it was written ({STATE_FILE}, the last file, is missing)")
    state = read_object(checkpoint / STATE_FILE)
    best = state.get("best_model_checkpoint", "")
    if state.get("global_step") != _step(checkpoint) or not isinstance(best, str | None):
        raise ValueError(f"{STATE_FILE} is not of step {_step(checkpoint)}")
    for folder in {checkpoint, checkpoint if best is None else checkpoint.parent / Path(best).name}:
        check_weights(folder)
        read_object(folder / "config.json")
    generators = {name: {"python", "numpy", "cpu"} for name in _generator_files(checkpoint, processes)}
    for name, keys in {**_STATES, **generators}.items():
        _check_state(checkpoint / name, keys)


def _generator_files(checkpoint: Path, processes: int) -> list[str]:
    """Return the files that hold the states of random generators, one for each process."""
    # Trainer saves its state after every process has saved its own generators: see `BatchTrainer`.
    written = len(list(checkpoint.glob("rng_state*.pth")))
    alone = (checkpoint / "rng_state.pth").exists()
    if written and (written != processes or alone != (processes == 1)):
        print(
            f"{checkpoint} was written by {written} processes, and {processes} continue it: with dropout, other numbers are "
            "drawn than in a run that is not cut off"
        )
        return []
    return ["rng_state.pth"] if processes == 1 else [f"rng_state_{index}.pth" for index in range(processes)]


def _check_state(file: Path, keys: set[str]) -> None:
    """Raise ValueError unless a file of torch.save is whole and holds these keys."""
    if not file.is_file():
        raise ValueError(f"{file.name} is missing")
    try:
        with zipfile.ZipFile(file) as archive:
            damaged = archive.testzip()
        with safe_globals():
            held = torch.load(file, map_location="cpu", weights_only=True)
    # torch raises whatever its reader meets in a damaged file.
    except Exception as error:
        raise ValueError(f"{file.name} is damaged ({one_line(error)[:80]})") from error
    if damaged or not isinstance(held, dict) or not keys <= held.keys():
        raise ValueError(f"{file.name} is damaged")


def relocate_best(checkpoint: Path) -> None:
    """Correct the path of the best checkpoint in a checkpoint's state: the run may have been moved since it was written."""
    file = checkpoint / STATE_FILE
    state = read_object(file)
    if state["best_model_checkpoint"] is not None:
        state["best_model_checkpoint"] = str(checkpoint.parent / Path(state["best_model_checkpoint"]).name)
        write_atomically(file, json.dumps(state, indent=2, sort_keys=True) + "\n")


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])
