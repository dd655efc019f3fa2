"""Mealy machines: the least one that agrees with a reading of a function, and the words that test it.

The machine is found by the classification trees of Kearns and Vazirani, with the counterexamples of Rivest and Schapire, in
AALpy (Muskardin et al., 2022). This file gives the counterexamples: all short words, long random ones, words on both sides
of a border, words that are made of those with a rare answer or of the machine's own words, and the words of the W-method
(Chow 1978; Vasilevskii 1973).
"""

# Used by: data/learning. Changed freely.

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise, product
from typing import Any

from aalpy.base import SUL, Oracle
from aalpy.learning_algs import run_KV

from longhand.data.learning.questions.functions import AskedFunction
from longhand.data.learning.questions.readings import NotSequential, Reading
from longhand.data.learning.questions.words import Word, Words, number_as_text

MOST_STATES = 256
"""A state is written as one symbol where no window suffices."""

EXHAUSTIVE_WORDS = 70_000
"""All words of up to k columns are asked, for the largest k for which there are no more."""

MOST_COLUMNS = 40
"""Of an alphabet of one symbol, words of up to so many columns are asked, alone and between words of the machine."""

RANDOM_WORDS = 1_500
LONGEST_WORD = 300
W_METHOD_WORDS = 50_000
"""Words of the W-method; as many further states are allowed for as these words reach."""

RARE_WORDS, LONGEST_RARE = 40_000, 60
"""Words that are made of those with a rare answer, and the columns of the longest of these."""

NEXT_WORDS = 3_000
"""Random words of one column more than the longest words that were all asked. A machine that fits short words by chance,
such as one for squares, fails there."""

BORDERS, FEW_DIGITS = 300, 5
"""Pairs of numbers between which a border is looked for at which the answer changes; half of them have at most so few
digits."""

SUMMED_WORDS, MOST_DIGITS = 20_000, 12
"""Words of numbers that differ from one word as others differ from each other, or a number of at most so many digits times
as much: so many beside borders, and so many of those with a rare answer."""

MOST_UNITS = 24
"""Words of which rows are tried, any two of them."""

SPARE_ROWS = 4
"""So many rows more than there may be states: the first ones of a counter may look alike."""

UNKNOWN = -1
"""Stands in entries of a table that nothing is known of."""

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
        """Number of states."""
        return len(self.write)

    def written(self, word: Iterable[int], state: int = 0) -> tuple[int, ...]:
        """The symbols that are written at the columns of a word, in the order of reading."""
        write, following, symbols = self.write, self.next, []
        for letter in word:
            symbols.append(write[state][letter])
            state = following[state][letter]
        return tuple(symbols)

    def last_written(self, word: Iterable[int]) -> int:
        """The symbol that is written at the last column of a word, which has one."""
        write, following = self.write, self.next
        state = before = 0
        letter = 0
        for letter in word:
            before, state = state, following[state][letter]
        return write[before][letter]

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
                for word, my_symbol, their_symbol in zip(words, mine, theirs, strict=True):
                    if my_symbol != their_symbol:
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
        further: how many words were asked that are made of the words of the machine.
        singled_out: how many words were asked that hold the constants of the function's code.
        states: if a machine of at most so many states computes the function, it is the machine that was found. None if the
            words of the W-method were too many.
    """

    columns: int = 0
    exhaustive: int = 0
    further: int = 0
    singled_out: int = 0
    states: int | None = None

    @property
    def sentence(self) -> str:
        """Which words were compared, in words for a card."""
        columns = "1 column" if self.columns == 1 else f"{self.columns} columns"
        compared = f"all {self.exhaustive:,} words of up to {columns}, "
        compared += f"{RANDOM_WORDS:,} random words of up to {LONGEST_WORD} columns"
        if self.singled_out:
            compared += f", {self.singled_out:,} words that hold the constants of its code"
        if self.further:
            compared += (
                f", and {self.further:,} words that are made of the machine's own words and of those with a rare answer"
            )
        compared += " agree"
        if self.states is None:
            return compared
        return f"{compared}; if a machine of at most {self.states} states computes the function, it is this one (W-method)"


def exhaustive_words(words: Words, most: int = EXHAUSTIVE_WORDS) -> tuple[int, Iterator[Word]]:
    """How long words may be so that there are at most so many, 1 or more; and all these words, the short ones first."""
    columns, total = 1, words.count
    while columns < MOST_COLUMNS and total + words.count ** (columns + 1) <= most:
        columns += 1
        total += words.count**columns
    return columns, (word for length in range(1, columns + 1) for word in product(range(words.count), repeat=length))


def compared_words(words: Words, columns: int) -> Tests:
    """The words that every machine is compared on: all of up to so many columns, random ones, those that hold constants."""
    exhaustive = sum(words.count**length for length in range(1, columns + 1))
    return Tests(columns, exhaustive, singled_out=len(words.singled_out))


def random_words(words: Words, generator: random.Random, columns: int) -> Iterator[Word]:
    """Words of more columns than were asked exhaustively: a third short ones, a third of up to 60, a third of up to 300."""
    for trial in range(RANDOM_WORDS):
        shortest, longest = ((columns + 1, columns + 12), (columns + 12, 60), (60, LONGEST_WORD))[trial * 3 // RANDOM_WORDS]
        yield words.random_word(generator, shortest, longest)


def beside_borders(asked: AskedFunction, generator: random.Random) -> Iterator[Word]:
    """Words of numbers between which the answer changes while one operand grows by 1, found by halving."""
    words = asked.words
    for _ in range(BORDERS):
        most = words.base ** generator.randint(2, generator.choice((FEW_DIGITS, MOST_COLUMNS)))
        row = [generator.randrange(words.base ** generator.randint(1, MOST_COLUMNS)) % most for _ in range(words.operands)]
        place = generator.randrange(words.operands)

        def with_operand(value: int, row: Sequence[int] = row, place: int = place) -> Word:
            numbers = [*row[:place], value, *row[place + 1 :]]
            return words.columns([number_as_text(number, words.alphabet) for number in numbers])

        low, high = sorted((row[place], generator.randrange(most)))
        below, above = (asked(with_operand(value)) for value in (low, high))
        if below == above:
            continue
        # On one side of a threshold there may be many answers.
        is_kept_below = generator.random() < 0.5
        while high - low > 1:
            middle = (low + high) // 2
            answer = asked(with_operand(middle))
            is_below = answer == below if is_kept_below else answer != above
            low, high = (middle, high) if is_below else (low, middle)
        yield from (with_operand(low), with_operand(high))


@dataclass
class MachineLearner:
    """Finds the least machine of a reading.

    Attributes:
        tests: the words on which the last machine was tested.
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
        check_pairs(self.reading, self.generator, self.most_states)
        letters = list(range(self.reading.asked.words.count))
        system = _System(self.reading)
        tester = _Tester(self, letters, system)
        # Each round finds a state.
        rounds = self.most_states + SPARE_ROWS
        hypothesis = run_KV(
            letters, system, tester, "mealy", max_learning_rounds=rounds, print_level=0, cache_and_non_det_check=False
        )
        if hypothesis.size > self.most_states:
            machine = minimised(table_of(hypothesis, len(letters)))
            raise NotSequential(_two_of_many(self.reading, machine, self.most_states))
        return table_of(hypothesis, len(letters))

    def differing_word(self, machine: Machine) -> Word | None:
        """A word whose last symbol differs from what the machine writes; None if no word was found."""
        words = self.reading.asked.words
        columns, every = exhaustive_words(words)
        drawn = random_words(words, self.generator, columns)
        named = (self.reading.turned(self.reading.whole(word)) for word in words.singled_out)
        for word in chain(every, drawn, named):
            if (clash := self._clash(machine, word)) is not None:
                return self._shortened(machine, clash)
        self.tests = compared_words(words, columns)
        rare = [*words.notable_words(), *(words.uniform_word(self.generator, columns + 1) for _ in range(NEXT_WORDS))]
        if (clash := self._first_clash(machine, rare)) is not None:
            return clash
        for search in (self._by_borders, self._by_rare_answers, self._by_w_method):
            if (clash := search(machine)) is not None:
                return clash
        return None

    def _shortened(self, machine: Machine, word: Word) -> Word:
        """A beginning of a long word at which the machine fails too, and of this an ending.

        Raises:
            NotSequential: it is still long, and its beginnings need more states than are legal.
        """
        if len(word) <= self.most_states:
            return word
        for at_end in (True, False):
            few, many = 0, len(word)
            while many - few > 1:
                some = (few + many) // 2
                part = word[:some] if at_end else word[len(word) - some :]
                few, many = (few, some) if self._clash(machine, part) is not None else (some, many)
            word = word[:many] if at_end else word[len(word) - many :]
        if len(word) <= self.most_states:
            return word
        count = self.most_states + SPARE_ROWS
        beginnings = [word[:end] for end in range(1, count + 1)]
        last = len(word) - 1
        cuts = dict.fromkeys([*range(1, min(count, last) + 1), *range(max(1, last - count), last + 1)])
        _check_distinct(self.reading, beginnings, [word[cut:] for cut in cuts], self.most_states, grows=False)
        return word

    def _first_clash(self, machine: Machine, words: Iterable[Word]) -> Word | None:
        """As `_clash`, of the first word of some that has one; these words are counted."""
        for word in words:
            self.tests.further += 1
            if (clash := self._clash(machine, word)) is not None:
                return clash
        return None

    def _clash(self, machine: Machine, word: Word) -> Word | None:
        """The first columns of a word, up to the one at which the machine writes something else; None if there is none."""
        reading = self.reading
        if reading.answer == "last":
            return word if machine.last_written(word) != reading.last(word) else None
        written, right = machine.written(word), reading.written(word)
        if written == right:
            return None
        end = 1 + next(column for column in range(len(word)) if written[column] != right[column])
        reading.check_beginning(word, end)
        return word[:end]

    def _by_borders(self, machine: Machine) -> Word | None:
        """As `differing_word`, of numbers on both sides of a border at which the answer changes while one operand grows.

        A threshold that the code computes, such as the 23 million of `a**0.5 > 4816.3`, stands in no code, and random
        numbers are far from it.
        """
        reading, words = self.reading, self.reading.asked.words
        if reading.answer != "last" or not words.are_numbers:
            return None
        beside = [*beside_borders(reading.asked, self.generator)]
        return self._first_clash(machine, map(reading.turned, chain(beside, self._summed(beside))))

    def _summed(self, words: Iterable[Word]) -> Iterator[Word]:
        """Words of numbers x + m (y - z), and close to them, of words x, y and z to which the function has one answer.

        Where the sum of some multiples of the operands decides, as in `7 * a == 5 * b + 333`, x + m (y - z) has the
        answer of x, and is mostly longer. What is close to it has another one.
        """
        asked, generator = self.reading.asked, self.generator
        by_answer: dict[int | str, list[list[int]]] = {}
        for word in words:
            by_answer.setdefault(asked(word), []).append([int(number) for number in asked.words.arguments(word)])
        groups = [rows for rows in by_answer.values() if len(rows) > 2]
        for _ in range(SUMMED_WORDS if groups else 0):
            first, second, third = generator.sample(generator.choice(groups), 3)
            times = generator.choice((1, 1, generator.randrange(asked.words.base ** generator.randint(1, MOST_DIGITS))))
            row = [number + times * (more - less) for number, more, less in zip(first, second, third, strict=True)]
            row[generator.randrange(len(row))] += generator.choice((0, 0, 1, -1))
            if min(row) >= 0:
                yield asked.words.columns([number_as_text(number, asked.words.alphabet) for number in row])

    def _by_rare_answers(self, machine: Machine) -> Word | None:
        """As `differing_word`, of words made of those that have a rare answer, such as the dates among texts.

        Few random words come near them. Symbols are changed, neighbours swapped, and the beginning of one word is joined to
        the end of another one.
        """
        if self.reading.answer != "last":
            return None
        asked = self.reading.asked
        found = asked.rare_words(LONGEST_RARE)
        if not found:
            return None
        rare = [*map(self.reading.turned, found)]
        # What told two states apart may tell further states apart, with a few symbols changed.
        pools = [_by_width(rare), _by_width(map(self.reading.turned, asked.counterexamples)) or _by_width(rare)]
        letters = range(asked.words.count)

        def made() -> Word:
            by_width = self.generator.choice(pools)
            same = by_width[self.generator.choice([*by_width])]
            word = list(self.generator.choice(same))
            if self.generator.random() < 0.5:
                place = self.generator.randint(0, len(word))
                word[place:] = self.generator.choice(same)[place:]
            for _ in range(self.generator.choice((0, 1, 1, 2, 2, 3))):
                place = self.generator.randrange(len(word))
                if self.generator.random() < 0.2:
                    word[place - 1], word[place] = word[place], word[place - 1]
                else:
                    word[place] = self.generator.choice(letters)
            return tuple(word)

        summed = map(self.reading.turned, self._summed(found) if asked.words.are_numbers else ())
        return self._first_clash(machine, chain(summed, (made() for _ in range(RARE_WORDS))))

    def _by_w_method(self, machine: Machine) -> Word | None:
        access, telling, letters = machine.access_words(), machine.telling_words() or [()], self.reading.asked.words.count
        middle = 1
        while middle <= MOST_COLUMNS and len(access) * letters**middle * len(telling) <= W_METHOD_WORDS:
            for reaching, between, behind in product(access, product(range(letters), repeat=middle), telling):
                word = (*reaching, *between, *behind)
                if self.reading.last(word) != machine.last_written(word):
                    return word
            self.tests.states = machine.states + middle - 1
            middle += 1
        return None


def _by_width(words: Iterable[Word]) -> dict[int, list[Word]]:
    found: dict[int, list[Word]] = {}
    for word in words:
        if len(word) <= LONGEST_RARE:
            found.setdefault(len(word), []).append(word)
    return found


def mealy_symbol(state: Any, letter: int) -> int:
    """The symbol that a state of AALpy's Mealy machine writes; `UNKNOWN` if it has no such letter."""
    return state.output_fun.get(letter, UNKNOWN)


def table_of(model: Any, letters: int, symbol_of: Callable[[Any, int], int] = mealy_symbol) -> Machine:
    """AALpy's machine as tables, its states in the order in which a breadth-first search reaches them.

    `UNKNOWN` stands in entries that the machine does not have.

    Args:
        letters: how many letters there are.
        symbol_of: from a state and a letter to the symbol that is written.
    """
    numbers = {model.initial_state: 0}
    order = [model.initial_state]
    following = []
    for state in order:
        row = [state.transitions.get(letter) for letter in range(letters)]
        for after in row:
            if after is not None and after not in numbers:
                numbers[after] = len(order)
                order.append(after)
        following.append([UNKNOWN if after is None else numbers[after] for after in row])
    return Machine([[symbol_of(state, letter) for letter in range(letters)] for state in order], following)


class _System(SUL):
    """A reading, as AALpy asks it: it answers a word by the symbol that is written last."""

    def __init__(self, reading: Reading):
        super().__init__()
        self.reading = reading

    def query(self, word):
        """The answer to a word, as a list of one symbol."""
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
        """A word that tells a hypothesis of AALpy from the function; None if no word was found.

        Raises:
            NotSequential: the hypothesis has too many states.
        """
        most = self.learner.most_states
        # A hypothesis may have states that do the same in it, and not in the function.
        machine = minimised(table_of(hypothesis, len(self.alphabet)))
        if hypothesis.size > most:
            raise NotSequential(_two_of_many(self.learner.reading, machine, most))
        word = self.learner.differing_word(machine)
        if word is not None:
            reading = self.learner.reading
            reading.asked.counterexamples.append(reading.turned(word))
        return word


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
        while count <= most and _distinct(reading, _rows(first, count), _rows(second, count)) >= count - SPARE_ROWS // 2:
            count *= 2
        if count > most:
            _check_rows(reading, first, second, most)
        # Rows that repeat themselves after a while are those of a machine with many states, which is no counter.
        cycles += count > 24
        if cycles == MOST_CYCLES:
            return


def check_pairs(reading: Reading, generator: random.Random, most: int) -> None:
    """Raise `NotSequential` if it must be remembered which word was read: one word alone behind it decides the answer.

    This is the copy or the mirror image of the word, which rows do not show, or what is left of a number that the function
    singles out, such as a square. The answer must be one symbol; others are checked by their beginnings.
    """
    words = reading.asked.words
    if reading.answer != "last" or words.count == 1:
        return
    length = math.ceil(math.log(4 * most, words.count))
    drawn = list(dict.fromkeys(words.uniform_word(generator, length) for _ in range(4 * most)))
    answers = {reading.turned(word): reading.asked(word) for word in words.notable_words()}
    counts = Counter(answers.values()).most_common()
    singled_out = [word for word, answer in answers.items() if answer == counts[-1][0]]
    parts = {word[:end]: word[end:] for word in singled_out for end in range(1, len(word))}
    pairs = generator.sample(list(parts.items()), min(len(parts), 4 * most))
    for beginnings, behind in (
        (drawn, [word[::-1] for word in drawn]),
        (drawn, drawn),
        ([beginning for beginning, _ in pairs], [rest for _, rest in pairs]),
    ):
        count = 16
        # Numbers with zeros on top may be equal.
        while count <= most and _distinct(reading, beginnings[:count], behind[:count]) >= 3 * count // 4:
            count *= 2
        if count > most:
            _check_distinct(reading, beginnings, behind[: 3 * most // 2], most)


def _check_rows(reading: Reading, first: Word, second: Word, most: int) -> None:
    """Raise `NotSequential` if rows of one word, told apart by rows of another one, need more states than are legal."""
    count = most + SPARE_ROWS
    try:
        _check_distinct(reading, _rows(first, count), _rows(second, count), most)
    except NotSequential as error:
        error.counts = True
        raise


def _units(words: Words, generator: random.Random) -> list[Word]:
    """Words that a function might count: fragments, alone and before a letter, the letters in them, and other letters."""
    fragments = [words.columns([fragment] * words.operands) for fragment in words.fragments[:4]]
    within = {letter for fragment in fragments for letter in fragment}
    others = [letter for letter in range(words.count) if letter not in within] or range(words.count)
    apart = [(*fragment, generator.choice(others)) for fragment in fragments]
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


def _check_distinct(
    reading: Reading, beginnings: Sequence[Word], behind: Sequence[Word], most: int, grows: bool = True
) -> None:
    """Raise `NotSequential` if more beginnings than are legal differ in the symbol that is written last behind them.

    Args:
        grows: whether the message says that the states grow with the width.
    """
    told: dict[tuple[int, ...], Word] = {}
    for beginning in beginnings:
        told.setdefault(tuple(reading.last(beginning + word) for word in behind), beginning)
        if len(told) > most:
            (symbols, first), (other_symbols, second) = list(told.items())[:2]
            compared = zip(behind, symbols, other_symbols, strict=True)
            word = next(word for word, symbol, other_symbol in compared if symbol != other_symbol)
            raise NotSequential(_too_many(reading, first, second, word, most, grows))


def _two_of_many(reading: Reading, machine: Machine, most: int) -> str:
    """As `_too_many`, of two states of a machine that the function tells apart."""
    access = machine.access_words()
    for first, second in pairwise(access):
        for word in machine.telling_words():
            if reading.last((*first, *word)) != reading.last((*second, *word)):
                return _too_many(reading, first, second, word, most)
    return f"it needs more than {most} states"


def _too_many(reading: Reading, first: Word, second: Word, behind: Word, most: int, grows: bool = True) -> str:
    """A sentence that more states are needed than are legal. It names two words whose states a third word tells apart."""
    asked: AskedFunction = reading.asked
    growing = "what must be remembered grows with the width: " if grows else ""
    return (
        f"{growing}more than {most} states are needed, such as two for "
        f"{asked.shown(reading.turned(first))} and {asked.shown(reading.turned(second))}, since "
        f"{asked.equation(reading.turned((*first, *behind)))} and {asked.equation(reading.turned((*second, *behind)))}"
    )
