"""How memory, time and checkpoints of training grow with a model, and the time of a certificate's check, on one thread.

python tests/benchmarks/scale_model.py --output hub_cards/results/scale-model.jsonl

Each figure comes from a process of its own. Shapes are those of the recipe `addition-absolute`, wider and deeper, and its
batches are sums of 30 digits; certificates are of the recipe `addition`, wider.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch

from longhand.data import Addition, CouplingCollator, EvaluationBatches
from longhand.data.certificates import check_thoroughly
from longhand.hub_cards.evaluation.results import hardware
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM

SHAPES = ((256, 4, 32), (512, 8, 8), (512, 8, 32), (1024, 8, 8))
"""Width, layers and sums of a batch."""
WIDTHS = (64, 128, 256, 512)
"""Widths of certified models."""
STEPS = 3
DIGITS = 30


def peak() -> dict:
    """Products of large matrices: operations a second that one thread reaches at most."""
    size, seconds = 2048, []
    first, second = torch.randn(2, size, size)
    for _ in range(5):
        began = time.process_time()
        first @ second
        seconds.append(time.process_time() - began)
    return {"what": "peak", "flops": 2 * size**3 / min(seconds)}


def train(width: int, layers: int, batch_size: int) -> dict:
    """Training steps in float32 with AdamW, and a checkpoint as Trainer keeps it."""
    task, longest = Addition(), 202
    sizes = {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": width // 128,
        "intermediate_size": 4 * width,
    }
    kind = {"position_encoding": "learned", "max_position_ids": longest, "windowed": False, "qk_norm": True}
    collator = CouplingCollator(task.coupling, longest)
    batch = EvaluationBatches(task, (DIGITS, DIGITS), batch_size, 0, "train", batch_size, collator=collator)[0]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = CoupledGPTForCausalLM(CoupledGPTConfig(**sizes, **kind)).train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    seconds = []
    for _ in range(STEPS):
        began = time.process_time()
        model(**batch, use_cache=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.process_time() - began)
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    with TemporaryDirectory() as folder:
        began = time.perf_counter()
        model.save_pretrained(folder)
        torch.save(optimizer.state_dict(), Path(folder, "optimizer.pt"))
        saving = time.perf_counter() - began
        stored = sum(file.stat().st_size for file in Path(folder).iterdir())
    return {
        "what": "training", "width": width, "layers": layers, "tokens": batch["input_ids"].numel(),
        "parameters": sum(parameter.numel() for parameter in model.parameters()), "seconds": median(seconds),
        "bytes": memory, "checkpoint_bytes": stored, "checkpoint_seconds": saving,
    }  # fmt: skip


def certify(width: int) -> dict:
    """One check as `until_certified` makes it, of a model that has learned nothing."""
    model = CoupledGPTForCausalLM(CoupledGPTConfig(hidden_size=width, intermediate_size=4 * width)).eval()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    check = check_thoroughly(model, Addition())
    seconds = time.process_time() - began
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {"what": "check", "width": width, "parameters": parameters, "predictions": check.predictions,
            "seconds": seconds, "bytes": memory}  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--one", nargs="*", type=int, metavar="SIZE", help="measure in this process")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.one is not None:
        work = {0: peak, 1: certify, 3: train}[len(options.one)]
        print(json.dumps(work(*options.one) | {"hardware": hardware(torch.device("cpu"))}))
        sys.exit()
    rows = []
    for words in ((), *SHAPES, *((width,) for width in WIDTHS)):
        command = [sys.executable, __file__, "--one", *map(str, words)]
        rows.append(json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()[-1]))
        print(rows[-1], flush=True)
    if options.output:
        options.output.write_text("".join(json.dumps(row) + "\n" for row in rows))
