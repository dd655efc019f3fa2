"""Pair maps: position ids turned into one integer per (query token, key token), the relation between the two.

`coupled_pair_map` writes the map out for all pairs; `coupled_neighbours` finds the few keys that a window leaves.
"""

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import torch

NOT_RELATED = -1
"""The value of a pair map where the query must not attend to the key."""


def num_coupled_relations(relation_range: tuple[int, int], levels: int = 1) -> int:
    """Distinct values that `coupled_pair_map` can give, `NOT_RELATED` apart: (differences + 3) to the power of levels."""
    low, high = relation_range
    return (high - low + 4) ** levels


def coupled_pair_map(
    query_ids: torch.LongTensor, key_ids: torch.LongTensor, relation_range: tuple[int, int], windowed: bool
) -> torch.IntTensor:
    """The difference of two tokens' coupled ids, query minus key, at every level.

    With `relation_range` (0, 1) a token of `addition` tells apart the column with its own id (0) and the next more
    significant one (1). Ids 5 and 4 against ids 4 to 6:

        query \\ key    0   4   5   6
              5         B   1   0   .        B  key has no id: BOS
              4         B   0   .   .        .  outside the range

    A level where only the key has no id, only the query has none, or neither has, counts as three further values.
    Cost and memory grow with query length times key length.

    Args:
        query_ids: (batch or 1, query length) or (batch or 1, levels, query length); 0 is "no id".
        key_ids: the same for keys.
        relation_range: smallest and largest difference, in ids, that are told apart.
        windowed: where True, a key outside the range at any level that both have, or sharing no level with the query,
            gets `NOT_RELATED`, unless it has no id at all; where False, differences are clipped to the range.

    Returns:
        (batch or 1, query length, key length) int32.
    """
    query_ids, key_ids = _with_levels(query_ids), _with_levels(key_ids)
    return _relations(query_ids.unsqueeze(-1), key_ids.unsqueeze(-2), relation_range, windowed)


def _with_levels(ids: torch.LongTensor) -> torch.LongTensor:
    return ids.unsqueeze(1) if ids.ndim == 2 else ids


def _relations(query_ids, key_ids, relation_range, windowed) -> torch.IntTensor:
    """The relation of every pair that ids of (batch, levels, ...) broadcast to."""
    low, high = relation_range
    query_ids, key_ids = query_ids.to(torch.int32), key_ids.to(torch.int32)
    difference = query_ids - key_ids
    query_none, key_none = query_ids == 0, key_ids == 0
    relation = difference.clamp(low, high) - low
    width = high - low + 1
    relation = relation.masked_fill(key_none, width).masked_fill(query_none, width + 1)
    relation = relation.masked_fill(query_none & key_none, width + 2)

    levels = relation.shape[1]
    combined = relation[:, 0]
    for level in range(1, levels):
        combined = combined * (width + 3) + relation[:, level]
    if windowed:
        shared = ~(query_none | key_none)
        outside = (shared & ((difference < low) | (difference > high))).any(1)
        related = (shared.any(1) & ~outside) | key_none.all(1)
        combined = combined.masked_fill(~related, NOT_RELATED)
    return combined


class Neighbours(NamedTuple):
    """The keys that each query may attend to, in place of a pair map of all pairs.

    Attributes:
        columns: (batch or 1, queries, most neighbours) int64, columns of keys in increasing order; -1 fills up.
        relations: (batch or 1, queries, most neighbours) int32, `NOT_RELATED` where `columns` is -1.
    """

    columns: torch.LongTensor
    relations: torch.IntTensor

    def select(self, queries: slice | torch.LongTensor) -> "Neighbours":
        """Those of some of the queries."""
        return Neighbours(self.columns[:, queries], self.relations[:, queries])


def coupled_neighbours(
    query_ids: torch.LongTensor,
    key_ids: torch.LongTensor,
    query_columns: torch.LongTensor,
    relation_range: tuple[int, int],
    present: torch.BoolTensor | None = None,
) -> Neighbours:
    """What `coupled_pair_map` with `windowed` relates and causality allows, found by sorting the keys by their ids.

    Cost and memory are linear in queries plus keys (but for the sort) times the neighbours of one query.

    Args:
        query_ids: (batch or 1, levels, queries); 0 is "no id".
        key_ids: (batch or 1, levels, keys), as many rows.
        query_columns: (queries,) the column of every query among the keys; later keys are no neighbours.
        relation_range: smallest and largest difference of ids, query minus key.
        present: (batch or 1, keys), as many rows as ids; False at padding, which is nobody's neighbour.

    Raises:
        ValueError: rows times ids to the power of levels, which number the keys, exceed 63 bits.
    """
    rows, levels, keys = key_ids.shape
    queries = query_ids.shape[-1]
    # Row and column as one number; (tokens, levels) ids.
    key_ids, query_ids = key_ids.transpose(1, 2).reshape(-1, levels), query_ids.transpose(1, 2).reshape(-1, levels)
    row = torch.arange(rows, device=key_ids.device)
    key_row, query_row = row.repeat_interleave(keys), row.repeat_interleave(queries)
    usable = torch.ones_like(key_row, dtype=torch.bool) if present is None else present.reshape(-1)

    found = [(row[:0], row[:0]), *_matches(query_ids, key_ids, query_row, key_row, usable, relation_range)]
    query, key = (torch.cat(part) for part in zip(*found, strict=True))
    causal = key % keys <= query_columns[query % queries]
    query, key = query[causal], key[causal]
    query, key = torch.stack([query, key])[:, torch.argsort(query * (rows * keys) + key)]
    counts = torch.bincount(query, minlength=rows * queries)
    slot = torch.arange(len(query), device=query.device) - (counts.cumsum(0) - counts)[query]
    most = int(counts.max()) if len(counts) else 0
    columns = key.new_full((rows * queries, most), -1)
    columns[query, slot] = key % keys
    relations = columns.new_full(columns.shape, NOT_RELATED, dtype=torch.int32)
    relations[query, slot] = _relations(query_ids[query], key_ids[key], relation_range, windowed=True)
    return Neighbours(columns.unflatten(0, (rows, queries)), relations.unflatten(0, (rows, queries)))


def _matches(query_ids, key_ids, query_row, key_row, usable, relation_range) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Pairs (query index, key index) within the window; every such pair once, one kind of token at a time.

    The kind of a token is the set of levels at which it has an id: only levels that both tokens have are compared.
    """
    low, high = relation_range
    levels = key_ids.shape[1]
    shift = max(high, 0)
    base = int(max(key_ids.max(), query_ids.max())) + shift + max(-low, 0) + 1
    if (int(key_row.max()) + 1) * base**levels >= 2**63:
        raise ValueError(
            f"a batch of {int(key_row.max()) + 1} rows with ids up to {base} on {levels} levels is too large: use fewer rows"
        )

    def code(row: torch.LongTensor, ids: torch.LongTensor, shared: list[int], differences: tuple[int, ...]):
        """Row and shared ids as one number, the same for a query and the keys that differ from it by so much."""
        for level, difference in zip(shared, differences, strict=True):
            row = row * base + (ids[:, level] - difference + shift)
        return row

    bit = 1 << torch.arange(levels, device=key_ids.device)
    query_kinds, key_kinds = ((query_ids > 0) * bit).sum(1), ((key_ids > 0) * bit).sum(1)
    for key_kind in key_kinds[usable].unique().tolist():
        keys = (usable & (key_kinds == key_kind)).nonzero().squeeze(1)
        for query_kind in query_kinds.unique().tolist():
            queries = (query_kinds == query_kind).nonzero().squeeze(1)
            shared = [level for level in range(levels) if key_kind & query_kind & 1 << level]
            if key_kind and not shared:
                continue
            codes, order = code(key_row[keys], key_ids[keys], shared, (0,) * len(shared)).sort()
            ordered = keys[order]
            for differences in product(range(low, high + 1), repeat=len(shared)):
                wanted = code(query_row[queries], query_ids[queries], shared, differences)
                first = torch.searchsorted(codes, wanted)
                count = torch.searchsorted(codes, wanted, right=True) - first
                place = torch.arange(int(count.sum()), device=keys.device)
                place += (first - count.cumsum(0) + count).repeat_interleave(count)
                yield queries.repeat_interleave(count), ordered[place]
