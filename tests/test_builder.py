import hashlib
import json
import re
from itertools import combinations

import datasets
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
    EncoderAddition,
    EncoderMultiplication,
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
from longhand.data.builder import TaskDatasetBuilder, build_task
from longhand.data.columns import example_columns
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.encoder_task import EncoderTask
from longhand.modeling import (
    CoupledGPTConfig,
    CoupledGPTForCausalLM,
    PairwiseBertConfig,
    PairwiseBertForTokenClassification,
)
from longhand.modeling.vocabulary import ENCODER_TOKENS, FIRST_TEXT, HINTS, LABELS, PAD, decode

FORMATS = [
    *(task() for task in TASKS.values() if issubclass(task, DecoderTask)),
    Addition(zero_padding=False),
    Addition(zero_padding=False, order="plain", separate_eos=True),
    Addition(order="all_reversed"),
    IndexHintedAddition(supervise_hints=False, order="plain"),
    MultiOperandAddition(operands=5),
    Multiplication(multiplier_length=1),
    Parity(scratchpad=False),
    AdditionScratchpad(length_sampling="uniform_values", max_operands=4),
]
ENCODER_FORMATS = [
    *(task() for task in TASKS.values() if issubclass(task, EncoderTask)),
    EncoderAddition(field_width=9, varied_field=True, sampling="shifted"),
    EncoderAddition(text_tokens=3, sampling="uniform_complexity"),
    EncoderAddition(field_width=8, sampling="mixed"),
    EncoderAddition(sampling="no_carries"),
    EncoderAddition(sampling="cascades"),
    EncoderAddition(sampling="carry_runs"),
    EncoderMultiplication(multiplier_length=3, spill=True, text_tokens=2),
    EncoderMultiplication(field_width=9, varied_field=True, sampling="shifted"),
    EncoderMultiplication(multiplier_length=3, sampling="sparse"),
]


def described(task):
    return ",".join(map(str, task.describe().values()))


every_format = pytest.mark.parametrize("task", FORMATS, ids=described)
every_encoder_format = pytest.mark.parametrize("task", ENCODER_FORMATS, ids=described)


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
        assert row["answer"] == task.reader.read(decode(row["tokens"][row["query_length"] : -1]))
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


@pytest.mark.parametrize("task", PYTHON_ANSWERS, ids=described)
def test_answers_are_those_of_python_integers(task):
    for row in load_format(task, num_samples=200, max_length=9):
        question = row["prompt"].rstrip("=").translate(dict.fromkeys(map(ord, HINTS)))
        (sign,) = {character for character in question if character in "+-*"}
        numbers = list(map(int, question.split(sign)))
        assert row["answer"] == str(PYTHON_ANSWERS[task](*numbers))
        assert row["operand_lengths"][0] == len(str(numbers[0])) or task.name in ("subtraction", "addition_scratchpad")


@every_encoder_format
@pytest.mark.parametrize("split", ["train", "test"])
def test_rows_of_encoder_tasks_are_problems_with_their_labels(task, split):
    sign = ENCODER_TOKENS[task.operator]
    for row in load_format(task, split=split, num_samples=200):
        assert row["prompt"] == "".join(ENCODER_TOKENS[token] for token in row["tokens"])
        assert len(row["tokens"]) == len(row["labels"])
        first, second = re.fullmatch(rf"[a-z]*_*([0-9]+)[a-z]*\{sign}_*([0-9]+)[a-z]*", row["prompt"]).groups()
        right = int(first) + int(second) if sign == "+" else int(first) * int(second)
        assert row["answer"] == str(right)
        assert row["operand_lengths"] == [len(first), len(second)]
        numbers = [place for place, token in enumerate(row["tokens"]) if token < FIRST_TEXT]
        supervised = [place for place, label in enumerate(row["labels"]) if label >= 0]
        # The labels are those of the last of the numbers' tokens, the answer on the right.
        assert supervised == numbers[-len(supervised) :]
        assert "".join(LABELS[row["labels"][place]] for place in supervised) == row["answer"].rjust(len(supervised), "_")


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


@every_encoder_format
def test_batches_of_encoder_rows_are_padded_and_labelled_as_the_task_s_own(task):
    rows = list(load_format(task, num_samples=20))
    batch = collate_rows(rows)
    width = max(len(row["tokens"]) for row in rows)
    assert batch["input_ids"].shape == batch["labels"].shape == batch["attention_mask"].shape == (20, width)
    for row, tokens, labels, mask in zip(
        rows, *(batch[name] for name in ("input_ids", "labels", "attention_mask")), strict=True
    ):
        own = len(row["tokens"])
        assert tokens[:own].tolist() == row["tokens"] and labels[:own].tolist() == row["labels"]
        assert (tokens[own:] == PAD).all() and (labels[own:] == -100).all()
        assert mask.tolist() == [1] * own + [0] * (width - own)
    assert batch.keys() == {"input_ids", "labels", "attention_mask"}


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
    rows = load_format(task, num_samples=300, seed=5)
    drawn = task.sample_lengths(make_generator(5, "train", "dataset", 0), 300, 3, 6)
    for row, lengths in zip(rows, drawn, strict=True):
        assert row["operand_lengths"] == lengths[lengths > 0].tolist()
        assert len(row["tokens"]) == len(row["position_ids" if "position_ids" in row else "position_ids_0"])
        assert decode(row["tokens"]).startswith(f"${row['prompt']}")


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


@pytest.mark.parametrize("split", builder.SPLITS)
def test_boards_of_every_shape_are_in_a_split_that_the_check_lets_pass(split):
    shapes = {"task": "minesweeper", "split": split, "min_length": 3, "max_length": 5, "num_samples": 300}
    assert {tuple(row["operand_lengths"]) for row in load(**shapes)} == {
        (width,) * height for width in (3, 4, 5) for height in (3, 4, 5)
    }


def test_splits_may_be_named_by_the_constants_of_datasets():
    assert list(load(split=datasets.Split.TEST)) == list(load(split="test"))
    together = load(split=None, num_samples={datasets.Split.TEST: 50})
    assert list(together) == ["test"] and list(together["test"]) == list(load(split="test"))


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


HASHED_VERSION = "1.0.0"
HASHES = {
    "addition,False,True,response_reversed": "ef8156a8a4f481d5",
    "addition_scratchpad,False,10,partially_uniform": "0d1be0846dd3377f",
    "multiplication,False,2": "4f274aae16139db5",
    "index_hinted_addition,False,response_reversed,True": "d496f2dc34346e9d",
    "minesweeper,False,0.1,0.25": "2dc650735cb34dfa",
    "multi_operand_addition,3,False": "9ef347266ab959a3",
    "multiplication_scratchpad,False": "5baeb1229f868ea9",
    "copy,False": "b177e846728dbace",
    "reverse,False": "01dca1fd62b5bbe2",
    "parity,False,True": "4590973590426b0e",
    "subtraction,False": "c1dd26d8272d5599",
    "addition,False,False,response_reversed": "bcdc65800c27ec53",
    "addition,True,False,plain": "6dc37f0b92188f98",
    "addition,False,True,all_reversed": "897c11795a954d81",
    "index_hinted_addition,False,plain,False": "bce9ea626d5f6878",
    "multi_operand_addition,5,False": "f77187c203f5a541",
    "multiplication,False,1": "203953c3dc8b375f",
    "parity,False,False": "7dc90c5e249b4119",
    "addition_scratchpad,False,4,uniform_values": "acfe3ff53f48ba14",
    "encoder_addition,None,False,0,uniform": "d41d721ff9d30259",
    "encoder_multiplication,None,False,0,1,False,uniform": "994d1f52d9cd374f",
    "encoder_addition,9,True,0,shifted": "6ff458c1903f9700",
    "encoder_addition,None,False,3,uniform_complexity": "6f2b260f3f00f1f9",
    "encoder_addition,8,False,0,mixed": "99e23f111f7c8ed4",
    "encoder_addition,None,False,0,no_carries": "697d1bb5c942d936",
    "encoder_addition,None,False,0,cascades": "52da8352d9af2aab",
    "encoder_addition,None,False,0,carry_runs": "6966ab32255a2aaa",
    "encoder_multiplication,None,False,2,3,True,uniform": "cc547570751b4fd7",
    "encoder_multiplication,9,True,0,1,False,shifted": "a97c358a51637fdb",
    "encoder_multiplication,None,False,0,3,False,sparse": "1032d2fbfbc47645",
}


def row_hash(task):
    rows = load_format(task, num_samples=40)
    types = [str(kind) for kind in rows.features.arrow_schema.types]
    return hashlib.sha256(json.dumps([types, list(rows)], sort_keys=True).encode()).hexdigest()[:16]


@pytest.mark.parametrize("task", [*FORMATS, *ENCODER_FORMATS], ids=described)
def test_rows_change_with_the_version_alone(task):
    assert (builder.VERSION, row_hash(task)) == (HASHED_VERSION, HASHES.get(described(task))), (
        f"the same arguments give other rows of {described(task)!r}: raise VERSION in data/builder.py, so that the cache "
        "does not go on giving the old ones, and store it here with the new hashes (for a new format, its hash alone)"
    )


@pytest.mark.parametrize("arguments", [{}, {"zero_padding": False}, {"task": "minesweeper"}, VARIED], ids=str)
def test_trainer_takes_the_rows(arguments, tmp_path):
    rows = load(**arguments, num_samples=64, streaming=False, cache_dir=tmp_path)
    task = build_task(arguments.get("task", "addition"))
    if isinstance(task, EncoderTask):
        sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
        model = PairwiseBertForTokenClassification(PairwiseBertConfig(**sizes))
    else:
        model = CoupledGPTForCausalLM(CoupledGPTConfig(coupling=task.coupling, hidden_size=16, intermediate_size=16))
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
        ({"min_length": 4, "max_length": 3}, "max_length must be an integer from 4 to 1,000,000, got 3"),
        ({"max_length": "30"}, "max_length must be an integer from 3 to 1,000,000, got '30'"),
        ({"seed": -1}, "seed must be an integer of at least 0, got -1"),
        ({"num_proc": 0}, "num_proc must be an integer of at least 1, got 0"),
        ({"num_proc": 2}, "num_proc is for datasets on disk"),
        ({"task": "index_hinted_addition", "max_length": 202}, "operands of 202 digits need 203 index hints"),
        ({"task": "encoder_addition", "min_length": 2}, "min_length must be 1, got 2"),
        ({"task": "encoder_addition", "field_width": 5}, "numbers and answers of 6 digits do not fit into field_width = 5"),
        ({"task": "encoder_multiplication", "sampling": "cascades"}, "sampling 'cascades' is unknown"),
        ({"task": ["addition"]}, "task .'addition'. is unknown"),
        ({"split": datasets.Split.ALL}, "split 'all' is unknown"),
        ({"max_length": 10**9}, "max_length must be an integer from 3 to 1,000,000, got 1,000,000,000"),
        ({"task": "minesweeper", "max_length": 10**5}, "max_length must be an integer from 3 to 2,000, got 100,000"),
        ({"num_samples": 10**13}, "num_samples must be an integer from 1 to 68,719,476,736, got 10,000,000,000,000"),
        ({"task": "parity", "split": "test", "min_length": 1}, "min_length 1 is too short.* take min_length "),
        ({"task": "minesweeper", "split": "validation", "min_length": 2, "max_length": 3}, "min_length 2 is too short"),
        ({"task": "parity", "split": "test", "min_length": 1, "max_length": 1}, "max_length 1 is too short"),
    ],
    ids=str,
)
def test_bad_arguments_are_named_before_anything_is_made(arguments, message, tmp_path, monkeypatch):
    monkeypatch.setattr(TaskDatasetBuilder, "_table", None)
    with pytest.raises(ValueError, match=message):
        load(**arguments, cache_dir=tmp_path)
    assert not list(tmp_path.iterdir())


def test_rows_of_an_unknown_family_are_not_taken_for_a_decoders():
    with pytest.raises(ValueError, match="rows must have the column labels or query_length, got tokens, answer"):
        collate_rows([{"tokens": [1, 2], "answer": "3"}])
