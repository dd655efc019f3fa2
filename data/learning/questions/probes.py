"""Questions that a function may turn on and random words never show: differences of operands, ways that its code goes."""

# Used by: operands.py. Changed freely.

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations

from longhand.data.learning.questions.branches import Branches
from longhand.data.learning.questions.strewn import Strewn, longest_of
from longhand.data.learning.questions.words import Words, number_as_text

MOST_RELATED = 60
"""So many numbers, those of code first, are tried as sums, differences and quotients of two operands."""

LEAST_PAIRS, MOST_PAIRS = 12, 300
"""Pairs of operands of each relation, of many widths: so many of each number, and of the first one; half as many of the
second one, a third of the third one, and so on."""

LARGEST_DIVISOR = 5_000
"""Smaller divisors of these numbers are tried, and the quotients with them."""

FIRST_TRIES, MORE_TRIES, MOST_TRIES = 6_000, 3_000, 40_000
"""Questions by which a new way through the code is looked for: without one, behind each one, and all together."""

ALL_STEPS = 8_000_000
"""Instructions that are watched meanwhile: some seconds."""

MOST_FIRST, LONGEST_FIRST = 3_000, 60
"""So many questions that hold constants are tried before, and their columns."""

NEAR_MISSES = 40
"""Questions that are made of each question by which the code went a new way."""

MOST_SYMBOLS_HELD, MOST_PLACES = 60, 60


def related_numbers(values: Sequence[int], words: Words, generator: random.Random) -> Iterator[list[int]]:
    """Operands of which one is another one and a number, less a number, or so many times as much, with carries.

    Or both are divisors, of which a number is the product.
    """
    few = [value for value in values if value][:MOST_RELATED]
    small = [value for value in few if value < 100][:8]
    pairs = [(value, place) for rank, value in enumerate(few) for place in range(max(LEAST_PAIRS, MOST_PAIRS // (1 + rank)))]
    products = [(number, value // number) for value in few for number in range(1, LARGEST_DIVISOR) if value % number == 0]
    for one, other in permutations(range(words.operands), 2):
        related = list(products)
        for value, place in pairs:
            second = _with_carries(value, place, words.base, generator)
            firsts = [second + value, abs(second - value), second * value, second // value]
            firsts += [second * factor + value for factor in small[:3]] + [second ^ value]
            related += [(first, second) for first in firsts]
        for number, (first, second) in enumerate(related):
            row = [generator.randrange(words.base ** (1 + number % 6)) for _ in range(words.operands)]
            row[one], row[other] = first, second
            yield row


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
        strewn: the constants of the code.
        first: questions that are tried first.
        pool: the questions that were found, operands as texts.
    """

    branches: Branches
    words: Words
    strewn: Strewn
    first: Sequence[list[str]]
    generator: random.Random = field(default_factory=lambda: random.Random(0))
    pool: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        held = "".join(self.strewn.fragments)
        self._symbols = [*dict.fromkeys(symbol for symbol in held if symbol in self.words.alphabet)][:MOST_SYMBOLS_HELD]
        self._symbols = self._symbols or [*self.words.alphabet]
        self._places = [0, *self.strewn.counts[:MOST_PLACES]]
        self._longest = min(longest_of(self.words), 2 + 2 * max(12, *self._places))

    def questions(self) -> list[list[str]]:
        """The questions by which the code went a new way, and others that are made of them."""
        for length in range(1, 8):
            for _ in range(20):
                self._try(self.words.texts(self.words.random_word(self.generator, 1, 2 * length)))
        short = [row for row in self.first if len(row[0]) <= LONGEST_FIRST]
        for row in short[:: 1 + len(short) // MOST_FIRST]:
            self._try(row)
        if not self.pool:
            return []
        tries, done = FIRST_TRIES, 0
        while done < min(tries, MOST_TRIES) and self.branches.steps < ALL_STEPS:
            done += 1
            if self._try(self._changed(self._chosen())):
                tries = max(tries, done + MORE_TRIES)
        return self.pool + [self._changed(row) for row in self.pool for _ in range(NEAR_MISSES)]

    def _try(self, row: list[str]) -> bool:
        """Ask a question, and keep it if it goes a new way."""
        is_new = self.branches.is_new(self.words.arguments(self.words.columns(row)))
        if is_new:
            self.pool.append(row)
        return is_new

    def _chosen(self) -> list[str]:
        """A question that was kept, the last ones more often."""
        if self.generator.random() < 0.5:
            return self.generator.choice(self.pool[-8:])
        return self.generator.choice(self.pool)

    def _changed(self, row: Sequence[str]) -> list[str]:
        """A question that is made of another one."""
        changed = list(row)
        for _ in range(self.generator.choice((1, 1, 2, 3))):
            place = self.generator.randrange(len(changed))
            text = self.generator.choice(self._ways_to_change)(changed, place)
            changed[place] = text[: self._longest] or self.words.alphabet[0]
        if self.words.are_numbers:
            return changed
        width = len(changed[0])
        return [text[:width] + self._drawn(width - len(text)) for text in changed]

    @property
    def _ways_to_change(self) -> Sequence[Callable[[Sequence[str], int], str]]:
        ways = [self._with_symbol, self._with_symbol, self._with_symbol, self._with_fragment, self._of_a_length]
        ways += [self._repeated, self._joined, self._without_a_part]
        return [*ways, self._calculated, self._calculated] if self.words.are_numbers else ways

    def _drawn(self, count: int) -> str:
        return "".join(self.generator.choices(self.words.alphabet, k=max(0, count)))

    def _place(self, text: str) -> int:
        """A place that the code names, or one of a text."""
        if self.generator.random() < 0.6:
            return self.generator.choice(self._places)
        return self.generator.randint(0, len(text))

    def _symbol(self) -> str:
        return self.generator.choice(self._symbols if self.generator.random() < 0.8 else self.words.alphabet)

    def _put(self, text: str, part: str, place: int) -> str:
        """A text with a part at a place, counted from the beginning or from the end; what is missing is drawn."""
        if self.generator.random() < 0.5:
            text += self._drawn(place - len(text))
            return text[:place] + part + text[place + len(part) :]
        text = self._drawn(place + len(part) - len(text)) + text
        end = len(text) - place
        return text[: max(0, end - len(part))] + part + text[end:]

    def _with_symbol(self, row: Sequence[str], place: int) -> str:
        return self._put(row[place], self._symbol(), self._place(row[place]))

    def _with_fragment(self, row: Sequence[str], place: int) -> str:
        text, part = row[place], self.generator.choice(self.strewn.fragments or self._symbols)
        if self.generator.random() < 0.3:
            return part
        return self._put(text, part, self._place(text))

    def _of_a_length(self, row: Sequence[str], place: int) -> str:
        length = max(1, self.generator.choice(self._places) + self.generator.choice((-1, 0, 0, 1)))
        return row[place][:length] + self._drawn(length - len(row[place]))

    def _repeated(self, row: Sequence[str], place: int) -> str:
        count = max(1, self.generator.choice((1, *self._places)) + self.generator.choice((-1, 0, 0, 1)))
        at = self.generator.randint(0, len(row[place]))
        return row[place][:at] + self._symbol() * count + row[place][at:]

    def _joined(self, row: Sequence[str], place: int) -> str:
        other = self.generator.choice(self.generator.choice(self.pool))
        return row[place][: self.generator.randint(0, len(row[place]))] + other[self.generator.randint(0, len(other)) :]

    def _without_a_part(self, row: Sequence[str], place: int) -> str:
        text = row[place]
        first = self.generator.randint(0, len(text))
        return text[:first] + text[first + self.generator.randint(1, 3) :]

    def _calculated(self, row: Sequence[str], place: int) -> str:
        base, alphabet = self.words.base, self.words.alphabet
        own, other = (int(text, base) for text in (row[place], self.generator.choice(row)))
        value = self.generator.choice(self.strewn.values or (1,))
        near = value + self.generator.choice((-1, 0, 0, 0, 1))
        made = self.generator.choice((own + near, own - near, other + near, other - near, near - other, other * near, near))
        return number_as_text(abs(made), alphabet)
