"""The check: a model is run on every neighbourhood that its task can produce.

Under a window (`CoupledGPTConfig.windowed`) what a model predicts at a token is a function of the token's neighbourhood, and
a task has finitely many neighbourhoods (`Task.covering`). Of an encoder that settles (`modeling/settling.py`), a pass labels
a token from what it sees, a case: tokens, and labels of the pass before.
"""

# Used by: certificate.py, data/proofs/lengths, eval.py, hub_cards/checkpoints, hub_cards/training, train.py. Changed freely.

import math
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, cast

import numpy as np
import torch
from tqdm.auto import tqdm
from transformers import PreTrainedModel

from longhand.data.machines.columns import MOST_NEIGHBOURHOODS
from longhand.data.machines.covering import Covering, Listed, Practice
from longhand.data.tasks.task import Task
from longhand.modeling.inputs import read_format
from longhand.modeling.transducer import table_of
from longhand.modeling.vocabulary import TOKENS, UNKNOWN

ROUNDING_FACTOR = 10
"""How many times every lead must exceed the bound of its rounding error, for a certificate."""

FAILURES_SHOWN = 10

BOUNDED_AT_ONCE = 1000
"""Neighbourhoods that are bounded together."""


class CannotCertify(ValueError):
    """No certificate is possible for this model and task; the message says why."""


@dataclass(frozen=True)
class Failure:
    """A neighbourhood that the model gets wrong.

    Attributes:
        problem: the neighbourhood as text.
        right: the right token.
        instead: the token with the largest logit of all others.
        margin: the right token's lead over it, not above 0; None if it is not a finite number.
    """

    problem: str
    right: str
    instead: str
    margin: float | None


@dataclass
class Check:
    """The predictions of a model in all neighbourhoods of a task, or in all cases.

    Attributes:
        predictions: response tokens predicted in them.
        wrong: predictions in which the right token did not have the largest logit.
        margin: smallest difference between the right token's logit and the largest other logit.
        failing: what is practised, see `Listed.practise`.
        failures: the first wrong predictions as text.
        bound: how far rounding can move the lead of a right token at most, infinite if that is not proved; None if it was
            not asked.
        ratio: smallest quotient of a lead and its own bound, in exact arithmetic; None as above.
        parts: the check of every part, by its name, for a task that has several.
        subject: of which weights and task a whole, thorough check is, as `check_thoroughly` says; None of any other.
    """

    predictions: int = 0
    wrong: int = 0
    margin: float = math.inf
    failing: Practice = field(default_factory=Practice)
    failures: list[Failure] = field(default_factory=list)
    bound: float | None = None
    ratio: float | None = None
    parts: dict[str, "Check"] = field(default_factory=dict)
    subject: tuple[str, str] | None = None

    @classmethod
    def joined(cls, parts: dict[str, "Check"]) -> "Check":
        """The checks of several parts of a task as one."""
        checks = parts.values()
        failing = Practice()
        for check in checks:
            failing.add(check.failing)
        bounded = all(check.ratio is not None for check in checks)
        return cls(
            predictions=sum(check.predictions for check in checks),
            wrong=sum(check.wrong for check in checks),
            margin=min(check.margin for check in checks),
            failing=failing,
            failures=list(chain.from_iterable(check.failures for check in checks))[:FAILURES_SHOWN],
            bound=max(cast(float, check.bound) for check in checks) if bounded else None,
            ratio=min(cast(float, check.ratio) for check in checks) if bounded else None,
            parts=parts,
        )

    def add(self, model: PreTrainedModel, batch: Listed) -> np.ndarray:
        """Count the predictions of a model in a batch; return the leads (count,)."""
        logits = batch.logits(model)
        right = batch.targets.to(logits.device).unsqueeze(1)
        others = logits.scatter(1, right, -torch.inf)
        leads = (logits.gather(1, right) - others.amax(1, keepdim=True)).squeeze(1).double().cpu().numpy()
        wrong = np.flatnonzero(~(leads > 0))
        self.predictions += len(leads)
        self.wrong += len(wrong)
        self.margin = min(self.margin, float(np.nan_to_num(leads, nan=-np.inf).min()))
        batch.practise(leads, self.failing)
        for row in wrong[: FAILURES_SHOWN - len(self.failures)].tolist():
            names, seen = batch.describe(model, row)
            instead, margin = int(others[row].argmax()), float(leads[row])
            # A vocabulary may have more tokens than are known here.
            other = names[instead] if instead < len(names) else TOKENS[UNKNOWN]
            finite = margin if math.isfinite(margin) else None
            self.failures.append(Failure(seen, names[int(right[row])], other, finite))
        return leads


def coverings(model: PreTrainedModel, task: Task) -> list[Covering]:
    """`covering` of every part of a task.

    Raises:
        CannotCertify: as `covering`; or the model accepts other prompts than the task writes, about which nothing is proved.
    """
    if table_of(task.transducer) != model.config.transducer:
        raise CannotCertify(f"no certificate: transducer of the model's config is not the table of the task {task.name!r}")
    stated = model.config.prompt_format and read_format(model.config.prompt_format)
    # A part of a task may be certified by itself.
    if stated is not None and task.prompt_format not in (stated, *stated.formats):
        raise CannotCertify(f"no certificate: prompt_format of the model's config is not that of the task {task.name!r}")
    return [covering(model, part) for part in task.parts]


def covering(model: PreTrainedModel, task: Task) -> Covering:
    """The neighbourhoods or cases of one part that a check of the model has to run.

    The relations of the neighbourhoods are those of the model's window.

    Raises:
        CannotCertify: the model has no window, does not end where the task ends, or has a part whose rounding has no bound;
            or its neighbourhoods are unknown, too many, or too small to decide the answer.
    """
    from longhand.data.proofs.provable import provable

    try:
        provable(task).check_certifiable(task, model)
        layers, (window, first) = model.config.num_hidden_layers, provable(task).own_window(task, model)
        found = task.covering(window, layers)
        provable(task).network.check_bounded(model)
    except ValueError as error:
        raise CannotCertify(f"no certificate: {error}") from error
    if found.count > MOST_NEIGHBOURHOODS:
        raise CannotCertify(f"no certificate: there are {found.count:,} neighbourhoods, more than {MOST_NEIGHBOURHOODS:,}")
    return found.in_window(provable(task).window(model), first)


def check_neighbourhoods(model: PreTrainedModel, task: Task, thorough: bool = False, enough: float = 0.0) -> Check:
    """Run a model on all neighbourhoods of its task, or all cases.

    Args:
        thorough: if nothing is wrong, also bound rounding in each of them.
        enough: rounding is bounded until a ratio below this is found; it is then that of the check.

    Raises:
        CannotCertify: as `covering`.
    """
    coverings(model, task)
    if len(task.parts) == 1:
        return _check_part(model, task, thorough, enough)
    # A bound takes long: it is computed if no part has a wrong prediction.
    check = Check.joined({part.name: _check_part(model, part, False, enough) for part in task.parts})
    if thorough and check.wrong == 0:
        check = Check.joined({part.name: _check_part(model, part, True, enough) for part in task.parts})
    return check


def check_in_precision(model: PreTrainedModel, task: Task, dtype: torch.dtype) -> Check:
    """Run a copy of a model in another precision on all neighbourhoods of its task, or all cases.

    It says what this device computes for these batches. Nothing bounds what another order of summation gives there.

    Raises:
        CannotCertify: as `covering`, for the model as it is.
    """
    converted: Any = deepcopy(model)
    converted.to(dtype).eval()
    checks: dict[str, Check] = {}
    with torch.inference_mode():
        for part, covered in zip(task.parts, coverings(model, task), strict=True):
            check = checks[part.name] = Check()
            with tqdm(total=covered.count, desc=f"checking {part.name}", disable=None, leave=False, delay=1) as bar:
                for batch in covered.batches:
                    bar.update(len(check.add(converted, batch)))
    return checks[task.name] if len(checks) == 1 else Check.joined(checks)


def _check_part(model: PreTrainedModel, task: Task, thorough: bool, enough: float) -> Check:
    """`check_neighbourhoods` of one part."""
    covered, check = covering(model, task), Check()
    training = model.training
    parts: list[tuple[float, Listed]] = []
    model.eval()
    try:
        with torch.inference_mode():
            with tqdm(total=covered.count, desc=f"checking {task.name}", disable=None, leave=False, delay=1) as bar:
                for batch in covered.batches:
                    leads = check.add(model, batch)
                    bar.update(len(leads))
                    if thorough:
                        parts += _by_lead(batch, leads)
            if thorough and check.wrong == 0:
                from longhand.data.proofs.provable import provable

                network = provable(task).network(model)
                check.bound = 0.0
                check.ratio = math.inf
                with tqdm(total=covered.count, desc="bounding", disable=None, leave=False, delay=1) as bar:
                    for _, batch in sorted(parts, key=lambda part: part[0]):
                        lead, bound = network.lead_and_bound(batch)
                        check.bound = max(check.bound, bound.max().item())
                        check.ratio = min(check.ratio, (lead / bound).nan_to_num(0.0, posinf=torch.inf).min().item())
                        bar.update(len(lead))
                        if check.ratio < enough:
                            break
    finally:
        model.train(training)
    return check


def _by_lead(batch: Listed, leads: np.ndarray) -> Iterator[tuple[float, Listed]]:
    """Parts of a batch, each with its smallest lead; the smallest leads are in the first one."""
    order = np.argsort(leads, kind="stable")
    for first in range(0, len(order), BOUNDED_AT_ONCE):
        rows = order[first : first + BOUNDED_AT_ONCE]
        yield float(leads[rows[0]]), batch.take(rows)
