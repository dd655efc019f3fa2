"""CoupledGPT's options: norms, MLP, attention scale, initial weights."""

import pytest
import torch
from torch.nn import functional

from longhand import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.data.tasks.registry import build_tokenizer
from longhand.modeling.modeling_coupled_gpt import CoupledGPTMLP, ResidualNorms
from longhand.modeling.relations import coupled_pair_map

BATCH = build_tokenizer()(["653+049=207", "1+1=2"], padding=True, return_tensors="pt")


def build(**options) -> CoupledGPTForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 48, "attn_implementation": "eager"}
    return CoupledGPTForCausalLM(CoupledGPTConfig(**(sizes | options))).eval()


def attention_weights(model, **inputs) -> torch.Tensor:
    return model(**(inputs or BATCH), output_attentions=True).attentions[0]


@pytest.mark.parametrize("kind", ["rms", "layer", "none"])
@pytest.mark.parametrize("placement", ["pre", "post", "pre_post", "sandwich"])
def test_norms_stand_where_the_placement_says(placement, kind):
    def norm(x):
        if kind == "none":
            return x
        return functional.rms_norm(x, (8,), eps=1e-6) if kind == "rms" else functional.layer_norm(x, (8,), eps=1e-6)

    expected = {
        "pre": lambda x, f: x + f(norm(x)),
        "post": lambda x, f: norm(x + f(x)),
        "pre_post": lambda x, f: norm(x + f(norm(x))),
        "sandwich": lambda x, f: x + norm(f(norm(x))),
    }[placement]
    norms = ResidualNorms(CoupledGPTConfig(hidden_size=8, norm=kind, norm_placement=placement))
    x = torch.randn(3, 8) * 5
    torch.testing.assert_close(norms.add(x, (norms.input(x) + 1).square()), expected(x, lambda y: (y + 1).square()))


@pytest.mark.parametrize("kind", ["geglu", "plain"])
def test_mlp_is_the_named_one(kind):
    mlp = CoupledGPTMLP(CoupledGPTConfig(hidden_size=8, intermediate_size=12, mlp=kind, hidden_act="relu"))
    x = torch.randn(3, 8)
    hidden = functional.relu(x @ mlp.up_proj.weight.T)
    if kind == "geglu":
        hidden = hidden * (x @ mlp.gate_proj.weight.T)
    assert hasattr(mlp, "gate_proj") == (kind == "geglu")
    torch.testing.assert_close(mlp(x), hidden @ mlp.down_proj.weight.T)


def test_tied_output_is_the_scaled_token_embedding():
    model = build(tie_word_embeddings=True)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    hidden = model.model(**BATCH).last_hidden_state
    torch.testing.assert_close(model(**BATCH).logits, hidden @ model.model.embed_tokens.weight.T)
    normed = []
    model.model.norm.register_forward_hook(lambda module, inputs, output: normed.append(output))
    torch.testing.assert_close(model.model(**BATCH, output_hidden_states=True).last_hidden_state, normed[0] / 8)


def test_untied_output_is_a_matrix_of_its_own():
    model = build()
    hidden = model.model(**BATCH).last_hidden_state
    assert not torch.equal(model.lm_head.weight, model.model.embed_tokens.weight)
    torch.testing.assert_close(model(**BATCH).logits, hidden @ model.lm_head.weight.T)


@pytest.mark.parametrize(("init", "query_std"), [("fan_in", 64**-0.5), ("t5", (64 * 16) ** -0.5)])
def test_initial_standard_deviations_are_as_specified(init, query_std):
    attention = (model := build(init=init, intermediate_size=256, max_position_ids=99).model).layers[0].self_attn
    expected = [
        (attention.q_proj, query_std),
        (attention.k_proj, 1 / 8),
        (attention.v_proj, 1 / 8),
        (attention.o_proj, 1 / 8),
        (model.layers[0].mlp.down_proj, 1 / 16),
        (model.embed_tokens, 1.0),
    ]
    for module, std in expected:
        assert module.weight.std().item() == pytest.approx(std, rel=0.06)


@pytest.mark.parametrize("ids", [30, 63, 255])
def test_orthogonal_table_has_orthogonal_rows_or_columns_of_the_normal_length(ids):
    table = build(position_encoding="learned", position_init="orthogonal", max_position_ids=ids)
    weight = table.model.position_encoding.tables[0].weight
    rows, columns = weight.shape
    gram, size = (weight @ weight.T, columns) if rows <= columns else (weight.T @ weight, rows)
    torch.testing.assert_close(gram, size * torch.eye(len(gram)), atol=1e-3, rtol=0)
    assert weight.square().sum(1).mean().item() == pytest.approx(columns, rel=1e-4)


def test_normal_table_has_unit_variance():
    weight = build(position_encoding="learned", max_position_ids=255).model.position_encoding.tables[0].weight
    assert weight.std().item() == pytest.approx(1, rel=0.05)
    assert (weight @ weight.T - 64 * torch.eye(256)).abs().max() > 5


def test_attention_scale_none_leaves_out_the_root_of_the_head_size():
    plain, scaled = build(position_encoding="none", attention_scale="none"), build(position_encoding="none")
    scaled.load_state_dict(plain.state_dict())
    scaled.model.layers[0].self_attn.q_proj.weight.data *= 4
    torch.testing.assert_close(attention_weights(plain), attention_weights(scaled))


def test_attention_scale_zero_leaves_the_weights_to_the_biases_of_relations():
    model, reference = build(position_encoding="pairwise", attention_scale="zero"), build(position_encoding="pairwise")
    missing = reference.load_state_dict(model.state_dict(), strict=False).missing_keys
    assert missing == [f"model.layers.0.self_attn.{name}_proj.weight" for name in "qk"]
    reference.model.layers[0].self_attn.q_proj.weight.data.zero_()
    torch.testing.assert_close(attention_weights(model), attention_weights(reference))


@pytest.mark.parametrize("encoding", ["none", "pairwise"])
def test_log_length_scales_scores_by_the_log_of_the_visible_keys(encoding):
    reference, model = (build(position_encoding=encoding, attention_scale=scale) for scale in ("sqrt", "log_length"))
    if encoding == "pairwise":
        reference.model.position_encoding.relation_bias.data.zero_()
    model.load_state_dict(reference.state_dict(), strict=False)
    factor = torch.tensor([0.0, 0.43, 1.0, 2.0])
    model.model.layers[0].self_attn.log_length_norm.data = factor
    real = BATCH.attention_mask.bool()[:, None, :].expand(-1, 4, -1)
    plain = attention_weights(reference)
    exponent = factor.view(-1, 1, 1) * (plain > 0).sum(-1, keepdim=True).log()
    expected = (plain.log() * exponent).masked_fill(plain == 0, -torch.inf).softmax(-1)
    torch.testing.assert_close(attention_weights(model)[real], expected[real], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("init", [0.43, 1.5])
def test_log_length_factor_begins_at_its_initial_value(init):
    model = build(attention_scale="log_length", log_length_init=init)
    assert torch.equal(model.model.layers[0].self_attn.log_length_norm, torch.full((4,), init))


@pytest.mark.parametrize("scale", ["sqrt", "none"])
def test_qk_norm_scores_are_cosines_times_the_factor(scale):
    model = build(position_encoding="none", qk_norm=True, qk_norm_init=3.0, attention_scale=scale)
    embeds = torch.randn(1, 6, 64)
    attention = model.model.layers[0].self_attn
    states = []
    for projection in (attention.q_proj, attention.k_proj):
        projection.register_forward_hook(lambda _, __, output: states.append(output.unflatten(-1, (4, 16)).transpose(1, 2)))
    weights = attention_weights(model, inputs_embeds=embeds)
    cosine = functional.cosine_similarity(states[0].unsqueeze(3), states[1].unsqueeze(2), dim=-1)
    causal = torch.ones(6, 6).tril() > 0
    torch.testing.assert_close(weights, (3 * cosine).masked_fill(~causal, -torch.inf).softmax(-1))


def test_pairwise_bias_is_that_of_its_layer_head_and_relation():
    model = build(num_hidden_layers=2, windowed=False)
    for layer in model.model.layers:
        layer.self_attn.q_proj.weight.data.zero_()
    tokens = build_tokenizer()("65+49=411", return_tensors="pt").input_ids
    ids = model.model.plan_position_ids(tokens, 10)
    relations = coupled_pair_map(ids, ids, (0, 1), False)[0].long()
    hidden = torch.ones(10, 10).triu(1) > 0
    attentions = model(tokens, output_attentions=True).attentions
    for bias, weights in zip(model.model.position_encoding.relation_bias, attentions, strict=True):
        expected = bias[relations].permute(2, 0, 1).masked_fill(hidden, -torch.inf).softmax(-1)
        torch.testing.assert_close(weights[0], expected)
