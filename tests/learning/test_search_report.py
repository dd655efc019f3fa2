"""What a run says of its search: the sizes that it draws, what a dry run refuses, and what is left if it stops short."""

import shlex
from pathlib import Path

import pytest
import yaml
from refusals import refusal

from longhand import train
from longhand.data import TASKS, ColumnTask
from longhand.hub_cards.recipes import MODELS_FOLDER, load_recipe
from longhand.hub_cards.training.arguments import parse_run

HEX = Path(__file__).parents[1] / "plugins" / "hex_addition.py"
OWN = """
from longhand.data import ColumnTask, register_task

@register_task
class Own(ColumnTask):
    name = "own"
    alphabet = "01"
    {fields}

    def step(self, state, symbols):
        {step}
"""
"""A task whose answer says whether the word so far has an odd number of ones, or what `step` makes of it."""

SMALL = ["--hidden_size", "16", "--intermediate_size", "32", "--batch_size", "8", "--validation_lengths", "3",
         "--validation_samples", "4", "--test_lengths", "4", "--test_samples", "4", "--eval_steps", "2"]  # fmt: skip


def plugin(folder: Path, step: str = "return state ^ symbols[0], state ^ symbols[0]", fields: str = "") -> str:
    (file := folder / "own.py").write_text(OWN.format(step=step, fields=fields))
    return str(file)


def test_a_column_task_draws_what_its_search_asks_for_and_the_recipe_records_it():
    run = parse_run(["columns", "--plugin", str(HEX)])
    assert run.data.max_length == run.recipe["max_length"] == run.task.trained_length >= run.task.length_complexity
    assert parse_run(["columns", "--plugin", str(HEX), "--max_length", "9"]).data.max_length == 9
    assert run.config.num_attention_heads == 1 + len(run.task.rule.relations)
    assert parse_run(["addition-ape", "--max_length", "unset"]).data.max_length == 30


def test_shipped_recipes_of_column_tasks_state_their_sizes():
    for file in sorted(MODELS_FOLDER.glob("*/recipe.yaml")):
        recipe = load_recipe(file.parent.name)
        if issubclass(TASKS.get(recipe["task"], object), ColumnTask) and not file.parent.name.startswith("columns"):
            assert {"max_length", "num_attention_heads"} <= recipe.keys(), file


def test_a_dry_run_shows_the_search_and_worked_problems_and_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train.main(["columns", "--plugin", plugin(tmp_path, fields='worked_examples = {"0110": "0", "1": "1"}\n    direction, '
                                              'answer = "top_first", "last"'), "--dry_run"])  # fmt: skip
    shown = capsys.readouterr().out
    task = TASKS["own"]()
    assert f"{len(task.columns_needed)} neighbourhoods" in shown and f"up to {task.length_complexity} columns" in shown
    assert f"operands of 1 to {task.trained_length} symbols" in shown and shown.count("=") == 2
    assert [path.name for path in tmp_path.iterdir()] == ["own.py"]


@pytest.mark.parametrize("words", [["--dry_run"], []])
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"fields": "worked_examples = {'0110': '1'}"}, "'0110'"),
        ({"fields": "worked_examples = {'012': '1'}"}, "'012'"),
        ({"step": "return (0 if not symbols[0] else state), state ^ symbols[0]"}, "write the states"),
        ({"step": "return 2, 0"}, "step(0, (0,))"),
    ],
)
def test_a_dry_run_refuses_what_training_refuses(tmp_path, capsys, monkeypatch, words, changes, named):
    monkeypatch.chdir(tmp_path)
    assert named in refusal(capsys, train.main, "columns", "--plugin", plugin(tmp_path, **changes), *words)
    assert [path.name for path in tmp_path.iterdir()] == ["own.py"]


def test_sizes_that_do_not_show_all_are_said_before_the_first_step_and_what_is_left_at_the_end(tmp_path, capsys):
    folder = tmp_path / "run"
    words = ["columns", "--plugin", str(HEX), *SMALL, "--max_length", "1", "--max_steps", "2", f"--output_dir={folder}"]
    with pytest.raises(SystemExit):
        train.main(words)
    shown = capsys.readouterr().out
    task = TASKS["hex_addition"]()
    missing = int((task.columns_needed > 1).sum())
    assert missing > 0 and f"{missing:,} neighbourhoods never occur" in shown.partition("step ")[0]
    assert "but training draws at most 1" in shown and "is right, not" in shown
    (command,) = (line.partition(": ")[2] for line in shown.splitlines() if "python train.py" in line)
    again = parse_run(shlex.split(command)[2:])
    assert again.training.max_steps == 4 and again.data.max_length == task.trained_length
    recipe = yaml.safe_load((folder / "recipe.yaml").read_text())
    assert {**again.recipe, "max_steps": 2, "max_length": 1} == recipe and again.folder != folder


def test_a_task_that_no_window_shows_trains_when_it_writes_its_states(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["columns", "--plugin", plugin(tmp_path, "return (0 if not symbols[0] else state), state ^ symbols[0]")]
    assert "--write_states" in refusal(capsys, train.main, *words, "--dry_run")
    run = parse_run([*words, "--write_states"])
    assert run.task.name == run.recipe["task"] == "states_of_own" and len(run.task.transducer.passes) == 2
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(run.recipe))
    assert parse_run(["recipe.yaml", *words[1:]]).recipe == run.recipe
    assert "'addition' is none" in refusal(capsys, train.main, "addition", "--write_states")
