"""Questions as a person asks them, numbers with a sign between them, and how an answer is read from a response."""

# Used by: data/tasks, hub_cards/evaluation. Changed freely.

import json
import re
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

NUMBER, NUMBER_ONES_FIRST = "(?:0|[1-9][0-9]*)", "(?:0|[0-9]*[1-9])"
"""Regular expressions of a number without leading zeros, which come last if the ones digit comes first."""

_NOUNS = {"+": "an addition", "-": "a subtraction", "*": "a multiplication", "/": "a division"}


def read_numbers(question: str, sign: str, example: str, count: int | None = 2) -> list[str]:
    """The numbers of a question such as `653+49`, as text; spaces and a `=` at the end are legal.

    Args:
        sign: a sign of the vocabulary such as `+`.
        example: a legal question, for the message.
        count: how many numbers there must be; None for two or more.

    Raises:
        ValueError: the question is not of this form.
    """
    noun = _NOUNS.get(sign, f"two numbers with {sign!r} between them")
    form = rf"\s*[0-9]+\s*({re.escape(sign)}\s*[0-9]+\s*)+=?\s*"
    numbers = re.findall("[0-9]+", question) if re.fullmatch(form, question, flags=re.ASCII) else []
    if not numbers or count not in (None, len(numbers)):
        quantity = {2: "", None: " of two or more numbers"}.get(count, f" of {count} numbers")
        raise ValueError(f"the question {question!r} is not {noun}{quantity} such as {example!r}")
    return numbers


def digits_of(numbers: list[str]) -> np.ndarray:
    """Numbers as text, made one problem (1, numbers, width) of uint8 digits, ones first, 0 beyond a number's length."""
    width = max(map(len, numbers))
    text = "".join(number.zfill(width)[::-1] for number in numbers)
    return np.frombuffer(text.encode(), np.uint8).reshape(1, len(numbers), width) - ord("0")


def write_questions(digits: np.ndarray, sign: str) -> list[str]:
    """Problems (count, operands, width), ones first, as questions such as `653+49`; the inverse of reading them."""
    characters = np.ascontiguousarray(digits[:, :, ::-1] + np.uint8(ord("0")))
    numbers = np.strings.lstrip(characters.view(f"S{digits.shape[2]}")[..., 0], b"0")
    numbers = np.where(numbers == b"", b"0", numbers).astype(str)
    return reduce(lambda left, right: np.strings.add(np.strings.add(left, sign), right), numbers.T).tolist()


@dataclass(frozen=True)
class AnswerReader:
    """How to turn a response, without its end token, into the usual notation; the attributes are applied in their order.

    Attributes:
        dropped: characters to leave out, in the notation of a regular expression's character set such as `a-z` or
            `^0-9`.
        separators: the answer stands after the last of these characters.
        last: the answer is this many characters at the end; None for all.
        ones_first: whether the answer is written with the ones digit first.
        leading_zeros: whether zeros at the front are part of the answer; if not, a number of zeros alone reads 0.
        padding: character to strip from both ends.
        negative: a response with this character has an answer below 0; the steps before give its digits.
        remainder: a response is a row of remainders, this character, and a quotient, which the steps before read. The answer
            is the quotient and the last remainder.
        zero: the character that leading zeros are.
    """

    dropped: str = ""
    separators: str = ""
    last: int | None = None
    ones_first: bool = False
    leading_zeros: bool = True
    padding: str = ""
    negative: str = ""
    remainder: str = ""
    zero: str = "0"

    def read(self, text: str) -> str:
        """The answer in a response."""
        if self.remainder:
            rests, *quotients = text.split(self.remainder)
            if len(quotients) != 1 or not (rests and quotients[0]):
                return ""
            return f"{replace(self, remainder='').read(quotients[0])} remainder {rests[-1]}"
        if self.negative and self.negative in text:
            digits = replace(self, negative="").read(text)
            return f"-{digits}" if digits else ""
        if self.dropped:
            text = re.sub(f"[{self.dropped}]", "", text)
        if self.separators:
            text = re.split(f"[{self.separators}]", text)[-1]
        if self.last is not None:
            text = text[-self.last :]
        if self.ones_first:
            text = text[::-1]
        if not self.leading_zeros:
            text = text.lstrip(self.zero) or text[:1]
        return text.strip(self.padding) if self.padding else text

    def code(self, variable: str) -> str:
        """A Python expression that reads the answer from the response in a variable; it needs `imports`."""
        if self.remainder:
            sign = self.remainder
            parts = f"{variable}.split({_quote(sign)})"
            answer = f'({replace(self, remainder="").code(f"{parts}[1]")}) + " remainder " + {parts}[0][-1]'
            return f'{answer} if re.fullmatch({_quote(f"[^{sign}]+{sign}[^{sign}]+")}, {variable}) else ""'
        if self.negative:
            minus = f'("-" if {_quote(self.negative)} in {variable} else "")'
            return f"{minus} + ({replace(self, negative='').code(variable)})"
        code = variable
        if self.dropped:
            code = f're.sub({_quote(f"[{self.dropped}]")}, "", {code})'
        if self.separators:
            code = f"re.split({_quote(f'[{self.separators}]')}, {code})[-1]"
        if self.last is not None:
            code += f"[-{self.last}:]"
        if self.ones_first:
            code += "[::-1]"
        if not self.leading_zeros:
            code += f".lstrip({_quote(self.zero)}) or {_quote(self.zero)}"
            code = f"({code})" if self.padding else code
        return f"{code}.strip({_quote(self.padding)})" if self.padding else code

    @property
    def imports(self) -> tuple[str, ...]:
        """Names of the modules that `code` needs."""
        return ("re",) if self.dropped or self.separators or self.remainder else ()


def _quote(text: str) -> str:
    """A text as a Python literal in double quotes."""
    return json.dumps(text, ensure_ascii=False)


AS_WRITTEN = AnswerReader()
"""The whole response is the answer."""

ONES_FIRST = AnswerReader(ones_first=True, leading_zeros=False)
"""The response is one number, the ones digit first, which may be zero-padded."""
