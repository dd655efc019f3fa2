"""What is seen: every neighbourhood that a token can have in some run of a machine, and what is right next.

Paths grow edge by edge. Two paths are one if they end at one vertex and look the same. So no path is walked twice, and the
list is finite: at most states x alphabet**columns.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from longhand.data.machines.columns import ABSENT, HERE, MOST_NEIGHBOURHOODS, NEXT, Graph, TooMany
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


class Found(NamedTuple):
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
    graph: Graph, word: int, sees: Sequence[tuple[int, int]], unordered: Sequence[int] = (), backward: bool = False
) -> Found:
    """List the neighbourhoods of the tokens of one word, each once.

    Args:
        graph: a trimmed one.
        word: the word, a column of `Graph.labels`.
        sees: (column, word) of each slot; columns are counted from the token's own.
        unordered: words that a token cannot tell apart; their slots in one column are sorted.
        backward: whether the word is written from the end of a path to its beginning; columns count in its direction.

    Raises:
        Conflict: one neighbourhood needs two different next tokens.
        TooMany: there are more than `MOST_NEIGHBOURHOODS`.
    """
    labels, turn = graph.labels, slice(None, None, -1 if backward else 1)
    source, target = (graph.target, graph.source) if backward else (graph.source, graph.target)
    if len(unordered) > 1:
        labels = labels.copy()
        labels[:, list(unordered)] = np.sort(labels[:, list(unordered)], axis=1)
    low, high = min(0, *(column for column, _ in sees)), max(1, *(column for column, _ in sees))
    by_source = np.argsort(source, kind="stable")
    first = np.searchsorted(source[by_source], np.arange(target.max() + 2))
    shown = {column: [own for place, own in sees if place == column] for column in range(low, high + 1)}
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
            count = first[vertices + 1] - first[vertices]
            if count.sum() > 8 * MOST_NEIGHBOURHOODS:
                raise TooMany(f"a window of {column - low + 1} columns has {count.sum():,} cases")
            parent = np.repeat(np.arange(len(vertices)), count)
            offset = np.arange(len(parent)) - np.repeat(np.cumsum(count) - count, count)
            edges = by_source[first[vertices][parent] + offset]
            sizes = sizes[parent]
        if column in (0, 1):
            kept = labels[edges, word] != ABSENT
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
    keys = np.stack([labels[paths[:, column - low], own] for column, own in sees], axis=1)
    own = number_rows(np.concatenate([tokens[:, None], keys], axis=1))
    distinct, where, count = np.unique(own, return_inverse=True, return_counts=True)
    if len(distinct) < len(own):
        chosen = np.flatnonzero(where == np.argmax(count > 1))[:2]
        raise Conflict([*paths[chosen][:, turn]], right[chosen])
    return Found(tokens, keys, right, paths[:, turn], sizes)


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
        unordered: words that a token cannot tell apart.
        backward: whether the word is written from the end of a run to its beginning.
    """

    graph: Graph
    word: int
    sees: Sequence[tuple[int, int]]
    relations: Sequence[int]
    unordered: Sequence[int] = ()
    backward: bool = False

    def find(self) -> Found:
        """The neighbourhoods, by `find_neighbourhoods`."""
        return _find(self.graph, self.word, tuple(self.sees), tuple(self.unordered), self.backward)


Ids = Callable[[int], tuple[int, ...]]
"""From a column to the position ids of the token there, one for each level; 0 where it has none."""

ANY_COLUMN = 1_000
"""The id of a column far from both ends of a problem."""


def by_column(sign: int, *row: int) -> Ids:
    """Ids that grow with the column (`sign` 1), or fall (-1), and those of the row, the same in every column."""
    return lambda column: (ANY_COLUMN + sign * column, *row)


def one_token(*ids: int) -> Ids:
    """The ids of a token that has no column."""
    return lambda column: ids


def sight_by_ids(
    graph: Graph, word: int, query: Ids, keys: Mapping[int, Ids], window: Window, written: int | None = None
) -> Sight:
    """What tokens of a word see, by the ids of all rows; the relation of two tokens is that of a model with this window.

    Words whose tokens have the same ids cannot be told apart.

    Args:
        query: the ids of the word's tokens.
        keys: the ids of the words that stand before it in the text.
        written: the word that is being written as others see it, of which a token sees itself and what is before; None if
            its own row is out of its window.
    """
    rows = dict(keys) if written is None else {**keys, written: query}
    numbers = np.array([part for part in np.ravel(np.array(window, dtype=object)) if isinstance(part, int)])
    reach = int(np.abs(numbers).max())
    slots = []
    for column in range(-reach, reach + 1):
        for other, ids in rows.items():
            # A row whose ids are the same everywhere is one token.
            if column == HERE or (ids(HERE) != ids(NEXT) and (other != written or column < HERE)):
                slots.append((column, other))
    own, others = (torch.tensor(ids).T.unsqueeze(0) for ids in ([query(HERE)], [rows[key](at) for at, key in slots]))
    relations = coupled_pair_map(own, others, window, windowed=True)[0, 0].tolist()
    related = [(slot, relation) for slot, relation in zip(slots, relations, strict=True) if relation >= 0]
    alike = [other for other in keys if sum(keys[other](HERE) == ids(HERE) for ids in keys.values()) > 1]
    return Sight(graph, word, [slot for slot, _ in related], [relation for _, relation in related], tuple(alike))


_find = lru_cache(maxsize=8)(find_neighbourhoods)
