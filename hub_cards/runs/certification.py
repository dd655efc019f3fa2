"""Certification of a checkpoint, as a command prints and files it."""

import json
import sys
import textwrap
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from longhand.data.certificates import Certificate, Failure, certify, hash_weights
from longhand.hub_cards.runs.checkpoints import CERTIFICATE_FILE, Checkpoint
from longhand.hub_cards.runs.console import one_line
from longhand.hub_cards.runs.evaluation import hardware
from longhand.hub_cards.runs.files import read_object, write_atomically
from longhand.hub_cards.runs.results import Row


def certify_checkpoint(checkpoint: Checkpoint, folder: Path, show_proof: bool = True) -> Row:
    """Check all neighbourhoods, print what that proves or finds, and write certificate.json.

    Args:
        folder: where certificate.json is written.
        show_proof: whether the steps of the proof are printed too. They are always written.

    Returns:
        One row of certificates.jsonl.

    Raises:
        CannotCertify: the model has no window, or its task's neighbourhoods are unknown or too many.
    """
    began = time.perf_counter()
    model: Any = checkpoint.model
    certificate = certify(model, checkpoint.task, progress=True)
    seconds = round(time.perf_counter() - began, 1)
    write_atomically(folder / CERTIFICATE_FILE, json.dumps(asdict(certificate), indent=2) + "\n")
    print(format_certificate(checkpoint.name, certificate, show_proof))
    print(f"\nwrote {folder / CERTIFICATE_FILE} after {seconds} seconds")
    row = {name: value for name, value in asdict(certificate).items() if name not in ("statement", "proof", "task")}
    row |= {"model": checkpoint.name, "seconds": seconds, "hardware": hardware(checkpoint.model.device)}
    return row if checkpoint.run_seconds is None else row | {"run_seconds": checkpoint.run_seconds}


def warn_of_certificate(folder: Path, model: PreTrainedModel) -> None:
    """Warn if a folder's certificate cannot be read, or is of other weights or another configuration than the model's."""
    file = folder / CERTIFICATE_FILE
    if not file.is_file():
        return
    try:
        if read_object(file).get("weights") != hash_weights(model):
            print(f"warning: {file} is not of this model: its weights or configuration have changed", file=sys.stderr)
    except ValueError as error:
        print(f"warning: {one_line(error)}", file=sys.stderr)


def format_certificate(name: str, certificate: Certificate, show_proof: bool) -> str:
    """Return a certificate, or what stands against it, as text for a person."""
    checked = f"{certificate.predictions:,} predictions"
    if certificate.problems is not None:
        checked += f" in {certificate.problems:,} short problems"
    if certificate.neighbourhoods is not None:
        checked += f" ({certificate.neighbourhoods:,} different neighbourhoods)"
    facts = {"checked": checked, "wrong": f"{certificate.wrong:,}"}
    if certificate.margin is not None:
        facts["margin"] = f"{certificate.margin:.4g}, the smallest lead of a right token's logit"
    if certificate.rounding is not None:
        facts["rounding"] = f"{certificate.rounding:.2g}, the largest difference between ways to compute a logit"
    facts["weights"] = certificate.weights
    lines = [f"{name}: {'CERTIFIED' if certificate.certified else 'NOT CERTIFIED'}. {certificate.statement}"]
    lines += [f"  {label:9} {value}" for label, value in facts.items()]
    if show_proof:
        lines += [f"  {number}. {step}" for number, step in enumerate(certificate.proof, 1)]
    lines += [f"  wrong: {failure.problem}  {_verdict(failure)}" for failure in certificate.failures]
    if certificate.wrong > len(certificate.failures):
        lines.append("  and more of the kind")
    return "\n".join(textwrap.fill(line, 118, subsequent_indent="     ") for line in lines)


def _verdict(failure: Failure) -> str:
    after = "" if failure.prefix is None else f" after {failure.prefix!r}" if failure.prefix else " at the start"
    if not failure.margin:
        return f"has no lead of {failure.right!r} over {failure.instead!r}{after}"
    return f"writes {failure.instead!r} instead of {failure.right!r}{after}"
