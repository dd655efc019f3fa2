"""Questions as a person asks them: numbers with a sign between them."""

import re
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
