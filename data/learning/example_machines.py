"""How examples are read column by column, and the smallest machine that merging of states finds in them (RPNI, in AALpy)."""

# Used by: examples.py. Changed freely.

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from aalpy.learning_algs import run_RPNI

from longhand.data.digits import DIGITS
from longhand.data.learning.example_files import Example, at_line, shown
from longhand.data.learning.machine_task import symbols_of_values
from longhand.data.learning.machines import UNKNOWN, Machine, minimised, table_of
from longhand.data.learning.proof import Linear, linear_function
from longhand.data.learning.questions.functions import Refused
from longhand.data.learning.questions.words import Word, Words
from longhand.data.learning.report import order_of
from longhand.modeling.transducer import MOST_SYMBOLS

HELD_OUT = 10
"""One example in so many is held out, to test the machine."""

TWO_PASSES = "two passes in two directions, as |a - b| needs them, are found from a function alone (--function)"
"""What a message says where one direction is not enough."""

SHOWN = 5
"""Entries that a message names."""

FEWEST = 2 * HELD_OUT
"""Fewer different examples are refused."""

FEWEST_OF_EACH = 10
"""An answer that is one symbol must stand in so many examples; else nobody knows when it is right."""

TOLD = 2
"""Examples of answers that are one symbol must tell so many times the bits that describe the machine: a machine that only
remembers its examples agrees with them too."""

LARGEST_FITTED = 10**100
"""Numbers by which coefficients are found."""

ONES_FIRST, TOP_FIRST = "ones_first", "top_first"


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

    def trace(self, example: Example) -> tuple[Word, Word]:
        """The letters of an example and the symbols that are written, in the order of reading."""
        words, letters = self.words, self.letters(example)
        answer = example.answer
        if words.are_numbers:
            answer = answer.lstrip(words.alphabet[0]).rjust(len(letters), words.alphabet[0])
        written = tuple(self.symbols.index(symbol) for symbol in answer)
        return letters, written[:: -1 if self.direction == ONES_FIRST else 1]

    def agrees(self, machine: Machine, example: Example) -> bool:
        """Whether a machine answers an example rightly."""
        if self.answer == "last":
            return machine.written(self.letters(example))[-1] == self.values.index(example.answer)
        letters, written = self.trace(example)
        return machine.written(letters) == written

    def counts_zeros(self, examples: Sequence[Example]) -> bool:
        """Whether zeros in front of the operands of examples leave room for an answer, as in 000078+000046 = 124."""
        if not self.words.are_numbers or self.answer == "last" or self.flush:
            return False
        operands = (operand for example in examples for operand in operands_of(example, self.sign))
        return any(len(operand) > 1 and operand.startswith(self.words.alphabet[0]) for operand in operands)

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
    described, told = bits_of(machine, reading), bits_told(reading, used)
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
        smaller = merged(reading, shorter)
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


def tells(machine: Machine, reading: ExampleReading, examples: Sequence[Example], enough: int) -> bool:
    """Whether examples reach all entries of their machine, and tell so many times the bits that describe it."""
    return not missing_entries(machine) and bits_told(reading, examples) >= enough * bits_of(machine, reading)


def bits_of(machine: Machine, reading: ExampleReading) -> float:
    """The bits that describe the least machine that does the same."""
    states = minimised(machine).states
    letters = reading.words.count
    written = math.log2(len(reading.values)) if reading.answer == "last" else letters * math.log2(len(reading.symbols))
    return states * (letters * math.log2(states) + written)


def bits_told(reading: ExampleReading, examples: Sequence[Example]) -> float:
    """The bits that the symbols of the answers tell."""
    counts: Counter[str | int] = Counter()
    for example in examples:
        counts.update([example.answer] if reading.answer == "last" else reading.trace(example)[1])
    return sum(count * math.log2(counts.total() / count) for count in counts.values())


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
        machine = merged(reading, used)
        found.append((len(missing_entries(machine)), machine.states, reading, machine))
    _, _, reading, machine = min(found, key=lambda entry: entry[:2])
    return reading, machine


def _answer_behind(state: Any, letter: int) -> int:
    """The answer of the state of AALpy's Moore machine that follows a state; `UNKNOWN` if there is none."""
    after = state.transitions.get(letter)
    return UNKNOWN if after is None or after.output is None else after.output


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
            found = reading, merged(reading, used)
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
        longer = merged(other, used)
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
            lines = [f"{example.answer!r}{at_line(example)}" for example in examples if example.question == question]
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
        other_base = ", or give the base of numbers by --base" if symbols <= set(DIGITS) else ""
        raise Refused(f"the operands of {uneven[0]!r} are texts of different lengths: pad them to one length{other_base}")
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


def merged(reading: ExampleReading, examples: Sequence[Example]) -> Machine:
    """The machine that merging of states finds; `UNKNOWN` stands in entries that no example reaches.

    If the answer is one symbol, the states of the machine have answers, and it is known behind whole words alone.

    Raises:
        NotFitting: two examples begin alike, and their answers do not.
    """
    letters = reading.words.count
    if reading.answer == "last":
        model = run_RPNI(
            [[word, symbol] for word, symbol in _last_symbols(reading, examples).items()], "moore", print_info=False
        )
        return table_of(model, letters, _answer_behind)
    known: dict[Word, tuple[int, Example]] = {}
    for example in examples:
        word, written = reading.trace(example)
        for end, symbol in enumerate(written, 1):
            known_symbol, other = known.setdefault(word[:end], (symbol, example))
            if known_symbol != symbol:
                raise NotFitting(
                    f"{shown(other)} and {shown(example)} begin with the same columns, and are answered differently"
                )
    model = run_RPNI([[word, symbol] for word, (symbol, _) in known.items()], "mealy", print_info=False)
    return table_of(model, letters)


def _last_symbols(reading: ExampleReading, examples: Sequence[Example]) -> dict[Word, int]:
    """The symbol behind each word of examples; a number has the same one with a zero on top."""
    symbols: dict[Word, int] = {}
    for example in examples:
        word = reading.letters(example)
        symbols[word] = reading.values.index(example.answer)
        if reading.words.are_numbers:
            symbols[(0, *word) if reading.direction == TOP_FIRST else (*word, 0)] = symbols[word]
    return symbols


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
    # A state stands behind those that lead to it first.
    for state in range(machine.states):
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
    is_linear = linear_function(write, following, words.base, words.operands, reading.flush) is not None
    if reading.direction != ONES_FIRST or not is_linear:
        raise Refused("the entries that examples reach do not fit the identity of a linear function")
    return completed
