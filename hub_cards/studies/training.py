"""Train what a study compares, gather the results and render them.

    python -m longhand.hub_cards.studies NAME --jobs 2

Only the missing runs are trained. A run that was cut off goes on from its last checkpoint. The results of a finished run are
copied to hub_cards/results/studies/NAME, so its folder may be removed. Results of runs that the study no longer has, or has
changed since, are removed.
"""

import argparse
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from longhand.hub_cards.reports.studies import draw_study, study_table
from longhand.hub_cards.runs.arguments import CHECKPOINTS_FOLDER, parse_run
from longhand.hub_cards.runs.recipes import RECIPE_FILE, read_recipe
from longhand.hub_cards.runs.results import RESULTS_FILE, Row, last_rows, read_results, write_results
from longhand.hub_cards.runs.studies import RUNS_FILE, Study, StudyRun, load_study

RESULTS = Path(__file__).parents[1] / "results" / "studies"
TRAIN = Path(__file__).parents[2] / "train.py"


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--jobs", type=int, default=1, help="runs at a time, of one thread each (default: %(default)s)")
    add("--only", nargs="+", metavar="VARIANT", help="train only these variants")
    add("--print", action="store_true", dest="print_only", help="print the commands of the missing runs, and train nothing")
    add("--output_dir", type=Path, default=Path("outputs", "studies"), help="folder of the runs (default: %(default)s)")


def run(name: str, jobs: int, only: list[str] | None, print_only: bool, output_dir: Path) -> None:
    """Train the missing runs of a study, and render what there is.

    Raises:
        ValueError: an option is not legal.
    """
    study = load_study(name)
    if jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {jobs}")
    if unknown := sorted(set(only or ()) - set(study.variants)):
        raise ValueError(f"--only {unknown[0]} is no variant of {name}: choose from {', '.join(study.variants)}")
    results, folder = RESULTS / name, output_dir / name
    gather(study, folder, results)
    missing = [one for one in missing_runs(study, results) if only is None or one.name.rpartition("-seed")[0] in only]
    if print_only:
        for one in missing:
            print(shlex.join(["OMP_NUM_THREADS=1", "python", "train.py", *one.command(folder / one.name)]))
        return
    print(f"{name}: {len(study.runs)} runs, {len(missing)} to train, {jobs} at a time", flush=True)
    failed = train_all(missing, folder, jobs, partial(gather, study, folder, results))
    if (results / RESULTS_FILE).exists():
        rows = read_results(results / RESULTS_FILE)
        draw_study(study, rows, results / "accuracy.png")
        print(f"\n{study_table(study, rows)}\nwrote {results / RESULTS_FILE} and {results / 'accuracy.png'}")
    if failed:
        raise SystemExit(1)


def missing_runs(study: Study, results: Path) -> list[StudyRun]:
    """Return the runs of a study that are not gathered yet."""
    gathered = read_results(results / RUNS_FILE) if (results / RUNS_FILE).exists() else []
    return [one for one in study.runs if one.record not in gathered]


def gather(study: Study, folder: Path, results: Path) -> None:
    """Add the rows of finished runs to the study's results. What the study no longer has, or has changed, is removed.

    Args:
        folder: holds the folders of the runs.
        results: folder of the study's results.
    """
    before: list[Row] = []
    rows: list[Row] = []
    if (results / RUNS_FILE).exists():
        before, rows = read_results(results / RUNS_FILE), read_results(results / RESULTS_FILE)
    records, kept = [], []
    for one in study.runs:
        own = [row for row in rows if row["model"].removesuffix("/best") == one.name]
        if one.record not in before:
            own = read_results(folder / one.name / RESULTS_FILE) if is_finished(one, folder / one.name) else []
        if own:
            records.append(one.record)
            kept += own
    if (records, kept) != (before, rows):
        results.mkdir(parents=True, exist_ok=True)
        # A run counts as gathered once it is recorded, so the records come last.
        write_results(kept, results / RESULTS_FILE)
        write_results(records, results / RUNS_FILE)


def is_finished(one: StudyRun, folder: Path) -> bool:
    """Whether a folder holds this very run, with nothing left to do."""
    if not (folder / RESULTS_FILE).exists() or (folder / CHECKPOINTS_FOLDER).exists():
        return False
    return read_recipe(folder / RECIPE_FILE) == parse_run(one.command(folder)).recipe


def train_all(runs: list[StudyRun], folder: Path, jobs: int, on_end: Callable[[], None]) -> list[str]:
    """Train runs, some at a time, and say when each begins and how it ends. Return the names of those that failed."""
    failed, lock = [], threading.Lock()

    def train_one(one: StudyRun) -> None:
        began = time.perf_counter()
        print(f"{one.name}: begins", flush=True)
        status, last = train(one, folder / one.name)
        with lock:
            on_end()
        if status:
            failed.append(one.name)
        print(
            f"{one.name}: {describe_end(folder / one.name, status, last)}, {time.perf_counter() - began:.0f} s", flush=True
        )

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(train_one, runs))
    return failed


def train(one: StudyRun, folder: Path) -> tuple[int, str]:
    """Train one run, or continue it. Return the exit status, and the last line that it wrote."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    resume = ["--resume"] if (folder / RECIPE_FILE).exists() else []
    log = folder.with_suffix(".log")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with log.open("a") as stream:
        command = [sys.executable, str(TRAIN), *one.command(folder), *resume]
        status = subprocess.run(command, stdout=stream, stderr=stream, env=environment).returncode
    return status, (log.read_text().splitlines() or [""])[-1]


def describe_end(folder: Path, status: int, last: str) -> str:
    """Say how a run ended: exact match by size, or its last line if it failed."""
    if status:
        return f"failed with status {status}: {last}"
    rows = last_rows(read_results(folder / RESULTS_FILE))
    return "exact match " + "  ".join(f"{row['length']}: {row['exact_match']:.3f}" for row in rows)
