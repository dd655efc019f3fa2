"""Toys for tests of the bounds of far tokens: one token that sees a few others, with numbers drawn on many scales.

All problems of a toy are tried, and what rounding may do is done against the lead. At one of `SITES` alone a processor
rounds, so that the room for other roundings hides nothing.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace

import torch
from torch import Tensor

from longhand.data.proofs import lengths
from longhand.data.proofs.lengths import attention_error

FIRST, BOXES = "attention_error", "far_boxes"
PARENT = lengths.__name__
ROUNDING_FACTOR = attention_error.ROUNDING_FACTOR
TOKENS = 2
"""Tokens that may stand at a place."""

RIGHT, RIVAL = 0, 1
EPS = 1e-3
"""What a norm adds to a mean square; in this way it matters."""

SITES = ("query", "length", "key", "score", "bias", "exponent", "weight", "mean", "value", "state")
SITES += ("sum", "norm", "inner", "activation", "product", "down", "end")


def load(changed: str = "", old: str = "", new: str = "") -> tuple[ModuleType, ModuleType]:
    """The two modules of the bounds as new modules, one of them with another text in place of a term."""
    folder = Path(lengths.__file__).parent
    names = [f"{PARENT}.{name}" for name in (FIRST, BOXES)]
    kept = {name: sys.modules[name] for name in names}
    try:
        for name in (FIRST, BOXES):
            text = (folder / f"{name}.py").read_text()
            if name == changed:
                assert text.count(old) == 1, f"{name}.py has {old!r} {text.count(old)} times: name the term anew"
                text = text.replace(old, new)
            # Dataclasses look their module up, and the second module imports the first.
            module = sys.modules[f"{PARENT}.{name}"] = ModuleType(f"{PARENT}.{name}")
            exec(compile(text, name, "exec"), module.__dict__)
        return sys.modules[names[0]], sys.modules[names[1]]
    finally:
        sys.modules.update(kept)


class Draw:
    """Random numbers of one seed."""

    def __init__(self, seed: int):
        self.generator = torch.Generator().manual_seed(seed)

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=self.generator, dtype=torch.float64))

    def scale(self, low: float, high: float) -> float:
        """A power of ten."""
        return 10 ** self.uniform(low, high)

    def whole(self, low: int, high: int) -> int:
        """A whole number from low to high."""
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def chance(self, share: float) -> bool:
        return self.uniform(0, 1) < share

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64)


@dataclass
class Toy:
    """A toy of one seed.

    Args:
        site: one of `SITES`, where the processor rounds; None if it is exact.

    Attributes:
        scores: (heads, seen, tokens).
        values: (seen, tokens, heads, width).
        held: (seen,) the token that a place has in the toy's case, -1 where it is open. The last place is the query.
        placement: that of norms: "none", "post", "pre" or "both".
        size: how much the processor rounds.
        coordinates: most coordinates of boxes.
    """

    seed: int
    site: str | None = None

    def __post_init__(self):
        draw = self.draw = Draw(self.seed)
        self.hidden, self.width = draw.whole(2, 4), draw.whole(1, 3)
        self.heads, self.units, self.seen = draw.whole(1, 2), draw.whole(1, 2), draw.whole(2, 4)
        self.placement = ("none", "post", "pre", "both")[draw.whole(0, 3)]
        self.activation = ("gelu_pytorch_tanh", "gelu", "relu")[draw.whole(0, 2)]
        self.gated, self.last_norms = draw.chance(0.6), draw.whole(0, 1)
        self.size = draw.scale(-4, -1.5)
        # Where roundings of functions hide those of one operation, they are left out.
        self.function = 0 if self.site in ("bias", "exponent", "product") else 8
        self.coordinates = 60 if draw.chance(0.5) else draw.whole(1, 2)
        self.scores = draw.normal(self.heads, self.seen, TOKENS) * draw.scale(-2, 0.5) * draw.chance(0.5)
        self.scores = self.scores + draw.scale(-1, 1) * draw.chance(0.3)
        of_place = torch.tensor([draw.scale(-4, 0) for _ in range(self.seen)], dtype=torch.float64)
        self.values = draw.normal(self.seen, TOKENS, self.heads, self.width) * of_place[:, None, None, None]
        self.values = self.values * draw.scale(-1, 0.7) + draw.normal(self.heads, self.width) * draw.scale(-2, 0.5)
        self.state = draw.normal(self.hidden) * draw.scale(-1, 0.5)
        self.output = draw.normal(self.hidden, self.heads * self.width)
        self.norm_weights = 1 + draw.normal(2, self.hidden) * draw.scale(-1, 0)
        self.inner = draw.normal(self.units * (1 + self.gated), self.hidden) * draw.scale(-1, 0.7)
        self.down = draw.normal(self.hidden, self.units) * draw.scale(-2, 0.7) * draw.chance(0.7)
        self.held = torch.full((self.seen,), -1)
        self.held[-1] = 0
        self.held_elsewhere = self.held.clone()
        if self.seen > 2:
            self.held_elsewhere[0] = 1
            if draw.chance(0.3):
                self.held, self.held_elsewhere = self.held_elsewhere, self.held
        self.head = draw.normal(2, self.hidden)
        self._turn_head()
        self.tokens = torch.tensor([*product(*([own] if own >= 0 else range(TOKENS) for own in self.held.tolist()))])
        # The lead of the worst problem is a little below 0: a bound that calls it proved is wrong.
        for _ in range(2):
            leads, z = self.leads(self.worst_noise())
            along = z @ z.mean(0) / z.mean(0).square().sum()
            if (along > 0.1).all():
                shift = ((-1e-7 * self.largest(z) - leads) / along).max()
                self.head[RIGHT] += shift * z.mean(0) / z.mean(0).square().sum()
        self.exact = torch.minimum(self.leads({})[0], self.leads(self.worst_noise())[0])
        self.tolerance = 1e-11 * self.largest(self.leads({})[1])

    def _turn_head(self) -> None:
        """Now and then, make the lead blind to some directions in which bounds are large."""
        draw, blind = self.draw, []
        moves = (self.values[:, 1] - self.values[:, 0]).flatten(1) @ self.output.T
        if draw.chance(0.4):
            blind += [*moves[: draw.whole(1, self.seen - 1)]]
        if draw.chance(0.3):
            blind.append(self.state + self.values.mean((0, 1)).flatten() @ self.output.T)
        for direction in blind[: self.hidden - 1]:
            difference = self.head[RIGHT] - self.head[RIVAL]
            self.head[RIGHT] -= direction * (difference @ direction) / direction.square().sum().clamp(min=1e-20)

    def largest(self, z: Tensor) -> float:
        return float((z.detach().abs() @ self.head.abs().T).max()) + 1e-6

    # What a processor computes.

    def leads(self, noise: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """(problems,) leads, and (problems, hidden) what the head reads, with noise from -1 to 1 at the toy's site."""

        def off(site: str, like: Tensor) -> Tensor:
            """The noise of a site, if the toy has it there, times what the bound of this site allows for."""
            if self.site != site:
                return torch.zeros_like(like)
            noise.setdefault(site, torch.zeros_like(like, requires_grad=True))
            return self.size * noise[site] * like

        every = torch.arange(self.seen)
        query = torch.zeros(len(self.tokens), self.heads, self.width, dtype=torch.float64)
        query[:, :, 0] = 1
        key = self.scores[:, every, self.tokens].permute(1, 0, 2)  # (problems, heads, seen), of the first component
        own = query[:, :, 0] + off("query", query)[:, :, 0] + off("length", query)[:, :, 0]
        key = key + off("key", torch.ones_like(key))
        score = own.unsqueeze(2) * key
        score = score + off("score", score) + off("bias", score)
        weight = score.softmax(2)
        below = score.amax(2, keepdim=True) - score
        weight = weight + off("exponent", 3 * below * weight) + off("weight", weight)
        value = self.values[every, self.tokens]  # (problems, seen, heads, width)
        value = value + off("value", torch.ones_like(value))
        output = torch.einsum("phs,pshw->phw", weight, value)
        output = output + off("mean", torch.einsum("phs,pshw->phw", weight, value.abs()))
        output, state = output.flatten(1), self.state.expand(len(self.tokens), -1)
        a = state + off("state", torch.ones_like(state)) + output @ self.output.T
        a = a + off("sum", state.abs() + output.abs() @ self.output.abs().T)
        y = a
        if self.placement in ("post", "both"):
            y = a * (a.square().mean(1, keepdim=True) + EPS).rsqrt() * self.norm_weights[0]
        u = y
        if self.placement in ("pre", "both"):
            u = y * (y.square().mean(1, keepdim=True) + EPS).rsqrt() * self.norm_weights[1]
        roundings = {"none": 0, "post": 1, "pre": 1, "both": 2}[self.placement]
        rounding = off("norm", torch.cat([y * (self.placement in ("post", "both")), u * roundings], 1))
        y, u = y + rounding[:, : self.hidden], u + rounding[:, self.hidden :]
        sums = u @ self.inner.T
        sums = sums + off("inner", u.abs() @ self.inner.abs().T)
        value_of = {"gelu_pytorch_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh")}
        value_of |= {"gelu": torch.nn.functional.gelu, "relu": torch.relu}
        p = sums[:, : self.units]
        units = value_of[self.activation](p) + off("activation", p * (self.activation != "relu"))
        if self.gated:
            units = units * sums[:, self.units :]
            units = units + off("product", units)
        z = y + units @ self.down.T
        z = z + off("down", y.abs() + units.abs() @ self.down.abs().T)
        leads = z @ (self.head[RIGHT] - self.head[RIVAL])
        return leads + off("end", z.abs() @ self.head.abs().sum(0)), z

    def worst_noise(self) -> dict[str, Tensor]:
        """The noise that makes leads least, or nearly."""
        noise: dict[str, Tensor] = {}
        for _ in range(2 if self.site else 0):
            leads, _ = self.leads(noise)
            for site in noise:
                (slope,) = torch.autograd.grad(leads.sum(), noise[site])
                noise[site] = (-slope.sign()).requires_grad_()
        return {site: own.detach() for site, own in noise.items()}

    # What the bounds say.

    def place(self, first: ModuleType):
        """The toy's token and cases, as the bounds know them; the toy's own case is the first."""
        first.FUNCTION = self.function
        layer = first.AttendedLayer.__new__(first.AttendedLayer)
        ones, scale = torch.ones(self.hidden, dtype=torch.float64), "log_length" if self.site == "length" else "none"
        layer.config = SimpleNamespace(hidden_act=self.activation, norm_eps=EPS, attention_scale=scale)
        factor = torch.full((self.heads,), 1 / math.log(self.seen), dtype=torch.float64)
        layer.weights = {"model.layers.0.self_attn.log_length_factor": factor}
        layer.gamma = self._gamma()
        layer.unit = {"bias": 1, "exponent": 1, "product": 1, "activation": 1 / 24}.get(self.site, 0) * self.size
        layer.heads, layer.width, layer.scaling, layer.units = self.heads, self.width, 1.0, self.units
        layer.output, layer.inner, layer.down = self.output, self.inner, self.down
        square, (of_sum, of_input) = ones / self.hidden, self.norm_weights
        layer.residual = first.Norm(ones, None, 0.0)
        if self.placement in ("post", "both"):
            layer.residual = first.Norm(of_sum, square, EPS)
        layer.read = layer.residual
        if self.placement == "pre":
            layer.read = first.Norm(of_input, square, EPS)
        elif self.placement == "both":
            layer.read = first.Norm(of_input * of_sum, (of_sum.square() + EPS) / self.hidden, EPS**2)
        layer.norms_before_mlp = {"none": 0, "post": 1, "pre": 1, "both": 2}[self.placement]
        layer.forms = [norm.form for norm in (layer.residual, layer.read) if norm.form is not None]
        layer.norms_read = ((0, layer.residual), (int(layer.residual.form is not None), layer.read))
        layer.last_norms = [ones] * self.last_norms
        layer.head, layer.behind = self.head, self.head @ self.down
        layer.by_head = self.output.unflatten(1, (self.heads, self.width))
        tables = self._tables(first)
        held = torch.stack([self.held, self.held_elsewhere])
        cases = first.Cases(torch.zeros(2, dtype=torch.long), held, torch.full((2,), RIGHT))
        return first.QueryPlace(layer, tables, self.seen - 1, cases), cases.take(torch.tensor([0]))

    def _gamma(self) -> Callable[[float], float]:
        """What roundings cost, of the toy's site alone, by their number."""
        of_site = {
            "length": 12,
            "score": self.width + 24,
            "weight": 2 * (self.seen + 1) * 11,
            "mean": 2 * self.seen + 4,
            "sum": self.heads * self.width + 8,
            "norm": self.hidden / 2 + 35,
            "inner": self.hidden + 6,
            "down": self.units + 8,
            "end": self.last_norms * 14 + self.hidden + 8,
        }
        own = of_site.get(self.site)
        return lambda roundings: self.size if roundings == own else 0.0

    def _tables(self, first: ModuleType):
        def radius(site: str, like: Tensor) -> Tensor:
            return torch.full_like(like, self.size * (self.site == site))

        states = self.state.expand(self.seen, TOKENS, -1)
        query, key = (torch.zeros(self.seen, TOKENS, self.heads, self.width, dtype=torch.float64) for _ in "qk")
        query[..., 0], key[..., 0] = 1, self.scores.permute(1, 2, 0)
        parts = (("state", states), ("query", query), ("key", key), ("value", self.values))
        return first.Tables(*((own, radius(site, own)) for site, own in parts))

    def breaks_first_bound(self, first: ModuleType) -> bool:
        """Whether the first bound says more of a problem than is true."""
        return self.is_below(self.first_bound(*self.place(first)))

    def breaks_boxes(self, first: ModuleType, boxes: ModuleType) -> bool:
        """Whether the bound of a box says more of a problem than is true."""
        return self.is_below(self.bound_of_boxes(boxes, self.far(boxes, *self.place(first))))

    def is_below(self, bound: Tensor) -> bool:
        """Whether a problem has a lead below a bound (problems,)."""
        return bool((self.exact < bound - self.tolerance).any())

    def first_bound(self, place, case) -> Tensor:
        """(problems,) the least leads by the first bound. Where it closes a pair at once, it says that they are above 0."""
        found = place.bounds(case, nearest=False)
        rows = (found.rival == RIVAL).nonzero().squeeze(1)
        if not len(rows):
            return torch.zeros_like(self.exact)
        effects = found.effects[rows[0]].gather(1, self.tokens[:, place.open].T).sum(0)
        left = found.lead[rows] + effects - found.bent[rows] - ROUNDING_FACTOR * found.rounding[rows]
        return torch.where(found.proved[rows], left, -torch.inf)

    def far(self, boxes: ModuleType, place, case):
        boxes.MOST_COORDINATES, boxes.KEPT_SPREAD = self.coordinates, 1 - 1e-12
        return boxes.far_boxes_of(place, case)

    def bound_of_boxes(self, boxes: ModuleType, far) -> Tensor:
        """(problems,) the most that a box, that of everything or one around a problem, says of the leads in it."""
        boxes.FUNCTION = self.function
        if far is None:
            return torch.full_like(self.exact, -torch.inf)
        point = far.along[torch.arange(len(far.along)), self.tokens[:, far.query.open]].sum(1)
        whole, draw = far.whole(), Draw(self.seed)
        width = draw.uniform(0, 1) * (whole.high - whole.low)
        shift = torch.rand(point.shape, generator=draw.generator, dtype=torch.float64)
        low, high = point - shift * width - 1e-12, point + (1 - shift) * width + 1e-12
        every = boxes.Boxes(torch.cat([whole.low, low]), torch.cat([whole.high, high]))
        left = far.look(every, RIGHT, torch.tensor([RIVAL]), lambda effects: effects.amin(3).sum(2)).left[:, 0]
        inside = ((point[:, None] >= every.low) & (point[:, None] <= every.high)).all(2)  # (problems, boxes)
        return torch.where(inside, left, -torch.inf).amax(1)
