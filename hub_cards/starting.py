"""The first seconds of a command, in which it imports what it needs: Ctrl-C ends them in one line, and threads wait quietly.

This file is imported before all that takes long. It imports nothing that takes long itself.

At the end of every operation, threads wait for each other. By default they spin, which takes processor time from whatever
else runs on the machine, and a thread that is not running lets all others spin. So this file is imported before torch, which
reads once how threads wait; and a command takes as many threads as help a model of its size.
"""

# Used by: eval.py, train.py. Changed freely.

import os
import sys
from types import TracebackType
from typing import Any

_shown_before = sys.excepthook


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        print("\ninterrupted before anything was done: run the command again", file=sys.stderr)
    else:
        _shown_before(kind, error, trace)


sys.excepthook = _show
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def all_is_imported() -> None:
    """From now on the command itself says what Ctrl-C interrupts; whoever imports it as a module has Python's own words."""
    sys.excepthook = _shown_before


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
