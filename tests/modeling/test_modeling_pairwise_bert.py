"""PairwiseBert's forward pass."""

from itertools import product
from math import sqrt

import pytest
import torch
from cases import all_but
from position_subjects import ENCODERS, INPUTS, LIKE_OTHERS, WITH_TEXT, assert_close, build, encode, maps_of, tokens_of
from torch.nn import functional
from transformers import BertConfig, BertForTokenClassification

from longhand.modeling import PairwiseBertConfig, PairwiseBertForTokenClassification
from longhand.modeling.encoder_maps import NO_MAP, num_relations
from longhand.modeling.relations import FAVOUR, NOT_RELATED
from longhand.modeling.vocabulary import ENCODER_TOKENS, FIRST_TEXT

WINDOWED = [name for name, options in ENCODERS.items() if options.get("windowed")]
every_encoder = pytest.mark.parametrize("name", all_but(LIKE_OTHERS, ENCODERS))


def literal_attention(attention, states: torch.Tensor, maps: dict[str, torch.Tensor]) -> torch.Tensor:
    """q . (k + p) / sqrt(head_dim), a pair at a time, and the weighted sum of values."""
    config, (batch, tokens, _) = attention.config, states.shape
    size, share = config.head_dim, config.share_over_heads
    query, key, value = (project(states) for project in (attention.q_proj, attention.k_proj, attention.v_proj))
    heads = []
    for head, rule in enumerate(config.head_maps):
        own = slice(head * size, (head + 1) * size)
        table = next((vectors for vectors in attention.relations if vectors.name == rule), None)
        scores = {}
        for row, i, j in product(range(batch), range(tokens), range(tokens)):
            relation = NOT_RELATED if table is None else int(maps[rule][row, i, j])
            if config.windowed and relation == NOT_RELATED:
                scores[row, i, j] = torch.tensor(-torch.inf, dtype=states.dtype)
                continue
            vector = torch.zeros(size, dtype=states.dtype)
            if relation != NOT_RELATED:
                vector = table.weight[relation, 0 if share else table.heads.index(head)]
            own_query, own_key, number = query[row, i, own], key[row, j, own], 0.0
            if config.where_relations_enter == "key":
                own_key = own_key + vector
            elif config.where_relations_enter == "query":
                own_query = own_query + vector
            else:
                number = vector[0]
            scores[row, i, j] = own_query @ own_key / sqrt(size) + number
        scores = torch.stack([scores[pair] for pair in product(range(batch), range(tokens), range(tokens))])
        scores = scores.view(batch, tokens, tokens)
        if config.sink:
            vector = states.new_zeros(size) if table is None else table.weight[-1, 0 if share else table.heads.index(head)]
            scores = torch.cat([scores, (query[..., own] @ vector / sqrt(size)).unsqueeze(-1)], dim=-1)
        heads.append(scores.softmax(-1)[..., :tokens] @ value[..., own])
    return attention.o_proj(torch.cat(heads, dim=-1))


def literal_logits(model, input_ids: torch.LongTensor) -> torch.Tensor:
    base, config = model.model, model.config
    embeddings = base.embed_tokens(input_ids)
    if config.absolute_positions != "none":
        positions = base.embed_positions.weight[: input_ids.shape[1]].expand_as(embeddings)
        wanted = input_ids >= (0 if config.absolute_positions == "all" else FIRST_TEXT)
        embeddings = torch.where(wanted.unsqueeze(-1), embeddings + positions, embeddings)
    embeddings = base.embedding_norm(embeddings)
    state, maps = torch.zeros_like(embeddings), maps_of(config, input_ids)
    for _ in range(config.num_loops):
        state = state + embeddings
        for layer in base.layers:
            state = layer.attention_norm(state + literal_attention(layer.self_attn, state, maps))
            state = layer.mlp_norm(state + layer.down_proj(layer.activation(layer.up_proj(state))))
    return model.classifier(state)


@every_encoder
def test_logits_and_gradients_are_those_of_the_literal_formula(name):
    model = build(name)
    # Under a window a token of text sees nothing, so that its own weights are not defined.
    input_ids = tokens_of("_2+95", "11*_8") if model.config.windowed else tokens_of("2b+95", "11*_8")
    logits, literal = model(input_ids).logits, literal_logits(model, input_ids)
    assert_close(logits, literal)
    mix, parameters = torch.randn_like(logits), list(model.parameters())
    gradients = [torch.autograd.grad((each * mix).sum(), parameters, allow_unused=True) for each in (logits, literal)]
    for (called, _), own, expected in zip(model.named_parameters(), *gradients, strict=True):
        assert (own is None) == (expected is None), called
        if own is not None:
            assert_close(own, expected)
    vectors = [name for name, _ in model.named_parameters() if ".relations." in name]
    assert len(vectors) == 2 * len(set(model.config.head_maps) - {NO_MAP})


@pytest.mark.parametrize("rule", ["relative", "uniform", "coupled"])
@pytest.mark.parametrize("share", [True, False])
def test_vectors_are_one_table_or_one_for_each_head(rule, share):
    model = build("no vectors", pair_maps=[rule, "none", rule, rule], share_over_heads=share, relation_range=[-3, 1])
    (vectors,) = model.model.layers[0].self_attn.relations
    assert vectors.weight.shape == (num_relations(rule, (-3, 1), 3), 1 if share else 3, 4)
    assert vectors.heads == [0, 2, 3]


def test_without_positions_the_order_of_tokens_is_unknown_and_with_absolute_ones_it_is_not():
    input_ids, order = tokens_of("_12+_95"), torch.tensor([3, 0, 6, 1, 2, 5, 4])
    for name, same in (("no vectors", True), ("absolute", False), ("relative", False)):
        model = build(name)
        moved, expected = model(input_ids[:, order]).logits, model(input_ids).logits[:, order]
        assert torch.allclose(moved, expected, atol=1e-9) == same


def test_absolute_positions_of_text_are_not_those_of_numbers():
    model, input_ids = build("no vectors", absolute_positions="text"), tokens_of("ab_1+c_5")
    model(input_ids).logits.square().sum().backward()
    trained = (model.model.embed_positions.weight.grad != 0).any(-1).nonzero().flatten()
    assert trained.tolist() == [0, 1, 5]


@pytest.mark.parametrize("name", ["coupled", "coupled window"])
def test_coupled_digits_are_answered_alike_in_fields_of_every_width_and_relative_ones_are_not(name):
    model = build(name, num_hidden_layers=1, relation_range=[0, 1], windowed=True)
    narrow, wide = (model(tokens_of(text)).logits[0] for text in ("_12+_95", "___12+___95"))
    # The ones and tens see columns 1 to 2 alone.
    assert_close(wide[-2:], narrow[-2:])
    relative = build("relative", num_hidden_layers=1, relation_range=[0, 1], windowed=True)
    narrow, wide = (relative(tokens_of(text)).logits[0] for text in ("12+95", "_12+_95"))
    assert not torch.allclose(wide[-2:], narrow[-2:], atol=1e-3)


def test_same_weights_in_plain_bert_give_the_same_logits():
    model = build("absolute", layer_norm_eps=1e-12)
    config = model.config
    bert = BertForTokenClassification(
        BertConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            num_hidden_layers=config.num_hidden_layers,
            num_attention_heads=config.num_attention_heads,
            intermediate_size=config.intermediate_size,
            max_position_embeddings=config.max_position_embeddings,
            num_labels=config.num_labels,
        )
    )
    names = {
        "model.embed_tokens": "bert.embeddings.word_embeddings",
        "model.embed_positions": "bert.embeddings.position_embeddings",
        "model.embedding_norm": "bert.embeddings.LayerNorm",
        "model.layers.": "bert.encoder.layer.",
        "self_attn.q_proj": "attention.self.query",
        "self_attn.k_proj": "attention.self.key",
        "self_attn.v_proj": "attention.self.value",
        "self_attn.o_proj": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "up_proj": "intermediate.dense",
        "down_proj": "output.dense",
        "mlp_norm": "output.LayerNorm",
    }
    weights = {"bert.embeddings.token_type_embeddings.weight": torch.zeros(2, config.hidden_size)}
    for name, weight in model.state_dict().items():
        for own, plain in names.items():
            name = name.replace(own, plain)
        weights[name] = weight
    bert = bert.double().eval()
    bert.load_state_dict(weights)
    inputs = encode("relative", "_12+_95", "1+5", "b_3*12")
    present = inputs.attention_mask > 0
    labels = inputs.input_ids.clamp(max=10).masked_fill(~present, -100)
    expected, found = bert(**inputs, labels=labels), model(**inputs, labels=labels)
    assert_close(found.logits[present], expected.logits[present])
    torch.testing.assert_close(found.loss, expected.loss.float())


def test_loss_is_the_cross_entropy_of_supervised_tokens():
    model, input_ids = build("coupled"), tokens_of(INPUTS[0], WITH_TEXT)
    labels = torch.randint(0, 11, input_ids.shape).where(torch.rand(input_ids.shape) < 0.5, -100)
    outputs = model(input_ids, labels=labels)
    expected = functional.cross_entropy(outputs.logits[labels >= 0].float(), labels[labels >= 0])
    torch.testing.assert_close(outputs.loss, expected)
    assert model(input_ids).loss is None
    assert_close(model(input_ids, return_dict=False)[0], outputs.logits)


def test_names_of_labels_are_kept(tmp_path):
    names = dict(enumerate("zyxwvutsrqponml"))
    PairwiseBertConfig(id2label=names).save_pretrained(tmp_path)
    config = PairwiseBertConfig.from_pretrained(tmp_path)
    assert config.id2label == names and config.num_labels == 15


def test_initial_weights_are_normal_biases_zero_and_norms_one():
    torch.manual_seed(0)
    sizes = {"hidden_size": 96, "num_hidden_layers": 1, "initializer_range": 0.07}
    config = PairwiseBertConfig(**sizes, absolute_positions="all", relation_init="normal")
    for name, parameter in PairwiseBertForTokenClassification(config).named_parameters():
        if "norm" in name:
            assert (parameter == (1 if name.endswith("weight") else 0)).all(), name
        elif name.endswith("bias"):
            assert (parameter == 0).all(), name
        else:
            assert abs(parameter.std() / 0.07 - 1) < 0.08 and abs(parameter.mean()) < 0.01, name


@pytest.mark.parametrize("place", ["key", "query", "score"])
@pytest.mark.parametrize("size", [32, 768])
def test_by_default_a_given_map_matters_from_the_first_step(place, size):
    """What relations add to scores is about N(0, 1), as in decoders, whatever the sizes are."""
    torch.manual_seed(0)
    options = {"vocab_size": 50, "num_labels": 2, "hidden_size": size, "num_attention_heads": 8, "intermediate_size": 8}
    config = PairwiseBertConfig(**options, pair_maps=["given"], num_relations=20, where_relations_enter=place)
    model = PairwiseBertForTokenClassification(config).eval()
    added = []
    for layer in model.model.layers:
        layer.self_attn.relations[0].register_forward_hook(lambda module, inputs, output: added.append(output))
    tokens, pair_map = torch.randint(0, 50, (2, 30)), torch.randint(0, 20, (2, 30, 30))
    model(tokens, pair_map=pair_map)
    assert all(0.5 < each.std() < 2 for each in added)
    # A model of a task starts as paper 2 trains.
    assert PairwiseBertConfig(task={"task": "encoder_addition"}).relation_init == "normal"


@pytest.mark.parametrize("share", [True, False])
def test_each_head_starts_with_one_relation_to_which_its_scores_are_higher(share):
    maps = ["coupled"] * 2 + ["none"] + ["uniform"] * 7
    sizes = {"hidden_size": 80, "num_hidden_layers": 1, "num_attention_heads": 10, "relation_range": [-1, 1]}
    config = PairwiseBertConfig(pair_maps=maps, relation_init="one_per_head", share_over_heads=share, **sizes)
    attention = PairwiseBertForTokenClassification(config).model.layers[0].self_attn
    queries = attention.q_proj.bias.view(1, 10, 1, 8) * attention.scaling
    for relations, expected in zip(attention.relations, (3, 6), strict=True):
        assert len(relations.weight) == expected
        own = queries[:, relations.heads]
        scores = relations(own, own, torch.arange(expected).view(1, 1, 1, -1))[0, :, 0]
        favoured = torch.arange(len(relations.heads)) % expected
        torch.testing.assert_close(scores, FAVOUR * functional.one_hot(favoured, expected).to(scores.dtype))


@every_encoder
def test_half_precision_stays_near_double_precision(name):
    model, inputs = build(name), encode("relative", "_12+_95", "1+5")
    present = inputs.attention_mask > 0
    expected = model(**inputs).logits[present]
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model.float()(**inputs).logits[present]
    half = model.bfloat16()(**inputs).logits[present]
    for logits in (mixed, half):
        assert (logits - expected).abs().max() < 0.15 * expected.abs().max()


@pytest.mark.parametrize("name", WINDOWED)
@pytest.mark.parametrize("recorded", [False, True])
def test_tokens_that_see_nobody_do_not_spoil_half_precision(name, recorded):
    model, inputs = build(name, attn_implementation="eager"), encode("relative", "ab_12+_95", "1+5")
    with torch.no_grad():
        for layer in model.model.layers:
            for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj):
                projection.weight *= 8
    assert model.half()(**inputs, output_attentions=recorded).logits.isfinite().all()


def test_dropout_is_that_of_training_alone():
    model, input_ids = build("mixed", hidden_dropout_prob=0.5), tokens_of("_12+_95")
    assert torch.equal(model(input_ids).logits, model(input_ids).logits)
    model.train()
    assert not torch.equal(model(input_ids).logits, model(input_ids).logits)


def test_long_input_needs_no_table_under_relations_of_a_range():
    model = build("coupled")
    text = f"{'7' * 60}+{'8' * 60}"
    assert model(tokens_of(text)).logits.shape == (1, 121, 11)


def test_defaults_are_those_of_the_paper():
    config = PairwiseBertConfig()
    assert (config.hidden_size, config.num_hidden_layers, config.num_attention_heads, config.head_dim) == (768, 6, 8, 96)
    assert (config.vocab_size, config.num_labels) == (len(ENCODER_TOKENS), 11)
    # A vector for every difference of 101 tokens.
    assert num_relations("relative", config.relation_range, config.max_multiplier_length) == 2 * 101 - 1
