"""Rows of results files: reading, writing, grouping, and the tables that a terminal shows."""

import json
import platform
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from longhand.hub_cards.files import read_text, write_atomically
from longhand.hub_cards.metrics.exact_match_by_length.counting import wilson_interval

RESULTS_FILE = "results.jsonl"
CERTIFICATES_FILE = "certificates.jsonl"
PLACES_FILE = "places.jsonl"
ATTENTION_FILE = "attention.jsonl"
ATTENTION_KINDS = ("same_id", "id_below", "id_above", "no_id", "others")
"""What a head may look at: tokens by the difference of their id from the query's."""
POSITION_MAPS_FILE = "positions.jsonl"

Row = dict[str, Any]

LARGEST = 2**53
"""The largest number of a row: up to it, whole numbers are exact as floats too."""

TEXTS = ("model", "task", "decode", "hardware", "weights")
WHOLE_NUMBERS: dict[str, int] = {"length": 0, "length_b": 0, "num_samples": 1, "seed": 0}
"""Fields of whole numbers, and the least that each may be."""
ACCURACIES = ("exact_match", "token_accuracy", "answer_match")
NUMBERS: dict[str, float] = {**dict.fromkeys(ACCURACIES, 1), "seconds": LARGEST, "run_seconds": LARGEST}
"""Fields of other numbers, from 0 on, and the most that each may be."""
OPTIONAL = ("hardware", "weights", "answer_match", "run_seconds")
"""Fields that a row of a `results.jsonl` may lack. It has all others, and may have more that nothing reads."""


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
            evaluation or contradicts an earlier one.
    """
    rows: list[Row] = []
    measured: dict[tuple[Any, ...], tuple[int, Row]] = {}
    for number, line in enumerate(read_text(file).splitlines(), start=1):
        try:
            rows.append(row := _read_row(line))
            if file.name == RESULTS_FILE:
                _check_result(row)
                what = tuple(item for item in sorted(row.items()) if item[0] in (*TEXTS, *WHOLE_NUMBERS))
                first, before = measured.setdefault(what, (number, row))
                if different := [name for name in ACCURACIES if row.get(name) != before.get(name)]:
                    found = ", ".join(f"{name} is {row.get(name)}, was {before.get(name)}" for name in different)
                    raise ValueError(f"{found} on the very problems of line {first}")
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
    if missing := [name for name in (*TEXTS, *WHOLE_NUMBERS, *NUMBERS) if name not in {*OPTIONAL, *row}]:
        raise ValueError(f"the result lacks {', '.join(missing)}")
    for name, value in row.items():
        if name in TEXTS and not (isinstance(value, str) and value.isprintable() and value):
            raise ValueError(f"{name} must be text in one line, got {repr(value)[:80]}")
        # Not isinstance: True is an int.
        if name in WHOLE_NUMBERS and not (type(value) is int and WHOLE_NUMBERS[name] <= value <= LARGEST):
            raise ValueError(
                f"{name} must be a whole number from {WHOLE_NUMBERS[name]} to {LARGEST}, got {repr(value)[:80]}"
            )
        if name in NUMBERS and not (type(value) in (int, float) and 0 <= value <= NUMBERS[name]):
            raise ValueError(f"{name} must be a number from 0 to {NUMBERS[name]}, got {repr(value)[:80]}")


def format_table(rows: list[Row]) -> str:
    """A table of accuracy by size, a line for each row.

    There is a column for the answer alone if a task has a scratchpad.
    """
    rows = name_parts(rows)
    width = max(len("model"), *(len(row["model"]) for row in rows))
    optional = {"answer_match": "answer"}
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


def name_parts(rows: list[Row]) -> list[Row]:
    """Rows with the task behind the model's name, if they are of several tasks."""
    if len({row["task"] for row in rows}) < 2:
        return rows
    return [{**row, "model": f"{row['model']}: {row['task']}"} for row in rows]


def format_medians(rows: list[Row]) -> str:
    """A table of the median exact match by length over checkpoints that differ in their seed, for each task."""
    tasks = group_by(rows, itemgetter("task"))
    return "\n\n".join([*(f"{task}\n" * (len(tasks) > 1) + _format_medians(own) for task, own in tasks.items())])


def _format_medians(rows: list[Row]) -> str:
    lines = ["size         median exact match  95% interval of the median  checkpoints"]
    for length, own in group_by(rows, describe_length).items():
        values = [row["exact_match"] for row in own]
        low, high = median_interval(values)
        lines.append(f"{length:<11}  {median(values):18.4f}  [{low:.4f}, {high:.4f}]            {len(values):11d}")
    return "\n".join(lines)


def format_places(rows: list[Row]) -> str:
    """A table of the accuracy of every output place, a line for each model and size, the last place of the answer first."""
    rows = name_parts(rows)
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


def format_attention(rows: list[Row]) -> str:
    """A table of the attention of every layer and head, by the difference of ids."""
    rows = name_parts(rows)
    width = max(len("model"), *(len(row["model"]) for row in rows))
    lines = [f"{'model':<{width}}  layer  head" + "".join(f"  {kind.replace('_', ' '):>8}" for kind in ATTENTION_KINDS)]
    for row in rows:
        shares = "".join(f"  {row[kind]:8.3f}" for kind in ATTENTION_KINDS)
        lines.append(f"{row['model']:<{width}}  {row['layer']:5d}  {row['head']:4d}{shares}")
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
    """Rows of the checkpoints with the best exact match at the validated sizes beyond the trained ones."""
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


def hardware(device: torch.device) -> str:
    """Return what a number was measured on: the accelerator's name, or the processor's kind and the threads in use."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
