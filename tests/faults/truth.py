"""The right answers, by Python's integers. Nothing here is computed by the package."""

import math
import re

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
PARTS = {"calculator": ("addition_scratchpad", "signed_subtraction", "multiplication_scratchpad")}
"""The tasks that a task is made of: it takes a question of any of them."""

STRINGS = {"copy": "0-9", "reverse": "0-9", "parity": "01"}
KNOWN = sorted({*SIGNS, *PARTS, *STRINGS, "minesweeper"})
"""Tasks whose answers are known here; those of the other column tasks are judged by the contract of column tasks."""


def is_legal(task: str, question: str) -> bool:
    """Whether a question is of the task's form: ASCII digits, with ASCII spaces around numbers, a `=` at most at the end."""
    if task in PARTS:
        return any(is_legal(part, question) for part in PARTS[task])
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


def answer(task: str, question: str) -> str:
    """The right answer to a legal question; a difference may be negative."""
    if task in PARTS:
        return answer(next(part for part in PARTS[task] if SIGNS[part] in question), question)
    if task in SIGNS:
        first, *others = map(int, re.findall("[0-9]+", question))
        if task == "division":
            return "{} remainder {}".format(*divmod(first, *others))
        return str({"+": first + sum(others), "-": first - sum(others), "*": first * math.prod(others)}[SIGNS[task]])
    if task == "minesweeper":
        return _neighbours(_rows(question))
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
