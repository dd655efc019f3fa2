"""CoupledGPT: a decoder-only transformer over coupled position ids (position coupling, Cho et al., NeurIPS 2024)."""

from collections.abc import Callable

import torch
from torch import nn
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache, DynamicCache
from transformers.generation import GenerationMixin
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .configuration_coupled_gpt import CoupledGPTConfig
from .coupling import COUPLING_RULES, plan_position_ids
from .neighbourhoods import (
    FEW_ROWS,
    Neighbourhoods,
    WindowedCache,
    attend_by_table,
    attend_to_columns,
    attend_to_gathered,
    distinct_neighbourhoods,
)
from .pair_maps import FAVOUR, Neighbours
from .position_encodings import POSITION_ENCODINGS, PairwiseBias, PositionEncoding, PositionTable

NORMS: dict[str, Callable[..., nn.Module]] = {
    "rms": nn.RMSNorm,
    "layer": nn.LayerNorm,
    "none": lambda size, eps: nn.Identity(),
}


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    **kwargs,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention that also returns its weights, (batch, heads, queries, keys)."""
    scores = torch.matmul(query, key.transpose(2, 3)) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = nn.functional.softmax(scores, dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(query.dtype)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


def expand_rows(rows: torch.Tensor, row_index: torch.LongTensor) -> torch.Tensor:
    """The rows (distinct, ..., width) that an index of any shape names: (*index.shape, ..., width)."""
    return nn.functional.embedding(row_index, rows.flatten(1)).unflatten(-1, rows.shape[1:])


class CoupledGPTAttention(nn.Module):
    """Multi-head attention of the kept queries to all keys."""

    def __init__(self, config: CoupledGPTConfig, layer_idx: int):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_dim = config.head_dim
        self.scaling = 1.0 if config.attention_scale == "none" else config.head_dim**-0.5
        width = config.num_attention_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.o_proj = nn.Linear(width, config.hidden_size, bias=False)
        if config.init == "t5":
            self.q_proj.initial_std = (config.hidden_size * config.head_dim) ** -0.5
        if config.qk_norm:
            self.qk_norm_factor = nn.Parameter(torch.empty(config.num_attention_heads))
        if config.attention_scale == "log_length":
            self.log_length_factor = nn.Parameter(torch.empty(config.num_attention_heads))

    def forward(
        self,
        hidden_states: torch.Tensor,
        bias: torch.Tensor,
        visible_keys: torch.LongTensor,
        position_encoding: nn.Module | None = None,
        position_ids: torch.LongTensor | None = None,
        kept: slice | torch.LongTensor = slice(None),
        row_index: torch.LongTensor | None = None,
        neighbourhoods: Neighbourhoods | None = None,
        neighbours: Neighbours | None = None,
        past_key_values: Cache | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """In one of three forms: all pairs; distinct rows (with `neighbourhoods`); keys of a cache (with `neighbours`).

        Args:
            hidden_states: (batch, tokens, hidden); rows (distinct, hidden) with `row_index` or `neighbourhoods`.
            bias: added to the scaled scores; (batch or 1, heads or 1, kept, keys) for all pairs, else (batch or 1, kept,
                neighbours, heads) or (distinct, neighbours, heads).
            visible_keys: (batch or 1, kept) or (distinct,), how many keys a query sees.
            row_index: (batch, tokens), the row of every token.
        """
        if neighbourhoods is not None:
            return self._attend_to_rows(hidden_states, neighbourhoods, bias, visible_keys), None

        def project(projection: nn.Linear, tokens: slice | torch.LongTensor, length: torch.Tensor | float | None = None):
            if row_index is None:
                return self._project(projection, hidden_states[:, tokens], length)
            return expand_rows(self._project(projection, hidden_states, length), row_index[:, tokens])

        length_scale = self._length_scale(visible_keys, hidden_states.dtype)
        query = project(self.q_proj, kept, self._query_length())
        if torch.is_tensor(length_scale):
            query = query * length_scale.transpose(-1, -2)
        key = project(self.k_proj, slice(None), self._key_length())
        query, key, value = (states.transpose(1, 2) for states in (query, key, project(self.v_proj, slice(None))))
        if position_ids is not None:
            query = position_encoding.rotate(query, position_ids[..., kept])
            key = position_encoding.rotate(key, position_ids)
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        if neighbours is not None:
            columns = neighbours.columns.clamp(min=0)
            if isinstance(past_key_values, WindowedCache):
                columns = past_key_values.slots(columns, self.layer_idx)
            return self.o_proj(attend_to_columns(query, key, value, columns, bias, self.scaling).flatten(2)), None

        attention = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        output, weights = attention(
            self, query, key, value, bias.to(query.dtype), scaling=self.scaling, is_causal=False, **kwargs
        )
        return self.o_proj(output.flatten(2)), weights

    def _project(self, projection: nn.Linear, states: torch.Tensor, length: torch.Tensor | float | None = None):
        """(..., hidden) -> (..., heads, head_dim), of the given length if any."""
        states = projection(states).unflatten(-1, (-1, self.head_dim))
        return states if length is None else nn.functional.normalize(states, dim=-1) * length

    def _query_length(self) -> torch.Tensor | None:
        return self.qk_norm_factor.unsqueeze(1) / self.scaling if self.config.qk_norm else None

    def _key_length(self) -> float | None:
        return 1.0 if self.config.qk_norm else None

    def _length_scale(self, visible_keys: torch.LongTensor, dtype: torch.dtype) -> torch.Tensor | float:
        """What multiplies the scores of queries that see so many keys (...), as (..., 1, heads)."""
        if self.config.attention_scale != "log_length":
            return 1.0
        return visible_keys.clamp(min=1).log().to(dtype)[..., None, None] * self.log_length_factor

    def _attend_to_rows(self, hidden_states, neighbourhoods, bias, visible_keys) -> torch.Tensor:
        query = self._project(self.q_proj, hidden_states, self._query_length())
        key = self._project(self.k_proj, hidden_states, self._key_length())
        value = self._project(self.v_proj, hidden_states)
        bias = bias.to(query.dtype)
        scaling = self.scaling * self._length_scale(visible_keys, query.dtype)
        if len(hidden_states) <= FEW_ROWS:
            return self.o_proj(attend_by_table(query, key, value, neighbourhoods, bias, scaling).flatten(1))

        def gather(queries: slice) -> tuple[torch.Tensor, torch.Tensor]:
            return expand_rows(key, neighbourhoods.keys[queries]), expand_rows(value, neighbourhoods.keys[queries])

        query = expand_rows(query, neighbourhoods.queries)
        return self.o_proj(attend_to_gathered(query, gather, bias, scaling).flatten(1))


class CoupledGPTMLP(nn.Module):
    """`down(act(up(x)))`, times `gate(x)` before `down` in the gated form (GEGLU: Shazeer, 2020)."""

    def __init__(self, config: CoupledGPTConfig):
        super().__init__()
        self.gated = config.mlp == "geglu"
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        if self.gated:
            self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.activation = ACT2FN[config.hidden_act]

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        hidden = self.activation(self.up_proj(hidden_states))
        if self.gated:
            hidden = hidden * self.gate_proj(hidden_states)
        return self.down_proj(hidden)


class ResidualNorms(nn.Module):
    """The three places around a sublayer where a norm may stand: its input, its output, the residual sum."""

    def __init__(self, config: CoupledGPTConfig):
        super().__init__()

        def norm(*placements: str) -> nn.Module:
            kind = config.norm if config.norm_placement in placements else "none"
            return NORMS[kind](config.hidden_size, eps=config.norm_eps)

        self.input = norm("pre", "pre_post", "sandwich")
        self.output = norm("sandwich")
        self.sum = norm("post", "pre_post")

    def add(self, residual: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        return self.sum(residual + self.output(output))


class CoupledGPTDecoderLayer(GradientCheckpointingLayer):
    """Attention and MLP for the kept tokens only; see `CoupledGPTAttention.forward` for the forms of `hidden_states`."""

    def __init__(self, config: CoupledGPTConfig, layer_idx: int):
        super().__init__()
        self.self_attn = CoupledGPTAttention(config, layer_idx)
        self.mlp = CoupledGPTMLP(config)
        self.attention_norms = ResidualNorms(config)
        self.mlp_norms = ResidualNorms(config)

    def forward(
        self,
        hidden_states: torch.Tensor,
        kept: slice | torch.LongTensor = slice(None),
        row_index: torch.LongTensor | None = None,
        neighbourhoods: Neighbourhoods | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        """(batch, kept, hidden), or one row for each of the neighbourhoods."""
        attention_output, _ = self.self_attn(
            hidden_states=self.attention_norms.input(hidden_states),
            kept=kept,
            row_index=row_index,
            neighbourhoods=neighbourhoods,
            **kwargs,
        )
        if neighbourhoods is not None:
            residual = expand_rows(hidden_states, neighbourhoods.queries)
        elif row_index is not None:
            residual = expand_rows(hidden_states, row_index[:, kept])
        else:
            residual = hidden_states[:, kept]
        hidden_states = self.attention_norms.add(residual, attention_output)
        return self.mlp_norms.add(hidden_states, self.mlp(self.mlp_norms.input(hidden_states)))


class CoupledGPTPreTrainedModel(PreTrainedModel):
    config: CoupledGPTConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["CoupledGPTDecoderLayer"]  # noqa: RUF012
    _skip_keys_device_placement = ["past_key_values"]  # noqa: RUF012
    _supports_sdpa = True
    _supports_attention_backend = True
    _can_compile_fullgraph = False
    _can_record_outputs = {  # noqa: RUF012
        "hidden_states": CoupledGPTDecoderLayer,
        "attentions": CoupledGPTAttention,
    }

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        # Only through the module that owns a parameter: transformers passes over the others in remote code.
        if isinstance(module, nn.Linear):
            init.normal_(module.weight, std=getattr(module, "initial_std", module.in_features**-0.5))
        elif isinstance(module, PositionTable) and self.config.position_init == "orthogonal":
            init.orthogonal_(module.weight, gain=max(module.weight.shape) ** 0.5)
        elif isinstance(module, nn.Embedding):
            init.normal_(module.weight)
        elif isinstance(module, nn.RMSNorm):
            init.ones_(module.weight)
        elif isinstance(module, nn.LayerNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)
        elif isinstance(module, PairwiseBias) and self.config.relation_init == "one_per_head":
            init.zeros_(module.relation_bias)
            relation = torch.arange(module.relation_bias.shape[1], device=module.relation_bias.device).unsqueeze(1)
            head = torch.arange(module.relation_bias.shape[2], device=module.relation_bias.device)
            module.relation_bias[:, head % len(relation) == relation] = FAVOUR
        elif isinstance(module, PairwiseBias):
            init.normal_(module.relation_bias)
        elif isinstance(module, PositionEncoding):
            module.init_weights()
        elif isinstance(module, CoupledGPTAttention):
            if self.config.qk_norm:
                init.constant_(module.qk_norm_factor, self.config.qk_norm_init)
            if self.config.attention_scale == "log_length":
                init.constant_(module.log_length_factor, self.config.log_length_init)


class CoupledGPTModel(CoupledGPTPreTrainedModel):
    """Embedding, layers and final norm; see `CoupledGPTForCausalLM.forward` for the arguments."""

    def __init__(self, config: CoupledGPTConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_encoding = POSITION_ENCODINGS[config.position_encoding](config)
        self.layers = nn.ModuleList(CoupledGPTDecoderLayer(config, i) for i in range(config.num_hidden_layers))
        self.norm = NORMS[config.norm](config.hidden_size, eps=config.norm_eps)
        self.gradient_checkpointing = False
        self.post_init()

    def plan_position_ids(self, input_ids: torch.LongTensor, columns: int) -> torch.LongTensor:
        """Position ids (batch, levels, columns) that the config's coupling rule gives to query and response; with
        `randomized_positions` spread evenly."""
        spread_over = self.config.max_position_ids if self.config.randomized_positions else None
        return plan_position_ids(self.config.coupling, input_ids, columns, spread_over).expand(len(input_ids), -1, -1)

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        pair_map: torch.IntTensor | None = None,
        neighbours: Neighbours | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.LongTensor = 0,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPast:
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give exactly one of input_ids and inputs_embeds")
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        if past_key_values is not None and past_key_values.is_compileable:
            raise ValueError(f"{type(past_key_values).__name__} is not supported: use the default DynamicCache")
        past_length = 0 if past_key_values is None else past_key_values.get_seq_length()
        tokens = (input_ids if inputs_embeds is None else inputs_embeds).shape[1]
        if attention_mask is not None and (attention_mask.ndim != 2 or attention_mask.shape[1] != past_length + tokens):
            raise ValueError(f"attention_mask must be (batch, {past_length + tokens}), got {tuple(attention_mask.shape)}")
        position_ids = self._resolve_position_ids(input_ids, position_ids, tokens, past_length)
        kept = slice(None)
        if isinstance(logits_to_keep, torch.Tensor):
            kept = logits_to_keep
        elif logits_to_keep:
            kept = slice(-logits_to_keep, None)
        # Only the last layer may leave tokens out as queries: in those below, every token is a key of the next.
        first_queries = kept if len(self.layers) == 1 else slice(None)
        query_columns = torch.arange(past_length, past_length + tokens, device=self.device)[first_queries]
        recorded = {
            name: kwargs.get(f"output_{name}", getattr(self.config, f"output_{name}"))
            for name in ("hidden_states", "attentions")
        }
        if pair_map is not None:
            pair_map = pair_map[:, first_queries]
        elif neighbours is not None:
            neighbours = neighbours.select(first_queries)
        elif isinstance(past_key_values, WindowedCache):
            raise ValueError("a WindowedCache holds the keys that the neighbours of its plan name: pass neighbours with it")
        elif self.position_encoding.uses_pair_map:
            if past_length:
                raise ValueError("pair_map cannot be derived from the ids after a cache: pass it, see coupled_pair_map")
            if self.position_encoding.windowed and not any(recorded.values()):
                neighbours = self.neighbours(position_ids, query_columns, attention_mask)
            else:
                pair_map = self.position_encoding.pair_map(position_ids[..., first_queries], position_ids)

        if input_ids is not None and past_length == 0 and not recorded["hidden_states"]:
            hidden_states, row_index = self._distinct_inputs(input_ids, position_ids)
        else:
            token_embeddings = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
            hidden_states, row_index = self._embed(token_embeddings, position_ids), None

        if neighbours is not None and past_key_values is None:
            hidden_states = self._forward_distinct(hidden_states, row_index, neighbours, kept)
        else:
            visible = self._visible_keys(query_columns, past_length + tokens, attention_mask, pair_map, neighbours)
            for index, layer in enumerate(self.layers):
                queries = slice(None)
                if index == len(self.layers) - 1:
                    queries = kept
                    if index > 0:
                        visible = visible[:, kept]
                        pair_map = None if pair_map is None else pair_map[:, kept]
                        neighbours = None if neighbours is None else neighbours.select(kept)
                relations = pair_map if neighbours is None else neighbours.relations
                bias = self._attention_bias(visible, relations, index, hidden_states.dtype)
                hidden_states = layer(
                    hidden_states,
                    bias=bias.permute(0, 3, 1, 2) if neighbours is None else bias,
                    visible_keys=visible.sum(-1),
                    position_encoding=self.position_encoding,
                    position_ids=position_ids,
                    kept=queries,
                    row_index=row_index if index == 0 else None,
                    neighbours=neighbours,
                    past_key_values=past_key_values,
                    **kwargs,
                )
        return BaseModelOutputWithPast(last_hidden_state=self.norm(hidden_states), past_key_values=past_key_values)

    def _forward_distinct(self, hidden_states, row_index, neighbours, kept) -> torch.Tensor:
        """All layers on distinct rows: what a layer computes at a token depends on its neighbourhood alone."""
        if row_index is None:
            batch, tokens, _ = hidden_states.shape
            row_index = torch.arange(batch * tokens, device=hidden_states.device).view(batch, tokens)
            hidden_states = hidden_states.flatten(0, 1)
        for index, layer in enumerate(self.layers):
            queries = slice(None)
            if index == len(self.layers) - 1:
                queries = kept
                neighbours = neighbours.select(kept) if index > 0 else neighbours
            neighbourhoods = distinct_neighbourhoods(row_index, queries, neighbours)
            visible = neighbourhoods.relations >= 0
            hidden_states = layer(
                hidden_states,
                neighbourhoods=neighbourhoods,
                bias=self._attention_bias(visible, neighbourhoods.relations, index, hidden_states.dtype),
                visible_keys=visible.sum(-1),
            )
            row_index = neighbourhoods.index
        return expand_rows(hidden_states, row_index)

    def neighbours(
        self, position_ids: torch.LongTensor, query_columns: torch.LongTensor, attention_mask: torch.Tensor | None
    ) -> Neighbours:
        """The keys of the queries in some columns, for an encoding with a window; padding is nobody's neighbour.

        Args:
            position_ids: (batch or 1, levels, columns).
            query_columns: (queries,).
            attention_mask: (batch, columns), 0 at padding.

        Returns:
            One row where ids and mask are the same for the whole batch.
        """
        present = None
        if attention_mask is not None and not attention_mask.all():
            present = attention_mask.bool()
            if len(position_ids) == 1 and (present == present[:1]).all():
                present = present[:1]
            position_ids = position_ids.expand(len(present), -1, -1)
        return self.position_encoding.neighbours(position_ids[..., query_columns], position_ids, query_columns, present)

    def _resolve_position_ids(self, input_ids, position_ids, tokens, past_length) -> torch.LongTensor | None:
        """Ids as (batch or 1, levels, tokens); None where the encoding reads none."""
        if not self.position_encoding.uses_position_ids:
            return None
        if position_ids is None:
            if input_ids is None or past_length:
                raise ValueError(
                    "position_ids cannot be derived from inputs_embeds or from the tokens after a cache: pass them "
                    f"(rule {self.config.coupling!r}; plan_position_ids(prompt, columns) gives them for prompt and response)"
                )
            position_ids = self.plan_position_ids(input_ids, input_ids.shape[1])
        levels = self.config.position_levels
        if position_ids.ndim == 2:
            position_ids = position_ids.unsqueeze(1)
        if position_ids.shape[1:] != (levels, tokens):
            raise ValueError(
                f"position_ids must be (batch or 1, {levels} levels, {tokens} tokens), got {tuple(position_ids.shape)}"
            )
        return position_ids

    def _embed(self, token_embeddings, position_ids):
        return token_embeddings if position_ids is None else self.position_encoding.embed(token_embeddings, position_ids)

    def _distinct_inputs(self, input_ids, position_ids) -> tuple[torch.Tensor, torch.LongTensor]:
        """The different inputs of the first layer, (distinct, hidden), and each token's index in them, (batch, tokens).

        A token's input depends on its token and ids alone, and a batch holds few such pairs (at most vocabulary times
        largest id), so the first layer projects each of them once, whatever the number of tokens.
        """
        code = input_ids
        if self.position_encoding.embeds_position_ids:
            self.position_encoding.check(position_ids)
            base = int(position_ids.max()) + 1
            for ids in position_ids.unbind(1):
                code = code * base + ids
        codes, row_index = torch.unique(code, return_inverse=True)
        ids = []
        if self.position_encoding.embeds_position_ids:
            for _ in range(position_ids.shape[1]):
                ids.append(codes % base)
                codes = codes // base
        levels = torch.stack(ids[::-1]).unsqueeze(0) if ids else None
        return self._embed(self.embed_tokens(codes).unsqueeze(0), levels).squeeze(0), row_index

    def _visible_keys(self, query_columns, keys, attention_mask, pair_map, neighbours) -> torch.BoolTensor:
        """(batch or 1, queries, keys): causal in the order of the sequence, whatever its ids; padding and, with a window,
        what is outside it hidden. With neighbours, (batch or 1, queries, neighbours)."""
        if neighbours is not None:
            return neighbours.relations >= 0
        visible = (torch.arange(keys, device=query_columns.device) <= query_columns.unsqueeze(1)).unsqueeze(0)
        if attention_mask is not None:
            visible = visible & attention_mask[:, None, :].bool()
        if pair_map is not None and self.position_encoding.windowed:
            visible = visible & (pair_map >= 0)
        return visible

    def _attention_bias(self, visible, relations, layer, dtype) -> torch.Tensor:
        """Additive (*visible.shape, heads or 1): the encoding's bias where visible, else the lowest value, whose weight
        after softmax is exactly zero."""
        lowest = torch.finfo(dtype).min
        bias = None if relations is None else self.position_encoding.bias(relations, layer)
        if bias is None:
            bias = torch.zeros((), dtype=dtype, device=visible.device)
        return torch.where(visible.unsqueeze(-1), bias.to(dtype), lowest)


class CoupledGPTForCausalLM(CoupledGPTPreTrainedModel, GenerationMixin):
    """CoupledGPT with its output matrix.

    `generate()` derives position ids for prompt and response from the rule that `config.coupling` names, so that
    `model.generate(**tokenizer("653+049=", return_tensors="pt"))` is right as it stands. Unless told otherwise it stops at
    the longest response that the rule plans for.
    """

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: CoupledGPTConfig):
        super().__init__(config)
        self.model = CoupledGPTModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        # Saved with the model: without it, the text-generation pipeline draws tokens at random.
        self.generation_config.do_sample = False
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        pair_map: torch.IntTensor | None = None,
        neighbours: Neighbours | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        labels: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.LongTensor = 0,
        **kwargs: Unpack[TransformersKwargs],
    ) -> CausalLMOutputWithPast:
        r"""
        Args:
            input_ids: (batch, tokens).
            attention_mask: (batch, past + tokens), 0 at padding.
            position_ids: coupled ids of these tokens, (batch or 1, tokens) or (batch or 1, levels, tokens); one row
                serves a batch of one layout. Derived from `input_ids` by the coupling rule where omitted.
            pair_map: relations (batch or 1, tokens, past + tokens) for a position encoding that reads them; derived from
                `position_ids` where omitted. Must be given together with `past_key_values` that hold tokens. If given,
                all pairs are scored, under a window too.
            neighbours: the keys that each token may attend to, in place of a pair map and of `attention_mask`, for an
                encoding with a window; derived from `position_ids` where both are omitted, see `CoupledGPTModel.neighbours`.
            labels: (batch, tokens), -100 where not supervised. Token t is predicted at t - 1.
            logits_to_keep: the last layer, the final norm and the logits are computed for the last so many tokens, or
                for those whose indices are given; 0 is all. A loss then counts what they predict.

        Cost and memory of attention grow with kept tokens times all tokens; under a window with the number of tokens,
        unless attentions or hidden states are asked for.

        Raises:
            ValueError: ids must be derived and a row of `input_ids` is not of the rule's form; an id is outside the
                learned table; ids, pair map or neighbours are missing beside a cache.
        """
        outputs: BaseModelOutputWithPast = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            pair_map=pair_map,
            neighbours=neighbours,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            logits_to_keep=logits_to_keep,
            **kwargs,
        )
        hidden_states = outputs.last_hidden_state
        if self.config.tie_word_embeddings:
            hidden_states = hidden_states * self.config.hidden_size**-0.5
        logits = self.lm_head(hidden_states)
        loss = None
        if labels is not None:
            next_labels = nn.functional.pad(labels, (0, 1), value=-100)[:, 1:]
            if isinstance(logits_to_keep, torch.Tensor):
                next_labels = next_labels[:, logits_to_keep]
            elif logits_to_keep:
                next_labels = next_labels[:, -logits_to_keep:]
            loss = self.loss_function(
                logits=logits,
                labels=labels,
                shift_labels=next_labels.contiguous(),
                vocab_size=self.config.vocab_size,
                **kwargs,
            )
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )

    def generate(self, inputs: torch.Tensor | None = None, *args, **kwargs):
        """As `GenerationMixin.generate`. `position_ids`, if given, are a plan for prompt and response together."""
        prompt = kwargs.get("input_ids") if inputs is None else inputs
        position_ids = kwargs.get("position_ids")
        if prompt is not None and position_ids is not None and position_ids.shape[-1] <= prompt.shape[1]:
            raise ValueError(
                f"position_ids passed to generate() must cover prompt and response: got {position_ids.shape[-1]} "
                f"columns for a prompt of {prompt.shape[1]} tokens"
            )
        if kwargs.get("assistant_model") is not None or kwargs.get("prompt_lookup_num_tokens") is not None:
            raise ValueError("assisted decoding is not supported: it does not crop coupled position ids")
        if kwargs.get("guidance_scale") not in (None, 1.0):
            raise ValueError("guidance_scale is not supported: its second prompt has no position ids")
        return super().generate(inputs, *args, **kwargs)

    def _plan(self, input_ids, columns):
        return COUPLING_RULES[self.config.coupling].plan(input_ids, columns)

    def _prepare_position_ids_for_generation(self, inputs_tensor, model_kwargs):
        input_ids = model_kwargs.get("input_ids", inputs_tensor)
        model_kwargs["plan_is_derived"] = True
        columns = input_ids.shape[1] + self._plan(input_ids, 1).response_length
        return self.model.plan_position_ids(input_ids, columns)

    def _prepare_generated_length(self, generation_config, has_default_max_length, **kwargs):
        if has_default_max_length and generation_config.max_new_tokens is None:
            generation_config.max_new_tokens = self._plan(kwargs["inputs_tensor"], 1).response_length
        return super()._prepare_generated_length(
            generation_config=generation_config, has_default_max_length=has_default_max_length, **kwargs
        )

    def _expand_inputs_for_generation(self, expand_size=1, is_encoder_decoder=False, input_ids=None, **model_kwargs):
        plan = model_kwargs.pop("position_ids", None)
        input_ids, model_kwargs = super()._expand_inputs_for_generation(
            expand_size, is_encoder_decoder, input_ids, **model_kwargs
        )
        if plan is not None:
            # Not under the name position_ids, which transformers extends by itself and cuts for chunked prefill.
            model_kwargs["position_plan"] = plan if len(plan) == 1 else plan.repeat_interleave(expand_size, dim=0)
            model_kwargs["present_plan"] = self._plan_present(input_ids, plan=model_kwargs["position_plan"], **model_kwargs)
        return input_ids, model_kwargs

    def _plan_present(self, input_ids, plan, attention_mask=None, **kwargs) -> torch.LongTensor:
        """(batch, columns of the plan), 0 at padding and, under a window, at tokens after the longest response: without an
        id they would all be seen by each other."""
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        planned = (plan[..., input_ids.shape[1] :] > 0).any(1).long().expand(len(input_ids), -1)
        if not self.model.position_encoding.windowed:
            planned = torch.ones_like(planned)
        return torch.cat([attention_mask, planned], dim=1)

    def _prepare_cache_for_generation(self, generation_config, model_kwargs, mode, batch_size, max_cache_length):
        """Under a window, a cache that keeps what can still be seen, unless the caller asks for another."""
        given = model_kwargs.get("past_key_values")
        if isinstance(given, WindowedCache):
            raise ValueError(
                "the cache of an earlier generate() under a window cannot be continued, it keeps only what that response "
                "could still see: pass past_key_values=DynamicCache() to both"
            )
        super()._prepare_cache_for_generation(generation_config, model_kwargs, mode, batch_size, max_cache_length)
        plan, cache = model_kwargs.get("position_plan"), model_kwargs.get("past_key_values")
        own = given is None and type(cache) is DynamicCache and not cache.offloading
        # Attention maps are of all pairs.
        if plan is not None and own and self.model.position_encoding.windowed and not generation_config.output_attentions:
            beyond = (0, max(0, max_cache_length + 1 - plan.shape[-1]))
            plan, present = (nn.functional.pad(part, beyond) for part in (plan, model_kwargs["present_plan"]))
            columns = torch.arange(plan.shape[-1], device=plan.device)
            model_kwargs["neighbour_plan"] = self.model.neighbours(plan, columns, present)
            model_kwargs["past_key_values"] = WindowedCache(model_kwargs["neighbour_plan"], self.config.num_hidden_layers)

    def prepare_inputs_for_generation(
        self,
        input_ids,
        past_key_values=None,
        position_plan=None,
        plan_is_derived=False,
        present_plan=None,
        neighbour_plan=None,
        **kwargs,
    ):
        """Slices the plan of ids; columns past its end (tokens after the longest response) have what the rule goes on with,
        or id 0 where the caller gave the plan."""
        inputs = super().prepare_inputs_for_generation(input_ids, past_key_values=past_key_values, **kwargs)
        past_length = 0 if past_key_values is None else past_key_values.get_seq_length()
        length = past_length + inputs["input_ids"].shape[1]
        if position_plan is not None:
            plan, beyond = position_plan, max(0, length - position_plan.shape[-1])
            if beyond and plan_is_derived:
                plan = self.model.plan_position_ids(input_ids, length)
            else:
                plan = nn.functional.pad(plan, (0, beyond))
            inputs["position_ids"] = plan[..., past_length:length]
            if self.model.position_encoding.windowed:
                inputs["attention_mask"] = nn.functional.pad(present_plan, (0, length))[:, :length]
            if isinstance(past_key_values, WindowedCache):
                inputs["neighbours"] = neighbour_plan.select(slice(past_length, length))
            else:
                inputs["pair_map"] = self.model.position_encoding.pair_map(inputs["position_ids"], plan[..., :length])
        return inputs


CoupledGPTModel.register_for_auto_class("AutoModel")
CoupledGPTForCausalLM.register_for_auto_class("AutoModelForCausalLM")

__all__ = ["CoupledGPTForCausalLM", "CoupledGPTModel", "CoupledGPTPreTrainedModel"]
