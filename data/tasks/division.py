"""Division by a number of one digit: `$8764/7=1310>1252$`, remainders and then the quotient."""

# Used by: whoever runs or imports it. Changed freely.

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from longhand.data.digits import divide_digits
from longhand.data.formatting import lay_out, pad_beyond
from longhand.data.machines.columns import ABSENT, Columns, Graph, Rows, by_column, one_token
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.reader import NUMBER, AnswerReader
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

    def runs(self, ordered=False):
        """A token sees the dividend's next digit and the divisor; one of the quotient also the remainder of its column."""
        return (_divisions(self.end_token),)


@lru_cache(maxsize=4)
def _divisions(end_token: int) -> Graph:
    """All divisions.

        $ 8 7 6 4 / 7 = 1 3 1 0 > 1 2 5 2 $
        0 2 3 4 5 6 0 1 2 3 4 5 1 2 3 4 5 0      column, from the top; the divisor has none
        0 0 0 0 0 0 1 2 2 2 2 2 3 3 3 3 3 0      the divisor; the remainders; the quotient

    A state is the divisor, the remainder, and whether the dividend begins with a 0, behind which nothing stands. `/` stands
    behind the dividend.
    """

    def step(state, digit):
        divisor, remainder, is_zero = state
        quotient, rest = divmod(10 * remainder + digit, divisor)
        following = (divisor, rest, is_zero is None and digit == 0)
        return None if is_zero else ((digit, divisor, rest, quotient), following)

    def ends(state):
        return DIVIDED_BY, state[0], ABSENT, ABSENT, GREATER, end_token

    starts = {(divisor, 0, None): (ABSENT, divisor, EQUALS, GREATER) for divisor in range(1, 10)}
    rows = Rows([by_column(1, 0), one_token(0, 1), by_column(1, 2), by_column(1, 3)], passes=2)
    return Columns(rows, starts, range(10), step, ends).graph
