"""Each mechanism that searches for what a function turns on is needed: without it, some function is learned worse."""

import codecs
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from learned_functions import FUNCTIONS, Outcome, Subject, outcome_of

from longhand.data.learning import learn
from longhand.data.learning.questions import operands, probes


@dataclass(frozen=True)
class Mechanism:
    """A mechanism, disconnected at its call.

    Attributes:
        place, name: where it is called by which name.
        nothing: stands there in its place.
        subject: a function that needs it.
        named: what the report names with it.
    """

    place: Any
    name: str
    nothing: Callable[..., object]
    subject: Subject
    named: str = ""

    def is_held(self, outcome: Outcome) -> bool:
        """Whether a function is learned as it is with the mechanism."""
        return outcome.learned is not None and not outcome.wrong and self.named in outcome.learned.report.unseen


def six_symbols(s):
    if s[:1] == "h" and s[3:4] == "c" and s[6:7] == "d" and s[9:10] == "h" and s[12:13] == "c" and s[15:16] == "f":
        return 2
    return len(s) % 2


MECHANISMS = {
    "questions that go a new way": Mechanism(
        probes.Search, "questions", lambda _: [],
        Subject(six_symbols, (("haacaadaahaacaaf",),), {"alphabet": "abcdefgh"}),
    ),
    "operands that differ by a constant": Mechanism(operands, "related_numbers", lambda *_: [], FUNCTIONS["a difference"]),
    "words that hold constants": Mechanism(
        operands, "strewn_words", lambda *_: [],
        Subject(lambda s: s.count("abc") >= 12, (("abc" * 12,), ("dabc" * 12,), ("abc" * 11,)), {"alphabet": "abcd"}),
    ),
    "what operands meet": Mechanism(
        operands, "with_what_operands_meet", lambda constants, *_: constants,
        Subject(lambda a: a == zlib.crc32(b"hello"), ((907060870,),)),
    ),
    "changed constants": Mechanism(
        learn, "unseen_constants", lambda *_: "",
        Subject(lambda s: codecs.encode(s, "rot13") == "cnff" or s == "ab", (("ab",),), {"alphabet": "abcnfps"[:2]}),
        "'cnff'",
    ),
    "branches that are named": Mechanism(
        learn, "not_gone", lambda *_: (),
        Subject(lambda s: 2 if zlib.crc32(s.encode()) == 1 else len(s) % 2, (("ab",),), {"alphabet": "ab"}),
        "crc32",
    ),
}  # fmt: skip
"""By what they give."""

PLAIN = "branches that are named"


@pytest.mark.parametrize(
    "name", [name if name == PLAIN else pytest.param(name, marks=pytest.mark.thorough) for name in MECHANISMS]
)
def test_without_a_mechanism_a_function_is_learned_worse(name, monkeypatch):
    mechanism = MECHANISMS[name]
    monkeypatch.setattr(mechanism.place, mechanism.name, mechanism.nothing)
    assert not mechanism.is_held(outcome_of(mechanism.subject))


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.release) for name in MECHANISMS])
def test_with_all_mechanisms_it_is_learned_well(name):
    mechanism = MECHANISMS[name]
    outcome = outcome_of(mechanism.subject)
    assert mechanism.is_held(outcome), outcome
