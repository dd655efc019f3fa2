"""Multiplication by a number of fixed length: `$653*49=79913$` (paper 1, Sec. 6.1)."""

import re
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from longhand.data.certificates.neighbourhoods import CoveringNeighbourhoods
from longhand.data.digits import multiply_digits
from longhand.data.formatting import lay_out, pad_beyond
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.reader import ONES_FIRST
from longhand.data.tasks.registry import register_task
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.vocabulary import BOS, EQUALS, PAD, TIMES


@register_task
@dataclass(frozen=True)
class Multiplication(DecoderTask):
    """Products of a number of any length and one of `multiplier_length` digits.

    Both operands are written with the most significant digit first, the first one without padding, the second one padded to
    `multiplier_length` digits; the product is written with the ones digit first, padded to as many digits as both operands
    have together. The first operand's length is uniform, then it is uniform among the numbers of its length; the second is
    uniform among all numbers of up to `multiplier_length` digits. A group holds the problems whose first operand has one
    length.

    Splits share no problem within one format. Of two formats they may: to a `multiplier_length` of 2, 3*1 is 3*01, another
    text, whose split is another one.
    """

    name: ClassVar[str] = "multiplication"
    operands: ClassVar[int] = 2
    example_question: ClassVar[str] = "653*49"
    reader = ONES_FIRST
    sized_problems: ClassVar[tuple[str, str]] = ("first operands of", "digit")
    every_problem: ClassVar[str] = "a first operand of every length and every second operand"

    multiplier_length: int = field(default=2, metadata={"help": "digits of the second operand"})

    def __post_init__(self):
        super().__post_init__()
        length = self.multiplier_length
        if isinstance(length, bool) or not isinstance(length, int) or length < 1:
            raise ValueError(f"multiplier_length must be an integer of at least 1, got {length!r}")

    @property
    def coupling(self) -> str:
        return "multiplication"

    @property
    def couplings(self) -> tuple[str, ...]:
        return ("multiplication", "multiplication_by_digits") if self.multiplier_length <= 2 else ("multiplication",)

    def operand_lengths(self, length, other=None):
        if other not in (None, self.multiplier_length):
            raise ValueError(f"the second operand has multiplier_length = {self.multiplier_length} digits, not {other}")
        return (length, self.multiplier_length)

    def sample_lengths(self, generator, count, min_length, max_length):
        first = generator.integers(min_length, max_length + 1, size=count)
        return np.stack([first, np.full(count, self.multiplier_length)], axis=1)

    def group(self, lengths):
        return lengths[:, 0]

    def group_lengths(self, generator, lengths, count, min_length):
        return np.tile(lengths, (count, 1))

    def draw_operands(self, generator, lengths):
        digits = super().draw_operands(generator, lengths)
        length = self.multiplier_length
        digits[:, 1, :length] = generator.integers(0, 10, size=(len(digits), length), dtype=np.uint8)
        return digits

    def format(self, digits, lengths):
        first, second = (digits[:, place, : lengths[:, place].max()] for place in range(2))
        product = multiply_digits(first, second)
        first, second = pad_beyond(first, lengths[:, 0]), pad_beyond(second, lengths[:, 1])
        product = pad_beyond(product, lengths.sum(axis=1))
        return lay_out([BOS, first[:, ::-1], TIMES, second[:, ::-1], EQUALS, product, self.end_token], query_parts=5)

    def covering_neighbourhoods(self, window, layers):
        """All 124,740 for a multiplier of one digit, all 1,720,300 for one of two; for any number of layers.

        The token d sees four digits x of A and both of B, y and z; n comes next:

            A              .  x  x  x  x  .
            times B                    y  z
            product           n  d  .  .  .
        """
        relations = COUPLING_RULES["multiplication_by_digits"].relations
        if tuple(window) != relations or self.multiplier_length > 2:
            raise ValueError(
                "the neighbourhoods of multiplication have been worked out for a multiplier_length of 1 or 2 and the window "
                f"of the coupling rule 'multiplication_by_digits' only, not for {self.multiplier_length} and {list(window)}"
            )
        tokens, keys, right = _neighbourhoods(self.multiplier_length, self.end_token)
        return CoveringNeighbourhoods(
            count=len(tokens),
            batches=(
                (tokens[first : first + _BATCH], keys[first : first + _BATCH], np.arange(6), right[first : first + _BATCH])
                for first in range(0, len(tokens), _BATCH)
            ),
            argument=(
                f"Call the ones column 0; A has the columns 0 to N-1, B 0 to M-1 with M = {self.multiplier_length}, the "
                "product 0 to N+M-1. A token of the response in column i, or `=` as column -1, sees A's digits in columns "
                "i-2 to i+1, B's digits, and `$` at the beginning. `$`, `*` and the digits of A and B see `$` alone, so "
                "nothing else enters through any number of layers. Let S_j be the sum of the products of digits that meet "
                "in column j and c_j the carry into it, at most 17. What is right next is the end token if i = N+M-1, "
                "else (S_(i+1) + c_(i+1)) mod 10, where c_(i+1) is S_i + c_i without its last digit. S_(i+1), S_i and "
                "S_(i-1) are made of digits in sight. The token's own digit, (S_i + c_i) mod 10, tells c_i modulo 10, and "
                "c_i is S_(i-1) + c_(i-1) without its last digit, one of three numbers in succession at most. So the "
                "neighbourhood decides. Listed for each B, `=` with every digit of column 0; otherwise the digits of "
                "columns i-2 and i-1 with each c_i that can come with them, found by adding column after column until "
                "there is no new carry, for two or more columns of A below i, for one and for none; and every digit of "
                "columns i and i+1. A ends in column i+1 or above, in column i, i-1, or (M = 2) i-2; its top digit is 0 "
                "in A = 0 alone."
            ),
        )

    def prompt(self, question):
        """Zeros before the first operand are left out; a shorter second one is zero-padded to `multiplier_length`."""
        match = re.fullmatch(r"\s*([0-9]+)\s*\*\s*([0-9]+)\s*=?\s*", question, flags=re.ASCII)
        if match is None:
            raise ValueError(f"the question {question!r} is not a multiplication such as {self.example_question!r}")
        first, second = match.groups()
        if len(second) > self.multiplier_length:
            raise ValueError(
                f"the second number of the question {question!r} must have at most multiplier_length = "
                f"{self.multiplier_length} digits, got {len(second)}"
            )
        return f"{first.lstrip('0') or '0'}*{second.zfill(self.multiplier_length)}="


_BATCH = 20_000
"""Neighbourhoods that are checked at a time."""

_CARRIES = 18
"""Carries of a product with a number of two digits, 0 to 17."""


def _carries_out(carries: np.ndarray, ones: np.ndarray, tens: np.ndarray) -> np.ndarray:
    """Which carries can come out of a column of the product.

    Args:
        carries: (numbers, 10, 18) bool, those that can come in, by B and by A's digit in the column below.
        ones, tens: (numbers,) digits of B.

    Returns:
        (numbers, 10, 10, 18) bool, by B, by A's digit in the column below, and by A's digit in this one.
    """
    number, below, carry = (index[:, None] for index in carries.nonzero())
    digit = np.arange(10)
    possible = np.zeros((len(ones), 10, 10, _CARRIES), dtype=bool)
    possible[number, below, digit, (digit * ones[number] + below * tens[number] + carry) // 10] = True
    return possible


def _neighbourhoods(multiplier_length: int, end_token: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens (count,), their keys (count, 6) in the order of the rule's relations, and right next tokens (count,).

    No neighbourhood is there twice.
    """
    number, digit = np.arange(10**multiplier_length), np.arange(10)
    ones, tens = number % 10, number // 10

    # By B, by A's digits two columns below the token and one below, and by the carry into the token's column: what there can
    # be if A has none of these columns, the upper one, or both.
    nothing = np.zeros((len(number), 10, 10, _CARRIES), dtype=bool)
    nothing[:, 0, 0, 0] = True
    bottom = _carries_out(nothing[:, 0], ones, tens)
    both = _carries_out(bottom[:, 0], ones, tens)
    while (more := both | _carries_out(both.any(1), ones, tens)).sum() > both.sum():
        both = more

    def cross(cases: np.ndarray, values: np.ndarray | int) -> np.ndarray:
        """(rows, count) with a further row, every case with each of the values."""
        values = np.atleast_1d(values)
        return np.vstack([cases.repeat(len(values), axis=1), np.tile(values, cases.shape[1])])

    # Number and carry, then A's digits from two columns below the token to the one above it.
    found = [cross(np.stack([number, 0 * number, *[PAD + 0 * number] * 3]), digit)]
    for columns_below, possible in enumerate((nothing, bottom, both)):
        number, lower, upper, carry = possible.nonzero()
        if columns_below < 2:
            lower = np.full_like(lower, PAD)
        if columns_below < 1:
            upper = np.full_like(upper, PAD)
        cases = np.stack([number, carry, lower, upper])
        # The top digit of A is further up; in the token's column; one column below; two columns below. It is 0 in 0 alone.
        found.append(cross(cross(cases, digit), digit))
        found.append(cross(cross(cases, digit[columns_below > 0 :]), PAD))
        if columns_below > 0:
            found.append(cross(cross(cases[:, upper >= columns_below - 1], PAD), PAD))
        if columns_below > 1 and multiplier_length > 1:
            cases = cases[:, (upper == 0) & ((lower > 0) | (carry == 0))]
            cases[3] = PAD
            found.append(cross(cross(cases, PAD), PAD))
    number, carry, *digits = np.concatenate(found, axis=1)

    _, below, own, following = (np.where(column == PAD, 0, column) for column in digits)
    total = own * ones[number] + below * tens[number] + carry
    right = (following * ones[number] + own * tens[number] + total // 10) % 10
    is_first = (digits[2] == PAD) & (digits[3] != PAD)
    is_last = (np.stack(digits[3 - multiplier_length :]) == PAD).all(0)
    second = [ones[number], tens[number] if multiplier_length > 1 else np.full_like(number, PAD)]
    tokens, right = np.where(is_first, EQUALS, total % 10), np.where(is_last, end_token, right)
    keys = np.stack([*digits[::-1], *second], axis=1)
    return tokens.astype(np.uint8), keys.astype(np.uint8), right.astype(np.uint8)
