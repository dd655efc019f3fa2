"""Folders that are damaged or private: what the commands say of them, and that nothing of them is published."""

import json
import re
import shutil
from pathlib import Path

import pytest
from publishing_subjects import change_a_weight, held, make_best, measure, model_files, row, write_certificate
from refusals import refusal
from safetensors.torch import load_file, save_file

from longhand import eval as evaluation
from longhand.data.proofs import hash_weights
from longhand.hub_cards import push
from longhand.hub_cards.checkpoints.certificate_file import VERIFIER
from longhand.hub_cards.checkpoints.load import read_checkpoint
from longhand.hub_cards.publishing.publications import model_publication, push_model
from longhand.hub_cards.result_rows import write_results
from longhand.modeling import CoupledGPTForCausalLM


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "recipe.yaml", "model.safetensors", "results.jsonl"])
def test_a_damaged_file_is_named_in_one_line(folder, capsys, name):
    for damage in (b"[]", b"\xff\xfe\x00", b'{"a": '):
        (folder / name).write_bytes(damage)
        message = refusal(capsys, push.main, "card", folder)
        assert name in message or (name == "recipe.yaml" and "task" in message), (damage, message)
        if name != "results.jsonl":
            refusal(capsys, evaluation.main, folder, "--ask", "12+34")


@pytest.mark.parametrize("private", ["hf_abcdefghijklmnopqrstuvwxyz", "a token of mine", "{folder}/model", "{home}"])
@pytest.mark.parametrize("name", ["recipe.yaml", "config.json"])
def test_a_file_with_a_token_or_a_path_of_this_machine_is_not_pushed(folder, monkeypatch, name, private):
    monkeypatch.setattr("longhand.hub_cards.publishing.publications.get_token", lambda: "a token of mine")
    private = private.format(folder=folder, home=Path.home())
    text = (folder / name).read_text()
    made_in = (
        f"made_in: {private}\n{text}" if name == "recipe.yaml" else text.replace("{", f'{{\n"made_in": "{private}",', 1)
    )
    (folder / name).write_text(made_in)
    with pytest.raises(ValueError, match=rf"{name}, line \d+"):
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


def drop_a_weight(folder):
    weights = load_file(folder / "model.safetensors")
    weights.popitem()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def claim_a_certificate(folder):
    write_certificate(folder, hash_weights(CoupledGPTForCausalLM.from_pretrained(folder)))


def name_code_by_text(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"auto_map": "modeling_coupled_gpt.py"}))


def write_a_length_as_text(folder):
    with (folder / "recipe.yaml").open("a") as recipe:
        recipe.write("min_length: '1'\nmax_length: 5\n")


def take_certificate_of_another_format(folder):
    own = hash_weights(CoupledGPTForCausalLM.from_pretrained(folder))
    write_certificate(folder, own, order="plain")


def take_results_of_another_best(folder):
    make_best(folder)
    measure(folder, {5: 1.0}, {5: 1.0})
    change_a_weight(folder / "best")


def break_the_best(folder):
    make_best(folder)
    (folder / "best" / "model.safetensors").write_text("x")


DAMAGES = {
    "no configuration": (lambda folder: (folder / "config.json").unlink(), "config.json"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "safetensors"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json"),
    "no code": (lambda folder: (folder / "modeling_coupled_gpt.py").unlink(), "modeling_coupled_gpt.py"),
    "code named by a text": (name_code_by_text, "auto_map"),
    "a length as text": (write_a_length_as_text, "min_length"),
    "fewer weights": (drop_a_weight, "missing_keys"),
    "another architecture": (lambda folder: (folder / "config.json").write_text('{"model_type": "gpt2"}'), "gpt2"),
    "results of other weights": (change_a_weight, "results.jsonl"),
    "results of no weights": (lambda folder: write_results([row(5, 0.5)], folder / "results.jsonl"), "results.jsonl"),
    "results of another best": (take_results_of_another_best, "results.jsonl"),
    "certificate of another": (lambda folder: write_certificate(folder, "0" * 64), "certificate.json"),
    "certificate of another format": (take_certificate_of_another_format, "certificate.json"),
    "a certificate that does not hold": (claim_a_certificate, "certificate.json"),
    "an empty certificate": (lambda folder: (folder / "certificate.json").write_text("[]"), "certificate.json"),
    "a damaged best": (break_the_best, "best"),
    "no task": (lambda folder: (folder / "recipe.yaml").write_text("task: [addition]"), "addition"),
}
"""What is done to a folder, and what the refusal names."""


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_folder_that_cannot_be_published(hub, api, folder, damage):
    make, named = DAMAGES[damage]
    make(folder)
    with pytest.raises(ValueError, match=re.escape(named)):
        push_model(folder, "user/adder", api=api)
    assert hub.requests == []


def test_only_the_package_s_own_verifier_is_published(folder):
    shutil.copy(VERIFIER, folder)
    (folder / VERIFIER.name).write_text("print('VERIFIED')\n")
    for with_code in (False, True):
        files = model_publication(read_checkpoint(folder), "user/adder", with_code=with_code).make_files(folder, None)
        assert files[VERIFIER.name].read_bytes() == VERIFIER.read_bytes()


def test_links_out_of_the_folder_and_private_arguments_are_not_pushed(folder, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (folder / "picture.png").symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match=r"picture\.png"):
        model_files(folder, "user/adder")
    (folder / "picture.png").unlink()
    for private in ("run_name", "tracker_token"):
        text = (folder / "recipe.yaml").read_text()
        (folder / "recipe.yaml").write_text(f"{private}: secret\n{text}")
        with pytest.raises(ValueError, match=private):
            model_files(folder, "user/adder")
        (folder / "recipe.yaml").write_text(text)


def test_texts_of_a_recipe_are_one_line_of_a_card(folder):
    text = re.sub("description: .*", "", (folder / "recipe.yaml").read_text())
    (folder / "recipe.yaml").write_text(f'description: "Nice\\n\\n# Heading\\n```\\n<script>"\n{text}')
    card = model_files(folder, "user/adder")["README.md"].decode()
    assert "# Heading" in card and "\n# Heading" not in card and "<script>" not in card
