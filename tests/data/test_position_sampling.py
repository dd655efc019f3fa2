"""How position ids are drawn in training, and spread at evaluation."""

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from position_subjects import build, tokenizer
from task_subjects import FORMATS, FURTHER_FORMATS

from longhand.data import Addition, CouplingCollator, EvaluationBatches, FreshBatches, make_generator
from longhand.data.formatting import lay_out
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.hub_cards.training.arguments import parse_run
from longhand.modeling.coupling import COUPLING_RULES, CouplingRule, Plan, find_rule, largest_position_ids, plan_position_ids
from longhand.modeling.coupling_rules import addition
from longhand.modeling.vocabulary import BOS, EQUALS, PAD, TOKENS


def collated(collator, task=None, lengths=((3, 3),), count=1, seed=0):
    examples = (task or Addition()).examples(make_generator(seed), np.array([*lengths] * count), "train")
    return collator(examples, make_generator(seed, "starts"))


def test_random_starts_are_one_draw_for_each_example():
    base = collated(CouplingCollator("addition", 40), count=50)["position_ids"]
    found = collated(CouplingCollator("addition", 40, "random_start"), count=50)["position_ids"]
    offset = make_generator(0, "starts").integers(0, 40 - int(base.max()) + 1, size=(50, 1, 1))
    assert torch.equal(found, torch.where(base > 0, base + torch.from_numpy(offset), 0))


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("task", [Addition(), Addition(zero_padding=False)])
def test_a_batch_start_is_the_same_for_all_examples_and_differs_between_batches(task, wrap):
    collator = CouplingCollator("abacus", 14, "batch_start", wrap)
    lengths = [(3, 3), (3, 1), (2, 3)]
    starts = set()
    for seed in range(60):
        base = collated(CouplingCollator("abacus", 14), task, lengths, seed=seed)["position_ids"]
        found = collated(collator, task, lengths, seed=seed)["position_ids"]
        assert found.shape == base.shape
        start = int(found.flatten()[1]) - 1
        shifted = (base + start - 1) % 14 + 1 if wrap else base + start
        assert torch.equal(found, torch.where(base > 0, shifted, 0))
        assert wrap or start + int(base.max()) <= 14
        starts.add(start)
    assert min(starts) == 0 and max(starts) >= (13 if wrap else 14 - int(base.max()))


def test_every_level_may_have_a_largest_id_of_its_own(two_levels):
    collator = CouplingCollator(two_levels, 30, "random_start", level_position_ids=(30, 12))
    base = collated(CouplingCollator(two_levels, 30))["position_ids"]
    found = collated(collator, count=2000)["position_ids"]
    starts = torch.where(base > 0, found - base, -1).amax(dim=2)
    assert torch.equal(found, torch.where(base > 0, base + starts.unsqueeze(2), 0))
    assert found.amax(dim=(0, 2)).tolist() == [30, 12] and starts.amin(dim=0).tolist() == [0, 0]


DECODER_TASKS = [task for task in [*FORMATS, *FURTHER_FORMATS] if isinstance(task, DecoderTask)]
SEVERAL_LEVELS = {task.coupling: task for task in DECODER_TASKS if find_rule(task.coupling).levels > 1}


def rule_of(task) -> CouplingRule:
    return task.transducer.rule if task.transducer is not None else find_rule(task.coupling)


@pytest.mark.parametrize("name", SEVERAL_LEVELS)
@pytest.mark.parametrize("sampling", ["random_start", "batch_start"])
def test_each_level_starts_as_high_as_its_own_ids_allow(name, sampling):
    task = SEVERAL_LEVELS[name]
    rule = rule_of(task)
    lengths = task.group_lengths(make_generator(0), task.sample_lengths(make_generator(0), 1, 3, 3)[0], 1, 3)
    base = collated(CouplingCollator(rule, 1000), task, lengths)["position_ids"]
    planned = base.amax(2)[0]
    largest = int(planned.max()) + 3
    batches, count = (80, 1) if sampling == "batch_start" else (1, 400)
    examples = task.examples(make_generator(0), np.tile(lengths[:1], (count, 1)), "train")
    collator = CouplingCollator(rule, largest, sampling)
    found = torch.cat([collator(examples, make_generator(seed, "starts"))["position_ids"] for seed in range(batches)])
    for level in (planned > 0).nonzero().flatten().tolist():
        ends = found[:, level].amax(1)
        assert ends.min() == planned[level] and ends.max() == largest, level


def test_a_batch_start_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"need 13 position ids but max_position_ids is 12.*responses of 11 digits"):
        collated(CouplingCollator("abacus", 12, "batch_start"), lengths=[(11, 11)])


def test_multipliers_are_uniform_and_one_for_each_example():
    base = collated(CouplingCollator("addition", 9))["position_ids"]
    found = collated(CouplingCollator("addition", 9, "multiplier", max_multiplier=5), count=5000)["position_ids"]
    multiplier = found[:, :, 1:2] // base[:, :, 1:2]
    assert torch.equal(found, base * multiplier)
    counts = np.bincount(multiplier.flatten().numpy(), minlength=6)[1:]
    assert len(counts) == 5 and np.abs(counts - 1000).max() < 5 * 800**0.5


@pytest.fixture
def two_levels(monkeypatch) -> str:
    """The name of a rule whose second level has no ids for the first operand and the response's."""

    def plan(input_ids, columns):
        first = addition(input_ids, columns)
        second = first.position_ids.clone()
        second[..., :3] = 0
        return Plan(torch.cat([first.position_ids, second], dim=1), first.response_length)

    monkeypatch.setitem(COUPLING_RULES, "two", CouplingRule("two", plan, 2, str))
    return "two"


def test_random_subsets_are_all_equally_likely_and_sorted():
    # `$1+1=` and a planned response of two tokens and the end have the ids 1 to 3.
    found = collated(CouplingCollator("addition", 6, "randomized"), lengths=[(1, 1)], count=8000)["position_ids"][:, 0]
    base = collated(CouplingCollator("addition", 6), lengths=[(1, 1)])["position_ids"][0, 0]
    subsets = torch.stack([found[:, int((base == k).nonzero()[0])] for k in (1, 2, 3)], dim=1)
    assert torch.equal(found, torch.nn.functional.pad(subsets, (1, 0)).gather(1, base.expand(8000, -1)))
    counts = {subset: 0 for subset in combinations(range(1, 7), 3)}
    for subset in subsets.tolist():
        counts[tuple(subset)] += 1
    assert max(abs(count - 400) for count in counts.values()) < 5 * 400**0.5
    collator = CouplingCollator("addition", 6, "spread")
    spread = collated(collator, lengths=[(1, 1)])["position_ids"][0, 0]
    mean = found.double().mean(0)
    assert (mean - spread).abs().max() < 0.5 + 0.1


def test_levels_are_randomized_apart_and_zero_stays(two_levels):
    found = collated(CouplingCollator(two_levels, 30, "randomized"), count=500)["position_ids"]
    base = collated(CouplingCollator(two_levels, 30), count=500)["position_ids"].expand(500, -1, -1)
    assert torch.equal(found == 0, base == 0)
    assert (found[:, 0, 4] != found[:, 1, 4]).float().mean() > 0.8
    for k in range(1, int(base.max()) + 1):
        for level in range(2):
            values = found[:, level, base[0, level] == k]
            assert (values == values[:, :1]).all()


def test_rows_of_a_batch_have_as_many_ids_as_their_own_queries_plan():
    task, lengths = Addition(zero_padding=False), [(6, 6), (6, 1), (2, 6)]
    batch = collated(CouplingCollator("sequential", 100, "randomized"), task, lengths)
    queries = (batch["input_ids"] == EQUALS).int().argmax(1) + 1
    assert largest_position_ids("sequential", batch["input_ids"]).flatten().tolist() == (2 * queries - 1).tolist()
    for row, positions in zip(batch["input_ids"], batch["position_ids"][:, 0], strict=True):
        assert (positions[row != PAD].diff() > 0).all()


@pytest.mark.parametrize(("most", "n"), [(9, 9), (10, 9), (60, 9), (1000, 13)])
def test_spread_ids_are_the_rounded_means_of_order_statistics(most, n):
    text = "$" + "1" * ((n + 1) // 2 - 2) + "="
    tokens = torch.tensor([[TOKENS.index(character) for character in text]])
    found = plan_position_ids("sequential", tokens, n + 4, spread_over=most)[0, 0].tolist()
    expected = [math.floor(k * (most + 1) / (n + 1) + 0.5) for k in range(n + 1)]
    assert found == [*expected, most, most, most] and sorted(set(expected)) == expected


@pytest.mark.parametrize("encoding", ["learned, randomized", "learned, coupled and randomized", "fire, randomized"])
def test_evaluation_ids_are_the_ids_that_the_model_derives_and_generates_with(encoding, monkeypatch):
    model = build(encoding)
    collator = CouplingCollator.for_evaluation(model.config)
    for zero_padding in (True, False):
        task = Addition(zero_padding=zero_padding)
        batch = EvaluationBatches(task, (4, 3), 3, 0, "test", 3, collator=collator)[0]
        derived = model.model.plan_position_ids(batch["input_ids"], batch["input_ids"].shape[1])
        assert torch.equal(batch["position_ids"].expand(3, -1, -1), derived)
        used, forward = [], model.model.forward

        def recording(*args, used=used, forward=forward, **kwargs):
            used.append(kwargs["position_ids"])
            return forward(*args, **kwargs)

        query = int(batch["input_ids"].shape[1] - batch["logits_to_keep"] + 1)
        monkeypatch.setattr(model.model, "forward", recording)
        model.generate(batch["input_ids"][:1, :query], suppress_tokens=[BOS], max_new_tokens=6)
        monkeypatch.setattr(model.model, "forward", forward)
        shared = min(used[-1].shape[-1], derived.shape[-1])
        assert shared > query + 3 and torch.equal(used[-1][..., :shared], derived[:1, :, :shared])


def test_training_with_randomized_positions_is_evaluated_with_spread_ones():
    run = parse_run(["addition-randomized"])
    assert run.config.randomized_positions and run.training_collator.position_sampling == "randomized"
    assert run.config.rule.name == "sequential"
    assert run.task.family.collator(run.config) == CouplingCollator(run.config.rule, 1000, "spread")
    assert not parse_run(["addition-ape"]).config.randomized_positions


def test_too_many_ids_to_randomize_are_refused_with_the_longest_that_fits():
    model = build("learned, randomized", max_position_ids=20)
    tokens = tokenizer("123+456=", return_tensors="pt").input_ids
    model(tokens)
    expected = r"need 21 position ids but max_position_ids is 20.*20 tokens after the first"
    with pytest.raises(ValueError, match=expected):
        model(tokenizer("1234+4567=", return_tensors="pt").input_ids)
    for sampling in ("randomized", "spread"):
        with pytest.raises(ValueError, match=expected):
            collated(CouplingCollator("sequential", 20, sampling), lengths=[(4, 4)])


@pytest.mark.parametrize("sampling", ["randomized", "spread"])
def test_responses_longer_than_planned_cannot_be_randomized(sampling):
    parts = [BOS, np.ones((2, 3), dtype=np.uint8), EQUALS, np.ones((2, 6), dtype=np.uint8), BOS]
    with pytest.raises(ValueError, match=r"longer than the query.*coupling rule 'sequential' plans for"):
        CouplingCollator("sequential", 50, sampling)(lay_out(parts, query_parts=3), np.random.default_rng(0))


@pytest.mark.parametrize("sampling", ["batch_start", "multiplier", "randomized"])
def test_batches_of_all_processes_have_the_ids_of_the_global_batch(sampling):
    collator = CouplingCollator("addition", 60, sampling, max_multiplier=4 if sampling == "multiplier" else None)
    shared = {"collator": collator, "batch_size": 16, "num_batches": 4}
    whole = FreshBatches(Addition(), 1, 8, 0, **shared)[1]
    parts = [FreshBatches(Addition(), 1, 8, 0, **shared, process=process, processes=2)[1] for process in (0, 1)]
    rows = [part["position_ids"].expand(8, -1, -1) for part in parts]
    assert torch.equal(torch.stack(rows, dim=1).flatten(0, 1), whole["position_ids"].expand(16, -1, -1))


UNCOUPLED = ["addition-absolute", "--coupling", "sequential", "--max_position_ids", "900"]
NO_WRAP = ["--wrap_position_ids", "False"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["addition", "--position_sampling", "shuffled"], "'fixed', 'random_start'"),
        (["addition", "--position_sampling", "random_start"], "not for position_encoding 'pairwise': choose one of fixed"),
        (["addition-nope", "--position_sampling", "batch_start"], "not for position_encoding 'none': choose one of fixed"),
        (["addition-alibi", "--position_sampling", "random_start"], "'alibi': choose one of fixed, randomized"),
        (
            ["addition-absolute", "--position_sampling", "multiplier", "--max_multiplier", "3"],
            "for position_encoding 'learned'",
        ),
        (["addition-rotary", "--position_sampling", "multiplier"], "needs max_multiplier"),
        (
            ["addition-rotary", "--position_sampling", "multiplier", "--max_multiplier", "1"],
            "must be at least 2, got 1",
        ),
        ([*UNCOUPLED, "--level_position_ids", "9"], "level_position_ids needs wrap_position_ids False, got True"),
        (["paper-addition", "--use_cpu", "True", "--level_position_ids", "9", "9"], "1 numbers from 1 to 202"),
        (["addition-absolute", "--position_sampling", "fixed"], "wrap_position_ids is for .* got it with 'fixed'"),
        ([*UNCOUPLED, "--position_sampling", "randomized"], "wrap_position_ids is for .* got it with 'randomized'"),
        (
            ["addition", "--position_sampling", "randomized", "--until_certified", "False"],
            "cannot read randomized_positions",
        ),
        (["addition", "--coupling", "multiplication"], "choose one of addition, sequential, abacus"),
        (["addition-absolute", "--position_encoding", "t5"], "reads distances in tokens"),
    ],
)
def test_sampling_that_makes_no_sense_is_refused_with_what_is_legal(arguments, expected):
    with pytest.raises(ValueError, match=expected):
        parse_run(arguments)


@pytest.mark.parametrize("encoding", ["learned", "sinusoidal", "rotary", "alibi", "t5", "fire"])
def test_every_encoding_of_ids_can_be_randomized(encoding):
    run = parse_run([*UNCOUPLED, *NO_WRAP, "--position_encoding", encoding, "--position_sampling", "randomized"])
    assert run.config.randomized_positions
