"""CoupledGPT's forward pass."""

import re

import pytest
import torch
from datasets import Dataset
from encoding_subjects import BY_COLUMN, build
from huggingface_hub.errors import StrictDataclassError
from torch.nn import functional
from transformers import Trainer, TrainingArguments

import longhand
from longhand import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.data.families import build_tokenizer
from longhand.modeling import PairwiseBertConfig, PairwiseBertForTokenClassification
from longhand.modeling.coupling import COUPLING_RULES, CouplingRule, Plan, shift_position_ids
from longhand.modeling.coupling_rules import addition, sequential
from longhand.modeling.relations import coupled_pair_map

NORMS = [("rms", "sandwich"), ("rms", "pre_post"), ("layer", "post"), ("none", "pre")]
TOKENS = build_tokenizer()("653+049=2070$", return_tensors="pt").input_ids

every_encoding = pytest.mark.parametrize("encoding", BY_COLUMN)
every_norm = pytest.mark.parametrize(("norm", "placement"), NORMS)


def assert_close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def visible_keys(encoding: str) -> torch.BoolTensor:
    """What each token of `TOKENS` may see in one layer."""
    causal = torch.ones(len(TOKENS[0]), len(TOKENS[0])).tril() > 0
    ids = addition(TOKENS, TOKENS.shape[1]).position_ids
    return causal & (coupled_pair_map(ids, ids, (0, 1), True)[0] >= 0) if encoding == "windowed" else causal


@pytest.fixture
def two_levels(monkeypatch) -> str:
    """The name of a rule whose levels are the ids of `addition` and of `sequential`."""

    def plan(input_ids, columns):
        plans = [rule(input_ids, columns) for rule in (addition, sequential)]
        return Plan(torch.cat([each.position_ids for each in plans], dim=1), plans[0].response_length)

    monkeypatch.setitem(COUPLING_RULES, "two", CouplingRule("two", plan, 2, str))
    return "two"


@every_norm
@every_encoding
def test_cached_steps_equal_the_full_forward(encoding, norm, placement):
    model = build(encoding, norm=norm, norm_placement=placement)
    plan = model.model.plan_position_ids(TOKENS, TOKENS.shape[1])
    past = model(TOKENS[:, :9], use_cache=True)
    logits = [past.logits]
    for t in range(9, TOKENS.shape[1]):
        past = model(TOKENS[:, t : t + 1], position_ids=plan[..., : t + 1], past_key_values=past.past_key_values)
        logits.append(past.logits)
    assert_close(torch.cat(logits, dim=1), model(TOKENS).logits)


@every_encoding
def test_left_padding_in_a_batch_changes_no_logits(encoding):
    model, tokenizer = build(encoding), build_tokenizer()
    texts = ["653+049=2070$", "7+12=910$", "1+1=2$"]
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    logits = model(**batch).logits
    for row, text in enumerate(texts):
        alone = model(**tokenizer(text, return_tensors="pt")).logits[0]
        assert_close(logits[row, -len(alone) :], alone)


@every_norm
@every_encoding
def test_gradient_reaches_exactly_the_visible_tokens(encoding, norm, placement):
    model = build(encoding, norm=norm, norm_placement=placement)
    embeds = model.model.embed_tokens(TOKENS).detach().requires_grad_()
    ids = model.model.plan_position_ids(TOKENS, TOKENS.shape[1])
    outputs = (model(inputs_embeds=embeds, position_ids=ids).logits * torch.randn(21)).sum((0, 2))
    gradients = torch.stack([torch.autograd.grad(value, embeds, retain_graph=True)[0][0] for value in outputs])
    one_layer = visible_keys(encoding).float()
    assert torch.equal((gradients != 0).any(-1), one_layer @ one_layer > 0)


@pytest.mark.parametrize("keep", [2, 5, torch.tensor([3, 6, 10])], ids=["2", "5", "indices"])
@every_encoding
def test_kept_logits_and_their_loss_equal_those_of_the_full_forward(encoding, keep):
    model = build(encoding)
    labels = torch.where(torch.rand(TOKENS.shape) < 0.3, -100, TOKENS)
    labels[:, -1] = TOKENS[:, -1]
    kept = model(TOKENS, labels=labels, logits_to_keep=keep)
    columns = keep if isinstance(keep, torch.Tensor) else torch.arange(len(TOKENS[0]) - keep, len(TOKENS[0]))
    full = model(TOKENS).logits[:, columns]
    assert_close(kept.logits, full)
    next_labels = functional.pad(labels[:, 1:], (0, 1), value=-100)[:, columns]
    assert_close(kept.loss, functional.cross_entropy(full[0], next_labels[0]))


@every_encoding
def test_attention_weights_sum_to_one_over_exactly_the_visible_keys(encoding):
    model = build(encoding)
    model.set_attn_implementation("eager")
    attentions = torch.stack(model(TOKENS, output_attentions=True).attentions)
    assert_close(attentions.sum(-1), torch.ones(attentions.shape[:-1]))
    assert torch.equal(attentions > 0, visible_keys(encoding).expand_as(attentions))


@every_encoding
def test_hidden_states_are_those_of_all_tokens_from_the_embeddings_on(encoding):
    model = build(encoding, norm_placement="post", norm="none")
    outputs = model(TOKENS, output_hidden_states=True)
    ids = model.model.plan_position_ids(TOKENS, TOKENS.shape[1])
    embedded = model.model.position_encoding.embed(model.model.embed_tokens(TOKENS), ids)
    assert_close(outputs.hidden_states[0], embedded)
    assert_close(model.lm_head(outputs.hidden_states[-1]), outputs.logits)


@every_encoding
def test_gradient_checkpointing_recomputes_and_gives_equal_gradients(encoding):
    gradients, calls = [], []
    for checkpointing in (False, True):
        model = build(encoding).train()
        if checkpointing:
            model.activation_checkpointing_enable()
        calls.append([])
        model.model.layers[0].mlp.register_forward_hook(lambda *_, called=calls[-1]: called.append(1))
        model(TOKENS, labels=TOKENS, use_cache=False, logits_to_keep=5).loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert [len(called) for called in calls] == [1, 2]
    assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize("encoding", ["pairwise", "windowed"])
def test_pairwise_relations_ignore_the_start(encoding):
    model = build(encoding)
    ids = shift_position_ids(model.model.plan_position_ids(TOKENS, TOKENS.shape[1]), torch.tensor(30))
    assert torch.equal(model(TOKENS, position_ids=ids).logits, model(TOKENS).logits)


def test_learned_table_depends_on_the_start():
    model = build("learned")
    ids = shift_position_ids(model.model.plan_position_ids(TOKENS, TOKENS.shape[1]), torch.tensor(30))
    assert not torch.allclose(model(TOKENS, position_ids=ids).logits, model(TOKENS).logits, atol=1e-2)


@pytest.mark.parametrize(("text", "same"), [("853+049=2070$", True), ("658+049=2070$", False)])
def test_digit_outside_the_window_has_no_influence_at_all(text, same):
    model = build("windowed", num_hidden_layers=1)
    changed = build_tokenizer()(text, return_tensors="pt").input_ids
    assert torch.equal(model(changed).logits[:, 8:10], model(TOKENS).logits[:, 8:10]) == same


@pytest.mark.parametrize("levels", [1, 2])
@every_encoding
def test_first_layer_on_distinct_inputs_equals_inputs_embeds(encoding, levels, two_levels):
    coupling = {"coupling": two_levels, "position_levels": 2, "share_level_tables": False} if levels == 2 else {}
    model = build(encoding, **coupling)
    batch = torch.cat([TOKENS, build_tokenizer()("111+222=333$$", return_tensors="pt").input_ids])
    ids = model.model.plan_position_ids(batch, batch.shape[1])
    embeds = model.model.embed_tokens(batch)
    assert_close(model(batch).logits, model(inputs_embeds=embeds, position_ids=ids).logits)


@pytest.mark.parametrize("shared", [True, False])
def test_learned_tables_of_two_levels_are_added(two_levels, shared):
    encoding = build("learned", coupling=two_levels, position_levels=2, share_level_tables=shared).model.position_encoding
    first, second = encoding.tables[0].weight, encoding.tables[0 if shared else 1].weight
    assert len(encoding.tables) == (1 if shared else 2)
    embedded = encoding.embed(torch.zeros(1, 2, 32), torch.tensor([[[3, 0], [1, 2]]]))
    assert_close(embedded[0], torch.stack([first[3] + second[1], first[0] + second[2]]))


def test_sum_too_long_for_the_learned_table_is_refused_with_the_longest_that_fits():
    model = build("learned", max_position_ids=5)
    model(TOKENS)
    with pytest.raises(ValueError, match=r"id 6 is outside the learned table of 5 ids.*operands of 3 digits"):
        model(build_tokenizer()("1234+1=", return_tensors="pt").input_ids)


@pytest.mark.parametrize("encoding", ["learned", "rotary, coupled", "windowed"])
def test_missing_ids_beside_a_cache_are_refused(encoding):
    model = build(encoding)
    cache = model(TOKENS[:, :9], use_cache=True).past_key_values
    with pytest.raises(ValueError, match="position_ids cannot be derived"):
        model(TOKENS[:, 9:10], past_key_values=cache)


@pytest.mark.parametrize("encoding", ["pairwise", "windowed"])
def test_missing_ids_of_cached_tokens_are_refused(encoding):
    model = build(encoding)
    cache = model(TOKENS[:, :9], use_cache=True).past_key_values
    with pytest.raises(ValueError, match="those of the cached tokens too"):
        model(TOKENS[:, 9:10], position_ids=torch.tensor([[4]]), past_key_values=cache)


def test_illegal_token_ids_are_named_before_the_prompt_is_checked():
    model = CoupledGPTForCausalLM.from_pretrained(longhand.zoo("addition")).train()
    ids = torch.ones(1, 5, dtype=torch.long)
    for illegal in (999, -3):
        with pytest.raises(ValueError, match=rf"^input_ids must be in 0\.\.20, the vocabulary, got {illegal}$"):
            model(input_ids=ids * illegal, position_ids=ids)
    with pytest.raises(ValueError, match=r"^input_ids must be a tensor of integers"):
        model(input_ids=ids.float(), position_ids=ids)
    with pytest.raises(ValueError, match="is no prompt of the task 'addition'"):
        model(input_ids=ids, position_ids=ids)


@pytest.mark.parametrize("inputs", [{}, {"input_ids": TOKENS, "inputs_embeds": torch.zeros(1, 14, 32)}])
def test_inputs_other_than_exactly_one_are_refused(inputs):
    with pytest.raises(ValueError, match="exactly one"):
        build()(**inputs)


@pytest.mark.parametrize("shape", [(1, 12), (2, 14), (14,), (1, 1, 14)], ids=str)
def test_attention_mask_of_another_shape_is_refused(shape):
    with pytest.raises(ValueError, match=re.escape(f"attention_mask must be (1, 14), got {shape}")):
        build()(TOKENS, attention_mask=torch.ones(shape))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"mlp": "relu"}, "mlp"),
        ({"norm": "batch"}, "norm"),
        ({"norm_placement": "after"}, "norm_placement"),
        ({"init": "xavier"}, "init"),
        ({"attention_scale": "log"}, "attention_scale"),
        ({"attention_scale": "zero", "position_encoding": "learned"}, "leaves scores to the position encoding"),
        ({"attention_scale": "zero", "position_encoding": "pairwise", "qk_norm": True}, "set qk_norm to False"),
        ({"position_encoding": "kerple"}, "position_encoding"),
        ({"position_init": "zeros"}, "position_init"),
        ({"coupling": "exponentiation"}, "coupling 'exponentiation' is unknown"),
        ({"position_levels": 2}, "has 1 level"),
        ({"relation_range": [1, 0]}, "relation_range"),
        ({"relation_range": [0, 1, 2]}, "relation_range"),
        ({"hidden_size": 30}, "hidden_size 30 is not a multiple"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"max_position_ids": 0}, "max_position_ids"),
        ({"head_dim": 5, "position_encoding": "rotary"}, "rotary"),
        ({"eos_token_id": 3}, "eos_token_id"),
        ({"hidden_size": "64"}, "hidden_size"),
    ],
)
def test_illegal_config_value_is_refused_by_name(options, name):
    with pytest.raises((ValueError, StrictDataclassError), match=name):
        CoupledGPTConfig(**options)


@pytest.mark.parametrize(
    ("model_class", "config"),
    [
        (CoupledGPTForCausalLM, CoupledGPTConfig()),
        (PairwiseBertForTokenClassification, PairwiseBertConfig(hidden_size=8, num_hidden_layers=1)),
    ],
    ids=["decoder", "encoder"],
)
def test_trainer_keeps_the_columns_that_forward_reads(model_class, config, tmp_path):
    columns, kept = {"input_ids", "attention_mask", "labels"}, set()

    def collate(rows):
        kept.update(rows[0])
        return {"input_ids": torch.tensor([row["input_ids"] for row in rows])}

    rows = Dataset.from_dict({name: [[1]] for name in (*columns, "operands")})
    arguments = TrainingArguments(str(tmp_path), report_to="none", use_cpu=True)
    next(iter(Trainer(model_class(config), arguments, data_collator=collate, train_dataset=rows).get_train_dataloader()))
    assert columns <= kept and "operands" not in kept


def test_a_saved_model_cannot_be_loaded_with_a_rule_of_another_number_of_levels(tmp_path):
    CoupledGPTForCausalLM(CoupledGPTConfig(hidden_size=16, intermediate_size=16)).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="coupling 'subtraction' has 2 level"):
        CoupledGPTForCausalLM.from_pretrained(tmp_path, coupling="subtraction")
