"""Addition: of two numbers, `$653+049=2070$`, with index hints, `$Ā0ā6Ă5ă3+Ā0ā0Ă4ă9=ă2Ă0ā7Ā0$`, or of several numbers,
`$0653+0049+0871=3751$` (paper 1, Secs. 2 and 4, App. B; index hints: Zhou et al., 2024)."""

# Used by: whoever runs or imports it. Changed freely.

from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from itertools import combinations_with_replacement, product
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from longhand.data.digits import add_digits, extend_digits, number_lengths
from longhand.data.formatting import check_longest, lay_out, pad_beyond
from longhand.data.lengths import LongestOperandLengths
from longhand.data.machines.columns import ABSENT, ENDING, Columns, Graph, Number, Rows, TextLayout, by_column, grow
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.reader import NUMBER, NUMBER_ONES_FIRST, ONES_FIRST, AnswerReader
from longhand.data.tasks.registry import register_task
from longhand.modeling.inputs import PromptFormat
from longhand.modeling.vocabulary import ALL_TOKENS, BOS, EQUALS, FIRST_HINT, HINTS, PLUS

_COUPLING = {"response_reversed": "addition", "all_reversed": "addition_all_reversed", "plain": "addition_plain"}


@register_task
@dataclass(frozen=True)
class Addition(LongestOperandLengths, DecoderTask):
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
    def further_couplings(self):
        # Its ids follow the length of the response, which is the query's to tell where nothing is padded.
        is_released = self.order == "plain" and not self.zero_padding
        return ("addition_plain_unpadded",) if is_released else ()

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

    known_window = None

    def runs(self, ordered=False):
        """A token sees, in each column of the window, the digits of both operands, and what is written so far."""
        if self.order == "plain":
            raise ValueError(
                "with the order 'plain' the next digit needs a carry from below, which no window can hold and no few digits "
                "decide"
            )
        layout = TextLayout(last_first=self.order != "all_reversed", zero_on_top=False) if self.zero_padding else None
        return (_sums(2, self.zero_padding, ABSENT, self.end_token, ordered, layout),)

    def vary(self, generator, digits, max_length):
        """Extend half of the problems by random columns above; the columns below do not see them."""
        return extend_digits(generator, digits, max_length)

    def extra_columns(self, digits):
        from longhand.data.tasks.complexity import cascade_lengths

        return {"longest_cascade": pa.array(cascade_lengths(digits[:, 0], digits[:, 1]).astype(np.int32))}


@lru_cache(maxsize=4)
def _sums(operands: int, zero_padding: bool, beyond: int, end_token: int, ordered: bool, layout: TextLayout | None) -> Graph:
    """All sums. A state is the carry, and what has been read of each operand.

        $ 6 5 3 + 0 4 9 = 2 0 7 0 $
        0 2 3 4 5 2 3 4 5 4 3 2 1 0      significance: digits of one column have one id

    Args:
        beyond: what padded operands hold in the column above the longest one: 0, or nothing, `ABSENT`.
        ordered: whether the digits in a column of padded operands come in every order.
        layout: as in `Rows`.
    """

    def step(state, digits):
        carry, numbers = state
        is_above = max(digits) == ABSENT
        # Above padded numbers there is one column; above others there is one if a carry is left.
        if is_above and zero_padding and Number.ENDED in numbers:
            return None
        if is_above and not zero_padding and carry == 0:
            return None
        # Padded numbers may have a 0 on top: it is read as another digit.
        read = [digit or int(zero_padding) for digit in digits]
        following = tuple(grow(number, digit) for number, digit in zip(numbers, read, strict=True))
        if None in following:
            return None
        total = sum(max(digit, 0) for digit in digits) + carry
        shown = (beyond,) * operands if is_above else digits
        return (*shown, total % 10), (total // 10, following)

    def ends(state):
        carry, numbers = state
        may_end = (Number.ENDED,) if zero_padding else ENDING
        if carry or not all(number in may_end for number in numbers):
            return None
        return (*[ABSENT] * operands, end_token)

    starts = {(0, (Number.BEFORE,) * operands): (*[PLUS] * (operands - 1), ABSENT, EQUALS)}
    # In most formats a token cannot tell the order of padded digits in a column; other numbers end one by one.
    columns = [*product(range(ABSENT, 10), repeat=operands)]
    if zero_padding:
        digits = product(range(10), repeat=operands) if ordered else combinations_with_replacement(range(10), operands)
        columns = [*digits, (ABSENT,) * operands]
    rows = Rows([by_column(-1)] * (operands + 1), practised=range(operands), layout=layout)
    return Columns(rows, starts, columns, step, ends).graph


@register_task
@dataclass(frozen=True)
class IndexHintedAddition(Addition):
    """Sums of two numbers of decimal digits. Before each digit stands a hint, a token that tells the digit's significance.

    If the longer operand has L digits, all three numbers are zero-padded to L + 1 digits and have the same consecutive
    hints. The most significant digit has the first hint, so hints run backwards in a number written with the ones first.
    With the order "plain" and the hints a to d, 653 + 49 is `$a0b6c5d3+a0b0c4d9=a0b7c0d2$`, the example of paper 1
    (Sec. 3.1), which learns the response's hints too.
    Problems are written and evaluated with the first hints of the vocabulary. In training each problem gets a new random
    start every time that it is seen, uniform among the starts that fit the first `max_hints` hints.

    Sampling and groups are as in `Addition`.
    """

    name: ClassVar[str] = "index_hinted_addition"
    coupling: ClassVar[str] = "sequential"
    vocab_size: ClassVar[int] = len(ALL_TOKENS)
    # Fields of the format of `Addition` that have one value here.
    zero_padding: ClassVar[bool] = True  # type: ignore[misc]

    max_hints: int = field(
        default=len(HINTS),
        metadata={
            "help": f"use the first hints of the vocabulary, 2 to {len(HINTS)} of them: operands have fewer digits",
            "range": (2, len(HINTS)),
        },
    )
    supervise_hints: bool = field(
        default=True, metadata={"help": "learn the response's hints too; otherwise they are given and do not count"}
    )

    @property
    def reader(self):
        return replace(super().reader, dropped="^0-9")

    @property
    def prompt_format(self):
        hint = f"[{HINTS[0]}-{HINTS[-1]}]"
        ones_first = self.order == "all_reversed"
        number = f"(?:{hint}[0-9])+{hint}0" if ones_first else f"{hint}0(?:{hint}[0-9])+"
        digits = ("3560", "9400") if ones_first else ("0653", "0049")
        hints = HINTS[3::-1] if ones_first else HINTS[:4]
        hinted = ["".join(map("".join, zip(hints, written, strict=True))) for written in digits]
        return PromptFormat(
            rf"{number}\+{number}=",
            f"{'+'.join(hinted)}=",
            response=f"(?:{hint}[0-9])*{hint}?",
            equal_widths=True,
            ones_first=ones_first,
            hint_step=-1 if ones_first else 1,
            hints_given=not self.supervise_hints,
        )

    @property
    def answers_questions(self):
        return self.supervise_hints

    def format(self, digits, lengths):
        count, _, longest = digits.shape
        check_longest(digits, lengths)
        if longest >= self.max_hints:
            raise ValueError(
                f"operands of {longest} digits need {longest + 1} index hints, but there are {self.max_hints}: "
                f"the longest that fit have {self.max_hints - 1} digits"
            )
        padded = np.pad(digits, ((0, 0), (0, 0), (0, 1)))
        hints = np.broadcast_to((FIRST_HINT + np.arange(longest, -1, -1)).astype(np.uint8), (count, longest + 1))

        def hinted(number: np.ndarray, ones_first: bool) -> np.ndarray:
            """The hints and the digits (count, longest + 1) of a number, by turns."""
            pairs = np.stack([hints, number], axis=2)
            return (pairs if ones_first else pairs[:, ::-1]).reshape(count, -1)

        operands_reversed, response_reversed = self.order == "all_reversed", self.order != "plain"
        first, second = (hinted(padded[:, place], operands_reversed) for place in (0, 1))
        total = hinted(add_digits(digits[:, 0], digits[:, 1]), response_reversed)
        examples = lay_out([BOS, first, PLUS, second, EQUALS, total, self.end_token], query_parts=5)
        return examples if self.supervise_hints else replace(examples, supervised=examples.tokens < FIRST_HINT)

    def augment(self, generator, examples):
        """Move each example's hints to a random start."""
        tokens = examples.tokens
        starts = FIRST_HINT + self.max_hints - tokens.max(axis=1, keepdims=True).astype(int)
        offset = generator.integers(0, starts, dtype=np.uint8)
        return replace(examples, tokens=tokens + offset * (tokens >= FIRST_HINT))

    # The task numbers its tokens one by one: the longer the operands, the farther apart are digits of one significance.
    runs = DecoderTask.runs


@register_task
@dataclass(frozen=True)
class MultiOperandAddition(LongestOperandLengths, DecoderTask):
    """Sums of `operands` numbers of decimal digits.

    Lengths are balanced: each operand's length is uniform, then the operand is uniform among the numbers of that length. If
    the longest operand has L digits, all operands and the sum are zero-padded to L + 1 digits, which no sum of up to ten
    operands exceeds. The sum is written with the ones digit first. A group holds the problems of one L; they have the same
    layout.
    """

    name: ClassVar[str] = "multi_operand_addition"
    sign: ClassVar[str] = "+"
    coupling: ClassVar[str] = "multi_operand_addition"
    reader = ONES_FIRST

    # Fields that have one value in other tasks and vary in this one.
    operands: int = field(default=3, metadata={"help": "how many numbers are added, 2 to 10", "range": (2, 10)})  # type: ignore[misc]

    @property
    def example_question(self) -> str:
        return "+".join(["653", "49", "871", "8", "20", "999", "5", "46", "7", "10"][: self.operands])

    @property
    def further_couplings(self):
        return ("multi_operand_addition_marked_top",)

    @property
    def prompt_format(self):
        numbers = [number.zfill(4) for number in self.example_question.split("+")]
        pattern = rf"0[0-9]+(?:\+0[0-9]+){{{self.operands - 1}}}="
        return PromptFormat(pattern, f"{'+'.join(numbers)}=", response="[0-9]*", equal_widths=True)

    def format(self, digits, lengths):
        longest = digits.shape[2]
        check_longest(digits, lengths)
        padded = np.zeros((len(digits), self.operands, longest + 1), dtype=np.uint8)
        padded[:, :, :longest] = digits
        operands = [padded[:, place] for place in range(self.operands)]
        total = reduce(lambda first, second: add_digits(first, second)[:, : longest + 1], operands)
        query = [part for operand in operands for part in (operand[:, ::-1], PLUS)]
        query[-1] = EQUALS
        return lay_out([BOS, *query, total, self.end_token], query_parts=len(query) + 1)

    known_window = (0, 1)

    def runs(self, ordered=False):
        layout = TextLayout(last_first=True, padding=1, zero_on_top=False)
        return (_sums(self.operands, True, 0, self.end_token, ordered, layout),)

    def vary(self, generator, digits, max_length):
        """Shuffle the digits of every column; half of the time, also extend the problems by random columns above."""
        return extend_digits(generator, generator.permuted(digits, axis=1), max_length)
