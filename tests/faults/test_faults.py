"""Inputs that once ended in a traceback, a hang, a message without a name or a wrong answer, by kind in `cases.json`.

Each is answered rightly now, with a warning, or refused in one line.
"""

import json
import shutil
from functools import cache
from itertools import islice
from pathlib import Path

import pytest
from faults.attempts import attempt
from faults.inputs import try_options, try_question, try_recipe, try_side_file
from faults.prompts import try_prompt
from huggingface_hub import constants

from longhand import eval as evaluation
from longhand import train
from longhand.data import TASKS, load_task_dataset
from longhand.hub_cards.checkpoints.load import load_checkpoint
from longhand.hub_cards.recipes import load_recipe
from longhand.hub_cards.research.theories.constructions import run as construct
from longhand.hub_cards.result_rows import last_rows, read_results, write_results

CASES = json.loads(Path(__file__).with_name("cases.json").read_text(encoding="utf-8"))
SIZES = "--hidden_size 16 --num_hidden_layers 1 --num_attention_heads 2 --intermediate_size 32 --batch_size 4 --max_length 3"
STEPS = "--validation_lengths 3 --validation_samples 2 --test_lengths 3 --test_samples 2 --max_steps 2 --eval_steps 1"
TINY = [*SIZES.split(), *STEPS.split(), "--until_certified", "False"]
NAMES = ("bf16", "loss", "certified", "Hub")
"""What a refusal of a training may name instead of a word of the command."""


def cases(*kinds: str):
    own = [case for case in CASES if case["kind"] in kinds]
    return pytest.mark.parametrize("case", own, ids=lambda case: case["was"])


@pytest.fixture(scope="module")
def certified(main_job, tmp_path_factory) -> Path:
    """The main job's folder without its card and its best checkpoint."""
    folder = tmp_path_factory.mktemp("certified") / "addition"
    shutil.copytree(main_job, folder, ignore=shutil.ignore_patterns("best", "*.png", "README.md"))
    write_results(last_rows(read_results(folder / "results.jsonl")), folder / "results.jsonl")
    return folder


@cases("side file")
def test_a_damaged_file_of_a_certified_folder(case, certified, tmp_path):
    try_side_file(case, certified, tmp_path / "addition")


@pytest.fixture(scope="module")
def checkpoint_of(main_job, small_encoder, tmp_path_factory):
    """Loads what is asked by a prompt: the certified adder, an encoder that has learned nothing, or a construction."""
    constructed = tmp_path_factory.mktemp("constructed")

    @cache
    def load(name):
        folder = {"certified": main_job, "reader": small_encoder}.get(name, constructed / name)
        if not folder.exists():
            construct(name, 30, folder)
        return load_checkpoint(str(folder))

    return load


@cases("prompt")
def test_a_prompt(case, checkpoint_of):
    try_prompt(checkpoint_of(case["model"]), case)


@cases("question")
def test_a_question(case):
    assert try_question(TASKS[case["task"]](), case["question"]).refusal


@cases("evaluation")
def test_options_of_an_evaluation(case, certified, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [word.replace("SCRATCH", str(tmp_path)) for word in case["words"]]
    more = [] if "--num_samples" in words else ["--num_samples", "2"]
    outcome = attempt(lambda: evaluation.main([str(certified), *words, *more]), *words, "lengths")
    if outcome.refusal is None:
        assert all(row["exact_match"] == 1 for row in read_results(next(tmp_path.rglob("results.jsonl"))))


@cases("options")
def test_options_of_a_training(case):
    try_options(case["words"])


@cases("recipe")
def test_a_damaged_recipe(case, tmp_path):
    try_recipe(case, tmp_path / "recipe.yaml")


@cases("training")
def test_a_training(case, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    recipe, *words = case["words"]
    folder = tmp_path / "run"
    named = (*NAMES, *words, *load_recipe(recipe))
    outcome = attempt(lambda: train.main([recipe, *TINY, *words, "--output_dir", str(folder)]), *named)
    assert outcome.refusal or all((folder / name).is_file() for name in ("model.safetensors", "results.jsonl", "README.md"))


@cases("dataset")
def test_arguments_of_a_dataset(case):
    given = {name: value for name, value in case.items() if name not in ("kind", "was")}
    attempt(lambda: list(islice(load_task_dataset(**given, split="train", streaming=True), 20)), *given, "min_length")
