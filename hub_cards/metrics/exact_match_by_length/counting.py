"""What exact match by length is counted from, with its intervals; imports numpy alone."""

from typing import Any

import numpy as np


def wilson_interval(right: np.ndarray | float, count: np.ndarray | int) -> tuple[np.ndarray, np.ndarray]:
    """95% intervals of the proportions `right / count` (Wilson, 1927); sound at 0 and 1 too."""
    z = 1.959964
    share = right / count
    center = share + z * z / (2 * count)
    spread = z * np.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    return np.maximum(0.0, (center - spread) / scale), np.minimum(1.0, (center + spread) / scale)


def summarize(exact: np.ndarray, right: np.ndarray, counted: np.ndarray, lengths: np.ndarray) -> dict[str, Any]:
    """Accuracy over sequences, in all and by length.

    Args:
        exact: whether a sequence has no wrong token, (count,).
        right: its right tokens, (count,).
        counted: its tokens that count, (count,), at least 1 each.
        lengths: of its problem, (count,).

    Returns:
        `exact_match` and `token_accuracy` (0 to 1, None without sequences), `count`, and `by_length`: rows of `length`,
        `count`, `exact_match`, its interval's ends `low` and `high`, and `token_accuracy`, shortest first.
    """
    if len(exact) == 0:
        return {"exact_match": None, "token_accuracy": None, "count": 0, "by_length": []}
    names, place = np.unique(lengths, return_inverse=True)
    count, exact_of, right_of, counted_of = (np.bincount(place, weights) for weights in (None, exact, right, counted))
    low, high = wilson_interval(exact_of, count)
    columns = {
        "length": names,
        "count": count,
        "exact_match": exact_of / count,
        "low": low,
        "high": high,
        "token_accuracy": right_of / counted_of,
    }
    by_length = zip(*(column.tolist() for column in columns.values()), strict=True)
    return {
        "exact_match": float(exact_of.sum() / len(exact)),
        "token_accuracy": float(right_of.sum() / counted_of.sum()),
        "count": len(exact),
        "by_length": [dict(zip(columns, values, strict=True)) for values in by_length],
    }
