"""Train what a study compares, measure it, and gather the results.

    python -m longhand.hub_cards.research NAME --jobs 2

Only the missing runs are trained. A run that was cut off goes on from its last checkpoint. The results of a finished run are
copied to hub_cards/results/studies/NAME, so its folder may be removed. Results of runs that the study no longer has, or has
changed since, are removed. `python -m longhand.hub_cards.research.pages` shows the results.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from longhand.hub_cards.checkpoints.certificate_file import certificate_row
from longhand.hub_cards.checkpoints.checkpoint import CERTIFICATE_FILE
from longhand.hub_cards.commands import holding, one_line
from longhand.hub_cards.recipes import RECIPE_FILE, differences, read_recipe
from longhand.hub_cards.research.study import RUNS_FILE, STUDY_RESULTS, Study, StudyRun, load_study
from longhand.hub_cards.research.study_pages import CERTIFICATES
from longhand.hub_cards.result_rows import RESULTS_FILE, VALIDATION_FILE, Row, read_results, write_results
from longhand.hub_cards.training.arguments import parse_run
from longhand.hub_cards.training.run_folder import is_complete

TRAIN, EVAL = (Path(__file__).parents[2] / name for name in ("train.py", "eval.py"))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that trains the runs of a study."""
    add = parser.add_argument
    add("--jobs", type=int, default=1, help="runs at a time, of one thread each (default: %(default)s)")
    add("--only", nargs="+", metavar="VARIANT", help="train only these variants")
    add("--output_dir", type=Path, default=Path("outputs", "studies"), help="folder of the runs (default: %(default)s)")


def run(name: str, jobs: int, only: list[str] | None, output_dir: Path) -> None:
    """Train the missing runs of a study in its order, and gather the results that exist.

    Raises:
        ValueError: another process holds the folder of the study's runs.
    """
    study = load_study(name)
    results, folder = STUDY_RESULTS / name, output_dir / name
    with holding(folder):
        gather(study, folder, results)
        missing = [one for one in missing_runs(study, results) if only is None or one.name.rpartition("-seed")[0] in only]
        print(f"{name}: {len(study.runs)} runs, {len(missing)} to train, {jobs} at a time", flush=True)
        failed = train_all(missing, folder, jobs, partial(gather, study, folder, results))
    print(f"results are in {results}; python -m longhand.hub_cards.research.pages shows them")
    if failed:
        raise SystemExit(1)


def missing_runs(study: Study, results: Path) -> list[StudyRun]:
    """Return the runs of a study that are not gathered yet."""
    gathered = read_results(results / RUNS_FILE) if (results / RUNS_FILE).exists() else []
    return [one for one in study.runs if one.record not in gathered]


def gather(study: Study, folder: Path, results: Path) -> None:
    """Add the rows of finished runs to the study's results. Rows of runs whose arguments have changed are removed.

    These are rows of runs that the study no longer has, or whose arguments, in the study or in its recipe, are others now.

    Args:
        folder: holds the folders of the runs.
        results: folder of the study's results; what eval.py measured is in a folder in it for each `Evaluation.name`.
    """
    before = {file.relative_to(results): read_results(file) for file in sorted(results.rglob("*.jsonl"))}
    records: list[Row] = []
    gathered: dict[Path, list[Row]] = {Path(RESULTS_FILE): [], Path(RUNS_FILE): records}
    for one in study.runs:
        if one.record in before.get(Path(RUNS_FILE), ()):
            own = {
                file: [row for row in rows if row["model"].removesuffix("/best") == one.name]
                for file, rows in before.items()
                if file != Path(RUNS_FILE)
            }
        else:
            own = read_run(one, folder / one.name, study.validations) if is_finished(one, folder / one.name) else {}
        own = {file: rows for file, rows in own.items() if rows}
        if own:
            records.append(one.record)
        for file, rows in own.items():
            gathered.setdefault(file, []).extend(rows)
    if not before and not records:
        return
    for file in before.keys() - gathered.keys():
        (results / file).unlink()
    # A run counts as gathered once it is recorded, so the records come last.
    for file in sorted(gathered, key=Path(RUNS_FILE).__eq__):
        (results / file).parent.mkdir(parents=True, exist_ok=True)
        write_results(gathered[file], results / file)


def read_run(one: StudyRun, folder: Path, validations: bool = False) -> dict[Path, list[Row]]:
    """Return the rows of a finished run by the file of the study's results that they belong to.

    The certificate of its training is among them if no evaluation certifies it again.

    Args:
        validations: whether what its validations measured is among them.
    """
    rows = {Path(RESULTS_FILE): read_results(folder / RESULTS_FILE)}
    if validations:
        rows[Path(VALIDATION_FILE)] = read_results(folder / VALIDATION_FILE)
    certificate, measured = folder / CERTIFICATE_FILE, rows[Path(RESULTS_FILE)]
    if certificate.exists() and measured and not any("certify" in evaluation.options for evaluation in one.evaluations):
        row = certificate_row(json.loads(certificate.read_text()), one.name)
        row |= {name: measured[0][name] for name in ("hardware", "run_seconds")}
        rows[CERTIFICATES] = [row]
    for evaluation in one.evaluations:
        for file in sorted(evaluation.folder(folder).glob("*.jsonl")):
            rows.setdefault(Path(evaluation.name, file.name), []).extend(read_results(file))
    return rows


def is_trained(one: StudyRun, folder: Path) -> bool:
    """Whether a folder holds this very run, with nothing left to train."""
    return is_complete(folder) and not differences(read_recipe(folder / RECIPE_FILE), parse_run(one.command(folder)).recipe)


def is_finished(one: StudyRun, folder: Path) -> bool:
    """Whether a folder holds this very run, with nothing left to train or to measure."""
    return is_trained(one, folder) and all(evaluation.is_done(folder) for evaluation in one.evaluations)


def train_all(runs: list[StudyRun], folder: Path, jobs: int, on_end: Callable[[], None]) -> list[str]:
    """Train runs, some at a time, and say when each begins and how it ends. Return the names of the runs that failed."""
    failed, lock = [], threading.Lock()

    def train_one(one: StudyRun) -> None:
        began = time.perf_counter()
        print(f"{one.name}: begins", flush=True)
        try:
            last = train(one, folder / one.name)
            with lock:
                on_end()
            end = "done" if is_finished(one, folder / one.name) else f"failed: {last}"
        except (ValueError, OSError) as error:
            # The other runs go on.
            end = f"failed: {one_line(error)}"
        if end.startswith("failed"):
            failed.append(one.name)
        print(f"{one.name}: {end}, {time.perf_counter() - began:.0f} s", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(train_one, runs))
    return failed


def train(one: StudyRun, folder: Path) -> str:
    """Train one run, or continue it, and measure what is not measured yet. Return the last line that was written."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = folder.with_name(f"{folder.name}.log")
    with log.open("a") as stream:

        def start(*words: Path | str) -> None:
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            subprocess.run([sys.executable, *words], stdout=stream, stderr=stream, env=environment)

        if not is_trained(one, folder):
            resumed = ["--resume"] if (folder / RECIPE_FILE).exists() else []
            start(TRAIN, *one.command(folder), *resumed)
        for evaluation in one.evaluations:
            if is_trained(one, folder) and not evaluation.is_done(folder):
                start(EVAL, *evaluation.command(folder))
    return (log.read_text().splitlines() or [""])[-1]
