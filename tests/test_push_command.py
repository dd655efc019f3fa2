"""The command that pushes."""

import argparse
import re

import pytest
from push_subjects import built, folder, held

from longhand.hub_cards import push as command

assert built and folder


def test_without_yes_the_command_shows_files_and_card_and_asks_nobody(at_home, folder, capsys):
    command.main(["model", str(folder), "user/adder"])
    output = capsys.readouterr().out
    size = (folder / "model.safetensors").stat().st_size
    assert f"{size:,}  model.safetensors\n" in output and "\n# adder\n" in output and "nothing was pushed" in output
    assert at_home.requests == []


def test_the_command_pushes_and_says_so(at_home, folder, capsys):
    words = ["model", str(folder), "user/adder", "--private", "--commit_message", "hello", "--yes"]
    command.main(words)
    assert "in one commit" in capsys.readouterr().out
    assert at_home.repositories["model", "user/adder"].head.title == "hello"
    command.main(words)
    assert "nothing was changed" in capsys.readouterr().out


def test_the_command_ends_with_one_line_and_status_2(at_home, folder, capsys):
    for words in (["model", "nowhere", "user/adder"], ["model", str(folder), "other/adder", "--yes"]):
        with pytest.raises(SystemExit) as stop:
            command.main(words)
        assert stop.value.code == 2
        assert capsys.readouterr().err.startswith("error: ")


def test_the_command_pushes_a_dataset(at_home, capsys, monkeypatch, tmp_path):
    words = ["dataset", "addition", "user/sums", "--max_length", "4", "6", "--fields", "zero_padding=false"]
    words += ["--num_samples", "20", "--num_test_samples", "5"]
    command.main(words)
    assert "config_name: up_to_4" in capsys.readouterr().out and at_home.requests == []
    command.main([*words, "--yes"])
    assert "up_to_6/train-00000-of-00001.parquet" in held(at_home, "user/sums", "dataset")
    wrong = [["--max_length", "0"], ["--num_samples", "0"], ["--min_length", "7"]]
    fields = (
        "zero_padding",
        "colour=red",
        "seed=3",
        "split=train",
        "num_samples=3",
        "streaming=true",
        "task=copy",
        "name=a",
    )
    for more in (*wrong, *(["--fields", field] for field in (*fields, "max_length=3", "cache_dir=x", "zero_padding=[1"))):
        with pytest.raises(SystemExit) as stop:
            command.main([*words, *more])
        assert stop.value.code == 2 and capsys.readouterr().err.startswith("error: ")
    repository = at_home.repositories["dataset", "user/sums"]
    assert len(repository.commits) == 2


def test_the_command_takes_the_shortest_length_of_a_task_with_few_short_problems(at_home, capsys):
    words = ["dataset", "parity", "user/bits", "--max_length", "9", "--num_samples", "20", "--num_test_samples", "5"]
    with pytest.raises(SystemExit):
        command.main(words)
    advice = re.search(r"take min_length (\d+)", capsys.readouterr().err)
    command.main([*words, "--min_length", advice[1]])
    assert f"{advice[1]} to 9" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["model", "dataset", "metric", "decoding", "page"])
def test_what_is_shown_is_what_is_pushed(at_home, folder, capsys, kind):
    sums = ["addition", "user/made", "--max_length", "4", "--num_samples", "20", "--num_test_samples", "5"]
    words = [kind, *{"model": [str(folder), "user/made"], "dataset": sums}.get(kind, ["user/made"])]
    command.main(words)
    shown = capsys.readouterr().out
    command.main([*words, "--yes"])
    pushed = held(at_home, "user/made", {"metric": "space", "page": "space", "decoding": "model"}.get(kind, kind))
    assert capsys.readouterr().out.partition("\n\n")[0].splitlines()[:-1] == shown.partition("\n\n")[0].splitlines()
    assert all(f"{len(content):>14,}  {path}\n" in shown for path, content in pushed.items())
    assert f" bytes in {len(pushed)} files\n" in shown and pushed["README.md"].decode() in shown


def test_every_argument_has_a_help_text_and_every_kind_an_example(capsys):
    command_line = command.make_parser()
    (kinds,) = (action for action in command_line._actions if isinstance(action, argparse._SubParsersAction))
    assert set(kinds.choices) == {"model", "dataset", "metric", "decoding", "page", "zoo", "card"}
    for kind, parser in kinds.choices.items():
        assert all(action.help for action in parser._actions)
        examples = re.findall(r"^  python -m longhand\.hub_cards\.push (.*?)(?:   .*)?$", parser.format_help(), re.MULTILINE)
        assert examples and {command_line.parse_args(example.split()).kind for example in examples} == {kind}
