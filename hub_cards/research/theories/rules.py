"""Rules that people check: the machine of each, compared with another implementation on random texts and near misses.

python -m longhand.hub_cards.research rules --cases 1000000 --trained outputs/luhn outputs/roman
"""

import argparse
import calendar
import datetime
import ipaddress
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from longhand.data.learning.learn import learn_task
from longhand.data.learning.questions.functions import Refused
from longhand.data.learning.questions.patterns import read_pattern, text_of_pattern
from longhand.data.learning.report import Learned
from longhand.data.tasks.column_task import ColumnTask
from longhand.hub_cards.checkpoints.load import read_checkpoint
from longhand.hub_cards.research.theories import checked_rules
from longhand.hub_cards.result_rows import Row, hardware, read_results, write_results

RESULTS = Path(__file__).with_suffix(".jsonl")
DIGITS = "0123456789"
CASES = 1_000_000
BATCH = 50_000
"""Texts that are compared at once."""

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
    "vin": Rule("check digit of a VIN", VIN_SYMBOLS, "[0-9A-HJ-NPR-Z]{17}", lambda: checked_rules.vin, "none"),
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


def machine_answers(learned: Learned, texts: Sequence[str]) -> list[str]:
    """What the machine answers to texts, as the function would."""
    task: ColumnTask = learned.task
    writes = task.transducer.passes[-1].writes
    answers = [""] * len(texts)
    places = {symbol: place for place, symbol in enumerate(task.alphabet)}
    for width in {len(text) for text in texts}:
        rows = [row for row, text in enumerate(texts) if len(text) == width]
        digits = np.array([[places[symbol] for symbol in reversed(texts[row])] for row in rows], dtype=np.uint8)[:, None]
        written = task.solve(digits)[-1]
        for row, symbols in zip(rows, written.tolist(), strict=True):
            kept = symbols[-1:] if task.answer == "last" else symbols
            answer = "".join(writes[symbol] for symbol in kept)
            answers[row] = learned.report.legend.get(answer, answer)
    return answers


def as_text(value: bool | str) -> str:
    """An answer as the machine writes it."""
    return value if isinstance(value, str) else str(int(value))


def rule_row(name: str, cases: int) -> Row:
    """The machine of a rule, and how many texts another implementation answers otherwise."""
    rule, function = RULES[name], getattr(checked_rules, name)
    row: Row = {"kind": "rule", "name": name, "title": rule.title, "hardware": hardware(torch.device("cpu"))}
    began = time.process_time()
    try:
        learned = learn_task(function, alphabet=rule.alphabet, name=name, source=name)
    except Refused as error:
        return row | {"kind": "refused", "reason": str(error).partition(";")[0]}
    row |= {"seconds": time.process_time() - began, "states": learned.report.found.partition(" state")[0]}
    row |= {"neighbourhoods": learned.task.covering(learned.task.rule.relations, 1).count, "other": rule.named}
    generator, other, wrong, right = random.Random(0), rule.other(), 0, 0
    for first in range(0, cases, BATCH):
        texts = list(draw(rule, min(BATCH, cases - first), generator))
        for text, answer in zip(texts, machine_answers(learned, texts), strict=True):
            expected = as_text(other(text))
            wrong += answer != expected
            right += expected == "1"
    return row | {"cases": cases, "wrong": wrong, "right": right}


def trained_row(folder: Path) -> Row:
    """What a run of a rule has reached."""
    checkpoint = read_checkpoint(folder)
    certificate = checkpoint.certificate
    assert certificate is not None, f"{folder} has no certificate"
    facts = {"certified": certificate["certified"], "run_seconds": checkpoint.run_seconds}
    return {"kind": "trained", "name": checkpoint.name, **facts}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the number of texts, and the folders of runs."""
    parser.add_argument(
        "--cases", type=int, default=CASES, help="texts by which each machine is compared (default: %(default)s)"
    )
    parser.add_argument(
        "--trained", nargs="*", type=Path, default=[], metavar="FOLDER", help="folders of runs of these rules"
    )


def run(cases: int, trained: list[Path]) -> None:
    """Find and compare all machines. Rows of trained rules stay, unless `trained` measures them again."""
    measured = {row["name"]: row for row in read_results(RESULTS) if row["kind"] == "trained"} if RESULTS.is_file() else {}
    measured |= {row["name"]: row for row in map(trained_row, trained)}
    rows = []
    for name in RULES:
        row = rule_row(name, cases)
        reached = measured.get(name, {})
        row |= {"certified": reached.get("certified", "not trained"), "run_seconds": reached.get("run_seconds", "")}
        print(row)
        rows.append(row)
    write_results([*rows, *measured.values()], RESULTS)
