"""What a training step costs with index hints, which make a text twice as long, and with coupled ids (paper 1, Sec. 3.1).

Both methods have paper 1's model of one layer and sums of the same numbers. A step is a forward and a backward pass,
clipping and AdamW in float32; no data is made in it. Seconds are of the processor, on one thread, not of the clock, so
that other work on the machine counts little. Steps of both methods take turns, and a row has the median of its rounds.
Bytes are those of all tensors that the forward pass keeps for the backward pass. Minutes:

python -m longhand.hub_cards.research hint_costs
"""

# Used by: whoever runs or imports it. Changed freely.

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from longhand.data.batches import draw_batch
from longhand.data.formatting import Batch
from longhand.hub_cards.research.study import load_study
from longhand.hub_cards.result_rows import Row, hardware

RESULTS = Path(__file__).with_suffix(".jsonl")

METHODS = {"coupled": "sums", "index-hints": "index-hints-1-layer"}
"""The paper's run of each method, a variant of the study `paper-scale`."""

LENGTHS = (10, 30, 100, 200)
"""Digits of both operands: trained ones, to the longest of the paper's training, and longer ones of its tests."""

SIZE, ROUNDS = 16, 5
"""Sums of a step, and rounds of which the median counts."""


class Stepper:
    """Training steps of one method's model, on the same sums again and again."""

    def __init__(self, variant: str):
        run = load_study("paper-scale").parse(variant)
        torch.manual_seed(0)
        self.model, self.task = run.task.family.model_class(run.config).train(), run.task
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)

    def batch(self, length: int) -> Batch:
        """Return sums of two numbers of this length, of the same numbers for every method."""
        return draw_batch(self.model, self.task, (length, length), SIZE, split="train")

    def step(self, batch: Batch) -> None:
        """Take one step."""
        self.model(**batch, use_cache=False).loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def seconds(self, batch: Batch) -> float:
        """Return the processor seconds of a step."""
        began = time.process_time()
        self.step(batch)
        return time.process_time() - began

    def kept_bytes(self, batch: Batch) -> int:
        """Return the bytes that the forward pass keeps for the backward pass, but for the weights."""
        weights = {parameter.untyped_storage().data_ptr() for parameter in self.model.parameters()}
        kept: dict[int, int] = {}

        def note(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            # The loss holds all tensors, so that no address is given twice.
            loss = self.model(**batch, use_cache=False).loss
        del loss
        return sum(size for address, size in kept.items() if address not in weights)


def rows_of_length(steppers: dict[str, Stepper], length: int) -> list[Row]:
    """Return a row for each method, and how many times as much as with coupled ids it costs."""
    batches = {name: stepper.batch(length) for name, stepper in steppers.items()}
    measured: dict[str, list[float]] = {name: [] for name in steppers}
    for _ in range(ROUNDS + 1):
        for name, stepper in steppers.items():
            measured[name].append(stepper.seconds(batches[name]))
    rows: list[Row] = []
    for name, (_, *seconds) in measured.items():
        # The first round is not counted: it makes the optimizer's states.
        row: Row = {"model": name, "length": length, "tokens": batches[name]["input_ids"].shape[1], "problems": SIZE}
        row |= {"step_seconds": median(seconds), "kept_bytes": steppers[name].kept_bytes(batches[name])}
        rows.append({**row, "hardware": hardware(torch.device("cpu"))})
    for row in rows:
        row |= {f"{name}_ratio": row[name] / rows[0][name] for name in ("tokens", "step_seconds", "kept_bytes")}
    return rows


def measure() -> Iterator[Row]:
    """Yield the costs."""
    torch.set_num_threads(1)
    steppers = {name: Stepper(variant) for name, variant in METHODS.items()}
    for length in LENGTHS:
        yield from rows_of_length(steppers, length)
