"""A fuzzer of everything that users give: questions, prompts, files, options, recipes, plugins, datasets and results.

    python tests/faults/fuzz.py --minutes 60 --seed 7 --output hub_cards/results/faults/fuzz.jsonl

The same seed gives the same inputs. For every input the fuzzer knows the right answer: by Python's integers, by a grammar of
questions, by a check of what a certificate claims. Right is that answer, or a refusal in one line that names the value. A
wrong answer without a word, another exception, several lines, a hang, or memory that is not given back is a fault.
"""

import argparse
import gc
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
from faults.attempts import Finding, Outcome, memory
from faults.inputs import Input
from faults.kinds import KINDS
from faults.subjects import Subjects, make_subjects

from longhand.hub_cards.evaluation.results import hardware, write_results

LEAK = 2**30
"""Bytes that the inputs of one kind may leave behind in all, after the first ones of it, which fill caches."""
FILLING = 20


def make_input(kind: str, seed: int, place: int) -> Input:
    """The input of a kind at a place of the sequence that a seed gives."""
    return KINDS[kind].make(np.random.default_rng([seed, place, *kind.encode()]))


def fault(kind: str, subjects: Subjects, given: Input) -> str | None:
    """What is wrong with how an input is taken; None if nothing."""
    found = attempt_input(kind, subjects, given)
    return found if isinstance(found, str) else None


def attempt_input(kind: str, subjects: Subjects, given: Input) -> Outcome | str:
    """How an input is taken, or what is wrong with that."""
    try:
        return KINDS[kind].run(subjects, given)
    except Finding as finding:
        return str(finding)


def shorten(kind: str, subjects: Subjects, given: Input, wanted: str) -> Input:
    """Leave out characters of a question, or words of a command, as long as the fault stays the same."""
    name, place = KINDS[kind].words, 0
    while name and place < len(given[name]):
        shorter = {**given, name: given[name][:place] + given[name][place + 1 :]}
        if shorter[name] and fault(kind, subjects, shorter) == wanted:
            given = shorter
        else:
            place += 1
    return given


def sequence(seed: int, kinds: list[str]) -> Iterator[tuple[str, int]]:
    """Kinds in turn, each as often as its share says, with the places of their inputs."""
    turn = [kind for kind in kinds for _ in range(KINDS[kind].share)]
    places: Counter[str] = Counter()
    while True:
        for kind in turn:
            yield kind, places[kind]
            places[kind] += 1


class Tally:
    """How often inputs of each kind were answered rightly, warned of, refused, and taken wrongly."""

    def __init__(self):
        self.counts: Counter[tuple[str, str]] = Counter()
        self.found: Counter[tuple[str, str]] = Counter()
        self.grown: Counter[str] = Counter()

    def add(self, kind: str, ended: Outcome | str, grown: int) -> None:
        self.counts[kind, "inputs"] += 1
        if isinstance(ended, str):
            self.found[kind, ended] += 1
            self.counts[kind, "faults"] += 1
        else:
            how = "refused" if ended.refusal is not None else "warned" if ended.words else "answered"
            self.counts[kind, how] += 1
        if self.counts[kind, "inputs"] > FILLING:
            self.grown[kind] += grown
            if self.grown[kind] > LEAK:
                self.found[kind, f"{self.grown.pop(kind) >> 20} MB were not given back"] += 1
                self.counts[kind, "faults"] += 1

    def rows(self, **more) -> list[dict]:
        """A row for each kind, for the results file and the table."""
        names = ("inputs", "answered", "warned", "refused", "faults")
        kinds = [kind for kind in KINDS if self.counts[kind, "inputs"]]
        return [{"kind": kind, **{name: self.counts[kind, name] for name in names}, **more} for kind in kinds]

    def print(self) -> None:
        print(f"{'kind':<12}  inputs  answered  warned  refused  faults")
        for row in self.rows():
            print("{kind:<12} {inputs:7,} {answered:9,} {warned:7,} {refused:8,} {faults:7,}".format(**row))
        for (kind, what), count in self.found.most_common():
            print(f"{count:6d}  {kind}: {what}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--certified", type=Path, help="folder of a certified adder; by default one is trained")
    parser.add_argument("--examples", type=int, default=1, help="inputs to print of each fault")
    parser.add_argument("--output", type=Path, help="results file to write")
    return parser.parse_args()


def main() -> None:
    options, tally = parse_arguments(), Tally()
    with tempfile.TemporaryDirectory() as place:
        subjects = make_subjects(Path(place), options.certified)
        began = told = time.monotonic()
        for kind, number in sequence(options.seed, options.kinds):
            if (now := time.monotonic()) > began + 60 * options.minutes:
                break
            if now > told + 60:
                told, tried = now, sum(row["inputs"] for row in tally.rows())
                print(f"{(now - began) / 60:.0f} minutes, {tried:,} inputs, {len(tally.found)} faults", file=sys.stderr)
                gc.collect()
            before, given = memory(), make_input(kind, options.seed, number)
            ended = attempt_input(kind, subjects, given)
            tally.add(kind, ended, memory() - before)
            if isinstance(ended, str) and tally.found[kind, ended] <= options.examples:
                case = {"kind": kind, "fault": ended, "input": shorten(kind, subjects, given, ended)}
                print(json.dumps({"seed": options.seed, "number": number, **case}), flush=True)
    tally.print()
    if options.output:
        write_results(
            tally.rows(seed=options.seed, minutes=options.minutes, hardware=hardware(torch.device("cpu"))), options.output
        )
    sys.exit(bool(tally.found))


if __name__ == "__main__":
    main()
