"""Column tasks that write their states: whatever the step, a window of few columns suffices.

A pass of several states becomes two passes. The first one writes, in each column, which state it goes to and what the pass
writes there, as one symbol. The second one reads this symbol and writes what the pass writes. A token of the first pass sees
the state in itself, so it needs nothing but the next column; a token of the second pass sees all in one symbol.
"""

# Used by: registry.py, data/learning, hub_cards/training. Changed freely.

from dataclasses import fields
from functools import lru_cache
from string import ascii_lowercase, ascii_uppercase

from longhand.data.machines.states import MachineLayout, Reason, chosen_layout
from longhand.data.machines.table import pairs_of, step_of
from longhand.data.tasks.column_task import STATES, ColumnPass, ColumnTask, tables_of
from longhand.modeling.transducer import MOST_SYMBOLS, RESERVED


class WrittenStates(ColumnTask):
    """Base of the column tasks that write the states of another column task; `task_with_states` makes them."""

    def describe_sizes(self, longest: int) -> list[str]:
        """As `ColumnTask.describe_sizes`, with a line on the states."""
        first, *others = super().describe_sizes(longest)
        written = "its states are written, one symbol more for each column: --write_states False keeps them in the network"
        return [first, written, *others]


@lru_cache(maxsize=64)
def task_with_states(kind: type[ColumnTask]) -> type[WrittenStates]:
    """The task that answers as a column task does, and writes its states."""

    def passes(self) -> tuple[ColumnPass, ...]:
        return _passes(kind(**{option.name: getattr(self, option.name) for option in fields(self)}))

    about = {"__doc__": f"The column task {kind.name}, which writes its states.", "__module__": kind.__module__}
    return type(STATES + kind.name, (WrittenStates, kind), {"name": STATES + kind.name, "passes": property(passes), **about})


@lru_cache(maxsize=16)
def _passes(task: ColumnTask) -> tuple[ColumnPass, ...]:
    """The passes of a task, those of several states as two.

    Raises:
        ValueError: a pass has too many states, or the answer joins the symbols of all passes.
    """
    if task.answer == "joined":
        raise ValueError(
            f"the answer to {task.name!r} joins the symbols of all passes: states that a pass writes would be in it"
        )
    table = tables_of(task)
    passes: list[ColumnPass] = []
    # Where each word of the task, an operand or what a pass writes, stands among the words of the new task.
    words = list(range(table.operands))
    for place, table_pass in enumerate(table.passes):
        reads = tuple(words[source] for source in table_pass.reads)
        step = step_of(table_pass.write, table_pass.next, table.sizes(place))
        if len(table_pass.write) == 1:
            passes.append(
                ColumnPass(step, table_pass.writes, table_pass.start, table_pass.flush, table_pass.direction, reads)
            )
        else:
            pairs = pairs_of(table_pass.write, table_pass.next)
            if len(pairs) > MOST_SYMBOLS:
                raise ValueError(
                    f"pass {place + 1} of {task.name!r} has {len(pairs):,} pairs of a symbol and a state, more than the "
                    f"{MOST_SYMBOLS} symbols that may be written"
                )
            symbols = _symbols(len(pairs), table.alphabet + table.sign + table_pass.writes)
            passes.append(
                ColumnPass(_pairs_of(step, pairs), symbols, table_pass.start, table_pass.flush, table_pass.direction, reads)
            )
            first = (table.operands + len(passes) - 1,)
            passes.append(ColumnPass(_first_of(pairs), table_pass.writes, 0, table_pass.flush, table_pass.direction, first))
        words.append(table.operands + len(passes) - 1)
    return tuple(passes)


def _pairs_of(step, pairs: list[tuple[int, int]]):
    """The step that writes the place of its symbol and its next state in `pairs`."""
    places = {pair: place for place, pair in enumerate(pairs)}

    def stated(state, symbols):
        pair = step(state, symbols)
        return places[pair], pair[1]

    return stated


def _first_of(pairs: list[tuple[int, int]]):
    """The step that reads such a place and writes the symbol of the pair."""

    def shown(state, symbols):
        return pairs[symbols[0]][0], state

    return shown


def _symbols(count: int, taken: str) -> str:
    """So many characters that stand for nothing yet: letters first."""
    letters = ascii_uppercase + ascii_lowercase + "".join(map(chr, range(0x100, 0x300)))
    free = [letter for letter in letters if letter not in taken + RESERVED]
    return "".join(free[:count])


def work_of(task: ColumnTask) -> int:
    """The work of learning a task: neighbourhoods, each counted as often as it has keys.

    Raises:
        ValueError: no window suffices.
    """
    return sum(found.keys.size for found in (sight.find() for sight in task.sights))


def layout_of(plain: ColumnTask, stated: ColumnTask) -> MachineLayout:
    """Which of two tasks is easier to learn (`work_of`): the one as it is, or the one that writes its states.

    Raises:
        ValueError: neither can be learned.
    """
    return chosen_layout(lambda: work_of(plain), lambda: work_of(stated))


def own_layout(kind: type[ColumnTask]) -> MachineLayout:
    """Whether a column task of a user's own writes its states, which it did not ask for.

    A window or passes that the task names are kept, and a task without a window is refused with what to do.
    """
    if kind.window is not None or kind.passes or kind.answer == "joined" or issubclass(kind, WrittenStates):
        return MachineLayout(False, Reason.KEPT)
    try:
        layout = layout_of(kind(), task_with_states(kind)())
    except ValueError:
        return MachineLayout(False, Reason.KEPT)
    return MachineLayout(False, Reason.KEPT) if layout.reason == Reason.NO_WINDOW else layout
