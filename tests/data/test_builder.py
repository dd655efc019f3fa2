import hashlib
import json
from itertools import combinations

import numpy as np
import pytest
import torch
from cases import drawn, in_turn
from datasets import load_from_disk
from task_subjects import ENCODER_FORMATS, FORMATS, described
from torch.utils.data import DataLoader

from longhand.data import (
    SPLITS,
    TASKS,
    Addition,
    CouplingCollator,
    EncoderAddition,
    EncoderMultiplication,
    builder,
    collate_rows,
    load_task_dataset,
    make_generator,
)
from longhand.data.builder import TaskDatasetBuilder
from longhand.data.columns import RowStructure, example_columns
from longhand.data.tasks.column_task import ColumnTask
from longhand.data.tasks.encoder_task import EncoderTask
from longhand.modeling.relations import with_levels
from longhand.modeling.vocabulary import decode

WRITTEN = [task for task in FORMATS if not isinstance(task, ColumnTask)]
"""test_column_tasks.py has the columns of column tasks."""
every_format = pytest.mark.parametrize("task", WRITTEN, ids=described)


def load(task="addition", **arguments):
    defaults = {"max_length": 6, "num_samples": 50, "min_length": 3, "streaming": True}
    if isinstance(task, str) and task in TASKS and issubclass(TASKS[task], EncoderTask):
        defaults["min_length"] = 1
    return load_task_dataset(task, **defaults | arguments)


def load_format(task, **arguments):
    name, *task_fields = task.describe().items()
    return load(name[1], **dict(task_fields), **arguments)


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
    rows = example_columns(task, digits, lengths, structure=RowStructure(position_ids=True)).to_pylist()
    batch = collate_rows(rows)
    assert (batch["input_ids"] == expected["input_ids"]).all() and (batch["labels"] == expected["labels"]).all()
    planned = expected["position_ids"].expand(len(lengths), -1, -1)
    ids = with_levels(batch["position_ids"])
    assert (ids == planned * batch["attention_mask"].unsqueeze(1)).all()
    assert (batch["attention_mask"] == expected.get("attention_mask", torch.ones_like(batch["input_ids"]))).all()


def fields(rows):
    """Width of the second number's field of every row."""
    return [len(row["prompt"].rpartition("+")[2]) for row in rows]


def test_fields_of_random_width_are_drawn_for_every_row_and_tested_without():
    task = EncoderAddition(field_width=9, varied_field=True)
    drawn = fields(load_format(task, num_samples=400))
    assert set(drawn) == {6, 7, 8, 9} and min(drawn.count(width) for width in (6, 7, 8, 9)) > 70
    assert set(fields(load_format(task, split="validation"))) == {6}


@pytest.mark.parametrize("kind", [EncoderAddition, EncoderMultiplication])
def test_appended_zeros_fit_into_fields_of_random_width(kind):
    task, widths = kind(field_width=12, varied_field=True, sampling="shifted"), set()
    for seed in range(40):
        examples = task.examples(make_generator(seed), np.full((50, 1), 3), "train")
        widths.add(examples.tokens.shape[1])
    assert len(widths) == 12 - task.needed_field(3) + 1


def test_training_rows_are_sampled_as_asked_and_test_rows_as_they_are_evaluated():
    def cascades(sampling, split):
        return [
            row["longest_cascade"] for row in load_format(EncoderAddition(sampling=sampling), split=split, num_samples=700)
        ]

    uniform = cascades("uniform", "test")
    assert uniform.count(6) < 5 and cascades("uniform_complexity", "test") == uniform
    for sampling, split in (("uniform_complexity", "train"), ("cascades", "train"), ("cascades", "test")):
        found = cascades(sampling, split)
        assert min(found.count(length) for length in range(7)) > 60
    assert set(cascades("no_carries", "train")) == {0}


@every_format
def test_rows_stand_in_the_order_in_which_their_lengths_were_drawn(task, monkeypatch):
    # Rows in place of repeated ones follow the others.
    monkeypatch.setattr("longhand.data.builder._is_new", lambda keys, known: np.ones(len(keys), dtype=bool))
    rows = load_format(task, num_samples=300, seed=5)
    drawn = task.sample_lengths(make_generator(5, "train", "dataset", 0), 300, 3, 6)
    for row, lengths in zip(rows, drawn, strict=True):
        assert row["operand_lengths"] == lengths[lengths > 0].tolist()
        assert decode(row["input_ids"]).startswith(f"${row['prompt']}")


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(builder, "_SHARD_ROWS", 64)


VARIED = {"task": "encoder_addition", "field_width": 9, "varied_field": True, "sampling": "shifted", "text_tokens": 2}


@pytest.mark.parametrize(
    "arguments", [{"zero_padding": False}, {"task": "minesweeper"}, {"task": "subtraction"}, VARIED], ids=str
)
def test_same_rows_from_any_number_of_processes_and_streamed(arguments, small_shards, tmp_path):
    arguments = arguments | {"num_samples": 300}
    streamed = load(**arguments)
    rows = list(streamed)
    assert len(rows) == 300
    for num_proc in (1, 2):
        stored = load(**arguments, streaming=False, num_proc=num_proc, cache_dir=tmp_path / str(num_proc))
        assert list(stored) == rows and stored.features == streamed.features
    assert list(load(**arguments, seed=1)) != rows
    stored.save_to_disk(tmp_path / "saved")
    assert list(load_from_disk(tmp_path / "saved")) == rows


def test_a_shard_of_long_problems_has_fewer_rows():
    shards = [TaskDatasetBuilder(max_length=length, num_samples={"train": 1}).shards["train"] for length in (30, 10_000)]
    assert shards[0].shard_rows == 2**16 and 1000 < shards[1].shard_rows < 2000


@pytest.mark.parametrize("task", drawn(TASKS, 11))
def test_no_problem_stands_in_two_splits_or_twice_in_one(task):
    sizes = {"max_length": 15, "min_length": 1 if TASKS[task].family.name == "encoder" else 4}
    rows = load(task, split=None, num_samples=dict(zip(SPLITS, (300, 100, 100), strict=True)), **sizes)
    splits = [[row["prompt"] for row in rows[split]] for split in SPLITS]
    assert all(len(set(prompts)) == len(prompts) for prompts in splits)
    assert all(not set(first) & set(second) for first, second in combinations(splits, 2))


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ({"task": "copy", "max_length": 3}, 984),
        ({"task": "copy", "max_length": 3, "split": "test"}, 67),
        pytest.param({"max_length": 2, "split": "test"}, 592, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_as_many_rows_as_a_split_holds_are_all_of_its_problems(arguments, count):
    rows = [load(min_length=1, num_samples=number, **arguments) for number in (count, 3 * count)]
    assert [len({row["prompt"] for row in part}) for part in rows] == [count, count]


@pytest.mark.parametrize("rare", [False, True])
def test_a_shard_is_the_same_whichever_came_before(rare, small_shards, monkeypatch):
    monkeypatch.setattr("longhand.data.builder.DISTINCT_SHARDS", 4)
    if rare:

        def keys(self, digits, lengths):
            """One problem in a hundred is short, and all of these are the same one."""
            return 2 * (digits[:, :, 0] == 9).all(axis=1).astype(np.uint64)

        monkeypatch.setattr(Addition, "problem_keys", keys)
    options = {"task": "addition", "max_length": 3, "num_samples": {"train": 600}, "seed": 8}
    parts = TaskDatasetBuilder(**options)._parts(0, 600)
    tables = [table for _, table in TaskDatasetBuilder(**options)._generate_tables("train", parts)]
    assert len(tables) == 10
    shuffled = TaskDatasetBuilder(**options)
    for shard in (7, 2, 3, 9, 0, 5):
        ((_, table),) = shuffled._generate_tables("train", [parts[shard]])
        assert table == tables[shard]


def test_a_stream_that_is_resumed_goes_on_with_the_same_rows(small_shards):
    stream = load(num_samples=300, min_length=1)
    seen = []
    for row in stream:
        seen.append(row)
        if len(seen) == 150:
            state = stream.state_dict()
    resumed = load(num_samples=300, min_length=1)
    resumed.load_state_dict(state)
    assert list(resumed) == seen[150:]


def test_a_part_of_a_split_can_be_loaded(tmp_path):
    rows = load(streaming=False, cache_dir=tmp_path)
    part = load(split="train[:10%]", streaming=False, cache_dir=tmp_path)
    assert list(part) == list(rows)[:5]
    both = load(split="train[:2]+test[-1:]", streaming=False, cache_dir=tmp_path)
    assert list(both) == [*list(rows)[:2], list(load(split="test"))[-1]]


@pytest.mark.parametrize("streaming", [True, False])
def test_messages_are_prompt_and_completion(streaming, tmp_path):
    texts = load(num_samples=20)
    rows = load(num_samples=20, messages=True, streaming=streaming, cache_dir=tmp_path)
    for row, text in zip(rows, texts, strict=True):
        turns = {"user": text.pop("prompt"), "assistant": text.pop("completion")}
        assert row.pop("messages") == [{"role": role, "content": content} for role, content in turns.items()]
        assert row == text


def test_all_splits_at_once_are_the_single_ones(tmp_path):
    num_samples = {"test": 20, "train": 50}
    together = load(split=None, num_samples=num_samples, streaming=False, cache_dir=tmp_path)
    assert set(together) == set(num_samples)
    for split, count in num_samples.items():
        assert list(together[split]) == list(load(split=split, num_samples=count))
    assert {split: len(list(rows)) for split, rows in load(split=None).items()} == dict.fromkeys(builder.SPLITS, 50)


def test_the_cache_knows_every_argument(tmp_path):
    def folder(**arguments):
        arguments = {"task": "addition", "max_length": 6, "num_samples": {"train": 5}} | arguments
        return TaskDatasetBuilder(cache_dir=tmp_path, dataset_name="longhand", **arguments).cache_dir

    assert folder() == folder(seed=0, min_length=None, task_fields={"zero_padding": True})
    assert folder() == folder(seed=np.int64(0), num_samples={"train": np.int64(5)})
    assert folder().endswith(builder.VERSION)
    others = [{"seed": 1}, {"min_length": 2}, {"max_length": 7}, {"num_samples": {"test": 5}}, {"num_samples": {"train": 6}},
              {"messages": True}, {"structure": RowStructure(position_ids=True)},
              {"task": "copy"}, {"task_fields": {"zero_padding": False}}]  # fmt: skip
    assert len({folder(), *(folder(**other) for other in others)}) == len(others) + 1


def test_rows_change_with_the_version_alone():
    every = hashlib.sha256()
    for task in sorted([*WRITTEN, *ENCODER_FORMATS], key=described):
        rows = load_format(task, num_samples=40, position_ids=True, pair_map=True)
        every.update(json.dumps([list(map(str, rows.features.arrow_schema.types)), list(rows)], sort_keys=True).encode())
    assert (builder.VERSION, every.hexdigest()[:16]) == ("2.5.0", "55facca412d441f0"), (
        "the same arguments give other rows: raise VERSION in data/builder.py, so that the cache does not go on giving the "
        "old ones, and store it here with the new hash (for a new format, the hash alone)"
    )


def test_a_stream_is_shared_among_the_workers_of_a_loader(small_shards):
    rows = load(num_samples=300)
    batches = list(DataLoader(rows, batch_size=10, num_workers=2, collate_fn=collate_rows))
    assert sum(len(batch["input_ids"]) for batch in batches) == 300


@pytest.mark.parametrize(
    ("task", "count"), in_turn(["addition", "encoder_addition", "calculator", "minesweeper"], [65, 1, 300, 5, 64])
)
def test_a_stream_has_as_many_shards_as_asked_and_the_same_rows_in_the_same_order(task, count, small_shards):
    options = {"task": task, "num_samples": count, "max_length": 5}
    expected = list(load(**options, num_proc=1))
    for num_proc in (None, 1, 2, 7, 400):
        rows = load(**options, num_proc=num_proc)
        assert min(count, num_proc or builder.STREAMED_SHARDS) <= rows.num_shards <= count and list(rows) == expected
    rows = load(**options, num_proc=7)
    parts = [list(rows.shard(rows.num_shards, part)) for part in range(rows.num_shards)]
    assert [row for part in parts for row in part] == expected and all(parts)


def test_parts_of_a_stream_and_its_loaders_are_the_whole(small_shards, recwarn):
    rows = load(num_samples=300, num_proc=4, rows={"train": (10, 290)})
    assert list(rows) == list(load(num_samples=300))[10:290]
    texts = sorted(row["prompt"] for row in DataLoader(rows, batch_size=None, num_workers=4))
    assert texts == sorted(row["prompt"] for row in rows) and not [one for one in recwarn if "workers" in str(one.message)]
    for count in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="num_proc must be an integer"):
            load(num_proc=count)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": "divide"}, "task 'divide' is unknown: choose one of addition, "),
        ({"padding": False}, "the task 'addition' has no field 'padding': choose one of separate_eos, zero_padding, order"),
        ({"split": "dev"}, "split 'dev' is unknown: choose one of train, validation, test"),
        ({"split": ["train", "test"]}, "split must be one text, such as .train."),
        ({"split": None, "num_samples": {}}, "num_samples must name"),
        ({"num_samples": {"train": 1}}, "num_samples must be an integer with split='train'"),
        ({"num_samples": 0}, "num_samples must be an integer of at least 1, got 0"),
        ({"rows": {"train": (10, 5)}}, "rows must lie in 0 to .* of train, got 10 to 5"),
        *(({"rows": rows}, "rows must be the first row") for rows in ({}, (0, 5), {"train": 5}, {"train": (0, 5.5)})),
        *(({flag: "no"}, f"{flag} must be True or False") for flag in ("messages", "position_ids", "pair_map", "streaming")),
        ({"min_length": 0}, "min_length must be an integer of at least 1, got 0"),
        ({"min_length": 4, "max_length": 3}, "max_length must be an integer from 4 to 1,000,000, got 3"),
        ({"seed": -1}, "seed must be an integer of at least 0, got -1"),
        ({"task": "index_hinted_addition", "max_length": 202}, "operands of 202 digits need 203 index hints"),
        ({"task": "encoder_addition", "field_width": 5}, "numbers and answers of 6 digits do not fit into field_width = 5"),
        ({"task": "parity", "min_length": 1, "split": None}, "min_length must be at least 4 for the validation split"),
        ({"task": "parity", "min_length": None, "max_length": 2, "split": "validation"}, "max_length must be at least 4"),
        ({"coupling": "sequential"}, "coupling 'sequential' is for position_ids or pair_map"),
        (
            {"coupling": "relative", "position_ids": True},
            "does not read this format of 'addition': choose one of add",
        ),
        ({"task": "copy", "windowed": False, "pair_map": True}, "names only the relations of a window: give relation_range"),
        ({"relation_range": (0, 1)}, "relation_range is for pair_map"),
        ({"relation_range": (1, 0), "pair_map": True}, "relation_range must be two integers"),
        ({"pair_map": True, "max_length": 10**4}, "pair_map is for rows of at most 8,192 tokens, got 30,"),
        ({"max_length": 10**9}, "max_length must be an integer from 3 to 1,000,000, got 1,000,000,000"),
        ({"task": "minesweeper", "max_length": 10**5}, "max_length must be an integer from 3 to 2,000, got 100,000"),
        ({"num_samples": 10**13}, "num_samples must be an integer from 1 to 68,719,476,736, got 10,000,000,000,000"),
    ],
    ids=str,
)
def test_bad_arguments_are_named_before_anything_is_made(arguments, message, tmp_path, monkeypatch):
    monkeypatch.setattr(TaskDatasetBuilder, "_table", None)
    with pytest.raises(ValueError, match=message):
        load(**arguments, cache_dir=tmp_path)
    assert not list(tmp_path.iterdir())
