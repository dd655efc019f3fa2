"""Families of transformers carry structure alike in every implementation of attention, or are refused."""

from typing import ClassVar

import pytest
import torch
from cases import all_but
from structured_subjects import GROUPED, RELATIONS, TOKENS, ids_of, map_of, plain, structured
from transformers import AutoModelForCausalLM, Gemma4TextConfig
from transformers.models.llama.modeling_llama import LlamaAttention
from transformers.utils import logging

import longhand
from longhand.hub_cards.research.structured.families import DECODERS, ENCODERS, NOT_SUPPORTED, OTHERS, RESULTS, measure
from longhand.hub_cards.result_rows import read_results

KNOWN = {row["family"]: row for row in read_results(RESULTS)}
SAMPLE = ("gemma2", "gpt2", "opt", "qwen2_moe", "modernbert", "roberta", "bloom", "falcon_h1", "t5")
CLOSE = 2e-5


def check(kind: str, flex: bool) -> None:
    logging.set_verbosity_error()
    row = measure(kind, flex)
    assert row["carries"] == KNOWN[kind]["carries"], row
    if not row["carries"]:
        assert row["refused"] and "\n" not in row["refused"]
        return
    assert row["zeros"] == 0 and row["changed"] > 0.01 and row.get("generate", 0) == 0
    for name in ("mask", "sdpa", "flex", "gradients", "padding"):
        assert row.get(name, 0.0) == NOT_SUPPORTED or row.get(name, 0.0) <= CLOSE, (name, row)


@pytest.mark.parametrize("kind", all_but(["falcon_h1"], SAMPLE))
def test_some_families_agree_or_are_refused(kind):
    check(kind, flex=False)


@pytest.mark.release
@pytest.mark.parametrize("kind", [*DECODERS, *ENCODERS, *OTHERS])
def test_every_family_agrees_or_is_refused(kind):
    check(kind, flex=True)


def test_the_table_has_every_family_and_thirty_that_carry_structure():
    assert list(KNOWN) == [*DECODERS, *ENCODERS, *OTHERS]
    assert sum(row["carries"] for row in KNOWN.values()) >= 30


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
        assert torch.equal(model(ids_of(), logits_to_keep=kept).logits, expected)
        whole = model(ids_of(), pair_map=map_of()).logits[:, -kept:]
        last = model(ids_of(), pair_map=map_of(), logits_to_keep=kept).logits
    torch.testing.assert_close(last, whole, atol=1e-5, rtol=1e-5)
    assert (last - expected).abs().max() > 0.01
