"""Datasets that several machines make, a shard each."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from plugin_state import forget_plugins
from push_subjects import CONFIGURATIONS, NUM_SAMPLES, held

from longhand.data import builder, load_task_dataset
from longhand.data.builder import TaskDatasetBuilder
from longhand.data.plugins import load_plugin
from longhand.hub_cards import push as command
from longhand.hub_cards.publishing import commits
from longhand.hub_cards.publishing import dataset as publishing
from longhand.hub_cards.publishing.commits import CannotPush
from longhand.hub_cards.publishing.dataset import (
    GeneratedDataset,
    dataset_publication,
    join_shards,
    push_shard,
    shard_branch,
    shard_files,
)
from longhand.hub_cards.publishing.publications import publish

MAXIMUM = Path(__file__).parent / "not_shown" / "maximum.py"
SUMS = GeneratedDataset("addition", CONFIGURATIONS, NUM_SAMPLES, 3)


@pytest.fixture
def small(monkeypatch):
    """Files that end in the middle of shards of the builder, which are small."""
    monkeypatch.setattr(builder, "_SHARD_ROWS", 64)
    monkeypatch.setattr(publishing, "ROWS_PER_FILE", 150)


@pytest.fixture
def several(monkeypatch):
    """Two files of each split."""
    monkeypatch.setattr(publishing, "FEWEST_FILES", 2)
    monkeypatch.setattr(publishing, "FEWEST_ROWS", 5)


def contents(dataset, files, place, num_proc=None):
    place.mkdir()
    sizes = dataset.make(files, place, num_proc)
    return {path: ((place / path).read_bytes(), size) for path, size in sizes.items()}


@pytest.mark.parametrize("task", ["addition", "minesweeper", "encoder_addition"])
def test_the_files_of_all_shards_are_the_whole_dataset_byte_for_byte(task, small, tmp_path):
    # Sums of two digits are so few that shards must know what the others hold.
    sizes = {"min_length": 1, "max_length": 2} if task == "addition" else {"min_length": 5, "max_length": 6}
    sizes |= {"min_length": 1} if task == "encoder_addition" else {}
    configurations = {"first": sizes, "second": {**sizes, "messages": True, "num_samples": {"train": 200}}}
    dataset = GeneratedDataset(task, configurations, {"train": 500, "test": 30}, 5)
    files = dataset.files()
    assert len(files) == 7 and all(file.first % 64 for file in files if file.first)
    whole = contents(dataset, files, tmp_path / "whole")
    for num_shards, num_proc in ((2, None), (3, 2)):
        union = {}
        for shard in range(num_shards):
            place = tmp_path / f"{shard}-of-{num_shards}"
            union |= contents(dataset, shard_files(files, shard, num_shards), place, num_proc)
        assert union == whole


def test_rows_of_a_part_are_those_of_the_whole_dataset(small, tmp_path):
    arguments = {"task": "addition", "split": "train", "num_samples": 300, "max_length": 3}
    rows = list(load_task_dataset(**arguments, streaming=True))
    for first, end in ((0, 1), (63, 65), (128, 192), (100, 300)):
        part = {"rows": {"train": (first, end)}, **arguments}
        assert list(load_task_dataset(**part, streaming=True)) == rows[first:end]
        assert list(load_task_dataset(**part, cache_dir=tmp_path)) == rows[first:end]
    for first, end in ((0, 301), (5, 5), (-1, 3)):
        with pytest.raises(ValueError, match=f"rows must lie among those of the dataset, train 0 to 300: got train {first}"):
            load_task_dataset(**arguments, rows={"train": (first, end)})
    for rows in ({}, (0, 5), "train"):
        with pytest.raises(ValueError, match=r"^rows must map splits to a first row and the one after"):
            load_task_dataset(**arguments, rows=rows)
    for ends in ((0.0, 5.0), (False, True), 5, "05", (0, 5, 6)):
        with pytest.raises(ValueError, match=r"^rows of train must be two whole numbers among train 0 to 300, got "):
            load_task_dataset(**arguments, rows={"train": ends})


def test_two_machines_publish_what_one_would(hub, api, several):
    publish(dataset_publication(SUMS, "user/sums"), api=api, revision="whole")
    repository = hub.repositories["dataset", "user/sums"]
    before = repository.head
    for shard in (1, 0):
        assert len(push_shard(SUMS, "user/sums", shard, 2, api=api).changed) == len(SUMS.files()) // 2 + 1
        assert repository.head is before
    joined = join_shards(SUMS, "user/sums", 2, api=api)
    assert repository.head.parent == before.sha and repository.head.files == repository.find("whole").files
    assert len(joined.changed) == len(SUMS.files()) + 1
    again = join_shards(SUMS, "user/sums", 2, api=api)
    assert again.sha == joined.sha and again.changed == []


def test_a_dataset_without_one_of_its_shards_is_not_published(hub, api, several, monkeypatch):
    # What the repository holds has the same paths, and other rows: it is no shard.
    publish(dataset_publication(replace(SUMS, seed=4), "user/sums"), api=api)
    before = hub.repositories["dataset", "user/sums"].head
    with pytest.raises(CannotPush, match=r"lacks 3 of 3 shards of this dataset \(0, 1, 2\)"):
        join_shards(SUMS, "user/sums", 3, api=api)
    push_shard(SUMS, "user/sums", 1, 3, api=api)
    push_shard(replace(SUMS, seed=5), "user/sums", 0, 3, api=api)
    push_shard(replace(SUMS, num_samples={**NUM_SAMPLES, "train": 41}), "user/sums", 2, 3, api=api)
    with pytest.raises(CannotPush, match=r"nothing was published: user/sums lacks 2 of 3 shards of this dataset \(0, 2\)"):
        join_shards(SUMS, "user/sums", 3, api=api)
    assert hub.repositories["dataset", "user/sums"].head is before
    # Shards of another division are the same files.
    push_shard(SUMS, "user/sums", 0, 2, api=api)
    push_shard(SUMS, "user/sums", 1, 2, api=api)
    join_shards(SUMS, "user/sums", 3, api=api)
    assert list(held(hub, "user/sums", "dataset")) == sorted([file.path for file in SUMS.files()] + ["README.md"])
    monkeypatch.setattr(TaskDatasetBuilder, "_table", None)
    assert push_shard(SUMS, "user/sums", 1, 3, api=api).changed == []


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


def test_a_shard_that_was_damaged_on_the_hub_is_missing(hub, api, several):
    for shard in range(2):
        push_shard(SUMS, "user/sums", shard, 2, api=api)
    repository, branch = hub.repositories["dataset", "user/sums"], shard_branch(SUMS)
    files = dict(repository.find(branch).files)
    repository.commit(branch, "damage", files | {SUMS.files()[0].path: b"PAR1"})
    with pytest.raises(CannotPush, match=r"lacks 1 of 2 shards of this dataset \(0\)"):
        join_shards(SUMS, "user/sums", 2, api=api)
    listing = json.loads(files["shard-00001-of-00002.json"])
    assert {path: one["file"] for path, one in listing.items()} == {path: len(files[path]) for path in listing}


def test_a_split_has_more_rows_in_a_file_rather_than_too_many_files():
    dataset = GeneratedDataset("addition", {"all": {"max_length": 30}}, {"train": 10**10})
    files = dataset.files()
    assert len(files) == publishing.MOST_FILES and files[-1].end == 10**10
    assert all(file.end - file.first == 10**6 for file in files)


def test_the_command_pushes_and_joins_shards(hub, api, several, monkeypatch, capsys):
    monkeypatch.setattr(commits, "HfApi", lambda: api)
    words = ["dataset", "addition", "user/sums", "--max_length", "4", "--num_samples", "20", "--num_test_samples", "5"]

    def refusal(*more):
        with pytest.raises(SystemExit) as stop:
            command.main([*words, *more])
        assert stop.value.code == 2
        return capsys.readouterr().err

    shards = ["--num_shards", "2"]
    assert "num_shards must be an integer from 1 to 4, got 5" in refusal("--num_shards", "5", "--shard", "0")
    assert "num_shards must be an integer from 1 to 4, got 0" in refusal("--num_shards", "0")
    assert "shard must be an integer from 0 to 1, got 2" in refusal(*shards, "--shard", "2", "--yes")
    assert "shard must be an integer from 0 to 1, got -1" in refusal(*shards, "--shard", "-1")
    assert "shard is for num_shards, which is not set" in refusal("--shard", "1")
    assert "revision cannot be given with shard" in refusal(*shards, "--shard", "1", "--revision", "trial")
    assert "num_proc must be an integer of at least 1, got 0" in refusal("--num_proc", "0")
    command.main([*words, *shards, "--shard", "1"])
    assert "up_to_4/test-00000-of-00001.parquet\n" in capsys.readouterr().out and hub.requests == []
    command.main([*words, *shards, "--shard", "1", "--yes", "--num_proc", "2"])
    assert "lacks 1 of 2 shards of this dataset (0)" in refusal(*shards, "--yes")
    command.main([*words, *shards, "--shard", "0", "--yes"])
    command.main([*words, *shards])
    assert "--yes publishes 4 files and the card in one commit" in capsys.readouterr().out
    command.main([*words, *shards, "--yes", "--revision", "trial", "--commit_message", "hello"])
    repository = hub.repositories["dataset", "user/sums"]
    assert repository.find("trial").title == "hello" and len(repository.find("trial").files) == 6
    assert set(repository.head.files) == {".gitattributes"}
