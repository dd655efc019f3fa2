"""Exact match of token sequences by the length of the problem, for `evaluate.load`; imports nothing of its package."""

from itertools import chain
from typing import Any

import datasets
import evaluate
import numpy as np

from .counting import summarize

IGNORED = -100
"""A reference token of this id does not count."""

_DESCRIPTION = """
How many sequences are predicted without a single wrong token, in all and by the length of the problem, each share with its
95% interval (Wilson, 1927). What a model predicts from correct prefixes, in one forward pass, is without a wrong token
exactly where greedy decoding is.
"""

_INPUTS_DESCRIPTION = """
Args:
    predictions (`list` of `list` of `int`): predicted token ids of each sequence.
    references (`list` of `list` of `int`): right token ids, each sequence as long as its prediction; -100 does not count.
    lengths (`list` of `int`): length of each problem, such as the digits of its operands.

Returns:
    `dict` of `exact_match` and `token_accuracy` (0 to 1, `None` without sequences), the number of sequences `count`, and
    `by_length`: a `dict` of `length`, `count`, `exact_match`, `low`, `high` and `token_accuracy` for every length, shortest
    first; `low` and `high` are the ends of the interval of `exact_match`.

Raises:
    ValueError: a sequence is not as long as its prediction, or has no token that counts.

Examples:

    >>> metric = evaluate.load("exact_match_by_length")
    >>> results = metric.compute(
    ...     predictions=[[4, 1, 1], [0, 7, 0]], references=[[-100, 1, 1], [0, 7, 1]], lengths=[2, 3]
    ... )
    >>> results["exact_match"], results["token_accuracy"]
    (0.5, 0.8)
"""


class ExactMatchByLength(evaluate.Metric):
    """See `_DESCRIPTION` and `_INPUTS_DESCRIPTION`, which a loaded metric shows."""

    def _info(self):
        tokens = datasets.Sequence(datasets.Value("int64"))
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation="",
            inputs_description=_INPUTS_DESCRIPTION,
            features=datasets.Features({"predictions": tokens, "references": tokens, "lengths": datasets.Value("int64")}),
        )

    def _compute(self, predictions, references, lengths) -> dict[str, Any]:
        sizes, predicted_sizes = (np.fromiter(map(len, rows), np.int64) for rows in (references, predictions))
        if (different := np.flatnonzero(sizes != predicted_sizes)).size:
            row = different[0]
            raise ValueError(
                f"references and predictions must be equally long, got {sizes[row]} and {predicted_sizes[row]} tokens in "
                f"sequence {row}"
            )
        predicted, right = (np.fromiter(chain.from_iterable(rows), np.int64) for rows in (predictions, references))
        row = np.repeat(np.arange(len(sizes)), sizes)
        counted = right != IGNORED
        tokens = np.bincount(row[counted], minlength=len(sizes))
        if (nothing := np.flatnonzero(tokens == 0)).size:
            raise ValueError(f"references must have tokens that count (not {IGNORED}), got none in sequence {nothing[0]}")
        wrong = np.bincount(row[counted & (predicted != right)], minlength=len(sizes))
        return summarize(wrong == 0, tokens - wrong, tokens, np.asarray(lengths))
