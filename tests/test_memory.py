"""Estimates of memory against what is taken, and limits that other processes set."""

import resource
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from longhand.data import TASKS, EvaluationBatches, memory
from longhand.data.builder import TaskDatasetBuilder, load_task_dataset
from longhand.hub_cards.evaluation.measure import batch_shape
from longhand.hub_cards.training.arguments import parse_run
from longhand.hub_cards.training.trainer import make_trainer
from longhand.modeling import CoupledGPTConfig, PairwiseBertConfig

WITHIN = 3
"""The factor that the estimates promise."""

DECODER, ENCODER = TASKS["addition"](), TASKS["encoder_addition"]()
SMALL = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 256}
ENCODERS = SMALL | {"pair_maps": ["coupled"], "attention_probs_dropout_prob": 0.0}


def peak_bytes(work) -> int:
    """The most memory that tensors made by some work take at a time."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        work()
    events = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    return int(np.cumsum([event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]).max())


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize(
    ("task", "config", "length"),
    [
        (DECODER, CoupledGPTConfig(), 300),
        (DECODER, CoupledGPTConfig(num_hidden_layers=3), 100),
        (DECODER, CoupledGPTConfig(windowed=False), 250),
        (DECODER, CoupledGPTConfig(windowed=False, num_hidden_layers=2, num_attention_heads=8), 150),
        (DECODER, CoupledGPTConfig(position_encoding="rotary", num_hidden_layers=2), 100),
        (ENCODER, PairwiseBertConfig(**ENCODERS, num_hidden_layers=2), 150),
        (ENCODER, PairwiseBertConfig(**ENCODERS, num_hidden_layers=4), 40),
        (ENCODER, PairwiseBertConfig(**ENCODERS, num_hidden_layers=2, windowed=True, relation_range=[0, 1]), 150),
    ],
    ids=[*("window", "deep window", "pairs", "deep pairs", "rotary"), *("encoder", "short encoder", "windowed encoder")],
)
def test_a_pass_takes_about_what_is_estimated(task, config, length, rows, training):
    batches = EvaluationBatches(
        task, task.operand_lengths(length), rows, 0, "test", rows, collator=task.family.collator(config)
    )
    batch, model = batches[0], task.family.model_class(config).train(training)

    def work():
        with torch.set_grad_enabled(training):
            output = model(**batch, **task.family.forward_options)
            if training:
                output.loss.backward()

    estimate = task.family.forward_bytes(config, rows, *batch_shape(batch), training)
    assert 1 / WITHIN < estimate / peak_bytes(work) < WITHIN


@pytest.mark.parametrize("name", ["addition", "minesweeper", "copy", "encoder_addition", "multiplication_scratchpad"])
def test_problems_and_rows_take_about_what_is_estimated(name, tmp_path):
    task, length, count = TASKS[name](), 20, 500
    tracemalloc.start()
    try:
        batches = EvaluationBatches(task, task.operand_lengths(length), count, 0, "test", count, collator=None)
        drawn = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 1 / WITHIN < count * batches.examples.tokens.shape[1] * memory.PROBLEM_BYTES / drawn < WITHIN
    builder = TaskDatasetBuilder(task=name, max_length=length, num_samples={"train": count}, cache_dir=str(tmp_path))
    table = next(builder._generate_tables("train", [0]))[1]
    assert 1 / WITHIN < builder.row_bytes * count / table.nbytes < WITHIN


def test_a_limit_of_the_process_counts():
    limit = 8 * 2**30
    code = "from longhand.data.memory import available_memory; print(available_memory())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert 0 < int(done.stdout) < limit


@pytest.mark.parametrize(("written", "left"), [("max", None), ("1000000", 700_000)])
def test_a_limit_of_a_control_group_counts_and_its_caches_are_free(written, left, tmp_path, monkeypatch):
    for name, content in (("memory.max", written), ("memory.current", "500000"), ("memory.stat", "inactive_file 200000")):
        (tmp_path / name).write_text(f"{content}\n")
    group = (str(tmp_path / "memory.max"), str(tmp_path / "memory.current"), "inactive_file")
    monkeypatch.setattr(memory, "_GROUPS", (group,))
    assert memory.available_memory() == left or (left is None and memory.available_memory() > 10**7)


TRAINING = ["addition", "--until_certified", "False", "--output_dir"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--max_length", "100000"], "make batch_size or max_length smaller"),
        (["--batch_size", str(10**9)], "make batch_size or max_length smaller"),
        (["--num_train_samples", str(10**11)], "make num_train_samples or max_length smaller"),
        (["--validation_samples", str(10**11)], "make validation_samples or validation_lengths smaller"),
        (["--test_samples", str(10**11)], "make test_samples or test_lengths smaller"),
        (["--hidden_size", str(10**7)], "make hidden_size or the model's other sizes smaller"),
        (["--num_hidden_layers", str(10**9)], "make hidden_size or the model's other sizes smaller"),
        (["--test_lengths", str(10**9)], "test_lengths must be an integer from 1 to 1,000,000"),
        (["--validation_lengths", *map(str, range(1, 1002))], "validation_lengths must be 1,000 lengths at most, got 1,001"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_run_beyond_the_machine_is_refused_and_writes_nothing(options, reason, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda device=None: 2**33)
    folder = tmp_path / "run"
    with pytest.raises(ValueError, match=reason):
        make_trainer(parse_run([*TRAINING, str(folder), *options]))
    assert not folder.exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"max_length": 10**9, "num_samples": 5}, "max_length must be"),
        ({"max_length": 30, "num_samples": 10**13}, "num_samples must be"),
        ({"max_length": 30, "num_samples": 6 * 10**10}, "GiB of disk"),
        ({"max_length": 30, "num_samples": 6 * 10**10, "num_proc": 10_000}, "make num_proc"),
    ],
    ids=str,
)
def test_a_dataset_beyond_the_machine_is_refused_and_writes_nothing(options, reason, tmp_path):
    with pytest.raises(ValueError, match=reason):
        load_task_dataset("addition", cache_dir=str(tmp_path), **options)
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and file.suffix != ".lock"]


@pytest.mark.parametrize("name", ["minesweeper", "addition_scratchpad"])
def test_a_size_is_refused_before_a_tuple_of_it_is_made(name):
    with pytest.raises(ValueError, match="from 1 to 2,000"):
        TASKS[name]().operand_lengths(10**11)
