"""Runs that are killed at random moments and finished by `--resume` leave what an uncut run leaves, byte for byte."""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
import torch
from safetensors.torch import load_file
from test_train import LEARNED, MIXED, SMALL

from longhand.hub_cards.training.run_folder import check_complete, list_checkpoints

KILLS = 8
"""Kills at random moments of runs of one process."""
CHANGES_BETWEEN = [pytest.param(20, marks=pytest.mark.thorough), pytest.param(3, marks=pytest.mark.release)]
"""Files that a run renames and folders that it removes, by which it gets farther from kill to kill: in `.ci/run`, and before
a release."""
LEAST_CHANGES = 30
"""A run renames files and removes folders more often than that."""
KILLS_OF_TWO = 2
"""Kills of runs of two processes, whose every start imports torch anew."""
WHOLE_FILES = ("*.safetensors", "*.json", "*.jsonl", "*.yaml")
"""Files that must be whole wherever they stand under these names."""
SECONDS = ("seconds", "run_seconds", "created_at")
"""What differs from run to run."""

ONE_PROCESS = """
import gc, os, signal, sys, time
from longhand import train
from longhand.hub_cards.commands import write_atomically
from longhand.hub_cards.evaluation import plots

# A plot is written as it is, and not drawn: that takes as long as the rest of the run.
plots.save_figure = lambda figure, file: write_atomically(file, b"a plot")
# The libraries are left out whenever Python looks for garbage.
gc.freeze()

def kill_before(change):
    "Kill this process when it renames a file or removes a folder once more, after so many times."
    changes = 0

    def count(event, arguments):
        nonlocal changes
        if event in ("os.rename", "os.rmdir"):
            changes += 1
            if changes > change:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)

def forked(change, words):
    child = os.fork()
    if child:
        return child
    status = 1
    if change >= 0:
        kill_before(change)
    try:
        train.main(words)
        status = 0
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 1
    finally:
        sys.stdout.flush()
        os._exit(status)

for line in sys.stdin:
    delay, change, *words = line.split()
    child = forked(int(change), words)
    if float(delay) > 0:
        time.sleep(float(delay))
        os.kill(child, signal.SIGKILL)
    began = time.monotonic()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(f"ended {status} {time.monotonic() - began}", flush=True)
"""
"""A process that has imported everything. For every line of its input, `SECONDS CHANGES WORDS`, it forks a run. It kills the
run after these seconds unless they are 0, or when so many files were renamed or folders removed, unless they are -1. It
prints the run's exit status and the seconds that it waited for the run's end."""


class Ended(NamedTuple):
    """How a run ended.

    Attributes:
        status: exit status, negative for a signal.
        seconds: seconds that the run took; after a kill, that it took to end.
    """

    status: int
    seconds: float


class Runner:
    """Starts runs in forks of one process that has imported everything."""

    def __init__(self, process: subprocess.Popen):
        self.process = process

    def run(self, words: list[str], seconds: float = 0.0, changes: int = -1) -> Ended:
        """Run to the end, or kill after some seconds, or after some files were renamed or folders removed."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{seconds} {changes} {' '.join(words)}\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("ended "):
                _, status, waited = line.split()
                return Ended(int(status), float(waited))
        raise AssertionError("the process that forks runs has ended")


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with subprocess.Popen(
        [sys.executable, "-c", ONE_PROCESS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        yield Runner(process)
        process.kill()


def left_by(folder: Path) -> dict[str, object]:
    """What a finished run leaves, without what differs from run to run: bytes of weights, rows of results."""
    rows = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    results = [{name: value for name, value in row.items() if name not in SECONDS} for row in rows]
    weights = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*.safetensors")}
    names = sorted(str(file.relative_to(folder)) for file in folder.rglob("*"))
    return {"weights": weights, "results": results, "names": names}


def check_whole(folder: Path) -> None:
    """Read every file that has a final name: a half-written one cannot be read.

    A checkpoint that was cut off while it was written has no final name yet: `--resume` passes over it.
    """
    cut_off = set()
    for checkpoint in list_checkpoints(folder / "checkpoints"):
        try:
            check_complete(checkpoint)
        except (OSError, ValueError):
            cut_off.add(checkpoint)
    for pattern in WHOLE_FILES:
        for file in folder.rglob(pattern):
            if file.parent in cut_off or any(part.startswith((".", "tmp")) for part in file.relative_to(folder).parts):
                continue
            if file.suffix == ".safetensors":
                load_file(file)
            elif file.suffix == ".json":
                json.loads(file.read_text())
            elif file.suffix == ".jsonl":
                list(map(json.loads, file.read_text().splitlines()))


def goes_on(folder: Path, words: list[str]) -> list[str]:
    """The command that continues what a kill left: with --resume, if the run has begun."""
    return [*words, "--resume"] if (folder / "recipe.yaml").exists() else words


@pytest.mark.release
def test_random_kills_change_nothing(runner, tmp_path):
    generator = random.Random(20261124)
    words = [*SMALL, *LEARNED, *MIXED]
    whole = tmp_path / "whole" / "run"
    uncut = runner.run([*words, "--output_dir", str(whole)])
    assert uncut.status == 0
    expected = left_by(whole)
    kills, number = 0, 0
    while kills < KILLS:
        number += 1
        folder = tmp_path / str(number) / "run"
        own = [*words, "--output_dir", str(folder)]
        # A run is killed up to three times before it may end.
        for _ in range(3):
            ended = runner.run(goes_on(folder, own), generator.uniform(0.02, 1.0) * uncut.seconds)
            if ended.status != -signal.SIGKILL:
                break
            kills += 1
            check_whole(folder)
        if ended.status == -signal.SIGKILL:
            ended = runner.run(goes_on(folder, own))
        # A kill may have struck when all was written: what follows is refused (2), as the folder holds a finished run.
        assert ended.status in (0, 2)
        assert left_by(folder) == expected


@pytest.mark.parametrize("changes_between", CHANGES_BETWEEN)
def test_kills_between_two_changes_of_the_folder_change_nothing(changes_between, runner, tmp_path):
    """Between a file and its final name too, and among the last changes of a run, which no resumed step repeats."""
    whole, changes, killed = tmp_path / "whole" / "run", 0, True
    assert runner.run([*SMALL, "--output_dir", str(whole)]).status == 0
    while killed:
        folder = tmp_path / str(changes) / "run"
        own = [*SMALL, "--output_dir", str(folder)]
        killed = runner.run(own, changes=changes).status == -signal.SIGKILL
        check_whole(folder)
        # A finished run is refused (2); what a kill left beside it is removed all the same.
        assert not killed or runner.run(goes_on(folder, own)).status in (0, 2)
        assert left_by(folder) == left_by(whole), f"killed after {changes} changes"
        changes += changes_between
    assert changes > LEAST_CHANGES, "few runs were killed"


class Launched(NamedTuple):
    """A run of two processes.

    Attributes:
        process: the launcher.
        log: what the run prints.
    """

    process: subprocess.Popen
    log: Path


def launch(words: list[str], log: Path) -> Launched:
    """Start a run of two processes on the CPU."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "longhand.train"]
    with log.open("w") as printed:
        return Launched(subprocess.Popen([sys.executable, *launcher, *words], stdout=printed, stderr=printed), log)


def finish(words: list[str], log: Path) -> None:
    """Run to the end; the command may find that all was written already."""
    launched = launch(words, log)
    status = launched.process.wait(timeout=300)
    assert status == 0 or "finished run" in log.read_text(), log.read_text()[-2000:]


def kill(launched: Launched) -> None:
    """Kill the launcher and both processes, which have sessions of their own."""
    launcher = psutil.Process(launched.process.pid)
    family = [launcher, *launcher.children(recursive=True)]
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    launched.process.wait()
    psutil.wait_procs(family)


@pytest.mark.release
def test_two_processes_train_as_one_and_random_kills_change_nothing(runner, tmp_path):
    generator = random.Random(20261125)
    words = [*SMALL, *LEARNED, *MIXED, "--use_cpu", "True"]
    whole, folder = tmp_path / "whole" / "run", tmp_path / "killed" / "run"
    began = time.monotonic()
    finish([*words, "--output_dir", str(whole)], tmp_path / "whole.log")
    seconds = time.monotonic() - began
    own = [*words, "--output_dir", str(folder)]
    for number in range(KILLS_OF_TWO):
        launched = launch(goes_on(folder, own), tmp_path / f"{number}.log")
        # The first half of its time is imports.
        time.sleep(generator.uniform(0.4, 0.95) * seconds)
        kill(launched)
        if folder.exists():
            check_whole(folder)
    finish(goes_on(folder, own), tmp_path / "last.log")
    assert left_by(folder) == left_by(whole)
    one = tmp_path / "one" / "run"
    assert runner.run([*words, "--output_dir", str(one)]).status == 0
    alone, together = (load_file(place / "model.safetensors") for place in (one, whole))
    for name in alone:
        torch.testing.assert_close(alone[name], together[name], rtol=1e-3, atol=1e-4)
