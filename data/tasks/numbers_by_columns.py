"""Small column tasks on numbers: sums in any base, one more, products with a constant, remainders, comparisons, bits.

Each task is a step on columns. Ids, window, neighbourhoods and certificate are derived (`column_task.py`).
"""

# Used by: whoever runs or imports it. Changed freely.

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from longhand.data.digits import DIGITS
from longhand.data.tasks.column_task import Automaton, ColumnPass, ColumnTask
from longhand.data.tasks.registry import register_task


@register_task
@dataclass(frozen=True)
class BaseAddition(ColumnTask):
    """Sums of two numbers in any base: in base 2, 101 + 1 = 110."""

    name = "base_addition"
    operands = 2
    sign = "+"
    flush = 1

    radix: int = field(default=16, metadata={"help": "base of the numbers, 2 to 36", "range": (2, len(DIGITS))})

    @property
    def alphabet(self):
        return DIGITS[: self.radix]

    def step(self, carry, symbols):
        total = sum(symbols) + carry
        return total % self.radix, total // self.radix

    def holds(self, state, symbols, written, following):
        return sum(symbols) + state == written + self.radix * following


@register_task
class PlusOne(ColumnTask):
    """A number and one more: 199 -> 200."""

    name = "plus_one"
    flush = 1
    start = 1
    example_question = "199"

    def step(self, carry, symbols):
        total = symbols[0] + carry
        return total % 10, total // 10

    def holds(self, state, symbols, written, following):
        return symbols[0] + state == written + 10 * following


@register_task
@dataclass(frozen=True)
class ConstantMultiplication(ColumnTask):
    """The product of a number and a constant: 12 -> 84 by 7. The state is the carry."""

    name = "constant_multiplication"

    factor: int = field(default=7, metadata={"help": "what numbers are multiplied with, at least 2", "range": (2, 1000)})

    @property
    def flush(self):
        return len(str(self.factor))

    def step(self, carry, symbols):
        total = self.factor * symbols[0] + carry
        return total % 10, total // 10

    def holds(self, state, symbols, written, following):
        return self.factor * symbols[0] + state == written + 10 * following


@dataclass(frozen=True)
class Residue(Automaton):
    """Base of the tasks that answer with a number modulo another one; what is left after each digit is written."""

    example_question = "1809"

    modulus: int = field(default=7, metadata={"help": "what numbers are divided by, 2 to 36", "range": (2, len(DIGITS))})

    @property
    def writes(self):
        return DIGITS[: self.modulus]


@register_task
class Remainder(Residue):
    """The remainder of a number: 1809 -> 3 modulo 7. From the top, that of the digits so far is written."""

    name = "remainder"

    def step(self, remainder, symbols):
        return ((10 * remainder + symbols[0]) % self.modulus,) * 2

    def holds(self, state, symbols, written, following):
        return written == following < self.modulus and (10 * state + symbols[0] - written) % self.modulus == 0


@register_task
@dataclass(frozen=True)
class DigitSum(Residue):
    """The sum of a number's digits modulo 9, as checksums use it: 1809 -> 0. The running sum is written."""

    name = "digit_sum"

    modulus: int = field(default=9, metadata={"help": "what the sum is divided by, 2 to 36", "range": (2, len(DIGITS))})

    def step(self, total, symbols):
        return ((total + symbols[0]) % self.modulus,) * 2

    def holds(self, state, symbols, written, following):
        return written == following < self.modulus and (state + symbols[0] - written) % self.modulus == 0


def compare(state, symbols):
    """Step of a comparison from the top: 0 while both numbers are equal, then 1 or 2, the place of the larger one."""
    first, second = symbols
    state = state or (0 if first == second else 1 if first > second else 2)
    return state, state


@register_task
class Comparison(Automaton):
    """The sign of a difference: 35?17 -> +, 17?35 -> -, 17?17 -> 0. After each digit, the sign so far is written."""

    name = "comparison"
    operands = 2
    sign = "?"
    writes = "0+-"

    def step(self, state, symbols):
        return compare(state, symbols)


@register_task
class LargerNumber(ColumnTask):
    """The larger of two numbers: 35,17 -> 35. The first pass compares from the top, the second one chooses digits by it."""

    name = "larger_number"
    operands = 2
    sign = ","
    passes = (
        ColumnPass(compare, writes="_+-", direction="top_first"),
        ColumnPass(lambda state, read: (read[1 if read[2] == 2 else 0], 0), direction="top_first", reads=(0, 1, 2)),
    )


@register_task
@dataclass(frozen=True)
class Bitwise(ColumnTask):
    """And, or, and exclusive or of two numbers in base 2: 1100&1010 -> 1000."""

    name = "bitwise"
    operands = 2
    alphabet = "01"
    direction = "top_first"

    operation: Literal["and", "or", "xor"] = field(default="and", metadata={"help": "what is done with two bits"})

    SIGNS: ClassVar[dict[str, str]] = {"and": "&", "or": "|", "xor": "^"}

    @property
    def sign(self):
        return self.SIGNS[self.operation]

    def step(self, state, symbols):
        first, second = symbols
        return {"and": first & second, "or": first | second, "xor": first ^ second}[self.operation], 0


@register_task
class GrayCode(ColumnTask):
    """A number in base 2 as reflected Gray code: 1011 -> 1110. A bit is written if it differs from the one above."""

    name = "gray_code"
    alphabet = "01"
    direction = "top_first"
    example_question = "1011"

    def step(self, above, symbols):
        return above ^ symbols[0], symbols[0]
