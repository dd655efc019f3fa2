"""The certificate: what a check proves, step by step, of which weights, and up to which sizes.

The files in `words` say what makes the step from the check of finitely many neighbourhoods to problems of every length.
"""

# Used by: hub_cards/checkpoints, hub_cards/research/gpu, hub_cards/training. Changed freely.

import hashlib
import json
import math
import reprlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from transformers import PreTrainedModel

from longhand.data.families import DECODER
from longhand.data.proofs.check import ROUNDING_FACTOR, CannotCertify, Check, Failure, check_neighbourhoods, coverings
from longhand.data.splits import make_generator
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.task import Task
from longhand.modeling.coupling import plan_position_ids
from longhand.modeling.pretrained import find_not_finite
from longhand.modeling.stored_names import read_as_stored

BY_TABLE = ", by the table in the field `transducer`,"
"""The words by which the statement of a column task names its table."""

WORDS = Path(__file__).with_name("words")
"""What certificates say, a file for each kind: `decoder.txt`, `encoder.txt`, `lengths.txt`. The statement of a kind is the
corollary in hub_cards/PROOF.md; the paragraphs of a proof are its steps, from the check to every length."""


@lru_cache(maxsize=8)
def read_words(kind: str) -> Mapping[str, tuple[str, ...]]:
    """The paragraphs of a kind of certificate by their headings. Fields in braces are for `str.format`."""
    sections: dict[str, tuple[str, ...]] = {}
    heading = ""
    for paragraph in (WORDS / f"{kind}.txt").read_text(encoding="utf-8").strip().split("\n\n"):
        line = " ".join(paragraph.splitlines())
        if line.startswith("# "):
            heading = line.removeprefix("# ")
        else:
            sections[heading] = (*sections.get(heading, ()), line)
    return sections


def _words_of(task: Task) -> Mapping[str, tuple[str, ...]]:
    """What a certificate of the task's models says."""
    return read_words("decoder" if task.family is DECODER else "encoder")


MEASURED = {"wrong": (0.01, 0.0), "margin": (0.01, 1e-3), "bound": (0.01, 0.0), "ratio": (0.01, 0.0)}
"""Fields that another processor measures a little differently, with a relative and an absolute tolerance."""

LATER = ("transducer", "learned")
"""Fields that the first certificates and configurations did not have. A hash includes only those that are set; the same is
true of `later_fields` of a configuration."""

EVERY_LENGTH: Literal["every length"] = "every length"
SINGLE_LENGTHS: Literal["lengths"] = "lengths"
"""The two kinds of certificate, `Certificate` and `LengthsCertificate`; a file names the second alone."""


@dataclass(frozen=True)
class Certificate:
    """Result of `certify`, as written to certificate.json. Fields that are not described here are those of `Check`.

    What is proved of single lengths is another kind of certificate, `LengthsCertificate`.

    Attributes:
        certified: whether every prediction was right and every lead is at least `ROUNDING_FACTOR` times its bound.
        neighbourhoods: their number, if every prediction was right.
        statement: what is proved.
        proof: its steps; empty if nothing is proved.
        task: task and format.
        limits: the largest position id, and the most tokens of query and response together, that the code takes; and if
            problems have one size, the most symbols of an operand (`length`) with which every problem keeps to both.
        weights: `hash_weights` of the model.
        transducer: the table of a column task: what the model computes; None for other tasks.
        files: SHA-256 of every file of the checkpoint that decides an answer, by name; None if it is not from a folder.
        learned: of a machine that was found, what its recipe says of it; nothing of it is proved here, and what is shown as
            proved of the machine is derived from its table. None for other tasks.
    """

    certified: bool
    statement: str
    proof: list[str]
    task: dict[str, object]
    predictions: int
    neighbourhoods: int | None
    wrong: int
    margin: float | None
    bound: float | None
    ratio: float | None
    failures: list[Failure]
    limits: dict[str, int]
    weights: str
    files: dict[str, str] | None = None
    transducer: dict[str, object] | None = None
    learned: dict[str, str] | None = None


@dataclass(frozen=True)
class LengthsCertificate:
    """What is known of single lengths of a model whose tokens see all tokens before them, as written to certificate.json.

    Attributes:
        statement: what is proved, and of which lengths.
        proof: its steps; empty if nothing is proved.
        task: task and format.
        cases: how many were bounded in this process.
        failures: the problems that the model gets wrong, one for each length that is refuted.
        weights: `hash_weights` of the model.
        files: as of `Certificate`.
        lengths: what is known of each length, the fields of a `LengthVerdict`.
        kind: always the same, tells this kind of file.
    """

    statement: str
    proof: list[str]
    task: dict[str, object]
    cases: int
    failures: list[Failure]
    weights: str
    files: dict[str, str] | None
    lengths: list[dict[str, Any]]
    kind: Literal["lengths"] = SINGLE_LENGTHS


def certify(model: PreTrainedModel, task: Task, check: Check | None = None) -> Certificate:
    """Prove a model exact for operands of every length, or find what it gets wrong.

    Args:
        check: what `check_thoroughly` found of these weights and this task; None makes a new check.

    Raises:
        CannotCertify: weights are not finite; or as `covering`.
        ValueError: the check is of other weights or another task, or ended early.
    """
    return _conclude(_checked(model, task, check), model, task)


def _checked(model: PreTrainedModel, task: Task, check: Check | None) -> Check:
    """The check of a certificate; arguments and errors as of `certify`."""
    if broken := find_not_finite(dict(model.named_parameters())):
        raise CannotCertify(f"no certificate: weights are NaN or infinite ({', '.join(broken[:3])})")
    if check is None:
        return check_thoroughly(model, task)
    if not is_check_of(check, hash_weights(model), task):
        raise ValueError("check must be what check_thoroughly found of these weights and this task, and must not end early")
    return check


def is_check_of(check: Check, weights: str, task: Task) -> bool:
    """Whether a certificate can rest on a check: it is whole, and of weights, by their `hash_weights`, and a task."""
    return check.subject == (weights, repr(task))


def check_thoroughly(model: PreTrainedModel, task: Task, enough: float = 0.0) -> Check:
    """Check a model as a certificate asks for; `certify` takes the result.

    Args:
        enough: as for `check_neighbourhoods`; a check that ends early has no `subject`.

    Raises:
        CannotCertify: as `covering`.
    """
    check = check_neighbourhoods(model, task, thorough=True, enough=enough)
    is_whole = check.ratio is None or check.ratio >= enough
    return replace(check, subject=(hash_weights(model), repr(task)) if is_whole else None)


def find_difference(stated: Mapping[str, Any], model: PreTrainedModel, task: Task, check: Check | None = None) -> str | None:
    """Check a model again, and say in which field a certificate differs from what that finds; None if in no field.

    Args:
        stated: the certificate as it was read, whatever it holds; `files` is not compared.
        check: as of `certify`.

    Raises:
        CannotCertify: as `certify`.
    """
    coverings(model, task)
    check = _checked(model, task, check)
    close = {name: stated[name] for name in MEASURED if _is_close(stated.get(name), getattr(check, name), MEASURED[name])}
    # Statement and proof name what was measured: they must be those of the measurements that are stated.
    expected = asdict(_conclude(replace(check, **close), model, task))
    expected |= {"certified": _conclude(check, model, task).certified, **close}
    for name, found in expected.items():
        if name == "files" or (name == "failures" and _is_close(stated.get(name), found, MEASURED["margin"])):
            continue
        is_missing = name not in stated and name not in LATER
        if is_missing or not same_json(stated.get(name), found):
            shown = reprlib.repr(stated[name]) if name in stated else "missing"
            return f"field {name}: it is {shown}, but a new check finds {reprlib.repr(found)}"
    return None


def same_json(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same as texts, but for the order of keys: in Python, 1, 1.0 and True are equal."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


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


def _conclude(check: Check, model: PreTrainedModel, task: Task) -> Certificate:
    """Say what a check proves."""
    # Leads are compared with their bounds if nothing is wrong.
    certified = check.ratio is not None and check.ratio >= ROUNDING_FACTOR
    dtype = str(model.dtype).removeprefix("torch.")
    described = ", ".join(f"{name} {value}" for name, value in task.describe().items())
    limits = _limits(model, task)
    statement = "Nothing is proved."
    if certified:
        (words,) = _words_of(task)["statement"]
        by_table = BY_TABLE if model.config.transducer else ""
        statement = words.format(problems=_problems(task, limits), dtype=dtype, task=described, table=by_table)
    elif check.wrong == 0:
        statement += (
            f" Every prediction is right, but in {dtype} the smallest quotient of a lead and the bound of its rounding is "
            f"{check.ratio:.3g}, not {ROUNDING_FACTOR}."
        )
    return Certificate(
        certified=certified,
        statement=statement,
        proof=_proof(check, model, task, limits) if certified else [],
        task=task.describe(),
        predictions=check.predictions,
        neighbourhoods=check.predictions if check.wrong == 0 else None,
        wrong=check.wrong,
        ratio=check.ratio,
        failures=check.failures,
        margin=check.margin if math.isfinite(check.margin) else None,
        bound=check.bound if check.bound is not None and math.isfinite(check.bound) else None,
        limits=limits,
        weights=hash_weights(model),
        transducer=model.config.transducer,
        learned=None if task.learned is None else dict(task.learned),
    )


def _limits(model: PreTrainedModel, task: Task) -> dict[str, int]:
    """The largest sizes that the code takes."""
    from longhand.data.proofs.provable import provable

    limits = provable(task).largest_sizes(model)
    longest = longest_operands(task, limits) if len(task.parts) == 1 else None
    return limits if longest is None else limits | {"length": longest}


def longest_operands(task: Task, limits: Mapping[str, int]) -> int | None:
    """The most symbols of the longest operand with which every problem keeps to the limits of ids and tokens.

    Tokens, and the largest position id of each level, are measured on problems of three lengths. None if one of them does
    not grow by the same from one length to the next, for instance since problems have two sizes.
    """
    generator, measured = make_generator("sizes", task.name), []
    lengths = (8, 9, 10)
    for length in lengths:
        drawn = np.tile(np.array(task.operand_lengths(length)), (64, 1))
        tokens = torch.from_numpy(task.examples(generator, drawn, "test").tokens).long()
        sizes = [tokens.shape[1]]
        if "position_ids" in limits:
            assert isinstance(task, DecoderTask), "only decoders have position ids"
            ids = plan_position_ids(task.rule, tokens, tokens.shape[1])
            sizes += ids.amax(dim=(0, 2)).tolist()
        measured.append(sizes)
    longest = []
    for size, (first, second, third) in enumerate(zip(*measured, strict=True)):
        step = second - first
        if step != third - second:
            return None
        # The ids of a level may be the same whatever the length.
        if step:
            limit = limits["position_ids" if size else "tokens"]
            longest.append(lengths[0] + (limit - first) // step)
    return min(longest)


def _problems(task: Task, limits: Mapping[str, int]) -> str:
    """The problems of a certificate, with the least of all limits."""
    if "length" in limits:
        return task.every_problem.replace("every length", f"every length up to {limits['length']:,}")
    ids = f"position ids of {limits['position_ids']:,} and " if "position_ids" in limits else ""
    return f"{task.every_problem}, up to {ids}{limits['tokens']:,} tokens"


def _proof(check: Check, model: PreTrainedModel, task: Task, limits: dict[str, int]) -> list[str]:
    covered = dict(zip((part.name for part in task.parts), coverings(model, task), strict=True))
    words = _words_of(task)
    argument = covered[task.parts[0].name].argument
    if len(covered) > 1:
        by_part = [f"{name}: {part.argument}" for name, part in covered.items()]
        argument = " ".join([*words["several tasks"], *by_part])
    values = {
        "coverage": argument,
        "ideal": covered[task.parts[0].name].ideal,
        "margin": check.margin,
        "bound": check.bound,
        "ratio": check.ratio,
        "dtype": str(model.dtype).removeprefix("torch."),
        "longest": f" The longest operands that fit have {limits['length']:,} symbols." if "length" in limits else "",
        **limits,
        "factor": ROUNDING_FACTOR,
    }
    return [step.format(**values) for step in words["proof"]]


def hash_weights(model: PreTrainedModel) -> str:
    """SHA-256 of all weights, of the configuration that gives them their meaning, and of the token that ends decoding."""
    # A certificate compares the task itself.
    names = type(model.config).__annotations__.keys() - {"task"}
    settings = {name: getattr(model.config, name) for name in names if hasattr(model.config, name)}
    settings = {name: value for name, value in settings.items() if value is not None or name not in LATER}
    settings = {name: value for name, value in settings.items() if not model.config.is_unset(name, value)}
    if model.can_generate():
        settings["generation_eos_token_id"] = model.generation_config.eos_token_id
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for name, tensor in sorted(read_as_stored(model).state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
