"""What a check must cover: every neighbourhood of a decoder's tokens, or every case of an encoder's labels."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch

from longhand.data.tasks.search import ABSENT, Found, Graph, find_neighbourhoods, number_rows
from longhand.modeling.relations import NOT_RELATED, coupled_pair_map
from longhand.modeling.settling import NO_STATE, Cases
from longhand.modeling.vocabulary import PAD

_AT_ONCE = 20_000
"""Neighbourhoods, or cases, that are checked at a time."""

WEAK = 1.0
"""Neighbourhoods with a lead below this are trained again."""

CLOSE = 4.0
"""Cases with a lead below this are trained again, mixed with all others so that the model does not forget those."""

SEARCHED = (
    "The task is a sequential transducer on columns (PROOF.md, column tasks). A run is a path in the finite graph of its "
    "states. A token sees the columns of a window, so each neighbourhood is a path of as many edges as the window has "
    "columns. All paths were walked that lie on a run: so the list holds every neighbourhood that occurs, and no other."
)
"""Why a searched list is complete, for the certificate."""


class Problems(NamedTuple):
    """Problems of one task and one group of lengths.

    Attributes:
        task: the task.
        digits: (count, operands, width), ones first.
        lengths: (count, operands).
    """

    task: Any
    digits: np.ndarray
    lengths: np.ndarray


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

    def practised(self, leads: np.ndarray) -> "Sequence[NeighbourhoodBatch | Problems]":
        """What training practises to learn those that are `WEAK`: short problems in which they occur, or themselves without
        a task."""
        weak = self.take(np.flatnonzero(~(leads >= WEAK)))
        if self.task is None or self.graph is None or self.paths is None:
            return [weak] if len(weak.tokens) else []
        return problems_of(self.task, self.graph, weak.paths)

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


@dataclass(frozen=True, eq=False)
class CoveringCases:
    """Every case that ideal passes of an encoder can meet in a problem of any size.

    Attributes:
        cases: what is labelled.
        right: (count,) the ideal label of each.
        argument: why nothing else can occur, for the certificate.
        ideal: what ideal passes do, for the certificate.
        task: the task whose problems are practised.
        graph, paths: as in `NeighbourhoodBatch`; None if cases are practised as they are.
    """

    cases: Cases
    right: torch.Tensor
    argument: str
    ideal: str
    task: Any
    graph: Graph | None = None
    paths: np.ndarray | None = None

    @property
    def count(self) -> int:
        """Number of cases."""
        return len(self.right)

    @property
    def batches(self) -> "Iterator[CoveringCases]":
        """The cases in parts."""
        return (self.take(np.arange(first, min(first + _AT_ONCE, self.count))) for first in range(0, self.count, _AT_ONCE))

    def take(self, rows: np.ndarray) -> "CoveringCases":
        """Some of the cases."""
        cases = Cases(*(part[rows] for part in self.cases))
        return replace(self, cases=cases, right=self.right[rows], paths=None if self.paths is None else self.paths[rows])

    def practised(self, leads: np.ndarray) -> "Sequence[CoveringCases | Problems]":
        """What training practises: short problems in which `WEAK` cases occur; or all cases, and those that are `CLOSE`
        again, as many."""
        if self.graph is not None and self.paths is not None:
            return problems_of(self.task, self.graph, self.paths[~(leads >= WEAK)])
        every, close = np.arange(len(leads)), np.flatnonzero(leads < CLOSE)
        again = np.resize(close, len(every)) if len(close) else close
        return [self.take(np.concatenate([every, again]))]


def problems_of(task: Any, graph: Graph, paths: Any) -> list[Problems]:
    """The shortest problems whose runs hold some paths."""
    found = graph.problems(paths, task.operands, task.ones_come_first) if len(paths) else []
    return [Problems(task, digits, lengths) for digits, lengths in found]


def hide_labels(
    keys: np.ndarray, labels: np.ndarray, relations: Sequence[int], decided: np.ndarray, unknown: int, **about: Any
) -> CoveringCases:
    """Every case of ideal passes, from what tokens see where all labels are known: each may be known yet or not.

    A label is right next if what is seen decides it: the tokens alone, or all labels of others that are seen are known. Else
    none is known. A known label is not taken back.

    Args:
        keys: (count, slots) the tokens that each one sees, first itself; `ABSENT` where there is none.
        labels: (count, slots) their right labels, `NO_STATE` where no answer is read.
        relations: (slots,).
        decided: (count,) whether the tokens alone decide the label.
        unknown: stands for a label that is not known.
        about: other attributes of `CoveringCases`; `paths` are (count, w).
    """
    others = [slot for slot in range(1, labels.shape[1]) if (labels[:, slot] != NO_STATE).any()]
    slots, parts = keys.shape[1], []
    for known in product((False, True), repeat=len(others)):
        states = labels.copy()
        for slot in (slot for slot, is_known in zip(others, known, strict=True) if not is_known):
            states[states[:, slot] != NO_STATE, slot] = unknown
        right = np.where(decided | (states[:, 1:] != unknown).all(axis=1), labels[:, 0], unknown)
        for own in (np.full_like(right, unknown), right):
            parts.append(np.column_stack([keys, own, states[:, 1:], right]))
    table = np.concatenate(parts)
    _, first = np.unique(number_rows(table), return_index=True)
    keys, states, right = np.split(table[first], [slots, 2 * slots], axis=1)
    related = np.where(keys == ABSENT, NOT_RELATED, np.array(relations))
    tensors = (torch.from_numpy(part).long() for part in (keys[:, 0], states[:, 0], np.maximum(keys, 0), states, related))
    if about.get("paths") is not None:
        about["paths"] = about["paths"][first % len(labels)]
    return CoveringCases(Cases(*tensors), torch.from_numpy(right[:, 0]).long(), **about)


def agree(groups: np.ndarray, values: np.ndarray) -> np.ndarray:
    """(count,) whether all rows with the same number (count,) have the same value."""
    _, group = np.unique(groups, return_inverse=True)
    least, most = np.full(group.max() + 1, values.max()), np.full(group.max() + 1, values.min())
    np.minimum.at(least, group, values)
    np.maximum.at(most, group, values)
    return (least == most)[group]


class Sight(NamedTuple):
    """What the tokens of one word see, for `search_covering`.

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


def search_covering(sights: Iterable[Sight], task: Any = None) -> CoveringNeighbourhoods:
    """Every neighbourhood, by search; labels are tokens.

    Args:
        task: the task whose short problems are practised; None if neighbourhoods are practised as they are.
    """
    batches = []
    for sight in sights:
        found = sight.find()
        keys = np.where(found.keys == ABSENT, PAD, found.keys)
        practice = {"task": task, "graph": sight.graph, "paths": found.paths} if task else {}
        batches.append(NeighbourhoodBatch(found.tokens, keys, np.array(sight.relations), found.right, **practice))
    count = sum(len(batch.tokens) for batch in batches)
    return CoveringNeighbourhoods(count, (part for batch in batches for part in batch.batches(_AT_ONCE)), SEARCHED)


_find = lru_cache(maxsize=8)(find_neighbourhoods)


def seen_in_problems(
    task: Any, digits: np.ndarray, lengths: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """What the response tokens of problems of one layout see, through the task's format and its coupling rule.

    Yields:
        For each token of the response and for `=`: the tokens (count,), the keys (count, relations), `PAD` where there is
        none, and the tokens that come next (count,).
    """
    examples, rule = task.format(digits, lengths), task.rule
    ids = rule.plan(torch.from_numpy(examples.tokens[:1]).long(), examples.tokens.shape[1]).position_ids
    related = coupled_pair_map(ids, ids, rule.relations, windowed=True)[0].numpy()
    for query in range(int(examples.query_lengths[0]) - 1, examples.tokens.shape[1] - 1):
        keys = np.full((len(digits), len(rule.relations)), PAD)
        seen = 1 + np.flatnonzero(related[query, 1 : query + 1] >= 0)
        keys[:, related[query, seen]] = examples.tokens[:, seen]
        yield examples.tokens[:, query], keys, examples.tokens[:, query + 1]
