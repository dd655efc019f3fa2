"""Questions and answers in a file: lines of JSON, or a table."""

# Used by: example_machines.py, examples.py, hub_cards/research/theories, hub_cards/training. Changed freely.

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from longhand.data.learning.questions.functions import Refused

SEPARATORS = ",;\t"
"""Signs between the columns of a table; the one that the first line has most often is taken."""


class Example(NamedTuple):
    """A question and its answer, as a person writes them, and the line of the file on which they stand; 0 for none."""

    question: str
    answer: str
    line: int = 0


def read_examples(file: Path) -> list[Example]:
    """The examples in a file, each with the line on which it stands.

    A line is an object with `question` and `answer` (.jsonl), or a row of a table with these columns, which commas,
    semicolons or tabs part (.csv, .tsv). Spaces around a question and an answer, and blank lines, are left out.

    Raises:
        Refused: the file cannot be read, or a line is no example.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
        rows = _rows_of_table(text) if file.suffix in (".csv", ".tsv") else _rows_of_objects(text)
    except (OSError, ValueError, csv.Error) as error:
        raise Refused(f"{file} cannot be read as {file.suffix.removeprefix('.') or 'jsonl'}: {error}") from error
    examples = []
    for line, row in rows:
        if not isinstance(row, dict) or not all(isinstance(row.get(name), str | int) for name in Example._fields[:2]):
            shown_row = {name: value for name, value in row.items() if name is not None} if isinstance(row, dict) else row
            raise Refused(
                f'{file}, line {line}: it must be like {{"question": "12+34", "answer": "46"}}, got {shown_row!r:.80}'
            )
        examples.append(Example(str(row["question"]).strip(), str(row["answer"]).strip(), line))
    if not examples:
        raise Refused(f"{file} holds no example")
    return examples


def _rows_of_objects(text: str) -> list[tuple[int, Any]]:
    """The lines of JSON in a text, by number."""
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            rows.append((number, json.loads(line, object_pairs_hook=_object_of)))
        except json.JSONDecodeError as error:
            raise ValueError(f"line {number} is no JSON: {error}") from error
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
    return rows


def _check_once(names: Sequence[str]) -> None:
    """Raise ValueError if the question or the answer has several values."""
    if repeated := [name for name in Example._fields[:2] if names.count(name) > 1]:
        raise ValueError(f"it has {repeated[0]} {names.count(repeated[0])} times: leave one of them")


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object of these pairs."""
    _check_once([name for name, _ in pairs])
    return dict(pairs)


def _rows_of_table(text: str) -> list[tuple[int, Any]]:
    """The rows of a table in a text, by number; the sign of its first line parts its columns."""
    head = text.partition("\n")[0]
    sign = max(SEPARATORS, key=head.count)
    reader = csv.reader(io.StringIO(text), delimiter=sign, skipinitialspace=True)
    names: list[str] | None = None
    rows = []
    for row in reader:
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if names is None:
            names = [cell.lower() for cell in cells]
            if missing := [name for name in Example._fields[:2] if name not in names]:
                raise ValueError(
                    f"its first line must name the columns question and answer, got {head.strip()!r:.60}: "
                    f"{missing[0]} is missing"
                )
            _check_once(names)
        elif len(cells) != len(names):
            raise ValueError(
                f"line {reader.line_num} has {len(cells)} columns and the first line {len(names)}, parted by {sign!r}: "
                "quote a question that has this sign, or take another one"
            )
        else:
            record = dict(zip(names, cells, strict=True))
            if open_cells := [name for name in Example._fields[:2] if "\n" in record[name]]:
                raise ValueError(
                    f"the {open_cells[0]} that ends on line {reader.line_num} begins on another: a quote is not closed"
                )
            rows.append((reader.line_num, record))
    return rows


def shown(example: Example) -> str:
    """An example as a person writes it, and where it stands."""
    return f"{example.question} = {example.answer}{at_line(example)}"


def at_line(example: Example) -> str:
    return f" (line {example.line:,})" if example.line else ""
