"""This package's models against GPT-2 and Llama of transformers: steps of training and greedy tokens, in one run.

python tests/benchmarks/rivals.py --output hub_cards/results/rivals.jsonl

All have the same width, layers, heads and inner width, read the same sums of 1 to 30 digits in batches of 64, and train in
the stock Trainer with fused AdamW in float32; a row of its own has this package's loop, the one that `train.py` runs.
Decoding answers sums of 30 and of 100 digits, 32 at a time, greedily with a cache. Weights are untrained: all models write
the same number of tokens.

Seconds are of the processor, on one thread, not of the clock, so that other work on the machine counts little. Models take
turns for a few rounds; a rate is the median over rounds, and a ratio says how many times as fast as GPT-2 a model is.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch
from datasets import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.utils import logging

import longhand
from longhand.data import load_task_dataset
from longhand.data.batches import draw_batch
from longhand.data.collator import IGNORED
from longhand.hub_cards.result_rows import hardware
from longhand.hub_cards.training.arguments import parse_run
from longhand.modeling import CoupledGPTForCausalLM
from longhand.train import make_trainer

RECIPES = ("addition", "addition-absolute")
"""Whose shapes are compared: under a window, and with paper 1's learned table."""

ROUNDS, STEPS, SKIPPED, BATCH, ROWS = 3, 12, 4, 64, 32


class StepTimes(TrainerCallback):
    """Processor seconds of the steps of one round. The first steps, which compile and fill caches, are skipped."""

    def __init__(self):
        self.times: list[float] = []

    def on_step_begin(self, arguments, state, control, **rest):
        self.times.append(time.process_time())

    @property
    def seconds(self) -> float:
        return (self.times[-1] - self.times[SKIPPED]) / (len(self.times) - 1 - SKIPPED)


def rivals(config) -> dict[str, PreTrainedModel]:
    """Models of transformers with the shape of a CoupledGPT; 1,024 tokens at most."""
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "head_dim")
    sizes = {name: getattr(config, name) for name in names}
    shared = {"vocab_size": config.vocab_size, "max_position_embeddings": 1024, "pad_token_id": 0}
    shared |= {"bos_token_id": None, "eos_token_id": None}
    llama = LlamaConfig(tie_word_embeddings=True, **shared, **sizes)
    # GPT-2 divides its width by the number of heads; its other sizes have the same names as attributes.
    sizes.pop("head_dim")
    gpt2 = GPT2Config(n_inner=sizes.pop("intermediate_size"), **shared, **sizes)
    return {"GPT-2": GPT2LMHeadModel(gpt2), "Llama": LlamaForCausalLM(llama)}


def stock_steps(model: PreTrainedModel, rows: Dataset) -> float:
    """Seconds of a step in the stock Trainer, loading and collating of rows included."""
    times = StepTimes()
    with TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            max_steps=STEPS,
            per_device_train_batch_size=BATCH,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(model, arguments, train_dataset=rows, data_collator=longhand.collate_rows, callbacks=[times])
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return times.seconds


def own_steps(recipe: str) -> float:
    """Seconds of a step in this package's loop, which draws new problems and collates them."""
    times = StepTimes()
    with TemporaryDirectory() as folder:
        options = ["--max_steps", str(STEPS), "--batch_size", str(BATCH), "--eval_steps", "1000", "--test_samples", "1"]
        trainer = make_trainer(parse_run([recipe, *options, "--output_dir", f"{folder}/run", "--until_certified", "False"]))
        trainer.args.save_strategy = trainer.args.eval_strategy = "no"
        trainer.add_callback(times)
        trainer.train()
    return times.seconds


def token_seconds(model: PreTrainedModel, prompts: torch.Tensor, tokens: int) -> float:
    """Seconds of a greedy token, prompts included."""
    began = time.process_time()
    answers = model.generate(
        prompts, attention_mask=torch.ones_like(prompts), do_sample=False, min_new_tokens=tokens, max_new_tokens=tokens
    )
    assert answers.shape[1] == prompts.shape[1] + tokens
    return (time.process_time() - began) / tokens / len(prompts)


def in_turn(works: dict[str, Callable[[], float]], rounds: int = ROUNDS) -> dict[str, float]:
    """Median over rounds of the seconds that each work returns. They take turns; the first round is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds + 1):
        for name, work in works.items():
            seconds[name].append(work())
    return {name: median(found[1:]) for name, found in seconds.items()}


def report(what: str, recipe: str, seconds: dict[str, float], sizes: dict[str, int]) -> list[dict]:
    device = hardware(torch.device("cpu"))
    rows = []
    for name, each in seconds.items():
        row = {"what": what, "shape": recipe, "model": name, "parameters": sizes[name.split(",")[0]], "per_second": 1 / each}
        rows.append(row | {"ratio": seconds["GPT-2"] / each, "hardware": device})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def measure(recipe: str) -> list[dict]:
    run = parse_run([recipe])
    models = {"longhand": CoupledGPTForCausalLM(run.config), **rivals(run.config)}
    sizes = {name: sum(weights.numel() for weights in model.parameters()) for name, model in models.items()}
    rows = load_task_dataset("addition", split="train", max_length=30, num_samples=BATCH * STEPS)
    rows = rows.select_columns(["input_ids", "labels"])
    works = {name: partial(stock_steps, model, rows) for name, model in models.items()}
    works["longhand, train.py"] = partial(own_steps, recipe)
    results = report("training steps", recipe, in_turn(works), sizes)
    for digits in (30, 100):
        batch = draw_batch(models["longhand"], run.task, run.task.operand_lengths(digits), ROWS)
        first = int((batch["labels"] != IGNORED).int().argmax(1)[0])
        prompts, tokens = batch["input_ids"][:, :first], digits + 2
        for model in models.values():
            model.eval()
        works = {name: partial(token_seconds, model, prompts, tokens) for name, model in models.items()}
        results += report(f"greedy tokens, {digits} digits", recipe, in_turn(works), sizes)
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    results = [row for recipe in RECIPES for row in measure(recipe)]
    if options.output:
        options.output.write_text("".join(json.dumps(row) + "\n" for row in results))
