"""Multiplication of any two numbers in a grid, without a scratchpad."""

from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import numpy as np
import torch

from longhand.data.collator import IGNORED
from longhand.data.digits import count_up, number_lengths
from longhand.data.formatting import LabelledTokens, join_examples
from longhand.data.tasks.covering import CoveringStates, Problems
from longhand.data.tasks.encoder_task import EncoderTask
from longhand.data.tasks.lengths import rows_of_groups
from longhand.data.tasks.reader import AnswerReader
from longhand.data.tasks.registry import register_task
from longhand.modeling.encoder_maps import GRID
from longhand.modeling.inputs import PromptFormat
from longhand.modeling.settling import NO_STATE, pass_targets
from longhand.modeling.vocabulary import FIELD_PAD, MINUS, NOT_KNOWN, TIMES


def multiply_in_grid(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sum digits and carries (count, rows, columns) uint8 of the cells of products, ones first.

    10 carry + sum digit = product of the heads + sum digit of the row before, one column up + carry of the column below.
    Cells with equal column + 2 row do not depend on each other, and are computed together.

    Args:
        first: digits (count, columns), with a 0 at the top.
        second: digits (count, rows).
    """
    (count, columns), rows = first.shape, second.shape[1]
    # A row and two columns of zeros stand for what there is not.
    sums, carries = (np.zeros((count, rows + 1, columns + 2), dtype=np.uint8) for _ in range(2))
    for front in range(columns + 2 * rows - 2):
        row = np.arange(max(0, (front - columns) // 2 + 1), min(rows - 1, front // 2) + 1)
        column = front - 2 * row
        total = first[:, column] * second[:, row] + sums[:, row, column + 2] + carries[:, row + 1, column]
        sums[:, row + 1, column + 1], carries[:, row + 1, column + 1] = total % 10, total // 10
    return sums[:, 1:, 1:-1], carries[:, 1:, 1:-1]


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
    practises_tokens: ClassVar[bool] = True
    known_labels: ClassVar[tuple[tuple[bool, ...], ...]] = tuple(product((False, True), repeat=3))
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

    def columns(self, tokens):
        columns = int(np.flatnonzero(tokens == TIMES)[0])
        place = (np.arange(len(tokens)) - columns - 1) % (2 * columns + 1)
        return np.maximum(columns - 1 - place // 2, 0)

    def answer_labels(self, tokens, labels):
        sums = np.flatnonzero(tokens[0] == FIELD_PAD)
        columns = int(np.flatnonzero(tokens[0] == TIMES)[0])
        places = np.concatenate([sums[-columns:], sums[:-columns][::-columns]])
        return labels[:, places], np.ones((1, len(places)), dtype=bool)

    def examples(self, generator, lengths, split):
        return self.write(self.draw(generator, lengths, split), *self.layout(lengths))

    def augment(self, generator, examples):
        """Train one token of each problem, so that a batch holds many different cells."""
        chances = np.where(examples.labels == IGNORED, -1.0, generator.random(examples.labels.shape))
        return self._draw_states(generator, examples, chances.argmax(axis=1))

    def write_tokens(self, generator: np.random.Generator, problems: Problems) -> LabelledTokens:
        """Problems of any lengths, for practice of the tokens that are meant, padded on the right."""
        tokens: Any = problems.tokens
        groups = [rows for _, rows in rows_of_groups(self.group(problems.lengths))]
        parts = [self.write(problems.digits[rows], *self.layout(problems.lengths[rows])) for rows in groups]
        return self._draw_states(generator, join_examples(parts), tokens[np.concatenate(groups)])

    @staticmethod
    def _draw_states(generator: np.random.Generator, examples: LabelledTokens, places: Any) -> LabelledTokens:
        """Problems with states, and as label the target of one token of each, whose places are given.

        The labels that the token sees are known in most cases and its own is not, for then there is something to compute.
        """
        is_chosen = np.arange(examples.labels.shape[1]) == places[:, None]
        known = generator.random(examples.labels.shape) < np.where(is_chosen, 0.1, 0.95)
        states = np.where(examples.labels == IGNORED, NO_STATE, np.where(known, examples.labels, NOT_KNOWN))
        tokens, known_states, labels = (torch.from_numpy(part).long() for part in (examples.tokens, states, examples.labels))
        targets = pass_targets(GRID, tokens, known_states, labels).numpy()
        # A label is never taken back: where none is right yet, none is known.
        states = np.where(is_chosen & (targets == NOT_KNOWN), NOT_KNOWN, states)
        chosen_labels = np.where(is_chosen, targets, IGNORED)
        return LabelledTokens(examples.tokens, chosen_labels.astype(np.int8), states.astype(np.int8))

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
        """Products of up to two digits with one, of two with 10b + 1, and of four that end in 9 or 00 with it."""
        short, tens = (count_up(0, 10**width, width)[:, 0] for width in (2, 3))
        long = np.concatenate([np.insert(tens, 0, 9, axis=1), np.insert(tens[::10], 0, 0, axis=1)])
        batches = []
        for numbers, rows in ((short, 1), (short, 2), (long, 2)):
            digits = np.zeros((10, len(numbers), 2, numbers.shape[1]), dtype=np.uint8)
            digits[:, :, 0], digits[:, :, 1, rows - 1] = numbers, np.arange(10)[:, None]
            if rows == 2:
                digits[:, :, 1, 0] = 1
            batches.append((digits.reshape(-1, 2, numbers.shape[1]), (numbers.shape[1], rows)))
        return CoveringStates(
            count=sum(len(digits) for digits, _ in batches),
            batches=batches,
            ideal=(
                "In an ideal pass both labels of a cell become right if the sum digit up and to the left and the carry on "
                "the right are known, or are not there; else they are not known. A known label is right and stays, since "
                "those two stay. Of the cells with an unknown label, let one have the smallest column + 2 row, counted from "
                "the ones. Both of the others have a smaller one, so they are known, and the cell's labels become known."
            ),
            argument=(
                "A cell has the heads a and b. It sees the sum digit s up and to the left, and the carry c on the right. "
                "The carry is b at most, and less in the first row unless b is 0: 9b + 9 + b = 10b + 9, and 9b + b - 1 = "
                "10b - 1. All cases with these occur in the products that are checked. In the first row there is no s, and "
                "products of two digits with b have every a and every c. In other rows, take b above a 1: the first row's "
                "sum digits are the digits of the first number, so s is the digit on the left of a. There is none if a is "
                "the 0 above the top digit. On the right of a is no digit, or two digits: 00, 09, 19 and so on up to 99. "
                "From one to the next, what is added there grows by 10 at most, and c is this without its last digit. So c "
                "takes all values from 0 to b. The labels of the cell, s and c are known or not, in all ways, except that a "
                "known label is never taken back."
            ),
        )
