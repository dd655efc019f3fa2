"""What has to change with a position encoding: all of it is refused in one line, and `--encoding` sets it together."""

from itertools import product

import pytest
from cases import drawn, in_turn

from longhand.data.tasks.registry import find_task
from longhand.hub_cards.recipes import list_recipes, load_recipe
from longhand.hub_cards.training.arguments import parse_run
from longhand.hub_cards.training.encodings import encoding_faults
from longhand.modeling.position_encodings import POSITION_ENCODINGS

RECIPES = (
    *("copy-absolute", "copy", "minesweeper-absolute", "calculator", "division", "addition-short", "subtraction-absolute"),
    *("multiplication-2", "addition-scratchpad", "addition-index-hints", "addition-abacus", "addition-rotary-coupled"),
    *("addition-randomized", "paper-parity", "parity"),
)
"""Recipes of all kinds of ids: of each sampling, with a ring and without, of one level and of two, certified and not."""

COLUMNS = ("gray-code", "hex-addition")
ON_CPU = ("--use_cpu", "True", "--bf16", "False")


def try_run(*words):
    """The run of a command line, and what is refused of it."""
    try:
        return parse_run([*words, *ON_CPU]), ""
    except ValueError as error:
        return None, str(error)


ENCODINGS = [name for name in POSITION_ENCODINGS if not name.startswith("test")]


@pytest.mark.parametrize("pair", drawn(product([*RECIPES, *COLUMNS], ENCODINGS), 60), ids="-".join)
def test_every_recipe_of_a_decoder_takes_every_encoding(pair):
    recipe, encoding = pair
    run, refusal = try_run(recipe, "--encoding", encoding)
    if recipe in COLUMNS and POSITION_ENCODINGS[encoding].reads_token_distances:
        assert "column task" in refusal and "rotary" in refusal
        return
    assert refusal == ""
    assert run.config.position_encoding == encoding and run.recipe["task"] == load_recipe(recipe)["task"]
    # What the run records makes the same run again, without `--encoding`.
    kept = ("position_encoding", "coupling", "position_sampling", "wrap_position_ids", "until_certified", "max_position_ids")
    words = [word for name in kept for word in (f"--{name}", "unset" if run.recipe[name] is None else str(run.recipe[name]))]
    others = [f"--{name}=unset" for name in ("max_multiplier", "level_position_ids") if run.recipe[name] is None]
    again, refusal = try_run(recipe, *words, *others, "--attention_scale", run.config.attention_scale)
    assert refusal == "" and again.config.position_encoding == encoding


@pytest.mark.parametrize(
    ("recipe", "encoding"),
    in_turn(
        ["copy-absolute", "copy", "calculator", "addition-abacus", "addition-rotary-coupled"],
        ["fire", "alibi", "t5", "none", "rotary"],
    ),
)
def test_one_refusal_names_all_that_does_not_fit_and_what_it_says_fits(recipe, encoding):
    """The settings that the refusal's end names are taken at the first try."""
    run, refusal = try_run(recipe, "--position_encoding", encoding)
    if run is not None:
        return
    named = refusal.partition("sets what fits together: ")[2].split(", ")
    words = [word for one in named for word in (f"--{one.split()[0]}", one.split()[1])]
    _, left = try_run(recipe, "--position_encoding", encoding, *words)
    assert left == "", refusal
    # Every one of them is named among the faults: mending all but one is refused.
    for place in range(0, len(words), 2):
        if words[place] not in ("--position_init", "--max_position_ids"):
            some = words[:place] + words[place + 2 :]
            assert try_run(recipe, "--position_encoding", encoding, *some)[0] is None, words[place]
            assert words[place].removeprefix("--") in refusal.partition("; --encoding")[0] + " coupling"


def test_what_is_given_besides_wins():
    run, _ = try_run("copy-absolute", "--encoding", "rotary", "--coupling", "sequential", "--position_sampling", "fixed",
                     "--wrap_position_ids", "False")  # fmt: skip
    assert run.config.coupling == "sequential" and run.recipe["position_sampling"] == "fixed"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("addition", "--encoding", "roraty"), "choose one of none, learned"),
        (("encoder-addition", "--encoding", "fire"), "is for decoders"),
        (("copy", "--encoding", "fire", "--position_encoding", "t5"), "leave out --position_encoding"),
    ],
)
def test_an_encoding_that_does_not_fit_at_all_is_refused(words, said):
    assert said in try_run(*words)[1]


def test_shipped_recipes_have_no_fault():
    for name in list_recipes():
        task = find_task(load_recipe(name)["task"])
        if task.family.name == "decoder":
            run = parse_run([name, *ON_CPU])
            assert encoding_faults(run.recipe) == [], name
