"""Datasets of every task: seconds, bytes on disk and peak memory of a million rows, by one process, for some tasks by two;
and what it costs a process to begin in the middle of a dataset.

python tests/benchmarks/scale_data.py --output hub_cards/results/scale-data.jsonl
"""

import argparse
import json
import os
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import datasets
import psutil
import torch

from longhand.data import load_task_dataset
from longhand.data.builder import TaskDatasetBuilder
from longhand.data.shards import DISTINCT_SHARDS
from longhand.hub_cards.evaluation.results import hardware
from longhand.hub_cards.publishing.collection import SHORT, configurations, own_tasks
from longhand.hub_cards.publishing.dataset import GeneratedDataset

ROWS, FEWER, MOST_SECONDS = 1_000_000, 250_000, 40
"""A task whose million rows would take more seconds makes fewer."""
PROBE, WRITTEN, HUGE = 2**16, 100_000, 10**10
TIMES = ("seconds", "core_seconds", "parquet_core_seconds", "first", "alone", "next")
"""What other work on the machine makes longer."""
TWO_PROCESSES = ("addition", "multiplication_scratchpad", "minesweeper")


def used() -> float:
    """Processor seconds of this process and of those that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def build(task: str, rows: int, num_proc: int) -> dict:
    """Make the rows of a task's short configuration in this process, or in processes of its own."""
    sizes = {**configurations(task)[SHORT], "num_samples": rows, "num_proc": num_proc}
    with TemporaryDirectory() as place:
        before, began = used(), time.perf_counter()
        made = load_task_dataset(task, split="train", cache_dir=place, **sizes)
        row = {"what": "rows", "task": task, "rows": rows, "num_proc": num_proc, "seconds": time.perf_counter() - began}
        row |= {"core_seconds": used() - before}
        row["arrow_bytes"] = sum(file.stat().st_size for file in Path(place).rglob("*.arrow"))
        usage = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        written, parquet, before = min(WRITTEN, rows), Path(place, "rows.parquet"), used()
        made.select(range(written)).to_parquet(parquet)
        row["parquet_core_seconds"] = (used() - before) / written * rows
        row["parquet_bytes"] = round(parquet.stat().st_size / written * rows)
    return row | {"peak_bytes": usage * 1024}


def begin(task: str) -> dict:
    """Draw a shard in the middle of a dataset alone, with the shards that it must know of, and with those known."""
    sizes = configurations(task)[SHORT]
    builder = TaskDatasetBuilder(task=task, min_length=sizes["min_length"], max_length=sizes["max_length"],
                                 num_samples={"train": 2 * DISTINCT_SHARDS * 2**16})  # fmt: skip
    shards, seconds = builder.shards["train"], []
    for shard in (0, DISTINCT_SHARDS - 2, DISTINCT_SHARDS - 1):
        before = used()
        shards.draw(shard)
        seconds.append(used() - before)
    keys = shards._drawn[1]
    return {"what": "begin", "task": task, "first": seconds[0], "alone": seconds[1], "next": seconds[2],
            "short": len(keys), "key_bytes": keys.nbytes, "shard_rows": shards.shard_rows}  # fmt: skip


def open_again(task: str, batches: int = 4, times: int = 250) -> dict:
    """Open a dataset many times: the memory that each of its record batches takes; and count the files of a huge dataset."""
    with TemporaryDirectory() as place:
        load_task_dataset(task, max_length=30, num_samples=batches * PROBE, cache_dir=place)
        (file,) = Path(place).rglob("*.arrow")
        opened = [datasets.Dataset.from_file(str(file))]
        before = psutil.Process().memory_full_info().uss
        opened += [datasets.Dataset.from_file(str(file)) for _ in range(times)]
        taken = (psutil.Process().memory_full_info().uss - before) / times / len(opened[0].data.to_batches())
    files = GeneratedDataset(task, {"all": {"max_length": 30}}, {"train": HUGE}).files()
    return {"what": "open", "task": task, "bytes_per_batch": taken, "rows": HUGE, "files": len(files)}


def alone(work: Callable[..., dict], *arguments) -> dict:
    """What work measures in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        row = pool.submit(work, *arguments).result() | {"hardware": hardware(torch.device("cpu"))}
    print(row, flush=True)
    return row


def fastest(row: dict, earlier: list[dict]) -> dict:
    """The row with the least of its times and of those that were measured earlier."""
    same = [one for one in earlier if all(one.get(name) == row.get(name) for name in ("what", "task", "rows", "num_proc"))]
    return row | {name: min(one.get(name, row[name]) for one in [row, *same]) for name in TIMES if name in row}


def measure(task: str) -> list[dict]:
    slow = alone(build, task, PROBE, 1)["core_seconds"] * ROWS / PROBE > MOST_SECONDS
    processes = (1, 2) if task in TWO_PROCESSES else (1,)
    rows = [alone(build, task, FEWER if slow else ROWS, num_proc) for num_proc in processes]
    rows += [alone(begin, task)] if task in TWO_PROCESSES else []
    return rows + ([alone(open_again, task)] if task == "addition" else [])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=own_tasks(), default=own_tasks())
    parser.add_argument("--output", type=Path, help="rows of other tasks in it are kept, and shorter times")
    options = parser.parse_args()
    torch.set_num_threads(1)
    datasets.disable_progress_bars()
    for task in options.tasks:
        measured = measure(task)
        if options.output:
            kept = options.output.read_text().splitlines() if options.output.exists() else []
            earlier = list(map(json.loads, kept))
            rows = [row for row in earlier if row["task"] != task] + [fastest(row, earlier) for row in measured]
            options.output.write_text("".join(json.dumps(row) + "\n" for row in rows))
