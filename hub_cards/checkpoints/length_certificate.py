"""The certificate of a model whose tokens see all tokens before them: what is proved, length by length."""

# Used by: certificate_file.py, eval.py, hub_cards/research. Changed freely.

import copy
import json
import multiprocessing
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch

from longhand.data.batches import check_lengths
from longhand.data.proofs.certificate import SINGLE_LENGTHS, LengthsCertificate, hash_weights, read_words, same_json
from longhand.data.proofs.check import Failure
from longhand.data.proofs.lengths.up_to_length import BOUND, LengthProver, LengthVerdict
from longhand.data.proofs.worst import find_wrong
from longhand.hub_cards.checkpoints.certificate_kinds import read_stated
from longhand.hub_cards.checkpoints.checkpoint import Checkpoint, hash_files
from longhand.hub_cards.commands import one_line, write_atomically
from longhand.hub_cards.result_rows import Row, hardware
from longhand.modeling.checks import check_integer


def ranges(lengths: Iterable[int]) -> str:
    """Whole numbers as text, such as "2 to 8, 10"."""
    groups: list[list[int]] = []
    for length in sorted(lengths):
        if groups and length == groups[-1][-1] + 1:
            groups[-1].append(length)
        else:
            groups.append([length])
    return ", ".join(f"{group[0]} to {group[-1]}" if len(group) > 1 else str(group[0]) for group in groups)


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

ASKED_PROBLEMS = 100
"""Problems that a model is asked there of each length that is called proved."""

ASKED_SECONDS = 10.0
"""Seconds for searching there for a wrong problem, of all these lengths together."""


VERDICTS = ("proved", "refuted", "open")
"""What is known of all problems of one length; see `LengthVerdict`."""


def read_verdicts(stated: Sequence[Mapping[str, Any]]) -> list[LengthVerdict]:
    """The verdicts that a certificate holds.

    Raises:
        TypeError, ValueError: they are no verdicts of different lengths.
    """
    verdicts = [LengthVerdict(**values) for values in stated]
    for verdict in verdicts:
        check_integer("length", verdict.length, 1)
        for name in ("cases", "open", "boxes", "bound"):
            check_integer(name, getattr(verdict, name), 0)
        numbers = [number for number in (verdict.lead, verdict.budget, verdict.seconds) if number is not None]
        if any(isinstance(number, bool) or not isinstance(number, int | float) for number in numbers):
            raise ValueError(f"lead, budget and seconds must be numbers, got {numbers}")
        if not isinstance(verdict.taken_over, bool):
            raise ValueError(f"taken_over must be true or false, got {verdict.taken_over!r}")
        texts = [text for text in (verdict.problem, verdict.answer, verdict.right) if text is not None]
        if verdict.verdict not in VERDICTS or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"verdict {verdict.verdict!r} with {texts} is none of {', '.join(VERDICTS)} with texts")
    if len({verdict.length for verdict in verdicts}) < len(verdicts):
        raise ValueError("a length stands twice")
    return verdicts


def known_verdicts(file: Path, weights: str, task: Mapping[str, object]) -> list[LengthVerdict]:
    """The verdicts that a certificate holds already, if it is of the same weights and task and the same code found them."""
    if not file.is_file():
        return []
    try:
        stated = read_stated(file)
        if stated["kind"] != SINGLE_LENGTHS or stated["weights"] != weights or stated["task"] != task:
            return []
        verdicts = read_verdicts(stated["lengths"])
    except (ValueError, TypeError):
        return []
    return [verdict for verdict in verdicts if verdict.bound == BOUND]


def certify_lengths(
    checkpoint: Checkpoint,
    lengths: Sequence[int],
    file: Path,
    folder: Path | None,
    budget: float | None = None,
    jobs: int = 1,
    trust: bool = False,
) -> Row:
    """Prove or refute lengths, print each verdict, and write the certificate after each.

    Only what this process, or one that it starts, finds is stated. Other verdicts that the certificate in the file holds, of
    the same weights and the same code, are kept there as taken over from whoever made it.

    Args:
        file: where the certificate is written.
        folder: that of the checkpoint, whose files the certificate names; None if it is written elsewhere.
        budget: seconds for each length; None for no limit.
        jobs: processes that prove lengths at the same time, each with one thread.
        trust: state what the certificate in the file holds as if it had been found now. Lengths that it has proved or
            refuted, or that stayed open in as many seconds, are not tried again, so that a run that was stopped goes on.

    Returns:
        One row of certificates.jsonl.

    Raises:
        CannotCertify: as `LengthProver`.
        ValueError: the model cannot take a length.
    """
    began = time.perf_counter()
    prover = LengthProver(checkpoint.model, checkpoint.task)
    files = hash_files(folder) if folder is not None else None
    asked, known = list(dict.fromkeys(lengths)), known_verdicts(file, checkpoint.weights, checkpoint.task.describe())
    found = {verdict.length: replace(verdict, taken_over=verdict.taken_over or not trust) for verdict in known}
    settled = [
        verdict.length for verdict in found.values() if trust and is_settled(verdict, budget) and verdict.length in asked
    ]
    for length in settled:
        found[length] = replace(found[length], taken_over=False)
        print(f"{checkpoint.name}, {length:4}  {describe_verdict(found[length])} ({file} says so)", flush=True)
    if known and not trust:
        print(
            f"{file} holds verdicts of {ranges(verdict.length for verdict in known)}: --trust takes them over",
            file=sys.stderr,
        )

    def write() -> LengthsCertificate:
        certificate = conclude(checkpoint, [found[length] for length in sorted(found)], files)
        write_atomically(file, json.dumps(asdict(certificate), indent=2) + "\n")
        return certificate

    left = [length for length in asked if length not in settled]
    for verdict in prove_all(prover, left, budget, jobs):
        found[verdict.length] = verdict
        write()
        print(f"{checkpoint.name}, {verdict.length:4}  {describe_verdict(verdict)}", flush=True)
    print(f"\n{checkpoint.name}: {write().statement}")
    if settled:
        print(f"not tried again, since --trust takes over what {file} says: {ranges(settled)}")
    print(f"wrote {file} after {time.perf_counter() - began:.1f} seconds")
    row: Row = {"model": checkpoint.name, "certified": False, "weights": checkpoint.weights}
    row |= {"lengths": [asdict(found[length]) for length in asked], "hardware": hardware(checkpoint.model.device)}
    return row | {"seconds": round(time.perf_counter() - began, 1)}


def prove_all(prover: LengthProver, lengths: Sequence[int], budget: float | None, jobs: int) -> Iterator[LengthVerdict]:
    """The verdicts of lengths: one after the other, or as they are found by several processes, the longest lengths first."""
    if jobs == 1:
        yield from (prover.verdict(length, budget) for length in lengths)
        return
    # A process that is forked has the prover, whatever its task; it must not touch the accelerator of its parent.
    prover = LengthProver(copy.deepcopy(prover.model).cpu(), prover.task)
    _FORKED.append(prover)
    try:
        context = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(jobs, mp_context=context, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            waiting = [pool.submit(_prove_forked, length, budget) for length in sorted(lengths, reverse=True)]
            try:
                for future in as_completed(waiting):
                    yield future.result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
    finally:
        _FORKED.remove(prover)


_FORKED: list[LengthProver] = []
"""The prover that forked processes have."""


def _prove_forked(length: int, budget: float | None) -> LengthVerdict:
    return _FORKED[-1].verdict(length, budget)


def conclude(
    checkpoint: Checkpoint, verdicts: list[LengthVerdict], files: dict[str, str] | None, asked: str = ""
) -> LengthsCertificate:
    """What verdicts say together. Of those that are taken over, it is said that they are.

    Args:
        asked: what was asked of the lengths that are taken over as proved.
    """
    task, model = checkpoint.task, checkpoint.model
    found = [verdict for verdict in verdicts if not verdict.taken_over]
    by_verdict = {name: [verdict.length for verdict in found if verdict.verdict == name] for name in VERDICTS}
    proved, dtype = by_verdict["proved"], str(model.dtype).removeprefix("torch.")
    described = ", ".join(f"{name} {value}" for name, value in task.describe().items())
    problems, unit = task.sized_problems
    words = read_words("lengths")
    statement = "Nothing is proved."
    if proved:
        (stated,) = words["statement"]
        statement = stated.format(what=problems, lengths=ranges(proved), unit=unit, dtype=dtype, task=described)
    for name in ("refuted", "open"):
        if by_verdict[name]:
            statement += f" {name.capitalize()}: {ranges(by_verdict[name])}."
    if proved:
        statement = " ".join([statement, *words["not verified"]])
    if taken_over := [verdict.length for verdict in verdicts if verdict.taken_over and verdict.verdict == "proved"]:
        (stated,) = words["taken over"]
        statement += " " + stated.format(lengths=ranges(taken_over), unit=unit)
        statement += f" {asked}" if asked else ""
    wrong = [verdict for verdict in found if verdict.verdict == "refuted"]
    return LengthsCertificate(
        statement=statement,
        proof=[step.format(dtype=dtype) for step in words["proof"]] if proved else [],
        task=task.describe(),
        cases=sum(verdict.cases for verdict in found),
        failures=[Failure(str(verdict.problem), str(verdict.right), str(verdict.answer), None) for verdict in wrong],
        weights=hash_weights(model),
        files=files,
        lengths=[asdict(verdict) for verdict in verdicts],
    )


def prove_again(stated: Row, checkpoint: Checkpoint) -> Row:
    """The certificate of single lengths that this process answers for, from one that somebody states.

    The lengths are proved from the shortest on until `AGAIN_SECONDS` are over. The verdicts of longer ones, which may have
    taken hours, are taken over, and called so: whoever made the certificate answers for them. Of each length that is called
    proved, the model is first asked `ASKED_PROBLEMS` problems and the worst that a search finds. No verdict may be of other
    code, and no length too long for the model.

    Raises:
        CannotCertify: as `LengthProver`.
        ValueError: the certificate has something else than is found; the message says what.
    """
    model, task = checkpoint.model, checkpoint.task
    prover = LengthProver(model, task)
    try:
        verdicts = read_verdicts(stated["lengths"])
    except (TypeError, ValueError) as error:
        raise ValueError("field lengths: it does not hold verdicts of single lengths") from error
    # What follows from the verdicts: the statement, the proof and all counts.
    expected = asdict(conclude(checkpoint, verdicts, stated["files"]))
    for name, value in expected.items():
        if not same_json(stated.get(name), value):
            raise ValueError(f"field {name}: it does not follow from the verdicts of single lengths")
    if other := [verdict.length for verdict in verdicts if verdict.bound != BOUND]:
        raise ValueError(f"field lengths: another version of the bound found the verdicts of the lengths {ranges(other)}")
    longest = max((verdict.length for verdict in verdicts), default=1)
    try:
        check_lengths(model, task, [task.operand_lengths(longest)])
    except ValueError as error:
        raise ValueError(f"length {longest}: the model cannot take it ({one_line(error)})") from error
    proved = [verdict.length for verdict in verdicts if verdict.verdict == "proved"]
    seconds = ASKED_SECONDS / max(1, len(proved))
    for length in proved:
        if wrong := find_wrong(model, task, task.operand_lengths(length), seconds, ASKED_PROBLEMS):
            said = f"{wrong.problem} is answered by {wrong.answer}, right is {wrong.right}"
            raise ValueError(f"length {length}: it is called proved, but {said}")
    again = {verdict.length for verdict in _proved_in_time(prover, verdicts)}
    answered_for = [replace(verdict, taken_over=verdict.length not in again) for verdict in verdicts]
    (asked,) = read_words("lengths")["asked"]
    asked = asked.format(problems=ASKED_PROBLEMS, seconds=seconds)
    return asdict(conclude(checkpoint, answered_for, stated["files"], asked))


def _proved_in_time(prover: LengthProver, verdicts: Sequence[LengthVerdict]) -> Iterator[LengthVerdict]:
    """The verdicts that are found again in `AGAIN_SECONDS`.

    Raises:
        ValueError: one is not.
    """
    until = time.perf_counter() + AGAIN_SECONDS
    # A certificate may name its lengths in any order. A long one would take all seconds.
    for verdict in sorted(verdicts, key=attrgetter("length")):
        left = until - time.perf_counter()
        if left <= 0:
            return
        if verdict.verdict == "open":
            continue
        found = prover.verdict(verdict.length, left)
        if found.verdict == "open" and time.perf_counter() >= until:
            return
        if found.verdict != verdict.verdict:
            raise ValueError(
                f"length {verdict.length}: it is called {verdict.verdict}, but a new proof finds it {found.verdict}"
            )
        yield verdict
