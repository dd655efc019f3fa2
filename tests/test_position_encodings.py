"""Position encodings, and what is done to position ids in training and at evaluation."""

import importlib
import math
import re
import sys
from itertools import combinations

import numpy as np
import pytest
import torch
from comparing import assert_same_weights
from huggingface_hub.errors import StrictDataclassError
from transformers.models.t5.modeling_t5 import T5Attention

from longhand import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.data import TASKS, Addition, CouplingCollator, EvaluationBatches, FreshBatches, make_generator
from longhand.data.collator import POSITION_SAMPLINGS
from longhand.data.formatting import Examples, lay_out
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tokenization import build_tokenizer
from longhand.hub_cards.runs.arguments import parse_run
from longhand.modeling.coupling import (
    COUPLING_RULES,
    CouplingRule,
    Plan,
    any_text_rules,
    largest_position_ids,
    plan_position_ids,
)
from longhand.modeling.coupling_rules import addition
from longhand.modeling.position_encodings import FIRE_IDS, POSITION_ENCODINGS, alibi_slopes
from longhand.modeling.vocabulary import ALL_TOKENS, BOS, EQUALS, PAD, TOKENS

ENCODINGS = {
    "none": {"position_encoding": "none"},
    "learned": {"position_encoding": "learned"},
    "learned, uncoupled": {"position_encoding": "learned", "coupling": "sequential"},
    "learned, abacus": {"position_encoding": "learned", "coupling": "abacus"},
    "learned, randomized": {"position_encoding": "learned", "coupling": "sequential", "randomized_positions": True},
    "learned, coupled and randomized": {"position_encoding": "learned", "randomized_positions": True},
    "sinusoidal": {"position_encoding": "sinusoidal", "coupling": "sequential"},
    "sinusoidal, coupled": {"position_encoding": "sinusoidal"},
    "rotary": {"position_encoding": "rotary", "coupling": "sequential"},
    "rotary, coupled": {"position_encoding": "rotary"},
    "rotary, randomized": {"position_encoding": "rotary", "coupling": "sequential", "randomized_positions": True},
    "pairwise": {"position_encoding": "pairwise", "windowed": False},
    "windowed": {"position_encoding": "pairwise"},
    "alibi": {"position_encoding": "alibi", "coupling": "sequential"},
    "t5": {"position_encoding": "t5", "coupling": "sequential"},
    "fire": {"position_encoding": "fire", "coupling": "sequential"},
    "fire, randomized": {"position_encoding": "fire", "coupling": "sequential", "randomized_positions": True},
}
DISTANCES = ["alibi", "t5", "fire"]
TEXTS = ["653+049=", "7+12=", "1+1="]

tokenizer = build_tokenizer()
TOKENS_OF_SUM = tokenizer("653+049=2070$", return_tensors="pt").input_ids
every_encoding = pytest.mark.parametrize("encoding", ENCODINGS)


def build(encoding, **options) -> CoupledGPTForCausalLM:
    """A tiny model with random weights, the same at every call."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48, "max_position_ids": 60}
    model = CoupledGPTForCausalLM(CoupledGPTConfig(**(sizes | ENCODINGS[encoding] | options))).eval()
    if hasattr(model.model.position_encoding, "threshold_factor"):
        # Thresholds of about 3 and 10 tokens: short inputs stand on both sides.
        model.model.position_encoding.threshold_factor.data = torch.tensor([0.006, -0.02])
    return model


def encoding_of(encoding, **options):
    return build(encoding, **options).model.position_encoding


def ids(*values: int) -> torch.LongTensor:
    """One row of one level."""
    return torch.tensor([[values]])


def assert_close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def test_these_tests_cover_every_encoding_and_the_collator_knows_all_their_samplings():
    tested = {options["position_encoding"] for options in ENCODINGS.values()}
    assert set(POSITION_ENCODINGS) == tested
    assert {name for encoding in POSITION_ENCODINGS.values() for name in encoding.position_samplings} <= set(
        POSITION_SAMPLINGS
    )


def greedy(model, tokens, count) -> torch.LongTensor:
    """Argmax of full forwards; `$` is not allowed. Under a window, tokens after the planned response are hidden."""
    prompt_length = tokens.shape[1]
    for _ in range(count):
        mask = torch.ones_like(tokens)
        if model.model.position_encoding.windowed:
            planned = model.model.plan_position_ids(tokens, tokens.shape[1])
            mask[:, prompt_length:] = (planned[:, :, prompt_length:] > 0).any(1)
        logits = model(tokens, attention_mask=mask, use_cache=False).logits[:, -1]
        logits[:, BOS] = -torch.inf
        tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], dim=1)
    return tokens[:, prompt_length:]


@pytest.mark.parametrize("count", [4, 14])
@every_encoding
def test_left_padded_cached_decoding_is_the_argmax_of_full_forwards_of_each_prompt(encoding, count):
    # 14 tokens are more than any rule plans for, also for one that goes on.
    model = build(encoding)
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    generated = model.generate(**batch, min_new_tokens=count, max_new_tokens=count)[:, -count:]
    alone = [greedy(model, tokenizer(text, return_tensors="pt").input_ids, count) for text in TEXTS]
    assert torch.equal(generated, torch.cat(alone))


@every_encoding
def test_saved_and_loaded_model_has_the_same_weights_and_logits(encoding, tmp_path):
    model = build(encoding)
    model.save_pretrained(tmp_path)
    loaded = CoupledGPTForCausalLM.from_pretrained(tmp_path)
    assert_same_weights(loaded.state_dict(), model.state_dict())
    assert_close(loaded(TOKENS_OF_SUM).logits, model(TOKENS_OF_SUM).logits)


@every_encoding
def test_later_tokens_change_no_logits_and_earlier_ones_do(encoding):
    model = build(encoding)
    changed = torch.cat([TOKENS_OF_SUM[:, :11], (TOKENS_OF_SUM[:, 11:] + 3) % 10], dim=1)
    before, after = model(TOKENS_OF_SUM).logits, model(changed).logits
    assert_close(after[:, :11], before[:, :11])
    assert ((after - before)[:, 11:].abs().amax(-1) > 1e-3).all()


@every_encoding
def test_attention_maps_change_no_logits_and_have_the_shape_of_all_pairs(encoding):
    model = build(encoding)
    expected = model(TOKENS_OF_SUM).logits
    model.set_attn_implementation("eager")
    outputs = model(TOKENS_OF_SUM, output_attentions=True)
    assert_close(outputs.logits, expected)
    assert {tuple(weights.shape) for weights in outputs.attentions} == {(1, 4, 14, 14)}


@every_encoding
def test_kept_logits_of_a_batch_with_one_row_of_ids_equal_those_with_a_row_each(encoding):
    model = build(encoding)
    batch = torch.cat([TOKENS_OF_SUM, tokenizer("111+222=3330$", return_tensors="pt").input_ids])
    rows = model.model.plan_position_ids(batch, 14)
    kept = model(batch, position_ids=rows[:1], logits_to_keep=5).logits
    assert_close(kept, model(batch, position_ids=rows).logits[:, -5:])


@every_encoding
def test_parameters_of_the_encoding_are_drawn_and_trained(encoding):
    first, second = build(encoding), build(encoding)
    first(TOKENS_OF_SUM, labels=TOKENS_OF_SUM).loss.backward()
    parameters = dict(first.model.position_encoding.named_parameters())
    again = dict(second.model.position_encoding.named_parameters())
    for name, parameter in parameters.items():
        assert torch.equal(parameter, again[name]) and torch.isfinite(parameter).all()
        assert parameter.grad.abs().sum() > 0
    assert bool(parameters) == (first.config.position_encoding in ("learned", "pairwise", "t5", "fire"))


def attention_without_content(encoding, **options) -> list[torch.Tensor]:
    """Attention maps of `TOKENS_OF_SUM`, (heads, queries, keys) for each layer, where queries are zero."""
    model = build(encoding, **options)
    model.set_attn_implementation("eager")
    for layer in model.model.layers:
        layer.self_attn.q_proj.weight.data.zero_()
    return [weights[0] for weights in model(TOKENS_OF_SUM, output_attentions=True).attentions]


@pytest.mark.parametrize("encoding", DISTANCES)
def test_attention_without_content_is_the_softmax_of_the_bias(encoding):
    module = encoding_of(encoding)
    positions = torch.arange(14).view(1, 1, 14)
    future = torch.ones(14, 14).triu(1) > 0
    for layer, weights in enumerate(attention_without_content(encoding)):
        bias = module.bias(module.pair_map(positions, positions), layer)[0].permute(2, 0, 1)
        assert_close(weights, bias.masked_fill(future, -torch.inf).softmax(-1))


def test_alibi_slopes_are_the_published_ones():
    assert alibi_slopes(8) == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    assert alibi_slopes(16) == [2 ** (-head / 2) for head in range(1, 17)]
    assert alibi_slopes(12) == [*alibi_slopes(8), *(2**-exponent for exponent in (0.5, 1.5, 2.5, 3.5))]
    assert alibi_slopes(1) == [2**-8] and alibi_slopes(3) == [2**-4, 2**-8, 2**-2]
    for heads in range(1, 40):
        assert len(set(alibi_slopes(heads))) == heads


@pytest.mark.parametrize("heads", [4, 3])
def test_alibi_bias_is_minus_slope_times_distance(heads):
    module = encoding_of("alibi", num_attention_heads=heads, head_dim=8)
    bias = module.bias(module.pair_map(ids(5, 900), ids(0, 3, 5)), 0)[0]
    for query, i in enumerate((5, 900)):
        for key, j in enumerate((0, 3, 5)):
            assert_close(bias[query, key], torch.tensor([-slope * (i - j) for slope in alibi_slopes(heads)]))


@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (8, 20), (5, 7), (2, 2)])
def test_t5_buckets_are_those_of_t5(buckets, farthest):
    options = {"relative_attention_num_buckets": buckets, "relative_attention_max_distance": farthest}
    relations = encoding_of("t5", **options).pair_map(torch.arange(300).view(1, 1, -1), torch.arange(310).view(1, 1, -1))[0]
    distance = torch.arange(310).unsqueeze(0) - torch.arange(300).unsqueeze(1)
    expected = T5Attention._relative_position_bucket(distance, False, buckets, farthest)
    assert relations.dtype == torch.int32 and torch.equal(relations.long(), expected)


def test_t5_bucket_borders_are_the_slow_formula():
    relations = encoding_of("t5").pair_map(torch.arange(400).view(1, 1, -1), ids(0))[0, :, 0].tolist()
    for distance, bucket in enumerate(relations):
        farther = 16 + int(math.log(max(distance, 1) / 16) / math.log(128 / 16) * 16)
        assert bucket == (distance if distance < 16 else min(31, farther))


def test_t5_bias_is_one_number_per_bucket_and_head_for_all_layers():
    module = encoding_of("t5")
    relations = module.pair_map(ids(40, 100), ids(0, 30))
    for layer in (0, 1):
        assert torch.equal(module.bias(relations, layer), module.bucket_bias[relations.long()])


@pytest.mark.parametrize("layer", [0, 1])
def test_fire_bias_is_the_slow_formula_on_both_sides_of_the_threshold(layer):
    module = encoding_of("fire")
    torch.nn.init.normal_(module.scale)
    threshold = abs(module.threshold_factor[layer].item()) * 512
    scale = abs(module.scale[layer].item())
    keys = [0, 1, 2, 9, 30]
    queries = [2, 9, 30, 31, 32_000]
    assert sum(i < threshold for i in queries) in (1, 2)
    bias = module.bias(module.pair_map(ids(*queries), ids(*keys)), layer)[0]
    for query, i in enumerate(queries):
        for key, j in enumerate(keys):
            if j > i:
                continue
            share = math.log(scale * (i - j) + 1) / (math.log(scale * max(threshold, i) + 1) + 1e-6)
            hidden = torch.relu(share * module.hidden_weight[layer] + module.hidden_bias[layer])
            assert_close(bias[query, key], hidden @ module.output_weight[layer] + module.output_bias[layer])


def test_fire_begins_as_published():
    torch.manual_seed(0)
    module = CoupledGPTForCausalLM(CoupledGPTConfig(**ENCODINGS["fire"], num_hidden_layers=3)).model.position_encoding
    assert torch.equal(module.scale, torch.full((3,), 0.1)) and torch.equal(module.threshold_factor, torch.ones(3))
    for parameter, bound in ((module.hidden_weight, 1), (module.output_weight, 32**-0.5)):
        assert 0.9 * bound < parameter.abs().max() <= bound and abs(parameter.mean()) < bound / 4
    # Below 512 tokens only the distance counts, from there on its share of the query's own id.
    bias = module.bias(module.pair_map(ids(100, 200), ids(90, 190)), 0)[0]
    assert_close(bias[0, 0], bias[1, 1])
    bias = module.bias(module.pair_map(ids(1000, 2000), ids(0)), 0)[0]
    assert_close(bias[0], bias[1])


@pytest.mark.parametrize("layer", [0, 1])
def test_fire_learns_its_threshold_from_queries_below_it_only(layer):
    for query, expected in ((2, True), (31, False)):
        module = encoding_of("fire")
        module.bias(module.pair_map(ids(query), ids(1)), layer).sum().backward()
        assert bool(module.threshold_factor.grad[layer] != 0) == expected


def test_fire_refuses_ids_that_do_not_fit():
    module = encoding_of("fire")
    last = FIRE_IDS - 1
    relation = module.pair_map(ids(last), ids(0, last))
    assert relation.dtype == torch.int32 and (relation >= 0).all()
    for bad in (FIRE_IDS, -1):
        with pytest.raises(ValueError, match=rf"position ids must be in 0\.\.{last} for FIRE, got {bad}"):
            module.pair_map(ids(3), ids(0, bad))


@pytest.mark.parametrize("encoding", ["alibi", "t5", "rotary"])
def test_only_differences_of_ids_matter(encoding):
    model = build(encoding)
    shifted = model.model.plan_position_ids(TOKENS_OF_SUM, 14) + 40
    assert_close(model(TOKENS_OF_SUM, position_ids=shifted).logits, model(TOKENS_OF_SUM).logits)
    assert not torch.allclose(model(TOKENS_OF_SUM, position_ids=shifted * 2).logits, model(TOKENS_OF_SUM).logits, atol=1e-2)


def test_sines_are_the_slow_formula_and_levels_are_added():
    module = encoding_of("sinusoidal")

    def wave(position):
        angles = [position / 10000 ** (2 * (i // 2) / 32) for i in range(32)]
        return torch.tensor([math.cos(angle) if i % 2 else math.sin(angle) for i, angle in enumerate(angles)])

    embedded = module.embed(torch.ones(1, 2, 32), torch.tensor([[[3, 0], [700, 41]]]))
    assert_close(embedded[0], 1 + torch.stack([wave(3) + wave(700), wave(0) + wave(41)]))
    first, second = (module.embed(torch.zeros(1, 2, 32), ids(p, p + 9))[0] for p in (4, 90))
    assert_close(first[0] @ first[1], second[0] @ second[1])


@pytest.mark.parametrize("encoding", ["sinusoidal", "sinusoidal, coupled"])
def test_sines_have_no_largest_id(encoding):
    model = build(encoding, max_position_ids=5)
    positions = model.model.plan_position_ids(TOKENS_OF_SUM, 14) * 1000
    embeds = model.model.embed_tokens(TOKENS_OF_SUM)
    by_ids = model(TOKENS_OF_SUM, position_ids=positions).logits
    assert_close(by_ids, model(inputs_embeds=embeds, position_ids=positions).logits)
    assert not torch.allclose(by_ids, model(TOKENS_OF_SUM).logits, atol=1e-2)


# Rules for any task.


def examples_of(task, count=12, length=5) -> Examples:
    lengths = task.sample_lengths(make_generator(0), count, length, length)
    return task.examples(make_generator(1), np.tile(lengths[:1], (count, 1)), "train")


DECODER_TASKS = [name for name, task in TASKS.items() if issubclass(task, DecoderTask)]


@pytest.mark.parametrize("name", DECODER_TASKS)
def test_every_task_can_have_every_rule_for_any_task(name):
    examples = examples_of(TASKS[name]())
    for rule in any_text_rules():
        run = parse_run(["addition", "--task", name, "--coupling", rule, "--until_certified", "False"])
        assert run.config.coupling == rule
        batch = run.task.family.collator(run.config)(examples)
        assert batch["position_ids"].shape[1:] == (1, examples.tokens.shape[1])


@pytest.mark.parametrize("name", DECODER_TASKS)
def test_abacus_counts_the_digits_of_every_number(name):
    examples = examples_of(TASKS[name]())
    rows = CouplingCollator("abacus", 1)(examples)["position_ids"].expand(len(examples), -1, -1)
    for tokens, found in zip(examples.tokens, rows[:, 0].tolist(), strict=True):
        query, response = "".join(ALL_TOKENS[token] if token != PAD else "." for token in tokens).split("=", 1)
        numbers = re.findall("[0-9]+|[^0-9]", query)
        counted = [place if number.isdigit() else 0 for number in numbers for place in range(1, len(number) + 1)]
        if "<" in response:
            response = response[: response.index("<")] + "." * (len(tokens) - len(query) - 1 - response.index("<"))
        assert found == [*counted, 0, *range(1, len(response) + 1)]


@pytest.mark.parametrize(("text", "expected"), [("$12+3", [0, 1, 2, 0, 1, 1, 2, 3]), ("12=", [1, 2, 0, 1, 2, 3, 4, 5])])
def test_abacus_reads_texts_without_equals_sign_or_begin(text, expected):
    tokens = torch.tensor([[TOKENS.index(character) for character in text]])
    assert COUPLING_RULES["abacus"].plan(tokens, 8).position_ids.tolist() == [[expected]]


@pytest.mark.parametrize("rule", any_text_rules())
def test_rules_for_any_task_plan_a_response_as_long_as_the_query(rule):
    batch = tokenizer(["653+049=2070", "7+12=91"], padding=True, return_tensors="pt").input_ids
    plan = COUPLING_RULES[rule].plan(batch, 40)
    assert plan.response_length == 9
    for row, query in enumerate((9, 6)):
        begin = int((batch[row] != PAD).int().argmax())
        assert plan.position_ids[row, 0, begin + 2 * query - 1] == plan.largest_ids[row, 0]


def test_capacity_of_abacus_counts_the_response_and_its_end():
    digits = int(re.search(r"responses of (\d+) digits", COUPLING_RULES["abacus"].capacity(9))[1])
    tokens = tokenizer("1+1=", return_tensors="pt").input_ids
    assert int(COUPLING_RULES["abacus"].plan(tokens, 5 + digits + 1).position_ids.max()) == 9


# What is done to position ids.


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
        generated = torch.cat(used, dim=-1)
        shared = min(generated.shape[-1], derived.shape[-1])
        assert shared > query + 3 and torch.equal(generated[..., :shared], derived[:1, :, :shared])


def test_training_with_randomized_positions_is_evaluated_with_spread_ones():
    run = parse_run(["addition-randomized"])
    assert run.config.randomized_positions and run.training_collator.position_sampling == "randomized"
    assert run.task.family.collator(run.config) == CouplingCollator("sequential", 1000, "spread")
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


# Refusals.


@pytest.mark.parametrize("encoding", DISTANCES)
def test_token_distances_are_refused_for_other_rules_with_what_these_can_have(encoding):
    expected = (
        f"'{encoding}' reads distances in tokens.*'addition' does not give.*none, learned, sinusoidal, rotary, pairwise"
    )
    with pytest.raises((ValueError, StrictDataclassError), match=expected):
        CoupledGPTConfig(position_encoding=encoding)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"position_encoding": "kerple"}, "position_encoding"),
        ({"position_encoding": "sinusoidal", "hidden_size": 33, "head_dim": 8}, "even hidden_size, got 33"),
        ({"relative_attention_num_buckets": 1}, "at least 2, got 128 and 1"),
        ({"relative_attention_num_buckets": 32, "relative_attention_max_distance": 16}, "got 16 and 32"),
        ({"position_encoding": "pairwise", "randomized_positions": True}, "cannot read randomized_positions: .*alibi"),
        ({"position_encoding": "none", "randomized_positions": True}, "cannot read randomized_positions"),
    ],
)
def test_illegal_option_of_an_encoding_is_refused_with_what_is_legal(options, expected):
    with pytest.raises((ValueError, StrictDataclassError), match=expected):
        CoupledGPTConfig(**options)


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
        (["addition-rotary", "--position_sampling", "multiplier"], "needs max_multiplier of at least 2, got None"),
        (["addition-rotary", "--position_sampling", "multiplier", "--max_multiplier", "1"], "at least 2, got 1"),
        (["addition-rotary", "--max_multiplier", "3"], "for position_sampling 'multiplier' only, got 3"),
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


# Encodings of a user's own file.

ENCODING_FILE = """
import torch
from longhand.modeling.position_encodings import PositionEncoding, position_encoding

@position_encoding("toy")
class Toy(PositionEncoding):
    uses_position_ids = embeds_position_ids = True

    def embed(self, token_embeddings, position_ids):
        return token_embeddings + position_ids[:, 0].unsqueeze(-1) % 2
"""


@pytest.fixture
def toy_encoding(tmp_path, monkeypatch):
    """Registers the encoding of `ENCODING_FILE`, from a file that is imported twice, for one test."""
    (tmp_path / "my_encodings.py").write_text(ENCODING_FILE)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.reload(importlib.import_module("my_encodings"))
    yield "toy"
    del POSITION_ENCODINGS["toy"], sys.modules["my_encodings"]


def test_an_encoding_of_another_file_is_used_by_its_name(toy_encoding, tmp_path):
    config = CoupledGPTConfig(position_encoding=toy_encoding)
    model = CoupledGPTForCausalLM(config).eval()
    positions = model.model.plan_position_ids(TOKENS_OF_SUM, 14)
    logits = [model(TOKENS_OF_SUM, position_ids=positions + start).logits for start in (0, 1, 2)]
    assert_close(logits[2], logits[0])
    assert not torch.allclose(logits[1], logits[0], atol=1e-2)
    model.save_pretrained(tmp_path)
    assert_close(CoupledGPTForCausalLM.from_pretrained(tmp_path)(TOKENS_OF_SUM).logits, logits[0])


@pytest.mark.parametrize("taken", ["toy", "rotary"])
def test_an_encoding_whose_name_is_taken_is_refused(toy_encoding, taken):
    with pytest.raises(ValueError, match=f"encoding '{taken}' exists already, as .*: choose another name for other.Toy"):
        exec(ENCODING_FILE.replace('"toy"', repr(taken)), {"__name__": "other"})


def test_a_configuration_of_an_unknown_encoding_names_the_encodings_and_the_option_for_plugins():
    expected = (
        r"position_encoding 'toy' is unknown: choose one of none, .*fire; a model made with a plugin needs it: --plugin F"
    )
    with pytest.raises((ValueError, StrictDataclassError), match=expected):
        CoupledGPTConfig(position_encoding="toy")
    with pytest.raises(ValueError, match=expected):
        parse_run(["addition", "--position_encoding", "toy"])
