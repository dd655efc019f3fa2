"""A proof about a machine, beyond the words that were checked: a linear function, by the identity of each entry."""

from collections.abc import Sequence
from dataclasses import dataclass

from longhand.data.learning.machines import Machine
from longhand.data.learning.questions.words import Words


@dataclass(frozen=True)
class Linear:
    """The function a_1 x_1 + ... + a_n x_n + constant.

    Attributes:
        carries: the number that each state of the machine has still to write.
    """

    coefficients: tuple[int, ...]
    constant: int
    carries: tuple[int, ...]

    @property
    def is_sum(self) -> bool:
        """Whether the operands are added, and nothing else."""
        return set(self.coefficients) == {1} and self.constant == 0

    def formula(self, names: Sequence[str]) -> str:
        """The function in the names of its operands, such as `1 a + 1 b + 0`."""
        terms = [f"{coefficient} {name}" for coefficient, name in zip(self.coefficients, names, strict=True)]
        return " + ".join([*terms, str(self.constant)])

    def sentence(self, names: Sequence[str], base: int) -> str:
        """The proved statement about the machine, for a card.

        Args:
            names: of the operands.
        """
        digits = " + ".join(f"{factor} {name}" for factor, name in zip(self.coefficients, names, strict=True))
        return (
            f"the machine is {self.formula(names)} for numbers of every width: each of its entries fits {digits} + carry = "
            f"digit + {base} next carry, where {', '.join(names)} are digits, the first carry is {self.constant}, and the "
            "last one is 0"
        )


def linear_function(machine: Machine, words: Words) -> Linear | None:
    """The linear function that a machine with its start at the ones computes; None if it computes none.

    Let c be the carry of a state. If a_1 d_1 + ... + a_n d_n + c = digit + base * c' in every entry, where c' is the carry
    of the next state, then the digits that are written, and base**width times the last carry, add up to the function, by
    induction over columns. In states that write zeros for ever c = base * c' = base**2 * c'' and so on, so c is 0.
    """
    zero = _value(machine, words, 0)
    if zero is None:
        return None
    units = [words.base ** (words.operands - 1 - operand) for operand in range(words.operands)]
    values = [_value(machine, words, letter) for letter in units]
    coefficients = tuple((value or 0) - zero for value in values)
    carries: dict[int, int] = {0: zero}
    queue = [0]
    for state in queue:
        for letter, digits in enumerate(words.letters):
            total = sum(factor * digit for factor, digit in zip(coefficients, digits, strict=True)) + carries[state]
            rest, after = total - machine.write[state][letter], machine.next[state][letter]
            carry, remainder = divmod(rest, words.base)
            if remainder or carries.setdefault(after, carry) != carry:
                return None
            if after not in queue:
                queue.append(after)
    return Linear(coefficients, zero, tuple(carries[state] for state in range(machine.states)))


def _value(machine: Machine, words: Words, letter: int) -> int | None:
    """The number that a machine writes for a word of one column and zeros above; None if it goes on for ever."""
    written = machine.written([letter] + [0] * (machine.states + 1))
    last = machine.reached([letter] + [0] * (machine.states + 1))
    if machine.write[last][0] or machine.next[last][0] != last:
        return None
    return sum(digit * words.base**place for place, digit in enumerate(written))
