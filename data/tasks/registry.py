"""The registry of tasks."""

# Used by: data/tasks, data, eval.py, hub_cards, hub_cards/checkpoints, hub_cards/evaluation, hub_cards/publishing,
# hub_cards/research, hub_cards/research/structured, hub_cards/research/theories, hub_cards/training. Changed freely.

import re
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import fields
from importlib import import_module
from typing import Any, cast

from transformers import PreTrainedTokenizerFast

from longhand.data.tasks.column_task import SETTLING, STATES, TABLES, ColumnTask, task_of_table
from longhand.data.tasks.task import Task
from longhand.data.tokenization import build_decoder_tokenizer
from longhand.modeling.registry import check_free, pickled_with
from longhand.modeling.transducer import table_of
from longhand.modeling.vocabulary import BOS, TOKENS

TASK_PLACES = {
    "addition": "addition.Addition",
    "index_hinted_addition": "addition.IndexHintedAddition",
    "multi_operand_addition": "addition.MultiOperandAddition",
    "addition_scratchpad": "addition_scratchpad.AdditionScratchpad",
    "even_pairs": "chomsky.EvenPairs",
    "cycle_navigation": "chomsky.CycleNavigation",
    "modular_arithmetic": "chomsky.ModularArithmetic",
    "duplicate_string": "chomsky.DuplicateString",
    "odds_first": "chomsky.OddsFirst",
    "missing_duplicate": "chomsky.MissingDuplicate",
    "encoder_addition": "encoder_addition.EncoderAddition",
    "encoder_multiplication": "encoder_multiplication.EncoderMultiplication",
    "multiplication_scratchpad": "multiplication_scratchpad.MultiplicationScratchpad",
    "subtraction": "subtraction.Subtraction",
    "signed_subtraction": "subtraction.SignedSubtraction",
    "calculator": "composite.Calculator",
    "encoder_calculator": "composite.EncoderCalculator",
    "division": "division.Division",
    "encoder_multiplication_grid": "encoder_multiplication_grid.EncoderMultiplicationGrid",
    "minesweeper": "minesweeper.Minesweeper",
    "multiplication": "multiplication.Multiplication",
    "base_addition": "numbers_by_columns.BaseAddition",
    "plus_one": "numbers_by_columns.PlusOne",
    "constant_multiplication": "numbers_by_columns.ConstantMultiplication",
    "remainder": "numbers_by_columns.Remainder",
    "digit_sum": "numbers_by_columns.DigitSum",
    "comparison": "numbers_by_columns.Comparison",
    "larger_number": "numbers_by_columns.LargerNumber",
    "bitwise": "numbers_by_columns.Bitwise",
    "gray_code": "numbers_by_columns.GrayCode",
    "copy": "strings.Copy",
    "reverse": "strings.Reverse",
    "parity": "strings.Parity",
}
"""Files and classes of the tasks of this package, by the name of the task."""


class Tasks(MutableMapping[str, type[Task]]):
    """Tasks by name. The file of a task of this package is imported when the task is asked for."""

    def __init__(self) -> None:
        self._kinds: dict[str, type[Task] | None] = dict.fromkeys(TASK_PLACES)

    def module_of(self, name: str) -> str | None:
        """The name of the module that defines a task; None if there is no such task. Nothing is imported."""
        if name not in self._kinds:
            return None
        kind = self._kinds[name]
        return f"{__package__}.{TASK_PLACES[name].partition('.')[0]}" if kind is None else kind.__module__

    def __getitem__(self, name: str) -> type[Task]:
        if self._kinds[name] is None:
            import_module(str(self.module_of(name)))
        kind = self._kinds[name]
        assert kind is not None, "its file registers it"
        return kind

    def __setitem__(self, name: str, kind: type[Task]) -> None:
        self._kinds[name] = kind

    def __delitem__(self, name: str) -> None:
        del self._kinds[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)


TASKS = Tasks()
"""All tasks by name. `find_task` knows a column task by `settling_` and its name too, the task of a settling encoder, and by
`states_of_` and its name, the task that writes its states."""


def task_named(name: object) -> type[Task] | None:
    """The class of the task of this name; None if there is no such task."""
    if not isinstance(name, str):
        return None
    if name in TASKS:
        return TASKS[name]
    prefix = next((prefix for prefix in (SETTLING, STATES) if name.startswith(prefix)), "")
    kind = TASKS.get(name.removeprefix(prefix))
    if not prefix or kind is None or not issubclass(kind, ColumnTask):
        return None
    if prefix == STATES:
        from longhand.data.tasks.written_states import task_with_states

        return task_with_states(kind)
    from longhand.data.tasks.settling_columns import settling_task

    return settling_task(kind)


def register_task(task: type[Task]) -> type[Task]:
    """Class decorator: make the task known by its name. A class may replace itself, so that its file can be loaded again.

    Raises:
        ValueError: another task has the name.
    """
    # A task of this package that is not imported yet has its name already.
    if f"{__package__}.{TASK_PLACES.get(task.name)}" != f"{task.__module__}.{task.__qualname__}":
        check_free("task", task.name, task, task_named(task.name))
    TASKS[task.name] = task
    cast(Any, task).__reduce_ex__ = _reduce
    return task


def _reduce(task: Task, protocol: int) -> Any:
    """Pickle a task by its name and its fields: classes that are derived or made from a table are in no module."""
    kind = type(task)
    if task_named(task.name) is not kind:
        return object.__reduce_ex__(task, protocol)
    given = {option.name: getattr(task, option.name) for option in fields(task)}
    if kind.__module__ == TABLES:
        return _task_again, (task.name, _table_of(task.name), given)
    return pickled_with([kind], (_task_again, (task.name, None, given)))


def _table_of(name: str) -> tuple[Any, ...]:
    """What `register_table` needs to make a task of a table known elsewhere, or the task that it derives from."""
    name = name.removeprefix(SETTLING)
    base = TASKS.get(name) or TASKS[name.removeprefix(STATES)]
    return base.name, table_of(base().transducer), base.learned


def _task_again(name: str, table: tuple[Any, ...] | None, given: Mapping[str, object]) -> Task:
    if table:
        register_table(*table)
    return build_task(name, **given)


def register_table(name: str, values: Mapping[str, object], learned: Mapping[str, str] | None = None) -> None:
    """Make a task known that a configuration holds as a table, unless the task is known; it replaces an earlier table.

    Args:
        learned: as of `ColumnTask`.

    Raises:
        ValueError: the table is not legal, or its name is no word: names stand on cards and in what commands print.
    """
    name = name.removeprefix(SETTLING)
    if not re.fullmatch(r"[\w.-]{1,100}", name):
        raise ValueError(f"the name of a task must be one word of at most 100 letters and digits, got {name[:110]!r}")
    known = task_named(name)
    if known is None or known.__module__ == TABLES:
        register_task(task_of_table(name, values, learned))


def find_task(name: object) -> type[Task]:
    """The class of the task of this name.

    Raises:
        ValueError: there is no such task.
    """
    kind = task_named(name)
    if kind is None:
        raise ValueError(f"task {name!r} is unknown: choose one of {', '.join(TASKS)}")
    return kind


def build_task(name: str, /, **task_fields: object) -> Task:
    """The task of this name and format; fields that are not given have their defaults.

    Raises:
        ValueError: there is no such task or field, or a value is not legal.
    """
    kind = find_task(name)
    legal = [option.name for option in fields(kind)]
    if unknown := [given for given in task_fields if given not in legal]:
        raise ValueError(f"the task {name!r} has no field {unknown[0]!r}: choose one of {', '.join(legal)}")
    return kind(**task_fields)


def task_from_recipe(recipe: Mapping[str, object]) -> Task:
    """The task that a recipe names, in the format that the recipe gives; other keys of the recipe are left alone.

    Raises:
        ValueError: there is no such task, or the value of a field is not legal.
    """
    kind = find_task(recipe.get("task"))
    try:
        return kind(**{option.name: recipe[option.name] for option in fields(kind) if option.name in recipe})
    except TypeError as error:
        raise ValueError(str(error)) from error


def build_tokenizer(
    task: Task | str | None = None, *, eos_token_id: int = BOS, tokens: tuple[str, ...] = TOKENS, **task_fields: Any
) -> PreTrainedTokenizerFast:
    """The tokenizer of a task's models and rows, of either family; without a task, a decoder's.

        build_tokenizer("minesweeper")
        build_tokenizer("addition", separate_eos=True)

    Args:
        task: a task, or a name of `TASKS`.
        eos_token_id, tokens: see `build_decoder_tokenizer`; without a task.
        task_fields: fields of the format of the task that is named, as for `load_task_dataset`.

    Raises:
        ValueError: the task is unknown, or an argument does not go with the others.
    """
    if task is None:
        if task_fields:
            raise ValueError(f"{', '.join(task_fields)} are fields of a task: give its name first")
        return build_decoder_tokenizer(eos_token_id, tokens)
    if (eos_token_id, tokens) != (BOS, TOKENS):
        raise ValueError("eos_token_id and tokens follow from the task: leave them out")
    if isinstance(task, str):
        task = build_task(task, **task_fields)
    elif task_fields or not hasattr(task, "family"):
        raise ValueError(f"task must be a task or its name, and fields are for a name, got {task!r}")
    return task.family.tokenizer(task)
