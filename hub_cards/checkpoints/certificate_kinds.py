"""The two kinds of certificate as files have them, those of earlier versions too."""

# Used by: certificate_file.py, length_certificate.py, hub_cards/research. Changed freely.

from dataclasses import fields
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from longhand.data.proofs.certificate import EVERY_LENGTH, SINGLE_LENGTHS, Certificate, LengthsCertificate, same_json
from longhand.hub_cards.commands import read_object

SAID_NOTHING: dict[str, object] = {
    "certified": False,
    "neighbourhoods": None,
    "margin": None,
    "bound": None,
    "ratio": None,
    "limits": {},
    "learned": None,
}
"""What a certificate of single lengths said before 0.3.0, when there was one kind: nothing is proved of every length."""

BOUNDS = {"b4bfa4c0b21fa6e4ebdc2c5f51e9ace26c6d1a07a1f6975309f58f4b7b4b28de": 1}
"""The versions of the bound by the hashes of its code that verdicts before 0.3.0 name as `code`."""


def read_stated(file: Path) -> dict[str, Any]:
    """Return the fields of a certificate, with its `kind`, whatever version of this package wrote it.

    Raises:
        ValueError: a field is missing, is not known, or has a value of another type than the kind of certificate says,
            `Certificate` or `LengthsCertificate`.
    """
    values = read_object(file)
    # The first certificates counted problems; nothing depends on the number.
    values.pop("problems", None)
    if values.get("lengths") is not None and "kind" not in values:
        values = _lengths_of_one_kind(file, values)
    elif "kind" not in values:
        values.pop("lengths", None)
    kind: type[Certificate | LengthsCertificate]
    match values.setdefault("kind", EVERY_LENGTH):
        case "every length":
            kind = Certificate
        case "lengths":
            kind = LengthsCertificate
        case other:
            raise ValueError(f"{file}: kind is {other!r:.80}, and is {SINGLE_LENGTHS!r} in some files and missing in others")
    legal = get_type_hints(kind) | {"kind": str}
    stated = {field.name: None for field in fields(kind) if field.default is None} | values
    for name in {**legal, **stated}:
        if name not in legal:
            raise ValueError(f"{file}: {name} is no field of a certificate")
        if name not in stated:
            raise ValueError(f"{file}: {name} is missing")
        if not _is_of(stated[name], legal[name]):
            raise ValueError(f"{file}: {name} has a value of another type, {stated[name]!r:.80}")
    return stated


def _is_of(value: object, annotation: Any) -> bool:
    """Whether a value of JSON is of an annotated type; lists and objects are not looked into. True is not 1."""
    one_of = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    kinds = {get_origin(kind) or kind for kind in one_of}
    # JSON may write a whole number without a point.
    if float in kinds:
        kinds.add(int)
    return type(value) in kinds


def _lengths_of_one_kind(file: Path, values: dict[str, Any]) -> dict[str, Any]:
    """The fields of a `LengthsCertificate` in a file that was written when there was one kind of certificate.

    Raises:
        ValueError: a field that says nothing has a value.
    """
    kept = {name: value for name, value in values.items() if name not in {*SAID_NOTHING, "wrong", "transducer"}}
    said = SAID_NOTHING | {"wrong": len(kept["failures"]) if isinstance(kept.get("failures"), list) else None}
    for name, nothing in said.items():
        if name not in values or not same_json(values[name], nothing):
            shown = f"{values[name]!r:.80}" if name in values else "missing"
            raise ValueError(f"{file}: field {name}: it is {shown}, and single lengths have {nothing!r}")
    if "predictions" in kept:
        kept["cases"] = kept.pop("predictions")
    if isinstance(kept["lengths"], list):
        kept["lengths"] = [_of_version(verdict) if isinstance(verdict, dict) else verdict for verdict in kept["lengths"]]
    return kept | {"kind": SINGLE_LENGTHS}


def _of_version(verdict: dict[str, Any]) -> dict[str, Any]:
    """A verdict with the version of the code that found it, in place of its hash; code that is not known here has 0."""
    code = str(verdict.get("code", ""))
    return {name: value for name, value in verdict.items() if name != "code"} | {"bound": BOUNDS.get(code, 0)}
