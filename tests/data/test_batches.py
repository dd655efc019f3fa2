from collections import Counter

import numpy as np
import pytest
import torch

from longhand.data import Addition, CouplingCollator, EvaluationBatches, FixedBatches, FreshBatches, make_generator
from longhand.data.collator import IGNORED, collate_labels
from longhand.data.tasks.addition import IndexHintedAddition
from longhand.data.tasks.composite import Calculator
from longhand.data.tasks.encoder_multiplication_grid import EncoderMultiplicationGrid
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.vocabulary import EQUALS, PAD

PADDED, UNPADDED = Addition(), Addition(zero_padding=False)
HINTED = IndexHintedAddition(max_hints=12)
PLAIN_COLLATOR = CouplingCollator("addition", max_position_ids=40)
RANDOM_COLLATOR = CouplingCollator("addition", max_position_ids=40, position_sampling="random_start")
TENSORS = ("input_ids", "labels", "position_ids")


def fresh(task=PADDED, seed=0, collator=RANDOM_COLLATOR, batch_size=16, num_batches=20, low=1, high=8, **kwargs):
    return FreshBatches(task, low, high, seed, collator=collator, batch_size=batch_size, num_batches=num_batches, **kwargs)


def fixed(task=PADDED, seed=0, samples=400, collator=RANDOM_COLLATOR, batch_size=16, num_batches=60, high=6, **kwargs):
    return FixedBatches(
        task, samples, 1, high, seed, collator=collator, batch_size=batch_size, num_batches=num_batches, **kwargs
    )


def evaluation(
    lengths=(5, 5), samples=50, split="test", batch_size=16, seed=0, task=PADDED, collator=PLAIN_COLLATOR, **share
):
    return EvaluationBatches(task, lengths, samples, seed, split, batch_size, collator=collator, **share)


def rows_of(batch):
    """Every row of a batch with its ids, labels and position ids, sorted."""
    count = len(batch["input_ids"])
    ids = batch["position_ids"].expand(count, -1, -1)
    return sorted(zip(batch["input_ids"].tolist(), batch["labels"].tolist(), ids.tolist(), strict=True))


def same(first, second):
    return first["logits_to_keep"] == second["logits_to_keep"] and all(torch.equal(first[n], second[n]) for n in TENSORS)


def plan(coupling, tokens):
    return COUPLING_RULES[coupling].plan(tokens, tokens.shape[1]).position_ids


def collate(task, lengths, collator, seed=0):
    examples = task.examples(make_generator(seed), np.array(lengths), "train")
    return examples, collator(examples, make_generator(seed, "starts"))


def starts_of(collator, length=3, count=20_000):
    ids = collate(PADDED, [[length, length]] * count, collator)[1]["position_ids"]
    return ids, ids[:, 0, 1].numpy()


def test_random_starts_cover_exactly_the_legal_range():
    ids, starts = starts_of(CouplingCollator("addition", 12, "random_start"))
    # Operands of 3 digits give their leading digit the id 2 and use 1 to 5.
    counts = np.bincount(starts - 2)
    assert len(counts) == 8 and np.abs(counts - 2500).max() < 5 * 2500**0.5
    assert int(ids.max()) == 12 and int(ids[ids > 0].min()) == 1


@pytest.mark.parametrize("task", [PADDED, UNPADDED])
@pytest.mark.parametrize("make", [fresh, fixed])
@pytest.mark.parametrize(("processes", "accumulation"), [(1, 1), (1, 2), (2, 1), (2, 2), (4, 1), (4, 2)])
def test_parts_of_all_processes_make_up_the_global_batch(make, task, processes, accumulation):
    whole = make(task)
    split = [make(task, process=p, processes=processes, accumulation=accumulation) for p in range(processes)]
    assert {len(part) for part in split} == {len(whole) * accumulation}
    for index in range(8):
        parts = [dataset[index * accumulation + i] for dataset in split for i in range(accumulation)]
        assert {len(part["input_ids"]) for part in parts} == {16 // processes // accumulation}
        assert sorted(row for part in parts for row in rows_of(part)) == rows_of(whole[index])
        assert {part["logits_to_keep"] for part in parts} == {whole[index]["logits_to_keep"]}


@pytest.mark.parametrize("make", [fresh, fixed])
def test_item_is_the_same_in_any_order_of_access(make):
    forward, backward = make(), make()
    items = [forward[item] for item in range(60)]
    assert all(same(backward[item], items[item]) for item in reversed(range(60)))
    assert same(make()[7], items[7])


@pytest.mark.parametrize("make", [fresh, fixed, evaluation])
def test_same_seed_gives_the_same_batches_and_another_seed_others(make):
    assert all(same(make(seed=5)[item], make(seed=5)[item]) for item in range(3))
    problems = [{tuple(row) for item in range(3) for row in make(seed=seed)[item]["input_ids"].tolist()} for seed in (5, 6)]
    assert len(problems[0] & problems[1]) < len(problems[0]) / 2


@pytest.mark.parametrize("make", [fresh, fixed])
@pytest.mark.parametrize("task", [PADDED, UNPADDED, HINTED, Calculator(), EncoderMultiplicationGrid()])
def test_mixed_batches_have_one_length_for_each_problem(make, task):
    if make is fixed and len(task.parts) > 1:
        pytest.skip("a task of several parts has no fixed data")
    encoder = task.family.name == "encoder"
    batches = make(task, collator=collate_labels if encoder else CouplingCollator("sequential", 200), mixed=True)
    widths = []
    for item in range(20):
        batch = batches[item]
        present = batch["input_ids"] != PAD
        assert batch["input_ids"].shape == (16, int(present.sum(1).max()))
        assert (batch["labels"][~present] == IGNORED).all() and (batch["labels"] != IGNORED).any(1).all()
        widths.append(present.sum(1).tolist())
        if encoder:
            continue
        # Alone, without padding, each problem has the same labels and position ids.
        for row, width in enumerate(widths[-1][:4]):
            tokens = batch["input_ids"][row : row + 1, :width]
            query = 1 + int((tokens == EQUALS).int().argmax())
            right = torch.where(torch.arange(width) < query, IGNORED, tokens)
            assert torch.equal(batch["labels"][row : row + 1, :width], right)
            ids = batch["position_ids"].expand(16, -1, -1)[row : row + 1, :, :width]
            assert torch.equal(ids, plan("sequential", tokens))
    assert len({tuple(row) for row in widths}) == 20 and all(len(set(row)) > 2 for row in widths)


def test_mixed_batches_draw_every_start_that_has_room():
    batches = fresh(low=1, high=4, num_batches=100, mixed=True, collator=CouplingCollator("addition", 12, "random_start"))
    for length, room in ((1, 10), (4, 7)):
        starts = Counter()
        for batch in (batches[item] for item in range(100)):
            rows = (batch["input_ids"] != PAD).sum(1) == 5 + 3 * length
            # The leading digit of the first operand has the id 2 if ids start at 1.
            starts += Counter((batch["position_ids"][rows, 0, 1] - 1).tolist())
        assert set(starts) == set(range(1, room + 1))


def epochs_of(batches, count):
    rows = [[row for row in batches[item]["input_ids"].tolist()] for item in range(count * batches.batches_per_epoch)]
    size = batches.batches_per_epoch
    return [[tuple(row) for batch in rows[i * size : (i + 1) * size] for row in batch] for i in range(count)]


def test_fixed_problems_come_at_most_once_per_epoch_in_another_order():
    batches = fixed(samples=200, high=20, batch_size=4, collator=PLAIN_COLLATOR)
    pool = [tuple(row) for group in batches.groups for row in group.tokens.tolist()]
    assert len(pool) == 200
    epochs = epochs_of(batches, 3)
    for epoch in epochs:
        assert all(epoch.count(row) <= pool.count(row) for row in epoch)
        assert len(epoch) > 100
    assert len({tuple(epoch) for epoch in epochs}) == 3


@pytest.mark.parametrize("make", [fresh, fixed])
@pytest.mark.parametrize(("processes", "accumulation"), [(3, 1), (1, 5), (8, 4)])
def test_indivisible_batch_is_refused(make, processes, accumulation):
    with pytest.raises(ValueError, match=f"batch_size 16 .* {processes} processes x {accumulation}"):
        make(processes=processes, accumulation=accumulation)


def evaluated(**kwargs):
    batches = evaluation(**kwargs)
    return [row for item in range(len(batches)) for row in batches[item]["input_ids"].tolist()]


@pytest.mark.parametrize(("processes", "batch_size"), [(2, 50), (3, 51), (4, 12), (7, 49), (8, 56)])
def test_processes_share_evaluation_problems_evenly_and_count_each_once(processes, batch_size):
    shares = [evaluation(batch_size=batch_size, process=own, processes=processes) for own in range(processes)]
    rows = []
    for item in range(len(shares[0])):
        parts = [share[item] for share in shares]
        assert len({len(part["input_ids"]) for part in parts}) == 1
        for part in parts:
            counted = part.get("counted", torch.ones(len(part["input_ids"]), dtype=torch.bool))
            rows += part["input_ids"][counted].tolist()
    assert sorted(rows) == sorted(evaluated())


@pytest.mark.parametrize("batch_size", [1, 7, 49, 50, 51])
def test_evaluation_problems_do_not_depend_on_the_batch_size(batch_size):
    rows = evaluated(batch_size=batch_size)
    assert len(rows) == 50 and rows == evaluated()
