"""The certificate: what a check proves, step by step, and of which weights.

`PROOF` says what makes the step from the check of finitely many neighbourhoods to problems of every length.
"""

import hashlib
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedModel

from longhand.data.certificates.check import Check, Failure, check_neighbourhoods, covering
from longhand.modeling import CoupledGPTForCausalLM

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
    "the next token is right too. This goes on until the end token is written, where decoding stops. The plan of position "
    "ids is known for any length (int32: up to 2**31 columns), and the coupling rule plans for the longest response.",
)
"""The steps from the check to every length."""


@dataclass(frozen=True)
class Certificate:
    """Result of `certify`, as written to certificate.json. Fields that are not described here are those of `Check`.

    Attributes:
        certified: whether every prediction was right and the margin is at least `ROUNDING_FACTOR` times the rounding.
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


def certify(model: CoupledGPTForCausalLM, task: "Task", progress: bool = False) -> Certificate:
    """Prove a model exact for operands of every length, or find what it gets wrong.

    Raises:
        CannotCertify: as `covering`.
    """
    check = check_neighbourhoods(model, task, thorough=True, progress=progress)
    # Rounding is measured if nothing is wrong.
    certified = check.rounding is not None and check.margin >= ROUNDING_FACTOR * check.rounding
    dtype = str(model.dtype).removeprefix("torch.")
    described = ", ".join(f"{name} {value}" for name, value in task.describe().items())
    statement = "Nothing is proved."
    if certified:
        statement = (
            f"For {task.every_problem}, greedy decoding with this model in {dtype} writes exactly the right response "
            f"and its end token ({described})."
        )
    elif check.wrong == 0:
        statement += (
            f" Every prediction is right, but the smallest margin, {check.margin:.3g}, is not {ROUNDING_FACTOR} times the "
            f"differences that rounding makes, {check.rounding:.3g}."
        )
    shared = ("problems", "predictions", "neighbourhoods", "wrong", "rounding", "failures")
    return Certificate(
        certified=certified,
        statement=statement,
        proof=_proof(check, dtype, covering(model, task).argument) if certified else [],
        task=task.describe(),
        margin=check.margin if math.isfinite(check.margin) else None,
        weights=hash_weights(model),
        **{name: getattr(check, name) for name in shared},
    )


def _proof(check: Check, dtype: str, coverage: str) -> list[str]:
    listed = "In each of these neighbourhoods"
    written = "On each of these problems, written correctly up to each response token,"
    values = {
        "coverage": coverage,
        "where": listed if check.problems is None else written,
        "margin": check.margin,
        "rounding": check.rounding,
        "dtype": dtype,
        "factor": check.margin / 2 / check.rounding if check.rounding else math.inf,
    }
    return [step.format(**values) for step in PROOF]


def hash_weights(model: PreTrainedModel) -> str:
    """SHA-256 of all weights, of the configuration that gives them their meaning, and of the token that ends decoding."""
    names = type(model.config).__annotations__
    own = {name: getattr(model.config, name) for name in names if hasattr(model.config, name)}
    if model.can_generate():
        own["generation_eos_token_id"] = model.generation_config.eos_token_id
    digest = hashlib.sha256(json.dumps(own, sort_keys=True, default=str).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
