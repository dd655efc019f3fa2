"""Generation with coupled position ids."""

from pathlib import Path

import pytest
import torch
from cases import drawn, in_turn
from position_subjects import DECODERS, LIKE_OTHERS, PROMPTS, assert_written_as_by_full_forwards, build, encode, tokenizer
from transformers import BatchEncoding, DynamicCache, pipeline

from longhand import CoupledGPTConfig, CoupledGPTForCausalLM, zoo
from longhand.hub_cards.checkpoints.load import list_zoo, load_checkpoint
from longhand.modeling.relations import NOT_RELATED
from longhand.modeling.vocabulary import BOS
from longhand.modeling.windowed_cache import WindowedCache, WindowedLayer

SIX_TOKENS = {"min_new_tokens": 6, "max_new_tokens": 6}

every_encoding = pytest.mark.parametrize("encoding", ["none", "learned", "rotary, coupled", "pairwise", "windowed"])


def prompt(text: str = PROMPTS[0]) -> torch.LongTensor:
    return tokenizer(text, return_tensors="pt").input_ids


@pytest.mark.parametrize("do_sample", [False, None])
def test_the_pipeline_of_a_saved_model_decodes_greedily(do_sample, tmp_path):
    model = build()
    model.generation_config.do_sample = do_sample
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    generator = pipeline("text-generation", model=str(tmp_path))
    for text in PROMPTS:
        (answer,) = generator(text, **SIX_TOKENS)
        assert answer["generated_text"] == tokenizer.decode(
            model.generate(**tokenizer(text, return_tensors="pt"), do_sample=False, **SIX_TOKENS)[0],
            skip_special_tokens=True,
        )


@every_encoding
def test_beam_scores_are_the_log_likelihoods_of_full_forwards(encoding):
    model = build(encoding)
    batch = tokenizer(PROMPTS, padding=True, return_tensors="pt")
    beams = model.generate(
        **batch, **SIX_TOKENS, num_beams=3, num_return_sequences=3, length_penalty=0.0, output_scores=True,
        return_dict_in_generate=True,
    )  # fmt: skip
    assert len({tuple(sequence.tolist()) for sequence in beams.sequences}) == 9
    for row, (tokens, score) in enumerate(zip(beams.sequences, beams.sequences_scores, strict=True)):
        alone = tokens[batch.input_ids[row // 3].eq(BOS).int().argmax() :].unsqueeze(0)
        logits = model(alone).logits
        log_likelihood = logits.log_softmax(-1)[0, -7:-1].gather(1, alone[0, -6:, None]).sum()
        torch.testing.assert_close(score, log_likelihood.float(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("text", "length"), [("653+049=", 5), ("1+1=", 3), ("123456+1=", 8), ("7+12=", 4)])
def test_generation_stops_by_default_at_the_planned_response_length(text, length):
    model = build()
    for _ in range(2):
        generated = model.generate(prompt(text), suppress_tokens=[BOS])
        assert generated.shape[1] - prompt(text).shape[1] == length
        model.generate(prompt("12345678+1="), suppress_tokens=[BOS])


@pytest.mark.parametrize("limit", [{"max_new_tokens": 9}, {"max_length": 18}], ids=str)
def test_a_length_asked_for_replaces_the_planned_one(limit):
    assert build().generate(prompt(), suppress_tokens=[BOS], **limit).shape[1] == 18


def test_generation_ends_at_the_end_token():
    model = build()
    expected = model.generate(prompt(), suppress_tokens=[BOS])[0, 9:].tolist()
    model.config.eos_token_id = model.generation_config.eos_token_id = expected[2]
    generated = model.generate(prompt(), suppress_tokens=[BOS])[0, 9:].tolist()
    assert generated == expected[: expected.index(expected[2]) + 1]


def test_malformed_prompt_is_refused_by_generate():
    with pytest.raises(ValueError, match=r"'\$653-049=' is not of the form"):
        build().generate(prompt("653-049="))


def used_cache(model):
    model.generate(prompt(), cache=(cache := DynamicCache()))
    return cache


@pytest.mark.parametrize(
    "options",
    [
        lambda model: {"assistant_model": build()},
        lambda model: {"prompt_lookup_num_tokens": 2},
        lambda model: {"guidance_scale": 2.0},
        lambda model: {"token_healing": True, "tokenizer": tokenizer},
        lambda model: {"prefill_chunk_size": 4},
        lambda model: {"stop_strings": ["7"], "tokenizer": tokenizer},
        lambda model: {"labels": prompt()},
        lambda model: {"position_bias": torch.zeros(1, 1, 14, 14)},
        lambda model: {"cache": used_cache(model)},
        lambda model: (model.train() and model.activation_checkpointing_enable()) or {},
    ],
)
def test_what_would_spoil_planned_ids_is_refused(options):
    model = build()
    with pytest.raises(ValueError, match=r"plans|cache"):
        model.generate(prompt(), **options(model))


def test_the_pipeline_returns_the_whole_answer(tmp_path):
    build("none").save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    generator = pipeline("text-generation", model=str(tmp_path))
    text = f"{'1' * 300}+{'2' * 300}="
    (answer,) = generator(text, suppress_tokens=[BOS], return_tensors=True)
    assert len(answer["generated_token_ids"]) == len(tokenizer(text).input_ids) + 302
    assert "max_new_tokens" not in (tmp_path / "generation_config.json").read_text()


def test_static_cache_is_refused_by_name():
    model = CoupledGPTForCausalLM(CoupledGPTConfig(hidden_size=16, intermediate_size=16)).eval()
    with pytest.raises(ValueError, match="StaticCache is not supported"):
        model.generate(**tokenizer("1+2=", return_tensors="pt"), cache_implementation="static")


LONG_PROMPT = f"{'372' * 20}+{'518' * 20}="


@pytest.mark.parametrize("count", [62, 75], ids=["planned", "more than planned"])
@pytest.mark.parametrize("relation_range", [[0, 1], [-1, 1], [1, 2]], ids=str)
def test_long_response_under_a_window_is_the_argmax_of_full_forwards(relation_range, count):
    model = build(relation_range=relation_range)
    length = {"min_new_tokens": count, "max_new_tokens": count}
    assert_written_as_by_full_forwards(model, encode("windowed", LONG_PROMPT), **length)


def test_long_left_padded_batch_and_beams_under_a_window_equal_those_without_a_cache():
    model = build().double()  # in float32 nearly equal beams may change places
    batch = tokenizer([LONG_PROMPT, *PROMPTS], padding=True, return_tensors="pt")
    options = {"min_new_tokens": 40, "max_new_tokens": 40, "return_dict_in_generate": True, "output_scores": True}
    for beams in ({}, {"num_beams": 3, "num_return_sequences": 2}):
        cached = model.generate(**batch, **options, **beams)
        assert isinstance(cached.cache, WindowedCache)
        free = model.generate(**batch, **options, **beams, use_cache=False)
        assert torch.equal(cached.sequences, free.sequences)
        torch.testing.assert_close(cached.scores, free.scores, rtol=1e-4, atol=1e-4)


@pytest.fixture
def kept_columns(monkeypatch):
    """After every step of every layer: columns kept, columns that the buffer has room for, tokens seen."""
    kept, update = [], WindowedLayer.update

    def recording(layer, *args, **kwargs):
        result = update(layer, *args, **kwargs)
        kept.append((layer.used, layer.keys.shape[2], layer.get_seq_length()))
        return result

    monkeypatch.setattr(WindowedLayer, "update", recording)
    return kept


def test_windowed_cache_has_room_for_what_was_needed_and_half_as_much_and_drops_the_rest(kept_columns):
    model, columns = build(), prompt(LONG_PROMPT).shape[1]
    plan = model.model.plan_position_ids(prompt(LONG_PROMPT), columns + 200)
    related = (model.model.position_encoding.pair_map(plan, plan)[0] != NOT_RELATED).tril()
    related[columns + 62 :] = False
    model.generate(prompt(LONG_PROMPT), suppress_tokens=[BOS], max_new_tokens=200)
    assert len(kept_columns) == 2 * 200
    most = 0
    for used, room, seen in kept_columns:
        can_still_be_seen = int(related[seen:, :seen].any(0).sum())
        most = max(most, can_still_be_seen)
        assert can_still_be_seen <= used <= room and (seen == columns or room <= 1.5 * most + 32)
    assert room < kept_columns[0][1] / 2


def test_cache_of_the_caller_is_used_and_filled():
    model, cache = build(), DynamicCache()
    output = assert_written_as_by_full_forwards(model, encode("windowed", PROMPTS[0]), **SIX_TOKENS, cache=cache)
    assert output.cache is cache and cache.get_seq_length() == output.sequences.shape[1] - 1


def test_a_pipeline_cuts_no_prompt_and_continuous_batching_is_refused():
    folder = zoo("addition-tiny")
    adder = pipeline("text-generation", folder)
    questions = ["12+34=", "653+049="]
    assert adder(questions, handle_long_generation="hole") == adder(questions)
    with pytest.raises(ValueError, match="pad prompts on the left and call generate"):
        adder.model.generate_batch([adder.tokenizer(question)["input_ids"] for question in questions])


ANY_TEXT = {f"windowed, {rule}": {"relation_range": [-1, 1], "coupling": rule} for rule in ("sequential", "abacus")}
"""Rules whose ids go on behind the planned response."""


@pytest.mark.parametrize(("name", "use_cache"), in_turn([*DECODERS, *ANY_TEXT], [True, False], LIKE_OTHERS))
def test_generate_and_forward_agree_behind_the_planned_response(name, use_cache):
    model = build(name) if name in DECODERS else build(**ANY_TEXT[name])
    batch = tokenizer(PROMPTS, padding=True, return_tensors="pt")
    count = int(model.config.rule.plan(batch.input_ids, 1).response_length) + 5
    assert_written_as_by_full_forwards(model, batch, min_new_tokens=count, max_new_tokens=count, use_cache=use_cache)


SHIPPED = [name for name in list_zoo() if CoupledGPTConfig.model_type in Path(zoo(name), "config.json").read_text()]


@pytest.mark.parametrize("name", drawn(SHIPPED, 8))
def test_a_shipped_decoder_agrees_with_itself_behind_the_planned_response(name):
    checkpoint = load_checkpoint(zoo(name))
    model = checkpoint.model.double()
    part = next(part for part in checkpoint.task.parts if part.answers_questions)
    question = part.family.read(part, model, part.example_question)
    ids = part.family.encode(part, model, checkpoint.tokenizer, [question]).input_ids
    asked = BatchEncoding({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    count = int(model.config.rule.plan(asked.input_ids, 1).response_length) + 5
    assert_written_as_by_full_forwards(model, asked, min_new_tokens=count, max_new_tokens=count)
