"""Certificates: a finite check of a trained network that proves its answers right for operands of every length.

Under a window (`CoupledGPTConfig.windowed`) what a model predicts at a token is a function of the token's neighbourhood, and
a task has finitely many of those (`Task.covering_problems`). `certify` runs the model on all of them; `PROOF` says what
makes the step from there to every length.
"""

import hashlib
import json
import math
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

from longhand.data.collator import IGNORED, CouplingCollator
from longhand.data.formatting import Examples
from longhand.data.task import CoveringProblems, Task
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.modeling.neighbourhoods import distinct_neighbourhoods
from longhand.modeling.vocabulary import decode

MOST_PROBLEMS = 5_000_000
"""Checks of more problems are refused."""

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
    "Check. On each of these problems, written correctly up to each response token, the token that is right next (the end "
    "token included) had the largest logit, by {margin:.4g} or more.",
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
        problem: query and right response as text.
        prefix: what was written, correctly, before the first wrong token.
        right: the right token.
        instead: the token that has the largest logit of all others.
        margin: the right token's lead over it, not above 0; None if it is not a finite number.
    """

    problem: str
    prefix: str
    right: str
    instead: str
    margin: float | None


@dataclass(frozen=True)
class Check:
    """What a model does on covering problems.

    Attributes:
        problems: short problems checked.
        predictions: response tokens predicted in them.
        wrong: predictions at which the right token had not the largest logit.
        margin: smallest difference of the right token's logit and the largest other one.
        failing: (digits, lengths) of the problems with a wrong prediction, a pair for each batch that has any.
        failures: the first of them as text.
        neighbourhoods: different neighbourhoods; None where they were not counted.
        rounding: largest difference of a logit between forms of computation, over every neighbourhood (for models of more
            than one layer over every prediction); None where it was not measured.
    """

    problems: int
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
    problems: int
    predictions: int
    neighbourhoods: int | None
    wrong: int
    margin: float | None
    rounding: float | None
    failures: list[Failure]
    weights: str


def covering_problems(model: CoupledGPTForCausalLM, task: Task) -> CoveringProblems:
    """The problems that a check of the model has to run; none is run yet.

    Raises:
        CannotCertify: the model has no window, does not end where the task does, or its neighbourhoods are unknown, too many
            or not enough to go by.
    """
    config = model.config
    if not model.model.position_encoding.windowed:
        raise CannotCertify(
            f"no certificate: the model has no window (position_encoding {config.position_encoding!r}, windowed "
            f"{config.windowed}), so what it predicts may depend on the whole input and infinitely many cases remain"
        )
    if config.coupling != task.coupling:
        raise CannotCertify(f"no certificate: the model has the coupling rule {config.coupling!r}, not {task.coupling!r}")
    ends = config.eos_token_id, model.generation_config.eos_token_id
    if any(end not in (task.end_token, [task.end_token]) for end in ends):
        raise CannotCertify(
            f"no certificate: the task ends with token {task.end_token}, but decoding stops at eos_token_id {ends[1]} "
            f"(generation_config; {ends[0]} in config)"
        )
    try:
        covering = task.covering_problems(tuple(config.relation_range), config.num_hidden_layers)
    except ValueError as error:
        raise CannotCertify(f"no certificate: {error}") from error
    if covering.count > MOST_PROBLEMS:
        raise CannotCertify(
            f"no certificate: relation_range {list(config.relation_range)} in {config.num_hidden_layers} layer(s) takes "
            f"{covering.count:,} problems to cover, more than {MOST_PROBLEMS:,}"
        )
    return covering


def check_neighbourhoods(model: CoupledGPTForCausalLM, task: Task, thorough: bool = False, progress: bool = False) -> Check:
    """Runs a model on all covering problems of its task.

    Args:
        thorough: as long as nothing is wrong, also counts neighbourhoods and computes each of them in two further ways, to
            see what rounding does.
        progress: whether a progress bar is shown.

    Raises:
        CannotCertify: as `covering_problems`.
    """
    covering = covering_problems(model, task)
    config = model.config
    forms = [model]
    if thorough:
        forms.append(deepcopy(model).double())
    collator = CouplingCollator(config.coupling, config.max_position_ids)
    problems = predictions = wrong = 0
    margin, rounding = float("inf"), 0.0
    failing, failures, neighbourhoods = [], [], set()
    training = model.training
    model.eval()
    bar = tqdm(total=covering.count, desc="checking problems", disable=None if progress else True, leave=False)
    with torch.inference_mode(), bar:
        for digits, lengths in covering.batches:
            examples = task.format(digits, lengths)
            batch = collator(examples)
            inputs = {name: value.to(model.device) if torch.is_tensor(value) else value for name, value in batch.items()}
            labels = inputs.pop("labels")[:, -batch["logits_to_keep"] + 1 :]
            logits = model(**inputs, use_cache=False).logits[:, :-1]
            supervised = labels != IGNORED
            target = labels.clamp(min=0).unsqueeze(-1)
            of_target = logits.gather(-1, target).squeeze(-1)
            others = logits.scatter(-1, target, -torch.inf).amax(-1)
            margins = torch.where(supervised, (of_target - others).double(), torch.inf)
            mistakes = ~(margins > 0)

            problems += len(digits)
            predictions += int(supervised.sum())
            wrong += int(mistakes.sum())
            margin = min(margin, margins.nan_to_num(-torch.inf).min().item())
            rows = mistakes.any(1).cpu()
            if rows.any():
                failing.append((digits[rows.numpy()], lengths[rows.numpy()]))
                for row in rows.nonzero().flatten()[: FAILURES_SHOWN - len(failures)].tolist():
                    failures.append(_failure(examples, row, mistakes[row].cpu(), logits[row].cpu(), margins[row].cpu()))
            if thorough and wrong == 0:
                new = torch.ones_like(rows)
                if config.num_hidden_layers == 1:
                    new = _add_neighbourhoods(neighbourhoods, model, inputs, supervised).any(1).cpu()
                pair_map = model.model.position_encoding.pair_map(inputs["position_ids"], inputs["position_ids"])
                inputs["input_ids"] = inputs["input_ids"][new]
                for form in forms if new.any() else ():
                    other = form(**inputs, pair_map=pair_map, use_cache=False).logits[:, :-1]
                    difference = (other.double() - logits[new].double()).abs()[supervised[new]]
                    rounding = max(rounding, difference.nan_to_num(torch.inf).max().item())
            bar.update(len(digits))
    model.train(training)
    return Check(
        problems,
        predictions,
        wrong,
        margin,
        failing,
        failures,
        neighbourhoods=len(neighbourhoods) or None if wrong == 0 else None,
        rounding=rounding if thorough and wrong == 0 else None,
    )


def _failure(
    examples: Examples, row: int, mistakes: torch.BoolTensor, logits: torch.Tensor, margins: torch.Tensor
) -> Failure:
    tokens, query = examples.tokens[row], int(examples.query_lengths[row])
    first = int(mistakes.int().argmax())
    column = examples.tokens.shape[1] - len(mistakes) + first
    others = logits[first].scatter(0, torch.tensor(int(tokens[column])), -torch.inf)
    return Failure(
        problem=decode(tokens),
        prefix=decode(tokens[query:column]),
        right=decode([tokens[column]]),
        instead=decode([int(others.argmax())]),
        margin=_finite(margins[first].item()),
    )


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
        CannotCertify: as `covering_problems`.
    """
    check = check_neighbourhoods(model, task, thorough=True, progress=progress)
    certified = check.wrong == 0 and check.margin >= ROUNDING_FACTOR * check.rounding
    dtype = str(model.dtype).removeprefix("torch.")
    described = ", ".join(f"{name} {value}" for name, value in task.describe().items())
    if certified:
        statement = (
            f"For operands of every length, greedy decoding with this model in {dtype} writes exactly the right response "
            f"and its end token ({described})."
        )
        values = {
            "coverage": covering_problems(model, task).argument,
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


def hash_weights(model: CoupledGPTForCausalLM) -> str:
    """SHA-256 of all weights, of the configuration that gives them their meaning, and of the token that ends decoding."""
    own = {name: getattr(model.config, name) for name in CoupledGPTConfig.__annotations__ if hasattr(model.config, name)}
    own["generation_eos_token_id"] = model.generation_config.eos_token_id
    digest = hashlib.sha256(json.dumps(own, sort_keys=True, default=str).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
