"""Options of a command follow from a dataclass: how they are read, which bounds they have, and what goes with what."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

import pytest

from longhand import eval as evaluation
from longhand.hub_cards import harness, push
from longhand.hub_cards.options import check, default_of, option, parse, parser_of
from longhand.hub_cards.page import __main__ as page
from longhand.hub_cards.training.arguments import read_arguments


@dataclass(frozen=True)
class Options:
    folder: Path = option("a folder", positional=True)
    models: list[str] = option("models", [], positional=True, metavar="MODEL")
    ask: str | None = option("a question", None)
    prove: bool = option("a proof", False, purpose="proofs", excludes=("ask",))
    seconds: float | None = option("of a proof", None, bare=2.5, above=0, purpose="proofs", needs=("prove",))
    lengths: list[int] = option("digits", [3], least=1, most=9)
    kind: Literal["short", "long"] | None = option("a kind", None, group="kinds")
    plugin: list[Path] = option("files", [])


def read(*words: str) -> Options:
    return parse(parser_of(Options), Options, words)


def test_values_have_the_types_of_their_fields():
    given = read("here", "one", "two", "--prove", "--seconds", "3", "--lengths", "2", "4:6", "--kind", "long")
    assert given == Options(Path("here"), ["one", "two"], None, True, 3.0, [2, 4, 5, 6], "long", [])
    assert read("here") == Options(Path("here")) and read("here").plugin is not read("here").plugin
    assert read("here", "--prove", "--seconds").seconds == 2.5
    assert read("here", "--plugin", "a.py", "b.py", "--plugin", "c.py").plugin == [Path("a.py"), Path("b.py"), Path("c.py")]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--prove", "--ask", "?"], "--prove is for proofs: leave it out with --ask"),
        (["--seconds"], "--seconds is for proofs: give --prove too, or leave it out"),
        (["--prove", "--seconds", "0"], "--seconds must be above 0, got 0.0"),
        (["--prove", "--seconds", "nan"], "--seconds must be "),
        (["--lengths", "3", "10"], r"--lengths must be at most 9, got \[3, 10\]"),
        (["--lengths", "many"], "argument --lengths: give numbers such as 3 5 or 3,5"),
        (["--kind", "wide"], "argument --kind: invalid choice: 'wide'"),
        (["--lenths=3"], "unknown argument '--lenths': did you mean --lengths"),
        (["--lengths", "3", "--lengths", "5"], r"--lengths is given twice, \[3\] and \[5\]"),
        (["--ask", "1", "--as", "2"], "--ask is given twice, 1 and 2"),
    ],
)
def test_what_is_not_legal_is_refused_with_argument_value_and_cure(words, reason):
    with pytest.raises(ValueError, match=reason):
        read("here", *words)


@pytest.mark.parametrize(
    ("read_command", "words"),
    [
        (evaluation.parse_arguments, ["model", "--lengths", "3", "--seed", "1", "--lengths", "5"]),
        (evaluation.parse_arguments, ["model", "--seed=1", "--seed=2"]),
        (read_arguments, ["addition", "--test_lengths", "3", "--test_lengths", "5"]),
        (read_arguments, ["addition", "--validation_lengths", "3,5", "--seed", "1", "--validation_lengths=5"]),
        (push.read_options, ["dataset", "addition", "user/sums", "--max_length", "3", "--max_length", "5"]),
        (push.read_options, ["model", "folder", "user/sums", "--revision", "a", "--revision", "b"]),
    ],
)
def test_every_command_refuses_a_second_value_that_it_would_have_to_ignore(read_command, words):
    *_, second = [word.partition("=")[0] for word in words if word.startswith("--")]
    with pytest.raises(ValueError, match=f"{second} is given twice"):
        read_command(words)


def test_an_argument_of_one_kind_of_push_is_meant_by_the_options_of_this_kind():
    with pytest.raises(ValueError, match="'--max_lenth': did you mean --max_length"):
        push.read_options(["dataset", "addition", "user/sums", "--max_lenth", "3"])


@pytest.mark.parametrize(
    "kind", [evaluation.EvaluationOptions, harness.HarnessOptions, page.PageOptions, *push.KINDS.values()]
)
def test_what_an_option_needs_or_excludes_is_an_option_and_has_a_purpose(kind):
    names = {field.name for field in fields(kind)}
    for field in fields(kind):
        related = {*field.metadata.get("needs", ()), *field.metadata.get("excludes", ())}
        assert related <= names - {field.name} and bool(related) == ("purpose" in field.metadata), field.name
        assert field.metadata["help"]
    required = [field.name for field in fields(kind) if default_of(field) is default_of(fields(Options)[0])]
    check(kind(**dict.fromkeys(required, "model")))
