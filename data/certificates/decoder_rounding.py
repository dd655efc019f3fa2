"""The leads of a decoder under a window in exact arithmetic, and how far rounding can move them."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from longhand.data.certificates.network_rounding import NetworkRounding, check_parts
from longhand.data.certificates.rounding import Arithmetic, Mlp, Pair, Value, Weight
from longhand.modeling import CoupledGPTForCausalLM
from longhand.modeling.relations import Neighbourhoods


class Projected(NamedTuple):
    """Keys and values of the rows of a layer's input, in the first layer queries too, (rows, heads, width) with radii.

    Above the first layer, the radius of a row that no query sees is infinite.
    """

    keys: Pair
    values: Pair
    queries: Pair | None = None


def check_bounded(model: CoupledGPTForCausalLM) -> None:
    """Raise ValueError if the model has a part whose rounding has no bound; the message names it."""
    encoding = model.config.position_encoding
    if encoding != "pairwise":
        raise ValueError(f"position_encoding {encoding!r} has no bound of its rounding, only 'pairwise' has")
    check_parts(model, model.config.hidden_act)


class DecoderRounding(NetworkRounding):
    """A CoupledGPT in exact arithmetic, see `NetworkRounding`.

    Raises:
        ValueError: as `check_bounded`.
    """

    def __init__(self, model: CoupledGPTForCausalLM):
        check_bounded(model)
        super().__init__(model)
        self.config = model.config
        self.mlps = [self._mlp(layer) for layer in range(model.config.num_hidden_layers)]

    def _mlp(self, layer: int) -> Mlp:
        name = f"model.layers.{layer}.mlp."
        up, down = (self.weights[f"{name}{part}_proj.weight"] for part in ("up", "down"))
        gate = self.weights.get(f"{name}gate_proj.weight")
        inner = up if gate is None else torch.cat([up, gate])
        return Mlp(self.config.hidden_act, len(up), Weight(inner), Weight(down))

    def lead_and_bound(self, tokens: Tensor, layers: Sequence[Neighbourhoods], right: Tensor) -> tuple[Tensor, Tensor]:
        """Leads of the right token over every token, and bounds of what rounding does to them; see `Arithmetic`.

        Args:
            tokens: (rows,), to which the first layer's neighbourhoods point.
            layers: the neighbourhoods of each layer, in terms of rows of the layer before. The first slot holds a key;
                `index` is not read.
            right: (neighbourhoods of the last layer,).

        Returns:
            Both (neighbourhoods of the last layer, vocabulary).
        """
        tied = self.config.tie_word_embeddings
        head = Weight(self.weights["lm_head.weight"] * (self.config.hidden_size**-0.5 if tied else 1.0))

        def leads(places: Tensor, effort: int) -> Iterator[Pair]:
            seen = self._seen(tokens, layers, effort)
            for chunk in self._parts(places, effort, len(layers)):
                arithmetic = Arithmetic(self.unit, effort)
                state = self._state(arithmetic, chunk, tokens, layers, seen)
                yield arithmetic.lead_and_bound(self._norm(arithmetic, state, "model.norm"), head, right[chunk])

        return self.bound_leads(leads, len(right))

    def _seen(self, tokens: Tensor, layers: Sequence[Neighbourhoods], effort: int) -> list[Projected]:
        """What each layer sees, for arguments of `lead_and_bound`. Its errors count as independent of those that see it."""
        places = torch.arange(len(layers[-1].queries), device=tokens.device)
        seen: list[Tensor] = []
        for neighbourhoods in reversed(layers[1:]):
            queries, keys, relations = (part[places] for part in neighbourhoods[:3])
            seen.insert(0, keys[relations >= 0].unique())
            places = torch.cat([queries, seen[0]]).unique()
        states = self.weights["model.embed_tokens.weight"][tokens]
        arithmetic = Arithmetic(self.unit)
        embedded = arithmetic.leaf(states, torch.zeros_like(states))
        found = [Projected(*(self._tabulate(arithmetic, 0, embedded, name) for name in "kvq"))]
        for depth, rows in enumerate(seen, 1):
            own, parts = layers[:depth], []
            for chunk in self._parts(rows, 2, depth):
                arithmetic = Arithmetic(self.unit, effort)
                state = arithmetic.tighten(self._state(arithmetic, chunk, tokens, own, found))
                projected = [self._tabulate(arithmetic, depth, state, name) for name in "kv"]
                parts.append([part for pair in projected for part in pair])
            key, key_radius, value, value_radius = map(torch.cat, zip(*parts, strict=True))
            count = len(own[-1].queries)
            found.append(Projected(_spread((key, key_radius), rows, count), _spread((value, value_radius), rows, count)))
        return found

    def _tabulate(self, arithmetic: Arithmetic, layer: int, x: Value, name: str) -> Pair:
        """A projection of some states, with radii."""
        value = arithmetic.tighten(self._project(arithmetic, layer, x, name))
        # Where a condition of a lemma does not hold, the error may be anything.
        holds = arithmetic.proved.expand(len(value.exact)).view(-1, 1, 1)
        return value.exact, value.radius.where(holds, torch.inf)

    def _parts(self, places: Tensor, effort: int, depth: int) -> tuple[Tensor, ...]:
        """Parts of the neighbourhoods of a layer, the `depth`-th, whose derivatives can be held at once."""
        ends, units = self.config.vocab_size, self.config.intermediate_size
        if effort == 2:
            width = max(self.config.hidden_size, self.config.num_attention_heads * int(self.config.head_dim or 0))
            ends, units = max(ends, width), max(units, 16 * width * (depth > 1))
        return self.split(places, ends, units)

    def _state(
        self,
        arithmetic: Arithmetic,
        places: Tensor,
        tokens: Tensor,
        layers: Sequence[Neighbourhoods],
        seen: Sequence[Projected],
    ) -> Value:
        """The states (places, width) that the last of some layers makes in some of its neighbourhoods.

        A token's own states are followed through all layers, so that errors may cancel. What they see is given.

        Args:
            places: numbers of neighbourhoods of the last layer.
            tokens, layers: as in `lead_and_bound`.
            seen: as `_seen` returns it.
        """
        *below, neighbourhoods = layers
        layer = len(below)
        queries, keys, relations = (part[places] for part in neighbourhoods[:3])
        # Slots without a key point to one that is seen.
        keys = keys.where(relations >= 0, keys[:, :1])
        given = seen[layer].queries
        if given is None:
            own = self._state(arithmetic, queries, tokens, below, seen)
            query = self._project(arithmetic, layer, own, "q")
        else:
            states = self.weights["model.embed_tokens.weight"][tokens[queries]]
            own = arithmetic.leaf(states, torch.zeros_like(states))
            query = arithmetic.leaf(*(part[queries] for part in given))
        key, value = (arithmetic.leaf(*(part[keys] for part in pair)) for pair in seen[layer][:2])
        read = self._attend(arithmetic, layer, (query, key, value), relations)
        state = self._add(arithmetic, f"{layer}.attention_norms", own, read)
        inner = self._norm(arithmetic, state, f"{layer}.mlp_norms.input")
        output = arithmetic.finish_sublayer(arithmetic.mlp(inner, self.mlps[layer]))
        return self._add(arithmetic, f"{layer}.mlp_norms", state, output)

    def _project(self, arithmetic: Arithmetic, layer: int, x: Value, name: str) -> Value:
        """Queries `q`, keys `k` or values `v` of states, (inputs, heads, width)."""
        config, heads = self.config, self.config.num_attention_heads
        if config.attention_scale == "zero" and name != "v":
            zeros = x.exact.new_zeros(len(x.exact), heads, 1)
            return arithmetic.leaf(zeros, zeros)
        normed = self._norm(arithmetic, x, f"{layer}.attention_norms.input")
        matrix = self.matrices[f"model.layers.{layer}.self_attn.{name}_proj.weight"]
        value = arithmetic.split(arithmetic.product(normed, matrix), heads)
        if not config.qk_norm or name == "v":
            return value
        learned = self.weights[f"model.layers.{layer}.self_attn.qk_norm_factor"].unsqueeze(1)
        factor = learned / self._scaling if name == "q" else 1.0
        return arithmetic.norm(value, factor * value.exact.shape[-1] ** -0.5, 0.0)

    def _attend(self, arithmetic: Arithmetic, layer: int, projected: tuple[Value, Value, Value], relations: Tensor) -> Value:
        """Output of the attention of some neighbourhoods: (query, key, value)."""
        visible = relations >= 0
        factor: Tensor | float = self._scaling
        if self.config.attention_scale == "log_length":
            learned = self.weights[f"model.layers.{layer}.self_attn.log_length_factor"]
            factor = factor * visible.sum(1).clamp(min=1).double().log().view(-1, 1, 1) * learned
        bias = self.weights["model.position_encoding.relation_bias"][layer][relations.clamp(min=0).long()]
        read = arithmetic.attention(*projected, visible, factor, (bias, torch.zeros_like(bias)))
        output = arithmetic.product(read, self.matrices[f"model.layers.{layer}.self_attn.o_proj.weight"])
        return arithmetic.finish_sublayer(output)

    @property
    def _scaling(self) -> float:
        return 1.0 if self.config.attention_scale == "none" else float(self.config.head_dim or 1) ** -0.5

    def _add(self, arithmetic: Arithmetic, norms: str, residual: Value, output: Value) -> Value:
        """The residual sum of a sublayer's input and its output, with the norms around it."""
        total = arithmetic.add(residual, self._norm(arithmetic, output, f"{norms}.output"))
        return self._norm(arithmetic, total, f"{norms}.sum")

    def _norm(self, arithmetic: Arithmetic, x: Value, name: str) -> Value:
        """A norm of the model, by its name in it or in its layers; the value itself if the model has none of that name."""
        name = name if name.startswith("model") else f"model.layers.{name}"
        weight, bias = self.weights.get(f"{name}.weight"), self.weights.get(f"{name}.bias")
        if weight is None:
            return x
        eps = self.config.norm_eps
        return arithmetic.norm(x, weight, eps) if bias is None else arithmetic.layer_norm(x, weight, bias, eps)


def _spread(pair: Pair, rows: Tensor, count: int) -> Pair:
    """Values and radii of all `count` rows, of which `rows` are given; the others have infinite radii."""
    exact, radius = pair
    values = exact.new_zeros(count, *exact.shape[1:]), radius.new_full((count, *radius.shape[1:]), torch.inf)
    return values[0].index_copy(0, rows, exact), values[1].index_copy(0, rows, radius)
