"""The certificate: what a check proves, step by step, of which weights, and up to which sizes.

`PROOF` says what makes the step from the check of finitely many neighbourhoods to problems of every length.
"""

import hashlib
import json
import math
import reprlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedModel

from longhand.data.certificates import settling
from longhand.data.certificates.check import Check, Failure, check_neighbourhoods, covering
from longhand.modeling import CoupledGPTForCausalLM
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.pair_maps import MOST_TOKENS, largest_neighbour_id
from longhand.modeling.settling import MOST_TOKENS as MOST_SETTLING_TOKENS

if TYPE_CHECKING:  # Tasks import this package.
    from longhand.data.tasks.task import Task

ROUNDING_FACTOR = 1000
"""How many times larger the smallest margin must be than the largest difference that another order of computation made."""

PROOF = (
    "Locality. A token enters the first layer as its embedding alone. A layer's output at a token is a function of the "
    "token's own input, and of the inputs and relations of the keys within the window, in any order. Relations are "
    "differences of position ids, so neither length nor start enters. A key outside the window is not among the gathered "
    "keys; in the form that scores all pairs its weight is exp(lowest - largest score), which is exactly 0. Norms, MLP and "
    "output matrix act on each token alone. So the logits at a token are a function of its neighbourhood.",
    "Coverage. {coverage}",
    "Check. {where} the token that is right next (the end token included) had the largest logit, by {margin:.4g} or more.",
    "Rounding. In {dtype} a sum depends on the order of its terms, and so on how many tokens are computed together. The "
    "logits above are those of the form that computes each neighbourhood once. The logits of two other forms, all pairs in "
    "{dtype} and all pairs in float64, differed from them by {rounding:.2g} at most. This was measured, not bounded: the "
    "proof holds for every order of summation that moves no logit by half the margin, {factor:,.0f} times the largest "
    "difference that was measured.",
    "Induction. Greedy decoding starts from a correct prefix. If the first t tokens are right, the prefix is correct, so "
    "the next token is right too. This goes on until the end token is written, where decoding stops. The coupling rule "
    "plans position ids for the longest response.",
    "Bound. The code takes position ids of up to {position_ids:,} ({capacity}) and {tokens:,} tokens, query and response "
    "together, for one problem at a time. It refuses what is larger.",
)
"""The steps from the check to every length."""

PROVED = "greedy decoding with this model in {dtype} writes exactly the right response and its end token"
"""What is proved, after "for ..."."""

MEASURED = {"wrong": (0.01, 0.0), "margin": (0.01, 1e-3), "rounding": (0.9, 0.0)}
"""Fields that another processor measures a little differently, with a relative and an absolute tolerance."""

_CHECKS: dict[tuple[str, str], Check] = {}
"""The checks that this process has made, by weights and task: `find_difference` makes none of them twice."""


@dataclass(frozen=True)
class Certificate:
    """Result of `certify`, as written to certificate.json. Fields that are not described here are those of `Check`.

    Attributes:
        certified: whether every prediction was right and the margin is at least `ROUNDING_FACTOR` times the rounding.
        statement: what is proved.
        proof: its steps; empty if nothing is proved.
        task: task and format.
        limits: the largest position id, and the most tokens of query and response together, that the code takes.
        weights: `hash_weights` of the model.
        files: SHA-256 of every file of the checkpoint that decides an answer, by name; None if it is not from a folder.
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
    limits: dict[str, int]
    weights: str
    files: dict[str, str] | None = None


def certify(model: CoupledGPTForCausalLM, task: "Task", progress: bool = False) -> Certificate:
    """Prove a model exact for operands of every length, or find what it gets wrong.

    Raises:
        CannotCertify: as `covering`.
    """
    check = check_neighbourhoods(model, task, thorough=True, progress=progress)
    _CHECKS[hash_weights(model), repr(task)] = replace(check, failing=[])
    return _conclude(check, model, task)


def find_difference(
    stated: Mapping[str, Any], model: CoupledGPTForCausalLM, task: "Task", progress: bool = False
) -> str | None:
    """Check a model again, and say in which field a certificate differs from what that finds; None if in no field.

    Args:
        stated: the certificate as it was read, whatever it holds; `files` is not compared.

    Raises:
        CannotCertify: as `covering`.
    """
    covering(model, task)
    if (key := (hash_weights(model), repr(task))) not in _CHECKS:
        certify(model, task, progress)
    check = _CHECKS[key]
    close = {name: stated[name] for name in MEASURED if _is_close(stated.get(name), getattr(check, name), MEASURED[name])}
    # Statement and proof name what was measured: they must be those of the measurements that are stated.
    expected = asdict(_conclude(replace(check, **close), model, task))
    expected |= {"certified": _conclude(check, model, task).certified, **close}
    for name, found in expected.items():
        if name == "files" or (name == "failures" and _is_close(stated.get(name), found, MEASURED["margin"])):
            continue
        if type(stated.get(name)) is not type(found) or stated[name] != found:
            shown = reprlib.repr(stated[name]) if name in stated else "missing"
            return f"field {name}: it is {shown}, but a new check finds {reprlib.repr(found)}"
    return None


def _is_close(stated: Any, found: Any, tolerance: tuple[float, float]) -> bool:
    """Whether two JSON values are equal, their numbers within a relative and an absolute tolerance."""
    if isinstance(found, dict):
        same = isinstance(stated, dict) and stated.keys() == found.keys()
        return same and all(_is_close(stated[name], found[name], tolerance) for name in found)
    if isinstance(found, list):
        same = isinstance(stated, list) and len(stated) == len(found)
        return same and all(map(_is_close, stated, found, [tolerance] * len(found)))
    # Not isinstance: True is an int. An int may be too large for a float.
    if all(type(value) in (int, float) and abs(value) < 1e300 for value in (stated, found)):
        return math.isclose(stated, found, rel_tol=tolerance[0], abs_tol=tolerance[1])
    return stated == found


def _conclude(check: Check, model: CoupledGPTForCausalLM, task: "Task") -> Certificate:
    """Say what a check proves."""
    # Rounding is measured if nothing is wrong.
    certified = check.rounding is not None and check.margin >= ROUNDING_FACTOR * check.rounding
    dtype = str(model.dtype).removeprefix("torch.")
    described = ", ".join(f"{name} {value}" for name, value in task.describe().items())
    limits, sizes, proved = _limits(model, task)
    statement = "Nothing is proved."
    if certified:
        statement = f"For {task.every_problem}, up to {sizes}, {proved.format(dtype=dtype)} ({described})."
    elif check.wrong == 0:
        statement += (
            f" Every prediction is right, but the smallest margin, {check.margin:.3g}, is not {ROUNDING_FACTOR} times the "
            f"differences that rounding makes, {check.rounding:.3g}."
        )
    shared = ("problems", "predictions", "neighbourhoods", "wrong", "rounding", "failures")
    return Certificate(
        certified=certified,
        statement=statement,
        proof=_proof(check, model, task, limits) if certified else [],
        task=task.describe(),
        margin=check.margin if math.isfinite(check.margin) else None,
        limits=limits,
        weights=hash_weights(model),
        **{name: getattr(check, name) for name in shared},
    )


def _limits(model: CoupledGPTForCausalLM, task: "Task") -> tuple[dict[str, int], str, str]:
    """The largest sizes that the code takes, the same in words, and what is proved up to them."""
    if isinstance(covering(model, task), settling.CoveringStates):
        return {"tokens": MOST_SETTLING_TOKENS}, f"{MOST_SETTLING_TOKENS:,} tokens", settling.PROVED
    encoding, levels = model.model.position_encoding, model.config.position_levels or 1
    limits = {"position_ids": largest_neighbour_id(encoding.window, levels), "tokens": MOST_TOKENS}
    return limits, "position ids of {position_ids:,} and {tokens:,} tokens".format(**limits), PROVED


def _proof(check: Check, model: CoupledGPTForCausalLM, task: "Task", limits: dict[str, int]) -> list[str]:
    listed = "In each of these neighbourhoods"
    written = "On each of these problems, written correctly up to each response token,"
    covered = covering(model, task)
    settles = isinstance(covered, settling.CoveringStates)
    values = {
        "coverage": covered.argument,
        "where": listed if check.problems is None else written,
        "margin": check.margin,
        "rounding": check.rounding,
        "dtype": str(model.dtype).removeprefix("torch."),
        "capacity": "" if settles else COUPLING_RULES[model.config.coupling].capacity(limits["position_ids"]),
        **limits,
        "factor": check.margin / 2 / check.rounding if check.rounding else math.inf,
    }
    return [step.format(**values) for step in (settling.PROOF if settles else PROOF)]


def hash_weights(model: PreTrainedModel) -> str:
    """SHA-256 of all weights, of the configuration that gives them their meaning, and of the token that ends decoding."""
    # A certificate compares the task itself.
    names = type(model.config).__annotations__.keys() - {"task"}
    own = {name: getattr(model.config, name) for name in names if hasattr(model.config, name)}
    if model.can_generate():
        own["generation_eos_token_id"] = model.generation_config.eos_token_id
    digest = hashlib.sha256(json.dumps(own, sort_keys=True, default=str).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
