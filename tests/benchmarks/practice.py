"""Steps and seconds to a certificate by two ways to practise what a check finds weak: a line for each run.

python tests/benchmarks/practice.py --seeds 1 2 3 --output hub_cards/results/practice.jsonl

`problems` is the way of the package: what is weak is practised in the shortest problems in which it occurs, if the task can
write such problems (sums, differences, strings, column tasks, encoders of a field). `listed` practises neighbourhoods and
cases as they are listed, whatever the task. Everything else of a recipe is the same. A run takes one thread and is cut off
after `SECONDS` of a processor.
"""

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from transformers import TrainerCallback
from transformers.utils import logging

from longhand import train
from longhand.data.machines.covering import CoveringCases, Listed, NeighbourhoodBatch, Practice
from longhand.hub_cards.training.arguments import parse_run

RECIPES = (
    "addition-short",
    "subtraction",
    "hex-addition",
    "addition",
    "comparison",
    "modular-arithmetic",
    "three-summands",
)
SECONDS = 300


class Stopwatch(TrainerCallback):
    """Stop a run after `SECONDS` of a processor."""

    def on_train_begin(self, args, state, control, **kwargs):
        self.began = time.process_time()

    def on_step_end(self, args, state, control, **kwargs):
        if time.process_time() - self.began > SECONDS:
            control.should_training_stop = True


def practise_as_listed(listed: NeighbourhoodBatch | CoveringCases, leads: np.ndarray, practice: Practice) -> None:
    """`Listed.practise` without problems."""
    WAYS["problems"][type(listed)](replace(listed, graph=None, paths=None), leads, practice)


WAYS = {
    "problems": {kind: kind.practise for kind in (NeighbourhoodBatch, CoveringCases)},
    "listed": dict.fromkeys((NeighbourhoodBatch, CoveringCases), practise_as_listed),
}


def measure(recipe: str, way: str, seed: int) -> dict[str, object]:
    """Train a recipe once by a way to practise; return the row."""
    kinds: dict[type[Listed], object] = {**WAYS[way]}
    for kind, practise in kinds.items():
        kind.practise = practise  # type: ignore[assignment, method-assign]
    words = [recipe, "--seed", str(seed), "--disable_tqdm", "True", "--use_cpu", "True"]
    with tempfile.TemporaryDirectory() as folder:
        run = parse_run([*words, "--output_dir", folder])
        trainer = train.make_trainer(run)
        trainer.add_callback(Stopwatch())
        began = time.process_time()
        trainer.train()
        seconds = round(time.process_time() - began, 1)
        certified = any(
            callback.reached(callback.check(trainer.model.eval()))
            for callback in trainer.callback_handler.callbacks
            if type(callback).__name__ == "UntilCertified"
        )
    steps = trainer.state.global_step
    return {"recipe": recipe, "way": way, "seed": seed, "certified": certified, "steps": steps, "seconds": seconds}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--recipes", nargs="+", default=RECIPES)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    for seed in options.seeds:
        for recipe in options.recipes:
            for way in WAYS:
                row = measure(recipe, way, seed)
                print(json.dumps(row), flush=True)
                if options.output:
                    with options.output.open("a") as file:
                        file.write(json.dumps(row) + "\n")
