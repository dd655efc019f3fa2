"""The most sums that one layer without positions can get right, for 1 to 5 digits, into ceiling.jsonl (paper 1, Prop. 5.2).

python -m longhand.hub_cards.research nope_ceiling
"""

from pathlib import Path

from longhand.hub_cards.evaluation.results import Row, write_results
from longhand.hub_cards.research.nope_ceiling.ceiling import MAX_DIGITS, nope_ceiling

RESULTS = Path(__file__).with_name("ceiling.jsonl")


def ceiling_row(digits: int) -> Row:
    """Return the ceiling as a row of the results; `right` and `num_pairs` are exact."""
    right, pairs = nope_ceiling(digits)
    return {"model": "ceiling", "length": digits, "right": right, "num_pairs": pairs, "exact_match": right / pairs}


def run() -> None:
    """Compute and write the ceilings."""
    write_results([ceiling_row(digits) for digits in range(1, MAX_DIGITS + 1)], RESULTS)
