"""Checks of what a user passes to a model, for both families. Each raises ValueError with the value and what is legal."""

from typing import Any

import torch
from torch import Tensor

from .vocabulary import EQUALS, PAD, decode


def check_input_ids(input_ids: Any, vocab_size: int) -> Tensor:
    """Return token ids (batch, tokens) as int64.

    Raises:
        ValueError: they are no tensor of integers of this shape, there are none, or one is outside the vocabulary.
    """
    if not isinstance(input_ids, Tensor) or input_ids.is_floating_point() or input_ids.is_complex():
        kind = input_ids.dtype if isinstance(input_ids, Tensor) else type(input_ids).__name__
        raise ValueError(f"input_ids must be a tensor of integers (batch, tokens), got {kind}")
    if input_ids.ndim != 2 or input_ids.numel() == 0:
        raise ValueError(f"input_ids must be (batch, tokens), at least one of both, got {tuple(input_ids.shape)}")
    smallest, largest = (int(extreme) for extreme in input_ids.aminmax())
    if smallest < 0 or largest >= vocab_size:
        outside = smallest if smallest < 0 else largest
        raise ValueError(f"input_ids must be in 0..{vocab_size - 1}, the vocabulary, got {outside}")
    return input_ids.long()


def check_mask(attention_mask: Tensor | None, batch: int, columns: int) -> None:
    """Raise ValueError for an attention mask of another shape than (batch, columns); None is legal."""
    if attention_mask is not None and tuple(attention_mask.shape) != (batch, columns):
        raise ValueError(f"attention_mask must be ({batch}, {columns}), got {tuple(attention_mask.shape)}")


def check_padding(input_ids: Tensor, attention_mask: Tensor | None, is_query: Tensor | None = None) -> None:
    """Raise ValueError if a mask (batch, tokens) shows padding, or hides a token of the query.

    Args:
        is_query: (batch, tokens), False for what may be hidden or shown as the caller likes; None for an input in which
            everything may be hidden and no padding may be shown.
    """
    padding = input_ids == PAD
    hidden = torch.zeros_like(padding) if attention_mask is None else attention_mask == 0
    wrong = padding & ~hidden if is_query is None else (padding != hidden) & is_query
    if wrong.any():
        row = int(wrong.any(1).int().argmax())
        raise ValueError(
            f"attention_mask must be 0 at <pad> and 1 at every token of {decode(input_ids[row].tolist())!r}, "
            f"got {'no mask' if attention_mask is None else attention_mask[row].int().tolist()} in row {row}"
        )


def check_query_padding(input_ids: Tensor, attention_mask: Tensor | None) -> None:
    """Raise ValueError if a mask (batch, tokens) shows padding on the left, or hides a token up to the first `=`."""
    is_equals = input_ids == EQUALS
    check_padding(input_ids, attention_mask, is_query=is_equals.cumsum(1) - is_equals.long() == 0)


def check_logits_to_keep(logits_to_keep: Any, tokens: int) -> None:
    """Raise ValueError unless this is a number of tokens, or a tensor of the indices of some."""
    if isinstance(logits_to_keep, Tensor):
        legal = logits_to_keep.ndim == 1 and not logits_to_keep.is_floating_point()
        if legal and logits_to_keep.dtype != torch.bool and logits_to_keep.numel():
            legal = bool(-tokens <= logits_to_keep.min() and logits_to_keep.max() < tokens)
    else:
        legal = isinstance(logits_to_keep, int) and 0 <= logits_to_keep <= tokens
    if not legal:
        raise ValueError(f"logits_to_keep must be 0..{tokens}, or indices of the {tokens} tokens, got {logits_to_keep!r}")


def check_pair_map(pair_map: Any, batch: int, queries: int, keys: int, relations: tuple[int, int] | None) -> None:
    """Raise ValueError unless this is a map (batch or 1, queries, keys) of relations.

    Args:
        relations: smallest and largest relation; None if every integer is one.
    """
    shape = tuple(pair_map.shape)
    if shape[1:] != (queries, keys) or shape[0] not in (1, batch):
        raise ValueError(f"pair_map must be ({batch} or 1, {queries}, {keys}), got {shape}")
    if relations is not None:
        smallest, largest = (int(extreme) for extreme in pair_map.aminmax())
        if smallest < relations[0] or largest > relations[1]:
            raise ValueError(f"pair_map must hold relations {relations[0]}..{relations[1]}, got {smallest}..{largest}")
