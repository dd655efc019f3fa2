"""Each term of the bounds of far tokens is needed: without it, a bound is wrong in some toy, and with it in none."""

from functools import cache
from types import ModuleType, SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from cases import drawn
from toys_of_far_tokens import BOXES, FIRST, SITES, Toy, load

from longhand.data.proofs.lengths.far_boxes import Ratios, Spread


class Term(NamedTuple):
    """A term of a bound.

    Attributes:
        module: which file has it.
        old, new: its text, and one without it, or with another sign.
        site: what the processor rounds where the term counts, one of `SITES`; None if the term is not of rounding.
        seed: a toy in which it is large.
    """

    module: str
    old: str
    new: str
    site: str | None
    seed: int


TERMS = [
    Term(FIRST, " + layer.gamma(FUNCTION + 4) * longest", "", "length", 0),
    Term(FIRST, "torch.einsum(by_pair, radius, key_size) + ", "", "query", 0),
    Term(FIRST, " + torch.einsum(by_pair, query.abs(), key[1])", "", "key", 0),
    Term(FIRST, " + layer.gamma(layer.width + 2 * FUNCTION + 8) * size", "", "score", 0),
    Term(FIRST, " + layer.unit * (score.abs() + moved)", "", "bias", 3),
    Term(FIRST, "4 * layer.unit", "0", "exponent", 2),
    Term(FIRST, " + layer.gamma(2 * (self.seen + 1) * (FUNCTION + 3))", "", "weight", 0),
    Term(FIRST, " + 1.25 * layer.gamma(2 * self.seen + 4)", "", "mean", 4),
    Term(FIRST, "value[1].amax((0, 1)) + ", "", "value", 0),
    Term(FIRST, "T + state_radius", "T", "state", 0),
    Term(FIRST, " + layer.gamma(layer.output.shape[1] + 8) * size", "", "sum", 0),
    Term(FIRST, " / (1 - share.clamp(max=0.9))", "", None, 0),
    Term(FIRST, " + (here_row.stretch * effects.abs().amax(3).sum(2)).sum(1)", "", None, 0),
    Term(FIRST, " + ((1 + here_row.stretch) * by_scores).sum(1)", "", "key", 0),
    Term(FIRST, "layer.norms_before_mlp * per_norm * u.size + TINY", "0 * u.size", "norm", 5),
    Term(FIRST, "NORMS_FACTOR * per_norm", "0", "norm", 0),
    Term(FIRST, "        reach = reach + here.rounding @ inner.abs().T\n", "", "state", 4),
    Term(FIRST, " + layer.gamma(u.exact.shape[1] + 6) * (u.size @ layer.inner.abs().T)", "", "inner", 3),
    Term(FIRST, "u_rounding @ layer.inner.abs().T + TINY", "0 * (u_rounding @ layer.inner.abs().T)", "norm", 26),
    Term(FIRST, "layer.gamma(layer.units + 8) * z_size + ", "", "down", 0),
    Term(FIRST, "y_rounding + ", "", "norm", 0),
    Term(FIRST, "ends *", "0 *", "end", 3),
    Term(FIRST, " + here.rounding\n", "\n", "state", 0),
    Term(FIRST, "computed.moved[", "0 * computed.moved[", None, 23),
    Term(FIRST, "(computed.y_reach", "0 * (computed.y_reach", None, 0),
    Term(FIRST, "computed.z_rounding[rows] @ slopes.abs().T + ", "", "down", 0),
    Term(FIRST, " + hidden.rounding[rows] @ down.abs().T", "", "activation", 3),
    Term(FIRST, "curved = (", "curved = 0 * (", None, 3),
    Term(FIRST, " + vector.scaled[row, 0] * self._reach(direct, here_row)", "", None, 6),
    Term(FIRST, "(back.abs() * here_row.rounding).sum(1)", "0", "state", 0),
    Term(FIRST, "2 * torch.minimum(toward, far) + ", "", None, 6),
    Term(FIRST, "3 * FUNCTION * layer.unit * (p.abs() + p_radius)", "0 * p", "activation", 3),
    Term(FIRST, "half_curvature(p.abs() - p_radius, layer.config.hidden_act)", "0", None, 3),
    Term(FIRST, " + slopes.abs() * rounding[:, :units]", "", "inner", 3),
    Term(FIRST, "g.abs() * rounded + ", "", "inner", 26),
    Term(FIRST, " + exact.abs() * rounding[:, units:]", "", "inner", 4),
    Term(FIRST, " + layer.unit * size", "", "product", 4),
    Term(FIRST, "bent * g.abs() + ", "", None, 73),
    Term(FIRST, " + moved * g_radius", "", None, 23),
    Term(FIRST, " + far_along", "", None, 112),
    Term(FIRST, "(((1 + here.stretch)", "((1", None, 39),
    Term(FIRST, "(1 + here.stretch) / here.below ", "0 ", "key", 15),
    Term(FIRST, "= whole", "= 0 * whole", "key", 33),
    Term(FIRST, "by_scores = by_scores + held[here.query_token, :, place, here.held[:, place]]", "pass", "key", 49),
    Term(FIRST, "found.abs().amax(3).sum(2) + ", "", "key", 57),
    Term(FIRST, "effects.abs().amax(3).sum(2) + ", "", None, 6),
    Term(FIRST, "((1 + here.stretch) * far)", "far", None, 109),
    Term(BOXES, "half @ self.share_axes.abs() + ", "", None, 0),
    Term(BOXES, 'torch.einsum("bi,bik->bk", half, by_unit.abs()) + ', "", None, 3),
    Term(BOXES, "NORMS_FACTOR * layer.norms_before_mlp * per_norm * u_size + TINY", "0 * u_size", "norm", 5),
    Term(BOXES, "NORMS_FACTOR * per_norm", "0", "norm", 0),
    Term(BOXES, " + layer.gamma(u.exact.shape[1] + 6) * (read.size @ absolute)", "", "inner", 3),
    Term(BOXES, " - u.along.unsqueeze(2) * sums.unsqueeze(1)", "", None, 43),
    Term(BOXES, "= reach.units / u.root + ", "= ", None, 3),
    Term(BOXES, "(u.along_reach + u.curved)", "u.curved", None, 120),
    Term(BOXES, "on_axes + ", "", None, 3),
    Term(BOXES, "3 * FUNCTION * layer.unit", "0", "activation", 3),
    Term(BOXES, "g.abs() * off + ", "", None, 15),
    Term(BOXES, "(g.abs() + g_reach) * activation_rounding + ", "", "activation", 15),
    Term(BOXES, " + layer.unit * hidden_size", "", "product", 4),
    Term(BOXES, "(found.derivatives", "0 * (found.derivatives", "inner", 3),
    Term(BOXES, "flat], 1)", "0 * flat], 1)", None, 15),
    Term(BOXES, "slope * g, flat", "0 * slope * g, flat", None, 15),
    Term(BOXES, "= p_axes", "= 0 * p_axes", None, 3),
    Term(BOXES, "alone = found.bend.abs()", "alone = 0", None, 3),
    Term(BOXES, " + (mixed + mixed.transpose(2, 3)) / 2", "", None, 15),
    Term(BOXES, " + rise.abs() * p_reach * g_reach", "", None, 23),
    Term(BOXES, "(per_unit + found.off)", "per_unit", None, 15),
    Term(BOXES, "direct - (slopes", "direct - 0 * (slopes", None, 5),
    Term(BOXES, "1.5 * vector.along.unsqueeze(2) * vector.along.unsqueeze(1) - ", "-", None, 77),
    Term(BOXES, " - vector.gram / 2", "", None, 43),
    Term(BOXES, " - (crossed + crossed.transpose(2, 3)) / 2", "", None, 6),
    Term(BOXES, "toward[", "0 * toward[", None, 77),
    Term(BOXES, "along_on * rest + ", "", None, 109),
    Term(BOXES, " + along_rest * (on_all + rest)", "", None, 109),
    Term(BOXES, "        beyond = beyond + vector.curved * (on_all + rest)\n", "", None, 11),
    Term(BOXES, "toward * vector.grown", "0 * toward", None, 34),
    Term(BOXES, "toward * vector.grown", "(toward * vector.grown).abs()", None, 5),
    Term(BOXES, "toward.abs() * vector.curved + ", "", None, 76),
    Term(BOXES, " + vector.scaled * (on_all + rest)", "", None, 6),
    Term(BOXES, " - grown", "", None, 34),
    Term(BOXES, "grown, alone)", "grown, 0 * alone)", None, 3),
    Term(BOXES, " + layer.gamma(layer.units + 8) * z.size + TINY", "", "down", 0),
    Term(
        BOXES,
        "y.rounding + layer.gamma(layer.units + 8) * z.size + TINY",
        "layer.gamma(layer.units + 8) * z.size",
        "norm",
        0,
    ),
    Term(BOXES, " + units.size @ self.layer.down.abs().T", "", "down", 9),
    Term(BOXES, "y.size + ", "", "down", 0),
    Term(BOXES, "z_rounding @ ends.head.abs().T + ", "", "down", 0),
    Term(BOXES, " + units.rounding @ ends.by_unit.abs().T", "", "activation", 3),
    Term(BOXES, " + self._rounding(back.slopes)", "", "state", 0),
    Term(BOXES, "taken - centre", "taken", None, 0),
    Term(BOXES, " - (multiplier.abs() * half.unsqueeze(1)).sum(2)", "", None, 0),
    Term(BOXES, "factors - ", "", None, 0),
    Term(BOXES, " + (slopes.abs() * self.here.rounding[0]).sum(2)", "", "state", 0),
    Term(BOXES, "by_scores + ", "", "key", 0),
    Term(BOXES, " + length_rest", "", None, 109),
    Term(BOXES, " length + ", " ", None, 6),
    Term(BOXES, "(square + far.square() / 2)", "square", None, 12),
    Term(BOXES, " + along_rest,", ",", None, 109),
    Term(BOXES, "(along.abs() * half).sum(1, keepdim=True) + ", "", None, 6),
    Term(BOXES, "2 * along_reach + ", "", None, 6),
    Term(BOXES, " + grown / 2", "", None, 76),
    Term(BOXES, "off=ends * (1 + MARGIN) - root + off", "off=off", None, 0),
    Term(BOXES, "(diagonal - others).clamp(max=0)", "diagonal.clamp(max=0)", None, 1),
    Term(BOXES, "vectors.abs().sum(-2).square()", "vectors.square().sum(-2)", None, 1),
    Term(BOXES, "beyond - least_of_form(form, wide.unsqueeze(1))", "-least_of_form(form, wide.unsqueeze(1))", None, 7),
    Term(BOXES, "beyond - least_of_form(form, wide.unsqueeze(1))", "beyond", None, 0),
    Term(BOXES, "rounding + of_ends * ", "rounding + 0 * ", "end", 0),
    Term(BOXES, "(back.of_head.abs() + of_axes + rest)", "(back.of_head.abs() + rest)", None, 0),
    Term(BOXES, "(back.of_head.abs() + of_axes + rest)", "(of_axes + rest)", None, 22),
    Term(BOXES, " + self.rest_of_share * of_axes", "", None, 16),
    Term(BOXES, "ratios.middle.abs().unsqueeze(1) * back.rest + ", "", None, 5),
    Term(BOXES, "by_limits = (back.along.abs()", "by_limits = 0 * (back.along.abs()", None, 0),
    Term(
        BOXES,
        'effects - torch.einsum("brh,hjd->brjd", steering',
        'effects + torch.einsum("brh,hjd->brjd", steering',
        None,
        0,
    ),
    Term(BOXES, " - at_middle", "", None, 4),
    Term(BOXES, "form = -pad((crossed", "form = pad((crossed", None, 0),
    Term(BOXES, "wide = spread.ratios.slope", "wide = 0 * spread.ratios.slope", None, 0),
    Term(BOXES, " - steered @ by_head", "", None, 39),
    Term(BOXES, "curved = bent + grown / 2", "curved = grown / 2", None, 11),
    Term(BOXES, "ratios.off.unsqueeze(1) * (back.of_head.abs() + ", "ratios.off.unsqueeze(1) * (", None, 22),
    Term(BOXES, "wide * (of_axes + rest)", "wide * rest", None, 109),
    Term(BOXES, " + unit_rest", "", None, 190),
    Term(BOXES, "reach.unit_rest / u.root + ", "", None, 190),
    Term(BOXES, "reach=torch.minimum(on_axes + apart", "reach=torch.minimum(on_axes", None, 190),
    Term(BOXES, "(per_unit + found.off)", "found.off", None, 190),
    Term(BOXES, "middle.abs() * rest + off", "off", None, 207),
    Term(BOXES, "p_on * g_apart + ", "", None, 429),
    Term(BOXES, "p_apart * g_on + ", "", None, 429),
]


@cache
def whole() -> tuple[ModuleType, ModuleType]:
    """The bounds with all their terms."""
    return load()


def is_broken(module: str, modules: tuple[ModuleType, ModuleType], toy: Toy) -> bool:
    """Whether the bound of a module says too much of a problem of a toy."""
    with torch.no_grad():
        return toy.breaks_first_bound(modules[0]) if module == FIRST else toy.breaks_boxes(*modules)


@pytest.mark.parametrize("seed", range(40))
def test_bounds_hold_in_toys(seed):
    toy = Toy(1000 + seed, (None, *SITES)[seed % (1 + len(SITES))])
    assert not is_broken(FIRST, whole(), toy) and not is_broken(BOXES, whole(), toy)


@pytest.mark.parametrize("term", drawn(TERMS, 40), ids=lambda term: f"{term.module}, {term.old.strip()}, {term.site}")
def test_a_bound_without_one_of_its_terms_is_wrong(term):
    lacking = load(term.module, term.old, term.new)
    for seed in (term.seed, *range(10)):
        toy = Toy(seed, term.site)
        assert not is_broken(term.module, whole(), toy)
        if is_broken(term.module, lacking, toy):
            return
    pytest.fail("no toy needs this term")


# Norms are of third order in what moves them: toys, whose other terms are larger, say little of their remainders.

REMAINDERS = [
    ("", ""),
    ("1.5 * along_reach * grown + 0.375", "0.375"),
    ("0.375 * grown.square() + beyond", "beyond"),
    ("0.375 * grown.square() + beyond", "0.375 * grown.square()"),
    ("2 * along_reach + grown", "2 * along_reach"),
    ("2 * along_reach + grown", "grown"),
    ("curved = bent + grown / 2", "curved = bent"),
    ("curved = bent + grown / 2", "curved = grown / 2"),
]


@pytest.mark.parametrize("old, new", REMAINDERS)
def test_remainders_of_a_norm_in_a_box_are_bounds_and_no_term_is_idle(old, new):
    """Lemma 19, where a moves along itself by one coordinate and across by another one."""
    boxes = load(BOXES if old else "", old, new)[1]
    sizes = torch.logspace(-3, -0.6, 40, dtype=torch.float64)
    along, across = (part.flatten() for part in torch.meshgrid(sizes, sizes, indexing="ij"))
    half = torch.stack([along, across], 1)
    a = torch.tensor([1.0, 0.0], dtype=torch.float64).expand(len(half), -1)
    norm = SimpleNamespace(weight=torch.ones(2, dtype=torch.float64), form=torch.ones(2, dtype=torch.float64), constant=0.0)
    none = torch.zeros(len(half), 1, dtype=torch.float64)
    far = boxes.FarBoxes.__new__(boxes.FarBoxes)
    far.axes, far.rest = torch.eye(2, dtype=torch.float64).unsqueeze(1), torch.zeros(1, 1, 1, 2, dtype=torch.float64)
    far.score_rounding, far.here = torch.zeros(1, 2, dtype=torch.float64), SimpleNamespace(rounding=torch.zeros(1, 2))
    axes = far.axes.squeeze(1).expand(len(half), -1, -1)
    by_head = torch.zeros(len(half), 1, 2, dtype=torch.float64)
    every, no_head = none + 1, torch.zeros(1, dtype=torch.float64)
    ratios = Ratios(every, none, none, none, no_head, every, every, every.squeeze(1) > 0)
    nothing = torch.zeros_like(half)
    spread = Spread(middle=nothing, half=half, ratios=ratios, steered=nothing.unsqueeze(2), axes=axes, by_head=by_head, a=a)
    vector = far._norm(norm, torch.zeros((), dtype=torch.float64), spread)
    broken = False
    for corner in torch.cartesian_prod(*[torch.linspace(-1, 1, 5, dtype=torch.float64)] * 2):
        moved = half * corner
        square = (a + moved).square().sum(1, keepdim=True)
        kappa = vector.root / square.sqrt() - 1
        beta = (vector.slope * moved).sum(1, keepdim=True)
        second = 1.5 * beta.square() - moved.square().sum(1, keepdim=True) / (2 * vector.root.square())
        off = (kappa + beta - second - vector.grown).abs() - vector.third
        off = torch.maximum(off, (kappa + beta).abs() - vector.curved)
        off = torch.maximum(off, kappa.abs() - vector.scaled)
        broken |= bool((off[vector.holds] > 1e-13).any())
    assert broken == bool(old)


@pytest.mark.parametrize("old, new", [
    ("", ""),
    ("2 * torch.minimum(toward, far) + far.square()", "2 * torch.minimum(toward, far)"),
    ("2 * torch.minimum(toward, far) + far.square()", "far.square()"),
    ("bent + far.square() / 2", "far.square() / 2"),
    ("bent + far.square() / 2", "bent"),
    ("return largest - 1, ", "return change / 2, "),
    ("(exact.abs() + reach / root) * (1 + scaled)", "exact.abs() * (1 + scaled)"),
    ("(exact.abs() + reach / root) * (1 + scaled)", "(exact.abs() + reach / root)"),
])  # fmt: skip
def test_remainders_of_a_norm_are_bounds_and_no_term_is_idle(old, new):
    """Lemma 16, where a moves by so much along itself and so much across."""
    first = load(FIRST if old else "", old, new)[0]
    sizes = torch.cat([-torch.logspace(-0.8, -3, 40), torch.logspace(-3, -0.8, 40)]).double()
    moved = torch.cartesian_prod(sizes, sizes)
    length, along = moved.norm(dim=1, keepdim=True), moved[:, :1].abs()
    place = SimpleNamespace(
        along=lambda here: torch.zeros(len(moved), 1, 2, dtype=torch.float64),
        reach_by_tables=lambda tables, along, here: length if along.shape[-1] == 1 else moved.abs(),
        components=None,
        lengths=(length,),
        _reach=lambda slopes, here: along.squeeze(1),
    )
    ones = torch.ones(2, dtype=torch.float64)
    a = torch.tensor([1.0, 0.0], dtype=torch.float64).expand(len(moved), -1)
    here = SimpleNamespace(rounding=torch.zeros_like(moved))
    vector, holds = first.QueryPlace._norm(place, first.Norm(ones, ones, 0.0), a, here, 0)
    root = (a + moved).norm(dim=1, keepdim=True)
    by_root, beta = 1 / root - 1, moved[:, :1]
    off = torch.cat([(by_root + beta).abs() - vector.radial, by_root.abs() - vector.scaled], 1)
    off = torch.cat([off, ((a + moved) / root).abs() - vector.size], 1)
    assert bool((off[holds] > 1e-13).any()) == bool(old)


@pytest.mark.parametrize("old, new", [
    ("step.square() / 8 * (bend + CURVATURE)", "0 * step"),
    ("step / 4 * (reach > x.abs()) + ", ""),
    ("(highest - lowest) / 2 + between", "between"),
    ("coefficients[0] + (highest + lowest) / 2", "coefficients[0] + (highest + lowest)"),
])  # fmt: skip
def test_a_polynomial_without_a_part_of_its_error_is_off_by_more(old, new):
    boxes, broken = load(BOXES, old, new)[1], False
    generator = torch.Generator().manual_seed(0)
    x, reach = 2 * torch.randn(500, generator=generator).double(), torch.logspace(-2, 1, 500).double()
    step = reach.unsqueeze(1) * torch.linspace(-1, 1, 333, dtype=torch.float64)
    for activation, value in boxes.VALUES.items():
        for coefficients, off in boxes.fit(x, reach, activation):
            near = sum(factor.unsqueeze(1) * step**power for power, factor in enumerate(coefficients))
            broken |= bool(((value(x.unsqueeze(1) + step) - near).abs() > off.unsqueeze(1) + 1e-12).any())
    assert broken
