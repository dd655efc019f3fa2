"""What a function's code compares with is tried, wherever the code has it from; what cannot be tried is said."""

import base64
import codecs
import collections
import dataclasses
import datetime
import functools
import math
import operator
import random
import re
import signal
import sys
import types
import zlib
from types import SimpleNamespace

import pytest

from longhand.data import learn_task
from longhand.data.learning import machines
from longhand.data.learning.questions.constants import constants_of
from longhand.data.learning.questions.functions import AskedFunction, OutOfTime, Refused, alarm
from longhand.data.learning.questions.mutants import unseen_constants
from longhand.data.learning.questions.words import Words

SECRET = 48151623
FORBIDDEN = {12345678, 87654321}
BY_NAME = {"one": 77777123}
FACTOR, OTHER_FACTOR = 12347, 891011
PATTERN = re.compile("(19|20)4711")
SYLLABLES = ["pass", "word"]


class Rules:
    limit = 3141592


class Compared:
    def __init__(self, number: int):
        self.number = number

    def __call__(self, a):
        return a == self.number

    def follows(self, a):
        return a == self.number + 1


def helper(a):
    return a == 4815162342


def asks_helper(a):
    return helper(a)


def made(number):
    return lambda a: a == number


def with_inner(a):
    def inner(b):
        return b == 16180339

    return inner(a)


NAMED = SimpleNamespace(start=3, numbers=frozenset({987123457}))


class OwnPartial(functools.partial):
    pass


FUNCTIONS = {
    "a text of digits": (lambda a: 2 if str(a).startswith("601100") else int(str(a).startswith("4")), {}, ["6011001234"]),
    "a long text": (lambda s: "abcdefghijklmnopqrstuvwxyz" in s, {}, ["xabcdefghijklmnopqrstuvwxyzx"]),
    "a fraction": (lambda a: a > 2345678.5, {}, ["2345678", "2345679"]),
    "a default argument": (lambda a, number=4711123: a == number, {}, ["4711123"]),
    "a global": (lambda a: a == SECRET, {}, [str(SECRET)]),
    "a set": (lambda a: a in FORBIDDEN, {}, ["12345678", "87654321"]),
    "a mapping": (lambda a: a == BY_NAME["one"], {}, ["77777123"]),
    "a product": (lambda a: a == FACTOR * OTHER_FACTOR, {}, [str(FACTOR * OTHER_FACTOR)]),
    "an equation": (lambda a: 2 * a + 1 == 9630325, {}, ["4815162"]),
    "a quotient": (lambda a: a // 7 == 4815162, {}, [str(7 * 4815162 + 3)]),
    "a helper": (asks_helper, {}, ["4815162342"]),
    "a closure": (made(99887766), {}, ["99887766"]),
    "a function within": (with_inner, {}, ["16180339"]),
    "a comprehension": (lambda a: any(str(a) == each for each in ("8675309", "6060842")), {}, ["8675309", "6060842"]),
    "an attribute of a class": (lambda a: a == Rules.limit, {}, ["3141592"]),
    "an object": (Compared(27182818), {}, ["27182818"]),
    "a method": (Compared(27182818).follows, {}, ["27182819"]),
    "a part of a function": (functools.partial(lambda number, a: a == number, 31337123), {}, ["31337123"]),
    "a part of an own kind": (OwnPartial(lambda numbers, a: a in numbers, {31337123}), {}, ["31337123"]),
    "a set beside a start": (lambda a: a in NAMED.numbers, {}, ["987123457"]),
    "a pattern": (lambda a: bool(PATTERN.match(str(a))), {}, ["194711", "2047119"]),
    "a pattern with spaces": (
        lambda a: bool(re.fullmatch("(4 8 1 5 | 7 7 1)  6 2 3  # not 9", str(a), re.X)),
        {},
        ["4815623", "771623"],
    ),
    "a list of digits": (lambda a: [*map(int, str(a))] == [6, 0, 1, 1, 0, 0, 9], {}, ["6011009"]),
    "from the end": (lambda a: str(a)[::-1] == "7654329", {}, ["9234567"]),
    "bytes": (lambda a: str(a).encode() == b"5558675309", {}, ["5558675309"]),
    "another base": (lambda a: str(a) == "3735928559", {"base": 16}, ["deadbeef"]),
    "another case": (lambda s: s.upper() == "PASSWORD", {}, ["password"]),
    "texts of a list": (lambda s: s == SYLLABLES[0] + SYLLABLES[1], {"alphabet": "paswordx"}, ["password"]),
    "a joined pair": (lambda a: "601" in str(a) and "777" in str(a), {}, ["16012777", "77706601"]),
    "a number of repeats": (lambda s: s.count("abc") >= 12, {"alphabet": "abcd"}, ["abc" * 12, "dabc" * 12, "abc" * 11]),
    "a number of digits": (lambda a: str(a).count("7") >= 30, {}, ["7" * 30, "17" * 30, "17" * 29]),
    "a number of columns": (lambda a: len(str(a)) > 50, {}, ["1" * 50, "1" * 51]),
    "columns and a text": (lambda s: len(s) == 12 and s.startswith("de"), {"alphabet": "de01"}, ["de0101010101"]),
    "a place": (lambda s: s[20:24] == "abba", {"alphabet": "ab"}, ["b" * 20 + "abba"]),
    "a place from the end": (lambda s: len(s) >= 10 and s[-10] == "a", {"alphabet": "ab"}, ["bb" + "a" + "b" * 9]),
    "two operands": (lambda a, b: a == 60110 and b == 47112, {}, ["60110,47112"]),
    "a sum of operands": (lambda a, b: a + b == 601123, {}, ["600000,1123"]),
    "two texts": (lambda s, t: s == "abcab" and t == "bbaac", {"alphabet": "abc"}, ["abcab,bbaac"]),
    "a digit for each column": (lambda a: a + 1 if a == 4815162342 else a, {}, ["4815162342"]),
    "two passes": (lambda a: a if a == 48151623 else a // 2 if a % 2 == 0 else 3 * a + 1, {}, ["48151623"]),
}
"""Functions that turn on a constant, how they are learned, and questions that show it."""


@pytest.fixture(autouse=True)
def fewer_words_of_other_searches(monkeypatch):
    """Constants must be found without the long searches for rules of the calendar and the like."""
    monkeypatch.setattr(machines, "RARE_WORDS", 4_000)


class OfAuthor:
    limit = 48151623

    @functools.cached_property
    def cached(self):
        return 48151623

    def __contains__(self, a):
        return a == 48151623

    def __eq__(self, a):
        return a == 48151623

    __hash__ = None


class Child(OfAuthor):
    pass


class Kind(type):
    def __contains__(cls, a):
        return a == 48151623


class OfKind(metaclass=Kind):
    pass


class Made:
    def __init__(self):
        self.limit = 48151623


@dataclasses.dataclass
class Filled:
    limit: int = dataclasses.field(default_factory=lambda: 48151623)


OBJECT, IN_SET, AS_NUMBER = OfAuthor(), frozenset({48151623}).__contains__, (48151623).__eq__
SETTINGS = types.ModuleType("settings_of_constants")
SETTINGS.FIRST, SETTINGS.SECOND = 7, 48151623
KEPT: dict[int, int] = {}


def asks_first(a):
    return a == SETTINGS.FIRST


def asks_second(a):
    return a == SETTINGS.SECOND


def imports(a):
    from settings_of_constants import SECOND

    return a == SECOND


def with_attribute(a):
    return a == with_attribute.limit


with_attribute.limit = 48151623


def ciphered(s):
    return codecs.encode(s, "rot13") == "cnffjbeq"


def made_of(text):
    return lambda s: s == "ab" or codecs.encode(s, "rot13") == text


def keeps(a):
    if not KEPT:
        KEPT[int("32615184"[::-1])] = 1
    return KEPT.get(a, 0)


REACHED = {
    "a method with underscores": lambda a: a in OBJECT,
    "a comparison of an object": lambda a: operator.eq(OBJECT, a),
    "a cached property": lambda a: a == OBJECT.cached,
    "a base": lambda a: a == Child.limit,
    "a class of classes": lambda a: a in OfKind,
    "what an object is made with": lambda a: a == Made().limit,
    "a field that is filled": lambda a: a == Filled().limit,
    "a method of a set": lambda a: IN_SET(a),
    "a method of a number": lambda a: AS_NUMBER(a) is True,
    "a caller of a method": lambda a, call=operator.methodcaller("startswith", "48151623"): call(str(a)),
    "a default of a mapping": lambda a, limits=collections.defaultdict(lambda: 48151623): a == limits[0],
    "another name of a module": lambda a: asks_first(a) or asks_second(a),
    "a name as text": lambda a: a == getattr(SETTINGS, "SECOND"),  # noqa: B009
    "an import within": imports,
    "an attribute of a function": with_attribute,
    "a text with signs": lambda a: f"{a:,}" == "48,151,623",
}
"""Functions that have 48151623 from somewhere."""

MET = {
    "a date": (lambda a: a == datetime.date(2024, 5, 17).toordinal(), "739023"),
    "a checksum": (lambda a: a == zlib.crc32(b"hello"), "907060870"),
    "bytes": (lambda a: str(a) == str(int.from_bytes(b"\x49\x7a", "big")), "18810"),
    "digits of a base": (lambda a: a == int("zebra", 36), "59454982"),
    "underscores": (lambda a: a == int("4_81_51_623"), "48151623"),
    "a code": (lambda a: a == int(base64.b64decode("NDgxNTE2MjM=")), "48151623"),
    "an encoded text": (lambda a: str(a).encode() == base64.b64decode("NDgxNTE2MjM="), "48151623"),
    "a fraction": (lambda a: a * 0.5 > int(math.pi * 10**6) + 0.25 and a == round(math.e * 10**7), "27182818"),
    "a part of a text": (lambda a: str(a)[:8].startswith("".join(reversed(["623", "151", "48"]))), "48151623"),
    "a remainder": (lambda a: a % zlib.crc32(b"hello") == int("4_815"), "4815"),
    "a choice": (lambda a: a in [int("4_815_162"), int("3_141_592")], "3141592"),
    "a table that is kept": (keeps, "48151623"),
}
"""Functions that compute what they compare with, and a number that shows it."""


QUICK_REACHED = ("a field that is filled", "a checksum", "bytes")
"""These are learned by the plain tests, and the others before a release."""


def before_a_release(names, plain):
    return [name if name in plain else pytest.param(name, marks=pytest.mark.release) for name in names]


@pytest.mark.parametrize("name", before_a_release([*REACHED, *MET], QUICK_REACHED))
def test_what_a_function_reaches_or_computes_is_tried(name, monkeypatch):
    monkeypatch.setitem(sys.modules, SETTINGS.__name__, SETTINGS)
    function, shown = MET.get(name) or (REACHED[name], "48151623")
    assert function(int(shown))
    try:
        task = learn_task(function).task
    except Refused as error:
        # What shows it was asked, so answers were seen to differ; fractions of long numbers overflow.
        assert "OverflowError" in str(error) or name == "a remainder", "by so large a number, it has too many states"
        return
    for number in range(int(shown) - 2, int(shown) + 3):
        assert task.answer_to(str(number)) == str(int(function(number)))


@pytest.mark.release
def test_a_collection_that_the_code_makes_is_told():
    for function, is_told in {
        (lambda a: a == 7 or a in {number**3 * 1009 for number in range(40, 50)}): True,
        (lambda a: a in FORBIDDEN): False,
        (lambda a: len(set(str(a))) == 3): False,
    }.items():
        assert ("collection that the code makes" in learn_task(function).report.untried) == is_told


CIPHER = {"text": "cnffjbeq"}
FAR = "nnoo" * 6
"""Of two symbols, all short words are tried."""

UNSEEN = {
    "code": (lambda s: s == "ab" or codecs.encode(s, "rot13") == FAR, FAR),
    "another function": (lambda s: s == "ab" or ciphered(s), "cnffjbeq"),
    "a default argument": (lambda s, text=FAR: s == "ab" or codecs.encode(s, "rot13") == text, FAR),
    "a global": (lambda s: s == "ab" or codecs.encode(s, "rot13") == CIPHER["text"], "cnffjbeq"),
    "a closure": (made_of("cnffjbeq"), "cnffjbeq"),
    "a number": (lambda s: s == "ab" or int(s, 36) == 48151623, "48151623"),
    "a small number": (lambda s: s == "ab" or sum(map(ord, s)) == 42, "42"),
    "a symbol": (lambda s: s == "ab" or s.upper()[:1] == "x", "x"),
}
"""Functions that make something else of an operand, and the constant that no word hits."""


@pytest.mark.parametrize("name", before_a_release(UNSEEN, ["a small number"]))
def test_a_constant_on_which_no_answer_was_seen_to_turn_is_told(name):
    function, constant = UNSEEN[name]
    assert constant in learn_task(function, alphabet="ab").report.unseen


def remembers(a, known={}):  # noqa: B006
    if a not in known:
        known[a] = (a * 1009 + 12345) % 7
    return known[a]


TABLE: list[int] = []


def makes_a_table(a):
    if not TABLE:
        TABLE.append(7919)
    return a % TABLE[0] % 2


def names_and_says(a):
    from math import gcd

    class Rule:
        def of(self, number: int) -> int:
            return gcd(number, 12)

    if a < 0:
        raise ValueError("must not be negative")
    return Rule().of(a)


@pytest.mark.parametrize("function", [remembers, makes_a_table, names_and_says, lambda a: a < 1e18, lambda a: a < 10**30])
def test_kept_answers_names_messages_and_seen_borders_are_not_told_as_unseen(function):
    words = Words("0123456789", 1, are_numbers=True)
    held, asked = constants_of(function), AskedFunction(function, words, seconds=60)
    for number in (*range(100), *(10**power - less for power in (18, 30) for less in (0, 1))):
        asked(words.columns([str(number)]))
    assert unseen_constants(function, asked, held) == ""


def test_no_ring_of_an_alarm_comes_while_it_is_left():
    with alarm(0.0):
        ring = signal.getsignal(signal.SIGALRM)
        left = SimpleNamespace(f_code=alarm.__wrapped__.__code__)
        ring(signal.SIGALRM, left)
        with pytest.raises(OutOfTime):
            while True:
                ring(signal.SIGALRM, None)


QUICK = 2
"""So many functions are learned by the plain tests, and the others before a release."""


@pytest.mark.parametrize("name", before_a_release(FUNCTIONS, [*FUNCTIONS][:QUICK]))
def test_a_function_that_turns_on_a_constant_is_learned_with_it(name):
    function, options, telling = FUNCTIONS[name]
    task, report = learn_task(function, **options)
    generator = random.Random(0)
    are_numbers = task.alphabet == "0123456789abcdef"[: options.get("base", 10)]
    questions = list(telling)
    for text in telling:
        for _ in range(20):
            # Near misses: one symbol changed, and random columns around.
            place = generator.choice([place for place, symbol in enumerate(text) if symbol != task.sign])
            questions.append(text[:place] + generator.choice(task.alphabet) + text[place + 1 :])
            if task.operands == 1:
                questions.append("".join(generator.choices(task.alphabet, k=2)) + text)
                questions.append(text + "".join(generator.choices(task.alphabet, k=2)))
    for question in questions:
        operands = question.split(task.sign) if task.sign else [question]
        right = function(*(int(text, len(task.alphabet)) for text in operands) if are_numbers else operands)
        answer = task.answer_to(question)
        answer = report.legend.get(answer, answer)
        if task.answer == "all":
            assert int(answer) == right, question
        else:
            assert answer == str(int(right) if isinstance(right, bool) else right), question


def test_more_columns_than_states_are_refused_by_what_is_needed():
    with pytest.raises(Refused, match="more than 256 states") as refused:
        learn_task(lambda a: len(str(a)) > 400)
    assert "grows with the width" not in str(refused.value)


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (lambda a: str(a) == "7" * 3001 or a > 5, "3,001 symbols"),
        (lambda a: a > 4815162342, "4,815,162,342 as a number of columns"),
    ],
)
def test_what_cannot_be_tried_is_said_with_what_was_checked(function, named):
    assert named in learn_task(function).report.facts["checked"]


def test_constants_end_where_the_library_of_python_begins_and_are_bounded():
    many = {number: str(number) for number in range(100_000, 130_000)}
    found = constants_of(lambda a: a in many and re.match("4711", str(a)))
    assert found.texts[0] == "4711"
    assert "values beyond" in found.sentence
    assert len(found.numbers) <= 1_000
