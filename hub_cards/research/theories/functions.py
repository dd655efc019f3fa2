"""Functions and examples whose machines are found: states, calls, seconds, neighbourhoods; and what is refused.

python -m longhand.hub_cards.research functions
"""

# Used by: whoever runs or imports it. Changed freely.

import argparse
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Unpack

import numpy as np
import torch

from longhand.data.learning.example_files import Example
from longhand.data.learning.examples import learn_task_from_examples
from longhand.data.learning.learn import LearningOptions, learn_task
from longhand.data.learning.questions.functions import Refused
from longhand.data.learning.report import Learned
from longhand.hub_cards.checkpoints.load import read_checkpoint
from longhand.hub_cards.recipes import read_settings
from longhand.hub_cards.result_rows import Row, hardware, read_results

RESULTS = Path(__file__).with_suffix(".jsonl")

FUNCTIONS = read_settings(Path(__file__).with_suffix(".yaml"))
"""Functions that are learned, and those that are learned from examples; the file says what its fields mean."""

COUNTS = (30, 50, 100, 200, 300, 500, 700, 1000, 1500, 2000, 3000, 5000, 7000)
LONGEST = 5
"""Digits of the longest operand of an example."""

LONG = 50
"""Digits of the operands by which what was learned from examples is tested."""


def function_row(source: str, kind: str, **options: Unpack[LearningOptions]) -> Row:
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
    source, operands, base = FUNCTIONS["examples"][name].values()
    function = eval(source)
    for count in COUNTS:
        began = time.process_time()
        try:
            learned = learn_task_from_examples(draw_examples(function, operands, base, count, seed), base=base)
        except Refused:
            continue
        if is_right(learned, function, base, seed):
            states = len(learned.task.transducer.passes[0].write)
            seconds = time.process_time() - began
            return {"kind": "examples", "source": name, "examples": count, "states": states, "seconds": seconds}
    return {"kind": "examples", "source": name, "examples": f"more than {COUNTS[-1]}"}


def draw_examples(function: Callable[..., int | str], operands: int, base: int, count: int, seed: int) -> list[Example]:
    """Examples with operands of up to `LONGEST` digits, any length as often."""
    generator = random.Random(seed)
    drawn = []
    for _ in range(count):
        if operands:
            numbers = [generator.randrange(base ** generator.randint(1, LONGEST)) for _ in range(operands)]
            question, answer = "+".join(text_of(number, base) for number in numbers), function(*numbers)
        else:
            question = "".join(generator.choices("ab", k=generator.randint(1, 2 * LONGEST)))
            answer = function(question)
        is_number = isinstance(answer, int) and not isinstance(answer, bool) and answer >= 0
        drawn.append(Example(question, text_of(int(answer), base) if is_number else str(answer)))
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
    return np.base_repr(number, base).lower()


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
    """Add the folders of runs whose training is shown too."""
    described = "folders of runs of train.py columns --function, which the page shows too"
    parser.add_argument("--trained", nargs="*", type=Path, default=[], metavar="FOLDER", help=described)


def measure(trained: list[Path]) -> Iterator[Row]:
    """Find all machines, and yield what was found.

    Rows of trained functions stay as the package has them, unless `trained` measures them again.
    """
    yield from (function_row(kind="issued", **options) for options in FUNCTIONS["issued"])
    yield from (function_row(kind="other", **options) for options in FUNCTIONS["others"])
    yield from map(examples_row, FUNCTIONS["examples"])
    measured = {row["source"]: row for row in read_results(RESULTS) if row["kind"] == "trained"}
    measured |= {row["source"]: row for row in map(trained_row, trained)}
    yield from measured.values()
