"""A machine behind a function, or behind examples: it is right, least, the same every time, or refused in one line."""

import json
import math
import random
import subprocess
import sys
import time

import pytest
from cases import all_but
from plugin_state import forget_plugins

from longhand import eval as evaluation
from longhand import train
from longhand.data import ColumnTask, learn_task
from longhand.data.learning.example_files import Example, read_examples
from longhand.data.learning.examples import learn_task_from_examples, wrong_examples
from longhand.data.learning.locality import a_window_suffices
from longhand.data.learning.machine_task import build, pass_of
from longhand.data.learning.machines import Machine, MachineLearner, minimised
from longhand.data.learning.plugin_file import plugin_source
from longhand.data.learning.questions.functions import AskedFunction, Refused
from longhand.data.learning.questions.readings import NotSequential, Reading
from longhand.data.learning.questions.words import Words, number_as_text
from longhand.data.tasks.column_task import task_of_table
from longhand.data.tasks.plugins import load_plugin
from longhand.data.tasks.registry import TASKS
from longhand.hub_cards.training.arguments import parse_run
from longhand.modeling.transducer import table_of


def collatz(a):
    return a // 2 if a % 2 == 0 else 3 * a + 1


FUNCTIONS = {
    "sums": (lambda a, b: a + b, {}, [2]),
    "sums_in_base_16": (lambda a, b: a + b, {"base": 16}, [2]),
    "linear": (lambda a: 23 * a + 14, {}, [23]),
    "quotients": (lambda a: a // 3, {}, [3]),
    "maximum": (lambda a, b: max(a, b), {}, [3, 1]),
    "remainder": (lambda a: a % 37, {}, [37]),
    "divisible": (lambda a: a % 7 == 0, {}, [7, 1]),
    "larger": (lambda a, b: a > b, {}, [3, 1]),
    "sign": (lambda a, b: (a > b) - (a < b), {}, [3]),
    "distance": (lambda a, b: abs(a - b), {}, [3, 3, 1]),
    "collatz": (collatz, {}, [2, 5, 1]),
    "capitals": (lambda s: s.upper(), {}, [1]),
    "replaced": (lambda s: s.replace("ab", "xy"), {}, [2, 2]),
    "contains": (lambda s: "abba" in s, {}, [5, 1]),
    "parity": (lambda s: "even" if s.count("a") % 2 == 0 else "odd", {"alphabet": "ab"}, [2]),
    "equal_to": (lambda a: a == 4711, {}, [5, 1]),
}
"""Functions, how they are learned, and the states of each pass; the last one is 1 where the states are written."""

LINEAR = ("sums", "sums_in_base_16", "linear")
"""Those that are proved, since they are linear."""


@pytest.fixture(scope="module")
def found():
    """Each function is learned once."""
    tasks: dict = {}

    def find(name):
        if name not in tasks:
            function, options, _ = FUNCTIONS[name]
            tasks[name] = learn_task(function, name=name, **options)
        return tasks[name]

    return find


def value_of(task: ColumnTask, report, question: str) -> str:
    answer = task.answer_to(question)
    return report.legend.get(answer, answer)


def random_operands(generator: random.Random, task: ColumnTask) -> list[str]:
    width = generator.choice((1, 2, 3, 5, 20, 300))
    few = generator.sample(task.alphabet, min(2, len(task.alphabet)))
    symbols = generator.choice((task.alphabet, few))
    return ["".join(generator.choices(symbols, k=width)) for _ in range(task.operands)]


FURTHER = ("remainder", "sums_in_base_16", "distance", "larger", "sign", "maximum", "divisible", "quotients", "capitals")
"""Of these, other functions are of the same kind."""


@pytest.mark.parametrize("name", all_but(FURTHER, FUNCTIONS))
def test_the_task_answers_as_the_function_does_with_as_few_states_as_it_needs(name, found):
    function, options, states = FUNCTIONS[name]
    task, report = found(name)
    assert [len(own.write) for own in task.transducer.passes] == states
    assert (report.linear is not None) == (name in LINEAR)
    generator = random.Random(5)
    are_numbers = task.alphabet == "0123456789abcdef"[: options.get("base", 10)]
    for _ in range(100):
        operands = random_operands(generator, task)
        right = function(*(int(text, len(task.alphabet)) for text in operands) if are_numbers else operands)
        answer = value_of(task, report, task.sign.join(operands))
        if isinstance(right, int) and task.answer == "all":
            assert int(answer, len(task.alphabet)) == right
        else:
            assert answer == str(int(right) if isinstance(right, bool) else right)


@pytest.mark.parametrize("name", all_but(["parity"], ["sums", "collatz", "parity"]))
def test_the_same_function_gives_the_same_task_and_facts(name, found):
    function, options, _ = FUNCTIONS[name]
    again = learn_task(function, name=name, **options)
    assert again.report.facts == found(name).report.facts
    assert again.task.transducer == found(name).task.transducer


def test_a_linear_function_is_proved():
    linear = learn_task(lambda a, b: 3 * a + b + 2, base=4).report.linear
    assert (linear.coefficients, linear.constant) == ((3, 1), 2)


@pytest.mark.parametrize("alphabet", ["01", "0123456789", "abcdefghijklmnopqrstuvwxyz", "a\xe9\u20ac"])
@pytest.mark.parametrize("operands", [1, 2, 3])
def test_a_word_is_its_operands_column_by_column(alphabet, operands):
    words, generator = Words(alphabet, operands, False), random.Random(0)
    for width in (0, 1, 2, 7, 50):
        texts = ["".join(generator.choices(alphabet, k=width)) for _ in range(operands)]
        word = words.columns(texts)
        assert words.texts(word) == texts
        assert [words.letters[letter] for letter in word] == [
            tuple(map(alphabet.index, row)) for row in zip(*texts, strict=True)
        ]
        number = generator.randrange(len(alphabet) ** (width + 1))
        digits = words.digits(number, width)
        assert len(digits) == width
        assert sum(digit * len(alphabet) ** place for place, digit in enumerate(digits)) == number % len(alphabet) ** width
    with pytest.raises(ValueError, match="alphabet"):
        words.columns([alphabet + "?"] * operands)


def test_sums_alone_have_a_plus_between_operands(found):
    assert found("sums").task.sign == "+"
    assert found("distance").task.sign == ","


def test_texts_of_different_lengths_are_refused_and_not_padded():
    task, report = learn_task(lambda s, t: s == t, alphabet="ab")
    again = task_of_table("again", table_of(task.transducer), report.facts)
    for each in (task, again()):
        assert each.answer_to("abb,abb") == "1"
        with pytest.raises(ValueError, match="length"):
            each.prompt("ab,b")
    with pytest.raises(Refused, match="length"):
        learn_task_from_examples([Example("ab,b", "no"), Example("b,b", "yes")])


COUNTER = pytest.mark.slow  # asks 70,000 long words


def raising(a):
    return 7 // (a - 12)


def unsteady(a, calls=[0]):  # noqa: B006
    calls[0] += 1
    return a + calls[0] % 2


def endless(a):
    while a > 99:
        time.sleep(0.01)
    return a


def never_ending(a):
    while True:
        time.sleep(0.01)


def catching_all(a):
    for _ in range(3):
        try:
            never_ending(a)
        except BaseException:
            continue
    return a


@pytest.mark.parametrize(
    ("function", "options", "problems"),
    [
        (lambda a, b: a * b, {}, 2),
        (lambda a: a * a, {}, 2),
        (lambda s: s[::-1], {}, 2),
        pytest.param(lambda s: s.count("a") > s.count("b"), {"alphabet": "ab"}, 2, marks=COUNTER),
        pytest.param(lambda s: s.count("ab") > s.count("ba"), {}, 2, marks=pytest.mark.release),
        (lambda s: s == s[::-1], {}, 2),
        pytest.param(lambda s: s[: len(s) // 2] == s[(len(s) + 1) // 2 :], {"alphabet": "ab"}, 2, marks=pytest.mark.release),
        pytest.param(lambda a: math.isqrt(a) ** 2 == a, {}, 2, marks=pytest.mark.release),
        pytest.param(lambda a: float(a) == a, {}, 2, marks=pytest.mark.release),
        pytest.param(lambda a, b: a == b * b, {}, 2, marks=pytest.mark.release),
        (lambda a, b: a - b, {}, 1),
        (lambda a: a / 2, {}, 1),
        (lambda a: None, {}, 1),
        (lambda a: "x" if a % 2 else 7, {}, 0),
        (lambda s: s + s.lower(), {}, 1),
        (lambda s: s.replace("a", "="), {}, 1),
        (lambda a: 7, {}, 0),
        (lambda *a: 7, {}, 0),
        (lambda a, b, c, d, e: a, {}, 0),
        (raising, {}, 1),
        (unsteady, {}, 1),
        (endless, {"seconds": 0.3}, 1),
        (never_ending, {"seconds": 0.3}, 0),
        (catching_all, {"seconds": 0.3}, 0),
        (lambda a: a, {"base": 1}, 0),
        (lambda s: s, {"alphabet": "aa"}, 0),
        (lambda s: s, {"alphabet": "a$"}, 0),
        (lambda a: a + 1, {"name": "states_of_mine"}, 0),
        (lambda a: sys.exit(1), {}, 1),
        (lambda a: a + 1, {"name": "no name"}, 0),
    ],
)
def test_what_is_no_column_task_is_refused_with_problems_in_one_line(function, options, problems):
    with pytest.raises(Refused) as refused:
        learn_task(function, **options)
    message = str(refused.value)
    assert "\n" not in message
    assert message.count("f(") >= problems


def test_a_function_with_too_many_states_is_refused():
    reading = Reading(AskedFunction(lambda a: a % 7 < 3, Words("0123456789", 1, True), 60), "top_first", "last")
    assert MachineLearner(reading, random.Random(0), most_states=7).learn().states == 7
    with pytest.raises(NotSequential, match="more than 6 states"):
        MachineLearner(reading, random.Random(0), most_states=6).learn()


def test_states_are_written_when_asked_and_the_answers_stay(found):
    task = learn_task(lambda a: a // 3, write_states=True).task
    assert [len(own.write) for own in task.transducer.passes] == [3, 1]
    assert task.answer_to("9999") == found("quotients").task.answer_to("9999")


def test_a_window_suffices_if_and_only_if_the_search_finds_one():
    generator = random.Random(4)
    seen = set()
    for _ in range(60):
        states = generator.randint(2, 4)
        write = [[generator.randint(0, 1) for _ in range(2)] for _ in range(states)]
        machine = minimised(Machine(write, [[generator.randrange(states) for _ in range(2)] for _ in range(states)]))
        only = pass_of(machine, "01", "top_first", (0,))
        task = build("random", Words("01", 1, False), "", "all", [only], "A random machine.")
        try:
            found = bool(task.transducer)
        except ValueError:
            found = False
        assert a_window_suffices([only]) == found
        seen.add(found)
    assert seen == {True, False}


@pytest.mark.parametrize("words", [["--function", "lambda a: a // 2", "--base", "2"], ["--examples", "halves.jsonl"]])
def test_states_of_what_was_found_are_written_when_asked_from_the_command_line(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = drawn(lambda a: a // 2, 300, 1)
    (tmp_path / "halves.jsonl").write_text("".join(json.dumps(each._asdict()) + "\n" for each in examples))
    try:
        for asked, passes in (([], 1), (["--write_states"], 2)):
            run = parse_run(["columns", *words, "--name", "found_here", *asked])
            assert len(run.task.transducer.passes) == passes and run.name == "found_here"
    finally:
        TASKS.pop("found_here", None)


OWN = """
from longhand.data import ColumnTask, register_task
@register_task
class Abba(ColumnTask):
    name, alphabet, direction, answer, writes = "own_abba", "ab", "top_first", "last", "01"
    def step(self, state, symbols):
        word = "abba"
        if state == 4:
            return 1, 4
        read = word[:state] + "ab"[symbols[0]]
        after = next(count for count in range(min(4, len(read)), -1, -1) if read.endswith(word[:count]))
        return int(after == 4), after
"""


def test_a_task_of_ones_own_writes_its_states_where_that_leaves_far_less_to_learn(tmp_path):
    (tmp_path / "own_abba.py").write_text(OWN)
    words = ["columns", "--plugin", str(tmp_path / "own_abba.py")]
    try:
        assert len(parse_run(words).task.transducer.passes) == 2
        assert len(parse_run([*words, "--write_states", "False"]).task.transducer.passes) == 1
    finally:
        TASKS.pop("own_abba", None)


def test_a_minimised_machine_writes_the_same_and_has_no_equal_states():
    generator = random.Random(3)
    for _ in range(20):
        states, letters = generator.randint(1, 12), generator.randint(1, 3)
        table = [[generator.randint(0, 1) for _ in range(letters)] for _ in range(states)]
        machine = Machine(table, [[generator.randrange(states) for _ in range(letters)] for _ in range(states)])
        least = minimised(machine)
        assert len(least.telling_words()) < least.states or least.states == 1
        for _ in range(30):
            word = generator.choices(range(letters), k=30)
            assert least.written(word) == machine.written(word)


@pytest.mark.parametrize("name", ["sums", "linear", "quotients", "distance", "capitals", "larger"])
def test_a_written_plugin_has_the_table_that_was_found(name, found, tmp_path):
    task = found(name).task
    source = plugin_source(found(name)).replace(f"name = {name!r}", f"name = 'written_{name}'")
    (tmp_path / f"written_{name}.py").write_text(source)
    try:
        load_plugin(tmp_path / f"written_{name}.py")
        written = TASKS[f"written_{name}"]()
        for own, other in zip(written.transducer.passes, task.transducer.passes, strict=True):
            assert minimised(Machine(own.write, own.next)) == minimised(Machine(other.write, other.next))
            assert (own.writes, own.direction, own.flush) == (other.writes, other.direction, other.flush)
    finally:
        TASKS.pop(f"written_{name}", None)


def drawn(function, count: int, operands: int, seed: int = 0, longest: int = 5) -> list[Example]:
    generator = random.Random(seed)
    found = []
    for _ in range(count):
        numbers = [generator.randrange(10 ** generator.randint(1, longest)) for _ in range(operands)]
        found.append(Example("+".join(map(str, numbers)), str(function(*numbers))))
    return found


@pytest.mark.parametrize("seed", all_but([1, 2], range(3)))
def test_a_thousand_sums_give_the_machine_of_addition(seed):
    task, report = learn_task_from_examples(drawn(lambda a, b: a + b, 1000, 2, seed))
    assert [len(own.write) for own in task.transducer.passes] == [2]
    assert report.linear is not None and report.linear.is_sum
    generator = random.Random(seed)
    for _ in range(50):
        a, b = generator.randrange(10**50), generator.randrange(10**50)
        assert task.answer_to(f"{a}+{b}") == str(a + b)


def test_quotients_are_learned_from_the_top():
    task = learn_task_from_examples(drawn(lambda a: a // 7, 500, 1)).task
    assert int(task.answer_to("123456789")) == 123456789 // 7


def test_texts_of_one_symbol_are_learned():
    """There is one word of each length, so the number of words sets no bound to their lengths."""
    task = learn_task(lambda text: len(text) % 3, alphabet="a").task
    assert [task.answer_to("a" * length) for length in (1, 5, 300)] == ["1", "2", "0"]


def test_entries_that_no_example_reaches_are_refused_or_completed_as_a_linear_function():
    examples = drawn(lambda a, b: a + b, 300, 2)
    with pytest.raises(Refused, match="22 of its 200 entries"):
        learn_task_from_examples(examples)
    task, report = learn_task_from_examples(examples, complete=True)
    assert "22 of the 200 entries" in report.checked
    assert task.transducer.passes[0].write == learn_task(lambda a, b: a + b).task.transducer.passes[0].write
    with pytest.raises(Refused):
        learn_task_from_examples(drawn(lambda a: a // 7, 60, 1), complete=True)


def drawn_texts(function, alphabet: str, count: int, longest: int = 10) -> list[Example]:
    generator = random.Random(1)
    texts = ["".join(generator.choices(alphabet, k=generator.randint(1, longest))) for _ in range(count)]
    return [Example(text, str(function(text))) for text in texts]


BITS = [(f"{number >> 5:b}", f"{number % 32:b}") for number in range(0, 1024, 3)]
"""Pairs of binary numbers."""


def compared(a, b):
    return "larger" if a > b else "not"


@pytest.mark.parametrize(
    ("examples", "states", "question", "answer"),
    [
        (drawn(lambda a: a % 7, 3000, 1), 7, "9" * 40, str(int("9" * 40) % 7)),
        (drawn(lambda a: a % 3 == 0, 3000, 1), 3, "1" * 42, "True"),
        (drawn_texts(lambda s: "abba" in s, "ab", 1000), 5, "b" * 30 + "abba" + "a" * 30, "True"),
        (drawn_texts(lambda s: "even" if s.count("a") % 2 == 0 else "odd", "ab", 100), 2, "ab" * 31, "odd"),
        ([Example(f"{a}>{b}", compared(int(a, 2), int(b, 2))) for a, b in BITS], 2, "110101,010111", "larger"),
    ],
)
def test_answers_that_are_one_symbol_are_learned_from_examples(examples, states, question, answer):
    task, report = learn_task_from_examples(examples, base=2 if "," in question else 10)
    assert len(task.transducer.passes[0].write) == states
    found = task.answer_to(question)
    assert report.legend.get(found, found) == answer


def test_numbers_with_a_zero_in_front_are_answers_of_their_own():
    examples = [Example(str(number), f"0{number % 3}") for number in range(600)]
    task, report = learn_task_from_examples(examples)
    for number in ("17", "1234"):
        found = task.answer_to(number)
        assert report.legend.get(found, found) == f"0{int(number) % 3}"


def test_states_that_an_encoder_of_one_pass_cannot_write_are_refused():
    words = ["columns-encoder", "--function", "lambda a, b: a + b", "--base", "2"]
    with pytest.raises(ValueError, match="write_states"):
        parse_run([*words, "--write_states"])


@pytest.mark.parametrize(
    "examples",
    [
        drawn_texts(lambda s: s == s[::-1], "ab", 2000),
        pytest.param(drawn_texts(lambda s: s.count("a") > s.count("b"), "ab", 2000, 20), marks=pytest.mark.release),
        drawn(lambda a: a == 4711, 500, 1),
        drawn(lambda a: random.Random(a).random() < 0.5, 500, 1),
    ],
)
def test_examples_of_one_symbol_that_tell_no_machine_are_refused_in_one_line(examples):
    with pytest.raises(Refused) as refused:
        learn_task_from_examples(examples)
    assert "\n" not in str(refused.value)


def more_a_so_far(text):
    return "".join("ab"[2 * text[:end].count("a") <= end] for end in range(1, len(text) + 1))


def is_balanced(text):
    depths = [text[:end].count("a") - text[:end].count("b") for end in range(len(text) + 1)]
    return min(depths) == 0 == depths[-1]


COUNTERS = {
    "more": lambda text: text.count("a") > text.count("b"),
    "equal": lambda text: text.count("a") == text.count("b"),
    "balanced": is_balanced,
    "more so far": more_a_so_far,
}


@pytest.mark.parametrize("longest", [*all_but([9], [7, 9, 10]), *all_but([12], [12])])
@pytest.mark.parametrize("name", COUNTERS)
def test_examples_of_a_counter_are_refused_whatever_their_width(name, longest):
    with pytest.raises(Refused) as refused:
        learn_task_from_examples(drawn_texts(COUNTERS[name], "ab", 3000, longest))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("count", [200, 1000])
@pytest.mark.parametrize("longest", [8, 10])
@pytest.mark.parametrize(
    ("function", "states"),
    [
        (lambda s: "abba" in s, 5),
        (lambda s: s.count("a") % 2 == 0, 2),
        (lambda s: s.count("a") % 5, 5),
        (lambda s: len(s) >= 4, 4),
    ],
)
def test_examples_of_few_states_are_learned_whatever_their_width(function, states, longest, count):
    _, report = learn_task_from_examples(drawn_texts(function, "ab", count, longest))
    assert report.found.startswith(f"{states} states")


@pytest.mark.parametrize(
    "examples",
    [
        drawn(lambda a, b: a * b, 100, 2),
        drawn(lambda a, b: abs(a - b), 100, 2),
        drawn(lambda a, b: a - b, 100, 2),
        [Example("1+2", "3"), Example("1+2", "4")],
        [Example("1+2", "3"), Example("1", "4")],
        [Example("1+2", "3"), Example("1-2", "4")],
        drawn_texts(lambda s: s + s, "ab", 100),
        [Example(f"{number}+1", str(number + 1)) for number in range(10)],
    ],
)
def test_examples_of_no_machine_are_refused_in_one_line(examples):
    with pytest.raises(Refused) as refused:
        learn_task_from_examples(examples)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("places", [(700,), (10, 700, 1200)])
@pytest.mark.parametrize("function", [lambda a: 7 * a + 3, lambda a: a % 3, lambda a: a // 4])
def test_wrong_labels_are_named_with_their_lines_and_left_out_when_asked(function, places):
    examples = drawn(function, 1500, 1)
    for place in places:
        examples[place] = Example(examples[place].question, str(int(examples[place].answer) + 1), place + 1)
    with pytest.raises(Refused) as refused:
        learn_task_from_examples(examples)
    for place in places:
        assert f"line {place + 1:,}" in str(refused.value)
    task, report = learn_task_from_examples(examples, drop_wrong=len(places))
    assert str(int(task.answer_to("98765432"))) == str(function(98765432))
    assert all(f"line {place + 1:,}" in report.checked for place in places)
    with pytest.raises(Refused):
        learn_task_from_examples(examples, drop_wrong=len(places) - 1)


@pytest.mark.parametrize("function", [lambda a, b: a + b, lambda a: 3 * a + 7])
@pytest.mark.parametrize("complete", [False, True])
def test_wrong_labels_of_a_linear_function_are_named_among_too_few_examples_for_a_machine(function, complete):
    operands = function.__code__.co_argcount
    examples = drawn(function, 60, operands)
    assert not wrong_examples(examples, 10, None, 5, complete)
    for place in (7, 40):
        examples[place] = Example(examples[place].question, str(int(examples[place].answer) + 1), place + 1)
    again = Example(examples[0].question, "7", 61)
    for wrong in ([examples[7], examples[40]], [examples[7], examples[40], again]):
        assert wrong_examples([*examples, *wrong[2:]], 10, None, 5, complete) == wrong
        assert not wrong_examples([*examples, *wrong[2:]], 10, None, 1, complete)


@pytest.mark.parametrize(("base", "factor"), [(5, 3), (2, 3), (8, 5), (7, 1)])
def test_the_base_of_examples_is_found_and_told(base, factor):
    generator = random.Random(0)
    numbers = [generator.randrange(base ** generator.randint(1, 6)) for _ in range(600)]
    written = {
        number: number_as_text(number, "0123456789"[:base]) for each in numbers for number in (each, factor * each + 1)
    }
    examples = [Example(written[number], written[factor * number + 1]) for number in numbers]
    task, report = learn_task_from_examples(examples)
    assert len(task.alphabet) == base and f"base {base}" in report.assumed
    number = 10**30
    answer = task.answer_to(number_as_text(number, task.alphabet))
    assert int(answer, base) == factor * number + 1


@pytest.mark.parametrize(
    "text",
    [
        "question,answer\n12+34,46\n5+5,10\n",
        "question;answer\n12+34;46\n\n 5+5 ; 10\n",
        "question\tanswer\n12+34\t46\n5+5\t10\n\n",
        "Question, Answer\n12+34, 46\n5+5 ,10",
        'answer,question\n46,"12+34"\n10,5+5\n',
    ],
)
@pytest.mark.parametrize("ending", [".csv", ".tsv"])
def test_tables_of_examples_are_read_however_their_columns_are_parted(text, ending, tmp_path):
    (tmp_path / f"sums{ending}").write_text(text)
    assert [example[:2] for example in read_examples(tmp_path / f"sums{ending}")] == [("12+34", "46"), ("5+5", "10")]


@pytest.mark.parametrize(
    ("name", "text", "cause"),
    [
        ("sums.csv", "q;a\n1;2\n", "question"),
        ("sums.csv", "question,answer\n1,2,3\n", "line 2"),
        ("sums.csv", "question answer\n1 2\n", "first line"),
        ("sums.csv", "question,answer,answer\n1,2,3\n", "answer 2 times"),
        ("sums.csv", 'question,answer\n"1+2,3\n4+5",9\n', "line 3"),
        ("sums.jsonl", '{"question": "1", "question": "3", "answer": "2"}\n', "line 1: it has question 2 times"),
        ("sums.jsonl", '{"question": "1", "answer": "2"}\n\n{"question": 1\n', "line 3"),
    ],
)
def test_what_is_wrong_in_a_file_of_examples_is_named(name, text, cause, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(Refused, match=cause) as refused:
        read_examples(tmp_path / name)
    assert "\n" not in str(refused.value)


def test_files_of_examples_are_read_alike(tmp_path):
    examples = [Example("12+34", "46"), Example("5+5", "10")]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(each._asdict()) + "\n" for each in examples))
    (tmp_path / "sums.csv").write_text("question,answer\n12+34,46\n5+5,10\n")
    found = [[example[:2] for example in read_examples(tmp_path / name)] for name in ("sums.jsonl", "sums.csv")]
    assert found == 2 * [[example[:2] for example in examples]]
    # Only a new line ends a line, and a further column may have several.
    odd = "a\u2028b\x0cc"
    (tmp_path / "odd.jsonl").write_text(json.dumps({"question": odd, "answer": "1"}, ensure_ascii=False))
    (tmp_path / "odd.csv").write_text(f'question,answer,note\n{odd},1,"two\nlines"\n')
    for name in ("odd.jsonl", "odd.csv"):
        assert [example[:2] for example in read_examples(tmp_path / name)] == [(odd, "1")]
    for content in ("", "no json\n", '{"question": "1"}\n', "[1]\n"):
        (tmp_path / "bad.jsonl").write_text(content)
        with pytest.raises(Refused):
            read_examples(tmp_path / "bad.jsonl")


@pytest.mark.parametrize(
    "words",
    [
        ["--base", "16"],
        *(["--function", "lambda a: a ^ 1", name, ""] for name in ("--function", "--alphabet", "--domain", "--name")),
        ["--function", "lambda a: a ^ 1", "--complete"],
        ["--function", "lambda a: a ^ 1", "--name", "addition", "--base", "2"],
        ["--function", "lambda a: a + 1", "--base", "8", "--alphabet", "ab"],
        ["--function", "7"],
        ["--function", "lambda a: b"],
        ["--examples", "none.jsonl"],
    ],
)
def test_arguments_that_would_be_ignored_or_that_fail_are_refused_in_one_line(words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        train.main(["columns", *words, "--dry_run"])
    assert stop.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.release  # trains a model until it is certified, and verifies it
def test_a_function_becomes_a_verified_model_that_needs_neither_function_nor_plugin(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["--function", "lambda a: a // 3", "--name", "thirds", "--base", "4", "--use_cpu", "True"]
    train.main(["columns", *words])
    folder = tmp_path / "outputs" / "thirds"
    # A new process knows no task of this name.
    forget_plugins()
    capsys.readouterr()
    evaluation.main([str(folder), "--ask", "3210"])
    assert int(capsys.readouterr().out.split()[-1], 4) == int("3210", 4) // 3
    verified = subprocess.run(
        [sys.executable, str(folder / "verify_certificate.py"), str(folder)], capture_output=True, text=True
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr
    certificate = json.loads((folder / "certificate.json").read_text())
    assert certificate["certified"] and certificate["learned"]["source"] == "lambda a: a // 3"
    assert certificate["learned"]["checked"] in (folder / "README.md").read_text()
