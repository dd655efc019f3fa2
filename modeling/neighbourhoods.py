"""Attention under a window: every different neighbourhood computed once, at a cost linear in the number of tokens.

Under a window the output of a layer at one token is a function of its neighbourhood alone: its own input, and the inputs and
relations of the few keys that it sees, in any order. Tokens of equal neighbourhoods share one row of the layer's output.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicLayer

from .pair_maps import NOT_RELATED, Neighbours

CHUNK = 2**16
"""Queries whose keys and values are gathered at a time: bounds the memory, not the result."""


FEW_ROWS = 64
"""Up to so many distinct inputs, attention to neighbours looks scores up in a table of all pairs of inputs."""


class Neighbourhoods(NamedTuple):
    """The different neighbourhoods of a batch, over rows of a layer's input.

    Attributes:
        queries: (distinct,) row of the token itself.
        keys: (distinct, most neighbours) rows of the keys in canonical order; 0 where there is none.
        relations: (distinct, most neighbours) int32, `NOT_RELATED` where there is none.
        index: (batch, queries) which neighbourhood each token has.
    """

    queries: torch.LongTensor
    keys: torch.LongTensor
    relations: torch.IntTensor
    index: torch.LongTensor


def distinct_neighbourhoods(
    row_index: torch.LongTensor, queries: slice | torch.LongTensor, neighbours: Neighbours
) -> Neighbourhoods:
    """The neighbourhoods of the tokens in the columns `queries`, equal ones once, whatever the order of their keys.

    Cost is that of sorting queries times neighbours.

    Args:
        row_index: (batch, tokens) row of every token in the layer's input.
        neighbours: of these queries, for the batch or one for all of it.
    """
    own = row_index[:, queries]
    columns = neighbours.columns.clamp(min=0)
    if len(columns) == 1:  # noqa: SIM108
        rows = row_index[:, columns[0]]
    else:
        rows = row_index.gather(1, columns.flatten(1)).view(columns.shape)
    relations = int(neighbours.relations.max()) + 1 if neighbours.relations.numel() else 1
    keys = int(row_index.max()) + 1
    code = torch.where(neighbours.columns < 0, 0, rows * relations + neighbours.relations + 1)
    code = code.flatten(0, 1).sort(dim=1, descending=True).values

    number, bound = own.flatten(), keys
    for column in code.unbind(1):
        if bound * (keys * relations + 1) >= 2**62:
            # Equal prefixes keep equal ranks, so the numbers of whole neighbourhoods stay exact however many keys they have.
            number = number.unique(return_inverse=True)[1]
            bound = int(number.max()) + 1
        number = number * (keys * relations + 1) + column
        bound *= keys * relations + 1
    distinct, index = number.unique(return_inverse=True)
    example = torch.empty_like(distinct).scatter_(0, index, torch.arange(len(index), device=index.device))
    code = code[example]
    return Neighbourhoods(
        queries=own.flatten()[example],
        keys=(code - 1).clamp(min=0) // relations,
        relations=torch.where(code > 0, (code - 1) % relations, NOT_RELATED).to(torch.int32),
        index=index.view(own.shape),
    )


def _weights(scores: torch.Tensor, bias: torch.Tensor, scaling: float | torch.Tensor, chunk: slice) -> torch.Tensor:
    """Softmax over neighbours, dimension 1, in float32 or better."""
    scores = scores * (scaling[chunk] if torch.is_tensor(scaling) else scaling) + bias
    precise = torch.promote_types(scores.dtype, torch.float32)
    return nn.functional.softmax(scores, dim=1, dtype=precise).to(scores.dtype)


def attend_by_table(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    neighbourhoods: Neighbourhoods,
    bias: torch.Tensor,
    scaling: float | torch.Tensor,
) -> torch.Tensor:
    """As `attend_to_gathered`, for few distinct inputs: no query, key or value is copied for each neighbour.

    Scores are looked up among all pairs of rows, and weights are added up by row before they meet the values.

    Args:
        query, key, value: (rows, heads, head_dim).
        bias: (distinct, neighbours, heads), the lowest value where there is no neighbour.
        scaling: a number, or (distinct, 1, heads).

    Returns:
        (distinct, heads, head_dim).
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


def attend_to_gathered(
    query: torch.Tensor,
    gather: Callable[[slice], tuple[torch.Tensor, torch.Tensor]],
    bias: torch.Tensor,
    scaling: float | torch.Tensor,
) -> torch.Tensor:
    """Attention of every query to its own keys, `CHUNK` queries at a time.

    Args:
        query: (queries, heads, head_dim).
        gather: from a range of queries to their keys and values, (queries, neighbours, heads, head_dim) each.
        bias: (queries, neighbours, heads), the lowest value where there is no neighbour.
        scaling: a number, or (queries, 1, heads).

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


def attend_to_columns(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    columns: torch.LongTensor,
    bias: torch.Tensor,
    scaling: float,
) -> torch.Tensor:
    """Attention of every query to the keys in a few columns of its example.

    Args:
        query: (batch, heads, queries, head_dim).
        key: (batch, heads, keys, head_dim), as `value`.
        columns: (batch or 1, queries, neighbours).
        bias: (batch or 1, queries, neighbours, heads), the lowest value where there is no neighbour.
        scaling: what scores are multiplied by.

    Returns:
        (batch, queries, heads, head_dim).
    """
    batch, _, queries, _ = query.shape
    columns = columns.expand(batch, -1, -1).flatten(0, 1)
    bias = bias.expand(batch, -1, -1, -1).flatten(0, 1).to(query.dtype)
    example = torch.arange(batch, device=query.device).repeat_interleave(queries).unsqueeze(1)
    key, value = key.transpose(1, 2), value.transpose(1, 2)

    def gather(chunk: slice) -> tuple[torch.Tensor, torch.Tensor]:
        return key[example[chunk], columns[chunk]], value[example[chunk], columns[chunk]]

    return attend_to_gathered(query.transpose(1, 2).flatten(0, 1), gather, bias, scaling).unflatten(0, (batch, queries))


_SMALLEST_ROOM = 16
"""Columns that are kept without asking whether they are needed."""


class WindowedLayer(DynamicLayer):
    """Keys and values of the columns that some later query can still see.

    They stand in a buffer with room for more. When it is full, or less than half of it is still needed, the rest is left out
    of the next one. So the memory is about twice what is needed, and adding a token costs constant time on average.

    Args:
        last_seen: (columns,) the last column whose query sees each column, known from the plan of position ids; -1 if none.
    """

    is_croppable = False

    def __init__(self, last_seen: torch.LongTensor):
        super().__init__()
        self.last_seen = last_seen
        column = torch.arange(len(last_seen), device=last_seen.device)
        change = torch.zeros(len(last_seen) + 1, dtype=torch.long, device=last_seen.device)
        later = last_seen > column
        change[1:] += torch.bincount(column[later], minlength=len(last_seen))
        change -= torch.bincount(last_seen[later] + 1, minlength=len(last_seen) + 1)
        # After so many tokens, how many columns a later query will see.
        self.needed = change.cumsum(0).tolist()
        self.reset()

    def reset(self) -> None:
        super().reset()
        self.cumulative_length = 0
        self.columns = self.last_seen.new_empty(0)
        self.used = 0

    def update(self, key_states, value_states, *args, **kwargs):
        """Adds (batch, heads, tokens, head_dim); returns all of the buffer, to be read through `slots`."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states[:, :, :0], value_states[:, :, :0]
        tokens = key_states.shape[2]
        room = self.keys.shape[2]
        if self.used + tokens > room or room > 2 * (self.needed[self.cumulative_length] + tokens) + _SMALLEST_ROOM:
            self._make_room(tokens, key_states)
        new = slice(self.used, self.used + tokens)
        self.keys[:, :, new], self.values[:, :, new] = key_states, value_states
        self.columns[new] = torch.arange(self.cumulative_length, self.cumulative_length + tokens, device=self.columns.device)
        self.used += tokens
        self.cumulative_length += tokens
        return self.keys, self.values

    def _make_room(self, tokens: int, like: torch.Tensor) -> None:
        columns = self.columns[: self.used]
        needed = (self.last_seen[columns] >= self.cumulative_length).nonzero().squeeze(1)
        room = len(needed) + tokens + min(len(needed), _SMALLEST_ROOM + len(needed) // 2)
        self.used = len(needed)
        self.columns = nn.functional.pad(columns[needed], (0, room - self.used))
        buffers = []
        for states in (self.keys, self.values):
            buffer = like.new_empty((*like.shape[:2], room, like.shape[3]))
            buffer[:, :, : self.used] = states[:, :, needed]
            buffers.append(buffer)
        self.keys, self.values = buffers

    def slots(self, columns: torch.LongTensor) -> torch.LongTensor:
        """Where in the buffer the columns stand; anywhere for those that it does not hold."""
        return torch.searchsorted(self.columns[: self.used], columns).clamp(max=self.used - 1)

    def get_seq_length(self) -> int:
        """Tokens seen, whether kept or not."""
        return self.cumulative_length


class WindowedCache(Cache):
    """A cache for generation under a window, see `WindowedLayer`.

    Args:
        neighbours: of the tokens in every column of the plan, as queries.
    """

    def __init__(self, neighbours: Neighbours, num_layers: int):
        columns = neighbours.columns
        query = torch.arange(columns.shape[1], device=columns.device).view(1, -1, 1).expand_as(columns)
        related = columns >= 0
        last_seen = columns.new_full((columns.shape[1],), -1)
        last_seen.scatter_reduce_(0, columns[related], query[related], "amax")
        super().__init__(layers=[WindowedLayer(last_seen) for _ in range(num_layers)])

    def slots(self, columns: torch.LongTensor, layer: int) -> torch.LongTensor:
        """Where in a layer's buffer the columns stand."""
        return self.layers[layer].slots(columns)
