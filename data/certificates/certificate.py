"""Certificates: a finite check of a trained network that proves its answers right for operands of every length.

Under a window (`CoupledGPTConfig.windowed`) what a model predicts at a token is a function of the token's neighbourhood, and
a task has finitely many of those (`Task.covering_problems`, `Task.covering_neighbourhoods`). `certify` runs the model on all
of them; `PROOF` says what makes the step from there to every length.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm.auto import tqdm
from transformers import PreTrainedModel

from longhand.data.certificates.neighbourhoods import CoveringNeighbourhoods, CoveringProblems
from longhand.data.collator import IGNORED, CouplingCollator
from longhand.data.formatting import Examples
from longhand.data.tasks.task import Task
from longhand.modeling import CoupledGPTForCausalLM
from longhand.modeling.neighbourhoods import distinct_neighbourhoods
from longhand.modeling.pair_maps import NOT_RELATED, Neighbours
from longhand.modeling.vocabulary import ALL_TOKENS, BOS, PAD, TOKENS, UNKNOWN, decode

MOST_PROBLEMS = 5_000_000
"""Checks of more problems, or neighbourhoods, are refused."""

ROUNDING_FACTOR = 1000
"""The smallest margin must be so many times the largest difference that another order of computation was seen to make."""

FAILURES_SHOWN = 10

PROOF = (
    "Locality. A token enters the first layer as its embedding alone. A layer's output at a token is a function of the "
    "token's own input and of the inputs and relations of the keys within the window, in any order: relations are "
    "differences of position ids, so that neither length nor start enters; a key outside the window is not among those "
    "gathered, and in the form that scores all pairs its weight is exp(lowest - largest score), which is exactly 0; norms, "
    "MLP and output matrix act on each token alone. So the logits at a token are a function of its neighbourhood.",
    "Coverage. {coverage}",
    "Check. {where} the token that is right next (the end token included) had the largest logit, by {margin:.4g} or more.",
    "Rounding. In {dtype} a sum depends on the order of its terms, and so on how many tokens are computed together. The "
    "logits above are of the form that computes each neighbourhood once. Those of two other forms, all pairs in {dtype} "
    "and all pairs in float64, differed from them by {rounding:.2g} at most. This was measured, not bounded: the proof "
    "holds for every order of summation that moves no logit by half the margin, {factor:,.0f} times as much as was seen.",
    "Induction. Greedy decoding writes a token from a correct prefix at the start. If the first t tokens are right, the "
    "prefix is correct, so the next one is right too, until the end token is written, where decoding stops. The plan of "
    "position ids is known for any length (int32: up to 2**31 columns), and the coupling rule plans for the longest "
    "response.",
)
"""The steps from the check to every length."""


class CannotCertify(ValueError):
    """A certificate is out of the question for this model and task; says why."""


@dataclass(frozen=True)
class Failure:
    """A problem that the model gets wrong.

    Attributes:
        problem: query and right response as text; or a neighbourhood, its token and what that sees.
        prefix: what was written, correctly, before the first wrong token; None for a neighbourhood.
        right: the right token.
        instead: the token that has the largest logit of all others.
        margin: the right token's lead over it, not above 0; None if it is not a finite number.
    """

    problem: str
    prefix: str | None
    right: str
    instead: str
    margin: float | None


@dataclass(frozen=True)
class Check:
    """What a model does on covering problems or neighbourhoods.

    Attributes:
        problems: short problems checked; None where neighbourhoods are listed without problems.
        predictions: response tokens predicted in them.
        wrong: predictions at which the right token had not the largest logit.
        margin: smallest difference of the right token's logit and the largest other one.
        failing: (digits, lengths) of the problems with a wrong prediction, a pair for each batch that has any.
        failures: the first of them as text.
        neighbourhoods: different neighbourhoods; None where they were not counted.
        rounding: largest difference of a logit between forms of computation, over every neighbourhood (for models of more
            than one layer over every prediction); None where it was not measured.
    """

    problems: int | None
    predictions: int
    wrong: int
    margin: float
    failing: list[tuple[np.ndarray, np.ndarray]]
    failures: list[Failure]
    neighbourhoods: int | None
    rounding: float | None


@dataclass(frozen=True)
class Certificate:
    """A check and what it proves; the fields of `Check` mean the same here.

    Attributes:
        certified: whether every prediction was right and the margin is `ROUNDING_FACTOR` times the rounding or more.
        statement: what is proved.
        proof: its steps; empty if nothing is proved.
        task: task and format.
        weights: `hash_weights` of the model.
    """

    certified: bool
    statement: str
    proof: list[str]
    task: dict[str, Any]
    problems: int | None
    predictions: int
    neighbourhoods: int | None
    wrong: int
    margin: float | None
    rounding: float | None
    failures: list[Failure]
    weights: str


def covering(model: CoupledGPTForCausalLM, task: Task) -> CoveringProblems | CoveringNeighbourhoods:
    """The problems or neighbourhoods that a check of the model has to run; none is run yet.

    Raises:
        CannotCertify: the model has no window, does not end where the task does, or its neighbourhoods are unknown, too many
            or not enough to go by.
    """
    try:
        task.family.check_certifiable(task, model)
    except ValueError as error:
        raise CannotCertify(f"no certificate: {error}") from error
    config = model.config
    window, layers = model.model.position_encoding.window, config.num_hidden_layers
    try:
        found = task.covering_neighbourhoods(window, layers) or task.covering_problems(window, layers)
    except ValueError as error:
        raise CannotCertify(f"no certificate: {error}") from error
    if found.count > MOST_PROBLEMS:
        raise CannotCertify(
            f"no certificate: the window {list(window)} in {layers} layer(s) takes {found.count:,} problems to cover, "
            f"more than {MOST_PROBLEMS:,}"
        )
    return found


class _Batch(NamedTuple):
    """Predictions to check.

    Attributes:
        inputs: of the model's forward, in the form that computes each neighbourhood once.
        pair_map: in place of neighbours, for the form that scores all pairs; (count or 1, queries, columns).
        right: (count, predictions) tokens that are right next, `IGNORED` where nothing is predicted.
        problems: digits and lengths, where the batch is made of problems.
        describe: from a row and a place among its predictions to the problem and the prefix, as text.
    """

    inputs: dict[str, Any]
    pair_map: torch.IntTensor
    right: torch.LongTensor
    problems: tuple[np.ndarray, np.ndarray] | None
    describe: Callable[[int, int], tuple[str, str | None]]


def _problem_batches(model: CoupledGPTForCausalLM, task: Task, batches) -> Iterator[_Batch]:
    config, encoding = model.config, model.model.position_encoding
    collator = CouplingCollator.for_evaluation(config)
    for digits, lengths in batches:
        examples = task.format(digits, lengths)
        batch = collator(examples)
        inputs = {name: value.to(model.device) if torch.is_tensor(value) else value for name, value in batch.items()}
        right = inputs.pop("labels")[:, -batch["logits_to_keep"] + 1 :]
        pair_map = encoding.pair_map(inputs["position_ids"], inputs["position_ids"])

        def describe(row: int, place: int, examples: Examples = examples, predictions: int = right.shape[1]):
            tokens, query = examples.tokens[row], int(examples.query_lengths[row])
            return decode(tokens), decode(tokens[query : len(tokens) - predictions + place])

        yield _Batch(inputs, pair_map, right, (digits, lengths), describe)


def _neighbourhood_batches(model: CoupledGPTForCausalLM, batches) -> Iterator[_Batch]:
    """Each neighbourhood as a sequence of its own: `$`, the keys, the token."""
    window = model.model.position_encoding.window
    for tokens, keys, relations, right in batches:
        count, slots = keys.shape
        columns = slots + 2
        input_ids = np.concatenate([np.full((count, 1), BOS), keys, tokens[:, None]], axis=1)
        # Every column sees `$`, the last one the keys too.
        seen = np.full((count, columns, slots + 1), -1)
        seen[:, :, 0] = 0
        seen[:, -1, 1:] = np.where(keys == PAD, -1, np.arange(1, slots + 1))
        related = np.where(seen < 0, NOT_RELATED, np.concatenate([[len(window)], relations])).astype(np.int32)
        pair_map = np.full((count, columns, columns), NOT_RELATED, dtype=np.int32)
        pair_map[:, :, :-1] = related
        neighbours = Neighbours(*(torch.from_numpy(part).to(model.device) for part in (seen, related)))
        inputs = {
            "input_ids": torch.from_numpy(input_ids).long().to(model.device),
            "position_ids": torch.zeros((1, model.config.position_levels, columns), dtype=torch.long, device=model.device),
            "neighbours": neighbours,
            "logits_to_keep": 1,
        }

        def describe(row: int, place: int, tokens=tokens, keys=keys, relations=relations):
            sees = (
                f"{TOKENS[key]} at {window[relation]}"
                for key, relation in zip(keys[row], relations, strict=True)
                if key != PAD
            )
            return f"{TOKENS[tokens[row]]!r} that sees {', '.join(sees) or 'nothing'}", None

        right = torch.from_numpy(right).long().unsqueeze(1).to(model.device)
        yield _Batch(inputs, torch.from_numpy(pair_map).to(model.device), right, None, describe)


def check_neighbourhoods(model: CoupledGPTForCausalLM, task: Task, thorough: bool = False, progress: bool = False) -> Check:
    """Runs a model on all covering problems or neighbourhoods of its task.

    Args:
        thorough: as long as nothing is wrong, also counts neighbourhoods and computes each of them in two further ways, to
            see what rounding does.
        progress: whether a progress bar is shown.

    Raises:
        CannotCertify: as `covering`.
    """
    covered = covering(model, task)
    listed = isinstance(covered, CoveringNeighbourhoods)
    batches = _neighbourhood_batches(model, covered.batches) if listed else _problem_batches(model, task, covered.batches)
    forms = [model]
    if thorough:
        forms.append(deepcopy(model).double())
    checked = predictions = wrong = 0
    margin, rounding = float("inf"), 0.0
    failing, failures, neighbourhoods = [], [], set()
    training = model.training
    model.eval()
    bar = tqdm(total=covered.count, desc="checking", disable=None if progress else True, leave=False)
    with torch.inference_mode(), bar:
        for batch in batches:
            shown = batch.right.shape[1]
            logits = model(**batch.inputs, use_cache=False).logits[:, :shown]
            supervised = batch.right != IGNORED
            target = batch.right.clamp(min=0).unsqueeze(-1)
            of_target = logits.gather(-1, target).squeeze(-1)
            others = logits.scatter(-1, target, -torch.inf).amax(-1)
            margins = torch.where(supervised, (of_target - others).double(), torch.inf)
            mistakes = ~(margins > 0)

            checked += len(logits)
            predictions += int(supervised.sum())
            wrong += int(mistakes.sum())
            margin = min(margin, margins.nan_to_num(-torch.inf).min().item())
            rows = mistakes.any(1).cpu()
            if rows.any():
                if batch.problems:
                    failing.append(tuple(part[rows.numpy()] for part in batch.problems))
                for row in rows.nonzero().flatten()[: FAILURES_SHOWN - len(failures)].tolist():
                    failures.append(_failure(batch, row, mistakes[row].cpu(), logits[row].cpu(), margins[row].cpu()))
            if thorough and wrong == 0:
                new = torch.ones_like(rows)
                if not listed and model.config.num_hidden_layers == 1:
                    new = _add_neighbourhoods(neighbourhoods, model, batch.inputs, supervised).any(1).cpu()
                inputs = {name: value for name, value in batch.inputs.items() if name != "neighbours"}
                inputs["input_ids"] = inputs["input_ids"][new]
                pair_map = batch.pair_map if len(batch.pair_map) == 1 else batch.pair_map[new]
                for form in forms if new.any() else ():
                    other = form(**inputs, pair_map=pair_map, use_cache=False).logits[:, :shown]
                    difference = (other.double() - logits[new].double()).abs()[supervised[new]]
                    rounding = max(rounding, difference.nan_to_num(torch.inf).max().item())
            bar.update(len(logits))
    model.train(training)
    found = covered.count if listed else len(neighbourhoods) or None
    return Check(
        None if listed else checked,
        predictions,
        wrong,
        margin,
        failing,
        failures,
        neighbourhoods=found if wrong == 0 else None,
        rounding=rounding if thorough and wrong == 0 else None,
    )


def _failure(batch: _Batch, row: int, mistakes: torch.BoolTensor, logits: torch.Tensor, margins: torch.Tensor) -> Failure:
    first = int(mistakes.int().argmax())
    right = int(batch.right[row, first])
    problem, prefix = batch.describe(row, first)
    return Failure(
        problem=problem,
        prefix=prefix,
        right=TOKENS[right],
        instead=_token(int(logits[first].scatter(0, torch.tensor(right), -torch.inf).argmax())),
        margin=_finite(margins[first].item()),
    )


def _token(token: int) -> str:
    """A token as text; a vocabulary may have more than are known here."""
    return ALL_TOKENS[token] if token < len(ALL_TOKENS) else TOKENS[UNKNOWN]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _add_neighbourhoods(
    known: set[bytes], model: CoupledGPTForCausalLM, inputs: dict[str, Any], supervised: torch.BoolTensor
) -> torch.BoolTensor:
    """Adds what the supervised tokens of a batch see to `known`, as bytes that do not depend on the batch.

    Returns:
        (count, tokens), which tokens' neighbourhoods are new.
    """
    columns = torch.arange(inputs["input_ids"].shape[1], device=model.device)[-inputs["logits_to_keep"] : -1]
    neighbours = model.model.neighbours(inputs["position_ids"], columns, None)
    distinct = distinct_neighbourhoods(inputs["input_ids"], columns, neighbours)
    used = distinct.index[supervised].unique()
    relations = distinct.relations[used].long()
    keys = torch.where(relations < 0, 0, distinct.keys[used] * 2**16 + relations + 1)
    rows = torch.cat([distinct.queries[used].unsqueeze(1) + 1, keys], dim=1).cpu().numpy()
    codes = [row.tobytes().rstrip(b"\0") for row in rows]
    new = used[torch.tensor([code not in known for code in codes], device=used.device)]
    known.update(codes)
    return torch.isin(distinct.index, new) & supervised


def certify(model: CoupledGPTForCausalLM, task: Task, progress: bool = False) -> Certificate:
    """Proves a model exact for operands of every length, or finds what it gets wrong.

    Raises:
        CannotCertify: as `covering`.
    """
    check = check_neighbourhoods(model, task, thorough=True, progress=progress)
    certified = check.wrong == 0 and check.margin >= ROUNDING_FACTOR * check.rounding
    dtype = str(model.dtype).removeprefix("torch.")
    described = ", ".join(f"{name} {value}" for name, value in task.describe().items())
    if certified:
        statement = (
            f"For {task.every_problem}, greedy decoding with this model in {dtype} writes exactly the right response "
            f"and its end token ({described})."
        )
        values = {
            "coverage": covering(model, task).argument,
            "where": "In each of these neighbourhoods"
            if check.problems is None
            else "On each of these problems, written correctly up to each response token,",
            "margin": check.margin,
            "rounding": check.rounding,
            "dtype": dtype,
            "factor": check.margin / 2 / check.rounding if check.rounding else float("inf"),
        }
        proof = [step.format(**values) for step in PROOF]
    else:
        statement, proof = "Nothing is proved.", []
        if check.wrong == 0:
            statement += (
                f" Every prediction is right, but the smallest margin, {check.margin:.3g}, is not {ROUNDING_FACTOR} times "
                f"the differences that rounding makes, {check.rounding:.3g}."
            )
    return Certificate(
        certified=certified,
        statement=statement,
        proof=proof,
        task=task.describe(),
        problems=check.problems,
        predictions=check.predictions,
        neighbourhoods=check.neighbourhoods,
        wrong=check.wrong,
        margin=_finite(check.margin),
        rounding=check.rounding,
        failures=check.failures,
        weights=hash_weights(model),
    )


def hash_weights(model: PreTrainedModel) -> str:
    """SHA-256 of all weights, of the configuration that gives them their meaning, and of the token that ends decoding."""
    names = type(model.config).__annotations__
    own = {name: getattr(model.config, name) for name in names if hasattr(model.config, name)}
    if model.can_generate():
        own["generation_eos_token_id"] = model.generation_config.eos_token_id
    digest = hashlib.sha256(json.dumps(own, sort_keys=True, default=str).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
