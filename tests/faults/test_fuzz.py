"""A short fuzzer: random questions, damaged files and arguments, the same ones on every run.

What it finds becomes a case of `cases.json`.
"""

import json
import random

import pytest
from faults import truth
from faults.inputs import try_options, try_question, try_recipe, try_side_file
from faults.test_faults import certified

from longhand.data import TASKS
from longhand.hub_cards.recipes import list_recipes, load_recipe

assert certified

SEED = 20261124
QUESTIONS = 150
"""Questions to every task."""
FILES = 30
"""Damaged copies of a certified folder; each is loaded twice."""
RECIPES = 60
COMMANDS = 120

SYMBOLS = "0123456789" * 3 + "++--**//==,?&|^_>M ab\u2003\u00a0\u0663\n\t$"
"""What a question is made of: mostly digits."""

VALUES = [None, True, -1, 0, 1, 7, 2.5, 10**30, float("inf"), float("nan"), "", "text", "<script>", [], [[]], {}, {"a": 1}]
"""What takes the place of a value in a JSON or YAML document."""

WORDS = ["None", "unset", "-1", "0", "1", "3", "2.5", "1e400", "nan", "True", "nonsense", "", "[1, 2]", "{}", "99999999999"]
"""What an argument of a command gets."""


def random_question(generator: random.Random, example: str) -> str:
    """A random text, or a legal question with one or two characters changed, left out or put in."""
    if generator.random() < 0.3:
        return "".join(generator.choices(SYMBOLS, k=generator.randint(0, 12)))
    characters = list(example)
    for _ in range(generator.randint(1, 2)):
        place = generator.randint(0, len(characters))
        characters[place : place + generator.randint(0, 1)] = generator.choices(SYMBOLS, k=generator.randint(0, 1))
    return "".join(characters)


@pytest.mark.release
@pytest.mark.parametrize("name", TASKS)
def test_random_questions_are_legal_or_refused_by_name(name):
    generator, task = random.Random(f"{SEED} {name}"), TASKS[name]()
    for _ in range(QUESTIONS):
        question = random_question(generator, task.example_question)
        outcome = try_question(task, question)
        if not truth.is_legal(question=question, **task.describe()):
            assert outcome.refusal, question


def place_in(document: object, generator: random.Random) -> list[object]:
    """Keys that lead to a random value of a document."""
    keys: list[object] = []
    while isinstance(document, dict | list) and document and (not keys or generator.random() < 0.7):
        key = generator.choice(list(document) if isinstance(document, dict) else range(len(document)))
        keys.append(key)
        document = document[key]
    return keys


def random_damage(generator: random.Random, content: bytes, document: dict | None) -> dict:
    """A damage of a file as `damage` takes it."""
    kind = generator.choice(["bytes", "cut", "value", "delete"] if isinstance(document, dict) else ["bytes", "cut"])
    if kind == "bytes":
        return {"bytes": generator.randbytes(generator.randint(1, 4)).hex(), "place": generator.randrange(len(content))}
    if kind == "cut":
        return {"cut": generator.randrange(len(content))}
    keys = place_in(document, generator)
    return {"at": keys} if kind == "delete" else {"at": keys, "value": generator.choice(VALUES)}


@pytest.mark.release
@pytest.mark.parametrize("number", range(FILES))
def test_a_folder_with_a_randomly_damaged_file(number, certified, tmp_path):
    generator = random.Random(f"{SEED} file {number}")
    file = generator.choice(
        sorted(path for path in certified.iterdir() if path.suffix in (".json", ".yaml", ".safetensors"))
    )
    content = file.read_bytes()
    document = json.loads(content) if file.suffix == ".json" else None
    try_side_file({"file": file.name, **random_damage(generator, content, document)}, certified, tmp_path / "addition")


@pytest.mark.release
def test_randomly_damaged_recipes(tmp_path):
    generator, recipes = random.Random(f"{SEED} recipes"), list(list_recipes())
    for number in range(RECIPES):
        name = generator.choice(recipes)
        case = random_damage(generator, b" " * 300, load_recipe(name))
        try_recipe({"recipe": name, **case}, tmp_path / f"{number}.yaml")


@pytest.mark.release
def test_random_arguments_of_a_training():
    generator, recipes = random.Random(f"{SEED} arguments"), list(list_recipes())
    for _ in range(COMMANDS):
        name = generator.choice(recipes)
        arguments = generator.sample(sorted(load_recipe(name)), generator.randint(1, 2))
        words = [word for argument in arguments for word in (f"--{argument}", generator.choice(WORDS))]
        try_options([name, *words])
