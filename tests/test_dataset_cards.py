"""The cards of datasets."""

import re

import pytest
from card_subjects import dataset_card, info_of, save_model

from longhand.data import TASKS, load_task_dataset
from longhand.data.families import DECODER
from longhand.data.tasks.encoder_task import EncoderTask
from longhand.hub_cards.publishing.cards import render_model_card
from longhand.hub_cards.publishing.dataset import render_dataset_card
from longhand.hub_cards.recipes import write_recipe


@pytest.mark.parametrize("name", TASKS)
def test_the_card_of_every_dataset_has_no_holes(name):
    card = render_dataset_card(
        name, "user/sums", {"short": {"max_length": 4}}, {"train": 5}, {"short": info_of(input_ids="uint8")}, 0
    )
    text = card.partition("## Citation")[0]
    assert not re.search(r"\{\{|\}\}|\{%|\bNone\b(?!,? )|\n\n\n", text)
    assert ("-100 for a\ntoken without a label" in text) == issubclass(TASKS[name], EncoderTask)
    coupled = TASKS[name].family is DECODER and TASKS[name]().coupling != "sequential"
    assert ("coupling rule" in text) == ("position-coupling" in text) == ("coupled position ids" in text) == coupled


def test_the_card_of_a_dataset_without_training_problems_loads_what_there_is():
    card = dataset_card("addition", {"short": {"max_length": 4}}, {"test": 5})
    assert '"short", split="test", streaming=True)' in card and 'split="train"' not in card
    call = re.search(r"load_task_dataset\((.*)\)", card)[1]
    rows = list(eval(f"load_task_dataset({call}, streaming=True)", {"load_task_dataset": load_task_dataset}))
    assert len(rows) == 5


def test_the_card_of_a_dataset_says_which_configuration_has_what():
    configurations = {"short": {"max_length": 4}, "plain": {"max_length": 9, "order": "plain"}}
    columns = {
        "short": {"prompt": "string", "coupled_position_ids": "int16"},
        "plain": {"prompt": "string", "coupled_position_ids": "int32", "new": "string"},
    }
    card = dataset_card("addition", configurations, {"train": 5}, columns)
    assert "| `prompt` | `Value('string')` | the text that a model is given |\n" in card
    assert "| `coupled_position_ids` | `Value('int16')` in `short`; `Value('int32')` in `plain` | position ids; " in card
    assert "| `new` | `Value('string')` in `plain` |  |" in card
    assert "rule `addition` in `short`; `addition_plain` in `plain`. They are the smallest" in card


@pytest.mark.parametrize(
    ("task", "lengths", "partition"),
    [
        ("addition", "operands of 1 to 30 digits", "at most 18 digits in all"),
        ("multiplication", "first operands of 1 to 30 digits", "at most 18 digits in all"),
        ("copy", "strings of 1 to 30 symbols", "at most 18 symbols in all"),
        ("parity", "strings of 1 to 30 symbols", "at most 60 symbols in all"),
        ("minesweeper", "boards with a width and a height of 1 to 30 cells", "A problem belongs to one split only"),
    ],
)
def test_lengths_are_those_of_what_the_task_is_about(tmp_path, task, lengths, partition):
    card = dataset_card(task, {"all": {"max_length": 30}}, {"train": 5})
    assert lengths in card and partition in card and ("digits" in card) == ("digits" in lengths)
    folder, task = tmp_path / "model", TASKS[task]()
    save_model(folder, task, position_encoding="none", coupling=task.coupling)
    recipe = {**task.describe(), "min_length": 2, "max_length": 2}
    write_recipe(recipe, folder / "recipe.yaml")
    what, unit = lengths.partition(" 1 to 30 ")[::2]
    card = render_model_card(folder)
    assert f"It was trained on {what} 2 {unit} only." in card and f"| longest trained length, {unit} | `2` |" in card


@pytest.mark.parametrize(
    ("count", "category"),
    [(999, "n<1K"), (1000, "1K<n<10K"), (10**9, "1B<n<10B"), (10**10, "10B<n<100B"), (10**12, "n>1T")],
)
def test_size_of_a_dataset(count, category):
    card = dataset_card("addition", {"short": {"max_length": 4}}, {"train": count})
    assert f"size_categories:\n- {category}\n" in card
