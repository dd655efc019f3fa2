"""Questions that a function may turn on and random words never show: differences of operands, ways that its code goes."""

# Used by: operands.py. Changed freely.

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, pairwise, permutations, product

from longhand.data.learning.questions.branches import Branches
from longhand.data.learning.questions.drawing import LONGEST_CHANGED, Drawing
from longhand.data.learning.questions.words import Words

MOST_RELATED = 60
"""So many numbers, those of code first, are tried as sums, differences and quotients of two operands."""

LEAST_PAIRS, MOST_PAIRS = 12, 300
"""Pairs of operands of each relation, of many widths: so many of each number, and of the first one; half as many of the
second one, a third of the third one, and so on."""

MOST_FACTORS = 8
"""So many numbers, those of code first, are tried as factors of one operand beside a factor of another."""

WALKS, MOST_SUMS = 4, 256
"""Of three operands or more: so many with distances that are parts of a number, for each of its pairs; and so many kinds of
sums of them, with different factors and signs, for each of the first numbers."""

MORE_OF_SUM, MOST_TOLD = 300, 8
"""Sums of a kind at which a function has an answer that it does not have at random operands, and the kinds of these."""

RANDOM_ROWS, FEW_ANSWERS = 120, 10
"""Random operands at which it is asked for that, if it has so few answers there."""

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


def related_numbers(
    values: Sequence[int], words: Words, generator: random.Random, function: Callable[..., object]
) -> Iterator[list[int]]:
    """Operands of which one is another one and a number, less a number, or so many times as much, with carries.

    Or a multiple of the one is a multiple of the other one, or a little more; or both are divisors, of which a number is the
    product. Further operands are random, or one of these two; for three operands or more, see `_walk` and `_sums`.
    """
    few = [value for value in values if value][:MOST_RELATED]
    small = [value for value in few if value < 100][:8]
    pairs = [(value, place) for rank, value in enumerate(few) for place in range(max(LEAST_PAIRS, MOST_PAIRS // (1 + rank)))]
    products = [(number, value // number) for value in few for number in range(1, LARGEST_DIVISOR) if value % number == 0]
    for first_place, second_place in permutations(range(words.operands), 2):
        related = list(products)
        for value, place in pairs:
            second = _with_carries(value, place, words.base, generator)
            firsts = [second + value, abs(second - value), second * value, second // value]
            firsts += [second * factor + value for factor in small[:3]] + [second ^ value]
            related += [(first, second) for first in firsts]
            if value in few[:MOST_FACTORS] and place < LEAST_PAIRS:
                related += [pair for factor in small[:3] for pair in _proportional(factor, value, (0, *small[:3]), second)]
        for number, (first, second) in enumerate(related):
            drawn = [generator.randrange(words.base ** (1 + number % 6)) for _ in range(words.operands)]
            row = [generator.choice((other, other, first, second)) for other in drawn]
            row[first_place], row[second_place] = first, second
            yield row
    if words.operands > 2:
        for value, place in pairs:
            near = _with_carries(value, place, words.base, generator)
            yield from (_walk(near, value, words.operands, generator) for _ in range(WALKS))
        for value in few[:MOST_FACTORS]:
            yield from _sums(value, (1, *small[:3]), words, generator, function)


def _walk(near: int, value: int, operands: int, generator: random.Random) -> list[int]:
    """Operands whose distances from one to the next, in some order, are a number, as in `abs(a - b) + abs(b - c) == 50`.

    Or half of it: then the distances between any two of three operands are the number. One operand is `near` or more.
    """
    parts = _cut(generator.choice((value, value, value // 2)), operands - 1, generator)
    places = [*accumulate((generator.choice((part, -part)) for part in parts), initial=0)]
    first = max(near - generator.choice(places), -min(places))
    return generator.sample([first + place for place in places], operands)


def _sums(
    value: int, factors: Sequence[int], words: Words, generator: random.Random, function: Callable[..., object]
) -> Iterator[list[int]]:
    """Operands of which sums, each operand so many times, differ by a number, or are it, as in `2 * a + b == c + 50`.

    Of sums at which the function has an answer that it does not have at random operands, there are many more.
    """
    others = words.operands - 1
    drawn = (
        [generator.randrange(words.base ** (1 + row % 12)) for _ in range(words.operands)] for row in range(RANDOM_ROWS)
    )
    usual = _answers(function, drawn)
    told = 0 if len(usual) <= FEW_ANSWERS else MOST_TOLD
    kinds = list(product(product(factors, repeat=words.operands), product((1, -1), repeat=others)))
    for (factor, *other_factors), signs in generator.sample(kinds, min(len(kinds), MOST_SUMS)):
        rows = []
        for place in range(MORE_OF_SUM):
            numbers = [_with_carries(value, place, words.base, generator) for _ in range(others)]
            if 1 not in signs and generator.random() < 0.5:
                numbers = [
                    part // other for part, other in zip(_cut(value, others + 1, generator), other_factors, strict=False)
                ]
            near, *further = numbers
            signed, *further_signed = (sign * other for sign, other in zip(signs, other_factors, strict=True))
            constant = value + sum(other * number for other, number in zip(further_signed, further, strict=True))
            rows += [[abs(first), second, *further] for first, second in _proportional(factor, signed, (constant,), near)]
            if place == LEAST_PAIRS:
                if told == MOST_TOLD or not _answers(function, rows) - usual:
                    break
                told += 1
        yield from rows


def _answers(function: Callable[..., object], rows: Iterable[Sequence[int]]) -> set[object]:
    """The answers to some operands at which a function does not fail."""
    answers = set()
    for row in rows:
        with suppress(Exception, SystemExit):
            answers.add(function(*row))
    return answers


def _cut(value: int, count: int, generator: random.Random) -> list[int]:
    """So many parts of a number; now and then one is nothing, or 1."""
    ends = [generator.choice((0, 1, *[generator.randint(0, value)] * 4)) for _ in range(count - 1)]
    cuts = sorted(min(value, end) for end in ends)
    return [end - first for first, end in pairwise((0, *cuts, value))]


def _proportional(factor: int, other_factor: int, constants: Sequence[int], near: int) -> Iterator[tuple[int, int]]:
    """Numbers a and b with `factor * a == other_factor * b + constant`, for each constant; b is `near` or a little more."""
    for constant in constants:
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
