"""The runs of a task as texts of one length: which token of which word stands at which place."""

# Used by: data/proofs/lengths, data/tasks. Bound by: verdicts of single lengths, by `BOUND` in
# data/proofs/lengths/up_to_length.py.

from typing import NamedTuple

import numpy as np

from longhand.data.machines.columns import Graph


class TextRuns(NamedTuple):
    """The texts of each length, for tasks whose problems of one length have one layout.

    A text is `$`, then operands with a sign behind each, the last one `=`, then the response and the end token. Column 0 of
    an operand is the one that the run reads first, and column 0 of the response is written first.

    Attributes:
        graph: the runs; its labels are tokens.
        operands: the words of the operands, in the order of the text.
        response: the word of the response as it is seen; in the column before the first one it holds `=`.
        following: the word that holds the right next tokens, the end token among them.
        last_first: whether an operand's last column comes first in the text.
        padding: how many columns an operand has beyond the length.
        zero_on_top: whether a problem of a length may have 0 as the last symbol of all operands.
        low: the first column, counted from a token's own, that decides the right next token; the last one is 1.
    """

    graph: Graph
    operands: tuple[int, ...]
    response: int
    following: int
    last_first: bool
    padding: int = 0
    zero_on_top: bool = True
    low: int = 0

    def place(self, word: int, column: int, length: int) -> int:
        """Where a word's column stands in the text of a length."""
        width = length + self.padding
        equals = len(self.operands) * (width + 1)
        if word == self.response:
            return equals + 1 + column
        first = 1 + self.operands.index(word) * (width + 1)
        return first + (width - 1 - column if self.last_first else column)

    def layers(self, length: int, columns: int) -> list[np.ndarray]:
        """The edges (some,) of each column, -1 to `columns`, that some problem of a length passes.

        Args:
            columns: tokens of the response, without the end token.
        """
        graph, width = self.graph, length + self.padding
        source, target, labels = graph.source, graph.target, graph.labels
        inside = (source != 0) & (target != graph.end)
        layers = [np.flatnonzero((source == 0) & (target != 0))]
        for column in range(columns):
            kept = inside & (labels[:, self.response] >= 0)
            for word in self.operands:
                kept &= (labels[:, word] >= 0) == (column < width)
            if column == length - 1 and length > 1 and not self.zero_on_top:
                kept &= (labels[:, list(self.operands)] > 0).any(axis=1)
            layers.append(np.flatnonzero(kept))
        layers.append(np.flatnonzero((source != graph.end) & (target == graph.end)))
        for place in range(1, len(layers)):
            layers[place] = layers[place][np.isin(source[layers[place]], target[layers[place - 1]])]
        for place in range(len(layers) - 2, -1, -1):
            layers[place] = layers[place][np.isin(target[layers[place]], source[layers[place + 1]])]
        return layers
