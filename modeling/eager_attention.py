"""Attention with weights that can be recorded, for both families (`attn_implementation="eager"`)."""

import torch
from torch import Tensor, nn


def eager_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs,
) -> tuple[Tensor, Tensor]:
    """Attend to all keys; return outputs (batch, queries, heads, head_dim) and weights (batch, heads, queries, keys).

    The softmax is computed in float32 or better.
    """
    scores = torch.matmul(query * scaling, key.transpose(2, 3))
    if attention_mask is not None:
        # Under autocast, a mask in float32 must not be rounded to half precision, where its numbers are infinite.
        scores = scores.add_(attention_mask) if attention_mask.dtype == scores.dtype else scores + attention_mask
    weights = nn.functional.softmax(scores, dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(query.dtype)
    if dropout:
        weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights
