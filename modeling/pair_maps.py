"""Pair maps: position ids turned into one integer per (query token, key token), the relation between the two."""

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
    low, high = relation_range
    if query_ids.ndim == 2:
        query_ids, key_ids = query_ids.unsqueeze(1), key_ids.unsqueeze(1)
    query_ids, key_ids = query_ids.to(torch.int32).unsqueeze(-1), key_ids.to(torch.int32).unsqueeze(-2)
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
