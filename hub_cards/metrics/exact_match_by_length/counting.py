"""Counts exact match by length, with intervals, and as a reward; imports numpy alone."""

# Used by: exact_match_by_length.py, hub_cards, hub_cards/evaluation, hub_cards/research/papers. Changed freely.

from typing import Any

import numpy as np

from .reading import check_counts, read_rows, read_text


def wilson_interval(right: Any, count: Any) -> tuple[Any, Any]:
    """95% intervals of the proportions `right / count`, numbers or arrays (Wilson, 1927); they also hold at 0 and 1."""
    z = 1.959964
    share = right / count
    center = share + z * z / (2 * count)
    spread = z * np.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    return np.maximum(0.0, (center - spread) / scale), np.minimum(1.0, (center + spread) / scale)


def exact_match_reward(completions: list[str | list[dict[str, str]]], reference: list[str], **_: object) -> list[float]:
    """Return 1 for each completion that is its reference, character for character, and 0 for each other one.

    It is a reward function for `GRPOTrainer` of TRL, which passes the columns of a dataset by name. Call the column
    `completion` of a dataset of longhand `reference`, since TRL keeps that name for what the model writes:

        dataset = load_task_dataset("addition", max_length=5, num_samples=1000).rename_column("completion", "reference")
        trainer = GRPOTrainer(model, reward_funcs=longhand.exact_match_reward, train_dataset=dataset, ...)

    Args:
        completions: texts, or conversations, of which the last message counts.
        reference: the right texts, as many.

    Raises:
        ValueError: they are no texts, or not equally many.
    """
    given = {"completions": completions, "reference": reference}
    texts = {
        name: [read_text(value, name, number) for number, value in enumerate(read_rows(values, name, "texts"))]
        for name, values in given.items()
    }
    check_counts(**{name: len(values) for name, values in texts.items()})
    return [float(written == right) for written, right in zip(*texts.values(), strict=True)]


def summarize(exact: np.ndarray, right: np.ndarray, counted: np.ndarray, lengths: np.ndarray) -> dict[str, object]:
    """Accuracy over sequences, in all and by length.

    Args:
        exact: (count,) whether the sequence has no wrong token.
        right: (count,) number of right tokens of the sequence.
        counted: (count,) number of tokens of the sequence that count, at least 1.
        lengths: (count,) length of the problem.

    Returns:
        `exact_match` and `token_accuracy` (0 to 1; None if there are no sequences), `count`, and `by_length`: rows of
        `length`, `count`, `exact_match`, the ends `low` and `high` of its interval, and `token_accuracy`, shortest first.
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
