"""A process makes the inputs of its own rows alone, and they are those of the whole batch."""

import numpy as np
import pytest
import torch
from cases import all_but
from certificate_subjects import untrained
from kinds import recipes_of_kinds

from longhand.data import Addition, CouplingCollator, Division, EncoderAddition, FreshBatches
from longhand.data.batches import EvaluationBatches
from longhand.data.collator import EVERY_ROW, collate_labels
from longhand.data.formatting import Examples
from longhand.data.machines.covering import Practice, Problems
from longhand.data.proofs import check_neighbourhoods
from longhand.data.tasks.encoder_multiplication_grid import EncoderMultiplicationGrid
from longhand.hub_cards.recipes import list_recipes
from longhand.hub_cards.training import trainer
from longhand.hub_cards.training.arguments import parse_run
from longhand.modeling.vocabulary import PAD

ROWS, SAMPLES = 24, 1500
SHARES, FEW_SHARES = [(2, 1), (3, 1), (8, 1), (2, 2)], [(3, 1), (2, 2)]
"""Numbers of processes, and of parts that a step accumulates; few where every process makes its data anew."""


def joined(parts):
    """The tensors of the parts of one batch, of which row i is in part i % len(parts)."""
    names = {frozenset(part) for part in parts}
    assert len(names) == 1
    for name, first in parts[0].items():
        values = [part[name] for part in parts]
        if isinstance(first, torch.Tensor):
            yield name, (torch.stack(values, dim=1).flatten(0, 1),)
        elif isinstance(first, tuple):
            yield name, tuple(torch.stack(own, dim=1).flatten(0, 1) for own in zip(*values, strict=True))
        else:
            assert all(value == first for value in values)


def check_shares(make, indices, shares=SHARES):
    """Parts of the batches that `make(process, processes, accumulation)` gives make up those of one process."""
    whole = make(0, 1, 1)
    for processes, accumulation in shares:
        split = [make(process, processes, accumulation) for process in range(processes)]
        for index in indices:
            items = range(index * accumulation, (index + 1) * accumulation)
            parts = [part[item] for item in items for part in split]
            expected = whole[index]
            assert {part.get("logits_to_keep") for part in parts} == {expected.get("logits_to_keep")}
            for name, tensors in joined(parts):
                given = expected[name] if isinstance(expected[name], tuple) else (expected[name],)
                assert all(torch.equal(*pair) for pair in zip(tensors, given, strict=True)), (name, processes)
                if name == "labels":
                    assert all(part[name].is_contiguous() for part in parts)
            assert set(expected) == set(parts[0])


@pytest.mark.parametrize("name", all_but({*list_recipes()} - {*recipes_of_kinds()}, list_recipes()))
@pytest.mark.parametrize("shares", [FEW_SHARES, pytest.param([(8, 1)], marks=pytest.mark.release)], ids=["few", "eight"])
def test_rows_of_any_number_of_processes_are_those_of_one(name, shares, monkeypatch):
    options = ["--batch_size", str(ROWS), "--bf16", "False", "--use_cpu", "True"]
    if name.startswith("paper-"):
        options += ["--num_train_samples", str(SAMPLES)]
    run = parse_run([name, *options])

    def make(process, processes, accumulation):
        monkeypatch.setattr(trainer, "_share", lambda _: {"process": process, "processes": processes})
        run.training.gradient_accumulation_steps = accumulation
        return trainer.training_batches(run)

    check_shares(make, range(2), shares)


@pytest.mark.parametrize("sampling", ["fixed", "random_start", "batch_start", "multiplier", "randomized"])
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("zero_padding", [False, True])
def test_every_sampling_draws_for_the_whole_batch(sampling, mixed, zero_padding):
    task = Addition(zero_padding=zero_padding)
    collator = CouplingCollator(task.coupling, 60, sampling, max_multiplier=4 if sampling == "multiplier" else None)

    def make(process, processes, accumulation):
        shared = {"batch_size": ROWS, "num_batches": 4, "process": process, "processes": processes}
        return FreshBatches(task, 1, 8, 0, collator=collator, mixed=mixed, accumulation=accumulation, **shared)

    check_shares(make, range(2))


def weak_neighbourhoods():
    task = Division()
    return task, check_neighbourhoods(untrained(task, num_attention_heads=8, head_dim=2), task).failing


def cases_of_a_grid():
    task = EncoderMultiplicationGrid()
    return task, Practice(cases=[task.covering(None, 1)])


def failing_problems():
    task = Addition(zero_padding=False)
    return task, Practice(problems=[Problems(task, np.full((4, 2, 3), 7, dtype=np.uint8), np.full((4, 2), 3))])


@pytest.mark.parametrize("practice", [weak_neighbourhoods, cases_of_a_grid, failing_problems])
def test_practised_rows_of_any_number_of_processes_are_those_of_one(practice):
    task, failing = practice()
    decoder = task.family.name == "decoder"
    collator = CouplingCollator(task.coupling, 60, "random_start") if decoder else collate_labels

    def make(process, processes, accumulation):
        shared = {"batch_size": ROWS, "num_batches": 9, "process": process, "processes": processes}
        batches = FreshBatches(task, 1, 4, 0, collator=collator, accumulation=accumulation, **shared)
        batches.practise(failing)
        if failing.problems:
            batches.practise_worst(failing.problems)
        return batches

    check_shares(make, range(9))


def test_other_rows_are_not_planned_if_their_largest_ids_are_known(monkeypatch):
    run = parse_run(["paper-addition", "--use_cpu", "True", "--num_train_samples", str(SAMPLES), "--batch_size", str(ROWS)])
    monkeypatch.setattr(trainer, "_share", lambda _: {"process": 1, "processes": 8})
    batches, planned, plan = trainer.training_batches(run), [], CouplingCollator._planned_rows

    def counting(collator, examples, rows):
        planned.append(len(examples.tokens[rows]))
        return plan(collator, examples, rows)

    monkeypatch.setattr(CouplingCollator, "_planned_rows", counting)
    batches[0]
    assert planned == [ROWS // 8]


def test_largest_ids_are_known_only_if_no_padding_changes_them():
    texts = Addition().examples(np.random.default_rng(0), np.array([[3, 2]] * 4), "train")
    ragged = Examples(np.pad(texts.tokens, ((0, 0), (0, 5)), constant_values=PAD), texts.query_lengths, same_layout=False)
    for rule, known in (("addition", True), ("sequential", False)):
        found = CouplingCollator(rule, 60, "random_start").know_largest_ids(ragged)
        assert (found.largest_ids is not None) == known
    assert CouplingCollator("addition").know_largest_ids(ragged).largest_ids is None
    assert found.take(EVERY_ROW).tokens.shape == texts.tokens.shape


def test_rows_of_a_dataset_have_no_share():
    collator = CouplingCollator("addition")
    with pytest.raises(ValueError, match="share"):
        collator([{"input_ids": [1, 2], "labels": [1, 2]}], None, slice(0, None, 2))


def test_the_last_validation_batch_is_shared_as_it_is():
    task = Addition()

    def make(process, processes, accumulation):
        collator = CouplingCollator(task.coupling)
        shared = {"collator": collator, "process": process, "processes": processes}
        return EvaluationBatches(task, (4, 3), 30, 0, "test", 24, **shared)

    for processes in (2, 3):
        parts = [make(process, processes, 1)[1] for process in range(processes)]
        for name, (tensor,) in joined(parts):
            if name != "counted":
                assert torch.equal(tensor, make(0, 1, 1)[1][name])


def test_a_collator_of_two_arguments_makes_whole_batches_and_is_refused_shares():
    """A collator of a user's own needs to know of shares only where batches have some."""
    shared = {"batch_size": ROWS, "num_batches": 2}
    own, plain = (lambda examples, generator: collate_labels(examples, generator)), collate_labels
    batches = [FreshBatches(EncoderAddition(), 1, 4, 0, collator=collator, **shared)[1] for collator in (own, plain)]
    assert torch.equal(batches[0]["labels"], batches[1]["labels"])
    for parts in ({"processes": 2}, {"accumulation": 2}):
        with pytest.raises(ValueError, match="share"):
            FreshBatches(EncoderAddition(), 1, 4, 0, collator=own, **shared, **parts)


@pytest.mark.parametrize("parts", [{}, {"accumulation": 2}])
def test_a_third_argument_of_a_collator_is_the_share_whatever_its_name(parts):
    named, any_number = (
        (lambda examples, generator, rows: collate_labels(examples, generator, rows)),
        lambda *all: collate_labels(*all),
    )
    shared = {"batch_size": ROWS, "num_batches": 2, **parts}
    batches = [
        FreshBatches(EncoderAddition(), 1, 4, 0, collator=own, **shared)[1] for own in (named, any_number, collate_labels)
    ]
    assert all(torch.equal(each["labels"], batches[-1]["labels"]) for each in batches)
