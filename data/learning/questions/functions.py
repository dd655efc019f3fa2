"""Asking a function: within a budget of seconds, twice now and then, and its answers checked.

The function is the user's own. It runs in the user's process, as a plugin does.
"""

# Used by: meetings.py, mutants.py, operands.py, readings.py, data/learning, hub_cards/research/theories. Changed freely.

import reprlib
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from longhand.data.learning.questions.words import Word, Words

SECONDS = 60.0
"""Seconds of processor time in which a function is learned, or examples are merged."""

PATIENCE = 2
"""One call that takes so many times the seconds by the clock waits for something that may never come."""

LEAST_WAIT = 2.0
"""Seconds by the clock that are no wait yet: a busy machine may leave a process without a core for as long."""

MOST_RARE = 2_000
"""Words of a rare answer that others are made of."""

LONGEST_TELLING = 300
"""Columns of the longest words of a rare answer that tell of a function."""

RINGS_EVERY = 0.1
"""Seconds between two looks at the time and the memory that a function takes."""

MOST_MEMORY = 2 * 2**30
"""Bytes of memory that a function may take."""

ASKED_TWICE = 50
"""One call in so many is made twice, and so are as many calls at the beginning."""

MOST_ASKED_AGAIN = 2_000
"""Words that are asked once more when a search fails."""


class Refused(ValueError):
    """The function, or the examples, give no column task; the message says why in one line."""


class OutOfTime(BaseException):
    """The seconds are over. It is no Exception, so that a function that catches exceptions does not go on."""


class OutOfMemory(OutOfTime):
    """The function takes more memory than it may."""


class Waits(OutOfTime):
    """A call takes no processor time, and does not end."""


class AskedFunction:
    """A function on words that remembers what it answered.

    Args:
        function: takes whole numbers or texts, one for each operand.
        words: how its arguments are words.
        seconds: processor time that all calls, and the search for a machine in their answers, may take together. Where there
            is no `alarm`, this is looked at between calls.

    Attributes:
        calls: how many calls were made.
        last_word: the word that was asked last.
        are_booleans: whether all answers were True or False.
        counterexamples: words at which a machine that was tried differed.
        call_began: when the call began, by the clock, that does not end yet; None if there is none.
    """

    def __init__(self, function: Callable[..., object], words: Words, seconds: float):
        self.function, self.words, self.seconds = function, words, seconds
        self.calls = 0
        self.are_booleans = True
        self.call_began: float | None = None
        self._answers: dict[Word, int | str] = {}
        self.counterexamples: list[Word] = []
        self.last_word: Word = ()
        self._began, self._looked = time.process_time(), time.monotonic()

    def __call__(self, word: Word) -> int | str:
        """The answer to a word, whose top column is first.

        Raises:
            Refused: the function raises, answers otherwise when it is asked again, or answers no whole number and no text.
        """
        if (known := self._answers.get(word)) is not None:
            return known
        self.calls += 1
        self.last_word = word
        self._look_at_the_time()
        answer = self._once(word)
        if (self.calls <= ASKED_TWICE or self.calls % ASKED_TWICE == 0) and (again := self._once(word)) != answer:
            raise Refused(f"{self.shown(word)} is {shown(answer)}, and {shown(again)} when it is asked again")
        self._answers[word] = answer
        return answer

    def _look_at_the_time(self) -> None:
        """Raise `OutOfTime` if the seconds are over. The clock is fast to read, and processor time is not."""
        now = time.monotonic()
        if now - self._looked > RINGS_EVERY:
            self._looked = now
            if time.process_time() - self._began > self.seconds:
                raise OutOfTime

    def _once(self, word: Word) -> int | str:
        arguments = self.words.arguments(word)
        self.call_began = began = time.monotonic()
        try:
            answer = self.function(*arguments)
        except (Exception, SystemExit) as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise Refused(
                f"{self.shown(word)} raises {reason}: a function must answer every question, so let it return what a model "
                "should write there"
            ) from error
        finally:
            self.call_began = None
        # A function that catches everything catches the alarm too.
        if time.monotonic() - began > max(PATIENCE * self.seconds, LEAST_WAIT):
            raise Waits
        if hasattr(answer, "item"):
            answer = answer.item()
        self.are_booleans &= isinstance(answer, bool)
        if isinstance(answer, int):
            return int(answer)
        if isinstance(answer, str):
            # The plain text: a class of its own may compare otherwise.
            return str.__str__(answer)
        advice = ": write // for whole numbers" if isinstance(answer, float) else ""
        raise Refused(f"{self.shown(word)} is {shown(answer)}, and neither a whole number nor a text{advice}")

    def check_again(self) -> None:
        """Ask words once more that were answered, for a second at most.

        Raises:
            Refused: an answer is another one now.
        """
        began = time.monotonic()
        for word, answer in self.telling_answers(MOST_ASKED_AGAIN).items():
            if (again := self._once(word)) != answer:
                raise Refused(f"{self.shown(word)} is {shown(answer)}, and {shown(again)} when it is asked again")
            if time.monotonic() - began > 1:
                return

    def rare_words(self, longest: int) -> list[Word]:
        """The words of up to so many columns that were asked and have another answer than most, some of each answer."""
        if not self._answers:
            return []
        usual, _ = Counter(self._answers.values()).most_common(1)[0]
        found: dict[int | str, list[Word]] = {}
        for word, answer in self._answers.items():
            if answer != usual and len(word) <= longest:
                found.setdefault(answer, []).append(word)
        return [word for words in found.values() for word in words[:: 1 + len(words) // MOST_RARE]]

    def telling_answers(self, most: int) -> dict[Word, int | str]:
        """Words that were asked, and their answers, so many of each kind.

        They are counterexamples, words with a rare answer, words that hold constants, and others.
        """
        counterexamples = [word for word in self.counterexamples if word in self._answers]
        singled_out = [word for word in self.words.singled_out if word in self._answers]
        kinds = (counterexamples, self.rare_words(LONGEST_TELLING), singled_out, [*self._answers])
        return {word: self._answers[word] for words in kinds for word in words[:: 1 + len(words) // most]}

    def shown(self, word: Word) -> str:
        """A question as Python writes it, such as `f(12, 34)`."""
        return f"f({', '.join(map(shown, self.words.arguments(word)))})"

    def equation(self, word: Word) -> str:
        """A question and its answer."""
        return f"{self.shown(word)} = {shown(self(word))}"


@dataclass
class Search:
    """What is being asked.

    Attributes:
        asked: the function, once it is known what it takes.
        began: when the search began, by the clock.
    """

    asked: AskedFunction | None = None
    began: float = field(default_factory=time.monotonic)

    def call_began(self) -> float | None:
        """When the call began, by the clock, that does not end yet; None if there is none."""
        return self.asked.call_began if self.asked else self.began


@contextmanager
def budget(seconds: float) -> Iterator[Search]:
    """Refuse a function whose answers do not come in time; what is known of it is put into the search.

    A call that never ends is cut off in the main thread alone.

    Raises:
        Refused: the seconds are over, or the function takes too much memory.
    """
    search = Search()
    # Words of any length are tried, and functions write numbers as texts.
    digits = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        with alarm(seconds, search.call_began):
            yield search
    except OutOfTime as error:
        asked = search.asked
        last = f"the last one {asked.shown(asked.last_word)}" if asked and asked.calls else "the first one does not end"
        calls = max(1, asked.calls) if asked else 1
        called = "1 call" if calls == 1 else f"{calls:,} calls"
        if isinstance(error, OutOfMemory):
            raise Refused(
                f"the function takes more than {MOST_MEMORY / 2**30:g} GiB of memory after {called}, {last}"
            ) from None
        if isinstance(error, Waits):
            raise Refused(f"the function waits for something: its call does not end, after {called}, {last}") from None
        raise Refused(
            f"the function is not learned after {seconds:g} seconds of processor time and {called}, {last}: give it more by "
            "--seconds, or make it faster"
        ) from None
    finally:
        sys.set_int_max_str_digits(digits)


def has_alarm() -> bool:
    """Whether there is an alarm here: in the main thread, where the system has its signal."""
    return threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")


@contextmanager
def alarm(seconds: float, call_began: Callable[[], float | None] | None = None) -> Iterator[None]:
    """Raise `OutOfTime` after so many seconds of processor time, `Waits` in a call that waits, or `OutOfMemory`.

    It rings again until what it interrupts ends, so a function that catches everything ends too. One operation of Python's
    own, such as a huge power, is not interrupted. Other threads than the main one, and systems without this signal, have no
    alarm. An alarm within another one puts that off until it is left.

    Args:
        call_began: gives when a call began, by the clock, that does not end yet, or None; None if nothing is called.
    """
    if not has_alarm():
        yield
        return
    began, memory = time.process_time(), most_memory_used()

    def ring(_: int, frame: FrameType | None) -> None:
        # What leaves the alarm is not interrupted: nobody would turn it off.
        if frame is not None and frame.f_code in _LEAVING:
            return
        if most_memory_used() - memory > MOST_MEMORY:
            raise OutOfMemory
        if time.process_time() - began > seconds:
            raise OutOfTime
        waits_since = call_began() if call_began else None
        if waits_since is not None and time.monotonic() - waits_since > max(PATIENCE * seconds, LEAST_WAIT):
            raise Waits

    before = signal.signal(signal.SIGALRM, ring)
    timer = signal.setitimer(signal.ITIMER_REAL, RINGS_EVERY, RINGS_EVERY)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *timer)


_LEAVING = frozenset((type(alarm(0.0)).__exit__.__code__, alarm.__wrapped__.__code__, budget.__wrapped__.__code__))  # type: ignore[attr-defined]
"""The codes that run while an alarm is left."""


def most_memory_used() -> int:
    """Bytes of memory that this process has held at most; 0 where this is not known."""
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def shown(value: object) -> str:
    """A value as Python writes it, a long one shortened."""
    shortened = reprlib.Repr()
    shortened.maxlong = shortened.maxstring = 40
    return shortened.repr(value)
