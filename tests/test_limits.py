"""Sizes beyond a task or a machine are refused before anything is written."""

import pytest

from longhand.data import TASKS
from longhand.data.builder import load_task_dataset


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"max_length": 10**9, "num_samples": 5}, "max_length"),
        ({"max_length": 30, "num_samples": 10**13}, "num_samples"),
        ({"max_length": 30, "num_samples": 6 * 10**10}, "GiB of disk"),
    ],
    ids=str,
)
def test_a_dataset_beyond_the_machine_is_refused_and_writes_nothing(options, argument, tmp_path):
    with pytest.raises(ValueError, match=argument):
        load_task_dataset("addition", cache_dir=str(tmp_path), **options)
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and file.suffix != ".lock"]


@pytest.mark.parametrize("name", ["minesweeper", "addition_scratchpad"])
def test_a_size_is_refused_before_a_tuple_of_it_is_made(name):
    with pytest.raises(ValueError, match="from 1 to 2,000"):
        TASKS[name]().operand_lengths(10**11)
