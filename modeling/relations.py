"""Who sees whom: relations between tokens, the keys under a window, and attention that computes each neighbourhood once.

A relation of two tokens is the tuple of their ids' clipped differences, level by level. Under a window, the output of a
layer at a token depends only on its neighbourhood: its own input, and the inputs and relations of the few keys that it sees,
in any order. Tokens with equal neighbourhoods share one row of the layer's output, so the cost is linear in the number of
tokens.

`coupled_pair_map` computes the map of all pairs; `coupled_neighbours` finds only the few keys that a window leaves.

A window has one of two forms. A range holds the smallest and the largest distinct difference of ids, query minus key: two
integers for all levels, or two for each level in turn. A list of relations names every relation that a query sees. Each is
a tuple with one entry per level: a difference of ids, `ONLY_KEY`, `ONLY_QUERY` or `NEITHER`.
"""

# Used by: modeling, data, data/machines, data/proofs, data/proofs/windows, data/tasks, hub_cards/checkpoints,
# hub_cards/publishing, hub_cards/research/structured. Bound by: the digest of the code that travels with a checkpoint: run
# .ci/code.

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import isqrt, prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

MOST_NUMBERS = 2**63
"""So many numbers, from 0 on, are those of int64."""


def fits_in_one_number(sizes: Sequence[int]) -> bool:
    """Return whether columns of numbers below these sizes pack without a collision: their product is at most 2**63."""
    return prod(sizes) <= MOST_NUMBERS


def pack(columns: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """Write each row of integers as one number. Numbers are equal if and only if their rows are, and sort like the rows.

    The numbers are mixed-radix, with the first column as the most significant digit. If they would overflow, the numbers of
    the columns so far are replaced by their ranks. Ranks keep equality and order within one call, but numbers of two calls
    are comparable only if `fits_in_one_number(sizes)`.

    Args:
        columns: tensors of one shape; every value is 0 or above.
        sizes: for every column, a number that its values are below.

    Returns:
        A tensor of the columns' shape.

    Raises:
        ValueError: the numbers do not fit into 64 bits even with ranks.
    """
    packed, size = columns[0], sizes[0]
    fits = prod(sizes) <= MOST_NUMBERS
    for column, column_size in zip(columns[1:], sizes[1:], strict=True):
        if not fits and not fits_in_one_number((size, column_size)):
            distinct, packed = packed.unique(return_inverse=True)
            size = len(distinct)
            if not fits_in_one_number((size, column_size)):
                raise ValueError(f"{size} different rows and values below {column_size} do not fit into 64 bits together")
        packed, size = packed * column_size + column, size * column_size
    return packed


def distinct_rows(columns: Sequence[Tensor], sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Find the different rows of integers.

    Args:
        columns: as for `pack`.
        sizes: as for `pack`.

    Returns:
        `(example, index)`: `example` (distinct,) is the place of one such row in the flattened columns, in increasing order
        of the rows; `index`, of the columns' shape, says which of the distinct rows each row equals.

    Raises:
        ValueError: as `pack`.
    """
    packed = pack(columns, sizes)
    if prod(sizes) <= packed.numel():
        # There are few possible rows, so that no sorting is needed.
        present = torch.bincount(packed.flatten(), minlength=1) > 0
        distinct, index = present.nonzero().squeeze(1), (present.cumsum(0) - 1)[packed]
    else:
        distinct, index = packed.unique(return_inverse=True)
    places = torch.arange(index.numel(), device=index.device)
    return torch.empty_like(distinct).scatter_(0, index.flatten(), places), index


NOT_RELATED = -1
"""Value of a pair map for a key that the query must not attend to."""


def hiding_bias(dtype: torch.dtype) -> float:
    """Return the bias that hides a key: half of the lowest number of a type, so that a score plus it is finite.

    With the lowest number itself, a query whose keys are all hidden would have scores of -inf and weights of nan, which
    spoil every query that reads it with weight 0.
    """
    return torch.finfo(dtype).min / 2


def as_scores(bias: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what is added to scores in the type of the scores.

    What is below `hiding_bias` there becomes that. What hides a key in a wider type would be -inf, in bfloat16 too.
    """
    if torch.finfo(dtype).min > torch.finfo(bias.dtype).min:
        bias = bias.clamp(min=hiding_bias(dtype))
    return bias.to(dtype)


FAVOUR = 6.0
"""Initial bias that a head adds to the scores of the relation that it favours."""

LARGEST_ID = 2**31 - 1
"""Relations are computed in int32."""

FEW_PAIRS = 2**15
"""Pairs of which `coupled_neighbours` makes a map, rather than to sort."""

MOST_TOKENS = isqrt(2**63)
"""Tokens of one row for `coupled_neighbours`, which numbers pairs of two tokens in 63 bits."""

ONLY_KEY, ONLY_QUERY, NEITHER = "only key", "only query", "neither"
"""Entries of a relation for a level at which only one token, or neither, has an id."""

Relation = tuple[int | str, ...]
Window = Sequence[Any]
"""A range, of integers, or a list of `Relation`, see above."""


def is_listed(window: Window) -> bool:
    """Return whether a window is a list of relations, not a range."""
    return not isinstance(window[0], int)


def level_ranges(relation_range: Sequence[int], levels: int) -> list[tuple[int, int]]:
    """Return the smallest and the largest difference of each level."""
    pairs = list(zip(relation_range[::2], relation_range[1::2], strict=True))
    return pairs * levels if len(pairs) == 1 else pairs


def num_coupled_relations(window: Window, levels: int = 1) -> int:
    """Return the number of distinct values of `coupled_pair_map`, without `NOT_RELATED`.

    For a range it is the product of (differences + 3) over levels. For a list it is its length plus one, for keys without
    any id.
    """
    if is_listed(window):
        return len(window) + 1
    return prod(high - low + 4 for low, high in level_ranges(window, levels))


def coupled_pair_map(query_ids: Tensor, key_ids: Tensor, window: Window, windowed: bool) -> Tensor:
    """Return the relation of every query and key: the difference of their coupled ids, query minus key, at every level.

    With the range (0, 1), a token of `addition` distinguishes the column with its own id (0) from the next more significant
    column (1). Ids 5 and 4 as queries, ids 0 and 4 to 6 as keys:

        query \\ key    0   4   5   6
              5         B   1   0   .        B  key has no id: BOS
              4         B   0   .   .        .  outside the range

    A level at which only the key, only the query, or neither has an id has three further values for these cases. With a
    list of relations, the value is the place of the relation in the list, or the length of the list for a key that has no
    id at any level. Cost and memory grow with query length times key length.

    Args:
        query_ids: (batch or 1, query length) or (batch or 1, levels, query length); 0 means "no id".
        key_ids: the same for keys.
        window: a range or a list of relations, see above.
        windowed: if False, differences are clipped to the range. If True, a key gets `NOT_RELATED` if its difference is
            outside the range at any level that both tokens have, or if they share no level; a key without any id is always
            related. A list of relations needs True.

    Returns:
        (batch or 1, query length, key length) int32.
    """
    query_ids, key_ids = (with_levels(ids).to(torch.int32) for ids in (query_ids, key_ids))
    query_ids, key_ids = query_ids.unsqueeze(-1), key_ids.unsqueeze(-2)
    if is_listed(window):
        return _listed_relations(query_ids, key_ids, window)
    return _relations(query_ids, key_ids, level_ranges(window, query_ids.shape[1]), windowed)


def with_levels(ids: Tensor) -> Tensor:
    """Return ids (batch or 1, levels, tokens), of one level if they are given as (batch or 1, tokens)."""
    return ids.unsqueeze(1) if ids.ndim == 2 else ids


def _relations(query_ids, key_ids, ranges, windowed: bool) -> Tensor:
    """Return the relations for a range; ids (batch, levels, ...) of queries and keys broadcast to pairs."""
    combined, any_shared, any_outside = query_ids.new_zeros(()), False, False
    for level, (low, high) in enumerate(ranges):
        difference = query_ids[:, level] - key_ids[:, level]
        query_none, key_none = query_ids[:, level] == 0, key_ids[:, level] == 0
        width = high - low + 1
        relation = difference.clamp(low, high) - low
        relation = relation.masked_fill(key_none, width).masked_fill(query_none, width + 1)
        relation = relation.masked_fill(query_none & key_none, width + 2)
        combined = combined * (width + 3) + relation
        shared = ~(query_none | key_none)
        any_shared = any_shared | shared
        any_outside = any_outside | (shared & ((difference < low) | (difference > high)))
    if windowed:
        related = (any_shared & ~any_outside) | (key_ids == 0).all(1)
        combined = combined.masked_fill(~related, NOT_RELATED)
    return combined


def _listed_relations(query_ids, key_ids, relations: Sequence[Relation]) -> Tensor:
    """Return the relations for a list; ids (batch, levels, ...) of queries and keys broadcast to pairs."""
    difference, query_none, key_none = query_ids - key_ids, query_ids == 0, key_ids == 0
    entries = {ONLY_KEY: query_none & ~key_none, ONLY_QUERY: key_none & ~query_none, NEITHER: query_none & key_none}
    shared = ~(query_none | key_none)
    combined = torch.full(difference[:, 0].shape, NOT_RELATED, dtype=torch.int32, device=difference.device)
    for place, relation in enumerate(relations):
        holds = torch.ones_like(combined, dtype=torch.bool)
        for level, entry in enumerate(relation):
            if isinstance(entry, str):
                holds &= entries[entry][:, level]
            else:
                holds &= shared[:, level] & (difference[:, level] == entry)
        combined.masked_fill_(holds, place)
    return combined.masked_fill(key_none.all(1), len(relations))


class Neighbours(NamedTuple):
    """The keys that each query may attend to. They replace a pair map of all pairs.

    Attributes:
        columns: (batch or 1, queries, most neighbours) int64, columns of keys in increasing order, filled up with -1.
        relations: (batch or 1, queries, most neighbours) int32, `NOT_RELATED` for the columns -1.
    """

    columns: Tensor
    relations: Tensor

    def select(self, queries: slice | Tensor) -> "Neighbours":
        """Keep only the given queries."""
        return Neighbours(self.columns[:, queries], self.relations[:, queries])


class Step(NamedTuple):
    """What a step of decoding, or a further pass of parallel decoding, reads of a plan, which generation has checked.

    Attributes:
        position_ids: of all tokens so far, (batch or 1, levels, tokens), if the encoding reads them in a step; of a pass,
            those of its tokens.
        attention_mask: (batch, tokens), 0 for padding; None if nothing is padding.
        neighbours: those of the new token, under a window.
        seen: for each layer, the arguments by which it attends to these neighbours; None if they were not found before.
        columns: (neighbours,) of these neighbours, 0 for a missing one, where a row of states stands for each example and
            `seen` has no axis of tokens; else None.
        kept: (tokens,) of a pass, the tokens whose states are wanted; None in a step.
    """

    position_ids: Tensor | None = None
    attention_mask: Tensor | None = None
    neighbours: Neighbours | None = None
    seen: list[dict[str, Any]] | None = None
    columns: Tensor | None = None
    kept: Tensor | None = None


def coupled_neighbours(
    query_ids: Tensor, key_ids: Tensor, query_columns: Tensor, window: Window, present: Tensor | None = None
) -> Neighbours:
    """Find the pairs that `coupled_pair_map` relates under a window and that causality allows, by sorting keys by id.

    Apart from the sort, cost and memory are linear in (queries + keys) times the neighbours of one query. Up to `FEW_PAIRS`,
    it is faster to make the map.

    Args:
        query_ids: (batch or 1, levels, queries); 0 means "no id".
        key_ids: (batch or 1, levels, keys), with as many rows as `query_ids`.
        query_columns: (queries,) the column of every query among the keys; later keys are not neighbours.
        window: a range or a list of relations, see above.
        present: (batch or 1, keys), with as many rows as ids; False for padding, which is never a neighbour.

    Raises:
        ValueError: an id exceeds `largest_neighbour_id`, or the number of pairs of two tokens exceeds 63 bits.
    """
    rows, levels, keys = key_ids.shape
    queries = query_ids.shape[-1]
    if not fits_in_one_number((rows * queries, rows * keys)):
        raise ValueError(f"a batch of {rows} rows with {keys} tokens is too large: {MOST_TOKENS} tokens fit in all")
    largest = _find_largest_id(query_ids, key_ids, rows, window)
    if rows * queries * keys <= FEW_PAIRS:
        return mapped_neighbours(coupled_pair_map(query_ids, key_ids, window, windowed=True), query_columns, present)
    # A token's index is row * columns + column; ids are (tokens, levels).
    key_ids, query_ids = key_ids.transpose(1, 2).reshape(-1, levels), query_ids.transpose(1, 2).reshape(-1, levels)
    row = torch.arange(rows, device=key_ids.device)
    key_row, query_row = row.repeat_interleave(keys), row.repeat_interleave(queries)
    number = _numbering(rows, levels, largest, window)
    usable = torch.ones_like(key_row, dtype=torch.bool) if present is None else present.reshape(-1)

    # A column and its relation are one number, so that both are sorted at once.
    bits, first = num_coupled_relations(window, levels).bit_length(), query_row * keys
    last = first + query_columns.repeat(rows)
    count, found = torch.zeros_like(query_row), []
    for query, key, relation in _matches(query_ids, key_ids, query_row, key_row, usable, last, window, number):
        found.append((query, count[query], (key - first[query] << bits) + relation))
        count[query] += 1
    most = int(count.max()) if len(count) else 0
    code = count.new_full((rows * queries, most), torch.iinfo(count.dtype).max)
    for query, slot, pair in found:
        code[query, slot] = pair
    code = code.sort(dim=1).values
    filled = torch.arange(most, device=code.device) < count.unsqueeze(1)
    columns = torch.where(filled, code >> bits, -1)
    relations = torch.where(filled, code & (1 << bits) - 1, NOT_RELATED).to(torch.int32)
    return Neighbours(columns.unflatten(0, (rows, queries)), relations.unflatten(0, (rows, queries)))


def mapped_neighbours(pair_map: Tensor, query_columns: Tensor, present: Tensor | None = None) -> Neighbours:
    """Return the neighbours of queries by a given map: the related keys that causality allows.

    Args:
        pair_map: (batch or 1, queries, keys), -1 for keys that are not related.
        query_columns: (queries,) the column of every query among the keys; later keys are not neighbours.
        present: (batch, keys), False for padding, which is never a neighbour.
    """
    keys = pair_map.shape[-1]
    column = torch.arange(keys, device=pair_map.device)
    seen = (pair_map >= 0) & (column <= query_columns.unsqueeze(1))
    if present is not None:
        seen = seen & present.unsqueeze(1)
    most = int(seen.sum(-1).max()) if seen.numel() else 0
    columns = column.where(seen, keys).topk(most, largest=False).values
    filled = columns < keys
    relations = pair_map.expand_as(seen).gather(-1, columns.clamp(max=keys - 1))
    return Neighbours(columns.where(filled, -1), relations.where(filled, NOT_RELATED).to(torch.int32))


def _matches(
    query_ids, key_ids, query_row, key_row, usable, last_key, window: Window, number: Callable[..., Tensor]
) -> Iterator[tuple[Tensor, Tensor, int]]:
    """Yield pairs (query index, key index) within the window and their relation; every pair once, a query once at a time.

    The kind of a token is the set of levels at which it has an id: only levels that both tokens have are compared.

    Args:
        last_key: (queries,) index of the last key that a query may see.
        number: see `_numbering`.
    """
    levels = key_ids.shape[1]
    bit = 1 << torch.arange(levels, device=key_ids.device)
    query_kinds, key_kinds = ((query_ids > 0) * bit).sum(1), ((key_ids > 0) * bit).sum(1)
    for key_kind in torch.bincount(key_kinds[usable]).nonzero().flatten().tolist():
        keys = (usable & (key_kinds == key_kind)).nonzero().squeeze(1)
        for query_kind in torch.bincount(query_kinds).nonzero().flatten().tolist():
            queries = (query_kinds == query_kind).nonzero().squeeze(1)
            shared = [level for level in range(levels) if key_kind & query_kind & 1 << level]
            wanted_differences = _differences(key_kind, query_kind, shared, levels, window)
            if not wanted_differences:
                continue
            # Keys of one number stand in the order of their columns; after the last key comes a number of none.
            numbers, order = number(key_row[keys], key_ids[keys][:, shared], (0,) * len(shared)).sort(stable=True)
            numbers, ordered = nn.functional.pad(numbers, (0, 1), value=-1), nn.functional.pad(keys[order], (0, 1))
            for differences in wanted_differences:
                query, relation = queries, None
                wanted = number(query_row[query], query_ids[query][:, shared], differences)
                place = torch.searchsorted(numbers[:-1], wanted)
                while True:
                    key = ordered[place]
                    seen = (numbers[place] == wanted) & (key <= last_key[query])
                    if not seen.all():
                        query, key, place, wanted = query[seen], key[seen], place[seen], wanted[seen]
                    if not len(query):
                        break
                    if relation is None:
                        pair = (query_ids[query[:1]].unsqueeze(-1), key_ids[key[:1]].unsqueeze(-1))
                        relation = int(coupled_pair_map(*pair, window, windowed=True))
                    yield query, key, relation
                    place = place + 1


def largest_neighbour_id(window: Window, levels: int, rows: int = 1) -> int:
    """Return the largest id that `coupled_neighbours` takes: keys are numbered by row and ids, in 63 bits."""
    limit = 2**63 // rows
    if is_listed(window):
        # A level at which neither of two tokens has an id takes no part in their number.
        levels = max(sum(entry != NEITHER for entry in relation) for relation in window)
    base = round(limit ** (1 / levels))
    while base**levels > limit:
        base -= 1
    return min(LARGEST_ID, base - sum(_reach(window)) - 1)


def _reach(window: Window) -> tuple[int, int]:
    """Return how far the differences that a window names reach above 0 and below 0."""
    named = [entry for relation in window for entry in relation if isinstance(entry, int)] if is_listed(window) else window
    return max([0, *named]), max([0, *(-entry for entry in named)])


def _find_largest_id(query_ids, key_ids, rows: int, window: Window) -> int:
    """Return the largest id of tokens (..., levels, ...); raise ValueError if it exceeds `largest_neighbour_id`."""
    levels = key_ids.shape[1]
    largest, limit = int(max(key_ids.max(), query_ids.max())), largest_neighbour_id(window, levels, rows)
    if largest > limit:
        raise ValueError(
            f"position ids on {levels} level(s) must be at most {limit} in a batch of {rows} row(s), got {largest}"
        )
    return largest


def _numbering(rows: int, levels: int, largest: int, window: Window) -> Callable[..., Tensor]:
    """Return `(row, ids, differences) -> number`; a key has the number of every query that exceeds its ids by these.

    Args:
        largest: the largest id of a query or a key.
    """
    shift, margin = _reach(window)
    sizes = [rows, *[largest + shift + margin + 1] * levels]

    def number(row: Tensor, ids: Tensor, differences: tuple[int, ...]) -> Tensor:
        moved = [level - difference + shift for level, difference in zip(ids.unbind(1), differences, strict=True)]
        return pack([row, *moved], sizes[: len(moved) + 1])

    return number


def _differences(key_kind: int, query_kind: int, shared: list[int], levels: int, window: Window) -> list[tuple[int, ...]]:
    """Return the differences at the shared levels at which a query of one kind sees keys of another; [()] means always."""
    if key_kind == 0:
        return [()]
    if not is_listed(window):
        ranges = level_ranges(window, levels)
        options = [range(ranges[level][0], ranges[level][1] + 1) for level in shared]
        return list(product(*options)) if shared else []
    found = []
    for relation in window:
        has_id = [{ONLY_KEY: (1, 0), ONLY_QUERY: (0, 1), NEITHER: (0, 0)}.get(entry, (1, 1)) for entry in relation]
        if all((key_kind >> level & 1, query_kind >> level & 1) == both for level, both in enumerate(has_id)):
            found.append(tuple(relation[level] for level in shared))
    return found


CHUNK = 2**16
"""Number of queries whose keys and values are gathered at a time, which bounds the memory and changes no result."""


class Neighbourhoods(NamedTuple):
    """The distinct neighbourhoods of a batch, in terms of rows of a layer's input.

    Attributes:
        queries: (distinct,) row of the token itself.
        keys: (distinct, most neighbours) rows of the keys in canonical order, filled up with 0.
        relations: (distinct, most neighbours) int32, filled up with `NOT_RELATED`.
        index: (batch, queries) the neighbourhood of each token.
    """

    queries: Tensor
    keys: Tensor
    relations: Tensor
    index: Tensor  # type: ignore[assignment]  # a tuple has a method of this name


def distinct_neighbourhoods(row_index: Tensor, queries: slice | Tensor, neighbours: Neighbours) -> Neighbourhoods:
    """Find the distinct neighbourhoods of the tokens in the columns `queries`; the order of the keys does not count.

    The cost is the cost of sorting (queries times neighbours) numbers.

    Args:
        row_index: (batch, tokens) the row of every token in the layer's input.
        neighbours: the neighbours of these queries, for each row of the batch or one row for all.
    """
    query_rows = row_index[:, queries]
    columns = neighbours.columns.clamp(min=0)
    examples = len(row_index)
    rows = row_index.gather(1, columns.flatten(1).expand(examples, -1)).view(examples, *columns.shape[1:])
    # A key's row and relation as one number above 0; 0 fills up.
    relations = int(neighbours.relations.max()) + 1 if neighbours.relations.numel() else 1
    num_rows = int(row_index.max()) + 1
    code = torch.where(neighbours.columns < 0, 0, rows * relations + neighbours.relations + 1)
    code = code.flatten(0, 1).sort(dim=1, descending=True).values
    example, index = distinct_rows(
        [query_rows.flatten(), *code.unbind(1)], [num_rows, *[num_rows * relations + 1] * code.shape[1]]
    )
    code = code[example]
    return Neighbourhoods(
        queries=query_rows.flatten()[example],
        keys=(code - 1).clamp(min=0) // relations,
        relations=torch.where(code > 0, (code - 1) % relations, NOT_RELATED).to(torch.int32),
        index=index.view(query_rows.shape),
    )


def expand_rows(rows: Tensor, row_index: Tensor) -> Tensor:
    """Return the rows (rows, ..., width) at an index of any shape: (*index.shape, ..., width)."""
    return nn.functional.embedding(row_index, rows.flatten(1)).unflatten(-1, rows.shape[1:])


def attend_to_rows(query: Tensor, key: Tensor, value: Tensor, keys: Tensor, bias: Tensor, scaling: float) -> Tensor:
    """Attend from every query to a few rows of keys.

    Args:
        query: (queries, heads, head_dim).
        key, value: (rows, heads, head_dim).
        keys: (queries, neighbours) rows.
        bias: (queries, neighbours, heads), `hiding_bias` for missing neighbours.
        scaling: factor of the scores.

    Returns:
        (queries, heads, head_dim).
    """

    def gather(chunk: slice) -> tuple[Tensor, Tensor]:
        return expand_rows(key, keys[chunk]), expand_rows(value, keys[chunk])

    return _attend_to_gathered(query, gather, bias, scaling)


def _attend_to_gathered(
    query: Tensor, gather: Callable[[slice], tuple[Tensor, Tensor]], bias: Tensor, scaling: float
) -> Tensor:
    """Attend as `attend_to_rows`, `CHUNK` queries at a time; scores and their softmax are computed in float32 or better.

    Args:
        gather: returns the keys and values of a range of queries, (queries, neighbours, heads, head_dim) each.
    """
    outputs = []
    for begin in range(0, len(query), CHUNK):
        chunk = slice(begin, begin + CHUNK)
        outputs.append(_attend(query[chunk], *gather(chunk), bias[chunk], scaling))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, scaling: float) -> Tensor:
    """Attend from queries (queries, heads, head_dim) to keys and values (queries, neighbours, heads, head_dim)."""
    precise = torch.promote_types(query.dtype, torch.float32)
    scores = (query.unsqueeze(1) * key).sum(-1, dtype=precise) * scaling + bias
    weights = nn.functional.softmax(scores, dim=1).to(value.dtype)
    return (weights.unsqueeze(-1) * value).sum(1)


def attend_to_columns(query: Tensor, key: Tensor, value: Tensor, columns: Tensor, bias: Tensor, scaling: float) -> Tensor:
    """Attend from every query to the keys in a few columns of its example.

    Args:
        query: (batch, heads, queries, head_dim).
        key, value: (batch, heads, keys, head_dim).
        columns: (batch or 1, queries, neighbours).
        bias: (batch or 1, queries, neighbours, heads), `hiding_bias` for missing neighbours.
        scaling: factor of the scores.

    Returns:
        (batch, queries, heads, head_dim).
    """
    batch, _, queries, _ = query.shape
    if queries == 1 and len(columns) == 1:
        return attend_to_same_columns(query.squeeze(2), key, value, columns[0, 0], bias[:, 0], scaling).unsqueeze(1)
    columns = columns.expand(batch, -1, -1).flatten(0, 1)
    bias = bias.expand(batch, -1, -1, -1).flatten(0, 1)
    example = torch.arange(batch, device=query.device).repeat_interleave(queries).unsqueeze(1)
    key, value = key.transpose(1, 2), value.transpose(1, 2)

    def gather(chunk: slice) -> tuple[Tensor, Tensor]:
        return key[example[chunk], columns[chunk]], value[example[chunk], columns[chunk]]

    return _attend_to_gathered(query.transpose(1, 2).flatten(0, 1), gather, bias, scaling).unflatten(0, (batch, queries))


def attend_to_same_columns(
    query: Tensor, key: Tensor, value: Tensor, columns: Tensor, bias: Tensor, scaling: float
) -> Tensor:
    """Attend from one query of each example to the keys in the same few columns, as examples of one layout do.

    Args:
        query: (batch, heads, head_dim).
        key, value: (batch, heads, keys, head_dim).
        columns: (neighbours,).
        bias: (1, neighbours, heads), `hiding_bias` for missing neighbours.
        scaling: factor of the scores.

    Returns:
        (batch, heads, head_dim).
    """
    key, value = (states.index_select(2, columns).transpose(1, 2) for states in (key, value))
    return _attend(query, key, value, bias, scaling)
