"""Rows of a dataset in Arrow on one core, beside rows of the same sums made one by one in Python. Prints rates and a ratio.

python tests/benchmarks/builder.py --output results.json
"""

import argparse
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import torch
from baseline import example
from bench import MAX_POSITION, compare

from longhand.data.builder import TaskDatasetBuilder


def builder(rounds: int) -> dict:
    """Sums of 1 to 30 digits with all columns; one shard of 65,536 rows against 4,096 rows of two columns."""
    torch.set_num_threads(1)
    size = 4096
    with TemporaryDirectory() as folder:
        task_dataset = TaskDatasetBuilder(
            cache_dir=folder, task="addition", max_length=30, num_samples={"train": 10**9}, seed=0
        )
        shards = iter(range(10**4))

        def ours():
            ((_, table),) = task_dataset._generate_tables("train", [next(shards)])
            return len(table)

        def baseline():
            tokens, ids, _ = zip(*(example(30, MAX_POSITION) for _ in range(size)), strict=True)
            return len(pa.table({"tokens": pa.array(tokens), "position_ids": pa.array(ids)}))

        return compare("builder", ours, baseline, "rows", rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    result = builder(options.rounds)
    if options.output:
        options.output.write_text(json.dumps(result) + "\n")
