"""A pair map of a user's own: who stands where in the columns of a sum, and in which of its two numbers."""

import torch

from longhand.modeling.encoder_maps import pair_map_rule
from longhand.modeling.relations import NOT_RELATED
from longhand.modeling.vocabulary import PLUS


@pair_map_rule("partner", relations=4)
def partner(input_ids: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
    """Relate a token to itself (0), its partner in the other number (1), and both tokens one column lower (2 and 3).

    tokens        1 2 + 9 5
    query \\ key   1 2 + 9 5
          1       0 2 . 1 3
          2       . 0 . . 1
          +       3 . 0 2 .
          9       1 3 . 0 2
          5       . 1 . . 0
    """
    place = torch.arange(input_ids.shape[1], device=input_ids.device)
    operator = (input_ids == PLUS).int().argmax(dim=1, keepdim=True)
    is_second = place >= operator
    column = torch.where(is_second, 2 * operator + 1, operator) - place
    lower = column.unsqueeze(2) - column.unsqueeze(1)
    other = (is_second.unsqueeze(2) != is_second.unsqueeze(1)).long()
    related = (lower >= 0) & (lower <= 1) & present.unsqueeze(1) & present.unsqueeze(2)
    return torch.where(related, 2 * lower + other, NOT_RELATED)
