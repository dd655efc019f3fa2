# Copyright 2026 The longhand developers.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""PairwiseBert: an encoder with pairwise position vectors (structural symmetry, Sabbaghi et al., 2024)."""

# Used by: data, data/machines, data/proofs/windows, hub_cards/evaluation. Bound by: the digest of the code that travels with
# a checkpoint: run .ci/code.

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutput, SequenceClassifierOutput, TokenClassifierOutput
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .configuration_pairwise_bert import PairwiseBertConfig
from .encoder_maps import (
    COLUMNS,
    GRID,
    NO_MAP,
    PAIR_MAP_RULES,
    RULE_IDS,
    PairMapRule,
    derive_pair_map,
    number_tokens,
    relate_ids,
    relative_relations,
    virtual_indices,
)
from .inputs import check_hidden, check_input_ids, check_mask, check_padding, check_prompts
from .pretrained import LonghandPreTrainedModel, attend, eager_attention_forward
from .relations import FAVOUR, NOT_RELATED, Neighbours, as_scores, attend_to_columns, coupled_pair_map, hiding_bias
from .settling import (
    IGNORED,
    NO_STATE,
    AnswerTokens,
    LabelCases,
    answer_relations,
    cases_at,
    draw_states,
    find_answers,
    find_labels,
    hide_own_labels,
    pass_targets,
    settle,
)
from .structure import (
    GIVEN,
    PairShape,
    check_arguments,
    check_one_example,
    check_one_input,
    is_pair_mask,
    read_labels,
    read_pair_map,
    read_pair_mask,
    read_position_bias,
    read_position_ids,
    read_row_labels,
    split_scores,
)
from .values import all_on_host, check_tensor, on_host, reads_values, require_range, send
from .vocabulary import FIRST_TEXT

CASES = 2**14
"""Number of cases that are computed at a time; it bounds the memory and changes no result."""


class RelationVectors(nn.Module):
    """The vectors p that the heads of one rule add to keys or queries in a layer, (relations, 1 or heads, head_dim).

    Numbers that are added to scores are (relations, 1 or heads, 1).
    """

    def __init__(self, config: PairwiseBertConfig, name: str):
        super().__init__()
        self.name = name
        self.heads = [head for head, rule in enumerate(config.head_maps) if rule == name]
        relations = config.count_relations(name)
        tables = 1 if config.share_over_heads else len(self.heads)
        self.place = config.where_relations_enter
        size = 1 if self.place == "score" else config.head_dim
        self.weight = nn.Parameter(torch.empty(relations, tables, size))

    def forward(self, query: Tensor, key: Tensor, relations: Tensor) -> Tensor:
        """Return what relations add to scores, 0 for keys that are not related.

        That is the product of each query with the vector of each key, of each key with the vector of each query, or a
        relation's number.

        Args:
            query: scaled, (batch, heads, queries, head_dim).
            key: (batch, heads, keys, head_dim), scaled if vectors are added to queries.
            relations: (batch or 1, heads or 1, queries, keys).

        Returns:
            (batch, heads, queries, keys), of one row or head if all have the same.
        """
        index = relations.long().where(relations >= 0, len(self.weight))
        table = self.weight.permute(1, 2, 0)
        if self.place == "score":
            numbers = nn.functional.pad(table, (0, 1)).unsqueeze(0)
            rows, heads, queries, keys = index.shape
            heads = max(heads, len(table))
            return numbers.expand(rows, heads, queries, -1).gather(-1, index.expand(rows, heads, queries, keys))
        if self.place == "query":
            scores = nn.functional.pad(torch.matmul(key, table), (0, 1))
            return scores.gather(-1, index.mT.expand(*scores.shape[:-1], -1)).mT
        scores = nn.functional.pad(torch.matmul(query, table), (0, 1))
        return scores.gather(-1, index.expand(*scores.shape[:-1], -1))


class QueryProjection(nn.Linear):
    """The projection to queries, a class of its own so that `_init_weights` gives it biases that favour relations."""


class PairwiseBertAttention(nn.Module):
    """Multi-head attention with score q_i . (k_j + p[map[i, j]]) / sqrt(head_dim) (Shaw et al., 2018; paper 2, Eq. 2.1).

    Every query is multiplied with every vector once; the map then picks the term of each key from these products. On top of
    plain attention, this takes (batch, heads, queries, relations) products and (batch, heads, queries, keys) picked values.
    A literal sum of keys and vectors would take (batch, queries, keys, head_dim). For cases (`label_cases`), values are
    picked only for related keys, and the cost is linear in the number of tokens.
    """

    def __init__(self, config: PairwiseBertConfig):
        super().__init__()
        self.config = config
        self.head_dim = config.head_dim
        self.scaling = config.head_dim**-0.5
        self.q_proj = QueryProjection(config.hidden_size, config.hidden_size)
        self.k_proj = nn.Linear(config.hidden_size, config.hidden_size)
        self.v_proj = nn.Linear(config.hidden_size, config.hidden_size)
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size)
        self.relations = nn.ModuleList(
            RelationVectors(config, name) for name in dict.fromkeys(config.head_maps) if name != NO_MAP
        )

    def forward(
        self,
        hidden_states: Tensor,
        pair_maps: dict[str, Tensor] | None = None,
        attention_mask: Tensor | None = None,
        position_bias: Tensor | None = None,
        sees_none: Tensor | None = None,
        neighbours: Neighbours | None = None,
        seen_states: Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from every token to all keys, or only to its `neighbours`.

        Args:
            hidden_states: (batch, tokens, hidden).
            pair_maps: the map of each rule, (batch or 1, heads or 1, tokens, keys), -1 for pairs that are not related. Keys
                are the tokens and, last, the sink if there is one.
            attention_mask: (batch or 1, heads or 1, 1 or tokens, keys), added to scores: `hiding_bias` for hidden keys.
            position_bias: (batch or 1, heads or 1, tokens, keys), what a caller adds to scores.
            sees_none: (batch or 1, tokens, heads or 1), whether a query sees no key, so that it reads nothing; None if this
                is not known.
            neighbours: the keys that each query sees; they replace the arguments above.
            seen_states: (batch, other tokens, hidden), if keys are made of other tokens than these.

        Returns:
            Outputs (batch, tokens, hidden), and weights if the attention interface returns them.
        """
        seen = hidden_states if seen_states is None else seen_states
        query, key, value = (
            projection(states).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for projection, states in ((self.q_proj, hidden_states), (self.k_proj, seen), (self.v_proj, seen))
        )
        if self.config.sink:
            key, value = (nn.functional.pad(states, (0, 0, 0, 1)) for states in (key, value))
        if neighbours is not None:
            return self.o_proj(self._attend_to_neighbours(query, key, value, neighbours).flatten(2)), None
        bias = self._bias(query * self.scaling, key, pair_maps or {}, position_bias)
        output, weights = self._attend_to_all(query, key, value, attention_mask, bias, **kwargs)
        if sees_none is not None:
            output = output.masked_fill(sees_none.unsqueeze(-1), 0.0)
        return self.o_proj(output.flatten(2)), weights

    def _attend_to_neighbours(self, query: Tensor, key: Tensor, value: Tensor, neighbours: Neighbours) -> Tensor:
        """Return the output (batch, tokens, heads, head_dim) of queries (batch, heads, tokens, head_dim), few keys each."""
        bias = self._window_bias(query * self.scaling, neighbours.relations)
        return attend_to_columns(query, key, value, neighbours.columns.clamp(min=0), bias, self.scaling)

    def _attend_to_all(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, bias: Tensor | None, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Return the output (batch, tokens, heads, head_dim) of queries that see any of all keys, and weights if there are.

        Queries are (batch, heads, tokens, head_dim), keys and values (batch, heads, keys, head_dim); `mask` and `bias` are
        added to the scores.
        """
        dropout = self.config.attention_probs_dropout_prob if self.training else 0.0
        attention = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        return attend(attention, self, query, key, value, mask, bias, self.scaling, dropout, **kwargs)

    def _window_bias(self, query: Tensor, relations: Tensor) -> Tensor:
        """Return what is added to the scores of neighbours, (batch, queries, neighbours, heads), as `RelationVectors`."""
        (vectors,) = self.relations
        bias = vectors(query, query, relations.unsqueeze(1))
        return bias.masked_fill((relations < 0).unsqueeze(1), hiding_bias(bias.dtype)).permute(0, 2, 3, 1)

    def _bias(self, query: Tensor, key: Tensor, pair_maps: dict[str, Tensor], position_bias: Tensor | None) -> Tensor | None:
        """Return what is added to the scores, (batch, heads, queries, keys): the products with vectors, and a given bias."""
        if not self.relations:
            return position_bias
        batch, heads, tokens, _ = query.shape
        if self.config.where_relations_enter == "query":
            key = key * self.scaling
        every: list[Any] = list(self.relations)
        if len(every) == 1 and len(every[0].heads) == heads:
            bias = every[0](query, key, pair_maps[every[0].name])
        else:
            bias = query.new_zeros(batch, heads, tokens, tokens + self.config.sink)
            for relations in every:
                chosen = relations.heads
                bias[:, chosen] = relations(query[:, chosen], key[:, chosen], pair_maps[relations.name]).to(bias.dtype)
        return bias if position_bias is None else bias + as_scores(position_bias, bias.dtype)


class PairwiseBertLayer(GradientCheckpointingLayer):
    """Attention and MLP, each followed by the norm of the residual sum."""

    def __init__(self, config: PairwiseBertConfig):
        super().__init__()
        self.self_attn = PairwiseBertAttention(config)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size)
        self.activation = ACT2FN[config.hidden_act]
        self.mlp_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, hidden_states: Tensor, **kwargs: Any) -> Tensor:
        attention_output, _ = self.self_attn(hidden_states, **kwargs)
        hidden_states = self.attention_norm(hidden_states + self.dropout(attention_output))
        output = self.down_proj(self.activation(self.up_proj(hidden_states)))
        return self.mlp_norm(hidden_states + self.dropout(output))


@dataclass
class PairwiseBertModelOutput(BaseModelOutput):
    """Output of `PairwiseBertModel`.

    Attributes:
        last_change: mean squared change of the state in the last loop, without padding, a scalar.
        num_loops: number of times that the layers were applied.
    """

    last_change: Tensor | None = None
    num_loops: int | None = None


class PairwiseBertPreTrainedModel(LonghandPreTrainedModel):
    config: PairwiseBertConfig
    _no_split_modules = ["PairwiseBertLayer"]
    _can_record_outputs = {"hidden_states": PairwiseBertLayer, "attentions": PairwiseBertAttention}

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        # A parameter is drawn through the module that owns it: in remote code, transformers skips other modules.
        if self.config.relation_init == "one_per_head" and isinstance(module, (QueryProjection, RelationVectors)):
            self._favour_one_relation_per_head(module)
        elif isinstance(module, RelationVectors):
            std = self.config.initializer_range
            if self.config.relation_init == "scores":
                # The entries of queries and keys of normed states have about the deviation that is divided by.
                std = 1.0 if module.place == "score" else 1 / (std * self.config.hidden_size**0.5)
            init.normal_(module.weight, std=std)
        else:
            super()._init_weights(module)

    def add_settling(
        self, loss: Tensor, labels: Tensor, change: Tensor, num_items_in_batch: Tensor | int | None = None, **_: Any
    ) -> Tensor:
        """Return a loss and, in training, `settle_weight` times the last change of the state, a scalar.

        Args:
            num_items_in_batch: number of labels of all batches of an optimizer step, if Trainer gives it: this batch has its
                share of them.
        """
        if not (self.training and self.config.settle_weight):
            return loss
        share = 1.0 if num_items_in_batch is None else (labels != IGNORED).sum() / num_items_in_batch
        return loss + self.config.settle_weight * share * change

    def _favour_one_relation_per_head(self, module) -> None:
        """Set orthogonal vectors, and on each head's queries a bias along one of them, so that its score gains `FAVOUR`."""
        config = self.config
        length = (FAVOUR * config.head_dim**0.5) ** 0.5
        if isinstance(module, RelationVectors):
            vectors = length * torch.eye(len(module.weight), config.head_dim)
            init.copy_(module.weight, vectors.unsqueeze(1).expand_as(module.weight))
            return
        init.normal_(module.weight, std=config.initializer_range)
        bias = torch.zeros(config.num_attention_heads, config.head_dim)
        for name in {*config.head_maps} - {NO_MAP}:
            heads = [head for head, rule in enumerate(config.head_maps) if rule == name]
            bias[heads, torch.arange(len(heads)) % config.count_relations(name)] = length
        init.copy_(module.bias, bias.flatten())


class EncoderInputs(NamedTuple):
    """What rules may read of the tokens.

    Attributes:
        input_ids: (batch, tokens), or None if embeddings are given.
        text: the same on the processor, for rules that read values.
        present: (batch, tokens), False for padding; None if there is none.
        tokens: number of columns.
    """

    input_ids: Tensor | None
    text: Tensor | None
    present: Tensor | None
    tokens: int
    device: torch.device


def _find_present(attention_mask: Tensor | None) -> Tensor | None:
    """Return which tokens are not padding, (batch, tokens); None if none is known to be, or the mask is one of pairs."""
    if attention_mask is None or is_pair_mask(attention_mask):
        return None
    return None if reads_values(attention_mask) and attention_mask.all() else attention_mask.bool()


def check_settles_alone(
    attention_mask: Tensor | None,
    position_ids: Tensor | None,
    pair_map: Tensor | Mapping[str, Tensor] | None,
    position_bias: Tensor | None,
    inputs_embeds: Tensor | None,
) -> None:
    """Raise ValueError for structure given to a model with label_states, whose passes are over the tokens' own."""
    given = {
        "position_ids": position_ids,
        "pair_map": pair_map,
        "position_bias": position_bias,
        "inputs_embeds": inputs_embeds,
        "an attention_mask of pairs": attention_mask if is_pair_mask(attention_mask) else None,
    }
    if unread := [name for name, value in given.items() if value is not None]:
        raise ValueError(f"a model with label_states settles from input_ids alone: it does not read {', '.join(unread)}")


class PairwiseBertModel(PairwiseBertPreTrainedModel):
    """Embeddings and layers; see `PairwiseBertForTokenClassification.forward` for the arguments."""

    def __init__(self, config: PairwiseBertConfig):
        super().__init__(config)
        # `from_pretrained` changes fields after the configuration was checked.
        config.validate_architecture()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        if config.absolute_positions != "none":
            self.embed_positions = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        if config.label_states:
            self.embed_states = nn.Embedding(config.num_labels, config.hidden_size)
        self.embedding_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.layers = nn.ModuleList(PairwiseBertLayer(config) for _ in range(config.num_hidden_layers))
        self.gradient_checkpointing = False
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        pair_map: Tensor | Mapping[str, Tensor] | None = None,
        position_bias: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        states: Tensor | None = None,
        **kwargs: Any,
    ) -> PairwiseBertModelOutput:
        """Return the states after the layers.

        Args:
            input_ids: (batch, tokens); or `inputs_embeds` (batch, tokens, hidden) in their place.
            attention_mask, position_ids, pair_map, position_bias: see `PairwiseBertForTokenClassification.forward`, with
                their shapes.
            states: (batch, tokens) labels of the pass before, for a model with label_states; see `settling.Cases`.
            kwargs: `output_hidden_states`, `output_attentions`, and arguments of the attention interface.

        Returns:
            `last_hidden_state` (batch, tokens, hidden), how often the layers were applied, and the last change.

        Raises:
            ValueError: as `PairwiseBertForTokenClassification.forward`; or states are lacking, or not read.
        """
        check_arguments(kwargs, "PairwiseBert")
        check_one_input(input_ids, inputs_embeds, self.embed_tokens.weight)
        text = None
        if input_ids is not None:
            input_ids, text = self.check_text(input_ids, attention_mask)
        if (states is not None) != self.config.label_states:
            raise ValueError(f"states are for a model with label_states, and needed there: it is {self.config.label_states}")
        if states is not None:
            check_settles_alone(attention_mask, position_ids, pair_map, position_bias, inputs_embeds)
        embeddings = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        batch, tokens, _ = embeddings.shape
        if states is not None:
            states = self.read_states(states, embeddings.shape[:2])
        if not is_pair_mask(attention_mask):
            check_mask(attention_mask, batch, tokens)
        inputs = EncoderInputs(input_ids, text, _find_present(attention_mask), tokens, embeddings.device)
        given = self._read_pair_maps(pair_map, PairShape(batch, 1, tokens, tokens))
        ids = self._read_position_ids(position_ids, inputs, batch, given)
        pair_maps = {name: given[name] if name in given else self._derive_map(name, inputs, ids) for name in self.rules}
        embeddings = self._add_positions(self._add_states(embeddings, states), inputs, ids)
        embeddings = self.dropout(self.embedding_norm(embeddings))
        seen = self._attention_arguments(pair_maps, inputs.present, attention_mask, position_bias, embeddings)
        if not (given or ids is not None or position_bias is not None or is_pair_mask(attention_mask)):
            # By a rule, text under a window sees no key; its own output is not defined.
            del seen["sees_none"]
        return self._loop(embeddings, None if inputs.present is None else ~inputs.present, **seen, **kwargs)

    @property
    def rules(self) -> list[str]:
        """The names of the rules of all heads, each once."""
        return [name for name in dict.fromkeys(self.config.head_maps) if name != NO_MAP]

    def _loop(self, embeddings: Tensor, hidden: Tensor | None, **kwargs) -> PairwiseBertModelOutput:
        """Apply the layers in a loop to the last state plus the embeddings (batch, tokens, hidden), until it settles.

        A text that has settled keeps its state, so that its output does not depend on the other texts of its batch.

        Args:
            hidden: (batch, tokens), True for padding, whose change does not count.
        """
        state = change = torch.zeros_like(embeddings)
        most, tolerance = self.config.num_loops, None if self.training else self.config.settle_tolerance
        if self.training and most > 1:
            most = int(torch.randint((most + 1) // 2, most + 1, ()))
        if tolerance is not None:
            tokens = embeddings.shape[1] if hidden is None else (~hidden).sum(1).view(-1, 1, 1)
            own_most = most + tokens
            most += embeddings.shape[1]
            goes_on = torch.ones_like(embeddings[:, :1, :1], dtype=torch.bool)
        for loop in range(1, most + 1):
            before, state = state, state + embeddings
            for layer in self.layers:
                state = layer(state, **kwargs)
            last, change = change, state - before
            if hidden is not None:
                change = change.masked_fill(hidden.unsqueeze(-1), 0.0)
            if tolerance is not None:
                state, change = torch.where(goes_on, state, before), torch.where(goes_on, change, last)
                goes_on = goes_on & (change.abs().amax((1, 2), keepdim=True) > tolerance) & (loop < own_most)
                if not goes_on.any():
                    break
        shown = change.numel() if hidden is None else (~hidden).sum() * change.shape[-1]
        precise = torch.promote_types(change.dtype, torch.float32)
        mean = change.square().sum(dtype=precise) / shown
        return PairwiseBertModelOutput(last_hidden_state=state, last_change=mean, num_loops=loop)

    def _add_states(self, embeddings: Tensor, states: Tensor | None) -> Tensor:
        """Add to embeddings (batch, tokens, hidden) the embedding of each token's state, if it has one."""
        if states is None:
            return embeddings
        return embeddings + self.embed_states(states.clamp(min=0)) * (states != NO_STATE).unsqueeze(-1)

    def read_states(self, states: Tensor, shape: torch.Size) -> Tensor:
        """Return states of tokens of this shape as int64; raise ValueError for others."""
        check_tensor(states, "states", "integers", [(f"{size}", (size,)) for size in shape])
        read, largest = states.long(), self.config.num_labels - 1
        require_range(read, NO_STATE, largest, lambda: f"states must be in {NO_STATE}..{largest}")
        return read

    def find_answers(self, input_ids: Tensor) -> AnswerTokens:
        """Find the tokens (batch, tokens) at which answers are read, see `settling.find_answers` and `find_labels`."""
        if table := self.config.table:
            return find_labels(table, input_ids)
        window: Any = self.config.relation_range
        return find_answers(self.config.head_maps[0], input_ids, window, self.config.max_multiplier_length)

    def label_cases(self, cases: LabelCases) -> Tensor:
        """Return the last hidden states (cases, hidden) of a model with label_states, from what each token sees alone.

        The cases may be on the processor, where finding the different ones of them makes nothing wait.
        """
        weights = self.embed_tokens.weight
        # Weights that are offloaded are on no device, until a layer needs them.
        device = cases.tokens.device if weights.is_meta else weights.device
        # Few pairs of a token and a state exist: keys and values are made once for each.
        states_of_token = self.config.num_labels + 1
        tokens = torch.cat([cases.tokens, cases.keys.flatten()])
        states = torch.cat([cases.states, cases.key_states.flatten()])
        pairs, rows = (tokens * states_of_token + states - NO_STATE).unique(return_inverse=True)
        pairs, rows = send(pairs, device), send(rows, device)
        # As a batch of one row, which hooks on embeddings expect.
        embeddings = self.embed_tokens((pairs // states_of_token).unsqueeze(0)).squeeze(0)
        embeddings = self._add_states(embeddings, pairs % states_of_token + NO_STATE)
        inputs = self.dropout(self.embedding_norm(embeddings)).unsqueeze(0)
        token_rows, key_rows = rows[: len(cases.tokens)], rows[len(cases.tokens) :].view(cases.keys.shape)
        relations = send(cases.relations, device)
        columns = torch.where(relations == NOT_RELATED, -1, key_rows)
        if self.config.sink:
            columns = nn.functional.pad(columns, (0, 1), value=len(pairs))
            relations = nn.functional.pad(relations, (0, 1), value=self.config.sink_relation(self.config.head_maps[0]))
        neighbours = Neighbours(columns.unsqueeze(0), relations.unsqueeze(0))
        (layer,) = self.layers
        return layer(inputs[:, token_rows], seen_states=inputs, neighbours=neighbours).squeeze(0)

    def _read_position_ids(
        self, position_ids: Tensor | None, inputs: EncoderInputs, batch: int, given: dict[str, Tensor]
    ) -> Tensor | None:
        """Return given ids (batch or 1, levels, tokens), or None.

        Args:
            given: the given maps by rule, which override what ids give.

        Raises:
            ValueError: they have another shape, no part of the model reads them, or the model needs them.
        """
        config = self.config
        if position_ids is None:
            if config.absolute_positions == GIVEN:
                raise ValueError("absolute_positions is 'given': every call gives position_ids, 0 for tokens without one")
            return None
        reading = [name for name in self.rules if name in RULE_IDS or (name == GIVEN and not config.num_relations)]
        if reading and {*given} >= {*reading} and config.absolute_positions == "none":
            raise ValueError(
                "pair_map overrides position_ids, which no other part of this model reads: give one of them (pair_maps are "
                f"{config.pair_maps})"
            )
        if not reading and config.absolute_positions == "none":
            raise ValueError(
                f"no part of this model reads position_ids: pair_maps are {config.pair_maps}, absolute_positions "
                f"{config.absolute_positions!r}" + (", relations are given as pair_map" if config.num_relations else "")
            )
        ids = read_position_ids(position_ids, batch, config.levels, (inputs.tokens,))
        if not config.has_text:
            return ids
        # Text has no relations, and alone has absolute positions.
        return ids if inputs.input_ids is None else ids.expand(batch, -1, -1)

    def _read_pair_maps(self, pair_map: Tensor | Mapping[str, Tensor] | None, shape: PairShape) -> dict[str, Tensor]:
        """Return given maps by rule, (batch or 1, heads of the rule or 1, tokens, tokens).

        Raises:
            ValueError: a map has another shape, a relation without a vector, or is for no rule of the heads.
        """
        if pair_map is None:
            return {}
        config = self.config
        if not isinstance(pair_map, Mapping):
            meant = [GIVEN] if GIVEN in self.rules else self.rules
            if len(meant) != 1:
                shown = f"pass {{rule: map}} for the rules {', '.join(self.rules)}" if meant else "no head reads a pair map"
                raise ValueError(f"pair_map does not say for which rule of pair_maps {config.pair_maps} it is: {shown}")
            pair_map = {meant[0]: pair_map}
        if unknown := [name for name in pair_map if name not in self.rules]:
            raise ValueError(f"pair_map is for the rule {unknown[0]!r}, which no head has: pair_maps are {config.pair_maps}")
        maps = {}
        for name, given in pair_map.items():
            heads = shape._replace(heads=config.head_maps.count(name))
            maps[name] = read_pair_map(given, heads, config.sink_relation(name), f"pair_map of the rule {name!r}")
        return maps

    def _derive_map(self, name: str, inputs: EncoderInputs, ids: Tensor | None) -> Tensor:
        """Return the map (batch or 1, 1, tokens, tokens) int64 of a rule, from given ids or from the tokens.

        Raises:
            ValueError: it cannot be derived from what is given.
        """
        config, input_ids = self.config, inputs.text
        window: Any = (config.relation_range, config.windowed)
        uniform: Any = (config.max_multiplier_length, config.with_self)
        numbers_tokens = name == "relative" and not config.has_text
        if name == GIVEN:
            if ids is None or config.num_relations:
                also = "" if config.num_relations else ", or position_ids whose differences are its relations"
                raise ValueError(f"pair_maps has 'given': every call gives pair_map{also}")
            relations = coupled_pair_map(ids, ids, *window)
        elif numbers_tokens:
            token_ids = number_tokens(inputs.present, inputs.tokens, inputs.device) if ids is None else ids[:, 0]
            relations = relative_relations(token_ids, *window)
        elif inputs.input_ids is None or input_ids is None:
            raise ValueError(f"the rule {name!r} reads input_ids: with inputs_embeds, give its map as pair_map")
        elif name in PAIR_MAP_RULES:
            return self._follow_rule(PAIR_MAP_RULES[name], inputs.input_ids, inputs.present)
        elif name in (GRID, COLUMNS):
            relations = answer_relations(self.find_answers(input_ids), input_ids.shape)
        elif ids is None:
            relations = derive_pair_map(name, input_ids, virtual_indices(input_ids), *window, *uniform)
        else:
            token_ids = on_host(ids[:, 0]).masked_fill(input_ids >= FIRST_TEXT, 0)
            relations = relate_ids(name, token_ids, input_ids, *window, *uniform)
        return send(relations, inputs.device).long().unsqueeze(1)

    def _follow_rule(self, rule: PairMapRule, input_ids: Tensor, present: Tensor | None) -> Tensor:
        """Return the map (batch or 1, 1, tokens, tokens) of a plugin's rule; raise ValueError if it is not legal."""
        batch, tokens = input_ids.shape
        present = torch.ones_like(input_ids, dtype=torch.bool) if present is None else present
        shape = PairShape(batch, 1, tokens, tokens)
        return read_pair_map(rule.derive(input_ids, present), shape, rule.relations, f"map of the rule {rule.name!r}")

    def _attention_arguments(
        self,
        pair_maps: dict[str, Tensor],
        present: Tensor | None,
        attention_mask: Tensor | None,
        position_bias: Tensor | None,
        embeddings: Tensor,
    ) -> dict[str, Any]:
        """Return the arguments of every layer that say which keys a query sees, in which relation, and what is added.

        Args:
            pair_maps: (batch or 1, heads of the rule or 1, tokens, tokens) of each rule.
            present: (batch, tokens), False for padding, or None.
            attention_mask: the caller's, which counts if it is a mask of pairs.
        """
        config, (batch, tokens, _) = self.config, embeddings.shape
        shape = PairShape(batch, config.num_attention_heads, tokens, tokens)
        hidden = [] if present is None else [~present[:, None, None]]
        given = [] if position_bias is None else [split_scores(read_position_bias(position_bias, shape))]
        given += [read_pair_mask(attention_mask, shape)] if is_pair_mask(attention_mask) else []
        hidden += [~part.visible for part in given]
        added = [part.bias for part in given if part.bias is not None]
        bias = reduce(torch.add, added) if added else None
        if config.windowed:
            (related,) = pair_maps.values()
            hidden.append(related == NOT_RELATED)
        if config.sink:
            # Every query sees the sink.
            last = config.sink_relation
            pair_maps = {name: nn.functional.pad(related, (0, 1), value=last(name)) for name, related in pair_maps.items()}
            hidden = [nn.functional.pad(part, (0, 1)) for part in hidden]
            bias = None if bias is None else nn.functional.pad(bias, (0, 1))
        mask = sees_none = None
        if hidden:
            any_hidden = reduce(torch.logical_or, hidden)
            lowest = embeddings.new_full((), hiding_bias(embeddings.dtype))
            mask = any_hidden * lowest
            sees_none = any_hidden.all(-1).transpose(1, 2)
        return {"pair_maps": pair_maps, "attention_mask": mask, "position_bias": bias, "sees_none": sees_none}

    def check_text(self, input_ids: Tensor, attention_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return token ids (batch, tokens) as int64, and the same on the processor, for what reads values.

        Raises:
            ValueError: the ids are no tokens, the mask does not fit, or a row is not of `config.prompt_format`.
        """
        config = self.config
        input_ids = check_input_ids(input_ids, config.vocab_size)
        if not is_pair_mask(attention_mask):
            check_mask(attention_mask, *input_ids.shape)
            if config.reads_own_vocabulary:
                check_padding(input_ids, attention_mask)
            elif not config.takes_structure and config.pad_token_id is not None:
                check_hidden(input_ids, attention_mask, config.pad_token_id)
        # In training one row tells whether the data are of the model's format, at no cost.
        one_row, text = self.training and not config.label_states, on_host(input_ids)
        check_prompts(config, text[:1] if one_row else text)
        return input_ids, text

    def check_inputs(self, input_ids: Tensor) -> None:
        """Raise ValueError for inputs (batch, tokens) that do not fit the tables or do not have the rules' form."""
        tokens = input_ids.shape[1]
        if self.config.label_states:
            self.find_answers(input_ids)
        elif not self.config.takes_structure:
            for name in self.rules:
                self._derive_map(name, EncoderInputs(input_ids, input_ids, None, tokens, input_ids.device), None)
        self.check_tokens(tokens)

    def check_tokens(self, tokens: int) -> None:
        """Raise ValueError for more tokens than the table of absolute embeddings has room for."""
        longest = self.config.max_position_embeddings
        if self.config.absolute_positions != "none" and tokens > longest:
            raise ValueError(f"inputs may have max_position_embeddings = {longest} tokens, got {tokens}")

    def _add_positions(self, embeddings: Tensor, inputs: EncoderInputs, ids: Tensor | None) -> Tensor:
        """Add to embeddings (batch, tokens, hidden) those of positions: of given ids (batch or 1, levels, tokens) or places.

        Id 1 has the first row of the table, which is that of the first token if no ids are given.
        """
        kind, longest = self.config.absolute_positions, self.config.max_position_embeddings
        if kind == "none":
            return embeddings
        if ids is None:
            self.check_tokens(inputs.tokens)
            positions = self.embed_positions(torch.arange(inputs.tokens, device=embeddings.device))
        else:
            require_range(ids, 0, longest, lambda: f"position_ids must be at most max_position_embeddings = {longest}")
            rows = self.embed_positions((ids - 1).clamp(min=0)) * (ids > 0).unsqueeze(-1)
            positions = rows.sum(1)
        if kind != "text":
            return embeddings + positions
        if inputs.input_ids is None:
            raise ValueError("absolute_positions 'text' reads input_ids: it does not take inputs_embeds")
        return embeddings + positions * (inputs.input_ids >= FIRST_TEXT).unsqueeze(-1)


class PairwiseBertHead(PairwiseBertPreTrainedModel):
    """PairwiseBert with a classifier of states."""

    def __init__(self, config: PairwiseBertConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = PairwiseBertModel(config)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()


class PairwiseBertForTokenClassification(PairwiseBertHead):
    """PairwiseBert with a classifier of every token, which gives a digit of the result (paper 2, Eqs. 3.1, 3.2)."""

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        pair_map: Tensor | Mapping[str, Tensor] | None = None,
        position_bias: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        states: Tensor | None = None,
        **kwargs: Any,
    ) -> TokenClassifierOutput:
        r"""
        Args:
            input_ids: (batch, tokens).
            attention_mask: (batch, tokens), 0 for padding of the batch. Padding of a number's field is an ordinary token. Or
                who sees whom, (batch or 1, heads or 1, tokens, tokens), bool or added to scores.
            position_ids: (batch or 1, tokens) or (batch or 1, levels, tokens), 0 for no id. They override the ids by which
                rules relate tokens, and the places of absolute embeddings: id 1 has the first row of the table.
            pair_map: relations (batch or 1, tokens, tokens) or (batch or 1, heads of the rule, tokens, tokens), -1 for pairs
                that are not related: these add no vector and, under a window, are not seen. It overrides what the rule or
                ids give. For heads of several rules it is a mapping {rule: map}; a map alone is that of `"given"`.
            position_bias: (batch or 1, heads or 1, tokens, tokens), added to the scores of every layer.
            inputs_embeds: (batch, tokens, hidden), in place of `input_ids`.
            labels: (batch, tokens), -100 for tokens that are not supervised.
            states: with `label_states`, the labels (batch, tokens) of the pass before, -1 at tokens where no answer is read;
                one pass is made. If omitted, passes are made until no label changes.

        Training with `label_states` makes one pass over the tokens with labels alone, from states that are drawn from the
        labels if they are not given; the logits are (1, these tokens, labels).

        Time and memory of attention grow with the square of the number of tokens. With `label_states` they grow with the
        number of tokens, except for requested attention maps. Inputs are checked against `config.prompt_format`, in some ten
        microseconds a row; in training the first row of a batch is, and with `label_states` every row.

        Raises:
            ValueError: an input is not of that format, is longer than the table of absolute embeddings, is not two numbers
                with an operator (rules other than `relative`), or has a multiplier that is too long; an argument has another
                shape, or values that no part of the model can read.
        """
        check_arguments(kwargs, "PairwiseBert")
        check_one_example(position_ids, attention_mask, labels)
        if self.config.label_states:
            check_one_input(input_ids, inputs_embeds, self.model.embed_tokens.weight)
            check_settles_alone(attention_mask, position_ids, pair_map, position_bias, inputs_embeds)
        if self.config.label_states and self.training and labels is not None:
            return self._label_some(input_ids, attention_mask, labels, states, **kwargs)
        if self.config.label_states and states is None:
            return self._settle(input_ids, attention_mask, labels, **kwargs)  # type: ignore[arg-type]  # checked above
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            pair_map=pair_map,
            position_bias=position_bias,
            inputs_embeds=inputs_embeds,
            states=states,
            **kwargs,
        )
        logits, loss = self.classifier(self.dropout(outputs.last_hidden_state)), None
        if labels is not None:
            labels = read_labels(labels, logits.shape[:2], self.config.num_labels)
            loss = self.loss_function(logits=logits, labels=labels, config=self.config, **kwargs)
            loss = self.add_settling(loss, labels, outputs.last_change, **kwargs)
            loss = self.check_loss(loss, labels)
        return TokenClassifierOutput(loss, logits, outputs.hidden_states, outputs.attentions)

    def label_cases(self, cases: LabelCases) -> Tensor:
        """Return the logits (cases, labels) of one pass of a model with `label_states`, from what each token sees alone."""
        parts = zip(*(part.split(CASES) for part in cases), strict=True)
        return torch.cat([self.classifier(self.dropout(self.model.label_cases(LabelCases(*part)))) for part in parts])

    def _label_some(self, input_ids, attention_mask, labels: Tensor, states: Tensor | None, **kwargs: Any):
        """Return the loss and the logits (1, labels that are not `IGNORED`, labels) of one pass over these tokens alone.

        If no states are given, they are drawn from the labels, and the right labels are those of a pass from there.
        """
        device = self.device
        input_ids, attention_mask, labels, states = all_on_host(input_ids, attention_mask, labels, states)
        input_ids, _ = self.model.check_text(input_ids, attention_mask)
        labels = read_labels(labels, input_ids.shape, self.config.num_labels)
        places, _, keys, relations = answers = self.model.find_answers(input_ids)
        is_drawn = states is None
        if states is None:
            states = draw_states(labels, answers, self.config.num_labels - 1)
            labels = pass_targets(self.config.head_maps[0], input_ids, states, labels, self.config.table)
        states = self.model.read_states(states, input_ids.shape)
        kept = labels.flatten()[places] != IGNORED
        if not kept.any():
            raise ValueError(f"labels must supervise a token of the batch at which an answer is read, got {IGNORED} there")
        cases = cases_at(input_ids.flatten(), states.flatten(), places[kept], keys[kept], relations)
        right = labels.flatten()[places[kept]]
        if is_drawn and self.config.head_maps[0] == GRID:
            cases = hide_own_labels(cases, right)
        logits, right = self.label_cases(cases).unsqueeze(0), send(right, device).unsqueeze(0)
        loss = self.loss_function(logits=logits, labels=right, config=self.config, **kwargs)
        return TokenClassifierOutput(self.check_loss(loss, right), logits)

    def _settle(self, input_ids: Tensor, attention_mask: Tensor | None, labels: Tensor | None, **kwargs: Any):
        """Return the output after the last pass of a model with `label_states`.

        In training, the logits have the gradient of each token's last pass: labels, which enter a pass, have none.
        """
        input_ids, _ = self.model.check_text(input_ids, attention_mask)
        with torch.set_grad_enabled(self.training and torch.is_grad_enabled()):
            logits, states = settle(
                input_ids, self.model.find_answers(input_ids), self.label_cases, self.config.num_labels - 1
            )
        loss = None
        if labels is not None:
            labels = read_labels(labels, input_ids.shape, self.config.num_labels)
            loss = self.loss_function(logits=logits, labels=labels, config=self.config, **kwargs)
        recorded = TokenClassifierOutput()
        if any(kwargs.get(name, getattr(self.config, name)) for name in ("output_attentions", "output_hidden_states")):
            recorded = self.model(input_ids=input_ids, attention_mask=attention_mask, states=states, **kwargs)
        return TokenClassifierOutput(loss, logits, recorded.hidden_states, recorded.attentions)


class PairwiseBertForSequenceClassification(PairwiseBertHead):
    """PairwiseBert with a head for a whole row, which reads the mean of the last states of its tokens, padding aside.

    With one label, or `problem_type="regression"`, labels are floats, and the loss is the mean squared error.

    Raises:
        ValueError: the configuration has `label_states`: such a model gives a label to each token.
    """

    def __init__(self, config: PairwiseBertConfig):
        if config.label_states:
            raise ValueError("a model with label_states gives a label to each token: set label_states False for one a row")
        super().__init__(config)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        pair_map: Tensor | Mapping[str, Tensor] | None = None,
        position_bias: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        r"""
        Args:
            labels: one a row: (batch,) classes, -100 for none; (batch,) or (batch, labels) numbers of a regression; or
                (batch, labels) of 0 and 1, of several labels. Which one it is says `problem_type` of the config, or, if it
                is None, the labels, and the config is given it then, as by stock models. All other arguments are those of
                `PairwiseBertForTokenClassification`.

        Raises:
            ValueError: as there, or labels are not one a row.
        """
        check_arguments(kwargs, "PairwiseBert")
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            pair_map=pair_map,
            position_bias=position_bias,
            inputs_embeds=inputs_embeds,
            **kwargs,
        )
        states = outputs.last_hidden_state
        shown = torch.ones_like(states[..., :1])
        if attention_mask is not None and not is_pair_mask(attention_mask):
            shown = attention_mask.unsqueeze(-1).to(states.dtype)
        logits, loss = self.classifier(self.dropout((states * shown).sum(1) / shown.sum(1))), None
        if labels is not None:
            batch, classes = logits.shape
            labels, problem = read_row_labels(labels, batch, classes, self.config.problem_type)
            self.config.problem_type = problem
            loss = self._compare_rows(logits, labels, problem, **kwargs)
            loss = self.add_settling(loss, labels, outputs.last_change, **kwargs)
            loss = self.check_loss(loss, labels)
        return SequenceClassifierOutput(loss, logits, outputs.hidden_states, outputs.attentions)

    def _compare_rows(
        self, logits: Tensor, labels: Tensor, problem: str, num_items_in_batch: Tensor | int | None = None, **kwargs: Any
    ) -> Tensor:
        """Return the loss of logits (batch, labels), a mean over labels; arguments are those of `read_row_labels`.

        Args:
            num_items_in_batch: number of labels of all batches of an optimizer step, if Trainer gives it, over which the
                mean is.
        """
        if problem == "single_label_classification":
            return self.loss_function(
                labels=labels, pooled_logits=logits, config=self.config, num_items_in_batch=num_items_in_batch, **kwargs
            )
        items = labels.numel() if num_items_in_batch is None else num_items_in_batch
        if problem == "multi_label_classification":
            return nn.functional.binary_cross_entropy_with_logits(logits.float(), labels, reduction="sum") / items
        return nn.functional.mse_loss(logits.float(), labels, reduction="sum") / items


PairwiseBertModel.register_for_auto_class("AutoModel")
PairwiseBertForSequenceClassification.register_for_auto_class("AutoModelForSequenceClassification")
PairwiseBertForTokenClassification.register_for_auto_class("AutoModelForTokenClassification")
