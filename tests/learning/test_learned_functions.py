"""What a function turns on is found, or is named: no function is learned wrongly without a word."""

import hashlib
import math
import random
import re
import sys
import zlib

import numpy as np
import pytest
from learned_functions import FUNCTIONS, Subject, outcome_of

from longhand.data import ColumnTask, learn_task
from longhand.data.learning.questions.branches import Branches
from longhand.data.learning.questions.constants import constants_of
from longhand.data.learning.questions.functions import Refused
from longhand.data.splits import make_generator

PLAIN = ("a difference", "four symbols at places")
THOROUGH = ("a proportion", "constants one behind the other")
"""The others are learned before a release: each takes some seconds."""
LEARNED = ("constants one behind the other", "constants and a length")
"""No random word shows that these answer otherwise than 0: they are refused if none holds all their constants."""


def marked(name: str):
    if name in PLAIN:
        return name
    return pytest.param(name, marks=pytest.mark.thorough if name in THOROUGH else pytest.mark.release)


@pytest.mark.parametrize("name", [marked(name) for name in FUNCTIONS])
def test_a_function_is_learned_rightly_or_is_refused_or_what_it_turns_on_is_named(name):
    outcome = outcome_of(FUNCTIONS[name])
    assert outcome.learned is not None or (outcome.refusal and name not in LEARNED)
    assert not outcome.wrong or outcome.learned.report.unseen, outcome.wrong


def drawn_relation(seed: int) -> Subject:
    """A relation of multiples of two operands, and operands at which it turns."""
    generator = random.Random(seed)
    factor, other = generator.randint(1, 12), generator.choice((1, -1)) * generator.randint(1, 12)
    number = math.gcd(factor, other) * generator.randrange(400)
    is_bound = generator.random() < 0.4
    telling: list[tuple[int | str, ...]] = []
    while len(telling) < 60:
        second = generator.randrange(10 ** generator.randint(1, 9) if other < 0 else 1 + number // other)
        first = (number - other * second) // factor
        telling += [(near, second) for near in (first - 1, first, first + 1) if near >= 0]
    signed = f"{'+' if other > 0 else '-'} {abs(other)} * b"
    code = f"lambda a, b: {factor} * a {signed} {'<=' if is_bound else '=='} {number}"
    return Subject(eval(code), tuple(telling))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.release) for seed in range(1, 16))])
def test_relations_of_multiples_are_learned_rightly_or_are_refused(seed):
    outcome = outcome_of(drawn_relation(seed))
    assert outcome.refusal or not outcome.wrong, outcome.wrong[:3]


def hashed(s):
    if hashlib.sha256(s.encode()).hexdigest().startswith("00000000"):
        return 2
    return len(s) % 2


def caught(s):
    try:
        return 5 // ((len(s) % 2) + 1)
    except ZeroDivisionError:
        return 7


def guarded(s):
    if not isinstance(s, str):
        raise TypeError(f"a text, not {s!r}")
    if not s:
        return 0
    return 1 if s[0] == "a" else 0


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (hashed, 'startswith("00000000")` is true'),
        pytest.param(
            lambda s: 2 if zlib.crc32(s.encode()) == 123456789 else len(s) % 2,
            "== 123456789` is true",
            marks=pytest.mark.release,
        ),
        pytest.param(caught, "return 7", marks=pytest.mark.release),
        (guarded, ""),
    ],
)
def test_a_branch_that_no_question_enters_is_named_and_one_for_other_arguments_is_not(function, named):
    report = learn_task(function, alphabet="ab").report
    assert named in report.unseen and named in report.facts["checked"]
    assert named or not report.unseen
    assert report.unseen in "\n".join(report.lines)


def test_a_private_function_shows_nothing_of_its_source():
    report = learn_task(hashed, alphabet="ab").report.without_source()
    assert report.unseen and "hexdigest" not in str(report.facts)


def both_ways(a, b):
    return 1 if a > 5 and b is not None else 2 if any(each == a for each in (7, 8)) else 3


def test_both_ways_of_each_condition_are_watched_and_a_trace_of_others_goes_on():
    def other(*_):
        return None

    branches = Branches(both_ways, constants_of(both_ways).codes)
    assert branches.is_new([3, 1]) and not branches.is_new([3, 1])
    before = sys.gettrace()
    sys.settrace(other)
    try:
        assert branches.is_new([6, 1])
        assert sys.gettrace() is other
    finally:
        sys.settrace(before)
    assert "`b` is None" in branches.not_gone
    assert branches.is_new([6, None]) and branches.is_new([7, None])
    assert branches.not_gone == ()


def endless(a):
    while a > 5:
        a += 1
    return a


def test_a_call_that_does_not_end_is_given_up():
    branches = Branches(endless, constants_of(endless).codes)
    assert branches.is_new([6]) and branches.steps < 1_000_000


DOMAIN = "[A-C]{3}-[0-9]{2,4}"


class Plate(ColumnTask):
    """A rule of a domain, as a folder's recipe knows it."""

    name, alphabet, direction, answer, writes = "plate_of_domain", "0123456789ABC-", "top_first", "last", "01"
    learned = {"domain": DOMAIN}  # noqa: RUF012

    def step(self, state, symbols):
        return int(symbols[0] == 13), 0


@pytest.mark.parametrize(("length", "fits"), [(6, True), (8, True), (5, False), (20, False)])
def test_a_rule_is_tested_by_texts_of_its_domain_and_near_misses(length, fits):
    task = Plate()

    def drawn(split):
        digits = task.draw(make_generator("plates"), np.full((600, 1), length), split)
        return ["".join(words) for words in task.words(digits)]

    texts = drawn("test")
    within = sum(bool(re.fullmatch(DOMAIN, text)) for text in texts)
    assert texts == drawn("test") and {*map(len, texts)} == {length}
    assert (150 < within < 400) if fits else within == 0
    # Near misses are no texts of the domain, and have a sign at its place.
    assert sum(text[3:4] == "-" and not re.fullmatch(DOMAIN, text) for text in texts) > 50
    assert not any(re.fullmatch(DOMAIN, text) for text in drawn("train"))


def test_the_lengths_of_a_domain_are_tested_and_asked():
    task = Plate()
    assert task.suggested_arguments["test_lengths"] == [6, 7, 8, 100]
    assert re.fullmatch(DOMAIN, task.example_question)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"alphabet": "[A-Z0-9]"}, "--domain"),
        ({"alphabet": "[a-c]"}, "--domain"),
        ({"alphabet": "aa"}, "--domain"),
        ({"alphabet": "ab"}, "--domain"),
        ({"alphabet": "ab", "seconds": 1e-3}, "--seconds"),
    ],
)
def test_a_refusal_names_the_argument_that_helps(options, named):
    with pytest.raises(Refused, match=named):
        learn_task(lambda s: s == "Q" if options.get("seconds") is None else s.count("ab") % 3, **options)
