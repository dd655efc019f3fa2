"""Where the tokens of a problem stand on the page: numbers below each other, in the columns that their ids name."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from longhand.modeling.coupling import any_text_rules

SIGNS = frozenset("+-*/=>")


@dataclass(frozen=True)
class Layout:
    """Rows and columns, counted from 0.

    Attributes:
        places: (row, column) of each token.
        level: the level of ids that the columns follow; None if the ids name no columns.
        blocks: the first row of every block; there is a line above each.
    """

    places: list[tuple[int, int]]
    level: int | None
    blocks: list[int]


def lay_out(
    tokens: Sequence[str], ids: Sequence[Sequence[int]], query_length: int, coupling: str, ones_first: bool
) -> Layout:
    """Lay out a query and its response as on paper.

    A sign begins a row and stands in a margin, and `=` begins a block. A digit stands in the column of its id at the level
    that tells the digits of a number apart, the smallest id leftmost. Numbers without such ids, such as the factors of a
    product, end at the last column.

    Args:
        tokens: with the `$` at the beginning; the last one, after the response, is the end token.
        ids: (levels, tokens).
        coupling: name of the rule that made the ids.
        ones_first: whether a response whose ids name no columns is written with the ones digit first.
    """
    rows = _split_rows(tokens, query_length)
    level = None if coupling in any_text_rules() or _is_board(tokens, query_length) else _column_level(ids, rows)
    digits = [[place for place in row if tokens[place] not in SIGNS] for row in rows]
    own = ids[level] if level is not None else [0] * len(tokens)
    last = max((own[place] for row in digits for place in row), default=0)
    columns: dict[int, int] = {}
    for row in digits:
        placed = [own[place] for place in row]
        if not all(placed) or len(set(placed)) < len(placed):
            back = ones_first and bool(row) and row[0] >= query_length and level is None
            placed = list(range(last, last - len(row), -1) if back else range(last - len(row) + 1, last + 1))
        columns |= zip(row, placed, strict=True)
    end = len(tokens) - 1
    # The end token goes on in the direction in which the last number is written.
    columns[end] = _after([columns[place] for place in digits[-1]], last)
    margin = min(columns.values()) - 1
    row_of = {place: number for number, row in enumerate(rows) for place in row} | {0: 0, end: len(rows) - 1}
    places = [(row_of[place], columns.get(place, margin) - margin) for place in range(len(tokens))]
    return Layout(places, level, [number for number, row in enumerate(rows) if tokens[row[0]] == "="])


def _split_rows(tokens: Sequence[str], query_length: int) -> list[list[int]]:
    """The places of every row, without the first and the last token."""
    rows: list[list[int]] = [[]]
    # The solution of a board is written without signs: its rows are as wide as those of the board.
    width = tokens.index(">") - 1 if _is_board(tokens, query_length) else len(tokens)
    for place in range(1, len(tokens) - 1):
        cells = [cell for cell in rows[-1] if tokens[cell] not in SIGNS]
        if rows[-1] and (tokens[place] in SIGNS or len(cells) == width):
            rows.append([])
        rows[-1].append(place)
    return rows


def _is_board(tokens: Sequence[str], query_length: int) -> bool:
    return ">" in tokens[:query_length]


def _column_level(ids: Sequence[Sequence[int]], rows: Sequence[Sequence[int]]) -> int | None:
    """The level at which the most neighbours in a row have ids that follow each other; the first of several."""

    def steps(level: Sequence[int]) -> int:
        pairs = (pair for row in rows for pair in pairwise(row))
        return sum(abs(level[left] - level[right]) == 1 for left, right in pairs if level[left] and level[right])

    best = max(range(len(ids)), key=lambda level: steps(ids[level]), default=None)
    return best if best is not None and steps(ids[best]) else None


def _after(columns: Sequence[int], last: int) -> int:
    """The column after these, which a number fills in the order in which it is written."""
    if not columns:
        return last
    return columns[-1] + (columns[-1] - columns[-2] if len(columns) > 1 else -1)
