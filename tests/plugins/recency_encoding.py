"""A position encoding of a user's own: every head learns how fast a key loses weight as the difference of ids grows."""

import torch
from torch import nn

from longhand.modeling.position_encodings import PositionEncoding, position_encoding


@position_encoding("recency")
class Recency(PositionEncoding):
    """A learned slope per head, times the absolute difference of the ids of the first level, as a bias of the scores."""

    uses_position_ids = True
    uses_pair_map = True
    position_samplings = ("fixed", "random_start")

    def __init__(self, config):
        super().__init__(config)
        self.slope = nn.Parameter(torch.empty(config.num_attention_heads))

    def init_weights(self):
        nn.init.constant_(self.slope, -0.1)

    def pair_map(self, query_ids, key_ids):
        return (query_ids[:, 0, :, None] - key_ids[:, 0, None, :]).abs().int()

    def bias(self, relations, layer):
        return relations.unsqueeze(-1) * self.slope
