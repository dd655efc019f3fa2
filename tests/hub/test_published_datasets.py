"""Datasets on the Hub: their files, their cards, and shards that several machines make."""

import re
from dataclasses import replace
from pathlib import Path

import datasets
import pytest
from datasets.distributed import split_dataset_by_node
from huggingface_hub import DatasetCard
from plugin_state import forget_plugins
from publishing_subjects import CONFIGURATIONS, NUM_SAMPLES, SUMS, committed, dataset_card, held, model_card, save_model
from refusals import refusal
from transformers import AutoTokenizer

from longhand.data import TASKS, build_tokenizer, builder, load_task_dataset
from longhand.data.builder import TaskDatasetBuilder
from longhand.data.families import DECODER
from longhand.data.tasks.plugins import load_plugin
from longhand.hub_cards import push as command
from longhand.hub_cards.publishing import dataset as publishing
from longhand.hub_cards.publishing.commits import CannotPush
from longhand.hub_cards.publishing.dataset import (
    GeneratedDataset,
    dataset_publication,
    divide,
    push_dataset,
    shard_branch,
    size_category,
    write_dataset,
)
from longhand.hub_cards.publishing.examples import EXAMPLE_LENGTH, about, example_row
from longhand.hub_cards.publishing.publications import publish
from longhand.hub_cards.recipes import write_recipe

TOKENIZER = SUMS.tokenizer_files()
MAXIMUM = Path(__file__).parents[1] / "not_shown" / "maximum.py"


def push_sums(api, dataset=SUMS, num_shards=None, shard=None, **options):
    publication = dataset_publication(dataset, "user/sums", num_shards=num_shards, shard=shard)
    return publish(publication, api=api, **options)


@pytest.fixture
def several(monkeypatch):
    """Two files of each split."""
    monkeypatch.setattr(publishing, "FEWEST_FILES", 2)
    monkeypatch.setattr(publishing, "FEWEST_ROWS", 5)


def test_the_same_dataset_is_the_same_bytes_and_configurations_that_are_gone_are_removed(hub, api):
    first = push_sums(api)
    paths = [f"{name}/{split}-00000-of-00001.parquet" for name in CONFIGURATIONS for split in NUM_SAMPLES]
    assert set(held(hub, "user/sums", "dataset")) == {"README.md", *paths, *TOKENIZER}
    repository = hub.repositories["dataset", "user/sums"]
    others = {"more.parquet": b"1", "mine/all.parquet": b"2", "a/b/test-00000-of-00001.parquet": b"3"}
    repository.commit("main", "by hand", repository.head.files | others)
    again = push_dataset("addition", "user/sums", CONFIGURATIONS, num_samples=NUM_SAMPLES, seed=3, api=api)
    assert not again.is_new and again.sha != first.sha
    push_sums(api, replace(SUMS, configurations={"short": CONFIGURATIONS["short"]}))
    kept = {path for path in paths if path.startswith("short")}
    assert set(held(hub, "user/sums", "dataset")) == {"README.md", *kept, *others, *TOKENIZER}


def test_what_the_hub_refuses_is_not_generated(hub, api, monkeypatch):
    monkeypatch.setattr(TaskDatasetBuilder, "_table", None)
    hub.add_repository("user/sums", {"data.csv": b"1,2"}, "dataset")
    with pytest.raises(CannotPush, match=r"data\.csv"):
        push_sums(api)
    assert committed(hub) == []


def test_a_published_dataset_names_its_columns_and_sizes_and_is_read_in_parts(hub, api, several, tmp_path):
    push_sums(api)
    for path, content in held(hub, "user/sums", "dataset").items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(content)
    for name, arguments in CONFIGURATIONS.items():
        info = datasets.load_dataset_builder(str(tmp_path), name, cache_dir=str(tmp_path / "cache")).info
        assert info.features == load_task_dataset("addition", num_samples=1, streaming=True, **arguments).features
        assert [*info.features][:3] == ["prompt", "answer", "completion"]
        # What loads needs as many bytes as the card says, but for Arrow's own rounding.
        loaded = datasets.load_dataset(str(tmp_path), name, cache_dir=str(tmp_path / "cache"))
        for split, own in loaded.items():
            assert info.splits[split].num_bytes == pytest.approx(own.data.nbytes, rel=0.2)
        assert {split: own.num_examples for split, own in info.splits.items()} == NUM_SAMPLES
        assert info.download_size == sum(file.stat().st_size for file in (tmp_path / name).glob("*.parquet"))
    stream = datasets.load_dataset(str(tmp_path), "short", split="train", streaming=True)
    made = load_task_dataset("addition", split="train", num_samples=40, seed=3, max_length=6, streaming=True)
    assert list(stream) == list(made)
    nodes = [list(split_dataset_by_node(stream, rank, 2)) for rank in range(2)]
    assert stream.num_shards == 2
    assert sorted(row["prompt"] for node in nodes for row in node) == sorted(row["prompt"] for row in stream)


@pytest.mark.parametrize("task", TASKS)
def test_the_tokenizer_of_a_published_dataset_writes_its_rows(task, tmp_path):
    """With it, ids are read without this package, for every task; so does `build_tokenizer(task)`."""
    dataset = GeneratedDataset(task, {"short": {"max_length": 4}}, {"train": 12})
    for path, content in dataset.tokenizer_files().items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(content)
    for tokenizer in (AutoTokenizer.from_pretrained(tmp_path / "tokenizer"), build_tokenizer(task)):
        for row in dataset.load("short", streaming=True)["train"]:
            text = tokenizer.decode(row["input_ids"], skip_special_tokens=True)
            whole = row["prompt"] + row["completion"] if tokenizer.bos_token else row["prompt"]
            assert text == whole
            assert tokenizer(row["prompt"])["input_ids"] == row["input_ids"][: len(tokenizer(row["prompt"])["input_ids"])]


def test_a_published_dataset_loads_without_a_word_and_states_its_size(tmp_path, caplog, recwarn):
    """As a user of the Hub loads it: transformers and datasets log what they do not understand of a card."""
    folder = write_dataset("addition", tmp_path / "sums", CONFIGURATIONS, num_samples=NUM_SAMPLES, seed=3)
    with caplog.at_level("WARNING"):
        for name in CONFIGURATIONS:
            datasets.load_dataset(str(folder), name, cache_dir=str(tmp_path / "cache"))
    assert [record.getMessage() for record in caplog.records] == [] and not [str(one.message) for one in recwarn]
    assert DatasetCard.load(folder / "README.md").data.size_categories == ["n<1K"]
    assert [size_category(rows) for rows in (999, 1000, 10**6, 3 * 10**9)] == ["n<1K", "1K<n<10K", "1M<n<10M", "1B<n<10B"]


@pytest.mark.thorough
def test_a_dataset_in_a_folder_is_the_one_that_a_push_sends(hub, api, tmp_path, monkeypatch, capsys):
    push_sums(api)
    monkeypatch.chdir(tmp_path)
    written = write_dataset("addition", "sums", CONFIGURATIONS, num_samples=NUM_SAMPLES, seed=3)
    pushed = {path: content for path, content in held(hub, "user/sums", "dataset").items() if path != "README.md"}
    files = {file.relative_to(written).as_posix(): file.read_bytes() for file in written.rglob("*") if file.is_file()}
    card = files.pop("README.md").decode()
    assert files == pushed and 'load_dataset("sums", "short"' in card and str(tmp_path) not in card
    assert [path.name for path in tmp_path.iterdir()] == ["sums"]
    words = ["dataset", "addition", "--max_length", "4", "--num_samples", "20", "--num_test_samples", "5"]
    command.main([*words, "--output", "data/small"])
    assert len(datasets.load_dataset("data/small", "up_to_4", split="train")) == 20
    assert "is there already" in refusal(capsys, command.main, *words, "--output", "data/small")
    assert "--output FOLDER" in refusal(capsys, command.main, *words)
    for more in (["--yes"], ["--shard", "0", "--num_shards", "2"]):
        said = refusal(capsys, command.main, *words, "--output", "data/other", *more)
        assert "--output" in said and any(option in said for option in more if option.startswith("--"))
    assert [path.name for path in Path("data").iterdir()] == ["small"]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"configurations": {}}, "configurations"),
        ({"configurations": {"a": {"max_length": 5, "colour": "red"}}}, "colour"),
        ({"configurations": {"a/b": {"max_length": 5}}}, "name"),
        ({"num_samples": {"train": 0}}, "num_samples"),
        ({"num_samples": {"all": 5}}, "all"),
    ],
    ids=str,
)
def test_a_dataset_that_cannot_be_made(changes, named, monkeypatch):
    monkeypatch.setattr(TaskDatasetBuilder, "_table", None)
    with pytest.raises(ValueError, match=named):
        replace(SUMS, **changes)


def made(dataset, files, place, num_proc=None):
    place.mkdir()
    return {path: made.file.read_bytes() for path, made in dataset.make(files, place, num_proc).items()}


@pytest.mark.parametrize("task", ["addition", "minesweeper", "encoder_addition"])
def test_the_files_of_all_shards_are_the_whole_dataset_byte_for_byte(task, monkeypatch, tmp_path):
    # Files end in the middle of the builder's shards.
    monkeypatch.setattr(builder, "_SHARD_ROWS", 64)
    monkeypatch.setattr(publishing, "ROWS_PER_FILE", 150)
    # Sums of two digits are so few that shards must know what the others hold.
    sizes = {"min_length": 1, "max_length": 2} if task == "addition" else {"min_length": 5, "max_length": 6}
    sizes |= {"min_length": 1} if task == "encoder_addition" else {}
    dataset = GeneratedDataset(task, {"first": sizes, "second": {**sizes, "messages": True}}, {"train": 500, "test": 30}, 5)
    files = dataset.files()
    assert len(files) == 10 and all(file.first % 64 for file in files if file.first)
    whole = made(dataset, files, tmp_path / "whole")
    parts = [
        made(dataset, own, tmp_path / str(shard), 2 if task == "addition" and shard else None)
        for shard, own in enumerate(divide(files, 3))
    ]
    assert {path: content for part in parts for path, content in part.items()} == whole


def test_rows_of_a_part_are_those_of_the_whole_dataset(monkeypatch, tmp_path):
    monkeypatch.setattr(builder, "_SHARD_ROWS", 64)
    arguments = {"task": "addition", "split": "train", "num_samples": 300, "max_length": 3}
    rows = list(load_task_dataset(**arguments, streaming=True))
    for first, end in ((0, 1), (63, 65), (128, 192), (100, 300)):
        part = {"rows": {"train": (first, end)}, **arguments}
        assert list(load_task_dataset(**part, streaming=True)) == rows[first:end]
        assert list(load_task_dataset(**part, cache_dir=tmp_path)) == rows[first:end]


@pytest.mark.thorough
def test_two_machines_publish_what_one_would(hub, api, several):
    push_sums(api, revision="whole")
    repository = hub.repositories["dataset", "user/sums"]
    before = repository.head
    for shard in (1, 0):
        assert push_sums(api, num_shards=2, shard=shard).is_new
        assert repository.head is before
    joined = push_sums(api, num_shards=2)
    assert repository.head.parent == before.sha and repository.head.files == repository.find("whole").files
    again = push_sums(api, num_shards=2)
    assert again.sha == joined.sha and not again.is_new


def test_a_dataset_without_one_of_its_shards_is_not_published(hub, api, several, monkeypatch):
    # What the repository holds has the same paths, and other rows: it is no shard.
    push_sums(api, replace(SUMS, seed=4))
    before = hub.repositories["dataset", "user/sums"].head
    with pytest.raises(CannotPush, match=r"\(0, 1, 2\)"):
        push_sums(api, num_shards=3)
    push_sums(api, num_shards=3, shard=1)
    push_sums(api, replace(SUMS, seed=5), num_shards=3, shard=0)
    push_sums(api, replace(SUMS, num_samples={**NUM_SAMPLES, "train": 41}), num_shards=3, shard=2)
    with pytest.raises(CannotPush, match=r"\(0, 2\)"):
        push_sums(api, num_shards=3)
    assert hub.repositories["dataset", "user/sums"].head is before
    # Shards of another division are the same files.
    for shard in (0, 1):
        push_sums(api, num_shards=2, shard=shard)
    push_sums(api, num_shards=3)
    assert sorted(held(hub, "user/sums", "dataset")) == sorted(
        [*(file.path for file in SUMS.files()), "README.md", *TOKENIZER]
    )
    monkeypatch.setattr(TaskDatasetBuilder, "_table", None)
    assert not push_sums(api, num_shards=3, shard=1).is_new


def test_shards_of_another_version_of_a_plugin_wait_in_another_branch(tmp_path):
    branches = set()
    for comment in ("", "# Another version.\n"):
        forget_plugins()
        file = tmp_path / "maximum.py"
        file.write_text(comment + MAXIMUM.read_text())
        load_plugin(file)
        branches.add(shard_branch(GeneratedDataset("maximum", {"all": {"max_length": 5}}, {"train": 50})))
    forget_plugins()
    assert len(branches) == 2


def test_a_preview_of_many_rows_makes_none(capsys, monkeypatch, at_home):
    monkeypatch.setattr(TaskDatasetBuilder, "_table", None)
    command.main(["dataset", "addition", "user/sums", "--max_length", "4", "--num_samples", "1000000"])
    shown = capsys.readouterr().out
    assert (
        "500,000 rows  up_to_4/train-00001-of-00002.parquet" not in shown
        and "125,000 rows  up_to_4/train-00007-of-" in shown
    )
    assert "tokenizer/tokenizer.json" in shown and "pretty_name" in shown and at_home.requests == []


def test_the_command_pushes_and_joins_shards(at_home, several, capsys):
    words = ["dataset", "addition", "user/sums", "--max_length", "4", "--num_samples", "20", "--num_test_samples", "5"]
    words += ["--num_shards", "2"]
    for more in (["--shard", "2"], ["--shard", "-1"], ["--shard", "1", "--revision", "trial"]):
        assert "shard" in refusal(capsys, command.main, *words, *more)
    command.main([*words, "--shard", "1"])
    command.main(words)
    assert "up_to_4/test-00000-of-00001.parquet\n" in capsys.readouterr().out and at_home.requests == []
    command.main([*words, "--shard", "1", "--yes", "--num_proc", "2"])
    assert "(0)" in refusal(capsys, command.main, *words, "--yes")
    command.main([*words, "--shard", "0", "--yes"])
    command.main([*words, "--yes", "--revision", "trial", "--commit_message", "hello"])
    repository = at_home.repositories["dataset", "user/sums"]
    assert repository.find("trial").title == "hello" and len(repository.find("trial").files) == 6 + len(TOKENIZER)
    assert set(repository.head.files) == {".gitattributes"}


@pytest.mark.parametrize("name", TASKS)
def test_the_card_of_every_dataset_has_no_holes(name):
    sizes = {"max_length": 5} if TASKS[name].family.name == "encoder" else {"min_length": 5, "max_length": 5}
    text = dataset_card(name, {"short": sizes}, {"train": 5}).partition("## Citation")[0]
    assert not re.search(r"\{\{|\}\}|\{%|\bNone\b(?!,? )|\n\n\n", text)
    assert about(TASKS[name]()) in text
    for part in (task := TASKS[name]().for_evaluation).parts:
        row = example_row(task, part, EXAMPLE_LENGTH)
        assert f"| `{row['prompt']}` | `{row['completion']}` | `{row['answer']}` |" in text
    assert ("-100 for a\ntoken without a label" in text) == (TASKS[name].family.name == "encoder")
    coupled = TASKS[name].family is DECODER and TASKS[name]().coupling != "sequential"
    assert ("coupling rule" in text) == ("position-coupling" in text) == coupled
    assert "`position_ids`" not in text
    with_ids = dataset_card(name, {"short": sizes | {"position_ids": True, "pair_map": True}}, {"train": 5})
    assert "`position_ids`" in with_ids and "`pair_map`" in with_ids and ("coupled position ids" in with_ids) == coupled


def test_the_card_of_a_dataset_without_training_problems_loads_what_there_is():
    card = dataset_card("addition", {"short": {"max_length": 4}}, {"test": 5})
    assert '"short", split="test", streaming=True)' in card and 'split="train"' not in card
    call = re.search(r"load_task_dataset\((.*)\)", card)[1]
    rows = list(eval(f"load_task_dataset({call}, streaming=True)", {"load_task_dataset": load_task_dataset}))
    assert len(rows) == 5


def test_the_card_of_a_dataset_has_the_columns_and_rules_of_all_configurations():
    configurations = {"short": {"max_length": 4}, "plain": {"max_length": 9, "order": "plain", "messages": True}}
    card = dataset_card("addition", configurations, {"train": 5})
    assert "| `prompt` | `Value('string')` |" in card and "| `messages` |" in card
    assert "rule `addition` or `addition_plain`" in card


@pytest.mark.parametrize(
    ("task", "lengths", "partition"),
    [
        ("addition", "operands of 1 to 30 digits", "at most 18 digits in all"),
        ("parity", "strings of 1 to 30 symbols", "at most 60 symbols in all"),
        ("minesweeper", "boards with a width and a height of 1 to 30 cells", "every problem into exactly one split"),
    ],
)
def test_lengths_are_those_of_what_the_task_is_about(tmp_path, task, lengths, partition):
    what, unit = lengths.partition(" 1 to 30 ")[::2]
    least = {"parity": 4, "minesweeper": 3}.get(task, 1)
    card = dataset_card(task, {"all": {"min_length": least, "max_length": 30}}, {"train": 5})
    assert f"{what} {least} to 30 {unit}" in card and partition in card and ("digits" in card) == ("digits" in lengths)
    folder, task = tmp_path / "model", TASKS[task]()
    save_model(folder, task, position_encoding="none", coupling=task.coupling)
    write_recipe({**task.describe(), "min_length": 2, "max_length": 2}, folder / "recipe.yaml")
    card = model_card(folder)
    assert f"{what} 2 {unit}" in card
