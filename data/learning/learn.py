"""The way from a function to a task: the readings are tried one after the other, and the first one that serves is taken."""

# Used by: hub_cards/research/theories, hub_cards/training. Changed freely.

import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypedDict

from longhand.data.learning.locality import task_of
from longhand.data.learning.machine_task import Finding, flush_of, is_legal, pass_of, symbols_of_states, symbols_of_values
from longhand.data.learning.machines import Machine, MachineLearner, Tests, exhaustive_words, minimised
from longhand.data.learning.passes import TwoPassLearner
from longhand.data.learning.proof import proved_of
from longhand.data.learning.questions.branches import Branches, sentence_of
from longhand.data.learning.questions.constants import constants_of
from longhand.data.learning.questions.functions import SECONDS, AskedFunction, Refused, budget, shown
from longhand.data.learning.questions.mutants import WORDS_ASKED, unseen_constants
from longhand.data.learning.questions.operands import OUTSIDE, operands_of
from longhand.data.learning.questions.readings import MOST_SYMBOLS, NotSequential, Reading
from longhand.data.learning.questions.words import Argument, Word
from longhand.data.learning.report import Learned, Report, count_of, found_in_words, order_of
from longhand.data.tasks.column_task import ColumnTask

ANSWERS_COMPARED = 300
"""Whole answers of the task, read as a person reads them, that are compared with the function at the end."""

NO_QUESTIONS: tuple[Argument | float | None, ...] = ("", None, -1, 0.5)
"""Arguments that are no question of any task."""


class LearningOptions(TypedDict, total=False):
    """Arguments that `learn_task` and `learn_task_from_examples` share, see there."""

    base: int
    alphabet: str | None
    seconds: float
    write_states: bool | None


def learn_task(
    function: Callable[..., object],
    base: int = 10,
    alphabet: str | None = None,
    name: str = "learned",
    source: str | None = None,
    seconds: float = SECONDS,
    write_states: bool | None = None,
    domain: str | None = None,
) -> Learned:
    """Find the machine behind a function, and make it a column task.

    Args:
        function: takes numbers, or texts, one for each operand, by position; it may be called 300,000 times. Several texts
            have one length.
        base: of numbers, 2 to 36.
        alphabet: the symbols of texts. Without it, annotations, and what the function takes, say what its operands are: the
            report has what was `assumed`.
        name: of the task.
        source: the function as text, for the report.
        write_states: whether the states are written in a pass of their own if a window suffices without it; None if that
            leaves less than half to learn.
        domain: a regular expression of the texts that the function takes. To other texts over its symbols, the model answers
            as the function does, or `OUTSIDE` where the function raises.

    Raises:
        Refused: no machine was found, and why; or an argument is not legal.
        ValueError: the task has too many neighbourhoods to be checked.
    """
    began = time.monotonic()
    source = str(source or getattr(function, "__name__", "a function"))
    with budget(seconds) as search:
        held = constants_of(function)
        operands = operands_of(function, base, alphabet, domain, seconds)
        words = operands.words
        asked = AskedFunction(operands.function, words, seconds)
        search.asked = asked
        finding, tests = find_unless_changing(asked)
    task, found, linear = task_of(finding, words, name, source, write_states)
    with budget(seconds) as search:
        search.asked = asked
        compared = compare_answers(task, finding, asked)
    unseen = [unseen_constants(function, asked, held), sentence_of(not_gone(operands.branches, asked))]
    report = Report(
        source,
        found,
        f"{tests.sentence}; {compared:,} whole answers agree",
        proved_of(task),
        finding.legend,
        asked.calls,
        time.monotonic() - began,
        task.one_length,
        linear,
        operands.assumed,
        words.untried,
        "; ".join(filter(None, unseen)),
        domain or "",
    )
    return Learned(task, report)


def not_gone(branches: Branches, asked: AskedFunction) -> tuple[str, ...]:
    """The ways of the function's code that no question went, see `Branches`.

    Some words are asked again; and arguments that are no questions of the task, since a branch may be for these.
    """
    rest = branches.not_gone
    for word in asked.telling_answers(WORDS_ASKED) if rest else ():
        if branches.is_new(asked.words.arguments(word)) and not (rest := branches.not_gone):
            return ()
    for argument in NO_QUESTIONS:
        branches.is_new([argument] * asked.words.operands)
    return branches.not_gone


def find_unless_changing(asked: AskedFunction) -> tuple[Finding, Tests]:
    """As `find`; whatever ends the search, the reason is that the function answers otherwise now, if it does.

    Raises:
        Refused: it does, or as `find`.
    """
    try:
        return find(asked)
    except Exception:
        asked.check_again()
        raise


def find(asked: AskedFunction) -> tuple[Finding, Tests]:
    """The passes of a function, in the first reading in which it is sequential; then in two directions. And their tests.

    Raises:
        Refused: there is none; the message has the reason of the first readings.
    """
    generator = random.Random(0)
    reasons = []
    readings = readings_of(asked, generator)
    for reading in readings:
        try:
            return find_in_one_pass(reading, generator)
        except NotSequential as error:
            reasons.append(f"{reading.name}, {error}")
            if error.counts and reading.answer == "last":
                break
    if any(reading.answer == "all" for reading in readings):
        try:
            return find_in_two_passes(asked, generator)
        except NotSequential as error:
            reasons.append(f"in two passes, {error}")
    raise Refused(f"the function is no column task in any direction: {'; '.join(reasons)}")


def readings_of(asked: AskedFunction, generator: random.Random) -> list[Reading]:
    """The readings that are tried: a symbol for each column, then one symbol, if the answers are few."""
    words = asked.words
    asked_words = [words.random_word(generator, 1, 6) for _ in range(200)]
    asked_words += [(letter,) * length for letter in (0, words.count - 1) for length in (1, 2, 5, 30)]
    samples = [asked(word) for word in asked_words]
    are_texts = [isinstance(answer, str) for answer in samples if answer != OUTSIDE]
    if any(are_texts) and not all(are_texts):
        raise Refused("the function answers some questions with a text and others with a number: let it be one of them")
    has_few = len(set(samples)) <= MOST_SYMBOLS // 2
    if len(set(samples)) == 1:
        _, every = exhaustive_words(words)
        other = next(
            (word for word in (*words.notable_words(), *words.singled_out, *every) if asked(word) != samples[0]), None
        )
        samples += [] if other is None else [asked(other)]
    if len(set(samples)) == 1:
        raise Refused(
            f"the function answers {shown(samples[0])} to all words that were tried: say by --domain, a regular expression, "
            "which texts it takes, or by --alphabet or --base over which symbols answers differ"
        )
    if not has_few:
        for word in asked_words:
            _check_answer(asked, word)
    directions = ("ones_first", "top_first") if words.are_numbers else ("top_first", "ones_first")
    readings = []
    if words.are_numbers != all(are_texts) and not asked.are_booleans:
        readings = [Reading(asked, direction, "all") for direction in directions]
    if has_few:
        readings += [Reading(asked, direction, "last") for direction in ("top_first", "ones_first")]
    return readings


def _check_answer(asked: AskedFunction, word: Word) -> None:
    """Raise `Refused` if an answer can be written neither as one symbol, since there are many, nor column by column."""
    answer, are_numbers = asked(word), asked.words.are_numbers
    if isinstance(answer, str) == are_numbers:
        kind, other = ("numbers", "texts") if are_numbers else ("texts", "numbers")
        raise Refused(f"{asked.equation(word)}: a function of {kind} must answer with {kind}, or with few different {other}")
    if isinstance(answer, int) and answer < 0:
        raise Refused(
            f"{asked.equation(word)} is negative, and numbers are written without a sign: let the function return abs(...), "
            "or max(0, ...); its sign, such as (a > b) - (a < b), may be a task of its own"
        )
    if isinstance(answer, str) and len(answer) != len(word):
        raise Refused(
            f"{asked.equation(word)} has {len(answer)} symbols for {len(word)}: let the function return one symbol for each "
            "column, or few different values"
        )
    if illegal := [symbol for symbol in str(answer) if not is_legal(symbol)]:
        raise Refused(
            f"{asked.equation(word)} has the symbol {illegal[0]!r}, which is reserved: let the function write another"
        )


def find_in_one_pass(reading: Reading, generator: random.Random) -> tuple[Finding, Tests]:
    """The pass of a reading.

    Raises:
        NotSequential: the function is not sequential in it.
    """
    words = reading.asked.words
    learner = MachineLearner(reading, generator)
    machine = minimised(learner.learn())
    flush, writes = 0, words.alphabet
    legend: dict[str, str] = {}
    if reading.writes_digits:
        flush = flush_of(machine) if reading.direction == "ones_first" else 0
    else:
        machine, writes, legend = _named(reading, machine)
    only = pass_of(machine, writes, reading.direction, range(words.operands), flush)
    found = found_in_words(machine.states, words, reading.direction, flush, reading.answer)
    return Finding((only,), reading.answer, found, legend), learner.tests


def find_in_two_passes(asked: AskedFunction, generator: random.Random) -> tuple[Finding, Tests]:
    """Two passes in two directions.

    Raises:
        NotSequential: there are none, or an answer does not have a symbol for each column.
    """
    words, learner = asked.words, TwoPassLearner(asked, generator)
    two = learner.learn()
    below, writes, flush = two.below, words.alphabet, 0
    if words.are_numbers:
        flush = flush_of(below)
    else:
        below, writes, _ = _named(learner.reading, below)
    first = pass_of(two.above, symbols_of_states(two.classes), "top_first", range(words.operands))
    second = pass_of(below, writes, "ones_first", range(words.operands + 1), flush)
    found = (
        f"two passes: {count_of(two.classes, 'class', 'es')} of what is above, {order_of(words, 'top_first')}; then "
        f"{found_in_words(below.states, words, 'ones_first', flush)}"
    )
    return Finding((first, second), "all", found), learner.tests


def _named(reading: Reading, machine: Machine) -> tuple[Machine, str, dict[str, str]]:
    """A machine whose symbols are in order, the symbols, and the legend of those that do not stand for themselves.

    A text that is read from its end must not look like a number: there the first symbol is not the one that pads.
    """
    legend: dict[str, str] = {}
    values = sorted(reading.values, key=lambda value: (isinstance(value, str), value))
    if reading.answer == "all":
        padding = reading.asked.words.alphabet[0]
        if reading.direction == "ones_first" and values[0] == padding:
            values = values[1:] + values[:1] if len(values) > 1 else ["_", padding]
        writes = "".join(map(str, values))
    else:
        writes, legend = symbols_of_values(values)
    numbers = [values.index(value) for value in reading.values]
    return replace(machine, write=[[numbers[symbol] for symbol in row] for row in machine.write]), writes, legend


def compare_answers(task: ColumnTask, finding: Finding, asked: AskedFunction) -> int:
    """Compare whole answers of the task, as a person reads them, with the function; return how many.

    Raises:
        Refused: one differs.
    """
    generator, words = random.Random(1), asked.words
    _, every = exhaustive_words(words, ANSWERS_COMPARED // 2)
    chosen: list[Word] = list(every)[: ANSWERS_COMPARED // 2]
    chosen += [words.random_word(generator, 1, 100) for _ in range(ANSWERS_COMPARED - len(chosen))]
    for word in chosen:
        answer = task.answer_to(task.sign.join(words.texts(word)))
        value = finding.legend.get(answer, answer)
        if finding.answer == "all" and words.are_numbers:
            value = str(int(answer, words.base))
        if value != str(asked(word)):
            raise Refused(
                f"{asked.equation(word)}, and the machine that agrees with the function on all words before answers "
                f"{answer!r} ({finding.found}): what must be remembered may grow with the width"
            )
    return len(chosen)
