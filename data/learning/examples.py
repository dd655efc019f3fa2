"""From questions and answers alone to a task: the machine that agrees with all of them, and those that are wrong."""

# Used by: hub_cards/research/theories, hub_cards/training. Changed freely.

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain

from longhand.data.digits import DIGITS
from longhand.data.learning.example_files import Example, shown
from longhand.data.learning.example_machines import (
    FEWEST,
    HELD_OUT,
    ExampleReading,
    fitted_linear,
    numbers_of,
    read_in_some_way,
    text_of,
    words_of,
)
from longhand.data.learning.locality import task_of
from longhand.data.learning.machine_task import Finding, pass_of, sign_between
from longhand.data.learning.machines import Machine, minimised
from longhand.data.learning.proof import proved_of
from longhand.data.learning.questions.functions import SECONDS, OutOfTime, Refused, alarm
from longhand.data.learning.questions.readings import is_written
from longhand.data.learning.questions.words import Words
from longhand.data.learning.report import Learned, Report, count_of, found_in_words

DEFAULT_BASE = 10
MOST_PARTS = 16
"""Parts of the examples of which a machine is merged, to find wrong ones."""

LINEAR_TRIES = 60
"""Parts of the examples from which the coefficients of a linear function are found, to find wrong ones among few."""

MOST_NAMED = 5
"""Wrong examples that a message names."""


def learn_task_from_examples(
    examples: Sequence[Example],
    base: int = 10,
    alphabet: str | None = None,
    name: str = "learned",
    source: str = "examples",
    complete: bool = False,
    seconds: float = SECONDS,
    write_states: bool | None = None,
    drop_wrong: int = 0,
) -> Learned:
    """Find the machine that agrees with all examples, and make it a column task.

    Args:
        base: of numbers.
        alphabet: the symbols of texts. Without it, an operand that is no number in this base is a text over the
            symbols that occur.
        complete: fill entries of the table that no example reaches, if all others fit the identity of a linear function.
        seconds: how long merging may take.
        write_states: as of `learn_task`.
        drop_wrong: how many examples may be left out, those without which the others agree; they are named.

    Raises:
        Refused: there is no such machine, it fails at examples that were held out, or entries are never reached.
    """
    began = time.monotonic()
    examples = list({(example.question, example.answer): example for example in reversed(examples)}.values())
    assumed = ""
    try:
        with alarm(seconds):
            if alphabet is None and base == DEFAULT_BASE and (found_base := base_of(examples)):
                base, assumed = found_base
            wrong = named_wrong(examples, base, alphabet, drop_wrong, complete)
            merged = merge([example for example in examples if example not in wrong], base, alphabet, complete)
    except OutOfTime:
        raise Refused(f"no machine was found after {seconds:g} seconds of merging {len(examples):,} examples") from None
    if failing := merged.failing:
        raise Refused(
            f"{len(failing)} of {len(merged.held_out)} examples that were held out are not answered by the machine of "
            f"{merged.machine.states} states that agrees with the others, such as {shown(failing[0])}: give more of them"
        )
    reading, words, machine = merged.reading, merged.reading.words, minimised(merged.machine)
    only = pass_of(machine, reading.symbols, reading.direction, range(words.operands), reading.flush)
    found = found_in_words(machine.states, words, reading.direction, reading.flush, reading.answer)
    if reading.counts_zeros(examples):
        found += "; an answer has as many digits as the operands as they are written, with the zeros in front of them"
    finding = Finding((only,), reading.answer, found, reading.legend)
    is_kept = not reading.sign or is_written(reading.sign)
    sign = reading.sign if is_kept else sign_between(words, (only,), is_sum=False)
    task, found, linear = task_of(finding, words, name, source, write_states, sign)
    report = Report(
        source,
        found,
        merged.checked + (f"; left out as wrong: {', '.join(map(shown, wrong))}" if wrong else ""),
        proved_of(task),
        reading.legend,
        seconds=time.monotonic() - began,
        one_length=task.one_length,
        linear=linear,
        assumed=assumed,
    )
    return Learned(task, report)


def named_wrong(
    examples: Sequence[Example], base: int, alphabet: str | None, drop_wrong: int, complete: bool = False
) -> list[Example]:
    """`wrong_examples`, of which so many may be left out.

    Raises:
        Refused: there are more; the message names them.
    """
    wrong = wrong_examples(examples, base, alphabet, max(drop_wrong, MOST_NAMED), complete)
    if len(wrong) > drop_wrong:
        named = ", ".join(map(shown, wrong))
        raise Refused(
            f"without {count_of(len(wrong), 'example')} the others agree on one machine: {named}; either "
            f"{'it is' if len(wrong) == 1 else 'they are'} wrong (correct {'it' if len(wrong) == 1 else 'them'}, or go on "
            f"without by --drop_wrong {len(wrong)}), or of a case that the others do not show (add more examples like that)"
        )
    return wrong


@dataclass(frozen=True)
class Merged:
    """The machine that was merged from examples.

    Attributes:
        reading: how the examples are read.
        machine: agrees with those that are used.
        missing: entries of its table that no example reaches; the identity of a linear function completed them.
        used, held_out: the examples.
    """

    reading: ExampleReading
    machine: Machine
    missing: Sequence[tuple[int, int]]
    used: Sequence[Example]
    held_out: Sequence[Example]

    @property
    def failing(self) -> list[Example]:
        """The examples that were held out and that the machine does not answer."""
        return [example for example in self.held_out if not self.reading.agrees(self.machine, example)]

    @property
    def checked(self) -> str:
        """Which examples agree, in words."""
        entries = self.machine.states * self.reading.words.count
        reached = f"each of the {entries:,} entries is reached"
        if self.missing:
            reached = (
                f"{len(self.missing)} of the {entries:,} entries are reached by none of them, and were completed by the "
                "identity below"
            )
        longest = max(len(self.reading.letters(example)) for example in (*self.used, *self.held_out)) - self.reading.flush
        agree = f"{len(self.used):,} examples of up to {count_of(longest, 'column')} agree"
        held_out = f"all {len(self.held_out):,} that were held out{self.reading.spread(self.held_out)}"
        return f"{agree}, and {held_out}; {reached}"


def merge(examples: Sequence[Example], base: int, alphabet: str | None, complete: bool) -> Merged:
    """Merge a machine from most of the examples, in an order that has no meaning; the others are held out.

    Raises:
        Refused: there is none.
    """
    shuffled = sorted(examples, key=lambda example: example[:2])
    random.Random(0).shuffle(shuffled)
    used = [example for place, example in enumerate(shuffled) if place % HELD_OUT]
    return Merged(*read_in_some_way(shuffled, used, base, alphabet, complete), used, shuffled[::HELD_OUT])


def base_of(examples: Sequence[Example]) -> tuple[int, str] | None:
    """The base of examples that have the digits of a smaller base than 10 alone, and why; None if there are others.

    A base is taken only if a machine of a linear function agrees with the examples in it, and with fewer states than in base
    10: numbers of few digits may be chance.
    """
    digits = {symbol for example in examples for text in example[:2] for symbol in text if symbol.isalnum()}
    if not digits or not digits <= set(DIGITS[: DEFAULT_BASE - 1]):
        return None
    base = max(2, 1 + max(map(DIGITS.index, digits)))
    if _fits(examples, base, None) and not _fits(examples, DEFAULT_BASE, None):
        return (
            base,
            f"numbers in base {base}, since all digits are below {base} and the examples agree in it (--base takes another)",
        )
    return None


def wrong_examples(
    examples: Sequence[Example], base: int, alphabet: str | None, most: int, complete: bool = False
) -> list[Example]:
    """The examples that may be wrong: at most so many, without which all others agree on one machine.

    A linear function is fitted to few of the examples, or a machine is merged from a part of them. If these are right, it
    answers nearly all others; what it answers differently is wrong, or right of a case that the part does not show. Empty if
    the examples agree as they are, or if there are no such few.

    Args:
        complete: whether the machine is to be that of a linear function.
    """
    answers: dict[str, set[str]] = {}
    for example in examples:
        answers.setdefault(example.question, set()).add(example.answer)
    disputed = [example for example in examples if len(answers[example.question]) > 1]
    order = [example for example in examples if len(answers[example.question]) == 1]
    if not order:
        return []
    try:
        words, sign = words_of(order, base, alphabet, by_answers=True)
    except Refused:
        return []
    if len(order) < FEWEST or (not disputed and _fits(order, base, alphabet)):
        return []
    every = [*order, *disputed]
    guesses = _linear_guesses(order, every, words, sign) if words.are_numbers else iter(())
    if not complete:
        guesses = chain(guesses, _merged_guesses(order, words, base, alphabet, min(MOST_PARTS, max(2, 2 * most))))
    for is_right in guesses:
        wrong = [example for example in every if not is_right(example)]
        if len(wrong) <= most:
            return sorted(wrong, key=lambda example: example.line)
    return []


def _linear_guesses(
    order: Sequence[Example], every: Sequence[Example], words: Words, sign: str
) -> Iterator[Callable[[Example], bool]]:
    """Linear functions of few of the examples: for each, whether it answers an example rightly."""
    generator = random.Random(0)
    legal = {*words.alphabet, sign} - {""}
    read = {
        example: (numbers_of(example, words, sign), int(example.answer, words.base))
        for example in every
        if example.answer and {*text_of(example.question), *example.answer} <= legal
    }
    fitted = [read[example] for example in order if example in read]
    for _ in range(LINEAR_TRIES):
        linear = fitted_linear(generator.sample(fitted, min(len(fitted), 2 * words.operands + 1)))
        if linear is not None and any(linear.coefficients):
            right = {example for example, (numbers, value) in read.items() if linear.value(numbers) == value}
            yield right.__contains__


def _merged_guesses(
    order: Sequence[Example], words: Words, base: int, alphabet: str | None, most_parts: int
) -> Iterator[Callable[[Example], bool]]:
    """Machines of parts of the examples, the large parts first: for each, whether it answers an example rightly."""
    generator, shuffled = random.Random(0), list(order)
    for share in (1, 2, 4, 8, 16):
        generator.shuffle(shuffled)
        size = len(shuffled) // share
        if size < FEWEST or words.count > size:
            return
        for first in range(min(most_parts, share)):
            part = shuffled[first * size : (first + 1) * size]
            with suppress(Refused):
                reading, machine, _ = read_in_some_way(part, part, base, alphabet, complete=False)
                yield partial(_is_right, reading, machine)


def _is_right(reading: ExampleReading, machine: Machine, example: Example) -> bool:
    """Whether a machine answers an example rightly, which may have a symbol or an answer that the machine does not know."""
    try:
        return reading.agrees(machine, example)
    except ValueError:
        return False


def _fits(examples: Sequence[Example], base: int, alphabet: str | None) -> bool:
    """Whether a machine of most of the examples answers those that are held out."""
    try:
        return not merge(examples, base, alphabet, complete=False).failing
    except Refused:
        return False
