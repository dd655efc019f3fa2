"""Coupling rules: what the query's tokens mean, turned into the position ids of query and response.

A rule reads token ids up to and including the first `=` and gives a `Plan`: ids for any number of columns, so the ids of
a response are known before its first token is. Tokens that matter to each other share an id; 0 marks special tokens and
padding. Ids are as small as the rule allows; `shift_position_ids` moves them to a random start (training).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from .pair_maps import Relation
from .vocabulary import BOS, CHARACTERS, EQUALS, PAD, PLUS, TIMES, TOKENS, UNKNOWN, decode


class Plan(NamedTuple):
    """Position ids of whole sequences, derived from their queries.

    Attributes:
        position_ids: (batch or 1, levels, columns) int64; 0 is special, padding, or no id at this level. One row stands
            for the batch where every row has the same layout.
        response_length: tokens that the longest response of the batch can have, the end token included.
    """

    position_ids: torch.LongTensor
    response_length: int


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


def _two_numbers(
    input_ids: torch.LongTensor, columns: int, sign: int, operands_reversed: bool, response_reversed: bool
) -> Plan:
    """Ids by significance: digit k (ones are 0) has the id `last - k`, where `last` is the id of the ones and the response
    of R digits has the ids `last - R + 1` to `last`. A marker sits one id above `last`; it is never coupled to the
    response's top digit. Operands of A and B digits have a sum of R = max(A, B) + 1 and a product of R = A + B.
    """
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
    first_length, second_length = middle - begin - 1, equals - middle - 1
    digits = torch.maximum(first_length, second_length) + 1 if sign == PLUS else first_length + second_length
    response_length = int(digits.max()) + 1
    layout = torch.cat([begin, middle, equals], dim=1)
    if (layout == layout[:1]).all():
        begin, middle, equals, digits = (value[:1] for value in (begin, middle, equals, digits))

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
    response_length = int(width.max()) + 1
    layout = torch.cat([begin, plus, equals], dim=1)
    if (layout == layout[:1]).all():
        begin, equals, width = (value[:1] for value in (begin, equals, width))

    column = torch.arange(columns, device=input_ids.device)
    query = (column - begin - 1) % (width + 1) + 1
    response = (width - (column - equals - 1)).clamp(min=0)
    ids = torch.where(column <= begin, 0, torch.where(column <= equals, query, response))
    return Plan(ids.unsqueeze(1), response_length)


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


def sequential(input_ids: torch.LongTensor, columns: int) -> Plan:
    """Uncoupled: consecutive ids, as in ordinary absolute position embeddings. Any text:

    $ 6 5 + 4 9 = 4 1 1 $
    0 1 2 3 4 5 6 7 8 9 10
    """
    after_equals = (input_ids == EQUALS).cumsum(1) > 0
    _check((after_equals | (input_ids != UNKNOWN)).all(1), input_ids, "of known characters")
    begin = _first_column(input_ids != PAD)
    query_length = input_ids.shape[1] - int(begin.min())
    if (begin == begin[:1]).all():
        begin = begin[:1]
    ids = (torch.arange(columns, device=input_ids.device) - begin).clamp(min=0)
    return Plan(ids.unsqueeze(1), query_length)


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
        CouplingRule("multiplication", multiplication, 1, lambda ids: f"operands of {ids - 1} digits in all"),
        CouplingRule("sequential", sequential, 1, lambda ids: f"{ids} tokens after the first"),
    )
}


def shift_position_ids(
    position_ids: torch.LongTensor, offset: torch.LongTensor, max_position_ids: int | None = None
) -> torch.LongTensor:
    """Moves every id but 0 up by `offset`, which broadcasts; with `max_position_ids`, ids wrap around the ring 1..max."""
    shifted = position_ids + offset
    if max_position_ids is not None:
        shifted = (shifted - 1) % max_position_ids + 1
    return torch.where(position_ids > 0, shifted, 0)
