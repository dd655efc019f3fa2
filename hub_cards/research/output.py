"""What a study with code of its own found: printed, and written where its `--output` says."""

# Used by: __main__.py, tables.py, hub_cards/research/gpu, hub_cards/research/structured, hub_cards/research/theories.
# Changed freely.

import argparse
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from longhand.hub_cards.result_rows import Row, read_results, write_results


@cache
def code_of(room: str) -> str:
    """Return a digest of the code of a room, such as `data/learning`, which tells rows of other code apart."""
    files = sorted((Path(__file__).parents[2] / room).rglob("*.py"))
    return sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def add_output(parser: argparse.ArgumentParser, results: Path) -> None:
    """Add the option of a study that says where its results go.

    Args:
        results: the package's own file, which is replaced if nothing is said.
    """
    described = "results file, beside which its pictures stand (default: that of the package)"
    parser.add_argument("--output", type=Path, default=results, help=described)


def run_measured(code: Any, output: Path, **options: Any) -> None:
    """Print each row of a study when it is measured, write all of them, and draw them if the study has a picture.

    Args:
        code: the module of the study, with a function `measure` that yields rows, and `draw` if they have a picture.
        options: arguments of `measure`.
    """
    rows: list[Row] = []
    for row in code.measure(**options):
        rows.append(row)
        show_row(row)
    write_output(rows, output)
    if hasattr(code, "draw"):
        code.draw(rows, output.with_suffix(".png"))
        print(f"wrote {output.with_suffix('.png')}")


def show_row(row: Row) -> None:
    """Print a row in one line, lists by their size and numbers in six digits."""
    print("  ".join(f"{name} {_shown(value)}" for name, value in row.items()), flush=True)


def _shown(value: object) -> str:
    if isinstance(value, list):
        return f"({len(value)} values)"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def write_output(rows: list[Row], output: Path) -> None:
    """Write rows, and say where."""
    output.parent.mkdir(parents=True, exist_ok=True)
    write_results(rows, output)
    print(f"wrote {output}", flush=True)


def replace_rows(found: list[Row], output: Path, run_of: Callable[[Row], Any]) -> list[Row]:
    """Write rows into a results file, in place of those of the same runs, and return all that it holds then.

    Args:
        run_of: returns what tells the run of a row apart from others; rows are in its order.
    """
    measured = set(map(run_of, found))
    kept = [row for row in read_results(output) if run_of(row) not in measured] if output.exists() else []
    rows = sorted(kept + found, key=run_of)
    write_output(rows, output)
    return rows
