"""Position encodings of decoders: their formulas, and encodings of a user's own file. `test_positions.py` has the rest."""

import importlib
import math
import sys

import pytest
import torch
from position_subjects import DECODERS, SUMS, build, encode

from longhand import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.modeling.position_encodings import FIRE_IDS, POSITION_ENCODINGS, alibi_slopes

DISTANCES = ["alibi", "t5", "fire"]
TOKENS_OF_SUM = encode("fire", SUMS[0]).input_ids


def encoding_of(encoding, **options):
    return build(encoding, **options).model.position_encoding


def ids(*values: int) -> torch.LongTensor:
    """One row of one level."""
    return torch.tensor([[values]])


def assert_close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4, check_dtype=False)


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


@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (8, 20), (5, 7)])
def test_t5_buckets_hold_one_distance_each_then_equal_ratios_and_the_last_all_far_ones(buckets, farthest):
    options = {"relative_attention_num_buckets": buckets, "relative_attention_max_distance": farthest}
    relations = encoding_of("t5", **options).pair_map(ids(1000), torch.arange(1000, -1, -1).view(1, 1, -1))[0, 0]
    exact = buckets // 2
    ratio = (farthest / exact) ** (1 / (buckets - exact))
    for distance, bucket in enumerate(relations.tolist()):
        if distance < exact:
            assert bucket == distance
        else:
            # Within rounding of the bounds of a bucket.
            assert min(bucket, buckets - 2) <= exact + math.log(distance / exact, ratio) + 1e-4
            assert bucket == buckets - 1 or distance < exact * ratio ** (bucket - exact + 1) + 1e-4
    assert relations.dtype == torch.int32 and (relations[farthest:] == buckets - 1).all()


def test_t5_bias_is_one_number_per_bucket_and_head_for_all_layers():
    module = encoding_of("t5")
    relations = module.pair_map(ids(40, 100), ids(0, 30))
    for layer in (0, 1):
        assert torch.equal(module.bias(relations, layer), module.bucket_bias[relations.long()])


@pytest.mark.parametrize("layer", [0, 1])
def test_fire_bias_is_the_slow_formula_on_both_sides_of_the_threshold(layer):
    module = encoding_of("fire")
    torch.nn.init.normal_(module.bias_scale)
    threshold = abs(module.bias_threshold_factor[layer].item()) * 512
    scale = abs(module.bias_scale[layer].item())
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
    module = CoupledGPTForCausalLM(CoupledGPTConfig(**DECODERS["fire"], num_hidden_layers=3)).model.position_encoding
    assert torch.equal(module.bias_scale, torch.full((3,), 0.1)) and torch.equal(module.bias_threshold_factor, torch.ones(3))
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
        assert bool(module.bias_threshold_factor.grad[layer] != 0) == expected


def test_relations_of_the_largest_ids_of_fire_fit_into_32_bits():
    last = FIRE_IDS - 1
    relation = encoding_of("fire").pair_map(ids(last), ids(0, last))
    assert relation.dtype == torch.int32 and (relation >= 0).all()


def test_sines_are_the_slow_formula_and_levels_are_added():
    module = encoding_of("sinusoidal")

    def wave(position):
        angles = [position / 10000 ** (2 * (i // 2) / 32) for i in range(32)]
        return torch.tensor([math.cos(angle) if i % 2 else math.sin(angle) for i, angle in enumerate(angles)])

    embedded = module.embed(torch.ones(1, 2, 32), torch.tensor([[[3, 0], [700, 41]]]))
    assert_close(embedded[0], 1 + torch.stack([wave(3) + wave(700), wave(0) + wave(41)]))
    first, second = (module.embed(torch.zeros(1, 2, 32), ids(p, p + 9))[0] for p in (4, 90))
    assert_close(first[0] @ first[1], second[0] @ second[1])


# Refusals.


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


@pytest.mark.parametrize("taken", ["toy", "rotary"])
def test_an_encoding_whose_name_is_taken_is_refused(toy_encoding, taken):
    with pytest.raises(ValueError, match=f"encoding '{taken}' exists already, as .*: choose another name for other.Toy"):
        exec(ENCODING_FILE.replace('"toy"', repr(taken)), {"__name__": "other"})
