"""What a study with code of its own found: printed, and written where its `--output` says."""

import argparse
from pathlib import Path

from longhand.hub_cards.result_rows import Row, write_results


def add_output(parser: argparse.ArgumentParser, results: Path) -> None:
    """Add the option of a study that says where its results go.

    Args:
        results: the package's own file, which is replaced if nothing is said.
    """
    described = "results file, beside which its pictures stand (default: that of the package)"
    parser.add_argument("--output", type=Path, default=results, help=described)


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
