"""A push of a dataset."""

from pathlib import Path

import datasets
import pytest
from datasets.distributed import split_dataset_by_node
from push_subjects import CONFIGURATIONS, NUM_SAMPLES, held, push_sums, written

from longhand.data import load_task_dataset
from longhand.data.builder import TaskDatasetBuilder
from longhand.hub_cards.publishing import dataset
from longhand.hub_cards.publishing.commits import CannotPush
from longhand.hub_cards.publishing.dataset import is_dataset_file


def test_only_tables_of_splits_are_taken_for_our_own():
    ours = {"README.md", "up_to_4/train-00000-of-00001.parquet"}
    assert {
        path
        for path in (*ours, "more.parquet", "mine/all.parquet", "a/b/test-00000-of-00001.parquet")
        if is_dataset_file(path)
    } == ours


def test_a_dataset_is_one_commit_and_the_same_bytes_again(hub, api):
    first = push_sums(api)
    repository = hub.repositories["dataset", "user/sums"]
    assert len(repository.commits) == 2
    paths = [f"{name}/{split}-00000-of-00001.parquet" for name in CONFIGURATIONS for split in NUM_SAMPLES]
    assert set(first.changed) == {"README.md", *paths}
    again = push_sums(api)
    assert again.changed == [] and again.sha == first.sha
    fewer = push_sums(api, configurations={"short": CONFIGURATIONS["short"]})
    assert fewer.changed == ["README.md"] and set(fewer.removed) == {path for path in paths if path.startswith("plain")}


def test_what_the_hub_refuses_is_not_generated(hub, api, monkeypatch):
    monkeypatch.setattr(TaskDatasetBuilder, "_table", None)
    hub.add_repository("user/sums", {"data.csv": b"1,2"}, "dataset")
    with pytest.raises(CannotPush, match="holds something else already"):
        push_sums(api)
    hub.tokens.clear()
    with pytest.raises(CannotPush, match="refuses the token"):
        push_sums(api)
    assert written(hub) == []


def test_a_dataset_in_several_files_holds_the_same_rows(hub, api, monkeypatch, tmp_path):
    monkeypatch.setattr(dataset, "ROWS_PER_FILE", 15)
    push_sums(api)
    files = held(hub, "user/sums", "dataset")
    parts = sorted(path for path in files if path.startswith("short/train"))
    assert parts == [f"short/train-{part:05d}-of-00003.parquet" for part in range(3)]
    for part in parts:
        (tmp_path / Path(part).name).write_bytes(files[part])
    read = datasets.load_dataset("parquet", data_files=[str(tmp_path / Path(part).name) for part in parts], split="train")
    made = load_task_dataset("addition", split="train", num_samples=40, seed=3, max_length=6, streaming=True)
    assert list(read) == list(made)


def test_a_published_dataset_names_its_columns_and_sizes_and_is_read_in_parts(hub, api, monkeypatch, tmp_path):
    monkeypatch.setattr(dataset, "FEWEST_ROWS", 10)
    push_sums(api)
    for path, content in held(hub, "user/sums", "dataset").items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(content)
    for name, arguments in CONFIGURATIONS.items():
        info = datasets.load_dataset_builder(str(tmp_path), name, cache_dir=str(tmp_path / "cache")).info
        assert info.features == load_task_dataset("addition", num_samples=1, streaming=True, **arguments).features
        assert {split: own.num_examples for split, own in info.splits.items()} == NUM_SAMPLES
        assert info.download_size == sum(file.stat().st_size for file in (tmp_path / name).glob("*.parquet"))
    stream = datasets.load_dataset(str(tmp_path), "short", split="train", streaming=True)
    nodes = [list(split_dataset_by_node(stream, rank, 2)) for rank in range(2)]
    assert stream.num_shards == 4
    assert sorted(row["prompt"] for node in nodes for row in node) == sorted(row["prompt"] for row in stream)
    part = datasets.load_dataset(str(tmp_path), "short", split="train[:10%]", cache_dir=str(tmp_path / "cache"))
    assert list(part) == list(stream)[:4]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"configurations": {}}, "at least one"),
        ({"configurations": {"a": {"max_length": 5, "colour": "red"}}}, "has no field 'colour'"),
        ({"configurations": {"a": {"max_length": 5}, "b": {"max_length": 5, "order": "up"}}}, "order 'up' is unknown"),
        *(
            ({"configurations": {name: {"max_length": 5}}}, "a configuration's name must be of letters")
            for name in ("a/b", "..", ".hidden", "-a", "", "größer", "README.md")
        ),
        ({"num_samples": {"train": 0}}, "num_samples"),
        ({"num_samples": {"all": 5}}, "split 'all' is unknown"),
    ],
)
def test_a_dataset_that_cannot_be_made(hub, api, changes, message, monkeypatch):
    monkeypatch.setattr(TaskDatasetBuilder, "_table", None)
    with pytest.raises(ValueError, match=message):
        push_sums(api, **changes)
    assert hub.requests == []
