"""A proof about a machine, beyond the words that were checked: a linear function, by the identity of each entry."""

# Used by: data/learning, hub_cards/checkpoints, hub_cards/publishing. Changed freely.

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from longhand.data.digits import DIGITS
from longhand.data.learning.questions.words import LETTERS, number_as_text
from longhand.data.machines.table import Table, step_of
from longhand.data.tasks.column_task import ColumnTask
from longhand.data.tasks.task import Task
from longhand.modeling.transducer import Transducer

NOTHING_PROVED = "nothing more: that it computes the function on every word rests on what was checked"

ANSWERS_COMPARED = 100
"""Whole answers of a task that are compared with the formula of a linear function."""

LONGEST_COMPARED = 60
"""The digits of their longest operands."""


@dataclass(frozen=True)
class Linear:
    """The function a_1 x_1 + ... + a_n x_n + constant."""

    coefficients: tuple[int, ...]
    constant: int

    @property
    def is_sum(self) -> bool:
        """Whether the operands are added, and nothing else."""
        return set(self.coefficients) == {1} and self.constant == 0

    def value(self, numbers: Sequence[int]) -> int:
        """The function of these numbers."""
        return sum(factor * number for factor, number in zip(self.coefficients, numbers, strict=True)) + self.constant

    def sentence(self, base: int) -> str:
        """The proved statement about the machine, for a card. The operands are a, b, c in the order of a question."""
        names = LETTERS[: len(self.coefficients)]
        terms = " + ".join(f"{factor} {name}" for factor, name in zip(self.coefficients, names, strict=True))
        return (
            f"the machine is {terms} + {self.constant} for numbers of every width: each of its entries fits {terms} + carry "
            f"= digit + {base} next carry, where {', '.join(names)} are digits, the first carry is {self.constant}, and the "
            "last one, behind all that is written, is 0"
        )


def proved_of(task: Task) -> str:
    """What is proved of the machine of a task, derived here from its table alone.

    Raises:
        ValueError: a whole answer of the task is another one than the formula's, so there is a fault in the proof.
    """
    if not isinstance(task, ColumnTask) or task.one_length:
        return NOTHING_PROVED
    linear = linear_in_table(task.transducer)
    if linear is None:
        return NOTHING_PROVED
    _compare_answers(task, linear)
    return linear.sentence(len(task.alphabet))


def linear_in_table(table: Transducer) -> Linear | None:
    """The linear function that the passes of a table compute together; None if they compute none."""
    joined = _joined_passes(table)
    if joined is None:
        return None
    return linear_function(*joined, len(table.alphabet), table.operands, table.passes[-1].flush)


def linear_function(write: Table, following: Table, base: int, operands: int, flush: int) -> Linear | None:
    """The linear function that a machine with its start at the ones computes; None if it computes none.

    Let c be the carry of a state. If a_1 d_1 + ... + a_n d_n + c = digit + base * c' in every entry, where c' is the carry
    of the next state, then the digits that are written, and base**columns times the last carry, add up to the function, by
    induction over columns. The machine writes as many columns as the longest operand has digits, and `flush` more. So the
    digits are the function if, from each state behind a column, the last carry of the flush is 0.

    Args:
        write, following: (states, letters) digits, and next states, of the machine; state 0 is the first one.
        flush: columns that are written after the operands, in which every digit is 0.
    """
    letters = list(product(range(base), repeat=operands))
    units = [base**place for place in reversed(range(operands))]
    constant, *values = (_value(write, following, letter, base, flush) for letter in (0, *units))
    coefficients = tuple(value - constant for value in values)
    carries = {0: constant}
    behind = set[int]()
    queue = [0]
    for state in queue:
        for letter, digits in enumerate(letters):
            total = sum(factor * digit for factor, digit in zip(coefficients, digits, strict=True)) + carries[state]
            carry, remainder = divmod(total - write[state][letter], base)
            after = following[state][letter]
            if after not in carries:
                queue.append(after)
            if remainder or carries.setdefault(after, carry) != carry:
                return None
            behind.add(after)
    for _ in range(flush):
        behind = {following[state][0] for state in behind}
    return None if any(carries[state] for state in behind) else Linear(coefficients, constant)


def _value(write: Table, following: Table, letter: int, base: int, flush: int) -> int:
    """The number that a machine writes for a word of one column."""
    state, value = 0, 0
    for place, read in enumerate([letter] + [0] * flush):
        value += write[state][read] * base**place
        state = following[state][read]
    return value


def _joined_passes(table: Transducer) -> tuple[Table, Table] | None:
    """The tables `write` and `next` of one machine that does what all passes do; its states are tuples of theirs.

    None if the machine does not begin at the ones, or does not write numbers.
    """
    alphabet, last = table.alphabet, table.passes[-1]
    are_numbers = len(alphabet) > 1 and alphabet == last.writes == DIGITS[: len(alphabet)]
    as_one = all((table_pass.direction, table_pass.flush) == ("ones_first", last.flush) for table_pass in table.passes)
    if not are_numbers or not as_one or table.answer != "all":
        return None
    steps = [step_of(table_pass.write, table_pass.next, table.sizes(place)) for place, table_pass in enumerate(table.passes)]
    numbers = {tuple(table_pass.start for table_pass in table.passes): 0}
    write, following = list[list[int]](), list[list[int]]()
    # States are added while they are looked at.
    for states in (queue := list(numbers)):
        write.append([])
        following.append([])
        for digits in product(range(len(alphabet)), repeat=table.operands):
            seen, after = list(digits), []
            for table_pass, step, state in zip(table.passes, steps, states, strict=True):
                symbol, following_state = step(state, [seen[source] for source in table_pass.reads])
                seen.append(symbol)
                after.append(following_state)
            key = tuple(after)
            if key not in numbers:
                numbers[key] = len(numbers)
                queue.append(key)
            write[-1].append(seen[-1])
            following[-1].append(numbers[key])
    return write, following


def _compare_answers(task: ColumnTask, linear: Linear) -> None:
    """Raise ValueError unless whole answers of a task, as a person reads them, are those of a linear function."""
    generator, base = random.Random(0), len(task.alphabet)
    for _ in range(ANSWERS_COMPARED):
        widths = [generator.randint(1, LONGEST_COMPARED) for _ in range(task.operands)]
        symbols = generator.choice((task.alphabet, task.alphabet[0] + task.alphabet[-1]))
        operands = ["".join(generator.choices(symbols, k=width)) for width in widths]
        question, value = task.sign.join(operands), linear.value([int(operand, base) for operand in operands])
        if (answer := task.answer_to(question)) != number_as_text(value, task.alphabet):
            raise ValueError(
                f"the machine of {task.name!r} answers {answer!r} to {question!r}, and its entries say {value} in base 10"
            )
