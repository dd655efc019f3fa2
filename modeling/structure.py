"""Structure that a caller gives to a forward pass: position ids, pair maps, biases and masks, checked and in one form.

Both families take the same arguments. Each one overrides what the model's own rule derives, and none is ignored: an argument
that a model cannot read is refused, with a message that says what would fit.

    position_ids    int (batch or 1, tokens) or (batch or 1, levels, tokens); 0 is no id
    pair_map        int (batch or 1, queries, keys) or (batch or 1, heads, queries, keys); -1 is not related
    position_bias   float (batch or 1, heads or 1, queries, keys), added to the scores of every layer
    attention_mask  (batch, keys), or bool or additive float (batch or 1, heads or 1, queries, keys), used as it is
"""

# Used by: modeling, hub_cards/research/structured. Bound by: the digest of the code that travels with a checkpoint: run
# .ci/code.

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeGuard

import torch
from torch import Tensor
from transformers.cache_utils import Cache, EncoderDecoderCache

from .relations import LARGEST_ID, NOT_RELATED, with_levels
from .values import Axis, check_tensor, reads_values, require, require_range

IGNORED = -100
"""The label of tokens that are not supervised."""

GIVEN = "given"
"""Name, in place of a rule's, for structure that every call gives: nothing is derived, and no prompt is checked."""

PAD_INSTEAD = (
    "pad examples, for instance by longhand.collate_rows, and do not pack or flatten them (in TRL, set packing=False and "
    "padding_free=False)"
)
"""What to do with several examples that stand in one row."""

DRAWN = "drawn_position_ids"
"""The random ids of a batch that `CouplingCollator.for_model` makes: a hook on its model takes them."""

FORWARDED = ("output_attentions", "output_hidden_states", "num_items_in_batch", "return_dict", "use_cache")
"""Further arguments of a forward pass, which transformers and Trainer give: they ask for outputs and change no score."""


class PairShape(NamedTuple):
    """The sizes of what is given for pairs of tokens.

    Attributes:
        batch: rows of the input; one row of an argument may stand for all.
        heads: heads that the argument is for.
        queries: tokens of the input.
        keys: these and the tokens of a cache before them.
    """

    batch: int
    heads: int
    queries: int
    keys: int


def check_arguments(arguments: dict[str, object], model: str) -> None:
    """Raise ValueError for an argument of a forward pass that no part of the model reads.

    Args:
        arguments: the arguments that `forward` does not name.
        model: what to call the model.
    """
    unread = sorted(name for name, value in arguments.items() if value is not None and name not in FORWARDED)
    if DRAWN in unread:
        raise ValueError(
            f"the batch has {DRAWN} for another model: make its collator by CouplingCollator.for_model(model) of the very "
            "model that is trained (in model_init, if Trainer makes the model there)"
        )
    if unread:
        raise ValueError(
            f"{model} reads no {', '.join(unread)}: structure is given as position_ids, pair_map, position_bias or "
            "attention_mask"
        )


def check_one_example(position_ids: Any, attention_mask: object, labels: Any) -> None:
    """Raise ValueError if a batch of one row, without a mask, looks like several examples that a collator has joined.

    Then ids number the tokens of each example anew, and no first token of an example has a label, which would be predicted
    from the example before. In one example, ids may begin again too, but where the query ends, before all labels.
    """
    if attention_mask is not None or not isinstance(position_ids, Tensor) or not reads_values(position_ids):
        return
    if not isinstance(labels, Tensor) or labels.ndim != 2 or len(labels) != 1 or position_ids.shape != labels.shape:
        return
    ids, supervised = position_ids[0], labels[0] != IGNORED
    first = ids == ids[0]
    if not (first[1:] | (ids[1:] == ids[:-1] + 1)).all() or (first & supervised).any():
        return
    starts = first.nonzero().flatten()
    if len(starts) > 1 and supervised[: starts[-1]].any():
        raise ValueError(
            f"position_ids begin again at columns {', '.join(map(str, starts[1:5].tolist()))}, as those of several examples "
            f"in one row, which would see each other: {PAD_INSTEAD}; an attention_mask says that it is one example"
        )


def check_one_input(input_ids: Tensor | None, inputs_embeds: Tensor | None, table: Tensor) -> None:
    """Raise ValueError unless exactly one is given, and embeddings are such as the table (tokens, hidden) has.

    Under autocast they may have any type of floats.
    """
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("give exactly one of input_ids and inputs_embeds")
    if inputs_embeds is None:
        return
    width, dtype = table.shape[1], table.dtype
    check_tensor(inputs_embeds, "inputs_embeds", "floats", [("batch", ()), ("tokens", ()), (f"{width}", (width,))])
    if inputs_embeds.dtype != dtype and not torch.is_autocast_enabled(inputs_embeds.device.type):
        raise ValueError(f"inputs_embeds must have the type of the weights, {dtype}, got {inputs_embeds.dtype}")


def read_labels(labels: Tensor, shape: Sequence[int], classes: int) -> Tensor:
    """Return labels (batch, tokens) as int64.

    Args:
        shape: (batch, tokens) that they must have.
        classes: labels are 0 to this number - 1, and `IGNORED`.

    Raises:
        ValueError: they are no integers, have another shape, or one is no class.
    """
    check_tensor(
        labels,
        "labels",
        "integers",
        [(f"{size} {of}", (size,)) for size, of in zip(shape, ("rows", "tokens"), strict=False)],
    )
    read = labels.long()
    fits = (read == IGNORED) | ((read >= 0) & (read < classes))
    legal = f"labels must be in 0..{classes - 1}, or {IGNORED} where nothing is supervised"
    require(fits, legal, lambda: int(read[~fits][0]))
    return read


Problem = Literal["regression", "single_label_classification", "multi_label_classification"]
"""What one label a row is, as transformers calls it."""


def read_row_labels(labels: Any, batch: int, classes: int, problem: Problem | None) -> tuple[Tensor, Problem]:
    """Return one label a row, and what they are: the problem type of transformers that is given, or follows from them.

    Args:
        problem: None if it follows from the labels: one class is a number of a regression, whole numbers are classes, and
            rows of them are of several labels.

    Returns:
        Classes (batch,) int64, 0 to `classes` - 1 or `IGNORED`; or numbers (batch, classes) in float32, 0 and 1 of several
        labels.

    Raises:
        ValueError: they are no tensor, have another shape, or one is not legal.
    """
    check_tensor(labels, "labels", "numbers", meaning=", one a row")
    if problem is None:
        one_each: Problem = "single_label_classification" if labels.ndim == 1 else "multi_label_classification"
        problem = "regression" if classes == 1 else one_each
    is_class = problem == "single_label_classification"
    legal: list[tuple[int, ...]] = [(batch,)] if is_class or classes == 1 else []
    legal += [] if is_class else [(batch, classes)]
    if tuple(labels.shape) not in legal:
        shown = " or ".join(map(str, legal))
        raise ValueError(f"labels of {problem} must be {shown}, one a row, got {tuple(labels.shape)}")
    if is_class:
        return read_labels(labels, (batch,), classes), problem
    numbers = labels.float().view(batch, classes)
    if problem == "multi_label_classification":
        fits = (numbers >= 0) & (numbers <= 1)
        require(fits, f"labels of {problem} must be in 0..1", lambda: float(numbers[~fits][0]))
    return numbers, problem


def check_cache(cache: object) -> None:
    """Raise ValueError for what is neither None nor a cache of a decoder's tokens."""
    if cache is not None and (not isinstance(cache, Cache) or isinstance(cache, EncoderDecoderCache)):
        raise ValueError(f"cache must be a DynamicCache of transformers, or None, got {type(cache).__name__}")


def check_kept(logits_to_keep: Any, tokens: int) -> None:
    """Raise ValueError unless this is a number of last tokens, 0 for all, or a tensor of the indices of some tokens."""
    if torch.compiler.is_compiling():
        return
    legal = f"logits_to_keep must be a number of last tokens, 0 (all) to {tokens}, or a tensor of indices 0 to {tokens - 1}"
    if isinstance(logits_to_keep, Tensor):
        check_tensor(logits_to_keep, "logits_to_keep", "integers", [("indices of tokens", ())])
        require_range(logits_to_keep.long(), 0, tokens - 1, lambda: legal)
        return
    is_number = isinstance(logits_to_keep, int) and not isinstance(logits_to_keep, bool)
    if not (is_number and 0 <= logits_to_keep <= tokens):
        raise ValueError(f"{legal}, got {logits_to_keep!r:.60}")


def read_position_ids(position_ids: Tensor, batch: int, levels: int, columns: tuple[int, ...]) -> Tensor:
    """Return given ids as int64 (batch or 1, levels, columns); a row that is repeated in memory (`expand`) is one.

    Args:
        columns: the legal numbers of columns, the usual one first.

    Raises:
        ValueError: they are no integers, have another shape, or one is negative or above `LARGEST_ID`.
    """
    axes: list[Axis] = [one_or(batch), (f"{levels} levels", (levels,)), (f"{columns[0]} tokens", columns)]
    if levels == 1 and isinstance(position_ids, Tensor) and position_ids.ndim == 2:
        del axes[1]
    check_tensor(position_ids, "position_ids", "integers", axes)
    ids = with_levels(position_ids)
    # A graph is for ids of any rows: that those of an example are repeated says nothing of others.
    if not torch.compiler.is_compiling() and ids.shape[0] > 1 and ids.stride(0) == 0:
        ids = ids[:1]
    ids = ids.long()
    require_range(ids, 0, LARGEST_ID, lambda: f"position_ids must be 0, for no id, to {LARGEST_ID}")
    return ids


def couple_alike(ids: Tensor, others: Tensor) -> bool:
    """Return whether two rows of ids (tokens,) are equal for the same tokens, and absent, 0, for the same."""
    kinds = {ids.unique().numel(), others.unique().numel(), torch.stack([ids, others]).unique(dim=1).shape[1]}
    return len(kinds) == 1 and torch.equal(ids == 0, others == 0)


def read_pair_map(pair_map: Tensor, shape: PairShape, relations: int | None, name: str = "pair_map") -> Tensor:
    """Return a given map as int64 (batch or 1, heads or 1, queries, keys).

    Args:
        relations: number of relations that have a place in the model's table; None if no table ends.
        name: what to call the map.

    Raises:
        ValueError: it holds no integers, has another shape, or a relation has no place in the table.
    """
    axes = _pair_axes(shape)
    if isinstance(pair_map, Tensor) and pair_map.ndim == 3:
        del axes[1]
    check_tensor(pair_map, name, "integers", axes)
    maps = (pair_map.unsqueeze(1) if pair_map.ndim == 3 else pair_map).long()
    legal = f"{NOT_RELATED}, not related, or above" if relations is None else f"in {NOT_RELATED}..{relations - 1}"
    largest = None if relations is None else relations - 1
    require_range(maps, NOT_RELATED, largest, lambda: f"relations of {name} must be {legal}")
    return maps


def read_position_bias(position_bias: Tensor, shape: PairShape) -> Tensor:
    """Return a given bias (batch or 1, heads or 1, queries, keys).

    Raises:
        ValueError: it has another shape, holds nan or +inf, or is not of floats.
    """
    meaning = ", which are added to scores (see pair_map for integers),"
    check_tensor(position_bias, "position_bias", "floats", _pair_axes(shape), meaning)
    _check_no_nan(position_bias, "position_bias")
    return position_bias


def one_or(size: int, name: str = "") -> Axis:
    """Return the axis that has a size, or 1 for what is the same all along it.

    Args:
        name: of one thing on the axis.
    """
    words = "1" if size == 1 else f"{size} or 1"
    return f"{words} {name}{'' if size == 1 else 's'}" if name else words, (size, 1)


def _pair_axes(shape: PairShape) -> list[Axis]:
    """Return the axes of what is given for pairs of tokens."""
    return [
        one_or(shape.batch),
        one_or(shape.heads, "head"),
        (f"{shape.queries} queries", (shape.queries,)),
        (f"{shape.keys} keys", (shape.keys,)),
    ]


def _check_no_nan(values: Tensor, name: str) -> None:
    """Raise ValueError for scores that would make outputs nan: nan itself, or +inf."""
    # +inf and nan alone are not below +inf.
    require(values < math.inf, f"{name} must be finite, or -inf", lambda: "nan or +inf")


def is_pair_mask(attention_mask: object) -> TypeGuard[Tensor]:
    """Return whether a mask has an axis of queries, so that it says by itself who sees whom."""
    return isinstance(attention_mask, Tensor) and attention_mask.ndim == 4


class PairMask(NamedTuple):
    """A mask of pairs, in two parts.

    Attributes:
        visible: (batch or 1, heads or 1, queries, keys), whether a query sees a key.
        bias: of this shape, what is added to the scores of visible keys; None for nothing.
    """

    visible: Tensor
    bias: Tensor | None


def split_scores(added: Tensor) -> PairMask:
    """Return the two parts of what is added to scores: what is at most half of the type's lowest number hides a key.

    So a query from which all keys are hidden reads nothing, in whatever precision scores are.
    """
    visible = added > torch.finfo(added.dtype).min / 2
    return PairMask(visible, added.where(visible, 0.0))


def read_pair_mask(attention_mask: Tensor, shape: PairShape) -> PairMask:
    """Return the two parts of a mask that `is_pair_mask`; one of floats is added to scores, see `split_scores`.

    Raises:
        ValueError: it has another shape, holds nan or +inf, or holds integers, which may be meant as either kind.
    """
    if attention_mask.dtype != torch.bool and not attention_mask.is_floating_point():
        raise ValueError(
            "attention_mask of pairs must be bool, True for keys that are seen, or float, which is added to scores, got "
            f"{attention_mask.dtype}"
        )
    check_tensor(attention_mask, "attention_mask of pairs", "numbers", _pair_axes(shape))
    if attention_mask.dtype == torch.bool:
        return PairMask(attention_mask, None)
    _check_no_nan(attention_mask, "attention_mask of pairs")
    return split_scores(attention_mask)
