"""Minesweeper generator: `$M__>__M=M2112M$` (paper 1, Sec. 6.2)."""

import re
from dataclasses import dataclass, field
from itertools import product
from typing import ClassVar

import numpy as np

from longhand.data.formatting import lay_out
from longhand.data.splits import AnyNumberOfOperands
from longhand.data.tasks.covering import CoveringNeighbourhoods, NeighbourhoodBatch
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.reader import AS_WRITTEN
from longhand.data.tasks.registry import register_task
from longhand.data.tasks.search import number_rows
from longhand.modeling.inputs import PromptFormat
from longhand.modeling.vocabulary import BOS, EMPTY_CELL, EQUALS, GREATER, MINE, PAD


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

    A board is written row by row, `M` for a mine, `_` for another cell and `>` between two rows. The paper's text has no
    `>`, but then nothing tells how wide a board is. The solution is written row by row without `>`. A board's "operands"
    are its rows, from the top. Its "digits" are the cells from the left, 1 for a mine. So every length of a board is its
    width, and it has one length for each row.

    Width and height are uniform and independent. The number of mines is uniform among the whole numbers from
    `min_mine_ratio` to `max_mine_ratio` times the number of cells (if there is none, it is the next number below). All
    places of the mines are equally likely. A group holds the boards of one width and height.
    """

    name: ClassVar[str] = "minesweeper"
    coupling: ClassVar[str] = "minesweeper_next_cell"
    couplings: ClassVar[tuple[str, ...]] = ("minesweeper_next_cell", "minesweeper")
    example_question: ClassVar[str] = "M__>__M"
    size_names: ClassVar[tuple[str, str]] = ("width of the board", "height of the board")
    sized_problems: ClassVar[tuple[str, str]] = ("boards with a width and a height of", "cell")
    partitioned_digits: ClassVar[int | None] = None
    every_problem: ClassVar[str] = "boards of every width and height, with any number of mines anywhere"
    # All cells in one line: a response does not say how wide the board is.
    reader = AS_WRITTEN

    prompt_format = PromptFormat("[M_]+(?:>[M_]+)*=", "M__>__M=", response="[M0-8]*", equal_widths=True)

    min_mine_ratio: float = field(default=0.1, metadata={"help": "fewest mines of a drawn board, as a share of its cells"})
    max_mine_ratio: float = field(default=0.25, metadata={"help": "most mines of a drawn board, as a share of its cells"})

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
        query = np.full((len(boards), height, width + 1), GREATER, dtype=np.uint8)
        query[:, :, :width] = np.where(boards, np.uint8(MINE), np.uint8(EMPTY_CELL))
        query[:, -1, width] = EQUALS
        answer = np.where(boards, np.uint8(MINE), count_mines(boards))
        parts = [BOS, query.reshape(len(boards), -1), answer.reshape(len(boards), -1), self.end_token]
        return lay_out(parts, query_parts=2)

    def covering(self, window, layers):
        """All neighbourhoods on boards of up to 4 x 4 cells; of 4 x 4 only those without mines in four of the cells.

        Cells that matter if `x` comes next: its own 3 x 3, which are seen (`s`), and the cells that decided the token
        itself, the solution of the cell before (`t`; `b` is both). On the right `x` begins a row:

            . . . . . . .        . . . . . t t
            . t b b s . .        s s . . . t t
            . t b x s . .        x s . . . t t
            . t b b s . .        s s . . . . .
        """
        self.check_window(window, layers)
        rows = np.concatenate([self._seen_on_boards(*size) for size in product(range(1, 5), repeat=2)])
        tokens, right, *keys = rows[np.unique(number_rows(rows), return_index=True)[1]].T
        return CoveringNeighbourhoods(
            count=len(tokens),
            batches=[NeighbourhoodBatch(tokens, np.stack(keys, axis=1), np.arange(9)[::-1], right)],
            argument=(
                "Let x be the cell that comes next after a token of the response, or after `=`; after the last cell, x is "
                "the place below the first cell of the last row. The token sees `$` at the beginning, which itself sees "
                "nothing else, and the cells of the board among the 3 x 3 around x; `>` and the response are not seen. "
                "What is right next follows from that: the end token if there is no cell at x, `M` if x is a mine, else "
                "the number of mines seen. The token itself is `=`, or the solution of the cell before x, which follows "
                "from the 3 x 3 around that cell. (1) After `=`, x is the first cell: keep the first two rows and "
                "columns. (2) If x is in row r and column c, not the first column, keep the rows r-1 to r+1 and the "
                "columns c-2 to c+1. (3) If x is in the first column of row r, not the first row, the cell before it is "
                "the last of row r-1: keep the rows r-2 to r+1, the first two columns and the last two. Keep of these "
                "what the board has, and remove all other rows and columns. Around x and around the cell before it the "
                "same cells exist as before, with the same mines, and x still comes right after that cell. So the result "
                "is a board of at most 4 x 4 cells with the same token, the same neighbourhood and the same right next "
                "token. If it has 4 x 4 cells, this is case (3) and x begins its third row. Then the first two cells of "
                "the first row and the last two of the last row are neither around x nor around the cell before it, and a "
                "mine there may be removed. All neighbourhoods on boards that can result are checked."
            ),
        )

    def _seen_on_boards(self, height: int, width: int) -> np.ndarray:
        """What the tokens of responses see on boards of one size: the token, the next one, the cells around it."""
        # 4 x 4 cells occur in the right drawing only.
        free = np.arange(2, 14) if height == width == 4 else np.arange(height * width)
        boards = np.zeros((2 ** len(free), height * width), dtype=np.uint8)
        boards[:, free] = np.arange(len(boards))[:, None] >> np.arange(len(free)) & 1
        boards = boards.reshape(-1, height, width)
        answers = np.where(boards, MINE, count_mines(boards)).reshape(len(boards), -1)
        text = np.pad(answers, ((0, 0), (1, 1)), constant_values=((0, 0), (EQUALS, self.end_token)))
        cells = np.pad(np.where(boards, MINE, EMPTY_CELL), ((0, 0), (1, 2), (1, 1)), constant_values=PAD)
        seen = []
        for place in range(height * width + 1):
            row, column = divmod(place, width)
            around = cells[:, row : row + 3, column : column + 3].reshape(len(boards), -1)
            seen.append(np.column_stack([text[:, place : place + 2], around]))
        return np.concatenate(seen)

    def prompt(self, question):
        """Rows may be separated by `>`, spaces or line breaks."""
        question_text = re.sub(r"\s*=\s*$", "", question.strip(), flags=re.ASCII)
        rows = re.split(r"\s*>\s*|\s+", question_text, flags=re.ASCII)
        if not all(re.fullmatch("[M_]+", row) and len(row) == len(rows[0]) for row in rows):
            raise ValueError(
                f"the question {question!r} is not a board such as {self.example_question!r}, "
                "`M` for a mine, `_` for any other cell, `>` between two rows of one width"
            )
        return ">".join(rows) + "="
