"""Files of a certified folder, damaged as a disk, a library or an editor may damage them."""

import shutil
from pathlib import Path

import numpy as np
from faults.attempts import Finding, Outcome, attempt, check_answer, check_named, words_of
from faults.documents import choose_change, damage_file, unblocking
from faults.inputs import ODD, Input, Kind, choose
from faults.subjects import Subjects

from longhand import eval as evaluation
from longhand.hub_cards.evaluation.results import last_rows, read_results, write_results
from longhand.hub_cards.publishing.cards import write_card

QUESTION, SUM = "1234567890+9753108642", "10987676532"
CERTIFIED = "**Certified.**"
"""What only the card of a certified model says."""


def make_side_file(generator: np.random.Generator) -> Input:
    given = {"file": choose(generator, *ODD["side_files"]), **choose_change(generator, "add", "bytes", "place")}
    if given["change"] == "add":
        given["file"] = choose(generator, "config.json", "generation_config.json")
    return given


def copy_certified(subjects: Subjects) -> Path:
    """A copy of the certified folder without its card and its best checkpoint, to be damaged."""
    folder = subjects.scratch / "addition"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(subjects.certified, folder, ignore=shutil.ignore_patterns("best", "*.png", "README.md"))
    write_results(last_rows(read_results(folder / "results.jsonl")), folder / "results.jsonl")
    return folder


def run_side_file(subjects: Subjects, given: Input) -> Outcome:
    """The certified adder must answer, warn, or refuse by a name; its card must not certify what answers wrongly."""
    folder = copy_certified(subjects)
    file = folder / given["file"]
    field = damage_file(file, given)
    with unblocking(file):
        asked = attempt(lambda: evaluation.main([str(folder), "--ask", QUESTION]))
        check_answer(asked, asked.printed.strip(), SUM, f", {file.name} {given.get('name', '')}".rstrip())
        # A file may be refused for what another one says, but then that one is named.
        named = (
            *ODD["side_files"],
            ".safetensors",
            "--task",
            "plugin",
            "generation_config",
            *words_of(field, given.get("value", "")),
        )
        check_named(asked, *named)
        wrong = asked.refusal is not None or asked.printed.strip() != SUM
        written = attempt(lambda: write_card(folder))
        check_named(written, *named)
    if written.refusal is None and wrong and CERTIFIED in (folder / "README.md").read_text():
        raise Finding("a card certifies what answers wrongly")
    return asked


KINDS = {"side file": Kind(make_side_file, run_side_file, 6)}
