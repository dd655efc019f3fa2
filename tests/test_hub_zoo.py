"""All of the package published in one go, onto a Hub that fails now and then."""

import json
import re

import datasets
import pytest
from huggingface_hub import HfApi

from longhand.data import TASKS, load_task_dataset
from longhand.hub_cards import push as command
from longhand.hub_cards.checkpoints.files import hash_files
from longhand.hub_cards.checkpoints.folder import read_checkpoint, unpack
from longhand.hub_cards.checkpoints.zoo import zoo
from longhand.hub_cards.evaluation.results import read_results
from longhand.hub_cards.publishing import card_updates, collection, commits
from longhand.hub_cards.publishing.collection import DESCRIPTION, LONG, SHORT, TITLE

ITEMS = {
    ("space", "user/longhand"),
    ("space", "user/exact_match_by_length"),
    ("model", "user/parallel-greedy"),
    ("model", "user/longhand-copy"),
}
ITEMS |= {("dataset", f"user/longhand-{name}-problems") for name in ("copy", "encoder-addition")}


@pytest.fixture
def small(hub, api, monkeypatch):
    """One model and two small datasets, and the command's own Hub is this one."""
    monkeypatch.setattr(collection, "list_zoo", lambda: ["copy"])
    monkeypatch.setattr(collection, "own_tasks", lambda: ["copy", "encoder_addition"])
    monkeypatch.setattr(collection, "NUM_SAMPLES", {SHORT: {"train": 8, "validation": 4, "test": 4}, LONG: {"test": 4}})
    monkeypatch.setattr(collection, "SAMPLED", 4)
    for module in (commits, card_updates, collection):
        monkeypatch.setattr(module, "HfApi", lambda: api)
    return hub


def written(hub) -> list[tuple[str, str]]:
    """Requests that could change something."""
    return [(method, path) for method, path in hub.requests if method in ("POST", "PUT", "DELETE")]


def joined(hub) -> set[tuple[str, str]]:
    """The items of the one collection, none of which stands there twice."""
    (own,) = hub.collections.values()
    items = [(item["type"], item["id"]) for item in own["items"]]
    assert len(items) == len(set(items))
    return set(items)


def titles(hub) -> dict[tuple[str, str], list[str]]:
    """The titles of all commits of every repository, the first one the Hub's own."""
    return {place: [one.title for one in own.history(own.head)] for place, own in hub.repositories.items()}


def test_without_yes_repositories_and_sizes_are_listed_and_nobody_is_asked(small, capsys):
    command.main(["zoo", "user"])
    lines = capsys.readouterr().out.splitlines()
    listed = [re.fullmatch(r" +([\d,]+)  (space|model|dataset) *(\S+) +([A-Z].*)", line).groups() for line in lines[:-2]]
    assert {(kind, name) for _, kind, name, _ in listed} == ITEMS and small.requests == []
    total = sum(int(size.replace(",", "")) for size, *_ in listed)
    assert lines[-2].split()[0] == f"{total:,}" and lines[-1].startswith("nothing was pushed")


def test_everything_is_pushed_once_and_joined(small, capsys):
    command.main(["zoo", "user", "--yes"])
    assert set(small.repositories) == joined(small) == ITEMS
    (own,) = small.collections.values()
    assert (own["title"], own["description"], own["private"]) == (TITLE, DESCRIPTION, False)
    assert all(item["note"]["text"] for item in own["items"])
    assert f"{own['slug']}: joins all of them" in capsys.readouterr().out
    before, sent = titles(small), len(written(small))
    command.main(["zoo", "user", "--yes"])
    assert titles(small) == before and joined(small) == ITEMS
    assert not [path for _, path in written(small)[sent:] if "/commit/" in path or "collections" in path]
    assert capsys.readouterr().out.count("nothing was changed") == len(ITEMS)


FAULTS = {
    "busy": [("POST", "/commit/", "status", {"status": 503}), ("POST", "/api/collections$", "status", {"status": 429})],
    "answers lost": [("POST", "/commit/", "lost", {}), ("POST", "/collections", "lost", {"times": 3})],
    "cut off": [("POST", "/preupload/", "cut", {}), ("GET", "/collections", "cut", {}), ("GET", "whoami", "truncated", {})],
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_that_pass_are_waited_out_and_nothing_is_sent_twice(small, name):
    for method, path, kind, options in FAULTS[name]:
        small.fail(method, path, kind, **options)
    command.main(["zoo", "user", "--yes"])
    assert not any(fault.times for fault in small.faults)
    assert joined(small) == ITEMS and len(small.collections) == 1
    assert all(len(own) == 2 for own in titles(small).values())


@pytest.mark.parametrize("path", ["longhand-copy-problems/commit/", "longhand-copy/preupload", "/items$"])
def test_a_push_that_was_refused_midway_goes_on_by_the_same_command(small, capsys, path):
    small.fail("POST", path, status=403)
    with pytest.raises(SystemExit) as stop:
        command.main(["zoo", "user", "--yes"])
    assert stop.value.code == 2 and "no permission" in capsys.readouterr().err.splitlines()[-1]
    before = {place: own for place, own in titles(small).items() if len(own) == 2}
    command.main(["zoo", "user", "--yes"])
    after = titles(small)
    assert joined(small) == ITEMS and all(len(own) == 2 for own in after.values()) and before.items() <= after.items()


def test_what_the_hub_will_not_take_is_found_before_anything_is_sent(small, capsys):
    small.add_repository("user/longhand-copy-problems", {"data.csv": b"1,2"}, "dataset")
    for words, message in (
        (["user", "--yes"], "holds something else already"),
        (["other", "--yes"], "may write to user only"),
        (["user/name"], "USER must be the name of a user"),
    ):
        with pytest.raises(SystemExit) as stop:
            command.main(["zoo", *words])
        assert stop.value.code == 2 and message in capsys.readouterr().err
    assert written(small) == []


def test_private_is_for_all_of_it(small):
    command.main(["zoo", "user", "--yes", "--private"])
    assert all(repository.private for repository in small.repositories.values())
    assert all(own["private"] for own in small.collections.values())


@pytest.mark.parametrize("listed", [True, False])
def test_a_collection_keeps_what_others_put_there(small, api, monkeypatch, listed):
    if not listed:
        monkeypatch.setattr(HfApi, "list_collections", lambda self, owner: [])
    small.add_repository("user/mine", {"README.md": b"mine"})
    slug = api.create_collection(TITLE, namespace="user").slug
    api.add_collection_item(slug, "user/mine", "model")
    command.main(["zoo", "user", "--yes"])
    assert joined(small) == ITEMS | {("model", "user/mine")}


def test_a_pushed_model_takes_its_code_along_and_its_certificate_names_it(small, tmp_path):
    folder = unpack("copy", tmp_path)
    files = hash_files(folder)
    assert {"modeling_coupled_gpt.py", "config.json"} <= set(files)
    read = read_checkpoint(folder)
    assert read.certificate["certified"] and read.certificate["files"] == files
    assert read.config.auto_map["AutoModelForCausalLM"] == "modeling_coupled_gpt.CoupledGPTForCausalLM"
    command.main(["zoo", "user", "--yes"])
    held = small.repositories["model", "user/longhand-copy"].head.files
    assert json.loads(held["certificate.json"])["files"] == files and b"**Certified.**" in held["README.md"]
    assert b"user/longhand-copy-problems" in held["README.md"] and b"trust_remote_code=True" in held["README.md"]
    (tmp_path / "results.jsonl").write_bytes(held["results.jsonl"])
    assert {row["model"] for row in read_results(tmp_path / "results.jsonl")} == {"copy"}


@pytest.mark.parametrize("folder", ["copy", zoo("copy")], ids=["name", "folder"])
def test_one_model_is_pushed_by_its_name_with_its_code(small, folder, capsys):
    command.main(["model", folder, "user/mine", "--yes"])
    held = small.repositories["model", "user/mine"].head.files
    assert "modeling_coupled_gpt.py" in held and b"auto_map" in held["config.json"]
    assert b'from_pretrained("user/mine", trust_remote_code=True)' in held["README.md"]
    command.main(["model", folder, "user/mine", "--yes"])
    assert "nothing was changed" in capsys.readouterr().out


def test_a_pushed_dataset_tests_far_beyond_what_it_trains_on(small, tmp_path):
    command.main(["zoo", "user", "--yes"])
    for path, content in small.repositories["dataset", "user/longhand-copy-problems"].head.files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(content)
    parts = {name: datasets.load_dataset(str(tmp_path), name, cache_dir=str(tmp_path / "cache")) for name in (SHORT, LONG)}
    rows = {name: {split: len(part) for split, part in own.items()} for name, own in parts.items()}
    assert rows == collection.NUM_SAMPLES
    longest = {name: max(max(row) for row in own["test"]["operand_lengths"]) for name, own in parts.items()}
    assert longest[SHORT] <= 30 < longest[LONG] <= 300
    card = (tmp_path / "README.md").read_text()
    assert "| train | validation | test |" in card and re.search(r"\| `long` \|.*\|  \|  \| 4 \|\n", card)


def test_every_task_of_the_package_has_a_legal_dataset():
    assert set(collection.own_tasks()) >= {"addition", "minesweeper"} and set(collection.SIZES) <= set(TASKS)
    for task in collection.own_tasks():
        made = collection.configurations(task)
        assert made[LONG]["max_length"] >= 2 * made[SHORT]["max_length"] and list(made) == [SHORT, LONG]
        for arguments in made.values():
            load_task_dataset(task, split=None, streaming=True, **arguments)


def test_the_hub_takes_title_and_description():
    assert len(TITLE) <= 60 and len(DESCRIPTION) <= 150
