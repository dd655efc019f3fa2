"""Commands take as many threads as help, which wait without work, and leave numbers that users set."""

import os
import subprocess
import sys

import pytest
import torch

from longhand.hub_cards.starting import PARAMETERS_OF_A_THREAD, SET_BY_USERS, helpful_threads, use_helpful_threads

SEEN_BY_TORCH = """
import os, sys

class Finder:
    def find_spec(self, name, *rest):
        if name == "torch":
            print(os.environ.get("OMP_WAIT_POLICY"), flush=True)
            os._exit(0)

sys.meta_path.insert(0, Finder())
import longhand.{command}
"""


def printed(code, **environment):
    outer = {name: value for name, value in os.environ.items() if name not in (*SET_BY_USERS, "OMP_WAIT_POLICY")}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=outer | environment, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("command", ["train", "eval"])
def test_torch_is_told_to_wait_without_work_before_it_is_imported(command):
    code = SEEN_BY_TORCH.format(command=command)
    assert printed(code) == "PASSIVE"
    assert printed(code, OMP_WAIT_POLICY="ACTIVE") == "ACTIVE"


def test_threads_grow_with_the_model_up_to_all():
    assert [helpful_threads(PARAMETERS_OF_A_THREAD * times, 4) for times in (0, 1, 2, 3, 9)] == [1, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("environment", "before", "rows", "after"),
    [({}, 2, 1, 1), ({}, 2, 4, 2), ({}, 1, 4, 1), ({"OMP_NUM_THREADS": "2"}, 2, 1, 2)],
)
def test_a_number_that_a_user_set_stays(monkeypatch, environment, before, rows, after):
    for name in SET_BY_USERS:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(before)
        use_helpful_threads(torch.nn.Linear(PARAMETERS_OF_A_THREAD, rows, bias=False))
        assert torch.get_num_threads() == after
    finally:
        torch.set_num_threads(threads)
