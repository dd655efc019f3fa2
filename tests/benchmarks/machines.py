"""How many machines drawn at random the recipe `columns` certifies: a line for each machine and seed.

python tests/benchmarks/machines.py --count 100 --minutes 30 --output hub_cards/results/random_machines.jsonl

A machine is drawn by its number: 1 to 3 operands over an alphabet of 2 to 10 symbols, and one to three passes in any
directions. A pass has 1 to 12 states with tables of uniform entries, 2 to 10 symbols that it may write, 0 to 2 columns
that it flushes, and reads some of the words before it. `layout_of` says whether the machine writes its states. A
machine with more than `MOST_NEIGHBOURHOODS` neighbourhoods of a pass in both layouts is drawn again. A machine is trained
by the recipe as it is, on one thread, once for each of `--seeds`; a row says which seeds of the weights were given up.
"""

import argparse
import io
import json
import tempfile
import time
from collections import Counter
from contextlib import redirect_stdout
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers.utils import logging

from longhand import train
from longhand.data import ColumnPass, ColumnTask, register_task
from longhand.data.machines import columns, sights, windows
from longhand.data.proofs import certify
from longhand.data.tasks.column_task import STATES, tables_of
from longhand.data.tasks.written_states import layout_of, task_with_states
from longhand.hub_cards.training.arguments import parse_run
from longhand.hub_cards.training.run_folder import read_given_up
from longhand.hub_cards.training.trainer import WRONG

MOST_NEIGHBOURHOODS = 10_000
MOST_ENTRIES = 20_000
"""Entries of a pass's table."""

SYMBOLS = "0123456789"


def draw_machine(number: int, attempt: int) -> ColumnTask | None:
    """Draw a machine; None if a table has too many entries."""
    generator = np.random.default_rng([number, attempt])
    operands = int(generator.integers(1, 4))
    alphabet = SYMBOLS[: int(generator.integers(2, 11))]
    directions = generator.choice(["ones_first", "top_first"], int(generator.integers(1, 4))).tolist()
    sizes = [len(alphabet)] * operands
    passes = []
    for place, direction in enumerate(directions):
        words = operands + place
        count = int(generator.integers(1, words + 1))
        reads = sorted(generator.choice(words, count, replace=False).tolist())
        states, writes = int(generator.integers(1, 13)), int(generator.integers(2, 11))
        shape = [states, *(sizes[source] for source in reads)]
        if np.prod(shape) > MOST_ENTRIES:
            return None
        write, following = generator.integers(writes, size=shape), generator.integers(states, size=shape)
        # Passes from the top flush nothing if others read from the ones.
        flush = int(generator.integers(3))
        if direction == "top_first" and len(set(directions)) == 2:
            flush = 0
        passes.append(
            ColumnPass(_step_of(write, following), SYMBOLS[:writes], flush=flush, direction=direction, reads=tuple(reads))
        )
        sizes.append(writes)
    fields = {"name": f"machine_{number}", "operands": operands, "sign": "+" if operands > 1 else "", "alphabet": alphabet}
    return type("Machine", (ColumnTask,), {**fields, "passes": tuple(passes)})()


def _step_of(write: np.ndarray, following: np.ndarray):
    def step(state, symbols):
        return int(write[(state, *symbols)]), int(following[(state, *symbols)])

    return step


def find_machine(number: int) -> tuple[ColumnTask, ColumnTask, Counter]:
    """Return the first machine of a number that is small enough, its layout, and why earlier ones were not taken."""
    refused: Counter = Counter()
    for attempt in range(10_000):
        machine = draw_machine(number, attempt)
        if machine is None:
            refused["table"] += 1
            continue
        try:
            stated = task_with_states(type(machine))()
            return machine, stated if layout_of(machine, stated).states else machine, refused
        except ValueError:
            refused["neighbourhoods"] += 1
    raise RuntimeError(f"machine {number}: nothing was found")


def measure(number: int, seed: int) -> dict[str, Any]:
    """Train a machine with a seed of the weights, and return what came out."""
    began = time.process_time()
    machine, layout, refused = find_machine(number)
    register_task(type(machine))
    searched = time.process_time() - began
    row = {
        "machine": number,
        "seed": seed,
        "operands": machine.operands,
        "alphabet": len(machine.alphabet),
        "states": [len(own.write) for own in tables_of(machine).passes],
        "writes_states": layout.name.startswith(STATES),
        "passes": len(layout.transducer.passes),
        "neighbourhoods": len(layout.columns_needed),
        "length_complexity": layout.length_complexity,
        "refused_before": dict(refused),
    }
    words = ["columns", "--task", layout.name, "--disable_tqdm", "True", "--use_cpu", "True", "--seed", str(seed)]
    with tempfile.TemporaryDirectory() as folder:
        run = parse_run([*words, "--output_dir", folder])
        beginning = train.Start(given_up=[], checkpoint=None, repo_id=None, complete=False)
        with redirect_stdout(io.StringIO()):
            trainer, steps = train.train_seeds(run, train.make_trainer(run), beginning)
        model: Any = trainer.model.eval()
        given_up = [vars(one) for one in read_given_up(run.folder)]
        certificate = certify(model, layout)
    return row | {
        "max_length": run.data.max_length,
        "heads": run.config.num_attention_heads,
        "certified": certificate.certified,
        "wrong": certificate.wrong,
        "steps": steps,
        "given_up": given_up,
        "checks": [logs[WRONG] for logs in trainer.state.log_history if WRONG in logs],
        "search_seconds": round(searched, 1),
        "seconds": round(time.process_time() - began, 1),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--minutes", type=float, default=30, help="no machine begins after so many minutes of a processor")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    columns.MOST_NEIGHBOURHOODS = sights.MOST_NEIGHBOURHOODS = windows.MOST_NEIGHBOURHOODS = MOST_NEIGHBOURHOODS
    sights.MOST_PATHS = windows.MOST_PATHS = 8 * MOST_NEIGHBOURHOODS
    machines = range(options.first, options.first + options.count)
    for number, seed in product(machines, options.seeds):
        if time.process_time() > 60 * options.minutes:
            break
        measured = measure(number, seed)
        print(json.dumps(measured), flush=True)
        if options.output:
            with options.output.open("a") as file:
                file.write(json.dumps(measured) + "\n")
