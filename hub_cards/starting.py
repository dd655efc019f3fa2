"""The first seconds of a command, in which it imports what it needs: Ctrl-C ends them in one line.

This file is imported before all that takes long. It imports nothing itself.
"""

import sys
from types import TracebackType

_shown_before = sys.excepthook


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        print("\ninterrupted before anything was done: run the command again", file=sys.stderr)
    else:
        _shown_before(kind, error, trace)


sys.excepthook = _show


def all_is_imported() -> None:
    """From now on the command itself says what Ctrl-C interrupts; whoever imports it as a module has Python's own words."""
    sys.excepthook = _shown_before
