"""The models as functions of tensors alone, for `torch.export` and ONNX.

Ids and pair maps are inputs here. The models derive them from token values, which a traced graph cannot do. All pairs are
scored, under a window too, so time and memory grow with the square of the number of tokens.
"""

from typing import Any

import torch
from torch import Tensor, nn

from .encoder_maps import NO_MAP, derive_pair_map, virtual_indices
from .modeling_coupled_gpt import CoupledGPTForCausalLM, ForwardInputs
from .modeling_pairwise_bert import PairwiseBertForTokenClassification


class _TensorCache:
    """The keys and values of all layers in one tensor, (batch, 2 x layers, heads, tokens, head_dim)."""

    def __init__(self, past: Tensor):
        self.past = past
        self.present: list[Tensor] = []

    def update(self, key: Tensor, value: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        both = (torch.cat([self.past[:, 2 * layer + place], new], dim=2) for place, new in enumerate((key, value)))
        key, value = both
        self.present += [key, value]
        return key, value


class ExportableCoupledGPT(nn.Module):
    """A CoupledGPT with given position ids, and its cache as a tensor."""

    def __init__(self, model: CoupledGPTForCausalLM):
        super().__init__()
        self.model = model
        # The interface is a field of the configuration, so it is chosen for this copy alone.
        model.set_attn_implementation("eager")

    def forward(
        self, input_ids: Tensor, position_ids: Tensor, attention_mask: Tensor, past: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return logits (batch, tokens, vocabulary), and the cache for the next call.

        Args:
            input_ids: (batch, tokens).
            position_ids: (batch, levels, past + tokens), as `plan_position_ids` of the model gives them.
            attention_mask: (batch, past + tokens), 0 for padding on the left.
            past: (batch, 2 x layers, heads, past, head_dim), of no token at first.
        """
        model, config, keys = self.model.model, self.model.config, position_ids.shape[-1]
        encoding, cache = model.position_encoding, _TensorCache(past)
        first = keys - input_ids.shape[1]
        ids, hidden_states = position_ids[..., first:], model.embed_tokens(input_ids)
        if encoding.embeds_position_ids:
            hidden_states = encoding.embed(hidden_states, ids)
        relations = encoding.pair_map(ids, position_ids) if encoding.uses_pair_map else None
        columns, every = torch.arange(first, keys, device=input_ids.device), slice(None)
        inputs: Any = (hidden_states, None, ids, attention_mask, cache, keys, every, every, columns, relations)
        hidden_states = model._forward_tokens(ForwardInputs(*inputs))
        if config.tie_word_embeddings:
            hidden_states = hidden_states * config.hidden_size**-0.5
        return self.model.lm_head(hidden_states), torch.stack(cache.present, 1)

    def example(self, input_ids: Tensor) -> tuple[Tensor, ...]:
        """Return arguments of `forward` for sequences (batch, tokens) whose first two tokens are in the cache."""
        batch, tokens = input_ids.shape
        position_ids = self.model.model.plan_position_ids(input_ids, tokens).expand(batch, -1, -1).contiguous()
        mask = torch.ones_like(input_ids)
        with torch.no_grad():
            _, past = self(input_ids[:, :2], position_ids[..., :2], mask[:, :2], self.empty_cache(batch))
        return input_ids[:, 2:], position_ids, mask, past

    def empty_cache(self, batch: int) -> Tensor:
        """Return the cache of no token."""
        config = self.model.config
        shape: Any = (batch, 2 * config.num_hidden_layers, config.num_attention_heads, 0, config.head_dim)
        return torch.zeros(shape, dtype=self.model.dtype)


class ExportablePairwiseBert(nn.Module):
    """A PairwiseBert with given pair maps.

    Raises:
        ValueError: the model applies its layers until its state or its labels settle, which no traced graph can do.
    """

    def __init__(self, model: PairwiseBertForTokenClassification):
        super().__init__()
        if model.config.settle_tolerance is not None:
            raise ValueError(
                "the model applies its layers until its state settles, and a graph has a fixed number of steps: set "
                "settle_tolerance to None in its configuration for num_loops loops"
            )
        if model.config.label_states:
            raise ValueError("the model applies its layer until its labels settle, and a graph has a fixed number of steps")
        self.model = model
        self.rules = [name for name in dict.fromkeys(model.config.head_maps) if name != NO_MAP]
        model.set_attn_implementation("eager")

    def forward(self, input_ids: Tensor, pair_maps: Tensor, attention_mask: Tensor) -> Tensor:
        """Return logits (batch, tokens, labels).

        Args:
            input_ids: (batch, tokens).
            pair_maps: (batch, rules, tokens, tokens), the map of each rule in the order of the configuration.
            attention_mask: (batch, tokens), 0 for padding.
        """
        model = self.model.model
        maps = dict(zip(self.rules, pair_maps.unbind(1), strict=True))
        embeddings = model.embed_tokens(input_ids)
        attention = model._attention_arguments(*model._with_sink(maps, attention_mask == 0), None, embeddings.dtype)
        embeddings = model.embedding_norm(model._add_positions(embeddings, input_ids))
        return self.model.classifier(model._loop(embeddings, None, 0, **attention).last_hidden_state)

    def example(self, input_ids: Tensor) -> tuple[Tensor, ...]:
        """Return the arguments of `forward` for inputs (batch, tokens) without padding."""
        config, indices = self.model.config, virtual_indices(input_ids)
        limits: Any = (config.relation_range, config.windowed, config.max_multiplier_length)
        maps = [derive_pair_map(name, input_ids, indices, *limits).long() for name in self.rules]
        batch, tokens = input_ids.shape
        spread = [one.expand(batch, -1, -1) for one in maps]
        stacked = torch.stack(spread, 1) if spread else input_ids.new_zeros(batch, 0, tokens, tokens)
        return input_ids, stacked, torch.ones_like(input_ids)
