"""Steps of decoding read what was found once for a whole plan, and write what the whole forward pass would."""

import pytest
import torch
from accelerate import cpu_offload
from position_subjects import DECODERS, LIKE_OTHERS, assert_close, build, encode
from transformers import LogitsProcessor, LogitsProcessorList

from longhand.modeling.modeling_coupled_gpt import (
    CoupledGPTAttention,
    CoupledGPTDecoderLayer,
    CoupledGPTForCausalLM,
    CoupledGPTMLP,
    CoupledGPTModel,
)

TOKENS = 9
TEXTS = {"one layout": ["12+34=", "99+01="], "padded": ["653+049=", "9+1="]}


def generate(model, texts, **options):
    batch = encode("windowed", *texts, side="left")
    settings = {"output_logits": True, "return_dict_in_generate": True, "max_new_tokens": TOKENS, "min_new_tokens": TOKENS}
    return model.generate(**batch, **settings | options)


def without_steps(model, monkeypatch):
    monkeypatch.setattr(type(model), "_takes_steps", lambda *_: False)
    return model


GREEDY = [
    pytest.param(name, texts, {}, marks=pytest.mark.release if name in LIKE_OTHERS else ())
    for name in DECODERS
    for texts in ("one layout", "padded")
]
OTHERS = [
    (name, "padded", options)
    for name in ("learned", "t5", "windowed")
    for options in ({"num_beams": 3}, {"do_sample": True, "num_return_sequences": 2}, {"use_cache": False})
]


@pytest.mark.parametrize("name, texts, options", [*GREEDY, *OTHERS], ids=str)
def test_steps_give_the_logits_of_the_whole_forward_pass(name, texts, options, monkeypatch):
    model, steps, step = build(name), [], CoupledGPTModel.step
    monkeypatch.setattr(CoupledGPTModel, "step", lambda *given: steps.append(1) or step(*given))
    torch.manual_seed(1)
    found = generate(model, TEXTS[texts], **options)
    takes_steps = model.model.position_encoding.uses_position_ids and options.get("use_cache", True)
    assert len(steps) == (TOKENS - 1 if takes_steps else 0)
    torch.manual_seed(1)
    expected = generate(without_steps(model, monkeypatch), TEXTS[texts], **options)
    assert torch.equal(found.sequences, expected.sequences) and len(found.logits) == TOKENS
    for own, other in zip(found.logits, expected.logits, strict=True):
        assert_close(own, other, 1e-6)


@pytest.mark.parametrize("name", ["learned", "windowed"])
def test_whoever_listens_to_the_base_model_hears_every_step(name):
    model, heard = build(name), []
    model.model.register_forward_hook(lambda *_: heard.append(1))
    generate(model, TEXTS["padded"])
    assert len(heard) == TOKENS


@pytest.mark.parametrize("name", ["learned", "windowed"])
def test_whoever_listens_to_the_model_reads_the_arguments_of_every_step(name):
    model, heard = build(name), []
    model.register_forward_pre_hook(lambda *given: heard.append(given[-1]["position_ids"] is not None), with_kwargs=True)
    generate(model, TEXTS["padded"])
    assert heard == [True] * TOKENS


def test_a_caller_has_no_steps():
    model = build("learned")
    with pytest.raises(ValueError, match="step"):
        model(torch.ones(1, 1, dtype=torch.long), step=(None, None, None, None))


@pytest.mark.parametrize("name", ["learned", "windowed"])
def test_attentions_and_states_are_those_of_every_step(name):
    model = build(name)
    model.set_attn_implementation("eager")
    found = generate(model, TEXTS["padded"], output_attentions=True, output_hidden_states=True)
    assert len(found.attentions) == len(found.hidden_states) == TOKENS and found.attentions[-1][0].shape[2] == 1


def test_a_returned_cache_is_cut_and_goes_on():
    model = build("learned")
    found = generate(model, TEXTS["one layout"])
    # The last token is in no cache.
    found.cache.crop(-5)
    past, tokens = found.cache.get_seq_length(), found.sequences
    assert past == tokens.shape[1] - 1 - 5
    ids = model.model.plan_position_ids(tokens, past + 1)
    step = model(input_ids=tokens[:, past : past + 1], position_ids=ids[..., -1:], cache=found.cache)
    whole = model(input_ids=tokens[:, : past + 1], position_ids=ids)
    assert_close(step.logits[:, -1], whole.logits[:, -1], 1e-6)


@pytest.mark.parametrize("name", ["learned", "windowed"])
def test_a_forward_pass_of_a_subclass_is_asked_for_every_token(name):
    class Turned(CoupledGPTModel):
        def forward(self, *arguments, **named):
            output = super().forward(*arguments, **named)
            return type(output)(last_hidden_state=output.last_hidden_state.flip(-1), cache=output.cache)

    class Listening(CoupledGPTForCausalLM):
        def forward(self, input_ids=None, attention_mask=None, position_ids=None, **named):
            heard.append(position_ids is not None)
            return super().forward(input_ids, attention_mask, position_ids, **named)

    heard, model = [], build(name)
    model.model.__class__, model.__class__ = Turned, Listening
    found = generate(model, TEXTS["padded"])
    assert heard == [True] * TOKENS
    whole = generate(model, TEXTS["padded"], use_cache=False)
    for own, other in zip(found.logits, whole.logits, strict=True):
        assert_close(own, other, 1e-6)


def test_a_returned_cache_goes_on_in_any_mode_of_gradients():
    model = build("learned")
    with torch.inference_mode():
        found = generate(model, TEXTS["one layout"])
    tokens, past = found.sequences.clone(), found.cache.get_seq_length()
    tokens = torch.cat([tokens, tokens[:, -1:]], dim=1)
    ids = model.model.plan_position_ids(tokens, past + 2)
    with torch.no_grad():
        model(input_ids=tokens[:, past : past + 1], position_ids=ids[..., past : past + 1], cache=found.cache)
    found.cache.crop(-2)
    past -= 1
    steps = [
        model(input_ids=tokens[:, column : column + 1], position_ids=ids[..., column : column + 1], cache=found.cache)
        for column in (past, past + 1)
    ]
    whole = model(input_ids=tokens[:, : past + 2], position_ids=ids[..., : past + 2])
    assert_close(steps[-1].logits[:, -1], whole.logits[:, -1], 1e-6)
    sum(step.logits.square().sum() for step in steps).backward()
    assert all(weights.grad is not None for weights in model.parameters())


@pytest.mark.parametrize("whole", ["CoupledGPTForCausalLM", "CoupledGPTModel"])
def test_offloaded_weights_are_fetched_for_every_step(whole, name="windowed"):
    expected, model = generate(build(name), TEXTS["one layout"]), build(name)
    cpu_offload(model, execution_device=torch.device("cpu"), preload_module_classes=[whole])
    found = generate(model, TEXTS["one layout"])
    for own, other in zip(found.logits, expected.logits, strict=True):
        assert_close(own, other, 1e-6)


@pytest.mark.parametrize("heard", ["layers.0", "layers.0.self_attn", "layers.0.mlp", "norm", None])
def test_layers_get_a_row_for_each_example_unless_someone_listens(heard, monkeypatch):
    model, rows, shapes, step = build("windowed"), [], [], CoupledGPTDecoderLayer.step
    monkeypatch.setattr(CoupledGPTDecoderLayer, "step", lambda *given, **seen: rows.append(1) or step(*given, **seen))
    if heard is not None:
        model.model.get_submodule(heard).register_forward_hook(lambda _, given, output: shapes.append(output))
    generate(model, TEXTS["one layout"])
    assert len(rows) == (0 if heard else (TOKENS - 1) * len(model.model.layers))
    assert len(shapes) == (TOKENS if heard else 0)
    assert all((output[0] if isinstance(output, tuple) else output).ndim == 3 for output in shapes[1:])


class Gathering(CoupledGPTMLP):
    """An MLP that needs the axis of tokens."""

    def forward(self, hidden_states):
        batch, tokens, hidden = hidden_states.shape
        return super().forward(hidden_states.reshape(batch * tokens, hidden)).reshape(batch, tokens, hidden)


@pytest.mark.parametrize("part", ["mlp", "self_attn"])
def test_parts_of_other_classes_get_states_with_an_axis_of_tokens(part):
    expected, model, asked = generate(build("windowed"), TEXTS["one layout"]), build("windowed"), []

    class Attending(CoupledGPTAttention):
        def _attend_to_neighbours(self, *arguments):
            asked.append(1)
            return super()._attend_to_neighbours(*arguments)

    for layer in model.model.layers:
        getattr(layer, part).__class__ = {"mlp": Gathering, "self_attn": Attending}[part]
    found = generate(model, TEXTS["one layout"])
    assert torch.equal(found.sequences, expected.sequences)
    assert len(asked) == (TOKENS * len(model.model.layers) if part == "self_attn" else 0)


class Needing(LogitsProcessor):
    def __call__(self, input_ids, scores, more):
        return scores


class Favouring(LogitsProcessor):
    def __call__(self, input_ids, scores):
        return scores + torch.nn.functional.one_hot(torch.tensor(3), scores.shape[1]) * 1e6


def test_processors_of_a_caller_are_asked_for_every_token():
    found = generate(build("windowed"), TEXTS["one layout"], logits_processor=LogitsProcessorList([Favouring()]))
    assert (found.sequences[:, -TOKENS:] == 3).all()
    with pytest.raises(ValueError, match="more"):
        generate(build("windowed"), TEXTS["one layout"], logits_processor=LogitsProcessorList([Needing()]))
