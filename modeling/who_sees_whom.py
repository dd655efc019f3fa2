"""Who sees whom in the decoder: a plan that is made once, before the first layer, and says to each layer what it reads.

`CoupledGPTModel._who_sees_whom` chooses one of three plans. *All pairs* hide keys from queries among all of them. Under a
window, *few keys* are named for each query, and *distinct rows* are few keys where tokens whose neighbourhoods are equal
share a row of states, since a layer's output at a token depends on its neighbourhood alone.
"""

# Used by: modeling_coupled_gpt.py. Bound by: the digest of the code that travels with a checkpoint: run .ci/code.

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .position_encodings import PositionEncoding
from .relations import (
    Neighbourhoods,
    Neighbours,
    as_scores,
    distinct_neighbourhoods,
    hiding_bias,
)
from .structure import PairShape, is_pair_mask

Tokens = slice | Tensor
"""A choice of tokens: a range of columns, or the columns (tokens,)."""


class Given(NamedTuple):
    """What a forward pass is given, after checks.

    Attributes:
        inputs: `input_ids` (batch, tokens), or `inputs_embeds` (batch, tokens, hidden).
        shape: the sizes of all pairs.
        key_ids: (batch or 1, levels, tokens or all keys), given or derived; None if the encoding needs none.
        pair_map: (batch or 1, heads or 1, tokens, keys), a caller's; None if there is none.
        position_bias, attention_mask: as given, and the mask hides tokens that no rule plans.
        neighbours: a caller's; None if there are none.
    """

    inputs: Tensor
    shape: PairShape
    key_ids: Tensor | None
    pair_map: Tensor | None
    position_bias: Tensor | None
    attention_mask: Tensor | None
    neighbours: Neighbours | None

    @property
    def own_ids(self) -> Tensor | None:
        """The ids of the tokens themselves, (batch or 1, levels, tokens)."""
        return None if self.key_ids is None else self.key_ids[..., -self.shape.queries :]

    @property
    def is_for_pairs(self) -> bool:
        """Whether a bias, a mask of pairs or a map for each head is given, so that all pairs are computed."""
        has_maps = self.pair_map is not None and self.pair_map.shape[1] > 1
        return has_maps or self.position_bias is not None or is_pair_mask(self.attention_mask)

    @property
    def may_hide_all(self) -> bool:
        """Whether a token may see no key, by a caller's structure or as padding. By a rule every token sees one."""
        given = (self.pair_map, self.neighbours, self.attention_mask, self.position_bias)
        return any(part is not None for part in given)


class Records(NamedTuple):
    """Whether a caller reads the states of each token after each layer, and the weights of each pair."""

    states: bool
    weights: bool


class AllPairs(NamedTuple):
    """Attention to all keys, of which some are hidden.

    Attributes:
        encoding: that of the model, whose bias each layer adds.
        visible: (batch or 1, heads or 1, queries, keys), whether a query sees a key.
        pair_map: of this shape, or None for an encoding that reads none.
        bias: (batch or 1, heads or 1, queries, keys), what a caller adds to scores, or None.
        is_given: whether the map is a caller's.
        may_hide_all: see `Given`.
        rows: the row of every token in the input of the first layer; None if each token has its own.
        kept: the tokens that the layer keeps.
    """

    encoding: PositionEncoding
    visible: Tensor
    pair_map: Tensor | None
    bias: Tensor | None
    is_given: bool
    may_hide_all: bool
    rows: Tensor | None
    kept: Tokens = slice(None)

    def keep(self, kept: Tokens, queries: Tokens | None) -> "AllPairs":
        """Return the plan of a layer that keeps some tokens; `queries` are these among the queries so far, None for all."""
        if queries is None:
            return self._replace(kept=kept)
        pair_map = None if self.pair_map is None else self.pair_map[:, :, queries]
        bias = None if self.bias is None else self.bias[:, :, queries]
        return self._replace(visible=self.visible[:, :, queries], pair_map=pair_map, bias=bias, kept=kept)

    def arguments(self, layer: int, dtype: torch.dtype) -> dict[str, Any]:
        """Return what the layer of this number reads, with scores of a type."""
        bias = None if self.pair_map is None else relation_bias(self.encoding, layer, self.pair_map, self.is_given)
        if self.bias is not None:
            given = as_scores(self.bias, dtype)
            bias = given if bias is None else bias.to(dtype) + given
        seen = count_keys(self.visible.sum(-1).transpose(1, 2), self.may_hide_all)
        rows = self.rows if layer == 0 else None
        return {"attention_mask": self.visible, "position_bias": bias, "kept": self.kept, "row_index": rows, **seen}


class FewKeys(NamedTuple):
    """Attention to the keys that are named for each query; methods are those of `AllPairs`.

    Attributes:
        neighbours: of the queries.
        encoding, may_hide_all, rows, kept: as for `AllPairs`.
    """

    encoding: PositionEncoding
    neighbours: Neighbours
    may_hide_all: bool
    rows: Tensor | None
    kept: Tokens = slice(None)

    def keep(self, kept: Tokens, queries: Tokens | None) -> "FewKeys":
        neighbours = self.neighbours if queries is None else self.neighbours.select(queries)
        return self._replace(neighbours=neighbours, kept=kept)

    def arguments(self, layer: int, dtype: torch.dtype) -> dict[str, Any]:
        seen = see_few_keys(self.encoding, layer, self.neighbours.relations, dtype, self.may_hide_all)
        rows = self.rows if layer == 0 else None
        return {"neighbours": self.neighbours, "kept": self.kept, "row_index": rows, **seen}


class DistinctRows(NamedTuple):
    """Few keys, with a row of states for each distinct neighbourhood; methods are those of `AllPairs`.

    Attributes:
        few: who sees whom.
        rows: (batch, tokens), the row of every token in the input of the layer.
        neighbourhoods: those of the layer, of which each gets a row; None before the first layer.
    """

    few: FewKeys
    rows: Tensor
    neighbourhoods: Neighbourhoods | None = None

    @classmethod
    def of(cls, few: FewKeys, shape: PairShape) -> "DistinctRows":
        """Begin with the rows of the first layer's input, or with one for each token."""
        rows = few.rows
        if rows is None:
            rows = torch.arange(shape.batch * shape.queries, device=few.neighbours.columns.device)
            rows = rows.view(shape.batch, shape.queries)
        return cls(few, rows)

    def keep(self, kept: Tokens, queries: Tokens | None) -> "DistinctRows":
        few = self.few.keep(kept, queries)
        neighbourhoods = distinct_neighbourhoods(self.rows, kept, few.neighbours)
        return DistinctRows(few, neighbourhoods.index, neighbourhoods)

    def arguments(self, layer: int, dtype: torch.dtype) -> dict[str, Any]:
        neighbourhoods: Any = self.neighbourhoods
        return {
            "neighbourhoods": neighbourhoods,
            **see_few_keys(self.few.encoding, layer, neighbourhoods.relations, dtype, self.few.may_hide_all),
        }


def count_keys(visible_keys: Tensor, may_hide_all: bool) -> dict[str, Tensor]:
    """Return the arguments of a layer that say how many keys a query sees (..., heads or 1).

    A token that sees none reads nothing.
    """
    if not may_hide_all:
        return {"visible_keys": visible_keys}
    return {"visible_keys": visible_keys, "sees_none": visible_keys == 0}


def relation_bias(encoding: PositionEncoding, layer: int, pair_map: Tensor, is_given: bool) -> Tensor | None:
    """Return the encoding's bias (batch or 1, heads, queries, keys) for a map (batch or 1, heads or 1, queries, keys).

    A pair that is not related in a given map has no bias.
    """
    read = pair_map.clamp(min=0) if is_given else pair_map
    if pair_map.shape[1] == 1:
        bias = encoding.bias(read.squeeze(1), layer)
        bias = None if bias is None else bias.permute(0, 3, 1, 2)
    else:
        by_head: list[Any] = [encoding.bias(head_map, layer) for head_map in read.unbind(1)]
        bias = torch.stack([biases[..., head] for head, biases in enumerate(by_head)], dim=1)
    return bias.masked_fill(pair_map < 0, 0.0) if is_given and bias is not None else bias


def see_few_keys(
    encoding: PositionEncoding, layer: int, relations: Tensor, dtype: torch.dtype, may_hide_all: bool
) -> dict[str, Tensor]:
    """Return the arguments of a layer that attends to the neighbours of these relations (..., queries, neighbours).

    Missing neighbours have `hiding_bias`, whose weight after softmax is exactly zero.
    """
    visible = relations >= 0
    bias: Any = encoding.bias(relations, layer)
    bias = torch.where(visible.unsqueeze(-1), bias.to(dtype), hiding_bias(dtype))
    return {"position_bias": bias, **count_keys(visible.sum(-1, keepdim=True), may_hide_all)}
