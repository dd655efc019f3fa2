"""A coupling rule of a user's own: the distance to `=`, the same on both sides."""

import torch

from longhand.modeling.coupling import Plan, coupling_rule
from longhand.modeling.vocabulary import EQUALS


@coupling_rule(levels=1, capacity=lambda ids: f"queries of {ids} tokens", reads_any_text=True)
def distance_to_equals(input_ids: torch.Tensor, columns: int) -> Plan:
    """Give a token the number of tokens between it and `=` as its id, plus one.

    $ 6 5 + 4 9 = 4 1 1 $
    7 6 5 4 3 2 1 2 3 4 5
    """
    equals = (input_ids == EQUALS).int().argmax(dim=1, keepdim=True)
    ids = (torch.arange(columns, device=input_ids.device) - equals).abs() + 1
    return Plan(ids.unsqueeze(1), response_length=int(equals.max()) + 1)
