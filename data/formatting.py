"""From digits to token arrays: the parts of a sequence laid side by side."""

# Used by: data, data/machines, data/proofs, data/tasks, hub_cards/evaluation, hub_cards/publishing, hub_cards/research/gpu,
# hub_cards/research/theories, hub_cards/training. Changed freely.

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self, TypedDict, TypeVar, cast

import numpy as np
import torch

from longhand.modeling.settling import IGNORED, NO_STATE
from longhand.modeling.vocabulary import PAD


class Batch(TypedDict, total=False):
    """Inputs of a model for some problems, with their labels, as a collator makes them.

    Attributes:
        input_ids: (count, columns).
        labels: (count, columns), -100 for a token that is not supervised.
        attention_mask: (count, columns), 0 at padding; absent if there is no padding.
        position_ids: (count, levels, columns), for decoders; see `repeat_row`.
        drawn_position_ids: like `position_ids`, the random ones that a model in training mode takes in their place.
        pair_map: (count, columns, columns) or (count, heads, columns, columns), if rows have one.
        states: (count, columns), for one pass of an encoder that settles.
        neighbours: the keys that each token sees and their relations, for rows that are neighbourhoods.
        logits_to_keep: columns from the first `=` on, for decoders.
        counted: (count,), False for a row that only fills up a process's share of a validation; absent if none does.
    """

    input_ids: torch.Tensor
    labels: torch.Tensor
    attention_mask: torch.Tensor
    position_ids: torch.Tensor
    drawn_position_ids: torch.Tensor
    pair_map: torch.Tensor
    states: torch.Tensor
    neighbours: tuple[torch.Tensor, ...]
    logits_to_keep: int
    counted: torch.Tensor


def repeat_row(row: torch.Tensor, count: int) -> torch.Tensor:
    """A row (1, ...) for each of `count` problems, (count, ...), all in the memory of the one.

    So torch can scatter a batch to several GPUs by rows, and a model computes once what is the same for all
    (`longhand.modeling.structure.read_position_ids`).
    """
    return row.expand(count, *row.shape[1:])


def is_repeated(values: torch.Tensor) -> bool:
    """Whether all rows are one, by `repeat_row`."""
    return values.ndim > 0 and len(values) > 1 and values.stride(0) == 0


def move_rows(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor of a batch on a device; a repeated row is moved once, and stays repeated."""
    return repeat_row(values[:1].to(device), len(values)) if is_repeated(values) else values.to(device)


def as_batch(inputs: Mapping[str, object]) -> Batch:
    """Inputs under their names as a batch, where the names are not written out, as when all tensors move to a device."""
    return cast(Batch, dict(inputs))


def contiguous(batch: Batch) -> Batch:
    """A batch whose tensors are contiguous, since losses of transformers view labels as one row; repeated rows stay so."""
    return as_batch(
        {
            name: value.contiguous() if isinstance(value, torch.Tensor) and not is_repeated(value) else value
            for name, value in batch.items()
        }
    )


FILLERS = {"tokens": PAD, "labels": IGNORED, "states": NO_STATE, "supervised": False, "position_ids": 0}
"""What stands at padding in those arrays of problems that have columns, by their names."""


@dataclass(frozen=True)
class FormattedRows:
    """Problems as whole arrays; `tokens` is (count, columns), padded on the right."""

    tokens: np.ndarray

    def __len__(self) -> int:
        return len(self.tokens)

    def take(self, rows: np.ndarray | slice) -> Self:
        """Some of the problems, without columns that are padding in all of them."""
        width = int(np.flatnonzero((self.tokens[rows] != PAD).any(axis=0)).max(initial=0)) + 1
        taken = {name: value[rows] for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return replace(self, **{name: value[..., :width] if name in FILLERS else value for name, value in taken.items()})

    def shown_labels(self, row: int) -> str:
        """The labels of a problem behind its text, for reports; nothing where the text holds the response itself."""
        return ""


@dataclass(frozen=True)
class Examples(FormattedRows):
    """Formatted problems.

    Attributes:
        tokens: (count, columns) uint8, or uint16, token ids, from the begin token to the end token, padded on the right.
        query_lengths: (count,) tokens up to and including `=`.
        same_layout: whether all rows have their markers in the same columns and no padding.
        supervised: (count, columns) bool, the tokens of the response that count; a model is given the others. None if all
            of them count.
        position_ids: (count, levels, columns) ids by the task's own coupling rule, if the query alone does not say them;
            else None. Rules that read any text do without.
        largest_ids: (count, levels) the largest id of each row by a collator's rule, if that is the same with any padding
            behind the row; None if it is not known.
    """

    tokens: np.ndarray
    query_lengths: np.ndarray
    same_layout: bool
    supervised: np.ndarray | None = None
    position_ids: np.ndarray | None = None
    largest_ids: np.ndarray | None = None


@dataclass(frozen=True)
class LabelledTokens(FormattedRows):
    """Problems for an encoder.

    Attributes:
        tokens: (count, columns) uint8 token ids, padded on the right.
        labels: (count, columns) int8, the class of each token, -100 if the token is not supervised.
        states: (count, columns) int8, of one pass of an encoder that settles, see `modeling/settling.py`; None if the model
            makes its passes itself.
    """

    tokens: np.ndarray
    labels: np.ndarray
    states: np.ndarray | None = None

    def shown_labels(self, row: int) -> str:
        labels = ["." if label < 0 else str(label) for label in self.labels[row].tolist()]
        return "   labels " + " ".join(labels)


AnyRows = TypeVar("AnyRows", bound=FormattedRows)


def join_examples(parts: list[AnyRows]) -> AnyRows:
    """Examples, or labelled tokens, of several widths, one part after the other, padded on the right.

    All parts have `states`, `supervised` or `position_ids`, or none has.
    """
    width = max(part.tokens.shape[1] for part in parts)
    joined: dict[str, np.ndarray] = {}
    for name in [name for name, value in vars(parts[0]).items() if isinstance(value, np.ndarray)]:
        rows = [getattr(part, name) for part in parts]
        if name in FILLERS:
            sides = [((0, 0),) * (row.ndim - 1) + ((0, width - row.shape[-1]),) for row in rows]
            rows = [np.pad(row, side, constant_values=FILLERS[name]) for row, side in zip(rows, sides, strict=True)]
        joined[name] = np.concatenate(rows)
    whole = replace(parts[0], **joined)
    return replace(whole, same_layout=False) if isinstance(whole, Examples) else whole


def lay_out(parts: list[int | np.ndarray], query_parts: int) -> Examples:
    """Concatenate single tokens and (count, width) token arrays to sequences; `PAD` inside a part is removed.

    Args:
        parts: a token for every row, or an array of tokens.
        query_parts: number of parts that make up the query.
    """
    count = next(len(part) for part in parts if isinstance(part, np.ndarray))
    widths = [part.shape[1] if isinstance(part, np.ndarray) else 1 for part in parts]
    edges = np.cumsum([0, *widths])
    kind = np.result_type(np.uint8, *(part for part in parts if isinstance(part, np.ndarray)))
    tokens = np.empty((count, edges[-1]), dtype=kind)
    for part, begin, end in zip(parts, edges[:-1], edges[1:], strict=True):
        tokens[:, begin:end] = part
    query_columns = int(edges[query_parts])
    present = tokens != PAD
    if present.all():
        return Examples(tokens, np.full(count, query_columns), same_layout=True)
    return Examples(close_up(tokens, present, PAD), present[:, :query_columns].sum(axis=1), same_layout=False)


def close_up(values: np.ndarray, present: np.ndarray, fill: int) -> np.ndarray:
    """The values (count, columns) that are present, moved to the left of each row and filled up on the right."""
    lengths = present.sum(axis=1, dtype=np.int32)
    kept = np.arange(int(lengths.max()), dtype=np.int32) < lengths[:, None]
    closed = np.full(kept.shape, fill, dtype=values.dtype)
    closed[kept] = values[present]
    return closed


def check_longest(digits: np.ndarray, lengths: np.ndarray) -> None:
    """Raise ValueError if the longest operands of some problems have not one length, the width of the digits.

    Args:
        digits: (count, operands, width).
        lengths: (count, operands).
    """
    if (short := int(lengths.max(axis=1).min())) < digits.shape[2]:
        raise ValueError(f"problems of one batch must have one longest operand, got {short} and {digits.shape[2]} digits")


def pad_beyond(digits: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Digits (count, width) with `PAD` from each row's length on."""
    columns = np.arange(digits.shape[1], dtype=np.int32)
    return np.where(columns < lengths[:, None].astype(np.int32), digits, np.uint8(PAD))
