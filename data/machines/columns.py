"""The columns of a sequential machine, and the graph of its runs.

A run is a path in a graph. Its vertices are states, and an edge reads and writes one column: the symbols of the operands and
what each pass writes. Before the first column and after the last one the path waits at a vertex with an empty loop. Vertices
that no run passes are removed. So every path of w edges is w columns of some run, and every w columns of a run are such a
path: a list of all such paths holds each window of w columns that occurs, and no other (`sights.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

MOST_NEIGHBOURHOODS = 5_000_000
"""A search that finds more is refused, and so is a check of more neighbourhoods or cases."""

ABSENT = -1
"""The label of an edge where there is no column."""

MARKER = -2
"""The label of an edge in the column before the first one, where signs stand and the token that begins a pass."""


HERE, NEXT = 0, 1
"""Columns of a window: the token's own column, and the one after it in the direction of reading."""


class TooMany(ValueError):
    """There are more neighbourhoods than a search may find."""


@dataclass(frozen=True, eq=False)
class Graph:
    """The runs of a transducer as paths from vertex 0, whose loop is edge 0, to `end`, whose loop is edge 1.

    Attributes:
        source, target: (edges,) vertices.
        labels: (edges, words) what stands in the column in each word: an operand, or what a pass writes.
        end: the vertex in which every run ends.
    """

    source: np.ndarray
    target: np.ndarray
    labels: np.ndarray
    end: int

    def trimmed(self) -> "Graph":
        """Only the edges that some run from vertex 0 to `end` passes."""
        kept = self.reached(0, self.source, self.target) & self.reached(self.end, self.target, self.source)
        return Graph(self.source[kept], self.target[kept], self.labels[kept], self.end)

    def reached(self, first: int, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """(edges,) whether an edge begins where a path from the vertex `first` can be."""
        known = np.zeros(int(max(self.source.max(), self.target.max(), self.end)) + 1, dtype=bool)
        known[first], count = True, 0
        while (now := int(known.sum())) > count:
            count = now
            known[target[known[source]]] = True
        return known[source]

    def shortest(self, backward: bool) -> np.ndarray:
        """(vertices,) the last edge of a shortest path from vertex 0, or the first of one to `end`; -1 if there is none."""
        source, target = (self.target, self.source) if backward else (self.source, self.target)
        edge = np.full(int(max(self.source.max(), self.target.max())) + 1, -1)
        done = np.zeros(len(edge), dtype=bool)
        done[self.end if backward else 0] = True
        while True:
            found = np.flatnonzero(done[source] & ~done[target])
            if not len(found):
                return edge
            edge[target[found]] = found
            done[target[found]] = True

    def distances(self, backward: bool) -> np.ndarray:
        """(vertices,) edges of a shortest path from vertex 0, or of one to `end`; the graph must be a trimmed one."""
        source, target = (self.target, self.source) if backward else (self.source, self.target)
        distances = np.full(int(max(self.source.max(), self.target.max())) + 1, -1)
        distances[self.end if backward else 0] = 0
        steps = 0
        while True:
            found = np.flatnonzero((distances[source] == steps) & (distances[target] < 0))
            if not len(found):
                return distances
            steps += 1
            distances[target[found]] = steps

    def problems(self, paths: np.ndarray, operands: int, ones_first: bool = True) -> list[tuple[np.ndarray, np.ndarray]]:
        """The shortest problems whose runs hold paths (count, w): digits (count, operands, width) and lengths, by width.

        The first words of the labels are the operands.
        """
        parts = [*paths.T]
        for edges, backward in ((self.shortest(False), False), (self.shortest(True), True)):
            vertex = self.target[paths[:, -1]] if backward else self.source[paths[:, 0]]
            while (more := edges[vertex] >= 0).any():
                edge = np.where(more, edges[vertex], -1)
                parts = [*parts, edge] if backward else [edge, *parts]
                vertex = np.where(more, (self.target if backward else self.source)[edge], vertex)
        run = np.stack(parts, axis=1)
        labels = self.labels[run][:, :, :operands]
        real = (run >= 0) & (self.source[run] != 0) & (self.target[run] != self.end)
        real &= (labels >= 0).any(axis=2)
        widths, found = real.sum(axis=1), []
        for width in np.unique(widths[widths > 0]):
            rows = widths == width
            columns = labels[rows][real[rows]].reshape(-1, width, operands).transpose(0, 2, 1)
            columns = columns if ones_first else columns[:, :, ::-1]
            found.append((np.maximum(columns, 0).astype(np.uint8), (columns >= 0).sum(axis=2)))
        return found


class Columns(NamedTuple):
    """The tokens that may stand in the columns of a problem, one after the other: a sequential transducer and its format.

    Labels are (words,) numbers: what stands in a column in each word, `ABSENT` if nothing does.

    Attributes:
        starts: from each state before the first column, hashable, to the labels of the column before the first one.
        symbols: what operands can hold in a column.
        step: from a state and a symbol to the labels of the column and the next state; None if there is no such column.
        ends: from a state behind a column to the labels of the column behind the last one; None if no run ends there.
    """

    starts: Mapping[Any, tuple[int, ...]]
    symbols: Sequence[Any]
    step: Callable[[Any, Any], tuple[tuple[int, ...], Any] | None]
    ends: Callable[[Any], tuple[int, ...] | None]

    @property
    def graph(self) -> Graph:
        """The runs, of at least one column, that can end. Cost is linear in states x symbols.

        Raises:
            TooMany: there are more edges than `MOST_NEIGHBOURHOODS`.
        """
        # A start is told from the same state behind a column.
        states = [(state, True) for state in self.starts]
        numbers = {state: place for place, state in enumerate(states, 1)}
        edges = [(0, number, labels) for number, labels in enumerate(self.starts.values(), 1)]
        for number, (state, is_start) in enumerate(states, 1):
            for symbol in self.symbols:
                if (entry := self.step(state, symbol)) is None:
                    continue
                labels, following = entry[0], (entry[1], False)
                if following not in numbers:
                    states.append(following)
                edges.append((number, numbers.setdefault(following, len(states)), labels))
            if not is_start and (last := self.ends(state)) is not None:
                edges.append((number, -1, last))
            if len(edges) > MOST_NEIGHBOURHOODS:
                raise TooMany(f"there are more than {MOST_NEIGHBOURHOODS:,} pairs of a state and a column")
        end, waits = len(states) + 1, (ABSENT,) * len(edges[0][2])
        source, target, labels = zip((0, 0, waits), (end, -1, waits), *edges, strict=True)
        goes_to = np.array(target)
        return Graph(np.array(source), np.where(goes_to < 0, end, goes_to), np.array(labels), end).trimmed()


class Number(IntEnum):
    """How far a number is read, digit by digit, the ones first."""

    BEFORE = 0
    """Nothing: the ones come next."""

    ZERO = 1
    """A 0 alone, which is the number 0, or the ones of another number."""

    ZERO_ON_TOP = 2
    """Several digits, the last one a 0: another digit must follow."""

    DIGIT = 3
    """Some digits, the last one no 0."""

    ENDED = 4
    """All of it."""


ENDING = (Number.ZERO, Number.DIGIT, Number.ENDED)
"""States of a number behind which no digit need follow: only the number 0 has a 0 on top."""


def grow(number: Number | None, digit: int) -> Number | None:
    """Read one more column of a number.

    Args:
        number: how far the number has been read; None if no number is so.
        digit: `ABSENT` if the column is above the number.

    Returns:
        How far the number has been read then; None if no number is so.
    """
    if digit == ABSENT:
        return Number.ENDED if number in ENDING else None
    if number is None or number == Number.ENDED:
        return None
    if digit != 0:
        return Number.DIGIT
    if number == Number.BEFORE:
        return Number.ZERO
    return Number.ZERO_ON_TOP
