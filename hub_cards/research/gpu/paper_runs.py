"""Runs of the study `paper-scale` in the time that is left, the most valuable first; each goes on from its checkpoints."""

import os
import signal
import threading
import time
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
from longhand.hub_cards.training.run_folder import STATE_FILE, list_checkpoints

STUDY = "paper-scale"
MINUTES_EACH = 3.0
"""Minutes of a GPU that is shared for which it is worth to begin one run more."""
MOST_AT_ONCE = 6
SHORTEST = ("heads-seed0", "sums-10-seed0", "encoder-sums-rpe-seed0", "sums-seed0")
"""The runs with the least work, which come first where there is less time than `ALL_MINUTES`."""
ALL_MINUTES = 20.0

SAVING = 10.0
"""Seconds before the end in which runs are stopped, and in which results are gathered."""

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
    at_once = max(1, min(MOST_AT_ONCE, int(minutes / MINUTES_EACH)))
    runs = [one for one in in_order(study, minutes) if not is_finished(one, folder / one.name)]
    gathering = partial(gather, study, folder, record.output / STUDY)
    training = threading.Thread(target=train_all, args=(runs, folder, at_once, gathering), daemon=True)
    training.start()
    while training.is_alive() and record.seconds_left > SAVING:
        time.sleep(0.2)
    for one in study.runs:
        if (folder / one.name).is_dir():
            write_row(record.output, {"part": record.part, "name": one.name, **progress(one, folder / one.name, record)})
    if training.is_alive():
        end_group()


def in_order(study: Study, minutes: float) -> list[StudyRun]:
    """The runs of the study in the order of their value, with little time those first that may end."""
    if minutes >= ALL_MINUTES:
        return study.runs
    return sorted(study.runs, key=lambda one: SHORTEST.index(one.name) if one.name in SHORTEST else len(SHORTEST))


def progress(one: StudyRun, folder: Path, record: Record) -> Row:
    """How far a run came: its steps, what its last validation measured, and its tests if it has ended."""
    row: Row = {"steps": one.record["arguments"]["max_steps"], "hardware": hardware(record.device)}
    if is_finished(one, folder):
        rows = last_rows(read_results(folder / RESULTS_FILE))
        row |= {"done": row["steps"], "run_seconds": rows[-1]["run_seconds"]}
        return row | {"exact_match": spelled({str(own["length"]): own["exact_match"] for own in rows})}
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
