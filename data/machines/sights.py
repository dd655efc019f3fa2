"""What is seen: every neighbourhood that a token can have in some run of a machine, and what is right next.

Paths grow edge by edge. Two paths are one if they end at one vertex and look the same. So no path is walked twice, and the
list is finite: at most states x alphabet**columns.
"""

# Used by: covering.py, windows.py, data/tasks. Changed freely.

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from longhand.data.machines.columns import ABSENT, HERE, MOST_NEIGHBOURHOODS, MOST_PATHS, NEXT, Graph, Ids, TooMany
from longhand.modeling.relations import Window, coupled_pair_map


class Conflict(ValueError):
    """Two neighbourhoods look the same and need different next tokens.

    Attributes:
        paths: (w,) edges each of two runs.
        tokens: (2,) the next tokens.
    """

    def __init__(self, paths: Sequence[np.ndarray], tokens: np.ndarray):
        super().__init__("one neighbourhood needs two different next tokens")
        self.paths, self.tokens = paths, tokens


class WordNeighbourhoods(NamedTuple):
    """The neighbourhoods of the tokens of one word.

    Attributes:
        tokens: (count,) the token's own label.
        keys: (count, slots) the labels that it sees.
        right: (count,) the label of the next column.
        paths: (count, w) for each an example, as edges of the graph.
        sizes: (count,) edges of a shortest run that holds it.
    """

    tokens: np.ndarray
    keys: np.ndarray
    right: np.ndarray
    paths: np.ndarray
    sizes: np.ndarray


def find_neighbourhoods(
    graph: Graph,
    word: int,
    sees: Sequence[tuple[int, int]],
    unordered: Sequence[Sequence[int]] = (),
    backward: bool = False,
    begins: bool | None = None,
) -> WordNeighbourhoods:
    """List the neighbourhoods of the tokens of one word, each once.

    Args:
        graph: a trimmed one.
        word: the word, a column of `Graph.labels`.
        sees: (column, word) of each slot; columns are counted from the token's own.
        unordered: groups of words that a token cannot tell apart; their slots in one column are sorted.
        backward: whether the word is written from the end of a path to its beginning; columns count in its direction.
        begins: whether to list the tokens in the column before the first one, or all others; None for both.

    Raises:
        Conflict: one neighbourhood needs two different next tokens.
        TooMany: there are more than `MOST_NEIGHBOURHOODS`.
    """
    labels, turn = graph.labels, slice(None, None, -1 if backward else 1)
    source, target = (graph.target, graph.source) if backward else (graph.source, graph.target)
    is_begin = (graph.source == 0) & (graph.target != 0)
    for alike in map(list, unordered):
        labels = labels.copy()
        labels[:, alike] = np.sort(labels[:, alike], axis=1)
    low, high = min(0, *(column for column, _ in sees)), max(1, *(column for column, _ in sees))
    by_source = np.argsort(source, kind="stable")
    first = np.searchsorted(source[by_source], np.arange(target.max() + 2))
    shown = {column: [seen_word for place, seen_word in sees if place == column] for column in range(low, high + 1)}
    shown[0], shown[1] = [*shown[0], word], [*shown[1], word]
    paths, codes = np.zeros((1, 0), dtype=np.int64), np.zeros(1, dtype=np.int64)
    # Edges of a shortest path from the beginning of all runs, in the direction of the search, through the window so far.
    sizes = np.zeros(1, dtype=np.int64)
    before, behind = graph.distances(backward), graph.distances(not backward)
    vertices, size = None, 1
    for column in range(low, high + 1):
        if vertices is None:
            edges, parent = np.arange(len(labels)), np.zeros(len(labels), dtype=np.int64)
            sizes = before[source]
        else:
            cases = (first[vertices + 1] - first[vertices]).sum()
            if cases > MOST_PATHS:
                raise TooMany(f"a window of {column - low + 1} columns has {cases:,} cases")
            edges, parent = _edges_from(vertices, first, by_source)
            sizes = sizes[parent]
        if column in (0, 1):
            kept = labels[edges, word] != ABSENT
            if begins is not None and column == 0:
                kept &= is_begin[edges] == begins
            edges, parent, sizes = edges[kept], parent[kept], sizes[kept]
        codes, size = _append(codes[parent], size, labels[edges][:, shown[column]])
        last = column == high
        vertices = target[edges]
        # The loops before a run and behind it are not of the run.
        sizes = sizes + (edges > 1) + (behind[vertices] if last else 0)
        both, _ = _append(codes, size, vertices[:, None]) if not last else (codes, size)
        _, example, group = np.unique(both, return_index=True, return_inverse=True)
        if len(example) > MOST_NEIGHBOURHOODS:
            raise TooMany(f"a window of {column - low + 1} columns has {len(example):,} neighbourhoods")
        codes, vertices = codes[example], vertices[example]
        least = np.full(len(example), np.iinfo(np.int64).max)
        np.minimum.at(least, group, sizes)
        sizes = least
        paths = np.concatenate([paths[parent[example]], edges[example, None]], axis=1)
    tokens, right = labels[paths[:, -low], word], labels[paths[:, 1 - low], word]
    keys = np.stack([labels[paths[:, column - low], seen_word] for column, seen_word in sees], axis=1)
    numbers = number_rows(np.concatenate([tokens[:, None], keys], axis=1))
    distinct, where, count = np.unique(numbers, return_inverse=True, return_counts=True)
    if len(distinct) < len(numbers):
        chosen = np.flatnonzero(where == np.argmax(count > 1))[:2]
        raise Conflict([*paths[chosen][:, turn]], right[chosen])
    return WordNeighbourhoods(tokens, keys, right, paths[:, turn], sizes)


def _edges_from(vertices: np.ndarray, first: np.ndarray, by_source: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The edges that leave some vertices, and for each edge the place of its vertex among these.

    Args:
        first: the place in `by_source` of the first edge of every vertex, and of the vertex after the last one.
        by_source: all edges, sorted by the vertex that they leave.
    """
    count = first[vertices + 1] - first[vertices]
    parent = np.repeat(np.arange(len(vertices)), count)
    offset = np.arange(len(parent)) - np.repeat(np.cumsum(count) - count, count)
    return by_source[first[vertices][parent] + offset], parent


def number_rows(table: np.ndarray) -> np.ndarray:
    """Numbers of rows; they are equal if and only if the rows, of numbers from -2 on, are."""
    return _append(np.zeros(len(table), dtype=np.int64), 1, table)[0]


def _append(codes: np.ndarray, size: int, columns: np.ndarray) -> tuple[np.ndarray, int]:
    """Numbers that are equal if and only if codes and labels are; ranks take the place of numbers that would overflow."""
    for column in columns.T:
        values = column.astype(np.int64) + 2
        radix = int(values.max(initial=0)) + 1
        if size * radix >= 2**62:
            distinct, codes = np.unique(codes, return_inverse=True)
            size = len(distinct)
        codes, size = codes * radix + values, size * radix
    return codes, size


class Sight(NamedTuple):
    """The keys that tokens of one word see, for `find_neighbourhoods`.

    Attributes:
        graph: the runs in which there are such tokens.
        word: their word.
        sees: (column, word) of each slot, see `find_neighbourhoods`.
        relations: of each slot, a place in the model's window.
        unordered, backward, begins: see `find_neighbourhoods`.
    """

    graph: Graph
    word: int
    sees: Sequence[tuple[int, int]]
    relations: Sequence[int]
    unordered: tuple[tuple[int, ...], ...] = ()
    backward: bool = False
    begins: bool | None = None

    def find(self) -> WordNeighbourhoods:
        """The neighbourhoods, by `find_neighbourhoods`."""
        return _find(self.graph, self.word, tuple(self.sees), self.unordered, self.backward, self.begins)


class Slot(NamedTuple):
    """A key that a token sees.

    Attributes:
        column: counted from the token's own, in the direction in which its row is written.
        row: a row.
        relation: a place in the model's window.
    """

    column: int
    row: int
    relation: int


def slots_of(query: Ids, keys: Mapping[int, Ids], columns: range, window: Window, at: int, sign: int = 1) -> list[Slot]:
    """What a token sees of some rows.

    Args:
        query: the ids of the token's row, in which it stands in the column `at`.
        keys: the ids of the rows that it may see.
        columns: where it may see them, counted from its own column in the direction `sign`.
        window: the relation of two tokens is that of a model with this window.
    """
    # A row whose ids are the same everywhere is one token.
    places = [(column, row) for column in columns for row, ids in keys.items() if column == HERE or ids(HERE) != ids(NEXT)]
    seen = [keys[row](at + sign * column) for column, row in places]
    query_ids, key_ids = (torch.tensor(ids).T.unsqueeze(0) for ids in ([query(at)], seen))
    relations = coupled_pair_map(query_ids, key_ids, window, windowed=True)[0, 0].tolist()
    return [Slot(*place, relation) for place, relation in zip(places, relations, strict=True) if relation >= 0]


def sights_of(graph: Graph, window: Window) -> list[Sight]:
    """What the tokens of each pass see in a window, by the ids of all rows.

    A token sees the rows before its own, and of its own row itself and what is written before it. Rows of the same ids
    cannot be told apart. A token that begins a row may have ids of its own; then it is listed apart.
    """
    rows, sights = graph.rows, []
    # Farther than any window shows.
    far = 1 + max(abs(entry) for entry in np.ravel(np.array(window, dtype=object)) if isinstance(entry, int))
    for written_row in rows.written:
        before, mine, query = (
            dict(enumerate(rows.ids[:written_row])),
            {written_row: rows.ids[written_row]},
            rows.ids[written_row],
        )
        sign = -1 if written_row in rows.backward else 1
        inside, begin = (
            slots_of(query, before, range(-far, far + 1), window, at, sign)
            + slots_of(query, mine, range(-far, HERE + 1), window, at, sign)
            for at in (far, -1)
        )
        groups: dict[tuple[int, ...], list[int]] = {}
        for row, ids in before.items():
            groups.setdefault(ids(HERE), []).append(row)
        unordered = tuple(tuple(group) for group in groups.values() if len(group) > 1)
        for slots, begins in [(inside, None)] if inside == begin else [(begin, True), (inside, False)]:
            slots.sort()
            sees, relations = [(slot.column, slot.row) for slot in slots], [slot.relation for slot in slots]
            sights.append(Sight(graph, written_row + rows.passes, sees, relations, unordered, sign < 0, begins))
    return sights


_find = lru_cache(maxsize=8)(find_neighbourhoods)
