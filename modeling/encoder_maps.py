"""Pair maps of the encoder: which vector an attention head adds to a key for a query, from the layout of the tokens.

The input is two numbers with an operator between them, and optional text around them. A map ignores text: numbers are
indexed as if the text were absent (paper 2, Sec. 3.3).
"""

# Used by: configuration_pairwise_bert.py, modeling_pairwise_bert.py, settling.py, data, data/tasks, hub_cards/publishing.
# Bound by: the digest of the code that travels with a checkpoint: run .ci/code.

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .registry import check_free
from .relations import NOT_RELATED
from .structure import GIVEN
from .values import reads_values
from .vocabulary import FIELD_PAD, FIRST_TEXT, MINUS, PAD, PLUS, TIMES

NO_MAP = "none"
"""Name, in place of a rule's, for heads that add no vectors."""


def virtual_indices(input_ids: Tensor) -> Tensor:
    """Index the numbers' tokens as if there were no text (paper 2, Sec. 3.3); 0 for text and padding of a batch.

        tokens   a _ 1 + b _ 5 c
        index    0 1 2 3 0 4 5 0

    Args:
        input_ids: (batch, tokens).

    Returns:
        (batch, tokens), 1 for the first token of the first number.
    """
    numeric = (input_ids < FIRST_TEXT) & (input_ids != PAD)
    return numeric.cumsum(1).masked_fill(~numeric, 0)


def operator_index(input_ids: Tensor, indices: Tensor) -> Tensor:
    """Return the virtual index (batch, 1) of each row's operator.

    Raises:
        ValueError: a row has no operator, or several.
    """
    operator = (input_ids == PLUS) | (input_ids == TIMES)
    operators = operator.sum(1)
    if (operators != 1).any():
        row = int((operators != 1).nonzero()[0, 0])
        raise ValueError(f"row {row} of input_ids must have one '+' or '*' between two numbers, got {int(operators[row])}")
    return indices.masked_fill(~operator, 0).amax(1, keepdim=True)


def digit_columns(input_ids: Tensor, indices: Tensor) -> Tensor:
    """Return the columns of two numbers written one above the other, 1 for the ones; the operator has the column above them.

        tokens   _ 1 2 + _ 9 5
        column   3 2 1 4 3 2 1

    The fields of both numbers must have one width: each digit of the sum is predicted at the second number, and its overflow
    at the operator. Tokens of one column are coupled as in paper 1. Unlike differences of indices, differences of columns do
    not depend on the width of the fields.
    """
    operator = operator_index(input_ids, indices)
    last = indices.amax(1, keepdim=True)
    columns = torch.where(indices < operator, operator - indices, last + 1 - indices)
    return columns.masked_fill(indices == 0, 0)


def multiplier_places(input_ids: Tensor, indices: Tensor) -> Tensor:
    """Return the places of the digits before the operator, 1 for the ones; 0 for all other tokens.

    tokens   5 6 * _ 4 7
    place    2 1 0 0 0 0
    """
    before = operator_index(input_ids, indices) - indices
    return before.clamp(min=0).masked_fill(indices == 0, 0)


def relative_relations(ids: Tensor, relation_range: Sequence[int], windowed: bool) -> Tensor:
    """Return the differences of ids, query minus key (RPE, paper 2, Sec. 2, for virtual indices).

    With the range (-3, 3), the value of equal ids is 3:

        tokens   1 + 5
        index    1 2 3

        query \\ key    1 + 5
              1         3 2 1
              +         4 3 2
              5         5 4 3

    Args:
        ids: (rows, tokens), 0 means "no id".
        relation_range: smallest and largest distinct difference.
        windowed: if True, pairs outside the range are not related; if False, their difference is clipped to it.

    Returns:
        (rows, tokens, tokens) int32, from 0 on; `NOT_RELATED` if one of the tokens has no id.
    """
    low, high = relation_range
    ids = ids.to(torch.int32)
    difference, present = ids.unsqueeze(2) - ids.unsqueeze(1), ids > 0
    related = present.unsqueeze(2) & present.unsqueeze(1)
    if windowed:
        related &= (difference >= low) & (difference <= high)
    return (difference.clamp(low, high) - low).masked_fill(~related, NOT_RELATED)


def with_uniform_keys(
    relations: Tensor,
    input_ids: Tensor,
    indices: Tensor,
    first: int,
    max_multiplier_length: int,
    with_self: bool = True,
) -> Tensor:
    """Give each digit of the multiplier, as a key, one relation to all queries (UPE, paper 2, Eq. 3.3).

    The relations are numbered by the digit's place, from `first` on; a window does not hide the multiplier. With relative
    relations of the range (-1, 1):

        tokens   5 6 * 4 7

        query \\ key    5 6 * 4 7
              5         4 3 0 0 0
              6         4 3 0 0 0
              *         4 3 1 0 0
              4         4 3 2 1 0
              7         4 3 2 2 1

    Args:
        with_self: whether a digit has this relation to itself too; if not, it keeps the one in `relations`.

    Raises:
        ValueError: the multiplier has more than `max_multiplier_length` digits.
    """
    places = multiplier_places(input_ids, indices)
    if (longest := int(places.max())) > max_multiplier_length:
        raise ValueError(f"multipliers may have max_multiplier_length = {max_multiplier_length} digits, got {longest}")
    is_uniform = (places > 0).unsqueeze(1) & (indices > 0).unsqueeze(2)
    if not with_self:
        is_uniform = is_uniform & ~torch.eye(places.shape[1], dtype=torch.bool, device=places.device)
    return torch.where(is_uniform, (first - 1 + places).unsqueeze(1).to(torch.int32), relations)


GRID_RELATIONS = 5
"""Relations of the rule `"grid"`: the token itself, two heads, a sum digit, a carry."""


def grid_keys(input_ids: Tensor, indices: Tensor) -> Tensor:
    """Return the virtual index of the one token that stands in each relation to a token of a grid, 0 for none.

    The grid of a product has a cell for each digit of the first number, with a 0 above it, and each digit of the second. The
    first number's digits head the columns. The second number's digits, ones first, end the rows. A cell has a token for its
    carry, `-`, and one for its sum digit, `_`. Here 12*34, which is written `012*-_-_-_4-_-_-_3`:

          0  1  2 *            0  1  2 *
         -_ -_ -_ 4           00 04 08 4
         -_ -_ -_ 3           00 04 10 3

    The product of a cell's heads, the sum digit of the cell up and to the left, and the carry of the cell on the right add
    up to 10 carry + sum digit. The product, 0408, is read along the sum digits of the last row and up the ones column.
    Both tokens of a cell see, by relation: 0, themselves; 1, the column's head; 2, the row's head; 3, the sum digit up and
    to the left; 4, the carry on the right. All other tokens see nothing.

    Args:
        input_ids: (batch, tokens).
        indices: virtual indices (batch, tokens).

    Returns:
        (batch, tokens, `GRID_RELATIONS`).

    Raises:
        ValueError: a row is not a grid.
    """
    operator = operator_index(input_ids, indices)
    columns = operator - 1
    width = 2 * columns + 1
    row, place = (indices - operator - 1) // width, (indices - operator - 1) % width
    # Columns are counted from the left here.
    column, is_cell = place // 2, (indices > operator) & (place < width - 1)
    blank = torch.where(place % 2 == 0, MINUS, FIELD_PAD)
    fits = torch.where(is_cell, input_ids == blank, input_ids < 10) | (indices == 0)
    fits = torch.where(indices == operator, (input_ids == TIMES) & (columns > 0), fits)
    last = indices.amax(1, keepdim=True)
    fits &= (last > operator) & ((last - operator) % width == 0)
    if not fits.all():
        raise ValueError(f"row {int((~fits).nonzero()[0, 0])} of input_ids is not a grid such as 012*-_-_-_4-_-_-_3")
    first = operator + 1 + row * width
    upper_left = torch.where((row > 0) & (column > 0), first - width + 2 * column - 1, 0)
    right = torch.where(column + 1 < columns, first + 2 * column + 2, 0)
    keys = torch.stack([indices, column + 1, first + width - 1, upper_left, right], dim=-1)
    return keys * is_cell.unsqueeze(-1)


def _of_operator(sign: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Return virtual indices of the rows with this operator; 0 for the other rows, in which no tokens are related."""

    def indices_of(input_ids: Tensor, indices: Tensor) -> Tensor:
        return indices.masked_fill(~(input_ids == sign).any(1, keepdim=True), 0)

    return indices_of


RULE_IDS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "relative": lambda input_ids, indices: indices,
    "uniform": lambda input_ids, indices: indices,
    "coupled": digit_columns,
    "add": _of_operator(PLUS),
    "multiply": _of_operator(TIMES),
}
"""`(input_ids, virtual indices)` -> ids (rows, tokens), whose differences are the relations: RPE; RPE, with UPE for the
multiplier; columns; RPE in sums alone; RPE, with UPE for the multiplier, in products alone (paper 2, Fig. 6)."""

UNIFORM = ("uniform", "multiply")
"""Rules by which the digits of a multiplier have relations of their own."""

GRID = "grid"
COLUMNS = "columns"

OWN_RULES = (*RULE_IDS, GRID, COLUMNS)
"""The rules of this package by name: those by ids, neighbours in a grid, and a column task's window."""

DeriveMap = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class PairMapRule:
    """A rule by a function, as plugins have them, and `listed`.

    Attributes:
        derive: `(input_ids, present) -> map`; both arguments are (batch, tokens), `present` is False for padding, and the
            map (batch or 1, tokens, tokens) holds 0 to `relations` - 1, and `NOT_RELATED`.
        relations: number of relations.
    """

    name: str
    derive: DeriveMap
    relations: int


PAIR_MAP_RULES: dict[str, PairMapRule] = {}
"""The rules by a function, by name; `pair_map_rule` fills it."""


def pair_map_rule(name: str, *, relations: int) -> Callable[[DeriveMap], DeriveMap]:
    """Register the decorated function `(input_ids, present) -> map` as a rule for encoders, see `PairMapRule`.

    Raises:
        ValueError: the name is taken, or there is no relation.
    """

    def add(derive: DeriveMap) -> DeriveMap:
        if name in (*OWN_RULES, GIVEN, NO_MAP) or relations < 1:
            raise ValueError(
                f"a pair map rule needs a name other than {', '.join((*OWN_RULES, GIVEN, NO_MAP))}, and at least one "
                f"relation, got {name!r} and {relations}"
            )
        holder = PAIR_MAP_RULES.get(name)
        check_free("pair map rule", name, derive, holder.derive if holder else None)
        PAIR_MAP_RULES[name] = PairMapRule(name, derive, relations)
        return derive

    return add


LISTED = 5
"""Less significant places in the list of the rule `"listed"`: no cascade in sums of up to 5 digits is longer."""


@pair_map_rule("listed", relations=2 * (LISTED + 1))
def listed(input_ids: Tensor, present: Tensor) -> Tensor:
    """Relate a token to the places of one list, the same list for every token (paper 2, App. E).

    In fields of l digits, a digit of a sum depends on its place and on the less significant places of both numbers. As
    differences of places these are -5 to 0 in the number of the query, and l + 1 - 5 to l + 1 in the number before it. The
    list ends after `LISTED` places, so it holds what decides the digit if no cascade of carries is longer.

        tokens   _ _ _ _ 1 2 + _ _ _ _ 9 5

        query \\ key   _ _ _ _ 1 2 + _ _ _ _ 9 5
              5        . . . . . 6 7 8 9 a b . 0
              9        . . . . 6 7 8 9 a b . 0 1

    Here a and b are 10 and 11, and only two queries are shown.

    Args:
        input_ids: (batch, tokens).
        present: (batch, tokens), False for padding.

    Returns:
        (batch, tokens, tokens): 0 to 5 for places from the query on, 6 to 11 from the same place of the number before on.

    Raises:
        ValueError: a row is not two numbers with an operator between them.
    """
    indices = virtual_indices(input_ids)
    after = indices.unsqueeze(1) - indices.unsqueeze(2)
    across = after + operator_index(input_ids, indices).unsqueeze(2)
    relations = torch.where((across >= 0) & (across <= LISTED), LISTED + 1 + across, NOT_RELATED)
    # In fields as narrow as the list, a place may be in both halves.
    relations = torch.where((after >= 0) & (after <= LISTED), after, relations)
    is_numeric = present & (indices > 0)
    return relations.masked_fill(~(is_numeric.unsqueeze(1) & is_numeric.unsqueeze(2)), NOT_RELATED)


def num_relations(name: str, relation_range: Sequence[int], max_multiplier_length: int) -> int:
    """Return the number of distinct values of the maps of a rule by ids or in a grid, without `NOT_RELATED`."""
    if name == GRID:
        return GRID_RELATIONS
    return relation_range[1] - relation_range[0] + 1 + max_multiplier_length * (name in UNIFORM)


def derive_pair_map(
    name: str,
    input_ids: Tensor,
    indices: Tensor,
    relation_range: Sequence[int],
    windowed: bool,
    max_multiplier_length: int,
    with_self: bool = True,
) -> Tensor:
    """Return the map (rows, tokens, tokens) of a rule by ids; one row if all examples have the same layout.

    Args:
        name: one of `RULE_IDS`.
        input_ids: (batch, tokens).
        indices: virtual indices (batch, tokens).
        relation_range: smallest and largest distinct difference of ids.
        windowed: whether pairs outside the range are not related.
        max_multiplier_length: largest number of digits of a multiplier, for `uniform`.
        with_self: for `uniform`, see `with_uniform_keys`.

    Raises:
        ValueError: a row is not two numbers with an operator between them (for rules other than `relative`), or its
            multiplier is too long.
    """
    operator = input_ids.masked_fill((input_ids != PLUS) & (input_ids != TIMES), 0)
    if (indices == indices[:1]).all() and (operator == operator[:1]).all():
        input_ids, indices = input_ids[:1], indices[:1]
    ids = RULE_IDS[name](input_ids, indices)
    return relate_ids(name, ids, input_ids, relation_range, windowed, max_multiplier_length, with_self)


def relate_ids(
    name: str,
    ids: Tensor,
    input_ids: Tensor,
    relation_range: Sequence[int],
    windowed: bool,
    max_multiplier_length: int,
    with_self: bool = True,
) -> Tensor:
    """Return the map (rows, tokens, tokens) of a rule by ids, from ids (rows, tokens), derived or given.

    Args:
        input_ids: (batch, tokens), which only `uniform` reads, for the multiplier.
    """
    relations = relative_relations(ids, relation_range, windowed)
    if name not in UNIFORM:
        return relations
    first, indices = num_relations(name, relation_range, 0), virtual_indices(input_ids)
    if name == "multiply":
        # A sum has no multiplier.
        is_product = (input_ids == TIMES).any(1)
        if is_product.any():
            relations = relations.expand(len(input_ids), -1, -1).clone()
            of_products = (relations[is_product], input_ids[is_product], indices[is_product])
            relations[is_product] = with_uniform_keys(*of_products, first, max_multiplier_length, with_self)
        return relations
    return with_uniform_keys(relations, input_ids, indices, first, max_multiplier_length, with_self)


def number_tokens(present: Tensor | None, tokens: int, device: torch.device) -> Tensor:
    """Number tokens from 1 on, (batch or 1, tokens), 0 for padding; one row if nothing is padding or all rows agree.

    Args:
        present: (batch, tokens), False for padding; None if there is none.
    """
    if present is None:
        return torch.arange(1, tokens + 1, device=device).unsqueeze(0)
    if reads_values(present) and (present == present[:1]).all():
        present = present[:1]
    return present.cumsum(1).masked_fill(~present, 0)
