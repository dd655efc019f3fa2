"""Addition of two numbers: `$653+049=2070$` (paper 1, Secs. 2 and 4)."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from longhand.data.complexity import cascade_lengths
from longhand.data.digits import add_digits, extend_digits, number_lengths
from longhand.data.formatting import check_longest, lay_out, pad_beyond
from longhand.data.tasks.covering import CoveringProblems
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.lengths import LongestOfTwoLengths
from longhand.data.tasks.questions import NUMBER, NUMBER_ONES_FIRST
from longhand.data.tasks.reader import ONES_FIRST, AnswerReader
from longhand.data.tasks.registry import register_task
from longhand.modeling.inputs import PromptFormat
from longhand.modeling.vocabulary import BOS, EQUALS, PLUS

_COUPLING = {"response_reversed": "addition", "all_reversed": "addition_all_reversed", "plain": "addition_plain"}

_COVERING_BATCH = 10_000


@register_task
@dataclass(frozen=True)
class Addition(LongestOfTwoLengths, DecoderTask):
    """Sums of two numbers of decimal digits.

    Lengths are balanced: each operand's length is uniform, then the operand is uniform among the numbers of that length. A
    group holds the problems whose longer operand has the same length. With zero-padding they have the same layout.
    """

    name: ClassVar[str] = "addition"
    sign: ClassVar[str] = "+"
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

    @property
    def prompt_format(self):
        ones_first = self.order == "all_reversed"
        shortest = NUMBER_ONES_FIRST if ones_first else NUMBER
        number = "[0-9]+" if self.zero_padding else shortest
        padded = "356+940=" if ones_first else "653+049="
        return PromptFormat(
            rf"{number}\+{number}=",
            padded if self.zero_padding else padded.replace("0", ""),
            response="[0-9]*",
            equal_widths=self.zero_padding,
            ones_first=ones_first,
        )

    def read_question(self, question):
        """Leading zeros count as digits if numbers are padded; otherwise they are removed."""
        numbers = super().read_question(question)
        return numbers if self.zero_padding else [number.lstrip("0") or "0" for number in numbers]

    def format(self, digits, lengths):
        first, second = digits[:, 0], digits[:, 1]
        total = add_digits(first, second)
        if not self.zero_padding:
            longest = lengths.max(axis=1)
            has_carry = np.take_along_axis(total, longest[:, None], axis=1)[:, 0] > 0
            total = pad_beyond(total, longest + has_carry)
            first, second = pad_beyond(first, lengths[:, 0]), pad_beyond(second, lengths[:, 1])
        else:
            check_longest(digits, lengths)
        if self.order != "all_reversed":
            first, second = first[:, ::-1], second[:, ::-1]
        if self.order == "plain":
            total = total[:, ::-1]
        return lay_out([BOS, first, PLUS, second, EQUALS, total, self.end_token], query_parts=5)

    def rewrite(self, generator, digits, lengths):
        return super().rewrite(generator, digits, self._written_lengths(digits))

    def _written_lengths(self, digits: np.ndarray) -> np.ndarray:
        """Lengths (count, operands) of numbers whose zeros on top count as digits only if numbers are padded."""
        return np.full(digits.shape[:2], digits.shape[2]) if self.zero_padding else number_lengths(digits)

    def covering(self, window, layers):
        """Two kinds of problems, if w columns are in reach: all of up to w digits, and of w + 1 with ones 0 + 0 or 9 + 9.

        From column j (the ones are column 0) a token reaches the columns j - below to j + above. With window 0..1 and one
        layer, below = 0, above = 1 and w = 2:

            column     3  2  1  0
            A          .  a  a  9       the token in column 1 sees the digits marked a and c of columns 1 and 2; a carry into
            B          .  a  a  9       column 1 comes from below and is set by 0 + 0 or 9 + 9
            sum           .  c  8

        Without zero-padding operands end in columns of their own. No number is written with a 0 on top, so an operand with a
        0 in the highest of the w columns gets a 1 above, which is not seen: those are the numbers below 1.1 * 10**w.

        There are more than 100**w problems: cost grows a hundredfold with each column in reach.
        """
        low, high = window
        below, above = layers * max(-low, 0), layers * max(high, 0)
        if self.order == "plain":
            raise ValueError("with the order 'plain' the next digit needs a carry from below, which no window can hold")
        if above < 1:
            raise ValueError(
                f"with relation_range {list(window)} the next digit's column is out of sight: no model can be right"
            )
        reach = below + above + 1
        if self.zero_padding:
            kinds = [(0, 10**width, width, None) for width in range(1, reach + 1)]
            kinds += [(0, 10**reach, reach, ones) for ones in (0, 9)]
            ends, goes_on = "which of these columns exist", ""
            result = f"a problem of at most {reach + 1} digits"
            added = f" If it has {reach + 1} digits, its ones are 0+0 or 9+9."
        else:
            largest = 11 * 10 ** (reach - 1)
            # With a column of ones, shorter problems are problems without it.
            kinds = [
                (10 ** (width - 1) * (width > 1), min(10**width, largest), width, ones)
                for ones, shortest in ((None, 1), (0, reach), (9, reach))
                for width in range(shortest, reach + 2)
            ]
            ends = "where each operand ends"
            goes_on = "An operand that goes on above them, with a 0 in the highest of them, keeps a 1 above. "
            result = f"a sum of two numbers below {largest}, perhaps with a column of 0+0 or 9+9 put below,"
            added = ""

        def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            """Pairs of numbers below `stop`, the larger one at least `start`, with a column of `ones` below, if any."""
            for start, stop, width, ones in kinds:
                for first in range(0, stop**2, _COVERING_BATCH):
                    pairs = np.stack(np.divmod(np.arange(first, min(first + _COVERING_BATCH, stop**2)), stop), axis=1)
                    pairs = pairs[pairs.max(axis=1) >= start, :, None]
                    digits = (pairs // 10 ** np.arange(width) % 10).astype(np.uint8)
                    if ones is not None:
                        digits = np.pad(digits, ((0, 0), (0, 0), (1, 0)), constant_values=ones)
                    if len(digits):
                        yield digits, self._written_lengths(digits)

        return CoveringProblems(
            count=sum(stop**2 - start**2 for start, stop, _, _ in kinds),
            batches=batches(),
            argument=(
                "Call the ones column 0; `+` and `=` stand in column -1. `$` at the beginning is seen from everywhere and "
                f"itself sees nothing else. Relations within {low}..{high} in {layers} layer(s) connect a response token "
                f"in column j with columns j{-below or ''} to j+{above}, {reach} in all. What it sees there, and what is "
                "right next, follow from three things: the operands' digits in these columns, the carry into the lowest "
                f"of them, and {ends}. Remove the columns above the reach; they are not seen. {goes_on}"
                "Replace all columns below the reach by one column of 0+0 or 9+9; they pass on nothing but a carry. The "
                f"result is {result} with the same neighbourhood and the same right next token.{added} All such problems "
                "are checked."
            ),
        )

    def vary(self, generator, digits, max_length):
        """Extend half of the problems by random columns above; the columns below do not see them."""
        return extend_digits(generator, digits, max_length)

    def extra_columns(self, digits):
        return {"longest_cascade": pa.array(cascade_lengths(digits[:, 0], digits[:, 1]).astype(np.int32))}
