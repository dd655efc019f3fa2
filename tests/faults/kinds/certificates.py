"""Certified folders that are tampered with: what they answer, and what their cards and pushes claim."""

import contextlib
import json
import re
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from faults.attempts import Finding, Outcome, attempt, check_answer
from faults.documents import read_document, write_document
from faults.inputs import ODD, Input, Kind, choose, draw_seed, number
from faults.kinds.side_files import CERTIFIED, copy_certified
from faults.subjects import Subjects
from safetensors.numpy import load_file, save_file

from longhand import eval as evaluation
from longhand.data.certificates import certify, hash_weights
from longhand.hub_cards import push
from longhand.hub_cards.checkpoints.load import load_checkpoint

TAMPERINGS = ("settings", "tokenizer", "recipe", "code", "certificate", "weights", "forgery", "untouched")


def make_certificate(generator: np.random.Generator) -> Input:
    tampering = [choose(generator, *TAMPERINGS) for _ in range(generator.integers(1, 3))]
    sums = [f"{number(generator, 12)}+{number(generator, 12)}", "1234567890+9753108642"]
    return {"tampering": tampering, "sums": sums, "seed": draw_seed(generator)}


def tamper(folder: Path, what: str, generator: np.random.Generator) -> None:
    """Change one thing that a certificate rests on, or the certificate. The files stay readable."""
    if what in ("settings", "recipe", "certificate"):
        file = folder / {"recipe": "recipe.yaml", "certificate": "certificate.json"}.get(
            what, choose(generator, "config.json", "generation_config.json")
        )
        document = read_document(file)
        name, value = choose(generator, *ODD[what].items())
        document[name] = value if what == "settings" else choose(generator, *value)
        write_document(document, file)
    elif what == "tokenizer":
        document = read_document(folder / "tokenizer.json")
        vocabulary = document["model"]["vocab"]
        one, other = generator.choice(list(vocabulary), size=2, replace=False)
        vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
        write_document(document, folder / "tokenizer.json")
    elif what == "code":
        file = choose(generator, *sorted(folder.glob("*.py")))
        text = file.read_text()
        numbers = list(re.finditer(r"\b[0-9]\b", text)) or [re.search(r"\Z", text)]
        place = choose(generator, *numbers)
        file.write_text(f"{text[: place.start()]}{generator.integers(10, 20)}{text[place.end() :]}")
    elif what in ("weights", "forgery"):
        weights = load_file(folder / "model.safetensors")
        name = choose(generator, *sorted(weights))
        scale = float(choose(generator, 0.0, -1.0, 1.001, 3.0))
        weights[name] = (weights[name] * scale).astype(weights[name].dtype)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    if what == "forgery":
        document = read_document(folder / "certificate.json")
        with contextlib.suppress(ValueError):
            document["weights"] = hash_weights(load_checkpoint(str(folder)).model)  # type: ignore[arg-type]
        write_document(document, folder / "certificate.json")


@cache
def _checked(files: tuple[bytes, ...], folder: Path) -> dict[str, Any] | None:
    """The certificate that a check of the files gives now; None if there is none."""
    try:
        checkpoint = load_checkpoint(str(folder))
        return json.loads(json.dumps(asdict(certify(checkpoint.model, checkpoint.task))))  # type: ignore[arg-type]
    except ValueError:
        return None


def check_claim(text: str, folder: Path, subjects: Subjects, where: str) -> None:
    """Raise Finding if a card claims what an independent check of the files does not confirm."""
    if CERTIFIED not in text:
        return
    deciding = ("config.json", "generation_config.json", "recipe.yaml", "model.safetensors", "tokenizer.json")
    checked = _checked(tuple((folder / name).read_bytes() for name in deciding), folder)
    if checked is None or not checked["certified"]:
        raise Finding(f"{where} certifies what the check does not")
    claimed = read_document(folder / "certificate.json")
    exact, rough = ("statement", "task", "problems", "predictions", "neighbourhoods", "wrong"), ("margin", "bound", "ratio")
    different = [name for name in exact if claimed.get(name) != checked[name]]
    different += [name for name in rough if not np.isclose(claimed.get(name) or np.nan, checked[name], rtol=1)]
    if different:
        raise Finding(f"{where} shows other facts than the check: {different[0]}")
    for file in sorted(folder.glob("*.py")):
        if file.read_bytes() != (subjects.certified / file.name).read_bytes():
            raise Finding(f"{where} certifies changed code")


def run_certificate(subjects: Subjects, given: Input) -> Outcome:
    """Answers are right, refused, or given with a warning. Cards and pushes certify only what a check confirms."""
    folder, generator = copy_certified(subjects), np.random.default_rng(given["seed"])
    about = f", {' and '.join(sorted(set(given['tampering'])))}"
    for what in given["tampering"]:
        tamper(folder, what, generator)
    # Weights that are changed together with their hash answer as they will: that is for cards and pushes to find.
    for question in () if "forgery" in given["tampering"] else given["sums"]:
        asked = attempt(lambda question=question: evaluation.main([str(folder), "--ask", question]))
        check_answer(asked, asked.printed.strip(), str(sum(map(int, question.split("+")))), about)
    shown = attempt(lambda: push.main(["model", str(folder), "user/addition"]))
    check_claim(shown.printed, folder, subjects, "a push")
    written = attempt(lambda: push.main(["card", str(folder)]))
    if written.refusal is None:
        check_claim((folder / "README.md").read_text(), folder, subjects, "a card")
    elif set(given["tampering"]) == {"untouched"}:
        raise Finding("an untouched folder is refused")
    return written


KINDS = {"certificate": Kind(make_certificate, run_certificate, 1)}
