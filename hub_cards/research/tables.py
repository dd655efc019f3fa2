"""Rows of results files as frames, and tables of the pages, in Markdown."""

# Used by: hub_cards/research, hub_cards/research/gpu, hub_cards/research/papers. Changed freely.

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pandas import DataFrame, Series

from longhand.hub_cards.recipes import read_settings
from longhand.hub_cards.research.output import code_of
from longhand.hub_cards.result_rows import Row, read_results

TABLES = read_settings(Path(__file__).with_name("tables.yaml"))
"""The tables that only fill rows into columns; the file says what its fields mean."""

EARLIER = "The code has changed since this was measured: counts and seconds of a run today may differ."
"""Stands below a table with a row that was measured with other code."""

TableLine = dict[str, str]
"""A line of a table: its cells by the heading of their columns."""


def as_frame(rows: Sequence[Row]) -> DataFrame:
    """Return rows as a frame, with what the name VARIANT-seedN of a run says, or VARIANT-seedN/best of its best checkpoint.

    This is the `variant`, the number of the seed as a text, `run`, and `is_best`: whether it is the checkpoint with the best
    exact match at the validated sizes beyond the trained ones, and not the last one.
    """
    models = [row.get("model", "") for row in rows]
    named = [model.removesuffix("/best").rpartition("-seed") for model in models]
    is_best = Series([model.endswith("/best") for model in models], dtype=bool)
    return DataFrame(rows).assign(variant=[name for name, *_ in named], run=[seed for *_, seed in named], is_best=is_best)


def read_frame(file: Path) -> DataFrame:
    """Return the rows of a results file as a frame; none if it is not there."""
    return as_frame(read_results(file) if file.exists() else [])


def last(rows: DataFrame) -> DataFrame:
    """Return the rows of checkpoints at the end of training."""
    return rows[~rows["is_best"]]


def last_or_best(rows: DataFrame) -> DataFrame:
    """Return the rows of checkpoints at the end of training; those of the best ones if there are no others."""
    return rows if rows["is_best"].all() else last(rows)


def chosen(rows: DataFrame) -> DataFrame:
    """Return the rows of the checkpoints that the papers evaluate: each run's best one, or the last if it has no best."""
    has_best = rows.groupby(["variant", "run"])["is_best"].transform("any")
    return rows[rows["is_best"] == has_best]


def generalizable_length(tests: DataFrame) -> int:
    """Return the longest tested length up to which the median exact match of all runs stays above 0.95; 0 if none."""
    medians = tests.groupby("length")["exact_match"].median()
    return int(max(medians.index[(medians > 0.95).cummin()], default=0))


def render_table(lines: Sequence[TableLine], note: str = "") -> str:
    """Return a Markdown table and a note below it.

    The first column and columns of words are aligned to the left, columns of numbers to the right. What all lines say alike
    is said once, below the table; the first column, and columns whose headings are numbers, such as lengths, always stay.
    Neighbouring ones of these that all lines have alike share a column.

    Args:
        lines: all with the same headings.
    """
    alike = alike_cells(lines)
    if alike:
        lines = [{name: cell for name, cell in line.items() if name not in alike} for line in lines]
        said = "; ".join(f"{name} {cell}" for name, cell in alike.items())
        note = f"In each row: {said}. {note}".rstrip()
    lines = join_sizes(lines)
    header = list(lines[0])
    words = {name for line in lines for name, cell in line.items() if re.match(r"[*`\[]*[A-Za-z]", cell)}
    marks = ["---" if name in words | {header[0]} else "---:" for name in header]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in (header, marks, *(line.values() for line in lines)))
    text = f"{table}\n\n{note}\n" if note else f"{table}\n"
    # Rows of earlier versions count "1 threads".
    return re.sub(r"\b1 threads\b", "1 thread", text)


def alike_cells(lines: Sequence[TableLine]) -> TableLine:
    """Return the cells that all of several lines have alike, but for the first column and headings that are numbers."""
    first, *others = lines
    _, *names = first
    words = [name for name in names if not is_size(name)]
    return {
        name: first[name] for name in words if first[name] and others and all(line[name] == first[name] for line in others)
    }


def is_size(heading: str) -> bool:
    """Whether the heading of a column is a number, such as a length."""
    return re.fullmatch(r"[\d,]+", heading) is not None


def join_sizes(lines: Sequence[TableLine]) -> list[TableLine]:
    """Return lines in which neighbouring sizes with the same cell in every line share a column, such as `1, 2, 5`."""
    groups: list[list[str]] = []
    for name in lines[0]:
        before = groups[-1][-1] if groups else ""
        if is_size(before) and is_size(name) and all(line[before] == line[name] for line in lines):
            groups[-1].append(name)
        else:
            groups.append([name])
    return [{", ".join(group): line[group[0]] for group in groups} for line in lines]


def fill_cells(row: Row, columns: Mapping[str, str]) -> TableLine:
    """Return a line: by heading, a format string filled with the fields of a row; empty where the row lacks a field."""

    def fill(cell: str) -> str:
        try:
            return cell.format(**row)
        except (KeyError, TypeError):
            return ""

    return {name: fill(cell) for name, cell in columns.items()}


def headings_of(rows: list[Row], field: str) -> dict[Any, str]:
    """Return the heading of each value of a field: numbers in their order, texts in that of the rows."""
    values = dict.fromkeys(row[field] for row in rows)
    if all(isinstance(value, int) for value in values):
        return {value: f"{value:,}" for value in sorted(values)}
    return {value: str(value) for value in values}


def shorten(cell: str, table: Mapping[str, Any]) -> str:
    """Return a cell with the words that its page explains in place of the long ones."""
    for long, short in table.get("shorter", {}).items():
        cell = cell.replace(long, short)
    return cell


def filled_table(name: str, rows: list[Row]) -> str:
    """Return the table of that name in `TABLES`, without columns that no row fills."""
    table = TABLES[name]
    wanted = table.get("where", {})
    rows = [row for row in rows if all(row.get(field) == value for field, value in wanted.items())]
    if not rows:
        return "No results yet.\n"
    across = table.get("across")
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    headings = headings_of(rows, across) if across else {}
    values = dict.fromkeys(headings.values(), "")
    for row in rows:
        cells = fill_cells(row, table["columns"])
        line = lines.setdefault(tuple(cells.values()), cells | values)
        line |= fill_cells(row, {headings[row[across]]: table["cell"]} if across else {})
    filled = {name for line in lines.values() for name, cell in line.items() if cell}
    shown = [{name: shorten(cell, table) for name, cell in line.items() if name in filled} for line in lines.values()]
    note = table.get("note", "").format(**rows[0])
    if "code" in table and any(row.get("code") != code_of(table["code"]) for row in rows):
        note += f" {EARLIER}"
    return render_table(shown, note)
