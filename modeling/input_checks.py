"""Checks of what a user passes to a model, for both families. Each raises ValueError with the value and what is legal."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from .vocabulary import BOS, EQUALS, PAD, SEPARATE_EOS, TOKENS, UNKNOWN, decode


def of_values(check: Callable[..., None]) -> Callable[..., None]:
    """Skip a check of the values of tensors while `torch.compile` or `torch.export` traces: there are no values then."""

    @wraps(check)
    def check_values(*args, **kwargs) -> None:
        if not torch.compiler.is_compiling():
            check(*args, **kwargs)

    return check_values


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
    _check_vocabulary(input_ids, vocab_size)
    return input_ids.long()


@of_values
def _check_vocabulary(input_ids: Tensor, vocab_size: int) -> None:
    smallest, largest = (int(extreme) for extreme in input_ids.aminmax())
    if smallest < 0 or largest >= vocab_size:
        outside = smallest if smallest < 0 else largest
        raise ValueError(f"input_ids must be in 0..{vocab_size - 1}, the vocabulary, got {outside}")


def check_mask(attention_mask: Tensor | None, batch: int, columns: int) -> None:
    """Raise ValueError for an attention mask of another shape than (batch, columns); None is legal."""
    if attention_mask is not None and tuple(attention_mask.shape) != (batch, columns):
        raise ValueError(f"attention_mask must be ({batch}, {columns}), got {tuple(attention_mask.shape)}")
    if attention_mask is not None:
        _check_rows(attention_mask)


@of_values
def _check_rows(attention_mask: Tensor) -> None:
    if not attention_mask.any(1).all():
        raise ValueError("attention_mask must show a token of every row, got a row of zeros")


def hidden_tokens(input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Return which tokens (batch, tokens) a mask hides."""
    return torch.zeros_like(input_ids, dtype=torch.bool) if attention_mask is None else attention_mask == 0


@of_values
def check_query_padding(input_ids: Tensor, attention_mask: Tensor | None) -> None:
    """Raise ValueError if a mask (batch, tokens) shows padding on the left, or hides a token up to the first `=`."""
    is_equals = input_ids == EQUALS
    in_query = is_equals.cumsum(1) - is_equals.long() == 0
    wrong = in_query & (hidden_tokens(input_ids, attention_mask) != (input_ids == PAD))
    if wrong.any():
        row = int(wrong.any(1).int().argmax())
        raise ValueError(
            f"attention_mask must be 0 at <pad> and 1 at every token of {decode(input_ids[row].tolist())!r}, "
            f"got {'no mask' if attention_mask is None else attention_mask[row].int().tolist()} in row {row}"
        )


@of_values
def check_shown(input_ids: Tensor, attention_mask: Tensor | None) -> None:
    """Raise ValueError if a mask (batch, tokens) shows padding, or a character that the tokenizer did not know."""
    shown = ~hidden_tokens(input_ids, attention_mask)
    for token in (PAD, UNKNOWN):
        if (wrong := shown & (input_ids == token)).any():
            row, column = wrong.nonzero()[0].tolist()
            reason = "pass the tokenizer's attention_mask" if token == PAD else "the vocabulary lacks this character"
            raise ValueError(f"{TOKENS[token]} at column {column} of row {row} is not hidden: {reason}")


@of_values
def check_unpacked(input_ids: Tensor) -> None:
    """Raise ValueError if a row (batch, tokens) holds a second example: `$` after an end token."""
    first, second = input_ids[:, :-1], input_ids[:, 1:]
    if (packed := (second == BOS) & ((first == BOS) | (first == SEPARATE_EOS))).any():
        row, column = packed.nonzero()[0].tolist()
        raise ValueError(
            f"a row of input_ids must be one example, got another at column {column + 1} of row {row}: pad examples, for "
            "instance by longhand.collate_rows, and do not pack or flatten them"
        )


@of_values
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


@of_values
def check_pair_map(pair_map: Any, batch: int, queries: int, keys: int, encoding: Any) -> None:
    """Raise ValueError unless this is a map (batch or 1, queries, keys) of relations that a position encoding reads."""
    if not encoding.uses_pair_map:
        raise ValueError(f"pair_map is for encodings that read relations, not for {encoding.config.position_encoding!r}")
    relations = encoding.relation_limits
    shape = tuple(pair_map.shape)
    if shape[1:] != (queries, keys) or shape[0] not in (1, batch):
        raise ValueError(f"pair_map must be ({batch} or 1, {queries}, {keys}), got {shape}")
    if relations is not None:
        smallest, largest = (int(extreme) for extreme in pair_map.aminmax())
        if smallest < relations[0] or largest > relations[1]:
            raise ValueError(f"pair_map must hold relations {relations[0]}..{relations[1]}, got {smallest}..{largest}")
