"""All of the package published in one go, onto a Hub that fails now and then."""

import json
import re

import datasets
import pytest
from huggingface_hub import HfApi
from publishing_subjects import committed, refusal

from longhand.data import TASKS, load_task_dataset
from longhand.hub_cards import push as command
from longhand.hub_cards.checkpoints.files import hash_files
from longhand.hub_cards.checkpoints.folder import read_checkpoint, unpack
from longhand.hub_cards.checkpoints.zoo import zoo
from longhand.hub_cards.publishing import collection
from longhand.hub_cards.publishing.collection import DESCRIPTION, LONG, SHORT, TITLE

ITEMS = {
    ("space", "user/longhand"),
    ("space", "user/exact_match_by_length"),
    ("model", "user/parallel-greedy"),
    ("model", "user/longhand-copy"),
}
ITEMS |= {("dataset", f"user/longhand-{name}-problems") for name in ("copy", "encoder-addition")}


@pytest.fixture
def small(at_home, monkeypatch):
    """One model and two small datasets, and the command's own Hub is this one."""
    monkeypatch.setattr(collection, "list_zoo", lambda: ["copy"])
    monkeypatch.setattr(collection, "own_tasks", lambda: ["copy", "encoder_addition"])
    monkeypatch.setattr(collection, "NUM_SAMPLES", {SHORT: {"train": 8, "validation": 4, "test": 4}, LONG: {"test": 4}})
    return at_home


def joined(hub) -> set[tuple[str, str]]:
    """The items of the one collection, none of which stands there twice."""
    (own,) = hub.collections.values()
    items = [(item["type"], item["id"]) for item in own["items"]]
    assert len(items) == len(set(items))
    return set(items)


def titles(hub) -> dict[tuple[str, str], list[str]]:
    """The titles of all commits of every repository, the first one the Hub's own."""
    return {place: [one.title for one in own.history(own.head)] for place, own in hub.repositories.items()}


def test_without_yes_repositories_are_listed_and_nobody_is_asked(small, capsys):
    command.main(["zoo", "user"])
    lines = capsys.readouterr().out.splitlines()
    listed = [re.fullmatch(r"(space|model|dataset) *(\S+) +[A-Z].*", line).groups() for line in lines[:-2]]
    assert set(listed) == ITEMS and small.requests == [] and lines[-1].startswith("nothing was pushed")


def test_everything_is_pushed_once_and_joined(small, tmp_path, capsys):
    command.main(["zoo", "user", "--yes"])
    assert set(small.repositories) == joined(small) == ITEMS
    (own,) = small.collections.values()
    assert (own["title"], own["description"], own["private"]) == (TITLE, DESCRIPTION, False)
    assert all(item["note"]["text"] for item in own["items"])
    assert f"{own['slug']}: joins {len(ITEMS)} of {len(ITEMS)} repositories" in capsys.readouterr().out
    held = small.repositories["model", "user/longhand-copy"].head.files
    assert_certified(held, tmp_path)
    assert_far_beyond(small.repositories["dataset", "user/longhand-copy-problems"].head.files, tmp_path / "problems")
    before = titles(small)
    small.requests.clear()
    command.main(["zoo", "user", "--yes"])
    assert titles(small) == before and joined(small) == ITEMS and committed(small) == []


@pytest.mark.parametrize("path", ["/repos/create", pytest.param("longhand-copy/preupload", marks=pytest.mark.thorough)])
def test_what_is_refused_is_named_at_the_end_and_all_else_is_pushed_and_joined(small, capsys, path):
    small.fail("POST", path, status=402)
    with pytest.raises(SystemExit) as stop:
        command.main(["zoo", "user", "--yes"])
    last = capsys.readouterr().out.rpartition("not pushed:\n")[2]
    (name,) = re.findall(r"^  (\S+): the Hub refuses .* \(402\)", last, re.MULTILINE)
    assert stop.value.code == 1 and joined(small) == {item for item in ITEMS if item[1] != name}
    before = {place: own for place, own in titles(small).items() if len(own) == 2}
    command.main(["zoo", "user", "--yes"])
    after = titles(small)
    assert joined(small) == ITEMS and all(len(own) == 2 for own in after.values()) and before.items() <= after.items()


@pytest.mark.parametrize("words", [["other", "--yes"], ["user/name"]])
def test_a_user_whom_the_hub_will_not_take_is_refused_before_anything_is_sent(small, capsys, words):
    assert words[0] in refusal(capsys, command.main, "zoo", *words) and committed(small) == []


@pytest.mark.parametrize("listed", [True, False])
def test_a_collection_keeps_what_others_put_there(small, api, monkeypatch, listed):
    if not listed:
        monkeypatch.setattr(HfApi, "list_collections", lambda self, owner: [])
    small.add_repository("user/mine", {"README.md": b"mine"})
    slug = api.create_collection(TITLE, namespace="user").slug
    api.add_collection_item(slug, "user/mine", "model")
    command.main(["zoo", "user", "--yes", "--private"])
    assert joined(small) == ITEMS | {("model", "user/mine")}
    assert all(own.private for place, own in small.repositories.items() if place in ITEMS)


def assert_certified(held, place):
    """A pushed model takes its code along, and its certificate names the code."""
    folder = unpack("copy", place)
    files, read = hash_files(folder), read_checkpoint(folder)
    assert {"modeling_coupled_gpt.py", "config.json"} <= set(files)
    assert read.certificate["certified"] and read.certificate["files"] == files
    assert read.config.auto_map["AutoModelForCausalLM"] == "modeling_coupled_gpt.CoupledGPTForCausalLM"
    assert json.loads(held["certificate.json"])["files"] == files and b"**Certified.**" in held["README.md"]
    assert b"user/longhand-copy-problems" in held["README.md"] and b"trust_remote_code=True" in held["README.md"]
    assert {json.loads(line)["model"] for line in held["results.jsonl"].splitlines()} == {"copy"}


@pytest.mark.parametrize("folder", ["copy", zoo("copy")], ids=["name", "folder"])
def test_one_model_is_pushed_by_its_name_with_its_code(small, folder):
    command.main(["model", folder, "user/mine", "--yes"])
    held = small.repositories["model", "user/mine"].head.files
    assert "modeling_coupled_gpt.py" in held and b"auto_map" in held["config.json"]
    assert b'from_pretrained("user/mine", trust_remote_code=True)' in held["README.md"]


def assert_far_beyond(files, place):
    """A pushed dataset has tests far beyond the problems that it trains on."""
    for path, content in files.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(content)
    parts = {name: datasets.load_dataset(str(place), name, cache_dir=str(place / "cache")) for name in (SHORT, LONG)}
    rows = {name: {split: len(part) for split, part in own.items()} for name, own in parts.items()}
    assert rows == collection.NUM_SAMPLES
    longest = {name: max(max(row) for row in own["test"]["operand_lengths"]) for name, own in parts.items()}
    assert longest[SHORT] <= 30 < longest[LONG] <= 300
    assert re.search(r"\| `long` \|.*\|  \|  \| 4 \|\n", (place / "README.md").read_text())


def test_every_task_of_the_package_has_a_legal_dataset():
    assert set(collection.own_tasks()) >= {"addition", "minesweeper"} and set(collection.SIZES) <= set(TASKS)
    for task in collection.own_tasks():
        made = collection.configurations(task)
        assert made[LONG]["max_length"] >= 2 * made[SHORT]["max_length"] and list(made) == [SHORT, LONG]
        for arguments in made.values():
            load_task_dataset(task, split=None, streaming=True, **arguments)


def test_the_hub_takes_title_and_description():
    assert len(TITLE) <= 60 and len(DESCRIPTION) <= 150
