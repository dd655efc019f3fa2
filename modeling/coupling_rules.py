"""The coupling rules of this package. Each docstring draws tokens above their position ids, one line for each level.

All rules take `input_ids` (batch, at least query length), tokens that are padded on the left or not at all, of which those
after `=` are ignored; and `columns`, the number of columns to plan for, from the first of `input_ids`.
"""

# Used by: configuration_coupled_gpt.py, data/tasks. Bound by: the digest of the code that travels with a checkpoint: run
# .ci/code.

from typing import NamedTuple

import torch
from torch import Tensor, nn

from .coupling import COUPLING_RULES, Plan, coupling_rule, joined_rule, plan_joined
from .query_forms import (
    board_markers,
    check_rows,
    flat_board_markers,
    one_layout,
    padded_operand_markers,
    string_markers,
    text_markers,
    two_number_markers,
)
from .relations import NEITHER, ONLY_KEY, ONLY_QUERY
from .vocabulary import DIVIDED_BY, MINUS, PLUS, TIMES


def _two_numbers(input_ids: Tensor, columns: int, sign: int, operands_reversed: bool, response_reversed: bool) -> Plan:
    """Return ids by significance: digit k (ones are 0) has the id `last - k`, where `last` is the id of the ones.

    A response of R digits has the ids `last - R + 1` to `last`. Operands of A and B digits have a sum of R = max(A, B) + 1
    digits, a difference of R = max(A, B) and a product of R = A + B. A marker sits one id above `last`; it is never coupled
    to the response's top digit.
    """
    begin, middle, equals = two_number_markers(input_ids, sign).split(1, dim=1)
    first_length, second_length = middle - begin - 1, equals - middle - 1
    longest = torch.maximum(first_length, second_length)
    digits = {PLUS: longest + 1, MINUS: longest, TIMES: first_length + second_length}[sign]
    response_length = digits.max() + 1

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


@coupling_rule(levels=1, capacity=lambda ids: f"operands of {ids - 2} digits")
def addition(input_ids: Tensor, columns: int) -> Plan:
    """Give digits of the same significance one id, the most significant the smallest (paper 1, Sec. 3.1).

    The response is reversed. Both `+` and `=` follow the ones digit. With start 5 instead of 1:

        $ 6 5 3 + 0 4 9 = 2 0 7 0 $
        0 6 7 8 9 6 7 8 9 8 7 6 5 0

    Operands need no padding: a shorter operand keeps its significance. The plan has a response of L + 1 digits, where L is
    the length of the longer operand; a sum without a carry out ends one token earlier.

    Returns:
        A `Plan` of one level. Ids 1 to L + 2 are used.

    Raises:
        ValueError: a row is not of the form `$A+B=`.
    """
    return _two_numbers(input_ids, columns, PLUS, operands_reversed=False, response_reversed=True)


@coupling_rule(levels=1, capacity=lambda ids: f"operands of {ids - 2} digits")
def addition_all_reversed(input_ids: Tensor, columns: int) -> Plan:
    """Plan like `addition`, for operands and a response that all begin with the ones. With start 5:

    $ 3 5 6 + 9 4 0 = 2 0 7 0 $
    0 8 7 6 9 8 7 6 9 8 7 6 5 0
    """
    return _two_numbers(input_ids, columns, PLUS, operands_reversed=True, response_reversed=True)


@coupling_rule(levels=1, capacity=lambda ids: f"operands of {ids - 3} digits")
def addition_plain(input_ids: Tensor, columns: int) -> Plan:
    """Plan like `addition`, with nothing reversed: `=` has the id just before the first response digit's. With start 4:

        $ 6 5 3 + 0 4 9 = 0 7 0 2 $
        0 6 7 8 9 6 7 8 4 5 6 7 8 0

    Ids 1 to L + 3 are used. A rule sees only the query. So, without zero-padding, a response of L digits still gets the ids
    of L + 1 digits, and each digit then sits one id above its significance.
    """
    return _two_numbers(input_ids, columns, PLUS, operands_reversed=False, response_reversed=False)


@coupling_rule(levels=1, capacity=lambda ids: f"operands of {ids - 3} digits")
def addition_plain_unpadded(input_ids: Tensor, columns: int) -> Plan:
    """Plan like `addition_plain`, for a response without leading zeros, as paper 1's released code does. With start 4:

        $ 2 3 3 + 8 7 = 3 2 0 $
        0 5 6 7 8 6 7 4 5 6 7 0

    Digits of the same significance share an id in every sum, unlike by `addition_plain`. For this, the rule looks whether
    the sum has a carry out, and plans a response of L or of L + 1 digits. So the ids of a response tell how long it is.

    Returns:
        A `Plan` of one level. Ids 1 to L + 3 are used.

    Raises:
        ValueError: a row is not of the form `$A+B=`.
    """
    begin, middle, equals = two_number_markers(input_ids, PLUS).split(1, dim=1)
    longest = torch.maximum(middle - begin, equals - middle) - 1
    # Rows of one layout, and of equally long sums, share one row of ids.
    response = one_layout(longest + _has_carry_out(input_ids, begin, middle, equals))
    column = torch.arange(columns, device=input_ids.device)
    first, second, written = middle - 1 - column, equals - 1 - column, equals + response - column
    significance = torch.where(column < middle, first, torch.where(column < equals, second, written))
    significance = torch.where(column == middle, -1, significance)
    in_text = (column > begin) & (column <= equals + response)
    return Plan(torch.where(in_text, response + 1 - significance, 0).unsqueeze(1), response.max() + 1)


def _has_carry_out(input_ids: Tensor, begin: Tensor, middle: Tensor, equals: Tensor) -> Tensor:
    """Whether a sum has more digits than its longer operand, (batch, 1), from the columns of `$`, `+` and `=`.

    A + B >= 10^L just if A is larger than 10^L - 1 - B, the number of the digits 9 - b. The top digit at which the two
    differ decides which is larger.
    """
    significance = torch.arange(int(torch.maximum(middle - begin, equals - middle).max()) - 1, device=input_ids.device)

    def digits_before(end: Tensor, start: Tensor) -> Tensor:
        """(batch, digits), ones first, 0 beyond the number between two markers."""
        place = (end - 1 - significance).expand(len(input_ids), -1)
        return input_ids.gather(1, place.clamp(min=0)).masked_fill(place <= start, 0)

    longest = torch.maximum(middle - begin, equals - middle) - 1
    difference = digits_before(middle, begin) - 9 + digits_before(equals, middle)
    difference = difference.masked_fill(significance >= longest, 0)
    top = torch.where(difference == 0, -1, significance).amax(dim=1, keepdim=True)
    return (difference.gather(1, top.clamp(min=0)) > 0).long()


@coupling_rule(levels=1, capacity=lambda ids: f"operands of {ids - 2} digits, padded to {ids - 1}")
def multi_operand_addition(input_ids: Tensor, columns: int) -> Plan:
    """Give digits of the same significance of any number of operands one id (paper 1, App. B).

    Every operand is zero-padded to the width W of the response, which is reversed. With start 5:

        $ 0 6 5 3 + 0 0 4 9 + 0 8 7 1 = 3 7 5 1 $
        0 5 6 7 8 9 5 6 7 8 9 5 6 7 8 9 8 7 6 5 0

    The number of operands and W follow from the text; ids 1 to W + 1 are used.

    Returns:
        A `Plan` of one level.

    Raises:
        ValueError: a row is not of the form `$A+B+...=`, with two or more operands of one width.
    """
    begin, plus, equals = padded_operand_markers(input_ids).split(1, dim=1)
    width = plus - begin - 1
    column = torch.arange(columns, device=input_ids.device)
    query = (column - begin - 1) % (width + 1) + 1
    response = (width - (column - equals - 1)).clamp(min=0)
    ids = torch.where(column <= begin, 0, torch.where(column <= equals, query, response))
    return Plan(ids.unsqueeze(1), width.max() + 1)


@coupling_rule(levels=1, capacity=lambda ids: f"operands of {ids - 3} digits, padded to {ids - 2}")
def multi_operand_addition_marked_top(input_ids: Tensor, columns: int) -> Plan:
    """Plan like `multi_operand_addition`, with the begin token in the column above the top one. With start 4:

        $ 0 6 5 3 + 0 0 4 9 = 2 0 7 0 $
        4 5 6 7 8 9 5 6 7 8 9 8 7 6 5 0

    The rule is this package's own, not paper 1's, which gives the begin token no column. Without one, a head that looks for
    the next column finds none at the top one, and spreads over all other tokens. Here, the head finds the begin token.

    Returns:
        A `Plan` of one level. Ids 1 to W + 2 are used.

    Raises:
        ValueError: as `multi_operand_addition`.
    """
    plan = multi_operand_addition(input_ids, columns)
    begin = padded_operand_markers(input_ids)[:, :1]
    ids = plan.position_ids[:, 0]
    # Every other id makes room for the begin token's.
    ids = torch.where(ids > 0, ids + 1, 0)
    ids = torch.where(torch.arange(columns, device=input_ids.device) == begin, 1, ids)
    return Plan(ids.unsqueeze(1), plan.response_length)


@coupling_rule(
    levels=2,
    capacity=lambda ids: f"{ids - 1} operands, running sums of {ids - 2} digits",
    # The summands in the token's column; in the next column the summands or `+`, and `=`.
    relations=((0, 1), (1, 1), (1, ONLY_QUERY)),
)
def addition_scratchpad(input_ids: Tensor, columns: int) -> Plan:
    """Give two levels (the follow-up of paper 1): significance and row.

    The two summands of a running sum are the running sum before it and an operand; they share both ids. The text has n
    operands and, reversed, n + 1 running sums from 0 on, all zero-padded to one width W:

        $ 0 8 + 0 7 + 2 1 = 0 0 > 8 0 > 5 1 > 6 3 $
        0 2 3 1 2 3 1 2 3 1 3 2 4 3 2 4 3 2 4 3 2 0
        0 1 1 1 2 2 2 3 3 0 1 1 2 2 2 3 3 3 4 4 4 0

    The digits have the ids of the follow-up; `addition_scratchpad_followup` has the markers' too. Here, signs stand in the
    column above the top digit, where a running sum ends. A `+` has the row of the operand before it, so the running sum that
    adds this operand sees whether another operand follows. The `=` has no row, so every running sum sees it. A `>` stands
    below the ones of the running sum that it begins.

    Returns:
        A `Plan` of two levels. Ids 1 to W + 2 and 1 to n + 1 are used.

    Raises:
        ValueError: as `multi_operand_addition`.
    """
    begin, plus, equals = padded_operand_markers(input_ids).split(1, dim=1)
    width = plus - begin - 1
    column = torch.arange(columns, device=input_ids.device)
    in_query = column <= equals
    # A row is a number and the token after it.
    place = torch.where(in_query, column - begin, column - equals) - 1
    row, digit = place // (width + 1), place % (width + 1)
    by_column = torch.where(in_query, (digit + 1) % (width + 1) + 1, (width - digit - 1) % (width + 1) + 2)
    by_row = torch.where(column == equals, 0, row + 1 + ((digit == width) & ~in_query))

    response_length = equals - begin + width + 1
    in_text = (column > begin) & (column < equals + response_length)
    ids = torch.where(in_text.unsqueeze(1), torch.stack([by_column, by_row], dim=1), 0)
    return Plan(ids, response_length.max())


@coupling_rule(levels=2, capacity=lambda ids: f"{ids - 1} operands, running sums of {ids - 1} digits")
def addition_scratchpad_followup(input_ids: Tensor, columns: int) -> Plan:
    """Plan like `addition_scratchpad`, with the ids of the follow-up's released code (Cho et al., 2025). With start 1:

        $ 0 8 + 0 7 + 2 1 = 0 0 > 8 0 > 5 1 > 6 3 $
        0 3 2 1 3 2 1 3 2 1 2 3 1 2 3 1 2 3 1 2 3 0
        0 1 1 1 2 2 2 3 3 1 1 1 2 2 2 3 3 3 4 4 4 0

    All markers stand below the ones. A `+` has the row of the operand before it; `=` and `>` that of the running sum after.

    Returns:
        A `Plan` of two levels. Ids 1 to W + 1 and 1 to n + 1 are used.

    Raises:
        ValueError: as `multi_operand_addition`.
    """
    begin, plus, equals = padded_operand_markers(input_ids).split(1, dim=1)
    width = plus - begin - 1
    column = torch.arange(columns, device=input_ids.device)
    in_query = column < equals
    # A row is a number and the marker behind it in the query, and the marker before it in the response.
    place = torch.where(in_query, column - begin - 1, column - equals)
    row, digit = place // (width + 1) + 1, place % (width + 1)
    by_column = torch.where(in_query, width + 1 - digit, digit + 1)
    response_length = equals - begin + width + 1
    in_text = (column > begin) & (column < equals + response_length)
    ids = torch.where(in_text.unsqueeze(1), torch.stack([by_column, row], dim=1), 0)
    return Plan(ids, response_length.max())


@coupling_rule(
    levels=2,
    capacity=lambda ids: f"operands of {ids - 1} digits",
    # A's digit and B's digit in the token's column, then in the next column.
    relations=((0, 2), (0, 1), (1, 2), (1, 1)),
)
def subtraction(input_ids: Tensor, columns: int) -> Plan:
    """Give two levels: significance as in `addition`, and the operand that a digit belongs to, because order matters.

    With start 1:

        $ 6 5 3 - 0 4 9 = 4 0 6 $
        0 1 2 3 4 1 2 3 4 3 2 1 0
        0 1 1 1 1 2 2 2 3 3 3 3 0

    The plan has a response of L digits, where L is the length of the longer operand.

    Returns:
        A `Plan` of two levels. Ids 1 to L + 1 and 1 to 3 are used.

    Raises:
        ValueError: a row is not of the form `$A-B=`.
    """
    plan = _two_numbers(input_ids, columns, MINUS, operands_reversed=False, response_reversed=True)
    middle, equals = two_number_markers(input_ids, MINUS)[:, 1:].split(1, dim=1)
    column = torch.arange(columns, device=input_ids.device)
    operand = torch.where(column <= middle, 1, torch.where(column < equals, 2, 3)).unsqueeze(1)
    return Plan(torch.cat([plan.position_ids, torch.where(plan.position_ids > 0, operand, 0)], dim=1), plan.response_length)


@coupling_rule(
    levels=2,
    capacity=lambda ids: f"operands of {ids - 1} digits",
    # A's digit and B's digit in the token's column, then in the next column; a second row has the first one in A's place.
    relations=((0, 2), (0, 1), (1, 2), (1, 1)),
)
def signed_subtraction(input_ids: Tensor, columns: int) -> Plan:
    """Plan like `subtraction`, with a second row that begins with `-`. With start 1:

        $ 0 4 9 - 6 5 3 = 6 9 3 - 4 0 6 $
        0 1 2 3 4 1 2 3 4 3 2 1 4 3 2 1 0
        0 1 1 1 1 2 2 2 3 3 3 3 5 5 5 5 0

    The second row has the id 5, so that it sees the first row, two below, as that one sees A, and nothing else. The plan has
    a response of two rows; a difference that is not negative ends after the first one.

    Returns:
        A `Plan` of two levels. Ids 1 to L + 1 and 1, 2, 3 and 5 are used.

    Raises:
        ValueError: a row is not of the form `$A-B=`.
    """
    begin, middle, equals = two_number_markers(input_ids, MINUS).split(1, dim=1)
    longest = torch.maximum(middle - begin, equals - middle) - 1
    place = torch.arange(columns, device=input_ids.device) - equals - 1 - longest
    second_row = torch.stack([longest + 1 - place, torch.full_like(place, 5)], dim=1)
    in_second_row = ((place >= 0) & (place <= longest)).unsqueeze(1)
    first_row = subtraction(input_ids, columns).position_ids
    return Plan(torch.where(in_second_row, second_row, first_row), 2 * longest.max() + 2)


@coupling_rule(levels=1, capacity=lambda ids: f"operands of {ids - 1} digits in all")
def multiplication(input_ids: Tensor, columns: int) -> Plan:
    """Give digits of the same significance one id (paper 1, Sec. 6.1).

    Operands of A and B digits are not padded; the response is reversed and has A + B digits. With start 5:

        $ 6 5 3 * 4 9 = 7 9 9 1 3 $
        0 7 8 9 10 8 9 10 9 8 7 6 5 0

    Returns:
        A `Plan` of one level. Ids 1 to A + B + 1 are used.

    Raises:
        ValueError: a row is not of the form `$A*B=`.
    """
    return _two_numbers(input_ids, columns, TIMES, operands_reversed=False, response_reversed=True)


@coupling_rule(
    levels=2,
    capacity=lambda ids: f"operands of {ids - 1} digits in all",
    # A's digits in the next column, the token's own and the two below; B's ones and tens. For B of up to two digits.
    relations=(
        *((difference, ONLY_QUERY) for difference in (1, 0, -1, -2)),
        *((ONLY_QUERY, difference) for difference in (1, 2)),
    ),
)
def multiplication_by_digits(input_ids: Tensor, columns: int) -> Plan:
    """Give two levels: significance in A and in the response as in `multiplication`, and the place of a digit of B.

    With `multiplication`, a window cannot reach B from far columns. Here B's digits have no significance, so every token
    of the response has the same relation to each of them. With start 1:

        $ 6 5 3 * 4 9 = 7 9 9 1 3 $
        0 3 4 5 0 0 0 6 5 4 3 2 1 0
        0 0 0 0 4 1 2 3 3 3 3 3 3 0

    Returns:
        A `Plan` of two levels. For operands of A and B digits, ids 1 to A + B + 1 and 1 to B + 2 are used.

    Raises:
        ValueError: a row is not of the form `$A*B=`.
    """
    plan = multiplication(input_ids, columns)
    middle, equals = two_number_markers(input_ids, TIMES)[:, 1:].split(1, dim=1)
    second = equals - middle - 1
    column = torch.arange(columns, device=input_ids.device)
    in_second = (column >= middle) & (column < equals)
    by_column = plan.position_ids[:, 0].masked_fill(in_second, 0)
    by_digit = torch.where(in_second, column - middle, torch.where((column >= equals) & (by_column > 0), second + 1, 0))
    by_digit = torch.where(column == middle, second + 2, by_digit)
    return Plan(torch.stack([by_column, by_digit], dim=1), plan.response_length)


@coupling_rule(levels=2, capacity=lambda ids: f"operands of {ids - 1} digits in all")
def multiplication_marked_top(input_ids: Tensor, columns: int) -> Plan:
    """Plan like `multiplication_by_digits`, with `*` and `$` in the two columns above A's top digit.

    The rule is this package's own, not paper 1's. A head that looks for a digit above A's top one finds a marker there.
    Without markers, the head may fall on a digit at a distance that did not occur in training. With start 1:

        $ 6 5 3 * 4 9 = 7 9 9 1 3 $
        1 3 4 5 2 0 0 6 5 4 3 2 1 0
        0 0 0 0 0 1 2 3 3 3 3 3 3 0

    If B has one digit, `$` has no id: the product has one column above A's top digit. If B has more than two, the product's
    top columns have no marker.

    Returns:
        A `Plan` of two levels. For operands of A and B digits, ids 1 to A + B + 1 and 1 to B + 1 are used.

    Raises:
        ValueError: a row is not of the form `$A*B=`.
    """
    begin, middle, equals = two_number_markers(input_ids, TIMES).split(1, dim=1)
    column = torch.arange(columns, device=input_ids.device)
    plan = multiplication_by_digits(input_ids, columns)
    by_column, by_digit = plan.position_ids.unbind(1)
    second = equals - middle - 1
    by_column = torch.where(column == begin, second - 1, torch.where(column == middle, second, by_column))
    by_digit = by_digit.masked_fill(column == middle, 0)
    return Plan(torch.stack([by_column, by_digit], dim=1), plan.response_length)


@coupling_rule(
    levels=3,
    capacity=lambda ids: f"operands of {ids - 2} digits in all",
    relations=(
        # A digit of a partial product sees A's digit in its column and the next, and B's digit of its row and the next.
        (0, ONLY_QUERY, ONLY_QUERY),
        (1, ONLY_QUERY, ONLY_QUERY),
        (ONLY_QUERY, 0, ONLY_QUERY),
        (ONLY_QUERY, -1, ONLY_QUERY),
        # The separator of a partial product sees A's ones and B's digit.
        (1, ONLY_QUERY, NEITHER),
        (ONLY_QUERY, 0, NEITHER),
        # A running sum sees the row above and its partial product, in its column and the next.
        (NEITHER, 1, 0),
        (NEITHER, 1, 1),
        (ONLY_KEY, 0, 0),
        (ONLY_KEY, 0, 1),
        # A running sum sees the separator of the next partial product if another row follows, and the sign at its end.
        (ONLY_KEY, -1, ONLY_QUERY),
        (NEITHER, ONLY_QUERY, 1),
    ),
)
def multiplication_scratchpad(input_ids: Tensor, columns: int) -> Plan:
    """Give three levels (the follow-up of paper 1): significance in A, row, significance in the product.

    Level 1 couples A and each partial product. Level 2 couples a digit of B, its partial product and the running sum that
    adds it. Level 3 couples partial products, each shifted to its place, and running sums. With start 1:

        $ 9 4 * 6 8 = 2 5 7 + 4 6 5 = 2 5 7 0 > 2 9 3 6 $
        0 2 3 0 0 0 4 3 2 1 4 3 2 1 0 0 0 0 0 0 0 0 0 0 0
        0 0 0 0 2 1 1 1 1 1 2 2 2 2 1 1 1 1 1 2 2 2 2 2 0
        0 0 0 1 0 0 0 5 4 3 0 4 3 2 6 5 4 3 2 6 5 4 3 2 0

    The markers' ids suit windows: the sign stands one column above the product's top digit, where a running sum ends; the
    separator of a partial product stands below its ones, in its row; the separator of a running sum below its ones.

    Returns:
        A `Plan` of three levels. For operands of A and B digits, ids 1 to A + 2, 1 to B and 1 to A + B + 2 are used.

    Raises:
        ValueError: a row is not of the form `$A*B=`.
    """
    text = _partial_products(input_ids, columns)
    separator = text.digit < 0
    by_first = torch.where(text.in_first, text.place_in_first + 2, 0)
    by_first = torch.where(text.in_partial, text.first + 1 - text.digit, by_first)
    by_row = torch.where(text.in_partial | text.in_sum, text.row + 1, text.by_second)
    shifted = torch.where(text.in_partial, text.digit + text.row, text.digit)
    by_product = torch.where(
        (text.in_partial & ~separator) | text.in_sum, text.first + text.second + 1 - shifted, text.is_sign.long()
    )
    return Plan(torch.stack([by_first, by_row, by_product], dim=1), text.response_length)


@coupling_rule(levels=3, capacity=lambda ids: f"operands of {ids - 1} digits in all")
def multiplication_scratchpad_followup(input_ids: Tensor, columns: int) -> Plan:
    """Plan like `multiplication_scratchpad`, with the ids of the follow-up's released code (Cho et al., 2025). With start 1:

        $ 9 4 * 6 8 = 2 5 7 + 4 6 5 = 2 5 7 0 > 2 9 3 6 $
        0 3 2 0 0 0 1 2 3 4 1 2 3 4 0 0 0 0 0 0 0 0 0 0 0
        0 0 0 0 2 1 1 1 1 1 2 2 2 2 1 1 1 1 1 2 2 2 2 2 0
        0 0 0 0 0 0 1 2 3 4 2 3 4 5 1 2 3 4 5 1 2 3 4 5 0

    Each `=`, `+` and `>` stands below the ones of the row that it begins. `*` has no id.

    Returns:
        A `Plan` of three levels. For operands of A and B digits, ids 1 to A + 2, 1 to B and 1 to A + B + 1 are used.

    Raises:
        ValueError: a row is not of the form `$A*B=`.
    """
    text = _partial_products(input_ids, columns)
    in_response = text.in_partial | text.in_sum
    by_first = torch.where(text.in_first, text.first + 1 - text.place_in_first, 0)
    by_first = torch.where(text.in_partial, text.digit + 2, by_first)
    by_row = torch.where(in_response, text.row + 1, text.by_second)
    shifted = torch.where(text.in_partial, text.digit + text.row, text.digit)
    by_product = torch.where(in_response, shifted + 2, 0)
    return Plan(torch.stack([by_first, by_row, by_product], dim=1), text.response_length)


class _PartialProducts(NamedTuple):
    """Where tokens of a product with scratchpad stand; tensors are (batch or 1, columns), or (batch or 1, 1) of numbers.

    Attributes:
        first, second: digits of A and of B.
        is_sign: the token `*`.
        in_first, place_in_first: digits of A; their places from the top, from 0.
        by_second: for digits of B their places from the ones, from 1; 0 for other tokens.
        in_partial, in_sum: rows of the response: first `=` or `+` and a partial product, then `=` or `>` and a running sum.
        row, digit: of tokens in these rows, from 0; the digit of the token that begins a row is -1.
    """

    first: Tensor
    second: Tensor
    is_sign: Tensor
    in_first: Tensor
    place_in_first: Tensor
    by_second: Tensor
    in_partial: Tensor
    in_sum: Tensor
    row: Tensor
    digit: Tensor

    @property
    def response_length(self) -> Tensor:
        """Tokens of the longest response, the end token included, a tensor of one number."""
        return (self.second * (2 * self.first + self.second + 3)).max()


def _partial_products(input_ids: Tensor, columns: int) -> _PartialProducts:
    """Return where the tokens of queries `$A*B=` and of their responses stand.

    Raises:
        ValueError: a row is not of this form.
    """
    begin, middle, equals = two_number_markers(input_ids, TIMES).split(1, dim=1)
    first, second = middle - begin - 1, equals - middle - 1
    column = torch.arange(columns, device=input_ids.device)
    place = column - equals
    in_partial = (place >= 0) & (place < second * (first + 2))
    rest = place - second * (first + 2)
    in_sum = (rest >= 0) & (rest < second * (first + second + 1))
    width = torch.where(in_partial, first + 2, first + second + 1)
    place = torch.where(in_partial, place, rest)
    in_second = (column > middle) & (column < equals)
    return _PartialProducts(
        first=first,
        second=second,
        is_sign=column == middle,
        in_first=(column > begin) & (column < middle),
        place_in_first=column - begin - 1,
        by_second=torch.where(in_second, equals - column, 0),
        in_partial=in_partial,
        in_sum=in_sum,
        row=place // width,
        digit=place % width - 1,
    )


@coupling_rule(
    levels=2,
    capacity=lambda ids: f"dividends of {ids - 2} digits",
    # The dividend in the next column; the divisor, as a remainder and as a digit of the quotient; the column's remainder.
    relations=((-1, ONLY_QUERY), (ONLY_QUERY, 1), (ONLY_QUERY, 2), (0, 1)),
)
def division(input_ids: Tensor, columns: int) -> Plan:
    """Give two levels: column and row. The response is a row of remainders and one of the quotient, both from the top down.

    The divisor has one digit and no column, so every column sees it. With start 1:

        $ 8 7 6 4 / 7 = 1 3 1 0 > 1 2 5 2 $
        0 2 3 4 5 6 0 1 2 3 4 5 1 2 3 4 5 0
        0 0 0 0 0 0 1 2 2 2 2 2 3 3 3 3 3 0

    `/` stands in the column below the ones, where a row ends; `=` and `>`, with which rows begin, above the top digit.

    Returns:
        A `Plan` of two levels. For a dividend of A digits, ids 1 to A + 2 and 1 to 3 are used.

    Raises:
        ValueError: a row is not of the form `$A/B=` with a divisor of one digit.
    """
    begin, middle, equals = two_number_markers(input_ids, DIVIDED_BY).split(1, dim=1)
    one_digit = (equals - middle == 2).squeeze(1).expand(input_ids.shape[0])
    check_rows(one_digit, input_ids, "'$A/B=', a number in decimal digits and a divisor of one digit")
    column, width = torch.arange(columns, device=input_ids.device), middle - begin
    place = column - equals
    in_dividend, in_response = (column > begin) & (column <= middle), (place >= 0) & (place < 2 * width)
    by_column = torch.where(in_dividend, column - begin + 1, torch.where(in_response, place % width + 1, 0))
    by_row = torch.where(in_response, place // width + 2, (column == middle + 1).long())
    return Plan(torch.stack([by_column, by_row], dim=1), 2 * width.max())


@coupling_rule(levels=2, capacity=lambda ids: f"operands of {ids} symbols at most")
def columns(input_ids: Tensor, columns: int) -> Plan:
    """Give two levels, column and row, to operands of one width and to the passes over their columns.

    The table of the task (`modeling/transducer.py`) says how many operands and passes there are. A column has one id, the
    top one the smallest. Operands that the task cannot tell apart share row 1; else each has its own. With start 1, sums:

        $ 3 7 + 8 1 = 8 1 1 $
        0 2 3 4 2 3 4 3 2 1 0
        0 1 1 0 1 1 2 2 2 2 0

    A sign has no row. The token that begins a pass stands before its first column. A pass that reads from the top has the
    same ids in the other order. Pass q, from 0, has the row (largest row of an operand + 1) * 2**q: so the difference of two
    rows tells which pass sees what.

    Raises:
        ValueError: always. `Transducer.rule` is the rule for a table.
    """
    raise ValueError("the coupling rule 'columns' needs the table of a column task: set transducer of the configuration")


_OPERATIONS = {PLUS: "addition_scratchpad", MINUS: "signed_subtraction", TIMES: "multiplication_scratchpad"}


@joined_rule(_OPERATIONS)
def calculator(input_ids: Tensor, columns: int) -> Plan:
    """Plan sums, differences and products by the rules of the tasks with scratchpads, each at levels of its own:

        $ 9 * 5 = 5 4 = 5 4 $
        0 0 0 0 0 0 0 0 0 0 0
        0 0 0 0 0 0 0 0 0 0 0
        0 0 0 0 0 0 0 0 0 0 0
        0 0 0 0 0 0 0 0 0 0 0
        0 2 0 0 3 2 1 0 0 0 0
        0 0 0 1 1 1 1 1 1 1 0
        0 0 1 0 0 3 2 4 3 2 0

    Levels 1 and 2 are those of `addition_scratchpad`, 3 and 4 of `signed_subtraction`, 5 to 7 of
    `multiplication_scratchpad`. The first sign of the query says which of them have ids; rows may be of
    different operations.

    Returns:
        A `Plan` of seven levels.

    Raises:
        ValueError: a row has none of the three forms.
    """
    return plan_joined(_OPERATIONS, input_ids, columns)


# `copy` and `reverse` see the next symbol of the query.
@coupling_rule(levels=1, capacity=lambda ids: f"strings of {ids - 1} symbols", relations=((-1,),))
def copy(input_ids: Tensor, columns: int) -> Plan:
    """Give a symbol of the response the id of the symbol that it copies (paper 1, App. C). With start 5:

        $ 1 8 0 9 = 1 8 0 9 $
        0 6 7 8 9 5 6 7 8 9 0

    Returns:
        A `Plan` of one level. For L symbols, ids 1 to L + 1 are used.

    Raises:
        ValueError: a row is not of the form `$A=`.
    """
    begin, equals = string_markers(input_ids).split(1, dim=1)
    column, length = torch.arange(columns, device=input_ids.device), equals - begin - 1
    ids = torch.where(column < equals, column - begin + 1, column - equals + 1)
    ids = torch.where((column > begin) & (column <= equals + length), ids, 0)
    return Plan(ids.unsqueeze(1), length.max() + 1)


@coupling_rule(levels=1, capacity=lambda ids: f"strings of {ids - 1} symbols", relations=((1,),))
def reverse(input_ids: Tensor, columns: int) -> Plan:
    """Plan like `copy`, for a response that repeats the string backwards. With start 5:

    $ 5 9 6 2 = 2 6 9 5 $
    0 5 6 7 8 9 8 7 6 5 0
    """
    begin, equals = string_markers(input_ids).split(1, dim=1)
    column, length = torch.arange(columns, device=input_ids.device), equals - begin - 1
    ids = torch.where(column < equals, column - begin, length + 1 - (column - equals))
    return Plan(torch.where(column > begin, ids.clamp(min=0), 0).unsqueeze(1), length.max() + 1)


@coupling_rule(levels=2, capacity=lambda ids: f"boards of {ids - 1} rows and {ids - 1} columns")
def minesweeper(input_ids: Tensor, columns: int) -> Plan:
    """Give a cell of the answer both ids of the same cell of the board: level 1 is its column, level 2 its row.

    The source is paper 1, Sec. 6.2 and Fig. 9. A `>` stands before the first cell of the row that follows it, and `=`
    before both axes. With start 5:

        $ M _ _ > _ _ M = M 2 1 1 2 M $
        0 6 7 8 5 6 7 8 5 6 7 8 6 7 8 0
        0 6 6 6 7 7 7 7 5 6 6 6 7 7 7 0

    Returns:
        A `Plan` of two levels. Ids 1 to width + 1 and 1 to height + 1 are used.

    Raises:
        ValueError: a row is not of the form `$ROW>ROW>...=`, with rows of one width.
    """
    begin, first_end, equals = board_markers(input_ids).split(1, dim=1)
    width = first_end - begin - 1
    cells = (equals - begin) // (width + 1) * width
    column = torch.arange(columns, device=input_ids.device)
    # The board has one column more than the answer: the separators, to the left of the row that they begin.
    place, cell = column - begin, column - equals - 1
    board = torch.stack([place % (width + 1) + 1, place // (width + 1) + 2], dim=1)
    answer = torch.stack([cell % width + 2, cell // width + 2], dim=1)
    in_board, in_answer = (column > begin) & (column < equals), (column > equals) & (column <= equals + cells)
    ids = torch.where(in_answer.unsqueeze(1), answer, (column == equals).unsqueeze(1).long())
    return Plan(torch.where(in_board.unsqueeze(1), board, ids), cells.max() + 1)


@coupling_rule(levels=2, capacity=lambda ids: f"boards of {ids - 1} rows and {ids - 1} columns")
def minesweeper_flat(input_ids: Tensor, columns: int) -> Plan:
    """Plan like `minesweeper`, for a board whose rows stand one after the other (paper 1, Fig. 9). With start 1:

        $ M _ _ M = M 2 2 M $
        0 2 3 2 3 1 2 3 2 3 0
        0 2 2 3 3 1 2 2 3 3 0

    Nothing says how wide such a board is. The rule takes it for a square; `flat_board_ids` has the ids of other boards.

    Returns:
        A `Plan` of two levels. Ids 1 to width + 1 and 1 to height + 1 are used.

    Raises:
        ValueError: a row is not of the form `$CELLS=`, or its cells make no square.
    """
    begin, equals = flat_board_markers(input_ids).split(1, dim=1)
    cells = equals - begin - 1
    width = cells.double().sqrt().round().long()
    is_square = (width * width == cells).squeeze(1).expand(input_ids.shape[0])
    check_rows(is_square, input_ids, "'$M__M=', a square board; position_ids must be given for a board of another form")
    return Plan(_flat_board_ids(begin, equals, width, columns), cells.max() + 1)


def flat_board_ids(width: int, height: int, columns: int) -> Tensor:
    """Return the ids of `minesweeper_flat`, (1, 2, columns), for a board of any width and height."""
    begin = torch.zeros(1, 1, dtype=torch.long)
    return _flat_board_ids(begin, begin + width * height + 1, begin + width, columns)


def _flat_board_ids(begin: Tensor, equals: Tensor, width: Tensor, columns: int) -> Tensor:
    """Return ids (batch or 1, 2, columns) from the columns of `$` and of `=` and the width of the board, (batch or 1, 1)."""
    column = torch.arange(columns, device=begin.device)
    cell = column - torch.where(column < equals, begin, equals) - 1
    is_cell = (column > begin) & (column != equals) & (column < 2 * equals - begin)
    ids = torch.stack([cell % width + 2, cell // width + 2], dim=1)
    return torch.where(is_cell.unsqueeze(1), ids, (column == equals).unsqueeze(1).long())


@coupling_rule(
    levels=3,
    capacity=lambda ids: f"boards of {ids - 1} rows and {ids} columns",
    relations=tuple((column, row, ONLY_QUERY) for row in (-1, 0, 1) for column in (-1, 0, 1)),
)
def minesweeper_next_cell(input_ids: Tensor, columns: int) -> Plan:
    """Plan like `minesweeper`, but `=` and a token of the answer have the ids of the next cell, whose neighbours they see.

    Level 1 is the cell's column and level 2 its row. Level 3 is 1 for the answer, which tells its tokens from the board's,
    so that they need not see each other. Level 3 of `>` is 2, so that `>` has an id but relates to no other token:

        $ M _ _ > _ _ M = M 2 1 1 2 M $
        0 1 2 3 0 1 2 3 1 2 3 1 2 3 1 0
        0 1 1 1 0 2 2 2 1 1 1 2 2 2 3 0
        0 0 0 0 2 0 0 0 1 1 1 1 1 1 1 0

    After the last cell, the next cell would be the first of a row below the board.

    Returns:
        A `Plan` of three levels. Ids 1 to width, 1 to height + 1 and 1 to 2 are used.

    Raises:
        ValueError: as `minesweeper`.
    """
    begin, first_end, equals = board_markers(input_ids).split(1, dim=1)
    width = first_end - begin - 1
    cells = (equals - begin) // (width + 1) * width
    column = torch.arange(columns, device=input_ids.device)
    place, cell = column - begin - 1, column - equals
    is_end_of_row = place % (width + 1) == width
    none = torch.zeros_like(place)
    board = torch.stack([place % (width + 1) + 1, place // (width + 1) + 1, none], dim=1)
    board = torch.where(is_end_of_row.unsqueeze(1), torch.stack([none, none, none + 2], dim=1), board)
    answer = torch.stack([cell % width + 1, cell // width + 1, none + 1], dim=1)
    in_board, in_answer = (column > begin) & (column < equals), (column >= equals) & (column <= equals + cells)
    ids = torch.where(in_answer.unsqueeze(1), answer, 0)
    return Plan(torch.where(in_board.unsqueeze(1), board, ids), cells.max() + 1)


@coupling_rule(levels=1, capacity=lambda ids: f"{ids} tokens after the first", reads_any_text=True)
def sequential(input_ids: Tensor, columns: int) -> Plan:
    """Give consecutive ids, without coupling, as in ordinary absolute position embeddings. Any text:

    $ 6 5 + 4 9 = 4 1 1 $
    0 1 2 3 4 5 6 7 8 9 10

    The planned response is as long as the query.
    """
    begin, equals = text_markers(input_ids)
    query_lengths = equals - begin + 1
    ids = (torch.arange(columns, device=input_ids.device) - one_layout(begin)).clamp(min=0)
    return Plan(ids.unsqueeze(1), query_lengths.max(), largest_ids=2 * query_lengths - 1)


@coupling_rule(levels=1, capacity=lambda ids: f"responses of {ids - 1} digits", reads_any_text=True)
def abacus(input_ids: Tensor, columns: int) -> Plan:
    """Give each digit its place in its number, counted from the number's first digit; other query tokens have no id.

    These are Abacus embeddings (McLeish et al., 2024, Sec. 3.1). Any text:

    $ 3 5 6 + 9 4 0 = 2 0 7 0 $
    0 1 2 3 0 1 2 3 0 1 2 3 4 5

    If all numbers begin with the ones, as its authors write them, equal ids are equal significance. The ids of a response
    are known before its tokens are, so they count on whatever it holds, the end token included. As for `sequential`, the
    planned response is as long as the query.
    """
    begin, equals = text_markers(input_ids)
    query_lengths = equals - begin + 1
    is_digit = nn.functional.pad(input_ids < 10, (0, max(0, columns - input_ids.shape[1])))[:, :columns]
    column = torch.arange(columns, device=input_ids.device)
    before_number = torch.where(is_digit, -1, column).cummax(dim=1).values
    ids = one_layout(torch.where(column > equals, column - equals, column - before_number))
    return Plan(ids.unsqueeze(1), query_lengths.max(), largest_ids=query_lengths)


__all__ = ["COUPLING_RULES"]
"""Import the table from here to be sure that it holds these rules."""
