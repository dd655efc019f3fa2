"""Inputs that once ended in a traceback, a hang, a message without a name or a wrong answer, by kind in `cases.json`.

Each is answered rightly now, with a warning, or refused in one line.
"""

import json
import shutil
from functools import cache
from itertools import islice
from pathlib import Path

import pytest
import yaml
from faults.attempts import attempt
from faults.prompts import try_prompt
from huggingface_hub import constants

from longhand import eval as evaluation
from longhand import train
from longhand.data import TASKS, load_task_dataset
from longhand.hub_cards.checkpoints.load import load_checkpoint
from longhand.hub_cards.commands import refusing_in_one_line
from longhand.hub_cards.publishing.cards import write_card
from longhand.hub_cards.recipes import load_recipe, write_recipe
from longhand.hub_cards.research.theories.constructions import run as construct
from longhand.hub_cards.result_rows import last_rows, read_results, write_results
from longhand.hub_cards.training.arguments import parse_run

CASES = json.loads(Path(__file__).with_name("cases.json").read_text(encoding="utf-8"))
QUESTION, SUM = "1234567890+9753108642", "10987676532"
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


def damage(file: Path, case: dict) -> None:
    """Change a file: replace it, cut it off, overwrite bytes, or change or delete a value `at` a place of the document."""
    content = file.read_bytes()
    if "what" in case:
        file.unlink()
        file.symlink_to("/proc/self/mem")
    elif "text" in case:
        file.write_text(case["text"] * case.get("times", 1))
    elif "cut" in case:
        file.write_bytes(content[: case["cut"]])
    elif "bytes" in case:
        changed, place = bytes.fromhex(case["bytes"]), case["place"]
        file.write_bytes(content[:place] + changed + content[place + len(changed) :])
    else:
        document = yaml.safe_load(content) if file.suffix == ".yaml" else json.loads(content)
        *parents, last = case["at"]
        parent = document
        for key in parents:
            parent = parent[key]
        if "value" in case:
            parent[last] = case["value"]
        else:
            del parent[last]
        file.write_text(yaml.safe_dump(document) if file.suffix == ".yaml" else json.dumps(document))


@cases("side file")
def test_a_damaged_file_of_a_certified_folder(case, certified, tmp_path):
    folder = shutil.copytree(certified, tmp_path / "addition")
    damage(folder / case["file"], case)
    # A file may be refused for what another one says, but then that one is named.
    named = [*(file.name for file in certified.iterdir()), ".safetensors", "--task", "plugin", "generation_config"]
    named += [*case.get("at", ()), case.get("value", "damaged")]
    asked = attempt(lambda: evaluation.main([str(folder), "--ask", QUESTION]), *named)
    right = asked.printed.strip() == SUM
    assert right or asked.refusal or asked.words
    written = attempt(lambda: write_card(folder), *named)
    assert right or written.refusal or "**Certified.**" not in (folder / "README.md").read_text()


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
    assert attempt(lambda: TASKS[case["task"]]().prompt(case["question"]), case["question"], repr("\u2003")).refusal


@cases("evaluation")
def test_options_of_an_evaluation(case, certified, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [word.replace("SCRATCH", str(tmp_path)) for word in case["words"]]
    more = [] if "--num_samples" in words else ["--num_samples", "2"]
    outcome = attempt(lambda: evaluation.main([str(certified), *words, *more]), *words, "lengths")
    if outcome.refusal is None:
        assert all(row["exact_match"] == 1 for row in read_results(next(tmp_path.rglob("results.jsonl"))))


def parse(words) -> None:
    with refusing_in_one_line(TypeError, OSError, RuntimeError, ImportError):
        parse_run([*words, "--output_dir", "run"])


@cases("options")
def test_options_of_a_training(case):
    attempt(lambda: parse(case["words"]), "bf16", *case["words"])


@cases("recipe")
def test_a_damaged_recipe(case, tmp_path):
    recipe, file = load_recipe(case["recipe"]), tmp_path / "recipe.yaml"
    write_recipe(recipe, file)
    damage(file, case)
    attempt(lambda: parse([str(file)]), "recipe.yaml", "bf16", *recipe)


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
