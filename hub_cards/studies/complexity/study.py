"""How frequent hard sums and products are (paper 2, App. C.4, Figs. 13 and 14), exactly.

Writes distributions.jsonl and, from it, distributions.png, and prints a table:

python -m longhand.hub_cards.studies complexity
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from longhand.hub_cards.reports.plots import save_figure
from longhand.hub_cards.reports.results import Row, read_results, write_results
from longhand.hub_cards.studies.complexity.distributions import cascade_distribution, dependency_distribution

RESULTS = Path(__file__).with_name("distributions.jsonl")
FIGURE = RESULTS.with_suffix(".png")
PANELS = (("cascade", 50), ("cascade", 5), ("dependency", 20), ("dependency", 5))
"""Length and digits of each distribution, in the order of Figs. 13 and 14."""

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


def plot_distributions(rows: list[Row], file: Path) -> None:
    """Bars of the probabilities on a logarithmic axis, a panel for each row, two in a line."""
    figure, panels = plt.subplots(
        (len(rows) + 1) // 2, 2, figsize=(9, 6), sharex=True, sharey=True, squeeze=False, layout="constrained"
    )
    for axes, row in zip(panels.flat, rows, strict=False):
        probabilities = row["probabilities"][: _LONGEST_SHOWN + 1]
        shares = ["tab:blue" if length <= COMMON else "tab:orange" for length in range(len(probabilities))]
        axes.bar(range(len(probabilities)), probabilities, color=shares)
        axes.set(yscale="log", ylim=(1e-10, 2), title=_TITLES[row["length"]].format(row["digits"]))
        axes.text(0.97, 0.93, f"up to {COMMON}: {row[f'share_up_to_{COMMON}']:.5f}", transform=axes.transAxes, ha="right")
        axes.set_xticks(range(_LONGEST_SHOWN + 1))
    figure.supxlabel("length")
    figure.supylabel("probability")
    save_figure(figure, file)


def format_rows(rows: list[Row]) -> str:
    """A line for each length, a column for each row, and the share of the common lengths."""
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
    """Console entry."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args(arguments)
    write_results([distribution_row(*panel) for panel in PANELS], RESULTS)
    rows = read_results(RESULTS)
    plot_distributions(rows, FIGURE)
    print(f"{format_rows(rows)}\n\nwrote {RESULTS} and {FIGURE}")


if __name__ == "__main__":
    main()
