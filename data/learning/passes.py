"""Two passes in two directions: a class sums up the columns above a column, and the other columns are read from below.

Two upper parts of words are of one class if the same is written below them, whatever the columns there are. The first pass
reads from the top and writes, at each column, the class of the columns above it. The second one reads from below, and sees
the class too. AALpy learns machines with one direction; here the two are told apart by the residuals of words, and refined
by counterexamples.
"""

# Used by: learn.py. Changed freely.

import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from longhand.data.learning.machines import Machine, Tests, compared_words, exhaustive_words, random_words
from longhand.data.learning.questions.functions import AskedFunction
from longhand.data.learning.questions.readings import NotSequential, Reading
from longhand.data.learning.questions.words import Word

MOST_CLASSES = 64
"""Classes of columns above, and states of the pass from below. Both are multiplied in the table."""

MOST_ROUNDS = 12
"""The search for two passes ends after so many counterexamples."""

PROBES = 60
"""Random words that tell classes and states apart, besides all words of one column."""


@dataclass(frozen=True)
class TwoPasses:
    """Two machines.

    Attributes:
        above: the first pass, from the top: it writes the class of the columns above each one.
        below: the second pass, from the ones or the end. Its input is a letter and a class, the letter most significant.
        classes: how many classes there are.
    """

    above: Machine
    below: Machine
    classes: int

    def written(self, word: Word) -> tuple[int, ...]:
        """The symbols that are written at the columns of a word; the top column comes first in both."""
        above = self.above.written(word)
        inputs = [letter * self.classes + number for letter, number in zip(word, above, strict=True)]
        return self.below.written(reversed(inputs))[::-1]


class TwoPassLearner:
    """Finds two passes for a function.

    Attributes:
        reading: the function read from below, whose symbols the second pass writes.
        tests: as of `MachineLearner`; nothing is claimed of machines of a given size.
    """

    def __init__(self, asked: AskedFunction, generator: random.Random):
        self.reading = Reading(asked, "ones_first", "all")
        self.generator = generator
        self.tests = Tests()

    def learn(self) -> TwoPasses:
        """Two passes that agree with the function on all words that were tried.

        Raises:
            NotSequential: no two such passes were found.
        """
        words = self.reading.asked.words
        letters = [(letter,) for letter in range(words.count)]
        random_probes = [words.random_word(self.generator, 1, 6) for _ in range(PROBES)]
        probes = list(dict.fromkeys([*letters, *random_probes]))
        for _ in range(MOST_ROUNDS):
            passes = self._with_probes(probes)
            clash = self._differing_word(passes)
            if clash is None:
                return passes
            # From now on the parts of this word tell apart the columns above, and the columns below, a column.
            parts = [clash[first:] for first in range(1, len(clash))] + [clash[:last] for last in range(1, len(clash))]
            probes = list(dict.fromkeys([*probes, *parts]))
        raise NotSequential(f"no two passes were found after {MOST_ROUNDS} counterexamples")

    def _written(self, word: Word) -> tuple[int, ...]:
        """The symbols of the function's answer, the top column first."""
        return self.reading.written(word[::-1])[::-1]

    def _with_probes(self, probes: Sequence[Word]) -> TwoPasses:
        """The two passes that these words tell."""
        letters = range(self.reading.asked.words.count)

        def below_of(upper: Word) -> Hashable:
            return tuple(self._written(upper + probe)[len(upper) :] for probe in probes)

        def above_of(lower: Word) -> Hashable:
            return tuple(self._written(probe + lower)[: len(probe)] for probe in probes)

        upper_words, upper_next = _residuals(
            letters, lambda word, letter: (*word, letter), below_of, "classes above a column"
        )
        lower_words, lower_next = _residuals(letters, lambda word, letter: (letter, *word), above_of, "states from below")
        classes = range(len(upper_words))
        above = Machine([[number] * len(letters) for number in classes], upper_next)
        write = [
            [self._written((*upper, letter, *lower))[len(upper)] for letter in letters for upper in upper_words]
            for lower in lower_words
        ]
        below = Machine(write, [[after for after in row for _ in classes] for row in lower_next])
        return TwoPasses(above, below, len(classes))

    def _differing_word(self, passes: TwoPasses) -> Word | None:
        words = self.reading.asked.words
        columns, every = exhaustive_words(words)
        drawn = random_words(words, self.generator, columns)
        named = (self.reading.whole(word) for word in (*words.singled_out, *words.notable_words()))
        for source in (every, drawn, named):
            for word in source:
                if passes.written(word) != self._written(word):
                    return word
        self.tests = compared_words(words, columns)
        return None


def _residuals(
    letters: Sequence[int], longer: Callable[[Word, int], Word], residual: Callable[[Word], Hashable], name: str
) -> tuple[list[Word], list[list[int]]]:
    """Words that differ in their residuals, the shortest ones, and the number of the word after each letter.

    Raises:
        NotSequential: there are more than `MOST_CLASSES`.
    """
    words: list[Word] = [()]
    numbers = {residual(()): 0}
    following: list[list[int]] = []
    for word in words:
        ways = []
        for letter in letters:
            told = residual(longer(word, letter))
            if told not in numbers:
                if len(words) == MOST_CLASSES:
                    raise NotSequential(f"there are more than {MOST_CLASSES} {name}")
                numbers[told] = len(words)
                words.append(longer(word, letter))
            ways.append(numbers[told])
        following.append(ways)
    return words, following
