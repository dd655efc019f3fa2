"""Forms of queries: the columns of a query's markers, and an error for a prompt of another form.

Every function takes tokens (batch, at least query length), padded on the left or not at all, and ignores what follows `=`.
"""

# Used by: modeling. Bound by: the digest of the code that travels with a checkpoint: run .ci/code.

import torch
from torch import Tensor, nn

from .values import reads_values
from .vocabulary import ALL_TOKENS, BOS, EMPTY_CELL, EQUALS, GREATER, MINE, PAD, PLUS, UNKNOWN, decode


def first_column(mask: Tensor) -> Tensor:
    """Return the column of each row's first True, (batch, 1); 0 if it has none."""
    return mask.to(torch.uint8).argmax(dim=-1, keepdim=True)


def unplanned(input_ids: Tensor, position_ids: Tensor) -> Tensor:
    """Return the columns (batch, columns) behind a query in which its rule derives no id: those behind the longest response.

    Without an id they would all see each other under a window, so nothing sees them: in `forward` and in `generate`.

    Args:
        input_ids: (batch, tokens); what follows them is behind the query.
        position_ids: derived, (batch or 1, levels, at least tokens).
    """
    equals = (input_ids == EQUALS).int()
    behind = nn.functional.pad((equals.cumsum(1) > equals), (0, position_ids.shape[-1] - equals.shape[1]), value=True)
    return behind & (position_ids == 0).all(1)


def one_layout(layout: Tensor) -> Tensor:
    """Return one row of (batch, values) if all rows are known to be equal, else all rows."""
    return layout[:1] if reads_values(layout) and (layout == layout[:1]).all() else layout


def check_rows(legal: Tensor, input_ids: Tensor, form: str, tokens: tuple[str, ...] = ALL_TOKENS) -> None:
    """Raise ValueError that shows the first row that is not legal, and the form that it should have.

    Args:
        legal: (batch,).
        tokens: the vocabulary.
    """
    if not torch.compiler.is_compiling() and not legal.all():
        row = input_ids[int((~legal).int().argmax())]
        reason = f"is not of the form {form}"
        if (row == UNKNOWN).any():
            reason = f"holds a character outside the vocabulary: the form is {form}"
        raise ValueError(f"the prompt {decode(row.tolist(), tokens)!r} {reason}")


def check_form(
    input_ids: Tensor,
    begin: Tensor,
    equals: Tensor,
    legal: Tensor,
    complete: Tensor,
    form: str,
    tokens: tuple[str, ...] = ALL_TOKENS,
) -> None:
    """Raise ValueError unless every row is padding, `$`, legal tokens and `=`, and complete.

    Args:
        begin: (batch, 1) column of `$`.
        equals: (batch, 1) column of the first `=`.
        legal: (batch, tokens) whether a token may stand in its column, for the columns after `$` up to `=`.
        complete: (batch, 1) whether no part of the query is empty.
        form: the form, for the message.
        tokens: the vocabulary.
    """
    column = torch.arange(input_ids.shape[1], device=input_ids.device)
    before, query = column < begin, (column > begin) & (column <= equals)
    legal = torch.where(before, input_ids == PAD, legal | ~query)
    has_ends = (input_ids.gather(1, begin) == BOS) & (begin < equals)
    check_rows((has_ends & complete).squeeze(1) & legal.all(1), input_ids, form, tokens)


def two_number_markers(input_ids: Tensor, sign: int) -> Tensor:
    """Return the columns of `$`, of the sign and of `=`, (batch or 1, 3), for queries `$A+B=` with this sign.

    Raises:
        ValueError: a row has another form.
    """
    column = torch.arange(input_ids.shape[1], device=input_ids.device)
    begin, middle, equals = (first_column(input_ids == marker) for marker in (BOS, sign, EQUALS))
    legal = (input_ids < 10) | (column == middle) | (column == equals)
    complete = (begin + 1 < middle) & (middle + 1 < equals)
    check_form(input_ids, begin, equals, legal, complete, f"'$A{ALL_TOKENS[sign]}B=', two numbers in decimal digits")
    return one_layout(torch.cat([begin, middle, equals], dim=1))


def row_markers(
    input_ids: Tensor,
    form: str,
    is_cell: Tensor,
    separator: int | None = None,
    rows: tuple[int, int | None] = (1, 1),
    tokens: tuple[str, ...] = ALL_TOKENS,
) -> Tensor:
    """Return the columns of `$`, of the token after the first row and of `=`, (batch or 1, 3), for rows of one width.

    Args:
        form: the form, for the message.
        is_cell: (batch, tokens) which tokens may stand in a row.
        separator: token between two rows.
        rows: least and largest number of rows; None for any.
        tokens: the vocabulary.

    Raises:
        ValueError: a row of `input_ids` is not of this form.
    """
    column = torch.arange(input_ids.shape[1], device=input_ids.device)
    is_separator = torch.zeros_like(is_cell) if separator is None else input_ids == separator
    is_equals = input_ids == EQUALS
    begin, first_end, equals = map(first_column, (input_ids == BOS, is_equals | is_separator, is_equals))
    width = (first_end - begin - 1).clamp(min=0)
    at_end = (column - begin - 1) % (width + 1) == width
    legal = torch.where(at_end, is_separator | (column == equals), is_cell)
    count, (least, most) = (equals - begin) // (width + 1), rows
    complete = (width > 0) & (count >= least) & (count <= (most or count))
    check_form(input_ids, begin, equals, legal, complete, form, tokens)
    return one_layout(torch.cat([begin, first_end, equals], dim=1))


def padded_operand_markers(input_ids: Tensor) -> Tensor:
    """Return the columns of `$`, of the first `+` and of `=`, (batch or 1, 3), for queries `$A+B+...=`."""
    form = "'$A+B+...=', two or more numbers in decimal digits, zero-padded to one width"
    return row_markers(input_ids, form, input_ids < 10, PLUS, (2, None))


def string_markers(input_ids: Tensor) -> Tensor:
    """Return the columns of `$` and of `=`, (batch or 1, 2), for queries `$A=`."""
    return row_markers(input_ids, "'$A=', a string of decimal digits", input_ids < 10)[:, ::2]


def board_markers(input_ids: Tensor) -> Tensor:
    """Return the columns of `$`, of the first `>` (of `=` if there is none) and of `=`, (batch or 1, 3), for a board."""
    form = "'$M__>__M=', a board of rows of one width, `M` for a mine and `_` for any other cell"
    return row_markers(input_ids, form, (input_ids == MINE) | (input_ids == EMPTY_CELL), GREATER, (1, None))


def flat_board_markers(input_ids: Tensor) -> Tensor:
    """Return the columns of `$` and of `=`, (batch or 1, 2), for a board whose rows stand one after the other."""
    form = "'$M__M=', the rows of a board one after the other, `M` for a mine and `_` for any other cell"
    return row_markers(input_ids, form, (input_ids == MINE) | (input_ids == EMPTY_CELL))[:, ::2]


def text_markers(input_ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the columns of the first token and of the first `=` (the last token if there is none), (batch, 1) each.

    Any text of known characters is a query of this form.

    Raises:
        ValueError: a query holds an unknown character.
    """
    is_equals = input_ids == EQUALS
    check_rows(((is_equals.cumsum(1) > 0) | (input_ids != UNKNOWN)).all(1), input_ids, "a text of known characters")
    equals = torch.where(is_equals.any(1, keepdim=True), first_column(is_equals), input_ids.shape[1] - 1)
    return first_column(input_ids != PAD), equals
