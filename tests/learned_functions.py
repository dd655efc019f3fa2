"""Functions that are easily learned wrongly, with questions that show what they turn on.

Each turns on something that random words never hit: a difference of operands, symbols at places, a branch behind a branch.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from longhand.data.learning.learn import learn_task
from longhand.data.learning.questions.functions import Refused
from longhand.data.learning.questions.words import Words, number_as_text
from longhand.data.learning.report import Learned


@dataclass(frozen=True)
class Subject:
    """A function that is learned.

    Attributes:
        telling: arguments that show what it turns on.
        options: as of `learn_task`.
    """

    function: Callable[..., object]
    telling: tuple[tuple[int | str, ...], ...]
    options: dict[str, object] = field(default_factory=dict)


def equal_to_sum(a, b):
    if a == b + 3600:
        return 1
    return 0


def rare_difference_of_three(a, b, c):
    return 2 if a - c == 77 else (a + b + c) % 2


def nested(a):
    if a % 10 == 7:  # noqa: SIM102
        if a // 100 % 10 == 3:  # noqa: SIM102
            if a // 10_000 % 10 == 9:
                return 2 if a // 1_000_000 % 10 == 5 else 1
    return 0


def all_of_pairs(s):
    return 2 if len(s) > 8 and all(s[place] == symbol for place, symbol in ((1, "h"), (3, "v"), (8, "w"))) else 0


def of_a_table(s):
    kinds = {"a": "bd", "q": "xz", "m": "kk"}
    if s[:1] in kinds and s[3:5] == kinds[s[:1]]:
        return 2
    return int(s[-1:] == "a")


def in_order(s):
    first, second, third = s.find("mno"), s.find("pqr"), s.find("stu")
    return 2 if 0 <= first < second < third else 0


def two_counts(s):
    if s.count("q") == 3 and s.count("x") == 4:
        return 2
    return s.count("a") % 2


def handler(s):
    try:
        place = s.index("qz")
    except ValueError:
        return int(s[:1] == "a")
    return 2 if s[place + 3 : place + 4] == "k" else 3


def not_taken(a):
    found = 1
    if a != 70_707_071:
        found = a % 2 * 2
    return found


def checks_ends(s):
    return 2 if len(s) == 7 and s[0] == "f" and s[-1] == "t" and s[3] == "j" else int(s[:1] == "a")


def by_match(s):
    match (s[:1], s[2:3], s[4:5]):
        case ("w", "u", "y"):
            return 2
        case ("w", _, _):
            return 1
    return 0


def while_counting(a):
    count = 0
    while a and a % 10 == 8 and count < 6:
        a, count = a // 10, count + 1
    return 2 if count == 6 else count % 2


FUNCTIONS = {
    "a difference": Subject(
        lambda a, b: a == b + 3600, ((13527, 9927), (3600, 0), (1003599, 999999), (10**20 + 3600, 10**20))
    ),
    "a distance": Subject(lambda a, b: abs(a - b) == 4711, ((14711, 10000), (10000, 5289), (99999, 104710), (4711, 0))),
    "a number beside a longer one": Subject(
        lambda a, b: a == 140505983 and b > 69, ((140505983, 10**12), (140505983, 70), (140505983, 69), (1140505983, 10**12))
    ),
    "a branch at a difference": Subject(
        lambda a, b: 2 if a - b == 12345 else (a + b) % 2, ((22344, 9999), (12345, 0), (112344, 99999))
    ),
    "four symbols at places": Subject(
        lambda s: 2 if s[:1] == "x" and s[2:3] == "q" and s[4:5] == "z" and s[6:7] == "k" else int(s[:1] == "a"),
        (("xaqbzck",), ("xxqqzzkk",), ("axqqzzk",)),
    ),
    "five digits at places": Subject(
        lambda a: (
            len(str(a)) > 8
            and str(a)[0] == "3"
            and str(a)[2] == "7"
            and str(a)[4] == "1"
            and str(a)[6] == "9"
            and str(a)[8] == "4"
        ),
        ((317010904,), (397919984,), (3970109045,)),
    ),
    "first and last symbols": Subject(
        lambda s: 2 if s[:2] == "qz" and s[-2:] == "jx" else int(s[:1] == "a"), (("qzjx",), ("qzaaajx",), ("qzjxa",))
    ),
    "two counts": Subject(two_counts, (("qqqxxxx",), ("xqxqxqx",), ("qqxxxxbq",), ("qqxxxx",))),
    "a statement at a difference": Subject(equal_to_sum, ((13527, 9927), (103599, 99999))),
    "a difference of the other operand": Subject(
        lambda a, b: b - a == 98765, ((9999, 108764), (1235, 100000), (0, 98765), (10**9, 10**9 + 98765))
    ),
    "a multiple": Subject(lambda a, b: a == 37 * b, ((37 * 99999, 99999), (37 * 12345678, 12345678), (3700000, 100000))),
    "a multiple and more": Subject(lambda a, b: a == 12 * b + 345, ((12 * 9999 + 345, 9999), (12 * 8765432 + 345, 8765432))),
    "a sum of operands": Subject(
        lambda a, b: 2 if a + b == 600_613 else a % 2, ((600000, 613), (1, 600612), (299999, 300614))
    ),
    "a proportion": Subject(lambda a, b: a * 7 == b * 11, ((11 * 9999, 7 * 9999), (11 * 12345678, 7 * 12345678), (11, 7))),
    "a constant that operands are together": Subject(
        lambda a, b: int(str(a) + str(b)) == 48151623, ((4815, 1623), (48, 151623), (4815162, 3))
    ),
    "constants one behind the other": Subject(
        in_order, (("mnopqrstu",), ("mnoxpqrxstu",), ("pqrmnostu",)), {"alphabet": "mnopqrstux"}
    ),
    "constants and a length": Subject(
        lambda s: ("foo" in s) & ("bar" in s) & (len(s) == 9), (("fooxxxbar",), ("barfoooox",)), {"alphabet": "abforx"}
    ),
    "a small difference": Subject(lambda a, b: a == b + 36, ((99999 + 36, 99999), (10**12 + 20, 10**12 - 16), (37, 1))),
    "three operands": Subject(rare_difference_of_three, ((99999 + 77, 4, 99999), (10**9 + 3, 3, 10**9 - 74), (77, 0, 0))),
    "distances of three operands": Subject(
        lambda a, b, c: abs(a - b) + abs(b - c) == 50,
        ((951, 1000, 999), (148, 99, 100), (99, 71, 49), (10**9 + 25, 10**9, 10**9 - 25), (50, 0, 0)),
    ),
    "how far three operands are apart": Subject(
        lambda a, b, c: max(a, b, c) - min(a, b, c) == 4711,
        ((4711, 0, 99), (10**6, 10**6 + 4000, 10**6 + 4711), (1, 4712, 1)),
    ),
    "a sum with a factor": Subject(
        lambda a, b, c: 2 * c + a == b + 345, ((99999, 297566, 98956), (345, 0, 0), (1, 2 * 10**9 - 344, 10**9), (9, 0, 168))
    ),
    "multiples that differ": Subject(
        lambda a, b: 7 * a == 6 * b + 944, ((66734, 77699), (1898, 2057), (6 * 10**12 + 140, 7 * 10**12 + 6))
    ),
    "multiples that are a number together": Subject(lambda a, b: 8 * a + 5 * b == 1348, ((166, 4), (1, 268), (126, 68))),
    "a bound of multiples": Subject(
        lambda a, b: 11 * a < 10 * b + 1999, ((6172519, 6789571), (6172519, 6789572), (918, 810), (918, 809))
    ),
    "a bound of a sum of multiples": Subject(lambda a, b: 8 * a + 9 * b <= 3452, ((430, 1), (6, 378), (431, 0), (216, 191))),
    "multiples of three operands": Subject(
        lambda a, b, c: 2 * a + 3 * b == 4 * c + 77, ((99999, 99999, 124979), (40, 3, 3), (10**9 + 1, 25, 5 * 10**8))
    ),
    "digits behind digits": Subject(nested, ((5090307,), (5999397,), (15190347,), (90307,))),
    "all of several places": Subject(all_of_pairs, (("ahbvaaaaw",), ("hhvvwwwww",), ("ahbvaaaawz",))),
    "a table of symbols": Subject(of_a_table, (("aaabd",), ("qzzxz",), ("mmmkkm",), ("aaaxz",))),
    "a handler": Subject(handler, (("qzak",), ("aqzkk",), ("qzkkk",), ("qz",))),
    "a branch without an else": Subject(not_taken, ((70707071,), (70707070,))),
    "both ends": Subject(checks_ends, (("faajaat",), ("fffjttt",), ("faajaatt",))),
    "a match of a tuple": Subject(by_match, (("waubyb",), ("wwuuyy",), ("wauby",))),
    "a run of one digit": Subject(while_counting, ((888888,), (1888888,), (88888,), (8888888,))),
    "one symbol far in": Subject(
        lambda s: 2 if s[:1] == "v" and s[11:12] == "u" and s[5:6] == "w" else len(s) % 2,
        (("vaaaawaaaaau",), ("vvvvvwwwwwwu",)),
    ),
    "a digit from the end": Subject(
        lambda a: a % 10 == 3 and a // 1000 % 10 == 8 and a // 100_000 % 10 == 6 and a // 10_000_000 % 10 == 2,
        ((20608003,), (29698993,), (120608003,)),
    ),
    "two texts at places": Subject(
        lambda s, t: 2 if s[:1] == "q" and t[1:2] == "z" and s[3:4] == "x" else int(s == t), (("qaax", "azaa"), ("aa", "aa"))
    ),
    "symbols that are one comparison": Subject(
        lambda s: (s[:1], s[2:3], s[4:5]) == ("w", "u", "y"), (("waubyb",), ("wwuuyy",), ("wauby",))
    ),
    "symbols and no branch": Subject(
        lambda s: (s[:1] == "w") & (s[2:3] == "u") & (s[4:5] == "y") & (s[6:7] == "q"), (("waubycq",), ("wwuuyyqq",))
    ),
    "sorted symbols": Subject(lambda s: 2 if sorted(s) == ["j", "q", "x", "z"] else len(s) % 2, (("jqxz",), ("zxqj",))),
    "a sum of digits": Subject(
        lambda a: 2 if sum(map(int, str(a))) == 63 else a % 2, ((9999999,), (8888887776,), (3 * 10**9,))
    ),
    "a product of constants": Subject(lambda a, b: a - b == 311 * 409, ((311 * 409, 0), (311 * 409 + 99999, 99999))),
    "a product of operands": Subject(
        lambda a, b: 2 if a * b == 10403 else a % 2, ((101, 103), (103, 101), (1, 10403), (10403, 1))
    ),
    "a bound of a difference": Subject(
        lambda a, b: 2 if 5000 <= a - b < 5003 else 0, ((104999, 99999), (105001, 99999), (105002, 99999), (5003, 0))
    ),
    "an exception of a rule": Subject(
        lambda s: "no" if s[:2] == "zz" and s[4:6] == "zz" and len(s) == 6 else "yes",
        (("zzaazz",), ("zzzzzz",), ("zzaazza",)),
    ),
    "a digit and the number of digits": Subject(
        lambda a: 2 if len(str(a)) == 13 and str(a)[6] == "4" and str(a)[-1] == "7" else a % 2,
        ((1000004000007,), (9999994999997,), (1000004000017,)),
    ),
    "a symbol that hides": Subject(
        lambda s: s.replace("q", "").startswith("zebra"), (("zqeqbra",), ("qqzebra",), ("zebr",), ("zebqqrqaa",))
    ),
    "an answer for each column": Subject(
        lambda s: s[:1] + "".join("Z" if a + b == "qj" else b for a, b in pairwise(s)),
        (("aqja",), ("qj",), ("jqqj",)),
    ),
    "numbers in another base": Subject(
        lambda a, b: a == b + 0xBEEF, ((0xBEEF, 0), (0xFFFFF + 0xBEEF, 0xFFFFF)), {"base": 16}
    ),
}
"""By what each of them turns on."""


@dataclass(frozen=True)
class Outcome:
    """What became of a function.

    Attributes:
        learned: what was learned; None if the function was refused.
        refusal: why it was refused.
        wrong: questions with a wrong answer, with both answers.
    """

    learned: Learned | None
    refusal: str = ""
    wrong: tuple[str, ...] = ()


def outcome_of(subject: Subject) -> Outcome:
    """Learn a function and compare the task with it: on telling questions, near misses of these, and random ones."""
    try:
        learned = learn_task(subject.function, **subject.options)
    except Refused as error:
        return Outcome(None, str(error))
    task = learned.task
    words = Words(task.alphabet, task.operands, not task.one_length and isinstance(subject.telling[0][0], int))
    wrong = []
    for arguments in questions_of(subject, words):
        right = subject.function(*arguments)
        texts = [number_as_text(each, words.alphabet) if isinstance(each, int) else each for each in arguments]
        answer = task.answer_to(task.sign.join(words.texts(words.columns(texts))))
        answer = learned.report.legend.get(answer, answer)
        if task.answer == "all" and words.are_numbers:
            answer = str(int(answer, words.base))
        if answer != str(int(right) if isinstance(right, bool) else right):
            wrong.append(f"{arguments} -> {answer}, not {right}")
    return Outcome(learned, "", tuple(wrong))


def questions_of(subject: Subject, words: Words) -> Iterator[tuple[int | str, ...]]:
    """Telling arguments, near misses of these, and random ones."""
    generator = random.Random(0)
    for arguments in subject.telling:
        yield arguments
        for _ in range(30):
            changed = list(arguments)
            place = generator.randrange(len(changed))
            if words.are_numbers:
                changed[place] = abs(int(changed[place]) + generator.choice((-10, -1, 1, 10, 1000, 10**5)))
            else:
                text = str(changed[place])
                within = generator.randrange(len(text))
                changed[place] = text[:within] + generator.choice(words.alphabet) + text[within + 1 :]
            yield tuple(changed)
    for _ in range(200):
        yield tuple(words.arguments(words.random_word(generator, 1, 12)))
