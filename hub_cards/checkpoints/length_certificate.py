"""The certificate of a model whose tokens see all tokens before them: what is proved, length by length."""

import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from operator import attrgetter
from pathlib import Path
from typing import Any

from longhand.data.batches import check_lengths
from longhand.data.checks import check_integer
from longhand.data.proofs.certificate import Certificate, hash_weights
from longhand.data.proofs.check import Failure
from longhand.data.proofs.lengths.up_to_length import LengthProver, LengthVerdict, hash_bound
from longhand.hub_cards.checkpoints.checkpoint import Checkpoint, hash_files
from longhand.hub_cards.commands import one_line, read_object, write_atomically
from longhand.hub_cards.result_rows import Row, hardware

STATEMENT = (
    "For {what} {lengths} {unit}s, greedy decoding with this model in {dtype} writes exactly the right response and its end "
    "token ({task}), in whatever order a processor adds, if it rounds to nearest in {dtype} (no TF32) and its exp, log, "
    "tanh, erf, sin, cos, roots and quotients are within 4 units in the last place."
)

NOT_VERIFIED = (
    "No other code has verified this: verify_certificate.py knows models with a window only, and longhand alone has the "
    "bound of what distant tokens do."
)

PROOF = (
    "Cases. Few symbols decide what is right next. A case is each choice of them that some problem of the length has, by "
    "the task's sequential transducer.",
    "Far tokens. In each case, and for every other token of the vocabulary, the lead of the right token was found in exact "
    "arithmetic where all other tokens have their mean weight and value. What they can take from it is bounded: to first "
    "order exactly, by a shortest path over the columns with the transducer's state, and beyond it by hub_cards/PROOF.md, "
    "Attention to all tokens. Where the bound was too large, it was found again in boxes of what far tokens do together.",
    "Rounding. What rounding in {dtype} adds, in any order of summation, was taken off twice.",
    "Induction. A lead was left in each case of the lengths that are called proved. Greedy decoding starts from a correct "
    "prefix. If the first t tokens are right, the next one is right too, until the end token is written.",
)


def ranges(lengths: Iterable[int]) -> str:
    """Whole numbers as text, such as "2 to 8, 10"."""
    groups: list[list[int]] = []
    for length in sorted(lengths):
        if groups and length == groups[-1][-1] + 1:
            groups[-1].append(length)
        else:
            groups.append([length])
    return ", ".join(f"{own[0]} to {own[-1]}" if len(own) > 1 else str(own[0]) for own in groups)


def describe_verdict(verdict: LengthVerdict) -> str:
    """One line about a length."""
    left = "" if verdict.lead is None else f", lowest lead left {verdict.lead:.3g}"
    if verdict.verdict == "refuted":
        return f"refuted: {verdict.problem}{verdict.answer} should be {verdict.right}"
    if verdict.verdict == "open":
        return f"open: {verdict.open:,} of {verdict.cases:,} cases are not closed{left}"
    boxes = f", {verdict.boxes:,} boxes" if verdict.boxes else ""
    return f"proved: {verdict.cases:,} cases{boxes}"


def is_settled(verdict: LengthVerdict, budget: float | None) -> bool:
    """Whether nothing more is found of a length in a budget of seconds; None is no limit.

    A length that is open was tried already if it had as many seconds.
    """
    if verdict.verdict != "open":
        return True
    return budget is not None and verdict.budget is not None and verdict.budget >= budget


AGAIN_SECONDS = 20.0
"""Seconds for proving lengths again whose verdicts a certificate holds, where a card is written or a folder is pushed."""

VERDICTS = ("proved", "refuted", "open")
"""What is known of all problems of one length; see `LengthVerdict`."""


def read_verdicts(stated: Sequence[Mapping[str, Any]]) -> list[LengthVerdict]:
    """The verdicts that a certificate holds.

    Raises:
        TypeError, ValueError: they are no verdicts of different lengths.
    """
    verdicts = [LengthVerdict(**values) for values in stated]
    for one in verdicts:
        check_integer("length", one.length, 1)
        for name in ("cases", "open", "boxes"):
            check_integer(name, getattr(one, name), 0)
        numbers = [number for number in (one.lead, one.budget, one.seconds) if number is not None]
        if any(isinstance(number, bool) or not isinstance(number, int | float) for number in numbers):
            raise ValueError(f"lead, budget and seconds must be numbers, got {numbers}")
        texts = [text for text in (one.problem, one.answer, one.right, one.code) if text is not None]
        if one.verdict not in VERDICTS or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"verdict {one.verdict!r} with {texts} is none of {', '.join(VERDICTS)} with texts")
    if len({one.length for one in verdicts}) < len(verdicts):
        raise ValueError("a length stands twice")
    return verdicts


def known_verdicts(file: Path, weights: str, task: Mapping[str, object]) -> list[LengthVerdict]:
    """The verdicts that a certificate holds already, if it is of the same weights and task and the same code found them."""
    if not file.is_file():
        return []
    try:
        stated = read_object(file)
        if stated.get("weights") != weights or stated.get("task") != task:
            return []
        verdicts = read_verdicts(stated.get("lengths") or [])
    except (ValueError, TypeError):
        return []
    return [verdict for verdict in verdicts if verdict.code == hash_bound()]


def certify_lengths(
    checkpoint: Checkpoint, lengths: Sequence[int], file: Path, folder: Path | None, budget: float | None = None
) -> Row:
    """Prove or refute lengths, one after the other, print each verdict, and write the certificate after each.

    Lengths that the certificate in the file has proved or refuted for the same weights by the same code, or that stayed open
    in as many seconds, are not tried again, so that a run that was stopped goes on. Their lines name the file: whoever made
    it answers for it.

    Args:
        file: where the certificate is written.
        folder: that of the checkpoint, whose files the certificate names; None if it is written elsewhere.
        budget: seconds for each length; None for no limit.

    Returns:
        One row of certificates.jsonl.

    Raises:
        CannotCertify: as `LengthProver`.
        ValueError: the model cannot take a length.
    """
    began = time.perf_counter()
    prover = LengthProver(checkpoint.model, checkpoint.task)
    files = hash_files(folder) if folder is not None else None
    known = known_verdicts(file, checkpoint.weights, checkpoint.task.describe())
    found = {verdict.length: verdict for verdict in known if is_settled(verdict, budget)}
    earlier = [length for length in dict.fromkeys(lengths) if length in found]
    for length in dict.fromkeys(lengths):
        if length not in found:
            found[length] = prover.verdict(length, budget)
            certificate = conclude(checkpoint, [found[place] for place in sorted(found)], files)
            write_atomically(file, json.dumps(asdict(certificate), indent=2) + "\n")
        source = f" ({file} says so)" if length in earlier else ""
        print(f"{checkpoint.name}, {length:4}  {describe_verdict(found[length])}{source}", flush=True)
    certificate = conclude(checkpoint, [found[place] for place in sorted(found)], files)
    write_atomically(file, json.dumps(asdict(certificate), indent=2) + "\n")
    print(f"\n{checkpoint.name}: {certificate.statement}")
    if earlier:
        print(f"not tried again, since {file} holds verdicts of the same code: {ranges(earlier)}")
        print("remove this file to try each length, above all if the checkpoint is of others")
    print(f"wrote {file} after {time.perf_counter() - began:.1f} seconds")
    row: Row = {"model": checkpoint.name, "certified": False, "weights": checkpoint.weights}
    row |= {"lengths": [asdict(found[length]) for length in lengths], "hardware": hardware(checkpoint.model.device)}
    return row | {"seconds": round(time.perf_counter() - began, 1)}


def conclude(checkpoint: Checkpoint, found: list[LengthVerdict], files: dict[str, str] | None) -> Certificate:
    """What verdicts say together."""
    task, model = checkpoint.task, checkpoint.model
    by_verdict = {name: [one.length for one in found if one.verdict == name] for name in VERDICTS}
    proved, dtype = by_verdict["proved"], str(model.dtype).removeprefix("torch.")
    described = ", ".join(f"{name} {value}" for name, value in task.describe().items())
    what, unit = task.sized_problems
    statement = "Nothing is proved."
    if proved:
        statement = STATEMENT.format(what=what, lengths=ranges(proved), unit=unit, dtype=dtype, task=described)
    for name in ("refuted", "open"):
        if by_verdict[name]:
            statement += f" {name.capitalize()}: {ranges(by_verdict[name])}."
    statement += f" {NOT_VERIFIED}" if proved else ""
    wrong = [one for one in found if one.verdict == "refuted"]
    leads = [one.lead for one in found if one.verdict == "proved" and one.lead is not None]
    return Certificate(
        certified=False,
        statement=statement,
        proof=[step.format(dtype=dtype) for step in PROOF] if proved else [],
        task=task.describe(),
        predictions=sum(one.cases for one in found),
        neighbourhoods=None,
        wrong=len(wrong),
        margin=min(leads, default=None) if all(map(math.isfinite, leads)) else None,
        bound=None,
        ratio=None,
        failures=[Failure(str(one.problem), str(one.right), str(one.answer), None) for one in wrong],
        limits={},
        weights=hash_weights(model),
        files=files,
        transducer=getattr(model.config, "transducer", None),
        lengths=[asdict(one) for one in found],
    )


def find_other_verdict(stated: Row, checkpoint: Checkpoint) -> str | None:
    """Prove the lengths of a certificate again, and say what the certificate has otherwise; None if there is nothing.

    The lengths are proved from the shortest on until `AGAIN_SECONDS` are over. The verdicts of longer ones, which may have
    taken hours, stand as they are: whoever made the certificate answers for them. So none may be of other code or too
    long for the model, which is said of every length.

    Raises:
        CannotCertify: as `LengthProver`.
    """
    prover = LengthProver(checkpoint.model, checkpoint.task)
    try:
        verdicts = read_verdicts(stated["lengths"])
    except (TypeError, ValueError):
        return "field lengths: it does not hold verdicts of single lengths"
    # What follows from the verdicts: the statement, the proof and all counts.
    expected = asdict(conclude(checkpoint, verdicts, stated["files"]))
    for name, value in expected.items():
        if stated.get(name) != value:
            return f"field {name}: it does not follow from the verdicts of single lengths"
    if other := [one.length for one in verdicts if one.code != hash_bound()]:
        return f"field lengths: other code than this version's found the verdicts of the lengths {ranges(other)}"
    longest = max((one.length for one in verdicts), default=1)
    try:
        check_lengths(checkpoint.model, checkpoint.task, [checkpoint.task.operand_lengths(longest)])
    except ValueError as error:
        return f"length {longest}: the model cannot take it ({one_line(error)})"
    until = time.perf_counter() + AGAIN_SECONDS
    # A certificate may name its lengths in any order. A long one would take all seconds.
    for one in sorted(verdicts, key=attrgetter("length")):
        left = until - time.perf_counter()
        if left <= 0:
            return None
        if one.verdict == "open":
            continue
        found = prover.verdict(one.length, left)
        if found.verdict == "open" and time.perf_counter() >= until:
            return None
        if found.verdict != one.verdict:
            return f"length {one.length}: it is called {one.verdict}, but a new proof finds it {found.verdict}"
    return None
