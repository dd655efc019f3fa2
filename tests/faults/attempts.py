"""How an attempt may end: rightly, or refused in one line. All else is a finding."""

import contextlib
import io
import logging
import os
import pickle
import re
import resource
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers.utils import logging as transformers_logging

import longhand

PACKAGE = Path(longhand.__file__).parent
SECONDS = 10
"""An input that takes longer hangs."""
SPARE_BYTES = 4 * 2**30
"""Memory that one input may take."""


class Finding(Exception):
    """A fault. The message is one line, the same for all inputs with the same fault as far as possible."""


class Hang(BaseException):
    """Not an Exception, so that no handler of the product catches it."""


@dataclass(frozen=True)
class Outcome:
    """What an attempt ended with.

    Attributes:
        value: what was returned; None after a refusal.
        refusal: the message of the refusal, or None.
        place: where in the package it was raised.
        printed: standard output.
        words: warnings, log records and standard error.
    """

    value: Any
    refusal: str | None
    place: str
    printed: str
    words: str


def memory(which: int = 1) -> int:
    """Bytes of memory that this process has: 1 of what is resident, 0 of all that it may address."""
    return int(Path("/proc/self/statm").read_text().split()[which]) * resource.getpagesize()


@contextlib.contextmanager
def limits(seconds: float) -> Iterator[None]:
    """Raise Hang after some seconds of work, or ten times as many on the clock; MemoryError if much memory is asked for."""
    end, worked = time.monotonic() + 10 * seconds, time.process_time() + seconds

    def ring(*_):
        # A busy machine is slow, which is no hang.
        if time.monotonic() > end or time.process_time() > worked:
            raise Hang
        signal.setitimer(signal.ITIMER_REAL, 1)

    before = signal.signal(signal.SIGALRM, ring)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (memory(0) + SPARE_BYTES, hard))
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextlib.contextmanager
def listening() -> Iterator[io.StringIO]:
    """Collect what transformers logs."""
    heard = io.StringIO()
    handler, logger = logging.StreamHandler(heard), transformers_logging.get_logger("transformers")
    logger.addHandler(handler)
    try:
        yield heard
    finally:
        logger.removeHandler(handler)


def place_of(error: BaseException) -> str:
    """Where in the package an error was raised or passed through last."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).is_relative_to(PACKAGE)]
    own = [frame for frame in frames if "tests" not in Path(frame.filename).relative_to(PACKAGE).parts]
    return f"{Path(own[-1].filename).relative_to(PACKAGE)}:{own[-1].name}" if own else "outside the package"


def attempt(work: Callable[[], Any], seconds: float = SECONDS) -> Outcome:
    """Do something that may be refused: by a ValueError of one line, or by exit status 2 and one line `error: ...`.

    Raises:
        Finding: it ended otherwise.
    """
    printed, errors = io.StringIO(), io.StringIO()
    value = refusal = None
    place = ""
    with (
        warnings.catch_warnings(record=True) as warned,
        listening() as logged,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(errors),
    ):
        warnings.simplefilter("always")
        try:
            with limits(seconds):
                value = work()
        except ValueError as error:
            refusal, place = str(error), place_of(error)
            if len(refusal.strip().splitlines()) != 1:
                raise Finding(f"a message of several lines or none, {place}") from error
        except SystemExit as stop:
            if stop.code not in (None, 0):
                refusal, place = _refusal_of_command(stop, errors.getvalue()), place_of(stop.__cause__ or stop)
        except Hang as error:
            raise Finding(f"a hang, {place_of(error)}") from error
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise Finding(f"{type(error).__name__}, {place_of(error)}") from error
    words = "".join((errors.getvalue(), logged.getvalue(), *(str(warning.message) for warning in warned)))
    return Outcome(value, refusal, place, printed.getvalue(), words)


def attempt_in_child(work: Callable[[], Any], seconds: float = SECONDS) -> Outcome:
    """`attempt` in a process of its own, for work that changes the whole process. What it returns must be picklable."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.close(reader)
            try:
                ended: Any = attempt(work, seconds)
            except Finding as finding:
                ended = str(finding)
            with os.fdopen(writer, "wb") as pipe:
                pickle.dump(ended, pipe)
        finally:
            os._exit(0)
    os.close(writer)
    # What waits in a library's own code hears no alarm, so that it is killed from here.
    guard = threading.Timer(10 * seconds + 5, os.kill, (child, signal.SIGKILL))
    guard.start()
    with os.fdopen(reader, "rb") as pipe:
        written = pipe.read()
    guard.cancel()
    _, status = os.waitpid(child, 0)
    if not written:
        raise Finding(f"the process ended without a word, {os.waitstatus_to_exitcode(status)}")
    ended = pickle.loads(written)
    if isinstance(ended, str):
        raise Finding(ended)
    return ended


def _refusal_of_command(stop: SystemExit, errors: str) -> str:
    """The line with which a command refused."""
    *before, last = errors.strip().splitlines() or [""]
    if stop.code not in (1, 2) or not last.startswith("error: ") or any(not line.startswith("warning: ") for line in before):
        raise Finding(f"exit status {stop.code} without exactly one error line, but with {last[:30]!r}")
    return last


def check_named(outcome: Outcome, *names: str) -> None:
    """Raise Finding unless a refusal names one of these."""
    # An empty word is shown in quotes, and commas part the digits of a large number.
    refusal = outcome.refusal and f"{outcome.refusal} {outcome.refusal.replace(',', '')}"
    if refusal is not None and not any((name or "''") in refusal for name in names):
        raise Finding(f"a refusal that does not name what it refuses, {outcome.place}")


def check_answer(outcome: Outcome, answer: Any, right: Any, about: str = "") -> None:
    """Raise Finding for a wrong answer without a word.

    Args:
        right: the right answer; None if the input must be refused.
        about: what to tell apart in the message.
    """
    if outcome.refusal is None and not outcome.words and (right is None or answer != right):
        raise Finding(
            ("a wrong answer without a word" if right is not None else "an answer to what is no legal input") + about
        )


def words_of(*texts: Any) -> list[str]:
    """What a refusal may name: whole texts, as they are or in the notation of Python, and the words in them."""
    given = list(map(str, texts))
    return [*given, *(repr(text)[1:-1] for text in given), *(word for text in given for word in re.findall(r"\w+", text))]
