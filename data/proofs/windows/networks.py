"""The leads of a network in exact arithmetic, and how far rounding can move them.

The networks are a decoder under a window, and one pass of an encoder that settles.
"""

# Used by: data/proofs. Changed freely.

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import PreTrainedModel

from longhand.data.machines.covering import CoveringCases, NeighbourhoodBatch
from longhand.data.proofs.windows.rounding import (
    ACTIVATIONS,
    LARGEST,
    MOST_TERMS,
    TINY,
    UNIT,
    Arithmetic,
    Mlp,
    Pair,
    Value,
    Weight,
    bound_leads,
)
from longhand.modeling import CoupledGPTForCausalLM, PairwiseBertForTokenClassification
from longhand.modeling.relations import NOT_RELATED, is_listed
from longhand.modeling.settling import NO_STATE, LabelCases
from longhand.modeling.vocabulary import BOS, PAD

CHUNK = {"cpu": 2**21, "cuda": 2**27}
"""Most derivatives of some inputs by their hidden units that are held at once."""


class NetworkRounding:
    """A network in exact arithmetic, with the rounding of its own precision.

    Attributes:
        bounded: settings of the configuration, and the values that have a bound of their rounding.
    """

    bounded: ClassVar[dict[str, tuple[Any, ...]]] = {}

    def lead_and_bound(self, listed: Any) -> Pair:
        """Leads of the right token or label over each other one, and bounds of their rounding errors, (count, ends) each."""
        raise NotImplementedError

    @classmethod
    def check_bounded(cls, model: PreTrainedModel) -> None:
        """Raise ValueError if the model has a part whose rounding has no bound; the message names it."""
        for name, legal in {**cls.bounded, "hidden_act": tuple(ACTIVATIONS)}.items():
            if (value := getattr(model.config, name)) not in legal:
                known = ", ".join(map(str, legal))
                raise ValueError(f"{name} {value!r} has no bound of its rounding: choose one of {known}")
        kinds = {weight.dtype for weight in model.state_dict().values()}
        if len(kinds) > 1 or not kinds <= {*UNIT}:
            found = " and ".join(sorted(map(str, kinds)))
            raise ValueError(f"rounding in {found} has no bound: choose one of {', '.join(map(str, UNIT))}")
        if (widest := max(max(weight.shape) for weight in model.state_dict().values())) > MOST_TERMS:
            raise ValueError(f"the rounding of sums has a bound for {MOST_TERMS:,} terms at most, the model has {widest:,}")

    def __init__(self, model: PreTrainedModel):
        self.check_bounded(model)
        self.config: Any = model.config
        self.unit = UNIT[model.dtype]
        self.weights = {name: weight.detach().double() for name, weight in model.state_dict().items()}
        self.matrices = {name: Weight(weight) for name, weight in self.weights.items() if weight.ndim == 2}
        self.proved = all(bool((weight.abs() <= LARGEST).all()) for weight in self.weights.values())

    def bound_leads(self, leads: Callable[[Tensor, int], Iterable[Pair]], inputs: int) -> Pair:
        """Leads and bounds; see `rounding.bound_leads`.

        Args:
            leads: gives those of some of the inputs, in parts.
            inputs: their number.
        """

        def join(places: Tensor, effort: int) -> Pair:
            lead, bound = map(torch.cat, zip(*leads(places, effort), strict=True))
            return lead, bound if self.proved else torch.full_like(bound, torch.inf)

        return bound_leads(join, torch.arange(inputs, device=next(iter(self.weights.values())).device))

    def split(self, places: Tensor, ends: int, units: int) -> tuple[Tensor, ...]:
        """Parts of some places, such that the derivatives of so many ends by so many units can be held."""
        return places.split(max(1, CHUNK.get(places.device.type, CHUNK["cpu"]) // (ends * units)))


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
        """Leads of the right token over every token, and bounds of their rounding errors, (count, vocabulary) each."""
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
        self, arithmetic: Arithmetic, layer: int, token_states: Value, tokens: Tensor, keys: Tensor, relations: Tensor
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
        state = arithmetic.add(token_states, self._norm(arithmetic, output, f"{name}attention_norms.output"))
        inner = self._norm(arithmetic, state, f"{name}mlp_norms.input")
        output = arithmetic.finish_sublayer(arithmetic.mlp(inner, self.mlps[layer]))
        return arithmetic.add(state, self._norm(arithmetic, output, f"{name}mlp_norms.output"))

    def _norm(self, arithmetic: Arithmetic, x: Value, name: str) -> Value:
        """A norm of the model; the value itself if the model has none of that name."""
        weight = self.weights.get(f"{name}.weight")
        return x if weight is None else arithmetic.norm(x, weight, self.config.norm_eps)


LAYER = "model.layers.0."


class EncoderRounding(NetworkRounding):
    """One pass of a PairwiseBert with `label_states` in exact arithmetic, see `NetworkRounding`."""

    bounded: ClassVar = {"sink": (True,)}

    def __init__(self, model: PairwiseBertForTokenClassification):
        super().__init__(model)
        up, down = (f"{LAYER}{name}_proj" for name in ("up", "down"))
        self.mlp = Mlp(
            activation=self.config.hidden_act,
            units=self.config.intermediate_size,
            inner=self.matrices[f"{up}.weight"],
            down=self.matrices[f"{down}.weight"],
            inner_bias=self.weights[f"{up}.bias"],
            bias=self.weights[f"{down}.bias"],
        )

    def lead_and_bound(self, covered: CoveringCases) -> Pair:
        """Leads of the right label over every label, and bounds of their rounding errors, (cases, labels) each."""
        device = self.weights["classifier.weight"].device
        right, cases = covered.right.to(device), LabelCases(*(part.to(device) for part in covered.cases))
        table, own_rows, key_rows = self._read_inputs(cases)

        def leads(places: Tensor, effort: int) -> Iterator[Pair]:
            ends = self.config.hidden_size if effort == 2 else self.config.num_labels
            for chunk in self.split(places, ends, self.mlp.units):
                yield self._pass(table, own_rows[chunk], key_rows[chunk], cases.relations[chunk], right[chunk], effort)

        return self.bound_leads(leads, len(right))

    def _read_inputs(self, cases: LabelCases) -> tuple[dict[str, Pair], Tensor, Tensor]:
        """Embed, norm and project every pair of a token and a state once.

        Returns:
            What the layer reads, by name, a row for each pair; and the rows of the cases, (cases,), and of their keys,
            (cases, slots).
        """
        tokens = torch.cat([cases.tokens, cases.keys.flatten()])
        states = torch.cat([cases.states, cases.key_states.flatten()])
        pairs, rows = torch.stack([tokens, states]).unique(dim=1, return_inverse=True)
        embedded, state = self.weights["model.embed_tokens.weight"][pairs[0]], pairs[1].unsqueeze(1)
        states = self.weights["model.embed_states.weight"][pairs[1].clamp(0, self.config.num_labels - 1)] * (
            state != NO_STATE
        )
        arithmetic = Arithmetic(self.unit)
        exact = [arithmetic.leaf(part, torch.zeros_like(part)) for part in (embedded, states)]
        normed = self._norm(arithmetic, arithmetic.add(*exact), "model.embedding_norm")
        values = {
            "own": normed,
            **{name: self._linear(arithmetic, normed, f"{LAYER}self_attn.{name}_proj") for name in "qkv"},
        }
        heads = self.config.num_attention_heads
        table = {name: arithmetic.tabulate(value, 1 if name == "own" else heads) for name, value in values.items()}
        table["own"] = (table["own"][0].squeeze(1), table["own"][1].squeeze(1))
        table["bias"] = self._relation_scores(table["q"])
        return table, rows[: len(cases.tokens)], rows[len(cases.tokens) :].view(cases.keys.shape)

    def _relation_scores(self, query: Pair) -> Pair:
        """Products of queries (rows, heads, width) with the vectors of the relations, (rows, relations, heads)."""
        (vectors,) = (weight for name, weight in self.weights.items() if name.startswith(f"{LAYER}self_attn.relations"))
        vectors = vectors.expand(-1, query[0].shape[1], -1)
        exact, spread, size = (
            torch.einsum("nhd,rhd->nrh", part, by) * self._scaling
            for part, by in ((query[0], vectors), (query[1], vectors.abs()), (query[0].abs() + query[1], vectors.abs()))
        )
        return exact, spread + Arithmetic(self.unit).gamma(vectors.shape[-1] + 6) * size + TINY

    def _pass(
        self, table: dict[str, Pair], query_rows: Tensor, key_rows: Tensor, relations: Tensor, right: Tensor, effort: int
    ) -> Pair:
        """The leads and bounds of some cases; see `Arithmetic.lead_and_bound`."""
        arithmetic = Arithmetic(self.unit, effort)
        visible, columns = relations != NOT_RELATED, relations.clamp(min=0).long()
        key, value = (tuple(part[key_rows] for part in table[name]) for name in "kv")
        key, value = (tuple(pad(part, (0, 0, 0, 0, 0, 1)) for part in pair) for pair in (key, value))
        visible = pad(visible, (0, 1), value=True)
        columns = pad(columns, (0, 1), value=self.config.sink_relation(self.config.head_maps[0]))
        bias = tuple(part[query_rows.unsqueeze(1), columns] for part in table["bias"])
        query = arithmetic.leaf(*(part[query_rows] for part in table["q"]))
        read = arithmetic.attention(
            query, arithmetic.leaf(*key), arithmetic.leaf(*value), visible, self._scaling, cast(Pair, bias)
        )
        output = arithmetic.finish_sublayer(self._linear(arithmetic, read, f"{LAYER}self_attn.o_proj"))
        normed = arithmetic.leaf(*(part[query_rows] for part in table["own"]))
        state = self._norm(arithmetic, arithmetic.add(normed, output), f"{LAYER}attention_norm")
        output = arithmetic.finish_sublayer(arithmetic.mlp(state, self.mlp))
        last = self._norm(arithmetic, arithmetic.add(state, output), f"{LAYER}mlp_norm")
        head, bias = self.matrices["classifier.weight"], self.weights["classifier.bias"]
        return arithmetic.lead_and_bound(last, head, right, bias)

    def _linear(self, arithmetic: Arithmetic, x: Value, name: str) -> Value:
        return arithmetic.product(x, self.matrices[f"{name}.weight"], self.weights[f"{name}.bias"])

    def _norm(self, arithmetic: Arithmetic, x: Value, name: str) -> Value:
        eps = self.config.layer_norm_eps
        return arithmetic.layer_norm(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], eps)

    @property
    def _scaling(self) -> float:
        return float(self.config.head_dim) ** -0.5
