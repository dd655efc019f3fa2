"""Families of transformers carry structure alike in every implementation of attention, or are refused."""

from typing import ClassVar

import pytest
import torch
from accelerator import CUDA, Accelerator, place
from structured_subjects import GROUPED, RELATIONS, TOKENS, ids_of, map_of, plain, structured
from transformers import AutoModelForCausalLM, Gemma4TextConfig
from transformers.models.llama.modeling_llama import LlamaAttention
from transformers.utils import logging

import longhand
from longhand.hub_cards.research.structured import families
from longhand.hub_cards.research.structured.families import (
    CARRIES,
    CAUSAL,
    CLASSIFIES,
    DIFFERENCES,
    DIFFERS,
    FAILS,
    FLEX,
    NOT_BUILT,
    OUTCOMES,
    RESULTS,
    TYPES,
    exceeds,
    measure,
    summary,
)
from longhand.hub_cards.result_rows import read_results

ROWS = read_results(RESULTS)
KNOWN = {(row["head"], row["family"]): row for row in ROWS if "summary" not in row}
SUMMARY = {row["head"]: row for row in ROWS if row.get("summary") == "differences"}
SAMPLE = [
    *((CAUSAL, kind) for kind in ("gemma2", "gpt2", "opt", "qwen2_moe", "bert", "bart", "dory", "axk2", "bloom")),
    *((CLASSIFIES, kind) for kind in ("modernbert", "roberta", "t5", "fnet")),
]


def check(head: str, kind: str, flex: bool) -> None:
    logging.set_verbosity_error()
    row = measure(kind, head, flex)
    assert row["outcome"] == KNOWN[head, kind]["outcome"] != DIFFERS, row
    if row["outcome"] == CARRIES:
        assert row["zeros"] == 0 and row["changed"] > 0.001, row
        assert all(exceeds(row, f"plain_{name}") for name in DIFFERENCES if exceeds(row, name)), row
    else:
        assert row["why"] and "\n" not in row["why"]


@pytest.mark.parametrize(("head", "kind"), [*SAMPLE, pytest.param(CAUSAL, "falcon_h1", marks=pytest.mark.release)])
def test_some_families_agree_or_are_refused(head, kind):
    check(head, kind, flex=False)


@pytest.mark.release
@pytest.mark.parametrize(("head", "kind"), [(head, kind) for head, kinds in TYPES.items() for kind in kinds])
def test_every_family_agrees_or_is_refused(head, kind):
    check(head, kind, flex=kind in FLEX)


def test_the_rows_are_of_every_type_and_none_differs_or_fails_without_a_reason():
    assert list(KNOWN) == [(head, kind) for head, kinds in TYPES.items() for kind in kinds]
    for head, row in SUMMARY.items():
        assert [row[outcome] for outcome in OUTCOMES] == [
            sum(known["outcome"] == outcome for known in KNOWN.values() if known["head"] == head) for outcome in OUTCOMES
        ]
        assert row[DIFFERS] == row[FAILS] == 0 and row[CARRIES] > row[NOT_BUILT]


def test_a_difference_that_the_plain_model_has_is_no_difference_of_structure():
    rows = [
        {"family": "first", "head": CAUSAL, "outcome": CARRIES, "padding": 1e-6},
        {"family": "second", "head": CAUSAL, "outcome": CARRIES, "padding": 5.0, "plain_padding": 4.0},
    ]
    counts, own, _ = summary(rows)
    assert counts[CARRIES] == 2 and counts["padding"] == "1e-06"
    assert own["family"] == "second" and (own["structured"], own["plain"]) == ("5e+00", "4e+00")


@pytest.mark.parametrize("kind", ["axk2", "deepseek_v32", "glm_moe_dsa", "hy_v4"])
def test_an_index_that_chooses_all_keys_differs_by_rounding_alone(kind, monkeypatch):
    monkeypatch.setitem(families.SETTINGS["latent"], "index_topk", 64)
    row = measure(kind)
    assert not any(exceeds(row, name) for name in DIFFERENCES), row


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md"])
def test_pages_tell_how_many_types_were_found_to_carry_structure(page):
    text = " ".join((RESULTS.parents[3] / page).read_text(encoding="utf-8").split())
    numbers = [f"{row[CARRIES]} of {row['types']}" for row in SUMMARY.values()]
    assert all(number in text for number in numbers), numbers


class NamesTheAttention(LlamaAttention):
    """Attention that notes which name its configuration has, as sparse attention compares it."""

    seen: ClassVar[list[str]] = []

    def forward(self, *arguments, **kwargs):
        self.seen.append(self.config._attn_implementation)
        return super().forward(*arguments, **kwargs)


@pytest.mark.parametrize("implementation", ["eager", "sdpa", "flex_attention"])
def test_what_compares_the_name_of_its_attention_finds_the_name_that_it_had(implementation, uncompiled):
    model = plain("llama", implementation)
    for layer in model.model.layers:
        layer.self_attn.__class__ = NamesTheAttention
    model = longhand.with_structure(model, num_relations=RELATIONS)
    NamesTheAttention.seen.clear()
    with torch.no_grad():
        model(ids_of())
        model(ids_of(), pair_map=map_of())
    assert {*NamesTheAttention.seen} == {implementation} == {model.config._attn_implementation}


def test_structure_of_one_model_is_nothing_to_another_of_its_class():
    before = plain()(ids_of(), attention_mask=torch.ones(2, 1, TOKENS, TOKENS).bool()).logits
    structured()
    assert torch.equal(plain()(ids_of(), attention_mask=torch.ones(2, 1, TOKENS, TOKENS).bool()).logits, before)


def sharing(implementation):
    """A model whose last layers read the keys of earlier ones, and answer for the last tokens alone."""
    sizes = {**GROUPED, "num_hidden_layers": 4, "num_kv_shared_layers": 2, "global_head_dim": 8, "sliding_window": 6}
    layers = ["sliding_attention", "full_attention"] * 2
    config = Gemma4TextConfig(**sizes, layer_types=layers, hidden_size_per_layer_input=4, vocab_size_per_layer_input=64)
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, attn_implementation=implementation).eval()


@pytest.mark.parametrize("implementation", ["eager", "sdpa", "flex_attention"])
@pytest.mark.parametrize("kept", [1, 2, TOKENS])
def test_layers_that_answer_for_the_last_tokens_alone_read_their_part_of_a_map(implementation, kept, uncompiled):
    model = longhand.with_structure(sharing(implementation), num_relations=RELATIONS)
    torch.nn.init.normal_(model.structure.table)
    with torch.no_grad():
        expected = sharing(implementation)(ids_of(), logits_to_keep=kept).logits
        # Kernels of some processors add the same numbers in another order where a mask is given.
        torch.testing.assert_close(model(ids_of(), logits_to_keep=kept).logits, expected, atol=1e-5, rtol=1e-5)
        whole = model(ids_of(), pair_map=map_of()).logits[:, -kept:]
        last = model(ids_of(), pair_map=map_of(), logits_to_keep=kept).logits
    torch.testing.assert_close(last, whole, atol=1e-5, rtol=1e-5)
    assert (last - expected).abs().max() > 0.01


def test_flex_attention_with_small_heads_is_refused_on_an_accelerator_alone(uncompiled):
    model = structured("llama", "flex_attention")
    assert torch.isfinite(model(ids_of(), pair_map=map_of()).logits).all()
    for tensor in (*model.parameters(), *model.buffers()):
        place(tensor)
    with Accelerator(), pytest.raises(ValueError, match=r"heads of 8 numbers.*at least 16"):
        model(ids_of().to(CUDA), pair_map=map_of().to(CUDA))
