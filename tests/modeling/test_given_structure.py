"""Structure that a caller gives: every argument counts as it says; `test_given_refusals.py` has the refusals."""

import pytest
import torch
from cases import all_but, in_turn
from given_subjects import BY_IDS, WORDS, given, given_decoder, given_encoder
from position_subjects import (
    DECODERS,
    ENCODERS,
    LIKE_OTHERS,
    PROMPTS,
    SUMS,
    WITH_TEXT,
    assert_close,
    build,
    encode,
    maps_of,
    texts_of,
)
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForTokenClassification,
    pipeline,
)

import longhand
from longhand.data import TASKS
from longhand.data.families import DECODER, ENCODER
from longhand.data.proofs.provable import provable
from longhand.modeling import (
    CoupledGPTForCausalLM,
    PairwiseBertConfig,
    PairwiseBertForTokenClassification,
    parallel_greedy,
)
from longhand.modeling.encoder_maps import NO_MAP

assert given

READING_MAPS = [name for name in DECODERS if name.split(",")[0] in ("pairwise", "windowed", "alibi", "t5", "fire")]
WITH_MAPS = [name for name, options in ENCODERS.items() if set(options["pair_maps"]) != {NO_MAP}]

every_decoder = pytest.mark.parametrize("name", all_but(LIKE_OTHERS, DECODERS))
every_encoder = pytest.mark.parametrize("name", all_but(LIKE_OTHERS, ENCODERS))
every_map_of_a_decoder = pytest.mark.parametrize("name", all_but(LIKE_OTHERS, READING_MAPS))
every_map_of_an_encoder = pytest.mark.parametrize("name", all_but(LIKE_OTHERS, WITH_MAPS))
every_encoding = pytest.mark.parametrize("encoding", BY_IDS)


def ids_of(model, batch) -> torch.LongTensor:
    """The ids that a decoder derives, (batch, levels, tokens)."""
    return model.model.plan_position_ids(batch.input_ids, batch.input_ids.shape[1])


def map_of(model, batch) -> torch.IntTensor:
    """The map that a decoder derives."""
    ids = ids_of(model, batch)
    return model.model.position_encoding.pair_map(ids, ids)


def per_head(pair_map: torch.Tensor, heads: int) -> torch.Tensor:
    return pair_map.unsqueeze(1).expand(-1, heads, -1, -1)


def shown(logits: torch.Tensor, batch) -> torch.Tensor:
    """Logits of tokens that are not padding."""
    return logits[batch.attention_mask.bool()]


# What is derived, given.


@every_decoder
def test_ids_that_a_decoder_derives_change_nothing_if_they_are_given(name):
    model, batch = build(name), encode(name, *SUMS)
    assert torch.equal(model(**batch, position_ids=ids_of(model, batch)).logits, model(**batch).logits)


@every_map_of_a_decoder
@pytest.mark.parametrize("side", ["left", "right"])
def test_the_map_that_a_decoder_derives_changes_nothing_if_it_is_given(name, side):
    model, batch = build(name), encode(name, *SUMS, side=side)
    derived, pair_map = model(**batch).logits, map_of(model, batch)
    assert torch.equal(shown(model(**batch, pair_map=pair_map).logits, batch), shown(derived, batch))
    heads = per_head(pair_map, model.config.num_attention_heads)
    assert_close(shown(model(**batch, pair_map=heads).logits, batch), shown(derived, batch))
    # It overrides what ids give: these are read by nothing else.
    for call in (model, model.model, model.generate):
        with pytest.raises(ValueError, match="pair_map overrides position_ids"):
            call(**batch, pair_map=pair_map, position_ids=ids_of(model, batch))


@every_map_of_a_decoder
def test_a_given_map_serves_a_decoder_beside_a_cache(name):
    model, batch = build(name), encode(name, SUMS[0])
    pair_map, expected = map_of(model, batch), model(**batch).logits
    first = model(batch.input_ids[:, :9], pair_map=pair_map[:, :9, :9], use_cache=True)
    rest = model(batch.input_ids[:, 9:], pair_map=pair_map[:, 9:], cache=first.cache)
    assert_close(torch.cat([first.logits, rest.logits], dim=1), expected)


@pytest.mark.parametrize("name", [name for name in WITH_MAPS if "absolute_positions" not in ENCODERS[name]])
def test_ids_beside_maps_that_override_all_of_them_are_refused(name):
    model = build(name)
    batch = encode(name, *texts_of(name))
    maps, ids = maps_of(model.config, batch.input_ids), batch.attention_mask.cumsum(1)
    with pytest.raises(ValueError, match="position_ids"):
        model(**batch, pair_map=maps, position_ids=ids)


@every_map_of_an_encoder
def test_maps_that_an_encoder_derives_change_nothing_if_they_are_given(name):
    model = build(name)
    batch = encode(name, *texts_of(name))
    maps, derived = maps_of(model.config, batch.input_ids), shown(model(**batch).logits, batch)
    assert torch.equal(shown(model(**batch, pair_map=maps).logits, batch), derived)
    heads = {rule: per_head(own, model.config.head_maps.count(rule)) for rule, own in maps.items()}
    assert torch.equal(shown(model(**batch, pair_map=heads).logits, batch), derived)
    if len(maps) == 1:
        assert torch.equal(shown(model(**batch, pair_map=next(iter(maps.values()))).logits, batch), derived)


@pytest.mark.parametrize("name", ["absolute", "relative", "relative, sink"])
def test_places_that_an_encoder_numbers_change_nothing_if_they_are_given(name):
    model, batch = build(name), encode(name, *texts_of(name))
    places = batch.attention_mask.cumsum(1) * batch.attention_mask
    expected = shown(model(**batch).logits, batch)
    assert torch.equal(shown(model(**batch, position_ids=places).logits, batch), expected)
    moved = model(**batch, position_ids=places.where(places == 0, places + 3)).logits
    assert torch.equal(shown(moved, batch), expected) == (name != "absolute")
    assert not torch.allclose(shown(model(**batch, position_ids=places.flip(1)).logits, batch), expected)


def test_inputs_embeds_stand_for_the_tokens_of_either_family():
    for name in ("windowed", "relative"):
        model, batch = build(name), encode(name, texts_of(name)[0])
        embeds = model.get_input_embeddings()(batch.input_ids)
        ids = {"position_ids": ids_of(model, batch)} if name == "windowed" else {}
        assert_close(model(inputs_embeds=embeds, **ids).logits, model(**batch).logits)


# Masks and biases.


def causal(batch) -> torch.BoolTensor:
    """(batch, 1, tokens, tokens), for a decoder."""
    tokens = batch.input_ids.shape[1]
    return torch.ones(tokens, tokens).tril().bool() & batch.attention_mask.bool()[:, None, None]


@pytest.mark.parametrize(("name", "attention"), in_turn([*DECODERS, *ENCODERS], ["sdpa", "eager"], LIKE_OTHERS))
def test_a_mask_of_pairs_in_each_form_counts_as_it_is(name, attention):
    model, batch = build(name, attn_implementation=attention), encode(name, *texts_of(name))
    tokens = batch.input_ids.shape[1]
    every = batch.attention_mask.bool()[:, None, None].expand(-1, 1, tokens, -1)
    mask = causal(batch) if name in DECODERS else every
    expected = shown(model(**batch).logits, batch)
    added = torch.zeros(mask.shape, dtype=model.dtype).masked_fill(~mask, torch.finfo(model.dtype).min)
    ids = {"position_ids": ids_of(model, batch)} if name in DECODERS and name != "none" else {}
    for own in (mask, added, mask.expand(-1, model.config.num_attention_heads, -1, -1)):
        given = {**batch, "attention_mask": own}
        found = shown(model(**given, **ids).logits, batch)
        if "window" in name or name == "loops":
            # By a rule, text and padding may see nobody.
            assert torch.allclose(found, expected, atol=1e-9) or name in ENCODERS
        else:
            assert_close(found, expected)
    other = mask & (torch.rand(mask.shape) < 0.5)
    assert not torch.allclose(shown(model(**{**batch, "attention_mask": other}, **ids).logits, batch), expected)


@pytest.mark.parametrize("name", all_but(LIKE_OTHERS, [*DECODERS, *ENCODERS]))
def test_a_bias_is_added_to_the_scores_of_every_layer_and_head(name):
    model, batch = build(name, attn_implementation="eager"), encode(name, texts_of(name)[0])
    tokens, heads = batch.input_ids.shape[1], model.config.num_attention_heads
    torch.manual_seed(1)
    bias = torch.randn(1, heads, tokens, tokens, dtype=model.dtype)
    plain, biased = (model(**batch, position_bias=own, output_attentions=True) for own in (None, bias))
    for before, after in zip(plain.attentions[:1], biased.attentions[:1], strict=True):
        before, after = (weights[..., :tokens].log() for weights in (before, after))
        seen = before.isfinite()
        # Softmax keeps differences of scores.
        change = (after - before - bias).masked_fill(~seen, 0.0)
        largest = change.masked_fill(~seen, -torch.inf).amax(-1, keepdim=True)
        assert_close(change.where(seen, largest), largest.expand_as(change))
    assert not torch.allclose(plain.attentions[-1], biased.attentions[-1])
    assert_close(model(**batch, position_bias=bias).logits, biased.logits)
    assert_close(model(**batch, position_bias=torch.zeros_like(bias)).logits, model(**batch).logits)


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("name", all_but(LIKE_OTHERS, [*DECODERS, *ENCODERS]))
def test_every_implementation_of_attention_agrees_for_every_head(name, uncompiled):
    batch = encode(name, *texts_of(name))
    rows, tokens = batch.input_ids.shape
    torch.manual_seed(1)
    models = {kind: build(name, attn_implementation=kind).float() for kind in ("eager", "sdpa", "flex_attention")}
    heads = models["eager"].config.num_attention_heads
    bias, mask = torch.randn(rows, heads, tokens, tokens), torch.rand(1, heads, tokens, tokens) < 0.7
    mask[..., 0] = True
    ids = {"position_ids": ids_of(models["eager"], batch)} if name in DECODERS and name != "none" else {}
    for own in ({}, {"position_bias": bias}, {"position_bias": bias[:1, :1]}, {"attention_mask": mask, **ids}):
        expected, *others = (model(**{**batch, **own}).logits for model in models.values())
        for logits in others:
            torch.testing.assert_close(shown(logits, batch), shown(expected, batch), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["windowed", "windowed, scaled"])
@pytest.mark.parametrize("heads", [False, True], ids=["one map", "a map for each head"])
def test_under_a_window_a_given_map_decides_who_is_seen(name, heads):
    model, batch = build(name, num_hidden_layers=1), encode(name, SUMS[0])
    torch.manual_seed(1)
    tokens = batch.input_ids.shape[1]
    pair_map = torch.randint(-1, 5, (1, model.config.num_attention_heads if heads else 1, tokens, tokens))
    embeds = model.get_input_embeddings()(batch.input_ids).detach().requires_grad_()
    logits = model(inputs_embeds=embeds, pair_map=pair_map).logits
    for token in range(tokens):
        (gradient,) = torch.autograd.grad(logits[0, token].square().sum(), embeds, retain_graph=True)
        seen = (pair_map[0, :, token] >= 0).any(0) & (torch.arange(tokens) <= token)
        seen[token] = True
        assert ((gradient[0] != 0).any(-1) == seen).all()


@pytest.mark.parametrize("windowed", [True, False])
def test_under_a_window_an_encoder_sees_who_is_related_and_else_everybody(windowed):
    model = given_encoder(num_relations=3, windowed=windowed)
    torch.manual_seed(1)
    pair_map, tokens = torch.randint(-1, 3, (1, 4, 6, 6)), torch.randint(0, 50, (1, 6))
    embeds = model.get_input_embeddings()(tokens).detach().requires_grad_()
    logits = model(inputs_embeds=embeds, pair_map=pair_map).logits
    for token in range(6):
        (gradient,) = torch.autograd.grad(logits[0, token].square().sum(), embeds, retain_graph=True)
        seen = (pair_map[0, :, token] >= 0).any(0) | (not windowed)
        seen[token] = True
        assert ((gradient[0] != 0).any(-1) == seen).all()


def test_a_token_that_sees_nobody_reads_nothing_however_long_the_batch_is():
    for model in (given_encoder(num_relations=3, windowed=True), given_decoder("pairwise", num_relations=3)):
        tokens, nobody = torch.randint(0, 50, (1, 5)), torch.full((1, 5, 5), -1)
        alone = model(tokens, pair_map=nobody).logits
        assert_close(model(tokens.roll(1), pair_map=nobody).logits.roll(-1, dims=1), alone)
        assert_close(model(tokens, pair_map=nobody[:, None].expand(-1, 4, -1, -1)).logits, alone)
        longer = torch.nn.functional.pad(nobody, (0, 2, 0, 2), value=-1)
        mask = torch.tensor([[1] * 5 + [0] * 2])
        padded = torch.nn.functional.pad(tokens, (0, 2))
        assert_close(model(padded, attention_mask=mask, pair_map=longer).logits[:, :5], alone)


# Structure of one's own.


def test_a_model_of_given_structure_takes_any_vocabulary_and_refuses_a_call_without_structure(given, tmp_path):
    model, structure = given
    logits = model(WORDS, **structure).logits
    assert logits.isfinite().all()
    for missing in structure:
        rest = {name: value for name, value in structure.items() if name != missing}
        with pytest.raises(ValueError, match="given"):
            model(WORDS, **rest)
    # It is saved so, and nothing falls back in silence.
    model.save_pretrained(tmp_path)
    kind = AutoModelForCausalLM if model.can_generate() else AutoModelForTokenClassification
    loaded = kind.from_pretrained(tmp_path, dtype=torch.float64).eval()
    # Loaded weights lie elsewhere in memory: on some processors, a product then sums in another order.
    torch.testing.assert_close(loaded(WORDS, **structure).logits, logits, rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="given"):
        loaded(WORDS)
    base = AutoModel.from_pretrained(tmp_path, dtype=torch.float64).eval()
    with pytest.raises(ValueError, match="given"):
        base(WORDS)
    hidden = (part(WORDS, **structure).last_hidden_state for part in (base, model.model))
    torch.testing.assert_close(*hidden, rtol=0, atol=1e-12)


def test_nothing_that_is_given_is_ignored(given):
    model, structure = given
    logits = model(WORDS, **structure).logits
    for name, value in structure.items():
        other = (value + 1).clamp(max=2) if name == "pair_map" else value.roll(1, dims=-1)
        assert not torch.allclose(model(WORDS, **{**structure, name: other}).logits, logits), name
        if name == "pair_map" and not model.can_generate():
            heads = model.config.head_maps.count("given")
            changed = value.unsqueeze(1).repeat(1, heads, 1, 1)
            changed[:, 1] = other
            assert not torch.allclose(model(WORDS, **{**structure, name: changed}).logits, logits)


def test_batches_of_given_structure_do_not_depend_on_their_padding(given):
    model, structure = given
    alone = model(WORDS, **structure).logits
    fillers = {"pair_map": -1, "position_ids": 0}
    for before, after in ((0, 3), (2, 1)):
        padded = {"input_ids": torch.nn.functional.pad(WORDS, (before, after), value=5)}
        padded["attention_mask"] = torch.nn.functional.pad(torch.ones_like(WORDS), (before, after))
        for name, value in structure.items():
            sides = (before, after) * (2 if name == "pair_map" else 1)
            padded[name] = torch.nn.functional.pad(value, sides, value=fillers[name])
        relative = not model.can_generate() and "relative" in model.config.head_maps
        if model.config.model_type == "coupled_gpt" or not relative:
            assert_close(model(**padded).logits[:, before : before + WORDS.shape[1]], alone)


def test_a_fresh_encoder_numbers_every_token_of_any_vocabulary():
    torch.manual_seed(0)
    config = PairwiseBertConfig(vocab_size=500, hidden_size=16, num_attention_heads=2, intermediate_size=16, pad_token_id=7)
    model, words = PairwiseBertForTokenClassification(config).double().eval(), torch.tensor([[480, 19, 22, 20, 300]])
    order = torch.tensor([3, 0, 4, 1, 2])
    assert not torch.allclose(model(words[:, order]).logits, model(words).logits[:, order])
    mask = torch.tensor([[1, 1, 1, 1, 1, 0, 0]])
    padded = torch.nn.functional.pad(words, (0, 2), value=7)
    assert_close(model(padded, attention_mask=mask).logits[:, :5], model(words).logits)
    with pytest.raises(ValueError, match="pad_token_id 7"):
        model(padded)


def test_text_has_no_relations_where_the_task_says_that_there_is_text():
    text = encode("relative", WITH_TEXT)
    numbers = encode("relative", "1+_5")
    kept = (text.input_ids[0, :, None] == numbers.input_ids[0]).any(1)
    for task, same in (({"text_tokens": 3}, True), (None, False)):
        model = build("relative", task=task)
        maps = model.model._derive_map("relative", inputs_of(model, text), None)[0, 0]
        alone = model.model._derive_map("relative", inputs_of(model, numbers), None)[0, 0]
        assert torch.equal(maps[kept][:, kept], alone) == same


def inputs_of(model, batch):
    from longhand.modeling.modeling_pairwise_bert import EncoderInputs

    return EncoderInputs(batch.input_ids, batch.input_ids, None, batch.input_ids.shape[1], batch.input_ids.device)


# Generation.


WAYS: list[dict] = [{}, {"num_beams": 2}, {"use_cache": False}]


@pytest.mark.parametrize(("name", "options"), in_turn([name for name in DECODERS if name != "none"], WAYS, LIKE_OTHERS))
def test_the_plan_that_is_derived_changes_nothing_if_it_is_given_to_generate(name, options):
    model, batch = build(name), encode(name, *PROMPTS, side="left")
    columns = batch.input_ids.shape[1] + model.config.rule.plan(batch.input_ids, 1).response_length
    ids = model.model.plan_position_ids(batch.input_ids, columns)
    limit = {"max_new_tokens": 3, "min_new_tokens": 3}
    expected = model.generate(**batch, **options, **limit)
    assert torch.equal(model.generate(**batch, position_ids=ids, **options, **limit), expected)
    if name in READING_MAPS:
        pair_map = model.model.position_encoding.pair_map(ids, ids)
        assert torch.equal(model.generate(**batch, pair_map=pair_map, **options, **limit), expected)
        heads = per_head(pair_map, model.config.num_attention_heads)
        assert torch.equal(model.generate(**batch, pair_map=heads, **options, **limit), expected)


def test_a_plan_decides_what_generate_writes_as_one_forward_pass_over_the_whole_text_says(given):
    model, structure = given
    if not model.can_generate():
        pytest.skip("an encoder writes nothing")
    prompt, options = WORDS[:, :4], {"eos_token_id": None}
    written = model.generate(prompt, **structure, **options)
    assert written.shape == WORDS.shape
    logits = model(written, **structure).logits
    assert torch.equal(written[:, 4:], logits[:, 3:-1].argmax(-1))
    sampled = model.generate(prompt, **structure, **options, do_sample=True, num_return_sequences=2)
    assert sampled.shape == (2, WORDS.shape[1])
    other = {name: value.roll(2, dims=-1) for name, value in structure.items()}
    assert not torch.allclose(model(written, **other).logits, logits)


def test_a_plan_is_that_of_padded_prompts_too(given):
    model, structure = given
    if not model.can_generate():
        pytest.skip("an encoder writes nothing")
    alone = model.generate(WORDS[:, :4], **structure, eos_token_id=None)
    padded = {"input_ids": torch.nn.functional.pad(WORDS[:, :4], (2, 0), value=9)}
    padded["attention_mask"] = torch.tensor([[0, 0, 1, 1, 1, 1]])
    for name, value in structure.items():
        sides, filler = ((2, 0, 2, 0), -1) if name == "pair_map" else ((2, 0), 0)
        padded[name] = torch.nn.functional.pad(value, sides, value=filler)
    assert torch.equal(model.generate(**padded, eos_token_id=None)[:, 2:], alone)
    with pytest.raises(ValueError, match="left"):
        model.generate(**{**padded, "attention_mask": padded["attention_mask"].flip(1)})


@pytest.mark.parametrize("structure", ["position_ids", "pair_map"])
@pytest.mark.parametrize("layers", [1, 2])
def test_a_plan_is_decoded_in_parallel_as_one_token_after_the_other(structure, layers):
    number = {"num_relations": 4} if structure == "pair_map" else {}
    model, generator = given_decoder("pairwise", num_hidden_layers=layers, **number), torch.Generator().manual_seed(2)
    prompts = torch.randint(0, 50, (3, 10), generator=generator)
    if structure == "pair_map":
        plan = torch.randint(-1, 4, (3, 40, 40), generator=generator).where(torch.rand(3, 40, 40) < 0.2, -1)
        plan[:, torch.arange(40), torch.arange(40)] = 0
    else:
        plan = torch.randint(1, 15, (3, 40), generator=generator)
    options = {structure: plan, "do_sample": False, "eos_token_id": None}
    expected = model.generate(prompts, **options)
    assert expected.shape == (3, 40)
    assert torch.equal(model.generate(prompts, **options, custom_generate=parallel_greedy), expected)


def test_a_plan_that_is_too_short_is_refused_before_the_first_token():
    model = given_decoder("learned")
    ids = torch.arange(1, 9).unsqueeze(0)
    assert model.generate(WORDS[:, :4], position_ids=ids, max_new_tokens=5, eos_token_id=None).shape == (1, 9)
    for plan, options in ((ids, {"max_new_tokens": 6}), (ids, {"max_length": 10}), (ids[:, :4], {})):
        with pytest.raises(ValueError, match=f"{plan.shape[1]} columns"):
            model.generate(WORDS[:, :4], position_ids=plan, **options)
    with pytest.raises(ValueError, match="given"):
        model.generate(WORDS[:, :4])


def test_a_pipeline_passes_a_plan_on_to_generate_and_refuses_what_cannot_travel():
    adder = pipeline("text-generation", longhand.zoo("addition-tiny"), return_full_text=False)
    model, tokenizer = adder.model, adder.tokenizer
    text, other = "653+049=", "111+222="
    prompt = tokenizer(text, return_tensors="pt").input_ids
    ids = model.model.plan_position_ids(prompt, 14)
    pair_map = model.model.position_encoding.pair_map(ids, ids)
    assert adder(text)[0]["generated_text"] == "2070"
    for plan in ({"position_ids": ids}, {"position_ids": ids[:, 0]}, {"pair_map": pair_map}):
        assert adder(text, **plan)[0]["generated_text"] == "2070"
        assert [row[0]["generated_text"] for row in adder([text, other], batch_size=2, **plan)] == ["2070", "3330"]
        # It counts.
        unfit = {name: torch.full_like(value, 1) for name, value in plan.items()}
        written = tokenizer.decode(model.generate(prompt, **unfit)[0, 9:], skip_special_tokens=True)
        assert adder(text, **unfit)[0]["generated_text"] == written != "2070"
    for unfit in ({"position_ids": ids.tolist()}, {"pair_map": pair_map[:, :9]}, {"position_bias": pair_map.float()}):
        with pytest.raises(ValueError, match=next(iter(unfit))):
            adder(text, **unfit)
    labeller = pipeline("token-classification", longhand.zoo("encoder-addition"))
    for name in ("pair_map", "position_ids", "position_bias"):
        with pytest.raises(TypeError, match=name):
            labeller("653+49", **{name: torch.zeros(1, 25, 25).long()})


# Certificates.


def test_a_certified_model_says_once_that_ids_and_maps_of_the_callers_are_not_covered(caplog):
    folder = longhand.zoo("addition-tiny")
    batch = encode("windowed", SUMS[0])
    for call in (
        lambda model: model(**batch, position_ids=ids_of(model, batch) + 1),
        lambda model: model(**batch, pair_map=map_of(model, batch)),
        lambda model: model(**batch, position_bias=torch.zeros(1, 1, 14, 14)),
        lambda model: model(batch.input_ids, attention_mask=torch.ones(1, 1, 14, 14).bool()),
        lambda model: model.model(**batch, pair_map=map_of(model, batch)) and model(**batch, pair_map=map_of(model, batch)),
        lambda model: model.generate(batch.input_ids[:, :9], position_ids=ids_of(model, batch).flip(-1)),
        lambda model: model.generate(batch.input_ids[:, :9], pair_map=map_of(model, batch)),
    ):
        model = CoupledGPTForCausalLM.from_pretrained(folder).eval()
        caplog.clear()
        model(**batch)
        model(**batch, position_ids=ids_of(model, batch))
        model.generate(batch.input_ids[:, :9], position_ids=ids_of(model, batch))
        model.generate(batch.input_ids[:, :9], custom_generate=parallel_greedy)
        assert not caplog.records
        for _ in range(2):
            call(model)
        assert [record.message.count("does not cover") for record in caplog.records] == [1]


@pytest.mark.parametrize("family", [DECODER, ENCODER], ids=["decoder", "encoder"])
def test_no_certificate_is_possible_for_a_model_of_given_structure(family):
    model = given_decoder("pairwise") if family is DECODER else given_encoder(num_relations=3)
    with pytest.raises(ValueError, match="given"):
        task = TASKS["addition" if family is DECODER else "encoder_addition"]()
        provable(task).check_certifiable(task, model)
