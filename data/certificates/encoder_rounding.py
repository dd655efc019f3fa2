"""The leads of one pass of an encoder that settles, in exact arithmetic, and how far rounding can move them."""

from collections.abc import Iterator
from typing import ClassVar, cast

import torch
from torch import Tensor
from torch.nn.functional import pad

from longhand.data.certificates.network_rounding import NetworkRounding
from longhand.data.certificates.rounding import TINY, Arithmetic, Mlp, Pair, Value
from longhand.data.tasks.covering import CoveringCases
from longhand.modeling import PairwiseBertForTokenClassification
from longhand.modeling.relations import NOT_RELATED
from longhand.modeling.settling import NO_STATE, Cases

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
        """Leads of the right label over every label, and bounds of what rounding does to them, (cases, labels) each."""
        device = self.weights["classifier.weight"].device
        right, cases = covered.right.to(device), Cases(*(part.to(device) for part in covered.cases))
        table, own_rows, key_rows = self._read_inputs(cases)

        def leads(places: Tensor, effort: int) -> Iterator[Pair]:
            ends = self.config.hidden_size if effort == 2 else self.config.num_labels
            for chunk in self.split(places, ends, self.mlp.units):
                yield self._pass(table, own_rows[chunk], key_rows[chunk], cases.relations[chunk], right[chunk], effort)

        return self.bound_leads(leads, len(right))

    def _read_inputs(self, cases: Cases) -> tuple[dict[str, Pair], Tensor, Tensor]:
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
        own = self._norm(arithmetic, arithmetic.add(*exact), "model.embedding_norm")
        values = {"own": own, **{name: self._linear(arithmetic, own, f"{LAYER}self_attn.{name}_proj") for name in "qkv"}}
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
        self, table: dict[str, Pair], own_rows: Tensor, key_rows: Tensor, relations: Tensor, right: Tensor, effort: int
    ) -> Pair:
        """The leads and bounds of some cases; see `Arithmetic.lead_and_bound`."""
        arithmetic = Arithmetic(self.unit, effort)
        visible, columns = relations != NOT_RELATED, relations.clamp(min=0).long()
        key, value = (tuple(part[key_rows] for part in table[name]) for name in "kv")
        key, value = (tuple(pad(part, (0, 0, 0, 0, 0, 1)) for part in pair) for pair in (key, value))
        visible = pad(visible, (0, 1), value=True)
        columns = pad(columns, (0, 1), value=self.config.sink_relation(self.config.head_maps[0]))
        bias = tuple(part[own_rows.unsqueeze(1), columns] for part in table["bias"])
        query = arithmetic.leaf(*(part[own_rows] for part in table["q"]))
        read = arithmetic.attention(
            query, arithmetic.leaf(*key), arithmetic.leaf(*value), visible, self._scaling, cast(Pair, bias)
        )
        output = arithmetic.finish_sublayer(self._linear(arithmetic, read, f"{LAYER}self_attn.o_proj"))
        own = arithmetic.leaf(*(part[own_rows] for part in table["own"]))
        state = self._norm(arithmetic, arithmetic.add(own, output), f"{LAYER}attention_norm")
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
