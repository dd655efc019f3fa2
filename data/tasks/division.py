"""Division by a number of one digit: `$8764/7=1310>1252$`, remainders and then the quotient."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from longhand.data.digits import divide_digits
from longhand.data.formatting import lay_out, pad_beyond
from longhand.data.tasks.covering import DIGITS, Case, CoveringNeighbourhoods, combine, list_neighbourhoods
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.questions import NUMBER
from longhand.data.tasks.reader import AnswerReader
from longhand.data.tasks.registry import register_task
from longhand.modeling.inputs import PromptFormat
from longhand.modeling.vocabulary import BOS, DIVIDED_BY, EQUALS, GREATER


@register_task
@dataclass(frozen=True)
class Division(DecoderTask):
    """Quotients and remainders of a number of any length and one of a single digit, which is not 0.

    All numbers are written with the most significant digit first. First come the remainders: what remains of the dividend's
    first digit, of its first two digits, and so on; the last one is the remainder of the answer. Then comes the quotient,
    with as many digits as the dividend. The dividend's length is uniform, then the dividend is uniform among the numbers of
    its length. The divisor is uniform. A group holds the problems whose dividend has one length.
    """

    name: ClassVar[str] = "division"
    sign: ClassVar[str] = "/"
    vocab_size: ClassVar[int] = DIVIDED_BY + 1
    coupling: ClassVar[str] = "division"
    operands: ClassVar[int] = 2
    example_question: ClassVar[str] = "8764/7"
    size_names: ClassVar[tuple[str, str]] = ("digits of the dividend", "digits of the divisor")
    sized_problems: ClassVar[tuple[str, str]] = ("dividends of", "digit")
    every_problem: ClassVar[str] = "a dividend of every length and every divisor of one digit"
    shows_work: ClassVar[bool] = True
    answer_form: ClassVar[str] = "quotient and remainder alone, such as '3 remainder 1'"

    reader = AnswerReader(leading_zeros=False, remainder=">")

    prompt_format = PromptFormat(f"{NUMBER}/[1-9]=", "8764/7=", response="[0-9]*(?:>[0-9]*)?")

    def operand_lengths(self, length, other=None):
        if other not in (None, 1):
            raise ValueError(f"the divisor has one digit, not {other}")
        return (length, 1)

    def sample_lengths(self, generator, count, min_length, max_length):
        lengths = super().sample_lengths(generator, count, min_length, max_length)
        lengths[:, 1] = 1
        return lengths

    def draw_operands(self, generator, lengths):
        digits = super().draw_operands(generator, lengths)
        digits[:, 1, 0] = generator.integers(1, 10, size=len(digits))
        return digits

    def answer_length(self, lengths):
        """The last remainder, `>`, the quotient and the end token."""
        return lengths[0] + 3

    def format(self, digits, lengths):
        dividends, divisors = digits[:, 0], digits[:, 1, :1]
        rows = (dividends, *divide_digits(dividends, divisors[:, 0]))
        dividends, quotients, remainders = (pad_beyond(row, lengths[:, 0])[:, ::-1] for row in rows)
        parts = [BOS, dividends, DIVIDED_BY, divisors, EQUALS, remainders, GREATER, quotients, self.end_token]
        return lay_out(parts, query_parts=5)

    def read_question(self, question):
        """Numbers are written without leading zeros."""
        dividend, divisor = (number.lstrip("0") or "0" for number in super().read_question(question))
        if divisor == "0":
            raise ValueError(f"the question {question!r} has no answer: no number can be divided by 0")
        if len(divisor) > 1:
            raise ValueError(f"the divisor of the question {question!r} must have one digit, 1 to 9, got {divisor}")
        return [dividend, divisor]

    def show_work(self, question, response):
        """Every product is taken away from what remains, next to the next digit; a digit 0 of the quotient takes no step.

        A long response, one of another form, or one with a wrong step is shown as it is.
        """
        dividend, divisor = self.read_question(question)
        remainders, _, quotient = response.partition(">")
        length = len(dividend)
        if length > _MOST_SHOWN or not re.fullmatch(f"[0-9]{{{length}}}>[0-9]{{{length}}}", response):
            return response
        steps = zip("0" + remainders, dividend, quotient, remainders, strict=False)
        if any(int(before + digit) != int(divisor) * int(found) + int(left) for before, digit, found, left in steps):
            return response
        rows = [f" {dividend} / {divisor} = {self.reader.read(response)}"]
        for place, digit in enumerate(map(int, quotient)):
            if digit:
                if len(rows) > 1:
                    rows.append(f"{int(remainders[place - 1] + dividend[place]):>{place + 2}}")
                product = f"-{digit * int(divisor)}"
                rows += [f"{product:>{place + 2}}", f"{'-' * len(product):>{place + 2}}"]
        return "\n".join(rows if len(rows) == 1 else [*rows, f"{remainders[-1]:>{length + 1}}"])

    def covering(self, window, layers):
        """All 5,625 neighbourhoods, each once; `_every_neighbourhood` lists them."""
        self.check_window(window, layers)
        return CoveringNeighbourhoods(
            count=5_625,
            batches=list_neighbourhoods(_every_neighbourhood(self.end_token), np.arange(4)),
            argument=(
                "Columns count from the dividend's first digit on; the sign that begins a row stands before the first "
                "one, and `/` after the last one. Every token of the response sees `$`, which itself sees nothing else, "
                "the divisor v, in another relation in each row, and the dividend's digit d in the next column, or `/` if"
                " there is none. (1) `=` has nothing before it: right next is d mod v. (2) A remainder r is any number "
                "below v. Right next is (10 r + d) mod v, or `>` after the last column. (3) The `>` also sees `=`: right "
                "next is d / v, rounded down. (4) A digit of the quotient, which may be any, also sees the remainder r of"
                " its own column. Right next is (10 r + d) / v, rounded down, or the end token after the last column. All"
                " these cases are checked with all digits, divisors and remainders."
            ),
        )


_MOST_SHOWN = 1000
"""Digits of a dividend whose work is laid out: it takes as many lines and columns."""

# The slots of a neighbourhood, in the order of the coupling rule's relations.
NEXT, DIVISOR, DIVISOR_OF_QUOTIENT, REMAINDER = range(4)


def _every_neighbourhood(end_token: int) -> Iterator[Case]:
    """Every neighbourhood once."""
    following, divisor = combine(DIGITS, DIGITS[1:])
    yield EQUALS, following % divisor, {NEXT: following, DIVISOR: divisor}
    yield GREATER, following // divisor, {NEXT: following, DIVISOR_OF_QUOTIENT: divisor, REMAINDER: EQUALS}

    divisors, remainders = np.nonzero(DIGITS[:, None] > DIGITS)
    pairs = np.arange(len(divisors))
    yield remainders, GREATER, {NEXT: DIVIDED_BY, DIVISOR: divisors}
    pair, following = combine(pairs, DIGITS)
    divisor, remainder = divisors[pair], remainders[pair]
    yield remainder, (10 * remainder + following) % divisor, {NEXT: following, DIVISOR: divisor}

    pair, digit = combine(pairs, DIGITS)
    yield digit, end_token, {NEXT: DIVIDED_BY, DIVISOR_OF_QUOTIENT: divisors[pair], REMAINDER: remainders[pair]}
    pair, digit, following = combine(pairs, DIGITS, DIGITS)
    divisor, remainder = divisors[pair], remainders[pair]
    keys = {NEXT: following, DIVISOR_OF_QUOTIENT: divisor, REMAINDER: remainder}
    yield digit, (10 * remainder + following) // divisor, keys
