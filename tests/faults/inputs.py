"""Damaged files, questions and arguments, and what must become of them: the right answer, or a refusal in one line."""

import json
import shutil
from pathlib import Path
from typing import Any

import yaml
from faults.attempts import Outcome, attempt

from longhand import eval as evaluation
from longhand.hub_cards.checkpoints.load import read_checkpoint
from longhand.hub_cards.commands import refusing_in_one_line
from longhand.hub_cards.publishing.cards import write_card
from longhand.hub_cards.recipes import load_recipe, write_recipe
from longhand.hub_cards.training.arguments import parse_run

QUESTION = "1234567890+9753108642"
SUM = "10987676532"


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


def try_side_file(case: dict, certified: Path, folder: Path) -> None:
    """Damage a file in a copy of a certified folder: the answer is right or a word is said, and no card says certified."""
    shutil.copytree(certified, folder)
    damage(folder / case["file"], case)
    # A file may be refused for what another one says, but then that one is named.
    named = [*(file.name for file in certified.iterdir()), ".safetensors", "--task", "plugin", "generation_config"]
    named += [*case.get("at", ()), case.get("value", "damaged")]
    asked = attempt(lambda: evaluation.main([str(folder), "--ask", QUESTION]), *named)
    right = asked.printed.strip() == SUM
    assert right or asked.refusal or asked.words
    written = attempt(lambda: write_card(read_checkpoint(folder)), *named)
    assert right or written.refusal or "**Certified.**" not in (folder / "README.md").read_text()


def try_question(task: Any, question: str) -> Outcome:
    """Ask a task for a prompt; a refusal names the question."""
    return attempt(lambda: task.prompt(question), question, repr("\u2003"))


def parse(words: list[str]) -> None:
    with refusing_in_one_line(TypeError, OSError, RuntimeError, ImportError):
        parse_run([*words, "--output_dir", "run"])


def try_options(words: list[str]) -> None:
    """Read the arguments of a training; a refusal names one of them."""
    attempt(lambda: parse(words), "bf16", *words)


def try_recipe(case: dict, file: Path) -> None:
    """Read a damaged recipe; a refusal names the file or an argument."""
    recipe = load_recipe(case["recipe"])
    write_recipe(recipe, file)
    damage(file, case)
    attempt(lambda: parse([str(file)]), file.name, "bf16", *recipe)
