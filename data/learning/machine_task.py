"""The column task of a machine that was found: its passes as tables, its symbols and its sign."""

# Used by: example_machines.py, examples.py, learn.py, locality.py, hub_cards/training. Changed freely.

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from longhand.data.digits import DIGITS
from longhand.data.learning.machines import MOST_STATES, Machine
from longhand.data.learning.questions.functions import Refused
from longhand.data.learning.questions.readings import NotSequential
from longhand.data.learning.questions.words import Words
from longhand.data.machines.table import pairs_of
from longhand.data.tasks.column_task import SETTLING, STATES, ColumnTask, column_passes, task_class
from longhand.modeling.transducer import RESERVED, Pass, Transducer

SYMBOLS = DIGITS + DIGITS[10:].upper() + "".join(map(chr, range(0x100, 0x200)))
"""Symbols of states, classes and answers that have no symbol of their own; the first ones are digits."""

SIGNS = ",;&|:"
"""Signs between operands that are not added: the first of these that no word has."""


@dataclass(frozen=True)
class Finding:
    """A machine that was found.

    Attributes:
        passes: of the task.
        answer: as of `ColumnTask`.
        found: the machine in words.
        legend: as of `Report`.
    """

    passes: tuple[Pass, ...]
    answer: str
    found: str
    legend: dict[str, str] = field(default_factory=dict)


def pass_of(machine: Machine, writes: str, direction: str, reads: Sequence[int], flush: int = 0) -> Pass:
    """A machine as a pass, which begins in state 0; its window is searched when it is the pass of a task."""
    return Pass(writes, direction, flush, 0, (1, 1), False, machine.write, machine.next, tuple(reads))


def symbols_of_states(count: int) -> str:
    """A symbol for each state of a pass that writes its states.

    Raises:
        Refused: there are too many.
    """
    if count > MOST_STATES:
        raise Refused(f"{count:,} states would be written, and there are {MOST_STATES} symbols at most")
    return SYMBOLS[:count]


def symbols_of_values(values: Sequence[int | str]) -> tuple[str, dict[str, str]]:
    """A symbol for each value of an answer that is one symbol, and the values whose symbol is another, by symbol.

    A digit or a character stands for itself. Other numbers have the digit of that value in the largest base, texts their
    first character if these differ, and what is left has symbols that are free.
    """
    initials = [str(value)[:1] for value in values]
    initials_differ = len(set(initials)) == len(values) and all(isinstance(value, str) for value in values)

    def wanted(value: int | str) -> str:
        if isinstance(value, str):
            return value[:1] if initials_differ else value
        if value == -1:
            return "-"
        return SYMBOLS[value] if 0 <= value < len(SYMBOLS) else ""

    symbols = [wanted(value) for value in values]
    taken = set(symbols)
    free = (symbol for symbol in SYMBOLS[10:] + SYMBOLS[:10] if symbol not in taken)
    symbols = [symbol if is_legal(symbol) else next(free) for symbol in symbols]
    legend = {symbol: str(value) for symbol, value in zip(symbols, values, strict=True) if symbol != str(value)}
    return "".join(symbols), legend


def is_legal(symbol: str) -> bool:
    """Whether a symbol may stand in an alphabet and is no blank `_`."""
    return len(symbol) == 1 and symbol not in RESERVED + "_" and symbol.isprintable() and not symbol.isspace()


def sign_between(words: Words, passes: Iterable[Pass], is_sum: bool) -> str:
    """The sign between operands: `+` in sums, `,` in all else, as between the arguments of a function."""
    if words.operands == 1:
        return ""
    taken = words.alphabet + "".join(table_pass.writes for table_pass in passes)
    return next(sign for sign in ("+" if is_sum else "") + SIGNS if sign not in taken)


def flush_of(machine: Machine) -> int:
    """Columns in which a machine goes on writing after the operands, where it reads symbol 0 alone.

    Raises:
        NotSequential: it goes on for ever.
    """
    quiet = set(range(machine.states))
    while True:
        kept = {state for state in quiet if machine.write[state][0] == 0 and machine.next[state][0] in quiet}
        if kept == quiet:
            break
        quiet = kept
    flush = 0
    for state in range(machine.states):
        columns, after = 0, state
        while after not in quiet:
            columns, after = columns + 1, machine.next[after][0]
            if columns > machine.states:
                raise NotSequential(
                    "an answer is never written to its end: it has digits in every column above the operands"
                )
        flush = max(flush, columns)
    return flush


def with_states(passes: tuple[Pass, ...], operands: int) -> tuple[Pass, ...]:
    """The same, with a pass before the last one that writes the state behind each column.

    It writes the state together with the symbol of the column, as one symbol, so that the last pass has to see
    nothing else, as in `written_states.py`. If these pairs are too many, the state before the column is written alone, and
    the last pass reads it with the column. In both cases a window of few columns suffices.
    """
    *before, last = passes
    place, pairs = operands + len(before), pairs_of(last.write, last.next)
    if len(pairs) <= MOST_STATES:
        numbers = {pair: number for number, pair in enumerate(pairs)}
        rows = zip(last.write, last.next, strict=True)
        write = [[numbers[pair] for pair in zip(*row, strict=True)] for row in rows]
        writing = replace(last, write=write, writes=symbols_of_states(len(pairs)))
        shown = [[symbol for symbol, _ in pairs]]
        return (*before, writing, replace(last, write=shown, next=[[0] * len(pairs)], reads=(place,)))
    states, inputs = range(len(last.write)), range(len(last.write[0]))
    writing = replace(last, write=[[state] * len(inputs) for state in states], writes=symbols_of_states(len(states)))
    answers = [[last.write[state][column] for column in inputs for state in states]]
    return (*before, writing, replace(last, write=answers, next=[[0] * len(answers[0])], reads=(*last.reads, place)))


def check_name(name: str) -> None:
    """Raise `Refused` if a name cannot be that of a task that is learned."""
    if not re.fullmatch(r"[^\W\d]\w*", name) or name.startswith((SETTLING, STATES)):
        raise Refused(f"the name of a task must be a word of letters, digits and _, such as my_task, got {name!r}")


def build(name: str, words: Words, sign: str, answer: str, passes: Sequence[Pass], about: str) -> ColumnTask:
    """The task of these passes.

    Raises:
        Refused: the name cannot be that of a task.
    """
    check_name(name)
    table = Transducer(words.alphabet, words.operands, sign, answer, tuple(passes))
    columns = tuple(replace(table_pass, window=None) for table_pass in column_passes(table))
    one_length = words.operands > 1 and not words.are_numbers
    return task_class(name, table, {"passes": columns, "one_length": one_length, "__doc__": about})()
