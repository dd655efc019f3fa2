"""Position encodings of the decoder: how a model consumes position ids or the relations between them.

Each overrides the hooks that it needs; the model calls all of them and knows none by name. `POSITION_ENCODINGS` is the
table of choices.
"""

import torch
from torch import nn

from .coupling import COUPLING_RULES
from .pair_maps import Neighbours, coupled_neighbours, coupled_pair_map, num_coupled_relations


class PositionEncoding(nn.Module):
    """No position encoding at all (NoPE, Kazemnejad et al., 2023), and the base of the others."""

    uses_position_ids = False
    """Whether the encoding reads position ids, so that missing ones must be derived."""

    embeds_position_ids = False
    """Whether `embed` adds something to the token embeddings."""

    uses_pair_map = False
    """Whether `bias` reads relations, so that a missing pair map must be derived."""

    windowed = False
    """Whether a query attends to its neighbours alone."""

    def __init__(self, config):
        super().__init__()
        self.config = config

    def check(self, position_ids: torch.LongTensor) -> None:
        """Raises ValueError for ids that the encoding cannot represent."""

    def embed(self, token_embeddings: torch.Tensor, position_ids: torch.LongTensor) -> torch.Tensor:
        """Input of the first layer. ids (batch or 1, levels, tokens) -> (batch, tokens, hidden)."""
        return token_embeddings

    def rotate(self, states: torch.Tensor, position_ids: torch.LongTensor) -> torch.Tensor:
        """Queries or keys (batch, heads, tokens, head_dim), changed by the ids (batch or 1, levels, tokens)."""
        return states

    def pair_map(self, query_ids: torch.LongTensor, key_ids: torch.LongTensor) -> torch.IntTensor | None:
        """Relations (batch or 1, queries, keys) for `bias`, or None."""
        return None

    def neighbours(
        self,
        query_ids: torch.LongTensor,
        key_ids: torch.LongTensor,
        query_columns: torch.LongTensor,
        present: torch.BoolTensor | None,
    ) -> Neighbours:
        """The keys of every query, for an encoding that is `windowed`; see `coupled_neighbours`."""
        raise NotImplementedError

    def bias(self, relations: torch.IntTensor, layer: int) -> torch.Tensor | None:
        """(*relations.shape, heads), added to the scaled scores; or None."""
        return None


class PositionTable(nn.Embedding):
    """A vector per position id; row 0 is that of special tokens."""


class LearnedTable(PositionEncoding):
    """A learned vector per id, added to the token embedding: position coupling as in paper 1, Sec. 3.

    With several levels the vectors of all levels are added, from one table (`share_level_tables`) or one table a level.

    Raises:
        ValueError: an id is larger than `config.max_position_ids`.
    """

    uses_position_ids = True
    embeds_position_ids = True

    def __init__(self, config):
        super().__init__(config)
        self.num_tables = 1 if config.share_level_tables else config.position_levels
        self.tables = nn.ModuleList(
            PositionTable(config.max_position_ids + 1, config.hidden_size) for _ in range(self.num_tables)
        )

    def check(self, position_ids):
        smallest, largest = (int(value) for value in position_ids.aminmax())
        if smallest < 0:
            raise ValueError(f"position ids must be 0 (none) or above, got {smallest}")
        limit = self.config.max_position_ids
        if largest > limit:
            longest = COUPLING_RULES[self.config.coupling].capacity(limit)
            raise ValueError(
                f"position id {largest} is outside the learned table of {limit} ids: "
                f"with the coupling rule {self.config.coupling!r} the longest that fits is {longest}"
            )

    def embed(self, token_embeddings, position_ids):
        self.check(position_ids)
        for level, ids in enumerate(position_ids.unbind(1)):
            token_embeddings = token_embeddings + self.tables[level % self.num_tables](ids)
        return token_embeddings


class RotaryEncoding(PositionEncoding):
    """Rotary embedding (Su et al., 2021) with coupled ids as angles; several levels share out a head's dimensions."""

    uses_position_ids = True

    def rotate(self, states, position_ids):
        rotated = [
            self._rotate_level(part, ids)
            for part, ids in zip(states.chunk(position_ids.shape[1], dim=-1), position_ids.unbind(1), strict=True)
        ]
        return torch.cat(rotated, dim=-1)

    def _rotate_level(self, states, ids):
        half = states.shape[-1] // 2
        exponent = torch.arange(half, device=states.device, dtype=torch.float32) / half
        angle = ids.float().unsqueeze(-1) * self.config.rotary_base**-exponent
        cosine, sine = (value.to(states.dtype).unsqueeze(1) for value in (angle.cos(), angle.sin()))
        first, second = states[..., :half], states[..., half:]
        return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


FAVOUR = 6.0
"""Bias of a head towards its own relation at the start of training."""


class PairwiseBias(PositionEncoding):
    """One learned number per layer, head and relation of coupled ids, added to the scores.

    The relation is the ids' difference within `config.relation_range`, or one of those that the coupling rule names. With
    `config.windowed` all else is masked, so what a token sees is bounded by the window and not by the length of the input:
    no table ends and no softmax dilutes. With `config.relation_init` "one_per_head" every head starts with `FAVOUR` for one
    relation of its own.
    """

    uses_position_ids = True
    uses_pair_map = True

    def __init__(self, config):
        super().__init__(config)
        self.windowed = config.windowed
        self.window = config.relation_range or COUPLING_RULES[config.coupling].relations
        relations = num_coupled_relations(self.window, config.position_levels)
        self.relation_bias = nn.Parameter(torch.empty(config.num_hidden_layers, relations, config.num_attention_heads))

    def pair_map(self, query_ids, key_ids):
        return coupled_pair_map(query_ids, key_ids, self.window, self.windowed)

    def neighbours(self, query_ids, key_ids, query_columns, present):
        return coupled_neighbours(query_ids, key_ids, query_columns, self.window, present)

    def bias(self, relations, layer):
        return nn.functional.embedding(relations.clamp(min=0), self.relation_bias[layer])


POSITION_ENCODINGS: dict[str, type[PositionEncoding]] = {
    "none": PositionEncoding,
    "learned": LearnedTable,
    "rotary": RotaryEncoding,
    "pairwise": PairwiseBias,
}
