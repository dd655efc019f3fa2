"""Memory of the largest validation batch, and of a training step, of each recipe of the papers' sizes."""

# Used by: whoever runs or imports it. Changed freely.

import time
import weakref
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import PreTrainedModel

from longhand.data.families import to_device
from longhand.data.formatting import Batch
from longhand.data.metrics import preprocess_logits
from longhand.hub_cards.recipes import list_recipes
from longhand.hub_cards.research.gpu.record import Record
from longhand.hub_cards.result_rows import Row
from longhand.hub_cards.training.arguments import parse_run
from longhand.hub_cards.training.trainer import training_batches, validation_batches

PAPERS = "paper-"
SMALL_RECIPES = ("paper-attention-probe",)
SHARE = 0.5
"""The share of a GPU's memory that this part may take."""
TRAINED = "5000"
"""Problems of a fixed training set: as many as fill a batch of every recipe."""


def run(record: Record) -> None:
    """Measure all recipes."""
    if not record.small:
        # Other parts are on the GPU too.
        torch.cuda.set_per_process_memory_fraction(SHARE)
    names = [name for name in list_recipes() if name.startswith(PAPERS)]
    for name in SMALL_RECIPES if record.small else names:
        record.measure(name, partial(measure, name, record), needs=5)


def measure(recipe: str, record: Record) -> Row:
    """Bytes of a validation pass and of a training step of a recipe, and seconds of the pass."""
    small = ["--validation_samples", "8", "--batch_size", "8", "--use_cpu", "True"] if record.small else []
    run = parse_run([recipe, "--num_train_samples", TRAINED, *small])
    torch.manual_seed(0)
    model: Any = run.task.family.model_class(run.config)
    model.to(record.device)
    size, batches = list(validation_batches(run, model).items())[-1]
    batch = batches[0]
    row: Row = {
        "parameters": model.num_parameters(),
        "size": size,
        "problems": len(batches.examples),
        "rows": len(batch["input_ids"]),
        "tokens": batch["input_ids"].shape[1],
        "bf16": run.training.bf16,
    }
    precision = partial(torch.autocast, record.device.type, torch.bfloat16, enabled=bool(run.training.bf16))
    validation = partial(validate, model.eval(), to_device(batch, record.device), precision)
    row["validation_bytes"] = peak_bytes(validation, record.device)
    began = time.perf_counter()
    validation()
    row["validation_seconds"] = round((time.perf_counter() - began) * len(batches), 3)
    trained = to_device(training_batches(run)[0], record.device)
    row["training_rows"] = len(trained["input_ids"])
    optimizer = torch.optim.AdamW(model.train().parameters())
    row["training_bytes"] = peak_bytes(partial(train, model, optimizer, trained, precision), record.device)
    return row


def validate(model: PreTrainedModel, batch: Batch, precision: partial) -> None:
    """One pass as Trainer makes it: logits in float32, and what is counted of them."""
    with torch.inference_mode():
        with precision():
            logits = model(**batch).logits
        preprocess_logits(model)(logits.float(), batch["labels"]).cpu()


def train(model: PreTrainedModel, optimizer: torch.optim.Optimizer, batch: Batch, precision: partial) -> None:
    """One step of training."""
    with precision():
        loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def peak_bytes(work: partial, device: torch.device) -> int:
    """The most bytes that a work needs at a time, weights and inputs included on a GPU."""
    if device.type == "cpu":
        with LiveBytes() as counted:
            work()
        return counted.peak
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


class LiveBytes(TorchDispatchMode):
    """Bytes of the tensors that operations make while this mode is on and that are still alive, on any device.

    Attributes:
        now: bytes alive now.
        peak: most bytes that were alive at a time.
    """

    def __init__(self):
        super().__init__()
        self.now = self.peak = 0
        self._alive: dict[int, int] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(value, torch.Tensor):
                self._add(value.untyped_storage())
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        place = storage._cdata
        if place in self._alive:
            return
        self._alive[place] = storage.nbytes()
        self.now += storage.nbytes()
        weakref.finalize(storage, self._remove, place)
        self.peak = max(self.peak, self.now)

    def _remove(self, place: int) -> None:
        self.now -= self._alive.pop(place, 0)
