"""Multiplication of any two numbers with a scratchpad: `$294*68=2532+4671=25320>29991$` (the follow-up of paper 1)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from longhand.data.certificates.neighbourhoods import CoveringNeighbourhoods
from longhand.data.digits import add_digits, multiply_digits
from longhand.data.formatting import lay_out
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.reader import ONES_FIRST
from longhand.data.tasks.registry import register_task
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.vocabulary import BOS, EQUALS, GREATER, PAD, PLUS, TIMES


@register_task
@dataclass(frozen=True)
class MultiplicationScratchpad(DecoderTask):
    """Products of two numbers, by partial products and running sums, every one of them with the ones digit first.

    For operands of N and M digits: M partial products of N + 1 digits, of the first operand and each digit of the second,
    ones first; then the M running sums of the partial products, each shifted to its place, of N + M digits. The last running
    sum is the answer. Lengths are uniform, then each operand is uniform among the numbers of its length. A group holds the
    problems of one N and M.
    """

    name: ClassVar[str] = "multiplication_scratchpad"
    operands: ClassVar[int] = 2
    example_question: ClassVar[str] = "294*68"
    most_digits: ClassVar[int] = 2000
    reader = replace(ONES_FIRST, separators=">=")

    @property
    def coupling(self) -> str:
        return "multiplication_scratchpad"

    def answer_length(self, lengths):
        return sum(lengths) + 1

    def sample_lengths(self, generator, count, min_length, max_length):
        return generator.integers(min_length, max_length + 1, size=(count, 2))

    def group(self, lengths):
        return lengths[:, 0] * 2**31 + lengths[:, 1]

    def group_lengths(self, generator, lengths, count, min_length):
        return np.tile(lengths, (count, 1))

    def format(self, digits, lengths):
        if (lengths != lengths[:1]).any():
            raise ValueError(f"problems of one batch must have the same lengths, got {np.unique(lengths, axis=0).tolist()}")
        count, (first_length, second_length) = len(digits), lengths[0]
        first, second = digits[:, 0, :first_length], digits[:, 1, :second_length]
        partial = multiply_digits(np.repeat(first, second_length, axis=0), second.reshape(-1, 1))
        partial = partial.reshape(count, second_length, first_length + 1)
        sums = np.zeros((count, second_length, first_length + second_length), dtype=np.uint8)
        sums[:, 0, : first_length + 1] = partial[:, 0]
        for row in range(1, second_length):
            # Below its own place a partial product adds nothing.
            sums[:, row, :row] = sums[:, row - 1, :row]
            sums[:, row, row : row + first_length + 1] = add_digits(
                sums[:, row - 1, row : row + first_length + 1], partial[:, row]
            )[:, :-1]
        parts = [BOS, first[:, ::-1], TIMES, second[:, ::-1]]
        for row in range(second_length):
            parts += [PLUS if row else EQUALS, partial[:, row]]
        for row in range(second_length):
            parts += [GREATER if row else EQUALS, sums[:, row]]
        return lay_out([*parts, self.end_token], query_parts=5)

    def covering_neighbourhoods(self, window, layers):
        """All of them, each once, 98,487; `_partial_products` and `_running_sums` list what can stand around a token."""
        if tuple(window) != COUPLING_RULES[self.coupling].relations or layers != 1:
            raise ValueError(
                f"the neighbourhoods of {self.name} have been worked out for one layer and the coupling rule's own relations"
            )
        lists = [*_partial_products(), *_running_sums(self.end_token)]

        def batches() -> Iterator[_Batch]:
            for tokens, keys, relations, right in lists:
                for first in range(0, len(tokens), _COVERING_BATCH):
                    rows = slice(first, first + _COVERING_BATCH)
                    yield tokens[rows], keys[rows], relations, right[rows]

        return CoveringNeighbourhoods(
            count=sum(len(tokens) for tokens, *_ in lists),
            batches=batches(),
            argument=(
                "Let the operands have N and M digits; columns count from 0, the ones, and rows from 0: row j is partial "
                "product j, shifted by j places, and running sum j. Every token sees `$`, which itself sees nothing else, "
                "and of each relation at most one key. (1) The separator before a partial product sees the first "
                "operand's ones and b, the second operand's digit of its row. (2) In the column of a digit a of the first "
                "operand, a partial product's digit d sees a, the first operand's next digit (absent at the top), b, and "
                "the second operand's next digit (absent in the last row). The carry c into the column is below b, or 0 "
                "if b is 0, and follows from d = (a * b + c) mod 10. Right next is the next column's digit, or at the top "
                "the carry out. There a is 0 only in the number 0, and then c is 0. (3) A partial product's top digit is "
                "that carry; it sees b and the second operand's next digit. Right next is `=` if the latter is absent, "
                "else `+`. (4) A running sum and its separator, below its ones, see the row above and their partial "
                "product, each in the token's column and the next as far as they reach, and the `+` of the row below, "
                "absent in the last row. (5) Row 0 copies its partial product from column 0 to N; further up it is 0. (6) "
                "In row j > 0 the columns below j copy the row above. In columns j to j+N-1 the digit is (x + p + c) mod "
                "10, x of the row above and p of the partial product, and the carry c of 0 or 1 follows from it. Running "
                "sum j is less than 10**(N+j+1): so in column j+N the row above is 0, the digit is p + c with p a last "
                "carry of 0 to 8, nothing is carried out, and all digits further up are 0. (7) In the top column of the "
                "product, N+M-1, a running sum sees `*` and no next column; in the last row this is the partial product's "
                "top, in others it lies above it. Right next is `>` if there is a row below, else the end token. All of "
                "these cases are checked with all digits and carries that they leave."
            ),
        )

    def prompt(self, question):
        """Numbers are written without leading zeros, as in training."""
        match = re.fullmatch(r"\s*([0-9]+)\s*\*\s*([0-9]+)\s*=?\s*", question, flags=re.ASCII)
        if match is None:
            raise ValueError(f"the question {question!r} is not a multiplication such as {self.example_question!r}")
        first, second = (number.lstrip("0") or "0" for number in match.groups())
        return f"{first}*{second}="


_COVERING_BATCH = 10_000

# The slots of a neighbourhood, in the order of the coupling rule's relations.
(A, A_NEXT, B, B_NEXT, A_OF_SEPARATOR, B_OF_SEPARATOR,
 ABOVE, ABOVE_NEXT, PARTIAL, PARTIAL_NEXT, NEXT_ROW, TOP) = range(12)  # fmt: skip

_Batch = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _neighbourhoods(tokens: np.ndarray | int, right: np.ndarray | int, keys: dict[int, np.ndarray | int]) -> _Batch:
    """A batch as in `CoveringNeighbourhoods`, from the keys of the slots that are not empty; all arguments broadcast."""
    tokens, right, *values = (part.reshape(-1) for part in np.broadcast_arrays(tokens, right, *keys.values()))
    table = np.full((len(tokens), 12), PAD)
    table[:, list(keys)] = np.stack(values, axis=1)
    return tokens, table, np.arange(12), right


def _partial_products() -> Iterator[_Batch]:
    """Separators, digits in columns of the first operand, and the last carries."""
    next_row = np.array([*range(10), PAD])
    ones, digit = np.indices((10, 10))
    for separator in (EQUALS, PLUS):
        keys = {A_OF_SEPARATOR: ones, B_OF_SEPARATOR: digit}
        yield _neighbourhoods(separator, ones * digit % 10, keys)

    # The carry into a column is below the digit that all of them are multiplied by.
    digit, carry = (part[:, None, None, None] for part in np.nonzero(np.arange(10) < np.maximum(np.arange(10), 1)[:, None]))
    own, above, row = np.ix_(np.arange(10), np.arange(10), next_row)
    column = own * digit + carry
    keys = {A: own, B: digit, B_NEXT: row}
    yield _neighbourhoods(column % 10, (above * digit + column // 10) % 10, keys | {A_NEXT: above})
    # The top digit is not 0, but where it is the only one.
    own, digit, carry, row = (part[..., 0, :] for part in (own, digit, carry, row))
    column = own * digit + carry
    tokens, table, relations, right = _neighbourhoods(column % 10, column // 10, {A: own, B: digit, B_NEXT: row})
    reachable = np.broadcast_to((own > 0) | (carry == 0), (*column.shape[:2], row.shape[-1])).reshape(-1)
    yield tokens[reachable], table[reachable], relations, right[reachable]
    digit, carry, row = digit[:, 0], carry[:, 0], next_row
    yield _neighbourhoods(carry, np.where(row == PAD, EQUALS, PLUS), {B: digit, B_NEXT: row})


def _running_sums(end_token: int) -> Iterator[_Batch]:
    """The first row, which copies; then, for every other row, from its separator to its top."""
    digit, above = np.ix_(np.arange(10), np.arange(10))
    last_carry = np.arange(9)
    for further in (PLUS, PAD):
        yield _neighbourhoods(EQUALS, np.arange(10), {PARTIAL_NEXT: np.arange(10), NEXT_ROW: further})
        yield _neighbourhoods(digit, above, {PARTIAL: digit, PARTIAL_NEXT: above, NEXT_ROW: further})
    yield _neighbourhoods(last_carry, end_token, {PARTIAL: last_carry, TOP: TIMES})
    yield _neighbourhoods(last_carry, 0, {PARTIAL: last_carry, NEXT_ROW: PLUS})
    yield _neighbourhoods(0, 0, {NEXT_ROW: PLUS})
    yield _neighbourhoods(0, GREATER, {NEXT_ROW: PLUS, TOP: TIMES})

    own, own_partial, above, partial, carry = np.ix_(*[np.arange(10)] * 4, np.arange(2))
    column = own + own_partial + carry
    total = (above + partial + column // 10) % 10
    for further in (PLUS, PAD):
        for before in (EQUALS, GREATER):
            yield _neighbourhoods(GREATER, np.arange(10), {ABOVE: before, ABOVE_NEXT: np.arange(10), NEXT_ROW: further})
        keys = {ABOVE: own, ABOVE_NEXT: above, NEXT_ROW: further}
        yield _neighbourhoods(own, above, keys)
        yield _neighbourhoods(own, (above + partial) % 10, keys | {PARTIAL_NEXT: partial})
        yield _neighbourhoods(column % 10, total, keys | {PARTIAL: own_partial, PARTIAL_NEXT: partial})
    # Between the partial product and the top the row above, all 0, is copied as below the partial product.
    last, carry = np.ix_(last_carry, np.arange(2))
    yield _neighbourhoods(last + carry, end_token, {ABOVE: 0, PARTIAL: last, TOP: TIMES})
    yield _neighbourhoods(last + carry, 0, {ABOVE: 0, ABOVE_NEXT: 0, PARTIAL: last, NEXT_ROW: PLUS})
    yield _neighbourhoods(0, GREATER, {ABOVE: 0, NEXT_ROW: PLUS, TOP: TIMES})
