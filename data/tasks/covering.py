"""What a check must cover: problems that hold every neighbourhood, or the neighbourhoods themselves."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from longhand.data.tasks.search import ABSENT, Graph, find_neighbourhoods
from longhand.modeling.vocabulary import PAD

DIGITS = np.arange(10)

_AT_ONCE = 20_000
"""Neighbourhoods that are checked at a time."""

SEARCHED = (
    "The task is a sequential transducer on columns (PROOF.md, column tasks). A run is a path in the finite graph of its "
    "states. A token sees the columns of a window, so each neighbourhood is a path of as many edges as the window has "
    "columns. All paths were walked that lie on a run: so the list holds every neighbourhood that occurs, and no other."
)
"""Why a searched list is complete, for the certificate."""

Case = tuple[np.ndarray | int, np.ndarray | int, Mapping[int, Any]]
"""Tokens, what is right next, and from a slot to its tokens: (count,) each, or one for all. Other slots are empty."""


class Problems(NamedTuple):
    """Problems of one task and one group of lengths.

    Attributes:
        task: the task.
        digits: (count, operands, width), ones first.
        lengths: (count, operands).
        tokens: (count,) place of the one token of each problem that is meant, if not all are; then problems may differ in
            their lengths.
    """

    task: Any
    digits: np.ndarray
    lengths: np.ndarray
    tokens: np.ndarray | None = None

    def take(self, rows: np.ndarray) -> "Problems":
        """Some of the problems."""
        tokens = None if self.tokens is None else self.tokens[rows]
        return Problems(self.task, self.digits[rows], self.lengths[rows], tokens)


@dataclass(frozen=True)
class CoveringProblems:
    """Short problems in which every neighbourhood occurs that a response token can have in a problem of any size.

    Attributes:
        count: number of problems, known before any is made.
        batches: (digits, lengths) of the problems: (count, operands, width), ones first, and (count, operands). They are
            made one by one as they are taken, and can be taken once.
        argument: why nothing else can occur, for the certificate.
    """

    count: int
    batches: Iterable[tuple[np.ndarray, np.ndarray]]
    argument: str


class NeighbourhoodBatch(NamedTuple):
    """Some neighbourhoods of response tokens.

    Every token also sees the `$` at the beginning; the keys see nothing else. A token's own column is not among its keys.

    Attributes:
        tokens: (count,), the token itself.
        keys: (count, slots), the tokens that it sees; `PAD` if there is none.
        relations: (slots,), the relation of each slot, a place in the coupling rule's list.
        right: (count,), the token that is right next.
        beginning: the relation of `$`, the place behind the last of a window; known once there is a model.
        task, graph, paths: the task whose problems are practised, the graph of its runs, and an example path of each
            neighbourhood; None if neighbourhoods are practised as they are.
    """

    tokens: np.ndarray
    keys: np.ndarray
    relations: np.ndarray
    right: np.ndarray
    beginning: int = -1
    task: Any = None
    graph: Graph | None = None
    paths: np.ndarray | None = None

    def take(self, rows: np.ndarray | slice) -> "NeighbourhoodBatch":
        """Some of the neighbourhoods."""
        paths = None if self.paths is None else self.paths[rows]
        return self._replace(tokens=self.tokens[rows], keys=self.keys[rows], right=self.right[rows], paths=paths)

    def practised(self) -> "list[NeighbourhoodBatch | Problems]":
        """What training practises to learn them: short problems in which they occur, or themselves without a task."""
        if self.task is None or self.graph is None or self.paths is None:
            return [self]
        found = self.graph.problems(self.paths, self.task.operands, self.task.ones_come_first)
        return [Problems(self.task, digits, lengths) for digits, lengths in found]

    def batches(self, size: int) -> Iterator["NeighbourhoodBatch"]:
        """The same neighbourhoods in parts of at most `size`."""
        for first in range(0, len(self.tokens), size):
            yield self.take(slice(first, first + size))


def join_neighbourhoods(batches: Iterable[NeighbourhoodBatch]) -> list[NeighbourhoodBatch]:
    """The same neighbourhoods, all of the same relations in one batch."""
    groups: dict[bytes, list[NeighbourhoodBatch]] = {}
    for batch in batches:
        groups.setdefault(batch.relations.tobytes(), []).append(batch)
    joined = []
    for own in groups.values():
        columns = zip(*((batch.tokens, batch.keys, batch.right) for batch in own), strict=True)
        tokens, keys, right = map(np.concatenate, columns)
        joined.append(own[0]._replace(tokens=tokens, keys=keys, right=right))
    return joined


@dataclass(frozen=True)
class CoveringNeighbourhoods:
    """Every neighbourhood that a response token can have in a problem of any size.

    Attributes:
        count: number of neighbourhoods, known before any is made.
        batches: the neighbourhoods. They are made as they are taken, and can be taken once.
        argument: why nothing else can occur, for the certificate.
    """

    count: int
    batches: Iterable[NeighbourhoodBatch]
    argument: str


CARRIES_DECIDED = (
    "In an ideal pass a label becomes the right one if the carry from the column below is decided, by the digits there or "
    "because its label is known; else it is not known. A known label is right and stays, since the digits or the label that "
    "decided it stay. The lowest label that is not known becomes known, since the label below is known or there is none."
)
"""What ideal passes do in sums, and in products with one digit."""


@dataclass(frozen=True)
class CoveringStates:
    """Short problems in which every case occurs that ideal passes can meet in a problem of any size.

    Attributes:
        count: number of problems, known before any is made, each with all of `EncoderTask.known_labels`.
        batches: digits (count, 2, width), ones first, and the layout in which to write them, see `EncoderTask.write`. They
            are made one by one as they are taken, and can be taken once.
        ideal: what ideal passes do, for the certificate.
        argument: why nothing else can occur, for the certificate.
    """

    count: int
    batches: Iterable[tuple[np.ndarray, tuple[int, ...]]]
    ideal: str
    argument: str


@dataclass(frozen=True, eq=False)
class CoveringCases:
    """Every case that ideal passes can meet in a problem of any size.

    Attributes:
        count: number of cases.
        cases: a `modeling.settling.Cases`.
        targets: (count,) the ideal label of each, a tensor.
        listed: the neighbourhoods of a decoder from which the cases were made, for practice.
        ideal, argument: as in `CoveringStates`.
    """

    count: int
    cases: Any
    targets: Any
    listed: NeighbourhoodBatch
    ideal: str
    argument: str


class Sight(NamedTuple):
    """What the tokens of one word see, for `search_covering`.

    Attributes:
        graph: the runs in which there are such tokens.
        word: their word.
        sees: (column, word) of each slot, see `find_neighbourhoods`.
        relations: of each slot, a place in the model's window.
        unordered: words that a token cannot tell apart.
    """

    graph: Graph
    word: int
    sees: Sequence[tuple[int, int]]
    relations: Sequence[int]
    unordered: Sequence[int] = ()


def search_covering(sights: Iterable[Sight], task: Any = None) -> CoveringNeighbourhoods:
    """Every neighbourhood, by search; labels are tokens.

    Args:
        task: the task whose short problems are practised; None if neighbourhoods are practised as they are.
    """
    batches = []
    for graph, word, sees, relations, unordered in sights:
        found = _find(graph, word, tuple(sees), tuple(unordered))
        keys = np.where(found.keys == ABSENT, PAD, found.keys)
        listed = NeighbourhoodBatch(found.tokens, keys, np.array(relations), found.right)
        batches.append(listed._replace(task=task, graph=graph if task else None, paths=found.paths if task else None))
    count = sum(len(batch.tokens) for batch in batches)
    return CoveringNeighbourhoods(count, (part for batch in batches for part in batch.batches(_AT_ONCE)), SEARCHED)


_find = lru_cache(maxsize=8)(find_neighbourhoods)


def combine(*values: np.ndarray) -> list[np.ndarray]:
    """Every combination of the values, as one flat array for each argument; the last one changes fastest.

    `left, right = combine(np.arange(2), np.arange(3))` gives `left` 0 0 0 1 1 1 and `right` 0 1 2 0 1 2.
    """
    return [grid.reshape(-1) for grid in np.meshgrid(*values, indexing="ij")]


def list_neighbourhoods(cases: Iterable[Case], relations: np.ndarray) -> Iterator[NeighbourhoodBatch]:
    """The neighbourhoods of every case, one batch for each.

    Args:
        relations: (slots,) relation of each slot.
    """
    for token, right, keys in cases:
        tokens, rights, *filled = np.broadcast_arrays(*map(np.atleast_1d, (token, right, *keys.values())))
        table = np.full((len(tokens), len(relations)), PAD)
        for slot, values in zip(keys, filled, strict=True):
            table[:, slot] = values
        yield NeighbourhoodBatch(tokens, table, relations, rights)
