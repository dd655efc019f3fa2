"""What `--help` of train.py and eval.py shows."""

import re
from dataclasses import dataclass, fields
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
import torch

from longhand import eval as evaluation
from longhand import train
from longhand.data import TASKS
from longhand.hub_cards.recipes import list_recipes, load_recipe
from longhand.hub_cards.training.arguments import field_meanings, model_arguments, parse_run, read_arguments
from longhand.hub_cards.training.help import WIDTH, describe_recipe, describe_recipes
from longhand.modeling import CoupledGPTConfig, PairwiseBertConfig


def read_help(text: str) -> dict[str, tuple[str, str]]:
    """Legal values and meaning of every argument; each must stand there once."""
    found = {}
    for name, values, meaning in re.findall(r"^  --(\w+) (.*)\n((?:      .*\n?)+)", text, flags=re.MULTILINE):
        assert name not in found, name
        found[name] = values, " ".join(meaning.split())
    assert len(found) == len(re.findall(r"^  --", text, flags=re.MULTILINE))
    return found


@pytest.mark.parametrize("name", list_recipes())
def test_help_of_a_recipe_has_each_of_its_arguments_once_with_a_meaning_and_its_own_value(name):
    text = describe_recipe([name])
    assert max(map(len, text.splitlines())) <= WIDTH
    arguments, given = read_help(text), read_arguments([name])
    left_out = text.partition("Without effect for these values: ")[2].replace("--", "").rstrip(".").replace(",", "").split()
    assert not set(left_out) & set(arguments)
    task, model, data, _, *own = given.kinds
    taken = {option.name for kind in (task, model, data, *own) for option in fields(kind)}
    assert taken <= set(arguments) | set(left_out)
    assert set(given.values) - set(left_out) <= set(arguments)
    for argument, (values, meaning) in arguments.items():
        assert values and not meaning.startswith(("see ", "(")), argument
    for argument, value in given.values.items():
        if argument in arguments:
            shown = " ".join(map(str, value)) if isinstance(value, list) else str(value)
            assert arguments[argument][1].endswith(f"(default: {shown})")


@pytest.mark.parametrize("name", ["addition", "encoder-addition"])
def test_help_shows_the_legal_values_of_every_choice(name):
    given = read_arguments([name])
    arguments = read_help(describe_recipe([name]))
    for kind in given.kinds[:3]:
        for argument, choice in get_type_hints(kind).items():
            if get_origin(choice) is Literal and argument in arguments:
                assert all(value in " ".join(arguments[argument]) for value in get_args(choice))


def test_only_samplings_and_rules_that_go_with_the_recipe_are_shown():
    pairwise, learned = (read_help(describe_recipe([name])) for name in ("addition", "addition-absolute"))
    assert pairwise["position_sampling"][0] == "{fixed}"
    assert learned["position_sampling"][0] == "{fixed,random_start,batch_start,randomized}"
    assert pairwise["coupling"][0] == "{addition,sequential,abacus}"
    assert "relation_range" in pairwise and "relation_range" not in learned
    assert "wrap_position_ids" in learned and "wrap_position_ids" not in pairwise


def test_help_follows_the_command_line(capsys):
    train.main(["addition", "--task", "minesweeper", "--max_length", "7", "--help"])
    arguments = read_help(capsys.readouterr().out)
    assert "min_mine_ratio" in arguments and "zero_padding" not in arguments
    assert arguments["max_length"][1].endswith("(default: 7)")


@pytest.mark.parametrize(
    ("name", "option"),
    [("addition", ["--position_init", "orthogonal"]), ("addition-absolute", ["--relation_init", "one_per_head"])],
)
def test_what_is_said_to_have_no_effect_changes_no_initial_weight(name, option, tmp_path):
    assert option[0] in describe_recipe([name]).partition("Without effect")[2]
    plain, changed = (parse_run([name, *more, "--output_dir", str(tmp_path)]) for more in ([], option))
    weights = []
    for run in (plain, changed):
        torch.manual_seed(0)
        weights.append(dict(run.task.family.model_class(run.config).named_parameters()))
    assert all(torch.equal(weight, weights[1].pop(called)) for called, weight in weights[0].items()) and weights[1] == {}


def test_help_lists_every_recipe_once_in_groups(capsys):
    train.main(["--help"])
    text = capsys.readouterr().out
    assert text.rstrip("\n") == describe_recipes() and max(map(len, text.splitlines())) <= 125
    named = re.findall(r"^    ([\w-]+) +\S", text, flags=re.MULTILINE)
    assert sorted(named) == sorted(list_recipes())
    certified = text[text.index("certificate") : text.index("decoders compared")]
    for name in list_recipes():
        expected = not name.startswith("paper-") and bool(load_recipe(name).get("until_certified"))
        assert (f"    {name} " in certified) == expected
    assert all(not meaning.startswith("see ") for _, meaning in read_help(text).values())


def test_unknown_recipes_have_no_help(capsys):
    with pytest.raises(SystemExit) as stop:
        train.main(["adition", "--help"])
    assert stop.value.code == 2 and "recipe 'adition' is unknown" in capsys.readouterr().err


def test_help_of_evaluation_gives_every_option_a_meaning(capsys):
    with pytest.raises(SystemExit) as stop:
        evaluation.main(["--help"])
    text = capsys.readouterr().out
    assert stop.value.code == 0 and "python eval.py user/name --ask" in text
    for title in ("what to evaluate", "what to measure", "output", "checkpoints"):
        assert re.search(rf"^{title}.*:$", text, flags=re.MULTILINE)
    options = re.findall(r"^  (--\w+)(?: \S+)*?(?: {2,}|\n {10,})(\S)", text, flags=re.MULTILINE)
    assert len(options) == len(set(re.findall(r"^  (--\w+)", text, flags=re.MULTILINE))) >= 17


@dataclass
class Documented:
    """A class.

    Attributes:
        width: columns of the table: at least 1, and
            no more than fit.
        height: rows.

            All of them.

    Raises:
        depth: not an attribute.
    """


def test_meanings_are_read_from_the_attributes_of_a_docstring():
    expected = {"width": "columns of the table: at least 1, and no more than fit.", "height": "rows. All of them."}
    assert field_meanings(Documented) == expected
    assert field_meanings(int) == {}


@pytest.mark.parametrize("config", [CoupledGPTConfig, PairwiseBertConfig])
def test_every_argument_of_a_model_has_a_meaning(config):
    (family,) = {task.family for task in TASKS.values() if task.family.model_class.config_class is config}
    assert all(option.metadata["help"] for option in fields(model_arguments(family)))
