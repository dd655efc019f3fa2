"""Whether a window suffices for the last pass of a task: decided on pairs of states, before any search."""

from collections.abc import Sequence

import numpy as np

from longhand.data.learning.machine_task import TablePass
from longhand.data.tasks.column_windows import WIDEST_WINDOW


def a_window_suffices(passes: Sequence[TablePass]) -> bool:
    """Whether some window that is tried shows a token of the last pass what it must write next.

    A token sees the inputs and what was written in some columns up to its own, and the input of the next column. No window
    suffices if two states can read the same in all these columns, write the same, and then differ. In two directions, what
    is read next must fit: the class above a column follows from the class and the symbols of the column above it.
    """
    *before, last = passes
    write, following = np.array(last.machine.write), np.array(last.machine.next)
    inputs = write.shape[1]
    if before:
        above = np.array(before[-1].machine.next)
        letter, own = np.divmod(np.arange(inputs), len(above))
        # The class that the column below must have, and the class of the column itself.
        below = above[own, letter]
        classes = len(above)
    else:
        own = below = np.zeros(inputs, dtype=np.int64)
        classes = 1
    # confused[class of the column that was read last]: the pairs of states that differ somewhere behind it.
    confused = [np.zeros((len(write), len(write)), dtype=bool) for _ in range(classes)]
    for place in range(inputs):
        confused[below[place]] |= write[:, place, None] != write[None, :, place]
    for _ in range(WIDEST_WINDOW - 1):
        longer = [np.zeros_like(pairs) for pairs in confused]
        for place in range(inputs):
            same = write[:, place, None] == write[None, :, place]
            after = following[:, place]
            longer[below[place]] |= same & confused[own[place]][after[:, None], after[None, :]]
        confused = longer
    return not any(pairs.any() for pairs in confused)
