"""Questions that a function turns on and random words never show: sums and products of operands, ways that its code goes."""

# Used by: operands.py. Changed freely.

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations, product

from longhand.data.learning.questions.branches import Branches
from longhand.data.learning.questions.drawing import LONGEST_CHANGED, Drawing
from longhand.data.learning.questions.words import Words

MOST_RELATED = 60
"""So many numbers, those of code first, are tried as products of two operands."""

MOST_SUMMED, MOST_FACTORS, LEAST_TOO_LARGE = 20, 3, 100
"""So many numbers are tried as sums of operands. Each operand is taken once, or as often as one of so many factors says: the
first numbers below the least that is too large."""

MOST_SUMS, PLACES = 256, 12
"""So many kinds of sums, with different factors and signs, for each number; and so many questions of each kind."""

LARGEST_DIVISOR = 5_000
"""Smaller divisors of these numbers are tried, and the quotients with them."""

FIRST_TRIES, MORE_TRIES, MOST_TRIES = 6_000, 3_000, 40_000
"""Questions by which a new way through the code is looked for: without one, behind each one, and all together."""

ALL_STEPS = 8_000_000
"""Instructions that are watched meanwhile: some seconds."""

MOST_FIRST = 6_000
"""So many questions that hold constants are tried before."""

MOST_NEAR = 4_000
"""Questions that differ in a symbol at a place from those by which the code went a new way."""


def related_numbers(values: Sequence[int], words: Words, generator: random.Random) -> Iterator[list[int]]:
    """Operands of which two are divisors, whose product is a number, or of which multiples are a number together.

    Args:
        values: the numbers, those of code first.
    """
    few = [value for value in values if value][:MOST_RELATED]
    factors = (1, *[value for value in few if 1 < value < LEAST_TOO_LARGE][:MOST_FACTORS])
    products = [(number, value // number) for value in few for number in range(1, LARGEST_DIVISOR) if value % number == 0]
    for places in permutations(range(words.operands), 2):
        for number, pair in enumerate(products):
            row = [generator.randrange(words.base ** (1 + number % 6)) for _ in range(words.operands)]
            for place, divisor in zip(places, pair, strict=True):
                row[place] = divisor
            yield row
    if words.operands > 1:
        for value in (0, *few[:MOST_SUMMED]):
            yield from _sums(value, factors, words, generator)


def _sums(value: int, factors: Sequence[int], words: Words, generator: random.Random) -> Iterator[list[int]]:
    """Operands of which sums, each operand so many times, differ by a number, or are it, as in `2 * a + b == c + 50`."""
    others = words.operands - 1
    kinds = list(product(product(factors, repeat=words.operands), product((1, -1), repeat=others)))
    for (factor, *other_factors), signs in generator.sample(kinds, min(len(kinds), MOST_SUMS)):
        for place in range(PLACES):
            numbers = [_with_carries(value, place, words.base, generator) for _ in range(others)]
            if 1 not in signs and generator.random() < 0.5:
                numbers = [
                    part // other for part, other in zip(_cut(value, others + 1, generator), other_factors, strict=False)
                ]
            near, *further = numbers
            signed, *further_signed = (sign * other for sign, other in zip(signs, other_factors, strict=True))
            constant = value + sum(other * number for other, number in zip(further_signed, further, strict=True))
            for first, second in _proportional(factor, signed, constant, near):
                yield [abs(first), second, *further]


def _cut(value: int, count: int, generator: random.Random) -> list[int]:
    """So many parts of a number; now and then one is nothing, or 1."""
    ends = [generator.choice((0, 1, *[generator.randint(0, value)] * 4)) for _ in range(count - 1)]
    cuts = sorted(min(value, end) for end in ends)
    return [end - first for first, end in pairwise((0, *cuts, value))]


def _proportional(factor: int, other_factor: int, constant: int, near: int) -> Iterator[tuple[int, int]]:
    """Numbers a and b with `factor * a == other_factor * b + constant`, if there are any; b is `near` or a little more."""
    solutions = (number for number in range(near, near + factor) if (other_factor * number + constant) % factor == 0)
    if (number := next(solutions, None)) is not None:
        yield (other_factor * number + constant) // factor, number


def _with_carries(value: int, place: int, base: int, generator: random.Random) -> int:
    """A number to which another one may be added: random, with carries all along, or short of a power of the base."""
    width = 1 + place % 12 if place % 3 == 0 else generator.randint(1, 24)
    top = base**width
    kind = place % 4
    if kind == 0:
        return generator.randrange(top)
    if kind == 1:
        return max(0, top - 1 - generator.randrange(1 + value))
    if kind == 2:
        return top - 1
    few = generator.sample(range(base), 2)
    return sum(base**column * generator.choice(few) for column in range(width))


@dataclass
class ProbeSearch:
    """A search for questions by which a function's code goes a new way.

    Attributes:
        drawing: how questions are made; its pool has those that were found.
        first: questions that are tried first.
    """

    branches: Branches
    drawing: Drawing
    first: Sequence[list[str]]

    def questions(self) -> list[list[str]]:
        """The questions by which the code went a new way, and others that are made of them."""
        drawing, words = self.drawing, self.drawing.words
        drawing.pool = []
        for length in range(1, 8):
            for _ in range(20):
                self._try(words.texts(words.random_word(drawing.generator, 1, 2 * length)))
        short = [row for row in self.first if len(row[0]) <= LONGEST_CHANGED]
        for row in short[:: 1 + len(short) // MOST_FIRST]:
            self._try(row)
        if not drawing.pool:
            return []
        tries, done = FIRST_TRIES, 0
        while done < min(tries, MOST_TRIES) and self.branches.steps < ALL_STEPS:
            done += 1
            if self._try(drawing.changed(self._chosen())):
                tries = max(tries, done + MORE_TRIES)
        most = MOST_NEAR // len(drawing.pool)
        return drawing.pool + [missed for row in drawing.pool for missed in drawing.near_misses(row, most)]

    def _try(self, row: list[str]) -> bool:
        """Ask a question, and keep it if it goes a new way."""
        words = self.drawing.words
        is_new = self.branches.is_new(words.arguments(words.columns(row)))
        if is_new:
            self.drawing.pool.append(row)
        return is_new

    def _chosen(self) -> list[str]:
        """A question that was kept, the last ones more often."""
        generator, pool = self.drawing.generator, self.drawing.pool
        return generator.choice(pool[-8:] if generator.random() < 0.5 else pool)
