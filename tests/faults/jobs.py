"""Jobs that leave something in a folder: how they are started, finished after a kill, and compared."""

import hashlib
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopback_hub import LoopbackHub

from longhand import eval as evaluation
from longhand import train
from longhand.data import load_task_dataset
from longhand.hub_cards import push

SIZES = [
    *("--hidden_size", "16", "--intermediate_size", "32", "--batch_size", "8", "--validation_samples", "4"),
    *("--validation_lengths", "3", "4", "--test_lengths", "4", "--test_samples", "4", "--max_steps", "60"),
]
TINY = ["addition", "--max_length", "3", "--eval_steps", "10", "--until_certified", "False", *SIZES]
CERTIFIED = ["copy", "--max_length", "6", "--eval_steps", "5", *SIZES, "--hidden_size", "32", "--batch_size", "64"]
SECONDS = re.compile(rb'"(run_)?seconds": [0-9.]+')


def files_below(folder: Path) -> dict[str, str]:
    """The hash of every file, without seconds and names; what a kill may leave under a temporary name is left out."""
    hashes = {}
    for file in sorted(folder.rglob("*")):
        is_temporary = any(part.endswith((".partial", ".lock")) for part in file.relative_to(folder).parts)
        if file.is_file() and not is_temporary:
            content = SECONDS.sub(b"", file.read_bytes()).replace(os.fsencode(folder), b"FOLDER")
            content = content.replace(os.fsencode(folder.name), b"NAME")
            hashes[str(file.relative_to(folder))] = hashlib.sha256(content).hexdigest()
    return hashes


@dataclass(frozen=True)
class Job:
    """A job that leaves something in a folder.

    Attributes:
        start: runs it.
        finish: runs what a user would run after a kill.
        prepare: makes what it starts from.
        left: what it left, to be compared.
        is_command: whether it ends with one line on SIGINT, as commands do.
    """

    start: Callable[[Path], Any]
    finish: Callable[[Path], Any]
    prepare: Callable[[Path], Any] = lambda folder: None
    left: Callable[[Path], Any] = files_below
    is_command: bool = True


def is_finished(run: Path) -> bool:
    return (run / "README.md").exists() and not (run / "checkpoints").exists()


def training_job(words: list[str]) -> Job:
    """A run, resumed after a kill; a folder in which none was begun is run again, and a finished one is left as it is."""

    def start(folder: Path) -> None:
        train.main([*words, "--output_dir", str(folder / "run")])

    def finish(folder: Path) -> None:
        if not (folder / "run" / "recipe.yaml").exists():
            start(folder)
        elif not is_finished(folder / "run"):
            train.main([*words, "--resume", "--output_dir", str(folder / "run")])

    return Job(start, finish)


def pushed_training_job(pushed: Callable[[Path], dict[str, str]]) -> Job:
    """A run that is pushed at its end. After a kill, `--resume` pushes too."""

    def command(folder: Path, *more: str) -> None:
        push_options = ("--push_to_hub", "--hub_model_id", f"user/{folder.name}")
        train.main([*TINY, *push_options, *more, "--output_dir", str(folder / "run")])

    def finish(folder: Path) -> None:
        if not (folder / "run" / "recipe.yaml").exists():
            return command(folder)
        try:
            command(folder, "--resume")
        except SystemExit as stop:
            # A run that was pushed before the kill leaves nothing to do. `left` shows whether it was.
            if stop.code != 2 or not is_finished(folder / "run"):
                raise
        return None

    return Job(command, finish, left=lambda folder: {**files_below(folder), **pushed(folder)})


def make_jobs(certified: Path, hub: LoopbackHub) -> dict[str, Job]:
    """All jobs by name.

    Args:
        certified: folder of a certified adder.
    """

    def evaluate(folder: Path) -> None:
        options = ["--lengths", "3,30,60", "--num_samples", "300", "--output_dir", str(folder / "out")]
        evaluation.main([str(certified), *options])

    def copy_uncertified(folder: Path) -> None:
        shutil.copytree(certified, folder / "addition", ignore=shutil.ignore_patterns("certificate.json"))

    def certify(folder: Path) -> None:
        evaluation.main([str(folder / "addition"), "--certify", "--output_dir", str(folder / "out")])

    def build(folder: Path) -> None:
        rows = load_task_dataset("addition", max_length=6, num_samples=150_000, seed=3, cache_dir=str(folder / "cache"))
        text = f"{rows.num_rows} {rows[:500]} {rows[-500:]}"
        (folder / "rows.sha256").write_text(hashlib.sha256(text.encode()).hexdigest())

    def push_model(folder: Path) -> None:
        push.main(["model", str(certified), f"user/{folder.name}", "--yes"])

    def pushed(folder: Path) -> dict[str, str]:
        repository = hub.repositories.get(("model", f"user/{folder.name}"))
        files = repository.head.files if repository else {}
        names = [(os.fsencode(folder), b"FOLDER"), (os.fsencode(folder.name), b"NAME")]
        hashes = {}
        for path, content in files.items():
            content = SECONDS.sub(b"", content)
            for name, instead in names:
                content = content.replace(name, instead)
            hashes[f"hub/{path}"] = hashlib.sha256(content).hexdigest()
        return hashes

    return {
        "training": training_job(TINY),
        "certified training": training_job(CERTIFIED),
        "pushed training": pushed_training_job(pushed),
        "evaluation": Job(evaluate, evaluate),
        "certification": Job(certify, certify, copy_uncertified),
        "dataset": Job(build, build, left=lambda folder: (folder / "rows.sha256").read_text(), is_command=False),
        "push": Job(push_model, push_model, left=pushed),
    }
