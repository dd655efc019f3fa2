import hashlib
import json
from itertools import combinations

import numpy as np
import pytest
import torch
from datasets import load_from_disk
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments

from longhand.data import (
    TASKS,
    Addition,
    AdditionScratchpad,
    CouplingCollator,
    IndexHintedAddition,
    MultiOperandAddition,
    Multiplication,
    MultiplicationScratchpad,
    Parity,
    Reverse,
    Subtraction,
    builder,
    collate_rows,
    load_task_dataset,
    make_generator,
)
from longhand.data.builder import TaskDatasetBuilder, build_task, example_columns
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.modeling.vocabulary import HINTS, PAD, decode

FORMATS = [
    *(task() for task in TASKS.values()),
    Addition(zero_padding=False),
    Addition(zero_padding=False, order="plain", separate_eos=True),
    Addition(order="all_reversed"),
    IndexHintedAddition(supervise_hints=False, order="plain"),
    MultiOperandAddition(operands=5),
    Multiplication(multiplier_length=1),
    Parity(scratchpad=False),
    AdditionScratchpad(length_sampling="uniform_values", max_operands=4),
]
every_format = pytest.mark.parametrize("task", FORMATS, ids=lambda task: ",".join(map(str, task.describe().values())))

HASHED_VERSION = "1.0.0"
HASHES = {
    "addition": "ef8156a8a4f481d5",
    "addition_scratchpad": "0d1be0846dd3377f",
    "index_hinted_addition": "d496f2dc34346e9d",
    "minesweeper": "2dc650735cb34dfa",
    "multi_operand_addition": "9ef347266ab959a3",
    "multiplication": "4f274aae16139db5",
    "multiplication_scratchpad": "5baeb1229f868ea9",
    "copy": "b177e846728dbace",
    "reverse": "01dca1fd62b5bbe2",
    "parity": "4590973590426b0e",
    "subtraction": "c1dd26d8272d5599",
}


def load(task="addition", **arguments):
    return load_task_dataset(task, **{"max_length": 6, "num_samples": 50, "min_length": 3, "streaming": True} | arguments)


def one_group(task, count=40):
    """Digits and lengths of a group of drawn problems."""
    generator = make_generator("group")
    lengths = task.sample_lengths(generator, 50 * count, 3, 6)
    lengths = lengths[task.group(lengths) == task.group(lengths[:1])][:count]
    return task.draw(generator, lengths, "train"), lengths


@every_format
def test_columns_are_what_the_collator_gives(task):
    digits, lengths = one_group(task)
    examples = task.format(digits, lengths)
    expected = CouplingCollator(task.coupling, 10**6)(examples)
    batch = collate_rows(example_columns(task, digits, lengths, np.dtype(np.int16)).to_pylist())
    assert (batch["input_ids"] == expected["input_ids"]).all() and (batch["labels"] == expected["labels"]).all()
    planned = expected["position_ids"].expand(len(lengths), -1, -1)
    assert (batch["position_ids"] == planned.masked_fill((batch["input_ids"] == PAD)[:, None], 0)).all()
    assert batch["logits_to_keep"] == expected["logits_to_keep"]
    assert (batch["attention_mask"] == expected.get("attention_mask", torch.ones_like(batch["input_ids"]))).all()


@every_format
def test_texts_are_those_of_the_tokens(task):
    digits, lengths = one_group(task)
    for row, own in zip(example_columns(task, digits, lengths, np.dtype(np.int16)).to_pylist(), lengths, strict=True):
        text = decode(row["tokens"])
        assert text[: row["query_length"]] == f"${row['prompt']}" and text[row["query_length"] - 1] == "="
        assert row["answer"] == task.read_answer(decode(row["tokens"][row["query_length"] : -1]))
        assert row["operand_lengths"] == own[own > 0].tolist()


PYTHON_ANSWERS = {
    Addition(): lambda first, second: first + second,
    Addition(zero_padding=False): lambda first, second: first + second,
    Addition(order="plain"): lambda first, second: first + second,
    IndexHintedAddition(order="plain"): lambda first, second: first + second,
    MultiOperandAddition(operands=4): lambda *numbers: sum(numbers),
    AdditionScratchpad(): lambda *numbers: sum(numbers),
    Multiplication(): lambda first, second: first * second,
    MultiplicationScratchpad(): lambda first, second: first * second,
    Subtraction(): lambda first, second: first - second,
}


@pytest.mark.parametrize("task", PYTHON_ANSWERS, ids=lambda task: ",".join(map(str, task.describe().values())))
def test_answers_are_those_of_python_integers(task):
    name, *task_fields = task.describe().items()
    for row in load(name[1], **dict(task_fields), num_samples=200, max_length=9):
        question = row["prompt"].rstrip("=").translate(dict.fromkeys(map(ord, HINTS)))
        (sign,) = {character for character in question if character in "+-*"}
        numbers = list(map(int, question.split(sign)))
        assert row["answer"] == str(PYTHON_ANSWERS[task](*numbers))
        assert row["operand_lengths"][0] == len(str(numbers[0])) or task.name in ("subtraction", "addition_scratchpad")


def test_numbers_and_strings_whose_zeros_are_special():
    zeros = np.zeros((1, 2, 3), dtype=np.uint8)
    lengths = np.full((1, 2), 3)
    for task in (Addition(), Addition(order="plain"), Subtraction(), MultiplicationScratchpad()):
        assert example_columns(task, zeros, lengths, np.dtype(np.int16))["answer"].to_pylist() == ["0"]
    assert example_columns(Reverse(), zeros[:, :1], lengths[:, :1], np.dtype(np.int16))["answer"].to_pylist() == ["000"]


def test_longest_cascade_is_that_of_the_carries():
    for row in load(num_samples=500, max_length=8):
        first, second = (number[::-1] for number in row["prompt"].rstrip("=").split("+"))
        longest = length = 0
        for column in map(lambda *pair: sum(map(int, pair)), first, second):
            length = 1 if column > 9 else length + 1 if column == 9 and length else 0
            longest = max(longest, length)
        assert row["longest_cascade"] == longest


@every_format
def test_rows_stand_in_the_order_in_which_their_lengths_were_drawn(task):
    name, *task_fields = task.describe().items()
    rows = load(name[1], **dict(task_fields), num_samples=300, seed=5)
    drawn = task.sample_lengths(make_generator(5, "train", "dataset", 0), 300, 3, 6)
    for row, lengths in zip(rows, drawn, strict=True):
        assert row["operand_lengths"] == lengths[lengths > 0].tolist()
        assert len(row["tokens"]) == len(row["position_ids" if "position_ids" in row else "position_ids_0"])
        assert decode(row["tokens"]).startswith(f"${row['prompt']}")


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(builder, "_SHARD_ROWS", 64)


@pytest.mark.parametrize("arguments", [{"zero_padding": False}, {"task": "minesweeper"}, {"task": "subtraction"}], ids=str)
def test_same_rows_from_any_number_of_processes_and_streamed(arguments, small_shards, tmp_path):
    arguments = arguments | {"num_samples": 300}
    streamed = load(**arguments)
    assert streamed.num_shards == 5
    rows = list(streamed)
    assert len(rows) == 300
    for num_proc in (1, 2):
        stored = load(**arguments, streaming=False, num_proc=num_proc, cache_dir=tmp_path / str(num_proc))
        assert list(stored) == rows and stored.features == streamed.features
    assert list(load(**arguments, seed=1)) != rows
    stored.save_to_disk(tmp_path / "saved")
    assert list(load_from_disk(tmp_path / "saved")) == rows


def test_a_larger_dataset_begins_with_the_same_shards(small_shards):
    assert list(load(num_samples=300))[:256] == list(load(num_samples=256))


def test_a_shard_of_long_problems_has_fewer_rows():
    shards = [TaskDatasetBuilder(max_length=length, num_samples={"train": 1}).shard_rows for length in (30, 10_000)]
    assert shards[0] == 2**16 and 1000 < shards[1] < 2000


def test_splits_share_no_problem():
    splits = {split: {row["prompt"] for row in load(split=split, min_length=1, max_length=2, num_samples=3000)}
              for split in ("train", "validation", "test")}  # fmt: skip
    assert all(splits.values()) and all(not first & second for first, second in combinations(splits.values(), 2))


def test_all_splits_at_once_are_the_single_ones(tmp_path):
    num_samples = {"test": 20, "train": 50}
    together = load(split=None, num_samples=num_samples, streaming=False, cache_dir=tmp_path)
    assert set(together) == set(num_samples)
    for split, count in num_samples.items():
        assert list(together[split]) == list(load(split=split, num_samples=count))
    assert {split: len(list(rows)) for split, rows in load(split=None).items()} == dict.fromkeys(builder.SPLITS, 50)


def test_ids_are_16_bits_wide_unless_they_need_more():
    features = [TaskDatasetBuilder(max_length=length, num_samples={"train": 1}).info.features for length in (30, 33_000)]
    assert [feature["position_ids"].feature.dtype for feature in features] == ["int16", "int32"]
    assert features[0]["tokens"].feature.dtype == "uint8"


def test_the_cache_knows_every_argument(tmp_path):
    def folder(**arguments):
        arguments = {"task": "addition", "max_length": 6, "num_samples": {"train": 5}} | arguments
        return TaskDatasetBuilder(cache_dir=tmp_path, dataset_name="longhand", **arguments).cache_dir

    assert folder() == folder(seed=0, min_length=1, task_fields={"zero_padding": True})
    assert folder() == folder(seed=np.int64(0), num_samples={"train": np.int64(5)})
    assert folder().endswith(builder.VERSION)
    others = [{"seed": 1}, {"min_length": 2}, {"max_length": 7}, {"num_samples": {"test": 5}}, {"num_samples": {"train": 6}},
              {"task": "copy", "num_samples": {"train": 5}}, {"task_fields": {"zero_padding": False}}]  # fmt: skip
    assert len({folder(), *(folder(**other) for other in others)}) == len(others) + 1


def test_a_stored_dataset_is_not_made_again(tmp_path, monkeypatch):
    first = load(streaming=False, cache_dir=tmp_path)
    monkeypatch.setattr(builder, "example_columns", None)
    monkeypatch.setattr(TaskDatasetBuilder, "_info", lambda self: first.info.copy())
    assert list(load(streaming=False, cache_dir=tmp_path)) == list(first)


def row_hash(name):
    rows = load(name, num_samples=40)
    types = [str(kind) for kind in rows.features.arrow_schema.types]
    return hashlib.sha256(json.dumps([types, list(rows)], sort_keys=True).encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", TASKS)
def test_rows_change_with_the_version_alone(name):
    assert (builder.VERSION, row_hash(name)) == (HASHED_VERSION, HASHES.get(name)), (
        f"the same arguments give other rows of {name!r}: raise VERSION in data/builder.py, so that the cache does not go "
        "on giving the old ones, and store it here with the new hashes (for a new task, its hash alone)"
    )


@pytest.mark.parametrize("arguments", [{}, {"zero_padding": False}, {"task": "minesweeper"}], ids=str)
def test_trainer_takes_the_rows(arguments, tmp_path):
    rows = load(**arguments, num_samples=64, streaming=False, cache_dir=tmp_path)
    task = build_task(arguments.get("task", "addition"))
    config = CoupledGPTConfig(coupling=task.coupling, hidden_size=16, intermediate_size=16)
    model = CoupledGPTForCausalLM(config)
    before = [parameter.clone() for parameter in model.parameters()]
    options = TrainingArguments(
        output_dir=tmp_path / "run",
        max_steps=2,
        per_device_train_batch_size=16,
        remove_unused_columns=False,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(model, options, train_dataset=rows, data_collator=collate_rows)
    assert np.isfinite(trainer.train().training_loss)
    assert any((old != new).any() for old, new in zip(before, model.parameters(), strict=True))


def test_a_stream_is_shared_among_the_workers_of_a_loader(small_shards):
    rows = load(num_samples=300)
    batches = list(DataLoader(rows, batch_size=10, num_workers=2, collate_fn=collate_rows))
    assert sum(len(batch["input_ids"]) for batch in batches) == 300


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": "divide"}, "task 'divide' is unknown: choose one of addition, "),
        ({"padding": False}, "the task 'addition' has no field 'padding': choose one of separate_eos, zero_padding, order"),
        ({"order": "backwards"}, "order 'backwards' is unknown"),
        ({"split": "dev"}, "split 'dev' is unknown: choose one of train, validation, test"),
        ({"split": None, "num_samples": {"dev": 1}}, "split 'dev' is unknown"),
        ({"split": None, "num_samples": {}}, "num_samples must name"),
        ({"num_samples": {"train": 1}}, "num_samples must be an integer with split='train'"),
        ({"num_samples": 0}, "num_samples must be an integer of at least 1, got 0"),
        ({"num_samples": 2.5}, "num_samples must be an integer of at least 1, got 2.5"),
        ({"num_samples": True}, "num_samples must be an integer of at least 1, got True"),
        ({"min_length": 0}, "min_length must be an integer of at least 1, got 0"),
        ({"min_length": 4, "max_length": 3}, "max_length must be an integer of at least 4, got 3"),
        ({"max_length": "30"}, "max_length must be an integer of at least 3, got '30'"),
        ({"seed": -1}, "seed must be an integer of at least 0, got -1"),
        ({"num_proc": 0}, "num_proc must be an integer of at least 1, got 0"),
        ({"num_proc": 2}, "num_proc is for datasets on disk"),
        ({"task": "index_hinted_addition", "max_length": 202}, "operands of 202 digits need 203 index hints"),
        ({"task": "parity", "split": "test", "min_length": 1}, "min_length 1 is too short.* take "),
        ({"task": "parity", "split": "test", "min_length": 1, "max_length": 1}, "max_length 1 is too short"),
    ],
    ids=str,
)
def test_bad_arguments_are_named_before_anything_is_made(arguments, message, tmp_path, monkeypatch):
    monkeypatch.setattr(TaskDatasetBuilder, "_table", None)
    with pytest.raises(ValueError, match=message):
        load(**arguments, cache_dir=tmp_path)
    assert not list(tmp_path.iterdir())
