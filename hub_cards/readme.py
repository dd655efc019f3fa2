"""Writes the README's figures from the results files, so that none is typed by hand.

python -m longhand.hub_cards.readme           rewrites README.md and accuracy.png
python -m longhand.hub_cards.readme --check   exits with 1 where README.md is out of date
"""

import argparse
import re
import sys
from pathlib import Path
from statistics import median

from longhand.hub_cards.plots import plot_comparison
from longhand.hub_cards.recipes import MODELS_FOLDER, list_recipes, replace_file
from longhand.hub_cards.results import RESULTS_FILE, Row, read_results

FOLDER = Path(__file__).parent
README = FOLDER.parent / "README.md"
BENCHMARKS_FILE = FOLDER / "benchmarks.jsonl"
ACCURACY_FILE = FOLDER / "accuracy.png"


def published_results() -> dict[str, list[Row]]:
    """Results of every recipe that has any, the last checkpoints under its name and the best ones under `NAME/best`."""
    files = {name: MODELS_FOLDER / name / RESULTS_FILE for recipe in list_recipes() for name in (recipe, f"{recipe}/best")}
    return {name: read_results(file) for name, file in files.items() if file.exists()}


def accuracy_table(rows: list[Row]) -> str:
    """Exact match: a line for each run, a column for each length, the median last."""
    lengths = sorted({row["length"] for row in rows})
    runs: dict[str, dict[int, float]] = {}
    for row in rows:
        runs.setdefault(row["model"], {})[row["length"]] = row["exact_match"]
    seconds = {row["model"]: row.get("run_seconds") for row in rows}
    lines = [["run", *map(str, lengths), "seconds"], ["---", *["---:"] * (len(lengths) + 1)]]
    for name, values in runs.items():
        lines.append(
            [name, *(f"{values[length]:.3f}" for length in lengths), f"{seconds[name]:.0f}" if seconds[name] else ""]
        )
    if len(runs) > 1:
        medians = [median(values[length] for values in runs.values()) for length in lengths]
        lines.append(["**median**", *(f"**{value:.3f}**" for value in medians), ""])
    sums = (
        f"{rows[0]['num_samples']} sums per length, test seed {rows[0]['seed']}, {rows[0]['hardware']}; seconds are those "
    )
    return _markdown(lines) + f"\n\n{sums}of training and first evaluation.\n"


def benchmark_table(rows: list[Row]) -> str:
    """Rates of both sides and their ratio."""
    lines = [["benchmark", "longhand", "baseline", "ratio"], ["---", "---:", "---:", "---:"]]
    for row in rows:
        rates = (f"{row[side]:,.0f} {row['unit']}" for side in ("longhand", "baseline"))
        lines.append([row["benchmark"], *rates, f"**{row['ratio']:.1f}**"])
    return _markdown(lines) + f"\n\n{rows[0]['hardware']}; both sides in turn, medians of one run.\n"


def _markdown(lines: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def render(text: str) -> str:
    """`text` with every block between `<!-- results NAME -->` and `<!-- end -->` filled from NAME's results."""
    blocks = {name: accuracy_table(rows) for name, rows in published_results().items()}
    if BENCHMARKS_FILE.exists():
        blocks["benchmarks"] = benchmark_table(read_results(BENCHMARKS_FILE))

    def fill(match: re.Match) -> str:
        return f"{match[1]}{blocks.get(match[2], 'No results yet.')}\n{match[3]}"

    return re.sub(r"(<!-- results (\S+) -->\n).*?(<!-- end -->)", fill, text, flags=re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if README.md would change")
    before = README.read_text(encoding="utf-8")
    after = render(before)
    if parser.parse_args().check:
        sys.exit(before != after)
    replace_file(README, after)
    last = {name: rows for name, rows in published_results().items() if not name.endswith("/best")}
    plot_comparison(last, ACCURACY_FILE, (1, 30))


if __name__ == "__main__":
    main()
