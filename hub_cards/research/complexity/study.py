"""How frequent hard sums and products are, as exact probabilities in distributions.jsonl (paper 2, Figs. 13 and 14).

python -m longhand.hub_cards.research complexity
"""

from pathlib import Path

from longhand.hub_cards.evaluation.results import Row, write_results
from longhand.hub_cards.research.complexity.distributions import cascade_distribution, dependency_distribution

RESULTS = Path(__file__).with_name("distributions.jsonl")
FIGURES = (("cascade", 50), ("cascade", 5), ("dependency", 20), ("dependency", 5))
"""The kind of length and the digits of each distribution, in the order of Figs. 13 and 14."""

COMMON = 4
"""The paper's bound: nearly all sums and products have at most this length."""


def distribution_row(length: str, digits: int) -> Row:
    """Probabilities of each length from 0 on: the longest cascade of a sum, or the dependency length of a product.

    Numbers are uniform below 10^digits; products are those with a number uniform in 1..9.
    """
    distribution = (cascade_distribution if length == "cascade" else dependency_distribution)(digits)
    share = float(distribution[: COMMON + 1].sum())
    return {"length": length, "digits": digits, f"share_up_to_{COMMON}": share, "probabilities": distribution.tolist()}


def run() -> None:
    """Compute and write the distributions."""
    write_results([distribution_row(*figure) for figure in FIGURES], RESULTS)
