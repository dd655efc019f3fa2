"""Folders that are damaged, private or in use: what the commands say of them, and that nothing of them is half-written."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from publishing_subjects import contents, held, make_best, measured, refusal, row, write_certificate
from safetensors.torch import load_file, save_file

from longhand import eval as evaluation
from longhand.data.certificates import hash_weights
from longhand.hub_cards import push
from longhand.hub_cards.checkpoints.certificate_file import VERIFIER
from longhand.hub_cards.evaluation.results import write_results
from longhand.hub_cards.publishing.cards import write_card
from longhand.hub_cards.publishing.publications import model_files, model_publication, push_model
from longhand.hub_cards.recipes import read_recipe, write_recipe
from longhand.modeling import CoupledGPTForCausalLM


@pytest.fixture(scope="module")
def built(adder, tmp_path_factory) -> Path:
    """The adder with a measured result and a card."""
    folder = Path(shutil.copytree(adder, tmp_path_factory.mktemp("carded") / "adder"))
    write_results([measured(5, 0.5, "adder", folder)], folder / "results.jsonl")
    write_card(folder)
    return folder


@pytest.fixture
def folder(built, tmp_path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "adder"))


CONTENTS = {
    "an empty object": b"{}",
    "a list": b"[]",
    "deep": b"[" * 20_000 + b"]" * 20_000,
    "not UTF-8": b"\xff\xfe\x00",
    "empty": b"",
    "huge": b'{"a": "' + b"a" * 2_000_000 + b'"}',
}
NOT_FILES = {"a FIFO": os.mkfifo, "a folder": os.mkdir, "a loop": lambda path: path.symlink_to(path.name)}
OBJECTS = {"an empty object", "huge"}
LEGAL = {
    "config.json": set(),
    "tokenizer.json": set(),
    # No recipe needs to say anything: config.json names the task.
    "recipe.yaml": {"an empty object"},
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
@pytest.mark.parametrize("command", ["card", "ask"])
def test_a_damaged_file_is_named_in_one_line(built, tmp_path, capsys, name, command):
    for number, (damage, make) in enumerate({**CONTENTS, **NOT_FILES}.items()):
        folder = Path(shutil.copytree(built, tmp_path / str(number) / "adder"))
        (folder / name).unlink(missing_ok=True)
        make(folder / name) if callable(make) else (folder / name).write_bytes(make)
        words = ["card", folder] if command == "card" else [folder, "--ask", "12+34"]
        main = push.main if command == "card" else evaluation.main
        unread = (command, name) == ("ask", "results.jsonl") and damage in CONTENTS
        if damage not in LEGAL[name] and not unread:
            message = refusal(capsys, main, *words)
            assert name in message or (name == "recipe.yaml" and "task" in message), (damage, message)
        elif name == "generation_config.json":
            # Without settings, decoding would not stop where the task ends.
            assert "config" in refusal(capsys, main, *words)
        else:
            main(list(map(str, words)))


@pytest.mark.parametrize("name", ["x" * 300, "no\0name", "../nowhere", "two\nlines", "not \udcff UTF-8"])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_folder_that_cannot_be_is_refused_in_one_line(folder, tmp_path, capsys, name, is_there):
    if is_there and name.startswith(("two", "not")):
        folder.rename(tmp_path / name)
    refusal(capsys, push.main, "card", tmp_path / name)
    refusal(capsys, push.main, "model", tmp_path / name, "user/adder")


@pytest.mark.parametrize("name", ["two\nlines.png", "not \udcff UTF-8.png"])
def test_a_file_whose_name_the_hub_cannot_hold_is_refused(folder, name):
    (folder / name).write_bytes(b"")
    with pytest.raises(ValueError, match="UTF-8"):
        model_files(folder, "user/adder")


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


def test_a_recipe_without_private_lines_is_published_as_it_is(folder):
    text = "# By hand, see https://example.org/a/b.\n" + (folder / "recipe.yaml").read_text()
    (folder / "recipe.yaml").write_text(text)
    assert model_files(folder, "user/adder")["recipe.yaml"].decode() == text


@pytest.mark.parametrize(
    "private",
    ["hf_abcdefghijklmnopqrstuvwxyz", "a token of mine", "{folder}/model", "{home}/x", "{folder}", "{home}"],
)
def test_a_file_with_a_token_or_a_path_of_this_machine_is_not_pushed(folder, monkeypatch, private):
    monkeypatch.setattr("longhand.hub_cards.publishing.privacy.get_token", lambda: "a token of mine")
    places = {"folder": folder, "home": Path.home()}
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"made_in": private.format(**places)}, indent=1))
    with pytest.raises(ValueError, match=r"tokenizer_config\.json, line \d+"):
        model_files(folder, "user/adder")


def test_an_address_and_another_folder_that_hold_the_name_of_a_home_are_pushed(folder):
    file = folder / "tokenizer_config.json"
    made_in = f"https://example.org{Path.home()}/x {Path.home()}less/x"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"made_in": made_in}))
    model_files(folder, "user/adder")


def test_code_that_is_not_ours_needs_consent(at_home, folder, capsys):
    (folder / "extra.py").write_text("print('hello')\n")
    with (folder / "coupling.py").open("a") as code:
        code.write("# mine\n")
    for more in ([], ["--yes"]):
        message = refusal(capsys, push.main, "model", folder, "user/adder", *more)
        assert "coupling.py, extra.py" in message and "--with_code" in message
    push.main(["model", str(folder), "user/adder", "--with_code", "--yes"])
    assert {"extra.py", "coupling.py"} <= set(held(at_home))


def test_earlier_results_are_replaced_and_named(folder, tmp_path, capsys):
    words = [str(folder), "--lengths", "3", "--num_samples", "2", "--output_dir", str(tmp_path / "out")]
    evaluation.main(words)
    assert "replaced" not in capsys.readouterr().out
    evaluation.main(words)
    assert str(tmp_path / "out" / "results.jsonl") in capsys.readouterr().out.splitlines()[0]


def remove_config(folder):
    (folder / "config.json").unlink()


def remove_weights(folder):
    (folder / "model.safetensors").unlink()


def cut_weights(folder):
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])


def drop_a_weight(folder):
    weights = load_file(folder / "model.safetensors")
    weights.popitem()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def add_pickle(folder):
    torch.save({}, folder / "pytorch_model.bin")


def add_pickle_of_the_best(folder):
    (folder / "best").mkdir()
    torch.save({}, folder / "best" / "training_args.pt")


def change_architecture(folder):
    (folder / "config.json").write_text('{"model_type": "gpt2"}')


def take_results_of_another(folder):
    write_results([row(5, 0.5, model="other")], folder / "results.jsonl")


def take_results_of_another_task(folder):
    write_results([row(5, 0.5, task="copy")], folder / "results.jsonl")


def take_results_of_other_weights(folder):
    write_results([row(5, 0.5, weights="0" * 64)], folder / "results.jsonl")


def take_certificate_of_another(folder):
    write_certificate(folder, "0" * 64)


def take_certificate_of_another_format(folder):
    own = hash_weights(CoupledGPTForCausalLM.from_pretrained(folder))
    write_certificate(folder, own, order="plain")


def claim_a_certificate(folder):
    write_certificate(folder, hash_weights(CoupledGPTForCausalLM.from_pretrained(folder)))


def break_the_best(folder):
    make_best(folder)
    (folder / "best" / "model.safetensors").write_text("x")


def take_best_of_another_task(folder):
    make_best(folder)
    recipe = (folder / "recipe.yaml").read_text().replace("zero_padding: true", "zero_padding: false")
    (folder / "best" / "recipe.yaml").write_text(recipe)


def take_best_with_results_of_another(folder):
    make_best(folder)
    write_results([row(5, 0.5, model="other")], folder / "best" / "results.jsonl")


def remove_tokenizer(folder):
    (folder / "tokenizer.json").unlink()


def remove_code(folder):
    (folder / "modeling_coupled_gpt.py").unlink()


def cut_results(folder):
    (folder / "results.jsonl").write_text(json.dumps(row(5, 0.5))[:50])


def empty_certificate(folder):
    (folder / "certificate.json").write_text("[]")


def list_the_task(folder):
    (folder / "recipe.yaml").write_text("task: [addition]")


def describe_by_a_number(folder):
    (folder / "recipe.yaml").write_text("task: addition\ndescription: 3")


def link_elsewhere(folder):
    (folder.parent / "elsewhere.png").write_text("mine")
    (folder / "plot.png").symlink_to(folder.parent / "elsewhere.png")


DAMAGES = {
    remove_config: "config.json",
    remove_weights: "safetensors",
    cut_weights: "model.safetensors",
    drop_a_weight: "config.json",
    add_pickle: "pytorch_model.bin",
    add_pickle_of_the_best: "best/training_args.pt",
    change_architecture: "gpt2",
    take_results_of_another: "other",
    take_results_of_another_task: "copy",
    take_results_of_other_weights: "results.jsonl",
    take_certificate_of_another: "certificate.json",
    take_certificate_of_another_format: "certificate.json",
    claim_a_certificate: "certificate.json",
    break_the_best: "best/model.safetensors",
    take_best_of_another_task: "best",
    take_best_with_results_of_another: "best/results.jsonl",
    remove_tokenizer: "tokenizer.json",
    remove_code: "modeling_coupled_gpt.py",
    cut_results: "results.jsonl, line 1",
    empty_certificate: "certificate.json",
    list_the_task: "addition",
    describe_by_a_number: "recipe.yaml: description",
    link_elsewhere: "elsewhere.png",
}
"""What the refusal of a damaged folder names."""


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_folder_that_cannot_be_published(hub, api, folder, damage):
    damage(folder)
    with pytest.raises(ValueError, match=re.escape(DAMAGES[damage])):
        push_model(folder, "user/adder", api=api)
    assert hub.requests == []


@pytest.mark.parametrize("place", ["", "best/"])
def test_only_the_package_s_own_verifier_is_published(folder, tmp_path, place):
    make_best(folder)
    (folder / place / VERIFIER.name).write_text("print('VERIFIED')\n")
    for with_code in (False, True):
        files = model_publication(folder, "user/adder", with_code=with_code).make_files(tmp_path, None)
        assert contents(files)[place + VERIFIER.name] == VERIFIER.read_bytes()
