"""Addition of two numbers: `$653+049=2070$` (paper 1, Secs. 2 and 4)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np

from longhand.data.certificates.neighbourhoods import CoveringProblems
from longhand.data.digits import add_digits, extend_digits
from longhand.data.formatting import lay_out, pad_beyond
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.reader import ONES_FIRST, AnswerReader
from longhand.data.tasks.registry import register_task
from longhand.modeling.vocabulary import BOS, EQUALS, PLUS

_COUPLING = {
    "response_reversed": "addition",
    "all_reversed": "addition_all_reversed",
    "plain": "addition_plain",
}

_COVERING_BATCH = 10_000


@register_task
@dataclass(frozen=True)
class Addition(DecoderTask):
    """Sums of two numbers of decimal digits.

    Lengths are balanced: each operand's is uniform, then the operand is uniform among the numbers of that length. A group
    holds the problems whose longer operand has the same length; zero-padded, they have the same layout.
    """

    name: ClassVar[str] = "addition"
    operands: ClassVar[int] = 2
    example_question: ClassVar[str] = "653+49"

    zero_padding: bool = field(
        default=True, metadata={"help": "pad both operands to the longer one's length L, the sum to L + 1 digits"}
    )
    order: Literal["response_reversed", "all_reversed", "plain"] = field(
        default="response_reversed", metadata={"help": "which numbers are written with the ones digit first"}
    )

    @property
    def coupling(self) -> str:
        return _COUPLING[self.order]

    @property
    def reader(self) -> AnswerReader:
        return replace(ONES_FIRST, ones_first=self.order != "plain")

    def sample_lengths(self, generator, count, min_length, max_length):
        return generator.integers(min_length, max_length + 1, size=(count, 2))

    def group(self, lengths):
        return lengths.max(axis=1)

    def group_lengths(self, generator, lengths, count, min_length):
        # Uniform over the pairs with this maximum: (max, max), (shorter, max), (max, shorter).
        longest = int(lengths.max())
        shorter = longest - min_length
        choice = generator.integers(0, 2 * shorter + 1, size=count)
        other = np.where(choice <= shorter, min_length + choice, min_length + choice - shorter - 1)
        pairs = np.full((count, 2), longest)
        pairs[np.arange(count), (choice > shorter).astype(int)] = other
        return pairs

    def format(self, digits, lengths):
        first, second = digits[:, 0], digits[:, 1]
        total = add_digits(first, second)
        if not self.zero_padding:
            longest = lengths.max(axis=1)
            has_carry = np.take_along_axis(total, longest[:, None], axis=1)[:, 0] > 0
            total = pad_beyond(total, longest + has_carry)
            first, second = pad_beyond(first, lengths[:, 0]), pad_beyond(second, lengths[:, 1])
        elif (short := int(lengths.max(axis=1).min())) < digits.shape[2]:
            raise ValueError(f"zero-padded problems of one batch must have one length, got {short} and {digits.shape[2]}")
        if self.order != "all_reversed":
            first, second = first[:, ::-1], second[:, ::-1]
        if self.order == "plain":
            total = total[:, ::-1]
        return lay_out([BOS, first, PLUS, second, EQUALS, total, self.end_token], query_parts=5)

    def drawn_lengths(self, digits, lengths):
        place = np.arange(1, digits.shape[2] + 1)
        return np.where(digits > 0, place, 1).max(axis=2) if self.zero_padding else lengths

    def covering_problems(self, window, layers):
        """All problems of up to w digits, and those of w + 1 whose ones are 0 + 0 or 9 + 9, w the columns in reach.

        From column j (the ones are column 0) a token reaches the columns j - below to j + above. With window 0..1 and one
        layer, below = 0, above = 1 and w = 2:

            column     3  2  1  0
            A          .  a  a  9       the token in column 1 sees the digits marked a and c of columns 1 and 2; a carry into
            B          .  a  a  9       column 1 comes from below and is set by 0 + 0 or 9 + 9
            sum           .  c  8

        100**w pairs of numbers and more: cost grows a hundredfold with each column in reach.
        """
        low, high = window
        below, above = layers * max(-low, 0), layers * max(high, 0)
        if not self.zero_padding:
            raise ValueError("the neighbourhoods of addition have been worked out for zero_padding=True only")
        if self.order == "plain":
            raise ValueError("with the order 'plain' the next digit needs a carry from below, which no window can hold")
        if above < 1:
            raise ValueError(
                f"with relation_range {list(window)} the next digit's column is out of sight: no model can be right"
            )
        reach = below + above + 1

        def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            for width in range(1, reach + 2):
                free = min(width, reach)
                for ones in (None,) if width <= reach else (0, 9):
                    for first in range(0, 100**free, _COVERING_BATCH):
                        index = np.arange(first, min(first + _COVERING_BATCH, 100**free))
                        digits = index[:, None] // 10 ** np.arange(2 * free) % 10
                        digits = digits.reshape(-1, 2, free).astype(np.uint8)
                        if ones is not None:
                            digits = np.pad(digits, ((0, 0), (0, 0), (1, 0)), constant_values=ones)
                        yield digits, np.full((len(digits), 2), width)

        return CoveringProblems(
            count=sum(100**width for width in range(1, reach + 1)) + 2 * 100**reach,
            batches=batches(),
            argument=(
                "Call the ones column 0; `+` and `=` stand in column -1, and `$` at the beginning is seen from everywhere "
                f"and itself sees nothing else. Relations within {low}..{high} in {layers} layer(s) connect a response "
                f"token in column j with columns j{-below or ''} to j+{above}, {reach} in all. What it sees there, and what "
                "is right next, follow from the operands' digits in these columns, from the carry into the lowest of them, "
                "and from which of these columns exist. Take the columns above the reach away; they are not seen. Put one "
                "column of 0+0 or 9+9 in the place of all columns below the reach; they pass on nothing but a carry. What "
                f"is left is a problem of at most {reach + 1} digits with the same neighbourhood and the same right next "
                f"token, and if it has {reach + 1}, its ones are 0+0 or 9+9. All such problems are checked."
            ),
        )

    def vary(self, generator, digits, max_length):
        """As they are half of the time, else extended by random columns above, which those below do not see."""
        digits = extend_digits(generator, digits, max_length)
        return digits, np.full(digits.shape[:2], digits.shape[2])

    def prompt(self, question):
        match = re.fullmatch(r"\s*([0-9]+)\s*\+\s*([0-9]+)\s*=?\s*", question, flags=re.ASCII)
        if match is None:
            raise ValueError(f"the question {question!r} is not an addition such as {self.example_question!r}")
        first, second = match.groups()
        if self.zero_padding:
            width = max(len(first), len(second))
            first, second = first.zfill(width), second.zfill(width)
        if self.order == "all_reversed":
            first, second = first[::-1], second[::-1]
        return f"{first}+{second}="
