"""A machine's step and its table: one from the other, and which entry of a table a column is."""

# Used by: windows.py, data/learning, data/tasks. Changed freely.

from collections.abc import Callable, Hashable, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from longhand.data.machines.columns import MOST_NEIGHBOURHOODS

MOST_STATES = 10_000
"""A step with more states is refused."""

Step = Callable[[Any, Sequence[int]], tuple[int, Any]]
"""From a state and the symbols of a column to the symbol that is written and the next state."""

Table = Sequence[Sequence[int]]
"""(states, entries) of numbers: the symbols that are written, or the next states."""


def entry_of(symbols: Sequence[int], sizes: Sequence[int]) -> int:
    """Which entry of a table symbols are.

    Args:
        symbols: of a column, one for each word that is read.
        sizes: how many symbols each word has.
    """
    entry = 0
    for symbol, size in zip(symbols, sizes, strict=True):
        entry = entry * size + symbol
    return entry


def step_of(write: Table, following: Table, sizes: Sequence[int]) -> Step:
    """The step that a table is."""

    def step(state: int, symbols: Sequence[int]) -> tuple[int, int]:
        entry = entry_of(symbols, sizes)
        return write[state][entry], following[state][entry]

    return step


def pairs_of(write: Table, following: Table) -> list[tuple[int, int]]:
    """All pairs of a symbol that is written and the next state, sorted."""
    return sorted({pair for rows in zip(write, following, strict=True) for pair in zip(*rows, strict=True)})


def tabulate(
    name: str,
    step: Callable[[Any, tuple[int, ...]], tuple[int, Hashable]],
    start: Hashable,
    symbols: int,
    sizes: list[int],
    holds: Callable[..., bool] | None = None,
) -> tuple[list[list[int]], list[list[int]]]:
    """Ask a step for every state that it reaches and every input.

    Args:
        name: the task, for messages.
        step, start: as in `ColumnPass`.
        symbols: how many symbols it may write.
        sizes: how many symbols there are in each word that it reads.
        holds: as `ColumnTask.holds`, or None.

    Returns:
        The tables `write` and `next`; states are numbered as they are found, the first one is 0.

    Raises:
        ValueError: an entry is not legal; the message names it.
    """
    # A product of numbers is built only if it is small enough.
    if prod(sizes) > MOST_NEIGHBOURHOODS:
        raise ValueError(f"{name!r} reads one of {prod(sizes):,} inputs in a column, more than {MOST_NEIGHBOURHOODS:,}")
    inputs = list(product(*map(range, sizes)))
    try:
        numbers: dict[Hashable, int] = {start: 0}
    except TypeError as error:
        raise ValueError(f"the start of {name!r}, {start!r}, is not hashable: take a tuple") from error
    states: list[Any] = [start]
    write, following = [], []
    for state in states:
        write.append([0] * len(inputs))
        following.append([0] * len(inputs))
        for place, given in enumerate(inputs):
            entry = f"step({state!r}, {given}) of {name!r}"
            try:
                answer, again = step(state, given), step(state, given)
            except Exception as error:
                raise ValueError(f"{entry} raises {type(error).__name__}: {error}") from error
            if not isinstance(answer, tuple) or len(answer) != 2:
                raise ValueError(f"{entry} must return (symbol to write, next state), got {answer!r}")
            symbol, after = answer
            if not isinstance(symbol, int | np.integer) or not 0 <= symbol < symbols:
                raise ValueError(f"{entry} writes {symbol!r}: there are the symbols 0 to {symbols - 1}")
            try:
                number = numbers.setdefault(after, len(numbers))
            except TypeError as error:
                raise ValueError(f"{entry} goes to the state {after!r}, which is not hashable: take a tuple") from error
            if answer != again:
                raise ValueError(f"{entry} answers {answer!r}, and {again!r} when it is called again")
            if holds and not holds(state, given, symbol, after):
                raise ValueError(f"{entry} answers {answer!r}, which is not as the operation asks")
            if number == len(states):
                states.append(after)
            if len(states) > MOST_STATES:
                last = ", ".join(map(repr, states[-3:]))
                raise ValueError(f"{name!r} has more than {MOST_STATES:,} states; the last ones are {last}")
            write[-1][place], following[-1][place] = int(symbol), number
        if len(write) * len(inputs) > MOST_NEIGHBOURHOODS:
            raise ValueError(
                f"{name!r} has more than {MOST_NEIGHBOURHOODS:,} pairs of a state and a column, at {len(write):,} states: "
                f"a column holds one of {len(inputs):,} inputs"
            )
    return write, following
