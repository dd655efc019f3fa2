"""Exit codes and one-line errors of the commands."""

import _thread
import argparse
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn


class OneLineParser(argparse.ArgumentParser):
    """Parser that raises ValueError instead of printing its usage and exiting, for `refusing_in_one_line`."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


MOST_CHARACTERS = 4000
"""Characters of a message. The longest lists of names have about 2,000; a question may have millions of digits."""


def one_line(error: BaseException) -> str:
    """Return the message of an error in one line. Of a very long message, the beginning and the end are kept."""
    line = " ".join(str(error).split())
    kept = MOST_CHARACTERS // 2
    return line if len(line) <= MOST_CHARACTERS else f"{line[:kept]} [...] {line[-kept:]}"


@contextmanager
def refusing_in_one_line(*more: type[Exception]) -> Iterator[None]:
    """End the program with one line on stderr and exit status 2 on a ValueError, or on one of `more`."""
    refusals: tuple[type[Exception], ...] = (ValueError, *more)
    try:
        yield
    except BrokenPipeError:
        raise  # What was given is fine: `interruptible` says what happened.
    except refusals as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        raise SystemExit(2) from error


@contextmanager
def interruptible(advice: str) -> Iterator[None]:
    """End the program with one line on Ctrl-C (exit status 130), if nobody reads its output (141) or memory ends (1)."""
    before = sys.unraisablehook

    def interrupt_again(unraisable: Any) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            # Python cannot raise it out of some places, such as the callback of a weak reference: a moment later it can.
            threading.Timer(0.05, _thread.interrupt_main).start()
        else:
            before(unraisable)

    sys.unraisablehook = interrupt_again
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt as error:
        print(f"\ninterrupted: {advice}", file=sys.stderr)
        raise SystemExit(130) from error
    except (MemoryError, RuntimeError) as error:
        # torch has a class of its own for the memory of an accelerator alone.
        if not isinstance(error, MemoryError) and "allocate" not in str(error):
            raise
        print(f"error: out of memory, take smaller batches or sizes ({one_line(error)[:200]})", file=sys.stderr)
        raise SystemExit(1) from error
    except BrokenPipeError as error:
        # Python writes what is left when it exits, and would fail once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"the output was closed, by `head` perhaps: {advice}", file=sys.stderr)
        raise SystemExit(141) from error
    finally:
        sys.unraisablehook = before
