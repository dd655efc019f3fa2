"""The leads of a decoder under a window in exact arithmetic, and how far rounding can move them."""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from longhand.data.certificates.network_rounding import NetworkRounding
from longhand.data.certificates.rounding import Arithmetic, Mlp, Pair, Value, Weight
from longhand.data.tasks.covering import NeighbourhoodBatch
from longhand.modeling import CoupledGPTForCausalLM
from longhand.modeling.relations import is_listed
from longhand.modeling.vocabulary import BOS, PAD


class DecoderRounding(NetworkRounding):
    """A CoupledGPT in exact arithmetic, see `NetworkRounding`.

    A key sees `$` alone, as listed neighbourhoods say. So in every layer its state is a function of its token.
    """

    bounded: ClassVar = {
        "position_encoding": ("pairwise",),
        "norm": ("rms",),
        "final_norm": (None, "rms"),
        "norm_placement": ("sandwich", "pre"),
        "mlp": ("geglu",),
        "qk_norm": (False,),
        "attention_scale": ("sqrt", "zero"),
    }

    @classmethod
    def check_bounded(cls, model):
        super().check_bounded(model)
        if model.config.num_hidden_layers > 1 and model.config.attention_scale != "zero":
            raise ValueError("rounding has a bound for several layers with attention_scale 'zero' only")

    def __init__(self, model: CoupledGPTForCausalLM):
        super().__init__(model)
        window, depth = model.model.position_encoding.window, self.config.num_hidden_layers
        self.beginning = len(window) if is_listed(window) else window[1] - window[0] + 1
        self.mlps = [self._mlp(layer) for layer in range(depth)]
        self.head = Weight(
            self.weights["lm_head.weight"] * (self.config.hidden_size**-0.5 if self.config.tie_word_embeddings else 1.0)
        )
        # Queries, keys and values of every token in each layer.
        self.seen: list[dict[str, Pair]] = []
        tokens = torch.arange(self.config.vocab_size, device=self.head.exact.device)
        begin, arithmetic = torch.full_like(tokens, BOS).unsqueeze(1), Arithmetic(self.unit, effort=2)
        relations, state = torch.full_like(begin, self.beginning), self._embed(arithmetic, tokens)
        for layer in range(depth):
            self.seen.append({name: self._tabulate(arithmetic, layer, state, name) for name in "qkv"})
            if layer + 1 < depth:
                state = arithmetic.tighten(self._layer(arithmetic, layer, state, tokens, begin, relations))

    def _mlp(self, layer: int) -> Mlp:
        name = f"model.layers.{layer}.mlp."
        up, gate, down = (self.weights[f"{name}{part}_proj.weight"] for part in ("up", "gate", "down"))
        return Mlp(self.config.hidden_act, len(up), Weight(torch.cat([up, gate])), Weight(down))

    def _embed(self, arithmetic: Arithmetic, tokens: Tensor) -> Value:
        states = self.weights["model.embed_tokens.weight"][tokens]
        return arithmetic.leaf(states, torch.zeros_like(states))

    def _tabulate(self, arithmetic: Arithmetic, layer: int, x: Value, name: str) -> Pair:
        """Queries `q`, keys `k` or values `v` of states, (inputs, heads, width), with radii."""
        heads = self.config.num_attention_heads
        if self.config.attention_scale == "zero" and name != "v":
            zeros = x.exact.new_zeros(len(x.exact), heads, 1)
            return zeros, zeros
        normed = self._norm(arithmetic, x, f"model.layers.{layer}.attention_norms.input")
        matrix = self.matrices[f"model.layers.{layer}.self_attn.{name}_proj.weight"]
        return arithmetic.tabulate(arithmetic.product(normed, matrix), heads)

    def lead_and_bound(self, batch: NeighbourhoodBatch) -> Pair:
        """Leads of the right token over every token, and bounds of what rounding does to them, (count, vocabulary) each."""
        device = self.head.exact.device
        parts = batch.tokens, batch.right, batch.keys, batch.relations
        tokens, right, keys, relations = (torch.from_numpy(part.astype(np.int64)).to(device) for part in parts)
        relations = relations.expand(keys.shape).where(keys != PAD, -1)
        keys, relations = pad(keys, (1, 0), value=BOS), pad(relations, (1, 0), value=self.beginning)

        def leads(places: Tensor, effort: int) -> Iterator[Pair]:
            width = max(self.config.hidden_size, self.config.num_attention_heads * int(self.config.head_dim or 0))
            ends = max(self.config.vocab_size, width if effort == 2 else 0)
            for chunk in self.split(places, ends, self.config.intermediate_size):
                arithmetic = Arithmetic(self.unit, effort)
                state = self._embed(arithmetic, tokens[chunk])
                for layer in range(self.config.num_hidden_layers):
                    state = self._layer(arithmetic, layer, state, tokens[chunk], keys[chunk], relations[chunk])
                yield arithmetic.lead_and_bound(self._norm(arithmetic, state, "model.norm"), self.head, right[chunk])

        return self.bound_leads(leads, len(right))

    def _layer(
        self, arithmetic: Arithmetic, layer: int, own: Value, tokens: Tensor, keys: Tensor, relations: Tensor
    ) -> Value:
        """The states that a layer makes of those of some tokens (inputs,), which see keys (inputs, slots)."""
        name, seen = f"model.layers.{layer}.", self.seen[layer]
        query, key, value = (
            arithmetic.leaf(*(part[places] for part in seen[part_name]))
            for part_name, places in zip("qkv", (tokens, keys, keys), strict=True)
        )
        bias = self.weights["model.position_encoding.relation_bias"][layer][relations.clamp(min=0).long()]
        factor = float(self.config.head_dim or 1) ** -0.5
        read = arithmetic.attention(query, key, value, relations >= 0, factor, (bias, torch.zeros_like(bias)))
        output = arithmetic.finish_sublayer(arithmetic.product(read, self.matrices[f"{name}self_attn.o_proj.weight"]))
        state = arithmetic.add(own, self._norm(arithmetic, output, f"{name}attention_norms.output"))
        inner = self._norm(arithmetic, state, f"{name}mlp_norms.input")
        output = arithmetic.finish_sublayer(arithmetic.mlp(inner, self.mlps[layer]))
        return arithmetic.add(state, self._norm(arithmetic, output, f"{name}mlp_norms.output"))

    def _norm(self, arithmetic: Arithmetic, x: Value, name: str) -> Value:
        """A norm of the model; the value itself if the model has none of that name."""
        weight = self.weights.get(f"{name}.weight")
        return x if weight is None else arithmetic.norm(x, weight, self.config.norm_eps)
