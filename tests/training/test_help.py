"""What `--help` of train.py shows: one page for all recipes, one for each recipe."""

import re
from pathlib import Path

import pytest

from longhand import eval as evaluation
from longhand import train
from longhand.hub_cards.recipes import describe_recipes
from longhand.hub_cards.training.arguments import parse_run, read_arguments
from longhand.hub_cards.training.fields import PRIVATE_ARGUMENTS

PAGES = Path(__file__).parents[1] / "help"


@pytest.mark.parametrize("words", [[], ["addition"], ["encoder-addition"]], ids=lambda words: words[0] if words else "train")
def test_help_is_as_it_stands_in_its_file(words, capsys):
    """After a change, write the page anew: `python train.py addition --help > tests/help/addition.txt`."""
    train.main([*words, "--help"])
    page = capsys.readouterr().out if words else capsys.readouterr().out.partition(describe_recipes())[0]
    assert page == (PAGES / f"{words[0] if words else 'train'}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["addition-absolute", "calculator", "encoder-multiplication-3"])
def test_help_of_a_recipe_has_each_argument_once_with_a_meaning_and_the_value_of_the_run(name, capsys, tmp_path):
    train.main([name, "--help"])
    shown = dict(re.findall(r"^  --(\w+) .*\n((?:      .*\n)+)", capsys.readouterr().out, flags=re.MULTILINE))
    run = parse_run([name, "--use_cpu", "True", "--output_dir", str(tmp_path)])
    assert shown.keys() == read_arguments([name]).parser.fields.keys()
    for argument, meaning in shown.items():
        assert not meaning.lstrip().startswith(("(", "see ", ";")), argument
        if argument in run.recipe and argument not in ("use_cpu", "lr_scheduler_kwargs"):
            value = run.recipe[argument]
            value = "unset" if value is None else " ".join(map(str, value)) if isinstance(value, list) else value
            assert " ".join(meaning.split()).endswith(f"(default: {value})"), argument
    assert not PRIVATE_ARGUMENTS & run.recipe.keys()


def test_help_of_evaluation_gives_every_option_a_meaning(capsys):
    with pytest.raises(SystemExit) as stop:
        evaluation.main(["--help"])
    text = capsys.readouterr().out
    options = re.findall(r"^  (--\w+)(?: \S+)*?(?: {2,}|\n {10,})(\S)", text, flags=re.MULTILINE)
    assert stop.value.code == 0 and len(options) == len(set(re.findall(r"^  (--\w+)", text, flags=re.MULTILINE)))
