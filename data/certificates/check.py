"""The check: a model is run on every neighbourhood that its task can produce.

Under a window (`CoupledGPTConfig.windowed`) what a model predicts at a token is a function of the token's neighbourhood, and
a task has finitely many neighbourhoods (`Task.covering`).
"""

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from tqdm.auto import tqdm

from longhand.data.certificates.neighbourhoods import CoveringNeighbourhoods, CoveringProblems
from longhand.data.certificates.settling import CasePredictions, CaseRounding, CoveringStates, case_predictions
from longhand.data.collator import IGNORED, CouplingCollator
from longhand.data.families.family import to_device
from longhand.modeling import CoupledGPTForCausalLM
from longhand.modeling.neighbourhoods import distinct_neighbourhoods
from longhand.modeling.pair_maps import NOT_RELATED, Neighbours
from longhand.modeling.vocabulary import ALL_TOKENS, BOS, PAD, TOKENS, UNKNOWN, decode

if TYPE_CHECKING:  # Tasks import this package.
    from longhand.data.tasks.task import Task

MOST_PROBLEMS = 5_000_000
"""Checks of more problems, or neighbourhoods, are refused."""

FAILURES_SHOWN = 10


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
        failing: (digits, lengths) of the problems with a wrong prediction, one pair for each batch that has any.
        failures: the first of them as text.
        neighbourhoods: different neighbourhoods; None if they were not counted.
        rounding: largest difference of a logit between forms of computation, over every neighbourhood (for models of more
            than one layer over every prediction); None if it was not measured.
    """

    problems: int | None = None
    predictions: int = 0
    wrong: int = 0
    margin: float = math.inf
    failing: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    neighbourhoods: int | None = None
    rounding: float | None = None

    def add(self, batch: "Predictions | CasePredictions", logits: torch.Tensor) -> None:
        """Count the predictions of a batch, whose logits are (count, predictions, vocabulary)."""
        target = batch.right.clamp(min=0).unsqueeze(-1)
        others = logits.scatter(-1, target, -torch.inf).amax(-1)
        leads = (logits.gather(-1, target).squeeze(-1) - others).double()
        margins = torch.where(batch.supervised, leads, torch.inf)
        mistakes = ~(margins > 0)
        self.predictions += int(batch.supervised.sum())
        self.wrong += int(mistakes.sum())
        self.margin = min(self.margin, margins.nan_to_num(-torch.inf).min().item())
        rows = mistakes.any(1).cpu()
        if batch.problems:
            self.problems = (self.problems or 0) + len(logits)
            if rows.any():
                digits, lengths = batch.problems
                self.failing.append((digits[rows.numpy()], lengths[rows.numpy()]))
        for row in rows.nonzero().flatten()[: FAILURES_SHOWN - len(self.failures)].tolist():
            first = int(mistakes[row].int().argmax())
            self.failures.append(_failure(batch, row, first, logits[row, first].cpu(), margins[row, first].item()))


def covering(model: CoupledGPTForCausalLM, task: "Task") -> CoveringProblems | CoveringNeighbourhoods | CoveringStates:
    """The problems or neighbourhoods that a check of the model has to run. None is made yet, so this is cheap.

    Raises:
        CannotCertify: the model has no window, or does not end where the task ends; or its neighbourhoods are unknown, too
            many, or too small to decide the answer.
    """
    try:
        task.family.check_certifiable(task, model)
        window, layers = task.family.window(model), model.config.num_hidden_layers
        found = task.covering(window, layers)
    except ValueError as error:
        raise CannotCertify(f"no certificate: {error}") from error
    if found.count > MOST_PROBLEMS:
        raise CannotCertify(
            f"no certificate: the window {list(window)} in {layers} layer(s) takes {found.count:,} problems to cover, "
            f"more than {MOST_PROBLEMS:,}"
        )
    return found


def check_neighbourhoods(
    model: CoupledGPTForCausalLM, task: "Task", thorough: bool = False, progress: bool = False
) -> Check:
    """Run a model on all covering problems or neighbourhoods of its task.

    Args:
        thorough: as long as nothing is wrong, also count neighbourhoods, and compute each of them in two further ways to
            measure rounding.
        progress: whether to show a progress bar.

    Raises:
        CannotCertify: as `covering`.
    """
    covered = covering(model, task)
    settles, listed = isinstance(covered, CoveringStates), not isinstance(covered, CoveringProblems)
    batches: Any
    if settles:
        batches = case_predictions(cast(Any, model), cast(Any, task))
    elif listed:
        batches = neighbourhood_predictions(model, covered.batches)
    else:
        batches = _predictions(model, task, covered.batches)
    check = Check()
    rounding: Any = None
    if thorough:
        distinct = not listed and model.config.num_hidden_layers == 1
        rounding = CaseRounding(cast(Any, model)) if settles else _Rounding(model, distinct)
    bar = tqdm(total=None if settles else covered.count, desc="checking", disable=None if progress else True, leave=False)
    training = model.training
    model.eval()
    try:
        with torch.inference_mode(), bar:
            for batch in batches:
                logits = batch.logits(model)
                check.add(batch, logits)
                if rounding and check.wrong == 0:
                    rounding.add(batch, logits)
                bar.update(len(logits))
    finally:
        model.train(training)
    if settles:
        # Problems show cases, and are not checked themselves.
        check.problems = None
    if check.wrong == 0:
        check.neighbourhoods = check.predictions if listed else None
        if rounding:
            check.neighbourhoods = check.neighbourhoods or len(rounding.known) or None
            check.rounding = rounding.largest
    return check


class Predictions(NamedTuple):
    """Predictions to check.

    Attributes:
        inputs: of the model's forward pass, in the form that computes each neighbourhood once.
        pair_map: in place of neighbours, for the form that scores all pairs; (count or 1, queries, columns).
        right: (count, predictions) tokens that are right next, `IGNORED` if nothing is predicted.
        problems: digits and lengths, if the predictions are made in problems.
        describe: from a row and a place among its predictions to the problem and the prefix, as text.
    """

    inputs: dict[str, Any]
    pair_map: torch.Tensor
    right: torch.Tensor
    problems: tuple[np.ndarray, np.ndarray] | None
    describe: Callable[[int, int], tuple[str, str | None]]

    def logits(self, model: CoupledGPTForCausalLM) -> torch.Tensor:
        """The logits (count, predictions, vocabulary)."""
        return model(**self.inputs, use_cache=False).logits[:, : self.right.shape[1]]

    @property
    def names(self) -> tuple[str, ...]:
        """What is predicted, by its number."""
        return ALL_TOKENS

    @property
    def supervised(self) -> torch.Tensor:
        """(count, predictions), whether something is predicted."""
        return self.right != IGNORED


def _predictions(model: CoupledGPTForCausalLM, task, batches) -> Iterator[Predictions]:
    """The predictions in the responses of problems, (digits, lengths) batch by batch."""
    encoding, collator = model.model.position_encoding, CouplingCollator.for_evaluation(model.config)
    for digits, lengths in batches:
        examples = task.format(digits, lengths)
        inputs = to_device(collator(examples), model.device)
        right = inputs.pop("labels")[:, -inputs["logits_to_keep"] + 1 :]
        pair_map = encoding.pair_map(inputs["position_ids"], inputs["position_ids"])

        def describe(row: int, place: int, examples=examples, predictions=right.shape[1]):
            tokens, query = examples.tokens[row], int(examples.query_lengths[row])
            return decode(tokens), decode(tokens[query : len(tokens) - predictions + place])

        yield Predictions(inputs, pair_map, right, (digits, lengths), describe)


def neighbourhood_predictions(model: CoupledGPTForCausalLM, batches) -> Iterator[Predictions]:
    """The predictions in neighbourhoods, each one a sequence of its own: `$`, the keys, the token."""
    window, device = model.model.position_encoding.window, model.device
    for batch in batches:
        count, slots = batch.keys.shape
        columns = slots + 2
        input_ids = np.concatenate([np.full((count, 1), BOS), batch.keys, batch.tokens[:, None]], axis=1)
        # Every column sees `$`, and the last one also the keys.
        seen = np.full((count, columns, slots + 1), -1)
        seen[:, :, 0] = 0
        seen[:, -1, 1:] = np.where(batch.keys == PAD, -1, np.arange(1, slots + 1))
        related = np.where(seen < 0, NOT_RELATED, np.concatenate([[len(window)], batch.relations])).astype(np.int32)
        pair_map = np.full((count, columns, columns), NOT_RELATED, dtype=np.int32)
        pair_map[:, :, :-1] = related
        inputs = {
            "input_ids": torch.from_numpy(input_ids).long().to(device),
            "position_ids": torch.zeros((1, model.config.position_levels or 1, columns), dtype=torch.long, device=device),
            "neighbours": Neighbours(torch.from_numpy(seen).to(device), torch.from_numpy(related).to(device)),
            "logits_to_keep": 1,
        }

        def describe(row: int, place: int, batch=batch):
            slots = zip(batch.keys[row], batch.relations, strict=True)
            sees = ", ".join(f"{TOKENS[key]} at {window[relation]}" for key, relation in slots if key != PAD)
            return f"{TOKENS[batch.tokens[row]]!r} that sees {sees or 'nothing'}", None

        right = torch.from_numpy(batch.right).long().unsqueeze(1).to(device)
        yield Predictions(inputs, torch.from_numpy(pair_map).to(device), right, None, describe)


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
    """The largest difference that the form of computation makes, and the neighbourhoods in which it was measured.

    Args:
        model: compared with itself scoring all pairs, in its own precision and in float64.
        distinct: whether to count neighbourhoods and to measure in each of them once, not in every prediction.
    """

    def __init__(self, model: CoupledGPTForCausalLM, distinct: bool):
        self.model, self.distinct = model, distinct
        self.forms = (model, deepcopy(model).double().eval())
        self.known: set[bytes] = set()
        self.largest = 0.0

    def add(self, batch: Predictions, logits: torch.Tensor) -> None:
        """Compare the logits of a batch, (count, predictions, vocabulary), with other forms of computation."""
        supervised = batch.supervised
        new = torch.ones(len(logits), dtype=torch.bool)
        if self.distinct:
            new = self._add_neighbourhoods(batch.inputs, supervised).any(1).cpu()
        if not new.any():
            return
        inputs = {name: value for name, value in batch.inputs.items() if name != "neighbours"}
        inputs["input_ids"] = inputs["input_ids"][new]
        pair_map = batch.pair_map if len(batch.pair_map) == 1 else batch.pair_map[new]
        for form in self.forms:
            other = form(**inputs, pair_map=pair_map, use_cache=False).logits[:, : logits.shape[1]]
            difference = (other.double() - logits[new].double()).abs()[supervised[new]]
            self.largest = max(self.largest, difference.nan_to_num(torch.inf).max().item())

    def _add_neighbourhoods(self, inputs: dict[str, Any], supervised: torch.Tensor) -> torch.Tensor:
        """Add what the supervised tokens of a batch see to `known`, as bytes that do not depend on the batch.

        Returns:
            (count, tokens), the tokens whose neighbourhoods are new.
        """
        model = self.model
        columns = torch.arange(inputs["input_ids"].shape[1], device=model.device)[-inputs["logits_to_keep"] : -1]
        neighbours = model.model.neighbours(inputs["position_ids"], columns, None)
        distinct = distinct_neighbourhoods(inputs["input_ids"], columns, neighbours)
        used = distinct.index[supervised].unique()
        relations = distinct.relations[used].long()
        keys = torch.where(relations < 0, 0, distinct.keys[used] * 2**16 + relations + 1)
        rows = torch.cat([distinct.queries[used].unsqueeze(1) + 1, keys], dim=1).cpu().numpy()
        codes = [row.tobytes().rstrip(b"\0") for row in rows]
        new = used[torch.tensor([code not in self.known for code in codes], device=used.device)]
        self.known.update(codes)
        return torch.isin(distinct.index, new) & supervised
