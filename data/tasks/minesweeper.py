"""Minesweeper generator: `$M__>__M=M2112M$` (paper 1, Sec. 6.2)."""

# Used by: whoever runs or imports it. Changed freely.

import re
from dataclasses import dataclass, field, replace
from itertools import product
from string import whitespace
from typing import ClassVar

import numpy as np

from longhand.data.formatting import lay_out
from longhand.data.lengths import AnyNumberOfOperands
from longhand.data.machines.covering import CoveringNeighbourhoods, NeighbourhoodBatch, seen_in_problems
from longhand.data.machines.sights import number_rows
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.reader import AS_WRITTEN
from longhand.data.tasks.registry import register_task
from longhand.modeling.coupling_rules import flat_board_ids
from longhand.modeling.inputs import PromptFormat
from longhand.modeling.vocabulary import BOS, EMPTY_CELL, EQUALS, GREATER, MINE


def count_mines(boards: np.ndarray) -> np.ndarray:
    """Mines in the 3 x 3 cells around each cell, itself included; (count, height, width) uint8."""
    _, height, width = boards.shape
    padded = np.pad(boards, ((0, 0), (1, 1), (1, 1)))
    rows = padded[:, :height] + padded[:, 1:-1] + padded[:, 2:]
    return rows[:, :, :width] + rows[:, :, 1:-1] + rows[:, :, 2:]


def _draw_mines(generator: np.random.Generator, mines: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Draw mines in the free places of each row, all choices equally likely; (count, places) bool.

    Args:
        mines: (count,), how many mines to draw.
        free: (count, places) bool, where a mine may lie.
    """
    keys = np.where(free, generator.random(free.shape), 3.0)
    largest = np.take_along_axis(np.sort(keys, axis=1), np.maximum(mines - 1, 0)[:, None], axis=1)
    return (keys <= largest) & (mines > 0)[:, None] & free


@register_task
@dataclass(frozen=True)
class Minesweeper(AnyNumberOfOperands, DecoderTask):
    """Boards of cells, some of them mines. The solution gives for every other cell the mines among its eight neighbours.

    A board is written row by row, `M` for a mine, `_` for another cell and `>` between two rows. The solution is written row
    by row without `>`. A board's "operands" are its rows, from the top. Its "digits" are the cells from the left, 1 for a
    mine. So every length of a board is its width, and it has one length for each row.

    By default a token of the solution has the ids of the next cell: it sees in a window what decides that cell, also where
    the next cell begins a row. With paper 1's own ids (the coupling rule `minesweeper`) it has the ids of its own cell, and
    no window holds the cells around the next one at the end of a row.

    Without `separators` the text and the ids are those of paper 1, Fig. 9: `$M__M=M22M$`, a cell has its own row and
    column. Such a text does not say how wide a board is. So the ids come with the drawn problems, in batches and in rows of
    a dataset, and with a question that tells its rows apart. A model derives the ids of square boards, which are all that
    the paper tests.

    Width and height are uniform and independent. The number of mines is uniform among the whole numbers from
    `min_mine_ratio` to `max_mine_ratio` times the number of cells (if there is none, it is the next number below). All
    places of the mines are equally likely. A group holds the boards of one width and height.
    """

    name: ClassVar[str] = "minesweeper"
    example_question: ClassVar[str] = "M__>__M"
    size_names: ClassVar[tuple[str, str]] = ("width of the board", "height of the board")
    sized_problems: ClassVar[tuple[str, str]] = ("boards with a width and a height of", "cell")
    partitioned_digits: ClassVar[int | None] = None
    every_problem: ClassVar[str] = "boards of every width and height, with any number of mines anywhere"
    # All cells in one line: a response does not say how wide the board is.
    reader = AS_WRITTEN

    min_mine_ratio: float = field(default=0.1, metadata={"help": "fewest mines of a drawn board, as a share of its cells"})
    max_mine_ratio: float = field(default=0.25, metadata={"help": "most mines of a drawn board, as a share of its cells"})

    separators: bool = field(
        default=True,
        metadata={"help": "write `>` between the rows of a board; else nothing says how wide it is, as in paper 1"},
    )

    @property
    def couplings(self) -> tuple[str, ...]:
        return ("minesweeper_next_cell", "minesweeper") if self.separators else ("minesweeper_flat",)

    @property
    def coupling(self) -> str:
        return self.couplings[0]

    @property
    def prompt_format(self):
        if self.separators:
            return PromptFormat("[M_]+(?:>[M_]+)*=", "M__>__M=", response="[M0-8]*", equal_widths=True)
        return PromptFormat("[M_]+=", "M__M=", response="[M0-8]*")

    def __post_init__(self):
        super().__post_init__()
        for name in ("min_mine_ratio", "max_mine_ratio"):
            ratio = getattr(self, name)
            if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 <= ratio <= 1:
                raise ValueError(f"{name} must be a number from 0 to 1, got {ratio!r}")
        if self.min_mine_ratio > self.max_mine_ratio:
            raise ValueError(
                f"min_mine_ratio must not be above max_mine_ratio, got {self.min_mine_ratio} and {self.max_mine_ratio}"
            )

    def sample_lengths(self, generator, count, min_length, max_length):
        width, height = generator.integers(min_length, max_length + 1, size=(2, count, 1))
        return np.where(np.arange(max_length) < height, width, 0)

    @classmethod
    def equal_size_name(cls):
        return "width and height of the board"

    def draw_operands(self, generator, lengths):
        cells = lengths.sum(axis=1)
        fewest, most = self._mine_range(cells)
        in_row = np.arange(cells.max()) < cells[:, None]
        boards = np.zeros((*lengths.shape, lengths.max()), dtype=np.uint8)
        mines = _draw_mines(generator, generator.integers(fewest, most + 1), in_row)
        boards[np.arange(boards.shape[2]) < lengths[:, :, None]] = mines[in_row]
        return boards

    def _mine_range(self, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Fewest and most mines of boards with these numbers of cells (count,)."""
        # Round first: 0.1 * 70 is above 7.
        fewest = np.ceil(np.round(self.min_mine_ratio * cells, 6)).astype(np.int64)
        most = np.floor(np.round(self.max_mine_ratio * cells, 6)).astype(np.int64)
        return np.minimum(fewest, most), most

    def problem_keys(self, digits, lengths):
        """A hash decides for boards of every size: there are not many boards with few mines, even if they are large."""
        cells = lengths.sum(axis=1)
        longest = int(cells.max(initial=0))
        in_row = np.zeros((len(digits), 1, longest), dtype=np.uint8)
        in_row[np.arange(longest) < cells[:, None, None]] = digits[np.arange(digits.shape[2]) < lengths[:, :, None]]
        return super().problem_keys(in_row, cells[:, None])

    def format(self, digits, lengths):
        width, height = self.one_size(lengths)
        boards = digits[:, :height, :width]
        cells = np.where(boards, np.uint8(MINE), np.uint8(EMPTY_CELL))
        answer = np.where(boards, np.uint8(MINE), count_mines(boards)).reshape(len(boards), -1)
        if self.separators:
            # After the last row stands `=`, where `>` stands after the others.
            query = np.pad(cells, ((0, 0), (0, 0), (0, 1)), constant_values=GREATER).reshape(len(boards), -1)[:, :-1]
        else:
            query = cells.reshape(len(boards), -1)
        examples = lay_out([BOS, query, EQUALS, answer, self.end_token], query_parts=3)
        if self.separators:
            return examples
        ids = flat_board_ids(width, height, examples.tokens.shape[1]).numpy()
        return replace(examples, position_ids=np.broadcast_to(ids, (len(boards), *ids.shape[1:])))

    def covering(self, window, layers):
        """All neighbourhoods on boards of up to 4 x 4 cells.

        Cells that matter if `x` comes next: its own 3 x 3, which are seen (`s`), and the cells that decided the token
        itself, the solution of the cell before (`t`; `b` is both). On the right `x` begins a row:

            . . . . . . .        . . . . . t t
            . t b b s . .        s s . . . t t
            . t b x s . .        x s . . . t t
            . t b b s . .        s s . . . . .
        """
        self.check_window(window, layers)
        parts = []
        for height, width in product(range(1, 5), repeat=2):
            boards = np.arange(2 ** (height * width))[:, None] >> np.arange(height * width) & 1
            digits = boards.astype(np.uint8).reshape(-1, height, width)
            parts += seen_in_problems(self, digits, np.full(digits.shape[:2], width))
        tokens, keys, right = map(np.concatenate, zip(*parts, strict=True))
        _, first = np.unique(number_rows(np.column_stack([tokens, keys])), return_index=True)
        batch = NeighbourhoodBatch(tokens[first], keys[first], np.arange(len(window)), right[first])
        return CoveringNeighbourhoods(
            parts=[batch],
            argument=(
                "All boards of at most 4 x 4 cells were written, and what their tokens see was listed. Larger boards have "
                "no other neighbourhoods (PROOF.md, lists that no transducer makes)."
            ),
        )

    @property
    def prompts_tell_sizes(self):
        return self.separators

    def prompt(self, question):
        """Rows may be separated by `>`, spaces or line breaks."""
        return (">" if self.separators else "").join(self.board_rows(question)) + "="

    def question_ids(self, question):
        """The ids of a board without separators whose rows the question tells apart, since its prompt does not."""
        rows = self.board_rows(question)
        if self.separators or len(rows) == 1:
            return None
        width, height = len(rows[0]), len(rows)
        # `$`, the board, `=`, the solution and the end token.
        return flat_board_ids(width, height, 2 * width * height + 3)

    def board_rows(self, question: str) -> list[str]:
        """Return the rows of a question's board.

        Raises:
            ValueError: the question is no board.
        """
        question_text = re.sub(r"\s*=\s*$", "", question.strip(whitespace), flags=re.ASCII)
        rows = re.split(r"\s*>\s*|\s+", question_text, flags=re.ASCII)
        if not all(re.fullmatch("[M_]+", row) and len(row) == len(rows[0]) for row in rows):
            raise ValueError(
                f"the question {question!r} is not a board such as {self.example_question!r}, "
                "`M` for a mine, `_` for any other cell, `>` between two rows of one width"
            )
        return rows
