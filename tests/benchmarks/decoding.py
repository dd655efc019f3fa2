"""Greedy decoding in parallel against token by token, and how the time of a forward pass grows with the digits.

python tests/benchmarks/decoding.py outputs/addition outputs/parity --output hub_cards/results/decoding.jsonl

Seconds are of the processor, not of the clock, so that other work on the machine counts little. The two sides of a ratio run
in turn, and are medians over rounds. Parities are the worst case: each token depends on the one before, to the end.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from longhand.data.batches import draw_batch
from longhand.data.collator import IGNORED
from longhand.hub_cards.checkpoints.checkpoint import Checkpoint
from longhand.hub_cards.checkpoints.load import load_checkpoint
from longhand.hub_cards.evaluation.results import hardware
from longhand.modeling import parallel_greedy

SHORT, LONG = 100_000, 1_000_000
"""Digits of the sums whose times for each digit are compared."""

ROUNDS = 3


def processor_seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def measure_forward(checkpoint: Checkpoint, rows: int) -> dict:
    """Nanoseconds for each digit of teacher forcing at both lengths. In a round, both read as many digits."""
    model, task = checkpoint.model, checkpoint.task
    batches = {digits: draw_batch(model, task, task.operand_lengths(digits), rows) for digits in (SHORT, LONG)}
    for batch in batches.values():
        batch.pop("labels")
    seconds: dict[int, list[float]] = {SHORT: [], LONG: []}
    for _ in range(ROUNDS):
        for digits, batch in batches.items():
            repeats = LONG // digits
            took = processor_seconds(lambda b=batch, n=repeats: [model(**b, use_cache=False) for _ in range(n)])
            seconds[digits].append(took / repeats / digits / rows * 1e9)
    short, long = median(seconds[SHORT]), median(seconds[LONG])
    return {"what": "forward", "rows": rows, "short": short, "long": long, "ratio": long / short}


def measure_decoding(checkpoint: Checkpoint, rows: int, digits: int, both: bool) -> dict:
    """Seconds, passes and predictions of both ways to decode; of parallel decoding alone if not `both`."""
    model: Any = checkpoint.model
    batch = draw_batch(model, checkpoint.task, checkpoint.task.operand_lengths(digits), rows)
    prompts = batch["input_ids"][:, : int((batch["labels"] != IGNORED).int().argmax(1)[0])]
    inputs = {"input_ids": prompts, "attention_mask": torch.ones_like(prompts), "do_sample": False}
    logits: list[int] = []
    hook = model.register_forward_hook(lambda model, inputs, output: logits.append(output.logits.shape[:2].numel()))
    parallel, stepwise, answers = [], [], []
    for _ in range(ROUNDS if both else 1):
        logits.clear()
        how = {"custom_generate": parallel_greedy}
        parallel.append(processor_seconds(lambda h=how: answers.append(model.generate(**inputs, **h))))
        passes, predictions = len(logits), sum(logits)
        if both:
            stepwise.append(processor_seconds(lambda: answers.append(model.generate(**inputs))))
    hook.remove()
    assert all(torch.equal(answer, answers[0]) for answer in answers)
    tokens = answers[0][:, prompts.shape[1] :].numel()
    row = {"what": "decoding", "model": checkpoint.name, "rows": rows, "digits": digits, "passes": passes}
    row |= {"predictions": predictions / tokens, "seconds": median(parallel)}
    return row | ({"stepwise": median(stepwise), "ratio": median(stepwise) / median(parallel)} if both else {})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("addition", help="folder of a trained model of addition")
    parser.add_argument("parity", help="folder of a trained model of parity")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    addition, parity = (load_checkpoint(folder) for folder in (options.addition, options.parity))
    measured = []
    with torch.inference_mode():
        for rows in (1, 2):
            measured.append(lambda rows=rows: measure_forward(addition, rows))
        for rows, digits in ((1, 100), (1, 1000), (32, 100), (1, SHORT), (1, LONG)):
            measured.append(lambda r=rows, d=digits: measure_decoding(addition, r, d, d < SHORT))
        for rows, digits in ((1, 100), (1, 1000), (32, 100)):
            measured.append(lambda r=rows, d=digits: measure_decoding(parity, r, d, True))
        results = []
        for measure in measured:
            results.append({**measure(), "hardware": hardware(torch.device("cpu"))})
            print(json.dumps(results[-1]), flush=True)
    if options.output:
        options.output.write_text("".join(json.dumps(row) + "\n" for row in results))
