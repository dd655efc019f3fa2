"""A rule of a user's own: how it is given, what is assumed of it and told, and what its card says."""

import re
import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest
from plugin_state import forget_plugins

from longhand import eval as evaluation
from longhand import train
from longhand.data import learn_task
from longhand.data.learning.questions.functions import Refused
from longhand.data.learning.questions.operands import OUTSIDE, operands_of
from longhand.data.tasks.registry import TASKS
from longhand.hub_cards import push
from longhand.hub_cards.checkpoints import load
from longhand.hub_cards.training.arguments import parse_run
from longhand.hub_cards.training.found_task import read_function, told_of

RULE = '''"""A file of a user's own."""

WEIGHTS = (1, 3)


def _weight(place):
    return WEIGHTS[place % 2]


def is_right(code: str) -> bool:
    """Whether a code of digits has a right check digit."""
    return sum(_weight(place) * int(digit) for place, digit in enumerate(code)) % 5 == 0
'''


@pytest.fixture
def rule(tmp_path):
    """The file of a rule, in a folder that holds nothing else."""
    file = tmp_path / "home" / "my_rule.py"
    file.parent.mkdir()
    file.write_text(RULE)
    yield file
    forget_plugins()
    for name in ("is_right", "learned"):
        TASKS.pop(name, None)


def is_right(code: str) -> bool:
    return sum((1, 3)[place % 2] * int(digit) for place, digit in enumerate(code)) % 5 == 0


def untold(code):
    return int(code[-1]) + int(code[0]) > 9 if isinstance(code, str) else code.nothing


@pytest.mark.parametrize(
    ("function", "domain", "alphabet", "numbers"),
    [
        (is_right, None, "0123456789", False),
        (untold, None, "0123456789", False),
        (lambda n: n % 3, None, "0123456789", True),
        (lambda s: s.count("a") % 2, None, "abcdefghijklmnopqrstuvwxyz", False),
        (lambda s: s in ("yes", "no"), None, "abcdefghijklmnopqrstuvwxyz", False),
        (lambda s: int(s, 16) % 3, None, "0123456789ABCDEFabcdef", False),
        (lambda s: s.count("a") % 2, "[ab]{2,9}", "ab", False),
        (lambda s: len(s) % 2, r"(\d|x)+", "0123456789x", False),
        (lambda s: s.startswith("0"), "[01]*", "01", False),
    ],
)
def test_what_a_function_takes_is_found(function, domain, alphabet, numbers):
    operands = operands_of(function, 10, None, domain)
    assert set(operands.words.alphabet) == set(alphabet) and operands.words.are_numbers == numbers
    assert ("in base" in operands.assumed) == numbers and "--alphabet" in operands.assumed


@pytest.mark.parametrize(("function", "domain"), [(lambda n: n % 2, None), (lambda s: s.startswith("0"), "[01]*")])
def test_what_is_assumed_of_a_function_is_told(function, domain):
    task, report = learn_task(function, domain=domain)
    operands = operands_of(function, 10, None, domain)
    assert task.alphabet == operands.words.alphabet
    assert report.assumed == operands.assumed and report.assumed in "\n".join(report.lines)


def test_annotations_that_say_numbers_and_texts_are_refused():
    def mixed(card: str, count: int):
        return card * count

    with pytest.raises(Refused, match="annotations"):
        learn_task(mixed)


@pytest.mark.parametrize("kind", [float, bool, list, bytes, "float"])
def test_annotations_of_what_no_operand_is_are_refused(kind):
    def rule(first, second):
        return first

    rule.__annotations__ = {"second": kind}
    with pytest.raises(Refused, match="second: "):
        operands_of(rule, 10, None, None)


class Unasked(Protocol):
    """Of which nobody can say which classes it has."""


@pytest.mark.parametrize("kind", [int, "int", object, int | None, list[int], Unasked, "Unknown"])
def test_other_annotations_are_no_reason_to_refuse(kind):
    def rule(number, modulus=3):
        return number % modulus

    rule.__annotations__ = {"number": kind, "modulus": float}
    assumed = operands_of(rule, 10, None, None).assumed
    assert "in base 10" in assumed and assumed.endswith("modulus keeps its default, 3")


def test_outside_of_a_domain_a_function_may_raise_and_within_it_may_not():
    def half(digits: str) -> int:
        return 1 // int(len(digits) > 2) + int(digits[2]) % 2

    task, report = learn_task(half, domain="[0-9]{3,}")
    assert report.legend.get(task.answer_to("12")) == OUTSIDE
    for question in ("123", "1201", "99"):
        answer = task.answer_to(question)
        assert report.legend.get(answer, answer) == (str(half(question)) if len(question) > 2 else OUTSIDE)
    with pytest.raises(Refused, match="raises"):
        learn_task(half, domain="[0-9]{2,}")


@pytest.mark.parametrize("domain", ["[0-9", "", "a=b", "\\s"])
def test_domains_that_are_not_legal_are_refused_in_one_line(domain):
    with pytest.raises(Refused) as refused:
        learn_task(is_right, domain=domain)
    assert "\n" not in str(refused.value)


def test_a_file_with_one_function_needs_no_name(rule, monkeypatch):
    assert read_function(str(rule))[1:] == ("is_right", "my_rule.py:is_right")
    monkeypatch.setenv("HOME", str(rule.parent))
    assert read_function("~/my_rule.py:is_right")[2] == "my_rule.py:is_right"
    with pytest.raises(ValueError, match="is_right"):
        read_function(f"{rule}:wrong")
    (rule.parent / "two_rules.py").write_text("def one(a):\n    return a\n\n\ndef two(a):\n    return a\n")
    with pytest.raises(ValueError, match="one, two"):
        read_function(str(rule.parent / "two_rules.py"))


@pytest.mark.release
def test_the_card_s_facts_tell_the_function_and_no_path_unless_it_is_private(rule, tmp_path):
    run = parse_run(["columns", "--function", str(rule)])
    facts = run.recipe["learned"]
    assert facts["meaning"] == "Whether a code of digits has a right check digit."
    assert all(text in facts["code"] for text in ("def is_right", "def _weight", "WEIGHTS = (1, 3)"))
    assert run.recipe["description"].startswith("Whether a code of digits")
    assert str(tmp_path) not in str(run.recipe)
    private = parse_run(["columns", "--function", str(rule), "--private_source"])
    for text in ("Whether", "_weight", str(tmp_path)):
        assert text not in str(private.recipe)


NAMED = "from typing import NewType\n\nDigit = NewType('Digit', int)\n\n\ndef remainder(n: int):\n    return Digit(n % 3)\n"
DECORATED = 'from functools import lru_cache\n\n\n@lru_cache\ndef remainder(n: int):\n    """Told."""\n    return n % 3\n'
CALLED = "class Remainder:\n    def __call__(self, n: int):\n        return n % 3\n\n\nremainder = Remainder()\n"
BESIDE = "from beside_it import other\n\n\ndef remainder(n: int):\n    from beside_it import other\n    return other(n)\n"


@pytest.mark.parametrize("text", [DECORATED, CALLED, BESIDE, NAMED])
def test_a_function_of_a_file_may_be_decorated_an_object_or_need_a_file_beside_it(text, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "beside_it.py").write_text("def other(n):\n    return n % 3\n")
    (tmp_path / "own.py").write_text(text)
    function, name, source = read_function(str(tmp_path / "own.py"))
    assert function(5) == 2 and (name, source) == ("remainder", "own.py:remainder")
    told = told_of(function, source)
    assert (told.get("meaning") == "Told.") == (text == DECORATED)
    assert ("n % 3" in told.get("code", "")) == (text in (DECORATED, NAMED))
    forget_plugins()
    sys.modules.pop("beside_it", None)


@pytest.mark.parametrize("given", ["none.py", "none.py:rule", "~/none.py", "folder.py"])
def test_a_file_that_is_not_there_is_named_with_its_argument(given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(ValueError, match=r"--function .*no file"):
        parse_run(["columns", "--function", given])


@pytest.mark.parametrize(
    "words",
    [
        ["--function", "lambda a: a", "--drop_wrong", "1"],
        ["--examples", "sums.jsonl", "--domain", "[0-9]+"],
        ["--examples", "sums.jsonl", "--private_source"],
        ["--function", "lambda s: s", "--domain", "[ab]+", "--base", "2"],
    ],
)
def test_arguments_of_the_other_way_are_refused(words):
    with pytest.raises(ValueError, match=r"needs|give one"):
        parse_run(["columns", *words])


FEW_STEPS = "--max_steps 4 --eval_steps 4 --until_certified False --test_samples 10 --validation_samples 10"


# Trains a model, publishes it to a Hub of its own, and makes it again from its card.
@pytest.mark.parametrize(
    "is_short",
    [pytest.param(True, marks=pytest.mark.thorough), pytest.param(False, marks=pytest.mark.release)],
    ids=["few steps", "until certified"],
)
def test_a_rule_in_a_home_folder_is_published_and_made_again_from_its_card(
    is_short, rule, hub, at_home, tmp_path, monkeypatch, capsys
):
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setenv("HOME", str(rule.parent))
    download = partial(load.snapshot_download, endpoint=hub.endpoint, cache_dir=tmp_path / "cache")
    monkeypatch.setattr(load, "snapshot_download", download)

    def ask(main: Callable[[list[str]], None], place: Path, *words: str) -> None:
        monkeypatch.chdir(place)
        # As in a process of its own.
        forget_plugins()
        main([*words])

    options = ["--name", "mine", "--use_cpu", "True", *(FEW_STEPS.split() if is_short else ())]
    ask(train.main, rule.parent, "columns", "--function", str(rule), *options)
    ask(push.main, rule.parent, "model", "outputs/mine", "user/mine", "--yes")
    card = at_home.repositories["model", "user/mine"].head.files["README.md"].decode()
    assert "Whether a code of digits has a right check digit." in card and "def _weight" in card
    assert str(tmp_path) not in card
    command = re.search(r"^python -m longhand\.train (.*)$", card, re.MULTILINE)
    ask(train.main, empty, *shlex.split(command[1]), "--use_cpu", "True")
    (made,) = (empty / "outputs").iterdir()
    for file in ("config.json", "model.safetensors"):
        assert (made / file).read_bytes() == (rule.parent / "outputs" / "mine" / file).read_bytes(), file
    assert is_short or (made / "certificate.json").is_file()
    capsys.readouterr()
    ask(evaluation.main, empty, str(made), "--ask", "13")
    assert is_short or capsys.readouterr().out.split()[-1] == str(int(is_right("13")))


def test_a_function_that_changes_is_refused_for_that():
    calls = 0

    def changing(number: int) -> int:
        nonlocal calls
        calls += 1
        return calls // 7 % 2 if number > 1000 else number % 2

    with pytest.raises(Refused, match="when it is asked again"):
        learn_task(changing, seconds=20)
