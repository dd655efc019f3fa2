"""Exact match of token sequences by the length of the problem, for `evaluate.load`; imports nothing from its package."""

from itertools import chain

import datasets
import evaluate
import numpy as np

from .counting import spell, summarize

IGNORED = -100
"""Reference tokens with this id do not count."""

_NOT_GIVEN = -(2**63)
"""The length of a problem whose length is not given."""

_DESCRIPTION = """
The share of sequences that are predicted without a single wrong token, in all and by the length of the
problem, with 95% intervals (Wilson, 1927). The predictions may come from correct prefixes, in one forward pass: they have
no wrong token exactly if greedy decoding has none.
"""

_INPUTS_DESCRIPTION = """
Args:
    predictions (`list` of `list` of `int`, or of `str`): predicted token ids of each sequence, or its text.
    references (`list` of `list` of `int`, or of `str`): right token ids, each list as long as its prediction, where -100
        does not count; or the right texts. The tokens of a text are its characters; those that only one text has are wrong.
    lengths (`list` of `int`, optional): length of each problem, such as the digits of its operands; by default the number of
        tokens of its reference that count.

Returns:
    `dict` of `exact_match` and `token_accuracy` (0 to 1; `None` if there are no sequences), the number `count` of
    sequences, and `by_length`: a `dict` of `length`, `count`, `exact_match`, `low`, `high` and `token_accuracy` for every
    length, shortest first; `low` and `high` are the ends of the interval of `exact_match`.

Raises:
    ValueError: a sequence is not as long as its prediction, or has no token that counts; an id or a length is no integer,
        or a length is below 0; only predictions or only references are texts.

Examples:

    >>> metric = evaluate.load("exact_match_by_length")
    >>> results = metric.compute(
    ...     predictions=[[4, 1, 1], [0, 7, 0]], references=[[-100, 1, 1], [0, 7, 1]], lengths=[2, 3]
    ... )
    >>> results["exact_match"], results["token_accuracy"]
    (0.5, 0.8)
"""


def _spelled(prediction: object, reference: object, length: int) -> tuple[list[int], list[int], int]:
    """Two texts as ids of characters, and the length of the problem.

    Raises:
        ValueError: one of them is no text.
    """
    if not isinstance(prediction, str) or not isinstance(reference, str):
        raise ValueError(
            f"predictions and references must both be texts or both be ids, got {prediction!r} and {reference!r}"
        )
    return *spell(prediction, reference), len(reference) if length == _NOT_GIVEN else length


class ExactMatchByLength(evaluate.Metric):
    """The metric that `_DESCRIPTION` and `_INPUTS_DESCRIPTION` describe; a loaded metric shows them."""

    def _info(self):
        # Arrow would cut 1.9 to the integer 1 in silence.
        length = datasets.Value("float64")
        tokens = datasets.Sequence(length)
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation="",
            inputs_description=_INPUTS_DESCRIPTION,
            features=datasets.Features({"predictions": tokens, "references": tokens, "lengths": length}),
        )

    def compute(self, *, predictions=None, references=None, lengths=None, **options):
        """The results of these sequences, or of all that were added."""
        if references is not None and lengths is None:
            lengths = [_NOT_GIVEN] * len(references)
        return super().compute(predictions=predictions, references=references, lengths=lengths, **options)

    def add_batch(self, *, predictions=None, references=None, lengths=None):
        """Add sequences, whose lengths may be left out."""
        lengths = [_NOT_GIVEN] * len(references) if lengths is None else lengths
        if any(isinstance(one, str) for one in (*predictions, *references)):
            rows = [_spelled(*row) for row in zip(predictions, references, lengths, strict=True)]
            predictions, references, lengths = map(list, zip(*rows, strict=True))
        super().add_batch(predictions=predictions, references=references, lengths=lengths)

    def add(self, **example):
        """Add one sequence, whose length may be left out."""
        example = {"lengths": _NOT_GIVEN} | example
        names = ("prediction", "reference", "lengths")
        if any(isinstance(example.get(name), str) for name in names):
            example = dict(zip(names, _spelled(*map(example.get, names)), strict=True))
        super().add(**example)

    def _compute(self, predictions, references, lengths) -> dict[str, object]:
        sizes, predicted_sizes = (np.fromiter(map(len, rows), np.int64) for rows in (references, predictions))
        if (different := np.flatnonzero(sizes != predicted_sizes)).size:
            row = different[0]
            raise ValueError(
                f"references and predictions must be equally long, got {sizes[row]} and {predicted_sizes[row]} tokens in "
                f"sequence {row}"
            )
        predicted, right = (np.fromiter(chain.from_iterable(rows), np.float64) for rows in (predictions, references))
        row = np.repeat(np.arange(len(sizes)), sizes)
        counted = right != IGNORED
        tokens = np.bincount(row[counted], minlength=len(sizes))
        if (nothing := np.flatnonzero(tokens == 0)).size:
            raise ValueError(f"references must have tokens that count (not {IGNORED}), got none in sequence {nothing[0]}")
        wrong = np.bincount(row[counted & (predicted != right)], minlength=len(sizes))
        lengths = np.where(np.equal(lengths, _NOT_GIVEN), tokens, lengths)
        if (np.concatenate([predicted, right, lengths]) % 1).any() or (lengths < 0).any():
            raise ValueError("predictions, references and lengths must be integers, and lengths must be at least 0")
        return summarize(wrong == 0, tokens - wrong, tokens, lengths.astype(np.int64))
