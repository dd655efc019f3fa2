"""The right answers, by Python's integers. Nothing here is computed by the package."""

import math
import re
from itertools import pairwise

SIGNS = {
    **dict.fromkeys(["addition", "encoder_addition", "index_hinted_addition", "addition_scratchpad"], "+"),
    "multi_operand_addition": "+",
    **dict.fromkeys(["subtraction", "signed_subtraction"], "-"),
    **dict.fromkeys(
        ["multiplication", "multiplication_scratchpad", "encoder_multiplication", "encoder_multiplication_grid"], "*"
    ),
    "division": "/",
}
OPERANDS = {"multi_operand_addition": (3, 3), "addition_scratchpad": (2, 10)}
"""Fewest and most numbers of a question, of tasks that do not have two, in their default format."""
PARTS = {
    "calculator": ("addition_scratchpad", "signed_subtraction", "multiplication_scratchpad"),
    "encoder_calculator": ("encoder_addition", "encoder_multiplication"),
}
"""The tasks that a task is made of: it takes a question of any of them."""

STRINGS = {"copy": "0-9", "reverse": "0-9", "parity": "01"}
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def in_base(number: int, base: int) -> str:
    return (in_base(number // base, base) if number >= base else "") + DIGITS[number % base]


def opposite(first: str, second: str) -> str:
    """The symbol opposite to the first 2 of two words that has one."""
    return next((min(pair) for pair in zip(first, second, strict=True) if pair.count("2") == 1), "2")


COLUMNS: dict[str, tuple] = {
    "base_addition": ("+", DIGITS, lambda a, b, radix=16: in_base(int(a, radix) + int(b, radix), radix)),
    "plus_one": ("", DIGITS[:10], lambda a: str(int(a) + 1)),
    "constant_multiplication": ("", DIGITS[:10], lambda a, factor=7: str(int(a) * factor)),
    "remainder": ("", DIGITS[:10], lambda a, modulus=7: DIGITS[int(a) % modulus]),
    "digit_sum": ("", DIGITS[:10], lambda a, modulus=9: DIGITS[sum(map(int, a)) % modulus]),
    "comparison": ("?", DIGITS[:10], lambda a, b: "0+-"[(a > b) - (a < b)]),
    "larger_number": (",", DIGITS[:10], lambda a, b: max(a, b)),
    "bitwise": ("&|^", "01", lambda a, b, operation="and": "".join(map(BITS[operation], a, b))),
    "gray_code": ("", "01", lambda a: f"{int(a, 2) ^ int(a, 2) >> 1:0{len(a)}b}"),
    "even_pairs": ("", "01", lambda a: str(sum(left != right for left, right in pairwise(a)) % 2)),
    "cycle_navigation": ("", "012", lambda a: str((a.count("1") - a.count("2")) % 5)),
    # A word that is no expression has an answer that the task alone gives it.
    "modular_arithmetic": ("", "01234+*-", lambda a: str(eval(a) % 5) if re.fullmatch("-?[0-4]([+*-][0-4])*", a) else None),
    "duplicate_string": ("", "01", lambda a: a * 2),
    "odds_first": ("", "01", lambda a: a[::2] + a[1::2]),
    "missing_duplicate": (",", "012", opposite),
}
"""Column tasks: their signs, their symbols, and the answer to words of one width."""
BITS = {"and": min, "or": max, "xor": lambda a, b: str(int(a != b))}


def is_legal(task: str, question: str, radix: int = 16, operation: str = "and", **fields) -> bool:
    """Whether a question is of the task's form: ASCII digits, with ASCII spaces around numbers, a `=` at most at the end."""
    if task in PARTS:
        return any(is_legal(part, question) for part in PARTS[task])
    if task in COLUMNS:
        signs, symbols, _ = COLUMNS[task]
        sign = signs and re.escape(signs[("and", "or", "xor").index(operation)])
        word = rf"\s*[{re.escape(symbols[: radix if task == 'base_addition' else None])}]+\s*"
        return re.fullmatch(word + (sign and sign + word) + "=?\\s*", question, re.ASCII) is not None
    if task in SIGNS:
        few, many = OPERANDS.get(task, (2, 2))
        later = "0*[1-9]" if task == "division" else "[0-9]+"
        form = rf"\s*[0-9]+\s*({re.escape(SIGNS[task])}\s*{later}\s*){{{few - 1},{many - 1}}}=?\s*"
    elif task == "minesweeper":
        return (
            re.search("[^M_]", "".join(rows := _rows(question))) is None and len(set(map(len, rows))) == 1 and rows != [""]
        )
    else:
        form = rf"\s*[{STRINGS[task]}]+\s*=?\s*"
    return re.fullmatch(form, question, re.ASCII) is not None


def answer(task: str, question: str, **fields) -> str | None:
    """The right answer to a legal question of a task with these fields; a difference may be negative."""
    if task in COLUMNS:
        signs, _, solve = COLUMNS[task]
        text = re.sub(r"\s|=\s*$", "", question)
        words = re.split(f"[{re.escape(signs)}]", text) if signs else [text]
        known = {name: fields[name] for name in ("radix", "factor", "modulus", "operation") if name in fields}
        return solve(*(word.rjust(max(map(len, words)), "0") for word in words), **known)
    if task in PARTS:
        return answer(next(part for part in PARTS[task] if SIGNS[part] in question), question)
    if task in SIGNS:
        first, *others = map(int, re.findall("[0-9]+", question))
        if task == "division":
            return "{} remainder {}".format(*divmod(first, *others))
        return str({"+": first + sum(others), "-": first - sum(others), "*": first * math.prod(others)}[SIGNS[task]])
    if task == "minesweeper":
        rows = _rows(question)
        if not fields.get("separators", True) and len(rows) == 1:
            side = math.isqrt(len(rows[0]))
            rows = [rows[0][first : first + side] for first in range(0, side * side, side)]
        return _neighbours(rows)
    text = question.strip().removesuffix("=").strip()
    return {"copy": text, "reverse": text[::-1], "parity": str(text.count("1") % 2)}[task]


def _rows(board: str) -> list[str]:
    """Rows stand apart by `>`, spaces or line breaks."""
    return re.split(r"\s*>\s*|\s+", re.sub(r"\s*=?\s*\Z", "", board, count=1, flags=re.ASCII).strip(), flags=re.ASCII)


def _neighbours(rows: list[str]) -> str:
    cells = {(y, x): cell for y, row in enumerate(rows) for x, cell in enumerate(row)}
    around = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
    return "".join(
        cell if cell == "M" else str(sum(cells.get((y + dy, x + dx)) == "M" for dy, dx in around))
        for (y, x), cell in cells.items()
    )
