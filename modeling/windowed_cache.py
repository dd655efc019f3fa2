"""The cache of generation under a window: it drops keys and values that no later query can see."""

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicLayer

from .relations import Neighbours

_SMALLEST_ROOM = 16
"""Columns for which a new buffer has room, besides the needed ones and half as many."""


class WindowedLayer(DynamicLayer):
    """Keys and values of the columns that a later query can still see, in one layer.

    The columns stand in a buffer with room for half as many more. When the buffer is full, the columns that are still needed
    move to a new one. So the memory is at most about one and a half times the most that was needed, and adding a token takes
    constant time on average.

    Args:
        last_seen: (columns,) the last column whose query sees each column, known from the plan of position ids; -1 if no
            query sees it.
    """

    is_croppable = False

    def __init__(self, last_seen: Tensor):
        super().__init__()
        self.last_seen = last_seen
        self.reset()

    def reset(self) -> None:
        super().reset()
        self.cumulative_length = 0
        self.columns = self.last_seen.new_empty(0)
        self.used = 0

    def update(self, key_states, value_states, *args, **kwargs):
        """Add states (batch, heads, tokens, head_dim) and return both whole buffers, which `slots` indexes."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states[:, :, :0], value_states[:, :, :0]
        tokens = key_states.shape[2]
        if self.used + tokens > self.keys.shape[2]:
            self._make_room(tokens, key_states)
        new = slice(self.used, self.used + tokens)
        self.keys[:, :, new], self.values[:, :, new] = key_states, value_states
        self.columns[new] = torch.arange(self.cumulative_length, self.cumulative_length + tokens, device=self.columns.device)
        self.used += tokens
        self.cumulative_length += tokens
        return self.keys, self.values

    def _make_room(self, tokens: int, like: Tensor) -> None:
        """Move the needed states to new buffers of the shape of `like`, with room for further tokens."""
        columns = self.columns[: self.used]
        needed = (self.last_seen[columns] >= self.cumulative_length).nonzero().squeeze(1)
        room = tokens + len(needed) + len(needed) // 2 + _SMALLEST_ROOM
        self.used = len(needed)
        self.columns = nn.functional.pad(columns[needed], (0, room - self.used))
        old, shape = (self.keys, self.values), (*like.shape[:2], room, like.shape[3])
        self.keys, self.values = like.new_empty(shape), like.new_empty(shape)
        for states, buffer in zip(old, (self.keys, self.values), strict=True):
            buffer[:, :, : self.used] = states[:, :, needed]  # type: ignore[index]

    def slots(self, columns: Tensor) -> Tensor:
        """Return the places of columns in the buffer; any place for a column that is not in it."""
        return torch.searchsorted(self.columns[: self.used], columns).clamp(max=self.used - 1)

    def get_seq_length(self) -> int:
        """Return the number of tokens seen, kept or dropped."""
        return self.cumulative_length


class WindowedCache(Cache):
    """A cache for generation under a window, see `WindowedLayer`.

    Args:
        neighbours: the neighbours of every column of the plan, as a query.
    """

    def __init__(self, neighbours: Neighbours, num_layers: int):
        columns = neighbours.columns
        query = torch.arange(columns.shape[1], device=columns.device).view(1, -1, 1).expand_as(columns)
        related = columns >= 0
        last_seen = columns.new_full((columns.shape[1],), -1)
        last_seen.scatter_reduce_(0, columns[related], query[related], "amax")
        super().__init__(layers=[WindowedLayer(last_seen) for _ in range(num_layers)])

    def slots(self, columns: Tensor, layer: int) -> Tensor:
        """Return the places of columns in the buffer of a layer."""
        return self.layers[layer].slots(columns)  # type: ignore[union-attr]
