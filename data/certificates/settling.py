"""Certificates of encoders that settle (`modeling/settling.py`): an induction over passes, not over tokens.

A pass labels a token from what it sees, a case: the token and its state, the tokens of its column and of the column below,
and the state of the column below. The exact target of a case is called ideal (`settling.pass_targets`). A model that gives
the ideal label in every case that ideal passes meet makes ideal passes, and these end with the answer.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from longhand.data.certificates.encoder_rounding import EncoderRounding
from longhand.data.collator import IGNORED
from longhand.data.tasks.covering import CoveringCases, NeighbourhoodBatch, Problems
from longhand.data.tasks.encoder_task import EncoderTask
from longhand.modeling import PairwiseBertForTokenClassification
from longhand.modeling.settling import (
    NO_STATE,
    Cases,
    cases_at,
    find_answers,
    number_cases,
    pass_targets,
)
from longhand.modeling.vocabulary import ENCODER_TOKENS, GREATER, NOT_KNOWN, STATES

_CASES = 2**12
"""Cases that are checked at a time."""

STATEMENT = (
    "For {problems}, this model in {dtype} gives exactly the right label{table} to every token at which "
    "the answer is read, after n + 1 passes at most for n labels ({task}), in whatever order a processor adds, if it rounds "
    "to nearest in {dtype} (no TF32) and its exp, log, tanh, erf, roots and quotients are within 4 units in the last place."
)
"""What is proved; `certificate.STATEMENT` says it of decoders."""

PROOF = (
    "Locality. A token enters the layer as its embedding and that of its state. The layer's output at a token is a "
    "function of the token's own input, and of the inputs and relations of the keys within the window, in any order. "
    "Relations say how places in the problem differ, so neither length nor start enters. Keys outside the window, and "
    "text, are not among the gathered keys. Norms, MLP and classifier act on each token alone. So a label is a function of "
    "its case.",
    "Ideal passes. {ideal} So every pass changes something until all n labels are right, after n passes at most; then none "
    "does.",
    "Coverage. {coverage}",
    "Check. In each of these cases the ideal label had the largest logit, by {margin:.4g} or more.",
    "Rounding. In {dtype} a sum depends on the order of its terms, and so on how many cases are computed together. In each "
    "case, every lead of the ideal label in exact arithmetic was compared with a bound of what rounding in {dtype} can do "
    "to it in any order of summation. The bound is at most {bound:.2g}; the smallest quotient of a lead and its bound is "
    "{ratio:,.0f}, and {factor} is asked. hub_cards/PROOF.md proves the bound, and says what is assumed of the processor.",
    "Induction. Before the first pass no label is known, in the model as in ideal passes. If the labels are the same "
    "before a pass, every case is one that was checked, so the labels are the same after it. Rows of a batch do not see "
    "each other, and the code makes n + 1 passes over a row of n labels if it must.",
    "Bound. The code takes {tokens:,} tokens, of all rows together, and refuses more.{longest}",
)
"""The steps from the check to every length."""


@dataclass(frozen=True, eq=False)
class CoveredCases:
    """The different cases of covering problems, and for each a problem in which it occurs.

    Attributes:
        cases: what is labelled.
        targets: (cases,) the ideal label of each.
        digits: (cases, 2, width) the problems, ones first.
        layouts: (cases, parts) the layout of each problem.
        known: (cases, kinds) which labels are known, by their columns modulo kinds.
        places: (cases,) the place of the case's own token in its problem, from 1 on.
    """

    cases: Cases
    targets: torch.Tensor
    digits: np.ndarray
    layouts: np.ndarray
    known: np.ndarray
    places: np.ndarray


@dataclass(frozen=True, eq=False)
class CasePredictions:
    """Some covered cases, to be checked. Properties without a docstring are those of `check.Predictions`."""

    task: EncoderTask
    covered: CoveredCases
    rows: slice
    device: torch.device
    neighbourhoods = None

    @property
    def names(self) -> tuple[str, ...]:
        return self.task.labels

    @property
    def cases(self) -> Cases:
        """The cases, on the model's device."""
        return Cases(*(part[self.rows].to(self.device) for part in self.covered.cases))

    @property
    def right(self) -> torch.Tensor:
        return self.covered.targets[self.rows].unsqueeze(1).to(self.device)

    @property
    def supervised(self) -> torch.Tensor:
        return torch.ones_like(self.right, dtype=torch.bool)

    @property
    def problems(self) -> Problems:
        digits, tokens = self.covered.digits[self.rows], self.covered.places[self.rows] - 1
        if self.task.practises_tokens:
            return Problems(self.task, digits, self.covered.layouts[self.rows], tokens)
        return Problems(self.task, digits, np.full(digits.shape[:2], digits.shape[2]))

    def logits(self, model: PairwiseBertForTokenClassification) -> torch.Tensor:
        """The logits (cases, 1, labels)."""
        return model.label_cases(self.cases).unsqueeze(1)

    def describe(self, row: int, place: int) -> tuple[str, str | None]:
        index, covered = self.rows.start + row, self.covered
        digits, known = covered.digits[index : index + 1], covered.known[index]
        tokens, _, states = write_states(self.task, digits, covered.layouts[index], known)
        right = "".join(STATES[state] for state in states[0].tolist() if state != NO_STATE)
        text = "".join(ENCODER_TOKENS[token] for token in tokens[0].tolist())
        return f"{text} with the labels {right}, token {covered.places[index]},", None


class ListedPredictions(CasePredictions):
    """As `CasePredictions`, for the listed cases of a column task; `covered` is a `CoveringCases`."""

    problems = None  # type: ignore[assignment]

    @property
    def neighbourhoods(self) -> NeighbourhoodBatch:  # type: ignore[override]
        return self.covered.listed.take(self.rows)  # type: ignore[attr-defined]

    def describe(self, row: int, place: int) -> tuple[str, str | None]:
        names, tokens = self.task.labels, self.task.tokens
        index, cases = self.rows.start + row, self.covered.cases
        parts = (part[index].tolist() for part in (cases.keys, cases.key_states, cases.relations))
        seen = [
            f"{tokens[key]}{'' if state == NO_STATE else ':' + names[state]} at {relation}"
            for key, state, relation in zip(*parts, strict=True)
            if relation >= 0
        ]
        return f"{tokens[GREATER]!r} that sees {', '.join(seen)}", None


class CaseRounding:
    """How far rounding can move the leads in the cases of a check, as long as a ratio is `enough`."""

    def __init__(self, model: PairwiseBertForTokenClassification, enough: float = 0.0):
        self.network, self.enough = EncoderRounding(model), enough
        self.bound, self.ratio, self.count = 0.0, math.inf, 0

    def add(self, batch: CasePredictions, leads: torch.Tensor) -> None:
        """Bound the rounding in a batch."""
        self.count += len(leads)
        if self.ratio < self.enough:
            return
        lead, bound = self.network.lead_and_bound(batch.cases, batch.right.squeeze(1))
        self.bound = max(self.bound, bound.max().item())
        self.ratio = min(self.ratio, (lead / bound).nan_to_num(0.0, posinf=torch.inf).min().item())

    def finish(self) -> int:
        """Return the number of cases."""
        return self.count


def case_predictions(
    model: PairwiseBertForTokenClassification, task: EncoderTask, covered: Any
) -> Iterator[CasePredictions]:
    """The predictions in all cases that ideal passes of a task can meet, from what `covering` returns."""
    config: Any = model.config
    kind = ListedPredictions if isinstance(covered, CoveringCases) else CasePredictions
    if kind is CasePredictions:
        covered = find_cases(task, config.head_maps[0], tuple(config.relation_range), config.max_multiplier_length)
    for first in range(0, len(covered.targets), _CASES):
        yield kind(task, covered, slice(first, first + _CASES), model.device)


@lru_cache(maxsize=4)
def find_cases(task: EncoderTask, rule: str, relation_range: tuple[int, int], max_multiplier_length: int) -> CoveredCases:
    """Find the different cases of the covering problems of a task; they depend on no weights.

    Args:
        rule, relation_range, max_multiplier_length: of the model's configuration.
    """
    covering: Any = task.covering(relation_range, 1)
    parts = [
        _cases_of(task, digits, layout, known, (rule, relation_range, max_multiplier_length))
        for digits, layout in covering.batches
        for known in task.known_labels
    ]
    numbers, cases, targets, digits, layouts, known, places = (list(part) for part in zip(*parts, strict=True))
    width = max(part.shape[2] for part in digits)
    padded = [np.pad(part, ((0, 0), (0, 0), (0, width - part.shape[2]))) for part in digits]
    _, first = np.unique(np.concatenate(numbers), return_index=True)
    return CoveredCases(
        cases=Cases(*(torch.cat(part)[first] for part in zip(*cases, strict=True))),
        targets=torch.cat(targets)[first],
        digits=np.concatenate(padded)[first],
        layouts=np.concatenate(layouts)[first],
        known=np.concatenate(known)[first],
        places=np.concatenate(places)[first],
    )


def _cases_of(task, digits: np.ndarray, layout: tuple[int, ...], known: tuple[bool, ...], limits) -> tuple:
    """The different cases of problems (count, 2, width): their numbers, then what `CoveredCases` holds."""
    tokens, labels, states = write_states(task, digits, layout, known)
    places, rows, keys, relations = find_answers(limits[0], tokens, *limits[1:])
    flat, targets = states.flatten(), pass_targets(limits[0], tokens, states, labels).flatten()
    # An ideal pass never takes a label back.
    met = (flat[places] == NOT_KNOWN) | (targets[places] != NOT_KNOWN)
    places, rows, keys = places[met], rows[met], keys[met]
    every = number_cases(tokens.flatten(), flat, keys) * len(STATES) + targets[places]
    numbers, first = np.unique(every.numpy(), return_index=True)
    places, rows, keys = places[first], rows[first], keys[first]
    cases = cases_at(tokens.flatten(), flat, places, keys, relations)
    how = (np.tile(layout, (len(first), 1)), np.tile(known, (len(first), 1)), 1 + (places % tokens.shape[1]).numpy())
    return numbers, cases, targets[places], digits[rows.numpy()], *how


def write_states(
    task: EncoderTask, digits: np.ndarray, layout: Sequence[int], known: Sequence[bool]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Write problems (count, 2, width) as tokens, right labels, and states; (count, tokens) each.

    Args:
        known: whether labels are known, by their columns modulo its length.
    """
    examples = task.write(digits, *layout)
    tokens, labels = torch.from_numpy(examples.tokens).long(), torch.from_numpy(examples.labels).long()
    shown = np.asarray(known)[task.columns(examples.tokens[0]) % len(known)]
    states = torch.where(torch.from_numpy(shown), labels, NOT_KNOWN)
    return tokens, labels, torch.where(labels == IGNORED, NO_STATE, states)
