"""How frequent hard sums and products are, as exact probabilities (paper 2, App. C.4, Figs. 13 and 14).

The study writes distributions.jsonl and, from it, distributions.png, and prints a table:

python -m longhand.hub_cards.research complexity
"""

import argparse
from pathlib import Path

from longhand.hub_cards.evaluation.plots import BLUE, ORANGE, house_style, new_figure, save_figure
from longhand.hub_cards.evaluation.results import Row
from longhand.hub_cards.research.complexity.distributions import cascade_distribution, dependency_distribution
from longhand.hub_cards.research.overview import write_and_draw
from longhand.hub_cards.research.tables import complexity_table

RESULTS = Path(__file__).with_name("distributions.jsonl")
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


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the study has no options."""


def run() -> None:
    """Compute the distributions; write, draw and print them."""
    write_and_draw([distribution_row(*panel) for panel in PANELS], RESULTS, plot_distributions, complexity_table)
