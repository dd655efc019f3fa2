"""Mealy machines: the least one that agrees with a reading of a function, and the words that test it.

The machine is found by the classification trees of Kearns and Vazirani, with the counterexamples of Rivest and Schapire, in
AALpy (Muskardin et al., 2022). What is here gives the counterexamples: all short words, long random ones, and the words of
the W-method (Chow 1978; Vasilevskii 1973).
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from aalpy.base import SUL, Oracle
from aalpy.learning_algs import run_KV

from longhand.data.learning.functions import AskedFunction
from longhand.data.learning.readings import NotSequential, Reading
from longhand.data.learning.words import Word, Words

MOST_STATES = 256
"""A state is written as one symbol where no window suffices."""

EXHAUSTIVE_WORDS = 70_000
"""All words of up to k columns are asked, for the largest k for which there are no more."""

RANDOM_WORDS = 1_500
LONGEST_WORD = 300
W_METHOD_WORDS = 50_000
"""Words of the W-method; as many further states are allowed for as these words reach."""

MOST_UNITS = 24
"""Words of which rows are tried, any two of them."""

MOST_CYCLES = 2
"""After so many words whose rows repeat themselves, no counter is looked for."""


@dataclass(frozen=True)
class Machine:
    """A Mealy machine; state 0 is the first one.

    Attributes:
        write: (states, letters) the symbol that is written.
        next: (states, letters) the next state.
    """

    write: Sequence[Sequence[int]]
    next: Sequence[Sequence[int]]

    @property
    def states(self) -> int:
        return len(self.write)

    def written(self, word: Iterable[int], state: int = 0) -> tuple[int, ...]:
        """What is written at each column of a word in the order of reading."""
        symbols = []
        for letter in word:
            symbols.append(self.write[state][letter])
            state = self.next[state][letter]
        return tuple(symbols)

    def reached(self, word: Iterable[int], state: int = 0) -> int:
        """The state behind a word."""
        for letter in word:
            state = self.next[state][letter]
        return state

    def access_words(self) -> list[Word]:
        """For each state, a shortest word that reaches it."""
        words: dict[int, Word] = {0: ()}
        queue = [0]
        for state in queue:
            for letter, after in enumerate(self.next[state]):
                if after not in words:
                    words[after] = (*words[state], letter)
                    queue.append(after)
        return [words[state] for state in range(self.states)]

    def telling_words(self) -> list[Word]:
        """Words of which at least one is answered differently by any two states, at its last column."""
        words: list[Word] = []
        signatures: list[Word] = [()] * self.states
        while len(set(signatures)) < self.states:
            word = self._telling_word(signatures, words)
            words.append(word)
            signatures = [(*signatures[state], self.written(word, state)[-1]) for state in range(self.states)]
        return words

    def _telling_word(self, signatures: Sequence[Word], words: Sequence[Word]) -> Word:
        """A word that tells two states of one signature apart; the machine must be minimal."""
        first: dict[Word, int] = {}
        for state, signature in enumerate(signatures):
            other = first.setdefault(signature, state)
            for letter in range(len(self.write[state])) if other != state else ():
                if self.write[state][letter] != self.write[other][letter]:
                    return (letter,)
                mine, theirs = signatures[self.next[state][letter]], signatures[self.next[other][letter]]
                for word, one, another in zip(words, mine, theirs, strict=True):
                    if one != another:
                        return (letter, *word)
        raise ValueError("two states of the machine do the same")


def minimised(machine: Machine) -> Machine:
    """The least machine that writes the same, its states in the order in which a breadth-first search reaches them."""
    states = range(machine.states)
    blocks, count = _numbered(tuple(machine.write[state]) for state in states)
    while True:
        rows = [(blocks[state], *(blocks[after] for after in machine.next[state])) for state in states]
        finer, more = _numbered(rows)
        if more == count:
            break
        blocks, count = finer, more
    order = [0]
    places = {blocks[0]: 0}
    for state in order:
        for after in machine.next[state]:
            if blocks[after] not in places:
                places[blocks[after]] = len(order)
                order.append(after)
    following = [[places[blocks[after]] for after in machine.next[state]] for state in order]
    return Machine([list(machine.write[state]) for state in order], following)


def _numbered(rows: Iterable[tuple[int, ...]]) -> tuple[list[int], int]:
    """For each row, the number of rows that are different and come before the first one that is equal to it."""
    numbers: dict[tuple[int, ...], int] = {}
    found = [numbers.setdefault(row, len(numbers)) for row in rows]
    return found, len(numbers)


@dataclass
class Tests:
    """The words on which a machine and a function were compared, and found equal.

    Attributes:
        columns: all words of up to so many columns were asked.
        exhaustive: how many these are.
        random: how many random words were asked.
        states: if a machine of at most so many states computes the function, it is the machine that was found. None if the
            words of the W-method were too many.
    """

    columns: int = 0
    exhaustive: int = 0
    random: int = 0
    states: int | None = None

    @property
    def sentence(self) -> str:
        columns = "1 column" if self.columns == 1 else f"{self.columns} columns"
        compared = (
            f"all {self.exhaustive:,} words of up to {columns} and {self.random:,} random words of up to "
            f"{LONGEST_WORD} columns agree"
        )
        if self.states is None:
            return compared
        return f"{compared}; if a machine of at most {self.states} states computes the function, it is this one (W-method)"


def exhaustive_words(words: Words, most: int = EXHAUSTIVE_WORDS) -> tuple[int, Iterator[Word]]:
    """How long words may be so that there are at most so many, 1 or more; and all these words, the short ones first."""
    columns, total = 1, words.count
    while total + words.count ** (columns + 1) <= most:
        columns += 1
        total += words.count**columns
    return columns, (word for length in range(1, columns + 1) for word in product(range(words.count), repeat=length))


def random_words(words: Words, generator: random.Random, columns: int, count: int = RANDOM_WORDS) -> Iterator[Word]:
    """Words of more columns than were asked exhaustively: a third short ones, a third of up to 60, a third of up to 300."""
    for trial in range(count):
        shortest, longest = ((columns + 1, columns + 12), (columns + 12, 60), (60, LONGEST_WORD))[trial * 3 // count]
        yield words.random_word(generator, shortest, longest)


@dataclass
class MachineLearner:
    """Finds the least machine of a reading.

    Attributes:
        tests: what the last machine was tested on.
    """

    reading: Reading
    generator: random.Random
    most_states: int = MOST_STATES
    tests: Tests = field(default_factory=Tests)

    def learn(self) -> Machine:
        """The least machine that agrees with the function on all words that were tried.

        Raises:
            NotSequential: it would have too many states, or the function is not sequential in this reading.
        """
        self.reading.check_beginnings(self.generator)
        check_growth(self.reading, self.generator, self.most_states)
        letters = list(range(self.reading.asked.words.count))
        system = _System(self.reading)
        hypothesis = run_KV(
            letters, system, _Tester(self, letters, system), "mealy", print_level=0, cache_and_non_det_check=False
        )
        return table_of(hypothesis, letters)

    def differing_word(self, machine: Machine) -> Word | None:
        """A word whose last symbol differs from what the machine writes; None if no word was found."""
        reading, words = self.reading, self.reading.asked.words
        columns, every = exhaustive_words(words)
        drawn = random_words(words, self.generator, columns)
        for word in (word for source in (every, drawn) for word in source):
            if reading.answer == "last":
                if machine.written(word)[-1] != reading.last(word):
                    return word
                continue
            written, right = machine.written(word), reading.written(word)
            if written != right:
                end = 1 + next(column for column in range(len(word)) if written[column] != right[column])
                reading.check_beginning(word, end)
                return word[:end]
        self.tests = Tests(columns, sum(words.count**length for length in range(1, columns + 1)), RANDOM_WORDS)
        return self._by_w_method(machine)

    def _by_w_method(self, machine: Machine) -> Word | None:
        access, telling, letters = machine.access_words(), machine.telling_words() or [()], self.reading.asked.words.count
        middle = 1
        while len(access) * letters**middle * len(telling) <= W_METHOD_WORDS:
            for reaching, between, behind in product(access, product(range(letters), repeat=middle), telling):
                word = (*reaching, *between, *behind)
                if self.reading.last(word) != machine.written(word)[-1]:
                    return word
            self.tests.states = machine.states + middle - 1
            middle += 1
        return None


def table_of(hypothesis: Any, letters: Sequence[int]) -> Machine:
    """AALpy's Mealy machine as tables."""
    numbers = {hypothesis.initial_state: 0}
    order = [hypothesis.initial_state]
    for state in order:
        for letter in letters:
            after = state.transitions[letter]
            if after not in numbers:
                numbers[after] = len(order)
                order.append(after)
    write = [[state.output_fun[letter] for letter in letters] for state in order]
    return Machine(write, [[numbers[state.transitions[letter]] for letter in letters] for state in order])


class _System(SUL):
    """A reading, as AALpy asks it: of a word it reads what is written last."""

    def __init__(self, reading: Reading):
        super().__init__()
        self.reading = reading

    def query(self, word):
        return [self.reading.last(tuple(word))]

    def pre(self):
        """Nothing is to be reset: a word is asked as a whole."""

    def post(self):
        """As `pre`."""

    def step(self, letter):
        raise NotImplementedError("a word is asked as a whole")


class _Tester(Oracle):
    """Counterexamples, as AALpy asks for them."""

    def __init__(self, learner: MachineLearner, letters: list[int], system: _System):
        super().__init__(letters, system)
        self.learner = learner

    def find_cex(self, hypothesis):
        most = self.learner.most_states
        if hypothesis.size > most:
            raise NotSequential(f"it needs more than {most} states")
        return self.learner.differing_word(table_of(hypothesis, self.alphabet))


def check_growth(reading: Reading, generator: random.Random, most: int) -> None:
    """Raise `NotSequential` if beginnings of words show that more states are needed than are legal: a lower bound.

    Two beginnings need two states if something is written differently behind them. The beginnings are random words, and rows
    of one short word, whose number a counter would have to remember.
    """
    words = reading.asked.words
    beginnings = {words.random_word(generator, 1, 5) for _ in range(3 * most)}
    behind = {words.random_word(generator, 1, 4) for _ in range(24)}
    _check_distinct(reading, sorted(beginnings, key=len), sorted(behind, key=len), most)
    cycles = 0
    for first, second in product(_units(words, generator), repeat=2):
        count = 6
        while count <= most and _distinct(reading, _rows(first, count), _rows(second, count)) == count:
            count *= 2
        if count > most:
            try:
                _check_distinct(reading, _rows(first, most + 1), _rows(second, most + 1), most)
            except NotSequential as error:
                error.counts = True
                raise
        # Rows that repeat themselves after a while are those of a machine with many states, which is no counter.
        cycles += count > 24
        if cycles == MOST_CYCLES:
            return


def _units(words: Words, generator: random.Random) -> list[Word]:
    """What a function might count: fragments, alone and before another letter, the letters in them, and other letters."""
    fragments = [words.columns([fragment] * words.operands) for fragment in words.fragments[:4]]
    apart = [(*fragment, generator.randrange(words.count)) for fragment in fragments]
    letters = list(dict.fromkeys(letter for fragment in fragments for letter in fragment))
    letters += [
        letter for letter in generator.sample(range(words.count), min(words.count, MOST_UNITS)) if letter not in letters
    ]
    return [*fragments, *apart, *((letter,) for letter in letters)][:MOST_UNITS]


def _rows(unit: Word, count: int) -> list[Word]:
    """A word once, twice, and so on."""
    return [unit * times for times in range(1, count + 1)]


def _distinct(reading: Reading, beginnings: Sequence[Word], behind: Sequence[Word]) -> int:
    return len({tuple(reading.last(beginning + word) for word in behind) for beginning in beginnings})


def _check_distinct(reading: Reading, beginnings: Sequence[Word], behind: Sequence[Word], most: int) -> None:
    """Raise `NotSequential` if more beginnings than are legal differ in what is written last behind them."""
    told: dict[tuple[int, ...], Word] = {}
    for beginning in beginnings:
        told.setdefault(tuple(reading.last(beginning + word) for word in behind), beginning)
        if len(told) > most:
            (one, first), (another, second) = list(told.items())[:2]
            word = next(word for word, mine, theirs in zip(behind, one, another, strict=True) if mine != theirs)
            asked: AskedFunction = reading.asked
            raise NotSequential(
                f"what must be remembered grows with the width: more than {most} states are needed, such as two for "
                f"{asked.shown(reading.turned(first))} and {asked.shown(reading.turned(second))}, since "
                f"{asked.equation(reading.turned(first + word))} and {asked.equation(reading.turned(second + word))}"
            )
