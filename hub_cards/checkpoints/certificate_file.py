"""The certificate in a checkpoint's folder.

Three acts, three words. `certify_checkpoint` proves and writes. `fitting_certificate` reads what a file states, of which
nothing is proved anew. `read_certificate` reads it and proves it anew.
"""

# Used by: load.py, solver.py, eval.py, hub_cards/publishing, hub_cards/research, train.py. Changed freely.

import json
import reprlib
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from transformers import GenerationConfig, PreTrainedConfig

from longhand.data.proofs import check
from longhand.data.proofs.certificate import (
    SINGLE_LENGTHS,
    Certificate,
    certify,
    check_thoroughly,
    find_difference,
    is_check_of,
    same_json,
)
from longhand.data.proofs.check import CannotCertify, Check, Failure
from longhand.data.tasks.column_task import CODE, PROVED
from longhand.data.tasks.task import Task
from longhand.hub_cards.checkpoints.certificate_kinds import read_stated
from longhand.hub_cards.checkpoints.checkpoint import (
    CERTIFICATE_FILE,
    OUTPUTS,
    VERIFIER_FILE,
    Checkpoint,
    changed_code,
    hash_files,
    is_certified,
)
from longhand.hub_cards.checkpoints.covered_files import check_covered
from longhand.hub_cards.commands import command_of, one_line, read_object, shell_word, write_atomically
from longhand.hub_cards.result_rows import Row, hardware

VERIFIER = Path(check.__file__).with_name(VERIFIER_FILE)
"""A program that verifies certificates with numpy alone. A copy stands beside each that it knows how to verify."""


def fitting_certificate(folder: Path, weights: str, task: Task) -> dict[str, object] | None:
    """Return the fields of the certificate in a folder; None if there is none. Nothing is proved anew.

    Args:
        weights: `hash_weights` of the folder's model.

    Raises:
        ValueError: it cannot be read, or is of other files, weights or another task than the folder's.
    """
    file = folder / CERTIFICATE_FILE
    if not file.is_file():
        return None
    advice = f"run {command_of('eval')} {shell_word(folder)} --certify again"
    try:
        certificate = read_stated(file)
    except ValueError as reason:
        raise ValueError(f"{one_line(reason)}: {advice}") from reason
    if differences := _compare(certificate["files"] or {}, hash_files(folder)):
        raise ValueError(f"{file} is not of these files ({', '.join(differences)}): {advice}")
    if certificate["weights"] != weights:
        raise ValueError(f"{file} is not of this model, its weights or configuration differ: {advice}")
    stated, described = certificate["task"], task.for_evaluation.describe()
    if changed := [name for name in {**stated, **described} if not same_json(stated.get(name), described.get(name))]:
        listed = ", ".join(f"{name} was {reprlib.repr(stated.get(name))}, is {described.get(name)!r}" for name in changed)
        raise ValueError(f"{file} is of another task or format ({listed}): {advice}")
    if is_certified(certificate):
        check_covered(folder, task)
    return certificate


def proves(certificate: Mapping[str, object]) -> bool:
    """Whether a certificate may prove anything, of every length or of single ones."""
    return certificate["kind"] == SINGLE_LENGTHS or is_certified(certificate)


def with_certificate(checkpoint: Checkpoint) -> Checkpoint:
    """Return a checkpoint with the certificate that its folder holds now, or with the fault of that certificate."""
    task = checkpoint.own_task or checkpoint.task
    try:
        stated, fault = fitting_certificate(checkpoint.folder, checkpoint.weights, task), ""
    except (ValueError, OSError) as error:
        stated, fault = None, one_line(error)
    return replace(checkpoint, certificate=stated, fault=fault)


def with_check(checkpoint: Checkpoint, known: Check | None) -> Checkpoint:
    """Return a checkpoint with a check that a certificate can rest on: one that is known if it is of it, or a new one.

    Raises:
        CannotCertify: as `check_thoroughly`.
    """
    model, task = checkpoint.model, checkpoint.task
    is_known = known is not None and is_check_of(known, checkpoint.weights, task)
    return replace(checkpoint, check=known if is_known else check_thoroughly(model, task))


def _compare(before: dict[str, object], now: dict[str, str]) -> list[str]:
    """Return the differences between the hashes of files, a line for each file."""
    missing = [f"{name} is missing" for name in before if name not in now]
    added = [f"{name} is new" for name in now if name not in before]
    return [*(f"{name} differs" for name in now if before.get(name, now[name]) != now[name]), *missing, *added]


def read_certificate(checkpoint: Checkpoint) -> dict[str, object] | None:
    """Return the certificate of a checkpoint, after a new check of the model; None if there is none.

    The check is the checkpoint's own if this process has made it, and takes seconds if not. Of a certificate of single
    lengths, as many lengths are proved again as a limit of seconds allows, and the others are called taken over
    (`prove_again`).

    Raises:
        ValueError: it cannot be read, does not fit the folder, says something else than the check finds, or says
            "certified", or which lengths are proved, of a folder with what no certificate is about (`check_certifiable`).
    """
    if checkpoint.fault:
        raise ValueError(checkpoint.fault)
    if checkpoint.certificate is None:
        return None
    if proves(checkpoint.certificate):
        check_certifiable(checkpoint)
    file, model, task = checkpoint.folder / CERTIFICATE_FILE, checkpoint.model, checkpoint.task
    again = f"run {command_of('eval')} {shell_word(checkpoint.folder)} --certify again"
    try:
        if checkpoint.certificate["kind"] == SINGLE_LENGTHS:
            return _prove_lengths_again(checkpoint.certificate, checkpoint)
        different = find_difference(checkpoint.certificate, model, task, checkpoint.check)
    except CannotCertify as error:
        raise ValueError(f"{file} does not hold ({error}): remove it") from error
    if different is not None:
        raise ValueError(f"{file}, {different}: {again}")
    return checkpoint.certificate


def _prove_lengths_again(stated: Row, checkpoint: Checkpoint) -> Row:
    """As `prove_again`, with the file and the advice in the reason of a refusal."""
    from longhand.hub_cards.checkpoints.length_certificate import prove_again

    try:
        return prove_again(stated, checkpoint)
    except CannotCertify:
        raise
    except ValueError as error:
        file = checkpoint.folder / CERTIFICATE_FILE
        # The command keeps what the file says of other lengths, as long as there is one.
        again = f"remove it and run {command_of('eval')} {shell_word(checkpoint.folder)} --certify --lengths ... again"
        raise ValueError(f"{file}, {error}: {again}") from error


def check_certifiable(checkpoint: Checkpoint) -> None:
    """Check the settings and the code, which a certificate covers besides the weights. Cards and pushes ask this too.

    Raises:
        ValueError: the folder has files that no certificate covers, the checkpoint has settings that its model does not
            know, on which other software may act, or that change what it returns, other special tokens, or code that this
            version of the package did not write.
    """
    model, folder = checkpoint.model, checkpoint.folder
    check_covered(folder, checkpoint.own_task or checkpoint.task)
    files: dict[str, PreTrainedConfig | GenerationConfig] = {"config.json": model.config}
    if checkpoint.task.family.writes:
        files["generation_config.json"] = model.generation_config
    for name, settings in files.items():
        # Loading drops some of the settings that a file has.
        written = read_object(folder / name) if (folder / name).is_file() else {}
        # A field that is left at its default may stand in no file.
        known = {*type(settings)().to_dict(), *type(settings).__annotations__, "plugins", "use_cache", "_name_or_path"}
        if unknown := sorted({*settings.to_dict(), *written} - known):
            raise ValueError(
                f"{name} of {checkpoint.name} has settings that a {model.config.model_type!r} model does not know, and "
                f"other software may act on them: remove {', '.join(unknown)}"
            )
    written = read_object(folder / "config.json")
    if changed := [f"{name} {written[name]}" for name, value in OUTPUTS.items() if written.get(name, value) != value]:
        raise ValueError(
            f"config.json of {checkpoint.name} changes what the model returns, and generate() may stop with an error: "
            f"remove {', '.join(changed)}"
        )
    defaults = type(model.config)()
    tokens = {name: getattr(defaults, name, None) for name in ("bos_token_id", "pad_token_id")}
    if changed := [f"{name} {written[name]}" for name, token in tokens.items() if written.get(name, token) != token]:
        raise ValueError(
            f"config.json of {checkpoint.name} names other tokens than the task's, and may hide digits: {', '.join(changed)}"
        )
    code = [name for name in hash_files(folder) if name.endswith(".py")]
    if strange := changed_code(folder, code, model.config, checkpoint.task, checkpoint.recipe):
        raise ValueError(
            f"{folder} holds Python files that this version of longhand did not write for this model, and a certificate is "
            f"about the code too: {', '.join(strange)}; remove what is not longhand's, and save the model again "
            f"({type(model).__name__}.from_pretrained({str(folder)!r}).save_pretrained({str(folder)!r}))"
        )


def own_folder(checkpoint: Checkpoint) -> Path | None:
    """Return the folder that a checkpoint's certificate is written into.

    None if the checkpoint is on the Hub or comes with the package, or is not asked about the task that it was made for.
    """
    is_own = checkpoint.own_task is not None and checkpoint.own_task.for_evaluation == checkpoint.task
    return checkpoint.folder if checkpoint.kind == "folder" and is_own else None


def certify_checkpoint(checkpoint: Checkpoint, file: Path, folder: Path | None, show_proof: bool = True) -> Row:
    """Check all neighbourhoods, print the proof or the failures, and write the certificate.

    A check that the checkpoint has already is not repeated.

    Args:
        file: where the certificate is written.
        folder: see `own_folder`; the certificate names its files.
        show_proof: whether the steps of the proof are printed too. They are always written.

    Returns:
        One row of certificates.jsonl.

    Raises:
        CannotCertify: the model has no window, or its task's neighbourhoods are unknown or too many.
    """
    began = time.perf_counter()
    model: Any = checkpoint.model
    certificate = certify(model, checkpoint.task, checkpoint.check)
    if folder is not None:
        certificate = replace(certificate, files=hash_files(folder))
    seconds = round(time.perf_counter() - began, 1)
    write_atomically(file, json.dumps(asdict(certificate), indent=2) + "\n")
    print(format_certificate(checkpoint.name, certificate, checkpoint.task, show_proof))
    print(f"\nwrote {file} after {seconds} seconds")
    unknown = copy_verifier(folder) if folder is not None else None
    if certificate.certified and folder is not None:
        command = f"longhand-verify {shell_word(folder)}"
        print(f"{VERIFIER_FILE} does not know it: {unknown}" if unknown else f"to verify it with numpy alone: {command}")
    row = certificate_row(asdict(certificate), checkpoint.name)
    row |= {"seconds": seconds, "hardware": hardware(checkpoint.model.device)}
    return row if checkpoint.run_seconds is None else row | {"run_seconds": checkpoint.run_seconds}


def copy_verifier(folder: Path) -> str | None:
    """Put the verifier beside a folder's certificate, or remove it and return why it cannot verify this one.

    The verifier runs as a program of its own, which takes nothing from this one.
    """
    copy = folder / VERIFIER_FILE
    asked = subprocess.run([sys.executable, "-I", VERIFIER, "--known", folder], capture_output=True, text=True)
    if asked.returncode:
        copy.unlink(missing_ok=True)
        return asked.stderr.strip().removeprefix("REFUSED: ")
    write_atomically(copy, VERIFIER.read_bytes())
    return None


def certificate_row(values: dict[str, object], name: str) -> Row:
    """Return the row of a certificate in certificates.jsonl; `name` is the model's."""
    left_out = ("statement", "proof", "task", "limits", "files", "learned")
    return {"model": name} | {field: value for field, value in values.items() if field not in left_out}


def format_certificate(name: str, certificate: Certificate, task: Task, show_proof: bool) -> str:
    """Return a certificate, or the failures against it, as text for a person."""
    checked = f"{certificate.predictions:,} predictions"
    if certificate.neighbourhoods is not None:
        checked += f" ({certificate.neighbourhoods:,} different neighbourhoods)"
    facts = {"checked": checked, "wrong": f"{certificate.wrong:,}"}
    if certificate.margin is not None:
        facts["margin"] = f"{certificate.margin:.4g}, the smallest lead of a right token's logit"
    if certificate.ratio is not None:
        bound = "none that is proved" if certificate.bound is None else f"{certificate.bound:.2g}"
        facts["bound"] = f"{bound}, how far rounding in any order of summation can move a lead"
        facts["ratio"] = (
            f"{certificate.ratio:,.3g}, the smallest quotient of a lead and its bound: the quick one (Lemma 3a of PROOF.md) "
            "where it suffices; closer bounds give larger quotients"
        )
    facts["weights"] = certificate.weights
    lines = [f"{name}: {'CERTIFIED' if certificate.certified else 'NOT CERTIFIED'}. {certificate.statement}"]
    lines += [f"  {label:9} {value}" for label, value in facts.items()]
    if certificate.learned is not None:
        lines += _about_machine(certificate.learned, task)
    if show_proof:
        lines += [f"  {number}. {step}" for number, step in enumerate(certificate.proof, 1)]
    lines += [f"  wrong: {failure.problem}  {_verdict(failure)}" for failure in certificate.failures]
    if certificate.wrong > len(certificate.failures):
        lines.append(f"  and {certificate.wrong - len(certificate.failures):,} more")
    return "\n".join(textwrap.fill(line, 118, subsequent_indent="     ") for line in lines)


def _about_machine(facts: Mapping[str, str], task: Task) -> list[str]:
    """What is proved here of a machine that was found, and what its recipe says of it."""
    from longhand.data.learning.proof import proved_of

    said = [f"  {label:9} {value}" for label, value in facts.items() if label not in (CODE, PROVED)]
    return [
        "of the machine, which was found; its table alone was looked at:",
        f"  {PROVED:9} {proved_of(task)}",
        *(["of the machine, as the recipe says; nothing of this was checked here:", *said] if said else []),
    ]


def _verdict(failure: Failure) -> str:
    if not failure.margin:
        return f"has no lead of {failure.right!r} over {failure.instead!r}"
    return f"writes {failure.instead!r} instead of {failure.right!r}"
