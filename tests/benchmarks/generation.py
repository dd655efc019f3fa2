"""How fast every task is generated on one core, at the lengths that its recipe trains: examples a second, and the ratio to
what is promised, 100,000 (with a scratchpad 20,000).

python tests/benchmarks/generation.py --output hub_cards/results/generation.jsonl
"""

import argparse
import json
import time
from pathlib import Path
from statistics import median

import torch

from longhand.data import make_generator
from longhand.hub_cards.evaluation.results import hardware
from longhand.hub_cards.training.arguments import parse_run

RECIPES = {
    "addition": 100_000,
    "three-summands": 100_000,
    "subtraction": 100_000,
    "multiplication-2": 100_000,
    "copy": 100_000,
    "reverse": 100_000,
    "minesweeper": 100_000,
    "addition-index-hints": 100_000,
    "encoder-addition": 100_000,
    "encoder-multiplication-3": 100_000,
    "parity": 20_000,
    "addition-scratchpad": 20_000,
    "multiplication-scratchpad": 20_000,
}
"""Recipes and the promised rates of their tasks, examples a second."""

BATCH_SIZE = 2048


def rate(recipe: str, rounds: int) -> float:
    """Median examples a second: lengths, operands, answers and tokens of training batches. The first round is left out."""
    run = parse_run([recipe])
    task, rates = run.task, []
    for turn in range(rounds + 1):
        began = time.perf_counter()
        for index in range(10):
            generator = make_generator(0, "benchmark", turn, index)
            lengths = task.sample_lengths(generator, 1, run.data.min_length, run.data.max_length)[0]
            lengths = task.group_lengths(generator, lengths, BATCH_SIZE, run.data.min_length)
            task.augment(generator, task.examples(generator, lengths, "train"))
        rates.append(10 * BATCH_SIZE / (time.perf_counter() - began))
    return median(rates[1:])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for recipe, promised in RECIPES.items():
        measured = rate(recipe, options.rounds)
        row = {"recipe": recipe, "rate": measured, "promised": promised, "ratio": measured / promised}
        rows.append({**row, "hardware": hardware(torch.device("cpu"))})
        print(f"{recipe}: {measured:,.0f} examples/s, promised {promised:,}, ratio {measured / promised:.1f}", flush=True)
    if options.output:
        options.output.write_text("".join(json.dumps(row) + "\n" for row in rows))
