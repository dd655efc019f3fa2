"""Subtraction of a number that is not larger: `$653-049=406$`, and in any order, with more work: `$049-653=693-406$`."""

# Used by: composite.py. Changed freely.

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import ClassVar, NamedTuple

import numpy as np

from longhand.data.digits import extend_digits, numbers_below, subtract_digits
from longhand.data.formatting import check_longest, lay_out
from longhand.data.lengths import LongestOperandLengths
from longhand.data.machines.columns import ABSENT, Columns, Graph, Rows, TextLayout, by_column
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.reader import ONES_FIRST
from longhand.data.tasks.registry import register_task
from longhand.modeling.inputs import PromptFormat
from longhand.modeling.vocabulary import BOS, EQUALS, MINUS, PAD

_PAIRS = [*product(range(10), repeat=2)]


@register_task
@dataclass(frozen=True)
class Subtraction(LongestOperandLengths, DecoderTask):
    """Differences A - B of decimal numbers with A >= B, so that every digit follows from its column and a borrow.

    Lengths are balanced: each operand's length is uniform, then the operand is uniform among the numbers of that length. The
    larger number is written first. Both are zero-padded to the L digits of the longer one. The difference has L digits, the
    ones first. A group holds the problems of one L.
    """

    name: ClassVar[str] = "subtraction"
    sign: ClassVar[str] = "-"
    coupling: ClassVar[str] = "subtraction"
    operands: ClassVar[int] = 2
    example_question: ClassVar[str] = "653-49"
    reader = ONES_FIRST
    every_problem: ClassVar[str] = "operands of every length, the first not smaller than the second"

    prompt_format = PromptFormat("[0-9]+-[0-9]+=", "653-049=", response="[0-9]*", equal_widths=True, larger_first=True)

    def operand_lengths(self, length, other=None):
        if other is not None and other > length:
            raise ValueError(f"the second operand must not be longer than the first, got {other} and {length} digits")
        return super().operand_lengths(length, other)

    def sample_lengths(self, generator, count, min_length, max_length):
        return np.sort(super().sample_lengths(generator, count, min_length, max_length), axis=1)[:, ::-1]

    def group_lengths(self, generator, lengths, count, min_length):
        return np.sort(super().group_lengths(generator, lengths, count, min_length), axis=1)[:, ::-1]

    def read_question(self, question):
        first, second = super().read_question(question)
        width = max(len(first), len(second))
        if first.zfill(width) < second.zfill(width):
            raise ValueError(f"the first number of the question {question!r} must not be smaller than the second")
        return [first, second]

    def draw_operands(self, generator, lengths):
        return _larger_first(super().draw_operands(generator, lengths))

    def format(self, digits, lengths):
        check_longest(digits, lengths)
        first, second = digits[:, 0], digits[:, 1]
        if (below := numbers_below(first, second)).any():
            smaller, larger = ("".join(map(str, operand[below.argmax(), ::-1])).lstrip("0") for operand in (first, second))
            raise ValueError(f"the first operand must not be smaller than the second, got {smaller or '0'}-{larger}")
        difference = subtract_digits(first, second)
        return lay_out([BOS, first[:, ::-1], MINUS, second[:, ::-1], EQUALS, difference, self.end_token], query_parts=5)

    def runs(self, ordered=False):
        """A token sees both digits of its column and of the next, told apart."""
        return (_differences(self.end_token),)

    def vary(self, generator, digits, max_length):
        """Extend half of the problems by random columns above, in which the first number is not smaller."""
        width = digits.shape[2]
        digits = extend_digits(generator, digits, max_length)
        digits[:, :, width:] = _larger_first(digits[:, :, width:])
        return digits


def _larger_first(digits: np.ndarray) -> np.ndarray:
    """Pairs of numbers (count, 2, width), the larger number of each first."""
    swapped = numbers_below(digits[:, 0], digits[:, 1])
    return np.where(swapped[:, None, None], digits[:, ::-1], digits)


@lru_cache(maxsize=4)
def _differences(end_token: int) -> Graph:
    """All differences. A state is the borrow.

    $ 6 5 3 - 0 4 9 = 4 0 6 $
    0 1 2 3 4 1 2 3 4 3 2 1 0      significance
    0 1 1 1 1 2 2 2 3 3 3 3 0      row: two operands, told apart, and the difference
    """

    def step(borrow, digits):
        rest = digits[0] - digits[1] - borrow
        return (*digits, rest % 10), int(rest < 0)

    # Nothing is left to be borrowed at the end, since the first operand is not smaller.
    ends = {0: (ABSENT, ABSENT, end_token)}
    ids = [by_column(-1, row) for row in (1, 2, 3)]
    rows = Rows(ids, practised=(0, 1), layout=TextLayout(last_first=True, zero_on_top=False))
    return Columns(rows, {0: (MINUS, ABSENT, EQUALS)}, _PAIRS, step, ends.get).graph


@register_task
@dataclass(frozen=True)
class SignedSubtraction(LongestOperandLengths, DecoderTask):
    """Differences A - B of decimal numbers in any order.

    Both numbers are zero-padded to the L digits of the longer one. First come the L digits of A - B, the ones first, as if a
    borrow out of the top column were free. If A >= B, this is the answer. Else it is 10**L too large, so `-` follows, and
    then the L digits that are missing to 10**L: the answer without its sign. Only the top column tells which number is
    larger, and it comes last: that is why a negative answer takes two rows.

    Lengths are balanced: each operand's length is uniform, then the operand is uniform among the numbers of that length. A
    group holds the problems of one L.
    """

    name: ClassVar[str] = "signed_subtraction"
    sign: ClassVar[str] = "-"
    coupling: ClassVar[str] = "signed_subtraction"
    operands: ClassVar[int] = 2
    example_question: ClassVar[str] = "49-653"
    reader = replace(ONES_FIRST, separators="-", negative="-")

    # One of the numbers has no zero in front.
    prompt_format = PromptFormat(
        "[1-9][0-9]*-[0-9]+=|[0-9]+-[1-9][0-9]*=|0-0=", "049-653=", response="[0-9]*(?:-[0-9]*)?", equal_widths=True
    )

    def format(self, digits, lengths):
        check_longest(digits, lengths)
        first, second = digits[:, 0], digits[:, 1]
        negative = numbers_below(first, second)[:, None]
        sign = np.where(negative, np.uint8(MINUS), np.uint8(PAD))
        missing = np.where(negative, subtract_digits(second, first), np.uint8(PAD))
        query = [BOS, first[:, ::-1], MINUS, second[:, ::-1], EQUALS]
        return lay_out([*query, subtract_digits(first, second), sign, missing, self.end_token], query_parts=5)

    def read_question(self, question):
        """Leading zeros are removed: numbers are padded to the longer one."""
        return [number.lstrip("0") or "0" for number in super().read_question(question)]

    def runs(self, ordered=False):
        return _first_rows(self.end_token), _second_rows(self.end_token)


class Borrows(NamedTuple):
    """A state of signed differences.

    Attributes:
        first_row, second_row: the borrow of each row from the column before.
        top_is_zero: whether the column before is 0-0 and not the ones.
        is_start: whether no column has been read.
    """

    first_row: int
    second_row: int
    top_is_zero: bool
    is_start: bool


_NOTHING = Borrows(0, 0, top_is_zero=False, is_start=True)

# Significance is that of differences that are not negative. The second row is 0 less the first row, which it sees as that
# one sees A:
#
#     $ 0 4 9 - 6 5 3 = 6 9 3 - 4 0 6 $
#     0 1 1 1 1 2 2 2 3 3 3 3 5 5 5 5 0
_SIGNED_IDS = [by_column(-1, row) for row in (1, 2, 3, 5)]


def _borrow(state: Borrows, digits: tuple[int, int]) -> tuple[tuple[int, int, int, int], Borrows]:
    """A column of both operands and of both rows, and the next state."""
    first, second = digits
    difference = first - second - state.first_row
    missing = -(difference % 10) - state.second_row
    # A column of zeros is the top one in 0-0 alone.
    top_is_zero = not state.is_start and digits == (0, 0)
    following = Borrows(int(difference < 0), int(missing < 0), top_is_zero, is_start=False)
    return (*digits, difference % 10, missing % 10), following


@lru_cache(maxsize=4)
def _first_rows(end_token: int) -> Graph:
    """All signed differences as far as the first row."""

    def step(state: Borrows, digits: tuple[int, int]):
        labels, following = _borrow(state, digits)
        # The second row is not there.
        return labels[:-1], following._replace(second_row=0)

    def ends(state: Borrows):
        return None if state.top_is_zero else (ABSENT, ABSENT, MINUS if state.first_row else end_token)

    return Columns(Rows(_SIGNED_IDS[:-1]), {_NOTHING: (MINUS, ABSENT, EQUALS)}, _PAIRS, step, ends).graph


@lru_cache(maxsize=4)
def _second_rows(end_token: int) -> Graph:
    """All negative differences, whose second row is written below the first one."""

    def ends(state: Borrows):
        # The top borrows.
        return None if state.top_is_zero or not state.first_row else (ABSENT, ABSENT, ABSENT, end_token)

    return Columns(Rows(_SIGNED_IDS), {_NOTHING: (MINUS, ABSENT, EQUALS, MINUS)}, _PAIRS, _borrow, ends).graph
