"""How an attempt may end: rightly, or refused in one line that names what is refused."""

import contextlib
import io
import logging
import re
import resource
import signal
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers.utils import logging as transformers_logging

SECONDS = 120
"""An input that takes longer hangs."""
SPARE_BYTES = 4 * 2**30
"""Memory that one input may take."""


@dataclass(frozen=True)
class Outcome:
    """What an attempt ended with.

    Attributes:
        value: what was returned; None after a refusal.
        refusal: the message of the refusal, or None.
        printed: standard output.
        words: warnings, log records and standard error.
    """

    value: Any
    refusal: str | None
    printed: str
    words: str


@contextlib.contextmanager
def limits() -> Iterator[None]:
    """End a hang by SIGALRM, and raise MemoryError if much memory is asked for."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + SPARE_BYTES, hard))
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def attempt(work: Callable[[], Any], *named: Any) -> Outcome:
    """Do something that may be refused: by a ValueError of one line, or by one line `error: ...` and an exit status.

    Args:
        named: a refusal names one of these, or of the words in them; by default it may say anything.
    """
    printed, errors = io.StringIO(), io.StringIO()
    value = refusal = None
    handler, logger = logging.StreamHandler(errors), transformers_logging.get_logger("transformers")
    logger.addHandler(handler)
    try:
        with (
            warnings.catch_warnings(record=True) as warned,
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(errors),
            limits(),
        ):
            warnings.simplefilter("always")
            value = work()
    except ValueError as error:
        refusal = str(error)
    except SystemExit as stop:
        assert stop.code in (1, 2)
        refusal = errors.getvalue().strip().splitlines()[-1]
        assert refusal.startswith("error: ")
    finally:
        logger.removeHandler(handler)
    if refusal is not None:
        assert len(refusal.strip().splitlines()) == 1
        names = [word for text in map(str, named) for word in (text, repr(text)[1:-1], *re.findall(r"\w+", text))]
        assert not named or any((name or "''") in f"{refusal} {refusal.replace(',', '')}" for name in names), refusal
    words = "".join((errors.getvalue(), *(str(warning.message) for warning in warned)))
    return Outcome(value, refusal, printed.getvalue(), words)
