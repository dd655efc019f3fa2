"""Whether a machine writes its states: one decision, with its reason.

A machine that writes its states writes one symbol more for each column, and any step has a window then.
"""

# Used by: data/learning, data/tasks. Changed freely.

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

WORTH_A_PASS = 2
"""So many times less must be left to learn before states are written unasked."""


class Reason(StrEnum):
    """Why states are written, or are not."""

    ASKED = "as was asked"
    NO_WINDOW = "since no window suffices without them"
    LESS_WORK = "since that leaves less than half to learn"
    NOT_LESS_WORK = "since that leaves no less than half to learn"
    TOO_MANY = "since they cannot be written"
    KEPT = "since the task says how it is written"


class MachineLayout(NamedTuple):
    """How a machine is written.

    Attributes:
        states: whether its states are written too.
        reason: why.
    """

    states: bool
    reason: Reason


def chosen_layout(plain: Callable[[], int], stated: Callable[[], int], asked: bool | None = None) -> MachineLayout:
    """Decide whether states are written.

    Args:
        plain: gives the work of learning the machine as it is; raises ValueError if no window suffices.
        stated: gives the work of learning it with its states; raises ValueError if these cannot be written.
        asked: what was asked for; None leaves it to the work.

    Raises:
        ValueError: neither can be learned; of `plain`.
    """
    if asked is not None:
        return MachineLayout(asked, Reason.ASKED)
    try:
        work = plain()
    except ValueError as error:
        try:
            stated()
        except ValueError:
            raise error from None
        return MachineLayout(True, Reason.NO_WINDOW)
    try:
        worth_it = WORTH_A_PASS * stated() < work
    except ValueError:
        return MachineLayout(False, Reason.TOO_MANY)
    return MachineLayout(True, Reason.LESS_WORK) if worth_it else MachineLayout(False, Reason.NOT_LESS_WORK)
