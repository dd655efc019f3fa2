"""The most sums that one layer without positions can get right, for 1 to 5 digits, into ceiling.jsonl (paper 1, Prop. 5.2).

python -m longhand.hub_cards.research nope_ceiling
"""

import argparse
from pathlib import Path

from longhand.hub_cards.evaluation.results import Row, write_results
from longhand.hub_cards.research.nope_ceiling.ceiling import MAX_DIGITS, nope_ceiling
from longhand.hub_cards.research.tables import filled_table

RESULTS = Path(__file__).with_name("ceiling.jsonl")


def ceiling_row(digits: int) -> Row:
    """Return the ceiling as a row of the results; `right` and `num_pairs` are exact."""
    right, pairs = nope_ceiling(digits)
    return {"model": "ceiling", "length": digits, "right": right, "num_pairs": pairs, "exact_match": right / pairs}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the study has no options."""


def run() -> None:
    """Compute the ceilings; write and print them."""
    write_results(rows := [ceiling_row(digits) for digits in range(1, MAX_DIGITS + 1)], RESULTS)
    print(f"{filled_table('nope-ceiling', rows)}\nwrote {RESULTS}")
