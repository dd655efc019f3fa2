"""Certification of a checkpoint, as a command prints and files it."""

import json
import textwrap
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from longhand.data.certificates import Certificate, Failure, certify
from longhand.hub_cards.checkpoints.certificate_file import VERIFIER, copy_verifier, hash_files
from longhand.hub_cards.checkpoints.code import changed_code
from longhand.hub_cards.checkpoints.load import Checkpoint
from longhand.hub_cards.checkpoints.zoo import is_in_zoo
from longhand.hub_cards.evaluation.results import Row, hardware
from longhand.hub_cards.files import read_object, write_atomically


def own_folder(checkpoint: Checkpoint, source: str) -> Path | None:
    """Return the folder that a checkpoint's certificate belongs to.

    None if it was loaded from the Hub or comes with the package, or is not asked about the task of a recipe in its folder.

    Raises:
        ValueError: the folder holds other code than the code that is checked.
    """
    folder = Path(source)
    if not folder.is_dir() or is_in_zoo(folder) or checkpoint.recipe_task != checkpoint.task:
        return None
    code = [name for name in hash_files(folder) if name.endswith(".py")]
    if strange := changed_code(folder, code, checkpoint.model.config, checkpoint.task, checkpoint.recipe):
        raise ValueError(
            f"{folder} holds Python files that this version of longhand did not write for this model, and a certificate is "
            f"about the code too: {', '.join(strange)}; remove what is not longhand's, and save the model again "
            f"({type(checkpoint.model).__name__}.from_pretrained({str(folder)!r}).save_pretrained({str(folder)!r}))"
        )
    return folder


def check_settings(checkpoint: Checkpoint, source: str) -> None:
    """Raise ValueError if a checkpoint has settings that its model does not know: other software may act on them."""
    model, folder = checkpoint.model, Path(source)
    files: dict[str, Any] = {"config.json": model.config}
    if model.can_generate():
        files["generation_config.json"] = model.generation_config
    for name, settings in files.items():
        # Loading drops some of the settings that a file has.
        written = read_object(folder / name) if (folder / name).is_file() else {}
        known = {*type(settings)().to_dict(), "plugins", "use_cache"}
        if unknown := sorted({*settings.to_dict(), *written} - known):
            raise ValueError(
                f"{name} of {checkpoint.name} has settings that a {model.config.model_type!r} model does not know, and "
                f"other software may act on them: remove {', '.join(unknown)}"
            )


def certify_checkpoint(
    checkpoint: Checkpoint, file: Path, folder: Path | None, show_proof: bool = True, anew: bool = True
) -> Row:
    """Check all neighbourhoods, print what that proves or finds, and write the certificate.

    Args:
        file: where the certificate is written.
        folder: see `own_folder`; the certificate names its files.
        show_proof: whether the steps of the proof are printed too. They are always written.
        anew: see `certify`.

    Returns:
        One row of certificates.jsonl.

    Raises:
        CannotCertify: the model has no window, or its task's neighbourhoods are unknown or too many.
    """
    began = time.perf_counter()
    model: Any = checkpoint.model
    certificate = certify(model, checkpoint.task, progress=True, anew=anew)
    if folder is not None:
        certificate = replace(certificate, files=hash_files(folder))
    seconds = round(time.perf_counter() - began, 1)
    write_atomically(file, json.dumps(asdict(certificate), indent=2) + "\n")
    print(format_certificate(checkpoint.name, certificate, show_proof))
    print(f"\nwrote {file} after {seconds} seconds")
    unknown = copy_verifier(folder) if folder is not None else None
    if certificate.certified and folder is not None:
        command = f"python {folder / VERIFIER.name} {folder}"
        print(f"{VERIFIER.name} does not know it: {unknown}" if unknown else f"to verify it with numpy alone: {command}")
    row = certificate_row(asdict(certificate), checkpoint.name)
    row |= {"seconds": seconds, "hardware": hardware(checkpoint.model.device)}
    return row if checkpoint.run_seconds is None else row | {"run_seconds": checkpoint.run_seconds}


def certificate_row(values: dict[str, Any], name: str) -> Row:
    """Return what certificates.jsonl holds of a certificate; `name` is the model's."""
    left_out = ("statement", "proof", "task", "limits", "files")
    return {"model": name} | {field: value for field, value in values.items() if field not in left_out}


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
    if certificate.ratio is not None:
        bound = "none that is proved" if certificate.bound is None else f"{certificate.bound:.2g}"
        facts["bound"] = f"{bound}, how far rounding in any order of summation can move a lead"
        facts["ratio"] = f"{certificate.ratio:,.3g}, the smallest quotient of a lead and its bound"
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
