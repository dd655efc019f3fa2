"""The columns of a sequential machine with the position ids of their tokens, and the graph of its runs.

A run is a path in a graph. Its vertices are states, and an edge reads and writes one column: the symbols of the operands and
what each pass writes. Before the first column and after the last one the path waits at a vertex with an empty loop. Vertices
that no run passes are removed. So every path of w edges is w columns of some run, and every w columns of a run are such a
path: a list of all such paths holds each window of w columns that occurs, and no other (`sights.py`).
"""

# Used by: data/machines, data/proofs, data/tasks. Changed freely.

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

MOST_NEIGHBOURHOODS = 5_000_000
"""A search that finds more is refused, and so is a check of more neighbourhoods or cases."""

MOST_PATHS = 8 * MOST_NEIGHBOURHOODS
"""A search that has to look at more is refused: many paths show one neighbourhood."""

ABSENT = -1
"""The label of an edge where there is no column."""

MARKER = -2
"""The label of an edge in the column before the first one, where signs stand and the token that begins a pass."""


HERE, NEXT = 0, 1
"""Columns of a window: the token's own column, and the one after it in the direction of reading."""


class TooMany(ValueError):
    """There are more neighbourhoods than a search may find."""


Ids = Callable[[int], tuple[int, ...]]
"""From a column to the position ids of the token there, one for each level; 0 where it has none."""

ANY_COLUMN = 1_000
"""The id in column 0, far from that of any other column of a window."""


def by_column(sign: int, *row: int) -> Ids:
    """Ids that grow with the column (`sign` 1), or fall (-1), and those of the row, the same in every column."""
    return lambda column: (ANY_COLUMN + sign * column, *row)


def one_token(*ids: int) -> Ids:
    """The ids of a token that has no column; every column sees it in the same way."""
    return lambda column: ids


class TextLayout(NamedTuple):
    """How problems of one length are written, for tasks that write all of them alike.

    Attributes:
        last_first: whether an operand's last column comes first in the text.
        padding: how many columns an operand has beyond the length.
        zero_on_top: whether a problem of a length may have 0 as the last symbol of all operands.
    """

    last_first: bool
    padding: int = 0
    zero_on_top: bool = True


class Rows(NamedTuple):
    """Where the tokens of a problem stand: the operands and what each pass writes, one row below the other.

    A coupling rule draws the same ids from a text. From the ids follow what a token sees, and in which relations
    (`sights_of`).

    Attributes:
        ids: of each row, in the order of the text. A row whose ids are the same everywhere is one token. A token that begins
            a row stands in column -1.
        passes: how many rows, the last ones, are written.
        backward: of these, the rows that are written from the last column to the first.
        practised: the words that hold the operands of a problem, ones first or last as `Practised.ones_come_first` says;
            none if neighbourhoods are practised by themselves.
        layout: how problems of one length are written; None if that differs from problem to problem.
    """

    ids: Sequence[Ids]
    passes: int = 1
    backward: Collection[int] = ()
    practised: Sequence[int] = ()
    layout: TextLayout | None = None

    @property
    def written(self) -> range:
        """The rows that are written."""
        return range(len(self.ids) - self.passes, len(self.ids))


@dataclass(frozen=True, eq=False)
class Graph:
    """The runs of a transducer as paths from vertex 0, whose loop is edge 0, to `end`, whose loop is edge 1.

    Attributes:
        source, target: (edges,) vertices.
        labels: (edges, words) what stands in the column in each word, see `Columns`.
        end: the vertex in which every run ends.
        rows: where the tokens stand.
    """

    source: np.ndarray
    target: np.ndarray
    labels: np.ndarray
    end: int
    rows: Rows

    def trimmed(self) -> "Graph":
        """Only the edges that some run from vertex 0 to `end` passes."""
        kept = self.reached(0, self.source, self.target) & self.reached(self.end, self.target, self.source)
        return replace(self, source=self.source[kept], target=self.target[kept], labels=self.labels[kept])

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

    def problems(self, paths: np.ndarray, ones_first: bool = True) -> list[tuple[np.ndarray, np.ndarray]]:
        """The shortest problems whose runs hold paths (count, w): digits (count, operands, width) and lengths, by width.

        The operands are the words that `Rows.practised` names.
        """
        operands = len(self.rows.practised)
        parts = [*paths.T]
        for edges, backward in ((self.shortest(False), False), (self.shortest(True), True)):
            vertex = self.target[paths[:, -1]] if backward else self.source[paths[:, 0]]
            while (more := edges[vertex] >= 0).any():
                edge = np.where(more, edges[vertex], -1)
                parts = [*parts, edge] if backward else [edge, *parts]
                vertex = np.where(more, (self.target if backward else self.source)[edge], vertex)
        run = np.stack(parts, axis=1)
        labels = self.labels[run][:, :, list(self.rows.practised)]
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
    """A task as columns with ids: which tokens stand in the columns of a problem, one column after the other, and where.

    Labels are (words,) numbers: what stands in a column in each word, `ABSENT` if nothing does. The first words are rows, as
    tokens see them. The next ones are what each pass writes, where that differs from its row: behind its last column
    stands the token that comes next, which is not in the row. Without them, the last rows are what passes write. Any further
    words are what no token sees.

    Attributes:
        rows: where the tokens stand.
        starts: from each state before the first column, hashable, to the labels of the column before the first one.
        symbols: what operands can hold in a column.
        step: from a state and a symbol to the labels of the column and the next state; None if there is no such column.
        ends: from a state behind a column to the labels of the column behind the last one; None if no run ends there.
    """

    rows: Rows
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
        end, waits = len(states) + 1, (ABSENT,) * len(self._with_written(edges[0][2]))
        source, target, words = zip((0, 0, waits), (end, -1, waits), *edges, strict=True)
        goes_to, table = np.array(target), np.array([self._with_written(word) for word in words])
        return Graph(np.array(source), np.where(goes_to < 0, end, goes_to), table, end, self.rows).trimmed()

    def _with_written(self, labels: tuple[int, ...]) -> tuple[int, ...]:
        """Labels with what passes write, if they are those of rows alone."""
        rows = len(self.rows.ids)
        return labels if len(labels) > rows else (*labels, *labels[rows - self.rows.passes :])


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
