"""Neighbourhoods that a check finds weak are practised as they are."""

from dataclasses import asdict

import numpy as np
import pytest
import torch
from certificate_subjects import untrained

from longhand.data import TASKS, Addition, CouplingCollator, Division, Examples, FreshBatches
from longhand.data.batches import PRACTICE_EVERY, PRACTISED_NEIGHBOURHOODS
from longhand.data.machines.covering import NeighbourhoodBatch, Practice, Problems, join_neighbourhoods
from longhand.data.proofs import check_neighbourhoods
from longhand.data.splits import SPLITS

TASK = Division()
COLLATOR = CouplingCollator(TASK.coupling, 20)


@pytest.fixture(scope="module")
def model():
    return untrained(TASK, num_attention_heads=8, head_dim=2, prompt_format=asdict(TASK.prompt_format))


@pytest.fixture(scope="module")
def weak(model):
    return check_neighbourhoods(model, TASK).failing


def batches(weak, **options):
    drawn = FreshBatches(TASK, 1, 4, 0, collator=COLLATOR, batch_size=8, num_batches=40, **options)
    drawn.practise(weak)
    return drawn


def test_a_practised_neighbourhood_has_the_loss_of_its_prediction(model, weak):
    part, *_ = join_neighbourhoods(weak.neighbourhoods)
    part = part.take(np.arange(0, len(part.tokens), 50))
    expected = torch.nn.functional.cross_entropy(part.logits(model), part.targets)
    model.train()
    try:
        loss = model(**COLLATOR(part)).loss
        loss.backward()
    finally:
        model.eval()
    torch.testing.assert_close(loss, expected)
    assert all(weights.grad.isfinite().all() for weights in model.parameters())
    model.zero_grad()


def test_one_batch_in_so_many_is_of_weak_neighbourhoods_alone(weak):
    known = {
        (token, *keys) for part in weak.neighbourhoods for token, keys in zip(part.tokens, part.keys.tolist(), strict=True)
    }
    usual, practised = batches(Practice()), batches(weak)
    for index in range(40):
        batch = practised.global_batch(index)[0]
        assert isinstance(batch, NeighbourhoodBatch) == (index % PRACTICE_EVERY == 0)
        if isinstance(batch, NeighbourhoodBatch):
            assert len(batch.tokens) == 8 * PRACTISED_NEIGHBOURHOODS
            assert {(token, *keys) for token, keys in zip(batch.tokens, batch.keys.tolist(), strict=True)} <= known
        else:
            assert np.array_equal(batch.tokens, usual.global_batch(index)[0].tokens)


def test_weak_neighbourhoods_and_failing_problems_take_turns(weak):
    failing = Problems(Addition(), np.full((4, 2, 3), 7, dtype=np.uint8), np.full((4, 2), 3))
    drawn = FreshBatches(Addition(), 1, 4, 0, collator=COLLATOR, batch_size=8, num_batches=40)
    usual = drawn.global_batch(PRACTICE_EVERY)[0].tokens
    drawn.practise(Practice([failing], weak.neighbourhoods))
    kinds = [type(drawn.global_batch(index)[0]) for index in range(0, 40, PRACTICE_EVERY)]
    assert kinds == [NeighbourhoodBatch, Examples] * 5
    assert not np.array_equal(drawn.global_batch(PRACTICE_EVERY)[0].tokens, usual)


def test_processes_share_a_practised_batch(weak):
    (whole,) = [batches(weak)[0]]
    first, second = (batches(weak, processes=2, process=process)[0] for process in (0, 1))
    for name in ("input_ids", "labels"):
        assert torch.equal(torch.stack([first[name], second[name]], dim=1).flatten(0, 1), whole[name])
    for place in (0, 1):
        assert torch.equal(first["neighbours"][place], whole["neighbours"][place][0::2])


def test_a_problem_that_alone_shows_what_fails_is_practised_even_if_it_is_held_out():
    task, lengths = TASKS["plus_one"](), np.ones((1, 1), dtype=np.int64)
    problems = np.arange(10, dtype=np.uint8).reshape(10, 1, 1)
    held_out = [digits for digits in problems if task.split_of(digits[None], lengths)[0] not in (-1, SPLITS.index("train"))]
    assert held_out, "the split holds out none: choose another task"
    drawn = FreshBatches(task, 1, 1, 0, collator=CouplingCollator(task.coupling, 20), batch_size=8, num_batches=8)
    drawn.practise(Practice(problems=[Problems(task, held_out[0][None], lengths)]))
    first, _ = drawn.global_batch(0)
    assert len(np.unique(first.tokens, axis=0)) == 1
