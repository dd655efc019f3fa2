"""Options of `eval.py`, and of the commands that write cards, push and run studies. Nothing is pushed."""

import contextlib
import re
import shutil
from unittest import mock

import numpy as np
from faults.attempts import Finding, Outcome, attempt, check_answer, check_named, words_of
from faults.inputs import ODD, Input, Kind, choose, draw_options
from faults.subjects import Subjects

from longhand import eval as evaluation
from longhand.hub_cards import push
from longhand.hub_cards.evaluation.results import read_results
from longhand.hub_cards.research import __main__ as studies
from longhand.hub_cards.research.constructions import study as constructions


def make_evaluation(generator: np.random.Generator) -> Input:
    more = {**ODD["evaluation"], "lengths_b": ODD["lengths"]}
    return {"words": ["--lengths", choose(generator, *ODD["lengths"]), *draw_options(generator, more, 2)]}


def run_evaluation(subjects: Subjects, given: Input) -> Outcome:
    """The certified adder is right at every length that is evaluated, and these are the lengths asked for."""
    out = subjects.scratch / "out"
    shutil.rmtree(out, ignore_errors=True)
    words = [word.replace("SCRATCH", str(subjects.scratch)) for word in given["words"]]
    if "--num_samples" not in words:
        words += ["--num_samples", "2"]
    if "--output_dir" not in words:
        words += ["--output_dir", str(out)]
    with contextlib.chdir(subjects.scratch):
        outcome = attempt(lambda: evaluation.main([str(subjects.certified), *words]))
    check_named(outcome, *words_of(*words), "lengths")
    if outcome.refusal is None and "--ask" in words:
        check_answer(outcome, outcome.printed.strip(), "3")
    elif outcome.refusal is None and out.is_dir():
        rows = read_results(out / "results.jsonl")
        if any(row["exact_match"] != 1 for row in rows):
            raise Finding("a certified model is measured as wrong")
        text = given["words"][1]
        listed = re.fullmatch(r"[0-9,]+", text) and "--lengths_b" not in words
        if listed and [row["length"] for row in rows] != [int(part) for part in text.split(",")]:
            raise Finding("other lengths than asked for")
    return outcome


def make_command(generator: np.random.Generator) -> Input:
    command = choose(generator, *ODD["commands"])
    options = ODD["commands"][command]
    words = [choose(generator, *values) for values in options["first"]]
    words += draw_options(generator, options["options"], 3)
    if generator.random() < 0.2 and words:
        del words[int(generator.integers(len(words)))]
    return {"command": command, "words": words}


def run_command(subjects: Subjects, given: Input) -> Outcome:
    """A command does what it says or refuses in one line; without `--yes`, `push` reaches for no network."""
    main = {"push": push.main, "studies": studies.main}[given["command"].partition(" ")[0]]
    folder = subjects.scratch / "addition"
    if not folder.exists():
        shutil.copytree(subjects.certified, folder)
    shutil.rmtree(subjects.scratch / "made", ignore_errors=True)
    places = {"CERTIFIED": folder, "SCRATCH": subjects.scratch}
    words = [*given["command"].split()[1:], *given["words"]]
    for name, place in places.items():
        words = [word.replace(name, str(place)) for word in words]
    if given["command"] == "push dataset" and "--num_samples" not in words:
        # 100,000 boards, the default, take longer than an attempt may.
        words += ["--num_samples", "300"]
    results = mock.patch.object(constructions, "RESULTS", subjects.scratch / "long.jsonl")
    with results, contextlib.chdir(subjects.scratch):
        outcome = attempt(lambda: main(words))
    # Arguments that are missing are named by argparse; what is empty has no name.
    if "" not in words:
        check_named(outcome, *words_of(*words), "required", "expected", "study '' is unknown", "null byte")
    return outcome


KINDS = {
    "evaluation": Kind(make_evaluation, run_evaluation, 1, "words"),
    "command": Kind(make_command, run_command, 3, "words"),
}
