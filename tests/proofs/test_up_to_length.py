"""Proofs up to a length: the bounds hold in problems, constructions are proved, and nothing that is wrong is."""

import ast
import hashlib
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from cases import in_turn
from far_subjects import KINDS, RECIPE, small_model

from longhand.data import build_task, proofs
from longhand.data.proofs import CannotCertify, LengthProver
from longhand.data.proofs.lengths import far_boxes, up_to_length
from longhand.data.proofs.lengths.attention_error import changes_of_inverse_root
from longhand.data.proofs.lengths.far_boxes import VALUES, Boxes, extreme_sums, far_boxes_of, fit, least_of_form
from longhand.data.proofs.lengths.up_to_length import Column
from longhand.hub_cards.checkpoints.certificate_kinds import read_stated
from longhand.hub_cards.checkpoints.load import list_zoo, load_checkpoint, zoo
from longhand.hub_cards.research.theories.constructions import construct_addition
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.modeling.vocabulary import EQUALS

ORDERS = ("response_reversed", "all_reversed")


def texts_of(task, length):
    """The text of every problem of one length as tokens, (count, tokens)."""
    every = np.unravel_index(np.arange(10 ** (2 * length)), (10,) * (2 * length))
    each = np.stack(every, axis=1).astype(np.uint8).reshape(-1, 2, length)
    each = each[(each[:, :, -1] > 0).any(1)] if length > 1 else each
    return torch.from_numpy(task.format(each, np.full((len(each), 2), length)).tokens.astype(np.int64))


def wrong_of(model, task, length):
    """How many problems of one length are answered wrongly.

    An answer is right if each of its tokens is, where those before it are right.
    """
    texts = texts_of(task, length)
    response = int((texts[0] == EQUALS).int().argmax())
    wrong = 0
    with torch.inference_mode():
        for some in texts.split(5000):
            said = model(some, use_cache=False, logits_to_keep=texts.shape[1] - response).logits[:, :-1].argmax(-1)
            wrong += int((said != some[:, response + 1 :]).any(1).sum())
    return wrong


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("name, options", [("addition", {"order": order}) for order in ORDERS] + [("subtraction", {})])
def test_runs_spell_the_texts_of_a_task(name, options, ordered):
    task = build_task(name, **options)
    runs = task.text_runs(ordered)
    digits = np.random.default_rng(0).integers(0, 10, (500, 2, 3)).astype(np.uint8)
    digits = digits[(digits[:, :, -1] > 0).any(1)]
    digits = np.sort(digits, axis=1) if not ordered and name == "addition" else digits
    if name == "subtraction":
        value = digits.astype(int) @ [1, 10, 100]
        digits = np.where((value[:, 0] < value[:, 1])[:, None, None], digits[:, ::-1], digits)
    texts = task.format(digits, np.full((len(digits), 2), 3)).tokens
    columns = texts.shape[1] - 2 * 4 - 2
    layers = runs.layers(3, columns)
    for text in texts:
        vertices = {0}
        for column, edges in enumerate(layers, -1):
            fits = np.ones(len(edges), dtype=bool)
            for word in (*runs.operands, runs.response):
                if 0 <= column < (columns if word == runs.response else 3):
                    fits &= runs.graph.labels[edges, word] == text[runs.place(word, column, 3)]
            fits &= np.isin(runs.graph.source[edges], [*vertices])
            vertices = set(runs.graph.target[edges[fits]].tolist())
        assert vertices == {runs.graph.end}


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_hold_in_problems(kind):
    model, task = small_model(**KINDS[kind])
    model = model.double()
    prover = LengthProver(model, task)
    generator = torch.Generator().manual_seed(0)
    for length, at in ((3, -1), (4, 1), (4, 4)):
        runs = task.text_runs(ordered=True)
        layout = prover.layout(runs, length)
        column = Column(prover, runs, layout, prover.layer.tables(layout.tokens, layout.ids), at, float("inf"))
        digits = torch.randint(0, 10, (30, 2, length), generator=generator).numpy().astype(np.uint8)
        digits[:, 0, -1] = np.maximum(digits[:, 0, -1], 1)
        texts = torch.from_numpy(task.format(digits, np.full((30, 2), length)).tokens.astype(np.int64))
        held = torch.from_numpy(layout.choice)[torch.arange(texts.shape[1] - 1), texts[:, :-1]][:, : column.place + 1]
        held = torch.where(held < 0, 0, held)
        place = {tuple(row): number for number, row in enumerate(column.cases.held[:, column.query.always].tolist())}
        cases = column.cases.take(torch.tensor([place[tuple(row)] for row in held[:, column.query.always].tolist()]))
        with torch.inference_mode():
            found = column.query.bounds(cases, nearest=False)
            seen = []
            last = model.model.layers[0].mlp_norms.sum
            handle = last.register_forward_pre_hook(lambda module, inputs, seen=seen: seen.append(inputs[0]))
            model(texts, use_cache=False)
            handle.remove()
        z = seen[0][:, column.place]
        logits = z @ prover.layer.head.T
        assert len(found.case) and found.proved.any()
        lead = logits[found.case, cases.right[found.case]] - logits[found.case, found.rival]
        chosen = held[:, column.query.open][found.case]
        effects = found.effects.gather(2, chosen.unsqueeze(2)).sum((1, 2))
        assert ((lead - found.lead - effects).abs() <= found.bent + found.rounding + 1e-9)[found.proved].all()
        assert (found.effects.amin(2).sum(1) <= effects + 1e-9).all()
        # A first look has closed all other pairs.
        closed = logits.gather(1, cases.right.unsqueeze(1)) - logits > 0
        closed[torch.arange(len(closed)), cases.right] = True
        closed[found.case, found.rival] = True
        assert closed.all()


class Leads:
    """The leads of one token of the response over all others, before the last norms, in problems of one case."""

    def __init__(self, prover, task, column, length, generator):
        self.prover, self.task, self.column, self.length, self.generator = prover, task, column, length, generator
        near = [place for place in range(column.column - 1, column.column + 2) if 0 <= place < length]
        self.far = [place for place in range(length) if place not in near] or near
        digits = torch.randint(0, 10, (400, 2, length), generator=generator)
        # In half of the problems the far digits of an operand are all alike, at the extremes of what they do together.
        digits[::2] = torch.where(torch.arange(length) >= 0, digits[::2, :, :1], digits[::2])
        digits[:, :, near] = digits[1, :, near].clone()
        self.always = column.query.always
        self.first = self.held(digits.clamp(min=1))[0, self.always]
        self.digits, self.texts, self.chosen = self.of_case(digits)

    def held(self, digits):
        texts = self.spell(digits)
        choice = torch.from_numpy(self.column.layout.choice)
        held = choice[torch.arange(texts.shape[1] - 1), texts[:, :-1]][:, : self.column.place + 1]
        return torch.where(held < 0, 0, held)

    def spell(self, digits):
        tokens = self.task.format(digits.numpy().astype(np.uint8), np.full((len(digits), 2), self.length)).tokens
        return torch.from_numpy(tokens.astype(np.int64))

    def of_case(self, digits):
        """Those problems that have the case, their texts, and what they hold at seen places."""
        digits = digits.clone()
        digits[:, 0, -1] = digits[:, 0, -1].clamp(min=1)
        held = self.held(digits)
        alike = (held[:, self.always] == self.first).all(1)
        return digits[alike], self.spell(digits[alike]), held[alike]

    def ask(self, right, rivals):
        seen = []
        last = self.prover.model.model.layers[0].mlp_norms.sum
        handle = last.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
        self.prover.model(self.texts, use_cache=False)
        handle.remove()
        logits = seen[0][:, self.column.place] @ self.prover.layer.head.T
        return logits[:, right : right + 1] - logits[:, rivals]

    def lower(self, right, rivals):
        """Change digits where that makes leads less, so that problems are among the worst."""
        for _ in range(4):
            lead = self.ask(right, rivals)
            kept = self.digits[torch.cat([lead.argmin(0), lead.argsort(dim=0)[:5].flatten()]).unique()]
            changed = kept.repeat(5, 1, 1)
            rows = torch.arange(len(changed))
            word = torch.randint(0, 2, (len(rows),), generator=self.generator)
            place = torch.tensor(self.far)[torch.randint(0, len(self.far), (len(rows),), generator=self.generator)]
            changed[rows, word, place] = torch.randint(0, 10, (len(rows),), generator=self.generator)
            self.digits, self.texts, self.chosen = self.of_case(torch.cat([kept, changed, self.digits[:100]]))


@pytest.mark.parametrize(("kind", "curved"), in_turn(KINDS, [1.0, 4.0]))
def test_bounds_of_boxes_hold_in_the_worst_problems(kind, curved, monkeypatch):
    # Coordinates that leave nothing over, and few hidden units, of which little cancels: a part that is missing is seen.
    monkeypatch.setattr(far_boxes, "MOST_COORDINATES", 60)
    monkeypatch.setattr(far_boxes, "KEPT_SPREAD", 1 - 1e-12)
    model, task = small_model(size=0.3 / curved, **{**KINDS[kind], "intermediate_size": 2})
    with torch.no_grad():
        for name, weight in model.model.layers[0].mlp.named_parameters():
            weight *= 1 if name.startswith("down") else curved
        if curved > 1:
            # Attention that is alike for all tokens: then sums of weights are known, and the rest has little to hide behind.
            attention = model.model.layers[0].self_attn
            (attention.qk_norm if model.config.qk_norm else attention.q_proj.weight).zero_()
    model = model.double()
    prover, length = LengthProver(model, task), 5
    generator = torch.Generator().manual_seed(0)
    runs = task.text_runs(ordered=True)
    layout = prover.layout(runs, length)
    tables, bounded = prover.layer.tables(layout.tokens, layout.ids), 0
    for at in (1, 5):
        column = Column(prover, runs, layout, tables, at, float("inf"))
        with torch.inference_mode():
            leads = Leads(prover, task, column, length, generator)
            case = column.cases.take((column.cases.held[:, leads.always] == leads.first).all(1).nonzero()[:1, 0])
            right = int(case.right[0])
            rivals = torch.tensor([token for token in range(len(task.tokens)) if token != right])
            leads.lower(right, rivals)
            lead = leads.ask(right, rivals)
            far = far_boxes_of(column.query, case)
            places = torch.arange(len(column.query.open))
            point = far.along[places, leads.chosen[:, column.query.open]].sum(1)
            whole = far.whole()
            for part in (0.0, 0.02, 0.1, 0.3, 2.0):
                # Boxes in which problems stand anywhere, the last ones with all problems.
                width = part * (whole.high - whole.low)
                shift = torch.rand(point[:16].shape, generator=generator, dtype=point.dtype)
                boxes = Boxes(point[:16] - shift * width - 1e-9, point[:16] + (1 - shift) * width + 1e-9)
                found = far.look(boxes, right, rivals, lambda effects: effects.amin(3).sum(2))
                inside = (point.unsqueeze(1) >= boxes.low) & (point.unsqueeze(1) <= boxes.high)
                problem, box = inside.all(2).nonzero(as_tuple=True)
                assert len(box.unique()) == len(boxes.low)
                assert far.occurs(boxes).all()
                assert (lead[problem] >= found.left[box] - 1e-9).all()
                # What is left is made of parts: a problem's own first and second order, and the rest.
                own = point[problem] - (boxes.low + boxes.high)[box] / 2
                form = found.form[box]
                second = torch.einsum("pi,prim,pm->pr", own, form[:, :, :-1, :-1], own)
                unknown = 2 * torch.einsum("prm,pm->pr", form[:, :, -1].abs(), found.wide[box]) * found.wide[box, -1:]
                chosen = leads.chosen[:, column.query.open][problem]
                first = found.effects[box].gather(3, chosen[:, None, :, None].expand(-1, len(rivals), -1, 1)).sum((2, 3))
                apart = (lead[problem] - found.lead[box] - first - second).abs()
                proved = found.left[box].isfinite()
                assert (apart <= found.beyond[box] + unknown + 1e-9)[proved].all()
                bounded += int(proved.sum())
            boxes = whole
            for _ in range(4):
                inside = (point.unsqueeze(1) >= boxes.low - 1e-9) & (point.unsqueeze(1) <= boxes.high + 1e-9)
                assert inside.all(2).any(1).all()
                boxes = boxes.halves(torch.randint(0, point.shape[1], (len(boxes.low),), generator=generator))
    assert bounded


def sharp_column(at):
    """A column of a model, untrained and wrong, whose attention is nearly all at few tokens."""
    model, task = small_model(seed=3, **RECIPE)
    with torch.no_grad():
        model.model.layers[0].self_attn.qk_norm.fill_(300.0)
    prover = LengthProver(model, task)
    runs = task.text_runs(ordered=True)
    layout = prover.layout(runs, 5)
    return Column(prover, runs, layout, prover.layer.tables(layout.tokens, layout.ids), at, float("inf"))


def test_boxes_close_no_case_of_sharp_attention_whose_problems_are_answered_wrongly():
    column = sharp_column(1)
    for row in (0, 6000, 12000):
        assert column._look_at_case(column.cases.take(torch.tensor([row])), 20).open


@pytest.mark.parametrize("at", [-1, 1, 5])
def test_sums_of_weights_keep_their_digits_where_attention_is_sharp(at):
    column = sharp_column(at)
    query, cases = column.query, column.cases.take(torch.arange(0, len(column.cases.query_token), 7))
    weights = query.weight[cases.query_token].transpose(1, 2)  # (cases, seen, heads, tokens)
    chosen = weights.gather(3, cases.held.clamp(min=0)[:, :, None, None].expand(-1, -1, weights.shape[2], 1)).squeeze(3)
    is_open = (cases.held < 0).unsqueeze(2)
    here, *_ = query.start(cases)
    torch.testing.assert_close(here.below, torch.where(is_open, weights.mean(3), chosen).sum(1), rtol=1e-12, atol=0)
    for row in range(0, len(cases.query_token), 1 + len(cases.query_token) // 20):
        one = cases.take(torch.tensor([row]))
        found, _ = extreme_sums(query, one, query.start(one)[0])
        least = torch.where(is_open[row], weights[row].amin(2), chosen[row]).sum(0) / here.below[row]
        torch.testing.assert_close(found, least, rtol=1e-9, atol=0)
        assert ((found > 0) & (found <= least)).all()


@pytest.mark.parametrize("activation", VALUES)
def test_activations_are_close_to_their_polynomials(activation):
    generator = torch.Generator().manual_seed(0)
    x = 4 * torch.randn(2000, generator=generator, dtype=torch.float64)
    reach = 10 ** (3 * torch.rand(2000, generator=generator, dtype=torch.float64) - 2)
    step = reach.unsqueeze(1) * torch.linspace(-1, 1, 999, dtype=torch.float64)
    value = VALUES[activation](x.unsqueeze(1) + step)
    for coefficients, off in fit(x, reach, activation):
        near = sum(factor.unsqueeze(1) * step**power for power, factor in enumerate(coefficients))
        assert ((value - near).abs() <= off.unsqueeze(1) + 1e-12).all()
        assert (off <= reach).all()


def test_a_form_is_nowhere_in_a_box_less_than_its_bound():
    generator = torch.Generator().manual_seed(0)
    form = torch.randn(400, 5, 5, generator=generator, dtype=torch.float64)
    # Some forms bend up in all directions, some in all directions but few, some in none.
    form = form + form.mT + 2 * torch.linspace(-3, 8, 400, dtype=torch.float64)[:, None, None] * torch.eye(5)
    wide = torch.rand(400, 5, generator=generator, dtype=torch.float64)
    points = 2 * torch.rand(2000, 400, 5, generator=generator, dtype=torch.float64) - 1
    points[::2] = points[::2].sign()
    value = torch.einsum("pfi,fim,pfm->pf", points * wide, form, points * wide).amin(0).clamp(max=0)
    bound = least_of_form(form, wide)
    assert (bound <= value + 1e-12).all()
    assert (bound[-50:] > -1e-9).all() and (bound > 3 * value - 1e-9).float().mean() > 0.9
    form[0, 1, 2], form[1, 3, 3] = torch.inf, torch.nan
    damaged = least_of_form(form, wide)
    assert (damaged[:2] == -torch.inf).all() and torch.equal(damaged[2:], bound[2:])


def test_inverse_roots_are_as_far_from_their_first_terms_as_is_said():
    change = 10.0 ** torch.linspace(-9, -0.05, 200, dtype=torch.float64)
    z = change.unsqueeze(1) * torch.linspace(-1, 1, 101, dtype=torch.float64)
    powers = (torch.ones_like(z), -z / 2, 0.375 * z.square())
    left = (1 + z) ** -0.5
    for bound, term in zip(changes_of_inverse_root(change), powers, strict=True):
        left = left - term
        assert (left.abs() <= bound.unsqueeze(1)).all()
        # At the lower end, beyond what rounding needs, nothing is given away.
        large = change > 0.01
        assert (left[large, 0] >= bound[large] - 1e-9).all()


@pytest.mark.parametrize("kind", ["recipe", "no positions"])
def test_factors_of_heads_follow_their_sums_of_weights_in_boxes(kind):
    model, task = small_model(**KINDS[kind])
    prover = LengthProver(model.double(), task)
    runs = task.text_runs(ordered=True)
    layout = prover.layout(runs, 4)
    column = Column(prover, runs, layout, prover.layer.tables(layout.tokens, layout.ids), 4, float("inf"))
    far = far_boxes_of(column.query, column.cases.take(torch.tensor([0])))
    generator = torch.Generator().manual_seed(0)
    chosen = torch.randint(0, 10, (200, len(far.along)), generator=generator)
    places = torch.arange(len(far.along))
    point, shares = far.along[places, chosen].sum(1), far.share[:, places, chosen].sum(2).T
    whole = far.whole()
    for part in (0.01, 0.1, 0.5):
        half = part * (whole.high - whole.low) * torch.rand(point.shape, generator=generator, dtype=point.dtype)
        middle = point + half * (2 * torch.rand(point.shape, generator=generator, dtype=point.dtype) - 1)
        ratios = far._ratios(middle, half)
        apart = shares - middle @ far.share_axes
        factor = ratios.middle - ratios.slope * apart
        assert ratios.occurs.all() and (apart.abs() <= ratios.wide + 1e-12).all()
        for error in (-far.here.off[0], 0, far.here.off[0]):
            exact = 1 / ((1 + shares) * (1 + error))
            assert ((exact - factor).abs() <= ratios.off + 1e-12).all()
            assert ((exact - 1.1).abs() <= ratios.farthest(torch.full_like(exact[0], 1.1)) + 1e-12).all()


def test_a_wrong_problem_is_asked_again_at_longer_lengths_with_one_column_repeated():
    model, task = small_model(**{**RECIPE, "max_position_ids": 20})
    prover = LengthProver(model, task)
    first = prover.verdict(3)
    known = prover.wrong_runs
    for length in (4, 8):
        found = prover.verdict(length)
        assert found.verdict == "refuted" and not found.cases
        a, b = (int(number) for number in found.problem.removesuffix("=").split("+"))
        assert len(str(max(a, b))) == length and int(found.right.removesuffix("$")[::-1]) == a + b
        assert found.answer != found.right
    assert first.cases and known.shape == (1, 6)
    # A shorter length begins anew.
    assert prover.verdict(2).cases


@pytest.mark.parametrize(("length", "column", "more"), [(2, 1, 1), (2, 2, 2), (3, 2, 1), (3, 3, 2)])
def test_split_cases_are_complete(length, column, more):
    model, task = small_model(**RECIPE)
    runs = task.text_runs(ordered=True)
    layout = LengthProver(model, task).layout(runs, length)
    assert up_to_length.further_columns(runs, layout, column) in (0, more)
    cases = up_to_length.list_cases(runs, layout, column, more)
    always = (cases.held >= 0).all(0)
    known = {(*held, right) for held, right in zip(cases.held[:, always].tolist(), cases.right.tolist(), strict=True)}
    texts = texts_of(task, 3)[::97] if length == 3 else texts_of(task, length)
    held = torch.from_numpy(layout.choice)[torch.arange(texts.shape[1] - 1), texts[:, :-1]]
    place = layout.response + 1 + column
    held = held[:, : place + 1].where(held[:, : place + 1] >= 0, 0)[:, always]
    seen = {(*own, right) for own, right in zip(held.tolist(), texts[:, place + 1].tolist(), strict=True)}
    assert seen <= known
    # All problems of a length have no other cases.
    assert length == 3 or seen == known


def test_what_has_no_time_stays_open():
    found = LengthProver(construct_addition(bits=2), build_task("addition")).verdict(2, budget=1e-9)
    assert found.verdict == "open" and found.open == found.cases and found.budget == 1e-9


def test_the_construction_of_theorem_5_1_is_proved_at_all_its_lengths():
    prover = LengthProver(construct_addition(bits=2), build_task("addition"))
    assert [prover.verdict(length).verdict for length in (1, 2)] == ["proved", "proved"]
    with pytest.raises(ValueError, match="position ids"):
        prover.verdict(3)
    assert LengthProver(construct_addition(bits=3), build_task("addition")).verdict(6).verdict == "proved"


def mutant(task, generator):
    """A proved model with weights so changed that at least one sum of one digit is wrong, and little more than that.

    All weights change, or one alone; about half as large a change leaves all sums right.
    """
    while True:
        model = construct_addition(2)
        assert not wrong_of(model, task, 1)
        weights = [weight for weight in model.parameters() if weight.any()]
        moves = [torch.randn(weight.shape, generator=generator) * weight.abs() for weight in weights]
        if torch.rand((), generator=generator) < 0.5:
            chosen = int(torch.randint(len(weights), (), generator=generator))
            at = int(torch.randint(moves[chosen].numel(), (), generator=generator))
            lone = torch.zeros(moves[chosen].numel())
            lone[at] = torch.randn((), generator=generator) * weights[chosen].abs().max()
            weights, moves = [weights[chosen]], [lone.view_as(moves[chosen])]
        size = 1e-3
        while size < 1e3:
            with torch.no_grad():
                torch._foreach_add_(weights, moves, alpha=size)
            if wrong_of(model, task, 1):
                return model
            with torch.no_grad():
                torch._foreach_add_(weights, moves, alpha=-size)
            size *= 2


@pytest.mark.release  # It makes 100 models wrong.
def test_no_wrong_mutant_of_a_proved_model_is_proved():
    task, generator = build_task("addition"), torch.Generator().manual_seed(0)
    assert LengthProver(construct_addition(2), task).verdict(1).verdict == "proved"
    verdicts = [LengthProver(mutant(task, generator), task).verdict(1).verdict for _ in range(100)]
    assert "proved" not in verdicts and "refuted" in verdicts


def half_trained(settings, steps, every):
    """A small model that learns sums of one digit, as it is after each so many steps."""
    torch.manual_seed(0)
    task = build_task("addition")
    sizes = {"hidden_size": 48, "head_dim": 24, "intermediate_size": 96}
    options = {**task.family.config_options(task), "coupling": task.coupling, **settings, **sizes}
    model = CoupledGPTForCausalLM(CoupledGPTConfig(**options)).eval()
    texts = texts_of(task, 1)
    response = int((texts[0] == EQUALS).int().argmax())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(1, steps + 1):
        logits = model(texts, use_cache=False).logits[:, response:-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), texts[:, response + 1 :].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % every == 0:
            yield model


def half_spoilt():
    """Models that add numbers of up to 6 digits by construction, with more and more noise in their weights."""
    torch.manual_seed(0)
    for size in (1e-4, 1e-2):
        model = construct_addition(3)
        with torch.no_grad():
            for weight in model.parameters():
                weight += size * torch.randn_like(weight) * weight.abs()
        yield model


TRAINED = ("recipe", "no positions", "uncoupled table", "rotary")


@pytest.mark.release  # It trains models, and asks some of them a million sums.
@pytest.mark.parametrize("kind", [*TRAINED, "spoilt"])
def test_what_is_proved_of_half_trained_models_is_right_in_every_problem(kind, monkeypatch):
    # Few boxes: more of them make a proof longer, and no less a proof.
    monkeypatch.setattr(up_to_length, "MOST_BOXES", 100)
    monkeypatch.setattr(up_to_length, "FEW_BOXES", 1)
    task, verdicts = build_task("addition"), {"proved": 0, "refuted": 0, "open": 0}
    for model in half_spoilt() if kind == "spoilt" else half_trained(KINDS[kind], steps=200, every=40):
        prover = LengthProver(model, task)
        for length in (1, 2, 3):
            found = prover.verdict(length)
            verdicts[found.verdict] += 1
            # A problem that refutes a length was asked. Of an open length nothing is said.
            if found.verdict == "proved":
                assert not wrong_of(model, task, length)
    assert verdicts["refuted"]
    assert verdicts["proved"] or kind not in ("recipe", "spoilt")


NOISY = 20
"""Models that are the shipped table with noise in its weights, the last ones with twice as much as the first."""


def noisy_tables():
    """The shipped table, which is proved, with noise in its weights: about so much that some sums go wrong."""
    checkpoint = load_checkpoint(zoo("addition-absolute-proved"))
    model, task = checkpoint.model, checkpoint.task
    weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    generator = torch.Generator().manual_seed(0)
    for size in torch.linspace(0.1, 0.2, NOISY).tolist():
        with torch.no_grad():
            for name, weight in model.named_parameters():
                noise = torch.randn(weight.shape, generator=generator) * weights[name].square().mean().sqrt()
                weight.copy_(weights[name] + (size * noise if weight.dim() > 1 else 0))
        yield model, task


@pytest.mark.release  # It asks some of the models all sums of two digits.
def test_what_is_proved_of_the_shipped_table_with_noise_is_right_in_every_problem():
    verdicts = {"proved": 0, "refuted": 0, "open": 0}
    for place, (model, task) in enumerate(noisy_tables()):
        prover = LengthProver(model, task)
        for length in (1, 2) if place % 5 == 0 else (1,):
            found = prover.verdict(length, budget=20)
            verdicts[found.verdict] += 1
            if found.verdict == "proved":
                assert not wrong_of(model, task, length)
    assert verdicts["refuted"] and verdicts["proved"]


def test_models_without_a_bound_are_refused():
    task = build_task("addition")
    deep, _ = small_model(**{**RECIPE, "num_hidden_layers": 2})
    with pytest.raises(CannotCertify, match="num_hidden_layers"):
        LengthProver(deep, task)
    task = build_task("addition", order="plain")
    model, _ = small_model(order="plain", **RECIPE)
    with pytest.raises(CannotCertify, match="plain"):
        LengthProver(model, task)


BOUND_FILES = (
    "lengths/attention_error.py",
    "lengths/far_boxes.py",
    "lengths/up_to_length.py",
    "windows/rounding.py",
    "../machines/texts.py",
)
"""The files that verdicts rest on, seen from the room of proofs."""

RECORDED = {1: "005434617418a175bf973f0cd189f11c2b1aa1927fc8bc70fe8aa463b39d1867"}
"""`digest_of` these files for each version of the bound."""


def structure_of(node: object) -> object:
    """A syntax tree without comments, docstrings and what versions of Python write differently: fields that are empty."""
    if isinstance(node, list):
        return [structure_of(child) for child in node if not is_docstring(child)]
    if not isinstance(node, ast.AST):
        return repr(node)
    named = {name: value for name, value in ast.iter_fields(node) if value not in (None, []) and name != "kind"}
    return [type(node).__name__, {name: structure_of(value) for name, value in named.items()}]


def is_docstring(node: object) -> bool:
    """Whether a statement is a text that nothing reads."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


@cache
def structure_of_source(source: str) -> object:
    return structure_of(ast.parse(source))


def digest_of(sources: list[str]) -> str:
    return hashlib.sha256(json.dumps([structure_of_source(source) for source in sources]).encode()).hexdigest()


def bound_sources() -> list[str]:
    return [(Path(proofs.__file__).parent / file).read_text(encoding="utf-8") for file in BOUND_FILES]


def test_verdicts_rest_on_code_that_is_recorded_for_its_version():
    """Whoever changes what these files compute raises `BOUND`, records the digest, and proves the shipped lengths again.

    Where no verdict can change, as after a name does, the new digest is recorded for the same version.
    """
    assert digest_of(bound_sources()) == RECORDED[up_to_length.BOUND]


@pytest.mark.parametrize("place", range(len(BOUND_FILES)))
def test_a_comment_changes_no_version_and_an_operator_does(place):
    sources = bound_sources()
    source = sources[place]

    def digest(changed: str) -> str:
        return digest_of([*sources[:place], changed, *sources[place + 1 :]])

    assert digest(source + "\n# a comment\n") == digest(source.replace('"""', '"""Other words. ', 1)) == digest(source)
    tree = ast.parse(source)
    sum_found = next(node for node in ast.walk(tree) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add))
    sum_found.op = ast.Sub()
    assert digest(ast.unparse(ast.parse(source))) == digest(source) != digest(ast.unparse(tree))


def test_shipped_verdicts_are_of_the_version_that_stands_here():
    files = [Path(zoo(name), "certificate.json") for name in list_zoo()]
    certificates = [read_stated(file) for file in files if file.is_file()]
    versions = [verdict["bound"] for certificate in certificates for verdict in certificate.get("lengths", ())]
    assert len(versions) >= 60 and {*versions} == {up_to_length.BOUND}
