"""How commands end that refuse what they were given."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def refusing_in_one_line(*more: type[Exception]) -> Iterator[None]:
    """Ends the program with one line on stderr and exit status 2 for a ValueError, or one of these other types."""
    try:
        yield
    except (ValueError, *more) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(2) from error
