"""Column tasks: a step on columns, and all else that a task needs, derived from it.

    @register_task
    class HexAddition(ColumnTask):
        name = "hex_addition"
        operands = 2
        sign = "+"
        alphabet = "0123456789abcdef"
        flush = 1

        def step(self, carry, symbols):
            total = sum(symbols) + carry
            return total % 16, total // 16

`Transducer` (modeling/transducer.py) is the task as a table. `machines/windows.py` finds the least window that suffices, and
`machines/sights.py` what a certificate must cover.
"""

# Used by: data/tasks, data/learning, hub_cards/checkpoints, hub_cards/evaluation, hub_cards/page, hub_cards/publishing,
# hub_cards/research/theories, hub_cards/training, train.py. Changed freely.

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from string import whitespace
from typing import Any, ClassVar

import numpy as np

from longhand.data.digits import uniform_words
from longhand.data.formatting import check_longest, lay_out
from longhand.data.lengths import LongestOperandLengths
from longhand.data.machines.columns import Graph
from longhand.data.machines.covering import SEARCHED
from longhand.data.machines.sights import Sight, sights_of
from longhand.data.machines.table import step_of, tabulate
from longhand.data.machines.windows import columns_needed, guessed_passes, rows_of, runs_of, with_windows, words_over
from longhand.data.splits import PARTITIONED_DIGITS, SPLITS, make_generator
from longhand.data.tasks.decoder_task import DecoderTask, texts_of
from longhand.data.tasks.reader import AnswerReader
from longhand.modeling.transducer import Pass, Transducer, read_transducer, table_of
from longhand.modeling.vocabulary import BOS, EQUALS, GREATER

TABLES = "longhand_tables"
"""Module of the tasks that were made from the table of a configuration."""

SETTLING, STATES = "settling_", "states_of_"
"""Begin the names of tasks that derive from a column task, see `settling_columns.py` and `written_states.py`; the name of
the column task follows."""

_ARGUMENT = f"{SEARCHED} The transducer is the table in the field `transducer`: the model computes what it says."

MEANING, CODE = "meaning", "code"
"""Facts of a machine that was found: the docstring and the source of the function."""

PROVED = "proved"
"""The fact of a machine that was found which says what is proved of it. A file may say anything: what is shown as proved is
derived from the table (`data/learning/proof.py`)."""

OPERANDS = "operands"
"""The fact of a machine that was found which says that its operands have one length; see `ColumnTask.one_length`."""

DOMAIN = "domain"
"""The fact of a machine that was found which is the regular expression of the texts that its function takes."""

DOMAIN_LENGTHS, BEYOND_DOMAIN = 6, 100
"""So many lengths of such texts are tested, and one that is longer than most."""

NEAR_DOMAIN, MOST_REDRAWN = 2 / 3, 100
"""The share of tests that are texts of the domain or near misses. Texts of other splits are drawn again so many times."""

LEAST_TRAINED = 5
SPARE_COLUMNS = 2
"""Training draws problems of at least so many columns, and so many beyond those that show every neighbourhood: then a
neighbourhood is in many problems, not all of them held out."""

FEW_STATES = 64
"""With at most these many states, blocks of columns are solved at once, from every state."""


@dataclass(frozen=True)
class ColumnPass:
    """One pass of a task that makes several; see `ColumnTask` for what the fields mean.

    Passes may have different directions; then those from the top have no `flush`. A task makes all its passes in every
    problem. A pass for each operand is a pass that reads one operand, and the pass before it: `reads=(place, ...)`.

    Attributes:
        step: `(state, symbols) -> (symbol to write, next state)`; symbols come in the order of `reads`.
        reads: what is read: 0.. are the operands, and after them come the earlier passes; None for all operands.
    """

    step: Callable[[Any, tuple[int, ...]], tuple[int, Hashable]]
    writes: str | None = None
    start: Hashable = 0
    flush: int = 0
    direction: str = "ones_first"
    reads: tuple[int, ...] | None = None
    window: tuple[int, int] | None = None


@dataclass(frozen=True)
class ColumnTask(LongestOperandLengths, DecoderTask):
    """Base of the tasks that a step on columns defines.

    Operands are words over an alphabet, padded with its first symbol to the width of the longest one. The response has one
    symbol for each column and `flush` more. The length of each operand is uniform, and so is the word among those of its
    length. A group holds the problems of one width.

    Attributes:
        alphabet: the symbols of the operands, 1 to 256 characters; the first one pads.
        writes: the symbols that are written; the alphabet by default.
        start: the first state, hashable.
        flush: columns beyond the operands, in which every operand reads symbol 0.
        direction: `"ones_first"` or `"top_first"`, the order in which columns are read and written.
        answer: `"all"` of what the last pass writes, its `"last"` symbol, or what all passes write, `"joined"` without `_`.
        window: first and last column that a token sees, counted from its own in the task's direction; None for the least.
        one_length: whether operands must have one length, as the texts that a function was asked have. Else a shorter one is
            padded.
        worked_examples: from questions to their answers, worked out by hand; before training, the step must agree.
        passes: for a task of several passes, in place of `step`, `writes`, `start`, `flush`, `direction` and `window`.
    """

    operands: ClassVar[int] = 1
    alphabet: ClassVar[str] = "0123456789"
    writes: ClassVar[str | None] = None
    start: ClassVar[Hashable] = 0
    flush: ClassVar[int] = 0
    direction: ClassVar[str] = "ones_first"
    answer: ClassVar[str] = "all"
    window: ClassVar[tuple[int, int] | None] = None
    worked_examples: ClassVar[Mapping[str, str]] = {}
    one_length: ClassVar[bool] = False
    passes: ClassVar[tuple[ColumnPass, ...]] = ()
    coupling: ClassVar[str] = "columns"
    sized_problems: ClassVar[tuple[str, str]] = ("operands of", "symbol")

    def step(self, state: Any, symbols: tuple[int, ...]) -> tuple[int, Hashable]:
        """Return the place of the symbol to write and the next state.

        Args:
            symbols: places in the alphabet, one for each operand.
        """
        raise NotImplementedError(f"the task {self.name!r} has no step")

    def holds(self, state: Any, symbols: tuple[int, ...], written: int, following: Any) -> bool:
        """Return whether an entry of the table is as the operation asks, such as a + b + carry = digit + 10 * next carry.

        Called for every entry of the table. Override it by an identity that does not use `step`.
        """
        return True

    @property
    def transducer(self) -> Transducer:
        """The task as a table.

        Raises:
            ValueError: the step has no finite table, or no window suffices.
        """
        return _transducer(self)[0]

    @property
    def rule(self):
        return self.transducer.rule

    @property
    def tokens(self) -> tuple[str, ...]:
        return self.transducer.tokens

    @property
    def partitioned_digits(self) -> int:  # type: ignore[override]
        if len(self.alphabet) == 1:
            # There is one problem of each size, so every split holds it.
            return 0
        return math.ceil(PARTITIONED_DIGITS / math.log10(len(self.alphabet)))

    @property
    def example_question(self) -> str:
        if texts := self._domain_texts:
            return self.sign.join([texts[0]] * self.operands)
        generator = make_generator("question", self.name)
        lengths = np.full((1, self.operands), 2)
        return self.sign.join(self.words(np.maximum(self.draw_operands(generator, lengths), [0, 1]))[0])

    @property
    def reader(self) -> AnswerReader:
        if self.answer == "joined":
            return AnswerReader(dropped="_>")
        last = self.transducer.passes[-1]
        is_number = last.direction == "ones_first" and last.writes[0] == self.alphabet[0]
        return AnswerReader(
            separators=">" if len(self.transducer.passes) > 1 else "",
            last=1 if self.answer == "last" else None,
            ones_first=last.direction == "ones_first" and self.answer == "all",
            leading_zeros=not (is_number and self.answer == "all"),
            zero=last.writes[0],
        )

    def words(self, digits: np.ndarray) -> list[list[str]]:
        """The operands (count, operands, width) of problems as text, with all their columns."""
        return words_over(self.alphabet, digits)

    @property
    def domain(self) -> str:
        """The regular expression of the texts that a function takes whose machine was found; empty if there is none."""
        return (self.learned or {}).get(DOMAIN, "")

    @property
    def _domain_texts(self) -> tuple[str, ...]:
        """Texts of the domain over the alphabet; none without a domain."""
        if not self.domain:
            return ()
        from longhand.data.tasks.domain import texts_of_domain

        return texts_of_domain(self.domain, self.alphabet)

    def draw_operands(self, generator, lengths):
        return uniform_words(generator, lengths, len(self.alphabet))

    def draw(self, generator, lengths, split):
        """As `Task.draw`; what tests a rule is mostly drawn from its domain, or close to that."""
        digits = super().draw(generator, lengths, split)
        if split == "train" or not self._domain_texts:
            return digits
        from longhand.data.tasks.domain import near_domain

        rows = np.flatnonzero(generator.random(len(digits)) < NEAR_DOMAIN)
        for _ in range(MOST_REDRAWN):
            near = near_domain(generator, len(rows), *digits.shape[1:], self.domain, self.alphabet)
            assigned = self.split_of(near, lengths[rows])
            is_of_split = (assigned < 0) | (assigned == SPLITS.index(split))
            digits[rows[is_of_split]] = near[is_of_split]
            rows = rows[~is_of_split]
        return digits

    def problem_keys(self, digits, lengths):
        # Symbols that pad a word look like symbols that were drawn.
        return super().problem_keys(digits, np.broadcast_to(lengths.max(axis=1, keepdims=True), lengths.shape))

    def solve(self, digits: np.ndarray) -> list[np.ndarray]:
        """The words that passes write, (count, width + flush) places in its symbols, the first one that is written first.

        Args:
            digits: (count, operands, width) places in the alphabet, ones first.
        """
        width, rows = digits.shape[2], list(digits.transpose(1, 0, 2))
        written = []

        def turned(row: np.ndarray, direction: str) -> np.ndarray:
            """The columns of a row in the order in which a pass reads them, or back; what was flushed stays last."""
            turn = slice(None, None, 1 if direction == "ones_first" else -1)
            return np.concatenate([row[:, :width][:, turn], row[:, width:]], axis=1)

        for place, table_pass in enumerate(self.transducer.passes):
            inputs = np.zeros((len(digits), width + table_pass.flush), dtype=np.int64)
            for source, size in zip(table_pass.reads, self.transducer.sizes(place), strict=True):
                inputs *= size
                shown = turned(rows[source], table_pass.direction)[:, : width + table_pass.flush]
                inputs[:, : shown.shape[1]] += shown
            written.append(run_pass(np.array(table_pass.write), np.array(table_pass.next), table_pass.start, inputs))
            # Later passes read by column: ones first, what was flushed last.
            rows.append(turned(written[-1], table_pass.direction))
        return written

    def format(self, digits, lengths):
        check_longest(digits, lengths)
        numbers = np.arange(max(2, len(self.tokens))).astype(np.min_scalar_type(len(self.tokens)))
        symbols = numbers[[self.tokens.index(symbol) for symbol in self.alphabet]]
        query: list[int | np.ndarray] = [BOS]
        for operand in range(self.operands):
            query += [symbols[digits[:, operand, ::-1]], self.tokens.index(self.sign) if self.sign else EQUALS]
        query[-1] = EQUALS
        response: list[int | np.ndarray] = []
        for table_pass, written in zip(self.transducer.passes, self.solve(digits), strict=True):
            response += [numbers[[self.tokens.index(symbol) for symbol in table_pass.writes]][written], GREATER]
        return lay_out([*query, *response[:-1], self.end_token], query_parts=len(query))

    def answer_to(self, question: str) -> str:
        """The answer to a question, as the step computes it.

        Raises:
            ValueError: as `read_question`.
        """
        words = self.read_question(question)
        width = max(map(len, words))
        padded = [word.rjust(width, self.alphabet[0]) for word in words]
        places = [[self.alphabet.index(symbol) for symbol in reversed(word)] for word in padded]
        written = self.solve(np.array([places], dtype=np.uint8))
        passes = zip(self.transducer.passes, written, strict=True)
        return self.reader.read(
            ">".join("".join(table_pass.writes[place] for place in row[0]) for table_pass, row in passes)
        )

    def check_worked_examples(self):
        for question, answer in self.worked_examples.items():
            if (computed := self.answer_to(question)) != answer:
                raise ValueError(
                    f"the task {self.name!r} states the answer {answer!r} to {question!r}, but its step says {computed!r}"
                )

    def read_question(self, question):
        text = question.strip(whitespace).removesuffix("=")
        words = [word.strip(whitespace) for word in (text.split(self.sign) if self.sign else [text])]
        if len(words) != self.operands or not all(words) or not set().union(*words) <= set(self.alphabet):
            raise ValueError(
                f"the question {question!r} is not of the task {self.name!r}: it must have {self.operands} operand(s) over "
                f"{self.alphabet!r}, such as {self.example_question!r}"
            )
        if self.one_length and len(set(map(len, words))) > 1:
            raise ValueError(
                f"the operands of {question!r} have different lengths, and those of the task {self.name!r} have one length"
            )
        return words

    def prompt(self, question):
        words = self.read_question(question)
        return self.sign.join(word.rjust(max(map(len, words)), self.alphabet[0]) for word in words) + "="

    def runs(self, ordered=True):
        return (_transducer(self)[1],)

    @property
    def sights(self) -> list[Sight]:
        """What the tokens of each pass see."""
        table, graph = _transducer(self)
        return sights_of(graph, table.relations)

    def covering(self, window, layers):
        """Every neighbourhood, by search."""
        return replace(super().covering(window, layers), argument=_ARGUMENT)

    def text_runs(self, ordered):
        table, graph = _transducer(self)
        if len(table.passes) > 1:
            raise ValueError(f"the task {self.name!r} makes {len(table.passes)} passes, and a proof of one length knows one")
        return texts_of(graph, graph.rows.layout, low=min(0, table.passes[0].window[0]))

    @property
    def columns_needed(self) -> np.ndarray:
        """(neighbourhoods,) columns of a shortest problem that shows each one."""
        return np.concatenate([columns_needed(self.transducer, sight.find()) for sight in self.sights])

    @property
    def length_complexity(self) -> int:  # type: ignore[override]
        """The least number of columns such that problems of up to so many show every neighbourhood."""
        return int(self.columns_needed.max())

    def describe_sizes(self, longest: int) -> list[str]:
        """As `Task.describe_sizes`, from the columns that each neighbourhood needs."""
        needed = self.columns_needed
        lines = [
            f"problems of up to {self.length_complexity} columns show all {len(needed):,} neighbourhoods: this is the "
            f"length complexity of {self.name}"
        ]
        if missing := int((needed > longest).sum()):
            lines.append(
                f"warning: training draws at most {longest} columns, so {missing:,} neighbourhoods never occur in it: "
                f"--max_length {self.trained_length} draws them all"
            )
        return lines

    def describe_windows(self) -> list[str]:
        """As `Task.describe_windows`."""
        lines = []
        for number, table_pass in enumerate(self.transducer.passes, 1):
            low, high = table_pass.window
            keys = (high - low + 1) * len(table_pass.reads)
            alike = ", operands not told apart" if table_pass.symmetric and self.operands > 1 else ""
            lines.append(
                f"pass {number}: {len(table_pass.write):,} states, {table_pass.direction.replace('_', ' ')}; "
                f"a token sees {keys} keys in columns {low} to {high}{alike}"
            )
        return lines

    @property
    def trained_length(self) -> int:
        """Columns of the longest problem that training draws, where a recipe says nothing."""
        return max(LEAST_TRAINED, self.length_complexity + SPARE_COLUMNS)

    @property
    def suggested_arguments(self) -> dict[str, object]:  # type: ignore[override]
        # A head for each relation, and one for the `$` at the beginning.
        heads = len(self.rule.relations) + 1
        suggested: dict[str, object] = {"max_length": self.trained_length, "num_attention_heads": heads}
        if not self.domain:
            return suggested
        from longhand.data.tasks.domain import lengths_of_domain

        lengths = lengths_of_domain(self.domain, self.alphabet, DOMAIN_LENGTHS)
        tested = sorted({*lengths, BEYOND_DOMAIN})
        return suggested | {"validation_lengths": sorted({*lengths[-1:], BEYOND_DOMAIN}), "test_lengths": tested}

    @property
    def ones_come_first(self) -> bool:  # type: ignore[override]
        """Whether runs are walked from the ones on, see `guessed_passes`."""
        return any(table_pass.direction == "ones_first" for table_pass in self.transducer.passes)

    def vary(self, generator, digits, max_length):
        """Extend half of the problems by random columns behind those that are read, if all passes read in one direction."""
        width = max(max_length, digits.shape[2])
        if generator.random() < 0.5 or guessed_passes(self.transducer):
            return digits
        count, operands, given_width = digits.shape
        drawn = generator.integers(0, len(self.alphabet), size=(count, operands, width - given_width), dtype=np.uint8)
        return np.concatenate([digits, drawn] if self.ones_come_first else [drawn, digits], axis=2)

    def drawn_lengths(self, digits, lengths):
        return lengths


class Automaton(ColumnTask):
    """Base of the tasks that read words from their beginning and answer with the last symbol that they write."""

    direction = "top_first"
    answer = "last"


def run_pass(write: np.ndarray, following: np.ndarray, start: int, inputs: np.ndarray) -> np.ndarray:
    """Run a table over columns, (count, columns) inputs in the order in which they are read; (count, columns) symbols.

    With few states, blocks of columns are run at once from every state, and then from the right one: about 2 sqrt(columns)
    numpy steps.
    """
    (states, size), (count, columns) = write.shape, inputs.shape
    blocks = math.isqrt(columns) if states <= FEW_STATES else 1
    length = -(-columns // blocks)
    cut = np.pad(inputs, ((0, 0), (0, blocks * length - columns))).reshape(count, blocks, length)
    write, following = write.reshape(-1), following.reshape(-1)
    state = np.full((count, blocks), start)
    if blocks > 1:
        reached = np.tile(np.arange(states), (count, blocks, 1))
        for column in range(length):
            reached = following[reached * size + cut[:, :, column, None]]
        for block in range(1, blocks):
            state[:, block] = reached[np.arange(count), block - 1, state[:, block - 1]]
    written = np.empty(cut.shape, dtype=np.uint8)
    for column in range(length):
        place = state * size + cut[:, :, column]
        written[:, :, column], state = write[place], following[place]
    return written.reshape(count, -1)[:, :columns]


def _passes_of(task: ColumnTask) -> tuple[ColumnPass, ...]:
    """The passes of a task; a task without them has one, its step."""
    return task.passes or (ColumnPass(task.step, task.writes, task.start, task.flush, task.direction, None, task.window),)


def tables_of(task: ColumnTask) -> Transducer:
    """The table of a task; the windows of its passes have not been searched yet.

    Raises:
        ValueError: a field of the task is not legal, or a step has no finite table.
    """
    task_passes = _passes_of(task)
    passes = []
    for task_pass in task_passes:
        reads = tuple(range(task.operands)) if task_pass.reads is None else task_pass.reads
        writes = task.alphabet if task_pass.writes is None else task_pass.writes
        passes.append(
            Pass(writes, task_pass.direction, task_pass.flush, 0, task_pass.window or (1, 1), False, [[0]], [[0]], reads)
        )
    # All fields are checked before a step is asked.
    fields = table_of(Transducer(task.alphabet, task.operands, task.sign, task.answer, tuple(passes))) or {}
    table = read_transducer(fields)
    holds = None if task.passes else task.holds
    for place, task_pass in enumerate(task_passes):
        symbols = len(passes[place].writes)
        write, following = tabulate(task.name, task_pass.step, task_pass.start, symbols, table.sizes(place), holds)
        passes[place] = replace(table.passes[place], window=(1, 1), symmetric=True, write=write, next=following)
    return replace(table, passes=tuple(passes))


@lru_cache(maxsize=16)
def _transducer(task: ColumnTask) -> tuple[Transducer, Graph]:
    """The table of a task, with the least windows that suffice, and its runs, with the ids that follow from the windows."""
    table = tables_of(task)
    graph = runs_of(table, task.end_token)
    table = with_windows(task.name, table, graph, [task_pass.window for task_pass in _passes_of(task)])
    return table, replace(graph, rows=rows_of(table))


def task_of_table(name: str, values: Mapping[str, object], learned: Mapping[str, str] | None = None) -> type[ColumnTask]:
    """The task that a configuration holds as a table.

    Args:
        learned: as of `ColumnTask`.

    Raises:
        ValueError: as `read_transducer`.
    """
    table = read_transducer(values)
    table.check_tables()
    known = {"learned": learned, "one_length": OPERANDS in (learned or {})}
    about = f"The task {name}, as the table of a configuration."
    return task_class(name, table, {"passes": column_passes(table), **known, "__doc__": about})


def column_passes(table: Transducer) -> tuple[ColumnPass, ...]:
    """The passes of a table, as a task makes them."""
    return tuple(
        ColumnPass(
            step_of(table_pass.write, table_pass.next, table.sizes(place)),
            table_pass.writes,
            table_pass.start,
            table_pass.flush,
            table_pass.direction,
            table_pass.reads,
            table_pass.window,
        )
        for place, table_pass in enumerate(table.passes)
    )


def task_class(name: str, table: Transducer, attributes: Mapping[str, object]) -> type[ColumnTask]:
    """A class of tasks with the words of a table.

    Args:
        attributes: the others of the class, such as its passes.
    """
    words = {"alphabet": table.alphabet, "operands": table.operands, "sign": table.sign, "answer": table.answer}
    return type(name, (ColumnTask,), {"name": name, "__module__": TABLES, **words, **attributes})
