"""From questions and answers alone to a task: the smallest machine that merging of states finds (RPNI, in AALpy)."""

# Used by: hub_cards/research/theories, hub_cards/training. Changed freely.

import csv
import io
import json
import math
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from aalpy.learning_algs import run_RPNI

from longhand.data.digits import DIGITS
from longhand.data.learning.locality import layout_of_passes
from longhand.data.learning.machine_task import build, pass_of, sign_between, symbols_of_values
from longhand.data.learning.machines import Machine, minimised
from longhand.data.learning.proof import Linear, linear_function, proved_of
from longhand.data.learning.questions.functions import SECONDS, OutOfTime, Refused, alarm
from longhand.data.learning.questions.readings import is_written
from longhand.data.learning.questions.words import Word, Words
from longhand.data.learning.report import Learned, Report, count_of, more_of, order_of
from longhand.data.tasks.column_task import ColumnTask
from longhand.modeling.transducer import MOST_SYMBOLS, Pass

HELD_OUT = 10
"""One example in so many is held out, to test the machine."""

TWO_PASSES = "two passes in two directions, as |a - b| needs them, are found from a function alone (--function)"
"""What a message says where one direction is not enough."""

SHOWN = 5
"""Entries that a message names."""

UNKNOWN = -1
"""Stands in entries of a table that no example reaches."""

FEWEST = 2 * HELD_OUT
"""Fewer different examples are refused."""

FEWEST_OF_EACH = 10
"""An answer that is one symbol must stand in so many examples; else nobody knows when it is right."""

TOLD = 2
"""Examples of answers that are one symbol must tell so many times the bits that describe the machine: a machine that only
remembers its examples agrees with them too."""

ONES_FIRST, TOP_FIRST = "ones_first", "top_first"


SEPARATORS = ",;\t"
"""Signs between the columns of a table; the one that the first line has most often is taken."""

DEFAULT_BASE = 10
MOST_PARTS = 16
"""Parts of the examples of which a machine is merged, to find wrong ones."""

LINEAR_TRIES = 60
"""Parts of the examples from which the coefficients of a linear function are found, to find wrong ones among few."""

LARGEST_FITTED = 10**100
"""Numbers by which coefficients are found."""

MOST_NAMED = 5
"""Wrong examples that a message names."""


class Example(NamedTuple):
    """A question and its answer, as a person writes them, and the line of the file on which they stand; 0 for none."""

    question: str
    answer: str
    line: int = 0


def read_examples(file: Path) -> list[Example]:
    """The examples in a file, each with the line on which it stands.

    A line is an object with `question` and `answer` (.jsonl), or a row of a table with these columns, which commas,
    semicolons or tabs part (.csv, .tsv). Spaces around a question and an answer, and blank lines, are left out.

    Raises:
        Refused: the file cannot be read, or a line is no example.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
        rows = _rows_of_table(text) if file.suffix in (".csv", ".tsv") else _rows_of_objects(text)
    except (OSError, ValueError, csv.Error) as error:
        raise Refused(f"{file} cannot be read as {file.suffix.removeprefix('.') or 'jsonl'}: {error}") from error
    examples = []
    for line, row in rows:
        if not isinstance(row, dict) or not all(isinstance(row.get(name), str | int) for name in Example._fields[:2]):
            shown_row = {name: value for name, value in row.items() if name is not None} if isinstance(row, dict) else row
            raise Refused(
                f'{file}, line {line}: it must be like {{"question": "12+34", "answer": "46"}}, got {shown_row!r:.80}'
            )
        examples.append(Example(str(row["question"]).strip(), str(row["answer"]).strip(), line))
    if not examples:
        raise Refused(f"{file} holds no example")
    return examples


def _rows_of_objects(text: str) -> list[tuple[int, Any]]:
    """The lines of JSON in a text, by number."""
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            rows.append((number, json.loads(line, object_pairs_hook=_object_of)))
        except json.JSONDecodeError as error:
            raise ValueError(f"line {number} is no JSON: {error}") from error
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
    return rows


def _check_once(names: Sequence[str]) -> None:
    """Raise ValueError if the question or the answer has several values."""
    if repeated := [name for name in Example._fields[:2] if names.count(name) > 1]:
        raise ValueError(f"it has {repeated[0]} {names.count(repeated[0])} times: leave one of them")


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object of these pairs."""
    _check_once([name for name, _ in pairs])
    return dict(pairs)


def _rows_of_table(text: str) -> list[tuple[int, Any]]:
    """The rows of a table in a text, by number; the sign of its first line parts its columns."""
    head = text.partition("\n")[0]
    sign = max(SEPARATORS, key=head.count)
    reader = csv.reader(io.StringIO(text), delimiter=sign, skipinitialspace=True)
    names: list[str] | None = None
    rows = []
    for row in reader:
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if names is None:
            names = [cell.lower() for cell in cells]
            if missing := [name for name in Example._fields[:2] if name not in names]:
                raise ValueError(
                    f"its first line must name the columns question and answer, got {head.strip()!r:.60}: "
                    f"{missing[0]} is missing"
                )
            _check_once(names)
        elif len(cells) != len(names):
            raise ValueError(
                f"line {reader.line_num} has {len(cells)} columns and the first line {len(names)}, parted by {sign!r}: "
                "quote a question that has this sign, or take another one"
            )
        else:
            record = dict(zip(names, cells, strict=True))
            if open_cells := [name for name in Example._fields[:2] if "\n" in record[name]]:
                raise ValueError(
                    f"the {open_cells[0]} that ends on line {reader.line_num} begins on another: a quote is not closed"
                )
            rows.append((reader.line_num, record))
    return rows


@dataclass(frozen=True)
class Trace:
    """An example in one reading: letters and written symbols, in the order of reading."""

    example: Example
    letters: tuple[int, ...]
    written: tuple[int, ...]


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
    merged.check_held_out()
    reading, words, machine = merged.reading, merged.reading.words, minimised(merged.machine)
    linear = linear_in(reading, machine)
    passes = (pass_of(machine, reading.symbols, reading.direction, range(words.operands), reading.flush),)
    found = f"{count_of(machine.states, 'state')}, {order_of(words, reading.direction)}{more_of(reading.flush)}"
    found += "; the answer is one symbol" if reading.answer == "last" else ""
    sign = reading.sign
    if sign and not is_written(sign):
        sign = sign_between(words, passes, is_sum=False)

    def task_with(passes: tuple[Pass, ...], found: str) -> ColumnTask:
        return build(name, words, sign, reading.answer, passes, f"{source}: {found}.")

    task, found = layout_of_passes(passes, found, task_with, words.operands, write_states)
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

    reading: "ExampleReading"
    machine: Machine
    missing: Sequence[tuple[int, int]]
    used: Sequence[Example]
    held_out: Sequence[Example]

    def check_held_out(self) -> None:
        """Raise `Refused` if the machine does not answer an example that was held out."""
        failing = [example for example in self.held_out if not self.reading.agrees(self.machine, example)]
        if failing:
            raise Refused(
                f"{len(failing)} of {len(self.held_out)} examples that were held out are not answered by the machine of "
                f"{self.machine.states} states that agrees with the others, such as {shown(failing[0])}: give more of them"
            )

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
    """Merge a machine from most of the examples.

    Raises:
        Refused: there is none.
    """
    shuffled, held_out, used = parted(examples)
    return Merged(*read_in_some_way(shuffled, used, base, alphabet, complete), used, held_out)


def parted(examples: Sequence[Example]) -> tuple[list[Example], list[Example], list[Example]]:
    """Examples in an order that has no meaning, those of them that are held out, and the others."""
    shuffled = sorted(examples, key=lambda example: example[:2])
    random.Random(0).shuffle(shuffled)
    used = [example for place, example in enumerate(shuffled) if place % HELD_OUT]
    return shuffled, shuffled[::HELD_OUT], used


def base_of(examples: Sequence[Example]) -> tuple[int, str] | None:
    """The base of examples that have the digits of a smaller base than 10 alone, and why; None if there are others.

    A base is taken only if a machine of a linear function agrees with the examples in it, and with fewer states than in base
    10: numbers of few digits may be chance.
    """
    digits = {symbol for example in examples for text in example[:2] for symbol in text if symbol.isalnum()}
    if not digits or not digits <= set(DIGITS[: DEFAULT_BASE - 1]):
        return None
    base = max(2, 1 + max(map(DIGITS.index, digits)))
    _, held_out, used = parted(examples)
    if _fits(used, held_out, base, None) and not _fits(used, held_out, DEFAULT_BASE, None):
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
    _, held_out, used = parted(order)
    if len(order) < FEWEST or (not disputed and _fits(used, held_out, base, alphabet)):
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


def _is_right(reading: "ExampleReading", machine: Machine, example: Example) -> bool:
    """Whether a machine answers an example rightly, which may have a symbol or an answer that the machine does not know."""
    try:
        return reading.agrees(machine, example)
    except ValueError:
        return False


def numbers_of(example: Example, words: Words, sign: str) -> list[int]:
    """The operands of an example as numbers."""
    return [int(operand, words.base) for operand in operands_of(example, sign)]


def fitted_linear(examples: Sequence[tuple[Sequence[int], int]]) -> Linear | None:
    """The linear function that is nearest to examples, operands and a value each, its coefficients rounded.

    None if a coefficient is negative, or if numbers are beyond floats.
    """
    rows, values = [[*numbers, 1] for numbers, _ in examples], [value for _, value in examples]
    if max(map(max, [*rows, values])) > LARGEST_FITTED:
        return None
    solution = np.linalg.lstsq(np.array(rows, dtype=float), np.array(values, dtype=float), rcond=None)[0]
    *coefficients, constant = (round(number) for number in solution)
    return Linear(tuple(coefficients), constant) if min(*coefficients, constant) >= 0 else None


def _fits(used: Sequence[Example], held_out: Sequence[Example], base: int, alphabet: str | None) -> bool:
    """Whether a machine of the examples that are used answers those that are held out."""
    try:
        reading, machine, _ = read_in_some_way([*used, *held_out], used, base, alphabet, complete=False)
    except Refused:
        return False
    return all(reading.agrees(machine, example) for example in held_out)


@dataclass(frozen=True)
class ExampleReading:
    """How examples are read.

    Attributes:
        flush: columns that the longest answer has more than its operands.
        symbols: the symbols that are written.
        answer: as of `ColumnTask`.
        values: of an answer that is one symbol, what each symbol stands for.
        legend: as of `Report`.
    """

    words: Words
    sign: str
    direction: str
    flush: int
    symbols: str
    answer: str = "all"
    values: tuple[str, ...] = ()
    legend: dict[str, str] = field(default_factory=dict)

    def letters(self, example: Example) -> Word:
        """The columns of an example in the order of reading."""
        letters = (0,) * self.flush + self.words.columns(operands_of(example, self.sign))
        return letters[:: -1 if self.direction == ONES_FIRST else 1]

    def trace(self, example: Example) -> Trace:
        """An example in the order of reading."""
        words, letters = self.words, self.letters(example)
        answer = example.answer
        if words.are_numbers:
            answer = answer.lstrip(words.alphabet[0]).rjust(len(letters), words.alphabet[0])
        written = tuple(self.symbols.index(symbol) for symbol in answer)
        return Trace(example, letters, written[:: -1 if self.direction == ONES_FIRST else 1])

    def agrees(self, machine: Machine, example: Example) -> bool:
        """Whether a machine answers an example rightly."""
        if self.answer == "last":
            return machine.written(self.letters(example))[-1] == self.values.index(example.answer)
        trace = self.trace(example)
        return machine.written(trace.letters) == trace.written

    def spread(self, examples: Sequence[Example]) -> str:
        """How often answers that are one symbol stand in examples, in words: if nearly all are alike, they say little."""
        if self.answer == "all":
            return ""
        counts = Counter(example.answer for example in examples).most_common()
        fewest = "" if len(counts) == 1 else f" and the rarest one, {counts[-1][0]!r}, {counts[-1][1]:,}"
        return f" (the answer {counts[0][0]!r} stands in {counts[0][1]:,} of these{fewest})"


def read_in_some_way(
    examples: Sequence[Example], used: Sequence[Example], base: int, alphabet: str | None, complete: bool
) -> tuple[ExampleReading, Machine, list[tuple[int, int]]]:
    """The first way to read the examples in which a machine agrees with those that are used: with a symbol for each column,
    then, if there are few answers, with one symbol. Returns the reading, the machine, and the entries that were completed.

    Raises:
        Refused: there is none.
    """
    words, sign = words_of(examples, base, alphabet, by_answers=True)
    if len(examples) < FEWEST:
        found = "there is 1 example" if len(examples) == 1 else f"there are {len(examples)} different examples"
        raise Refused(f"{found}: give {FEWEST} or more")
    has_few = len({example.answer for example in examples}) <= min(MOST_SYMBOLS // 2, len(examples) // FEWEST_OF_EACH)
    try:
        reading, machine = read_in_a_direction(examples, used, words, sign)
        missing = missing_entries(machine)
        if not missing:
            check_longest(reading, machine, examples, used)
            return reading, machine, missing
        if not complete:
            raise Refused(describe_missing(missing, machine, words, len(used), may_be_linear=words.are_numbers))
        return reading, completed_by_identity(machine, reading, used), missing
    except Refused:
        if not has_few or complete:
            raise
    words, sign = words_of(examples, base, alphabet, by_answers=False)
    reading, machine = read_for_one_symbol(examples, used, words, sign)
    if missing := missing_entries(machine):
        raise Refused(describe_missing(missing, machine, words, len(used), may_be_linear=False))
    described, told = bits_of(machine, reading), len(used) * entropy(used)
    if told < TOLD * described:
        raise Refused(
            f"{len(used):,} examples tell {told:,.0f} bits, and the machine of {machine.states:,} states that agrees "
            f"with them takes {described:,.0f}: give {math.ceil(len(used) * TOLD * described / told):,} examples or more"
        )
    check_longest(reading, machine, examples, used)
    return reading, machine, missing


def check_longest(reading: ExampleReading, machine: Machine, examples: Sequence[Example], used: Sequence[Example]) -> None:
    """Raise `Refused` if the machine of shorter examples fails at longer ones: the states of a counter grow with the width.

    The widths from half of the widest on are tried. Beside the widest but one, a width counts only if its examples tell a
    machine. Entries that they do not reach say nothing.
    """
    widest = max(len(reading.letters(example)) for example in examples)
    needed = minimised(machine).states
    for width in range(widest - 1, widest // 2 - 1, -1):
        shorter = [example for example in used if len(reading.letters(example)) <= width]
        if not shorter:
            return
        smaller = merged_machine(reading, shorter)
        states = minimised(smaller).states
        # Fewer states are the sign of a counter, and need less evidence. Other faults may be those of too few examples.
        is_certain = reading.answer == "last" and (width == widest - 1 or tells(smaller, reading, shorter, TOLD))
        if not is_certain and not (states < needed and tells(smaller, reading, shorter, 1)):
            continue
        for example in examples:
            letters = reading.letters(example)
            path = [smaller.reached(letters[:end]) for end in range(len(letters))]
            entries = [smaller.write[state][letter] for state, letter in zip(path, letters, strict=True) if state != UNKNOWN]
            if UNKNOWN not in (*path, *entries) and not reading.agrees(smaller, example):
                raise Refused(
                    f"the machine that agrees with all examples of up to {width} columns has {states} states and fails at a "
                    f"longer one, {shown(example)}; that of all examples has {needed}: what must be remembered may grow "
                    "with the width, as that of a counter does, or there are too few examples"
                )


def merged_machine(reading: ExampleReading, examples: Sequence[Example]) -> Machine:
    """The machine that merging finds in some examples."""
    if reading.answer == "last":
        return merged_for_one_symbol(reading, examples)
    return merged([reading.trace(example) for example in examples], reading.words.count)


def tells(machine: Machine, reading: ExampleReading, examples: Sequence[Example], enough: int) -> bool:
    """Whether examples reach all entries of their machine, and tell so many times the bits that describe it."""
    if missing_entries(machine):
        return False
    if reading.answer == "last":
        return len(examples) * entropy(examples) >= enough * bits_of(machine, reading)
    written = Counter(symbol for example in examples for symbol in reading.trace(example).written)
    return entropy_of(written) * written.total() >= enough * bits_of(machine, reading)


def bits_of(machine: Machine, reading: ExampleReading) -> float:
    """The bits that describe the least machine that does the same."""
    states = minimised(machine).states
    letters = reading.words.count
    written = math.log2(len(reading.values)) if reading.answer == "last" else letters * math.log2(len(reading.symbols))
    return states * (letters * math.log2(states) + written)


def entropy(examples: Sequence[Example]) -> float:
    """The bits that an answer tells."""
    return entropy_of(Counter(example.answer for example in examples))


def entropy_of(counts: Counter) -> float:
    """The bits that one of the things tells that were counted."""
    total = counts.total()
    return sum(count / total * math.log2(total / count) for count in counts.values())


def read_for_one_symbol(
    examples: Sequence[Example], used: Sequence[Example], words: Words, sign: str
) -> tuple[ExampleReading, Machine]:
    """The direction, and the machine that merging finds in it, in which fewer entries are not reached; then, fewer states.

    Raises:
        Refused: an answer stands in too few examples.
    """
    counts = Counter(example.answer for example in examples)
    rarest, count = counts.most_common()[-1]
    if len(counts) == 1 or count < FEWEST_OF_EACH:
        raise Refused(
            f"the answer {rarest!r} stands in {count:,} of {len(examples):,} examples, and there are {len(counts)} answers: "
            f"give {FEWEST_OF_EACH} examples or more of each of two answers or more"
        )
    # 07 is a text, for a symbol of the number 7 would answer 7.
    are_numbers = all(answer.isdecimal() and answer == str(int(answer)) for answer in counts)
    values = sorted(counts, key=int) if are_numbers else sorted(counts)
    symbols, legend = symbols_of_values([int(value) for value in values] if are_numbers else values)
    found = []
    for direction in (TOP_FIRST, ONES_FIRST):
        reading = ExampleReading(words, sign, direction, 0, symbols, "last", tuple(values), legend)
        machine = merged_for_one_symbol(reading, used)
        found.append((len(missing_entries(machine)), machine.states, reading, machine))
    _, _, reading, machine = min(found, key=lambda entry: entry[:2])
    return reading, machine


def merged_for_one_symbol(reading: ExampleReading, examples: Sequence[Example]) -> Machine:
    """As `merged`, where only the last symbol that is written is known: the states of the machine have answers."""
    letters = reading.words.count
    data: dict[Word, int] = {}
    for example in examples:
        word = reading.letters(example)
        data[word] = reading.values.index(example.answer)
        if reading.words.are_numbers:
            # A number has the same answer with a zero on top.
            data[(0, *word) if reading.direction == TOP_FIRST else (*word, 0)] = data[word]
    model = run_RPNI([[word, answer] for word, answer in data.items()], "moore", print_info=False)
    order = _in_order(model.initial_state)
    numbers = {state: number for number, state in enumerate(order)}
    write = [[UNKNOWN] * letters for _ in order]
    following = [[UNKNOWN] * letters for _ in order]
    for number, state in enumerate(order):
        for letter, after in state.transitions.items():
            following[number][letter] = numbers[after]
            write[number][letter] = UNKNOWN if after.output is None else after.output
    return Machine(write, following)


def _in_order(start: Any) -> list[Any]:
    """The states of AALpy's machine, in the order in which a breadth-first search reaches them."""
    order = {start: None}
    queue = [start]
    for state in queue:
        for after in state.transitions.values():
            if after not in order:
                order[after] = None
                queue.append(after)
    return queue


def read_in_a_direction(
    examples: Sequence[Example], used: Sequence[Example], words: Words, sign: str
) -> tuple[ExampleReading, Machine]:
    """The first direction in which a machine agrees with the examples that are used, and the machine.

    Raises:
        Refused: there is none; the message shows two examples for each direction.
    """
    reasons = []
    for direction in (ONES_FIRST, TOP_FIRST) if words.are_numbers else (TOP_FIRST, ONES_FIRST):
        try:
            flush = flush_of(examples, words, sign, direction)
            symbols = words.alphabet if words.are_numbers else symbols_of(examples, words, direction)
            reading = ExampleReading(words, sign, direction, flush, symbols)
            found = reading, merged([reading.trace(example) for example in used], words.count)
        except NotFitting as error:
            reasons.append(f"{order_of(words, direction)}, {error}")
            continue
        return found if direction == TOP_FIRST else without_padding(found, examples, used)
    raise Refused(f"no machine with a symbol for each column agrees with the examples: {'; '.join(reasons)}; {TWO_PASSES}")


def without_padding(
    found: tuple[ExampleReading, Machine], examples: Sequence[Example], used: Sequence[Example]
) -> tuple[ExampleReading, Machine]:
    """A reading and its machine, or those in which zeros on top of a number are no columns that an answer may fill.

    Where operands are padded, no answer may be longer than they are as written. Yet 05+07 = 12 says that the sum of two
    numbers of one digit has two. The reading that leaves fewer entries unreached is taken, then that of fewer states: in it,
    a sum is an ordinary one, while one that wraps round at the width as written stays so.
    """
    reading, machine = found
    words = reading.words
    if not words.are_numbers:
        return found

    def bare(example: Example) -> Example:
        operands = [operand.lstrip(words.alphabet[0]) for operand in operands_of(example, reading.sign)]
        return example._replace(question=reading.sign.join(operand or words.alphabet[0] for operand in operands))

    flush = flush_of(list(map(bare, examples)), words, reading.sign, reading.direction)
    if flush <= reading.flush:
        return found
    other = replace(reading, flush=flush)
    try:
        longer = merged([other.trace(example) for example in used], words.count)
    except NotFitting:
        return found
    sizes = [(len(missing_entries(table)), table.states) for table in (longer, machine)]
    return (other, longer) if sizes[0] <= sizes[1] else found


class NotFitting(Exception):
    """The examples do not fit a reading."""


def words_of(examples: Sequence[Example], base: int, alphabet: str | None, by_answers: bool) -> tuple[Words, str]:
    """How questions are words, and the sign between operands.

    Args:
        by_answers: whether questions are numbers only if answers are.

    Raises:
        Refused: questions have several signs, or different numbers of operands; or one has two answers.
    """
    if not 2 <= base <= len(DIGITS):
        raise Refused(f"base must be 2 to {len(DIGITS)}, got {base}")
    answers: dict[str, str] = {}
    for question, answer, _ in examples:
        if answers.setdefault(question, answer) != answer:
            lines = [f"{example.answer!r}{_at_line(example)}" for example in examples if example.question == question]
            raise Refused(f"the question {question!r} has two answers, {' and '.join(sorted(set(lines))[:2])}")
    negative = next((example for example in examples if re.fullmatch("-[0-9]+", example.answer)), None)
    if by_answers and negative and len(set(answers.values())) > FEWEST_OF_EACH:
        raise Refused(
            f"{shown(negative)} is negative, and numbers are written without a sign: give the answers without it, and learn "
            "by other examples which questions have one, with the answers yes and no"
        )
    texts = list(map(text_of, answers))
    signs = sorted({symbol for text in texts for symbol in text if not symbol.isalnum() and symbol not in (alphabet or "")})
    if len(signs) > 1:
        raise Refused(f"the questions have the signs {' and '.join(map(repr, signs))}: one may stand between operands")
    sign = signs[0] if signs else ""
    counts = {text.count(sign) + 1 if sign else 1 for text in texts}
    if len(counts) > 1 or any(not part for text in texts for part in (text.split(sign) if sign else [text])):
        raise Refused(f"all questions must have one number of operands, with {sign!r} between them")
    symbols = set("".join(texts)) - {sign}
    if (
        alphabet is None
        and symbols <= set(DIGITS[:base])
        and (not by_answers or all(set(answer) <= set(DIGITS[:base]) for answer in answers.values()))
    ):
        return Words(DIGITS[:base], counts.pop(), True), sign
    if alphabet is not None and not symbols <= set(alphabet):
        raise Refused(
            f"the questions have the symbol {min(symbols - set(alphabet))!r}, which is not in the alphabet {alphabet!r}"
        )
    words = Words(alphabet or "".join(sorted(symbols)), counts.pop(), False)
    uneven = [text for text in texts if len(set(map(len, text.split(sign) if sign else [text]))) > 1]
    # What is read as texts here may be read as numbers later.
    if uneven and not (by_answers and symbols <= set(DIGITS[:base])):
        raise Refused(f"the operands of {uneven[0]!r} are texts of different lengths: pad them to one length")
    return words, sign


def operands_of(example: Example, sign: str) -> list[str]:
    """The operands of a question."""
    text = text_of(example.question)
    return text.split(sign) if sign else [text]


def text_of(question: str) -> str:
    """A question without `=` at its end, and without spaces around a sign."""
    return re.sub(r"\s*([^\w\s])\s*", r"\1", question.strip().removesuffix("=").strip())


def flush_of(examples: Sequence[Example], words: Words, sign: str, direction: str) -> int:
    """Columns that the longest answer has more than its operands.

    Raises:
        NotFitting: there is no room for them, or texts have other lengths than their answers.
    """
    flush = 0
    for example in examples:
        widths = set(map(len, operands_of(example, sign)))
        if len(widths) > 1 and not words.are_numbers:
            raise NotFitting(f"the operands of {shown(example)} are texts of different lengths")
        width = max(widths)
        more = len(example.answer.lstrip(words.alphabet[0]) if words.are_numbers else example.answer) - width
        if (more > 0 and direction == TOP_FIRST) or (more and not words.are_numbers):
            raise NotFitting(
                f"{shown(example)} has another length than its operands (a number in another base needs --base)"
            )
        flush = max(flush, more)
    return flush


def symbols_of(examples: Sequence[Example], words: Words, direction: str) -> str:
    """The symbols of answers that are texts; read from the end, the first symbol is not the one that pads."""
    symbols = "".join(sorted({symbol for example in examples for symbol in example.answer}))
    if direction == ONES_FIRST and symbols[0] == words.alphabet[0]:
        return symbols[1:] + symbols[0] if len(symbols) > 1 else "_" + symbols
    return symbols


def merged(traces: Sequence[Trace], letters: int) -> Machine:
    """The machine that merging of states finds; `UNKNOWN` stands in entries that no trace reaches.

    Args:
        letters: how many letters there are.

    Raises:
        NotFitting: two examples begin alike, and their answers do not.
    """
    known: dict[tuple[int, ...], tuple[int, Example]] = {}
    for trace in traces:
        for end in range(1, len(trace.letters) + 1):
            written, other = known.setdefault(trace.letters[:end], (trace.written[end - 1], trace.example))
            if written != trace.written[end - 1]:
                raise NotFitting(
                    f"{shown(other)} and {shown(trace.example)} begin with the same columns, and are answered differently"
                )
    model = run_RPNI([[word, written] for word, (written, _) in known.items()], "mealy", print_info=False)
    order = _in_order(model.initial_state)
    numbers = {state: number for number, state in enumerate(order)}
    write = [[state.output_fun.get(letter, UNKNOWN) for letter in range(letters)] for state in order]
    following = [
        [numbers[state.transitions[letter]] if letter in state.transitions else UNKNOWN for letter in range(letters)]
        for state in order
    ]
    return Machine(write, following)


def missing_entries(machine: Machine) -> list[tuple[int, int]]:
    """The entries, a state and a letter each, that no example reaches."""
    rows = enumerate(machine.next)
    return [
        (state, letter)
        for state, row in rows
        for letter, after in enumerate(row)
        if UNKNOWN in (after, machine.write[state][letter])
    ]


def describe_missing(
    missing: Sequence[tuple[int, int]], machine: Machine, words: Words, count: int, may_be_linear: bool
) -> str:
    """Which entries no example reaches, as columns behind the shortest beginnings that examples have."""
    entries = machine.states * words.count
    listed = []
    for state, letter in missing[:SHOWN]:
        column = ", ".join(repr(words.alphabet[place]) for place in words.letters[letter])
        listed.append(f"column ({column}) in state {state}")
    if len(missing) > entries / 2:
        otherwise = "; --complete fills the entries of a linear function" if may_be_linear else ""
        return (
            f"{count:,} examples give a machine of {machine.states:,} states, and most of its {entries:,} entries are "
            "reached by none of them: either there are far too few examples, or what must be remembered grows with the width"
            f"{otherwise}"
        )
    more = " and so on" if len(missing) > SHOWN else ""
    otherwise = ", or complete a linear function by --complete" if may_be_linear else ""
    return (
        f"{count:,} examples give a machine of {machine.states} states, and {len(missing)} of its {entries:,} entries are "
        f"reached by none of them: {'; '.join(listed)}{more}; give examples that have them{otherwise}"
    )


def linear_in(reading: ExampleReading, machine: Machine) -> Linear | None:
    """The linear function that a machine computes in a reading; None if it computes none."""
    words = reading.words
    if not words.are_numbers or reading.answer != "all" or reading.direction != ONES_FIRST:
        return None
    return linear_function(machine.write, machine.next, words.base, words.operands, reading.flush)


def completed_by_identity(machine: Machine, reading: ExampleReading, examples: Sequence[Example]) -> Machine:
    """The machine with the entries that a linear function would have where no example reaches.

    Raises:
        Refused: the examples are of no linear function, or an entry leads to a state that was not found.
    """
    words = reading.words
    if not words.are_numbers:
        raise Refused("only a function of numbers is completed")
    read = [(numbers_of(example, words, reading.sign), int(example.answer, words.base)) for example in examples]
    linear = fitted_linear(read)
    if linear is None or any(linear.value(numbers) != value for numbers, value in read):
        raise Refused("the entries that no example reaches cannot be completed: the examples are of no linear function")
    carries = {0: linear.constant}
    for state in _reached_in_order(machine):
        for letter, after in enumerate(machine.next[state]):
            if after != UNKNOWN:
                rest = linear.value(words.letters[letter]) - linear.constant + carries[state] - machine.write[state][letter]
                carries.setdefault(after, rest // words.base)
    states = {carry: state for state, carry in carries.items()}
    write = [list(row) for row in machine.write]
    following = [list(row) for row in machine.next]
    for state, letter in missing_entries(machine):
        carry, digit = divmod(linear.value(words.letters[letter]) - linear.constant + carries[state], words.base)
        if carry not in states:
            raise Refused(f"no example reaches the carry {carry}, which is needed to complete the table")
        write[state][letter], following[state][letter] = digit, states[carry]
    completed = Machine(write, following)
    if linear_in(reading, minimised(completed)) is None:
        raise Refused("the entries that examples reach do not fit the identity of a linear function")
    return completed


def _reached_in_order(machine: Machine) -> list[int]:
    order = [0]
    for state in order:
        order += [after for after in dict.fromkeys(machine.next[state]) if after != UNKNOWN and after not in order]
    return order


def shown(example: Example) -> str:
    """An example as a person writes it, and where it stands."""
    return f"{example.question} = {example.answer}{_at_line(example)}"


def _at_line(example: Example) -> str:
    return f" (line {example.line:,})" if example.line else ""
