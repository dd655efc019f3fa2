"""Rows of results files: reading, writing, grouping, and the tables that a terminal shows."""

import json
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from statistics import median
from types import UnionType
from typing import Any

import numpy as np

from longhand.hub_cards.metrics.exact_match_by_length.counting import wilson_interval
from longhand.hub_cards.runs.files import read_text, write_atomically

RESULTS_FILE = "results.jsonl"
CERTIFICATES_FILE = "certificates.jsonl"

Row = dict[str, Any]

RESULT_TYPES: dict[str, type | UnionType] = {
    "model": str,
    "task": str,
    "length": int,
    "length_b": int,
    "num_samples": int,
    "seed": int,
    "decode": str,
    "exact_match": int | float,
    "token_accuracy": int | float,
    "seconds": int | float,
}
"""The fields of every row of a `results.jsonl`, and their types.

A language model of others has tokens of its own, so its rows have `lenient_match` in the place of `token_accuracy`.
"""


def median_interval(values: list[float], resamples: int = 2000) -> tuple[float, float]:
    """95% interval of the median of a few runs, by bootstrap over the runs with a fixed seed; one run: its value twice."""
    draws = np.random.default_rng(0).choice(values, size=(resamples, len(values)))
    low, high = np.quantile(np.median(draws, axis=1), [0.025, 0.975])
    return float(low), float(high)


def write_results(rows: list[Row], file: Path) -> None:
    """Write one JSON object a line; the file is replaced only when all are written."""
    write_atomically(file, "".join(json.dumps(row) + "\n" for row in rows))


def read_results(file: Path) -> list[Row]:
    """Read the rows of a results file.

    Raises:
        ValueError: a line is not a JSON object, or holds NaN or infinity, or, in a `results.jsonl`, is not the result of an
            evaluation.
    """
    rows = []
    for number, line in enumerate(read_text(file).splitlines(), start=1):
        try:
            rows.append(_read_row(line))
            if file.name == RESULTS_FILE:
                _check_result(rows[-1])
        except ValueError as error:
            raise ValueError(f"{file}, line {number}: {error}") from error
    return rows


def _read_row(line: str) -> Row:
    def refuse(value: str) -> None:
        raise ValueError(f"numbers must be finite, got {value}")

    try:
        row = json.loads(line, parse_constant=refuse)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"a row must be one JSON object, got {line[:80]!r} ({error})") from error
    if not isinstance(row, dict):
        raise ValueError(f"a row must be one JSON object, got {line[:80]!r}")
    return row


def _check_result(row: Row) -> None:
    """Raise ValueError if tables, pictures and cards cannot show the row."""
    types = dict(RESULT_TYPES)
    if "lenient_match" in row:
        del types["token_accuracy"]
    if missing := [name for name in types if name not in row]:
        raise ValueError(f"the result lacks {', '.join(missing)}")
    for name, kind in types.items():
        if isinstance(row[name], bool) or not isinstance(row[name], kind):
            raise ValueError(f"{name} must be {'text' if kind is str else 'a number'}, got {row[name]!r}")
    if (count := row["num_samples"]) < 1:
        raise ValueError(f"num_samples must be at least 1, got {count}")
    for name in ("exact_match", "token_accuracy", "answer_match", "lenient_match"):
        if not isinstance(value := row.get(name, 0.0), int | float) or not 0 <= value <= 1:
            raise ValueError(f"{name} must be from 0 to 1, got {value!r}")


def format_table(rows: list[Row]) -> str:
    """A table of accuracy by size, a line for each row.

    There is a column for the answer alone if a task has a scratchpad, and one for the lenient reading of language models.
    """
    width = max(len("model"), *(len(row["model"]) for row in rows))
    optional = {"answer_match": "answer", "lenient_match": "lenient"}
    optional = {name: title for name, title in optional.items() if any(name in row for row in rows)}
    header = "".join(f"  {title}" for title in optional.values())
    lines = [f"{'model':<{width}}  size         exact match  95% interval{header}     per token  samples  seconds"]
    for row in rows:
        low, high = wilson_interval(row["exact_match"] * row["num_samples"], row["num_samples"])
        more = "".join(f"  {_decimals(row, name, 4):>{len(title)}}" for name, title in optional.items())
        lines.append(
            f"{row['model']:<{width}}  {describe_length(row):<11}  {row['exact_match']:11.4f}  [{low:.4f}, {high:.4f}]"
            f"{more}  {_decimals(row, 'token_accuracy', 6):>8}  {row['num_samples']:7d}  {row['seconds']:7.1f}"
        )
    return "\n".join(lines)


def _decimals(row: Row, name: str, places: int) -> str:
    """A number of a row with this many decimals; nothing if the row has no such number."""
    return f"{row[name]:.{places}f}" if name in row else ""


def format_medians(rows: list[Row]) -> str:
    """A table of the median exact match by length over checkpoints that differ in their seed."""
    lines = ["size         median exact match  95% interval of the median  checkpoints"]
    for length, own in group_by(rows, describe_length).items():
        values = [row["exact_match"] for row in own]
        low, high = median_interval(values)
        lines.append(f"{length:<11}  {median(values):18.4f}  [{low:.4f}, {high:.4f}]            {len(values):11d}")
    return "\n".join(lines)


def format_places(rows: list[Row]) -> str:
    """A table of the accuracy of every output place, a line for each model and size, the last place of the answer first."""
    width = max(len("model"), *(len(row["model"]) for row in rows))
    lines = [f"{'model':<{width}}  size         accuracy of each place of the answer, the last place first"]
    for (model, size), own in group_by(rows, lambda row: (row["model"], describe_length(row))).items():
        shares = " ".join(f"{row['accuracy']:.3f}" for row in own)
        lines.append(f"{model:<{width}}  {size:<11}  {shares}")
    return "\n".join(lines)


def format_position_maps(rows: list[Row]) -> str:
    """A table of the relative vectors of each model, layer and rule: the strongest relation, and how dispersed they are."""
    width = max(len("model"), *(len(row["model"]) for row in rows))
    lines = [f"{'model':<{width}}  layer  rule      strongest query id - key id  its share  effective relations"]
    lines += [
        f"{row['model']:<{width}}  {row['layer']:5d}  {row['rule']:<8}  {row['strongest']:27d}  {row['share']:9.3f}"
        f"  {row['effective_relations']:.1f} of {row['relations']}"
        for row in rows
    ]
    return "\n".join(lines)


def generalizable_length(rows: list[Row], threshold: float = 0.95) -> int:
    """The longest tested length up to which the median exact match of all runs stays above the threshold; 0 if none."""
    reached = 0
    for length, own in sorted(group_by(rows, itemgetter("length")).items()):
        if median(row["exact_match"] for row in own) <= threshold:
            break
        reached = length
    return reached


def group_by(rows: list[Row], key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    """Rows by the value of `key`, in order of its first appearance."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def group_variants(rows: list[Row]) -> dict[str, list[Row]]:
    """Rows by variant, for runs named VARIANT-seedN."""
    return group_by(rows, lambda row: row["model"].rpartition("-seed")[0])


def best_rows(rows: list[Row]) -> list[Row]:
    """Rows of checkpoints with the lowest validation loss at the longest validated size, as both papers choose them."""
    return [row for row in rows if row["model"].endswith("/best")]


def last_rows(rows: list[Row]) -> list[Row]:
    """Rows of checkpoints at the end of training."""
    return [row for row in rows if not row["model"].endswith("/best")]


def has_classes(rows: list[Row]) -> bool:
    """Whether problems of one length were tested by class, such as the length of their longest cascade of carries."""
    return any(row["length"] != row["length_b"] for row in rows)


def by_class(rows: list[Row]) -> list[Row]:
    """Rows with the class in the place of the length."""
    return [{**row, "length": row["length_b"]} for row in rows]


def group_cost(rows: list[Row]) -> dict[tuple[str, str], list[Row]]:
    """Rows of a cost benchmark by form of attention and kind of work, shortest first."""
    return group_by(sorted(rows, key=itemgetter("digits")), itemgetter("form", "what"))


def growth_exponent(rows: list[Row], quantity: str) -> float:
    """Slope of a quantity against digits on logarithmic axes: 1 is linear, 2 quadratic. Zeros are left out."""
    digits, values = zip(*((row["digits"], row[quantity]) for row in rows if row[quantity] > 0), strict=True)
    return float(np.polyfit(np.log(digits), np.log(values), 1)[0])


def describe_length(row: Row) -> str:
    """ "30", or "30, 5" if the two sizes differ."""
    return str(row["length"]) if row["length"] == row["length_b"] else f"{row['length']}, {row['length_b']}"
