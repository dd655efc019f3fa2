"""Caches of generation with room for later tokens; under a window, one that drops what no later query can see."""

# Used by: generation_coupled_gpt.py, modeling_coupled_gpt.py. Bound by: the digest of the code that travels with a
# checkpoint: run .ci/code.

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from .relations import Neighbours

_SMALLEST_ROOM = 16
"""Columns for which a new buffer has room, besides the needed ones and half as many."""


class RoomyLayer(DynamicLayer):
    """All keys and values of one layer, in a buffer with room for half as many more, so that no step copies all."""

    def __init__(self):
        super().__init__()
        self.buffers: list[Tensor] = []
        self.shown: Tensor | None = None

    def update(self, key_states, value_states, *args, **kwargs):
        """Add states (batch, heads, tokens, head_dim) and return those of all tokens."""
        if torch.is_grad_enabled():
            # A backward pass needs the states as they were.
            return super().update(key_states, value_states, *args, **kwargs)
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states[:, :, :0], value_states[:, :, :0]
        before, after = self.keys.shape[2], self.keys.shape[2] + key_states.shape[2]
        # Beams are put in another order, and a caller may cut a cache, by other tensors in place of these.
        is_kept = self.keys is self.shown and after <= self.buffers[0].shape[2]
        if is_kept and self.buffers[0].is_inference():
            # What inference mode has made is not written outside it.
            is_kept = torch.is_inference_mode_enabled()
        if not is_kept:
            shape = (*key_states.shape[:2], after + after // 2 + _SMALLEST_ROOM, key_states.shape[3])
            old, self.buffers = (self.keys, self.values), [key_states.new_empty(shape), value_states.new_empty(shape)]
            for states, buffer in zip(old, self.buffers, strict=True):
                buffer[:, :, :before] = states
        for states, buffer in zip((key_states, value_states), self.buffers, strict=True):
            buffer[:, :, before:after] = states
        self.keys, self.values = (buffer[:, :, :after] for buffer in self.buffers)
        self.shown = self.keys
        return self.keys, self.values


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
        self.used = 0
        # The place of each column in the buffer; later columns will follow each other.
        self.place = torch.arange(len(self.last_seen), device=self.last_seen.device)
        self.kept = self.place[:0]

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
        self.used += tokens
        self.cumulative_length += tokens
        return self.keys, self.values

    def _make_room(self, tokens: int, like: Tensor) -> None:
        """Move the needed states to new buffers of the shape of `like`, with room for further tokens."""
        behind = self.cumulative_length - self.used + len(self.kept)
        columns = torch.cat([self.kept, torch.arange(behind, self.cumulative_length, device=self.place.device)])
        needed = (self.last_seen[columns] >= self.cumulative_length).nonzero().squeeze(1)
        self.kept = columns[needed]
        self.used = len(needed)
        room = tokens + self.used + self.used // 2 + _SMALLEST_ROOM
        self.place.zero_()
        self.place[self.kept] = torch.arange(self.used, device=self.place.device)
        self.place[self.cumulative_length :] = torch.arange(
            self.used, self.used + len(self.place) - self.cumulative_length, device=self.place.device
        )
        old, shape = (self.keys, self.values), (*like.shape[:2], room, like.shape[3])
        self.keys, self.values = like.new_empty(shape), like.new_empty(shape)
        for states, buffer in zip(old, (self.keys, self.values), strict=True):
            buffer[:, :, : self.used] = states[:, :, needed]  # type: ignore[index]

    def slots(self, columns: Tensor) -> Tensor:
        """Return the places of columns in the buffer; any place for a column that is not in it."""
        return self.place[columns]

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
