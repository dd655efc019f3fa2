"""The leads of a decoder under a window in exact arithmetic, and how far rounding can move them."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from longhand.data.certificates.network_rounding import NetworkRounding, check_parts
from longhand.data.certificates.rounding import Arithmetic, Mlp, Pair, Value, Weight
from longhand.modeling import CoupledGPTForCausalLM
from longhand.modeling.neighbourhoods import Neighbourhoods

Bounded = tuple[Tensor, Tensor, Tensor]
"""Values (inputs, width), and bounds of each component of their errors and of the errors' lengths (inputs,)."""


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
            layers: the neighbourhoods of each layer, in terms of rows of the layer before; `index` is not read.
            right: (neighbourhoods of the last layer,).

        Returns:
            Both (neighbourhoods of the last layer, vocabulary).
        """
        tied = self.config.tie_word_embeddings
        head = Weight(self.weights["lm_head.weight"] * (self.config.hidden_size**-0.5 if tied else 1.0))

        def leads(places: Tensor, effort: int) -> Iterator[Pair]:
            rows, last = self._states(tokens, layers[:-1], effort), len(layers) - 1
            for chunk, arithmetic, state in self._run_layer(last, rows, layers[-1], places, effort):
                yield arithmetic.lead_and_bound(self._norm(arithmetic, state, "model.norm"), head, right[chunk])

        return self.bound_leads(leads, len(right))

    def _states(self, tokens: Tensor, layers: Sequence[Neighbourhoods], effort: int) -> Bounded:
        """What the last layer reads: states (rows, width), radii and lengths of their errors."""
        states = self.weights["model.embed_tokens.weight"][tokens]
        rows = states, torch.zeros_like(states), torch.zeros_like(states[:, 0])
        for layer, neighbourhoods in enumerate(layers):
            found = []
            every = torch.arange(len(neighbourhoods.queries), device=tokens.device)
            for _, arithmetic, state in self._run_layer(layer, rows, neighbourhoods, every, effort):
                if effort == 2:
                    arithmetic.tighten(state)
                # Where a condition of a lemma does not hold, the error may be anything.
                holds = arithmetic.proved.expand(len(state.exact))
                radius = state.radius.where(holds.unsqueeze(1), torch.inf)
                found.append((state.exact, radius, state.length.where(holds, torch.inf)))
            states, radii, lengths = map(torch.cat, zip(*found, strict=True))
            rows = states, radii, lengths
        return rows

    def _run_layer(
        self, layer: int, rows: Bounded, neighbourhoods: Neighbourhoods, places: Tensor, effort: int
    ) -> Iterator[tuple[Tensor, Arithmetic, Value]]:
        """Apply a layer to some of the neighbourhoods at a time, and yield which, the operations and the states."""
        table = None
        if layer == 0:
            # There are few tokens, and the errors of what is projected are small: each is projected once.
            arithmetic = Arithmetic(self.unit)
            table = [self._project(arithmetic, layer, arithmetic.leaf(*rows), name) for name in "qkv"]
            for value in table:
                arithmetic.tighten(value)
                value.radius = value.radius.where(arithmetic.proved.view(-1, 1, 1), torch.inf)
        ends, units = self.config.vocab_size, self.config.intermediate_size
        if effort == 2:
            ends, units = max(ends, self.config.hidden_size), max(units, 0 if table else 16 * self.config.hidden_size)
        for chunk in self.split(places, ends, units):
            arithmetic = Arithmetic(self.unit, effort)
            queries, keys, relations = (part[chunk] for part in neighbourhoods[:3])
            own = arithmetic.leaf(*(part[queries] for part in rows))
            if table:
                taken = zip(table, (queries, keys, keys), strict=True)
                projected = [arithmetic.leaf(value.exact[place], value.radius[place]) for value, place in taken]
            else:
                seen = arithmetic.leaf(*(part[keys] for part in rows))
                projected = [
                    self._project(arithmetic, layer, x, name) for x, name in zip((own, seen, seen), "qkv", strict=True)
                ]
            read = self._attend(arithmetic, layer, projected, relations)
            state = self._add(arithmetic, f"{layer}.attention_norms", own, read)
            inner = self._norm(arithmetic, state, f"{layer}.mlp_norms.input")
            output = arithmetic.finish_sublayer(arithmetic.mlp(inner, self.mlps[layer]))
            yield chunk, arithmetic, self._add(arithmetic, f"{layer}.mlp_norms", state, output)

    def _project(self, arithmetic: Arithmetic, layer: int, x: Value, name: str) -> Value:
        """Queries `q`, keys `k` or values `v` of states, (inputs, ..., heads, width)."""
        config, weights = self.config, self.weights
        width = config.num_attention_heads * int(config.head_dim or 0)
        normed = self._norm(arithmetic, x, f"{layer}.attention_norms.input")
        if config.attention_scale == "zero" and name != "v":
            matrix = Weight(weights["model.embed_tokens.weight"].new_zeros(width, config.hidden_size))
        else:
            matrix = self.matrices[f"model.layers.{layer}.self_attn.{name}_proj.weight"]
        value = arithmetic.product(normed, matrix)
        value = arithmetic.split(value, config.num_attention_heads)
        if not config.qk_norm or name == "v":
            return value
        factor = (
            weights[f"model.layers.{layer}.self_attn.qk_norm_factor"].unsqueeze(1) / self._scaling if name == "q" else 1.0
        )
        return arithmetic.norm(value, factor * value.exact.shape[-1] ** -0.5, 0.0)

    def _attend(self, arithmetic: Arithmetic, layer: int, projected: list[Value], relations: Tensor) -> Value:
        """Output of the attention of some neighbourhoods."""
        visible = relations >= 0
        factor: Tensor | float = self._scaling
        if self.config.attention_scale == "log_length":
            learned = self.weights[f"model.layers.{layer}.self_attn.log_length_factor"]
            factor = factor * visible.sum(1).clamp(min=1).double().log().view(-1, 1, 1) * learned
        bias = self.weights["model.position_encoding.relation_bias"][layer][relations.clamp(min=0).long()]
        query, key, value = projected
        read = arithmetic.attention(query, key, value, visible, factor, (bias, torch.zeros_like(bias)))
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
