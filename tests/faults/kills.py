"""Kills at random moments: of training, evaluation, certification, dataset building and pushes.

    python tests/faults/kills.py --minutes 60 --seed 7

A job runs once undisturbed. Then it is started again and again. Each time SIGKILL, SIGTERM or SIGINT cuts it off after a
random share of its time, and it is finished: by `--resume` or by the same command. What it leaves must be what the
undisturbed one left, to the byte, apart from seconds. A command that hears SIGINT must not end with a traceback.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

from loopback_hub import LoopbackHub

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
TINY = [
    *("addition", "--hidden_size", "16", "--intermediate_size", "32", "--batch_size", "8", "--max_length", "3"),
    *("--validation_lengths", "3", "4", "--validation_samples", "4", "--test_lengths", "4", "--test_samples", "4"),
    *("--max_steps", "60", "--eval_steps", "10", "--until_certified", "False"),
]
SECONDS_OF_ROWS = re.compile(rb'"(run_)?seconds": [0-9.]+')
LIMIT = 60
"""Seconds after which a job hangs."""


def files_below(folder: Path) -> dict[str, str]:
    """The hash of every file, without seconds; files that a kill may leave under a temporary name are left out."""
    hashes = {}
    for file in sorted(folder.rglob("*")):
        # Pictures and cards show seconds or dates in more than one form.
        if file.is_file() and file.suffix not in (".partial", ".png", ".lock") and file.name != "README.md":
            content = SECONDS_OF_ROWS.sub(b"", file.read_bytes())
            hashes[str(file.relative_to(folder))] = hashlib.sha256(content).hexdigest()
    return hashes


@dataclass(frozen=True)
class Job:
    """A job that leaves something in a folder.

    Attributes:
        start: runs it.
        finish: runs what a user would run after a kill.
        left: what it left, to be compared.
        is_command: whether it ends with one line on SIGINT, as commands do.
    """

    start: Callable[[Path], Any]
    finish: Callable[[Path], Any]
    left: Callable[[Path], Any] = files_below
    is_command: bool = True


def train_job(folder: Path) -> None:
    from longhand import train

    train.main([*TINY, "--output_dir", str(folder / "run")])


def resume_job(folder: Path) -> None:
    """Resume; a folder in which no run was begun is not resumed but run again, and a finished one is left as it is."""
    from longhand import train

    if not (folder / "run" / "recipe.yaml").exists():
        return train_job(folder)
    if (folder / "run" / "README.md").exists() and not (folder / "run" / "checkpoints").exists():
        return None
    return train.main([*TINY, "--resume", "--output_dir", str(folder / "run")])


def make_jobs(certified: Path, hub: LoopbackHub) -> dict[str, Job]:
    def evaluate(folder: Path) -> None:
        from longhand import eval as evaluation

        options = ["--lengths", "3,30,60", "--num_samples", "300", "--output_dir", str(folder / "out")]
        evaluation.main([str(certified), *options])

    def certify(folder: Path) -> None:
        from longhand import eval as evaluation

        copy = folder / "addition"
        if not (copy / "README.md").exists():
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(certified, copy, ignore=shutil.ignore_patterns("README.md", "certificate.json"))
            shutil.copy(certified / "README.md", copy)
        evaluation.main([str(copy), "--certify", "--output_dir", str(folder / "out")])

    def build(folder: Path) -> None:
        from longhand.data import load_task_dataset

        rows = load_task_dataset("addition", max_length=6, num_samples=150_000, seed=3, cache_dir=str(folder / "cache"))
        text = f"{rows.num_rows} {rows[:500]} {rows[-500:]}"
        (folder / "rows.sha256").write_text(hashlib.sha256(text.encode()).hexdigest())

    def push(folder: Path) -> None:
        from longhand.hub_cards import push as command

        command.main(["model", str(certified), f"user/{folder.name}", "--yes"])

    def pushed(folder: Path) -> dict[str, str]:
        repository = hub.repositories["model", f"user/{folder.name}"]
        name = folder.name.encode()
        return {
            path: hashlib.sha256(content.replace(name, b"NAME")).hexdigest()
            for path, content in repository.head.files.items()
            if not path.endswith(".png")
        }

    return {
        "training": Job(train_job, resume_job),
        "evaluation": Job(evaluate, evaluate),
        "certification": Job(certify, certify),
        "dataset": Job(build, build, lambda folder: (folder / "rows.sha256").read_text(), is_command=False),
        "push": Job(push, push, pushed),
    }


def fork(work: Callable[[Path], Any], folder: Path, log: Path) -> int:
    """Run in a process of its own that has imported everything already; return its id."""
    if child := os.fork():
        return child
    status = 70
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        work(folder)
        status = 0
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def wait(child: int, seconds: float = LIMIT) -> int | None:
    """Return the exit status, negative for a signal; None after the time limit, when it is killed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def last_line(log: Path) -> str:
    return (log.read_text().strip().splitlines() or [""])[-1][:160]


def undisturbed(job: Job, folder: Path) -> tuple[float, Any]:
    """Run a job; return its seconds and what it left."""
    folder.mkdir()
    began = time.monotonic()
    status = wait(fork(job.start, folder, folder.with_suffix(".log")))
    if status != 0:
        raise RuntimeError(f"the undisturbed job ended with {status}: {last_line(folder.with_suffix('.log'))}")
    return time.monotonic() - began, job.left(folder)


def kill_once(job: Job, folder: Path, number: signal.Signals, delay: float, reference: Any) -> str | None:
    """Cut a job off and finish it; return what is wrong then."""
    folder.mkdir()
    log = folder.with_suffix(".log")
    child = fork(job.start, folder, log)
    time.sleep(delay)
    os.kill(child, number)
    status = wait(child)
    if status is None:
        return f"a hang after {number.name}"
    if number == signal.SIGINT and job.is_command and "Traceback" in log.read_text():
        return f"a traceback after SIGINT: {last_line(log)}"
    status = wait(fork(job.finish, folder, log))
    if status != 0:
        return f"cannot be finished (exit status {status}): {last_line(log)}".replace(str(folder), "FOLDER")
    left = job.left(folder)
    if left == reference:
        return None
    if not isinstance(left, dict):
        return "leaves other data"
    different = sorted(name for name in {*left, *reference} if left.get(name) != reference.get(name))
    return f"leaves other files: {', '.join(different)[:200]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--kills", type=int, help="stop after so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", nargs="+", help="names of jobs; by default all")
    parser.add_argument("--certified", type=Path, required=True, help="folder of a certified adder")
    options = parser.parse_args()
    generator = np.random.default_rng(options.seed)
    end = time.monotonic() + 60 * options.minutes
    with LoopbackHub() as hub, tempfile.TemporaryDirectory() as place:
        os.environ.update(hub.environment(Path(place, "home"), hub.add_token("secret", "user")))
        # Imported now, when the endpoint is known, and before the processes are forked.
        import longhand.eval
        import longhand.hub_cards.push
        import longhand.train

        assert longhand.eval and longhand.train and longhand.hub_cards.push
        jobs = make_jobs(options.certified.resolve(), hub)
        jobs = {name: jobs[name] for name in options.jobs or jobs}
        references = {name: undisturbed(job, Path(place, f"{name}-0")) for name, job in jobs.items()}
        found: Counter[str] = Counter()
        killed = 0
        while time.monotonic() < end and killed != options.kills:
            name = list(jobs)[killed % len(jobs)]
            number = SIGNALS[int(generator.integers(len(SIGNALS)))]
            seconds, reference = references[name]
            delay = float(generator.random() * seconds)
            killed += 1
            folder = Path(place, f"{name}-{killed}")
            if (wrong := kill_once(jobs[name], folder, number, delay, reference)) is not None:
                if not found[f"{name}: {wrong}"]:
                    case = {"job": name, "signal": number.name, "delay": round(delay, 3), "fault": wrong}
                    print(json.dumps(case), flush=True)
                found[f"{name}: {wrong}"] += 1
            shutil.rmtree(folder)
    print(f"{killed} kills of {', '.join(f'{name} ({seconds:.1f} s)' for name, (seconds, _) in references.items())}")
    for wrong, count in found.most_common():
        print(f"{count:6d}  {wrong}")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
