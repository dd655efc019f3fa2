"""Questions for the study `sentences`: what is asked for follows from a and b, and c is another number."""

# Used by: sentences.py. Changed freely.

import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from longhand.hub_cards.recipes import read_settings

SEPARATOR = "="
"""What stands between an answer, ones first, and the answer as people read it."""


class Operation(NamedTuple):
    """What is asked for.

    Attributes:
        trained, tested: templates of the training, of which the small Llama has the first five, and further ones.
    """

    trained: Sequence[str]
    tested: Sequence[str]


SUM, DIFFERENCE, PRODUCT, LARGER = "sum", "difference", "product", "larger"

OPERATIONS = {name: Operation(**said) for name, said in read_settings(Path(__file__).with_suffix(".yaml")).items()}
"""The templates of each; the file says what they are."""


def draw_problem(draws: random.Random, templates: Sequence[str], operation: str, first: int, second: int) -> tuple[str, str]:
    """Return a question of numbers with so many digits, and its answer, as it is written and as people read it.

    The first number of a difference is the larger one, and the second one of a product has one digit.
    """
    numbers = [draws.randrange(10 ** (digits - 1) if digits > 1 else 0, 10**digits) for digits in (first, second)]
    if operation == DIFFERENCE:
        numbers.sort(reverse=True)
    if operation == PRODUCT:
        numbers[1] = draws.randint(1, 9)
    other = draws.randrange(10 ** draws.randint(1, 4))
    question = draws.choice(templates).format(a=numbers[0], b=numbers[1], c=other)
    return question, answer_of(operation, *numbers)


def answer_of(operation: str, first: int, second: int) -> str:
    """Return what is written behind the marker: the answer with the ones first, the separator, and the answer as read.

    A difference has as many digits as the first number, since no place tells whether all that follow are 0. For the larger
    number, each place says which one is larger up to there: 1 the first, 2 the second, 0 neither; the last one is read.
    """
    if operation == LARGER:
        said = ""
        for place in range(max(len(str(first)), len(str(second)))):
            so_far = 10 ** (place + 1)
            one, other = first % so_far, second % so_far
            said += "1" if one > other else "2" if one < other else "0"
        return f"{said}{SEPARATOR}{said[-1]}"
    results = {SUM: first + second, DIFFERENCE: first - second, PRODUCT: first * second}
    written = str(results[operation]).zfill(len(str(first)) if operation == DIFFERENCE else 1)
    return f"{written[::-1]}{SEPARATOR}{written}"
