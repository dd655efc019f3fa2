"""Models of others generate by plans of structure, as a loop of forward passes does."""

import pytest
import torch
from structured_subjects import COLUMNS, RELATIONS, TOKENS, ids_of, map_of, plain, structured
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel

import longhand

DECODERS = ("llama", "mistral", "gemma3")
NEW = COLUMNS - TOKENS


def greedy(model, ids, **plan):
    """The tokens that are best, one after the other, each by a forward pass over all before it."""
    for columns in range(TOKENS, COLUMNS):
        given = {
            name: part[..., :columns] if name == "position_ids" else part[..., :columns, :columns]
            for name, part in plan.items()
        }
        best = model(ids, attention_mask=torch.ones_like(ids), **given).logits[:, -1].argmax(-1)
        ids = torch.cat([ids, best.unsqueeze(1)], dim=1)
    return ids


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize("options", [{}, {"use_cache": False}, {"cache_implementation": "static"}, {"cache": None}], ids=str)
@pytest.mark.parametrize("rows", [1, 2])
def test_greedy_decoding_is_a_loop_of_forward_passes(kind, options, rows):
    model, plan = structured(kind, "sdpa"), map_of(rows, COLUMNS)
    if "cache" in options:
        options = {"cache": DynamicCache(config=model.config)}
    with torch.no_grad():
        expected = greedy(model, ids_of(), pair_map=plan)
    written = model.generate(ids_of(), pair_map=plan, do_sample=False, eos_token_id=None, **options)
    assert torch.equal(written, expected)
    shorter = model.generate(
        ids_of(), pair_map=plan, do_sample=False, eos_token_id=None, max_new_tokens=2, **_fresh(model, options)
    )
    assert torch.equal(shorter, expected[:, : TOKENS + 2])


def _fresh(model, options):
    return {"cache": DynamicCache(config=model.config)} if "cache" in options else options


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize("padding", [0, 3])
def test_padding_on_the_left_changes_no_token(kind, padding):
    model, plan = structured(kind, "sdpa"), map_of(2, COLUMNS)
    expected = model.generate(ids_of(), pair_map=plan, do_sample=False, eos_token_id=None)[:, TOKENS:]
    around = (padding, 0)
    ids, mask = (torch.nn.functional.pad(each, around) for each in (ids_of(), torch.ones(2, TOKENS).long()))
    padded = torch.nn.functional.pad(plan, around * 2, value=-1)
    written = model.generate(ids, attention_mask=mask, pair_map=padded, do_sample=False, eos_token_id=None)
    assert torch.equal(written[:, TOKENS + padding :], expected)


@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 3},
        {"num_beams": 3, "num_return_sequences": 2},
        {"do_sample": True, "num_return_sequences": 3, "top_k": 5},
        {"num_beams": 2, "do_sample": True},
    ],
    ids=str,
)
def test_beams_and_samples_are_the_same_with_and_without_a_cache(options):
    model, plan = structured("llama", "sdpa"), map_of(2, COLUMNS)
    written = []
    for use_cache in (True, False):
        torch.manual_seed(0)
        written.append(model.generate(ids_of(), pair_map=plan, eos_token_id=None, use_cache=use_cache, **options))
    assert torch.equal(*written) and len(written[0]) == 2 * options.get("num_return_sequences", 1)


def test_a_decoder_that_reads_another_text_too_is_cached():
    """Its own keys stand in one half of its cache; there, structure is read."""
    config = GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, add_cross_attention=True)
    model, plan = longhand.with_structure(GPT2LMHeadModel(config).eval(), num_relations=RELATIONS), map_of(2, COLUMNS)
    torch.nn.init.normal_(model.structure.table, generator=torch.Generator().manual_seed(0))
    for other_text in ({}, {"encoder_hidden_states": torch.randn(2, 5, 32)}):
        options = {"pair_map": plan, "do_sample": False, "eos_token_id": None, "max_length": COLUMNS, **other_text}
        cached, uncached = (model.generate(ids_of(), use_cache=use_cache, **options) for use_cache in (True, False))
        assert torch.equal(cached, uncached)


def test_rows_of_a_batch_have_their_own_plans():
    model, plan = structured("llama", "sdpa"), map_of(2, COLUMNS)
    options = {"eos_token_id": None, "num_beams": 2}
    together = model.generate(ids_of(), pair_map=plan, **options)
    for row in range(2):
        alone = model.generate(ids_of()[row : row + 1], pair_map=plan[row : row + 1], **options)
        assert torch.equal(alone, together[row : row + 1])


def test_ids_of_levels_and_own_ids_are_plans_too():
    ids = torch.randint(0, 4, (2, 2, COLUMNS), generator=torch.Generator().manual_seed(4))
    model = structured("llama", "sdpa", levels=2)
    for plan in (ids, ids[:1], ids[:, 0], ids[:1, 0]):
        with torch.no_grad():
            expected = greedy(model, ids_of(), position_ids=plan)
        written = model.generate(ids_of(), position_ids=plan, do_sample=False, eos_token_id=None)
        assert torch.equal(written, expected)
    both = structured("llama", "sdpa")
    with torch.no_grad():
        expected = greedy(both, ids_of(), position_ids=ids[:, 0], pair_map=map_of(2, COLUMNS))
    given = {"position_ids": ids[:, 0], "pair_map": map_of(2, COLUMNS), "do_sample": False, "eos_token_id": None}
    for use_cache in (True, False):
        assert torch.equal(both.generate(ids_of(), use_cache=use_cache, **given), expected)


def test_a_prompt_of_embeddings_is_the_prompt():
    model, plan = structured("llama", "sdpa"), map_of(2, COLUMNS)
    expected = model.generate(ids_of(), pair_map=plan, do_sample=False, eos_token_id=None)[:, TOKENS:]
    embeddings = model.get_input_embeddings()(ids_of())
    assert torch.equal(model.generate(inputs_embeds=embeddings, pair_map=plan, do_sample=False, eos_token_id=None), expected)


def test_without_a_plan_a_model_generates_as_before():
    model, options = structured("llama", "sdpa"), {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None}

    assert torch.equal(model.generate(ids_of(), **options), plain("llama", "sdpa").generate(ids_of(), **options))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"pair_map": map_of(2, TOKENS)}, "plan the response"),
        ({"pair_map": map_of(2, COLUMNS), "max_new_tokens": NEW + 2}, "plan more"),
        ({"pair_map": map_of(2, COLUMNS), "max_length": COLUMNS + 5}, "plan more"),
        ({"pair_map": map_of(3, COLUMNS)}, "must be"),
        ({"pair_map": map_of(2, COLUMNS) + 1}, "must be in"),
        ({"pair_map": map_of(2, COLUMNS).float()}, "integers"),
        ({"pair_map": map_of(2, COLUMNS)[:, :TOKENS]}, "must be"),
        ({"position_ids": torch.ones(2, 2, COLUMNS).long()}, "levels"),
        ({"position_ids": torch.ones(COLUMNS).long()}, "columns"),
        ({"position_ids": -torch.ones(2, COLUMNS).long()}, "0, for no id, to"),
        *(
            ({"pair_map": map_of(2, COLUMNS), "inputs_embeds": torch.zeros(2, tokens, 32)}, "as many tokens")
            for tokens in (TOKENS - 1, TOKENS + 1)
        ),
        ({"position_bias": torch.zeros(2, 4, TOKENS, TOKENS)}, "plan the response"),
        ({"position_bias": torch.zeros(2, 3, COLUMNS, COLUMNS)}, "must be"),
        ({"attention_mask": torch.ones(2, 3, COLUMNS, COLUMNS).bool()}, "must be"),
        ({"attention_mask": torch.ones(2, 1, COLUMNS, COLUMNS).long()}, "bool"),
        ({"attention_mask": torch.ones(2, 1, TOKENS, TOKENS).bool()}, "plan the response"),
        ({"longhand_structure": 1}, "plans"),
        ({"pair_map": map_of(2, COLUMNS), "assistant_model": structured()}, "assisted generation"),
        ({"pair_map": map_of(2, COLUMNS), "prompt_lookup_num_tokens": 2}, "assisted generation"),
        ({"pair_map": map_of(2, COLUMNS), "guidance_scale": 2.0}, "guidance_scale"),
        ({"pair_map": map_of(2, COLUMNS), "prefill_chunk_size": 2}, "prefill_chunk_size"),
        ({"pair_map": map_of(2, COLUMNS), "custom_generate": greedy}, "custom_generate"),
        ({"pair_map": map_of(2, COLUMNS), "cache_implementation": "paged"}, "continuous batching"),
        ({"pair_maps": map_of(2, COLUMNS)}, "pair_map"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_what_cannot_be_planned_is_refused_before_the_first_token(given, reason):
    model, calls = structured("llama", "sdpa"), []
    model.register_forward_pre_hook(lambda *_: calls.append(1))
    with pytest.raises(ValueError, match=reason):
        model.generate(ids_of(), **given)
    assert not calls


def test_continuous_batching_is_refused():
    model = structured("llama", "sdpa")
    for name in ("generate_batch", "init_continuous_batching", "continuous_batching_context_manager"):
        with pytest.raises(ValueError, match="continuous batching"):
            getattr(model, name)([[3, 4]])
