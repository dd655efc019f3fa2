"""Windowed attention: distinct neighbourhoods and gathered keys against attention over all pairs."""

from collections import Counter

import numpy as np
import pytest
import torch
from torch.nn import functional

from longhand import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.data import Addition, CouplingCollator
from longhand.data.tasks.registry import build_tokenizer
from longhand.modeling import generation_coupled_gpt
from longhand.modeling import relations as windowed
from longhand.modeling.coupling import COUPLING_RULES, CouplingRule, Plan
from longhand.modeling.coupling_rules import addition, sequential
from longhand.modeling.query_forms import unplanned
from longhand.modeling.relations import NOT_RELATED, Neighbours, distinct_neighbourhoods

ALL_PAIRS = {"output_attentions": True}
"""Arguments with which all pairs are scored, under a window too."""

tokenizer = build_tokenizer()
BATCH = tokenizer(["653+049=2070$", "7+12=910$", "1+1=2$", "99+9=801$"], padding=True, return_tensors="pt")
CONFIGS = {
    "default": {},
    "pre_post plain": {"norm_placement": "pre_post", "mlp": "plain"},
    "post layer": {"norm": "layer", "norm_placement": "post", "tie_word_embeddings": True},
    "no norm t5": {"norm": "none", "norm_placement": "pre", "init": "t5", "attention_scale": "none"},
    "qk_norm": {"qk_norm": True},
    "log_length": {"attention_scale": "log_length", "log_length_init": 0.7},
    "relations alone": {"attention_scale": "zero"},
    "both qk_norm and log_length": {"attention_scale": "log_length", "qk_norm": True},
    "-1..1": {"relation_range": [-1, 1]},
    "1..2": {"relation_range": [1, 2]},
    "-2..-1": {"relation_range": [-2, -1]},
}


def build(**options) -> CoupledGPTForCausalLM:
    """A tiny model in float64 with random weights, the same at every call."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20}
    return CoupledGPTForCausalLM(CoupledGPTConfig(**(sizes | options))).double().eval()


def assert_close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


def assert_same_results(model, inputs, other_inputs):
    """Logits at all tokens but padding, loss, and the gradients of all parameters."""
    real = BATCH.attention_mask.bool()
    # Not the first token, which padding would predict.
    labels = BATCH.input_ids.masked_fill(~(real & real.roll(1, 1)), -100)
    results = []
    for given in (inputs, other_inputs):
        model.zero_grad(set_to_none=True)
        outputs = model(**BATCH, **given, labels=labels)
        # The model's own loss is taken in float32.
        loss = functional.cross_entropy(outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        torch.testing.assert_close(outputs.loss.double(), loss, rtol=1e-6, atol=1e-6)
        loss.backward()
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        assert all(gradient is not None and gradient.any() for gradient in gradients.values())
        results.append((outputs.logits[real], loss, gradients))
    assert_close(results[0], results[1])


@pytest.fixture
def coupling_of_levels(monkeypatch):
    """Registers a rule of one to three levels: ids of `addition`, those of `sequential`, every other one of these."""

    def register(levels: int) -> dict:
        def plan(input_ids, columns):
            first, second = (rule(input_ids, columns) for rule in (addition, sequential))
            ids = [part.position_ids.expand(len(input_ids), -1, -1) for part in (first, second)]
            third = ids[1] * (ids[1] % 2)
            return Plan(torch.cat([*ids, third], dim=1)[:, :levels], first.response_length)

        monkeypatch.setitem(COUPLING_RULES, "levels", CouplingRule("levels", plan, levels, str))
        return {"coupling": "levels", "position_levels": levels}

    return register


@pytest.mark.parametrize("use_cache", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("config", CONFIGS)
def test_windowed_forms_equal_all_pairs_in_logits_loss_and_gradients(config, layers, use_cache):
    model = build(num_hidden_layers=layers, **CONFIGS[config])
    assert_same_results(model, {"use_cache": use_cache}, ALL_PAIRS | {"use_cache": False})


@pytest.mark.parametrize("use_cache", [False, True])
@pytest.mark.parametrize("levels", [1, 2, 3])
def test_windowed_forms_equal_all_pairs_at_several_levels(levels, use_cache, coupling_of_levels):
    model = build(**coupling_of_levels(levels), relation_range=[-1, 1])
    ids = model.model.plan_position_ids(BATCH.input_ids, BATCH.input_ids.shape[1])
    dense = {"position_ids": ids, **ALL_PAIRS}
    assert_same_results(model, {"use_cache": use_cache}, dense)
    assert_same_results(model, {"use_cache": use_cache, "position_ids": ids}, dense)


@pytest.mark.parametrize("use_cache", [False, True])
@pytest.mark.parametrize("keep", [1, 5, torch.tensor([4, 9, 12])], ids=["1", "5", "indices"])
@pytest.mark.parametrize("layers", [1, 2])
def test_kept_logits_and_gradients_of_inputs_equal_those_of_all_pairs(layers, keep, use_cache):
    model = build(num_hidden_layers=layers)
    ids = model.model.plan_position_ids(BATCH.input_ids, BATCH.input_ids.shape[1])
    results = []
    for given in ({}, ALL_PAIRS):
        embeds = model.model.embed_tokens(BATCH.input_ids).detach().requires_grad_()
        logits = model(
            inputs_embeds=embeds, attention_mask=BATCH.attention_mask, position_ids=ids, logits_to_keep=keep,
            use_cache=use_cache, **given,
        ).logits  # fmt: skip
        columns = keep if isinstance(keep, torch.Tensor) else slice(-keep, None)
        logits = logits[BATCH.attention_mask[:, columns] > 0]
        results.append((logits, torch.autograd.grad(logits.square().sum(), embeds)[0]))
        of_tokens = model(**BATCH, logits_to_keep=keep, use_cache=use_cache).logits
        assert_close(of_tokens[BATCH.attention_mask[:, columns] > 0], logits)
    assert_close(results[0], results[1])


@pytest.mark.parametrize("use_cache", [False, True])
def test_one_row_of_ids_serves_a_batch_of_one_layout(use_cache):
    model = build()
    tokens = tokenizer(["653+049=207", "111+222=333", "990+009=999"], return_tensors="pt").input_ids
    ids = model.model.plan_position_ids(tokens, tokens.shape[1])
    shared = model(tokens, position_ids=ids[:1], use_cache=use_cache).logits
    assert_close(shared, model(tokens, position_ids=ids, use_cache=use_cache).logits)
    assert_close(shared, model(tokens, position_ids=ids[:1], **ALL_PAIRS).logits)


@pytest.mark.parametrize("chunk", [1, 7])
@pytest.mark.parametrize("use_cache", [False, True])
def test_size_of_a_chunk_changes_nothing(use_cache, chunk, monkeypatch):
    monkeypatch.setattr(windowed, "CHUNK", chunk)
    model = build()
    assert_same_results(model, {"use_cache": use_cache}, ALL_PAIRS)


def test_gradient_checkpointing_of_unequal_layouts_gives_equal_gradients():
    model = build().train()
    model.activation_checkpointing_enable()
    calls = []
    model.model.layers[1].mlp.register_forward_hook(lambda *_: calls.append(1))
    assert_same_results(model, {"use_cache": False}, ALL_PAIRS | {"use_cache": False})
    assert len(calls) == 4


@pytest.mark.parametrize("use_cache", [False, True])
def test_recorded_states_and_attention_come_with_the_same_logits(use_cache):
    model, real = build(), BATCH.attention_mask.bool()
    expected = model(**BATCH, use_cache=use_cache).logits
    states = model(**BATCH, use_cache=use_cache, output_hidden_states=True)
    model.set_attn_implementation("eager")
    weights = model(**BATCH, use_cache=use_cache, output_attentions=True)
    assert_close(states.logits[real], expected[real])
    assert_close(weights.logits[real], expected[real])
    assert [state.shape for state in states.hidden_states] == [(*real.shape, 24)] * 3
    assert [attention.shape for attention in weights.attentions] == [(len(real), 3, real.shape[1], real.shape[1])] * 2
    ids = model.model.plan_position_ids(BATCH.input_ids, real.shape[1])
    visible = (model.model.position_encoding.pair_map(ids, ids) >= 0).tril() & real.unsqueeze(1)
    visible &= ~unplanned(BATCH.input_ids, ids).unsqueeze(1)
    for attention in weights.attentions:
        assert torch.equal((attention > 0).all(1)[real], visible[real])


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("queries", [slice(None), slice(-4, None), torch.tensor([5, 0, 8])], ids=str)
def test_neighbourhoods_are_one_iff_own_row_and_multiset_of_rows_and_relations_agree(queries, shared):
    generator = torch.Generator().manual_seed(1)
    row_index = torch.randint(0, 3, (30, 9), generator=generator)
    count = len(torch.arange(9)[queries])
    shape = (1 if shared else 30, count, 3)
    columns = torch.randint(-1, 9, shape, generator=generator)
    relations = torch.randint(0, 2, shape, generator=generator).masked_fill(columns < 0, NOT_RELATED).int()
    found = distinct_neighbourhoods(row_index, queries, Neighbours(columns, relations))
    assert_is_partition_by_content(found, row_index, queries, columns, relations)


def assert_is_partition_by_content(found, row_index, queries, columns, relations):
    """Each token's neighbourhood holds what the token sees, and no two of the neighbourhoods hold the same."""
    batch, count = len(row_index), columns.shape[1]

    def content(own, rows, relations):
        return own, frozenset(Counter(zip(rows, relations, strict=True)).items())

    distinct = []
    for own, keys, related in zip(
        found.queries.tolist(), found.keys.tolist(), found.relations.tolist(), strict=True
    ):  # fmt: skip
        pairs = [(key, relation) for key, relation in zip(keys, related, strict=True) if relation != NOT_RELATED]
        distinct.append(content(own, *zip(*pairs, strict=True)) if pairs else (own, frozenset()))
    assert len(set(distinct)) == len(distinct)

    rows, own = row_index.tolist(), row_index[:, queries].tolist()
    columns, relations = (value.expand(batch, -1, -1).tolist() for value in (columns, relations))
    seen = set()
    for row in range(batch):
        for query in range(count):
            pairs = [
                (rows[row][column], relation)
                for column, relation in zip(columns[row][query], relations[row][query], strict=True)
                if column >= 0
            ]
            expected = content(own[row][query], *zip(*pairs, strict=True)) if pairs else (own[row][query], frozenset())
            assert distinct[found.index[row, query]] == expected
            seen.add(expected)
    assert seen == set(distinct)


@pytest.mark.parametrize("most_neighbours", [4, 6, 12])
def test_neighbourhoods_of_many_keys_and_rows_do_not_run_into_each_other(most_neighbours):
    # A number for each of 819 rows times 5 relations, and one for no key, is 4096 = 2**12: whole neighbourhoods written
    # in that base exceed 64 bits from 6 keys on, and what overflows is the keys that come first, which alone differ here.
    generator = torch.Generator().manual_seed(0)
    row_index = torch.arange(819).repeat(2, 1)
    columns = torch.arange(most_neighbours).repeat(1, 819, 1)
    columns[..., 0] = torch.randint(700, 819, (1, 819), generator=generator)
    relations = torch.full_like(columns, 2, dtype=torch.int32)
    relations[..., 0] = torch.randint(0, 5, (1, 819), generator=generator)
    relations[0, 0, 0] = 4
    row_index[:, :700] = row_index[:, :700] % 20
    row_index[:, 818] = 818
    found = distinct_neighbourhoods(row_index, slice(None), Neighbours(columns, relations))
    assert_is_partition_by_content(found, row_index, slice(None), columns, relations)
    assert 300 < len(found.queries) < 819


@pytest.mark.parametrize("use_cache", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
def test_output_of_a_neighbourhood_depends_neither_on_its_place_nor_on_the_length(layers, use_cache):
    model = build(num_hidden_layers=layers)
    logits = {}
    for periods in (3, 30):
        first, second = 372 * (1000**periods // 999), 518 * (1000**periods // 999)
        text = f"{first}+{second}={str(first + second).zfill(3 * periods + 1)[::-1]}"
        tokens = tokenizer(text, return_tensors="pt").input_ids
        logits[periods] = model(tokens, use_cache=use_cache, logits_to_keep=3 * periods + 2).logits[0]
    short, long = logits[3], logits[30]
    # Columns 3 to 5 see neither end of the short sum, and come again every three digits of the long one.
    inside = long[1 + 3 : 1 + 84].unflatten(0, (27, 3))
    assert_close(inside, short[1 + 3 : 1 + 6].expand_as(inside))
    assert not torch.allclose(short[4], short[5], atol=1e-2)
    assert_close(long[0:4], short[0:4])
    assert_close(long[-3:], short[-3:])


def test_padding_adds_no_neighbours_however_long_it_is():
    model, task = CoupledGPTForCausalLM(CoupledGPTConfig()).eval(), Addition(zero_padding=False)
    lengths = np.array([[50, 50], [1, 50], [1, 1]])
    batch = CouplingCollator(task.coupling, 1)(task.examples(np.random.default_rng(0), lengths, "test"))
    columns = torch.arange(batch["input_ids"].shape[1])
    neighbours = model.model.neighbours(batch["position_ids"], columns, batch["attention_mask"])
    assert neighbours.columns.shape[-1] == 6


def test_tokens_after_a_short_response_of_a_batch_are_nobodys_neighbours(monkeypatch):
    widths = []

    class Recorded(generation_coupled_gpt.WindowedCache):
        def __init__(self, neighbours, num_layers):
            widths.append(neighbours.columns.shape[-1])
            super().__init__(neighbours, num_layers)

    monkeypatch.setattr(generation_coupled_gpt, "WindowedCache", Recorded)
    batch = tokenizer(["9" * 50 + "+" + "9" * 50 + "=", "1+2="], padding=True, return_tensors="pt")
    CoupledGPTForCausalLM(CoupledGPTConfig()).eval().generate(**batch, max_new_tokens=200)
    assert widths == [6]
