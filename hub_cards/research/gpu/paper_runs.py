"""Runs of the study `paper-scale` in the time that is left, the most valuable first; each goes on from its checkpoints.

Every minute, and when time is over, what a run has reached gets a row, and is packed into files of less than 16 MiB,
`parts/NAME.tar.000` and so on: its last checkpoint, the best one, and its results. A later call goes on from the runs in its
OUTPUT, or from these files alone. So the script may be killed at any time.
"""

# Used by: hub_cards/research/structured. Changed freely.

import io
import json
import os
import signal
import tarfile
import threading
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from longhand.hub_cards.commands import read_object
from longhand.hub_cards.recipes import Recipe
from longhand.hub_cards.research.gpu.record import Record, write_row
from longhand.hub_cards.research.run import gather, is_finished, train_all
from longhand.hub_cards.research.study import Study, StudyRun, load_study
from longhand.hub_cards.result_rows import RESULTS_FILE, Row, hardware, last_rows, read_results
from longhand.hub_cards.training.arguments import CHECKPOINTS_FOLDER
from longhand.hub_cards.training.run_folder import HASHES_FILE, STATE_FILE, list_checkpoints

STUDY = "paper-scale"
MINUTES_EACH = 3.0
"""Minutes of a GPU that is shared for which it is worth to begin one run more."""
MOST_AT_ONCE = 6
FIRST = ("sums-seed0", "encoder-sums-rpe-seed0", "heads-seed0", "heads-seed1", "heads-seed2", "sums-10-seed0")
"""The runs that decide most claims for their minutes, which come first where there is less time than `ALL_MINUTES`."""
ALL_MINUTES = 20.0
QUICKER: Recipe = {"test_samples": 10_000, "torch_compile": True}
"""Changes where there is less time: fewer problems of each tested length than the paper's 100,000, and compiled steps, of
which an H200 did 1.6 times as many a second.
"""

SAVING = 25.0
"""Seconds before the end in which runs are stopped, results are gathered, and what was reached is packed."""

SAVE_EVERY, SAVE_SMALL_EVERY = 60.0, 1.0
"""Seconds after which what was reached is saved; with the sizes of a test."""

OPTIMIZER = "optimizer.pt"
"""What no best checkpoint needs: a run goes on from its last one."""
PARTS_FOLDER = "parts"
PART_BYTES = 12 * 2**20

SMALL: Recipe = {"max_steps": 4, "eval_steps": 2, "num_train_samples": 500, "batch_size": 8, "use_cpu": True, "bf16": False}
SMALL |= {"validation_samples": 4, "test_samples": 4, "dataloader_num_workers": 0, "hidden_size": 16}
SMALL |= {"validation_lengths": [6], "test_lengths": [6]}


def run(record: Record) -> None:
    """Train as many runs as there is time for, and record how far each came.

    Runs that have not ended are stopped with their process group, which must be that of this process alone.
    """
    study, folder = load_study(STUDY), record.output / "runs"
    if record.small:
        study = replace(study, variants={"heads": study.variants["heads"] | SMALL}, evaluate={})
    minutes = record.seconds_left / 60
    if minutes < ALL_MINUTES and not record.small:
        study = replace(study, variants={name: changes | QUICKER for name, changes in study.variants.items()})
    for study_run in study.runs:
        unpack(record.output / PARTS_FOLDER, folder / study_run.name)
    at_once = max(1, min(MOST_AT_ONCE, int(minutes / MINUTES_EACH)))
    ordered = in_order(study, minutes)
    runs = [study_run for study_run in ordered if not is_finished(study_run, folder / study_run.name)]
    gathering = partial(gather, study, folder, record.output / STUDY)
    training = threading.Thread(target=train_all, args=(runs, folder, at_once, gathering), daemon=True)
    training.start()
    parent = os.getppid()
    saved: dict[str, Row] = {}
    every = SAVE_SMALL_EVERY if record.small else SAVE_EVERY
    due = time.time() + every
    # The process that started this one may be killed.
    while training.is_alive() and record.seconds_left > SAVING and os.getppid() == parent:
        time.sleep(0.2)
        if time.time() > due:
            save(study.runs, folder, record, saved)
            due = time.time() + every
    save(study.runs, folder, record, saved)
    if training.is_alive():
        end_group()


def save(runs: list[StudyRun], folder: Path, record: Record, saved: dict[str, Row]) -> None:
    """Write a row for each run that has come further, and pack it.

    Args:
        folder: holds the folders of the runs.
        saved: the last row of each run.
    """
    for study_run in runs:
        place = folder / study_run.name
        # A run that goes on may remove what is read; then its next checkpoint is near.
        with suppress(OSError, ValueError):
            row: Row = {"part": record.part, "name": study_run.name, **progress(study_run, place, record)}
            if place.is_dir() and row != saved.get(study_run.name):
                pack(place, record.output / PARTS_FOLDER)
                write_row(record.output, row)
                saved[study_run.name] = row


def in_order(study: Study, minutes: float) -> list[StudyRun]:
    """The runs of the study in the order of their value, with little time those first that may end."""
    if minutes >= ALL_MINUTES:
        return study.runs
    return sorted(study.runs, key=lambda one: FIRST.index(one.name) if one.name in FIRST else len(FIRST))


def pack(folder: Path, parts: Path) -> None:
    """Write what a run has reached into files of `PART_BYTES` at most, in the place of earlier ones.

    Of its checkpoints, the last complete one is kept, and the best one without its optimizer.

    Raises:
        OSError: the run removed a checkpoint meanwhile.
    """
    checkpoints = list_checkpoints(folder / CHECKPOINTS_FOLDER)
    last = next((place for place in checkpoints if (place / STATE_FILE).exists()), None)
    best = None if last is None else best_of(last)
    reduced = None if best == last else best
    packed = io.BytesIO()

    def chosen(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        place = folder / Path(entry.name).relative_to(folder.name)
        if reduced is not None and place in (reduced / OPTIMIZER, reduced / HASHES_FILE):
            return None
        return None if place in checkpoints and place not in (last, best) else entry

    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(folder, folder.name, filter=chosen)
        if reduced is not None:
            hashes = read_object(reduced / HASHES_FILE)
            hashes.pop(OPTIMIZER, None)
            content = json.dumps(hashes).encode()
            entry = tarfile.TarInfo(str(Path(folder.name, (reduced / HASHES_FILE).relative_to(folder))))
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    if list_checkpoints(folder / CHECKPOINTS_FOLDER) != checkpoints:
        raise FileNotFoundError(f"checkpoints of {folder.name} have changed")
    write_parts(packed.getvalue(), parts, folder.name)


def best_of(checkpoint: Path) -> Path | None:
    """The checkpoint beside this one that its state calls the best, if there is one."""
    best = read_object(checkpoint / STATE_FILE).get("best_model_checkpoint")
    return None if best is None else checkpoint.parent / Path(best).name


def write_parts(content: bytes, parts: Path, name: str) -> None:
    """Write bytes into files `NAME.tar.000` and so on, in the place of earlier ones."""
    parts.mkdir(parents=True, exist_ok=True)
    files = []
    for number, first in enumerate(range(0, len(content), PART_BYTES)):
        files.append(parts / f"{name}.partial.{number:03}")
        files[-1].write_bytes(content[first : first + PART_BYTES])
    for old in parts.glob(f"{name}.tar.*"):
        old.unlink()
    for number, file in enumerate(files):
        file.rename(parts / f"{name}.tar.{number:03}")


def unpack(parts: Path, folder: Path) -> None:
    """Make the folder of a run from what `pack` wrote, if there is none and parts are there."""
    files = sorted(parts.glob(f"{folder.name}.tar.*"))
    if not files or folder.exists():
        return
    content = io.BytesIO(b"".join(file.read_bytes() for file in files))
    with tarfile.open(fileobj=content) as archive:
        # Python 3.11 has filters from 3.11.4 on.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder.parent)


def progress(one: StudyRun, folder: Path, record: Record) -> Row:
    """How far a run came: its steps, what its last validation measured, and its tests if it has ended."""
    row: Row = {"steps": one.record["arguments"]["max_steps"], "hardware": hardware(record.device)}
    if is_finished(one, folder):
        rows = last_rows(read_results(folder / RESULTS_FILE))
        row |= {"done": row["steps"], "run_seconds": rows[-1]["run_seconds"]}
        return row | {"exact_match": spelled({str(test["length"]): test["exact_match"] for test in rows})}
    states = [place / STATE_FILE for place in list_checkpoints(folder / CHECKPOINTS_FOLDER)]
    complete = [state for state in states if state.exists()]
    if not complete:
        return row | {"done": 0}
    state = read_object(complete[0])
    last = {name: value for logs in state["log_history"] for name, value in logs.items()}
    first, end = "eval_", "_exact_match"
    validated = [name for name in last if name.startswith(first) and name.endswith(end)]
    sizes = {name.removeprefix(first).removesuffix(end): last[name] for name in validated}
    return row | {"done": state["global_step"], "exact_match": spelled(sizes)}


def spelled(sizes: dict[str, float]) -> str:
    """Exact match by size as text."""
    return ", ".join(f"{size}: {value:.3f}" for size, value in sizes.items())


def end_group() -> None:
    """End the processes that this one started, and this one."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(os.getpgrp(), signal.SIGTERM)
    time.sleep(2)
    # The thread still waits for the runs.
    os._exit(0)
