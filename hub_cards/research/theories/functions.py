"""Functions and examples whose machines are found: states, calls, seconds, neighbourhoods; and what is refused.

python -m longhand.hub_cards.research functions
"""

import argparse
import random
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import torch

from longhand.data.learning.examples import Example, learn_task_from_examples
from longhand.data.learning.learn import LearningOptions, learn_task
from longhand.data.learning.questions.functions import Refused
from longhand.data.learning.report import Learned
from longhand.hub_cards.checkpoints.load import read_checkpoint
from longhand.hub_cards.research.output import add_output, show_row, write_output
from longhand.hub_cards.result_rows import Row, hardware, read_results

RESULTS = Path(__file__).with_suffix(".jsonl")

ISSUED: dict[str, LearningOptions] = {
    "lambda a, b: a + b": {},
    "lambda a: 123 * a + 45": {},
    "lambda a: a // 7": {},
    "lambda a, b: max(a, b)": {},
    "lambda a: a % 97": {},
    "lambda a: a % 7 == 0": {},
    "lambda a, b: a > b": {},
    "lambda a, b: abs(a - b)": {},
    "lambda a: a // 2 if a % 2 == 0 else 3 * a + 1": {},
    "lambda s: s.upper()": {},
    "lambda s: s.replace('ab', 'xy')": {"alphabet": "abc"},
    "lambda a, b: a * b": {},
    "lambda s: s[::-1]": {},
    "lambda s: s.count('a') > s.count('b')": {"alphabet": "ab"},
}
OTHERS: dict[str, LearningOptions] = {
    "lambda a, b, c: a + b + c": {"base": 2},
    "lambda a, b: a ^ b": {"base": 16},
    "lambda a, b: a & ~b": {"base": 8},
    "lambda a: a ^ (a >> 1)": {"base": 2},
    "lambda a: a % 3 == 0 and a % 5 == 0": {},
    "lambda a: (a + 1) // 2": {},
    "lambda a, b: (a > b) - (a < b)": {},
    "lambda s: s.count('a') % 5": {"alphabet": "ab"},
    "lambda s: 'abba' in s": {"alphabet": "ab"},
    "lambda s: s[1:] + s[:1]": {"alphabet": "abcd"},
    "lambda a: min(a, 999)": {},
    "lambda a: a * a": {},
}
"""Functions, and how they are learned."""

EXAMPLES: dict[str, tuple[Callable[..., int | str], int, int]] = {
    "a + b": (lambda a, b: a + b, 2, 10),
    "a + b in base 2": (lambda a, b: a + b, 2, 2),
    "a + b in base 16": (lambda a, b: a + b, 2, 16),
    "a + b + c in base 4": (lambda a, b, c: a + b + c, 3, 4),
    "7a": (lambda a: 7 * a, 1, 10),
    "12a + 5": (lambda a: 12 * a + 5, 1, 10),
    "a // 7": (lambda a: a // 7, 1, 10),
    "a // 3 in base 4": (lambda a: a // 3, 1, 4),
    "max(a, b) in base 4": (lambda a, b: max(a, b), 2, 4),
    "a ^ b in base 16": (lambda a, b: a ^ b, 2, 16),
    "a % 7": (lambda a: a % 7, 1, 10),
    "a % 7 == 0": (lambda a: a % 7 == 0, 1, 10),
    "a > b": (lambda a, b: a > b, 2, 10),
    "a > b in base 2": (lambda a, b: a > b, 2, 2),
    "(a > b) - (a < b) in base 4": (lambda a, b: (a > b) - (a < b), 2, 4),
    "whether the ones of a are even, in base 2": (lambda a: "even" if a.bit_count() % 2 == 0 else "odd", 1, 2),
    "whether abba is in a word": (lambda s: "abba" in s, 0, 2),
}
"""Functions that are learned from examples, with their operands and base; 0 operands stand for a word of letters a and b.

Answers that are no numbers of the base, or few, are one symbol.
"""

COUNTS = (30, 50, 100, 200, 300, 500, 700, 1000, 1500, 2000, 3000, 5000, 7000)
LONGEST = 5
"""Digits of the longest operand of an example."""

LONG = 50
"""Digits of the operands by which what was learned from examples is tested."""


def function_row(source: str, options: LearningOptions, kind: str) -> Row:
    """The machine that is found for a function, or why the function is refused."""
    began = time.process_time()
    shown = "".join(f" --{name} {value}" for name, value in options.items())
    row: Row = {"kind": kind, "source": source + shown, "hardware": hardware(torch.device("cpu"))}
    try:
        task, report = learn_task(eval(source), source=source, **options)
    except Refused as error:
        return row | {"kind": "refused", "reason": str(error), "seconds": time.process_time() - began}
    row |= {"seconds": time.process_time() - began, "calls": report.calls, **report.facts, "source": row["source"]}
    neighbourhoods = task.covering(task.rule.relations, 1).count
    return row | {"neighbourhoods": neighbourhoods, "length": task.trained_length, "proof": "yes" if report.linear else "no"}


def examples_row(name: str, seed: int = 0) -> Row:
    """The fewest of `COUNTS` examples that give a machine which is right on long operands."""
    function, operands, base = EXAMPLES[name]
    for count in COUNTS:
        began = time.process_time()
        try:
            learned = learn_task_from_examples(draw(function, operands, base, count, seed), base=base)
        except Refused:
            continue
        if is_right(learned, function, base, seed):
            states = len(learned.task.transducer.passes[0].write)
            seconds = time.process_time() - began
            return {"kind": "examples", "source": name, "examples": count, "states": states, "seconds": seconds}
    return {"kind": "examples", "source": name, "examples": f"more than {COUNTS[-1]}"}


def draw(function: Callable[..., int | str], operands: int, base: int, count: int, seed: int) -> list[Example]:
    """Examples with operands of up to `LONGEST` digits, any length as often."""
    generator = random.Random(seed)
    drawn = []
    for _ in range(count if operands == 0 else 0):
        word = "".join(generator.choices("ab", k=generator.randint(1, 2 * LONGEST)))
        drawn.append(Example(word, str(function(word))))
    for _ in range(count if operands else 0):
        numbers = [generator.randrange(base ** generator.randint(1, LONGEST)) for _ in range(operands)]
        answer = function(*numbers)
        if isinstance(answer, int) and not isinstance(answer, bool) and answer >= 0:
            written = text_of(answer, base)
        else:
            written = str(answer)
        drawn.append(Example("+".join(text_of(number, base) for number in numbers), written))
    return drawn


def is_right(learned: Learned, function: Callable[..., int | str], base: int, seed: int) -> bool:
    """Whether 50 long problems are answered rightly."""
    generator = random.Random(seed)
    operands = learned.task.operands
    for _ in range(50):
        if learned.task.alphabet == "ab":
            question = "".join(generator.choices("ab", k=LONG))
            right = function(question)
        else:
            numbers = [generator.randrange(base**LONG) for _ in range(operands)]
            question = learned.task.sign.join(text_of(number, base) for number in numbers)
            right = function(*numbers)
        answer = learned.task.answer_to(question)
        if learned.task.answer == "last":
            if learned.report.legend.get(answer, answer) != str(right):
                return False
        elif int(answer, base) != right:
            return False
    return True


def text_of(number: int, base: int) -> str:
    """A number in a base up to 16."""
    return format(number, {2: "b", 10: "d", 16: "x"}[base]) if base in (2, 10, 16) else _digits(number, base)


def _digits(number: int, base: int) -> str:
    return (_digits(number // base, base) if number >= base else "") + str(number % base)


def trained_row(folder: Path) -> Row:
    """The results in the folder of a trained function."""
    checkpoint = read_checkpoint(folder)
    certificate = checkpoint.certificate
    assert certificate is not None, f"{folder} has no certificate"
    parameters = sum(parameter.numel() for parameter in checkpoint.model.parameters())
    facts = {name: certificate[name] for name in ("certified", "predictions", "ratio")}
    source = checkpoint.recipe["learned"]["source"]
    return {"kind": "trained", "source": source, "parameters": parameters, "run_seconds": checkpoint.run_seconds, **facts}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the folders of runs whose training is shown too, and where the rows are written."""
    described = "folders of runs of train.py columns --function, which the page shows too"
    parser.add_argument("--trained", nargs="*", type=Path, default=[], metavar="FOLDER", help=described)
    add_output(parser, RESULTS)


def run(trained: list[Path], output: Path) -> None:
    """Find all machines, print and write what was found.

    Rows of trained functions stay as the package has them, unless `trained` measures them again.
    """
    rows = []
    for row in chain(
        (function_row(source, options, "issued") for source, options in ISSUED.items()),
        (function_row(source, options, "other") for source, options in OTHERS.items()),
        map(examples_row, EXAMPLES),
    ):
        rows.append(row)
        show_row(row)
    measured = {row["source"]: row for row in read_results(RESULTS) if row["kind"] == "trained"}
    measured |= {row["source"]: row for row in map(trained_row, trained)}
    write_output([*rows, *measured.values()], output)
