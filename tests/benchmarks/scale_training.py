"""Training by 1, 2 and 4 processes, one thread each, as `accelerate launch` starts them: problems a second, and how far the
logged losses are from those of one process.

python tests/benchmarks/scale_training.py --output hub_cards/results/scale-training.jsonl
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import torch
from transformers import TrainerCallback

from longhand.hub_cards.evaluation.results import hardware
from longhand.hub_cards.training.arguments import parse_run
from longhand.train import make_trainer

STEPS = {"addition": 300, "addition-absolute": 200}
"""Optimizer steps of each recipe."""
PROCESSES = (1, 2, 4)
WARMUP = 20
"""Steps that are not timed."""


class Clock(TrainerCallback):
    """The time after every step."""

    def __init__(self):
        self.times = []

    def on_step_end(self, *args, **kwargs):
        self.times.append(time.perf_counter())


def train(recipe: str) -> None:
    """Train in this process; the first one prints its rate and losses."""
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        steps = str(STEPS[recipe])
        options = ["--max_steps", steps, "--eval_steps", steps, "--logging_steps", "10", "--until_certified", "False"]
        run = parse_run([recipe, *options, "--validation_samples", "8", "--use_cpu", "True", "--output_dir", folder])
        trainer, clock = make_trainer(run), Clock()
        trainer.add_callback(clock)
        trainer.train()
        trainer.accelerator.wait_for_everyone()
    if trainer.is_world_process_zero():
        seconds = clock.times[-1] - clock.times[WARMUP]
        losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
        rate = (STEPS[recipe] - 1 - WARMUP) * run.training.batch_size / seconds
        print(json.dumps({"processes": run.training.world_size, "problems_per_second": rate, "losses": losses}), flush=True)


def measure(recipe: str, processes: int) -> dict:
    launcher = ["accelerate.commands.accelerate_cli", "launch", "--multi_gpu", "--num_processes", str(processes)]
    alone = [sys.executable, __file__, "--one", recipe]
    command = alone if processes == 1 else [sys.executable, "-m", *launcher, "--main_process_port", "0", *alone[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    row = json.loads(next(line for line in done.stdout.splitlines() if line.startswith('{"processes"')))
    assert row["processes"] == processes
    return row


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--one", choices=STEPS, help="train in this process")
    parser.add_argument("--recipes", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--output", type=Path, help="of a run in it and this one the faster is kept")
    options = parser.parse_args()
    if options.one:
        train(options.one)
        sys.exit()
    kept = options.output.read_text().splitlines() if options.output and options.output.exists() else []
    best = {(row["recipe"], row["processes"]): row for row in map(json.loads, kept)}
    for recipe in options.recipes:
        measured = [measure(recipe, processes) for processes in PROCESSES]
        alone = measured[0]["losses"]
        for row in measured:
            losses = row.pop("losses")
            row |= {"recipe": recipe, "steps": STEPS[recipe], "first_loss": alone[0], "last_loss": losses[-1]}
            row["difference"] = max(abs(one - own) / one for one, own in zip(alone, losses, strict=True))
            row |= {"cores": psutil.cpu_count(), "hardware": hardware(torch.device("cpu"))}
            print(row, flush=True)
            earlier = best.get((recipe, row["processes"]), row | {"runs": 0})
            faster = max(row, earlier, key=lambda one: one["problems_per_second"])
            best[recipe, row["processes"]] = faster | {"runs": earlier["runs"] + 1}
    if options.output:
        options.output.write_text("".join(json.dumps(row) + "\n" for row in best.values()))
