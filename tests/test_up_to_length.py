"""Proofs up to a length: the bounds hold in problems, constructions are proved, and nothing that is wrong is."""

from itertools import product

import numpy as np
import pytest
import torch

from longhand.data import build_task
from longhand.data.certificates import CannotCertify, LengthProver
from longhand.data.certificates.far_boxes import VALUES, FarBoxes, fit
from longhand.data.certificates.up_to_length import Column
from longhand.hub_cards.research.theories.constructions import construct_addition
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.modeling.vocabulary import EQUALS

SMALL = {"hidden_size": 24, "num_attention_heads": 2, "head_dim": 8, "intermediate_size": 20, "windowed": False}
RECIPE = {
    **SMALL,
    "position_encoding": "learned",
    "max_position_ids": 12,
    "norm_placement": "pre_post",
    "qk_norm": True,
    "attention_scale": "log_length",
}
KINDS = {
    "recipe": RECIPE,
    "post": {**RECIPE, "norm_placement": "post", "hidden_act": "gelu"},
    "pre, plain": {**RECIPE, "norm_placement": "pre", "mlp": "plain", "attention_scale": "sqrt", "qk_norm": False},
    "relu without norms": {**RECIPE, "norm": "none", "mlp": "plain", "hidden_act": "relu"},
    "no positions": {**RECIPE, "position_encoding": "none", "coupling": "sequential"},
    "uncoupled table": {**RECIPE, "coupling": "sequential", "max_position_ids": 30},
    "rotary": {**RECIPE, "position_encoding": "rotary", "qk_norm": False},
}
ORDERS = ("response_reversed", "all_reversed")


def small_model(seed=0, order="response_reversed", size=0.1, **settings):
    """A model of sums with random weights, in which attention differs little between tokens and adds little to states.

    Args:
        size: how much larger attention is than it would be by random weights.
    """
    torch.manual_seed(seed)
    task = build_task("addition", order=order)
    options = {"coupling": task.coupling, **settings}
    model = CoupledGPTForCausalLM(CoupledGPTConfig(**{**task.family.config_options(task), **options})).eval()
    with torch.no_grad():
        attention = model.model.layers[0].self_attn
        attention.o_proj.weight *= size
        attention.q_proj.weight *= 0.1
        if settings["qk_norm"]:
            attention.qk_norm_factor *= 0.05
    return model, task


def texts_of(task, length):
    """The text of every problem of one length as tokens, (count, tokens)."""
    each = np.array([*product(range(10), repeat=2 * length)], dtype=np.uint8).reshape(-1, 2, length)
    each = each[(each[:, :, -1] > 0).any(1)] if length > 1 else each
    return torch.from_numpy(task.format(each, np.full((len(each), 2), length)).tokens.astype(np.int64))


def wrong_of(model, task, length):
    """How many problems of one length are answered wrongly."""
    texts = texts_of(task, length)
    response = int((texts[0] == EQUALS).int().argmax())
    wrong = 0
    with torch.inference_mode():
        for some in texts.split(2000):
            said = model(some, use_cache=False).logits[:, response:-1].argmax(-1)
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
        assert len(found.case) and found.bent.isfinite().any()
        lead = logits[found.case, cases.right[found.case]] - logits[found.case, found.rival]
        chosen = held[:, column.query.open][found.case]
        effects = found.effects.gather(2, chosen.unsqueeze(2)).sum((1, 2))
        assert ((lead - found.lead - effects).abs() <= found.bent + found.rounding + 1e-9).all()
        assert (found.effects.amin(2).sum(1) <= effects + 1e-9).all()
        # A first look has closed all other pairs.
        closed = logits.gather(1, cases.right.unsqueeze(1)) - logits > 0
        closed[torch.arange(len(closed)), cases.right] = True
        closed[found.case, found.rival] = True
        assert closed.all()


def far_digits(length, columns, count, generator):
    """Digits (count, 2, length) that are alike in some columns, others drawn in each or one for all, to the extremes."""
    digits = torch.randint(0, 10, (count, 2, length), generator=generator)
    fill = torch.randint(0, 10, (count, 2, 1), generator=generator)
    digits = torch.where(torch.arange(count)[:, None, None] % 2 == 0, digits, fill)
    digits[:, :, columns] = digits[0, :, columns].clone()
    digits[:, 0, -1] = digits[:, 0, -1].clamp(min=1)
    return digits.numpy().astype(np.uint8)


@pytest.mark.parametrize("size", [0.1, 0.3])
@pytest.mark.parametrize("kind", KINDS)
def test_bounds_of_boxes_hold_in_problems(kind, size):
    model, task = small_model(size=size, **KINDS[kind])
    model = model.double()
    prover, length = LengthProver(model, task), 6
    generator = torch.Generator().manual_seed(0)
    runs = task.text_runs(ordered=True)
    layout = prover.layout(runs, length)
    tables, bounded = prover.layer.tables(layout.tokens, layout.ids), 0
    for at in (1, 4, 6):
        column = Column(prover, runs, layout, tables, at, float("inf"))
        digits = far_digits(length, [k for k in (at - 1, at, at + 1) if k < length], 200, generator)
        texts = torch.from_numpy(task.format(digits, np.full((len(digits), 2), length)).tokens.astype(np.int64))
        held = torch.from_numpy(layout.choice)[torch.arange(texts.shape[1] - 1), texts[:, :-1]][:, : column.place + 1]
        held = torch.where(held < 0, 0, held)
        always = column.query.always
        alike = (held[:, always] == held[0, always]).all(1)
        texts, held = texts[alike], held[alike]
        case = column.cases.take((column.cases.held[:, always] == held[0, always]).all(1).nonzero()[:1, 0])
        right = int(case.right[0])
        with torch.inference_mode():
            far = FarBoxes(column.query, case)
            boxes = far.whole()
            for _ in range(5):
                rivals = torch.tensor([token for token in range(len(task.tokens)) if token != right])
                found = far.look(boxes, right, rivals, lambda effects: effects.amin(3).sum(2))
                occurs = far.occurs(boxes)
                seen = []
                last = model.model.layers[0].mlp_norms.sum
                handle = last.register_forward_pre_hook(lambda module, inputs, seen=seen: seen.append(inputs[0]))
                model(texts, use_cache=False)
                handle.remove()
                logits = seen[0][:, column.place] @ prover.layer.head.T
                lead = logits[:, right : right + 1] - logits[:, rivals]
                places = torch.arange(len(column.query.open))
                point = far.along[places, held[:, column.query.open]].sum(1)
                inside = (point.unsqueeze(1) >= boxes.low - 1e-9) & (point.unsqueeze(1) <= boxes.high + 1e-9)
                problem, box = inside.all(2).nonzero(as_tuple=True)
                assert len(problem.unique()) == len(texts)
                assert occurs[box].all()
                assert (lead[problem] >= found.left[box] - 1e-9).all()
                bounded += int(found.left[box].isfinite().sum())
                boxes = boxes.halves(found.score.argmax(1))
    assert bounded


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


def test_the_construction_of_theorem_5_1_is_proved_at_all_its_lengths():
    prover = LengthProver(construct_addition(bits=2), build_task("addition"))
    assert [prover.verdict(length).verdict for length in (1, 2)] == ["proved", "proved"]
    with pytest.raises(ValueError, match="position ids"):
        prover.verdict(3)
    assert LengthProver(construct_addition(bits=3), build_task("addition")).verdict(6).verdict == "proved"


@pytest.mark.slow  # It proves, and asks, 100 models.
def test_no_mutant_of_a_proved_model_is_proved_if_it_is_wrong():
    task = build_task("addition")
    verdicts = {"proved": 0, "refuted": 0, "open": 0}
    for seed in range(100):
        model = construct_addition(2)
        torch.manual_seed(seed)
        with torch.no_grad():
            for weight in model.parameters():
                weight += torch.randn_like(weight) * (weight != 0) * weight.abs() * 10 ** (-4 + 4 * seed / 100)
        found = LengthProver(model, task).verdict(1)
        wrong = wrong_of(model, task, 1)
        verdicts[found.verdict] += 1
        assert found.verdict != "proved" or not wrong
        assert found.verdict != "refuted" or wrong
    assert verdicts["proved"] and verdicts["refuted"]


def half_trained(steps, every):
    """A small model that learns sums of one digit, as it is after each so many steps."""
    torch.manual_seed(0)
    task = build_task("addition")
    settings = {**RECIPE, "hidden_size": 48, "head_dim": 24, "intermediate_size": 96, "coupling": task.coupling}
    model = CoupledGPTForCausalLM(CoupledGPTConfig(**{**task.family.config_options(task), **settings})).eval()
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
            yield model, task


@pytest.mark.slow  # It trains a model, and proves and asks it 20 times.
def test_what_is_proved_of_half_trained_models_is_right_in_every_problem():
    verdicts = {"proved": 0, "refuted": 0, "open": 0}
    for model, task in half_trained(steps=200, every=10):
        found = LengthProver(model, task).verdict(1)
        verdicts[found.verdict] += 1
        wrong = wrong_of(model, task, 1)
        assert found.verdict != "proved" or not wrong
        assert found.verdict != "refuted" or wrong
    assert verdicts["proved"] and verdicts["refuted"]


def test_models_without_a_bound_are_refused():
    task = build_task("addition")
    deep, _ = small_model(**{**RECIPE, "num_hidden_layers": 2})
    with pytest.raises(CannotCertify, match="num_hidden_layers"):
        LengthProver(deep, task)
    task = build_task("addition", order="plain")
    model, _ = small_model(order="plain", **RECIPE)
    with pytest.raises(CannotCertify, match="plain"):
        LengthProver(model, task)
