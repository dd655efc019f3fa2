"""The registry of tasks: one name, one task; a recipe becomes a task or an error that says what is legal."""

import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import pytest

from longhand import data
from longhand.data import TASKS, Addition, Copy, build_task, register_task, task_from_recipe
from longhand.data.tasks.registry import TASK_PLACES


def test_every_registered_task_is_exported():
    assert all(getattr(data, kind.__name__) is kind for kind in TASKS.values())


def test_places_of_tasks_are_where_they_are_registered():
    found = {name: f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}" for name, kind in TASKS.items()}
    assert found == TASK_PLACES


@pytest.mark.release
def test_a_task_is_imported_when_it_is_asked_for():
    asked = "from longhand.data.tasks.registry import TASKS; import sys; list(TASKS); name = 'longhand.data.tasks.strings'; "
    asked += "assert TASKS.module_of('copy') == name not in sys.modules; TASKS['copy']; assert name in sys.modules"
    subprocess.run([sys.executable, "-c", asked], check=True)


def test_a_taken_name_is_refused_and_a_class_may_replace_itself():
    @dataclass(frozen=True)
    class Other(Copy):
        name: ClassVar[str] = "addition"

    with pytest.raises(ValueError, match=r"task 'addition' exists already, as longhand\.data\.tasks\.addition\.Addition"):
        register_task(Other)

    @dataclass(frozen=True)
    class Settling(Copy):
        name: ClassVar[str] = "settling_plus_one"

    with pytest.raises(ValueError, match="exists already"):
        register_task(Settling)

    @dataclass(frozen=True)
    class Own(Copy):
        name: ClassVar[str] = "own_copy"

    @dataclass(frozen=True)
    class OfTheSameFile(Copy):
        name: ClassVar[str] = "own_copy"

    assert register_task(Own) is register_task(Own)
    with pytest.raises(ValueError, match="exists already"):
        register_task(OfTheSameFile)
    assert TASKS["addition"] is Addition
    assert register_task(Addition) is TASKS["addition"] is Addition


def test_a_recipe_gives_the_task_and_its_format_and_may_hold_more():
    recipe = {"task": "addition", "order": "plain", "max_length": 30, "multiplier_length": 2}
    assert task_from_recipe(recipe) == build_task("addition", order="plain") == Addition(order="plain")


@pytest.mark.parametrize("name", TASKS)
def test_what_a_task_says_of_itself_makes_it_again(name):
    assert task_from_recipe(TASKS[name]().describe()) == TASKS[name]()


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({}, r"task None is unknown: choose one of addition, .*reverse"),
        ({"task": "adition"}, r"task 'adition' is unknown: choose one of addition"),
        ({"task": ["addition"]}, r"task \['addition'\] is unknown: choose one of addition"),
        (
            {"task": "addition", "order": "up"},
            r"order 'up' is unknown: choose one of response_reversed, all_reversed, plain",
        ),
        ({"task": "addition", "zero_padding": "yes"}, r"zero_padding must be True or False, got 'yes'"),
        ({"task": "multiplication", "multiplier_length": True}, r"multiplier_length must be an integer .* got True"),
    ],
)
def test_a_recipe_of_no_task_is_refused_with_what_is_legal(recipe, message):
    with pytest.raises(ValueError, match=message):
        task_from_recipe(recipe)


def test_a_field_that_a_task_does_not_have_is_refused():
    with pytest.raises(ValueError, match=r"task 'copy' has no field 'order': choose one of separate_eos"):
        build_task("copy", order="plain")
