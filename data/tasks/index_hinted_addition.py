"""Addition with index hints: `$Ā0ā6Ă5ă3+Ā0ā0Ă4ă9=ă2Ă0ā7Ā0$` (paper 1, Sec. 4; Zhou et al., 2024)."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from longhand.data.digits import add_digits
from longhand.data.formatting import check_longest, lay_out
from longhand.data.tasks.addition import Addition
from longhand.data.tasks.registry import register_task
from longhand.data.tasks.task import Task
from longhand.modeling.inputs import PromptFormat
from longhand.modeling.vocabulary import ALL_TOKENS, BOS, EQUALS, FIRST_HINT, HINTS, PLUS


@register_task
@dataclass(frozen=True)
class IndexHintedAddition(Addition):
    """Sums of two numbers of decimal digits. Before each digit stands a hint, a token that tells the digit's significance.

    If the longer operand has L digits, all three numbers are zero-padded to L + 1 digits and have the same consecutive
    hints. The most significant digit has the first hint, so hints run backwards in a number written with the ones first.
    Problems are written and evaluated with the first hints of the vocabulary. In training each problem gets a new random
    start every time that it is seen, uniform among the starts that fit the first `max_hints` hints.

    Sampling and groups are as in `Addition`.
    """

    name: ClassVar[str] = "index_hinted_addition"
    coupling: ClassVar[str] = "sequential"
    vocab_size: ClassVar[int] = len(ALL_TOKENS)
    # What is part of the format of `Addition` is fixed here.
    zero_padding: ClassVar[bool] = True  # type: ignore[misc]
    order: ClassVar[str] = "response_reversed"  # type: ignore[misc]

    max_hints: int = field(
        default=len(HINTS),
        metadata={
            "help": f"use the first hints of the vocabulary, 2 to {len(HINTS)} of them: operands have fewer digits",
            "range": (2, len(HINTS)),
        },
    )

    @property
    def reader(self):
        return replace(super().reader, dropped="^0-9")

    @property
    def prompt_format(self):
        hint = f"[{HINTS[0]}-{HINTS[-1]}]"
        number = f"{hint}0(?:{hint}[0-9])+"
        example = "+".join("".join(map("".join, zip(HINTS, digits, strict=False))) for digits in ("0653", "0049"))
        response = f"(?:{hint}[0-9])*{hint}?"
        return PromptFormat(rf"{number}\+{number}=", f"{example}=", response=response, equal_widths=True, hint_step=1)

    def format(self, digits, lengths):
        count, _, longest = digits.shape
        check_longest(digits, lengths)
        if longest >= self.max_hints:
            raise ValueError(
                f"operands of {longest} digits need {longest + 1} index hints, but there are {self.max_hints}: "
                f"the longest that fit have {self.max_hints - 1} digits"
            )
        total = add_digits(digits[:, 0], digits[:, 1])
        padded = np.pad(digits, ((0, 0), (0, 0), (0, 1)))
        numbers = np.empty((3, count, longest + 1, 2), dtype=np.uint8)
        numbers[..., 0] = FIRST_HINT + np.arange(longest, -1, -1)
        numbers[0, ..., 1], numbers[1, ..., 1], numbers[2, ..., 1] = padded[:, 0], padded[:, 1], total
        numbers[:2] = numbers[:2, :, ::-1]
        first, second, total = numbers.reshape(3, count, -1)
        return lay_out([BOS, first, PLUS, second, EQUALS, total, self.end_token], query_parts=5)

    def augment(self, generator, examples):
        """Move each example's hints to a random start."""
        tokens = examples.tokens
        starts = FIRST_HINT + self.max_hints - tokens.max(axis=1, keepdims=True).astype(int)
        offset = generator.integers(0, starts, dtype=np.uint8)
        return replace(examples, tokens=tokens + offset * (tokens >= FIRST_HINT))

    # The task numbers its tokens one by one: the longer the operands, the farther apart are digits of one significance.
    covering = Task.covering
