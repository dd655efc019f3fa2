"""The seven regular languages of FLaRe as recognizers: from an expression to a verified model.

FLaRe (Butoi et al., ICLR 2025, arXiv 2411.07107) has 18 languages. Seven are regular: those that its code holds as automata,
the empty language and that of all words left out. A recognizer answers 1 if a word is in the language and 0 if not. Here the
machine behind each recognizer is found, a model is trained by the recipe `columns`, and its certificate is verified:

python -m longhand.hub_cards.research flare

The signs that longhand reserves are other ones here: `s`, `r` and `l` are the moves =, > and <, and `:` is the = of
expressions.
"""

# Used by: whoever runs or imports it. Changed freely.

import argparse
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from longhand.hub_cards.checkpoints.checkpoint import CERTIFICATE_FILE
from longhand.hub_cards.checkpoints.load import read_checkpoint
from longhand.hub_cards.research.output import code_of
from longhand.hub_cards.research.theories.rules import make_model, model_facts, train_command
from longhand.hub_cards.result_rows import Row, hardware

RESULTS = Path(__file__).with_suffix(".jsonl")

DYCK_DEPTH = 3


def even_pairs(text: str) -> bool:
    """As many 01 as 10: the last symbol is the first one."""
    return re.fullmatch("0([01]*0)?|1([01]*1)?", text) is not None


def repeat_01(text: str) -> bool:
    """The word 01, any number of times."""
    return re.fullmatch("(01)*", text) is not None


def parity(text: str) -> bool:
    """An odd number of ones."""
    return re.fullmatch("0*(10*10*)*10*", text) is not None


def first(text: str) -> bool:
    """A one comes first."""
    return re.fullmatch("1[01]*", text) is not None


def cycle_navigation(text: str) -> bool:
    """Moves on a ring of five, and the place where they end."""
    if not re.fullmatch("[srl]*[0-4]", text):
        return False
    return (text.count("r") - text.count("l")) % 5 == int(text[-1])


def modular_arithmetic(text: str) -> bool:
    """An expression and its value modulo 5, evaluated from the left to the right as FLaRe does."""
    if not re.fullmatch("[0-4]([+*-][0-4])*:[0-4]", text):
        return False
    value = int(text[0])
    for operator, digit in re.findall("([+*-])([0-4])", text):
        value = {"+": value + int(digit), "-": value - int(digit), "*": value * int(digit)}[operator] % 5
    return value == int(text[-1])


def dyck_2_3(text: str) -> bool:
    """Brackets of two kinds, nested up to three deep."""
    expression = ""
    for _ in range(DYCK_DEPTH):
        expression = rf"(\({expression}\)|\[{expression}\])*"
    return re.fullmatch(expression, text) is not None


LANGUAGES: dict[str, tuple[Callable[[str], bool], str]] = {
    "even pairs": (even_pairs, "01"),
    "repeat 01": (repeat_01, "01"),
    "parity": (parity, "01"),
    "cycle navigation": (cycle_navigation, "01234srl"),
    "modular arithmetic (simple)": (modular_arithmetic, "01234+-*:"),
    "Dyck-(2, 3)": (dyck_2_3, "()[]"),
    "first": (first, "01"),
}
"""Recognizers and their alphabets."""


def language_row(name: str, folder: Path) -> Row:
    """The model of a recognizer: what was found, and whether it is verified."""
    checkpoint = read_checkpoint(folder)
    facts, table = model_facts(checkpoint), checkpoint.task.transducer
    assert table is not None, f"{folder} is no model of a column task"
    return {
        "language": name,
        "states": max(len(table_pass.write) for table_pass in table.passes),
        "passes": len(table.passes),
        "length_complexity": checkpoint.task.length_complexity,
        "run_seconds": checkpoint.run_seconds,
        **facts,
        "verified": "VERIFIED" if facts["verified"] else "no",
        "hardware": hardware(torch.device("cpu")),
        "code": code_of("data/learning"),
    }


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the folder of the runs."""
    described = "folder of the runs; what is there is not trained again (default: %(default)s)"
    parser.add_argument("--output_dir", type=Path, default=Path("outputs", "flare"), help=described)


def measure(output_dir: Path) -> Iterator[Row]:
    """Train the recognizers that are missing, and yield the results of all."""
    for name, (function, alphabet) in LANGUAGES.items():
        folder, source = output_dir / function.__name__, f"{__file__}:{function.__name__}"
        tested = ("--test_lengths", "5", "30", "100")
        make_model(train_command(source, f"{function.__name__}_language", folder, alphabet, *tested), folder)
        if (folder / CERTIFICATE_FILE).is_file():
            yield language_row(name, folder)
