"""Rules that people check: from each function a verified model, and its table compared with another implementation.

python -m longhand.hub_cards.research rules --output_dir outputs/rules

Each rule is trained by `train.py columns --function`, verified by `verify_certificate.py`, and its table is compared on
random texts and near misses. Its row is written before the next rule begins: the same command goes on with the rules that
lack one.
"""

import argparse
import calendar
import datetime
import ipaddress
import os
import random
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import torch

from longhand.data.learning.questions.patterns import read_pattern, text_of_pattern
from longhand.data.proofs import verify_certificate
from longhand.data.tasks.column_task import ColumnTask
from longhand.hub_cards.checkpoints.checkpoint import Checkpoint
from longhand.hub_cards.checkpoints.load import read_checkpoint
from longhand.hub_cards.checkpoints.solver import Solver
from longhand.hub_cards.research.output import add_output, show_row, write_output
from longhand.hub_cards.research.theories import checked_rules
from longhand.hub_cards.result_rows import Row, hardware, read_results, write_results

RESULTS = Path(__file__).with_suffix(".jsonl")
DIGITS = "0123456789"
CASES = 1_000_000
BATCH = 50_000
"""Texts that are compared at once."""

RIGHT_TEXTS = 1000
"""Texts that the other implementation accepts, of each of which all near misses are tried."""

ASKED = 1000
"""Texts that the model itself is asked, besides its table."""

VIN_SYMBOLS = "0123456789ABCDEFGHJKLMNPRSTUVWXYZ"


def stdnum(module: str) -> Callable[[str], bool]:
    """The check of python-stdnum (Arthur de Jong) for a kind of number."""
    is_valid: Callable[[str], bool] = import_module(f"stdnum.{module}").is_valid
    return is_valid


def ean_of(length: int) -> Callable[[str], bool]:
    """As `stdnum`, of the EANs of one length."""
    is_valid = stdnum("ean")
    return lambda code: len(code) == length and is_valid(code)


def isbn_of(length: int) -> Callable[[str], bool]:
    """As `stdnum`, of the ISBNs of one length."""
    is_valid = stdnum("isbn")
    return lambda code: len(code) == length and is_valid(code)


def is_date(text: str) -> bool:
    """Whether the calendar of Python has a date. It has no year 0, which is as the year 400."""
    if not re.fullmatch("....(/..){2}", text) or not text.replace("/", "").isdecimal():
        return False
    year = text[:4] if text[:4] != "0000" else "0400"
    try:
        datetime.date.fromisoformat(f"{year}-{text[5:7]}-{text[8:]}")
    except ValueError:
        return False
    return True


def is_time(text: str) -> bool:
    """Whether Python reads a text as hours and minutes."""
    if len(text) != 5:
        return False
    try:
        datetime.time.fromisoformat(text)
    except ValueError:
        return False
    return True


ROMAN = dict(zip("IVXLCDM", (1, 5, 10, 50, 100, 500, 1000), strict=True))
ROMAN_PARTS = (
    (1000, "M"),
    (900, "CM"),
    (500, "D"),
    (400, "CD"),
    (100, "C"),
    (90, "XC"),
    (50, "L"),
    (40, "XL"),
    (10, "X"),
    (9, "IX"),
    (5, "V"),
    (4, "IV"),
    (1, "I"),
)


def is_roman(text: str) -> bool:
    """Whether a number from 1 to 3999 is written so."""
    values = [ROMAN[symbol] for symbol in text] + [0]
    value = sum(-own if own < after else own for own, after in pairwise(values))
    rest, written = value, ""
    for part, symbols in ROMAN_PARTS:
        times, rest = divmod(rest, part) if rest > 0 else (0, rest)
        written += symbols * times
    return 1 <= value <= 3999 and written == text


def is_address(text: str) -> bool:
    """Whether Python reads a text as an address."""
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def is_version(text: str) -> bool:
    """Whether three numbers stand in a text as Python writes them."""
    parts = text.split(".")
    return len(parts) == 3 and all(part.isdecimal() and str(int(part)) == part for part in parts)


def is_color(text: str) -> bool:
    """Whether Python reads a text behind a # as a hexadecimal number."""
    return text[:1] == "#" and len(text) in (4, 7) and "#" not in text[1:] and int(text[1:], 16) >= 0


def is_balanced(text: str) -> bool:
    """Whether nothing is left if pairs of brackets are taken out four times."""
    for _ in range(4):
        text = text.replace("()", "")
    return text == ""


def has_parity(text: str) -> bool:
    """Whether each byte of a text has an even number of ones."""
    count, rest = divmod(len(text), 8)
    return not rest and all(not (byte.bit_count() % 2) for byte in int("0" + text, 2).to_bytes(count + 1, "big"))


def from_gray(text: str) -> str:
    """The binary number of a Gray code by shifts."""
    number = int(text, 2)
    shifted = number
    while shifted := shifted >> 1:
        number ^= shifted
    return format(number, f"0{len(text)}b")


def is_bcd(text: str) -> bool:
    """Whether the hexadecimal digits of a text are decimal."""
    return len(text) % 4 == 0 and format(int(text, 2), f"0{len(text) // 4}x").isdecimal()


def has_separators(text: str) -> bool:
    """Whether Python writes a number so."""
    plain = text.replace(",", "")
    return plain.isdecimal() and f"{int(plain):,}" == text


def is_password(text: str) -> bool:
    """Whether a pattern that looks ahead fits."""
    return re.fullmatch("(?=.*a)(?=.*A)(?=.*1).{8,}", text) is not None


VIN_NUMBERS = str.maketrans(
    {
        symbol: str(value)
        for value, own in enumerate(("", "AJ", "BKS", "CLT", "DMU", "ENV", "FW", "GPX", "HY", "RZ"))
        for symbol in own
    }
)


def is_vin(text: str) -> bool:
    """Whether the weighted sum of a vehicle's number, without its ninth symbol, leaves that symbol."""
    values = [int(symbol) for symbol in text.translate(VIN_NUMBERS)]
    if len(values) != 17:
        return False
    # The weights fall from 8 to 2, jump to 10, and fall from 9 to 2 behind the ninth symbol.
    total = sum((8 - place) * value for place, value in enumerate(values[:7])) + 10 * values[7]
    total += sum((9 - place) * value for place, value in enumerate(values[9:]))
    return text[8] == ("X" if total % 11 == 10 else str(total % 11))


@dataclass(frozen=True)
class Rule:
    """A rule of `checked_rules`.

    Attributes:
        title: what it checks.
        alphabet: the symbols of its texts; None for a number.
        drawn: a regular expression of texts that are nearly right.
        other: another implementation, made when it is asked for.
        named: whose this is.
    """

    title: str
    alphabet: str | None
    drawn: str
    other: Callable[[], Callable[[str], bool | str]]
    named: str


STDNUM, PYTHON, OURS = "python-stdnum", "Python's library", "written otherwise"
RULES: dict[str, Rule] = {
    "luhn": Rule("card number (Luhn)", DIGITS, "[0-9]{13,16}|[0-9]{1,4}", lambda: stdnum("luhn"), STDNUM),
    "iban": Rule("IBAN in digits, mod 97", DIGITS, "[0-9]{20,23}|[0-9]{3,6}", lambda: stdnum("iso7064.mod_97_10"), STDNUM),
    "isbn_10": Rule("ISBN-10", DIGITS + "X", "[0-9]{9}[0-9X]", lambda: isbn_of(10), STDNUM),
    "isbn_13": Rule("ISBN-13", DIGITS, "97[89][0-9]{10}", lambda: isbn_of(13), STDNUM),
    "ean_13": Rule("EAN-13", DIGITS, "[0-9]{13}", lambda: ean_of(13), STDNUM),
    "ean_8": Rule("EAN-8", DIGITS, "[0-9]{8}", lambda: ean_of(8), STDNUM),
    "upc": Rule("UPC-A", DIGITS, "[0-9]{12}", lambda: ean_of(12), STDNUM),
    "leap_year": Rule("leap year", None, "[0-9]{1,6}|[0-9]{2}00", lambda: lambda year: calendar.isleap(int(year)), PYTHON),
    "iso_date": Rule("ISO date", DIGITS + "/", "[0-9]{4}/[01][0-9]/[0-3][0-9]|[0-9]{2}00/02/29", lambda: is_date, PYTHON),
    "time_of_day": Rule("time of 24 hours", DIGITS + ":", "[0-2][0-9]:[0-6][0-9]", lambda: is_time, PYTHON),
    "roman": Rule(
        "roman numeral to 3999", "IVXLCDM", "M{0,3}(CM|CD|D?C{0,3})(XC|XL|L?X{0,3})(IX|IV|V?I{0,3})", lambda: is_roman, OURS
    ),
    "ipv4": Rule("IPv4 address", DIGITS + ".", r"([12]?[0-9]{1,2}\.){3}[12]?[0-9]{1,2}", lambda: is_address, PYTHON),
    "semantic_version": Rule("semantic version", DIGITS + ".", r"([0-9]{1,2}\.){2}[0-9]{1,3}", lambda: is_version, OURS),
    "hex_color": Rule("hexadecimal color", DIGITS + "abcdef#", "#[0-9a-f]{3}|#[0-9a-f]{6}", lambda: is_color, OURS),
    "balanced": Rule("brackets to depth 4", "()", r"(\((\((\((\(\))*\))*\))*\))+", lambda: is_balanced, OURS),
    "even_parity": Rule("parity bytes", "01", "([01]{8}){1,3}", lambda: has_parity, OURS),
    "from_gray": Rule("Gray code to binary", "01", "[01]{1,4}|[01]{30}", lambda: from_gray, OURS),
    "bcd": Rule("BCD digits", "01", "(0[01]{3}|100[01]){1,6}", lambda: is_bcd, OURS),
    "thousands": Rule("thousands separators", DIGITS + ",", "[1-9][0-9]{0,2}(,[0-9]{3})*", lambda: has_separators, PYTHON),
    "vin": Rule("check digit of a VIN", VIN_SYMBOLS, "[0-9A-HJ-NPR-Z]{8}[0-9X][0-9A-HJ-NPR-Z]{8}", lambda: is_vin, OURS),
    "password": Rule("password policy", "aA1", "[aA1]{7,10}", lambda: is_password, OURS),
}


def draw(rule: Rule, count: int, generator: random.Random) -> Iterator[str]:
    """Texts: nearly right ones, then each with one symbol changed, and with two neighbours swapped."""
    tree, alphabet = read_pattern(rule.drawn), rule.alphabet or DIGITS
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
        for other in alphabet:
            if other != symbol:
                yield text[:place] + other + text[place + 1 :]
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


def as_text(value: bool | str) -> str:
    """An answer as the machine writes it."""
    return value if isinstance(value, str) else str(int(value))


@dataclass
class Comparison:
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
        if answers != expected:
            differing = [row for row, answer in enumerate(answers) if answer != expected[row]]
            self.wrong += len(differing)
            first = differing[0]
            self.example = self.example or f"{texts[first]}: {answers[first]}, not {expected[first]}"


def compare(rule: Rule, task: ColumnTask, cases: int) -> tuple[Comparison, Comparison, list[str]]:
    """Compare the table of a task with the other implementation of its rule.

    Args:
        cases: random texts.

    Returns:
        The comparisons on random texts, and on all near misses of `RIGHT_TEXTS` texts that are right; and the first texts.
    """
    generator, other = random.Random(0), rule.other()
    answers_numbers = isinstance(other(next(draw(rule, 1, generator))), str)
    at_random, near, right = Comparison(), Comparison(), dict[str, None]()
    first: list[str] = []

    def count(comparison: Comparison, texts: Sequence[str]) -> list[str]:
        expected = [as_text(other(text)) for text in texts]
        comparison.add(texts, table_answers(task, texts), expected)
        return expected

    drawn = draw(rule, cases, generator)
    while texts := list(islice(drawn, BATCH)):
        expected = count(at_random, texts)
        accepted = (text for text, answer in zip(texts, expected, strict=True) if answers_numbers or answer == "1")
        right |= dict.fromkeys(list(accepted)[: RIGHT_TEXTS - len(right)])
        first = first or texts[:ASKED]
    missed = (text for one in right for text in near_misses(one, rule.alphabet or DIGITS))
    while texts := list(islice(missed, BATCH)):
        count(near, texts)
    return at_random, near, first


def train_command(name: str, folder: Path, seconds: float | None = None) -> list[str]:
    """The arguments of `train.py` that make a model of a rule.

    Args:
        seconds: of the search for its machine; None leaves the usual ones.
    """
    rule = RULES[name]
    chosen = [] if rule.alphabet is None else ["--alphabet", rule.alphabet]
    chosen += [] if seconds is None else ["--seconds", str(seconds)]
    return [
        "columns",
        "--function",
        f"{checked_rules.__file__}:{name}",
        *chosen,
        "--name",
        name,
        "--output_dir",
        str(folder),
    ]


def timed(command: Sequence[str]) -> tuple[float, float, subprocess.CompletedProcess[str]]:
    """Run a command; the seconds that it took by the clock and of processors."""
    began, before = time.perf_counter(), os.times()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - began, used, done


def rule_row(name: str, cases: int, folder: Path, seconds: float | None = None) -> Row:
    """The model of a rule: what it took to make and verify it, and how many texts another implementation answers otherwise.

    Args:
        cases: random texts.
        folder: of the run, which goes on if it has begun; its seconds are then those of what was left.
        seconds: as of `train_command`.
    """
    rule, command = RULES[name], train_command(name, folder, seconds)
    row: Row = {"kind": "rule", "name": name, "title": rule.title, "hardware": hardware(torch.device("cpu"))}
    if not (folder / "results.jsonl").is_file():
        resumed = ["--resume"] if (folder / "recipe.yaml").is_file() else []
        clock, used, done = timed([sys.executable, "-m", "longhand.train", *command, *resumed])
        if done.returncode:
            return row | {"kind": "refused", "reason": (done.stderr.strip().splitlines() or ["no reason"])[-1]}
        write_results([{"seconds": clock, "processor": used}], folder / TIMES)
    elif not (folder / TIMES).is_file():
        raise ValueError(f"{folder} holds a run that this study has not timed: remove it, or choose another --output_dir")
    row |= read_results(folder / TIMES)[0]
    clock, used, done = timed([sys.executable, str(verify_certificate.__file__), str(folder)])
    row |= {"verified": done.returncode == 0, "verify_seconds": used}
    checkpoint = read_checkpoint(folder)
    return row | facts_of(checkpoint) | compared(rule, checkpoint, cases)


TIMES = "times.jsonl"
"""The seconds of a run, beside it."""


def facts_of(checkpoint: Checkpoint) -> Row:
    """What a run has found and reached."""
    task, certificate = checkpoint.task, checkpoint.certificate
    assert isinstance(task, ColumnTask), f"{checkpoint.folder} is no model of a rule"
    assert certificate is not None, f"{checkpoint.folder} has no certificate"
    return {
        "states": str(checkpoint.recipe["learned"]["machine"]).partition(" state")[0],
        "neighbourhoods": task.covering(task.rule.relations, 1).count,
        "parameters": sum(parameter.numel() for parameter in checkpoint.model.parameters()),
        "certified": certificate["certified"],
        "ratio": certificate["ratio"],
    }


def compared(rule: Rule, checkpoint: Checkpoint, cases: int) -> Row:
    """The comparisons of a model's table, and of the model itself, with the other implementation of its rule."""
    began = time.process_time()
    assert isinstance(checkpoint.task, ColumnTask)
    at_random, near, first = compare(rule, checkpoint.task, cases)
    seconds = time.process_time() - began
    asked, other = Comparison(), rule.other()
    asked.add(first, Solver(checkpoint)(first), [as_text(other(text)) for text in first])
    row: Row = {"other": rule.named, "cases": at_random.cases, "wrong": at_random.wrong}
    if not isinstance(other(first[0]), str):
        row["right"] = at_random.right
    row |= {"near_misses": near.cases, "near_wrong": near.wrong, "compare_seconds": seconds}
    row |= {"asked": asked.cases, "asked_wrong": asked.wrong}
    return row | {"example": at_random.example or near.example or asked.example}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what is run, and where."""
    described = "folder of the runs (default: %(default)s)"
    parser.add_argument("--output_dir", type=Path, default=Path("outputs/rules"), help=described)
    add_output(parser, RESULTS)
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES), metavar="RULE", help="(default: all)")
    parser.add_argument("--cases", type=int, default=CASES, help="random texts of each comparison (default: %(default)s)")
    described = "of each search for a machine, on a busy computer (default: as train.py)"
    parser.add_argument("--seconds", type=float, help=described)
    described = "print the commands of all runs, and do nothing"
    parser.add_argument("--print", dest="is_printed", action="store_true", help=described)


def run(
    output_dir: Path, output: Path, rules: list[str], cases: int, seconds: float | None = None, is_printed: bool = False
) -> None:
    """Train, verify and compare all rules that have no row of so many cases yet, and write each row when it is known."""
    if is_printed:
        for name in rules:
            print(shlex.join(["python", "-m", "longhand.train", *train_command(name, output_dir / name, seconds)]))
        return
    rows = {row["name"]: row for row in read_results(output)} if output.is_file() else {}
    for name in rules:
        if rows.get(name, {}).get("verified") is None or rows[name]["cases"] < cases:
            rows[name] = rule_row(name, cases, output_dir / name, seconds)
            show_row(rows[name])
            write_output([rows[known] for known in RULES if known in rows], output)
