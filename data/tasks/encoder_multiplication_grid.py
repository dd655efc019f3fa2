"""Multiplication of any two numbers in a grid, without a scratchpad."""

# Used by: whoever runs or imports it. Changed freely.

from dataclasses import dataclass
from itertools import product
from typing import ClassVar, NamedTuple

import numpy as np
import torch

from longhand.data.collator import IGNORED
from longhand.data.digits import number_lengths
from longhand.data.formatting import LabelledTokens
from longhand.data.machines.columns import ABSENT
from longhand.data.machines.covering import CoveringCases, hide_labels
from longhand.data.tasks.encoder_task import KNOWN_OR_NOT, EncoderTask
from longhand.data.tasks.reader import AnswerReader
from longhand.data.tasks.registry import register_task
from longhand.modeling.encoder_maps import GRID
from longhand.modeling.inputs import PromptFormat
from longhand.modeling.settling import NO_STATE, pass_targets
from longhand.modeling.vocabulary import FIELD_PAD, MINUS, NOT_KNOWN, TIMES

DIGITS = np.arange(10)


def multiply_in_grid(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sum digits and carries (count, rows, columns) uint8 of the cells of products, ones first.

    10 carry + sum digit = product of the heads + sum digit of the row before, one column up + carry of the column below.
    Cells with equal column + 2 row do not depend on each other, and are computed together.

    Args:
        first: digits (count, columns), with a 0 at the top.
        second: digits (count, rows).
    """
    (count, columns), rows = first.shape, second.shape[1]
    # The extra row and the two extra columns hold the zeros around the grid.
    sums, carries = (np.zeros((count, rows + 1, columns + 2), dtype=np.uint8) for _ in range(2))
    for front in range(columns + 2 * rows - 2):
        row = np.arange(max(0, (front - columns) // 2 + 1), min(rows - 1, front // 2) + 1)
        column = front - 2 * row
        total = first[:, column] * second[:, row] + sums[:, row, column + 2] + carries[:, row + 1, column]
        sums[:, row + 1, column + 1], carries[:, row + 1, column + 1] = total % 10, total // 10
    return sums[:, 1:, 1:-1], carries[:, 1:, 1:-1]


class Places(NamedTuple):
    """Where the tokens of a grid stand in its text. Rows and columns count from 0, from the top and from the left.

    Attributes:
        first_length: digits of the first number.
    """

    first_length: int

    @property
    def columns(self) -> int:
        """Columns of cells; the first one is headed by the 0 above the first number."""
        return self.first_length + 1

    def carry(self, row: np.ndarray, column: np.ndarray) -> np.ndarray:
        """The `-` of a cell."""
        # Heads and the sign come first; a row has two tokens for each cell, and the digit that ends it.
        return self.columns + 1 + row * (2 * self.columns + 1) + 2 * column

    def sum_digit(self, row: np.ndarray, column: np.ndarray) -> np.ndarray:
        """The `_` of a cell."""
        return self.carry(row, column) + 1

    def head_of_row(self, row: np.ndarray) -> np.ndarray:
        """The digit of the second number that ends a row."""
        return self.carry(row, np.array(self.columns))

    def head_of_column(self, column: np.ndarray) -> np.ndarray:
        """The digit of the first number, or the 0 above it, that heads a column."""
        return column


@register_task
@dataclass(frozen=True)
class EncoderMultiplicationGrid(EncoderTask):
    """Products of two numbers of any length, in a grid with a cell for each pair of their digits (`encoder_maps.grid_keys`).

    The first number, with a 0 above it, heads the columns. Each digit of the second one ends a row, the ones digit first. A
    cell has a carry, read at `-`, and a sum digit, read at `_`. The product is read along the sum digits of the last row,
    then up the ones column. This is 12*34=408, written as one line, `012*-_-_-_4-_-_-_3`:

        input     0  1  2 *        label    .  .  . .
                 -_ -_ -_ 4                00 04 08 .
                 -_ -_ -_ 3                00 04 10 .

    The lengths of both numbers are uniform and independent of each other. A group holds the problems with one length of
    each. The layout is the two lengths.
    """

    name: ClassVar[str] = "encoder_multiplication_grid"
    operator: ClassVar[int] = TIMES
    settling_map: ClassVar[str] = GRID
    example_question: ClassVar[str] = "653*49"
    every_problem: ClassVar[str] = "two numbers of every length"
    most_digits: ClassVar[int] = 2000
    most_answered: ClassVar[int] = 2_000_000  # About a gigabyte.
    reader = AnswerReader(leading_zeros=False)

    @property
    def prompt_format(self):
        return PromptFormat(r"0[0-9]+\*(?:(?:-_)+[0-9])+", self.prompt("12*34"))

    def layout(self, lengths):
        return self.one_size(lengths)

    def write(self, digits, first_length, second_length, generator=None):
        count, columns = len(digits), int(first_length) + 1
        first = np.pad(digits[:, 0, : columns - 1], ((0, 0), (0, 1)))
        second = digits[:, 1, :second_length]
        tokens = np.full((count, second.shape[1], 2 * columns + 1), FIELD_PAD, dtype=np.uint8)
        labels = np.full(tokens.shape, IGNORED, dtype=np.int8)
        tokens[:, :, :-1:2], tokens[:, :, -1] = MINUS, second
        sums, carries = multiply_in_grid(first, second)
        labels[:, :, :-1:2], labels[:, :, 1:-1:2] = carries[:, :, ::-1], sums[:, :, ::-1]
        heads = np.concatenate([first[:, ::-1], np.full((count, 1), TIMES, dtype=np.uint8)], axis=1)
        return LabelledTokens(
            tokens=np.concatenate([heads, tokens.reshape(count, -1)], axis=1),
            labels=np.concatenate([np.full(heads.shape, IGNORED, dtype=np.int8), labels.reshape(count, -1)], axis=1),
        )

    def has_label(self, tokens):
        return (tokens == MINUS) | (tokens == FIELD_PAD)

    def answer_labels(self, tokens, labels):
        sums = np.flatnonzero(tokens[0] == FIELD_PAD)
        columns = int(np.flatnonzero(tokens[0] == TIMES)[0])
        places = np.concatenate([sums[-columns:], sums[:-columns][::-columns]])
        return labels[:, places], np.ones((1, len(places)), dtype=bool)

    def examples(self, generator, lengths, split):
        return self.write(self.draw(generator, lengths, split), *self.layout(lengths))

    def augment(self, generator, examples):
        """Train one token of each problem, so that a batch holds many different cells.

        The labels that the token sees are known in most cases and its own is not, for then there is something to compute.
        """
        chances = np.where(examples.labels == IGNORED, -1.0, generator.random(examples.labels.shape))
        is_chosen = np.arange(examples.labels.shape[1]) == chances.argmax(axis=1)[:, None]
        known = generator.random(examples.labels.shape) < np.where(is_chosen, 0.1, 0.95)
        states = np.where(examples.labels == IGNORED, NO_STATE, np.where(known, examples.labels, NOT_KNOWN))
        tokens, known_states, labels = (torch.from_numpy(part).long() for part in (examples.tokens, states, examples.labels))
        targets = pass_targets(GRID, tokens, known_states, labels).numpy()
        # A label is never taken back: where none is right yet, none is known.
        states = np.where(is_chosen & (targets == NOT_KNOWN), NOT_KNOWN, states)
        chosen_labels = np.where(is_chosen, targets, IGNORED)
        return LabelledTokens(examples.tokens, chosen_labels.astype(np.int8), states.astype(np.int8))

    def write_cases(self, covered: CoveringCases) -> LabelledTokens:
        """A cell with each case, in grids of 2 x 2 digits in which nothing else is right, for practice.

        In the first row no sum digit is above a cell, and in the ones column, the last one, no carry is on its right.
        """
        cases, every = covered.cases, np.arange(covered.count)
        has_sum, has_carry = (cases.relations[:, 3:] >= 0).numpy().T
        places = Places(first_length=2)
        row, column = np.where(has_sum, 1, 0), np.where(has_carry, 1, 2)
        is_sum = cases.tokens.numpy() == FIELD_PAD
        token_place = np.where(is_sum, places.sum_digit(row, column), places.carry(row, column))
        examples = self.write(np.zeros((len(every), 2, 2), dtype=np.uint8), 2, 2)
        states, labels = np.where(examples.labels == IGNORED, NO_STATE, NOT_KNOWN), np.full_like(examples.labels, IGNORED)
        heads = places.head_of_column(column), places.head_of_row(row)
        examples.tokens[every, heads[0]], examples.tokens[every, heads[1]] = cases.keys[:, 1:3].numpy().T
        states[every, token_place], labels[every, token_place] = cases.states, covered.right
        above, right = places.sum_digit(row - 1, column - 1), places.carry(row, column + 1)
        states[has_sum, above[has_sum]] = cases.key_states[:, 3][has_sum]
        states[has_carry, right[has_carry]] = cases.key_states[:, 4][has_carry]
        return LabelledTokens(examples.tokens, labels, states.astype(np.int8))

    def rewrite(self, generator, digits, lengths):
        return self.write(digits, *self.layout(lengths))

    def prompt(self, question):
        digits = self._parse(question)
        lengths = number_lengths(digits)
        first, second = self.layout(lengths)
        # A token for each head and the sign; in each row two for every head, and one that ends the row.
        self.check_answered((first + 2) + second * (2 * first + 3))
        return self._text_of(self.write(digits, *self.layout(lengths)))

    def covering(self, window, layers):
        """Every case: of the first row, which sees no sum digit above, and of others; on the right, inside, on top."""
        parts = []
        for first_row, place in product((True, False), range(3)):
            # The 0 on top has no cell to its left, and the ones none to their right.
            sums = DIGITS[:1] if first_row else DIGITS
            heads, above = (DIGITS[:1], DIGITS[:1]) if place == 2 else (DIGITS, sums)
            a, b, s, c = combine(heads, DIGITS, above, DIGITS if place else DIGITS[:1])
            legal = _carries(sums)[b, c]
            a, b, s, c = a[legal], b[legal], s[legal], c[legal]
            total, nothing = a * b + s + c, np.full(len(a), ABSENT)
            no_sum, no_carry = first_row or place == 2, place == 0
            for token, label in ((MINUS, total // 10), (FIELD_PAD, total % 10)):
                tokens, sum_digit, carry = (np.full(len(a), constant) for constant in (token, FIELD_PAD, MINUS))
                keys = [tokens, a, b, nothing if no_sum else sum_digit, nothing if no_carry else carry]
                none = np.full(len(a), NO_STATE)
                labels = [label, none, none, none if no_sum else s, none if no_carry else c]
                parts.append(np.stack([keys, labels]))
        keys, labels = np.concatenate(parts, axis=2).transpose(0, 2, 1)
        return hide_labels(
            keys, labels, range(5), np.zeros(len(keys), dtype=bool), NOT_KNOWN, task=self,
            ideal=(
                "In an ideal pass both labels of a cell become right if the sum digit up and to the left and the carry on "
                "the right are known, or are not there; else they are not known. A known label is right and stays, since "
                "those two stay. Of the cells with an unknown label, let one have the smallest column + 2 row, counted from "
                "the ones. Both of the others have a smaller one, so they are known, and the cell's labels become known."
            ),
            argument=(
                "A cell has the heads a and b. It sees the sum digit s up and to the left, and the carry c on the right. "
                "In the first row there is no s, and above the top digit, where a is 0, there is none. The carries that can "
                "enter a cell were found by search: 0 can, and if c can, so can the first digit of a b + s + c, for each a "
                f"and each s. {KNOWN_OR_NOT}"
            ),
        )  # fmt: skip


def _carries(sums: np.ndarray) -> np.ndarray:
    """(10, 10) whether a carry can enter a cell of a row with a head, if these sum digits can come from above."""
    reached = np.zeros((10, 10), dtype=bool)
    reached[:, 0] = True
    a, b, s, c = combine(DIGITS, DIGITS, sums, DIGITS)
    for _ in DIGITS:
        legal = reached[b, c]
        reached[b[legal], (a * b + s + c)[legal] // 10] = True
    return reached


def combine(*values: np.ndarray) -> list[np.ndarray]:
    """Every combination of the values, as one flat array for each argument; the last one changes fastest.

    `left, right = combine(np.arange(2), np.arange(3))` gives `left` 0 0 0 1 1 1 and `right` 0 1 2 0 1 2.
    """
    return [grid.reshape(-1) for grid in np.meshgrid(*values, indexing="ij")]
