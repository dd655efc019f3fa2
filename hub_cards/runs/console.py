"""How a command ends that refuses what it was given."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


def one_line(error: BaseException) -> str:
    """Return the message of an error in one line."""
    return " ".join(str(error).split())


@contextmanager
def refusing_in_one_line(*more: type[Exception]) -> Iterator[None]:
    """End the program with one line on stderr and exit status 2 on a ValueError, or on one of `more`."""
    refusals: tuple[type[Exception], ...] = (ValueError, *more)
    try:
        yield
    except refusals as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        raise SystemExit(2) from error
