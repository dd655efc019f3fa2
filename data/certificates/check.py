"""The check: a model is run on every neighbourhood that its task can produce.

Under a window (`CoupledGPTConfig.windowed`) what a model predicts at a token is a function of the token's neighbourhood, and
a task has finitely many neighbourhoods (`Task.covering`).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from tqdm.auto import tqdm

from longhand.data.certificates import decoder_rounding, encoder_rounding
from longhand.data.certificates.settling import CasePredictions, CaseRounding, case_predictions
from longhand.data.collator import IGNORED, CouplingCollator, neighbourhood_inputs
from longhand.data.families.family import to_device
from longhand.data.tasks.covering import (
    CoveringCases,
    CoveringNeighbourhoods,
    CoveringProblems,
    CoveringStates,
    NeighbourhoodBatch,
    Problems,
)
from longhand.data.tasks.task import Task
from longhand.modeling import CoupledGPTForCausalLM
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.inputs import read_format
from longhand.modeling.relations import NOT_RELATED, Neighbourhoods, Neighbours, Window, distinct_neighbourhoods, is_listed
from longhand.modeling.transducer import table_of
from longhand.modeling.vocabulary import PAD, TOKENS, UNKNOWN, decode

MOST_PROBLEMS = 5_000_000
"""Checks of more problems, or neighbourhoods, are refused."""

FAILURES_SHOWN = 10

CLOSE = 4.0
"""Tokens with a lead below this are trained again, mixed with all other tokens so that the model does not forget those."""

WEAK = 1.0
"""Neighbourhoods with a lead below this are trained again."""

BOUNDED_AT_ONCE = 1000
"""Neighbourhoods between two steps of the progress bar."""

FIRST_BOUNDED = 100
"""Of every batch, these many neighbourhoods with the smallest leads are bounded before all others."""


class CannotCertify(ValueError):
    """No certificate is possible for this model and task; the message says why."""


@dataclass(frozen=True)
class Failure:
    """A problem that the model gets wrong.

    Attributes:
        problem: query and right response as text; or a neighbourhood, its token and what the token sees.
        prefix: what was written, correctly, before the first wrong token; None for a neighbourhood.
        right: the right token.
        instead: the token with the largest logit of all others.
        margin: the right token's lead over it, not above 0; None if it is not a finite number.
    """

    problem: str
    prefix: str | None
    right: str
    instead: str
    margin: float | None


@dataclass
class Check:
    """What a model does on covering problems or neighbourhoods.

    Attributes:
        problems: short problems checked; None if neighbourhoods are listed without problems.
        predictions: response tokens predicted in them.
        wrong: predictions in which the right token did not have the largest logit.
        margin: smallest difference between the right token's logit and the largest other logit.
        failing: what is practised: the problems with a wrong prediction, for each batch that has any. If single tokens are
            meant, it is all of them, and as many again with a lead below `CLOSE`. If neighbourhoods are listed, it is
            those with a lead below `WEAK`.
        failures: the first wrong predictions as text.
        neighbourhoods: different neighbourhoods; None if they were not counted.
        bound: how far rounding can move the lead of a right token at most, infinite if that is not proved; None if it was
            not asked.
        ratio: smallest quotient of a lead and its own bound, in exact arithmetic; None as above.
        parts: the check of every part, by its name, for a task that has several.
    """

    problems: int | None = None
    predictions: int = 0
    wrong: int = 0
    margin: float = math.inf
    failing: list[Problems | NeighbourhoodBatch] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    neighbourhoods: int | None = None
    bound: float | None = None
    ratio: float | None = None
    parts: dict[str, "Check"] = field(default_factory=dict)

    @classmethod
    def joined(cls, parts: dict[str, "Check"]) -> "Check":
        """What the checks of several parts of a task find together."""

        def values(name: str) -> list[Any]:
            return [value for check in parts.values() if (value := getattr(check, name)) is not None]

        bounded = len(values("ratio")) == len(parts)
        return cls(
            problems=sum(values("problems")) if values("problems") else None,
            predictions=sum(values("predictions")),
            wrong=sum(values("wrong")),
            margin=min(values("margin")),
            failing=list(chain.from_iterable(values("failing"))),
            failures=list(chain.from_iterable(values("failures")))[:FAILURES_SHOWN],
            neighbourhoods=sum(values("neighbourhoods")) if len(values("neighbourhoods")) == len(parts) else None,
            bound=max(values("bound")) if bounded else None,
            ratio=min(values("ratio")) if bounded else None,
            parts=parts,
        )

    def add(self, batch: "Predictions | CasePredictions", logits: torch.Tensor) -> torch.Tensor:
        """Count the predictions of a batch, whose logits are (count, predictions, vocabulary); return the leads."""
        target = batch.right.clamp(min=0).unsqueeze(-1)
        others = logits.scatter(-1, target, -torch.inf).amax(-1)
        leads = (logits.gather(-1, target).squeeze(-1) - others).double()
        margins = torch.where(batch.supervised, leads, torch.inf)
        mistakes = ~(margins > 0)
        self.predictions += int(batch.supervised.sum())
        self.wrong += int(mistakes.sum())
        self.margin = min(self.margin, margins.nan_to_num(-torch.inf).min().item())
        rows = mistakes.any(1).cpu()
        if batch.neighbourhoods is not None and len(weak := np.flatnonzero(~(margins >= WEAK).all(1).cpu())):
            self.failing += batch.neighbourhoods.take(weak).practised()
        if batch.problems:
            self.problems = (self.problems or 0) + len(logits)
            if batch.problems.tokens is not None:
                weak = np.flatnonzero((margins < CLOSE).any(1).cpu())
                practised = np.concatenate([np.arange(len(rows)), np.resize(weak, len(rows) * bool(len(weak)))])
                self.failing.append(batch.problems.take(practised))
            elif rows.any():
                self.failing.append(batch.problems.take(rows.numpy()))
        for row in rows.nonzero().flatten()[: FAILURES_SHOWN - len(self.failures)].tolist():
            first = int(mistakes[row].int().argmax())
            self.failures.append(_failure(batch, row, first, logits[row, first].cpu(), margins[row, first].item()))
        return leads


Covering = CoveringProblems | CoveringNeighbourhoods | CoveringStates | CoveringCases
SETTLES = (CoveringStates, CoveringCases)
"""What covers the passes of an encoder."""


def coverings(model: CoupledGPTForCausalLM, task: Task) -> list[Covering]:
    """`covering` of every part of a task.

    Raises:
        CannotCertify: as `covering`; or the model accepts other prompts than the task writes, about which nothing is proved.
    """
    if table_of(getattr(task, "transducer", None)) != getattr(model.config, "transducer", None):
        raise CannotCertify(f"no certificate: transducer of the model's config is not the table of the task {task.name!r}")
    stated = model.config.prompt_format and read_format(model.config.prompt_format)
    # A part of a task may be certified by itself.
    if stated is not None and task.prompt_format not in (stated, *getattr(stated, "formats", ())):
        raise CannotCertify(f"no certificate: prompt_format of the model's config is not that of the task {task.name!r}")
    return [covering(model, part) for part in task.parts]


def covering(model: CoupledGPTForCausalLM, task: Task) -> Covering:
    """The problems or neighbourhoods of one part that a check of the model has to run. None is made yet, so this is cheap.

    The relations of the neighbourhoods are those of the model's window.

    Raises:
        CannotCertify: the model has no window, does not end where the task ends, or has a part whose rounding has no bound;
            or its neighbourhoods are unknown, too many, or too small to decide the answer.
    """
    try:
        task.family.check_certifiable(task, model)
        layers, (window, first) = model.config.num_hidden_layers, _own_window(model, task)
        found = task.covering(window, layers)
        if isinstance(found, SETTLES):
            encoder_rounding.check_bounded(cast(Any, model))
        else:
            decoder_rounding.check_bounded(model)
    except ValueError as error:
        raise CannotCertify(f"no certificate: {error}") from error
    if found.count > MOST_PROBLEMS:
        raise CannotCertify(
            f"no certificate: the window {list(window)} in {layers} layer(s) takes {found.count:,} problems to cover, "
            f"more than {MOST_PROBLEMS:,}"
        )
    if isinstance(found, CoveringNeighbourhoods) and first:
        moved = (batch._replace(relations=batch.relations + first) for batch in found.batches)
        return replace(found, batches=moved)
    return found


def _own_window(model: CoupledGPTForCausalLM, task: Task) -> tuple[Window, int]:
    """The window by the task's own coupling rule, and the place of its first relation in the window of the model.

    They differ if the model's rule joins the task's rule with others: then no other relation holds between two tokens of a
    problem of the task (see `joined_rules`).
    """
    window, own = task.family.window(model), getattr(task, "coupling", None)
    rule = COUPLING_RULES.get(getattr(model.config, "coupling", ""))
    if rule is None or own not in rule.members or tuple(window) != rule.relations:
        return window, 0
    before = rule.members[: rule.members.index(own)]
    return COUPLING_RULES[own].relations, sum(len(COUPLING_RULES[name].relations) for name in before)


def check_neighbourhoods(
    model: CoupledGPTForCausalLM,
    task: Task,
    thorough: bool = False,
    progress: bool = False,
    enough: float = 0.0,
) -> Check:
    """Run a model on all covering problems or neighbourhoods of its task.

    Args:
        thorough: if nothing is wrong, also count neighbourhoods, and bound rounding in each of them.
        progress: whether to show a progress bar.
        enough: rounding is bounded until a ratio below this is found; it is then that of the check.

    Raises:
        CannotCertify: as `covering`.
    """
    coverings(model, task)
    if len(task.parts) == 1:
        return _check_part(model, task, thorough, progress, enough)
    # A bound takes long: it is computed if no part has a wrong prediction.
    check = Check.joined({part.name: _check_part(model, part, False, progress, enough) for part in task.parts})
    if thorough and check.wrong == 0:
        check = Check.joined({part.name: _check_part(model, part, True, progress, enough) for part in task.parts})
    return check


def _check_part(model: CoupledGPTForCausalLM, task: Task, thorough: bool, progress: bool, enough: float) -> Check:
    """`check_neighbourhoods` of one part."""
    covered: Any = covering(model, task)
    settles, listed = isinstance(covered, SETTLES), not isinstance(covered, CoveringProblems)
    batches: Any
    if settles:
        batches = case_predictions(cast(Any, model), cast(Any, task), covered)
    elif listed:
        batches = neighbourhood_predictions(model, covered.batches)
    else:
        batches = _predictions(model, task, covered.batches)
    check = Check()
    rounding: Any = (CaseRounding if settles else _Rounding)(cast(Any, model), enough) if thorough else None
    total = None if settles else covered.count
    bar = tqdm(total=total, desc=f"checking {task.name}", disable=None if progress else True, leave=False)
    training = model.training
    model.eval()
    try:
        with torch.inference_mode(), bar:
            for batch in batches:
                logits = batch.logits(model)
                leads = check.add(batch, logits)
                if rounding and check.wrong == 0:
                    rounding.add(batch, leads)
                bar.update(len(logits))
            if check.wrong == 0 and rounding:
                rounding.shows_progress = progress
                check.neighbourhoods = rounding.finish()
                check.bound, check.ratio = rounding.bound, rounding.ratio
    finally:
        model.train(training)
    if settles:
        # Problems show cases, and are not checked themselves.
        check.problems = None
    if check.wrong == 0 and listed:
        check.neighbourhoods = check.predictions
    return check


class Predictions(NamedTuple):
    """Predictions to check.

    Attributes:
        inputs: of the model's forward pass, in the form that computes each neighbourhood once.
        right: (count, predictions) tokens that are right next, `IGNORED` if nothing is predicted.
        problems: if the predictions are made in problems.
        neighbourhoods: if they are listed.
        describe: from a row and a place among its predictions to the problem and the prefix, as text.
        names: the vocabulary.
    """

    inputs: dict[str, Any]
    right: torch.Tensor
    problems: Problems | None
    neighbourhoods: NeighbourhoodBatch | None
    describe: Callable[[int, int], tuple[str, str | None]]
    names: tuple[str, ...]

    def logits(self, model: CoupledGPTForCausalLM) -> torch.Tensor:
        """The logits (count, predictions, vocabulary)."""
        return model(**self.inputs, use_cache=False).logits[:, : self.right.shape[1]]

    @property
    def supervised(self) -> torch.Tensor:
        """(count, predictions), whether something is predicted."""
        return self.right != IGNORED


def _predictions(model: CoupledGPTForCausalLM, task, batches) -> Iterator[Predictions]:
    """The predictions in the responses of problems, (digits, lengths) batch by batch."""
    collator = CouplingCollator.for_evaluation(model.config)
    for digits, lengths in batches:
        examples = task.format(digits, lengths)
        inputs = to_device(collator(examples), model.device)
        right = inputs.pop("labels")[:, -inputs["logits_to_keep"] + 1 :]

        def describe(row: int, place: int, examples=examples, predictions=right.shape[1]):
            tokens, query = examples.tokens[row], int(examples.query_lengths[row])
            response = tokens[query : len(tokens) - predictions + place]
            return decode(tokens, task.tokens), decode(response, task.tokens)

        yield Predictions(inputs, right, Problems(task, digits, lengths), None, describe, task.tokens)


def neighbourhood_predictions(model: CoupledGPTForCausalLM, batches) -> Iterator[Predictions]:
    """The predictions in neighbourhoods, each one a sequence of its own: `$`, the keys, the token."""
    window, device, names = model.model.position_encoding.window, model.device, model.config.tokens
    for listed in batches:
        batch = listed._replace(beginning=len(window) if is_listed(window) else window[1] - window[0] + 1)
        inputs = neighbourhood_inputs(batch, model.config.position_levels or 1)
        neighbours = Neighbours(*(part.to(device) for part in inputs["neighbours"]))
        inputs = to_device(inputs, device) | {"neighbours": neighbours}

        def describe(row: int, place: int, batch=batch):
            slots = zip(batch.keys[row], batch.relations, strict=True)
            sees = ", ".join(f"{names[key]} at {window[relation]}" for key, relation in slots if key != PAD)
            return f"{names[batch.tokens[row]]!r} that sees {sees or 'nothing'}", None

        right = torch.from_numpy(batch.right).long().unsqueeze(1).to(device)
        yield Predictions(inputs, right, None, batch, describe, names)


def _failure(batch: Predictions | CasePredictions, row: int, place: int, logits: torch.Tensor, margin: float) -> Failure:
    right = int(batch.right[row, place])
    instead = int(logits.scatter(0, torch.tensor(right), -torch.inf).argmax())
    problem, prefix = batch.describe(row, place)
    return Failure(
        problem=problem,
        prefix=prefix,
        right=batch.names[right],
        # A vocabulary may have more tokens than are known here.
        instead=batch.names[instead] if instead < len(batch.names) else TOKENS[UNKNOWN],
        margin=margin if math.isfinite(margin) else None,
    )


class _Rounding:
    """The neighbourhoods of a check, and how far rounding can move the leads in them, as long as that is `enough`.

    With one layer each distinct neighbourhood is bounded once. With several, what a token knows takes more than one
    neighbourhood to say: those of different batches are not compared.
    """

    def __init__(self, model: CoupledGPTForCausalLM, enough: float = 0.0):
        self.model, self.network, self.enough = model, decoder_rounding.DecoderRounding(model), enough
        self.rows: list[np.ndarray] = []
        self.batches: list[tuple[list[Neighbourhoods], torch.Tensor]] = []
        self.leads: list[np.ndarray] = []
        self.bound, self.ratio = 0.0, math.inf
        self.shows_progress = False

    def add(self, batch: Predictions, leads: torch.Tensor) -> None:
        """Note what the predictions of a batch see; `leads` are (count, predictions)."""
        *lower, last = self._neighbourhoods(batch)
        pairs, place = torch.stack([last.index, batch.right])[:, batch.supervised].unique(dim=1, return_inverse=True)
        used, right = pairs.unbind()
        last = Neighbourhoods(last.queries[used], last.keys[used], last.relations[used], index=used)
        least = leads.new_full(used.shape, torch.inf).scatter_reduce(0, place, leads[batch.supervised], "amin")
        self.leads.append(least.cpu().numpy())
        if lower:
            # Nothing reads the index of each token, which is large.
            self.batches.append(([layer._replace(index=layer.queries) for layer in (*lower, last)], right))
            return
        columns = last.queries.unsqueeze(1), right.unsqueeze(1), last.keys, last.relations
        self.rows.append(torch.cat([part.to(torch.int32) for part in columns], dim=1).cpu().numpy())

    def finish(self) -> int | None:
        """Bound what was noted, the smallest leads first; return the number of distinct neighbourhoods.

        With several layers it is None.
        """
        if self.batches:
            parts, total = self._from_batches(), sum(map(len, self.leads))
        else:
            table = self._distinct_rows()
            parts, total = self._from_rows(table), len(table)
        with tqdm(total=total, desc="bounding", disable=None if self.shows_progress else True, leave=False) as bar:
            for layers, right in parts:
                self._bound(layers, right)
                bar.update(len(right))
                if self.ratio < self.enough:
                    break
        return None if self.batches else total

    def _from_batches(self) -> Iterator[tuple[list[Neighbourhoods], torch.Tensor]]:
        """What is bounded: the smallest leads of every batch, then the others."""
        orders = [torch.from_numpy(np.argsort(leads, kind="stable")).to(self.model.device) for leads in self.leads]
        for chosen in (slice(None, FIRST_BOUNDED), slice(FIRST_BOUNDED, None)):
            for (layers, right), order in zip(self.batches, orders, strict=True):
                *lower, last = layers
                for rows in order[chosen].split(BOUNDED_AT_ONCE):
                    if len(rows):
                        yield [*lower, Neighbourhoods(*(part[rows] for part in last))], right[rows]

    def _distinct_rows(self) -> np.ndarray:
        """What was noted of one layer, each once, the smallest leads first."""
        most = max(rows.shape[1] for rows in self.rows) // 2 - 1
        table = np.concatenate([self._widen(rows, most) for rows in self.rows])
        table, first = np.unique(table, axis=0, return_index=True)
        return table[np.argsort(np.concatenate(self.leads)[first], kind="stable")]

    def _from_rows(self, table: np.ndarray) -> Iterator[tuple[list[Neighbourhoods], torch.Tensor]]:
        """What is bounded: every row."""
        most = table.shape[1] // 2 - 1
        for part in torch.from_numpy(table).to(self.model.device).split(BOUNDED_AT_ONCE):
            queries, right, keys, relations = part[:, 0], part[:, 1], part[:, 2 : most + 2], part[:, most + 2 :]
            yield [Neighbourhoods(queries.long(), keys.long(), relations, index=queries)], right.long()

    def _bound(self, layers: list[Neighbourhoods], right: torch.Tensor) -> None:
        tokens = torch.arange(self.model.config.vocab_size, device=self.model.device)
        lead, bound = self.network.lead_and_bound(tokens, layers, right)
        self.bound = max(self.bound, bound.max().item())
        self.ratio = min(self.ratio, (lead / bound).nan_to_num(0.0, posinf=torch.inf).min().item())

    def _neighbourhoods(self, batch: Predictions) -> list[Neighbourhoods]:
        """The neighbourhoods of each layer; those of the last one are of the predictions alone."""
        model, inputs = self.model, batch.inputs
        rows, depth = inputs["input_ids"], model.config.num_hidden_layers
        every = torch.arange(rows.shape[1], device=rows.device)
        kept = every[-inputs["logits_to_keep"] :][: batch.right.shape[1]]
        neighbours = inputs.get("neighbours") or model.model.neighbours(inputs["position_ids"], every, None)
        layers = []
        for layer in range(depth):
            queries = kept if layer == depth - 1 else every
            layers.append(distinct_neighbourhoods(rows, queries, neighbours.select(queries)))
            rows = layers[-1].index
        return layers

    @staticmethod
    def _widen(rows: np.ndarray, most: int) -> np.ndarray:
        """Rows of a neighbourhood's token, right next token, keys and relations, filled up to so many keys."""
        keys, relations = np.split(rows[:, 2:], 2, axis=1)
        fill = ((0, 0), (0, most - keys.shape[1]))
        relations = np.pad(relations, fill, constant_values=NOT_RELATED)
        return np.concatenate([rows[:, :2], np.pad(keys, fill), relations], axis=1)
