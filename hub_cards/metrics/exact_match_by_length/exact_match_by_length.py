"""Exact match of token sequences by the length of the problem, for `evaluate.load`; imports nothing from its package."""

# Used by: whoever runs or imports it. Changed freely.

from itertools import chain

import datasets
import evaluate
import numpy as np

from .counting import summarize
from .reading import IGNORED, check_counts, read_rows, read_sequence, read_whole_numbers

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
    ValueError: predictions, references and lengths are not equally many; a sequence is not as long as its prediction, or has
        no token that counts; an id or a length is no integer, or a length is below 0; only one of a prediction and its
        reference is a text, or a text stands among ids; one text, or one sequence, stands in place of a list of them.

Examples:

    >>> metric = evaluate.load("exact_match_by_length")
    >>> results = metric.compute(
    ...     predictions=[[4, 1, 1], [0, 7, 0]], references=[[-100, 1, 1], [0, 7, 1]], lengths=[2, 3]
    ... )
    >>> results["exact_match"], results["token_accuracy"]
    (0.5, 0.8)
"""


class ExactMatchByLength(evaluate.Metric):
    """The metric that `_DESCRIPTION` and `_INPUTS_DESCRIPTION` describe; a loaded metric shows them."""

    def _info(self):
        number = datasets.Value("int64")
        tokens = datasets.Sequence(number)
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation="",
            inputs_description=_INPUTS_DESCRIPTION,
            features=datasets.Features({"predictions": tokens, "references": tokens, "lengths": number}),
        )

    def compute(self, *, predictions=None, references=None, lengths=None, **options):
        """The results of these sequences and of all that were added."""
        return super().compute(predictions=predictions, references=references, lengths=lengths, **options)

    def add_batch(self, *, predictions=None, references=None, lengths=None):
        """Add sequences, whose lengths may be left out. Whatever is refused, nothing of the batch is added."""
        rows = "texts, or of lists of token ids"
        predictions, references = read_rows(predictions, "predictions", rows), read_rows(references, "references", rows)
        check_counts(predictions=len(predictions), references=len(references))
        read = [read_sequence(*pair, number) for number, pair in enumerate(zip(predictions, references, strict=True))]
        if lengths is None:
            # Of a text, what counts is the reference, and not what is written beyond it.
            sizes = [
                len(reference) if isinstance(reference, str) else row[2]
                for reference, row in zip(references, read, strict=True)
            ]
        else:
            sizes = read_whole_numbers(lengths, "lengths", 1).tolist()
            check_counts(references=len(references), lengths=len(sizes))
            if negative := [size for size in sizes if size < 0]:
                raise ValueError(f"lengths must be at least 0, got {negative[0]}")
        super().add_batch(predictions=[row[0] for row in read], references=[row[1] for row in read], lengths=sizes)

    def add(self, *, prediction=None, reference=None, lengths=None):
        """Add one sequence, whose length may be left out."""
        self.add_batch(predictions=[prediction], references=[reference], lengths=None if lengths is None else [lengths])

    def _compute(self, predictions, references, lengths) -> dict[str, object]:
        sizes = np.fromiter(map(len, references), np.int64)
        predicted, right = (np.fromiter(chain.from_iterable(rows), np.int64) for rows in (predictions, references))
        row = np.repeat(np.arange(len(sizes)), sizes)
        counted = right != IGNORED
        tokens = np.bincount(row[counted], minlength=len(sizes))
        wrong = np.bincount(row[counted & (predicted != right)], minlength=len(sizes))
        return summarize(wrong == 0, tokens - wrong, tokens, np.array(lengths, np.int64))
