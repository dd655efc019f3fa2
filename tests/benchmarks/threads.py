"""Training steps a second with one thread and with more, for models of several sizes, on a quiet and on a busy machine.

python tests/benchmarks/threads.py --output hub_cards/results/threads.jsonl

The rule of `hub_cards/starting.py` takes a thread for each so many parameters. It fits if more threads than it takes save
less than a tenth of the time, in every row. Steps take turns, and the least of the rounds counts. Rows come twice: with
the machine as it is, and beside processes of this benchmark that compute without pause, one for each processor. Each row
says how many processes the machine ran on average in the minute before. On a quiet machine, that is 1 in the first rows.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Process
from pathlib import Path
from tempfile import TemporaryDirectory

from longhand.hub_cards.starting import helpful_threads

# isort: split
import torch

from longhand.hub_cards.training.arguments import parse_run
from longhand.train import make_trainer

RECIPES = (
    "addition-tiny",
    "addition",
    "encoder-addition-settling",
    "encoder-addition",
    "addition-absolute",
    "paper-addition",
)


def measure(recipe: str, most: int, neighbours: int, rounds: int) -> list[dict]:
    with TemporaryDirectory() as folder:
        trainer = make_trainer(parse_run([recipe, "--output_dir", f"{folder}/run", "--use_cpu", "True"]))
    model, batch = trainer.model.train(), trainer.train_dataset[0]
    parameters = sum(weights.numel() for weights in model.parameters())
    numbers = [2**power for power in range(most.bit_length()) if 2**power <= most]
    seconds: dict[int, list[tuple[float, float]]] = {threads: [] for threads in numbers}
    for _ in range(rounds + 1):
        for threads, found in seconds.items():
            torch.set_num_threads(threads)
            clock, processor = time.perf_counter(), time.process_time()
            model(**batch).loss.backward()
            found.append((time.perf_counter() - clock, time.process_time() - processor))
    rows = []
    for threads, found in seconds.items():
        clock, processor = (min(part) for part in zip(*found[1:], strict=True))
        row = {"recipe": recipe, "parameters": parameters, "taken": helpful_threads(parameters, most), "threads": threads}
        row |= {"per_second": round(1 / clock, 2), "processor_seconds": round(processor, 5), "neighbours": neighbours}
        rows.append(row | {"load": round(os.getloadavg()[0], 1), "hardware": f"{platform.machine()} CPU, {most} processors"})
    return rows


def compute() -> None:
    """Compute without pause."""
    while True:
        pass


@contextmanager
def busy(neighbours: int) -> Iterator[None]:
    """Let so many processes compute meanwhile."""
    processes = [Process(target=compute, daemon=True) for _ in range(neighbours)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
            process.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    most = len(os.sched_getaffinity(0))
    results = []
    for neighbours in (0, most):
        with busy(neighbours):
            for recipe in RECIPES:
                for row in measure(recipe, most, neighbours, options.rounds):
                    results.append(row)
                    print(json.dumps(row), flush=True)
                    if options.output:
                        options.output.write_text("".join(json.dumps(each) + "\n" for each in results))
