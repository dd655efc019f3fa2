"""Where the time of `train.py` goes, for the default recipe, a learned table of four layers and an encoder of four layers.

python tests/benchmarks/training_time.py --output hub_cards/results/training_time.jsonl
python tests/benchmarks/training_time.py --clock --recipes addition --output hub_cards/results/training_time_clock.jsonl

Every run is whole: set-up, training, checks, saving, evaluation, card. The default run ends with its certificate, the others
after `STEPS` steps. Seconds are of the processor, on one thread, so that other work on the machine counts little. With
`--clock` they are of the clock, on all cores: on a machine that does nothing else. A part does not count what other parts do
within it.
"""

import sys
import time

seconds_now = time.perf_counter if "--clock" in sys.argv else time.process_time
BEGAN = seconds_now()

import argparse  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
from collections import Counter  # noqa: E402
from contextlib import ExitStack  # noqa: E402
from functools import wraps  # noqa: E402
from pathlib import Path  # noqa: E402
from tempfile import TemporaryDirectory  # noqa: E402
from unittest.mock import patch  # noqa: E402

import torch  # noqa: E402
from accelerate import Accelerator  # noqa: E402
from accelerate.optimizer import AcceleratedOptimizer  # noqa: E402

from longhand import train  # noqa: E402
from longhand.data import FreshBatches  # noqa: E402
from longhand.hub_cards.evaluation.results import hardware  # noqa: E402
from longhand.hub_cards.training import trainer  # noqa: E402
from longhand.modeling import CoupledGPTForCausalLM, PairwiseBertForTokenClassification  # noqa: E402

IMPORTS = seconds_now() - BEGAN

STEPS = 60
SHORT = ["--max_steps", str(STEPS), "--eval_steps", str(STEPS), "--test_samples", "20"]
TABLE = ["addition-absolute", "--max_length", "10", "--max_position_ids", "42", "--num_hidden_layers", "4"]
RUNS = {
    "addition": ["addition"],
    "addition-absolute, 4 layers": [*TABLE, "--validation_lengths", "10", "--test_lengths", "10", "20", *SHORT],
    "encoder-addition": ["encoder-addition", *SHORT],
    "encoder-multiplication-1": ["encoder-multiplication-1", *SHORT],
}
PARTS = [
    (train, "make_trainer", "set-up"),
    (FreshBatches, "__getitem__", "data"),
    (CoupledGPTForCausalLM, "forward", "forward"),
    (PairwiseBertForTokenClassification, "forward", "forward"),
    (Accelerator, "backward", "backward"),
    (Accelerator, "clip_grad_norm_", "optimizer"),
    (AcceleratedOptimizer, "step", "optimizer"),
    (trainer, "check_thoroughly", "checks"),
    (trainer.BatchTrainer, "evaluate", "validation"),
    (trainer.BatchTrainer, "_save_checkpoint", "saving"),
    (train, "save_final", "saving"),
    (train, "evaluate", "evaluation"),
    (train, "write_card", "saving"),
]
"""Functions, and the part of the run that they are. What a model does in checks and evaluations belongs to these."""
INDIVISIBLE = {"set-up", "checks", "validation", "evaluation"}


class Stopwatch:
    """Seconds of the parts of a run."""

    def __init__(self):
        self.seconds: Counter[str] = Counter()
        self.running, self.since = ["the rest"], seconds_now()

    def switch(self) -> None:
        """Count the seconds since the last switch for the part that runs."""
        now = seconds_now()
        self.seconds[self.running[-1]] += now - self.since
        self.since = now

    def timed(self, function, part: str):
        """Return the function with its seconds counted."""

        @wraps(function)
        def call(*args, **kwargs):
            if INDIVISIBLE & {*self.running}:
                return function(*args, **kwargs)
            self.switch()
            self.running.append(part)
            try:
                return function(*args, **kwargs)
            finally:
                self.switch()
                self.running.pop()

        return call


def measure(name: str, arguments: list[str]) -> list[dict]:
    """Train one run; return a row for every part."""
    with TemporaryDirectory() as folder, ExitStack() as patched:
        watch = Stopwatch()
        for owner, function, part in PARTS:
            patched.enter_context(patch.object(owner, function, watch.timed(getattr(owner, function), part)))
        train.main([*arguments, "--output_dir", str(Path(folder, "run"))])
        watch.switch()
    seconds = {"imports": IMPORTS, **watch.seconds}
    return [
        {"recipe": name, "part": part, "seconds": round(spent, 3), "hardware": hardware(torch.device("cpu"))}
        for part, spent in seconds.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--output", type=Path, help="results file")
    parser.add_argument("--recipes", nargs="+", choices=RUNS, default=list(RUNS), help="which runs; all if omitted")
    parser.add_argument("--clock", action="store_true", help="seconds of the clock, on all cores")
    options = parser.parse_args()
    torch.set_num_threads(os.cpu_count() if options.clock else 1)
    rows = [row for name in options.recipes for row in measure(name, RUNS[name])]
    for row in rows:
        print(f"{row['recipe']:28} {row['part']:10} {row['seconds']:8.2f}")
    if options.output:
        options.output.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
