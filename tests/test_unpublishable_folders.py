"""Folders that are not pushed, and why."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from push_subjects import ROW, built, contents, folder, make_best, write_certificate
from safetensors.torch import load_file, save_file

from longhand.data.certificates import hash_weights
from longhand.hub_cards.checkpoints.certificate_file import VERIFIER
from longhand.hub_cards.evaluation.results import write_results
from longhand.hub_cards.publishing.publications import model_publication, push_model
from longhand.modeling import CoupledGPTForCausalLM

assert built and folder


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
    write_results([{**ROW, "model": "other"}], folder / "results.jsonl")


def take_results_of_another_task(folder):
    write_results([{**ROW, "task": "copy"}], folder / "results.jsonl")


def take_results_of_other_weights(folder):
    write_results([{**ROW, "weights": "0" * 64}], folder / "results.jsonl")


def take_certificate_of_another(folder):
    write_certificate(folder, "0" * 64)


def take_certificate_of_another_format(folder):
    own = hash_weights(CoupledGPTForCausalLM.from_pretrained(folder))
    write_certificate(folder, own, order="plain")


def claim_a_certificate(folder):
    (folder / "trainer_state.json").unlink()  # No certificate covers it.
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
    write_results([{**ROW, "model": "other"}], folder / "best" / "results.jsonl")


def remove_tokenizer(folder):
    (folder / "tokenizer.json").unlink()


def remove_code(folder):
    (folder / "modeling_coupled_gpt.py").unlink()


def cut_results(folder):
    (folder / "results.jsonl").write_text(json.dumps(ROW)[:50])


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
    remove_config: "is not a checkpoint: it holds no config.json",
    remove_weights: "is not a checkpoint: it holds no .safetensors",
    cut_weights: "truncated or damaged",
    drop_a_weight: "is damaged: its weights files lack what config.json names",
    add_pickle: r"holds pickles \(pytorch_model.bin\)",
    add_pickle_of_the_best: r"holds pickles \(best/training_args.pt\)",
    change_architecture: "it is a 'gpt2' model",
    take_results_of_another: r"is of another checkpoint \(other, not adder\)",
    take_results_of_another_task: r"is of another task \(copy\)",
    take_results_of_other_weights: "results.jsonl is of another checkpoint",
    take_certificate_of_another: "certificate.json is not of this model",
    take_certificate_of_another_format: "certificate.json is of another task or format",
    claim_a_certificate: "certificate.json does not hold .no certificate: the model has no window",
    break_the_best: "best/model.safetensors is truncated",
    take_best_of_another_task: "best cannot be loaded: config.json is of another task",
    take_best_with_results_of_another: r"best/results.jsonl is of another checkpoint \(other, not adder\)",
    remove_tokenizer: "is incomplete: it lacks tokenizer.json",
    remove_code: "is incomplete: it lacks modeling_coupled_gpt.py",
    cut_results: "results.jsonl, line 1: a row must be one JSON object",
    empty_certificate: r"certificate.json must be a JSON object, got '\[\]'",
    list_the_task: r"task of .*: got \['addition'\], choose one of",
    describe_by_a_number: "recipe.yaml: description must be text, got 3",
    link_elsewhere: "plot.png in .* is a link to .*elsewhere.png, outside the folder",
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_folder_that_cannot_be_published(hub, api, folder, damage):
    damage(folder)
    with pytest.raises(ValueError, match=DAMAGES[damage]):
        push_model(folder, "user/adder", api=api)
    assert hub.requests == []


@pytest.mark.parametrize("place", ["", "best/"])
def test_only_the_package_s_own_verifier_is_published(built, tmp_path, place):
    folder = Path(shutil.copytree(built, tmp_path / "adder"))
    make_best(folder)
    (folder / place / VERIFIER.name).write_text("print('VERIFIED')\n")
    for with_code in (False, True):
        files = model_publication(folder, "user/adder", with_code=with_code).make_files(tmp_path, [])
        assert contents(files)[place + VERIFIER.name] == VERIFIER.read_bytes()
