"""Train what a study compares, measure it, and gather the results.

    python -m longhand.hub_cards.research my-study.yaml --output outputs/mine --seeds 0:3 --jobs 2
    python -m longhand.hub_cards.research NAME --jobs 2

Only the missing runs are trained. A run that was cut off goes on from its last checkpoint. The results of a finished run are
copied, so its folder may be removed. Results of runs that the study no longer has, or has changed since, are removed.

A study of one's own is a YAML file anywhere. Everything of it goes into the folder --output: runs, results, and at the end
table.md and accuracy.png. A study of this package, NAME, goes there too if --output is given. Otherwise its results are
those of the pages: they go to hub_cards/results/studies/NAME, and `python -m longhand.hub_cards.research.pages` shows them.
"""

# Used by: hub_cards/research/gpu. Changed freely.

import json
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from longhand.eval import check_options, parse_arguments
from longhand.hub_cards.checkpoints.certificate_file import certificate_row
from longhand.hub_cards.checkpoints.checkpoint import CERTIFICATE_FILE, PLOT_FILE
from longhand.hub_cards.commands import holding, one_line, write_atomically
from longhand.hub_cards.options import option
from longhand.hub_cards.recipes import RECIPE_FILE, differences, read_recipe
from longhand.hub_cards.research.study import RUNS_FILE, STUDY_RESULTS, Study, StudyRun, is_file, load_study
from longhand.hub_cards.result_rows import RESULTS_FILE, VALIDATION_FILE, Row, read_results, write_results
from longhand.hub_cards.training.arguments import parse_run
from longhand.hub_cards.training.run_folder import is_complete
from longhand.modeling.checks import check_integer

TRAIN, EVAL = (Path(__file__).parents[2] / name for name in ("train.py", "eval.py"))
TABLE_FILE = "table.md"


@dataclass(frozen=True)
class StudyOptions:
    """How the runs of a study are trained, and where."""

    jobs: int = option("runs at a time, of one thread each (default: %(default)s)", 1)
    only: list[str] | None = option("train only these variants", None, metavar="VARIANT")
    output_dir: Path = option("folder of the runs (default: %(default)s)", Path("outputs/studies"))
    output: Path | None = option(
        "folder of runs, results, table and picture (default, for a file of one's own: OUTPUT_DIR/NAME)",
        None,
        metavar="FOLDER",
    )
    seeds: list[int] | None = option(
        "seeds in place of the study's own, a list or START:STOP, both included: 0:2 are three; with --output or a file",
        None,
    )
    print: bool = option(
        "print a command for each run, such as for a cluster, and train nothing; the same command without it gathers",
        False,
    )


OPTIONS = (StudyOptions,)


def run(options: StudyOptions, name: str) -> None:
    """Train the missing runs of a study in its order, gather the results that exist, and show those of one's own folder.

    Args:
        name: of a study of this package, or the file of another one.

    Raises:
        ValueError: a run or an argument is not legal, or another process holds the folder of the study's runs.
    """
    check_integer("--jobs", options.jobs, 1)
    study, only, jobs = load_study(name), options.only, options.jobs
    own = options.output or (options.output_dir / study.name if is_file(name) else None)
    if options.seeds is not None:
        if own is None:
            raise ValueError("--seeds would remove results of other seeds from this package: give --output too")
        study = replace(study, seeds=list(dict.fromkeys(options.seeds)))
    if unknown := [variant for variant in only or () if variant not in study.variants]:
        raise ValueError(f"--only: {unknown[0]!r} is no variant of {study.name}: these are {', '.join(study.variants)}")
    check_runs(study)
    folder, results = (own / "runs", own / "results") if own else (options.output_dir / name, STUDY_RESULTS / name)
    chosen = [study_run for study_run in study.runs if only is None or study_run.name.rpartition("-seed")[0] in only]
    if options.print:
        for study_run in chosen:
            print(command_of(study_run, folder / study_run.name))
        return
    with holding(folder):
        gather(study, folder, results)
        missing = [study_run for study_run in missing_runs(study, results) if study_run in chosen]
        print(f"{study.name}: {len(study.runs)} runs, {len(missing)} to train, {jobs} at a time", flush=True)
        failed = train_all(missing, folder, jobs, partial(gather, study, folder, results))
    if own:
        show(study, results, own)
    else:
        print(f"results are in {results}; python -m longhand.hub_cards.research.pages shows them")
    if failed:
        raise SystemExit(1)


def check_runs(study: Study) -> None:
    """Raise ValueError, which names each variant and its fault, if a run of a study or a measurement is not legal."""
    faults = []
    for study_run in study.runs[: len(study.variants)]:
        variant = study_run.name.rpartition("-seed")[0]
        try:
            data = study.parse(variant).data
            if min(data.test_lengths) > data.max_length:
                raise ValueError(
                    f"test_lengths must hold a trained size, {data.max_length} at most: it says whether a variant fits; "
                    f"got {data.test_lengths}"
                )
            for evaluation in study_run.evaluations:
                check_options(parse_arguments(evaluation.command(Path("run"))))
        except ValueError as error:
            faults.append(f"{variant}: {one_line(error)}")
    if faults:
        raise ValueError("; ".join(faults))


def command_of(one: StudyRun, folder: Path) -> str:
    """The command of a shell that trains a run and measures it."""
    words = [["longhand.train", *one.command(folder)]]
    words += [["longhand.eval", *evaluation.command(folder)] for evaluation in one.evaluations]
    return " && ".join(shlex.join(["python", "-m", *command]) for command in words)


def show(study: Study, results: Path, folder: Path) -> None:
    """Print and write the table of a study, and draw its picture, if a run of it has finished."""
    if not (results / RESULTS_FILE).is_file():
        print(f"no run of {study.name} has finished, so there is nothing to compare")
        return
    # Tables and pictures take seconds to import, and a command that trains nothing needs none.
    from longhand.hub_cards.research.study_pages import draw_study, study_block
    from longhand.hub_cards.research.tables import read_frame

    tables = [study_block(study, results)]
    for name in study.evaluate:
        if (results / name / RESULTS_FILE).is_file():
            tables.append(f"## {name}\n\n{study_block(study, results, name)}")
    heading = f"# {study.name}\n\n" + (f"{study.question}\n\n" if study.question else "")
    text = heading + "\n".join(tables)
    print(f"\n{text}")
    write_atomically(folder / TABLE_FILE, text)
    draw_study(study, read_frame(results / RESULTS_FILE), folder / PLOT_FILE)
    print(f"wrote {folder / TABLE_FILE} and {folder / PLOT_FILE}")


def missing_runs(study: Study, results: Path) -> list[StudyRun]:
    """Return the runs of a study that are not gathered yet."""
    gathered = read_results(results / RUNS_FILE) if (results / RUNS_FILE).exists() else []
    return [study_run for study_run in study.runs if study_run.record not in gathered]


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
    for run in study.runs:
        if run.record in before.get(Path(RUNS_FILE), ()):
            run_rows = {
                file: [row for row in rows if row["model"].removesuffix("/best") == run.name]
                for file, rows in before.items()
                if file != Path(RUNS_FILE)
            }
        else:
            run_rows = read_run(run, folder / run.name, study.validations) if is_finished(run, folder / run.name) else {}
        run_rows = {file: rows for file, rows in run_rows.items() if rows}
        if run_rows:
            records.append(run.record)
        for file, rows in run_rows.items():
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
    from longhand.hub_cards.research.study_pages import CERTIFICATES

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
