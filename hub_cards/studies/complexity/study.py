"""How frequent hard sums and products are, as exact probabilities (paper 2, App. C.4, Figs. 13 and 14).

The study writes distributions.jsonl and, from it, distributions.png, and prints a table:

python -m longhand.hub_cards.studies complexity
"""

import argparse
from pathlib import Path

from longhand.hub_cards.reports.plots import BLUE, ORANGE, house_style, new_figure, save_figure
from longhand.hub_cards.runs.results import Row, read_results, write_results
from longhand.hub_cards.studies.complexity.distributions import cascade_distribution, dependency_distribution

RESULTS = Path(__file__).with_name("distributions.jsonl")
FIGURE = RESULTS.with_suffix(".png")
PANELS = (("cascade", 50), ("cascade", 5), ("dependency", 20), ("dependency", 5))
"""The kind of length and the digits of each distribution, in the order of Figs. 13 and 14."""

COMMON = 4
"""The paper's bound: nearly all sums and products have at most this length."""

_TITLES = {"cascade": "longest cascade, sums of {} digits", "dependency": "dependency length, 1 x {} digits"}
_LONGEST_SHOWN = 10


def distribution_row(length: str, digits: int) -> Row:
    """Probabilities of each length from 0 on: the longest cascade of a sum, or the dependency length of a product.

    Numbers are uniform below 10^digits; products are those with a number uniform in 1..9.
    """
    distribution = (cascade_distribution if length == "cascade" else dependency_distribution)(digits)
    return {
        "length": length,
        "digits": digits,
        f"share_up_to_{COMMON}": float(distribution[: COMMON + 1].sum()),
        "probabilities": distribution.tolist(),
    }


@house_style
def plot_distributions(rows: list[Row], file: Path) -> None:
    """Draw bars of the probabilities on a logarithmic axis, a panel for each row."""
    figure, panels = new_figure(5.2, len(rows) // 2, 2, sharex=True, sharey=True)
    for axes, row in zip(panels.flat, rows, strict=True):
        probabilities = row["probabilities"][: _LONGEST_SHOWN + 1]
        colours = [BLUE if length <= COMMON else ORANGE for length in range(len(probabilities))]
        axes.bar(range(len(probabilities)), probabilities, color=colours)
        axes.set(yscale="log", ylim=(1e-10, 2), title=_TITLES[row["length"]].format(row["digits"]))
        axes.set_xticks(range(_LONGEST_SHOWN + 1))
        note = f"up to {COMMON}: {row[f'share_up_to_{COMMON}']:.5f}"
        axes.text(0.98, 0.97, note, transform=axes.transAxes, ha="right", va="top", color=BLUE)
    figure.supxlabel("length", fontsize=10)
    figure.supylabel("probability", fontsize=10)
    save_figure(figure, file)


def format_rows(rows: list[Row]) -> str:
    """A table with a line for each length and a column for each row; the last line is the share of the common lengths."""
    names = [f"{row['length']}, {row['digits']} digits" for row in rows]
    width = max(map(len, names))
    lines = ["  ".join(["length ", *(f"{name:>{width}}" for name in names)])]
    for length in range(_LONGEST_SHOWN + 1):
        cells = [row["probabilities"][length] if length <= row["digits"] else None for row in rows]
        lines.append("  ".join([f"{length:<7}", *(" " * width if cell is None else f"{cell:{width}.3e}" for cell in cells)]))
    shares = (f"{row[f'share_up_to_{COMMON}']:{width}.6f}" for row in rows)
    lines.append("  ".join([f"up to {COMMON}", *shares]))
    return "\n".join(line.rstrip() for line in lines)


def main(arguments: list[str] | None = None) -> None:
    """Run the study."""
    parser = argparse.ArgumentParser(
        prog="python -m longhand.hub_cards.studies complexity",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args(arguments)
    write_results([distribution_row(*panel) for panel in PANELS], RESULTS)
    rows = read_results(RESULTS)
    plot_distributions(rows, FIGURE)
    print(f"{format_rows(rows)}\n\nwrote {RESULTS} and {FIGURE}")


if __name__ == "__main__":
    main()
