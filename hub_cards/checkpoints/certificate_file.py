"""certificate.json in a checkpoint's folder: the files that it is about, and whether it fits them."""

import hashlib
import reprlib
import sys
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from longhand.data import Task
from longhand.data.certificates import CannotCertify, find_difference, hash_weights, verify_certificate
from longhand.hub_cards.console import one_line
from longhand.hub_cards.files import read_object, write_atomically

CERTIFICATE_FILE = "certificate.json"

VERIFIER = Path(verify_certificate.__file__)
"""A program that verifies certificates with numpy alone. A copy stands beside each that it knows how to verify."""

ANSWER_FILES = (
    *("*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json", "adapter_config.json"),
    *("tokenizer*.json", "special_tokens_map.json", "added_tokens.json", "*.py", "custom_generate/*.py"),
)
"""The files of a checkpoint that decide an answer: transformers reads them or runs them."""

FIELDS = {"certified": bool, "weights": str, "task": dict, "files": dict, "ratio": float | None}
"""Fields of a certificate that are read without a new check, and their types."""


def hash_files(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file in a folder that decides an answer of its checkpoint, by name."""
    found = {file for pattern in ANSWER_FILES for file in folder.glob(pattern) if file.is_file()}
    files = sorted(found - {folder / VERIFIER.name})
    return {file.relative_to(folder).as_posix(): _hash(file) for file in files}


def _hash(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_certificate(folder: Path, model: PreTrainedModel, task: Task) -> dict[str, Any] | None:
    """Return the certificate in a folder, after a new check of the model; None if there is none.

    The check is made once in a process (`find_difference`), and takes seconds.

    Args:
        model: as it was loaded from the folder.
        task: as the folder's recipe describes it.

    Raises:
        ValueError: it cannot be read, does not fit the folder, or says something else than the check finds.
    """
    file = folder / CERTIFICATE_FILE
    if not file.is_file():
        return None
    certificate = read_fitting(file, model, task)
    try:
        different = find_difference(certificate, model, task.for_evaluation, progress=True)  # type: ignore[arg-type]
    except CannotCertify as error:
        raise ValueError(f"{file} does not hold ({error}): remove it") from error
    if different is not None:
        raise ValueError(f"{file}, {different}: {_advice(file)}")
    return certificate


def copy_verifier(folder: Path) -> str | None:
    """Put the verifier beside a folder's certificate, or remove it and return why it cannot verify this one."""
    copy = folder / VERIFIER.name
    try:
        verify_certificate.read_checkpoint(folder)
    except verify_certificate.Refused as reason:
        copy.unlink(missing_ok=True)
        return one_line(reason)
    write_atomically(copy, VERIFIER.read_bytes())
    return None


def warn_of_certificate(folder: Path, model: PreTrainedModel, task: Task) -> None:
    """Warn in one line if a folder's certificate cannot be read or does not fit the folder. Nothing is checked anew."""
    file = folder / CERTIFICATE_FILE
    if not file.is_file():
        return
    try:
        read_fitting(file, model, task)
    except (ValueError, OSError) as error:
        print(f"warning: {one_line(error)}", file=sys.stderr)


def read_fitting(file: Path, model: PreTrainedModel, task: Task) -> dict[str, Any]:
    """Return the certificate in a file.

    Raises:
        ValueError: it cannot be read, or is of other files, weights or another task than the folder's.
    """
    certificate = read_object(file)
    for name, kind in FIELDS.items():
        if name not in certificate or not isinstance(value := certificate[name], kind):
            what = "is missing, as in certificates of older versions"
            if name in certificate:
                legal = "mapping" if kind is dict else getattr(kind, "__name__", kind)
                what = f"must be a {legal}, got {reprlib.repr(value)}"
            raise ValueError(f"{file}: the field {name} {what}: {_advice(file)}")
    if differences := _compare(certificate["files"], hash_files(file.parent)):
        raise ValueError(f"{file} is not of these files ({', '.join(differences)}): {_advice(file)}")
    if certificate["weights"] != hash_weights(model):
        raise ValueError(f"{file} is not of this model, its weights or configuration differ: {_advice(file)}")
    stated, own = certificate["task"], task.for_evaluation.describe()
    if changed := [name for name in {**stated, **own} if stated.get(name) != own.get(name)]:
        listed = ", ".join(f"{name} was {reprlib.repr(stated.get(name))}, is {own.get(name)!r}" for name in changed)
        raise ValueError(f"{file} is of another task or format ({listed}): {_advice(file)}")
    return certificate


def _advice(file: Path) -> str:
    return f"run eval.py {file.parent} --certify again"


def _compare(before: dict[str, Any], now: dict[str, str]) -> list[str]:
    """Return what differs between the hashes of files, file by file."""
    missing = [f"{name} is missing" for name in before if name not in now]
    added = [f"{name} is new" for name in now if name not in before]
    return [*(f"{name} differs" for name in now if before.get(name, now[name]) != now[name]), *missing, *added]
