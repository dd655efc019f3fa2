"""How a machine is written: in as many passes as were found, or with its states in one pass more.

Whether a window suffices for the last pass is decided on pairs of states, before any search.
"""

# Used by: examples.py, learn.py. Changed freely.

from collections.abc import Sequence

import numpy as np

from longhand.data.learning.machine_task import Finding, build, sign_between, with_states
from longhand.data.learning.proof import Linear, linear_in_table
from longhand.data.learning.questions.words import Words
from longhand.data.learning.report import states_written
from longhand.data.machines.states import MachineLayout, Reason, chosen_layout
from longhand.data.machines.windows import WIDEST_WINDOW
from longhand.data.tasks.column_task import ColumnTask
from longhand.data.tasks.written_states import work_of
from longhand.modeling.transducer import Pass, Transducer


def task_of(
    finding: Finding, words: Words, name: str, source: str, write_states: bool | None, sign: str | None = None
) -> tuple[ColumnTask, str, Linear | None]:
    """The task of a machine that was found, the machine in words, and the linear function that it computes, or None.

    The states are written if that is asked for, if no window suffices without them, or if it leaves far less to learn.

    Args:
        source: as of `Report`.
        write_states: as of `learn_task`.
        sign: between operands; None for one that no word has.

    Raises:
        Refused: there are too many states to write them, or the name is not legal.
    """
    passes, found = finding.passes, finding.found
    table = Transducer(words.alphabet, words.operands, "", finding.answer, passes)
    linear = linear_in_table(table) if words.are_numbers else None
    sign = sign_between(words, passes, linear is not None and linear.is_sum) if sign is None else sign

    def task_with(passes: tuple[Pass, ...], found: str) -> ColumnTask:
        return build(name, words, sign, finding.answer, passes, f"{source}: {found}.")

    def stated() -> ColumnTask:
        return task_with(with_states(passes, words.operands), found)

    plain = task_with(passes, found)
    if not a_window_suffices(passes):
        layout = MachineLayout(True, Reason.NO_WINDOW)
    else:
        layout = chosen_layout(lambda: work_of(plain), lambda: work_of(stated()), write_states)
        if layout.reason == Reason.NO_WINDOW:
            # There is one, of more neighbourhoods than are listed.
            layout = MachineLayout(True, Reason.LESS_WORK)
    if not layout.states:
        return plain, found, linear
    found += states_written(layout.reason)
    return task_with(with_states(passes, words.operands), found), found, linear


def a_window_suffices(passes: Sequence[Pass]) -> bool:
    """Whether some window that is tried shows a token of the last pass what it must write next.

    A token sees the inputs in some columns up to its own, what is written in its own, and the input of the next column. No
    window suffices if two states can read the same in all these columns, write the same in the last of them, and then
    differ. In two directions, what is read next must fit: the class above a column follows from the class and the symbols of
    the column above it.
    """
    *before, last = passes
    write, following = np.array(last.write), np.array(last.next)
    inputs = write.shape[1]
    if before:
        above = np.array(before[-1].next)
        letter, own_class = np.divmod(np.arange(inputs), len(above))
        # The class that the column below must have, and the class of the column itself.
        below = above[own_class, letter]
        classes = len(above)
    else:
        own_class = below = np.zeros(inputs, dtype=np.int64)
        classes = 1
    # confused[class of the column that was read last]: the pairs of states that differ somewhere behind it.
    confused = [np.zeros((len(write), len(write)), dtype=bool) for _ in range(classes)]
    for place in range(inputs):
        confused[below[place]] |= write[:, place, None] != write[None, :, place]
    for column in range(WIDEST_WINDOW - 1):
        longer = [np.zeros_like(pairs) for pairs in confused]
        for place in range(inputs):
            # The token's own column is the last one that was read.
            same = write[:, place, None] == write[None, :, place] if column == 0 else True
            after = following[:, place]
            longer[below[place]] |= same & confused[own_class[place]][after[:, None], after[None, :]]
        confused = longer
    return not any(pairs.any() for pairs in confused)
