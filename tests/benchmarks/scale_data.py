"""Datasets of every task: seconds, bytes on disk and peak memory of a million rows, by one process, for some tasks by two;
and what it costs a process to begin in the middle of a dataset.

python tests/benchmarks/scale_data.py --output hub_cards/results/scale-data.jsonl
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import datasets
import psutil
import torch

from longhand.data import load_task_dataset
from longhand.data.builder import TaskDatasetBuilder
from longhand.data.shards import DISTINCT_SHARDS
from longhand.hub_cards.publishing.collection import SHORT, configurations, own_tasks
from longhand.hub_cards.publishing.dataset_files import GeneratedDataset
from longhand.hub_cards.runs.evaluation import hardware

ROWS, FEWER, MOST_SECONDS = 1_000_000, 250_000, 40
"""A task whose million rows would take more seconds makes fewer."""
PROBE, WRITTEN, HUGE = 2**16, 100_000, 10**10
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


def in_a_process(*words: str) -> dict:
    done = subprocess.run([sys.executable, __file__, "--one", *words], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1]) | {"hardware": hardware(torch.device("cpu"))}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--one", nargs="+", metavar="WORD", help="measure in this process")
    parser.add_argument("--tasks", nargs="+", choices=own_tasks(), default=own_tasks())
    parser.add_argument("--output", type=Path, help="rows of other tasks in it are kept")
    options = parser.parse_args()
    torch.set_num_threads(1)
    datasets.disable_progress_bars()
    if options.one:
        task, *more = options.one
        print(json.dumps(open_again(task) if more == ["open"] else build(task, *map(int, more)) if more else begin(task)))
        sys.exit()
    kept = options.output.read_text().splitlines() if options.output and options.output.exists() else []
    rows = [row for row in map(json.loads, kept) if row["task"] not in options.tasks]
    for task in options.tasks:
        slow = in_a_process(task, str(PROBE), "1")["core_seconds"] * ROWS / PROBE > MOST_SECONDS
        count = FEWER if slow else ROWS
        for num_proc in (1, 2) if task in TWO_PROCESSES else (1,):
            rows.append(in_a_process(task, str(count), str(num_proc)))
            print(rows[-1], flush=True)
        if task in TWO_PROCESSES:
            rows.append(in_a_process(task))
            print(rows[-1], flush=True)
        if task == "addition":
            rows.append(in_a_process(task, "open"))
            print(rows[-1], flush=True)
        if options.output:
            options.output.write_text("".join(json.dumps(row) + "\n" for row in rows))
