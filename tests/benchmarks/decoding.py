"""Greedy decoding in parallel against token by token.

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
from longhand.hub_cards.result_rows import hardware
from longhand.modeling import parallel_greedy

ROUNDS = 3
MEASURED = {
    "addition": ((1, 100), (1, 1000), (32, 100), (1, 100_000), (1, 1_000_000)),
    "parity": ((1, 100), (1, 1000), (32, 100)),
}
"""Problems and digits by task. Long ones are decoded in parallel alone."""


def processor_seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


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
    row = {"model": checkpoint.name, "rows": rows, "digits": digits, "passes": passes}
    row |= {"predictions": predictions / tokens, "seconds": median(parallel), "hardware": hardware(torch.device("cpu"))}
    return row | ({"stepwise": median(stepwise), "ratio": median(stepwise) / median(parallel)} if both else {})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("addition", help="folder of a trained model of addition")
    parser.add_argument("parity", help="folder of a trained model of parity")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = []
    with torch.inference_mode():
        for name, sizes in MEASURED.items():
            checkpoint = load_checkpoint(getattr(options, name))
            for rows, digits in sizes:
                results.append(measure_decoding(checkpoint, rows, digits, digits < 100_000))
                print(json.dumps(results[-1]), flush=True)
    if options.output:
        options.output.write_text("".join(json.dumps(row) + "\n" for row in results))
