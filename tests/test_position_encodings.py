"""Position encodings of decoders: their formulas, and what holds for all of them."""

import importlib
import math
import sys

import pytest
import torch
from comparing import assert_same_weights
from encoding_subjects import ENCODINGS, TEXTS, build, greedy, tokenizer
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoModelForCausalLM
from transformers.models.t5.modeling_t5 import T5Attention

from longhand import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.data.collator import POSITION_SAMPLINGS
from longhand.hub_cards.training.arguments import parse_run
from longhand.modeling.position_encodings import FIRE_IDS, POSITION_ENCODINGS, alibi_slopes

DISTANCES = ["alibi", "t5", "fire"]
TOKENS_OF_SUM = tokenizer("653+049=2070$", return_tensors="pt").input_ids
every_encoding = pytest.mark.parametrize("encoding", ENCODINGS)


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
    model = build(encoding, attention_scale="log_length", qk_norm=True, log_length_init=0.7, qk_norm_init=2.0)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(loaded) is CoupledGPTForCausalLM
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
    model, batch = build(encoding), tokenizer(["653+049=2070$", "1+1=2"], padding=True, return_tensors="pt")
    expected = model(**batch).logits[batch.attention_mask > 0]
    model.set_attn_implementation("eager")
    outputs = model(**batch, output_attentions=True)
    assert_close(outputs.logits[batch.attention_mask > 0], expected)
    assert_close(model(**batch).logits[batch.attention_mask > 0], expected)
    assert {tuple(weights.shape) for weights in outputs.attentions} == {(2, 4, 14, 14)}


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
        with pytest.raises(ValueError, match=str(bad)):
            module.check(ids(0, bad))


@pytest.mark.parametrize("encoding", ["alibi", "t5", "rotary", "rotary, coupled"])
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
