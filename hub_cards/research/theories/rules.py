"""Rules that people check: from each function a verified model, and its table compared with another implementation.

python -m longhand.hub_cards.research rules --output_dir outputs/rules

Each rule is trained by `train.py columns --function`, verified by `verify_certificate.py`, and its table is compared on
random texts and near misses. Its row is written before the next rule begins: the same command goes on with the rules that
lack one.
"""

# Used by: flare.py. Changed freely.

import os
import random
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import torch

from longhand.data.proofs import verify_certificate
from longhand.data.tasks.column_task import ColumnTask
from longhand.data.tasks.patterns import read_pattern, text_of_pattern
from longhand.hub_cards.checkpoints.checkpoint import Checkpoint
from longhand.hub_cards.checkpoints.load import read_checkpoint
from longhand.hub_cards.checkpoints.solver import Solver
from longhand.hub_cards.options import option
from longhand.hub_cards.recipes import RECIPE_FILE, read_settings
from longhand.hub_cards.research.output import code_of, show_row, write_output
from longhand.hub_cards.research.theories import checked_rules, other_rules
from longhand.hub_cards.result_rows import RESULTS_FILE, Row, hardware, read_results, write_results

RESULTS = Path(__file__).with_suffix(".jsonl")
DIGITS = "0123456789"
CASES = 1_000_000
BATCH = 50_000
"""Texts that are compared at once."""

RIGHT_TEXTS = 1000
"""Texts that the other implementation accepts, of each of which all near misses are tried."""

ASKED = 1000
"""Texts that the model itself is asked, besides its table."""


@dataclass(frozen=True)
class Rule:
    """A rule of `checked_rules`; `rules.yaml` says what the fields mean."""

    title: str
    drawn: str
    other: str
    named: str
    alphabet: str | None = None
    length: int | None = None

    @property
    def symbols(self) -> str:
        """The symbols of its texts, digits for a number."""
        return self.alphabet or DIGITS

    def check(self, text: str) -> str:
        """Return what the other implementation says of a text, as the machine writes it."""
        value = (self.length is None or len(text) == self.length) and implementation(self.other)(text)
        return value if isinstance(value, str) else str(int(value))

    @property
    def answers_yes_or_no(self) -> bool:
        """Whether the rule says if a text is right, and not another text."""
        return isinstance(implementation(self.other)(next(draw_words(self, 1, random.Random(0)))), bool)


@cache
def implementation(name: str) -> Callable[[str], bool | str]:
    """Return a function of `other_rules` by its name, or of another module by its name there."""
    module, _, function = name.rpartition(".")
    return getattr(import_module(module or other_rules.__name__), function)


RULES = {name: Rule(**values) for name, values in read_settings(Path(__file__).with_suffix(".yaml")).items()}


def draw_words(rule: Rule, count: int, generator: random.Random) -> Iterator[str]:
    """Texts: nearly right ones, then each with one symbol changed, and with two neighbours swapped."""
    tree, alphabet = read_pattern(rule.drawn), rule.symbols
    for number in range(count):
        text = text_of_pattern(tree, generator) or alphabet[0]
        place = generator.randrange(len(text))
        if number % 3 == 1:
            text = text[:place] + generator.choice(alphabet) + text[place + 1 :]
        elif number % 3 == 2 and place:
            text = text[: place - 1] + text[place] + text[place - 1] + text[place + 1 :]
        yield text


def near_misses(text: str, alphabet: str) -> Iterator[str]:
    """All texts that differ from a text by one symbol, or by two neighbours that are swapped."""
    for place, symbol in enumerate(text):
        for letter in alphabet:
            if letter != symbol:
                yield text[:place] + letter + text[place + 1 :]
    for place, (first, second) in enumerate(pairwise(text)):
        if first != second:
            yield text[:place] + second + first + text[place + 2 :]


def table_answers(task: ColumnTask, texts: Sequence[str]) -> list[str]:
    """What the table of a task with one operand answers to texts over its alphabet, in its own symbols."""
    writes = np.array([ord(symbol) for symbol in task.transducer.passes[-1].writes], dtype=np.uint32)
    places = np.zeros(max(map(ord, task.alphabet)) + 1, dtype=np.uint8)
    places[[ord(symbol) for symbol in task.alphabet]] = np.arange(len(task.alphabet))
    answers = [""] * len(texts)
    for width in {len(text) for text in texts}:
        rows = [row for row, text in enumerate(texts) if len(text) == width]
        symbols = np.array([list(map(ord, texts[row])) for row in rows])
        # The table takes the last symbol first.
        written = task.solve(places[symbols[:, ::-1]][:, None])[-1]
        kept = writes[written[:, -1:] if task.answer == "last" else written]
        whole = np.ascontiguousarray(kept).view(f"<U{kept.shape[1]}")[:, 0]
        for row, answer in zip(rows, whole.tolist(), strict=True):
            answers[row] = answer
    return answers


@dataclass
class RuleComparison:
    """Texts that two implementations were asked.

    Attributes:
        cases: how many.
        right: those to which the other one says yes, or, if it answers with texts, "1".
        wrong: those that were answered otherwise.
        example: the first of them, with both answers; empty if there is none.
    """

    cases: int = 0
    right: int = 0
    wrong: int = 0
    example: str = ""

    def add(self, texts: Sequence[str], answers: Sequence[str], expected: Sequence[str]) -> None:
        """Count texts, what was answered, and what the other implementation says."""
        self.cases += len(texts)
        self.right += expected.count("1")
        for text, answer, right in zip(texts, answers, expected, strict=True):
            if answer != right:
                self.wrong += 1
                self.example = self.example or f"{text}: {answer}, not {right}"


def compare(rule: Rule, task: ColumnTask, cases: int) -> tuple[RuleComparison, RuleComparison, list[str]]:
    """Compare the table of a task with the other implementation of its rule.

    Args:
        cases: random texts.

    Returns:
        The comparisons on random texts, and on all near misses of `RIGHT_TEXTS` texts that are right; and the first texts.
    """
    at_random, near, right = RuleComparison(), RuleComparison(), dict[str, None]()
    first: list[str] = []
    drawn, yes_or_no = draw_words(rule, cases, random.Random(0)), rule.answers_yes_or_no
    while texts := list(islice(drawn, BATCH)):
        expected = list(map(rule.check, texts))
        at_random.add(texts, table_answers(task, texts), expected)
        accepted = [text for text, answer in zip(texts, expected, strict=True) if answer == "1" or not yes_or_no]
        right |= dict.fromkeys(accepted[: RIGHT_TEXTS - len(right)])
        first = first or texts[:ASKED]
    missed = (text for accepted_text in right for text in near_misses(accepted_text, rule.symbols))
    while texts := list(islice(missed, BATCH)):
        near.add(texts, table_answers(task, texts), list(map(rule.check, texts)))
    return at_random, near, first


def train_command(function: str, name: str, folder: Path, alphabet: str | None, *more: str) -> list[str]:
    """The arguments of `train.py` that make a model of a function.

    Args:
        function: FILE.py:NAME.
        name: of its task.
        alphabet: the symbols of its texts; None for a number.
    """
    symbols = [] if alphabet is None else ["--alphabet", alphabet]
    return ["columns", "--function", function, *symbols, *more, "--name", name, "--output_dir", str(folder)]


def rule_command(name: str, folder: Path, seconds: float | None = None) -> list[str]:
    """`train_command` of a rule.

    Args:
        seconds: of the search for its machine; None leaves the usual ones.
    """
    searched = [] if seconds is None else ["--seconds", str(seconds)]
    return train_command(f"{checked_rules.__file__}:{name}", name, folder, RULES[name].alphabet, *searched)


def timed(command: Sequence[str]) -> tuple[Row, subprocess.CompletedProcess[str]]:
    """Run a command of Python; the `seconds` that it took by the clock, and those of the `processor`."""
    began, before = time.perf_counter(), os.times()
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return {"seconds": time.perf_counter() - began, "processor": used}, done


def make_model(command: list[str], folder: Path) -> str:
    """Train a model, or go on, and note the seconds of what was left; return why it was refused, or nothing.

    Raises:
        ValueError: the folder holds a run that was not timed.
    """
    if (folder / RESULTS_FILE).is_file():
        if not (folder / TIMES).is_file():
            raise ValueError(f"{folder} holds a run that was not timed: remove it, or choose another --output_dir")
        return ""
    resumed = ["--resume"] if (folder / RECIPE_FILE).is_file() else []
    times, done = timed(["-m", "longhand.train", *command, *resumed])
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["no reason"])[-1]
    write_results([times], folder / TIMES)
    return ""


def model_facts(checkpoint: Checkpoint) -> Row:
    """What the run of a function has found and reached, and whether numpy alone verifies it."""
    task, certificate = checkpoint.task, checkpoint.certificate
    assert isinstance(task, ColumnTask), f"{checkpoint.folder} is no model of a function"
    assert certificate is not None, f"{checkpoint.folder} has no certificate"
    times, done = timed([str(verify_certificate.__file__), str(checkpoint.folder)])
    return {
        "verified": done.returncode == 0,
        "verify_seconds": times["processor"],
        "neighbourhoods": task.covering(task.rule.relations, 1).count,
        "parameters": sum(parameter.numel() for parameter in checkpoint.model.parameters()),
        "certified": certificate["certified"],
        "ratio": certificate["ratio"],
    }


def rule_row(name: str, cases: int, folder: Path, seconds: float | None = None) -> Row:
    """The model of a rule: what it took to make and verify it, and how many texts another implementation answers otherwise.

    Args:
        cases: random texts.
        folder: of the run, which goes on if it has begun.
        seconds: as of `rule_command`.
    """
    row: Row = {"kind": "rule", "name": name, "title": RULES[name].title, "hardware": hardware(torch.device("cpu"))}
    row["code"] = code_of("data/learning")
    if refused := make_model(rule_command(name, folder, seconds), folder):
        return row | {"kind": "refused", "reason": refused}
    checkpoint = read_checkpoint(folder)
    states = str(checkpoint.recipe["learned"]["machine"]).partition(" state")[0]
    row |= read_results(folder / TIMES)[0] | model_facts(checkpoint) | {"states": states}
    return row | compared(RULES[name], checkpoint, cases)


TIMES = "times.jsonl"
"""The seconds of a run, beside it."""


def compared(rule: Rule, checkpoint: Checkpoint, cases: int) -> Row:
    """The comparisons of a model's table, and of the model itself, with the other implementation of its rule."""
    began = time.process_time()
    assert isinstance(checkpoint.task, ColumnTask)
    at_random, near, first = compare(rule, checkpoint.task, cases)
    seconds = time.process_time() - began
    asked = RuleComparison()
    asked.add(first, Solver(checkpoint)(first), list(map(rule.check, first)))
    row: Row = {"other": rule.named, "cases": at_random.cases, "wrong": at_random.wrong}
    if rule.answers_yes_or_no:
        row["right"] = at_random.right
    row |= {"near_misses": near.cases, "near_wrong": near.wrong, "compare_seconds": seconds}
    row |= {"asked": asked.cases, "asked_wrong": asked.wrong}
    return row | {"example": at_random.example or near.example or asked.example}


@dataclass(frozen=True)
class RuleOptions:
    """What is run, and where."""

    output_dir: Path = option("folder of the runs (default: %(default)s)", Path("outputs/rules"))
    rules: list[str] | None = option("(default: all)", None, choices=tuple(RULES), metavar="RULE")
    cases: int = option("random texts of each comparison (default: %(default)s)", CASES)
    seconds: float | None = option("of each search for a machine, on a busy computer (default: as train.py)", None)
    print: bool = option("print the commands of all runs, and do nothing", False)


OPTIONS = (RuleOptions,)


def run(options: RuleOptions, output: Path) -> None:
    """Train, verify and compare all rules that have no row of so many cases yet, and write each row when it is known."""
    rules, folder, seconds = options.rules or list(RULES), options.output_dir, options.seconds
    if options.print:
        for name in rules:
            print(shlex.join(["python", "-m", "longhand.train", *rule_command(name, folder / name, seconds)]))
        return
    rows = {row["name"]: row for row in read_results(output)} if output.is_file() else {}
    for name in rules:
        if rows.get(name, {}).get("verified") is None or rows[name]["cases"] < options.cases:
            rows[name] = rule_row(name, options.cases, folder / name, seconds)
            show_row(rows[name])
            write_output([rows[known] for known in RULES if known in rows], output)
