"""Each mechanism that searches for what a function turns on is needed: without it, some function is learned worse."""

import codecs
import math
import zlib
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from learned_functions import FUNCTIONS, Outcome, Subject, outcome_of
from test_learned_calendars import day_first

from longhand.data.learning import learn, machines
from longhand.data.learning.machines import MachineLearner
from longhand.data.learning.questions import mutants, operands, probes
from longhand.data.learning.questions.drawing import Drawing
from longhand.data.learning.questions.words import Words


@dataclass(frozen=True)
class Mechanism:
    """A mechanism, disconnected at its call.

    Attributes:
        place, name: where it is called by which name.
        nothing: stands there in its place.
        subject: a function that needs it.
        named: what stands with it under what was checked, or in the refusal of a function that is refused.
        is_refused: whether the function is refused with it; without it, a machine is found that is wrong, or none in time.
    """

    place: Any
    name: str
    nothing: object
    subject: Subject
    named: str = ""
    is_refused: bool = False

    def is_held(self, outcome: Outcome) -> bool:
        """Whether a function is learned, or refused, as it is with the mechanism."""
        if self.is_refused:
            return self.named in outcome.refusal and outcome.refusal != ""
        return outcome.learned is not None and not outcome.wrong and self.named in outcome.learned.report.facts["checked"]


def six_symbols(s):
    if s[:1] == "h" and s[3:4] == "c" and s[6:7] == "d" and s[9:10] == "h" and s[12:13] == "c" and s[15:16] == "f":
        return 2
    return len(s) % 2


def secret(a):
    return 2 if int(str(a)) == pow(SECRETS.root, SECRETS.power, SECRETS.modulus) else a % 2


SECRETS = SimpleNamespace(root=4321, power=5, modulus=987654321987)

MECHANISMS = {
    "words on both sides of a border": Mechanism(
        MachineLearner, "_by_borders", lambda *_: None,
        Subject(lambda a: math.log(a + 1) > 40.5, ((388084696243719520,), (388084695000000000,), (388084698000000000,))),
    ),
    "words made of those with a rare answer": Mechanism(
        MachineLearner, "_by_rare_answers", lambda *_: None,
        Subject(day_first, (("29/02/1500",), ("29/02/1600",), ("29/02/2023",)), {"alphabet": "0123456789/"}),
    ),
    "words of the W-method": Mechanism(
        MachineLearner, "_by_w_method", lambda *_: None, Subject(lambda a: a // 3, ((7,),)), "W-method"
    ),
    "questions that go a new way": Mechanism(
        probes.ProbeSearch, "questions", lambda _: [],
        Subject(six_symbols, (("haacaadaahaacaaf",),), {"alphabet": "abcdefgh"}),
    ),
    "products of operands": Mechanism(
        probes, "permutations", lambda *_: (),
        Subject(lambda a, b: 2 if a * b == 600_851_475 else a % 2, ((3, 200_283_825), (75, 8_011_353)), {"seconds": 20}),
        "", is_refused=True,
    ),
    "sums of multiples of operands": Mechanism(
        probes, "_sums", lambda *_: (), FUNCTIONS["multiples that are a number together"]
    ),
    "numbers that differ as others do": Mechanism(
        MachineLearner, "_summed", lambda *_: (), FUNCTIONS["multiples that differ"]
    ),
    "words that hold constants": Mechanism(
        Drawing, "words_with_constants", lambda _: [],
        Subject(lambda s: s.count("abc") >= 12, (("abc" * 12,), ("dabc" * 12,), ("abc" * 11,)), {"alphabet": "abcd"}),
    ),
    "what operands meet": Mechanism(
        operands, "with_what_operands_meet", lambda constants, *_: constants,
        Subject(lambda a: a == zlib.crc32(b"hello"), ((907060870,),)),
    ),
    "rows that a counter must tell apart": Mechanism(
        machines, "check_growth", lambda *_: None,
        Subject(lambda s: s.count("a") > s.count("b"), (("a" * 290 + "b" * 290,),), {"alphabet": "ab"}),
        "grows with the width", is_refused=True,
    ),
    # Without it, the search goes on until the seconds are over, and more of them would not help.
    "beginnings that one word alone tells apart": Mechanism(
        machines, "check_pairs", lambda *_: None,
        Subject(lambda s: s[: len(s) // 2] == s[len(s) // 2 :], (("abcabc",),), {"alphabet": "abcd", "seconds": 15}),
        "grows with the width", is_refused=True,
    ),
    "numbers that functions single out": Mechanism(
        Words, "notable_words", lambda _: [],
        Subject(lambda a: a & (a - 1) == 0, ((2**40,), (2**41,))), "grows with the width", is_refused=True,
    ),
    "changed constants": Mechanism(
        learn, "unseen_constants", lambda *_: "",
        Subject(lambda s: codecs.encode(s, "rot13") == "cnff" or s == "ab", (("ab",),), {"alphabet": "abcnfps"[:2]}),
        "'cnff'",
    ),
    "changed constants of an object": Mechanism(
        mutants, "_changed_attributes", lambda *_: (), Subject(secret, ((5,),)), "4321"
    ),
    "branches that are named": Mechanism(
        learn, "not_gone", lambda *_: (),
        Subject(lambda s: 2 if zlib.crc32(s.encode()) == 1 else len(s) % 2, (("ab",),), {"alphabet": "ab"}),
        "crc32",
    ),
}  # fmt: skip
"""By what they give."""

PLAIN = ("branches that are named", "numbers that functions single out", "words of the W-method")


@pytest.mark.parametrize(
    "name", [name if name in PLAIN else pytest.param(name, marks=pytest.mark.release) for name in MECHANISMS]
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
