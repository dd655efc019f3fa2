"""Attention under a window: each distinct neighbourhood is computed once, at a cost linear in the number of tokens.

Under a window, the output of a layer at a token depends only on its neighbourhood: its own input, and the inputs and
relations of the few keys that it sees, in any order. Tokens with equal neighbourhoods share one row of the layer's output.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .packing import distinct_rows
from .pair_maps import NOT_RELATED, Neighbours

CHUNK = 2**16
"""Number of queries whose keys and values are gathered at a time; it bounds the memory and changes no result."""

FEW_ROWS = 64
"""Largest number of distinct inputs for which attention looks scores up in a table of all pairs of inputs."""


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
    own = row_index[:, queries]
    columns = neighbours.columns.clamp(min=0)
    examples = len(row_index)
    rows = row_index.gather(1, columns.flatten(1).expand(examples, -1)).view(examples, *columns.shape[1:])
    # A key's row and relation as one number above 0; 0 fills up.
    relations = int(neighbours.relations.max()) + 1 if neighbours.relations.numel() else 1
    num_rows = int(row_index.max()) + 1
    code = torch.where(neighbours.columns < 0, 0, rows * relations + neighbours.relations + 1)
    code = code.flatten(0, 1).sort(dim=1, descending=True).values
    example, index = distinct_rows([own.flatten(), *code.unbind(1)], [num_rows, *[num_rows * relations + 1] * code.shape[1]])
    code = code[example]
    return Neighbourhoods(
        queries=own.flatten()[example],
        keys=(code - 1).clamp(min=0) // relations,
        relations=torch.where(code > 0, (code - 1) % relations, NOT_RELATED).to(torch.int32),
        index=index.view(own.shape),
    )


def expand_rows(rows: Tensor, row_index: Tensor) -> Tensor:
    """Return the rows (rows, ..., width) at an index of any shape: (*index.shape, ..., width)."""
    return nn.functional.embedding(row_index, rows.flatten(1)).unflatten(-1, rows.shape[1:])


def attend_to_rows(
    query: Tensor, key: Tensor, value: Tensor, neighbourhoods: Neighbourhoods, bias: Tensor, scaling: float | Tensor
) -> Tensor:
    """Attend in each distinct neighbourhood of rows.

    Args:
        query, key, value: (rows, heads, head_dim).
        bias: (distinct, neighbours, heads), the lowest value for missing neighbours.
        scaling: factor of the scores, a number or (distinct, 1, heads).

    Returns:
        (distinct, heads, head_dim).
    """
    if len(key) <= FEW_ROWS:
        return _attend_by_table(query, key, value, neighbourhoods, bias, scaling)

    def gather(queries: slice) -> tuple[Tensor, Tensor]:
        return expand_rows(key, neighbourhoods.keys[queries]), expand_rows(value, neighbourhoods.keys[queries])

    return _attend_to_gathered(expand_rows(query, neighbourhoods.queries), gather, bias, scaling)


def _weights(scores: Tensor, bias: Tensor, scaling: float | Tensor, chunk: slice) -> Tensor:
    """Return the softmax of scaled scores plus bias over neighbours, dimension 1, computed in float32 or better."""
    scores = scores * (scaling[chunk] if torch.is_tensor(scaling) else scaling) + bias
    precise = torch.promote_types(scores.dtype, torch.float32)
    return nn.functional.softmax(scores, dim=1, dtype=precise).to(scores.dtype)


def _attend_by_table(query, key, value, neighbourhoods, bias, scaling) -> Tensor:
    """Compute `attend_to_rows` for few distinct inputs, without a copy of states for each neighbour.

    Scores are looked up in a table of all pairs of rows. Weights are summed by row and then multiplied with the values.
    """
    rows, heads, _ = key.shape
    table = torch.einsum("qhd,khd->qkh", query, key).flatten(0, 1)
    outputs = []
    for begin in range(0, len(neighbourhoods.keys), CHUNK):
        chunk = slice(begin, begin + CHUNK)
        keys = neighbourhoods.keys[chunk]
        pairs = neighbourhoods.queries[chunk].unsqueeze(1) * rows + keys
        weights = _weights(nn.functional.embedding(pairs, table), bias[chunk], scaling, chunk)
        by_row = weights.new_zeros(len(keys), rows, heads)
        by_row = by_row.scatter_add(1, keys.unsqueeze(-1).expand_as(weights), weights)
        outputs.append(torch.einsum("nrh,rhd->nhd", by_row, value))
    return torch.cat(outputs)


def _attend_to_gathered(
    query: Tensor, gather: Callable[[slice], tuple[Tensor, Tensor]], bias: Tensor, scaling: float | Tensor
) -> Tensor:
    """Attend from every query to its own keys, `CHUNK` queries at a time.

    Args:
        query: (queries, heads, head_dim).
        gather: returns the keys and values of a range of queries, (queries, neighbours, heads, head_dim) each.
        bias: (queries, neighbours, heads), the lowest value for missing neighbours.
        scaling: factor of the scores, a number or (queries, 1, heads).

    Returns:
        (queries, heads, head_dim).
    """
    outputs = []
    for begin in range(0, len(query), CHUNK):
        chunk = slice(begin, begin + CHUNK)
        key, value = gather(chunk)
        weights = _weights((query[chunk].unsqueeze(1) * key).sum(-1), bias[chunk], scaling, chunk)
        outputs.append((weights.unsqueeze(-1) * value).sum(1))
    return torch.cat(outputs)


def attend_to_columns(query: Tensor, key: Tensor, value: Tensor, columns: Tensor, bias: Tensor, scaling: float) -> Tensor:
    """Attend from every query to the keys in a few columns of its example.

    Args:
        query: (batch, heads, queries, head_dim).
        key, value: (batch, heads, keys, head_dim).
        columns: (batch or 1, queries, neighbours).
        bias: (batch or 1, queries, neighbours, heads), the lowest value for missing neighbours.
        scaling: factor of the scores.

    Returns:
        (batch, queries, heads, head_dim).
    """
    batch, _, queries, _ = query.shape
    columns = columns.expand(batch, -1, -1).flatten(0, 1)
    bias = bias.expand(batch, -1, -1, -1).flatten(0, 1).to(query.dtype)
    example = torch.arange(batch, device=query.device).repeat_interleave(queries).unsqueeze(1)
    key, value = key.transpose(1, 2), value.transpose(1, 2)

    def gather(chunk: slice) -> tuple[Tensor, Tensor]:
        return key[example[chunk], columns[chunk]], value[example[chunk], columns[chunk]]

    return _attend_to_gathered(query.transpose(1, 2).flatten(0, 1), gather, bias, scaling).unflatten(0, (batch, queries))
