"""Addition of any number of numbers with a scratchpad: `$057+048+096=000>750>501>102$` (the follow-up of paper 1)."""

# Used by: composite.py. Changed freely.

from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from longhand.data.digits import add_digits
from longhand.data.formatting import lay_out
from longhand.data.lengths import AnyNumberOfOperands
from longhand.data.machines.columns import ABSENT, Columns, Graph, Rows, by_column
from longhand.data.splits import problem_keys
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.reader import ONES_FIRST
from longhand.data.tasks.registry import register_task
from longhand.modeling.inputs import PromptFormat
from longhand.modeling.vocabulary import BOS, EQUALS, GREATER, PLUS


@register_task
@dataclass(frozen=True)
class AdditionScratchpad(AnyNumberOfOperands, DecoderTask):
    """Sums of any number of numbers, by running sums.

    n operands are followed by the sums of the first 0, 1, ... n operands, written with the ones digit first. The last sum is
    the answer. All numbers are zero-padded to W digits. If the longest operand has L digits, W is L plus the number of
    digits of n - 1. This suffices, since n operands add up to less than n * 10**L; for n <= 10**L nothing less suffices.

    The number of operands is uniform in 2..`max_operands`. Their lengths are drawn in one of two ways:

        uniform                 each operand's length is uniform
        partially_uniform       with probability 1/2 as `uniform`, else all operands have one length, which is uniform

    An operand is uniform among the numbers of its length. A group holds the problems of one n and L; they have the same
    layout.
    """

    name: ClassVar[str] = "addition_scratchpad"
    sign: ClassVar[str] = "+"
    coupling: ClassVar[str] = "addition_scratchpad"
    further_couplings: ClassVar[tuple[str, ...]] = ("addition_scratchpad_followup",)
    example_question: ClassVar[str] = "512+880+300"
    size_names: ClassVar[tuple[str, str]] = ("digits of the operands", "number of operands")
    every_problem: ClassVar[str] = "2 to 1,000,000 operands of every length"
    fewest_operands: ClassVar[int] = 2
    reader = replace(ONES_FIRST, separators=">")

    max_operands: int = field(
        default=10, metadata={"help": "most operands of a drawn problem, 2 to 10,000", "range": (2, 10_000)}
    )
    length_sampling: Literal["uniform", "partially_uniform"] = field(
        default="partially_uniform", metadata={"help": "how the lengths of a drawn problem's operands are chosen"}
    )

    @property
    def prompt_format(self):
        # The longest operand follows as many zeros as n - 1 has digits.
        zeros = ((f"0{{{digits}}}[0-9]+", 10 ** (digits - 1), 10**digits - 1) for digits in range(1, 7))
        pattern = "|".join(rf"{number}(?:\+{number}){{{fewest},{most}}}=" for number, fewest, most in zeros)
        return PromptFormat(pattern, "0512+0880+0300=", response="(?:[0-9]+>)*[0-9]*", equal_widths=True)

    def answer_length(self, lengths):
        return _sum_width(*self.size(lengths)) + 1

    def sample_lengths(self, generator, count, min_length, max_length):
        operands = generator.integers(2, self.max_operands + 1, size=(count, 1))
        quantiles = generator.random((count, self.max_operands))
        if self.length_sampling == "partially_uniform":
            quantiles = np.where(generator.integers(2, size=(count, 1)), quantiles, quantiles[:, :1])
        lengths = _lengths(quantiles, min_length, max_length)
        return np.where(np.arange(self.max_operands) < operands, lengths, 0)

    def group_lengths(self, generator, lengths, count, min_length):
        """One number of operands and one longest length; with `partially_uniform` all or no problems have equal lengths."""
        longest, operands = self.size(lengths)
        drawn = np.tile(lengths, (count, 1))
        operand_lengths = drawn[:, :operands]
        if self.length_sampling == "uniform":
            operand_lengths[:] = _lengths_up_to(generator, operand_lengths.shape, min_length, longest)
        elif operand_lengths.min() < longest:
            # The share of a group with equal lengths depends on the longest trained length: a batch has all or none.
            equal = np.arange(count)
            while len(equal):
                operand_lengths[equal] = _lengths_up_to(generator, (len(equal), operands), min_length, longest)
                equal = equal[operand_lengths[equal].min(axis=1) == longest]
        return drawn

    def problem_keys(self, digits, lengths):
        keys = np.zeros(len(digits), dtype=np.uint64)
        most = self.partitioned_digits
        short = np.flatnonzero(lengths.sum(axis=1) <= most)
        # Always pad to the most operands of a short problem: its key must not depend on the width of this array.
        room = (0, max(0, most - digits.shape[1]))
        short_digits = np.pad(digits[short, :most, :most], ((0, 0), room, (0, 0)))
        keys[short] = problem_keys(short_digits, np.pad(lengths[short, :most], ((0, 0), room)), most)
        return keys

    def format(self, digits, lengths):
        """Cost is linear in the number of tokens."""
        longest, operands = self.one_size(lengths)
        count, width = len(digits), _sum_width(longest, operands)
        summands = np.zeros((count, operands, width), dtype=np.uint8)
        summands[:, :, :longest] = digits[:, :operands, :longest]
        query = np.full((count, operands, width + 1), PLUS, dtype=np.uint8)
        query[:, :, :width] = summands[:, :, ::-1]
        query[:, -1, width] = EQUALS
        response = np.full((count, operands + 1, width + 1), GREATER, dtype=np.uint8)
        response[:, 0, :width] = 0
        for row in range(operands):
            response[:, row + 1, :width] = add_digits(response[:, row, :width], summands[:, row])[:, :width]
        response[:, -1, width] = self.end_token
        return lay_out([BOS, query.reshape(count, -1), response.reshape(count, -1)], query_parts=2)

    def runs(self, ordered=False):
        """The next digit x is the sum of the summands s and o in its column and of a carry. The carry follows from the token
        itself, t, and the summands in its column.

            running sum before  .  s  s  .
            operand             .  o  o  .
            running sum            x  t  .
        """
        return (_running_sums(self.end_token),)


class RunningSum(NamedTuple):
    """A state of `_running_sums`.

    Attributes:
        carry: from the column before.
        newest: the operand's digit in the column before.
        row: 0 or 1 for running sum 0 or 1, 2 for any other.
        is_last: whether this is the last running sum.
    """

    carry: int
    newest: int
    row: int
    is_last: bool


@lru_cache(maxsize=4)
def _running_sums(end_token: int) -> Graph:
    """All running sums, each by itself: the running sum before, the operand, `=` of the query, and the running sum.

    $ 0 8 + 0 7 + 2 1 = 0 0 > 8 0 > 5 1 > 6 3 $
    0 2 3 1 2 3 1 2 3 1 3 2 4 3 2 4 3 2 4 3 2 0      significance; signs stand one above the top or one below the ones
    0 1 1 1 2 2 2 3 3 0 1 1 2 2 2 3 3 3 4 4 4 0      row: a running sum stands one below its two summands
    """

    def step(state: RunningSum, digits: tuple[int, int]):
        before, operand = digits
        # Row 0 is 0, and row 1 adds the first operand to it.
        if (before and state.row < 2) or (operand and state.row == 0):
            return None
        carry, written = divmod(before + operand + state.carry, 10)
        shown = digits if state.row else (ABSENT, ABSENT)
        return (*shown, ABSENT, written), RunningSum(carry, operand, state.row, state.is_last)

    def ends(state: RunningSum):
        # The sum of all operands has a digit more than they have.
        if state.carry or state.newest:
            return None
        another = PLUS if state.row and not state.is_last else ABSENT
        return ABSENT, another, EQUALS, end_token if state.is_last else GREATER

    starts = {
        RunningSum(0, 0, 0, False): (ABSENT, ABSENT, ABSENT, EQUALS),
        RunningSum(0, 0, 1, False): (ABSENT, ABSENT, ABSENT, GREATER),
        RunningSum(0, 0, 2, False): (GREATER, ABSENT, ABSENT, GREATER),
        RunningSum(0, 0, 2, True): (GREATER, ABSENT, ABSENT, GREATER),
    }
    rows = Rows([by_column(-1, 1), by_column(-1, 1), by_column(-1, 0), by_column(-1, 2)])
    return Columns(rows, starts, [*product(range(10), repeat=2)], step, ends).graph


def _sum_width(longest: int, operands: int) -> int:
    """Digits of every running sum."""
    return longest + len(str(operands - 1))


def _lengths(quantiles: np.ndarray, shortest: int, longest: int) -> np.ndarray:
    """Lengths at these quantiles, 0 to 1, of the uniform distribution over shortest..longest."""
    return np.minimum(shortest + (quantiles * (longest - shortest + 1)).astype(np.int64), longest)


def _lengths_up_to(generator: np.random.Generator, shape: tuple[int, int], shortest: int, longest: int) -> np.ndarray:
    """Lengths (count, operands), distributed as in `_lengths`, given that the largest of each row is `longest`."""
    count, operands = shape
    # The largest of n uniform numbers is below x with probability x**n. The others are uniform below the largest.
    shorter = (1 - 1 / (longest - shortest + 1)) ** operands
    largest = (shorter + (1 - shorter) * generator.random((count, 1))) ** (1 / operands)
    lengths = _lengths(largest * generator.random(shape), shortest, longest)
    np.put_along_axis(lengths, generator.integers(operands, size=(count, 1)), longest, axis=1)
    return lengths
