"""Column tasks for encoders that settle: what must be covered, a trained and certified model, and the verifier."""

import json
import shutil

import numpy as np
import pytest
import torch
from certificate_subjects import change_json
from neighbourhood_search import as_set, rows_of
from safetensors.torch import load_file, save_file
from test_verify_files import forge, refused_by_both, verified_alone
from transformers import AutoModelForTokenClassification, AutoTokenizer

from longhand import train
from longhand.data import make_generator
from longhand.data.proofs import verify_certificate
from longhand.data.proofs.verify_certificate import find_task, list_neighbourhoods
from longhand.data.tasks.registry import build_task
from longhand.hub_cards.checkpoints.load import load_checkpoint
from longhand.modeling.settling import LabelCases, cases_at, draw_states, find_labels, pass_targets
from longhand.modeling.transducer import table_of

TERNARY = build_task("settling_base_addition", radix=3)
EVERY = pytest.mark.parametrize(
    "task",
    [
        TERNARY,
        *(build_task(f"settling_{name}") for name in ("plus_one", "comparison", "remainder", "gray_code", "bitwise")),
        build_task("settling_constant_multiplication"),
    ],
    ids=lambda task: task.name,
)


@EVERY
def test_the_cases_that_passes_meet_are_those_of_the_list_and_the_verifier_lists_the_same(task):
    covered, generator, met = task.covering(None, 1), make_generator("columns", task.name), set()
    listed = as_set(rows_of(task, covered.cases, covered.right))
    unknown = len(task.labels) - 1
    for width in (1, 2, 3, 4, 6):
        examples = task.write(task.draw_operands(generator, np.full((100, task.operands), width)))
        tokens, labels = (torch.from_numpy(part).long() for part in (examples.tokens, examples.labels))
        answers = find_labels(task.transducer, tokens)
        for _ in range(4):
            states = draw_states(labels, answers, unknown)
            targets = pass_targets("columns", tokens, states, labels, task.transducer).flatten()[answers.places]
            cases = cases_at(tokens.flatten(), states.flatten(), answers.places, answers.keys, answers.relations)
            kept = (cases.states == unknown) | (targets != unknown)
            met |= as_set(rows_of(task, LabelCases(*(part[kept] for part in cases)), targets[kept]))
    assert met <= listed and len(met) > 0.4 * len(listed)
    rows = list_neighbourhoods(find_task(task.describe(), table_of(task.transducer), encoder=True))
    assert len(rows) == covered.count and as_set(rows) == listed


@pytest.fixture(scope="module")
def ternary(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "ternary"
    small = ["--hidden_size", "32", "--num_attention_heads", "4", "--intermediate_size", "64", "--batch_size", "128"]
    arguments = ["--task", TERNARY.name, "--radix", "3", "--test_lengths", "5", "--output_dir", str(folder), *small]
    train.main(["columns-encoder", *arguments])
    return folder


@pytest.mark.release
def test_a_trained_encoder_is_certified_and_adds_at_any_length(ternary, tmp_path):
    assert json.loads((ternary / "certificate.json").read_text())["certified"]
    model = AutoModelForTokenClassification.from_pretrained(ternary).eval()
    tokenizer, generator = AutoTokenizer.from_pretrained(ternary), np.random.default_rng(0)
    for width in (1, 3, 50, 400):
        numbers = generator.integers(3, size=(5, 2, width)).astype(str)
        pairs = [["".join(number) for number in pair] for pair in numbers]
        inputs = tokenizer([f"{'+'.join(pair)}={'>' * (width + 1)}" for pair in pairs], return_tensors="pt")
        labels = model(**inputs).logits.argmax(-1)[:, -width - 1 :].flip(1).tolist()
        sums = [int("".join(map(str, row)), 3) for row in labels]
        assert sums == [sum(int(number, 3) for number in pair) for pair in pairs]
    verified_alone(ternary)


@pytest.mark.thorough
def test_a_checkpoint_holds_its_task_as_a_table(ternary):
    checkpoint = load_checkpoint(str(ternary))
    assert checkpoint.task == TERNARY
    assert checkpoint.task.family.answer(checkpoint.task, checkpoint.model, checkpoint.tokenizer, "212+1") == "220"
    with pytest.raises(ValueError):
        checkpoint.model(**checkpoint.tokenizer("21+01=>>", return_tensors="pt"))


@pytest.mark.thorough
def test_broken_weights_and_another_table_are_refused(ternary, tmp_path):
    folder = shutil.copytree(ternary, tmp_path / "broken", ignore=shutil.ignore_patterns("best"))
    weights = load_file(folder / "model.safetensors")
    weights["classifier.weight"] = weights["classifier.weight"].flip(0).contiguous()
    save_file(weights, folder / "model.safetensors")
    forge(folder)
    refused_by_both(folder)
    config = json.loads((ternary / "config.json").read_text())
    config["transducer"]["passes"][0]["write"][0][0] = 1
    shutil.copy(ternary / "model.safetensors", folder)
    change_json(folder / "config.json", **config)
    change_json(folder / "certificate.json", transducer=config["transducer"])
    forge(folder)
    with pytest.raises(verify_certificate.Refused):
        verify_certificate.verify(folder)


def test_tasks_of_several_passes_are_refused_before_training(tmp_path):
    with pytest.raises(SystemExit) as stop:
        train.main(["columns-encoder", "--task", "settling_larger_number", "--output_dir", str(tmp_path / "run")])
    assert stop.value.code == 2 and not (tmp_path / "run").exists()
