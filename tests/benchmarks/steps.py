"""What a host does in a step of training: operators, copies to a device and waits for it; and steps a second, beside GPT-2.

python tests/benchmarks/steps.py --before COMMIT --output hub_cards/results/steps.jsonl

Recipes of both families train as `train.py` does, with their layers and heads, but so narrow and with so few rows that a
step takes the time of its host, which limits a GPU too. Operators, copies and waits of the second step are counted on a
simulated GPU (tests/accelerator.py). An operator that computes is a kernel at least. Kernels that only CUDA has count as
there: a fused norm, whose place one of torch's takes, and lists of gradients. Seconds are of the processor, without the
simulation: the least of some rounds of steps, which go to and fro between both models. Milliseconds of a step's operators
are told by what they are for. All is measured twice, with the code of an earlier commit and with this code.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils import _foreach_utils
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import TrainerCallback
from transformers.trainer_utils import IntervalStrategy
from transformers.utils import logging

from longhand.hub_cards.research.gpu.speed import Plain, gpt2
from longhand.hub_cards.result_rows import hardware, write_results
from longhand.hub_cards.training.arguments import parse_run
from longhand.hub_cards.training.trainer import BatchTrainer
from longhand.train import make_trainer

HERE = Path(__file__)
sys.path.insert(0, str(HERE.parents[1]))

from accelerator import CUDA, Accelerator, place_training  # noqa: E402

ENCODER = "paper-encoder-addition"
NARROW = ["--hidden_size", "32", "--intermediate_size", "64", "--batch_size", "4", "--gradient_accumulation_steps", "1"]
RECIPES = {
    "addition": ["--until_certified", "False"],
    "paper-addition": ["--num_train_samples", "2000"],
    ENCODER: ["--num_train_samples", "2000", "--field_width", "8", "--validation_lengths", "5", "--test_lengths", "5"],
}
PRECISIONS = {"float32": "False", "bf16": "True"}
GPT2 = "GPT-2"
MODELS = ("longhand", GPT2)
WARM_UP, ROUND, ROUNDS = 5, 10, 4
"""Steps that are not timed, steps of a round, and rounds."""
TIMES = 3
"""How often the rounds of each model are run."""

PARTS = {
    "products": {"mm", "addmm", "bmm", "baddbmm"},
    "attention": {"softmax", "masked_softmax", "safe_softmax", "scaled_dot_product_flash_attention_for_cpu"},
    "picks": {"gather", "scatter_add", "constant_pad_nd"},
    "copies": {"clone", "copy", "contiguous", "cat", "add", "mul", "sum"},
    "optimizer": {"fused_adamw", "foreach_add", "foreach_mul", "foreach_norm"},
}
"""What the operators of a step are for. `picks` are relations that are picked for each pair of tokens."""
OTHER = "other"

NO_WORK = {"alias", "detach", "empty", "empty_like", "empty_strided", "is_pinned", "new_empty", "new_empty_strided"}
"""Operators that launch no kernel, beside views."""
NOT_SIMULATED = "clip_grad.py"
"""A file of torch that waits in the simulation alone: it asks the processor's own code where gradients lie."""


class Operators(TorchDispatchMode):
    """Counts the operators that compute something."""

    def __init__(self):
        super().__init__()
        self.names = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.__name__.partition(".")[0]
        if not func.is_view and name not in NO_WORK and not name.startswith("_record_function"):
            self.names[name] += 1
        return func(*args, **(kwargs or {}))


def fused_norm(states, shape, weight=None, eps=None, unfused=nn.functional.rms_norm):
    """A norm by root mean squares as CUDA runs it: one kernel each way if weight and states have one type."""
    if weight is None or weight.dtype != states.dtype:
        return unfused(states, shape, weight, eps)
    return nn.functional.layer_norm(states, shape, weight, None, eps or 1e-6)


class Ended(Exception):
    """What was measured of a training is known."""


class SecondStep(TrainerCallback):
    """Does the second step on the simulated GPU."""

    def __init__(self, trainer):
        self.trainer, self.accelerator, self.operators = trainer, Accelerator(), Operators()
        self.held = ExitStack()

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 1:
            # What a batch is drawn by is not counted.
            self.held.enter_context(self.operators)

    def on_step_end(self, args, state, control, optimizer=None, **kwargs):
        if state.global_step == 2:
            self.held.close()
            raise Ended
        place_training(self.trainer, optimizer)
        vars(args)["_setup_devices"] = CUDA
        has_lists = patch.object(_foreach_utils, "_get_foreach_kernels_supported_devices", lambda: ["cpu"])
        for context in (has_lists, patch.object(nn.functional, "rms_norm", fused_norm), self.accelerator):
            self.held.enter_context(context)

    @property
    def row(self):
        waits = [wait for wait in self.accelerator.waits if NOT_SIMULATED not in wait]
        row = {"operators": self.operators.names.total(), "casts": self.operators.names["_to_copy"]}
        return row | {"waits": len(waits)} | dict(self.accelerator.copies)


class Clock(TrainerCallback):
    """Takes the processor's time of some rounds of steps."""

    def __init__(self):
        self.times = []

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step >= WARM_UP and (state.global_step - WARM_UP) % ROUND == 0:
            self.times.append(time.process_time())
        if len(self.times) > ROUNDS:
            raise Ended

    @property
    def row(self):
        seconds = min(end - begin for begin, end in zip(self.times, self.times[1:], strict=False))
        return {"steps_per_second": round(ROUND / seconds, 1)}


class Profile(TrainerCallback):
    """Adds up the milliseconds that the operators of a round of steps take by themselves."""

    def __init__(self):
        self.profile = profile(activities=[ProfilerActivity.CPU])

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == WARM_UP:
            self.profile.start()
        if state.global_step == WARM_UP + ROUND:
            self.profile.stop()
            raise Ended

    @property
    def row(self):
        spent = Counter()
        for event in self.profile.key_averages():
            if event.key.startswith("aten::"):
                name = event.key.removeprefix("aten::").strip("_").removesuffix("_backward")
                (part,) = [part for part, names in PARTS.items() if name in names] or [OTHER]
                spent[part] += event.self_cpu_time_total / ROUND / 1000
        return {f"{part}_milliseconds": round(spent[part], 2) for part in (*PARTS, OTHER)}


def trainer_of(recipe, precision, model, folder):
    words = [*NARROW, "--bf16", PRECISIONS[precision], "--use_cpu", "True", "--max_steps", "1001", "--eval_steps", "1000"]
    words += ["--validation_samples", "6", "--disable_tqdm", "True", "--output_dir", f"{folder}/run", *RECIPES[recipe]]
    run = parse_run([recipe, *words])
    trainer = make_trainer(run)
    run.training.save_strategy = run.training.eval_strategy = IntervalStrategy.NO
    if model == GPT2:
        torch.manual_seed(0)
        other = gpt2(run.config)
        for module in other.modules():
            if isinstance(module, nn.Dropout):
                # GPT-2 of the earlier commit had its own dropout.
                module.p = getattr(run.config, "hidden_dropout_prob", 0.0)
        trainer = BatchTrainer(model=other, args=run.training, train_dataset=Plain(trainer.train_dataset))
    return trainer


def measured(callback_of, *what):
    with TemporaryDirectory() as folder:
        trainer = trainer_of(*what, folder)
        callback = callback_of(trainer)
        trainer.add_callback(callback)
        try:
            trainer.train()
        except Ended:
            return callback.row
    raise AssertionError(f"{what}: the training ended before it was measured")


def measure(code):
    """Print a row for each recipe, precision and model, of the package that Python finds."""
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    for recipe in RECIPES:
        for precision in PRECISIONS:
            rows = {model: measured(SecondStep, recipe, precision, model) for model in MODELS}
            clocks, profiles = defaultdict(list), defaultdict(list)
            for _ in range(TIMES):
                for model in MODELS:
                    clocks[model].append(measured(lambda trainer: Clock(), recipe, precision, model))
                    profiles[model].append(measured(lambda trainer: Profile(), recipe, precision, model))
            for model, row in rows.items():
                what = {"code": code, "recipe": recipe, "precision": precision, "model": model}
                fastest = max(clocks[model], key=lambda clock: clock["steps_per_second"])
                least = min(profiles[model], key=lambda parts: sum(parts.values()))
                print(json.dumps(what | row | fastest | least), flush=True)


def rows_of(code, parent):
    """The rows of the package `longhand` in a folder."""
    command = [sys.executable, str(HERE), "--code", code]
    environment = {**os.environ, "PYTHONPATH": str(parent), "OMP_NUM_THREADS": "1"}
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout
    print(said, end="", flush=True)
    where = {"hardware": hardware(torch.device("cpu")), "torch": torch.__version__}
    return [json.loads(line) | where for line in said.splitlines() if line.startswith("{")]


def with_ratios(rows):
    """Rows with how many times as fast as GPT-2, with the same code, a model trains."""
    speeds = {(row["code"], row["recipe"], row["precision"], row["model"]): row["steps_per_second"] for row in rows}
    return [
        row | {"ratio": round(row["steps_per_second"] / speeds[row["code"], row["recipe"], row["precision"], GPT2], 2)}
        for row in rows
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--before", help="the earlier commit")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--code", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.code:
        measure(options.code)
        raise SystemExit
    with TemporaryDirectory() as parent:
        archive = subprocess.run(["git", "archive", options.before], cwd=HERE.parents[2], stdout=subprocess.PIPE, check=True)
        folder = Path(parent, "longhand")
        folder.mkdir()
        subprocess.run(["tar", "-x"], cwd=folder, input=archive.stdout, check=True)
        rows = with_ratios([*rows_of("before", parent), *rows_of("now", HERE.parents[3])])
    write_results(rows, options.output)
