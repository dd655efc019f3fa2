"""What the digits that do not matter do to a lead: a bound for one layer whose tokens see all tokens before them.

Few tokens decide what is right next. In a *case* these are fixed; the others, *open*, may hold any of their tokens. An open
key moves the output of a head away from that of the case, as a rounding error does, and further. The bound below has four
parts, each proved in a lemma of hub_cards/PROOF.md, "Attention to all tokens":

- `lead`: that of the right token where every open key has its mean weight and value;
- `effects`: what each token at an open place does to it, to first order, exactly;
- `bent`: at most what is not linear in them;
- `rounding`: at most what rounding adds.
"""

# Used by: far_boxes.py, up_to_length.py. Bound by: verdicts of single lengths, by `BOUND` in
# data/proofs/lengths/up_to_length.py.

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor

from longhand.data.proofs.windows.rounding import (
    BENT,
    FUNCTION,
    LARGEST,
    MOST_TERMS,
    SMALL,
    STEEPEST,
    TINY,
    UNIT,
    Arithmetic,
    Pair,
    Weight,
    _gelu,
    _gelu_tanh,
)
from longhand.modeling import CoupledGPTForCausalLM

ROWS_AT_ONCE = 256
"""Tokens whose queries, keys and values are bounded at once."""

SHORTEST = 1e-6
"""Queries and keys that are scaled to length 1 must be longer."""

MOST_CHANGE = 0.9
"""Largest relative change of the square of a norm's root for which Lemma 16 is used."""

ROOM = 1e-12
"""By this share an inverse root is made larger before its first terms are taken off: more than float64 rounds there."""

NORMS_FACTOR = 1.2
"""How often each of two norms in a row counts with its rounding: the second root is off by the rounding of the first."""

LEAST_WEIGHTS = 2.0**-500
"""A case's sum of weights must not be less, where the largest weight that any token can have is 1. What float64 loses of
smaller weights, at most 2^-1022 of each, is then less than 2^-500 of the sum."""

ROUNDING_FACTOR = 2
"""How many times what rounding does is taken off a lead: once for the processor, once for what finds the lead."""


def _relu(x: Tensor) -> Pair:
    return x.clamp(min=0), (x > 0).to(x.dtype)


ACTIVATIONS = {"gelu_pytorch_tanh": _gelu_tanh, "gelu": _gelu, "relu": _relu}
"""Values and derivatives of the activations that have a bound here."""

STEADY = 2.5
"""From here on, bounds of second derivatives fall (Lemma 17)."""


def half_curvature(least: Tensor, activation: str) -> Tensor:
    """Half of the largest second derivative of a smooth activation at numbers of at least this size, or more (Lemma 17)."""
    x = least.clamp(min=STEADY)
    if activation == "gelu":
        bound = (x.square() - 2) * (-x.square() / 2).exp() / (2 * math.pi) ** 0.5
    else:
        factor = (2 / math.pi) ** 0.5
        z, first, second = (factor * part for part in (x + 0.044715 * x**3, 1 + 3 * 0.044715 * x.square(), 6 * 0.044715 * x))
        # 1 - tanh² would lose its digits where tanh is close to 1.
        bound = (first + x / 2 * (second + 2 * first.square())) / z.cosh().square()
    return torch.where(least >= STEADY, bound / 2 + TINY, BENT)


def changes_of_inverse_root(change: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """How far (1 + z)^(-1/2) is at most from 1, from 1 - z/2, and from 1 - z/2 + 3/8 z², where |z| <= change (Lemma 16)."""
    largest = (1 + ROOM) * (1 - change) ** -0.5
    return largest - 1, largest - 1 - change / 2, largest - 1 - change / 2 - 0.375 * change.square()


BOUNDED = {
    "position_encoding": ("learned", "none", "rotary"),
    "num_hidden_layers": (1,),
    "norm": ("rms", "none"),
    "final_norm": (None, "rms"),
    "norm_placement": ("pre_post", "post", "pre"),
    "mlp": ("geglu", "plain"),
    "hidden_act": tuple(ACTIVATIONS),
    "attention_scale": ("sqrt", "none", "log_length"),
}
"""Settings of the configuration, and the values that have a bound here."""


def check_bounded(model: CoupledGPTForCausalLM) -> None:
    """Raise ValueError if the model has a part that has no bound; the message names it."""
    config = model.config
    for name, legal in BOUNDED.items():
        is_idle = name == "norm_placement" and config.norm == "none"
        if (value := getattr(config, name)) not in legal and not is_idle:
            known = ", ".join(map(str, legal))
            raise ValueError(f"{name} {value!r} has no bound with attention to all tokens: choose one of {known}")
    if model.dtype not in UNIT:
        raise ValueError(f"rounding in {model.dtype} has no bound: choose one of {', '.join(map(str, UNIT))}")
    weights = model.state_dict()
    if max(max(weight.shape) for weight in weights.values()) > MOST_TERMS:
        raise ValueError(f"the rounding of sums has a bound for {MOST_TERMS:,} terms at most")
    sizes = {name: float(weight.abs().max()) for name, weight in weights.items()}
    for name, size in {"norm_eps": config.norm_eps, **sizes}.items():
        # No comparison holds for nan.
        if not size <= LARGEST:
            raise ValueError(
                f"{name} is as large as {size:.3g}: there is a bound up to {LARGEST:.3g}, so that nothing overflows"
            )


def proved_leads(left: Tensor, proved: Tensor) -> Tensor:
    """What is left of leads, and -inf where that is not proved: a condition of a lemma does not hold, or a number overflows.

    A lead that is infinite is none: it is what overflowing numbers leave.
    """
    return torch.where(proved & left.isfinite(), left, -torch.inf)


class Tables(NamedTuple):
    """What every token that may stand at a place gives attention, exactly, with radii of its rounding.

    Attributes:
        states: (places, tokens, hidden) what enters the layer, and the residual stream.
        query, key, value: (places, tokens, heads, width) each, with radii; queries are not yet scaled by the length.
    """

    states: Pair
    query: Pair
    key: Pair
    value: Pair


class Cases(NamedTuple):
    """Cases of one place of the text, the query.

    Attributes:
        query_token: (cases,) which of its tokens the query holds.
        held: (cases, seen) which of its tokens each seen place holds, the query's own among them; -1 where it is open.
        right: (cases,) the token of the vocabulary that is right next.
    """

    query_token: Tensor
    held: Tensor
    right: Tensor

    def take(self, rows: Tensor) -> "Cases":
        """Some of the cases."""
        return Cases(*(part[rows] for part in self))


@dataclass(frozen=True)
class Norm:
    """A vector `weight * a / root(q)` of the sum a of residual and attention, with q = sum of form * a**2, plus a constant.

    Attributes:
        weight: (hidden,).
        form: (hidden,); None if nothing is divided, so that the vector is weight * a.
        constant: what q has besides.
    """

    weight: Tensor
    form: Tensor | None
    constant: float


class AttendedLayer:
    """The layer of a model in exact arithmetic, and its rounding."""

    def __init__(self, model: CoupledGPTForCausalLM):
        check_bounded(model)
        self.model, self.config = model, model.config
        self.unit = UNIT[model.dtype]
        self.arithmetic = Arithmetic(self.unit, effort=2)
        # Bounds are found on the CPU: not every accelerator has float64.
        self.weights = {name: weight.detach().cpu().double() for name, weight in model.state_dict().items()}
        assert self.config.head_dim is not None, "a configuration sets the width of heads itself"
        self.heads, self.width = self.config.num_attention_heads, self.config.head_dim
        self.scaling = 1.0 if self.config.attention_scale == "none" else self.width**-0.5
        layer = "model.layers.0."
        ones, eps = torch.ones(self.config.hidden_size, dtype=torch.float64), self.config.norm_eps
        self.output = self.weights[f"{layer}self_attn.o_proj.weight"]
        up = self.weights[f"{layer}mlp.up_proj.weight"]
        self.units = len(up)
        gate = self.weights.get(f"{layer}mlp.gate_proj.weight")
        self.inner = up if gate is None else torch.cat([up, gate])
        self.down = self.weights[f"{layer}mlp.down_proj.weight"]
        self.input_norm = self.weights.get(f"{layer}attention_norms.input.weight")
        of_sum, of_input = (self.weights.get(f"{layer}{name}.weight") for name in ("attention_norms.sum", "mlp_norms.input"))
        # The vectors that are added up and that the MLP reads.
        square = ones / len(ones)
        self.residual = Norm(ones, None, 0.0) if of_sum is None else Norm(of_sum, square, eps)
        self.read = self.residual
        if of_input is not None and of_sum is None:
            self.read = Norm(of_input, square, eps)
        elif of_input is not None and of_sum is not None:
            self.read = Norm(of_input * of_sum, (of_sum.square() + eps) / len(ones), eps**2)
        self.norms_before_mlp = sum(weight is not None for weight in (of_sum, of_input))
        # With the place of each among the lengths of `QueryPlace`.
        self.forms = [norm.form for norm in (self.residual, self.read) if norm.form is not None]
        self.norms_read = ((0, self.residual), (int(self.residual.form is not None), self.read))
        last = [self.weights.get(f"{layer}mlp_norms.sum.weight"), self.weights.get("model.norm.weight")]
        self.last_norms = [weight for weight in last if weight is not None]
        self.head = self.weights["lm_head.weight"].clone()
        for weight in self.last_norms:
            self.head = self.head * weight
        self.behind = self.head @ self.down  # (vocabulary, units)
        self.by_head = self.output.unflatten(1, (self.heads, self.width))  # (hidden, heads, width)

    def gamma(self, roundings: float) -> float:
        return self.arithmetic.gamma(roundings)

    def last_scale(self, z: Tensor) -> Tensor:
        """(count,) what the norms behind the layer multiply vectors (count, hidden) by, without their weights.

        Of larger components the scale is smaller.
        """
        scale, last = torch.ones_like(z[:, 0]), z
        for weight in self.last_norms:
            root = (last.square().mean(-1) + self.config.norm_eps).rsqrt()
            last, scale = last * root.unsqueeze(1) * weight, scale * root
        return scale

    # Tables of what may stand at each place.

    def tables(self, tokens: Tensor, ids: Tensor | None) -> Tables:
        """Tables for tokens (places, tokens) and ids (levels, places), None for an encoding that reads none."""
        places, count = tokens.shape
        levels = torch.zeros(1, places, dtype=torch.long) if ids is None else ids
        every = torch.cat([tokens.flatten()[None], levels.repeat_interleave(count, dim=1)])
        rows, where = every.unique(dim=1, return_inverse=True)
        parts = [self._rows(rows[0, chunk], rows[1:, chunk]) for chunk in torch.arange(rows.shape[1]).split(ROWS_AT_ONCE)]
        found = []
        for field in range(4):
            pair = tuple(
                torch.cat([part[field][side] for part in parts])[where].unflatten(0, tokens.shape) for side in (0, 1)
            )
            found.append(pair)
        return Tables(*found)

    def _rows(self, tokens: Tensor, ids: Tensor) -> tuple[Pair, ...]:
        """States, queries, keys and values of tokens (rows,) with ids (levels, rows), as in `Tables`."""
        layer, arithmetic = "model.layers.0.", Arithmetic(self.unit, effort=2)
        exact = self.weights["model.embed_tokens.weight"][tokens]
        state = arithmetic.leaf(exact, torch.zeros_like(exact))
        if self.config.position_encoding == "learned":
            encoding = self.model.model.position_encoding
            for level, level_ids in enumerate(ids):
                table = self.weights[f"model.position_encoding.tables.{level % encoding.num_tables}.weight"][level_ids]
                state = arithmetic.add(state, arithmetic.leaf(table, torch.zeros_like(table)))
        normed = state
        if self.input_norm is not None:
            normed = arithmetic.norm(state, self.input_norm, self.config.norm_eps)
        query, key, value = (
            arithmetic.tabulate(
                arithmetic.product(normed, Weight(self.weights[f"{layer}self_attn.{name}_proj.weight"])), self.heads
            )
            for name in "qkv"
        )
        if self.config.qk_norm:
            factor = self.weights[f"{layer}self_attn.qk_norm_factor"].unsqueeze(1) / self.scaling
            query, key = self._to_unit_length(query, factor), self._to_unit_length(key, torch.ones_like(factor))
        if self.config.position_encoding == "rotary":
            query, key = self._rotated(query, ids), self._rotated(key, ids)
        return (state.exact, state.radius), query, key, value

    def _to_unit_length(self, x: Pair, factor: Tensor) -> Pair:
        """Vectors (..., heads, width) divided by their lengths, times a factor: Lemma 6 without a mean."""
        exact, radius = x
        length = exact.norm(dim=-1, keepdim=True)
        relative = radius.norm(dim=-1, keepdim=True) / length
        size = exact.abs() / length
        moved = radius / length * (1 + 1.5 * relative) + size * (relative + 3 * relative**2)
        moved = moved.where(relative <= SMALL, torch.inf)
        rounding = self.gamma(self.width / 2 + 3 * FUNCTION + 16) * (size + moved)
        moved = moved.where(length > SHORTEST, torch.inf)
        return exact / length * factor, (moved + rounding) * factor.abs() + TINY

    def _rotated(self, x: Pair, ids: Tensor) -> Pair:
        """Vectors (rows, heads, width) turned by the ids of their rows; angles, cosines and sines are rounded too."""
        exact, radius = [], []
        # The model finds angles, cosines and sines in float32, even if its weights are more precise.
        angles = Arithmetic(UNIT[torch.float32])
        for values, radii, level_ids in zip(*(part.chunk(len(ids), dim=-1) for part in x), ids, strict=True):
            half = values.shape[-1] // 2
            exponent = torch.arange(half, dtype=torch.float64) / half
            angle = level_ids.double()[:, None, None] * self.config.rotary_base**-exponent
            # An exponent below 1 is off by its rounding, and a power by as much times the logarithm of its base.
            roundings = 2 * FUNCTION + 4 + max(16.0, abs(math.log(self.config.rotary_base)))
            off = angle * angles.gamma(roundings) + FUNCTION * angles.unit
            (first, second), (r, s) = values.split(half, -1), radii.split(half, -1)
            cosine, sine = angle.cos(), angle.sin()
            exact.append(torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1))
            size = first.abs() + r + second.abs() + s
            spread = torch.cat([r * cosine.abs() + s * sine.abs(), s * cosine.abs() + r * sine.abs()], -1)
            radius.append(spread + (size * (off + self.gamma(3))).repeat(1, 1, 2) + TINY)
        return torch.cat(exact, -1), torch.cat(radius, -1)


class Bounds(NamedTuple):
    """What is known of pairs of a case and a rival, a token that must not lead.

    All numbers are differences of logits before the last norms divide by their roots, which changes no order.

    Attributes:
        case, rival: (pairs,).
        lead: (pairs,) at the centre of the case, where every open key has its mean weight and its mean product of both.
        effects: (pairs, open, tokens) what each token at an open place adds to first order.
        bent: (pairs,) at most all else that open tokens do.
        rounding: (pairs,) at most what rounding does.
        scale: (pairs,) by this a logit is larger at the centre.
        proved: (pairs,) whether all conditions of the lemmas hold; nothing else here says so.
    """

    case: Tensor
    rival: Tensor
    lead: Tensor
    effects: Tensor
    bent: Tensor
    rounding: Tensor
    scale: Tensor
    proved: Tensor

    def left(self, taken: Tensor) -> Tensor:
        """(pairs,) what is left of leads, in logits, where effects of tokens add so much, (pairs,); see `proved_leads`."""
        left = (self.lead + taken - self.bent - ROUNDING_FACTOR * self.rounding) * self.scale
        return proved_leads(left, self.proved & self.effects.isfinite().flatten(1).all(1))

    def take(self, rows: Tensor) -> "Bounds":
        """Some of the pairs."""
        return Bounds(*(part[rows] for part in self))


@dataclass(frozen=True)
class Here:
    """The centres of some cases.

    Attributes:
        query_token: (cases,) which of its tokens the query holds.
        is_open: (cases, open) 1 where the case leaves a place open, else 0.
        held: (cases, always) which of its tokens each place holds that every case holds.
        below: (cases, heads) the sums of weights.
        output: (cases, heads, width) the outputs.
        stretch: (cases, heads) how far 1 / (the sum of weights) can be from that of the centre, relatively.
        off: (cases, heads) the largest relative error of a weight by rounding of its score.
        rounding: (cases, hidden) how far all other rounding moves the sum of residual and attention.
    """

    query_token: Tensor
    is_open: Tensor
    held: Tensor
    below: Tensor
    output: Tensor
    stretch: Tensor
    off: Tensor
    rounding: Tensor

    def take(self, rows: Tensor) -> "Here":
        return Here(*(getattr(self, part.name)[rows] for part in fields(self)))


def by_query(query_tokens: Tensor) -> Iterator[tuple[int, Tensor]]:
    """The tokens that queries (cases,) hold, each with its cases."""
    for query in query_tokens.unique().tolist():
        yield query, (query_tokens == query).nonzero().squeeze(1)


def total_of_open(table: Tensor, query_tokens: Tensor, is_open: Tensor) -> Tensor:
    """Sums over the open places of a table (queries, heads, open, ...), as (cases, heads, ...); see `Here`."""
    flat = table.transpose(1, 2).flatten(2)
    found = flat.new_empty(len(query_tokens), flat.shape[2])
    for query, rows in by_query(query_tokens):
        found[rows] = is_open[rows] @ flat[query]
    return found.unflatten(1, (table.shape[1], -1))


class Hidden(NamedTuple):
    """Hidden units at the centres of cases, (cases, units) each but `by_sums`.

    Attributes:
        exact: at the centre.
        by_sums: (cases, 1 or 2 times units) their derivatives by the sums of products.
        bent: at most what they are not linear in.
        rounding: at most what rounding does, that of the sums among it.
        size: the largest absolute values, or more.
    """

    exact: Tensor
    by_sums: Tensor
    bent: Tensor
    rounding: Tensor
    size: Tensor


class Normed(NamedTuple):
    """A vector behind a norm, at the centre, and what its dependence on open tokens is not linear in.

    Attributes:
        exact: (cases, hidden).
        root: (cases, 1).
        radial, scaled: (cases, 1); Lemma 16.
        size: (cases, hidden) the largest absolute values.
    """

    exact: Tensor
    root: Tensor
    radial: Tensor
    scaled: Tensor
    size: Tensor


class Computed(NamedTuple):
    """What the layer makes of the centres of cases, and how far a problem's own numbers are from that.

    Attributes:
        here: the centres.
        a: (cases, hidden) the sums of residual and attention.
        y, u: what is added up, and what the MLP reads.
        u_rounding: (cases, hidden) at most what rounding of norms does to u.
        hidden: hidden units.
        moved: (cases, units) how far these can be from the centre's.
        logits: (cases, vocabulary) before the last norms divide.
        z_size: (cases, hidden) the largest absolute values of what the last norms read, or more.
        z_rounding: (cases, hidden) at most what rounding does to that, but by hidden units.
        y_reach: (cases, hidden) how far y can be from the centre's before its norm changes.
        scale: (cases,) by this a logit is larger.
        proved: (cases,) whether all conditions of the lemmas hold.
    """

    here: Here
    a: Tensor
    y: Normed
    u: Normed
    u_rounding: Tensor
    hidden: Hidden
    moved: Tensor
    logits: Tensor
    z_size: Tensor
    z_rounding: Tensor
    y_reach: Tensor
    scale: Tensor
    proved: Tensor


class Pairs(NamedTuple):
    """Pairs of a case and a rival that are not closed component by component, (pairs,) each.

    Attributes:
        case: the number of the case.
        right, rival: tokens.
        lead: of the right token over the rival, at the centre.
        rounding: at most what rounding behind attention does to it.
    """

    case: Tensor
    right: Tensor
    rival: Tensor
    lead: Tensor
    rounding: Tensor


class QueryPlace:
    """Bounds of the leads at one place of the text, the query, which sees the places up to itself.

    Args:
        layer: the model.
        tables: of all places.
        place: the query.
        cases: all cases without further held tokens. A place that all of them hold is never open.
    """

    def __init__(self, layer: AttendedLayer, tables: Tables, place: int, cases: Cases):
        self.layer, self.seen = layer, place + 1
        self.states = tuple(part[place] for part in tables.states)
        self.value = tables.value[0][: self.seen]
        self._weigh(tables, place)
        self.open = (cases.held < 0).any(0).nonzero().squeeze(1)
        self.always = (cases.held >= 0).all(0).nonzero().squeeze(1)
        self.open_weight = self.weight[:, :, self.open]
        self.mean_weight = self.open_weight.mean(3)
        self.apart = self.open_weight - self.mean_weight.unsqueeze(3)
        self.share = self.apart.abs().amax(3)
        product = torch.einsum("qhjd,jdhe->qhjde", self.open_weight, self.value[self.open])
        self.mean_product = product.mean(3)
        self.product_apart = product - self.mean_product.unsqueeze(3)
        self._tabulate(cases)

    def _weigh(self, tables: Tables, place: int) -> None:
        """Find weights (queries, heads, seen, tokens), up to a factor, and how far rounding moves outputs."""
        layer = self.layer
        factor = torch.ones((), dtype=torch.float64)
        query, radius = (part[place] for part in tables.query)
        if layer.config.attention_scale == "log_length":
            by_head = layer.weights["model.layers.0.self_attn.log_length_factor"].unsqueeze(1)
            factor = torch.tensor(float(self.seen), dtype=torch.float64).log() * by_head
            # A query may be rotated after its product with the factor.
            longest = ((query.abs() + radius) * factor).norm(dim=-1, keepdim=True)
            radius = radius * factor.abs() + layer.gamma(FUNCTION + 4) * longest
        query = query * factor
        key, value = (tuple(part[: self.seen] for part in pair) for pair in (tables.key, tables.value))
        by_pair, key_size = "qhe,jdhe->qhjd", key[0].abs() + key[1]
        score = torch.einsum(by_pair, query, key[0]) * layer.scaling
        size = torch.einsum(by_pair, query.abs() + radius, key_size) * layer.scaling
        moved = torch.einsum(by_pair, radius, key_size) + torch.einsum(by_pair, query.abs(), key[1])
        moved = moved * layer.scaling + layer.gamma(layer.width + 2 * FUNCTION + 8) * size
        moved = moved + layer.unit * (score.abs() + moved) + TINY
        off, highest = moved.amax((2, 3)), score.amax((2, 3), keepdim=True)
        below = (highest - score).amax((2, 3)) + 2 * off
        roundings = 4 * layer.unit * below + layer.gamma(2 * (self.seen + 1) * (FUNCTION + 3))
        self.proved = ((off <= SMALL) & (roundings <= SMALL) & (size.amax((2, 3)) <= LARGEST)).all(1)
        self.weight = (score - highest).exp()
        self.off = 1.04 * off
        # A mean of values is no larger than the largest of them.
        self.largest = (value[0].abs() + value[1]).amax((0, 1))
        relative = 1.5 * roundings.unsqueeze(-1) + 1.25 * layer.gamma(2 * self.seen + 4)
        self.output_rounding = relative * self.largest + value[1].amax((0, 1)) + TINY  # (queries, heads, width)

    def _tabulate(self, cases: Cases) -> None:
        """Find how far the tokens of each place move components and hidden units at most.

        Moves are those of values relative to a reference, the mean output of the cases with the same query. `components`,
        `units` and `lengths` hold three tables each: what differs between the tokens of open places, (queries, heads, open,
        ...); the moves themselves, of which rounding of scores takes a small part, summed over open places (queries, heads,
        ...); and these of places that every case holds (queries, heads, always, tokens, ...).
        """
        layer = self.layer
        output = self._centres(cases)[1]
        queries = self.weight.shape[0]
        count = output.new_zeros(queries).index_add(0, cases.query_token, output.new_ones(len(output)))
        total = output.new_zeros(queries, *output.shape[1:]).index_add(0, cases.query_token, output)
        self.reference = total / count.clamp(min=1)[:, None, None]
        inner = layer.inner * layer.read.weight
        by_component = torch.einsum("jdhe,khe->hjdk", self.value, layer.by_head)
        reference = torch.einsum("qhe,khe->qhk", self.reference, layer.by_head)
        roots = [form.sqrt() for form in layer.forms]

        def sizes(move: Tensor) -> dict[str, Tensor]:
            by_root = [(move * root).norm(dim=-1) for root in roots] or [move[..., 0].abs()]
            return {"components": move.abs(), "units": (move @ inner.T).abs(), "lengths": torch.stack(by_root, -1)}

        tables: dict[str, list[tuple[Tensor, Tensor, Tensor]]] = {"components": [], "units": [], "lengths": []}
        for query in range(queries):
            move = self.weight[query].unsqueeze(-1) * (by_component - reference[query][:, None, None])
            far = move[:, self.open]
            whole, apart, held = sizes(far), sizes(far - far.mean(2, keepdim=True)), sizes(move[:, self.always])
            for name, found in tables.items():
                found.append((apart[name].amax(2), whole[name].amax(2).sum(1), held[name]))
        stacked = {name: tuple(map(torch.stack, zip(*found, strict=True))) for name, found in tables.items()}
        self.components, self.units, self.lengths = (stacked[name] for name in ("components", "units", "lengths"))

    def _centres(self, cases: Cases) -> tuple[Tensor, Tensor, Tensor]:
        """Sums of weights (cases, heads), outputs (cases, heads, width) and which places are open (cases, open)."""
        query_tokens = cases.query_token
        below, above = self.mean_weight.sum(2)[query_tokens], self.mean_product.sum(2)[query_tokens]
        for place in self.always.tolist():
            weight = self.weight[query_tokens, :, place, cases.held[:, place]]
            below = below + weight
            above = above + weight.unsqueeze(-1) * self.value[place, cases.held[:, place]]
        held = cases.held[:, self.open]
        case, place = (held >= 0).nonzero(as_tuple=True)
        if len(case):
            token = held[case, place]
            below = below.index_add(0, case, self.apart[query_tokens[case], :, place, token])
            above = above.index_add(0, case, self.product_apart[query_tokens[case], :, place, token])
        return below, above / below.unsqueeze(-1), (held < 0).double()

    def bounds(self, cases: Cases, nearest: bool) -> Bounds:
        """The bounds of pairs of a case and a rival that a first look does not close.

        Args:
            nearest: whether only the rival is taken of which the first look leaves least.
        """
        computed, found = self._compute(cases), []
        for right in cases.right.unique().tolist():
            rows = (cases.right == right).nonzero().squeeze(1)
            lead, reach, rounding = self._by_components(computed, rows, right)
            left = proved_leads(lead - reach - ROUNDING_FACTOR * rounding, computed.proved[rows].unsqueeze(1))
            unclosed = ~(left > 0)
            unclosed[:, right] = False
            if nearest:
                unclosed &= left == left.masked_fill(~unclosed, torch.inf).amin(1, keepdim=True)
                # The first of several that are alike.
                unclosed &= unclosed.cumsum(1) == 1
            place, rival = unclosed.nonzero(as_tuple=True)
            if len(place):
                pairs = Pairs(rows[place], torch.full_like(rival, right), rival, lead[place, rival], rounding[place, rival])
                found.append(self._to_first_order(computed, pairs))
        if not found:
            rows, none = torch.zeros(0, dtype=torch.long), computed.a.new_zeros(0)
            effects = none.view(0, len(self.open), self.weight.shape[3])
            return Bounds(rows, rows, none, effects, none, none, none, none > 0)
        return Bounds(*map(torch.cat, zip(*found, strict=True)))

    def _compute(self, cases: Cases) -> "Computed":
        """What the layer makes of the centres of cases, and how far a problem's own numbers are from that."""
        layer = self.layer
        here, a, proved, steady = self.start(cases)
        (y, proved_y), (u, proved_u) = (self._norm(norm, a, here, place) for place, norm in layer.norms_read)
        per_norm = layer.gamma(a.shape[1] / 2 + 3 * FUNCTION + 11)
        u_rounding = NORMS_FACTOR * layer.norms_before_mlp * per_norm * u.size + TINY
        y_rounding = NORMS_FACTOR * per_norm * y.size * (layer.residual.form is not None)
        sums, radius, sums_rounding = self._sums(u, u_rounding, here)
        hidden = self._hidden(sums, radius, sums_rounding)
        z = y.exact + hidden.exact @ layer.down.T
        z_size = y.size + hidden.size @ layer.down.abs().T
        sizes = torch.stack([part.amax(1) for part in (u.size, sums.abs() + radius, hidden.size, z_size)])
        y_reach = self.reach_by_tables(self.components, self.along(here).abs(), here) + here.rounding
        return Computed(
            here=here,
            a=a,
            y=y,
            u=u,
            u_rounding=u_rounding,
            hidden=hidden,
            moved=(hidden.by_sums.abs() * radius).unflatten(1, (-1, layer.units)).sum(1) + hidden.bent + hidden.rounding,
            logits=z @ layer.head.T,
            z_size=z_size,
            z_rounding=y_rounding + layer.gamma(layer.units + 8) * z_size + TINY,
            y_reach=y_reach * layer.residual.weight.abs() / y.root,
            scale=layer.last_scale(z),
            proved=proved & steady & proved_y & proved_u & (sizes <= LARGEST).all(0),
        )

    def _sums(self, u: "Normed", u_rounding: Tensor, here: Here) -> tuple[Tensor, Tensor, Tensor]:
        """Sums of products of what the MLP reads (Lemma 4), their radii, rounding included, and rounding alone.

        Returns:
            (cases, 1 or 2 times units) each.
        """
        layer = self.layer
        inner = layer.inner * layer.read.weight
        sums = u.exact @ layer.inner.T
        reach = self.reach_by_tables(self.units, (self.along(here) @ inner.T).abs(), here)
        reach = reach + here.rounding @ inner.abs().T
        sums_rounding = u_rounding @ layer.inner.abs().T + TINY
        sums_rounding = sums_rounding + layer.gamma(u.exact.shape[1] + 6) * (u.size @ layer.inner.abs().T)
        return sums, reach / u.root * (1 + u.scaled) + sums.abs() * u.scaled + sums_rounding, sums_rounding

    def _by_components(self, computed: "Computed", rows: Tensor, right: int) -> tuple[Tensor, Tensor, Tensor]:
        """Leads of a token, at most what open tokens take from them, and what rounding behind attention does.

        What open tokens take is bounded component by component, and unit by unit (Lemmas 14, 16 and 17).

        Args:
            rows: (some,) the cases in which the token is right.

        Returns:
            (some, vocabulary) each.
        """
        layer, (y, hidden, logits) = self.layer, (computed.y, computed.hidden, computed.logits)
        slopes, down = layer.head[right] - layer.head, layer.behind[right] - layer.behind
        ends = layer.gamma(len(layer.last_norms) * (FUNCTION + 6) + computed.a.shape[1] + 8)
        z_size = computed.z_size[rows]
        rounding = computed.z_rounding[rows] @ slopes.abs().T + hidden.rounding[rows] @ down.abs().T
        rounding = rounding + ends * (z_size @ (layer.head.abs() + layer.head[right].abs()).T)
        rounding = rounding + TINY / layer.last_scale(z_size).unsqueeze(1)
        reach = computed.moved[rows] @ down.abs().T + (y.exact[rows] @ slopes.T).abs() * y.scaled[rows]
        reach = reach + (computed.y_reach[rows] @ slopes.abs().T) * (1 + y.scaled[rows])
        return logits[rows, right].unsqueeze(1) - logits[rows], reach, rounding

    def _to_first_order(self, computed: "Computed", pairs: "Pairs") -> Bounds:
        """Bounds of pairs, open tokens to first order exactly (Theorem 3)."""
        layer, row, (y, u, hidden) = self.layer, pairs.case, (computed.y, computed.u, computed.hidden)
        here_row = computed.here.take(row)
        slopes = layer.head[pairs.right] - layer.head[pairs.rival]
        down = layer.behind[pairs.right] - layer.behind[pairs.rival]
        by_inner = (down.repeat(1, len(layer.inner) // layer.units) * hidden.by_sums[row]) @ layer.inner
        curved = (down.abs() * hidden.bent[row]).sum(1)
        back = torch.zeros_like(by_inner)
        for (_, norm), vector, slope in zip(layer.norms_read, (y, u), (slopes, by_inner), strict=True):
            direct = slope * norm.weight / vector.root[row]
            back = back + direct
            if norm.form is not None:
                toward = (slope * vector.exact[row]).sum(1, keepdim=True)
                curved = curved + vector.radial[row, 0] * toward.squeeze(1).abs()
                curved = curved + vector.scaled[row, 0] * self._reach(direct, here_row)
                back = back - toward * norm.form * computed.a[row] / vector.root[row].square()
        own_rounding = (by_inner.abs() * computed.u_rounding[row]).sum(1) + (back.abs() * here_row.rounding).sum(1)
        effects, by_scores = self._effects(back, here_row)
        curved = curved + (here_row.stretch * effects.abs().amax(3).sum(2)).sum(1)
        own_rounding = own_rounding + ((1 + here_row.stretch) * by_scores).sum(1)
        return Bounds(
            case=row,
            rival=pairs.rival,
            lead=pairs.lead,
            effects=effects.sum(1),
            bent=curved,
            rounding=pairs.rounding + own_rounding,
            scale=computed.scale[row],
            proved=computed.proved[row],
        )

    def start(self, cases: Cases) -> tuple[Here, Tensor, Tensor, Tensor]:
        """The centres of cases.

        Returns:
            The centres; the sums a of residual and attention there, (cases, hidden); whether the conditions of both looks
            hold, (cases,); and whether that of Lemma 14 holds, which the first look needs besides, (cases,).
        """
        layer, query_tokens = self.layer, cases.query_token
        below, output, is_open = self._centres(cases)
        state, state_radius = (part[query_tokens] for part in self.states)
        a = state + output.flatten(1) @ layer.output.T
        size = self.size(query_tokens)
        rounding = self.output_rounding[query_tokens].flatten(1) @ layer.output.abs().T + state_radius
        rounding = rounding + layer.gamma(layer.output.shape[1] + 8) * size + TINY
        off, held = self.off[query_tokens], cases.held[:, self.always]
        share = total_of_open(self.share.unsqueeze(-1), query_tokens, is_open).squeeze(-1) / below + 2 * off
        here = Here(
            query_token=query_tokens,
            is_open=is_open,
            held=held,
            below=below,
            output=output,
            stretch=share / (1 - share.clamp(max=0.9)),
            off=off,
            rounding=rounding,
        )
        # Outputs are means of values, so their size is that of `size`.
        proved = self.proved[query_tokens] & (size.amax(1) <= LARGEST) & (below >= LEAST_WEIGHTS).all(1)
        return here, a, proved, (share < 0.9).all(1)

    def size(self, query_tokens: Tensor) -> Tensor:
        """The sums of absolute terms of residual and attention, or more, (cases, hidden)."""
        state, state_radius = (part[query_tokens] for part in self.states)
        largest = (self.largest + self.output_rounding[query_tokens]).flatten(1)
        return state.abs() + state_radius + largest @ self.layer.output.abs().T

    def _norm(self, norm: Norm, a: Tensor, here: Here, place: int) -> tuple[Normed, Tensor]:
        """A vector behind a norm, and whether the conditions of Lemma 16 hold; `place` is that of its lengths."""
        along = self.along(here)
        reach = (self.reach_by_tables(self.components, along.abs(), here) + here.rounding) * norm.weight.abs()
        if norm.form is None:
            none, exact = torch.zeros_like(a[:, :1]), a * norm.weight
            return Normed(exact, none + 1, none, none, exact.abs() + reach), torch.ones(len(a), dtype=torch.bool)
        root = ((norm.form * a.square()).sum(1, keepdim=True) + norm.constant).sqrt()
        by_root = norm.form.sqrt()
        lengths = tuple(table[..., place : place + 1] for table in self.lengths)
        far = self.reach_by_tables(lengths, (along * by_root).norm(dim=-1, keepdim=True), here)
        far = (far + (here.rounding * by_root).norm(dim=1, keepdim=True)) / root
        toward = self._reach(norm.form * a, here).unsqueeze(1) / root.square()
        change = 2 * torch.minimum(toward, far) + far.square()
        holds = (change.squeeze(1) < MOST_CHANGE) & (root.squeeze(1) >= SHORTEST) & (root.squeeze(1) <= LARGEST)
        change = change.clamp(max=MOST_CHANGE)
        scaled, bent, _ = changes_of_inverse_root(change)
        radial = bent + far.square() / 2
        exact = norm.weight * a / root
        return Normed(exact, root, radial, scaled, (exact.abs() + reach / root) * (1 + scaled)), holds

    def _hidden(self, sums: Tensor, radius: Tensor, rounding: Tensor) -> Hidden:
        """Hidden units (Lemmas 8 and 17).

        Args:
            sums: (cases, 1 or 2 times units), with their radii, rounding included, and rounding alone.
        """
        layer, units = self.layer, self.layer.units
        p, p_radius = sums[:, :units], radius[:, :units]
        exact, slopes = ACTIVATIONS[layer.config.hidden_act](p)
        if layer.config.hidden_act == "relu":
            activation_rounding, bent, moved = torch.zeros_like(p), (p_radius - p.abs()).clamp(min=0), p_radius
        else:
            activation_rounding = 3 * FUNCTION * layer.unit * (p.abs() + p_radius)
            bent = half_curvature(p.abs() - p_radius, layer.config.hidden_act) * p_radius.square()
            moved = torch.minimum(slopes.abs() * p_radius + bent, STEEPEST * p_radius) + activation_rounding
        rounded = activation_rounding + slopes.abs() * rounding[:, :units]
        if len(layer.inner) == units:
            return Hidden(exact, slopes, bent, rounded, exact.abs() + moved)
        g, g_radius = sums[:, units:], radius[:, units:]
        size = (exact.abs() + moved) * (g.abs() + g_radius)
        rounded = g.abs() * rounded + exact.abs() * rounding[:, units:] + layer.unit * size
        bent = bent * g.abs() + moved * g_radius
        return Hidden(exact * g, torch.cat([slopes * g, exact], 1), bent, rounded, size)

    def along(self, here: Here) -> Tensor:
        """What the outputs add to the components of a beyond the reference, (cases, heads, hidden)."""
        return torch.einsum("che,khe->chk", here.output - self.reference[here.query_token], self.layer.by_head)

    def reach_by_tables(self, tables: tuple[Tensor, ...], along: Tensor, here: Here, far: bool = True) -> Tensor:
        """The most (cases, rows) that open tokens, and rounding of scores, do to sums of a's components.

        Args:
            tables: of `_tabulate`, whose last dimension are the rows.
            along: (cases, heads, rows) the absolute sums of `along`.
            far: whether open tokens count, not rounding of scores alone.
        """
        found = self.rounding_of_scores(tables, along, here).sum(1)
        if far:
            far_along = along * total_of_open(self.share.unsqueeze(-1), here.query_token, here.is_open)
            every = total_of_open(tables[0], here.query_token, here.is_open) + far_along
            found = found + (((1 + here.stretch) / here.below).unsqueeze(-1) * every).sum(1)
        return found

    def rounding_of_scores(self, tables: tuple[Tensor, ...], along: Tensor, here: Here) -> Tensor:
        """The most (cases, heads, rows) that rounding of scores does; arguments of `reach_by_tables`."""
        _, whole, held = tables
        by_scores = whole[here.query_token]
        for place in range(held.shape[2]):
            by_scores = by_scores + held[here.query_token, :, place, here.held[:, place]]
        weights = (self.open_weight.amax(3).sum(2)[here.query_token] + here.below).unsqueeze(-1)
        factor = (1 + here.stretch) / here.below * here.off
        return factor.unsqueeze(-1) * (by_scores + along * weights)

    def _effects(self, slopes: Tensor, here: Here) -> tuple[Tensor, Tensor]:
        """What tokens add to sums of a's components with slopes (count, hidden), to first order.

        Returns:
            (count, heads, open, tokens); and at most what rounding of scores adds, (count, heads).
        """
        by_head = (slopes @ self.layer.output).unflatten(1, (self.layer.heads, -1))
        mean = (by_head * here.output).sum(-1)[:, :, None, None]
        found = torch.einsum("che,jdhe->chjd", by_head, self.value[self.open]) - mean
        held = torch.einsum("che,jdhe->chjd", by_head, self.value[self.always]) - mean
        for query, rows in by_query(here.query_token):
            found[rows] = found[rows] * self.open_weight[query]
            held[rows] = held[rows] * self.weight[query][:, self.always]
        chosen = held.gather(3, here.held[:, None, :, None].expand(-1, held.shape[1], -1, 1))
        by_scores = found.abs().amax(3).sum(2) + chosen.abs().sum((2, 3))
        found = (found - found.mean(3, keepdim=True)) * here.is_open[:, None, :, None]
        return found / here.below[:, :, None, None], by_scores * here.off / here.below

    def _reach(self, slopes: Tensor, here: Here) -> Tensor:
        """The most (count,) that open tokens and rounding do to sums of a's components with slopes (count, hidden)."""
        effects, by_scores = self._effects(slopes, here)
        far = effects.abs().amax(3).sum(2) + by_scores
        return ((1 + here.stretch) * far).sum(1) + (slopes.abs() * here.rounding).sum(1)
