"""Benchmarks against a baseline (`baseline.py` if not said otherwise), both sides in turn in one run. Prints ratios.

python tests/benchmarks/bench.py training evaluation data --output results.json
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import pyarrow as pa
import torch
from baseline import BaselineGPT, batch, example, loss
from transformers import BertConfig, BertModel

from longhand.data import Addition, CouplingCollator, EncoderAddition, EvaluationBatches, FreshBatches
from longhand.data.builder import TaskDatasetBuilder
from longhand.hub_cards.evaluation.results import hardware
from longhand.modeling import (
    CoupledGPTConfig,
    CoupledGPTForCausalLM,
    PairwiseBertConfig,
    PairwiseBertForTokenClassification,
)
from longhand.modeling.encoder_maps import derive_pair_map, virtual_indices

MAX_POSITION = 202


def paper_model() -> CoupledGPTForCausalLM:
    """The model of paper 1's Fig. 3: one layer, 4 heads, d 512, d_ff 2048, learned table of 202 ids."""
    config = CoupledGPTConfig(
        hidden_size=512,
        num_attention_heads=4,
        intermediate_size=2048,
        position_encoding="learned",
        max_position_ids=MAX_POSITION,
        norm_placement="pre_post",
        init="t5",
        attention_scale="none",
        tie_word_embeddings=True,
    )
    return CoupledGPTForCausalLM(config)


def compare(name: str, ours: Callable[[], int], baseline: Callable[[], int], unit: str, rounds: int) -> dict:
    """Runs both in turn; each call does some work and returns how many units it was. The first round is not counted."""
    rates = {"longhand": [], "baseline": []}
    for _ in range(rounds + 1):
        for side, work in (("longhand", ours), ("baseline", baseline)):
            began = time.perf_counter()
            done = work()
            rates[side].append(done / (time.perf_counter() - began))
    fast, slow = (median(rates[side][1:]) for side in ("longhand", "baseline"))
    ratio = median(a / b for a, b in zip(rates["longhand"][1:], rates["baseline"][1:], strict=True))
    print(f"{name}: longhand {fast:,.1f} {unit}/s, baseline {slow:,.1f} {unit}/s, ratio {ratio:.1f}", flush=True)
    device = hardware(torch.device("cpu"))
    return {"benchmark": name, "unit": f"{unit}/s", "longhand": fast, "baseline": slow, "ratio": ratio, "hardware": device}


def drawn_batches(size: int) -> Iterator[dict]:
    """New batches of `size` sums of 1 to 30 digits for training, with position ids from random starts."""
    task = Addition()
    collator = CouplingCollator(task.coupling, MAX_POSITION, "random_start")
    batches = FreshBatches(task, 1, 30, 0, collator=collator, batch_size=size, num_batches=10**6)
    return (batches[index] for index in range(len(batches)))


def training_steps(model: CoupledGPTForCausalLM, size: int) -> Callable[[int], int]:
    """Returns what takes optimizer steps of `size` new sums of 1 to 30 digits, data included, and counts the sums."""
    # Fused is the Trainer's default, and so what train.py runs.
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-4, fused=True)
    batches = drawn_batches(size)

    def work(steps: int) -> int:
        for _ in range(steps):
            step(model, optimizer, model(**next(batches), use_cache=False).loss)
        return steps * size

    return work


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, value: torch.Tensor) -> None:
    value.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def training(rounds: int) -> dict:
    """Optimizer steps of 128 sums of 1 to 30 digits, data included. The baseline is compiled."""
    size, steps = 128, 6
    ours, plain = training_steps(paper_model(), size), BaselineGPT(max_position=MAX_POSITION)
    optimizer, compiled = torch.optim.AdamW(plain.parameters(), lr=1e-4), torch.compile(plain)

    def baseline():
        for _ in range(steps):
            step(plain, optimizer, loss(compiled, *batch([example(30, MAX_POSITION) for _ in range(size)])))
        return steps * size

    return compare("training", lambda: ours(4 * steps), baseline, "problems", rounds)


def windowed_training(rounds: int) -> dict:
    """Optimizer steps of the recipe `addition`, data included. The baseline is longhand's own form that scores all pairs."""
    size, steps = 256, 20
    models = [CoupledGPTForCausalLM(CoupledGPTConfig()).train() for _ in range(2)]
    optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True) for model in models]
    task = Addition()
    collator = CouplingCollator(task.coupling, MAX_POSITION)
    batches = FreshBatches(task, 1, 30, 0, collator=collator, batch_size=size, num_batches=10**6)
    drawn = [iter(range(10**6)), iter(range(10**6))]

    def train(side: int, all_pairs: bool) -> int:
        for _ in range(steps):
            batch = batches[next(drawn[side])]
            if all_pairs:
                ids = batch["position_ids"]
                batch["pair_map"] = models[side].model.position_encoding.pair_map(ids, ids)
            models[side](**batch, use_cache=False).loss.backward()
            optimizers[side].step()
            optimizers[side].zero_grad()
        return steps * size

    return compare("windowed training", lambda: train(0, False), lambda: train(1, True), "problems", rounds)


@torch.inference_mode()
def evaluate(model: CoupledGPTForCausalLM, length: int, count: int, size: int) -> int:
    """Teacher-forced evaluation of `count` sums in batches of `size`, data included; returns `count`."""
    task = Addition()
    collator = CouplingCollator(task.coupling, MAX_POSITION)
    batches = EvaluationBatches(task, (length, length), count, 0, "test", size, collator=collator)
    for index in range(len(batches)):
        task.family.forward_matches(model, batches[index])
    return count


def evaluation(rounds: int) -> dict:
    """Teacher-forced evaluation of 200-digit sums with the same model, data included."""
    count, length = 20, 200
    model, plain = paper_model().eval(), BaselineGPT(max_position=MAX_POSITION).eval()

    @torch.inference_mode()
    def baseline():
        for _ in range(2):
            tokens, ids, labels = batch([example(length, MAX_POSITION, length) for _ in range(count)])
            predicted = plain(tokens, ids)[:, :-1].argmax(-1)
            ((predicted == labels[:, 1:]) | (labels[:, 1:] == -100)).all(1)
        return 2 * count

    return compare("evaluation", lambda: evaluate(model, length, 5 * count, count), baseline, "problems", rounds)


def data(rounds: int) -> dict:
    """Formatted examples of 1 to 30 digits with labels and position ids from random starts, on one core."""
    torch.set_num_threads(1)
    size = 4096
    batches = drawn_batches(size)

    def ours():
        return sum(len(next(batches)["input_ids"]) for _ in range(100))

    def baseline():
        for _ in range(5):
            batch([example(30, MAX_POSITION) for _ in range(size // 4)])
        return 5 * (size // 4)

    return compare("data", ours, baseline, "examples", rounds)


def pairwise_attention(rounds: int) -> dict:
    """One attention layer of paper 2's encoder for addition, forward and backward. The baseline is transformers' BERT layer.

    101 tokens, d 768, 8 heads, 16 examples, dropout off; both with sdpa and all four projections.
    """
    examples, tokens = 16, 101
    config = PairwiseBertConfig(attention_probs_dropout_prob=0.0)
    ours_module = PairwiseBertForTokenClassification(config).model.layers[0].self_attn
    plain = BertConfig(
        hidden_size=768, num_attention_heads=8, num_hidden_layers=1, intermediate_size=3072,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="sdpa",
    )  # fmt: skip
    theirs = BertModel(plain).encoder.layer[0].attention
    task = EncoderAddition(field_width=50)
    inputs = EvaluationBatches(task, (5,), 1, 0, "test", 1, collator=task.family.collator(config))[0]["input_ids"]
    indices = virtual_indices(inputs)
    pair_map = derive_pair_map("relative", inputs, indices, config.relation_range, False, 3).long()
    states = torch.randn(examples, tokens, 768, requires_grad=True)

    def work(forward: Callable[[], torch.Tensor]) -> int:
        for _ in range(4):
            forward().sum().backward()
        return 4 * examples

    def ours():
        return work(lambda: ours_module(states, pair_maps={"relative": pair_map}, attention_mask=None)[0])

    def baseline():
        return work(lambda: theirs.self(states)[0] @ theirs.output.dense.weight.T + theirs.output.dense.bias)

    return compare("pairwise attention", ours, baseline, "examples", rounds)


def builder(rounds: int) -> dict:
    """Rows of a dataset in Arrow, sums of 1 to 30 digits with all columns, on one core, beside rows of two columns that are
    made one by one in Python; one shard of 65,536 rows against 4,096.
    """
    torch.set_num_threads(1)
    size = 4096
    with TemporaryDirectory() as folder:
        dataset = TaskDatasetBuilder(cache_dir=folder, task="addition", max_length=30, num_samples={"train": 10**9}, seed=0)
        shards = iter(range(10**4))

        def ours():
            ((_, table),) = dataset._generate_tables("train", [next(shards)])
            return len(table)

        def baseline():
            tokens, ids, _ = zip(*(example(30, MAX_POSITION) for _ in range(size)), strict=True)
            return len(pa.table({"tokens": pa.array(tokens), "position_ids": pa.array(ids)}))

        return compare("builder", ours, baseline, "rows", rounds)


BENCHMARKS = {
    "training": training,
    "windowed_training": windowed_training,
    "evaluation": evaluation,
    "data": data,
    "builder": builder,
    "pairwise_attention": pairwise_attention,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], help="default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    names = options.names or [*BENCHMARKS]
    if len(names) == 1:
        lines = json.dumps(BENCHMARKS[names[0]](options.rounds)) + "\n"
    else:
        # Each in a process of its own: what torch.compile leaves behind slows down whatever comes after it.
        with TemporaryDirectory() as folder:
            files = [Path(folder, name) for name in names]
            for name, file in zip(names, files, strict=True):
                own = [sys.executable, __file__, name, "--rounds", str(options.rounds), "--output", str(file)]
                subprocess.run(own, check=True)
            lines = "".join(file.read_text() for file in files)
    if options.output:
        options.output.write_text(lines)
