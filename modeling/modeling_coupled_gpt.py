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
"""CoupledGPT: a decoder-only transformer over coupled position ids (position coupling, Cho et al., NeurIPS 2024)."""

# Used by: data, data/proofs, data/proofs/lengths, data/proofs/windows, hub_cards/research/theories. Bound by: the digest of
# the code that travels with a checkpoint: run .ci/code.

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache, DynamicCache
from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils import ADAPTER_CONFIG_NAME, CONFIG_NAME, can_return_tuple, logging
from transformers.utils.deprecation import deprecate_kwarg
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .configuration_coupled_gpt import CoupledGPTConfig
from .coupling import plan_position_ids
from .generation_coupled_gpt import CoupledGPTGenerationMixin, PlannedGenerationConfig
from .inputs import check_input_ids, check_mask, check_padding, check_prompts, check_unpacked
from .position_encodings import POSITION_ENCODINGS, PositionEncoding, PositionTable
from .pretrained import LonghandPreTrainedModel, attend, eager_attention_forward, read_object
from .query_forms import unplanned
from .relations import (
    Neighbourhoods,
    Neighbours,
    Step,
    attend_to_columns,
    attend_to_rows,
    attend_to_same_columns,
    distinct_rows,
    expand_rows,
    mapped_neighbours,
    with_levels,
)
from .stored_names import read_stored_names
from .structure import (
    PairMask,
    PairShape,
    check_arguments,
    check_cache,
    check_kept,
    check_one_example,
    check_one_input,
    couple_alike,
    is_pair_mask,
    read_labels,
    read_pair_map,
    read_pair_mask,
    read_position_bias,
    read_position_ids,
    split_scores,
)
from .values import on_host, reads_values, require, send
from .who_sees_whom import (
    AllPairs,
    DistinctRows,
    FewKeys,
    Given,
    Records,
    Tokens,
    count_keys,
    relation_bias,
    see_few_keys,
)
from .windowed_cache import WindowedCache


class RMSNorm(nn.LayerNorm):
    """`nn.RMSNorm` (Zhang and Sennrich, 2019), of the class by which Trainer knows weights that it must not decay."""

    def __init__(self, size: int, eps: float):
        super().__init__(size, eps=eps, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        # Autocast leaves the weight in float32; kernels that are fused want it as the states are.
        return nn.functional.rms_norm(states, self.normalized_shape, self.weight.to(states.dtype), self.eps)


NORMS: dict[str, Callable[..., nn.Module]] = {
    "rms": RMSNorm,
    "layer": nn.LayerNorm,
    "none": lambda size, eps: nn.Identity(),
}

logger = logging.get_logger(__name__)

MOST_SCORED_KEYS = 2048
"""Up to so many keys, a step of training on CUDA scores all pairs under a window too: to find neighbours, the host waits."""


def kept_tokens(logits_to_keep: int | Tensor) -> Tokens:
    """Return the last tokens if a number of them is given, all for 0, else the tokens of the given indices."""
    return logits_to_keep.long() if isinstance(logits_to_keep, Tensor) else slice(-logits_to_keep or None, None)


class CoupledGPTAttention(nn.Module):
    """Multi-head attention of the kept queries.

    Attributes:
        qk_norm: (heads,), by what scores are multiplied whose queries and keys have length 1; with `qk_norm` alone.
        log_length_norm: (heads,), by what they are multiplied for each unit of the log of the number of keys that a query
            sees; with the scale `log_length` alone.
    """

    stored_names: ClassVar[Mapping[str, str]] = {"qk_norm": "qk_norm_factor", "log_length_norm": "log_length_factor"}

    def __init__(self, config: CoupledGPTConfig, layer_idx: int):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_dim: int = config.head_dim  # type: ignore[assignment]  # the configuration fills it in
        self.num_heads = config.num_attention_heads
        self.scaling = 1.0 if config.attention_scale == "none" else self.head_dim**-0.5
        width = self.num_heads * self.head_dim
        self.reads_content = config.attention_scale != "zero"
        # A step of decoding does not wait for the fields of a configuration, which are slow to read.
        self.has_unit_length, self.scales_by_length = config.qk_norm, config.attention_scale == "log_length"
        if self.reads_content:
            self.q_proj = nn.Linear(config.hidden_size, width, bias=False)
            self.k_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.o_proj = nn.Linear(width, config.hidden_size, bias=False)
        if config.init == "t5" and self.reads_content:
            self.q_proj.initial_std = (config.hidden_size * self.head_dim) ** -0.5
        if config.qk_norm:
            self.qk_norm = nn.Parameter(torch.empty(config.num_attention_heads))
        if config.attention_scale == "log_length":
            self.log_length_norm = nn.Parameter(torch.empty(config.num_attention_heads))
        self.register_load_state_dict_pre_hook(read_stored_names)

    def init_weights(self) -> None:
        """Set the learned factors of the scores to their initial values."""
        if self.config.qk_norm:
            init.constant_(self.qk_norm, self.config.qk_norm_init)
        if self.config.attention_scale == "log_length":
            init.constant_(self.log_length_norm, self.config.log_length_init)

    def forward(
        self,
        hidden_states: Tensor,
        visible_keys: Tensor,
        attention_mask: Tensor | None = None,
        position_bias: Tensor | None = None,
        sees_none: Tensor | None = None,
        position_encoding: PositionEncoding | None = None,
        coupled_ids: Tensor | None = None,
        kept: Tokens = slice(None),
        row_index: Tensor | None = None,
        neighbourhoods: Neighbourhoods | None = None,
        neighbours: Neighbours | None = None,
        cache: Cache | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend in one of three forms: to all keys, to the `neighbours` among the keys, or in `neighbourhoods` of rows.

        Args:
            hidden_states: (batch, tokens, hidden); rows (distinct, hidden) with `row_index` or `neighbourhoods`.
            visible_keys: the number of keys that a query sees, (batch or 1, kept, heads or 1) or (distinct, 1).
            attention_mask: for all keys, (batch or 1, heads or 1, kept, keys), whether a query sees a key.
            position_bias: added to the scaled scores; (batch or 1, heads or 1, kept, keys) for all keys, or None; else
                (batch or 1, kept, neighbours, heads) or (distinct, neighbours, heads), `hiding_bias` for missing keys.
            sees_none: whether a query sees no key, as `visible_keys`, so that it reads nothing; None if each sees one.
            coupled_ids: position ids (batch or 1, levels, tokens) that `position_encoding` rotates queries and keys by.
            row_index: (batch, tokens), the row of every token.

        Returns:
            Outputs (batch, kept, hidden) or (distinct, hidden), and weights if the attention interface returns them.
        """
        is_rows = row_index is not None or neighbourhoods is not None
        query, key, value = self._project(hidden_states if is_rows else hidden_states[:, kept], hidden_states)
        if neighbourhoods is not None:
            output = self._attend_in_rows(query, key, value, neighbourhoods, visible_keys, cast(Tensor, position_bias))
            return self._mix_heads(output, sees_none), None
        if row_index is not None:
            rows = zip((query, key, value), (row_index[:, kept], row_index, row_index), strict=True)
            query, key, value = (expand_rows(states, index) for states, index in rows)
        query = self._scale_by_length(query, visible_keys)
        query, key, value = (states.transpose(1, 2) for states in (query, key, value))
        if position_encoding is not None and coupled_ids is not None:
            query = position_encoding.rotate(query, coupled_ids[..., kept])
            key = position_encoding.rotate(key, coupled_ids)
        if cache is not None:
            key, value = cache.update(key, value, self.layer_idx)
        if neighbours is not None:
            output = self._attend_to_neighbours(query, key, value, neighbours, cast(Tensor, position_bias), cache)
            return self._mix_heads(output, sees_none), None
        output, weights = self._attend_to_all(query, key, value, attention_mask, position_bias, **kwargs)
        return self._mix_heads(output, sees_none), weights

    def _attend_in_rows(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        neighbourhoods: Neighbourhoods,
        visible_keys: Tensor,
        position_bias: Tensor,
    ) -> Tensor:
        """Return the output (distinct, heads, head_dim) of distinct neighbourhoods of rows (rows, heads, head_dim).

        Their bias hides missing keys.
        """
        query = self._scale_by_length(expand_rows(query, neighbourhoods.queries), visible_keys)
        return attend_to_rows(query, key, value, neighbourhoods.keys, position_bias, self.scaling)

    def _attend_to_neighbours(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        neighbours: Neighbours,
        position_bias: Tensor,
        cache: Cache | None,
    ) -> Tensor:
        """Return the output (batch, kept, heads, head_dim) of queries (batch, heads, kept, head_dim) with few keys each.

        Their bias hides missing neighbours.
        """
        columns = neighbours.columns.clamp(min=0)
        if isinstance(cache, WindowedCache):
            columns = cache.slots(columns, self.layer_idx)
        return attend_to_columns(query, key, value, columns, position_bias, self.scaling)

    def step(
        self,
        states: Tensor,
        cache: WindowedCache,
        columns: Tensor,
        position_bias: Tensor,
        visible_keys: Tensor,
        sees_none: Tensor | None = None,
    ) -> Tensor:
        """Return what `forward` returns for one token of each example, if all examples are of one layout.

        Args:
            states: (batch, hidden).
            columns: (neighbours,) those that each token sees.
            position_bias: (1, neighbours, heads).
            visible_keys, sees_none: (1, 1).

        Returns:
            (batch, hidden).
        """
        query, key, value = self._project(states, states)
        query = self._scale_by_length(query, visible_keys)
        key, value = cache.update(key.unsqueeze(2), value.unsqueeze(2), self.layer_idx)
        slots = cache.slots(columns, self.layer_idx)
        return self._mix_heads(attend_to_same_columns(query, key, value, slots, position_bias, self.scaling), sees_none)

    def _attend_to_all(
        self, query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None, position_bias: Tensor | None, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Return the output (batch, kept, heads, head_dim) of queries that see any of all keys, and weights if there are.

        Queries are (batch, heads, kept, head_dim), keys and values (batch, heads, keys, head_dim).
        """
        attention = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        return attend(attention, self, query, key, value, visible, position_bias, self.scaling, **kwargs)

    def _mix_heads(self, output: Tensor, sees_none: Tensor | None) -> Tensor:
        """Return the output (..., hidden) of all heads (..., heads, head_dim)."""
        if sees_none is not None:
            output = output.masked_fill(sees_none.unsqueeze(-1), 0.0)
        return self.o_proj(output.flatten(-2))

    def _project(self, query_states: Tensor, key_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values (..., heads, head_dim) of states (..., hidden)."""
        heads = (self.num_heads, self.head_dim)
        value = self.v_proj(key_states).unflatten(-1, heads)
        if not self.reads_content:
            return value.new_zeros(*query_states.shape[:-1], *value.shape[-2:]), torch.zeros_like(value), value
        query, key = (
            projection(states).unflatten(-1, heads)
            for projection, states in ((self.q_proj, query_states), (self.k_proj, key_states))
        )
        if self.has_unit_length:
            # In float16 squares overflow, and a length of 0, which is divided by, stays 0.
            precise = torch.promote_types(query.dtype, torch.float32)
            query, key = (nn.functional.normalize(states.to(precise), dim=-1).to(states.dtype) for states in (query, key))
            query = query * (self.qk_norm.unsqueeze(1) / self.scaling)
        return query, key, value

    def _scale_by_length(self, query: Tensor, visible_keys: Tensor) -> Tensor:
        """Return queries (..., heads, head_dim) that see `visible_keys` (..., heads or 1), times a factor of the log."""
        if not self.scales_by_length:
            return query
        precise = torch.promote_types(query.dtype, torch.float32)
        factor = visible_keys.clamp(min=1).to(precise).log().to(query.dtype) * self.log_length_norm
        return query * factor.unsqueeze(-1)


class CoupledGPTMLP(nn.Module):
    """`down(act(up(x)))`, or `down(act(up(x)) * gate(x))` in the gated form (GEGLU: Shazeer, 2020)."""

    def __init__(self, config: CoupledGPTConfig):
        super().__init__()
        self.gated = config.mlp == "geglu"
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        if self.gated:
            self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.activation = ACT2FN[config.hidden_act]

    def forward(self, hidden_states: Tensor) -> Tensor:
        hidden = self.activation(self.up_proj(hidden_states))
        if self.gated:
            hidden = hidden * self.gate_proj(hidden_states)
        return self.down_proj(hidden)


class ResidualNorms(nn.Module):
    """The norms around a sublayer: of its input, of its output and of the residual sum; the identity for absent norms."""

    def __init__(self, config: CoupledGPTConfig):
        super().__init__()

        def norm(*placements: str) -> nn.Module:
            kind = config.norm if config.norm_placement in placements else "none"
            return NORMS[kind](config.hidden_size, eps=config.norm_eps)

        self.input = norm("pre", "pre_post", "sandwich")
        self.output = norm("sandwich")
        self.sum = norm("post", "pre_post")

    def add(self, residual: Tensor, output: Tensor) -> Tensor:
        """Return the residual sum of a sublayer's input and its output."""
        return self.sum(residual + self.output(output))


class CoupledGPTDecoderLayer(GradientCheckpointingLayer):
    """Attention and MLP for the kept tokens; see `CoupledGPTAttention.forward` for the forms of `hidden_states`."""

    def __init__(self, config: CoupledGPTConfig, layer_idx: int):
        super().__init__()
        self.self_attn = CoupledGPTAttention(config, layer_idx)
        self.mlp = CoupledGPTMLP(config)
        self.attention_norms = ResidualNorms(config)
        self.mlp_norms = ResidualNorms(config)

    def forward(
        self,
        hidden_states: Tensor,
        kept: Tokens = slice(None),
        row_index: Tensor | None = None,
        neighbourhoods: Neighbourhoods | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """Return the states of the kept tokens (batch, kept, hidden), or a row for each neighbourhood (distinct, hidden)."""
        states = self.attention_norms.input(hidden_states)
        output, _ = self.self_attn(states, kept=kept, row_index=row_index, neighbourhoods=neighbourhoods, **kwargs)
        if neighbourhoods is not None:
            residual = expand_rows(hidden_states, neighbourhoods.queries)
        elif row_index is not None:
            residual = expand_rows(hidden_states, row_index[:, kept])
        else:
            residual = hidden_states[:, kept]
        return self._apply_mlp(self.attention_norms.add(residual, output))

    def step(self, hidden_states: Tensor, cache: WindowedCache, columns: Tensor, **seen: Tensor) -> Tensor:
        """Return the states (batch, hidden) of one token of each example, see `CoupledGPTAttention.step`."""
        output = self.self_attn.step(self.attention_norms.input(hidden_states), cache, columns, **seen)
        return self._apply_mlp(self.attention_norms.add(hidden_states, output))

    def _apply_mlp(self, hidden_states: Tensor) -> Tensor:
        return self.mlp_norms.add(hidden_states, self.mlp(self.mlp_norms.input(hidden_states)))


class CoupledGPTPreTrainedModel(LonghandPreTrainedModel):
    config: CoupledGPTConfig
    _no_split_modules = ["CoupledGPTDecoderLayer"]
    _can_record_outputs = {"hidden_states": CoupledGPTDecoderLayer, "attentions": CoupledGPTAttention}

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *model_args, **kwargs):
        """Load a model as transformers does, see `LonghandPreTrainedModel.from_pretrained`."""
        encoding = cls._find_encoding(pretrained_model_name_or_path, kwargs)
        parts = {"self_attn": CoupledGPTAttention.stored_names, "position_encoding": encoding.stored_names}
        renamed = {f"{part}.{stored}": f"{part}.{name}" for part, names in parts.items() for name, stored in names.items()}
        kwargs["key_mapping"] = {**renamed, **(kwargs.get("key_mapping") or {})}
        return super().from_pretrained(pretrained_model_name_or_path, *model_args, **kwargs)

    @classmethod
    def _find_encoding(cls, source, options: dict[str, Any]) -> type[PositionEncoding]:
        """Return the position encoding of a model that is loaded with these options; the base class if none is known."""
        config = options.get("config") or source
        if isinstance(config, PreTrainedConfig):
            named = config.to_dict()
        else:
            # A folder with an adapter alone names its model.
            named = read_object(config, CONFIG_NAME, options) or read_object(
                read_object(config, ADAPTER_CONFIG_NAME, options).get("base_model_name_or_path"), CONFIG_NAME, options
            )
        name: Any = options.get("position_encoding", named.get("position_encoding"))
        return POSITION_ENCODINGS.get(name, PositionEncoding)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        # A parameter is drawn through the module that owns it: in remote code, transformers skips other modules.
        if isinstance(module, (PositionEncoding, PositionTable, CoupledGPTAttention)):
            module.init_weights()
        elif isinstance(module, nn.Linear):
            init.normal_(module.weight, std=getattr(module, "initial_std", module.in_features**-0.5))
        elif isinstance(module, nn.Embedding):
            init.normal_(module.weight)
        else:
            super()._init_weights(module)


def hide_unplanned(text: Tensor, position_ids: Tensor, attention_mask: Tensor | None, device: torch.device) -> Tensor | None:
    """Return a mask (batch, tokens) that hides `unplanned` tokens too, or the mask as it is if there are none.

    A mask of pairs says by itself who sees whom. A traced graph does not look: it is for problems and their responses.

    Args:
        text, position_ids: tokens and derived ids, on the processor.
        device: of the mask.
    """
    if is_pair_mask(attention_mask) or not reads_values(text):
        return attention_mask
    hidden = unplanned(text, position_ids)
    if not hidden.any():
        return attention_mask
    shown = torch.ones_like(text) if attention_mask is None else attention_mask
    return send(shown, device) * ~send(hidden, device)


class CoupledGPTModel(CoupledGPTPreTrainedModel):
    """Embedding, layers and final norm; see `CoupledGPTForCausalLM.forward` for the arguments."""

    def __init__(self, config: CoupledGPTConfig):
        super().__init__(config)
        # `from_pretrained` changes fields after the configuration was checked.
        config.validate_architecture()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_encoding = POSITION_ENCODINGS[config.position_encoding](config)
        self.layers = nn.ModuleList(CoupledGPTDecoderLayer(config, i) for i in range(config.num_hidden_layers))
        self.norm = NORMS[config.final_norm or config.norm](config.hidden_size, eps=config.norm_eps)
        self.gradient_checkpointing = False
        self.has_compared_ids = False
        self.post_init()

    def plan_position_ids(self, input_ids: Tensor, columns: int) -> Tensor:
        """Return the position ids (batch, levels, columns) of query and response by the configured coupling rule.

        With `randomized_positions` they are spread evenly over 1..max_position_ids. The rule reads values, on the processor.
        """
        spread_over = self.config.max_position_ids if self.config.randomized_positions else None
        planned = plan_position_ids(self.config.rule, on_host(input_ids), columns, spread_over)
        planned = send(planned, input_ids.device)
        return planned.expand(input_ids.shape[0], -1, -1)

    @deprecate_kwarg("past_key_values", "6.0.0", new_name="cache")
    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        pair_map: Tensor | None = None,
        position_bias: Tensor | None = None,
        neighbours: Neighbours | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        """Return the states that the output matrix multiplies.

        Args:
            input_ids: (batch, tokens); or `inputs_embeds` (batch, tokens, hidden) in their place.
            attention_mask, position_ids, pair_map, position_bias, neighbours, logits_to_keep: see
                `CoupledGPTForCausalLM.forward`, with their shapes.
            cache: keys and values of the past tokens, to which those of these tokens are added.
            kwargs: `output_hidden_states`, `output_attentions`, and arguments of the attention interface.

        Returns:
            `last_hidden_state` (batch, kept, hidden), and the cache.

        Raises:
            ValueError: as `CoupledGPTForCausalLM.forward`.
        """
        check_arguments(kwargs, "CoupledGPT")
        if use_cache and cache is None:
            cache = DynamicCache(config=self.config)
        records = Records(
            states=bool(kwargs.get("output_hidden_states", self.config.output_hidden_states)),
            weights=bool(kwargs.get("output_attentions", self.config.output_attentions)),
        )
        given = self._read_given(
            input_ids, inputs_embeds, attention_mask, position_ids, pair_map, position_bias, neighbours, cache
        )
        check_kept(logits_to_keep, given.shape.queries)
        kept = kept_tokens(logits_to_keep)
        own_ids = given.own_ids
        hidden_states, rows = self._embed(given.inputs, own_ids, self._shares_rows(given, records))
        seen = self._who_sees_whom(given, kept, rows, cache, records)
        kwargs |= {"coupled_ids": own_ids, "cache": cache}
        states = self._apply_layers(hidden_states, seen, kept, **kwargs)
        return BaseModelOutputWithPast(last_hidden_state=states, cache=cache)

    def _apply_layers(
        self, hidden_states: Tensor, seen: AllPairs | FewKeys | DistinctRows, kept: Tokens, **kwargs: Any
    ) -> Tensor:
        """Return the states (batch, kept, hidden) for the output matrix.

        Args:
            hidden_states: of `_embed`.
            kwargs: further arguments of every layer.
        """
        if isinstance(seen, DistinctRows):
            hidden_states = hidden_states.flatten(0, -2)
        for index, layer in enumerate(self.layers):
            if index == len(self.layers) - 1:
                # The plan of a single layer is of the kept tokens alone.
                seen = seen.keep(kept, kept if index else None)
            else:
                seen = seen.keep(slice(None), None)
            layer_arguments = seen.arguments(index, hidden_states.dtype)
            hidden_states = layer(hidden_states, position_encoding=self.position_encoding, **layer_arguments, **kwargs)
        states = self._norm_output(hidden_states)
        return expand_rows(states, seen.rows) if isinstance(seen, DistinctRows) else states

    def _read_given(
        self, input_ids, inputs_embeds, attention_mask, position_ids, pair_map, position_bias, neighbours, cache
    ) -> Given:
        """Return what a forward pass is given, after a check of all of it.

        Raises:
            ValueError: as `CoupledGPTForCausalLM.forward`.
        """
        past_length = self._check_cache(cache)
        check_one_input(input_ids, inputs_embeds, self.embed_tokens.weight)
        if input_ids is not None:
            input_ids = check_input_ids(input_ids, self.config.vocab_size)
        inputs: Any = input_ids if inputs_embeds is None else inputs_embeds
        batch, tokens = inputs.shape[:2]
        shape = PairShape(batch, self.config.num_attention_heads, tokens, past_length + tokens)
        self._check_who_sees_whom(neighbours, cache, pair_map, position_bias, attention_mask, shape)
        has_map, has_neighbours = pair_map is not None, neighbours is not None
        text = self._read_text(input_ids, attention_mask, position_ids, has_map, has_neighbours, past_length)
        if has_neighbours:
            neighbours = Neighbours(*neighbours)
        else:
            pair_map = self._read_pair_map(pair_map, shape)
        key_ids = self._resolve_position_ids(text, position_ids, shape, has_map, has_neighbours)
        if self.position_encoding.windowed and position_ids is None and text is not None and key_ids is not None:
            attention_mask = hide_unplanned(text, key_ids, attention_mask, inputs.device)
        key_ids = None if key_ids is None else key_ids.to(inputs.device)
        return Given(inputs, shape, key_ids, pair_map, position_bias, attention_mask, neighbours)

    def _shares_rows(self, given: Given, records: Records) -> bool:
        """Return whether tokens of one input share a row in the first layer. The number of rows depends on values."""
        if records.states or given.shape.keys > given.shape.queries:
            return False
        return self._finds_neighbours(given) or reads_values(given.inputs)

    def _who_sees_whom(
        self, given: Given, kept: Tokens, rows: Tensor | None, cache: Cache | None, records: Records
    ) -> AllPairs | FewKeys | DistinctRows:
        """Return who sees whom, the one place where this is decided.

        Args:
            rows: of `_embed`.
            cache, records: what further tokens, or the caller, read of each token or each pair.
        """
        shape, encoding = given.shape, self.position_encoding
        # Below the last layer, every token attends: it is needed as a key of the next layer.
        queries = kept if len(self.layers) == 1 else slice(None)
        columns = torch.arange(shape.keys - shape.queries, shape.keys, device=given.inputs.device)[queries]
        neighbours = given.neighbours
        if neighbours is not None:
            neighbours = neighbours.select(queries)
        elif self._finds_neighbours(given) and not (records.states or records.weights or given.is_for_pairs):
            neighbours = self._find_neighbours(given.pair_map, given.key_ids, columns, shape.keys, given.attention_mask)
        if neighbours is None:
            visible, bias = self._read_mask(given.attention_mask, given.position_bias, shape, columns, queries)
            pair_map = given.pair_map
            if encoding.uses_pair_map:
                pair_map = self._map_pairs(pair_map, given.key_ids, columns, queries, shape.keys)
            if pair_map is not None and encoding.windowed:
                visible = visible & (pair_map >= 0)
            is_given = given.pair_map is not None
            return AllPairs(encoding, visible, pair_map, bias, is_given, given.may_hide_all, rows)
        seen = FewKeys(encoding, neighbours, given.may_hide_all, rows)
        return DistinctRows.of(seen, shape) if cache is None and not records.states else seen

    def _read_text(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
        is_given_map: bool,
        has_neighbours: bool,
        past_length: int,
    ) -> Tensor | None:
        """Return the tokens (batch, tokens) that a rule reads, after a check of their format; None if there are none.

        Raises:
            ValueError: as `_check_prompts`.
        """
        if input_ids is None or self.config.takes_structure:
            return input_ids
        derives = position_ids is None and not is_given_map and not past_length
        # Neighbours have their relations: an encoding that reads these alone needs no ids.
        derives = derives and (not has_neighbours or self.position_encoding.reads_single_ids)
        # Prompts are checked, and ids derived, from one copy of the tokens.
        read = on_host(input_ids) if derives or self.training else input_ids
        self._check_prompts(input_ids, read, attention_mask, derives, not has_neighbours)
        if self.training and position_ids is not None and not has_neighbours and not past_length:
            self._compare_with_rule(read, attention_mask, position_ids)
        return read

    def _finds_neighbours(self, given: Given) -> bool:
        """Return whether to find the few keys of each query, rather than to hide the others; both give the same output."""
        if not self.position_encoding.windowed:
            return False
        if torch.compiler.is_compiling():
            # In training on the processor, distinct neighbourhoods save more than a graph without breaks.
            return self.training and given.inputs.device.type == "cpu"
        return reads_values(given.inputs) or given.shape.keys > MOST_SCORED_KEYS

    def _check_prompts(
        self, input_ids: Tensor, text: Tensor, attention_mask: Tensor | None, derives: bool, is_whole: bool
    ) -> None:
        """Raise ValueError unless rows are of the model's format, where ids are derived from them or a row is learned.

        Args:
            text: the rows on the processor, if they are read.
            derives: whether ids are derived from these rows.
            is_whole: whether rows are examples, and no neighbourhoods.
        """
        if derives:
            if not is_pair_mask(attention_mask):
                check_padding(input_ids, attention_mask, query_only=True)
            check_prompts(self.config, text)
        elif self.training and is_whole:
            # One row tells whether the data are of the model's format, at no cost.
            check_prompts(self.config, text[:1])

    def _compare_with_rule(self, input_ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor) -> None:
        """Say once, in training, if given ids couple tokens of the first row otherwise than the rule of `generate()`.

        Random starts, factors and subsets of ids couple tokens as the rule does.
        """
        if self.has_compared_ids or torch.compiler.is_compiling() or not self.position_encoding.uses_position_ids:
            return
        self.has_compared_ids = True
        batch, tokens = input_ids.shape
        given = on_host(read_position_ids(position_ids, batch, self.config.position_levels or 1, (tokens,))[0])
        try:
            derived = plan_position_ids(self.config.rule, input_ids[:1], tokens)[0]
        except ValueError:
            # Of such a row the rule derives no ids, and `generate` refuses it.
            return
        if attention_mask is not None and not is_pair_mask(attention_mask):
            shown = on_host(attention_mask[0]).bool()
            given, derived = given[:, shown], derived[:, shown]
        if not all(couple_alike(*level) for level in zip(given, derived, strict=True)):
            logger.warning(
                f"The position_ids of this training couple other tokens than the rule {self.config.coupling!r}, by which "
                "generate() plans: give generate() such ids too, or make the model with coupling='given'."
            )

    def _check_who_sees_whom(self, neighbours, cache, pair_map, position_bias, attention_mask, shape: PairShape) -> None:
        """Raise ValueError for a mask that does not fit, for neighbours beside a map, a bias or a mask of pairs, or for a
        cache of neighbours without them.
        """
        if not is_pair_mask(attention_mask):
            check_mask(attention_mask, shape.batch, shape.keys)
        if neighbours is None and isinstance(cache, WindowedCache):
            raise ValueError("a WindowedCache holds the keys that the neighbours of its plan name: pass neighbours with it")
        others = pair_map is not None or position_bias is not None or is_pair_mask(attention_mask)
        if neighbours is not None and others:
            raise ValueError("neighbours say who sees whom: they take no pair_map, position_bias or mask of pairs")

    def _check_cache(self, cache: Cache | None) -> int:
        """Return the number of cached tokens; raise ValueError for a cache that a forward pass cannot fill."""
        check_cache(cache)
        if cache is None:
            return 0
        if cache.is_compileable:
            raise ValueError(f"{type(cache).__name__} is not supported: use the default DynamicCache")
        if self.gradient_checkpointing and self.training:
            raise ValueError("layers with gradient checkpointing drop the cache in training: call model.eval() first")
        return cache.get_seq_length()

    def step(self, input_ids: Tensor, cache: Cache | None, step: Step) -> Tensor:
        """Return the states (batch, 1, hidden) of the tokens (batch, 1) behind those in a cache, for the output matrix.

        They are those of `forward`, which checks what it is given. Generation has checked prompt and plan before it begins.
        Without a cache, the tokens (batch, tokens) see each other, as in a pass of parallel decoding.
        """
        if cache is None:
            return self._see_each_other(input_ids, step)
        position_ids, attention_mask, neighbours, seen, same_columns, _ = step
        encoding, keys = self.position_encoding, cache.get_seq_length() + 1
        own_ids = None if position_ids is None else position_ids[..., keys - 1 :]
        hidden_states = self._embed(input_ids, own_ids, shares_rows=False)[0]
        if same_columns is not None and seen is not None:
            rows = hidden_states.squeeze(1)
            for layer, layer_seen in zip(cast(Any, self.layers), seen, strict=True):
                rows = layer.step(rows, cache, same_columns, **layer_seen)
            return self._norm_output(rows).unsqueeze(1)
        if neighbours is None:
            columns = torch.arange(keys - 1, keys, device=input_ids.device)
            pair_map = self._map_pairs(None, position_ids, columns, slice(None), keys) if encoding.uses_pair_map else None
            seen = [self._see_all(layer, pair_map, attention_mask, keys) for layer in range(len(self.layers))]
        elif seen is None:
            seen = self.see_neighbours(neighbours)
        for layer, layer_seen in zip(self.layers, seen, strict=True):
            hidden_states = layer(
                hidden_states,
                position_encoding=encoding,
                coupled_ids=own_ids,
                cache=cache,
                neighbours=neighbours,
                **layer_seen,
            )
        return self._norm_output(hidden_states)

    def _see_each_other(self, input_ids: Tensor, step: Step) -> Tensor:
        """Return the states (batch, kept, hidden) of tokens (batch, tokens) that see their neighbours among them."""
        neighbours, kept = cast(Any, (step.neighbours, step.kept))
        batch, tokens = input_ids.shape
        shape = PairShape(batch, self.config.num_attention_heads, tokens, tokens)
        hidden_states, rows = self._embed(input_ids, step.position_ids, shares_rows=True)
        # A single layer has queries of the kept tokens alone.
        read = neighbours.select(kept) if len(self.layers) == 1 else neighbours
        seen = DistinctRows.of(FewKeys(self.position_encoding, read, True, rows), shape)
        return self._apply_layers(hidden_states, seen, kept, coupled_ids=step.position_ids)

    def takes_rows(self) -> bool:
        """Return whether a step may give the layers one row for each example: nobody else sees what they are given."""
        layers: Any = self.layers
        parts = [(type(layer), type(layer.self_attn), type(layer.mlp)) for layer in layers]
        is_own = all(kinds == (CoupledGPTDecoderLayer, CoupledGPTAttention, CoupledGPTMLP) for kinds in parts)
        is_heard = any(
            part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part)
            for part in self.modules()
            if part is not self
        )
        return is_own and not is_heard and not self.position_encoding.reads_single_ids

    def _see_all(self, layer: int, pair_map: Tensor | None, attention_mask: Tensor | None, keys: int) -> dict[str, Any]:
        """Return the arguments by which the last token attends to all `keys`, but to padding."""
        bias = None if pair_map is None else relation_bias(self.position_encoding, layer, pair_map, False)
        if attention_mask is None:
            return {"position_bias": bias, "visible_keys": self.embed_tokens.weight.new_full((1, 1, 1), keys)}
        visible = attention_mask[:, None, None, :].bool()
        return {"attention_mask": visible, "position_bias": bias, **count_keys(visible.sum(-1).transpose(1, 2), True)}

    def see_neighbours(self, neighbours: Neighbours) -> list[dict[str, Tensor]]:
        """Return the arguments by which each layer attends to these neighbours."""
        dtype = self.embed_tokens.weight.dtype
        encoding, relations = self.position_encoding, neighbours.relations
        seen = [see_few_keys(encoding, layer, relations, dtype, True) for layer in range(len(self.layers))]
        if not seen[0]["sees_none"].any():
            seen = [{name: value for name, value in layer_seen.items() if name != "sees_none"} for layer_seen in seen]
        return seen

    def _norm_output(self, hidden_states: Tensor) -> Tensor:
        """Return the states (..., hidden) that the output matrix multiplies, scaled down if that is the embedding."""
        normed = self.norm(hidden_states)
        return normed * self.config.hidden_size**-0.5 if self.config.tie_word_embeddings else normed

    def neighbours(self, position_ids: Tensor, query_columns: Tensor, attention_mask: Tensor | None) -> Neighbours:
        """Return the neighbours of the queries in some columns, for an encoding with a window; padding is no neighbour.

        Args:
            position_ids: (batch or 1, levels, columns).
            query_columns: (queries,).
            attention_mask: (batch, columns), 0 for padding.

        Returns:
            `Neighbours` of one row if ids are of one row and nothing is padding.
        """
        present = None
        if attention_mask is not None and not (reads_values(attention_mask) and attention_mask.all()):
            present = attention_mask.bool()
            position_ids = position_ids.expand(present.shape[0], -1, -1)
        return self.position_encoding.neighbours(position_ids[..., query_columns], position_ids, query_columns, present)

    def _read_pair_map(self, pair_map: Tensor | None, shape: PairShape) -> Tensor | None:
        """Return a given map (batch or 1, heads or 1, tokens, keys), or None.

        Raises:
            ValueError: the encoding reads none, needs one, or cannot represent a relation; or it has another shape.
        """
        encoding, name = self.position_encoding, self.config.position_encoding
        if pair_map is None:
            if self.config.num_relations:
                raise ValueError(f"coupling is 'given' with num_relations {self.config.num_relations}: pass pair_map")
            return None
        if not encoding.uses_pair_map:
            raise ValueError(f"position_encoding {name!r} reads no pair_map: it reads position_ids, or nothing")
        return read_pair_map(pair_map, shape, encoding.num_relations)

    def read_structure(
        self, position_ids: Tensor | None, pair_map: Tensor | None, shape: PairShape
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return a caller's map (batch or 1, heads or 1, queries, keys) and ids (batch or 1, levels, keys), where no ids can
        be derived; None for what is not given and not needed.

        Raises:
            ValueError: either has another shape or values that the encoding cannot read, or the encoding needs one.
        """
        own_map = self._read_pair_map(pair_map, shape)
        return own_map, self._resolve_position_ids(None, position_ids, shape, own_map is not None)

    def _resolve_position_ids(
        self, input_ids, position_ids, shape: PairShape, has_map: bool, has_neighbours: bool = False
    ) -> Tensor | None:
        """Return the ids (batch or 1, levels, tokens or all keys), derived if omitted; None if the encoding reads none.

        Args:
            has_map, has_neighbours: whether relations are given, so that an encoding that reads these alone needs no ids.

        Raises:
            ValueError: nothing reads the given ids; they have another shape or values that the encoding cannot read; or they
                are needed and cannot be derived.
        """
        encoding, levels = self.position_encoding, self.config.position_levels or 1
        batch, _, tokens, keys = shape
        if position_ids is not None:
            position_ids = read_position_ids(position_ids, batch, levels, (tokens, keys))
        if not encoding.uses_position_ids:
            if position_ids is not None and not torch.compiler.is_compiling():
                legal = f"position_encoding {self.config.position_encoding!r} reads no position_ids"
                derived = self._derive_as(input_ids, position_ids)
                if derived is None:
                    raise ValueError(legal)
                are_equal = derived == position_ids
                if input_ids is not None and input_ids.shape[1] == position_ids.shape[-1]:
                    # Collators give padding no id.
                    is_padding = send(input_ids == self.config.pad_token_id, are_equal.device)
                    are_equal = are_equal | is_padding.unsqueeze(1)
                require(are_equal, f"{legal}, and takes those of its rule alone", lambda: "others")
            return None
        if has_map and position_ids is not None and not encoding.reads_single_ids:
            name = self.config.position_encoding
            raise ValueError(f"pair_map overrides position_ids, all that position_encoding {name!r} reads: give one of them")
        if position_ids is None:
            if (has_map or has_neighbours) and not encoding.reads_single_ids:
                return None
            if self.config.takes_structure:
                also = " or pair_map" if encoding.uses_pair_map else ""
                raise ValueError(f"coupling is 'given', so nothing is derived: pass position_ids{also}, to generate() too")
            if input_ids is None or keys > tokens:
                raise ValueError(
                    "position_ids cannot be derived from inputs_embeds or from the tokens after a cache: pass them "
                    f"(rule {self.config.coupling!r}; plan_position_ids(prompt, columns) gives them for prompt and response)"
                )
            position_ids = self.plan_position_ids(input_ids, tokens)
        encoding.check(position_ids[..., -tokens:])
        return position_ids

    def are_derived(self, input_ids: Tensor | None, position_ids: Tensor) -> bool:
        """As described in the base class, for ids (batch or 1, [levels,] columns) of tokens and, maybe, of a response."""
        derived = self._derive_as(input_ids, position_ids)
        return derived is not None and bool((derived == with_levels(position_ids)).all())

    def _derive_as(self, input_ids: Tensor | None, position_ids: Tensor) -> Tensor | None:
        """Return the ids of the model's own rule, to compare given ones with; None if it derives none of their shape."""
        if input_ids is None or self.config.takes_structure or position_ids.ndim not in (2, 3):
            return None
        try:
            derived = self.plan_position_ids(input_ids, position_ids.shape[-1])
            derived = send(derived, position_ids.device)
        except ValueError:
            # Of such a row the rule derives none.
            return None
        given = with_levels(position_ids)
        return derived if given.shape[1:] == derived.shape[1:] and len(given) in (1, len(derived)) else None

    def _find_neighbours(
        self, pair_map: Tensor | None, key_ids: Tensor | None, columns: Tensor, keys: int, attention_mask: Tensor | None
    ) -> Neighbours:
        """Return the neighbours of the queries in some columns, under a window, from one map for all heads or from ids."""
        if pair_map is None:
            return self.neighbours(self._check_key_ids(key_ids, keys), columns, attention_mask)
        present = None if attention_mask is None else attention_mask.bool()
        first_query = pair_map.shape[3] - pair_map.shape[2]
        return mapped_neighbours(pair_map[:, 0, columns - first_query], columns, present)

    def _map_pairs(self, pair_map: Tensor | None, key_ids: Tensor | None, columns, queries: Tokens, keys: int) -> Tensor:
        """Return the relations (batch or 1, heads or 1, queries, keys) of the queries to all keys, given or from ids."""
        if pair_map is not None:
            return pair_map[:, :, queries]
        key_ids = self._check_key_ids(key_ids, keys)
        relations: Any = self.position_encoding.pair_map(key_ids[..., columns], key_ids)
        return relations.unsqueeze(1)

    def _check_key_ids(self, key_ids: Any, keys: int) -> Tensor:
        """Return ids; raise ValueError unless they are those of all keys."""
        if keys > key_ids.shape[-1]:
            given = key_ids.shape[-1]
            raise ValueError(f"position_ids must be those of the cached tokens too, {keys} in all, got {given}")
        return key_ids

    def _embed(self, inputs: Tensor, position_ids: Any, shares_rows: bool) -> tuple[Tensor, Tensor | None]:
        """Return the input of the first layer.

        A token's input depends only on the token and its ids. A batch holds few such pairs (at most vocabulary times
        largest id), so the first layer projects each pair once, whatever the number of tokens.

        Args:
            inputs: tokens (batch, tokens), or embeddings (batch, tokens, hidden).
            position_ids: (batch or 1, levels, tokens), or None.
            shares_rows: whether equal tokens may share a row, so that the number of rows depends on values.

        Returns:
            (batch, tokens, hidden) and None; or distinct rows (distinct, hidden) and the row of every token (batch, tokens).
        """
        is_text, rows = not inputs.is_floating_point(), None
        # A hook, such as that of NEFTune, may change each token's embedding on its own.
        if shares_rows and is_text and not self.embed_tokens._forward_hooks:
            columns, sizes = [inputs], [self.config.vocab_size]
            if self.position_encoding.embeds_position_ids:
                levels = position_ids.unbind(1)
                columns += [ids.expand_as(inputs) for ids in levels]
                sizes += [int(position_ids.max()) + 1] * len(levels)
            example, rows = distinct_rows(columns, sizes)
            inputs, *ids = (column.flatten()[example].unsqueeze(0) for column in columns)
            position_ids = torch.stack(ids, dim=1) if ids else None
        hidden_states = self.embed_tokens(inputs) if is_text else inputs
        if position_ids is not None:
            hidden_states = self.position_encoding.embed(hidden_states, position_ids)
        return hidden_states if rows is None else hidden_states.squeeze(0), rows

    def _read_mask(
        self,
        attention_mask: Tensor | None,
        position_bias: Tensor | None,
        shape: PairShape,
        columns: Tensor,
        queries: Tokens,
    ) -> PairMask:
        """Return which of all keys the queries in some columns see, (batch or 1, heads or 1, queries, keys), and what is
        added to their scores.

        A query sees no key after itself in the sequence, whatever its id, and no padding. A mask of pairs decides by itself.
        """
        added = None
        if is_pair_mask(attention_mask):
            visible, bias = read_pair_mask(attention_mask, shape)
            visible, added = visible[:, :, queries], None if bias is None else bias[:, :, queries]
        else:
            visible = (torch.arange(shape.keys, device=columns.device) <= columns.unsqueeze(1))[None, None]
            if attention_mask is not None:
                visible = visible & attention_mask[:, None, None, :].bool()
        if position_bias is None:
            return PairMask(visible, added)
        given: Any = split_scores(read_position_bias(position_bias, shape))
        allowed, bias = (part[:, :, queries] for part in given)
        return PairMask(visible & allowed, bias if added is None else bias + added)


class CoupledGPTForCausalLM(CoupledGPTPreTrainedModel, CoupledGPTGenerationMixin):
    """CoupledGPT with its output matrix.

    `generate()` derives position ids for prompt and response by the rule that `config.coupling` names, so
    `model.generate(**tokenizer("653+049=", return_tensors="pt"))` needs no further arguments. By default
    `generate()` stops at the longest response that the rule plans for.
    """

    generation_config_class = PlannedGenerationConfig
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: CoupledGPTConfig):
        super().__init__(config)
        self.model = CoupledGPTModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        # Saved with the model: a text-generation pipeline draws tokens at random unless the settings say otherwise.
        self.generation_config.do_sample = False
        self.post_init()

    def _takes_steps(self, plan, settings):
        # A forward pass of a subclass is asked for every token.
        is_own = type(self).forward is CoupledGPTForCausalLM.forward and type(self.model).forward is CoupledGPTModel.forward
        return is_own and super()._takes_steps(plan, settings)

    @deprecate_kwarg("past_key_values", "6.0.0", new_name="cache")
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        pair_map: Tensor | None = None,
        position_bias: Tensor | None = None,
        neighbours: Neighbours | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        r"""
        Args:
            input_ids: (batch, tokens).
            attention_mask: (batch, past + tokens), 0 for padding. Or who sees whom, (batch or 1, heads or 1, tokens, past +
                tokens), bool or added to scores, in place of causality and padding; a window stays.
            position_ids: coupled ids of these tokens, (batch or 1, tokens) or (batch or 1, levels, tokens); one row serves
                a batch of one layout. If omitted, the coupling rule derives them from `input_ids`. An encoding that reads
                relations needs the ids of the tokens in the cache too, in the columns before.
            pair_map: relations (batch or 1, tokens, past + tokens) or (batch or 1, heads, tokens, past + tokens), for an
                encoding that reads relations, in place of position ids. Pairs of -1 are not related: they have no bias
                and, under a window, no token sees such a key. A token still sees no later one.
            position_bias: (batch or 1, heads or 1, tokens, past + tokens), added to the scores of every layer.
            neighbours: the keys that each token may attend to, in place of `attention_mask`, for an encoding with a window;
                derived from `position_ids` if omitted, see `CoupledGPTModel.neighbours`.
            labels: (batch, tokens), -100 for tokens that are not supervised. Token t is predicted at t - 1.
            logits_to_keep: number of last tokens, or the indices of tokens, for which the last layer, the final norm and
                the logits are computed; 0 means all tokens. A loss then counts only what these tokens predict.

        Cost and memory of attention grow with kept tokens times all tokens. Under a window they grow with the number of
        tokens, unless attentions or hidden states are requested; a hook of a layer may see one row for all tokens with equal
        neighbourhoods, unless hidden states are. If ids must be derived, prompts are checked against
        `config.prompt_format`, in some ten microseconds a row; if ids are given, the first row is, in training, unless
        `neighbours` are given too.

        Raises:
            ValueError: an argument has another shape or illegal values; ids must be derived and a row of `input_ids` is not
                of the rule's form or of `config.prompt_format`, or the mask hides other tokens than padding; an id is
                outside the learned table; ids or neighbours are missing beside a cache; a row that is to be learned holds
                several examples.
        """
        if isinstance(step := kwargs.get("step"), Step):
            return CausalLMOutputWithPast(logits=self.lm_head(self.model.step(input_ids, cache, step)), cache=cache)
        if input_ids is not None and (labels is not None or self.training) and not self.config.takes_structure:
            check_unpacked(input_ids, self.config.eos_token_id)
        check_one_example(position_ids, attention_mask, labels)
        outputs: BaseModelOutputWithPast = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            pair_map=pair_map,
            position_bias=position_bias,
            neighbours=neighbours,
            cache=cache,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            logits_to_keep=logits_to_keep,
            **kwargs,
        )
        inputs: Any = input_ids if inputs_embeds is None else inputs_embeds
        hidden_states = outputs.last_hidden_state
        logits, loss = self.lm_head(hidden_states), None
        if labels is not None:
            labels = read_labels(labels, inputs.shape[:2], self.config.vocab_size)
            next_labels = nn.functional.pad(labels, (0, 1), value=-100)[:, 1:][:, kept_tokens(logits_to_keep)].contiguous()
            loss = self.loss_function(logits, labels, self.config.vocab_size, shift_labels=next_labels, **kwargs)
            loss = self.check_loss(loss, next_labels)
        return CausalLMOutputWithPast(loss, logits, outputs.cache, outputs.hidden_states, outputs.attentions)


CoupledGPTModel.register_for_auto_class("AutoModel")
CoupledGPTForCausalLM.register_for_auto_class("AutoModelForCausalLM")
# By these names Trainer knows whose labels to shift when it smooths them.
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[CoupledGPTConfig.model_type] = CoupledGPTForCausalLM.__name__
