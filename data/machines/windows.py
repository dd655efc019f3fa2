"""The search for windows: the runs of a table, and the least window with which it is local.

A window suffices if no neighbourhood needs two different next tokens (`sights.Conflict`).
"""

# Used by: data/learning, data/tasks. Changed freely.

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from longhand.data.machines.columns import (
    ABSENT,
    MOST_NEIGHBOURHOODS,
    MOST_PATHS,
    Columns,
    Graph,
    Rows,
    TextLayout,
    TooMany,
    by_column,
)
from longhand.data.machines.sights import Conflict, Sight, WordNeighbourhoods, sights_of
from longhand.data.machines.table import entry_of
from longhand.modeling.transducer import Pass, Transducer
from longhand.modeling.vocabulary import EQUALS, GREATER

WIDEST_WINDOW = 6
"""Columns of the widest window that is tried."""


class Narrowest(NamedTuple):
    """The first window of some that suffices for a pass.

    Attributes:
        chosen: the pass with this window; None if no window suffices.
        listed: its neighbourhoods; None as above.
        conflict: of the last window that does not suffice; None if all do.
        too_many: why no further window was tried; None if all were.
    """

    chosen: Pass | None
    listed: WordNeighbourhoods | None
    conflict: Conflict | None
    too_many: TooMany | None


def with_windows(name: str, table: Transducer, graph: Graph, wanted: list[tuple[int, int] | None]) -> Transducer:
    """Give each pass its window; without one, the least: few columns first, and operands that are not told apart first.

    Raises:
        ValueError: no window, or not the one that is wanted, suffices.
    """
    windows = [(low, 1) for low in range(1, 1 - WIDEST_WINDOW, -1)]
    unseeing: dict[int, tuple[int, np.ndarray]] = {}
    for place, window in enumerate(wanted):
        tried = find_narrowest(table, graph, place, [window] if window else windows, unseeing)
        if tried.chosen is None or tried.listed is None:
            least = find_narrowest(table, graph, place, windows, unseeing) if window else tried
            raise ValueError(_explain(name, table, graph, place, tried, least))
        table = _with_pass(table, place, tried.chosen)
        unseeing |= unseeing_tokens(tried.listed)
    return table


def find_narrowest(
    table: Transducer,
    graph: Graph,
    place: int,
    windows: Sequence[tuple[int, int]],
    unseeing: Mapping[int, tuple[int, np.ndarray]],
) -> Narrowest:
    """Find the first window that suffices for a pass.

    Args:
        place: of the pass in the table. The passes before it have their windows.
        unseeing: `unseeing_tokens` of the passes before.
    """
    searched = table.passes[place]
    # A token of a pass that reads some operands alone would see the others too if all of them had one id.
    symmetries = [True] if searched.sees_operands_alike(table.operands) else []
    if table.operands > 1:
        symmetries.append(False)
    conflict = None
    for window in windows:
        for symmetric in symmetries:
            chosen = replace(searched, window=window, symmetric=symmetric)
            try:
                # The other passes may not have been searched yet: operands have ids of their own, or not, for this one.
                others = [replace(table_pass, symmetric=symmetric) for table_pass in _with_pass(table, place, chosen).passes]
                listed = sight_of(replace(table, passes=tuple(others)), graph, place).find()
                check_unseeing(listed, unseeing)
            except Conflict as error:
                conflict = error
            except TooMany as error:
                return Narrowest(None, None, conflict, error)
            else:
                return Narrowest(chosen, listed, conflict, None)
    return Narrowest(None, None, conflict, None)


def _with_pass(table: Transducer, place: int, table_pass: Pass) -> Transducer:
    """The table with another pass at a place."""
    return replace(table, passes=(*table.passes[:place], table_pass, *table.passes[place + 1 :]))


def unseeing_tokens(listed: WordNeighbourhoods) -> dict[int, tuple[int, np.ndarray]]:
    """From the tokens that see nothing to the right next token and an example; all others see which pass they are in."""
    rows = np.flatnonzero((listed.keys == ABSENT).all(axis=1))
    return {int(listed.tokens[row]): (int(listed.right[row]), listed.paths[row]) for row in rows}


def check_unseeing(listed: WordNeighbourhoods, before: Mapping[int, tuple[int, np.ndarray]]) -> None:
    """Raise `Conflict` if a token that sees nothing needs another next token in an earlier pass."""
    for token, (right, path) in unseeing_tokens(listed).items():
        if token in before and before[token][0] != right:
            raise Conflict([before[token][1], path], np.array([before[token][0], right]))


def _explain(name: str, table: Transducer, graph: Graph, place: int, tried: Narrowest, least: Narrowest) -> str:
    """Why no window that was tried suffices: the two problems of the conflict, and the ways out.

    Args:
        tried: of the window that is wanted, or of all.
        least: of all windows.
    """
    if tried.conflict is None:
        return f"{name!r} has too many neighbourhoods: {tried.too_many}"
    ones_first = any(table_pass.direction == "ones_first" for table_pass in table.passes)
    problems = []
    for path, right in zip(tried.conflict.paths, tried.conflict.tokens, strict=True):
        digits, _ = graph.problems(path[None], ones_first)[0]
        problems.append(f"{table.sign.join(words_over(table.alphabet, digits)[0])}= before {table.tokens[right]!r}")
    states = "write the states, in `writes` of this or an earlier pass or by --write_states, which always suffices"
    if least.chosen is not None:
        low, high = least.chosen.window
        advice = f"the smallest window that would do has the columns {low} to {high}"
    elif least.too_many is not None:
        advice = f"a wider window cannot be searched ({least.too_many}): {states}"
    else:
        advice = f"no window of {WIDEST_WINDOW} columns would do: {states}"
    window = f"pass {place + 1} of " if len(table.passes) > 1 else ""
    return f"{window}{name!r} is not local: {' and '.join(problems)} look the same to a token; {advice}"


def guessed_passes(table: Transducer) -> list[int]:
    """The passes that read from the top, if others read from the ones.

    All runs are walked from the ones then. The state of such a pass is guessed, column by column, and it must fit: the state
    before a column, what the column holds and the state behind it are an entry of the table, and above the top is the start.

    Raises:
        ValueError: one of them writes more symbols than there are columns.
    """
    if len({table_pass.direction for table_pass in table.passes}) < 2:
        return []
    guessed = [place for place, table_pass in enumerate(table.passes) if table_pass.direction == "top_first"]
    if flushing := [place + 1 for place in guessed if table.passes[place].flush]:
        raise ValueError(f"pass {flushing[0]} reads from the top and others from the ones: its flush must be 0")
    return guessed


class ColumnState(NamedTuple):
    """A state behind a column of a table's run.

    Attributes:
        beyond: how many columns it is beyond the operands; 0 for a column of theirs, -1 before the first column.
        passes: the state of each pass.
    """

    beyond: int
    passes: tuple[int, ...]


def runs_of(table: Transducer, end_token: int) -> Graph:
    """The runs of a table.

    Rows: the operands and each pass. Then come the words that passes write, and the operands as places in the alphabet.

    Raises:
        ValueError: as `guessed_passes`.
        TooMany: as `Columns.graph`.
    """
    passes, operands, guessed = table.passes, table.operands, guessed_passes(table)
    most, count = max(table_pass.flush for table_pass in passes), len(passes)
    begins = [EQUALS, *[GREATER] * (count - 1)]
    follows = [*begins[1:], end_token]
    sizes = [table.sizes(place) for place in range(count)]
    tokens = [[table.tokens.index(symbol) for symbol in table_pass.writes] for table_pass in passes]
    shown = [table.tokens.index(symbol) for symbol in table.alphabet]

    def column(
        beyond: int, states: Sequence[int], symbols: tuple[int, ...] | None
    ) -> tuple[tuple[int, ...], ColumnState] | None:
        """Labels and next state of a column of the operands, or of the one that is so many beyond them, from 1."""
        words = list(symbols[:operands]) if symbols else [0] * operands
        seen, written, following = [], [], []
        for place, table_pass in enumerate(passes):
            entry, state = entry_of([words[source] for source in table_pass.reads], sizes[place]), states[place]
            if place in guessed and symbols is not None:
                state = symbols[operands + guessed.index(place)]
                if table_pass.next[state][entry] != states[place]:
                    return None
            writes, last = beyond <= table_pass.flush, beyond == table_pass.flush + 1
            words.append(table_pass.write[state][entry] if writes else 0)
            token = tokens[place][words[-1]] if writes else ABSENT
            seen.append(begins[place] if place in guessed and last else token)
            written.append(seen[-1] if place in guessed or not last else follows[place])
            following.append(table_pass.next[state][entry] if writes and place not in guessed else state)
        places = symbols[:operands] if symbols else [ABSENT] * operands
        read = [shown[place] if place != ABSENT else ABSENT for place in places]
        return (*read, *seen, *written, *places), ColumnState(beyond, tuple(following))

    def step(state: ColumnState, symbols: tuple[int, ...] | None) -> tuple[tuple[int, ...], ColumnState] | None:
        """A column of symbols, all of which come first; without symbols, one of those that are flushed behind them."""
        if symbols is not None:
            return column(0, state.passes, symbols) if state.beyond <= 0 else None
        return column(state.beyond + 1, state.passes, None) if 0 <= state.beyond < most else None

    def ends(state: ColumnState) -> tuple[int, ...] | None:
        """Labels behind the last column, if all is flushed and guessed passes were in their first states before the top."""
        if state.beyond != most or any(state.passes[place] != passes[place].start for place in guessed):
            return None
        behind = column(most + 1, state.passes, None)
        return behind and behind[0]

    counts = [range(len(table_pass.write)) for table_pass in passes]
    symbols = [range(len(table.alphabet))] * operands + [counts[place] for place in guessed]
    if (inputs := prod(map(len, symbols))) > MOST_NEIGHBOURHOODS:
        raise TooMany(f"a column holds one of {inputs:,} inputs, more than {MOST_NEIGHBOURHOODS:,}")
    if guessed and inputs * prod(map(len, counts)) > MOST_PATHS:
        raise TooMany(f"passes in two directions have {inputs * prod(map(len, counts)):,} entries")
    # In the column below the ones stands what begins a pass, or what follows a pass that comes from the top.
    below = [follows[place] if place in guessed else begin for place, begin in enumerate(begins)]
    seen_below = [ABSENT if place in guessed else begin for place, begin in enumerate(begins)]
    first = (*[ABSENT] * operands, *seen_below, *below, *[ABSENT] * operands)
    starts = product(*(count if place in guessed else [passes[place].start] for place, count in enumerate(counts)))
    states = {ColumnState(-1, states): first for states in starts}
    return Columns(rows_of(table), states, [None, *product(*symbols)], step, ends).graph


def rows_of(table: Transducer) -> Rows:
    """Where the tokens of a table's problems stand, as the coupling rule `columns` draws it."""
    operands, passes = table.rows
    sign = -1 if any(table_pass.direction == "ones_first" for table_pass in table.passes) else 1
    words = len(operands) + 2 * len(passes)
    return Rows(
        [by_column(sign, row) for row in (*operands, *passes)],
        passes=len(passes),
        backward=[table.operands + place for place in guessed_passes(table)],
        practised=range(words, words + len(operands)),
        layout=TextLayout(last_first=sign < 0),
    )


def sight_of(table: Transducer, graph: Graph, place: int) -> Sight:
    """The keys that tokens of one pass see."""
    return sights_of(replace(graph, rows=rows_of(table)), table.relations)[place]


def columns_needed(table: Transducer, listed: WordNeighbourhoods) -> np.ndarray:
    """(count,) columns of a shortest problem that shows each neighbourhood."""
    # A run has an edge before the columns of a problem, an edge for each column that is flushed, and one behind all.
    return listed.sizes - 2 - max(table_pass.flush for table_pass in table.passes)


def words_over(alphabet: str, digits: np.ndarray) -> list[list[str]]:
    """Problems (count, operands, width) of places in an alphabet, ones first, as words with all their columns."""
    return [["".join(alphabet[place] for place in word[::-1]) for word in problem] for problem in digits.tolist()]
