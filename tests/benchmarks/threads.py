"""Seconds of a training step by the clock and of the processor, with one thread and with more, for models of several sizes.

python tests/benchmarks/threads.py

The rule of `hub_cards/threads.py` takes a thread for each so many parameters. It fits if more threads than it takes save
less than a tenth of the time, in every row. To be run on a machine that does nothing else: steps take turns, and the least
of the rounds counts.
"""

import argparse
import json
import time
from tempfile import TemporaryDirectory

from longhand.hub_cards.threads import helpful_threads

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
ROUNDS = 5


def measure(recipe: str, most: int) -> list[dict]:
    with TemporaryDirectory() as folder:
        trainer = make_trainer(parse_run([recipe, "--output_dir", f"{folder}/run", "--use_cpu", "True"]))
    model, batch = trainer.model.train(), trainer.train_dataset[0]
    parameters = sum(weights.numel() for weights in model.parameters())
    numbers = [2**power for power in range(most.bit_length()) if 2**power <= most]
    seconds: dict[int, list[tuple[float, float]]] = {threads: [] for threads in numbers}
    for _ in range(ROUNDS + 1):
        for threads, found in seconds.items():
            torch.set_num_threads(threads)
            clock, processor = time.perf_counter(), time.process_time()
            model(**batch).loss.backward()
            found.append((time.perf_counter() - clock, time.process_time() - processor))
    rows = []
    for threads, found in seconds.items():
        clock, processor = (round(min(part), 5) for part in zip(*found[1:], strict=True))
        row = {"recipe": recipe, "parameters": parameters, "taken": helpful_threads(parameters, most), "threads": threads}
        rows.append(row | {"seconds": clock, "processor_seconds": processor})
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.parse_args()
    most = torch.get_num_threads()
    for recipe in RECIPES:
        for row in measure(recipe, most):
            print(json.dumps(row), flush=True)
