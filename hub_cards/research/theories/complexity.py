"""How frequent hard sums and products are: exact probabilities (paper 2, App. C.4, Figs. 13 and 14).

The probabilities, and the shares among problems that were drawn, are written and drawn (`complexity.png`):

python -m longhand.hub_cards.research complexity

The lengths are those of cascades of carries and of dependencies. A column of a sum is of one of three kinds, by the sum of
its two digits: low (8 or less) never carries; nine carries if the column below does; high (10 or more) carries on its own.
"""

# Used by: whoever runs or imports it. Changed freely.

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from longhand.data.splits import make_generator
from longhand.data.tasks.complexity import KIND_SHARES, cascade_lengths, dependency_lengths
from longhand.hub_cards.evaluation import plots
from longhand.hub_cards.result_rows import Row
from longhand.modeling.checks import check_integer

RESULTS = Path(__file__).with_suffix(".jsonl")
FIGURES = (("cascade", 50), ("cascade", 5), ("dependency", 20), ("dependency", 5))
"""The kind of length and the digits of each distribution, in the order of Figs. 13 and 14."""

DRAWN = 1_000_000
"""Problems that each histogram is drawn from."""

COMMON = 4
"""The paper's bound: nearly all sums and products have at most this length."""


def cascade_distribution(digits: int) -> np.ndarray:
    """Probabilities of each longest cascade of the sum of two numbers uniform below 10^digits (paper 2, Fig. 13).

    Args:
        digits: of both numbers, at least 1. A thousand digits take 0.1 seconds.

    Returns:
        (digits + 1,) probabilities of 0 to `digits` columns, precise to about 12 decimal places; 0 if below the least float.

    Raises:
        ValueError: `digits` is below 1.
    """
    check_integer("digits", digits, 1)
    _, nine, high = KIND_SHARES.reshape(3, 1, 1)
    return _longest_cascade(np.ones((1, 1)), nine, high, digits)


def dependency_distribution(digits: int) -> np.ndarray:
    """Probabilities of each dependency length of a product of one digit and a number (paper 2, Fig. 14).

    The first level of columns holds the multiplier times each digit of the multiplicand. From one level to the next, every
    column keeps its ones and passes its tens to the next column (Fig. 3a). The length is the number of levels after the
    first until all columns are single digits; 0 if the multiplier times each digit is below 10.

    The multiplier is uniform in 1..9, the multiplicand uniform below 10^digits. After the first move of carries a column
    holds the ones of its own product and the tens of the product below. So the columns from the ones on form a Markov chain
    whose state is the last tens, and the remaining levels are the longest cascade in these columns.

    Args:
        digits: of the multiplicand, at least 1. A thousand digits take about a second.

    Returns:
        (digits + 1,) probabilities of 0..digits levels, within 1e-13; 0 if below the least float.

    Raises:
        ValueError: `digits` is below 1.
    """
    check_integer("digits", digits, 1)
    total = np.zeros(digits + 1)
    for multiplier in range(1, 10):
        tens, ones = np.divmod(multiplier * np.arange(10), 10)
        states = tens.max() + 1
        before = np.arange(states)[:, None]
        column = np.broadcast_to(ones, (states, 10)) + before
        every, nine, high = (
            np.stack([(chosen & (tens == after)).sum(axis=1) for after in range(states)], axis=1) / 10
            for chosen in (column >= 0, column == 9, column > 9)
        )
        cascades = _longest_cascade(every, nine, high, digits)
        # Two levels or more: a cascade. One: no cascade, yet not all products are digits. No cascade begins in the ones.
        all_digits = float((tens == 0).mean()) ** digits
        total[0] += all_digits
        total[1] += max(cascades[0] - all_digits, 0)
        total[2:] += cascades[1:-1]
    return total / 9


def _longest_cascade(every: np.ndarray, nine: np.ndarray, high: np.ndarray, digits: int) -> np.ndarray:
    """Probabilities of each longest cascade, 0 to `digits`, in a Markov chain of columns that starts in state 0.

    A cascade of at least k columns is a high column and k - 1 nines. Two of them never share a column, so the first ends at
    column n exactly if the first n - k columns hold none and the last k columns are one.

    Args:
        every, nine, high: (states, states) probabilities of the next state with a column of any kind, a nine, a high one.
    """
    reaching = [high]
    while len(reaching) < digits and (longer := reaching[-1] @ nine).any():
        reaching.append(longer)
    patterns = np.stack(reaching)
    lengths = np.arange(1, len(patterns) + 1)
    size = len(patterns) + 1
    # Probabilities (lengths, states) of no cascade that long in the first n columns, for the last few n.
    without = np.zeros((size, len(lengths), len(every)))
    without[0, :, 0] = 1
    reached = np.zeros(digits + 1)
    for place in range(1, digits + 1):
        fit = lengths[:place]
        begun = without[(place - fit) % size, fit - 1]
        first = np.einsum("ls,lst->lt", begun, patterns[: len(fit)])
        reached[: len(fit)] += first.sum(axis=1)
        without[place % size] = without[(place - 1) % size] @ every
        without[place % size, : len(fit)] -= first
    at_least = np.concatenate([[1], reached])
    below = np.ones(digits + 2)
    below[0] = 0
    below[1 : len(lengths) + 1] = without[digits % size].sum(axis=1)
    # Both differences have the same value; the difference of the smaller numbers is more precise.
    return np.maximum(np.where(at_least[:-1] > 0.5, np.diff(below), -np.diff(at_least)), 0)


def distribution_row(length: str, digits: int) -> Row:
    """Probabilities of each length from 0 on: the longest cascade of a sum, or the dependency length of a product.

    Numbers are uniform below 10^digits; products are those with a number uniform in 1..9.
    """
    distribution = (cascade_distribution if length == "cascade" else dependency_distribution)(digits)
    share = float(distribution[: COMMON + 1].sum())
    row = {"length": length, "digits": digits, f"share_up_to_{COMMON}": share, "probabilities": distribution.tolist()}
    return row | {"drawn": DRAWN, "shares": draw_shares(length, digits).tolist()}


def draw_shares(length: str, digits: int) -> np.ndarray:
    """Shares of each length among `DRAWN` problems, (digits + 1,)."""
    generator = make_generator("complexity", length, digits)
    found = np.zeros(digits + 1, dtype=np.int64)
    for _ in range(10):
        first, second = generator.integers(0, 10, size=(2, DRAWN // 10, digits), dtype=np.uint8)
        if length == "cascade":
            lengths = cascade_lengths(first, second)
        else:
            lengths = dependency_lengths(generator.integers(1, 10, size=(DRAWN // 10, 1), dtype=np.uint8), first)
        found += np.bincount(lengths, minlength=digits + 1)
    return found / found.sum()


@plots.house_style
def draw(rows: list[Row], file: Path) -> None:
    """Draw each distribution: bars for the problems that were drawn, points for the probabilities (Figs. 13 and 14)."""
    figure, panels = plots.new_figure(5, 2, 2, sharey=True)
    names = {"cascade": "longest cascade of a sum", "dependency": "dependency length of a product"}
    for row, axes in zip(rows, panels.flat, strict=True):
        shown = range(min(row["digits"], 12) + 1)
        axes.bar(shown, row["shares"][: len(shown)], color=plots.SKY, label=f"{row['drawn']:,} drawn problems")
        probabilities = row["probabilities"][: len(shown)]
        axes.plot(shown, probabilities, "o", color=plots.BLACK, markersize=3.5, label="exact probability")
        axes.set(yscale="log", ylim=(1e-8, 1.5), xticks=shown, xlabel=names[row["length"]], title=f"{row['digits']} digits")
    for axes in panels[:, 0]:
        axes.set_ylabel("share")
    panels[0, 0].legend(loc="upper right")
    plots.save_figure(figure, file)


def measure() -> Iterator[Row]:
    """Yield the distributions."""
    return itertools.starmap(distribution_row, FIGURES)
