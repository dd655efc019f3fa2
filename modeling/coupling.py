"""Coupling rules: what the query's tokens mean, turned into the position ids of query and response.

A rule reads token ids up to and including the first `=` and gives a `Plan`: ids for any number of columns, so the ids of
a response are known before its first token is. Tokens that matter to each other share an id; 0 marks special tokens and
padding. Ids are as small as the rule allows; `shift_position_ids` moves them to a random start (training).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

from .pair_maps import NEITHER, ONLY_KEY, ONLY_QUERY, Relation
from .vocabulary import BOS, CHARACTERS, EMPTY_CELL, EQUALS, GREATER, MINE, MINUS, PAD, PLUS, TIMES, TOKENS, UNKNOWN, decode


class Plan(NamedTuple):
    """Position ids of whole sequences, derived from their queries.

    Attributes:
        position_ids: (batch or 1, levels, columns) int64; 0 is special, padding, or no id at this level. One row stands
            for the batch where every row has the same layout.
        response_length: tokens that the longest response of the batch can have, the end token included.
        largest_ids: (batch or 1, levels) the largest id of each row's query and planned response, for a rule whose ids go on
            after it; None where they end with it.
    """

    position_ids: torch.LongTensor
    response_length: int
    largest_ids: torch.LongTensor | None = None


@dataclass(frozen=True)
class CouplingRule:
    """A rule's name, the function that plans ids, and its limits.

    Attributes:
        plan: `(input_ids, columns) -> Plan`.
        levels: ids that every token has.
        capacity: a phrase for the longest query whose ids fit into 1..n.
        relations: the relations that a token needs to see to know what is next, for a window (see `pair_maps`); empty where
            the rule names none.
    """

    name: str
    plan: Callable[[torch.LongTensor, int], Plan]
    levels: int
    capacity: Callable[[int], str]
    relations: tuple[Relation, ...] = ()


def _first_column(mask: torch.BoolTensor) -> torch.LongTensor:
    """Column of each row's first True, (batch, 1)."""
    return mask.to(torch.uint8).argmax(dim=-1, keepdim=True)


def _check(ok: torch.BoolTensor, input_ids: torch.LongTensor, expected: str) -> None:
    """Raises ValueError that shows the first row which is not ok."""
    if not ok.all():
        row = input_ids[int((~ok).int().argmax())]
        reason = f"is not of the form {expected}"
        if (row == UNKNOWN).any():
            reason = f"holds a character outside the vocabulary, which is {CHARACTERS!r}"
        raise ValueError(f"the prompt {decode(row.tolist())!r} {reason}")


def _two_number_markers(input_ids: torch.LongTensor, sign: int) -> torch.LongTensor:
    """Columns of `$`, of the sign and of `=`, (batch, 3), of rows that must be of the form `$A+B=` with this sign."""
    column = torch.arange(input_ids.shape[1], device=input_ids.device)
    is_sign, is_equals = input_ids == sign, input_ids == EQUALS
    begin, middle, equals = (_first_column(mask) for mask in (input_ids == BOS, is_sign, is_equals))
    is_digit = input_ids < 10
    expected_digit = (column > begin) & (column < equals) & (column != middle)
    _check(
        is_sign.any(1) & is_equals.any(1) & (begin + 1 < middle).squeeze(1) & (middle + 1 < equals).squeeze(1)
        & torch.where(column < begin, input_ids == PAD, True).all(1)
        & torch.where(expected_digit, is_digit, True).all(1)
        & (input_ids.gather(1, begin) == BOS).squeeze(1),
        input_ids,
        f"'$A{TOKENS[sign]}B=', two numbers in decimal digits",
    )  # fmt: skip
    return torch.cat([begin, middle, equals], dim=1)


def _once(layout: torch.LongTensor) -> torch.LongTensor:
    """One row of (batch, markers) where all are the same."""
    return layout[:1] if (layout == layout[:1]).all() else layout


def _padded_operand_markers(input_ids: torch.LongTensor) -> torch.LongTensor:
    """Columns of `$`, of the first `+` and of `=`, (batch, 3), of rows that must be of the form `$A+B+...=`."""
    column = torch.arange(input_ids.shape[1], device=input_ids.device)
    is_plus, is_equals = input_ids == PLUS, input_ids == EQUALS
    begin, plus, equals = (_first_column(mask) for mask in (input_ids == BOS, is_plus, is_equals))
    width = (plus - begin - 1).clamp(min=0)
    offset = (column - begin - 1) % (width + 1)
    in_query = (column > begin) & (column <= equals)
    expected = torch.where(offset == width, is_plus | (column == equals), input_ids < 10)
    _check(
        is_plus.any(1) & is_equals.any(1) & (width > 0).squeeze(1)
        & torch.where(column < begin, input_ids == PAD, True).all(1)
        & torch.where(in_query, expected, True).all(1)
        & (input_ids.gather(1, begin) == BOS).squeeze(1),
        input_ids,
        "'$A+B+...=', two or more numbers in decimal digits, zero-padded to one width",
    )  # fmt: skip
    return torch.cat([begin, plus, equals], dim=1)


def _two_numbers(
    input_ids: torch.LongTensor, columns: int, sign: int, operands_reversed: bool, response_reversed: bool
) -> Plan:
    """Ids by significance: digit k (ones are 0) has the id `last - k`, where `last` is the id of the ones and the response
    of R digits has the ids `last - R + 1` to `last`. A marker sits one id above `last`; it is never coupled to the
    response's top digit. Operands of A and B digits have a sum of R = max(A, B) + 1 and a product of R = A + B.
    """
    begin, middle, equals = _once(_two_number_markers(input_ids, sign)).split(1, dim=1)
    first_length, second_length = middle - begin - 1, equals - middle - 1
    digits = torch.maximum(first_length, second_length) + 1 if sign == PLUS else first_length + second_length
    response_length = int(digits.max()) + 1

    column = torch.arange(columns, device=input_ids.device)
    in_response = (column > equals) & (column <= equals + digits)
    if operands_reversed:
        first, second = column - begin - 1, column - middle - 1
    else:
        first, second = middle - 1 - column, equals - 1 - column
    response = column - equals - 1 if response_reversed else equals + digits - column
    before_response = -1 if response_reversed else digits
    significance = torch.where(column < middle, first, torch.where(column < equals, second, response))
    significance = torch.where(column == middle, -1, torch.where(column == equals, before_response, significance))
    last = digits if response_reversed else digits + 1
    ids = torch.where((column > begin) & ((column <= equals) | in_response), last - significance, 0)
    return Plan(ids.unsqueeze(1), response_length)


def addition(input_ids: torch.LongTensor, columns: int) -> Plan:
    """Digits of the same significance share an id, the most significant the smallest (paper 1, Sec. 3.1).

    The response is reversed. Both `+` and `=` follow the ones digit. With start 5 instead of 1:

        $ 6 5 3 + 0 4 9 = 2 0 7 0 $
        0 6 7 8 9 6 7 8 9 8 7 6 5 0

    Operands need no padding: a shorter one keeps its significance. A response of L + 1 digits is planned for, where L is
    the length of the longer operand; one without a carry out ends a token early.

    Args:
        input_ids: (batch, at least query length) tokens; padded on the left or not at all; anything after `=` is ignored.
        columns: columns to plan for, from the first of `input_ids`.

    Returns:
        A `Plan` of one level. Ids 1 to L + 2 are used.

    Raises:
        ValueError: a row is not of the form `$A+B=`.
    """
    return _two_numbers(input_ids, columns, PLUS, operands_reversed=False, response_reversed=True)


def addition_all_reversed(input_ids: torch.LongTensor, columns: int) -> Plan:
    """As `addition`, operands and response all written with the ones first. With start 5:

    $ 3 5 6 + 9 4 0 = 2 0 7 0 $
    0 8 7 6 9 8 7 6 9 8 7 6 5 0
    """
    return _two_numbers(input_ids, columns, PLUS, operands_reversed=True, response_reversed=True)


def addition_plain(input_ids: torch.LongTensor, columns: int) -> Plan:
    """As `addition`, nothing reversed: `=` takes the id just before the response's first digit. With start 4:

        $ 6 5 3 + 0 4 9 = 0 7 0 2 $
        0 6 7 8 9 6 7 8 4 5 6 7 8 0

    Ids 1 to L + 3 are used. A rule sees the query alone, so without zero-padding a response of L digits still gets the ids
    of L + 1 and each digit then sits one id above its significance.
    """
    return _two_numbers(input_ids, columns, PLUS, operands_reversed=False, response_reversed=False)


def subtraction(input_ids: torch.LongTensor, columns: int) -> Plan:
    """Two levels: significance as in `addition`, and which operand a digit belongs to, since order matters. With start 1:

        $ 6 5 3 - 0 4 9 = 4 0 6 $
        0 1 2 3 4 1 2 3 4 3 2 1 0
        0 1 1 1 1 2 2 2 3 3 3 3 0

    A response of L digits is planned for, where L is the length of the longer operand.

    Args:
        input_ids: as for `addition`.
        columns: as for `addition`.

    Returns:
        A `Plan` of two levels. Ids 1 to L + 1 and 1 to 3 are used.

    Raises:
        ValueError: a row is not of the form `$A-B=`.
    """
    begin, middle, equals = _once(_two_number_markers(input_ids, MINUS)).split(1, dim=1)
    digits = torch.maximum(middle - begin, equals - middle) - 1
    column = torch.arange(columns, device=input_ids.device)
    significance = torch.where(column <= middle, middle - 1 - column, equals - 1 - column)
    significance = torch.where(column > equals, column - equals - 1, significance)
    operand = torch.where(column <= middle, 1, torch.where(column < equals, 2, 3))
    planned = (column > begin) & (column <= equals + digits)
    ids = torch.stack(torch.broadcast_tensors(digits - significance, operand), dim=1)
    return Plan(torch.where(planned.unsqueeze(1), ids, 0), int(digits.max()) + 1)


def multi_operand_addition(input_ids: torch.LongTensor, columns: int) -> Plan:
    """Digits of the same significance of any number of operands share an id (paper 1, App. B).

    Every operand is zero-padded to the width W of the response, which is reversed. With start 5:

        $ 0 6 5 3 + 0 0 4 9 + 0 8 7 1 = 3 7 5 1 $
        0 5 6 7 8 9 5 6 7 8 9 5 6 7 8 9 8 7 6 5 0

    The number of operands and W are read off the text; ids 1 to W + 1 are used.

    Args:
        input_ids: (batch, at least query length) tokens; padded on the left or not at all; anything after `=` is ignored.
        columns: columns to plan for, from the first of `input_ids`.

    Returns:
        A `Plan` of one level.

    Raises:
        ValueError: a row is not of the form `$A+B+...=`, two operands or more of one width.
    """
    begin, plus, equals = _once(_padded_operand_markers(input_ids)).split(1, dim=1)
    width = plus - begin - 1
    column = torch.arange(columns, device=input_ids.device)
    query = (column - begin - 1) % (width + 1) + 1
    response = (width - (column - equals - 1)).clamp(min=0)
    ids = torch.where(column <= begin, 0, torch.where(column <= equals, query, response))
    return Plan(ids.unsqueeze(1), int(width.max()) + 1)


def addition_scratchpad(input_ids: torch.LongTensor, columns: int) -> Plan:
    """Two levels (the follow-up of paper 1): significance, row. The two summands of a running sum, which are the running sum
    before it and an operand, share both.

    n operands and, reversed, n + 1 running sums from 0 on, all zero-padded to one width W:

        $ 0 8 + 0 7 + 2 1 = 0 0 > 8 0 > 5 1 > 6 3 $
        0 2 3 1 2 3 1 2 3 1 3 2 4 3 2 4 3 2 4 3 2 0
        0 1 1 1 2 2 2 3 3 0 1 1 2 2 2 3 3 3 4 4 4 0

    In the follow-up an operand has the row of the running sum that adds it; here it has that of the other summand, so that
    one relation finds both. Signs stand in the column above the top, where a running sum ends: `+` in the row of the operand
    before it, so that the running sum that adds this operand finds out whether there is a further one; `=` in no row, so
    that every running sum finds it. `>` stands below the ones of the running sum that it begins.

    Args:
        input_ids: as for `multi_operand_addition`.
        columns: as for `multi_operand_addition`.

    Returns:
        A `Plan` of two levels. Ids 1 to W + 2 and 1 to n + 1 are used.

    Raises:
        ValueError: as `multi_operand_addition`.
    """
    begin, plus, equals = _once(_padded_operand_markers(input_ids)).split(1, dim=1)
    width = plus - begin - 1
    column = torch.arange(columns, device=input_ids.device)
    in_query = column <= equals
    # Numbers, each with the token after it.
    place = torch.where(in_query, column - begin, column - equals) - 1
    row, digit = place // (width + 1), place % (width + 1)
    by_column = torch.where(in_query, (digit + 1) % (width + 1) + 1, (width - digit - 1) % (width + 1) + 2)
    by_row = torch.where(column == equals, 0, row + 1 + ((digit == width) & ~in_query))

    response_length = equals - begin + width + 1
    in_text = (column > begin) & (column < equals + response_length)
    ids = torch.where(in_text.unsqueeze(1), torch.stack([by_column, by_row], dim=1), 0)
    return Plan(ids, int(response_length.max()))


def multiplication(input_ids: torch.LongTensor, columns: int) -> Plan:
    """Digits of the same significance share an id (paper 1, Sec. 6.1).

    Operands of A and B digits are not padded; the response is reversed and has A + B digits. With start 5:

        $ 6 5 3 * 4 9 = 7 9 9 1 3 $
        0 7 8 9 10 8 9 10 9 8 7 6 5 0

    Args:
        input_ids: as for `addition`.
        columns: as for `addition`.

    Returns:
        A `Plan` of one level. Ids 1 to A + B + 1 are used.

    Raises:
        ValueError: a row is not of the form `$A*B=`.
    """
    return _two_numbers(input_ids, columns, TIMES, operands_reversed=False, response_reversed=True)


def multiplication_by_digits(input_ids: torch.LongTensor, columns: int) -> Plan:
    """Two levels: significance in A and the response as in `multiplication`; B's digits, for the whole response alike.

    A window over `multiplication` cannot reach B from far columns. Here B's digits have no significance, so that every token
    of the response has the same relation to each of them. With start 1:

        $ 6 5 3 * 4 9 = 7 9 9 1 3 $
        0 3 4 5 0 0 0 6 5 4 3 2 1 0
        0 0 0 0 4 1 2 3 3 3 3 3 3 0

    Args:
        input_ids: as for `addition`.
        columns: as for `addition`.

    Returns:
        A `Plan` of two levels. For operands of A and B digits ids 1 to A + B + 1 and 1 to B + 2 are used.

    Raises:
        ValueError: a row is not of the form `$A*B=`.
    """
    plan = multiplication(input_ids, columns)
    middle, equals = _once(_two_number_markers(input_ids, TIMES))[:, 1:].split(1, dim=1)
    second = equals - middle - 1
    column = torch.arange(columns, device=input_ids.device)
    in_second = (column >= middle) & (column < equals)
    by_column = plan.position_ids[:, 0].masked_fill(in_second, 0)
    by_digit = torch.where(in_second, column - middle, torch.where((column >= equals) & (by_column > 0), second + 1, 0))
    by_digit = torch.where(column == middle, second + 2, by_digit)
    return Plan(torch.stack([by_column, by_digit], dim=1), plan.response_length)


def multiplication_scratchpad(input_ids: torch.LongTensor, columns: int) -> Plan:
    """Three levels (the follow-up of paper 1): significance in A, row, significance in the product.

    A and each partial product share level 1; the digit of B, its partial product and the running sum that adds it share
    level 2; partial products, each shifted to its place, and running sums share level 3. With start 1:

        $ 9 4 * 6 8 = 2 5 7 + 4 6 5 = 2 5 7 0 > 2 9 3 6 $
        0 2 3 0 0 0 4 3 2 1 4 3 2 1 0 0 0 0 0 0 0 0 0 0 0
        0 0 0 0 2 1 1 1 1 1 2 2 2 2 1 1 1 1 1 2 2 2 2 2 0
        0 0 0 1 0 0 0 5 4 3 0 4 3 2 6 5 4 3 2 6 5 4 3 2 0

    The markers are placed for windows: the sign one column above the product's top, where a running sum ends; a partial
    product's separator below its ones, in its row; a running sum's separator below its ones.

    Args:
        input_ids: as for `addition`.
        columns: as for `addition`.

    Returns:
        A `Plan` of three levels. For operands of A and B digits ids 1 to A + 2, 1 to B and 1 to A + B + 2 are used.

    Raises:
        ValueError: a row is not of the form `$A*B=`.
    """
    begin, middle, equals = _once(_two_number_markers(input_ids, TIMES)).split(1, dim=1)
    first, second = middle - begin - 1, equals - middle - 1
    column = torch.arange(columns, device=input_ids.device)
    # Rows of the response: `=` or `+` and a partial product, then `=` or `>` and a running sum.
    place = column - equals
    in_partial = (place >= 0) & (place < second * (first + 2))
    rest = place - second * (first + 2)
    in_sum = (rest >= 0) & (rest < second * (first + second + 1))
    width = torch.where(in_partial, first + 2, first + second + 1)
    place = torch.where(in_partial, place, rest)
    row, digit = place // width, place % width - 1
    separator = digit < 0

    in_first, in_second = (column > begin) & (column < middle), (column > middle) & (column < equals)
    by_first = torch.where(in_first, column - begin + 1, torch.where(in_partial, first + 1 - digit, 0))
    by_row = torch.where(in_second, equals - column, torch.where(in_partial | in_sum, row + 1, 0))
    shifted = torch.where(in_partial, digit + row, digit)
    by_product = torch.where((in_partial & ~separator) | in_sum, first + second + 1 - shifted, (column == middle).long())
    response_length = int((second * (2 * first + second + 3)).max())
    return Plan(torch.stack([by_first, by_row, by_product], dim=1), response_length)


def _one_string(input_ids: torch.LongTensor, columns: int) -> tuple[torch.LongTensor, torch.LongTensor, torch.LongTensor]:
    """Columns counted from `$`, and from `=`, (batch or 1, columns), and the string's length, (batch or 1, 1).

    Raises:
        ValueError: a row is not of the form `$A=`.
    """
    column = torch.arange(input_ids.shape[1], device=input_ids.device)
    is_equals = input_ids == EQUALS
    begin, equals = (_first_column(mask) for mask in (input_ids == BOS, is_equals))
    _check(
        is_equals.any(1) & (begin + 1 < equals).squeeze(1)
        & torch.where(column < begin, input_ids == PAD, True).all(1)
        & torch.where((column > begin) & (column < equals), input_ids < 10, True).all(1)
        & (input_ids.gather(1, begin) == BOS).squeeze(1),
        input_ids,
        "'$A=', a string of decimal digits",
    )  # fmt: skip
    begin, equals = _once(torch.cat([begin, equals], dim=1)).split(1, dim=1)
    column = torch.arange(columns, device=input_ids.device)
    return column - begin, column - equals, equals - begin - 1


def copy(input_ids: torch.LongTensor, columns: int) -> Plan:
    """A symbol of the response shares the id of the symbol that it copies (paper 1, App. C). With start 5:

        $ 1 8 0 9 = 1 8 0 9 $
        0 6 7 8 9 5 6 7 8 9 0

    Args:
        input_ids: as for `addition`.
        columns: as for `addition`.

    Returns:
        A `Plan` of one level. For L symbols ids 1 to L + 1 are used.

    Raises:
        ValueError: a row is not of the form `$A=`.
    """
    from_begin, from_equals, length = _one_string(input_ids, columns)
    ids = torch.where(from_equals < 0, from_begin + 1, from_equals + 1)
    ids = torch.where((from_begin > 0) & (from_equals <= length), ids, 0)
    return Plan(ids.unsqueeze(1), int(length.max()) + 1)


def reverse(input_ids: torch.LongTensor, columns: int) -> Plan:
    """As `copy`, backwards. With start 5:

    $ 5 9 6 2 = 2 6 9 5 $
    0 5 6 7 8 9 8 7 6 5 0
    """
    from_begin, from_equals, length = _one_string(input_ids, columns)
    ids = torch.where(from_equals < 0, from_begin, length + 1 - from_equals)
    return Plan(torch.where(from_begin > 0, ids.clamp(min=0), 0).unsqueeze(1), int(length.max()) + 1)


def _board_layout(input_ids: torch.LongTensor) -> tuple[torch.LongTensor, torch.LongTensor, torch.LongTensor, int]:
    """Columns of `$` and of `=`, the board's width, each (batch or 1, 1), and the tokens of the longest response.

    A row of the text and the token after it, `>` or at last `=`, take up width + 1 columns.
    """
    column = torch.arange(input_ids.shape[1], device=input_ids.device)
    is_equals = input_ids == EQUALS
    begin, first_end, equals = (
        _first_column(mask) for mask in (input_ids == BOS, is_equals | (input_ids == GREATER), is_equals)
    )
    width = first_end - begin - 1
    place = (column - begin - 1) % (width.clamp(min=0) + 1)
    is_cell = (input_ids == MINE) | (input_ids == EMPTY_CELL)
    expected = torch.where(place == width, (input_ids == GREATER) | (column == equals), is_cell)
    _check(
        is_equals.any(1) & (width > 0).squeeze(1)
        & torch.where(column < begin, input_ids == PAD, True).all(1)
        & torch.where((column > begin) & (column <= equals), expected, True).all(1)
        & (input_ids.gather(1, begin) == BOS).squeeze(1),
        input_ids,
        "'$M__>__M=', a board of rows of one width, `M` for a mine and `_` for any other cell",
    )  # fmt: skip
    cells = (equals - begin) // (width + 1) * width
    response_length = int(cells.max()) + 1
    layout = torch.cat([begin, width, equals], dim=1)
    if (layout == layout[:1]).all():
        begin, width, equals = (value[:1] for value in (begin, width, equals))
    return begin, equals, width, response_length


def minesweeper(input_ids: torch.LongTensor, columns: int) -> Plan:
    """A cell of the answer shares both ids with the same cell of the board: level 1 its column, level 2 its row (paper 1,
    Sec. 6.2 and Fig. 9).

    `>` stands before the first cell of the row that follows, and `=` before both axes. With start 5:

        $ M _ _ > _ _ M = M 2 1 1 2 M $
        0 6 7 8 5 6 7 8 5 6 7 8 6 7 8 0
        0 6 6 6 7 7 7 7 5 6 6 6 7 7 7 0

    Args:
        input_ids: (batch, at least query length) tokens; padded on the left or not at all; anything after `=` is ignored.
        columns: columns to plan for, from the first of `input_ids`.

    Returns:
        A `Plan` of two levels. Ids 1 to width + 1 and 1 to height + 1 are used.

    Raises:
        ValueError: a row is not of the form `$ROW>ROW>...=`, rows of one width.
    """
    begin, equals, width, response_length = _board_layout(input_ids)
    column = torch.arange(columns, device=input_ids.device)
    # The board has a column more than the answer: that of the separators, on the left of the row that they begin.
    place, cell = column - begin, column - equals - 1
    board = torch.stack([place % (width + 1) + 1, place // (width + 1) + 2], dim=1)
    answer = torch.stack([cell % width + 2, cell // width + 2], dim=1)
    cells = (equals - begin) // (width + 1) * width
    in_board, in_answer = (column > begin) & (column < equals), (column > equals) & (column <= equals + cells)
    ids = torch.where(in_answer.unsqueeze(1), answer, (column == equals).unsqueeze(1).long())
    return Plan(torch.where(in_board.unsqueeze(1), board, ids), response_length)


def minesweeper_next_cell(input_ids: torch.LongTensor, columns: int) -> Plan:
    """As `minesweeper`, but a token of the answer, and `=`, has the ids of the cell that comes next: what it must see.

    Level 1 is the cell's column, level 2 its row; level 3 is 1 for the answer, so that its tokens are told from the board's
    and need not see each other, and 2 for `>`, so that it has an id and relates to nobody:

        $ M _ _ > _ _ M = M 2 1 1 2 M $
        0 1 2 3 0 1 2 3 1 2 3 1 2 3 1 0
        0 1 1 1 0 2 2 2 1 1 1 2 2 2 3 0
        0 0 0 0 2 0 0 0 1 1 1 1 1 1 1 0

    After the last cell the next one would be the first of a row below the board.

    Args:
        input_ids: as for `minesweeper`.
        columns: as for `minesweeper`.

    Returns:
        A `Plan` of three levels. Ids 1 to width, 1 to height + 1 and 1 to 2 are used.

    Raises:
        ValueError: as `minesweeper`.
    """
    begin, equals, width, response_length = _board_layout(input_ids)
    column = torch.arange(columns, device=input_ids.device)
    place, cell = column - begin - 1, column - equals
    is_end_of_row = place % (width + 1) == width
    none = torch.zeros_like(place)
    board = torch.stack([place % (width + 1) + 1, place // (width + 1) + 1, none], dim=1)
    board = torch.where(is_end_of_row.unsqueeze(1), torch.stack([none, none, none + 2], dim=1), board)
    answer = torch.stack([cell % width + 1, cell // width + 1, none + 1], dim=1)
    cells = (equals - begin) // (width + 1) * width
    in_board, in_answer = (column > begin) & (column < equals), (column >= equals) & (column <= equals + cells)
    ids = torch.where(in_answer.unsqueeze(1), answer, 0)
    return Plan(torch.where(in_board.unsqueeze(1), board, ids), response_length)


def _query_ends(input_ids: torch.LongTensor) -> tuple[torch.LongTensor, torch.LongTensor]:
    """Columns of each row's first token and of its first `=` (its last token where there is none), each (batch, 1).

    Raises:
        ValueError: a query holds an unknown character.
    """
    is_equals = input_ids == EQUALS
    _check(((is_equals.cumsum(1) > 0) | (input_ids != UNKNOWN)).all(1), input_ids, "of known characters")
    equals = torch.where(is_equals.any(1, keepdim=True), _first_column(is_equals), input_ids.shape[1] - 1)
    return _first_column(input_ids != PAD), equals


def sequential(input_ids: torch.LongTensor, columns: int) -> Plan:
    """Uncoupled: consecutive ids, as in ordinary absolute position embeddings. Any text:

    $ 6 5 + 4 9 = 4 1 1 $
    0 1 2 3 4 5 6 7 8 9 10

    The response is planned to be as long as the query.
    """
    begin, equals = _query_ends(input_ids)
    query_lengths = equals - begin + 1
    if (begin == begin[:1]).all():
        begin = begin[:1]
    ids = (torch.arange(columns, device=input_ids.device) - begin).clamp(min=0)
    return Plan(ids.unsqueeze(1), int(query_lengths.max()), largest_ids=2 * query_lengths - 1)


def abacus(input_ids: torch.LongTensor, columns: int) -> Plan:
    """A digit's place in its number, counted from the number's first digit; other tokens of the query have no id (Abacus
    embeddings, McLeish et al., 2024, Sec. 3.1). Any text:

    $ 3 5 6 + 9 4 0 = 2 0 7 0 $
    0 1 2 3 0 1 2 3 0 1 2 3 4 5

    Where all numbers are written with the ones first, as its authors do, equal ids are equal significance. The ids of a
    response are known before its tokens are, so they count on whatever it holds, the end token included. As for
    `sequential`, the planned response is as long as the query.
    """
    begin, equals = _query_ends(input_ids)
    query_lengths = equals - begin + 1
    is_digit = nn.functional.pad(input_ids < 10, (0, max(0, columns - input_ids.shape[1])))[:, :columns]
    column = torch.arange(columns, device=input_ids.device)
    before_number = torch.where(is_digit, -1, column).cummax(dim=1).values
    ids = torch.where(column > equals, column - equals, column - before_number)
    if (ids == ids[:1]).all():
        ids = ids[:1]
    return Plan(ids.unsqueeze(1), int(query_lengths.max()), largest_ids=query_lengths)


COUPLING_RULES: dict[str, CouplingRule] = {
    rule.name: rule
    for rule in (
        CouplingRule("addition", addition, 1, lambda ids: f"operands of {ids - 2} digits"),
        CouplingRule("addition_all_reversed", addition_all_reversed, 1, lambda ids: f"operands of {ids - 2} digits"),
        CouplingRule("addition_plain", addition_plain, 1, lambda ids: f"operands of {ids - 3} digits"),
        CouplingRule(
            "multi_operand_addition",
            multi_operand_addition,
            1,
            lambda ids: f"operands of {ids - 2} digits, padded to {ids - 1}",
        ),
        CouplingRule(
            "addition_scratchpad",
            addition_scratchpad,
            2,
            lambda ids: f"{ids - 1} operands, running sums of {ids - 2} digits",
            # The summands in the token's column; in the next column the summands or `+`, and `=`.
            relations=((0, 1), (1, 1), (1, ONLY_QUERY)),
        ),
        CouplingRule(
            "subtraction",
            subtraction,
            2,
            lambda ids: f"operands of {ids - 1} digits",
            # A's digit and B's in the token's column, then in the next.
            relations=((0, 2), (0, 1), (1, 2), (1, 1)),
        ),
        CouplingRule("multiplication", multiplication, 1, lambda ids: f"operands of {ids - 1} digits in all"),
        CouplingRule(
            "multiplication_by_digits",
            multiplication_by_digits,
            2,
            lambda ids: f"operands of {ids - 1} digits in all",
            # A's digits in the next column, the token's own and the two below; B's ones and tens. For B of up to two digits.
            relations=(
                *((difference, ONLY_QUERY) for difference in (1, 0, -1, -2)),
                *((ONLY_QUERY, difference) for difference in (1, 2)),
            ),
        ),
        CouplingRule(
            "multiplication_scratchpad",
            multiplication_scratchpad,
            3,
            lambda ids: f"operands of {ids - 2} digits in all",
            relations=(
                # From a digit of a partial product: A's digit in its column and the next, B's of its row and the next.
                (0, ONLY_QUERY, ONLY_QUERY),
                (1, ONLY_QUERY, ONLY_QUERY),
                (ONLY_QUERY, 0, ONLY_QUERY),
                (ONLY_QUERY, -1, ONLY_QUERY),
                # From its separator: A's ones, B's digit.
                (1, ONLY_QUERY, NEITHER),
                (ONLY_QUERY, 0, NEITHER),
                # From a running sum: the row above and its partial product in its column and the next.
                (NEITHER, 1, 0),
                (NEITHER, 1, 1),
                (ONLY_KEY, 0, 0),
                (ONLY_KEY, 0, 1),
                # The separator of the next partial product: there is another row. The sign: the row ends.
                (ONLY_KEY, -1, ONLY_QUERY),
                (NEITHER, ONLY_QUERY, 1),
            ),
        ),
        # The next symbol of the query.
        CouplingRule("copy", copy, 1, lambda ids: f"strings of {ids - 1} symbols", relations=((-1,),)),
        CouplingRule("reverse", reverse, 1, lambda ids: f"strings of {ids - 1} symbols", relations=((1,),)),
        CouplingRule("minesweeper", minesweeper, 2, lambda ids: f"boards of {ids - 1} rows and {ids - 1} columns"),
        CouplingRule(
            "minesweeper_next_cell",
            minesweeper_next_cell,
            3,
            lambda ids: f"boards of {ids - 1} rows and {ids} columns",
            relations=tuple((column, row, ONLY_QUERY) for row in (-1, 0, 1) for column in (-1, 0, 1)),
        ),
        CouplingRule("sequential", sequential, 1, lambda ids: f"{ids} tokens after the first"),
        CouplingRule("abacus", abacus, 1, lambda ids: f"responses of {ids - 1} digits"),
    )
}

ANY_TASK: tuple[str, ...] = ("sequential", "abacus")
"""Rules that read every task's text."""


def shift_position_ids(
    position_ids: torch.LongTensor, offset: torch.LongTensor, max_position_ids: int | None = None
) -> torch.LongTensor:
    """Moves every id but 0 up by `offset`, which broadcasts; with `max_position_ids`, ids wrap around the ring 1..max."""
    shifted = position_ids + offset
    if max_position_ids is not None:
        shifted = (shifted - 1) % max_position_ids + 1
    return torch.where(position_ids > 0, shifted, 0)


def check_room(coupling: str, needed: int, max_position_ids: int) -> None:
    """Raises ValueError where more position ids are needed than there are."""
    if needed > max_position_ids:
        raise ValueError(
            f"prompt and response need {needed} position ids but max_position_ids is {max_position_ids}: "
            f"the longest that fits is {COUPLING_RULES[coupling].capacity(max_position_ids)}"
        )


def largest_position_ids(coupling: str, input_ids: torch.LongTensor) -> torch.LongTensor:
    """The largest id of each row's query and planned response at every level, (batch or 1, levels)."""
    rule = COUPLING_RULES[coupling]
    plan = rule.plan(input_ids, 1)
    if plan.largest_ids is not None:
        return plan.largest_ids
    return rule.plan(input_ids, input_ids.shape[1] + plan.response_length).position_ids.amax(-1)


def spread_position_ids(
    position_ids: torch.LongTensor, largest_ids: torch.LongTensor, max_position_ids: int
) -> torch.LongTensor:
    """Ids 1..n spread evenly over 1..max: id k becomes round(k (max + 1) / (n + 1)), which is where the k-th smallest of a
    random subset of n ids lies on average (randomized positions, Ruoss et al., 2023). 0 stays 0.

    Args:
        position_ids: (batch or 1, levels, columns); ids above n, after a planned response, become max.
        largest_ids: (batch or 1, levels) n, at most max.
    """
    n = largest_ids.unsqueeze(-1)
    return ((2 * position_ids * (max_position_ids + 1) + n + 1) // (2 * (n + 1))).clamp(max=max_position_ids)


def plan_position_ids(
    coupling: str, input_ids: torch.LongTensor, columns: int, spread_over: int | None = None
) -> torch.LongTensor:
    """Position ids (batch or 1, levels, columns) as a rule plans them; spread over 1..`spread_over` if that is given.

    Raises:
        ValueError: a row is not of the rule's form, or has more ids than they are to be spread over.
    """
    position_ids = COUPLING_RULES[coupling].plan(input_ids, columns).position_ids
    if spread_over is None:
        return position_ids
    largest_ids = largest_position_ids(coupling, input_ids)
    check_room(coupling, int(largest_ids.max()), spread_over)
    return spread_position_ids(position_ids, largest_ids, spread_over)
