"""Options of `train.py` and recipes: read alone, and with a few steps of training after them."""

import json
import shutil
from pathlib import Path

import numpy as np
from faults.attempts import Finding, Outcome, attempt, attempt_in_child, check_named, words_of
from faults.documents import choose_change, damage_file
from faults.inputs import ODD, Input, Kind, choose
from faults.subjects import Subjects
from huggingface_hub import constants
from safetensors.numpy import load_file

from longhand import train
from longhand.hub_cards.console import refusing_in_one_line
from longhand.hub_cards.recipes import list_recipes, load_recipe, write_recipe
from longhand.hub_cards.training.arguments import parse_run, read_arguments

TINY = [
    *("--hidden_size", "16", "--num_hidden_layers", "1", "--num_attention_heads", "2", "--intermediate_size", "32"),
    *("--batch_size", "4", "--max_length", "3", "--validation_lengths", "3", "--validation_samples", "2"),
    *("--test_lengths", "3", "--test_samples", "2", "--max_steps", "2", "--eval_steps", "1", "--until_certified", "False"),
]
SECONDS = 60
"""A tiny run that takes longer hangs."""


def option_names() -> list[str]:
    actions = read_arguments([]).parser._option_string_actions
    return sorted({action.dest for action in actions.values()} - {"plugin"})


def make_options(generator: np.random.Generator) -> Input:
    words = [choose(generator, *list_recipes())] if generator.random() < 0.5 else []
    names = [name for name in option_names() if name not in ODD["hazards"]]
    for _ in range(generator.integers(1, 4)):
        words.append(f"--{choose(generator, *names)}")
        words += [choose(generator, *ODD["words"]) for _ in range(generator.integers(0, 3))]
    return {"words": words}


def run_options(subjects: Subjects, given: Input) -> Outcome:
    def work():
        with refusing_in_one_line(TypeError, OSError, RuntimeError, ImportError):
            parse_run([*given["words"], "--output_dir", str(subjects.scratch / "run")])

    outcome = attempt(work)
    # Recipes for a GPU are refused where there is none.
    check_named(outcome, "bf16", *words_of(*given["words"]))
    return outcome


def make_recipe(generator: np.random.Generator) -> Input:
    return {"recipe": choose(generator, *list_recipes()), **choose_change(generator)}


def run_recipe(subjects: Subjects, given: Input) -> Outcome:
    file = subjects.scratch / "recipe.yaml"
    recipe = load_recipe(given["recipe"])
    write_recipe(recipe, file)
    field = damage_file(file, given)

    def work():
        with refusing_in_one_line(TypeError, OSError, RuntimeError, ImportError):
            parse_run([str(file), "--output_dir", str(subjects.scratch / "run")])

    outcome = attempt(work)
    check_named(outcome, "recipe.yaml", field, "bf16", *words_of(*recipe, given.get("text", "")))
    return outcome


def make_training(generator: np.random.Generator) -> Input:
    """One to three options, each with a value that is odd, or legal for some option."""
    words = [choose(generator, "addition", "addition-absolute", "copy", "multiplication-1", "encoder-addition")]
    for _ in range(generator.integers(1, 4)):
        name = choose(generator, *(option_names() if generator.random() < 0.7 else list(ODD["training"])))
        value = choose(generator, *(ODD["training"].get(name, ODD["numbers"]) if generator.random() < 0.7 else ODD["words"]))
        words += [f"--{name}", str(value)]
    return {"words": words}


def run_training(subjects: Subjects, given: Input) -> Outcome:
    """A tiny run with odd options is refused in one line before it starts, or ends with a folder that holds numbers."""
    folder = subjects.scratch / "trained"
    shutil.rmtree(folder, ignore_errors=True)
    recipe, *words = given["words"]

    def work():
        constants.HF_HUB_OFFLINE = True
        train.main([recipe, *TINY, *words, "--output_dir", str(folder)])

    outcome = attempt_in_child(work, SECONDS)
    # What a recipe says may not fit another task or family.
    own = load_recipe(recipe) if recipe in list_recipes() else ()
    check_named(outcome, "bf16", "loss", "certified", "Hub", *words_of(*given["words"], *own))
    if outcome.refusal is None and "--help" not in words:
        check_trained(folder)
    return outcome


def check_trained(folder: Path) -> None:
    """Raise Finding unless weights and results are whole and finite."""
    for name in ("model.safetensors", "results.jsonl", "README.md"):
        if not (folder / name).is_file():
            raise Finding(f"a run that ended well lacks {name}")
    for file in folder.rglob("model.safetensors"):
        if not all(np.isfinite(weights).all() for weights in load_file(file).values()):
            raise Finding("a run that ended well has weights that are not finite")
    for line in (folder / "results.jsonl").read_text().splitlines():
        if not all(np.isfinite(value) for value in json.loads(line).values() if isinstance(value, float)):
            raise Finding("a run that ended well has results that are not finite")


KINDS = {
    "options": Kind(make_options, run_options, 4, "words"),
    "recipe": Kind(make_recipe, run_recipe, 3),
    "training": Kind(make_training, run_training, 1, "words"),
}
