"""Tables of the pages, in Markdown, from rows of results files."""

import re
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from statistics import median

from longhand.hub_cards.evaluation.results import Row, generalizable_length, group_by, group_variants, last_rows
from longhand.hub_cards.recipes import read_recipe

TABLES = read_recipe(Path(__file__).with_name("tables.yaml"))
"""The tables that only fill rows into columns; the file says what its fields mean."""

TableLine = dict[str, str]
"""A line of a table: its cells by the heading of their columns."""


def render_table(lines: Sequence[TableLine], note: str = "") -> str:
    """Return a Markdown table and a note below it.

    The first column and columns of words are aligned to the left, columns of numbers to the right.

    Args:
        lines: all with the same headings.
    """
    header = list(lines[0])
    words = {name for line in lines for name, cell in line.items() if re.match("[*`]*[A-Za-z]", cell)}
    marks = ["---" if name in words | {header[0]} else "---:" for name in header]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in (header, marks, *(line.values() for line in lines)))
    return f"{table}\n\n{note}\n" if note else f"{table}\n"


def fill_cells(row: Row, columns: Mapping[str, str]) -> TableLine:
    """Return a line: by heading, a format string filled with the fields of a row; empty where the row lacks a field."""

    def fill(cell: str) -> str:
        try:
            return cell.format(**row)
        except (KeyError, TypeError):
            return ""

    return {name: fill(cell) for name, cell in columns.items()}


def filled_table(name: str, rows: list[Row]) -> str:
    """Return the table of that name in `TABLES`."""
    table = TABLES[name]
    across, lines = table.get("across"), {}
    shown = [row for row in rows if row.get("what") == table.get("what", row.get("what"))]
    values = dict.fromkeys((f"{value:,}" for value in sorted({row[across] for row in shown})) if across else (), "")
    for row in shown:
        cells = fill_cells(row, table["columns"])
        line = lines.setdefault(tuple(cells.values()), cells | values)
        line |= fill_cells(row, {f"{row[across]:,}": table["cell"]} if across else {})
    return render_table([*lines.values()], table.get("note", "").format(**rows[0]))


def describe_samples(rows: list[Row], what: str) -> str:
    """Say how many problems were tested, with which seed and hardware, for the note below a table."""
    counts = sorted({row["num_samples"] for row in rows})
    samples = f"{counts[0]} to {counts[-1]}" if counts[1:] else str(counts[0])
    return f"{samples} {what}, test seed {rows[0]['seed']}, {rows[0]['hardware']}"


def describe_seeds(rows: list[Row]) -> str:
    """Say over how many seeds the medians are, and of which checkpoints."""
    seeds = sorted({len({row["model"] for row in own}) for own in group_variants(rows).values()})
    said = "one seed" if seeds == [1] else f"medians of {' or '.join(map(str, seeds))} seeds"
    return said.capitalize() if last_rows(rows) else f"Best checkpoints, {said}"


def median_cells(rows: list[Row], lengths: Iterable[int], measure: str = "exact_match") -> TableLine:
    """Return the median of a measure over runs, for each length; empty if a length was not tested."""
    values = group_by(rows, itemgetter("length"))
    return {str(n): f"{median(row[measure] for row in values[n]):.3f}" if n in values else "" for n in lengths}


def describe_reach(rows: list[Row]) -> str:
    """Return the generalizable length, with >= if no longer problems were tested."""
    reached = generalizable_length(rows)
    return f">= {reached}" if reached == max(row["length"] for row in rows) else str(reached)
