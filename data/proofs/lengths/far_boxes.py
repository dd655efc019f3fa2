"""A second look at a case: what its open tokens do together, in boxes, with hidden units that cancel each other.

The sum of what open tokens add to the outputs of the heads is a point. Few coordinates, those in which the moves of tokens
spread most, tell nearly all about it. A *box* limits them. Within a box a lead is expanded about the box's own centre: its
second order is one quadratic form for all hidden units and norms, in which they cancel each other; only what is beyond it is
bounded unit by unit. A box that is not closed is halved. hub_cards/PROOF.md, "A second look, in boxes", has the lemmas.
"""

# Used by: up_to_length.py. Bound by: verdicts of single lengths, by `BOUND` in data/proofs/lengths/up_to_length.py.

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import gelu, pad, relu

from longhand.data.proofs.lengths.attention_error import (
    MOST_CHANGE,
    NORMS_FACTOR,
    ROUNDING_FACTOR,
    SHORTEST,
    Cases,
    Here,
    Norm,
    QueryPlace,
    changes_of_inverse_root,
    proved_leads,
)
from longhand.data.proofs.windows.rounding import BENT, FUNCTION, LARGEST, TINY

MOST_COORDINATES = 16
"""Coordinates of a box."""

SHARE_FACTOR = 3
"""How much sums of weights count, beside moves, for the choice of coordinates."""

KEPT_SPREAD = 0.9998
"""Share of the squared spread of the moves that coordinates keep, if so many are enough."""

SHARES = (0.0, 0.5, 1.0)
"""Which part of a slope along narrowed coordinates is bounded by the limits of a box; the rest by tokens."""

NARROWED = 0.999
"""A coordinate is narrowed if its limits are less than so much of the whole apart."""

GRID = 17
"""Points at which an activation is compared with a polynomial."""

CURVATURE = 2 * BENT
"""The largest second derivative of a smooth activation, or more (Lemma 8)."""

LEAST_SUM = 1e-6
"""A smallest sum of weights, as a share of that at the centre, below which nothing is proved: digits cancel."""

MARGIN = 1e-12
"""Limits of coordinates are made wider by this share of their terms: more than float64 rounds there."""

LEAST_REACH = 1e-6
"""Intervals of sums are made at least so wide, so that coefficients have enough digits."""


VALUES: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_pytorch_tanh": partial(gelu, approximate="tanh"),
    "gelu": gelu,
    "relu": relu,
}
"""The activations that have a bound."""


class Fit(NamedTuple):
    """An activation on [x - reach, x + reach]: within `off` of the sum of coefficient * (difference from x)**power.

    Attributes:
        coefficients: one tensor for each power.
        off: of their shape.
    """

    coefficients: list[Tensor]
    off: Tensor


def fit(x: Tensor, reach: Tensor, activation: str) -> tuple[Fit, Fit]:
    """Polynomials of degrees 2 and 1 close to an activation, and how far they can be off (Lemma 20)."""
    reach = reach.clamp(min=LEAST_REACH)
    at = torch.linspace(-1, 1, GRID, dtype=x.dtype)
    values = VALUES[activation](x.unsqueeze(-1) + reach.unsqueeze(-1) * at)
    return _fit(x, reach, values, at, activation, 2), _fit(x, reach, values, at, activation, 1)


def _fit(x: Tensor, reach: Tensor, values: Tensor, at: Tensor, activation: str, degree: int) -> Fit:
    powers = at ** torch.arange(degree + 1).unsqueeze(1)  # (powers, points)
    found = values @ torch.linalg.pinv(powers)
    error = values - found @ powers
    highest, lowest = error.amax(-1), error.amin(-1)
    # Between two points an error is off the line through theirs by at most this.
    step = 2 * reach / (GRID - 1)
    bend = 2 * found[..., 2].abs() / reach.square() if degree == 2 else torch.zeros_like(reach)
    if activation == "relu":
        between = step / 4 * (reach > x.abs()) + step.square() / 8 * bend
    else:
        between = step.square() / 8 * (bend + CURVATURE)
    coefficients = [found[..., power] / reach**power for power in range(degree + 1)]
    coefficients[0] = coefficients[0] + (highest + lowest) / 2
    return Fit(coefficients, (highest - lowest) / 2 + between)


def least_of_form(form: Tensor, wide: Tensor) -> Tensor:
    """What a symmetric form (..., coordinates, coordinates) is at least if each coordinate is at most so wide (Lemma 21).

    A form with an entry that is not finite has no bound: it is -inf.
    """
    scaled = form * wide.unsqueeze(-1) * wide.unsqueeze(-2)
    finite = scaled.isfinite().all(-1).all(-1)
    # Eigenvectors are found of finite matrices only.
    scaled = torch.where(finite[..., None, None], scaled, 0.0)
    diagonal = scaled.diagonal(dim1=-2, dim2=-1)
    others = scaled.abs().sum(-1) - diagonal.abs()
    by_rows = (diagonal - others).clamp(max=0).sum(-1)
    values, vectors = torch.linalg.eigh(scaled)
    apart = (scaled - vectors * values.unsqueeze(-2) @ vectors.transpose(-2, -1)).abs().sum((-2, -1))
    by_values = (values.clamp(max=0) * vectors.abs().sum(-2).square()).sum(-1) - apart
    return torch.where(finite, torch.maximum(by_rows, by_values), -torch.inf)


class Boxes(NamedTuple):
    """Limits of coordinates.

    Attributes:
        low, high: (boxes, coordinates).
    """

    low: Tensor
    high: Tensor

    def take(self, rows: Tensor) -> "Boxes":
        """Some of the boxes."""
        return Boxes(self.low[rows], self.high[rows])

    def halves(self, at: Tensor) -> "Boxes":
        """Both halves of each box, along one coordinate each."""
        rows = torch.arange(len(at))
        middle = (self.low[rows, at] + self.high[rows, at]) / 2
        low, high = self.low.clone(), self.high.clone()
        high[rows, at], low[rows, at] = middle, middle
        return Boxes(torch.cat([self.low, low]), torch.cat([high, self.high]))


class Looked(NamedTuple):
    """What is known of boxes.

    Attributes:
        occurs: (boxes,) False where no problem is in the box: its sums of weights do not occur.
        left: (boxes, rivals) what is left of the leads at least, see `proved_leads`. Leads are differences of logits before
            the last norms, as in `Bounds`.
        first: (boxes, rivals) the least leads to first order.
        effects: (boxes, rivals, open, tokens) what each token adds to the leads to first order.
        lead: (boxes, rivals) the leads are these, the effects of a problem's tokens, and the form of its coordinates, up to
            `beyond`.
        form: (boxes, rivals, coordinates + 1, coordinates + 1) the second order, by differences from the middle of the box;
            the last coordinate is no problem's own.
        wide: (boxes, coordinates + 1) how large these differences are at most.
        beyond: (boxes, rivals) at most all else.
        scale: (boxes, 1) by this a logit is larger at the centre of the box.
        score: (boxes, coordinates) how much of the bound is due to the width of each coordinate.
    """

    occurs: Tensor
    left: Tensor
    first: Tensor
    effects: Tensor
    lead: Tensor
    form: Tensor
    wide: Tensor
    beyond: Tensor
    scale: Tensor
    score: Tensor


def far_boxes_of(query: QueryPlace, case: Cases) -> "FarBoxes | None":
    """The open tokens of one case; None if boxes prove nothing of it, since a condition of a lemma does not hold."""
    here, a, proved, _ = query.start(case)
    sums = extreme_sums(query, case, here)
    return FarBoxes(query, here, a[0], *sums) if proved.all() and (sums[0] >= LEAST_SUM).all() else None


def extreme_sums(query: QueryPlace, case: Cases, here: Here) -> tuple[Tensor, Tensor]:
    """The smallest and the largest sums of weights that tokens can have, (heads,) each, as shares of those at the centre.

    They are sums of positive numbers: found as a difference from 1 the smallest could be negative, and no bound, where
    nearly all weight is that of few tokens.
    """
    weight, held = query.weight[int(here.query_token[0])], case.held[0]
    chosen = weight.gather(2, held.clamp(min=0)[None, :, None].expand(len(weight), -1, 1)).squeeze(2)
    lowest, highest = (torch.where(held < 0, every, chosen).sum(1) for every in (weight.amin(2), weight.amax(2)))
    return (1 - MARGIN) * lowest / here.below[0], (1 + MARGIN) * highest / here.below[0]


class FarBoxes:
    """The open tokens of one case.

    Args:
        query: the place.
        here: the centre of the case, and of no other.
        a: (hidden,) the sum of residual and attention there.
        least_sum, most_sum: see `extreme_sums`.
    """

    def __init__(self, query: QueryPlace, here: Here, a: Tensor, least_sum: Tensor, most_sum: Tensor):
        self.query, self.layer, self.a = query, query.layer, a
        self.parts = len(query.layer.inner) // query.layer.units
        self.least_sum, self.most_sum = least_sum, most_sum
        layer, query_token = self.layer, int(here.query_token[0])
        weight, below = query.open_weight[query_token], here.below[0, :, None, None]
        is_open = here.is_open[0, :, None]
        share = (weight - weight.mean(2, keepdim=True)) / below * is_open  # (heads, open, tokens)
        largest = 1 / (self.least_sum * (1 - here.off[0]))
        self.here = replace(here, stretch=(largest - 1).unsqueeze(0))
        move = query.value[query.open].permute(2, 0, 1, 3) - here.output[0, :, None, None]
        move = weight.unsqueeze(-1) * move
        move = (move - move.mean(2, keepdim=True)) / below.unsqueeze(-1) * is_open.unsqueeze(-1)
        self.move = torch.einsum("hjde,khe->hjdk", move, layer.by_head)
        self._choose_coordinates(share)
        inner = layer.inner * layer.read.weight
        self.inner = inner
        self.by_unit = self.axes @ inner.T  # (coordinates, heads, rows)
        self.rest_of_units = (self.rest @ inner.T).abs().amax(2).sum(1)  # (heads, rows)
        of_units = self.move @ inner.T
        self.reach_of_units = of_units.abs().amax(2).sum(1)
        self.plain = (1 / self.least_sum + 1 / self.most_sum) / 2
        together = torch.einsum("h,hjdk->jdk", self.plain, of_units)
        self.lowest_of_units, self.highest_of_units = together.amin(1).sum(0), together.amax(1).sum(0)
        along = query.along(self.here)
        none = torch.zeros_like(query.units[0])
        rounding = query.reach_by_tables((none, *query.units[1:]), (along @ inner.T).abs(), self.here, far=False)
        self.unit_rounding = rounding[0] + self.here.rounding[0] @ inner.abs().T
        none = torch.zeros_like(query.components[0])
        self.score_rounding = query.rounding_of_scores((none, *query.components[1:]), along.abs(), self.here)[0]
        none = torch.zeros_like(query.lengths[0])
        self.length_rounding: list[Tensor | None] = []
        for place, norm in layer.norms_read:
            if norm.form is None:
                self.length_rounding.append(None)
                continue
            by_root = norm.form.sqrt()
            tables = tuple(table[..., place : place + 1] for table in (none, *query.lengths[1:]))
            far = query.reach_by_tables(tables, (along * by_root).norm(dim=-1, keepdim=True), self.here, far=False)
            self.length_rounding.append(far[0, 0] + (self.here.rounding[0] * by_root).norm())

    def _choose_coordinates(self, share: Tensor) -> None:
        """Find the directions in which moves and sums of weights spread most, and what these leave over."""
        heads, _, _, hidden = self.move.shape
        factor = SHARE_FACTOR * self.move.norm(dim=-1).amax(2).sum(1).clamp(min=TINY)  # (heads,)
        every = torch.cat([self.move.permute(1, 2, 0, 3).flatten(2), (share * factor[:, None, None]).permute(1, 2, 0)], -1)
        rows = every.flatten(0, 1)
        values, vectors = torch.linalg.eigh(rows.T @ rows)
        values, vectors = values.flip(0).clamp(min=0), vectors.flip(1)
        kept = int((values.cumsum(0) < KEPT_SPREAD * values.sum()).sum()) + 1
        kept = min(kept, MOST_COORDINATES)
        basis = vectors[:, :kept]  # (extended, coordinates)
        self.along = every @ basis  # (open, tokens, coordinates)
        self.axes = basis[: heads * hidden].T.unflatten(1, (heads, hidden))  # (coordinates, heads, hidden)
        self.rest = self.move - torch.einsum("jdi,ihk->hjdk", self.along, self.axes)
        self.share, self.share_axes = share, basis[heads * hidden :].T / factor  # (coordinates, heads)
        self.rest_of_share = (share - torch.einsum("jdi,ih->hjd", self.along, self.share_axes)).abs().amax(2).sum(1)

        whole = self.whole()
        self.half_of_whole = (whole.high - whole.low) / 2

    def whole(self) -> Boxes:
        """The box of everything."""
        margin = MARGIN * self.along.abs().amax(1).sum(0)
        return Boxes((self.along.amin(1).sum(0) - margin)[None], (self.along.amax(1).sum(0) + margin)[None])

    def occurs(self, boxes: Boxes) -> Tensor:
        """(boxes,) False where a plane shows that no tokens lead into a box."""
        possible = torch.ones(len(boxes.low), dtype=torch.bool)
        whole = self.whole()
        spread = (whole.high - whole.low).clamp(min=TINY).square()
        point, size_of_sums = torch.zeros_like(boxes.low), self.along.abs().amax(1).sum(0)
        for _ in range(6):
            nearest = torch.minimum(torch.maximum(point, boxes.low), boxes.high)
            normal = (nearest - point) / spread
            reach = torch.einsum("bi,jdi->bjd", normal, self.along)
            most, which = reach.max(2)
            least = torch.where(normal > 0, normal * boxes.low, normal * boxes.high).sum(1)
            size = normal.abs() * (torch.maximum(boxes.low.abs(), boxes.high.abs()) + size_of_sums)
            apart = least - most.sum(1) - MARGIN * size.sum(1)
            possible &= ~(apart.isfinite() & (apart > 0))
            corner = self.along[torch.arange(len(self.along)), which].sum(1)
            step = corner - point
            length = (step.square() / spread).sum(1).clamp(min=TINY)
            far = ((step * (nearest - point) / spread).sum(1) / length).clamp(0, 1)
            point = point + far.unsqueeze(1) * step
        return possible

    def look(self, boxes: Boxes, right: int, rivals: Tensor, least: Callable[[Tensor], Tensor]) -> Looked:
        """Bound the leads of a token over rivals in boxes.

        Args:
            rivals: (rivals,).
            least: the least sums (...) of effects (..., open, tokens) over all problems of the case.
        """
        ends = self._ends(right, rivals)
        spread = self._spread(boxes)
        reach = self._reach(spread)
        y, u = self._vectors(spread, reach)
        sums = self._sums(u, reach)
        units = self._units(sums)
        by_inner = (ends.by_unit.repeat(1, self.parts) * units.derivatives.unsqueeze(1)) @ self.layer.inner
        paths = ((y.normed, ends.head.expand_as(by_inner)), (u.normed, by_inner))
        back = self._back(self._slopes(*paths[0]) + self._slopes(*paths[1]), spread)
        curved = self._curvature_of_units(sums, units, ends.by_unit)
        for vector, by_vector in paths:
            if not vector.is_linear:
                curved = curved.add(self._curvature_of_norm(vector, by_vector, spread))
        curved = curved.add(self._curvature_of_heads(back, spread))
        z = Logits(y.normed.exact + units.exact @ self.layer.down.T, y.size + units.size @ self.layer.down.abs().T)
        first = self._first_order(back, spread, z.exact @ ends.head.T, least)
        factors, bent = self._unknown_factors(back, spread), curved.bent(sums.wide)
        rounding = self._rounding_of_leads(y, u, units, z, ends, by_inner) + self._rounding(back.slopes)
        left = first.lead + first.taken - factors - bent - ROUNDING_FACTOR * rounding
        sizes = (spread.a.abs() + reach.components, u.size, sums.exact.abs() + sums.reach, units.size, z.size)
        proved = y.normed.holds & u.normed.holds & (torch.stack([part.amax(1) for part in sizes]) <= LARGEST).all(0)
        left = proved_leads(left, proved.unsqueeze(1) & first.effects.isfinite().all(-1).all(-1))
        return Looked(
            occurs=spread.ratios.occurs,
            left=left,
            first=first.lead + first.taken,
            effects=first.effects,
            lead=first.lead - first.centre + curved.grown,
            form=curved.form,
            wide=sums.wide,
            beyond=curved.beyond + factors + ROUNDING_FACTOR * rounding,
            scale=self.layer.last_scale(z.exact).unsqueeze(1),
            score=self._score(sums, units, back, ends, left.argmin(1)) * spread.half,
        )

    def _ends(self, right: int, rivals: Tensor) -> "Ends":
        layer = self.layer
        return Ends(
            head=layer.head[right] - layer.head[rivals],
            by_unit=layer.behind[right] - layer.behind[rivals],
            size=layer.head[right].abs() + layer.head[rivals].abs(),
        )

    def _spread(self, boxes: Boxes) -> "Spread":
        """The factors of heads, and the sum a to first order (Lemma 18)."""
        middle, half = (boxes.low + boxes.high) / 2, (boxes.high - boxes.low) / 2
        ratios = self._ratios(middle, half)
        steered = ratios.slope.unsqueeze(1) * self.share_axes
        by_head = torch.einsum("bi,ihk->bhk", middle, self.axes)
        return Spread(
            middle=middle,
            half=half,
            ratios=ratios,
            steered=steered,
            axes=torch.einsum("bh,ihk->bik", ratios.middle, self.axes) - steered @ by_head,
            by_head=by_head,
            a=self.a + torch.einsum("bh,bhk->bk", ratios.middle, by_head),
        )

    def _reach(self, spread: "Spread") -> "Reach":
        """How far sums of a's components can be from those of the centre: by coordinates (Lemma 18), or token by token."""
        middle, half, ratios = spread.middle, spread.half, spread.ratios
        units_by_head = torch.einsum("bi,ihk->bhk", middle, self.by_unit)
        by_unit = torch.einsum("bh,ihk->bik", ratios.middle, self.by_unit) - spread.steered @ units_by_head
        of_axes = torch.einsum("bi,ihk->bhk", half, self.by_unit.abs())
        unit_rest = ratios.rest(units_by_head, of_axes, self.rest_of_units) + self.unit_rounding
        moved = torch.einsum("bh,bhk->bk", ratios.middle, units_by_head)
        by_tokens = torch.maximum(self.highest_of_units - moved, moved - self.lowest_of_units)
        by_tokens = by_tokens + ratios.farthest(self.plain) @ self.reach_of_units + self.unit_rounding
        return Reach(
            by_unit=by_unit,
            unit_rest=unit_rest,
            units=torch.minimum(torch.einsum("bi,bik->bk", half, by_unit.abs()) + unit_rest, by_tokens),
            components=torch.einsum("bi,bik->bk", half, spread.axes.abs()) + self._rest_of_components(spread),
        )

    def _vectors(self, spread: "Spread", reach: "Reach") -> tuple["Vector", "Vector"]:
        """What is added up behind attention, y, and what the MLP reads, u (Lemma 19), with rounding (One norm, or two)."""
        layer = self.layer
        per_norm = layer.gamma(spread.a.shape[1] / 2 + 3 * FUNCTION + 11)
        y, u = (
            self._norm(norm, rounding, spread)
            for (_, norm), rounding in zip(layer.norms_read, self.length_rounding, strict=True)
        )
        y_size, u_size = (vector.size(reach.components) for vector in (y, u))
        u_rounding = NORMS_FACTOR * layer.norms_before_mlp * per_norm * u_size + TINY
        y_rounding = NORMS_FACTOR * per_norm * y_size * (layer.residual.form is not None)
        return Vector(y, y_size, y_rounding), Vector(u, u_size, u_rounding)

    def _sums(self, read: "Vector", reach: "Reach") -> "Sums":
        """Sums of products (Lemma 4). One more coordinate: all grow together by what the norm's root is not linear in."""
        layer, absolute, u = self.layer, self.layer.inner.abs().T, read.normed
        sums = u.exact @ layer.inner.T
        sums_rounding = read.rounding @ absolute + TINY + layer.gamma(u.exact.shape[1] + 6) * (read.size @ absolute)
        sum_axes = reach.by_unit / u.root.unsqueeze(1) - u.along.unsqueeze(2) * sums.unsqueeze(1)
        sum_axes = torch.cat([sum_axes, sums.unsqueeze(1)], 1)
        wide = torch.cat([u.half, u.curved + u.along_rest], 1)
        on_axes = torch.einsum("bi,bik->bk", wide, sum_axes.abs())
        bent_sums = u.scaled * reach.units / u.root + sums_rounding
        apart = reach.unit_rest / u.root + bent_sums
        by_all = reach.units / u.root + sums.abs() * (u.along_reach + u.curved) + bent_sums
        return Sums(
            exact=sums,
            axes=sum_axes,
            wide=wide,
            on_axes=on_axes,
            apart=apart,
            reach=torch.minimum(on_axes + apart, by_all),
            rounding=sums_rounding,
        )

    def _units(self, sums: "Sums") -> "Units":
        """Hidden units as polynomials of their sums (Lemma 20), and their rounding (Lemma 8)."""
        layer, units = self.layer, self.layer.units
        p, p_reach = sums.exact[:, :units], sums.reach[:, :units]
        ((value, slope, bend), off), ((flat, rise), flat_off) = fit(p, p_reach, layer.config.hidden_act)
        activation_rounding = 3 * FUNCTION * layer.unit * (p.abs() + p_reach) * (layer.config.hidden_act != "relu")
        if self.parts == 1:
            found = Units(value, slope, bend, None, off, None, p.abs() + p_reach, activation_rounding)
        else:
            g, g_reach = sums.exact[:, units:], sums.reach[:, units:]
            hidden_size = (p.abs() + p_reach) * (g.abs() + g_reach)
            found = Units(
                exact=value * g,
                derivatives=torch.cat([slope * g, flat], 1),
                bend=bend * g,
                rise=rise,
                off=g.abs() * off + g_reach * flat_off,
                flat_off=flat_off,
                size=hidden_size,
                rounding=(g.abs() + g_reach) * activation_rounding + layer.unit * hidden_size,
            )
        of_sums = (found.derivatives.abs() * sums.rounding).unflatten(1, (-1, units)).sum(1)
        return found._replace(rounding=found.rounding + of_sums)

    def _curvature_of_units(self, sums: "Sums", found: "Units", behind: Tensor) -> "Curvature":
        """The second order of hidden units, in one form or unit by unit (The lead in a box).

        Args:
            behind: (rivals, units), see `Ends.by_unit`.
        """
        units, size = self.layer.units, behind.abs()
        p_axes, p_reach, p_on, p_apart = sums.axes[..., :units], *sums.of(slice(units))
        weighted = p_axes.unsqueeze(1) * (behind * found.bend.unsqueeze(1)).unsqueeze(2)
        form = weighted @ p_axes.transpose(1, 2).unsqueeze(1)
        per_unit = found.bend.abs() * (2 * p_on + p_apart) * p_apart
        alone = found.bend.abs() * p_reach.square()
        if found.rise is not None:
            rise = found.rise
            g_axes, g_reach, g_on, g_apart = sums.axes[..., units:], *sums.of(slice(units, None))
            mixed = (p_axes.unsqueeze(1) * (behind * rise.unsqueeze(1)).unsqueeze(2)) @ g_axes.transpose(1, 2).unsqueeze(1)
            form = form + (mixed + mixed.transpose(2, 3)) / 2
            per_unit = per_unit + rise.abs() * (p_on * g_apart + p_apart * g_on + p_apart * g_apart)
            alone = alone + rise.abs() * p_reach * g_reach
        beyond, alone = (per_unit + found.off) @ size.T, (alone + found.off) @ size.T
        return Curvature(form, beyond, alone, torch.zeros_like(beyond))

    def _slopes(self, vector: "BoxNorm", slopes: Tensor) -> Tensor:
        """(boxes, rivals, hidden) the slopes by a of what a vector behind a norm is counted with, of the same shape."""
        direct = slopes * vector.factor.unsqueeze(1)
        if vector.is_linear:
            return direct
        return direct - (slopes * vector.exact.unsqueeze(1)).sum(2, keepdim=True) * vector.slope.unsqueeze(1)

    def _curvature_of_norm(self, vector: "BoxNorm", slopes: Tensor, spread: "Spread") -> "Curvature":
        """The second order of a norm (Lemma 19), in the form or by itself; arguments as for `_slopes`."""
        direct = slopes * vector.factor.unsqueeze(1)
        toward = (slopes * vector.exact.unsqueeze(1)).sum(2)  # (boxes, rivals)
        on = direct @ spread.axes.transpose(1, 2)  # (boxes, rivals, coordinates)
        rest, half = self._rest(direct, spread), spread.half
        on_all = (on.abs() * half.unsqueeze(1)).sum(2)
        outer = 1.5 * vector.along.unsqueeze(2) * vector.along.unsqueeze(1) - vector.gram / 2
        crossed = vector.along[:, None, :, None] * on.unsqueeze(2)
        own_form = toward[:, :, None, None] * outer.unsqueeze(1) - (crossed + crossed.transpose(2, 3)) / 2
        along_on, along_rest = (vector.along.abs() * half).sum(1, keepdim=True), vector.along_rest
        squares = 1.5 * (2 * along_on + along_rest) * along_rest
        squares = squares + (2 * vector.length + vector.length_rest) * vector.length_rest / 2
        beyond = toward.abs() * (squares + vector.third) + along_on * rest + along_rest * (on_all + rest)
        beyond = beyond + vector.curved * (on_all + rest)
        alone = toward.abs() * vector.curved + vector.scaled * (on_all + rest)
        return Curvature(pad(own_form, (0, 1, 0, 1)), beyond, alone, toward * vector.grown)

    def _back(self, slopes: Tensor, spread: "Spread") -> "Back":
        """What slopes by a, (boxes, rivals, hidden), make of the parts of the heads' outputs."""
        by_axes = torch.einsum("brk,ihk->brih", slopes, self.axes)
        return Back(
            slopes=slopes,
            along=slopes @ spread.axes.transpose(1, 2),
            by_axes=by_axes,
            of_axes=torch.einsum("bi,brih->brh", spread.half, by_axes.abs()),
            of_head=torch.einsum("brk,bhk->brh", slopes, spread.by_head),
            rest=self._rest_by_head(slopes),
        )

    def _curvature_of_heads(self, back: "Back", spread: "Spread") -> "Curvature":
        """The factors of heads, which fall as their sums of weights grow (Lemma 18)."""
        crossed = torch.einsum("bih,brmh->brim", spread.steered, back.by_axes)
        form = -pad((crossed + crossed.transpose(2, 3)) / 2, (0, 1, 0, 1))
        wide = spread.ratios.slope * (spread.half @ self.share_axes.abs())
        alone = (wide.unsqueeze(1) * back.of_axes).sum(2)
        return Curvature(form, torch.zeros_like(alone), alone, torch.zeros_like(alone))

    def _first_order(self, back: "Back", spread: "Spread", lead: Tensor, least: Callable[[Tensor], Tensor]) -> "FirstOrder":
        """To first order, token by token; or by the limits of the box; or in part by both.

        Args:
            lead: (boxes, rivals) at the middle of the box.
            least: as for `look`.
        """
        middle, half, ratios = spread.middle, spread.half, spread.ratios
        by_token = torch.einsum("brk,hjdk->brhjd", back.slopes, self.move)
        steering = ratios.slope.unsqueeze(1) * back.of_head
        effects = torch.einsum("bh,brhjd->brjd", ratios.middle, by_token)
        effects = effects - torch.einsum("brh,hjd->brjd", steering, self.share)
        narrowed = back.along * (half < NARROWED * self.half_of_whole).unsqueeze(1)
        taken = torch.full_like(lead, -torch.inf)
        for share in SHARES:
            multiplier = share * narrowed
            tilted = effects - torch.einsum("bri,jdi->brjd", multiplier, self.along)
            limits = (multiplier * middle.unsqueeze(1)).sum(2) - (multiplier.abs() * half.unsqueeze(1)).sum(2)
            taken = torch.maximum(taken, least(tilted) + limits)
        at_middle = steering * (middle @ self.share_axes).unsqueeze(1)
        centre = (ratios.middle.unsqueeze(1) * back.of_head - at_middle).sum(2)
        by_limits = (back.along.abs() * half.unsqueeze(1)).sum(2)
        by_limits = by_limits + (ratios.middle.abs().unsqueeze(1) * back.rest + steering.abs() * self.rest_of_share).sum(2)
        return FirstOrder(lead=lead, effects=effects, centre=centre, taken=torch.maximum(taken - centre, -by_limits))

    def _unknown_factors(self, back: "Back", spread: "Spread") -> Tensor:
        """At most (boxes, rivals) what the factors of heads do beyond what is linear in sums of weights (Lemma 18)."""
        ratios, of_axes, rest = spread.ratios, back.of_axes, back.rest
        of_ratios = ratios.off.unsqueeze(1) * (back.of_head.abs() + of_axes + rest)
        of_ratios = of_ratios + ratios.slope.unsqueeze(1) * (ratios.wide.unsqueeze(1) * rest + self.rest_of_share * of_axes)
        return of_ratios.sum(2)

    def _rounding_of_leads(
        self, y: "Vector", u: "Vector", units: "Units", z: "Logits", ends: "Ends", by_inner: Tensor
    ) -> Tensor:
        """At most (boxes, rivals) what rounding behind attention does to leads: slopes times defects (Lemma 3).

        Args:
            by_inner: (boxes, rivals, hidden) the slopes by u.
        """
        layer = self.layer
        z_rounding = y.rounding + layer.gamma(layer.units + 8) * z.size + TINY
        least_scale = layer.last_scale(z.size).unsqueeze(1)
        of_ends = layer.gamma(len(layer.last_norms) * (FUNCTION + 6) + z.exact.shape[1] + 8)
        rounding = z_rounding @ ends.head.abs().T + units.rounding @ ends.by_unit.abs().T + TINY / least_scale
        rounding = rounding + of_ends * (z.size @ ends.size.T)
        return rounding + (by_inner.abs() * u.rounding.unsqueeze(1)).sum(2)

    def _score(self, sums: "Sums", units: "Units", back: "Back", ends: "Ends", worst: Tensor) -> Tensor:
        """(boxes, coordinates) how much a unit of each coordinate's width costs the bound of the worst rival, (boxes,)."""
        steep = units.steepness(sums, self.layer.units) * ends.by_unit.abs().repeat(1, self.parts)[worst]
        along = back.along[torch.arange(len(worst)), worst].abs()
        return torch.einsum("bk,bik->bi", steep, sums.axes[:, :-1].abs()) + along / 4

    def _ratios(self, middle: Tensor, half: Tensor) -> "Ratios":
        """The factors of heads in boxes (Lemma 18)."""
        at, wide = middle @ self.share_axes, half @ self.share_axes.abs() + self.rest_of_share
        wide = wide + MARGIN * (1 + middle.abs() @ self.share_axes.abs() + wide)
        low = torch.maximum(1 + at - wide, self.least_sum)
        high = torch.minimum(1 + at + wide, self.most_sum)
        apart = (low - high).amax(1)
        occurs = ~(apart.isfinite() & (apart > 0))
        high = torch.maximum(low, high)
        off = self.here.off[0]
        slope, ends = 1 / (low * high), (1 / low + 1 / high) / 2
        # The curve 1 / t and its chord are farthest apart at the root of low * high.
        root = slope.sqrt()
        return Ratios(
            middle=ends + root - slope * (1 + at),
            slope=slope,
            off=ends * (1 + MARGIN) - root + off / (low * (1 - off)),
            wide=torch.minimum(wide, torch.maximum(high - 1 - at, 1 + at - low)),
            rest_of_share=self.rest_of_share,
            largest=1 / (low * (1 - off)),
            smallest=1 / (high * (1 + off)),
            occurs=occurs,
        )

    def _rest_by_head(self, slopes: Tensor) -> Tensor:
        """At most (boxes, rivals, heads) what is not along the axes of sums with slopes (boxes, rivals, hidden)."""
        return torch.einsum("brk,hjdk->brhjd", slopes, self.rest).abs().amax(4).sum(3)

    def _rest(self, slopes: Tensor, spread: "Spread") -> Tensor:
        """At most (boxes, rivals) all that moves sums with slopes (boxes, rivals, hidden) but the axes; rounding too."""
        rest = self._rest_by_head(slopes).movedim(2, 1)
        of_axes = torch.einsum("bi,brih->bhr", spread.half, torch.einsum("brk,ihk->brih", slopes, self.axes).abs())
        of_head = torch.einsum("brk,bhk->bhr", slopes, spread.by_head)
        return spread.ratios.rest(of_head, of_axes, rest) + self._rounding(slopes)

    def _rounding(self, slopes: Tensor) -> Tensor:
        """At most (boxes, rivals) what rounding of outputs does to sums with slopes (boxes, rivals, hidden)."""
        by_scores = torch.einsum("brk,hk->brh", slopes.abs(), self.score_rounding).sum(2)
        return by_scores + (slopes.abs() * self.here.rounding[0]).sum(2)

    def _rest_of_components(self, spread: "Spread") -> Tensor:
        """At most (boxes, hidden) all that moves components of a but the axes; rounding too."""
        rest = self.rest.abs().amax(2).sum(1)
        of_axes = torch.einsum("bi,ihk->bhk", spread.half, self.axes.abs())
        moved = spread.ratios.rest(spread.by_head, of_axes, rest)
        return moved + self.score_rounding.sum(0) + self.here.rounding[0]

    def _norm(self, norm: Norm, rounding: Tensor | None, spread: "Spread") -> "BoxNorm":
        """A vector behind a norm at the centres of boxes, and how it depends on a (Lemma 19).

        Args:
            rounding: how far rounding moves a at most, in the norm's own length; None if nothing is divided.
        """
        if norm.form is None or rounding is None:
            return _linear(norm, spread)
        half, a, by_root = spread.half, spread.a, norm.form.sqrt()
        square = (norm.form * a.square()).sum(1, keepdim=True) + norm.constant
        own_axes = spread.axes * by_root
        gram = own_axes @ own_axes.transpose(1, 2)
        length = torch.einsum("bi,bim,bm->b", half, gram.abs(), half).sqrt().unsqueeze(1)
        length_rest = self._rest_of_length(by_root, spread) + rounding
        far = length + length_rest
        # What is added to a makes the square larger; the root is that of the middle.
        root = (square + far.square() / 2).sqrt()
        slope = norm.form * a / root.square()
        along = torch.einsum("bk,bik->bi", slope, spread.axes)
        along_rest = self._rest(slope.unsqueeze(1), spread)
        along_reach = torch.minimum((along.abs() * half).sum(1, keepdim=True) + along_rest, far / root)
        length, length_rest, gram = length / root, length_rest / root, gram / root.unsqueeze(2).square()
        grown = (far / root).square() / 2
        change = 2 * along_reach + grown
        holds = (change.squeeze(1) < MOST_CHANGE) & (root.squeeze(1) >= SHORTEST) & (root.squeeze(1) <= LARGEST)
        change = change.clamp(max=MOST_CHANGE)
        scaled, bent, beyond = changes_of_inverse_root(change)
        curved = bent + grown / 2
        third = 1.5 * along_reach * grown + 0.375 * grown.square() + beyond
        return BoxNorm(
            exact=norm.weight * a / root,
            factor=norm.weight / root,
            root=root,
            holds=holds,
            is_linear=False,
            half=half,
            along=along,
            along_rest=along_rest,
            along_reach=along_reach,
            slope=slope,
            curved=curved,
            scaled=scaled,
            third=third,
            length=length,
            length_rest=length_rest,
            gram=gram,
            grown=grown / 2,
        )

    def _rest_of_length(self, by_root: Tensor, spread: "Spread") -> Tensor:
        """(boxes, 1) how long, in a norm's own length, all that moves a but the axes is at most.

        Args:
            by_root: (hidden,) the roots of the norm's form.
        """
        rest = (self.rest * by_root).norm(dim=-1).amax(2).sum(1)
        of_head, of_axes = (spread.by_head * by_root).norm(dim=-1), spread.half @ (self.axes * by_root).norm(dim=-1)
        return spread.ratios.rest(of_head.unsqueeze(2), of_axes.unsqueeze(2), rest.unsqueeze(1))


class Ratios(NamedTuple):
    """The factors of heads: in a box each is `middle - slope * (s - that of the middle of the box)`, within `off`.

    Attributes:
        middle, slope, off: (boxes, heads).
        wide: (boxes, heads) how far the sum of shares s is at most from that of the middle of the box.
        rest_of_share: (heads,) how much of it coordinates leave over.
        largest, smallest: (boxes, heads) the factors at the ends of s.
        occurs: (boxes,) whether such sums of weights occur.
    """

    middle: Tensor
    slope: Tensor
    off: Tensor
    wide: Tensor
    rest_of_share: Tensor
    largest: Tensor
    smallest: Tensor
    occurs: Tensor

    def farthest(self, factor: Tensor) -> Tensor:
        """(boxes, heads) how far factors are at most from one that is given, (heads,)."""
        return torch.maximum(self.largest - factor, factor - self.smallest)

    def rest(self, of_middle: Tensor, of_axes: Tensor, rest: Tensor) -> Tensor:
        """At most (boxes, ...) all that is not linear in coordinates of sums of the heads' outputs.

        Args:
            of_middle: (boxes, heads, ...) what the middle of the box adds to the sums of each head, before the factors.
            of_axes: (boxes, heads, ...) what coordinates add at most.
            rest: (boxes or 1, heads, ...) what they leave over at most.
        """
        more = (1,) * (of_middle.dim() - 2)
        middle, slope, off, wide = (part.reshape(*part.shape, *more) for part in self[:4])
        of_share = self.rest_of_share.reshape(-1, *more)
        moved = middle.abs() * rest + off * (of_middle.abs() + of_axes + rest)
        return (moved + slope * (of_share * of_middle.abs() + wide * (of_axes + rest))).sum(1)


class Spread(NamedTuple):
    """Boxes, and what their coordinates do to the sum a of residual and attention.

    Attributes:
        middle, half: (boxes, coordinates).
        ratios: of the heads' outputs.
        steered: (boxes, coordinates, heads) how much factors fall along coordinates.
        axes: (boxes, coordinates, hidden) to first order, the factors' own change among it.
        by_head: (boxes, heads, hidden) what the middles add, before the factors.
        a: (boxes, hidden) at the middles.
    """

    middle: Tensor
    half: Tensor
    ratios: Ratios
    steered: Tensor
    axes: Tensor
    by_head: Tensor
    a: Tensor


class Reach(NamedTuple):
    """How far sums of a's components can be from those of the middle of a box, rounding included.

    Attributes:
        by_unit: (boxes, coordinates, rows) what coordinates add to the sums of hidden units before the norm; rows are 1 or 2
            times units.
        unit_rest: (boxes, rows) what coordinates leave over of these at most.
        units: (boxes, rows) how far they move at most.
        components: (boxes, hidden) how far a moves at most.
    """

    by_unit: Tensor
    unit_rest: Tensor
    units: Tensor
    components: Tensor


class BoxNorm(NamedTuple):
    """A vector `weight * a / root(q)` at the centres of boxes, and how it depends on what moves a by e (Lemma 19).

    Attributes:
        exact: (boxes, hidden) with Q in place of q.
        factor: (boxes, hidden) or (1, hidden) the weight divided by the root of Q.
        root: (boxes, 1) that of Q.
        holds: (boxes,) whether the conditions of the lemma hold.
        is_linear: whether nothing is divided, so that the vector is weight * a.
        half: (boxes, coordinates) of the boxes.
        along: (boxes, coordinates) what coordinates add to B(a, e) / Q, linearly.
        along_rest: (boxes, 1) what they leave over of it at most.
        along_reach: (boxes, 1) at most all of it, M in the lemma.
        slope: (boxes, hidden) of B(a, e) / Q by e.
        curved: (boxes, 1) at most the size of kappa + beta.
        scaled: (boxes, 1) at most that of kappa.
        third: (boxes, 1) at most that of kappa_3.
        length: (boxes, 1) how long what coordinates add is, by the root of Q.
        length_rest: (boxes, 1) how long what they leave over is at most, by the root of Q.
        gram: (boxes, coordinates, coordinates) products B of what coordinates add, by Q.
        grown: (boxes, 1) half of zeta.
    """

    exact: Tensor
    factor: Tensor
    root: Tensor
    holds: Tensor
    is_linear: bool
    half: Tensor
    along: Tensor
    along_rest: Tensor
    along_reach: Tensor
    slope: Tensor
    curved: Tensor
    scaled: Tensor
    third: Tensor
    length: Tensor
    length_rest: Tensor
    gram: Tensor
    grown: Tensor

    def size(self, reach_of_a: Tensor) -> Tensor:
        """(boxes, hidden) the largest absolute values, where a moves by so much at most, (boxes, hidden)."""
        return (self.exact.abs() + reach_of_a * self.factor.abs()) * (1 + self.scaled)


class Vector(NamedTuple):
    """A vector behind a norm in boxes.

    Attributes:
        normed: at the centres, and how it depends on a.
        size: (boxes, hidden) the largest absolute values.
        rounding: (boxes, hidden) what rounding adds at most.
    """

    normed: BoxNorm
    size: Tensor
    rounding: Tensor


def _linear(norm: Norm, spread: Spread) -> BoxNorm:
    """The vector weight * a: nothing is divided."""
    none, half = torch.zeros_like(spread.a[:, :1]), spread.half
    return BoxNorm(
        exact=spread.a * norm.weight,
        factor=norm.weight.unsqueeze(0),
        root=none + 1,
        holds=torch.ones(len(half), dtype=torch.bool),
        is_linear=True,
        half=half,
        along=torch.zeros_like(half),
        along_rest=none,
        along_reach=none,
        slope=torch.zeros_like(spread.a),
        curved=none,
        scaled=none,
        third=none,
        length=none,
        length_rest=none,
        gram=torch.zeros_like(half.unsqueeze(2) * half.unsqueeze(1)),
        grown=none,
    )


class Sums(NamedTuple):
    """Sums of products of which hidden units are made; rows are 1 or 2 times units.

    Attributes:
        exact: (boxes, rows) at the middle of the box.
        axes: (boxes, coordinates + 1, rows) what coordinates add; the last coordinate is an unknown number of the norm's.
        wide: (boxes, coordinates + 1) how far each coordinate is at most from the middle.
        on_axes: (boxes, rows) at most what coordinates add.
        apart: (boxes, rows) what they leave over at most.
        reach: (boxes, rows) at most all of it, rounding included.
        rounding: (boxes, rows) at most rounding alone.
    """

    exact: Tensor
    axes: Tensor
    wide: Tensor
    on_axes: Tensor
    apart: Tensor
    reach: Tensor
    rounding: Tensor

    def of(self, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
        """Of some of the rows: how far they reach, on the axes, and apart from them."""
        return self.reach[:, rows], self.on_axes[:, rows], self.apart[:, rows]


class Units(NamedTuple):
    """Hidden units as polynomials of their sums p, and g of the gate if there is one: (boxes, units) each but derivatives.

    Attributes:
        exact: at the middle of the box.
        derivatives: (boxes, 1 or 2 times units) by p, then by g.
        bend: the factor of the square of what p moves by.
        rise: that of the product of what p and g move by; None without a gate.
        off: how far the polynomials are off at most.
        flat_off: how far the polynomial of degree 1 is off at most; None without a gate.
        size: the largest absolute values, or more.
        rounding: at most what rounding does.
    """

    exact: Tensor
    derivatives: Tensor
    bend: Tensor
    rise: Tensor | None
    off: Tensor
    flat_off: Tensor | None
    size: Tensor
    rounding: Tensor

    def steepness(self, sums: Sums, units: int) -> Tensor:
        """(boxes, 1 or 2 times units) how much what is not linear grows with the reach of each sum."""
        p_reach = sums.reach[:, :units]
        steep = 2 * self.bend.abs() * p_reach + self.off / p_reach
        if self.rise is None or self.flat_off is None:
            return steep
        rise, g_reach = self.rise.abs(), sums.reach[:, units:]
        return torch.cat([steep + rise * g_reach, rise * p_reach + self.flat_off], 1)


class Curvature(NamedTuple):
    """What leads are not linear in, by one form of all coordinates or by each part alone.

    Attributes:
        form: (boxes, rivals, coordinates + 1, coordinates + 1).
        beyond: (boxes, rivals) at most all that is not in the form.
        alone: (boxes, rivals) at most all of it, without the form.
        grown: (boxes, rivals) what the form and `beyond` leave out, which is known.
    """

    form: Tensor
    beyond: Tensor
    alone: Tensor
    grown: Tensor

    def add(self, more: "Curvature") -> "Curvature":
        """This and another part."""
        return Curvature(*(part + added for part, added in zip(self, more, strict=True)))

    def bent(self, wide: Tensor) -> Tensor:
        """(boxes, rivals) at most what all parts take, where coordinates are at most so wide (Lemma 21)."""
        beyond, form, grown, alone = self.beyond, self.form, self.grown, self.alone
        return torch.minimum(beyond - least_of_form(form, wide.unsqueeze(1)) - grown, alone)


class Back(NamedTuple):
    """Slopes of leads by the sum a, and what they make of the parts of the heads' outputs.

    Attributes:
        slopes: (boxes, rivals, hidden).
        along: (boxes, rivals, coordinates) what coordinates add to leads.
        by_axes: (boxes, rivals, coordinates, heads) the same before the factors of heads.
        of_axes: (boxes, rivals, heads) at most what coordinates add there.
        of_head: (boxes, rivals, heads) what the middles add there.
        rest: (boxes, rivals, heads) what coordinates leave over there at most.
    """

    slopes: Tensor
    along: Tensor
    by_axes: Tensor
    of_axes: Tensor
    of_head: Tensor
    rest: Tensor


class FirstOrder(NamedTuple):
    """Leads to first order.

    Attributes:
        lead: (boxes, rivals) at the middle of the box.
        effects: (boxes, rivals, open, tokens) what each token adds.
        centre: (boxes, rivals) what the effects of the middle are, which `lead` has.
        taken: (boxes, rivals) what tokens add to `lead` at least.
    """

    lead: Tensor
    effects: Tensor
    centre: Tensor
    taken: Tensor


class Logits(NamedTuple):
    """What the last norms and the head read.

    Attributes:
        exact: (boxes, hidden) at the middle of the box.
        size: (boxes, hidden) the largest absolute values, or more.
    """

    exact: Tensor
    size: Tensor


class Ends(NamedTuple):
    """What leads over rivals are: sums of the components of z.

    Attributes:
        head: (rivals, hidden) their factors.
        by_unit: (rivals, units) those of hidden units.
        size: (rivals, hidden) the absolute factors of both logits together.
    """

    head: Tensor
    by_unit: Tensor
    size: Tensor
