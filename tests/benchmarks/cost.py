"""Time and memory of attention under a window against the digits of the operands: by neighbours, and scoring all pairs.

python tests/benchmarks/cost.py --output hub_cards/results/cost.jsonl

Each figure comes from a process of its own, which draws one sum, makes its inputs and predicts its whole response under
teacher forcing with an untrained model of the default recipe, or takes a training step with it.
"""

import argparse
import json
import resource
import time
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import torch

from longhand.data import Addition, CouplingCollator, EvaluationBatches
from longhand.hub_cards.result_rows import hardware
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM

DIGITS = {
    "neighbours": [1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000],
    "all pairs": [250, 500, 1000, 2000, 4000],
}
ROUNDS = 3


def work(form: str, what: str, digits: int) -> None:
    task = Addition()
    model = CoupledGPTForCausalLM(CoupledGPTConfig()).train(what == "training")
    batch = EvaluationBatches(task, (digits, digits), 1, 0, "test", 1, collator=CouplingCollator(task.coupling, 1))[0]
    if form == "all pairs":
        ids = batch["position_ids"]
        batch["pair_map"] = model.model.position_encoding.pair_map(ids, ids)
    with torch.set_grad_enabled(what == "training"):
        output = model(**batch, use_cache=False)
        if what == "training":
            output.loss.backward()


def measure(figure: tuple[str, str, int]) -> dict:
    """Seconds (median) and additional memory in bytes (largest resident set) of this process."""
    form, what, digits = figure
    work(form, what, 50)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work(form, what, digits)
        seconds.append(time.perf_counter() - began)
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    row = {"form": form, "what": what, "digits": digits, "seconds": median(seconds), "bytes": memory}
    return row | {"hardware": hardware(torch.device("cpu"))}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    figures = [(form, what, digits) for what in ("evaluation", "training") for form in DIGITS for digits in DIGITS[form]]
    rows = []
    with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for row in pool.imap(measure, figures):
            rows.append(row)
            print(json.dumps(row), flush=True)
    if options.output:
        options.output.write_text("".join(json.dumps(row) + "\n" for row in rows))
