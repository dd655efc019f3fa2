"""Threads of a command: as many as help a model of its size, and they wait without work.

At the end of every operation, threads wait for each other. By default they spin, which takes processor time from whatever
else runs on the machine, and a thread that is not running lets all others spin. This file is imported before torch, which
reads once how threads wait.
"""

import os
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

PARAMETERS_OF_A_THREAD = 2**17
"""Parameters for each thread that helps, see `tests/benchmarks/threads.py`."""

SET_BY_USERS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def helpful_threads(parameters: int, most: int) -> int:
    """Return how many threads, 1 to `most`, help a model of so many parameters.

    The number follows from the size alone, since the last bits of sums depend on it.
    """
    return min(most, max(1, parameters // PARAMETERS_OF_A_THREAD))


def use_helpful_threads(model: Any) -> None:
    """Take no more threads than help this model. A number that the environment sets stays, and so does a smaller one."""
    import torch

    if not any(os.environ.get(name) for name in SET_BY_USERS):
        parameters = sum(weights.numel() for weights in model.parameters())
        torch.set_num_threads(helpful_threads(parameters, torch.get_num_threads()))
