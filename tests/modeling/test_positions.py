"""What holds for models of both families, whatever tells them where tokens stand, and for decoders of every encoding."""

import pytest
import torch
from cases import all_but, in_turn
from comparing import assert_same_weights
from position_subjects import (
    DECODERS,
    ENCODERS,
    LIKE_OTHERS,
    PROMPTS,
    SUBJECTS,
    SUMS,
    assert_close,
    assert_written_as_by_full_forwards,
    build,
    encode,
    texts_of,
    tokenizer,
    visible_keys,
)
from torch.nn import functional
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForTokenClassification

from longhand.data.collator import POSITION_SAMPLINGS
from longhand.modeling.coupling import shift_position_ids
from longhand.modeling.position_encodings import POSITION_ENCODINGS
from longhand.modeling.vocabulary import BOS

TOKENS = tokenizer(SUMS[0], return_tensors="pt").input_ids

every_subject = pytest.mark.parametrize("name", all_but(LIKE_OTHERS, SUBJECTS))
every_attention = pytest.mark.parametrize("name", all_but(LIKE_OTHERS, [*DECODERS, *ENCODERS]))
every_decoder = pytest.mark.parametrize("name", all_but(LIKE_OTHERS, DECODERS))


def labels_of(batch) -> torch.LongTensor:
    """Labels that both families have, for all tokens but padding and a first token, which padding would predict."""
    present = batch.attention_mask > 0
    return batch.input_ids.clamp(max=10).masked_fill(~(present & present.roll(1, 1)), -100)


def applications(model) -> int:
    """How often a layer is applied to a token."""
    return model.config.num_hidden_layers * getattr(model.config, "num_loops", 1)


def test_these_tests_cover_every_encoding_and_the_collator_knows_all_their_samplings():
    assert set(POSITION_ENCODINGS) == {options["position_encoding"] for options in DECODERS.values()}
    assert {name for kind in POSITION_ENCODINGS.values() for name in kind.position_samplings} <= set(POSITION_SAMPLINGS)


@every_subject
def test_saved_and_loaded_model_has_the_same_weights_configuration_and_logits(name, tmp_path):
    model, batch = build(name), encode(name, *texts_of(name))
    model.save_pretrained(tmp_path)
    loaded = (AutoModelForCausalLM if name in DECODERS else AutoModelForTokenClassification).from_pretrained(tmp_path)
    assert type(loaded) is type(model) and type(AutoModel.from_pretrained(tmp_path)) is type(model.model)
    assert loaded.config.to_diff_dict() == model.config.to_diff_dict() and list(loaded.buffers()) == []
    assert_same_weights(loaded.state_dict(), model.state_dict())
    assert_close(loaded(**batch).logits, model(**batch).logits)


# Absolute positions of encoders count padding on the left.
SIDES = [
    pytest.param(name, side, marks=pytest.mark.release if name in LIKE_OTHERS else ())
    for name in SUBJECTS
    for side in ("left", "right")
    if side == "right" or name not in ENCODERS
]


@pytest.mark.parametrize(("name", "side"), SIDES)
def test_padding_changes_nothing(name, side):
    model, batch = build(name), encode(name, *texts_of(name), side=side)
    logits = model(**batch).logits
    for row, text in enumerate(texts_of(name)):
        assert_close(logits[row][batch.attention_mask[row] > 0], model(**encode(name, text)).logits[0])


@every_attention
def test_gradient_reaches_exactly_the_visible_tokens(name):
    model, batch = build(name), encode(name, texts_of(name)[0])
    embeds = model.model.embed_tokens(batch.input_ids).detach().requires_grad_()
    model.model.embed_tokens.register_forward_hook(lambda *_: embeds)
    logits = model(**batch).logits
    outputs = (logits * torch.randn(logits.shape[-1])).sum((0, 2))
    gradients = torch.stack([torch.autograd.grad(value, embeds, retain_graph=True)[0][0] for value in outputs])
    one_layer = visible_keys(model, batch)[0].double() + torch.eye(len(outputs))
    assert torch.equal((gradients != 0).any(-1), one_layer.matrix_power(applications(model)) > 0)


@every_attention
def test_recorded_attention_and_states_are_those_of_every_layer_and_change_no_logits(name):
    model, batch = build(name), encode(name, *texts_of(name))
    present, expected = batch.attention_mask > 0, model(**batch).logits
    model.set_attn_implementation("eager")
    outputs = model(**batch, output_attentions=True, output_hidden_states=True)
    for logits in (outputs.logits, model(**batch).logits):
        assert_close(logits[present], expected[present])
    weights, states = torch.stack(outputs.attentions), torch.stack(outputs.hidden_states)
    assert len(weights) == len(states) - 1 == applications(model) and states.shape[1:3] == present.shape
    assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    seen, keys = visible_keys(model, batch), present.shape[1]
    assert torch.equal((weights[..., :keys] > 0).all(2).all(0)[present], seen[present])
    assert not (weights[..., :keys] > 0).any(2).any(0)[present][~seen[present]].any()
    assert_close((model.lm_head if name in DECODERS else model.classifier)(states[-1])[present], expected[present])


@every_attention
def test_gradient_checkpointing_recomputes_and_gives_equal_gradients(name):
    gradients, calls, batch = [], [], encode(name, *texts_of(name))
    for checkpointing in (False, True):
        model = build(name).train()
        if checkpointing:
            model.activation_checkpointing_enable()
        calls.append([])
        model.model.layers[0].self_attn.register_forward_hook(lambda *_, called=calls[-1]: called.append(1))
        torch.manual_seed(3)
        model(**batch, labels=labels_of(batch), **({"use_cache": False} if name in DECODERS else {})).loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert len(calls[1]) == 2 * len(calls[0])
    assert_close(gradients[1], gradients[0])


@every_attention
def test_parameters_are_drawn_alike_and_trained(name):
    model, batch = build(name), encode(name, *texts_of(name))
    assert_same_weights(build(name).state_dict(), model.state_dict())
    model(**batch, labels=labels_of(batch)).loss.backward()
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    assert [called for called, parameter in model.named_parameters() if not parameter.grad.any()] == []


# Decoders: ids, kept tokens, generation.


@pytest.mark.parametrize("name", all_but(LIKE_OTHERS, [name for name in DECODERS if name != "none"]))
def test_start_of_ids_counts_exactly_if_an_encoding_reads_more_than_differences(name):
    model = build(name)
    ids = model.model.plan_position_ids(TOKENS, TOKENS.shape[1])
    kind = model.config.position_encoding
    shifted = shift_position_ids(ids, torch.tensor(2)) if kind == "pairwise" else ids + 2
    same = torch.allclose(model(TOKENS, position_ids=shifted).logits, model(TOKENS).logits, atol=1e-5)
    assert same == (kind in ("rotary", "pairwise", "alibi", "t5"))


@pytest.mark.parametrize("name", all_but(LIKE_OTHERS, [name for name in DECODERS if name != "none"]))
def test_ids_that_an_encoding_cannot_read_are_refused(name):
    model = build(name)
    is_table, unfit = model.config.position_encoding == "learned", torch.ones_like(TOKENS)
    largest = model.config.max_position_ids if is_table else model.model.position_encoding.largest_id
    for unfit[0, 3] in (largest + 1, -1):
        with pytest.raises(ValueError, match=str(int(unfit[0, 3]))):
            model(TOKENS, position_ids=unfit)


@every_decoder
def test_kept_logits_and_their_loss_equal_those_of_the_full_forward(name):
    model = build(name)
    batch = torch.cat([TOKENS, tokenizer("111+222=3330$", return_tensors="pt").input_ids])
    ids, labels = model.model.plan_position_ids(batch, 14), torch.where(torch.rand(batch.shape) < 0.3, -100, batch)
    labels[:, -1] = BOS
    full, next_labels = model(batch).logits, functional.pad(labels[:, 1:], (0, 1), value=-100)
    for keep in (2, 5, torch.tensor([3, 6, 10, 12])):
        columns = keep if isinstance(keep, torch.Tensor) else torch.arange(14 - keep, 14)
        # One row of ids serves a batch of one layout.
        kept = model(batch, position_ids=ids[:1], labels=labels, logits_to_keep=keep)
        assert_close(kept.logits, full[:, columns])
        expected = functional.cross_entropy(full[:, columns].flatten(0, 1), next_labels[:, columns].flatten())
        torch.testing.assert_close(kept.loss, expected.float())


WAYS = {
    "planned": (4, {}),
    "more than planned": (14, {}),
    "no cache": (6, {"use_cache": False}),
    "samples": (6, {"do_sample": True, "num_return_sequences": 2}),
}


@pytest.mark.parametrize(("name", "way"), in_turn(DECODERS, [*WAYS], LIKE_OTHERS))
def test_generated_logits_are_those_of_a_full_forward_of_each_prompt(name, way):
    count, options = WAYS[way]
    # 14 tokens are more than any rule plans for, also for one that goes on.
    length = {"min_new_tokens": count, "max_new_tokens": count}
    assert_written_as_by_full_forwards(build(name), encode(name, *PROMPTS), **length, **options)
