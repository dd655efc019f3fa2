"""Multiplication by a number of fixed length: `$653*49=79913$` (paper 1, Sec. 6.1)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from longhand.data.checks import check_integer
from longhand.data.digits import multiply_digits
from longhand.data.formatting import lay_out, pad_beyond
from longhand.data.tasks.covering import DIGITS, CoveringNeighbourhoods, NeighbourhoodBatch, combine
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.questions import NUMBER
from longhand.data.tasks.reader import ONES_FIRST
from longhand.data.tasks.registry import register_task
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.inputs import PromptFormat
from longhand.modeling.vocabulary import BOS, EQUALS, PAD, TIMES


@register_task
@dataclass(frozen=True)
class Multiplication(DecoderTask):
    """Products of a number of any length and one of `multiplier_length` digits.

    Both operands are written with the most significant digit first. The first operand is not padded, the second is padded to
    `multiplier_length` digits. The product is written with the ones digit first, padded to the number of digits of both
    operands together. The first operand's length is uniform, then the operand is uniform among the numbers of its length.
    The second operand is uniform among all numbers of up to `multiplier_length` digits. A group holds the problems whose
    first operand has one length.

    Splits share no problem within one format. Splits of two formats may: with a `multiplier_length` of 2, 3*1 is written
    3*01, and may belong to another split.
    """

    name: ClassVar[str] = "multiplication"
    sign: ClassVar[str] = "*"
    coupling: ClassVar[str] = "multiplication"
    operands: ClassVar[int] = 2
    reader = ONES_FIRST
    sized_problems: ClassVar[tuple[str, str]] = ("first operands of", "digit")
    every_problem: ClassVar[str] = "a first operand of every length and every second operand"

    multiplier_length: int = field(default=2, metadata={"help": "digits of the second operand"})

    def __post_init__(self):
        super().__post_init__()
        check_integer("multiplier_length", self.multiplier_length, 1, self.most_digits)

    @property
    def couplings(self) -> tuple[str, ...]:
        windowed = ("multiplication_by_digits",) if self.multiplier_length <= 2 else ()
        return ("multiplication", *windowed, "multiplication_marked_top")

    @property
    def example_question(self) -> str:
        return f"653*{'49'[: self.multiplier_length]}"

    @property
    def prompt_format(self):
        pattern = rf"{NUMBER}\*[0-9]{{{self.multiplier_length}}}="
        return PromptFormat(pattern, self.prompt(self.example_question), response="[0-9]*")

    def operand_lengths(self, length, other=None):
        if other not in (None, self.multiplier_length):
            raise ValueError(f"the second operand has multiplier_length = {self.multiplier_length} digits, not {other}")
        return (length, self.multiplier_length)

    def sample_lengths(self, generator, count, min_length, max_length):
        first = generator.integers(min_length, max_length + 1, size=count)
        return np.stack([first, np.full(count, self.multiplier_length)], axis=1)

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

    def covering(self, window, layers):
        """All 124,740 neighbourhoods for a multiplier of one digit, all 1,720,300 for one of two; for any number of layers.

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
        return CoveringNeighbourhoods(
            count={1: 124_740, 2: 1_720_300}[self.multiplier_length],
            batches=_batches(self.multiplier_length, self.end_token),
            argument=(
                f"Call the ones column 0. A has the columns 0 to N-1, B has 0 to M-1 with M = {self.multiplier_length}, "
                "the product has 0 to N+M-1. A token of the response in column i, with `=` as column -1, sees A's digits "
                "in columns i-2 to i+1, B's digits, and `$` at the beginning. `$`, `*` and the digits of A and B see `$` "
                "alone, so nothing else enters through any number of layers. Let S_j be the sum of the products of digits "
                "that meet in column j, and c_j the carry into it, at most 17. Right next is the end token if i = N+M-1, "
                "else (S_(i+1) + c_(i+1)) mod 10, where c_(i+1) is S_i + c_i without its last digit. S_(i+1), S_i and "
                "S_(i-1) are made of digits in sight. The token's own digit, (S_i + c_i) mod 10, tells c_i modulo 10. c_i "
                "is S_(i-1) + c_(i-1) without its last digit, one of three numbers in succession at most. So the "
                "neighbourhood decides. The list holds for each B: `=` with every digit of column 0; otherwise the digits "
                "of columns i-2 and i-1 with each c_i that can come with them, and every digit of columns i and i+1. The "
                "c_i are found by adding column after column until there is no new carry, for two or more columns of A "
                "below i, for one and for none. A ends in column i+1 or above, in column i, i-1, or (M = 2) i-2. Its top "
                "digit is 0 in A = 0 only."
            ),
        )

    def read_question(self, question):
        """Leading zeros of the first operand are removed; the second operand is zero-padded to `multiplier_length`."""
        first, second = super().read_question(question)
        if len(second) > self.multiplier_length:
            raise ValueError(
                f"the second number of the question {question!r} must have at most multiplier_length = "
                f"{self.multiplier_length} digits, got {len(second)}"
            )
        return [first.lstrip("0") or "0", second.zfill(self.multiplier_length)]


_COVERING_BATCH = 20_000

_CARRIES = 18
"""Carries of a product with a number of two digits, 0 to 17."""

_ABSENT = np.array([PAD])


class _Columns(NamedTuple):
    """What decides what tokens see and what is right next, one token a row.

    Attributes:
        multiplier: B, as a number.
        carry: into the token's own column.
        two_below, below, own, following: digits of A in the columns from two below the token to one above; `PAD` if A has
            no such column.
    """

    multiplier: np.ndarray
    carry: np.ndarray
    two_below: np.ndarray
    below: np.ndarray
    own: np.ndarray
    following: np.ndarray


def _carries_out(carries: np.ndarray, ones: np.ndarray, tens: np.ndarray) -> np.ndarray:
    """Which carries can come out of a column of the product.

    Args:
        carries: (multipliers, 10, 18) bool, which can come in, by B and by A's digit in the column below.
        ones, tens: (multipliers,) digits of B.

    Returns:
        (multipliers, 10, 10, 18) bool, by B, by A's digit in the column below, and by A's digit in this column.
    """
    multiplier, below, carry = (index[:, None] for index in carries.nonzero())
    possible = np.zeros((len(ones), 10, 10, _CARRIES), dtype=bool)
    possible[multiplier, below, DIGITS, (DIGITS * ones[multiplier] + below * tens[multiplier] + carry) // 10] = True
    return possible


def _carries_in(ones: np.ndarray, tens: np.ndarray) -> list[np.ndarray]:
    """Which carries can come into a column above no, one, and two or more columns of A.

    Args:
        ones, tens: (multipliers,) digits of B.

    Returns:
        Three arrays (multipliers, 10, 10, 18) bool, by B and by A's digits two columns below and one below, which are 0 if A
        has no such column.
    """
    above_none = np.zeros((len(ones), 10, 10, _CARRIES), dtype=bool)
    above_none[:, 0, 0, 0] = True
    above_one = _carries_out(above_none[:, 0], ones, tens)
    above_two = _carries_out(above_one[:, 0], ones, tens)
    # Column after column, until there is no new carry.
    while (more := above_two | _carries_out(np.any(above_two, axis=1), ones, tens)).sum() > above_two.sum():
        above_two = more
    return [above_none, above_one, above_two]


def _all_columns(multiplier_length: int, carries_in: list[np.ndarray]) -> Iterator[_Columns]:
    """All cases, each once: first `=`, then the tokens above no, one, and two or more columns of A."""
    multiplier, following = combine(np.arange(10**multiplier_length), DIGITS)
    absent = np.full_like(multiplier, PAD)
    yield _Columns(multiplier, np.zeros_like(multiplier), absent, absent, absent, following)
    for columns_below, possible in enumerate(carries_in):
        multiplier, two_below, below, carry = possible.nonzero()

        def cases(rows, own, following, columns=columns_below, known=(multiplier, carry, two_below, below)):
            row, own, following = combine(rows, own, following)
            multiplier, carry, two_below, below = (values[row] for values in known)
            absent = np.full_like(row, PAD)
            return _Columns(
                multiplier, carry, two_below if columns > 1 else absent, below if columns > 0 else absent, own, following
            )

        every = np.arange(len(multiplier))
        # A goes on above the token's column.
        yield cases(every, DIGITS, DIGITS)
        # A's top digit, which is 0 in A = 0 only, is in the token's column; one column below; two columns below.
        yield cases(every, DIGITS[columns_below > 0 :], _ABSENT)
        if columns_below > 0:
            yield cases(every[below >= columns_below - 1], _ABSENT, _ABSENT)
        if columns_below > 1 and multiplier_length > 1:
            ended = cases(every[(below == 0) & ((two_below > 0) | (carry == 0))], _ABSENT, _ABSENT)
            yield ended._replace(below=ended.own)


def _batches(multiplier_length: int, end_token: int) -> Iterator[NeighbourhoodBatch]:
    """Every neighbourhood once; keys are in the order of the rule's relations."""
    multipliers = np.arange(10**multiplier_length)
    ones, tens = multipliers % 10, multipliers // 10
    parts = zip(*_all_columns(multiplier_length, _carries_in(ones, tens)), strict=True)
    columns = _Columns(*(np.concatenate(part) for part in parts))
    ones, tens = ones[columns.multiplier], tens[columns.multiplier]

    _, below, own, following = (np.where(digits == PAD, 0, digits) for digits in columns[2:])
    total = own * ones + below * tens + columns.carry
    right = (following * ones + own * tens + total // 10) % 10
    is_first = (columns.own == PAD) & (columns.following != PAD)
    # The product ends as many columns above A as B has digits.
    is_last = np.all([digits == PAD for digits in columns[5 - multiplier_length :]], axis=0)
    tokens, right = np.where(is_first, EQUALS, total % 10), np.where(is_last, end_token, right)
    second = [ones, tens if multiplier_length > 1 else np.full_like(tens, PAD)]
    keys = np.stack([columns.following, columns.own, columns.below, columns.two_below, *second], axis=1)
    listed = NeighbourhoodBatch(tokens.astype(np.uint8), keys.astype(np.uint8), np.arange(6), right.astype(np.uint8))
    yield from listed.batches(_COVERING_BATCH)
