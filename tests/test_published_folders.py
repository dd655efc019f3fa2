"""Folders that are damaged, private or in use: what the commands say of them, and that nothing of them is half-written."""

import errno
import json
import os
import shutil
import socket
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard

from longhand import eval as evaluation
from longhand.data.certificates import hash_weights
from longhand.hub_cards import push
from longhand.hub_cards.evaluation.results import read_results, write_results
from longhand.hub_cards.publishing.cards import update_card
from longhand.hub_cards.publishing.publications import model_files, push_model
from longhand.hub_cards.recipes import read_recipe, write_recipe
from longhand.hub_cards.research.constructions.study import run as construct
from longhand.modeling import CoupledGPTForCausalLM

ROW = {"model": "adder", "task": "addition", "length": 5, "length_b": 5, "num_samples": 20, "seed": 0, "seconds": 0.1}
ROW |= {"decode": "teacher_forced", "exact_match": 0.5, "token_accuracy": 0.75, "hardware": "CPU"}


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "adder"
    construct("addition", 30, folder)
    weights = hash_weights(CoupledGPTForCausalLM.from_pretrained(folder))
    write_results([{**ROW, "weights": weights}], folder / "results.jsonl")
    push.main(["card", str(folder)])
    return folder


@pytest.fixture
def folder(built, tmp_path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "adder"))


def row_of(folder: Path, **changes) -> dict:
    return {**read_results(folder / "results.jsonl")[0], **changes}


def refusal(capsys, main, *arguments) -> str:
    """The one line that a command ends with."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main(list(map(str, arguments)))
    message = capsys.readouterr().err
    assert stop.value.code == 2 and message.startswith("error: ") and message.count("\n") == 1
    return message


def bind(path: Path) -> None:
    """Leave a socket in the place of a file. The path of a socket must be short."""
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(before)


CONTENTS = {
    "an empty object": b"{}",
    "a list": b"[]",
    "null": b"null",
    "deep": b"[" * 20_000 + b"]" * 20_000,
    "not UTF-8": b"\xff\xfe\x00",
    "empty": b"",
    "huge": b'{"a": "' + b"a" * 2_000_000 + b'"}',
}
NOT_FILES = {"a FIFO": os.mkfifo, "a folder": os.mkdir, "a socket": bind, "a loop": lambda path: path.symlink_to(path.name)}
OBJECTS = {"an empty object", "huge"}
LEGAL = {
    "config.json": set(),
    "tokenizer.json": set(),
    "recipe.yaml": set(),
    "model.safetensors": set(),
    # Every JSON object is legal in these files.
    "generation_config.json": OBJECTS,
    "tokenizer_config.json": OBJECTS,
    "special_tokens_map.json": OBJECTS,
    "model.safetensors.index.json": OBJECTS,
    "results.jsonl": {"empty"},
    # A card is written anew.
    "README.md": set(CONTENTS),
}

"""Files of a checkpoint, and the damages after which it may still be a checkpoint. All others must be refused."""


@pytest.mark.parametrize("name", LEGAL)
@pytest.mark.parametrize("command", ["cards", "push", "ask"])
def test_a_damaged_file_is_named_in_one_line(built, tmp_path, capsys, name, command):
    for number, (damage, make) in enumerate({**CONTENTS, **NOT_FILES}.items()):
        folder = Path(shutil.copytree(built, tmp_path / str(number) / "adder"))
        (folder / name).unlink(missing_ok=True)
        make(folder / name) if callable(make) else (folder / name).write_bytes(make)
        main, words = {
            "cards": (push.main, ["card", folder]),
            "push": (push.main, ["model", folder, "user/adder"]),
            "ask": (evaluation.main, [folder, "--ask", "12+34"]),
        }[command]
        # No recipe needs to say anything: config.json names the task.
        told = name == "recipe.yaml" and damage == "an empty object"
        unread = (command, name) == ("ask", "results.jsonl") and damage in CONTENTS
        if damage in LEGAL[name] or told or unread:
            try:
                main(list(map(str, words)))
            except SystemExit:
                message = capsys.readouterr().err
                # The generation settings belong to what was measured.
                assert message.startswith("error: ") and message.count("\n") == 1 and "config" in message
        else:
            message = refusal(capsys, main, *words)
            assert name in message or (name == "recipe.yaml" and "task" in message), (damage, message)


@pytest.mark.parametrize(
    "metadata",
    ["[: {", "- a", "datasets: 5", "datasets: [5]", "datasets: {a: 1}", "datasets: sums", "model-index: 3", "tags: 3",
     "model-index: [{name: [x]}]", "2: 3", "eval_results: 3"],
)  # fmt: skip
def test_metadata_that_cannot_be_used_is_refused_before_anything_is_measured(
    folder, tmp_path, capsys, monkeypatch, metadata
):
    monkeypatch.setattr(evaluation, "evaluate_lengths", None)
    text = (folder / "README.md").read_text()
    (folder / "README.md").write_text(f"---\n{metadata}\n---\n{text.split('---', 2)[2]}")
    message = refusal(capsys, evaluation.main, folder, "--lengths", "3", "--update_card", "--output_dir", tmp_path / "out")
    assert "README.md: its metadata cannot be used" in message and not (tmp_path / "out").exists()


def test_one_dataset_may_be_named_without_a_list(folder):
    text = (folder / "README.md").read_text()
    (folder / "README.md").write_text(text.replace("\n", "\ndatasets: user/sums\n", 1))
    update_card(folder, [row_of(folder, length=7, length_b=7)])
    results = ModelCard.load(folder / "README.md").data.eval_results
    assert {result.dataset_type for result in results} == {"user/sums"}


@pytest.mark.parametrize("name", ["x" * 300, "no\0name", "../nowhere"])
def test_a_folder_that_cannot_be_is_refused_in_one_line(tmp_path, capsys, name):
    refusal(capsys, push.main, "card", tmp_path / name)
    refusal(capsys, push.main, "model", tmp_path / name, "user/adder")


def state(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("written", range(3))
def test_a_disk_that_is_full_changes_nothing_of_a_card(folder, monkeypatch, written):
    before, write = state(folder), Path.write_bytes
    left = [None] * written

    def fill(path, content):
        if path.is_relative_to(folder):
            if not left:
                raise OSError(errno.ENOSPC, "No space left on device")
            left.pop()
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", fill)
    with pytest.raises(OSError, match="No space left"):
        update_card(folder, [row_of(folder, exact_match=0.25)], dataset="user/sums")
    assert state(folder) == before


def test_a_card_that_cannot_be_written_is_one_line_and_the_old_one_stays(folder, capsys, monkeypatch):
    before = state(folder)
    error = OSError(errno.EROFS, "Read-only file system")
    monkeypatch.setattr("longhand.hub_cards.files.os.open", lambda *arguments: (_ for _ in ()).throw(error))
    assert "Read-only file system" in refusal(capsys, push.main, "card", folder)
    assert state(folder) == before


def test_results_that_differ_in_time_alone_change_nothing(hub, api, folder):
    update_card(folder, [row_of(folder, length=7, length_b=7)])
    before, row = state(folder), row_of(folder, seconds=99.5)
    assert str(update_card(folder, [row])) == f"{folder / 'README.md'}: holds these results already, nothing was changed"
    assert state(folder) == before
    push_model(folder, "user/adder", api=api)
    head = hub.repositories["model", "user/adder"].head
    assert "nothing was changed" in str(update_card("user/adder", [row], api=api))
    assert hub.repositories["model", "user/adder"].head == head
    done = update_card(folder, [{**row, "exact_match": 0.25}])
    assert str(done) == f"updated {folder / 'README.md'}: wrote results.jsonl, accuracy.png, README.md"
    assert row_of(folder)["seconds"] == 99.5


PRIVATE = {
    "run_name": "secret-name",
    "output_dir": "/home/me/secret-place",
    "hub_token": "secret-token",
    "hub_model_id": "me/secret",
    "base_model": "/home/secret-user/base",
    "label_names": ["/data/secret-user/names"],
    "description": "see ~/secret-folder/notes and C:\\secret\\x, token hf_secretsecretsecretsecret",
}


def test_a_recipe_is_published_without_places_names_and_tokens(hub, api, folder):
    write_recipe(read_recipe(folder / "recipe.yaml") | PRIVATE, folder / "recipe.yaml")
    shutil.copytree(folder, folder / "best", ignore=shutil.ignore_patterns("results.jsonl", "best"))
    push.main(["card", str(folder)])
    push_model(folder, "user/adder", api=api)
    files = hub.repositories["model", "user/adder"].head.files
    assert not any(b"secret" in content for content in (*files.values(), (folder / "README.md").read_bytes()))
    published = yaml.safe_load(files["recipe.yaml"])
    assert published.keys() & PRIVATE.keys() == {"base_model", "label_names", "description"}
    assert (published["base_model"], published["label_names"]) == ("base", ["names"])
    assert published["description"] == "see notes and x, token TOKEN"
    assert published.keys() >= read_recipe(folder / "recipe.yaml").keys() - PRIVATE.keys()


def test_a_recipe_without_private_lines_is_published_as_it_is(hub, api, folder):
    (folder / "recipe.yaml").write_text(
        text := "# By hand, see https://example.org/a/b.\n" + (folder / "recipe.yaml").read_text()
    )
    push_model(folder, "user/adder", api=api)
    assert hub.repositories["model", "user/adder"].head.files["recipe.yaml"].decode() == text


def test_a_card_of_a_folder_with_an_absolute_path_names_the_folder_alone(folder):
    push.main(["card", str(folder)])
    text = (folder / "README.md").read_text()
    assert 'from_pretrained("adder"' in text and str(folder.parent) not in text


@pytest.mark.parametrize(
    ("private", "what"),
    [("hf_abcdefghijklmnopqrstuvwxyz", "a token"), ("a token of mine", "a token"), ("{folder}/model", "the path {folder}"),
     ("{home}/x", "the path {home}"), ("{folder}", "the path {folder}"), ("{home}", "the path {home}")],
)  # fmt: skip
def test_a_file_with_a_token_or_a_path_of_this_machine_is_not_pushed(folder, monkeypatch, private, what):
    monkeypatch.setattr("longhand.hub_cards.publishing.privacy.get_token", lambda: "a token of mine")
    places = {"folder": folder, "home": Path.home()}
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"made_in": private.format(**places)}, indent=1))
    with pytest.raises(ValueError, match=rf"tokenizer_config.json, line \d+, holds {what.format(**places)} and would be"):
        model_files(folder, "user/adder")


def test_an_address_and_another_folder_that_hold_the_name_of_a_home_are_pushed(folder):
    file = folder / "tokenizer_config.json"
    made_in = f"https://example.org{Path.home()}/x {Path.home()}less/x"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"made_in": made_in}))
    model_files(folder, "user/adder")


def test_code_that_is_not_ours_needs_consent(hub, api, folder, capsys):
    (folder / "extra.py").write_text("print('hello')\n")
    with (folder / "coupling.py").open("a") as code:
        code.write("# mine\n")
    for main in (lambda words: push.main([*words, "--yes"]), push.main):
        message = refusal(capsys, main, "model", folder, "user/adder")
        assert "Python files that this version of longhand did not write for this model: coupling.py, extra.py" in message
        assert "--with_code" in message
    push.main(["model", str(folder), "user/adder", "--with_code"])
    assert "extra.py\n" in capsys.readouterr().out
    push_model(folder, "user/adder", with_code=True, api=api)
    assert {"extra.py", "coupling.py"} <= set(hub.repositories["model", "user/adder"].head.files)


def test_files_on_the_hub_that_are_damaged_by_hand_are_named_with_the_repository(hub, api, folder):
    push_model(folder, "user/adder", api=api)
    repository = hub.repositories["model", "user/adder"]
    row = row_of(folder)
    damaged = repository.commit("main", "by hand", repository.head.files | {"results.jsonl": b"{}\n"})
    for change in (lambda: push_model(folder, "user/adder", api=api), lambda: update_card("user/adder", [row], api=api)):
        with pytest.raises(ValueError, match=r"^user/adder/results.jsonl, line 1: the result lacks model"):
            change()
    assert repository.head == damaged


def test_without_yes_a_branch_is_checked_and_what_a_push_keeps_is_said(folder, capsys):
    assert "revision must be the name of a branch" in refusal(
        capsys, push.main, "model", folder, "user/a", "--revision", "a b"
    )
    push.main(["model", str(folder), "user/adder"])
    assert "its results of the same weights are kept, and files of an earlier push" in capsys.readouterr().out


def test_earlier_results_are_not_replaced_without_a_word(folder, tmp_path, capsys):
    words = [str(folder), "--lengths", "3", "--num_samples", "2", "--output_dir", str(tmp_path / "out")]
    evaluation.main(words)
    assert "replaced" not in capsys.readouterr().out
    evaluation.main(words)
    assert str(tmp_path / "out" / "results.jsonl") in capsys.readouterr().out.splitlines()[0]
