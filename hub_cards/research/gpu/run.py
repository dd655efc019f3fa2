"""What a GPU does with this package, in so many minutes: everything that is said of GPUs, tried on one.

python -m longhand.hub_cards.research gpu --minutes 15

  arithmetic    what the proofs assume: functions of torch on all numbers of float32, scores in each kernel of attention
  devices       every recipe's model against the CPU, in each precision
  structure     models of others with structure in three precisions, flex attention among them, against double precision
  runs          short runs of train.py in every way to train; pictures of attention
  memory        the largest validation batch and a training step of each recipe of the papers' sizes
  certificates  `addition` trained, certified and verified; certificates and proofs of lengths, equal to the CPU's
  processes     two processes equal to one; a run that is killed and resumed
  speed         steps a second and waits for the GPU in a step, in each precision, against GPT-2
  paper-scale   with what time is left, runs of the study of that name
  sentences     SmolLM2-135M answers sums in sentences: runs of the study of that name

All parts but the last three run beside each other, and then `speed` alone. Without a GPU, sizes are tiny and parts take
turns. All goes to OUTPUT/gpu.jsonl, a row for each measurement; what has a row without an error is not measured again, so
the same command goes on. hub_cards/RESULTS.md shows a file that is copied to hub_cards/results/gpu.jsonl.
"""

# Used by: hub_cards/research. Changed freely.

import argparse
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import torch

from longhand.hub_cards.research.gpu.record import RESULTS, Record, read_rows
from longhand.hub_cards.research.gpu.speed import with_ratios
from longhand.hub_cards.research.tables import render_table
from longhand.hub_cards.result_rows import Row, hardware, write_results

LOG = "gpu.log"
PARTS = {
    "arithmetic": "gpu.arithmetic.measure_part",
    "devices": "gpu.devices.run",
    "structure": "structured.precisions.measure_part",
    "runs": "gpu.runs.run",
    "memory": "gpu.memory.run",
    "certificates": "gpu.certificates.run",
    "processes": "gpu.processes.run",
    "speed": "gpu.speed.run",
    "paper-scale": "gpu.paper_runs.run",
    "sentences": "structured.sentences_on_gpu.measure_part",
}
"""The parts, in their order, and the function below `research` that measures each."""

BESIDE = ("arithmetic", "devices", "structure", "runs", "memory", "certificates", "processes")
"""The parts that may share a GPU: they measure no time that counts."""

WEIGHTS = dict.fromkeys(BESIDE, 3) | {"speed": 4, "paper-scale": 4, "sentences": 4}
"""Time is divided among what follows each other by these weights; what a part leaves over is for those after it."""

MOST_NAMED = 4
"""The most measurements with one fault that RESULTS.md names."""

SPARE = 15.0
"""Seconds before the end in which parts that have not ended are killed, and the results are put in order."""
GRACE = 5.0
"""Seconds that a part may take longer, to end what it has begun."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the script."""
    add = parser.add_argument
    add("--minutes", type=float, default=15.0, help="minutes in all (default: %(default)s)")
    add("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what is measured (default: all)")
    add("--output", type=Path, default=Path("outputs", "gpu"), help="folder of the results (default: %(default)s)")
    add("--worker", type=float, help=argparse.SUPPRESS)


def run(minutes: float, parts: list[str], output: Path, worker: float | None) -> None:
    """Measure parts, each in a process of its own, until time is over; put the results in order and say what failed.

    Args:
        worker: the `time.time()` until which this process measures the only part; None for the process that starts others.
    """
    small = not torch.cuda.is_available()
    output.mkdir(parents=True, exist_ok=True)
    if worker is not None:
        module, _, function = PARTS[parts[0]].rpartition(".")
        measure = getattr(import_module(f"longhand.hub_cards.research.{module}"), function)
        measure(Record(parts[0], output.resolve(), worker, small))
        return
    end = time.time() + 60 * minutes - SPARE
    chosen = [name for name in PARTS if name in parts]
    beside = [name for name in chosen if name in BESIDE]
    groups = [[name] for name in chosen] if small else [beside, *([name] for name in chosen if name not in BESIDE)]
    groups = [group for group in groups if group]
    try:
        for place, group in enumerate(groups):
            rest = sum(WEIGHTS[following[0]] for following in groups[place:])
            until = time.time() + (end - time.time()) * WEIGHTS[group[0]] / rest
            wait({name: start(name, output, until, len(group)) for name in group}, until + GRACE)
    finally:
        rows = with_ratios(in_order(read_rows(output)))
        write_results(rows, output / RESULTS)
    print(summary(rows))
    print(f"wrote {output / RESULTS}; on {hardware(torch.device('cpu' if small else 'cuda'))}")


def start(name: str, output: Path, until: float, at_once: int) -> subprocess.Popen:
    """Start a part in a process and a session of its own."""
    words = ["gpu", "--parts", name, "--output", str(output), "--worker", str(until)]
    command = [sys.executable, "-m", "longhand.hub_cards.research", *words]
    threads = max(1, (os.cpu_count() or 1) // (2 * at_once))
    environment = {"OMP_NUM_THREADS": str(threads), **os.environ, "PYTHONUNBUFFERED": "1"}
    print(f"{name}: begins, for {until - time.time():.0f} s at most", flush=True)
    with (output / LOG).open("a") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)


def wait(parts: dict[str, subprocess.Popen], until: float) -> None:
    """Wait until parts have ended; kill those whose time is over then, with all that they started."""
    try:
        for name, process in parts.items():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.time()))
            end = "its time is over" if process.returncode is None else f"ended, exit status {process.returncode}"
            print(f"{name}: {end}", flush=True)
    finally:
        for process in parts.values():
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def in_order(rows: list[Row]) -> list[Row]:
    """The last row of each measurement, by part."""
    last = {(row["part"], row["name"]): row for row in rows}
    return sorted(last.values(), key=lambda row: list(PARTS).index(row["part"]))


def summary(rows: list[Row]) -> str:
    """A line for each part, and one for each measurement that failed."""
    lines = []
    for part in PARTS:
        own = [row for row in rows if row["part"] == part]
        failed = [row for row in own if is_failed(row)]
        lines += [f"{part}: {len(own) - len(failed)} of {len(own)} measured without a fault"] if own else []
        lines += [f"  {row['name']}: {row.get('error') or row.get('faults') or 'differs'}" for row in failed]
    return "\n".join(lines)


def is_failed(row: Row) -> bool:
    """Whether a measurement broke off, or found what must not be."""
    return "error" in row or not all(row.get(name, True) for name in ("passed", "same", "certified", "verified"))


def faults_by_kind(failed: list[Row]) -> str:
    """What failed: each kind of fault with the names that have it, or their number if these are many."""
    names: dict[str, list[str]] = {}
    for row in failed:
        kind = "broke off" if "error" in row else ", ".join(row.get("faults", ())) or "differs"
        names.setdefault(kind, []).append(row["name"])
    lines = []
    for kind, found in names.items():
        shown = ", ".join(found) if len(found) <= MOST_NAMED else f"{len(found)} of them"
        lines.append(f"{kind}: {shown}")
    return "; ".join(lines)


def parts_block(rows: list[Row]) -> str:
    """A Markdown table of the parts: how much was measured, and what failed."""
    lines = []
    for part in PARTS:
        if own := [row for row in rows if row["part"] == part]:
            failed = [row for row in own if is_failed(row)]
            line = {"part": f"`{part}`", "measured": f"{len(own)}", "without a fault": f"{len(own) - len(failed)}"}
            seconds = sum(row.get("took", 0) for row in own)
            lines.append(line | {"seconds": f"{seconds:,.0f}", "failed": faults_by_kind(failed)})
    where = sorted({f"{row['hardware']}, torch {row['torch']}" for row in rows if "torch" in row})
    return render_table(lines, f"{'; '.join(where)}.") if lines else "No results yet.\n"
