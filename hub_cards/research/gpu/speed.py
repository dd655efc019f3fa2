"""Steps of training a second in every precision, and how often the host waits in one, against GPT-2 of the same shape.

Both train in this package's Trainer on the same batches, whose making is part of a step. GPT-2 gets tokens and labels alone.
"""

# Used by: run.py. Changed freely.

import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedConfig, TrainerCallback
from transformers.trainer_utils import IntervalStrategy

from longhand.data.batches import Batches
from longhand.data.formatting import Batch, as_batch
from longhand.hub_cards.research.gpu.record import Record
from longhand.hub_cards.result_rows import Row
from longhand.hub_cards.training.arguments import parse_run
from longhand.hub_cards.training.trainer import BatchTrainer
from longhand.train import make_trainer

PACKAGE = Path(__file__).parents[3]

RECIPES = ("addition", "paper-addition", "paper-encoder-addition")
TRAINED = "50000"
"""Problems of a fixed training set, which are drawn before the first step."""

PRECISIONS: dict[str, list[str]] = {
    "float32": ["--tf32", "False", "--bf16", "False"],
    "TF32": ["--tf32", "True", "--bf16", "False"],
    "bf16": ["--tf32", "True", "--bf16", "True"],
}
_COMPILED = [*PRECISIONS["bf16"], "--torch_compile", "True"]
COMPILED: dict[str, list[str]] = {
    "bf16, compiled": _COMPILED,
    "bf16, captured": [*_COMPILED, "--torch_compile_mode", "reduce-overhead"],
}
"""Compiled models; captured ones launch the kernels of a step as few graphs of CUDA."""
MODELS = ("longhand", "GPT-2")

WARM_UP, TIMED, WATCHED = 20, 60, 5
"""Steps that are not timed, that are timed, and in which waits are counted."""
MOST_SECONDS = 3.0
"""Seconds after which timing ends, at least ten steps."""


def run(record: Record) -> None:
    """Measure all recipes. Compiling takes longest: this package's models come first, GPT-2 last."""
    compiled, precisions = ([], ["float32", "bf16"]) if record.small else (list(COMPILED), list(PRECISIONS))
    recipes = RECIPES[: 1 if record.small else None]
    ordered = [(precision, recipe, MODELS[0]) for precision in compiled for recipe in recipes]
    ordered += [(precision, recipe, model) for recipe in recipes for precision in precisions for model in MODELS]
    ordered += [(precision, recipe, MODELS[1]) for precision in compiled for recipe in recipes]
    for precision, recipe, model in ordered:
        measure(record, recipe, precision, model)


def measure(record: Record, recipe: str, precision: str, model: str) -> None:
    """Record the speed of a model in a precision."""
    words = (PRECISIONS | COMPILED)[precision]
    # The first compilation of a shape takes about half a minute.
    needs = 40 if precision in COMPILED else 5
    record.measure(f"{recipe}, {precision}, {model}", partial(steps, record, recipe, precision, words, model), needs=needs)


class Clock(TrainerCallback):
    """Times the steps after the first ones, counts waits in some more, and ends the training.

    Attributes:
        seconds: of a step; None until known.
        places: how often the host waited for a GPU in the watched steps, by the line of code.
    """

    def __init__(self, device: torch.device, warm_up: int, timed: int, watched: int):
        self.device, self.first, self.most, self.watched = device, warm_up, warm_up + timed, watched
        self.seconds: float | None = None
        self.places: Counter[str] = Counter()
        self._watching = ExitStack()
        self._left = watched

    def now(self) -> float:
        """The time when the device has done all that it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self.first:
            self._began = self.now()

    def on_step_end(self, args, state, control, **kwargs):
        done = state.global_step - self.first
        if self.seconds is None and done > 0:
            if state.global_step >= self.most or (done >= 10 and time.perf_counter() - self._began > MOST_SECONDS):
                self.seconds = (self.now() - self._began) / done
                counting = cuda_waits() if self.device.type == "cuda" else nullcontext(self.places)
                self.places = self._watching.enter_context(counting)
        elif self.seconds is not None:
            self._left -= 1
            if not self._left:
                self._watching.close()
                control.should_training_stop = True


@contextmanager
def cuda_waits() -> Iterator[Counter[str]]:
    """Count how often CUDA makes the host wait, by the line of code; the counter is filled when the context ends."""
    places: Counter[str] = Counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield places
        finally:
            torch.cuda.set_sync_debug_mode("default")
    for warning in caught:
        if "synchronizing CUDA operation" in str(warning.message):
            file = Path(warning.filename)
            name = str(file.relative_to(PACKAGE)) if file.is_relative_to(PACKAGE) else "/".join(file.parts[-2:])
            places[f"{name}:{warning.lineno}"] += 1


class Plain(Dataset):
    """Batches with tokens and labels alone, as models of others take them."""

    def __init__(self, batches: Any):
        self.batches: Batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, item: int) -> Batch:
        names = ("input_ids", "labels", "attention_mask")
        return as_batch({name: value for name, value in self.batches[item].items() if name in names})


def gpt2(config: PreTrainedConfig) -> GPT2LMHeadModel:
    """GPT-2 with the shape and the dropout of a model of either family."""
    dropout = getattr(config, "hidden_dropout_prob", 0.0)
    return GPT2LMHeadModel(
        GPT2Config(
            n_embd=config.hidden_size,
            n_inner=config.intermediate_size,
            n_layer=config.num_hidden_layers,
            n_head=config.num_attention_heads,
            vocab_size=config.vocab_size,
            n_positions=1024,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=None,
            embd_pdrop=dropout,
            resid_pdrop=dropout,
            attn_pdrop=getattr(config, "attention_probs_dropout_prob", 0.0),
        )
    )


def steps(record: Record, recipe: str, precision: str, words: list[str], model: str) -> Row:
    """Steps a second of a recipe, and waits a step."""
    sizes = (1, 2, 1) if record.small else (WARM_UP, TIMED, WATCHED)
    if record.small:
        # Processors have no TF32.
        words = [*words[2:], "--batch_size", "8", "--use_cpu", "True"]
    words = [*words, "--max_steps", str(sum(sizes) + 1), "--validation_samples", "8", "--eval_steps", "100000"]
    if recipe.startswith("paper-"):
        # As the study `paper-scale`: a fixed set is drawn by processes beside the one that trains.
        workers = "0" if record.small else "2"
        words += ["--num_train_samples", TRAINED, "--dataloader_num_workers", workers]
    with TemporaryDirectory() as folder:
        until = ["--until_certified", "False"] if recipe == "addition" else []
        run = parse_run([recipe, *words, *until, "--disable_tqdm", "True", "--output_dir", f"{folder}/run"])
        trainer = make_trainer(run)
        run.training.save_strategy = run.training.eval_strategy = IntervalStrategy.NO
        if model == "GPT-2":
            torch.manual_seed(0)
            plain = Plain(trainer.train_dataset)
            trainer = BatchTrainer(model=gpt2(run.config), args=run.training, train_dataset=plain)
        clock = Clock(record.device, *sizes)
        trainer.add_callback(clock)
        trainer.train()
        parameters = trainer.accelerator.unwrap_model(trainer.model).num_parameters()
    assert clock.seconds is not None
    watched = sizes[-1]
    return {
        "recipe": recipe,
        "precision": precision,
        "model": model,
        "parameters": parameters,
        "rows": run.training.per_device_train_batch_size,
        "steps_per_second": round(1 / clock.seconds, 2),
        "waits": round(clock.places.total() / watched, 2),
        "waits_at": {place: round(count / watched, 2) for place, count in clock.places.most_common(12)},
    }


def with_ratios(rows: list[Row]) -> list[Row]:
    """Rows with how many times as fast as GPT-2 in the same precision a model trains."""
    speeds = {(row["recipe"], row["precision"], row["model"]): row["steps_per_second"] for row in rows if "model" in row}
    shown = []
    for row in rows:
        own = row.get("steps_per_second")
        other = speeds.get((row.get("recipe"), row.get("precision"), MODELS[1]))
        shown.append(row | {"ratio": round(own / other, 2)} if own and other else row)
    return shown
