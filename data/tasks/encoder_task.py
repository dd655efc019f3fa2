"""Tasks of the encoder: the answer is read at tokens of the problem itself (paper 2, Sec. 3)."""

# Used by: encoder_addition.py, encoder_multiplication.py, encoder_multiplication_grid.py, settling_columns.py, data/proofs,
# hub_cards/publishing. Changed freely.

import re
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from typing import Any, ClassVar

import numpy as np

from longhand.data.collator import IGNORED
from longhand.data.digits import number_lengths, shift_digits
from longhand.data.families import ENCODER
from longhand.data.formatting import LabelledTokens, close_up
from longhand.data.lengths import rows_of_groups
from longhand.data.machines.columns import ABSENT, MARKER, Columns, Graph, Ids, Number, Rows, grow
from longhand.data.machines.covering import SEARCHED, CoveringCases, agree, hide_labels
from longhand.data.machines.sights import find_neighbourhoods, number_rows, slots_of
from longhand.data.splits import SPLITS, make_generator, problem_keys
from longhand.data.tasks.reader import NUMBER, AnswerReader, digits_of, read_numbers
from longhand.data.tasks.task import Task
from longhand.modeling.relations import Window
from longhand.modeling.settling import NO_STATE
from longhand.modeling.vocabulary import ENCODER_TOKENS, FIELD_PAD, FIRST_TEXT, NOT_KNOWN, PAD, PAD_LABEL, STATES, TIMES

SHIFTED = "shifted"
"""A sampling that appends a random number of zeros to the numbers of a problem."""

_SHIFTS_TRIED = 100
"""Times that zeros are drawn for a problem until it belongs to the training split. All but one in eight do."""

_MOST_TOKENS = 1_000_000
"""Most tokens of a field, or of a text around the numbers."""

IDEAL = (
    "In an ideal pass a label becomes the right one if the carry from the column below is decided: there is no such column, "
    "its label is known, or one carry alone comes out of its digits; else it is not known. A known label is right and "
    "stays, since what decided it stays. The lowest label that is not known becomes known, since the label below is known "
    "or there is none."
)
"""How ideal passes find labels in sums, and in products with one digit."""

KNOWN_OR_NOT = (
    "The labels that a token sees are known or not, and so is its own, in all ways, except that a known label is never "
    "taken back."
)
"""How cases follow from neighbourhoods in which all labels are known."""


@dataclass(frozen=True)
class EncoderTask(Task):
    """Base of the tasks that a PairwiseBert learns: two numbers with an operator between them.

    The layout of problems is what `write` needs to know besides their digits.

    Attributes:
        operator: token between the numbers.
        tokens: the vocabulary.
        labels: the classes of an encoder that settles, of which the last one is for a label that is not known.
        settling_map: the pair map of encoders with `label_states` for which `covering` holds; None if it is unknown.
    """

    family = ENCODER
    tokens: ClassVar[tuple[str, ...]] = ENCODER_TOKENS
    labels: ClassVar[tuple[str, ...]] = STATES
    operands: ClassVar[int] = 2
    operator: ClassVar[int]
    settling_map: ClassVar[str | None] = None

    @property
    def sign(self) -> str:  # type: ignore[override]
        """Stands between the numbers of a question."""
        return ENCODER_TOKENS[self.operator]

    @property
    def drawn_on_cards(self) -> "EncoderTask":
        """The task whose example cards draw, as narrow as it can be written."""
        return self.for_evaluation

    def written(self, digits: np.ndarray, lengths: np.ndarray) -> LabelledTokens:
        """Problems with these digits (count, operands, width) and their labels, in the layout of their lengths.

        Raises:
            ValueError: a problem is not legal, or they cannot stand in one batch.
        """
        return self.write(digits, *self.layout(lengths))

    @property
    def written_names(self) -> tuple[str, ...]:
        """The texts of the labels of the task's models, by id."""
        return self.labels

    @abstractmethod
    def layout(self, lengths: np.ndarray) -> tuple[int, ...]:
        """The layout of problems of one group of lengths (count, columns of `lengths`).

        Raises:
            ValueError: they have none.
        """

    @abstractmethod
    def write(self, digits: np.ndarray, *layout: Any) -> LabelledTokens:
        """Problems (count, 2, width), ones first, as tokens and labels."""

    @abstractmethod
    def has_label(self, tokens: np.ndarray) -> np.ndarray:
        """Which tokens of a problem (tokens,) have labels."""

    def answer_labels(self, tokens: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The answer's labels (count, columns), most significant first, and a mask (count or 1, columns) of those that are
        not `IGNORED`."""
        return labels, labels != IGNORED

    def check_settling(self) -> None:
        """Raise ValueError unless an encoder with `label_states` can learn the task."""

    def _parse(self, question: str) -> np.ndarray:
        """Digits (1, 2, width) of a question's two numbers."""
        numbers = read_numbers(question, self.sign, self.example_question)
        return digits_of([number.lstrip("0") or "0" for number in numbers])

    def _text_of(self, examples: LabelledTokens) -> str:
        return "".join(ENCODER_TOKENS[token] for token in examples.tokens[0])

    def drawn_lengths(self, digits, lengths):
        return number_lengths(digits)


@dataclass(frozen=True)
class FieldTask(EncoderTask):
    """Base of the tasks whose numbers stand in fields of fixed width.

    Numbers are uniform below 10^length, not balanced by length, in training and in tests (paper 2, Sec. 3). So `lengths` are
    (count, 1) arrays of that bound, in digits. If the sampling has classes, the class is a second column. The layout is the
    width of the fields.

    Attributes:
        in_field: the numbers, of the two, that are padded to a field.
        class_samplings: kinds of sampling with classes: the problems of a class, as test sets, are equally hard.
        settling_window: the `relation_range` of encoders with `label_states`.
        settling_relations: the window of these encoders in the relations of `settling_ids`; None if it is `settling_window`.
        settling_ids: ids of the first number, or of the digit m by which is multiplied, and of the second number, as the
            pair map has them.
    """

    in_field: ClassVar[slice] = slice(None)
    class_samplings: ClassVar[tuple[str, ...]] = ()
    settling_window: ClassVar[tuple[int, int]]
    settling_relations: ClassVar[Window | None] = None
    settling_ids: ClassVar[tuple[Ids, Ids]]
    reader = AnswerReader(padding="_")

    field_width: int | None = field(
        default=None,
        metadata={
            "help": "tokens of a padded number's field; None is the width that the longest number needs",
            "range": (1, _MOST_TOKENS),
        },
    )
    varied_field: bool = field(
        default=False,
        metadata={
            "help": "train with fields of random width up to field_width, evaluate with the narrowest",
            "needs": {"num_train_samples": None},
        },
    )
    text_tokens: int = field(
        default=0,
        metadata={
            "help": "most tokens of random text before the numbers, between them, and after them",
            "range": (0, _MOST_TOKENS),
        },
    )

    def __post_init__(self):
        super().__post_init__()
        if self.varied_field and self.field_width is None:
            raise ValueError("varied_field needs field_width, the widest field")

    def operand_lengths(self, length, other=None):
        if self.sampling in self.class_samplings:
            if other is None or not 0 <= other <= length:
                raise ValueError(
                    f"problems of {length} digits sampled by {self.sampling!r} have a class of 0..{length}, got {other}"
                )
            return (length, other)
        if other is not None:
            raise ValueError(f"problems of the task {self.name!r} so sampled have one size, {self.size_names[0]}, not two")
        return (length,)

    def sample_lengths(self, generator, count, min_length, max_length):
        if min_length != 1:
            raise ValueError(f"numbers are uniform below 10**max_length: min_length must be 1, got {min_length}")
        lengths = np.full((count, 1), max_length)
        if self.sampling not in self.class_samplings:
            return lengths
        return np.concatenate([lengths, generator.integers(0, max_length + 1, size=(count, 1))], axis=1)

    def draw_mixed(self, generator, count, longest, split):
        """As `Task.draw_mixed`. Numbers that are drawn below a bound are nearly all as long as it: here they are cut."""
        bounds = self.sample_lengths(generator, count, 1, longest)
        sizes = generator.integers(1, longest + 1, size=(count, 2, 1))
        digits, missing = self.draw_operands(generator, bounds), np.arange(count)
        while len(missing):
            drawn = self.draw_operands(generator, bounds[missing])
            is_kept = np.arange(drawn.shape[2]) < sizes[missing]
            drawn[:, self.in_field] = (drawn * is_kept)[:, self.in_field]
            digits[missing] = drawn
            assigned = self.split_of(drawn, bounds[missing])
            missing = missing[(assigned >= 0) & (assigned != SPLITS.index(split))]
        return [(self, digits, bounds)]

    def group(self, lengths):
        return np.zeros(len(lengths), dtype=np.int64)

    def shortest_lengths(self, min_length, max_length, count=1):
        # Shorter numbers are drawn by chance.
        return self.sample_lengths(make_generator("shortest"), 1, min_length, max_length)

    def shortest_of(self, split, max_length):
        return 1

    def longest_lengths(self, max_length):
        return self.sample_lengths(make_generator("longest"), 1, 1, max_length)

    def problem_keys(self, digits, lengths):
        return problem_keys(digits, number_lengths(digits), self.partitioned_digits)

    @property
    def for_evaluation(self):
        return replace(self, field_width=None, varied_field=False) if self.varied_field else self

    @property
    def most_text(self):
        return 3 * self.text_tokens

    @property
    def padded_width(self):
        return self.field_width

    @property
    def widest(self):
        return replace(self, varied_field=False)

    @property
    def drawn_on_cards(self):
        return replace(self.for_evaluation, field_width=None)

    def number_pattern(self, spare: int = 0) -> str:
        """Regular expression of a number in its field, with at least `spare` tokens of padding."""
        # A field of varied width is also the narrowest one, in evaluation.
        fixed = None if self.varied_field else self.field_width
        field = "" if fixed is None else f"(?=[_0-9]{{{self._field(self.needed_field(1))}}}(?![_0-9]))"
        return f"{field}_{{{spare},}}{NUMBER}"

    @property
    def text_pattern(self) -> str:
        """Regular expression of the text around numbers, however much there is."""
        return "[a-z]*" if self.text_tokens else ""

    @property
    @abstractmethod
    def sampling(self) -> str:
        """How problems are drawn; a field of the task."""

    @abstractmethod
    def needed_field(self, length: int) -> int:
        """Fewest tokens of the second number's field, for numbers below 10^length and their answers."""

    @abstractmethod
    def answer_width(self, field_width: int) -> int:
        """Number of tokens, at the end of the numbers, at which the answer is read."""

    @abstractmethod
    def first_field(self, digits: np.ndarray, field_width: int) -> np.ndarray:
        """Tokens (count, columns) of the first number (count, width), most significant digit first."""

    @abstractmethod
    def solve(self, digits: np.ndarray) -> np.ndarray:
        """Answers (count, width), ones first, to problems (count, 2, width)."""

    def field_widths(self, length: int) -> tuple[int, int]:
        """Fewest and most tokens of a field for numbers below 10^length.

        Raises:
            ValueError: the numbers and their answers do not fit into `field_width`.
        """
        needed = self.needed_field(length)
        widest = self._field(needed)
        return needed if self.varied_field else widest, widest

    def layout(self, lengths):
        return self.field_widths(int(lengths[:, 0].max()))[1:]

    def has_label(self, tokens):
        # Text may stand around the numbers and between them.
        numbers = np.flatnonzero(tokens < FIRST_TEXT)
        operator = int(np.flatnonzero(tokens[numbers] == self.operator)[0])
        labelled = np.zeros(len(tokens), dtype=bool)
        labelled[numbers[-self.answer_width(len(numbers) - 1 - operator) :]] = True
        return labelled

    def deciding_keys(self, tokens):
        """A digit depends on its place and the less significant ones of both numbers, in sums and in products."""
        if self.text_tokens:
            return None
        operator, last = int(np.flatnonzero(tokens == self.operator)[0]), len(tokens) - 1
        query = last - np.arange(len(tokens))
        decides = query[:, None] >= query
        # The first number's places are counted from the operator.
        decides[:, :operator] = query[:, None] >= operator - 1 - np.arange(operator)
        decides[:, operator] = False
        return decides & self.has_label(tokens)[:, None]

    def with_field(self, width: int) -> "FieldTask":
        """The task whose fields all have this width."""
        return replace(self, field_width=width, varied_field=False)

    def examples(self, generator, lengths, split):
        fewest, most = self.field_widths(int(lengths[:, 0].max()))
        if not self.varied_field:
            return self.write(self.draw(generator, lengths, split), most, generator)
        # Operands are drawn after the width: zeros that `"shifted"` sampling appends must fit into this field.
        task = self.with_field(int(generator.integers(fewest, most + 1)))
        return task.write(task.draw(generator, lengths, split), task.field_width, generator)

    @property
    def before_augmentation(self):
        return replace(self, sampling="uniform") if self.sampling == SHIFTED else self

    def augment(self, generator, examples):
        """Append as many zeros to the numbers of each problem as chance says, if the sampling is `SHIFTED`.

        Paper 2 trains on "all shifted versions" of its problems (Sec. 3.1, A3; Eq. D.4): so each time a problem is seen, the
        zeros are drawn anew. A shifted problem that belongs to another split is not trained on.
        """
        if self.sampling != SHIFTED:
            return examples
        columns, digits, field_width = self._read_fields(examples.tokens)
        shifted = self.shift(generator, digits, field_width)
        for _ in range(_SHIFTS_TRIED):
            held_out = np.flatnonzero(self.split_of(shifted, number_lengths(shifted)) > SPLITS.index("train"))
            if len(held_out) == 0:
                break
            shifted[held_out] = self.shift(generator, digits[held_out], field_width)
        else:
            shifted[held_out] = digits[held_out]
        written = self.write(shifted, field_width)
        tokens, labels = examples.tokens.copy(), examples.labels.copy()
        np.put_along_axis(tokens, columns, written.tokens, axis=1)
        np.put_along_axis(labels, columns, written.labels, axis=1)
        return replace(examples, tokens=tokens, labels=labels)

    def _read_fields(self, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        """The columns of problems within text, their digits (count, 2, width), and the width of their fields."""
        is_problem = (tokens < FIRST_TEXT) & (tokens != PAD)
        columns = np.nonzero(is_problem)[1].reshape(len(tokens), -1)
        written = np.take_along_axis(tokens, columns, axis=1)
        operator = int(np.flatnonzero(written[0] == self.operator)[0])
        digits = np.where(written == FIELD_PAD, np.uint8(0), written)
        numbers = (digits[:, :operator][:, ::-1], digits[:, operator + 1 :][:, ::-1])
        width = max(number.shape[1] for number in numbers)
        same_width = [np.pad(number, ((0, 0), (0, width - number.shape[1]))) for number in numbers]
        return columns, np.stack(same_width, axis=1), numbers[1].shape[1]

    def shift(self, generator: np.random.Generator, digits: np.ndarray, field_width: int) -> np.ndarray:
        """Problems (count, 2, width) with zeros appended to the numbers in fields, as far as these have room.

        Returns:
            (count, 2, width), as wide as `digits` or as the widest number that the field takes.
        """
        return shift_digits(generator, digits, self.in_field, field_width - self.needed_field(0))

    def layouts(self, generator, lengths):
        fewest, most = self.field_widths(int(lengths[:, 0].max()))
        widths = generator.integers(fewest, most + 1, size=len(lengths)) if fewest < most else np.full(len(lengths), most)
        return [(self.with_field(width), rows) for width, rows in rows_of_groups(widths)]

    def _field(self, needed: int) -> int:
        if self.field_width is None:
            return needed
        if needed > self.field_width:
            raise ValueError(f"numbers and answers of {needed} digits do not fit into field_width = {self.field_width}")
        return self.field_width

    def write(self, digits: np.ndarray, field_width: int, generator: np.random.Generator | None = None) -> LabelledTokens:
        """Problems (count, 2, width), ones first, as tokens and labels.

        With a generator, random text surrounds the numbers if the format has any.
        """
        count = len(digits)
        first = self.first_field(digits[:, 0], field_width)
        second = write_field(digits[:, 1], field_width, FIELD_PAD)
        operator = np.full((count, 1), self.operator, dtype=np.uint8)
        before, between, after = (self._text(generator, count) for _ in range(3))
        tokens = np.concatenate([before, first, between, operator, second, after], axis=1)
        labels = np.full(tokens.shape, IGNORED, dtype=np.int8)
        answer = write_field(self.solve(digits), self.answer_width(field_width), PAD_LABEL)
        # The answer is read at the last columns that are not text; text may stand between the numbers.
        text = np.zeros(tokens.shape[1], dtype=bool)
        text[: before.shape[1]] = text[tokens.shape[1] - after.shape[1] :] = True
        text[before.shape[1] + first.shape[1] :][: between.shape[1]] = True
        labels[:, np.flatnonzero(~text)[-answer.shape[1] :]] = answer
        present = tokens != PAD
        return LabelledTokens(close_up(tokens, present, PAD), close_up(labels, present, IGNORED))

    def _text(self, generator: np.random.Generator | None, count: int) -> np.ndarray:
        """(count, text_tokens), `PAD` beyond each row's random number of tokens; no columns without a generator."""
        if self.text_tokens == 0 or generator is None:
            return np.empty((count, 0), dtype=np.uint8)
        text = generator.integers(FIRST_TEXT, len(ENCODER_TOKENS), size=(count, self.text_tokens), dtype=np.uint8)
        lengths = generator.integers(0, self.text_tokens + 1, size=(count, 1))
        return np.where(np.arange(self.text_tokens) < lengths, text, np.uint8(PAD))

    def check_settling(self) -> None:
        """Raise ValueError unless an encoder with `label_states` can learn the task: its answer begins at the operator."""
        if (labels := self.answer_width(1)) != 2:
            raise ValueError(
                "has label_states, for which the answer must be read at the operator and at the second number, but the task "
                f"{self.name!r} so written has {labels} label(s) if the second number has one token"
            )

    def covering(self, window, layers):
        """Every case, by search."""
        self.check_settling()
        if tuple(window) != self.settling_window:
            needed = list(self.settling_window)
            raise ValueError(f"the cases of the task {self.name!r} are those of relation_range {needed}, not {list(window)}")
        return _covering(self)

    def vary(self, generator, digits, max_length):
        """Mix the failing problems with as many new ones; training on the failing ones alone makes others fail."""
        drawn = self.draw_operands(generator, np.full((len(digits), 1), generator.integers(1, max_length + 1)))
        width = max(drawn.shape[2], digits.shape[2])
        kept, drawn = (np.pad(part, ((0, 0), (0, 0), (0, width - part.shape[2]))) for part in (digits, drawn))
        return np.where(generator.integers(2, size=(len(digits), 1, 1)) == 0, kept, drawn)

    def rewrite(self, generator, digits, lengths):
        """Problems that fit into one field, again and again; if fields vary, its width is random."""
        # Only the number 0 has a leading 0. Training must see 0 often, also as second operand, since few such problems exist
        # and some are held out.
        digits[::16, 1] = 0
        needed = self.needed_field(0) + number_lengths(digits[:, self.in_field]).max(axis=1)
        widest = self._field(int(needed.max()))
        width = int(generator.integers(generator.choice(needed), widest + 1)) if self.varied_field else widest
        return self.write(np.resize(digits[needed <= width], digits.shape), width, generator)

    def prompt(self, question):
        """A task with text takes any characters around the numbers, and between the first one and the operator."""
        before = between = after = ""
        form = rf"([^0-9+*]*)([0-9]+)\s*([^0-9+*]*)({re.escape(self.sign)}\s*[0-9]+)(?:\s*=?\s*$)?([^0-9+*]*)"
        if self.text_tokens and (found := re.fullmatch(form, question, flags=re.ASCII)):
            before, first, between, second, after = found.groups()
            between = between.rstrip()
            question = first + second
        digits = self._parse(question)
        width = self._field(self.needed_field(int(number_lengths(digits[:, self.in_field]).max())))
        first, sign, second = self._text_of(self.write(digits, width)).partition(self.sign)
        return f"{to_letters(before)}{first}{to_letters(between)}{sign}{second}{to_letters(after)}"


FIRST, SECOND, LABEL, WRITTEN, FACTOR, TOTAL = range(6)
"""Words of `_runs` that a case reads."""


@lru_cache(maxsize=4)
def _covering(task: FieldTask) -> CoveringCases:
    """Every case. The label below is the token of a neighbourhood, and the own one is right next."""
    graph = _runs(task.operator, task.settling_ids)
    ids = {SECOND: graph.rows.ids[SECOND], FIRST: graph.rows.ids[FIRST]}
    slots = slots_of(ids[SECOND], ids, range(0, -2, -1), task.settling_relations or task.settling_window, at=1)
    # Its own token comes first, then the one with the label below.
    slots.sort(key=lambda slot: slot.row == FIRST)
    sees = [(1 + slot.column, slot.row) for slot in slots]
    found = find_neighbourhoods(graph, WRITTEN, [*sees, (1, TOTAL), (0, TOTAL), (1, FACTOR)])
    keys, (total, *below) = found.keys[:, : len(sees)], found.keys[:, len(sees) :].T
    labels = np.full(keys.shape, NO_STATE)
    labels[:, 0], labels[:, 1] = found.right, np.where(found.tokens == MARKER, NO_STATE, found.tokens)
    # The digits below decide a label if one carry alone comes out of them.
    decided = agree(number_rows(np.stack(below, axis=1)), (found.right - total) % 10)
    about = {"argument": f"{SEARCHED} {KNOWN_OR_NOT}", "ideal": IDEAL, "task": task, "graph": graph, "paths": found.paths}
    return hide_labels(keys, labels, [slot.relation for slot in slots], decided, NOT_KNOWN, **about)


def _runs(operator: int, ids: tuple[Ids, Ids]) -> Graph:
    """All sums, or all products with a digit, in the columns of the second number from the ones to the operator.

    Rows: the first number, or the digit m by which is multiplied; the second number; the labels, which are read at it. Then
    come m, which is 1 in sums; m times the digits of a column; and both numbers, as they are practised. A state is m, the
    carry, and what has been read of each number.
    """
    numbers, factors = (1, range(10)) if operator == TIMES else (2, [1])

    def step(state, symbols):
        factor, carry, read = state
        digits = [symbol if symbol < 10 else ABSENT for symbol in symbols]
        following = tuple(map(grow, read, digits))
        if None in following:
            return None
        is_ones = read[0] == Number.BEFORE
        total = factor * sum(max(digit, 0) for digit in digits)
        # 0 is written with one digit.
        is_empty = total + carry == 0 and (max(digits) == ABSENT or (factor == 0 and not is_ones))
        rows, practised = symbols, digits
        if operator == TIMES:
            rows, practised = (factor, *symbols), [factor if is_ones else ABSENT, *digits]
        label = PAD_LABEL if is_empty else (total + carry) % 10
        return (*rows, label, label, factor, total, *practised), (factor, (total + carry) // 10, following)

    def ends(state):
        """The operator stands behind the last column of the second number."""
        found = step(state, (*[ABSENT] * (numbers - 1), operator))
        return found and found[0]

    begin = (ABSENT, ABSENT, MARKER, MARKER, *[ABSENT] * 4)
    starts = {(factor, 0, (Number.BEFORE,) * numbers): begin for factor in factors}
    rows = Rows([*ids, ids[1]], practised=(6, 7))
    return Columns(rows, starts, [*product([*range(10), FIELD_PAD], repeat=numbers)], step, ends).graph


def to_letters(text: str) -> str:
    """Text of any characters as the letters of the vocabulary, one for each character: models read nothing from them."""
    letters = ENCODER_TOKENS[FIRST_TEXT:]
    return "".join(
        character if character in letters else letters[ord(character) % len(letters)] for character in text.lower()
    )


def write_field(digits: np.ndarray, width: int, pad: int) -> np.ndarray:
    """Write numbers (count, any width), ones first, as (count, width), most significant digit first, padded on the left.

    Raises:
        ValueError: a number is too long.
    """
    lengths = number_lengths(digits)
    if (longest := int(lengths.max())) > width:
        raise ValueError(f"a number of {longest} digits does not fit into a field of {width}")
    padded = np.zeros((len(digits), width), dtype=np.uint8)
    kept = min(width, digits.shape[1])
    padded[:, :kept] = digits[:, :kept]
    return np.where(np.arange(width) < lengths[:, None], padded, np.uint8(pad))[:, ::-1]
