"""Kills at random moments: of training, evaluation, certification, dataset building and pushes; and two jobs at once.

    python tests/faults/kills.py --minutes 60 --seed 7 --output hub_cards/results/faults/kills.jsonl

A job runs once undisturbed. Then it is disturbed again and again. SIGKILL, SIGTERM or SIGINT cuts it off after a random
share of its time; sometimes a file of its newest checkpoint is then damaged; and it is finished, by `--resume` or the same
command. Or the same job is started twice in one folder: one may be refused, in one line. What is left must be what the
undisturbed job left, to the byte, apart from seconds. A command that hears SIGINT must not end with a traceback.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

from loopback_hub import LoopbackHub

if TYPE_CHECKING:  # Imported when the endpoint of the Hub is known.
    from faults.jobs import Job

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
STATES = ("optimizer.pt", "rng_state.pth", "scheduler.pt", "trainer_state.json", "model.safetensors", "config.json")
LIMIT = 60
"""Seconds after which a job hangs."""


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


def around_traceback(log: Path) -> str:
    """What a log says in the lines before and after its first traceback."""
    before, _, after = log.read_text().partition("Traceback")
    return f"{before[-200:]}Traceback{after[:600]} ... {after[-200:]}"


def undisturbed(job: "Job", folder: Path) -> tuple[float, Any]:
    """Run a job; return its seconds and what it left."""
    folder.mkdir()
    job.prepare(folder)
    began = time.monotonic()
    log = folder.with_suffix(".log")
    if (status := wait(fork(job.start, folder, log))) != 0:
        raise RuntimeError(f"the undisturbed job ended with {status}: {last_line(log)}")
    return time.monotonic() - began, job.left(folder)


def kill(job: "Job", folder: Path, case: dict[str, Any]) -> str | None:
    """Cut a job off, damage its newest checkpoint if the case says so, and finish it; return what is wrong then."""
    log, number = folder.with_suffix(".log"), signal.Signals[case["signal"]]
    child = fork(job.start, folder, log)
    time.sleep(case["delay"])
    os.kill(child, number)
    if wait(child) is None:
        return f"a hang after {number.name}"
    if number == signal.SIGINT and job.is_command and "Traceback" in log.read_text():
        return f"a traceback after SIGINT: {around_traceback(log)}"
    if case.get("damage"):
        damage(folder, case["damage"], case["truncate"])
    if (status := wait(fork(job.finish, folder, log))) != 0:
        return f"cannot be finished (exit status {status}): {last_line(log)}"
    return None


def damage(folder: Path, name: str, truncate: bool) -> None:
    """Remove or halve a file of the newest checkpoint below a folder, if there is one."""
    checkpoints = sorted(folder.rglob("checkpoint-*"), key=lambda checkpoint: int(checkpoint.name.rpartition("-")[2]))
    if not checkpoints or not (file := checkpoints[-1] / name).exists():
        return
    content = file.read_bytes()
    file.unlink()
    if truncate:
        file.write_bytes(content[: len(content) // 2])


def start_twice(job: "Job", folder: Path, case: dict[str, Any]) -> str | None:
    """Start a job twice; return what is wrong. One or both end well; the other one is refused in one line."""
    logs = [folder.with_suffix(".log"), folder.with_suffix(".second.log")]
    first = fork(job.start, folder, logs[0])
    time.sleep(case["delay"])
    statuses = [wait(first_or_second) for first_or_second in (first, fork(job.start, folder, logs[1]))]
    for status, log in zip(statuses, logs, strict=True):
        if status != 0 and (status != 2 or "Traceback" in log.read_text() or not last_line(log).startswith("error: ")):
            return f"two at once: one ends with {status}: {last_line(log)}"
    return None if 0 in statuses else f"two at once: both are refused: {last_line(logs[0])}"


def disturb(job: "Job", folder: Path, case: dict[str, Any], reference: Any) -> str | None:
    """Disturb a job as a case says; return what is wrong in the end."""
    folder.mkdir()
    job.prepare(folder)
    wrong = (start_twice if case["how"] == "twice" else kill)(job, folder, case)
    if wrong is not None:
        return wrong.replace(str(folder), "FOLDER")
    left = job.left(folder)
    if left == reference:
        return None
    after = "two at once" if case["how"] == "twice" else "a kill"
    if not isinstance(left, dict):
        return f"{after} leaves other data"
    different = sorted(name for name in {*left, *reference} if left.get(name) != reference.get(name))
    return f"{after} leaves other files: {', '.join(different)[:200]}"


def make_case(generator: np.random.Generator, seconds: float, trains: bool) -> dict[str, Any]:
    """How a job of so many seconds is disturbed: killed, killed and damaged, or started twice."""
    how = str(generator.choice(["kill", "kill", "damage" if trains else "kill", "twice"]))
    share = generator.random() * (0.5 if how == "twice" else 1)
    # Before that, a job may not have come to its command.
    case = {"how": how, "delay": round(max(0.02, float(share * seconds)), 3)}
    if how != "twice":
        case["signal"] = SIGNALS[int(generator.integers(len(SIGNALS)))].name
    if how == "damage":
        case |= {"damage": str(generator.choice(STATES)), "truncate": bool(generator.random() < 0.5)}
    return case


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--kills", type=int, help="stop after so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", nargs="+", help="names of jobs; by default all")
    parser.add_argument("--certified", type=Path, help="folder of a certified adder; by default one is trained")
    parser.add_argument("--output", type=Path, help="results file to write")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    generator = np.random.default_rng(options.seed)
    counts: Counter[tuple[str, str]] = Counter()
    found: Counter[str] = Counter()
    with LoopbackHub() as hub, tempfile.TemporaryDirectory() as place:
        os.environ.update(hub.environment(Path(place, "home"), hub.add_token("secret", "user")))
        # Imported now, when the endpoint is known, and before the processes are forked.
        import torch
        from faults.jobs import make_jobs
        from faults.subjects import train_certified

        from longhand.hub_cards.evaluation.results import hardware, write_results

        certified = (options.certified or train_certified(Path(place, "addition"))).resolve()
        jobs = make_jobs(certified, hub)
        jobs = {name: jobs[name] for name in options.jobs or jobs}
        references = {name: undisturbed(job, Path(place, f"{name.replace(' ', '-')}-0")) for name, job in jobs.items()}
        end, tried = time.monotonic() + 60 * options.minutes, 0
        while time.monotonic() < end and tried != options.kills:
            name = list(jobs)[tried % len(jobs)]
            seconds, reference = references[name]
            case, tried = make_case(generator, seconds, "training" in name), tried + 1
            folder = Path(place, f"{name.replace(' ', '-')}-{tried}")
            counts[name, case["how"]] += 1
            if (wrong := disturb(jobs[name], folder, case, reference)) is not None:
                counts[name, "faults"] += 1
                if not found[f"{name}: {wrong}"]:
                    print(json.dumps({"job": name, **case, "fault": wrong}), flush=True)
                found[f"{name}: {wrong}"] += 1
            shutil.rmtree(folder)
        more = {"seed": options.seed, "minutes": options.minutes, "hardware": hardware(torch.device("cpu"))}
        hows = ("kill", "damage", "twice", "faults")
        rows = [{"job": name, **{how: counts[name, how] for how in hows}, **more} for name in jobs]
        if options.output:
            write_results(rows, options.output)
    print(f"{'job':<20}  seconds  killed  killed and damaged  started twice  faults")
    for row in rows:
        seconds, _ = references[row["job"]]
        print("{job:<20} {:8.1f} {kill:7,} {damage:19,} {twice:14,} {faults:7,}".format(seconds, **row))
    for wrong, count in found.most_common():
        print(f"{count:6d}  {wrong}")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
