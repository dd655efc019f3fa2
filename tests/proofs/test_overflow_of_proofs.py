"""Nothing infinite, missing or flagged is read as "no problem has this case": overflow in every operand of proofs."""

import math

import pytest
import torch
from cases import drawn, in_turn
from far_subjects import KINDS, small_model

from longhand.data import build_task
from longhand.data.proofs import CannotCertify, LengthProver
from longhand.data.proofs.lengths import attention_error, up_to_length
from longhand.data.proofs.lengths.far_boxes import far_boxes_of
from longhand.data.proofs.lengths.up_to_length import Column
from longhand.hub_cards.research.theories.constructions import construct_addition

LENGTH, AT = 3, 3
"""The length, and the column of the token."""

IDLE = {"apart", "product_apart", "input_norm"}
"""What is read for cases that hold open places alone, and what tables were made of before."""

OF_THE_FIRST_LOOK = {"share"}

HUGE = {
    torch.float32: (3.2e38, 2.0**60, torch.inf, torch.nan),
    torch.float64: (1.7e308, 2.0**511, 2.0**60, torch.inf, torch.nan),
}


def test_weights_beyond_the_stated_size_are_refused_by_name():
    task = build_task("addition")
    for dtype, sizes in HUGE.items():
        model = construct_addition(bits=2).to(dtype)
        assert LengthProver(model, task).verdict(1).verdict == "proved"
        for name, weight in model.named_parameters():
            own = weight.detach().clone()
            for size in sizes:
                with torch.no_grad():
                    weight.flatten()[-1] = size
                with pytest.raises(CannotCertify, match=f"{name} is as large as"):
                    LengthProver(model, task)
            with torch.no_grad():
                weight.copy_(own)
        model.config.norm_eps = 1e300
        with pytest.raises(CannotCertify, match="norm_eps"):
            LengthProver(model, task)


class Subject:
    """A small model and cases of one of its tokens in which the token that it writes is called right, so that they close."""

    def __init__(self, kind, dtype=torch.float64):
        model, self.task = small_model(size=0.02, **KINDS[kind])
        self.model = model.to(dtype)
        self.right = None
        column = self.column()
        right = column.cases.right
        for token in range(len(self.task.tokens)):
            column.cases = column.cases._replace(right=torch.full_like(right, token))
            right = torch.where(closed_at_first(column), token, right)
        self.right = right

    def column(self):
        prover = LengthProver(self.model, self.task)
        runs = self.task.text_runs(ordered=True)
        layout = prover.layout(runs, LENGTH)
        found = Column(prover, runs, layout, prover.layer.tables(layout.tokens, layout.ids), AT, float("inf"))
        found.cases = found.cases if self.right is None else found.cases._replace(right=self.right)
        # A path is asked for the case's own next token, which is not the one that this model writes.
        found.steps = [(source, target, held, None) for source, target, held, _ in found.steps]
        return found


def closed_by(column):
    """The cases that the first look closes, and those that boxes close."""
    boxes = []
    for row in range(len(column.cases.query_token)):
        case = column.cases.take(torch.tensor([row]))
        far = far_boxes_of(column.query, case)
        boxes.append(far is not None and closed_by_boxes(far, case))
    return closed_at_first(column), torch.tensor(boxes)


def closed_at_first(column):
    closed = torch.ones(len(column.cases.query_token), dtype=torch.bool)
    bounds = column.query.bounds(column.cases, nearest=False)
    closed[bounds.case[~(column._left(column.cases, bounds, 64)[0] > 0)]] = False
    return closed


def closed_by_boxes(far, case):
    right = int(case.right[0])
    rivals = torch.tensor([token for token in range(len(far.layer.head)) if token != right])
    whole = far.whole()
    found = far.look(whole, right, rivals, lambda effects: effects.amin(3).sum(2))
    return bool((found.left > 0).all() or not found.occurs.all() or not far.occurs(whole).all())


@pytest.mark.thorough
@pytest.mark.parametrize("kind", drawn(KINDS, 1))
def test_overflow_in_any_weight_closes_no_case(kind, monkeypatch):
    """Behind the door: what the bounds say where it does not guard them."""
    with torch.inference_mode():
        for dtype, sizes in HUGE.items():
            subject = Subject(kind, dtype)
            first, boxes = closed_by(subject.column())
            assert first.any() and boxes.any()
            with monkeypatch.context() as patch:
                for module in (attention_error, up_to_length):
                    patch.setattr(module, "check_bounded", lambda model: None)
                for name, weight in subject.model.named_parameters():
                    own = weight.clone()
                    for size in filter(math.isfinite, sizes):
                        # In each row a pair that cancels: so its sum is small, and each of both is not.
                        weight.view(-1, weight.shape[-1])[:, :2] = torch.tensor([size, -size], dtype=dtype)
                        column = subject.column()
                        first, boxes = closed_by(column)
                        assert not first.any() and not boxes.any(), (name, size)
                    weight.copy_(own)


@pytest.mark.parametrize(("kind", "value"), in_turn(KINDS, [torch.inf, -torch.inf, torch.nan]))
def test_no_operand_closes_a_case_by_being_infinite(kind, value):
    """Scores, weights, values, norms, hidden units, logits: each tensor that the looks read, one after the other."""
    with torch.inference_mode():
        subject = Subject(kind)
        column = subject.column()
        assert torch.stack(closed_by(column)).any(1).all()
        for owner in (column.query, column.query.layer):
            for name, own in list(vars(owner).items()):
                if name in IDLE or not isinstance(own, torch.Tensor) or not own.is_floating_point():
                    continue
                setattr(owner, name, torch.full_like(own, value))
                first, boxes = closed_by(column)
                setattr(owner, name, own)
                assert not first.any() and (name in OF_THE_FIRST_LOOK or not boxes.any()), name


@pytest.mark.parametrize(("factor", "closes"), [(2.0**-400, True), (2.0**-600, False)])
def test_a_case_whose_weights_nearly_underflow_is_not_closed(factor, closes):
    """All weights of a query are known up to a factor, which changes nothing as long as float64 keeps their digits."""
    with torch.inference_mode():
        column = Subject("recipe").column()
        query = column.query
        for name in ("weight", "open_weight", "mean_weight", "apart", "share", "mean_product", "product_apart"):
            setattr(query, name, factor * getattr(query, name))
        query.components, query.units, query.lengths = (
            tuple(factor * table for table in tables) for tables in (query.components, query.units, query.lengths)
        )
        first, boxes = closed_by(column)
        assert bool(first.any()) == bool(boxes.any()) == closes


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_no_field_of_a_bound_closes_a_pair_by_being_infinite(value, monkeypatch):
    with torch.inference_mode():
        column = Subject("recipe").column()
        # Bounds of pairs, too, that the first look closes at once.
        with monkeypatch.context() as patch:
            patch.setattr(attention_error, "ROUNDING_FACTOR", 1e12)
            bounds = column.query.bounds(column.cases, nearest=False)
        assert (column._left(column.cases, bounds, 64)[0] > 0).any()
        for name in ("lead", "effects", "bent", "rounding", "scale"):
            damaged = bounds._replace(**{name: torch.full_like(getattr(bounds, name), value)})
            assert not (column._left(column.cases, damaged, 64)[0] > 0).any(), name
        damaged = bounds._replace(proved=torch.zeros_like(bounds.proved))
        assert not (column._left(column.cases, damaged, 64)[0] > 0).any()
