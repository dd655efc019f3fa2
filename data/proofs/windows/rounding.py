"""How far rounding can move a logit: a bound that holds for every order of summation.

Each operation below gives its value x in exact arithmetic (found in float64), and bounds the error e of the number x + e
that a processor computes in its place. An error has two parts: what the errors of the inputs make of it to first order, and
a defect, which the operation adds by rounding and by not being linear. So an error at the end is exactly the sum over all
values of derivative times defect, and at most the sum of the absolute products. hub_cards/PROOF.md proves each operation in
a lemma of its name, and says what is assumed of the processor.
"""

# Used by: networks.py, data/proofs, data/proofs/lengths. Bound by: verdicts of single lengths, by `BOUND` in
# data/proofs/lengths/up_to_length.py.

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

UNIT = {torch.float64: 2.0**-53, torch.float32: 2.0**-24}
"""Largest relative error of one rounding to nearest, in the precisions in which numbers below `LARGEST` do not overflow and
`TINY` holds."""

FUNCTION = 8
"""Largest relative error of exp, log, tanh, erf, roots and division, in units: 4 units in the last place."""

LARGEST = 2.0**40
"""Weights and values must not be larger, so that nothing overflows in float32."""

MOST_TERMS = 2**13
"""No sum has more terms."""

CLEAR = 20
"""How many times a lead must exceed its bound, so that no more effort is made for it."""

TINY = 2.0**-60
"""More than underflow adds in one operation of float32, whether small numbers are kept or flushed to zero."""

SMALL = 1 / 16
"""Largest relative error of a norm's input, and largest error of a score, for which the lemmas hold."""

STEEPEST, BENT = 1.13, 0.6
"""The largest absolute value of an activation's derivative, and half of that of its second derivative, or more."""

Pair = tuple[Tensor, Tensor]
"""Values and their radii, of one shape."""

Pull = Callable[[Tensor], Tensor]
"""From the derivatives of some ends by a value, (inputs, ends, width), to their derivatives by one of its sources."""


@dataclass(frozen=True)
class Weight:
    """A matrix (outputs, width), and what bounds ask of it."""

    exact: Tensor

    @cached_property
    def absolute(self) -> Tensor:
        """(outputs, width) absolute values."""
        return self.exact.abs()

    @cached_property
    def rows(self) -> Tensor:
        """(outputs,) Euclidean norms of the rows."""
        return self.exact.norm(dim=1)

    @cached_property
    def apart(self) -> Tensor:
        """(outputs, outputs) Euclidean norms of the differences of its rows."""
        return (self.exact.unsqueeze(1) - self.exact).norm(dim=-1)

    @cached_property
    def norm(self) -> float:
        """The largest factor by which it makes a vector longer."""
        return float(torch.linalg.matrix_norm(self.exact, 2)) if self.exact.isfinite().all() else math.inf


@dataclass(frozen=True)
class Mlp:
    """An MLP.

    Attributes:
        activation: see `ACTIVATIONS`.
        units: number of hidden units.
        inner: the rows of `up`, then those of `gate` if there is one, (1 or 2 times units, width).
        down: (width, units).
        inner_bias, bias: what is added to the products with both.
    """

    activation: str
    units: int
    inner: Weight
    down: Weight
    inner_bias: Tensor | float = 0.0
    bias: Tensor | float = 0.0

    @cached_property
    def products(self) -> Tensor:
        """Products of rows of `inner` times those of the columns of `down` behind them.

        With hidden units' derivatives s, s . products s is the sum of the squared derivatives of the output by the input.
        """
        behind = self.down.exact.repeat(1, len(self.inner.exact) // self.units)
        return (self.inner.exact @ self.inner.exact.T) * (behind.T @ behind)


def _gelu_tanh(x: Tensor) -> Pair:
    factor = (2 / math.pi) ** 0.5
    tanh = torch.tanh(factor * (x + 0.044715 * x**3))
    return x * (1 + tanh) / 2, (1 + tanh + x * (1 - tanh**2) * factor * (1 + 3 * 0.044715 * x**2)) / 2


def _gelu(x: Tensor) -> Pair:
    share = (1 + torch.erf(x / 2**0.5)) / 2
    return x * share, share + x * torch.exp(-(x**2) / 2) / (2 * math.pi) ** 0.5


ACTIVATIONS = {"gelu_pytorch_tanh": _gelu_tanh, "gelu": _gelu}
"""The activations that have a bound, by their names in `transformers.activations.ACT2FN`: values and derivatives."""


def bound_leads(leads: Callable[[Tensor, int], Pair], inputs: Tensor) -> Pair:
    """Leads and bounds, with more effort for those inputs whose leads are not `CLEAR`.

    Args:
        leads: gives leads and bounds, (inputs, vocabulary) each, of some of the inputs, by an effort of 0, 1 or 2: the bound
            follows the length of the error; every derivative of a lead; and those of every sublayer's output.
        inputs: (inputs,) numbers of all inputs.
    """
    lead, bound = leads(inputs, 0)
    for effort in (1, 2):
        unclear = (~(lead >= CLEAR * bound)).any(1).nonzero().squeeze(1)
        if len(unclear):
            bound[unclear] = torch.minimum(bound[unclear], leads(inputs[unclear], effort)[1])
    return lead, bound


@dataclass(eq=False)
class Value:
    """An intermediate value of many inputs.

    Attributes:
        exact: (inputs, width) float64.
        radius: (inputs, width), bound of the absolute error of each component.
        length: (inputs,), bound of the Euclidean norm of the error.
        cost: from the derivatives of some ends by this value, (inputs, ends, width), to a bound of what the value's own
            defects add to the errors of the ends, (inputs, ends).
        sources: the values that it was made of.
    """

    exact: Tensor
    radius: Tensor
    length: Tensor
    cost: Callable[[Tensor], Tensor]
    sources: tuple[tuple["Value", Pull], ...]


class Arithmetic:
    """The operations of a network in one precision. It keeps every value that they make.

    Args:
        unit: see `UNIT`.
        effort: see `bound_leads`.

    Attributes:
        proved: (inputs,) whether all conditions of the lemmas hold.
    """

    def __init__(self, unit: float, effort: int = 0):
        self.unit, self.effort = unit, effort
        self.made: list[Value] = []
        self.proved = torch.tensor(True)

    def gamma(self, roundings: float) -> float:
        """Largest relative error of a number after so many roundings."""
        return roundings * self.unit / (1 - roundings * self.unit)

    def leaf(self, exact: Tensor, radius: Tensor) -> Value:
        """A value (inputs, width) that is given with bounds of its error."""
        return self._make(exact, torch.zeros_like(radius), radius)

    def product(self, x: Value, weight: Weight, bias: Tensor | float = 0.0) -> Value:
        """Products with a weight (outputs, width), each a sum of terms in any order, plus a bias (outputs,)."""
        return self._product(x, weight, bias)[0]

    def _product(self, x: Value, weight: Weight, bias: Tensor | float) -> tuple[Value, Tensor]:
        exact, spread, defect = self._sums(x, weight, bias)
        length = weight.norm * x.length
        return self._make(exact, spread, defect, (x, lambda slopes: slopes @ weight.exact), length=length), defect

    def add(self, x: Value, y: Value) -> Value:
        """The sum of two values."""
        exact, spread = x.exact + y.exact, x.radius + y.radius
        defect = self.unit * (exact.abs() + spread)
        return self._make(exact, spread, defect, (x, _same), (y, _same), length=x.length + y.length)

    def norm(self, x: Value, weight: Tensor, eps: float) -> Value:
        """Quotient by the root of the mean square, then product with a weight."""
        return self._norm(x, weight, eps, torch.zeros_like(x.exact), torch.zeros_like(x.exact), 0.0)

    def layer_norm(self, x: Value, weight: Tensor, bias: Tensor, eps: float) -> Value:
        """Difference from the mean, norm, and sum with a bias."""
        width, size = x.exact.shape[-1], x.exact.abs() + x.radius
        mean = size.mean(-1, keepdim=True)
        centered, spread = _center(x.exact), x.radius + x.radius.mean(-1, keepdim=True)
        defect = self.unit * (size + mean) + self.gamma(width + 3) * mean
        x = self._make(centered, spread, defect, (x, _center), length=x.length)
        # The variance may be found in one pass, as the mean square less the square of the mean.
        square = self.gamma(6 * width + 24) * size.square().mean(-1, keepdim=True)
        return self._norm(x, weight, eps, square, 4 * (size + mean), bias)

    def _norm(self, x: Value, weight: Tensor, eps: float, square: Tensor, shifted: Tensor, bias: Tensor | float) -> Value:
        """A norm whose mean square has a further error `square`, and whose last steps round numbers of size `shifted`."""
        scale = (x.exact.square().mean(-1, keepdim=True) + eps).rsqrt()
        direction, factor, size = x.exact * scale, scale * weight, x.exact.abs()
        relative = x.length.unsqueeze(-1) * x.exact.shape[-1] ** -0.5 * scale
        # Smaller squares may underflow.
        self._require((relative <= SMALL) & (square * scale**2 <= SMALL) & (scale <= 1e11))
        spread = factor.abs() * (x.radius + relative * size)
        bent = factor.abs() * relative * (3 * relative * size + 1.5 * x.radius)
        normed, moved = direction * weight, spread + bent
        # The root of the mean square is off by one factor for all components.
        common = self.gamma(x.exact.shape[-1] / 2 + 2 * FUNCTION + 8) + square * scale**2
        rounding = self.gamma(FUNCTION + 3) * (normed.abs() + moved) + common * moved
        rounding = rounding + self.unit * (factor.abs() * shifted + 2 * _size(bias))

        def pull(slopes: Tensor) -> Tensor:
            slopes, along = slopes * factor.unsqueeze(1), direction.unsqueeze(1)
            return slopes - (slopes * along).mean(-1, keepdim=True) * along

        length = factor.abs().amax(-1) * x.length
        return self._make(normed + bias, spread, bent + rounding, (x, pull), length=length, common=normed * common)

    def mlp(self, x: Value, mlp: Mlp) -> Value:
        """Products of `down` with the hidden units activation(up x) * (gate x), or without the last factor; with biases."""
        hidden, slopes, activation_rounding = self._hidden(x, mlp)
        exact, spread, defect = self._sums(hidden, mlp.down, mlp.bias)
        steepness = ((slopes @ mlp.products) * slopes).sum(-1).clamp(min=0).sqrt()
        length = torch.minimum(mlp.down.norm * hidden.length, steepness * x.length + mlp.down.norm * activation_rounding)
        return self._make(exact, spread, defect, (hidden, lambda slopes: slopes @ mlp.down.exact), length=length)

    def _hidden(self, x: Value, mlp: Mlp) -> tuple[Value, Tensor, Tensor]:
        """Hidden units, their derivatives by up x and gate x, (inputs, 1 or 2 times units), and their defects' length."""
        sums, spreads, defects = (part.split(mlp.units, -1) for part in self._sums(x, mlp.inner, mlp.inner_bias))
        u, u_spread, u_defect = sums[0], spreads[0], defects[0]
        (exact, slopes), u_radius = ACTIVATIONS[mlp.activation](u), u_spread + u_defect
        rounding = 3 * FUNCTION * self.unit * (u.abs() + u_radius)
        spread, defect = slopes.abs() * u_spread, slopes.abs() * u_defect + BENT * u_radius**2 + rounding
        if len(sums) == 2:
            g, g_spread, g_defect, active = sums[1], spreads[1], defects[1], exact
            g_radius, radius = g_spread + g_defect, STEEPEST * u_radius + rounding
            exact, slopes = active * g, torch.cat([slopes * g, active], -1)
            spread = g.abs() * spread + active.abs() * g_spread
            defect = g.abs() * defect + active.abs() * g_defect + radius * g_radius
            defect = defect + self.unit * (active.abs() + radius) * (g.abs() + g_radius)

        def pull(ends: Tensor) -> Tensor:
            return (ends.repeat(1, 1, len(sums)) * slopes.unsqueeze(1)) @ mlp.inner.exact

        return self._make(exact, spread, defect, (x, pull)), slopes, (defect + TINY).norm(dim=-1)

    def tabulate(self, value: Value, heads: int) -> Pair:
        """Values (inputs, heads, width of a head) and radii, infinite where a condition of a lemma does not hold."""
        radius = self.tighten(value).radius.where(self.proved.unsqueeze(-1), torch.inf)
        return value.exact.unflatten(-1, (heads, -1)), radius.unflatten(-1, (heads, -1))

    def attention(self, query: Value, key: Value, value: Value, visible: Tensor, factor: float, bias: Pair) -> Value:
        """Means of values weighted by the softmax of `factor * (query . key) + bias`, as (inputs, heads times width).

        All three are leaves, and no sources of the result: what their errors make of it counts as its own defect.

        Args:
            query: (inputs, heads, width).
            key, value: (inputs, slots, heads, width).
            visible: (inputs, slots); every input sees a key.
            bias: (inputs, slots, heads), with its radius.
        """
        v, seen, slots = value.exact, visible.unsqueeze(-1), visible.shape[1]
        score, radius = self._scores(query, key, factor, bias)
        radius, score = radius.where(seen, 0), score.where(seen, -torch.inf)
        far, share = radius.amax(1, keepdim=True), torch.softmax(score, 1)
        below = (score.amax(1, keepdim=True) - score).where(seen, 0) + 2 * far
        roundings = 4 * self.unit * below + self.gamma(2 * (slots + 1) * (FUNCTION + 3))
        self._require((far <= SMALL) & (roundings <= SMALL))
        moved = share * radius
        # How far a score's error differs from the mean error at most.
        shift = radius * (1 - share) + moved.sum(1, keepdim=True) - moved
        square = 0.57 * (share * shift**2).sum(1, keepdim=True)
        share_defect = (square + 0.57 * (shift + square) ** 2 + 1.3 * roundings) * share + TINY

        exact, size, passed = (_mean(share, part) for part in (v, v.abs(), value.radius))
        apart = v - exact.unflatten(-1, v.shape[2:]).unsqueeze(1)
        spread = _mean(moved, apart.abs()) + _mean(share_defect, v.abs())
        length = ((moved * apart.norm(dim=-1)).sum(1) + (share_defect * v.norm(dim=-1)).sum(1)).norm(dim=-1)
        defect = _mean(share * shift + share_defect, value.radius) + 1.25 * self.gamma(2 * slots + 4) * (size + passed)
        by_head, weight = v.permute(0, 2, 3, 1), share.transpose(1, 2).unsqueeze(2)
        moving, share_defect = (part.transpose(1, 2).unsqueeze(2) for part in (radius, share_defect))

        def cost(slopes: Tensor) -> Tensor:
            """By the derivatives by weights and by scores, (inputs, heads, ends, slots)."""
            by_share = slopes.unflatten(-1, v.shape[2:]).transpose(1, 2) @ by_head
            by_score = (by_share - (by_share * weight).sum(-1, keepdim=True)) * weight
            return of_value(slopes) + (by_score.abs() * moving + by_share.abs() * share_defect).sum((1, 3))

        read = self._make(exact, spread, defect + passed, length=length)
        of_value, read.cost = read.cost, cost
        return read

    def _scores(self, query: Value, key: Value, factor: float, bias: Pair) -> Pair:
        """Scores (inputs, slots, heads) and their radii."""
        q, q_radius, k, k_radius = query.exact.unsqueeze(1), query.radius.unsqueeze(1), key.exact, key.radius
        score = (q * k).sum(-1) * factor + bias[0]
        spread = (q.abs() * k_radius + q_radius * k.abs()).sum(-1) * factor
        bent = (q_radius * k_radius).sum(-1) * factor
        size = (q * k).abs().sum(-1) * factor + spread + bent
        defect = bent + bias[1] + self.gamma(q.shape[-1] + 2 * FUNCTION + 8) * size
        defect = defect + self.unit * (score.abs() + spread + defect) + TINY
        self._require(size + score.abs() + defect <= LARGEST)
        return score, spread + defect

    def error(self, end: Value, slopes: Tensor) -> Tensor:
        """Bound of the absolute errors (inputs, ends) of sums of a value's components.

        Args:
            slopes: (inputs or 1, ends, width), the factor of each component in each sum.
        """
        waiting, total = {end: slopes}, slopes.new_zeros(())
        for value in reversed(self.made):
            if value in waiting:
                slopes = waiting.pop(value)
                total = total + value.cost(slopes)
                for source, pull in value.sources:
                    waiting[source] = waiting[source] + pull(slopes) if source in waiting else pull(slopes)
        return total

    def tighten(self, value: Value) -> Value:
        """Replace the radius, which grows with every product, by the bound of each component's error where that is less."""
        every = torch.eye(value.exact.shape[1], dtype=value.exact.dtype, device=value.exact.device)
        value.radius = torch.minimum(value.radius, self.error(value, every.unsqueeze(0)))
        value.length = torch.minimum(value.length, value.radius.norm(dim=-1))
        return value

    def finish_sublayer(self, output: Value) -> Value:
        """The value itself, tightened if the effort is largest."""
        return self.tighten(output) if self.effort == 2 else output

    def lead_and_bound(self, x: Value, head: Weight, right: Tensor, bias: Tensor | float = 0.0) -> tuple[Tensor, Tensor]:
        """Leads of the right logit over every logit, and bounds of their errors, (inputs, vocabulary) each.

        Args:
            head, bias: make logits of x.
            right: (inputs,), the place of the right logit, over which its own lead is infinite.

        Returns:
            Leads and bounds. A bound is infinite where a condition of a lemma does not hold.
        """
        logits, defect = self._product(x, head, bias)
        right_place = right.unsqueeze(1)
        lead = (logits.exact.gather(1, right_place) - logits.exact).scatter(1, right_place, torch.inf)
        if self.effort:
            every = torch.eye(logits.exact.shape[1], dtype=logits.exact.dtype, device=logits.exact.device)
            bound = self.error(logits, every[right].unsqueeze(1) - every)
        else:
            bound = head.apart[right] * x.length.unsqueeze(1) + defect + defect.gather(1, right_place)
        return lead, bound.where(self.proved.unsqueeze(1), torch.inf).scatter(1, right_place, 0.0)

    def _sums(self, x: Value, weight: Weight, bias: Tensor | float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
        """Sums of products, the errors that those of x cause in them, and their defects."""
        exact = x.exact @ weight.exact.T + bias
        spread = x.length.unsqueeze(-1) * weight.rows
        size = (x.exact.abs() + x.radius) @ weight.absolute.T + _size(bias)
        self._require(size <= LARGEST)
        return exact, spread, self.gamma(weight.exact.shape[1] + 6) * (size + exact.abs() + spread) / 2 + TINY

    def _require(self, condition: Tensor) -> None:
        """Note where a condition of a lemma, (inputs, ...), does not hold; it does not hold for nan."""
        holds = condition.flatten(1).all(1)
        self.proved = self.proved & holds

    def _make(
        self,
        exact: Tensor,
        spread: Tensor,
        defect: Tensor,
        *sources: tuple[Value, Pull],
        length: Tensor | None = None,
        common: Tensor | None = None,
    ) -> Value:
        """Keep a value.

        Args:
            spread: how far the errors of its sources move each component at most, to first order.
            length: how far they move the whole at most, if that is known.
            common: a further defect, which is this vector times an unknown number between -1 and 1.
        """
        defect = defect + TINY
        every = defect if common is None else defect + common.abs()
        radius = spread + every
        total = radius.norm(dim=-1)
        if length is not None:
            total = torch.minimum(total, length + every.norm(dim=-1))
            radius = torch.minimum(radius, total.unsqueeze(-1))

        def cost(slopes: Tensor) -> Tensor:
            defect_cost = (slopes.abs() @ defect.unsqueeze(-1)).squeeze(-1)
            return defect_cost if common is None else defect_cost + (slopes @ common.unsqueeze(-1)).squeeze(-1).abs()

        value = Value(exact, radius, total, cost, sources)
        self._require(exact.abs() + value.radius <= LARGEST)
        self.made.append(value)
        return value


def _mean(share: Tensor, values: Tensor) -> Tensor:
    """Sum of values (inputs, slots, heads, width) with weights (inputs, slots, heads), as (inputs, heads times width)."""
    return (share.unsqueeze(-1) * values).sum(1).flatten(1)


def _center(x: Tensor) -> Tensor:
    return x - x.mean(-1, keepdim=True)


def _size(x: Tensor | float) -> Tensor:
    return torch.as_tensor(x, dtype=torch.float64).abs()


def _same(slopes: Tensor) -> Tensor:
    return slopes
