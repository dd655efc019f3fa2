"""Rows of results files: reading, writing, grouping, and the tables that a terminal shows."""

# Used by: eval.py, hub_cards/checkpoints, hub_cards/evaluation, hub_cards/publishing, hub_cards/research,
# hub_cards/research/gpu, hub_cards/research/papers, hub_cards/research/structured, hub_cards/research/theories,
# hub_cards/training, train.py. Changed freely.

import json
import platform
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import numpy as np
import torch

from longhand.data.metrics import METRICS
from longhand.hub_cards.commands import read_text, write_atomically

RESULTS_FILE = "results.jsonl"
CERTIFICATES_FILE = "certificates.jsonl"
PLACES_FILE = "places.jsonl"
ATTENTION_FILE = "attention.jsonl"
ATTENTION_MAPS_FILE = "attention_maps.jsonl"
ATTENTION_KINDS = ("same_id", "id_below", "id_above", "no_id", "others")
"""Tokens that a head may look at, by the difference of their id from the query's."""
POSITION_MAPS_FILE = "positions.jsonl"
VALIDATION_FILE = "validation.jsonl"
"""Exact match of every validation of a run, by step and length."""

Key = TypeVar("Key")

Row = dict[str, Any]

LARGEST = 2**53
"""The largest number of a row: up to it, whole numbers are exact as floats too."""

TEXTS = ("model", "task", "decode", "hardware", "weights")
WHOLE_NUMBERS: dict[str, int] = {"length": 0, "length_b": 0, "num_samples": 1, "seed": 0}
"""Fields of whole numbers, and the least that each may be."""
ACCURACIES = tuple(metric.name for metric in METRICS)
MIXED = "mixed_exact_match"
"""The share of right answers to problems whose operands have any sizes up to the row's length."""
NUMBERS: dict[str, float] = {**dict.fromkeys((*ACCURACIES, MIXED), 1), "seconds": LARGEST, "run_seconds": LARGEST}
"""Fields of other numbers, from 0 on, and the most that each may be."""
WORST_TEXTS = ("worst_problem", "worst_answer", "worst_right")
"""Fields of what a search for the worst problem found, text or None; see `Worst` in data/proofs/worst.py."""
WORST_VERDICTS = ("searched", "proved", "refuted")
"""What `worst_verdict` may say; rows of earlier versions lack it, see `worst_verdict`."""
SHOWN = 48
"""Characters of a problem or an answer that tables and cards show; the rows have all of it."""
OPTIONAL = ("hardware", "weights", "run_seconds", MIXED, *(metric.name for metric in METRICS if metric.is_optional))
"""Fields that a row of a `results.jsonl` may lack. All other fields are required. Unknown fields are ignored."""


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
    rows: list[Row] = []
    for number, line in enumerate(read_text(file).splitlines(), start=1):
        try:
            rows.append(row := _read_row(line))
            if file.name == RESULTS_FILE:
                _check_result(row)
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
        if name in WORST_TEXTS and not (value is None or (isinstance(value, str) and (value.isprintable() or not value))):
            raise ValueError(f"{name} must be text in one line or null, got {repr(value)[:80]}")
        if name == "worst_verdict" and value not in WORST_VERDICTS:
            raise ValueError(f"{name} must be one of {', '.join(WORST_VERDICTS)}, got {repr(value)[:80]}")
        if name == "worst_tried" and not (value is None or (type(value) is int and 0 <= value <= LARGEST)):
            raise ValueError(f"{name} must be a whole number or null, got {repr(value)[:80]}")
        if name == "worst_lead" and not (value is None or type(value) in (int, float)):
            raise ValueError(f"{name} must be a number or null, got {repr(value)[:80]}")
        if name in NUMBERS and not (type(value) in (int, float) and 0 <= value <= NUMBERS[name]):
            raise ValueError(f"{name} must be a number from 0 to {NUMBERS[name]}, got {repr(value)[:80]}")


def accuracy_columns(rows: list[Row]) -> dict[str, list[str]]:
    """Cells of every metric that a row has, by heading. The 95% interval of the first metric stands behind it."""
    from longhand.hub_cards.metrics.exact_match_by_length.counting import wilson_interval

    columns = {}
    for metric in (metric for metric in METRICS if any(metric.name in row for row in rows)):
        values = [row.get(metric.name) for row in rows]
        columns[metric.heading] = ["" if value is None else f"{value:.{metric.decimals}f}" for value in values]
        if metric is METRICS[0]:
            ends = [wilson_interval(row[metric.name] * row["num_samples"], row["num_samples"]) for row in rows]
            columns["95% interval"] = [f"{low:.4f} to {high:.4f}" for low, high in ends]
    if any(MIXED in row for row in rows):
        columns["mixed lengths"] = [f"{row[MIXED]:.4f}" if MIXED in row else "" for row in rows]
    return columns


TEXT_COLUMNS = ("model", "size", "rule", "worst problem")
"""The left-aligned columns of tables in a terminal; all others are right-aligned."""


def align(columns: dict[str, list[str]]) -> str:
    """Return columns under their headings, for a terminal."""
    widths = [max(map(len, [heading, *cells])) for heading, cells in columns.items()]
    sides = ["<" if heading in TEXT_COLUMNS else ">" for heading in columns]
    lines = [columns, *zip(*columns.values(), strict=True)]
    shown = ([f"{cell:{side}{width}}" for cell, side, width in zip(line, sides, widths, strict=True)] for line in lines)
    return "\n".join("  ".join(cells).rstrip() for cells in shown)


def name_parts(rows: list[Row]) -> list[Row]:
    """Rows with the task behind the model's name, if they are of several tasks."""
    if len({row.get("task") for row in rows}) < 2:
        return rows
    return [{**row, "model": f"{row['model']}: {row['task']}"} for row in rows]


def _column(rows: list[Row], name: str) -> dict[str, list[str]]:
    """The column of a field, as it is; for models see `name_parts`."""
    return {name: [str(row[name]) for row in name_parts(rows)]}


def format_table(rows: list[Row]) -> str:
    """A table of accuracy by size, a line for each row."""
    columns = {**_column(rows, "model"), "size": list(map(describe_length, rows)), **accuracy_columns(rows)}
    if any("worst_tried" in row for row in rows):
        columns["worst problem"] = [describe_worst(row) for row in rows]
    columns |= {"samples": [str(row["num_samples"]) for row in rows], "seconds": [f"{row['seconds']:.1f}" for row in rows]}
    return align(columns)


def format_medians(rows: list[Row]) -> str:
    """A table of the median exact match by length over checkpoints that differ in their seed, for each task."""
    tasks = group_by(rows, itemgetter("task"))
    if len(tasks) == 1:
        return _format_medians(rows)
    return "\n\n".join(f"{task}\n{_format_medians(task_rows)}" for task, task_rows in tasks.items())


def _format_medians(rows: list[Row]) -> str:
    runs = {size: [row["exact_match"] for row in size_rows] for size, size_rows in group_by(rows, describe_length).items()}
    ends = map(median_interval, runs.values())
    columns = {"size": list(runs), "median exact match": [f"{median(values):.4f}" for values in runs.values()]}
    columns["95% interval of the median"] = [f"{low:.4f} to {high:.4f}" for low, high in ends]
    return align({**columns, "checkpoints": [str(len(values)) for values in runs.values()]})


def format_comparison(rows: list[Row], groups: Mapping[str, str]) -> str:
    """A table of exact match with a column for each group of models, and a line for each size, for each task.

    Args:
        groups: the group of each model by its name; of several models, the median is shown.
    """
    tasks = group_by(rows, itemgetter("task"))
    tables = [_format_comparison(task_rows, groups) for task_rows in tasks.values()]
    return tables[0] if len(tables) == 1 else "\n\n".join(map("{}\n{}".format, tasks, tables))


def _format_comparison(rows: list[Row], groups: Mapping[str, str]) -> str:
    sizes = list(group_by(rows, describe_length))
    columns = {"size": sizes}
    for group, group_rows in group_by(rows, lambda row: groups[row["model"]]).items():
        values = group_by(group_rows, describe_length)
        columns[group] = [
            f"{median(row['exact_match'] for row in values[size]):.4f}" if size in values else "" for size in sizes
        ]
    return align(columns)


def format_places(rows: list[Row]) -> str:
    """A table of the accuracy of every output place, a line for each model and size, the last place of the answer first."""
    groups = list(group_by(rows, lambda row: (row["model"], row["task"], describe_length(row))).values())
    firsts = [group[0] for group in groups]
    shares = [" ".join(f"{row['accuracy']:.3f}" for row in group) for group in groups]
    title = "accuracy of each place of the answer, the last place first"
    return align({**_column(firsts, "model"), "size": list(map(describe_length, firsts)), title: shares})


def format_fields(rows: list[Row], names: Iterable[str]) -> str:
    """A table of some fields of every row, and of its model."""
    cells = {
        name: [f"{row[name]:.3f}" if isinstance(row[name], float) else str(row[name]) for row in rows] for name in names
    }
    return align(_column(rows, "model") | {name.replace("_", " "): column for name, column in cells.items()})


def group_by(rows: list[Row], key: Callable[[Row], Key]) -> dict[Key, list[Row]]:
    """Rows by the value of `key`, in order of its first appearance."""
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def last_rows(rows: list[Row]) -> list[Row]:
    """Rows of checkpoints at the end of training."""
    return [row for row in rows if not row["model"].endswith("/best")]


def worst_verdict(row: Row) -> str | None:
    """What is known of the worst problem: one of `WORST_VERDICTS`; None if nothing was searched.

    Rows of earlier versions say it by `worst_tried`, which is null where no problem is wrong by proof.
    """
    if "worst_verdict" in row or "worst_tried" not in row:
        return row.get("worst_verdict")
    if row.get("worst_answer") is not None:
        return "refuted"
    return "proved" if row["worst_tried"] is None else "searched"


def describe_worst(row: Row) -> str:
    """The worst problem that a search found, in a few words; empty if there was none."""
    verdict = worst_verdict(row)
    if verdict is None:
        return ""
    if verdict == "refuted":
        return f"wrong: {_shortened(row['worst_problem'])} answered {_shortened(row['worst_answer'])}"
    if verdict == "proved":
        return "none, proved"
    lead = "" if row.get("worst_lead") is None else f", lowest lead {row['worst_lead']:.2f}"
    return f"none found in {row['worst_tried']:,}{lead}"


def _shortened(text: str) -> str:
    """The text, or its beginning and its end if it is long."""
    half = SHOWN // 2 - 1
    return text if len(text) <= SHOWN else f"{text[:half]}..{text[-half:]}"


def describe_length(row: Row) -> str:
    """ "30", or "30, 5" if the two sizes differ."""
    return str(row["length"]) if row["length"] == row["length_b"] else f"{row['length']}, {row['length_b']}"


def hardware(device: torch.device) -> str:
    """Return what a number was measured on: the accelerator's name, or the processor's kind and the threads in use."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{platform.machine()} CPU, {threads} thread{'' if threads == 1 else 's'}"
