"""Coverings: every neighbourhood of a decoder's tokens, or every case of an encoder's labels, for a check."""

# Used by: data, data/proofs, data/proofs/windows, data/tasks, hub_cards/training. Changed freely.

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, ClassVar, NamedTuple, Protocol, Self, cast

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from longhand.data.formatting import Batch, Examples, repeat_row
from longhand.data.machines.columns import ABSENT, Graph
from longhand.data.machines.sights import Sight, number_rows
from longhand.modeling import PairwiseBertForTokenClassification
from longhand.modeling.coupling import CouplingRule
from longhand.modeling.relations import NOT_RELATED, Neighbours, Window, coupled_pair_map, is_listed
from longhand.modeling.settling import IGNORED, NO_STATE, LabelCases
from longhand.modeling.vocabulary import BOS, PAD

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


class Practised(Protocol):
    """What is read of a task whose problems are practised; `FreshBatches` finds the task of this name."""

    name: ClassVar[str]

    @property
    def operands(self) -> int: ...

    @property
    def ones_come_first(self) -> bool: ...


class Labelled(Practised, Protocol):
    """What is read of an encoder's task."""

    @property
    def tokens(self) -> tuple[str, ...]: ...

    @property
    def labels(self) -> tuple[str, ...]: ...


class Written(Protocol):
    """What is read of a decoder's task."""

    @property
    def rule(self) -> CouplingRule: ...

    def format(self, digits: np.ndarray, lengths: np.ndarray) -> Examples: ...


class Problems(NamedTuple):
    """Problems of one task and one group of lengths.

    Attributes:
        task: the task.
        digits: (count, operands, width), ones first.
        lengths: (count, operands).
    """

    task: Practised
    digits: np.ndarray
    lengths: np.ndarray


@dataclass
class Practice:
    """Problems, neighbourhoods and cases that training practises, see `FreshBatches.practise`.

    Attributes:
        problems: short problems in which something weak occurs.
        neighbourhoods: weak neighbourhoods, as they are.
        cases: all cases, and the close ones again.
    """

    problems: list[Problems] = field(default_factory=list)
    neighbourhoods: "list[NeighbourhoodBatch]" = field(default_factory=list)
    cases: "list[CoveringCases]" = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.problems) + len(self.neighbourhoods) + len(self.cases)

    def add(self, other: "Practice") -> None:
        """Practise the problems, neighbourhoods and cases of another one too."""
        self.problems += other.problems
        self.neighbourhoods += other.neighbourhoods
        self.cases += other.cases


class Listed(ABC):
    """Some of the neighbourhoods or cases that must be covered, few enough to be computed at once."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of neighbourhoods or cases."""

    @property
    @abstractmethod
    def targets(self) -> torch.Tensor:
        """(count,) the tokens or labels that are right."""

    @abstractmethod
    def take(self, rows: np.ndarray) -> Self:
        """Some of the neighbourhoods or cases."""

    @abstractmethod
    def logits(self, model: PreTrainedModel) -> torch.Tensor:
        """The logits of a model, (count, vocabulary or labels)."""

    @abstractmethod
    def describe(self, model: PreTrainedModel, row: int) -> tuple[tuple[str, ...], str]:
        """The names of the tokens or labels that are predicted, and one neighbourhood or case as text."""

    @abstractmethod
    def practise(self, leads: np.ndarray, practice: Practice) -> None:
        """Add the neighbourhoods or problems that training practises, chosen by the leads (count,) of the right ones."""


class Covering(ABC):
    """All that a check must cover.

    Attributes:
        argument: why nothing else can occur, for the certificate.
        ideal: a description of ideal passes, for the certificate; empty for a decoder, which makes none.
    """

    argument: str
    ideal: str

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of neighbourhoods or cases, known before any is made."""

    @property
    @abstractmethod
    def batches(self) -> Iterable[Listed]:
        """All of them, in parts."""

    @abstractmethod
    def in_window(self, window: Window, first: int) -> "Covering":
        """The same with the relations of a model's window, in which those of the task's own window begin at `first`."""


@dataclass(frozen=True, eq=False)
class NeighbourhoodBatch(Listed):
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
    task: Practised | None = None
    graph: Graph | None = None
    paths: np.ndarray | None = None

    @property
    def count(self) -> int:
        return len(self.tokens)

    @property
    def targets(self) -> torch.Tensor:
        return torch.from_numpy(self.right).long()

    def take(self, rows: np.ndarray | slice) -> "NeighbourhoodBatch":
        paths = None if self.paths is None else self.paths[rows]
        return replace(self, tokens=self.tokens[rows], keys=self.keys[rows], right=self.right[rows], paths=paths)

    def logits(self, model: PreTrainedModel) -> torch.Tensor:
        """Each neighbourhood is a sequence of its own."""
        inputs = self.inputs(model.config.position_levels or 1)
        for name in ("input_ids", "position_ids"):
            inputs[name] = inputs[name].to(model.device)
        neighbours = Neighbours(*(part.to(model.device) for part in inputs.pop("neighbours")))
        return model(**inputs, neighbours=neighbours, use_cache=False).logits[:, 0]

    def describe(self, model: PreTrainedModel, row: int) -> tuple[tuple[str, ...], str]:
        names, window = model.config.tokens, model.model.position_encoding.window
        slots = zip(self.keys[row], self.relations, strict=True)
        sees = ", ".join(f"{names[key]} at {window[relation]}" for key, relation in slots if key != PAD)
        return names, f"{names[self.tokens[row]]!r} that sees {sees or 'nothing'}"

    def practise(self, leads: np.ndarray, practice: Practice) -> None:
        """Neighbourhoods that are `WEAK` are learned in short problems, or by themselves if there is no task."""
        weak = self.take(np.flatnonzero(~(leads >= WEAK)))
        if self.task is not None and self.graph is not None and weak.paths is not None:
            practice.problems += problems_of(self.task, self.graph, weak.paths)
        elif weak.count:
            practice.neighbourhoods.append(weak)

    def inputs(self, levels: int) -> Batch:
        """Each as a row of its own: `$`, the keys, the token. Every column sees `$`, the last one also the keys.

        Args:
            levels: position ids of a token, which are all 0, since `neighbours` says what is seen.

        Returns:
            `input_ids` (count, columns), `position_ids` (1, levels, columns), `neighbours` and `logits_to_keep`.
        """
        slots = self.keys.shape[1]
        columns = slots + 2
        input_ids = np.concatenate([np.full((self.count, 1), BOS), self.keys, self.tokens[:, None]], axis=1)
        seen = np.full((self.count, columns, slots + 1), -1)
        seen[:, :, 0] = 0
        seen[:, -1, 1:] = np.where(self.keys == PAD, -1, np.arange(1, slots + 1))
        related = np.where(seen < 0, NOT_RELATED, np.concatenate([[self.beginning], self.relations])).astype(np.int32)
        return {
            "input_ids": torch.from_numpy(input_ids).long(),
            "position_ids": torch.zeros((1, levels, columns), dtype=torch.long),
            "neighbours": Neighbours(torch.from_numpy(seen), torch.from_numpy(related)),
            "logits_to_keep": 1,
        }

    def labelled_inputs(self, levels: int) -> Batch:
        """`inputs` with one column more, the token that is right next, as the one label of each row.

        `neighbours` is a plain tuple: Trainer cannot move named ones.
        """
        inputs, right = self.inputs(levels), self.targets.unsqueeze(1)
        like_first = (torch.cat([part, part[:, :1]], dim=1) for part in inputs["neighbours"])
        return {
            "input_ids": torch.cat([inputs["input_ids"], right], dim=1),
            "labels": torch.cat([torch.full_like(inputs["input_ids"], IGNORED), right], dim=1),
            "position_ids": repeat_row(nn.functional.pad(inputs["position_ids"][:1], (0, 1)), self.count),
            "neighbours": tuple(like_first),
            "logits_to_keep": 2,
        }

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
    for group in groups.values():
        columns = zip(*((batch.tokens, batch.keys, batch.right) for batch in group), strict=True)
        tokens, keys, right = map(np.concatenate, columns)
        joined.append(replace(group[0], tokens=tokens, keys=keys, right=right))
    return joined


@dataclass(frozen=True, eq=False)
class CoveringNeighbourhoods(Covering):
    """Every neighbourhood that a response token can have in a problem of any size.

    Attributes:
        parts: the neighbourhoods; those of one part have one layout of slots.
        argument, ideal: see `Covering`.
    """

    parts: Sequence[NeighbourhoodBatch]
    argument: str
    ideal: str = ""

    @property
    def count(self) -> int:
        return sum(part.count for part in self.parts)

    @property
    def batches(self) -> Iterator[NeighbourhoodBatch]:
        for part in self.parts:
            yield from part.batches(_AT_ONCE)

    def in_window(self, window: Window, first: int) -> "CoveringNeighbourhoods":
        beginning = len(window) if is_listed(window) else window[1] - window[0] + 1
        moved = [replace(part, relations=part.relations + first, beginning=beginning) for part in self.parts]
        return replace(self, parts=moved)


@dataclass(frozen=True, eq=False)
class CoveringCases(Covering, Listed):
    """Every case that ideal passes of an encoder can meet in a problem of any size.

    Attributes:
        cases: what is labelled.
        right: (count,) the ideal label of each.
        argument, ideal: see `Covering`.
        task: the task whose problems are practised.
        graph, paths: as in `NeighbourhoodBatch`; None if cases are practised as they are.
    """

    cases: LabelCases
    right: torch.Tensor
    argument: str
    ideal: str
    task: Labelled
    graph: Graph | None = None
    paths: np.ndarray | None = None

    @property
    def count(self) -> int:
        return len(self.right)

    @property
    def targets(self) -> torch.Tensor:
        return self.right

    @property
    def batches(self) -> "Iterator[CoveringCases]":
        return (self.take(np.arange(first, min(first + _AT_ONCE, self.count))) for first in range(0, self.count, _AT_ONCE))

    def in_window(self, window: Window, first: int) -> "CoveringCases":
        """Relations of cases are those of the model: the task's own window is the model's."""
        return self

    def take(self, rows: np.ndarray) -> "CoveringCases":
        cases = LabelCases(*(part[rows] for part in self.cases))
        return replace(self, cases=cases, right=self.right[rows], paths=None if self.paths is None else self.paths[rows])

    def logits(self, model: PreTrainedModel) -> torch.Tensor:
        return cast(PairwiseBertForTokenClassification, model).label_cases(
            LabelCases(*(part.to(model.device) for part in self.cases))
        )

    def describe(self, model: PreTrainedModel, row: int) -> tuple[tuple[str, ...], str]:
        names, tokens = self.task.labels, self.task.tokens
        parts = (part[row].tolist() for part in (self.cases.keys, self.cases.key_states, self.cases.relations))
        seen = [
            f"{tokens[key]}{'' if state == NO_STATE else ':' + names[state]} at {relation}"
            for key, state, relation in zip(*parts, strict=True)
            if relation >= 0
        ]
        return names, f"{tokens[self.cases.tokens[row]]!r} that sees {', '.join(seen)}"

    def practise(self, leads: np.ndarray, practice: Practice) -> None:
        """Short problems in which `WEAK` cases occur; or all cases, and those that are `CLOSE` again, as many."""
        if self.graph is not None and self.paths is not None:
            practice.problems += problems_of(self.task, self.graph, self.paths[~(leads >= WEAK)])
            return
        every, close = np.arange(len(leads)), np.flatnonzero(leads < CLOSE)
        again = np.resize(close, len(every)) if len(close) else close
        practice.cases.append(self.take(np.concatenate([every, again])))


def problems_of(task: Practised, graph: Graph, paths: np.ndarray) -> list[Problems]:
    """The shortest problems whose runs hold some paths."""
    found = graph.problems(paths, task.ones_come_first) if len(paths) else []
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
        for token_states in (np.full_like(right, unknown), right):
            parts.append(np.column_stack([keys, token_states, states[:, 1:], right]))
    table = np.concatenate(parts)
    _, first = np.unique(number_rows(table), return_index=True)
    keys, states, right = np.split(table[first], [slots, 2 * slots], axis=1)
    related = np.where(keys == ABSENT, NOT_RELATED, np.array(relations))
    tensors = (torch.from_numpy(part).long() for part in (keys[:, 0], states[:, 0], np.maximum(keys, 0), states, related))
    if about.get("paths") is not None:
        about["paths"] = about["paths"][first % len(labels)]
    return CoveringCases(LabelCases(*tensors), torch.from_numpy(right[:, 0]).long(), **about)


def agree(groups: np.ndarray, values: np.ndarray) -> np.ndarray:
    """(count,) whether all rows with the same number (count,) have the same value."""
    _, group = np.unique(groups, return_inverse=True)
    least, most = np.full(group.max() + 1, values.max()), np.full(group.max() + 1, values.min())
    np.minimum.at(least, group, values)
    np.maximum.at(most, group, values)
    return (least == most)[group]


def search_covering(sights: Iterable[Sight], task: Practised) -> CoveringNeighbourhoods:
    """Every neighbourhood, by search; labels are tokens.

    Args:
        task: the task whose short problems are practised, where runs hold its operands.
    """
    batches = []
    for sight in sights:
        found = sight.find()
        keys = np.where(found.keys == ABSENT, PAD, found.keys)
        batch = NeighbourhoodBatch(found.tokens, keys, np.array(sight.relations), found.right)
        if sight.graph.rows.practised:
            batch = replace(batch, task=task, graph=sight.graph, paths=found.paths)
        batches.append(batch)
    return CoveringNeighbourhoods(batches, SEARCHED)


def seen_in_problems(
    task: Written, digits: np.ndarray, lengths: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The keys that response tokens of problems of one layout see, by the task's format and its coupling rule.

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
