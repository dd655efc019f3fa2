"""Nothing that is given to a model with structure is ignored, and no model that would ignore it takes structure."""

import copy
import json
import logging
import pickle
import subprocess
import sys

import peft
import pytest
import torch
from structured_subjects import COLUMNS, GROUPED, RELATIONS, TOKENS, ids_of, map_of, plain, structured
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    BertConfig,
    BertForMultipleChoice,
    BertLMHeadModel,
    BloomConfig,
    BloomForCausalLM,
    GPT2Config,
    JambaConfig,
    JambaForCausalLM,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    StableLmConfig,
    StableLmForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
from transformers.utils import logging as transformers_logging

import longhand

SMALL = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
JAMBA = {**SMALL, "num_key_value_heads": 2, "intermediate_size": 48, "attn_layer_period": 2, "attn_layer_offset": 1}


class Convolved(LlamaDecoderLayer):
    """A layer that also mixes neighbouring tokens by itself."""

    def forward(self, hidden_states, *arguments, **kwargs):
        shifted = nn.functional.pad(hidden_states, (0, 0, 1, 0))[:, :-1]
        return super().forward(hidden_states + 1e-3 * shifted, *arguments, **kwargs)


class Deaf(LlamaDecoderLayer):
    """A layer that keeps further arguments from its attention."""

    def forward(self, hidden_states, *arguments, longhand_structure=None, **kwargs):
        return super().forward(hidden_states, *arguments, **kwargs)


def with_layer(kind):
    """A Llama whose second layer is of another kind."""
    model = plain()
    model.model.layers[1].__class__ = kind
    return model


def of_another_vocabulary():
    model = plain()
    return peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"]))


def summarizing(kind):
    """A model whose attention reads summaries of several tokens as keys."""
    sizes = {**SMALL, "head_dim": 8, "q_lora_rank": 16, "o_lora_rank": 16, "o_groups": 1, "moe_intermediate_size": 16}
    sizes |= {"n_routed_experts": 4, "index_n_heads": 2, "index_head_dim": 8, "num_key_value_heads": 1}
    return AutoModelForCausalLM.from_config(AutoConfig.for_model("deepseek_v4", **sizes, layer_types=[kind] * 2))


def upcast(implementation):
    """A GPT-2 that computes scores by code of its own, in eager attention alone."""
    config = GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, reorder_and_upcast_attn=True)
    return AutoModelForCausalLM.from_config(config, attn_implementation=implementation)


UNFIT = {
    "bloom": (lambda: BloomForCausalLM(BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=4)), "Bloom"),
    "mamba": (lambda: MambaForCausalLM(MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2)), "Mamba"),
    "stablelm": (lambda: StableLmForCausalLM(StableLmConfig(**SMALL, intermediate_size=48)), "StableLm"),
    "jamba": (lambda: JambaForCausalLM(JambaConfig(**JAMBA, use_mamba_kernels=False)), "Jamba"),
    "several choices": (lambda: BertForMultipleChoice(BertConfig(**SMALL, intermediate_size=48)), "several choices"),
    "summaries of 128 tokens": (lambda: summarizing("heavily_compressed_attention"), "summaries of several tokens"),
    "summaries of 4 tokens": (lambda: summarizing("compressed_sparse_attention"), "summaries of several tokens"),
    "scores in another precision": (lambda: upcast("eager"), "use another implementation"),
    "t5": (lambda: T5ForConditionalGeneration(T5Config(vocab_size=64, d_model=32, num_layers=1)), "encoder and a decoder"),
    "a convolution in one layer": (lambda: with_layer(Convolved), "reads others by something else"),
    "one deaf layer": (lambda: with_layer(Deaf), "reads others by something else"),
    "peft": (of_another_vocabulary, "come after it"),
    "no model of transformers": (lambda: nn.Linear(2, 2), "model of transformers"),
    "our decoder": (lambda: longhand.CoupledGPTForCausalLM(longhand.CoupledGPTConfig()), "by itself"),
    "structure before": (structured, "has structure"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_a_model_that_would_ignore_structure_is_refused_and_left_as_it_was(name):
    make, reason = UNFIT[name]
    model = make()
    before = type(model), getattr(getattr(model, "config", None), "_attn_implementation", None)
    with pytest.raises(ValueError, match=reason) as error:
        longhand.with_structure(model, num_relations=RELATIONS)
    assert "\n" not in str(error.value)
    assert before == (type(model), getattr(getattr(model, "config", None), "_attn_implementation", None))
    assert not model.training or isinstance(model, nn.Linear) or before[0] is not LlamaForCausalLM


@pytest.mark.parametrize("implementation", ["flash_attention_2", "paged|eager", "kernels-community/flash-attn"])
def test_other_implementations_of_attention_are_refused(implementation):
    model = plain()
    model.config._attn_implementation_internal = implementation
    with pytest.raises(ValueError, match="eager, sdpa, flex_attention"):
        longhand.with_structure(model, num_relations=RELATIONS)
    with pytest.raises(ValueError, match="eager, sdpa, flex_attention"):
        structured().set_attn_implementation(implementation)


def test_an_implementation_that_is_changed_behind_the_back_of_a_model_is_read_or_noticed():
    model = structured("llama", "eager")
    expected = model(ids_of(), pair_map=map_of()).logits
    model.set_attn_implementation("sdpa")
    torch.testing.assert_close(model(ids_of(), pair_map=map_of()).logits, expected, atol=1e-5, rtol=1e-5)
    model.config._attn_implementation = "eager"
    assert torch.equal(model(ids_of(), pair_map=map_of()).logits, expected)
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(ValueError, match="set_attn_implementation"):
        model(ids_of(), pair_map=map_of())
    with pytest.raises(ValueError, match="set_attn_implementation"):
        model.generate(ids_of(), pair_map=map_of(2, COLUMNS))


LEGAL = {"num_relations": RELATIONS}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"num_relations": 0}, "num_relations"),
        ({"num_relations": 2.0}, "num_relations"),
        ({"num_relations": True}, "num_relations"),
        ({"levels": -1}, "levels"),
        ({"num_relations": 3, "levels": 2}, "give one"),
        ({"levels": 2, "relation_range": (1, 2)}, "low <= 0 <= high"),
        ({"levels": 2, "relation_range": (-1, 1, 0)}, "low <= 0 <= high"),
        ({"levels": 1, "relation_range": "2"}, "low <= 0 <= high"),
        ({"levels": 1, "relation_range": -2}, "low <= 0 <= high"),
        ({"relation_range": 3}, "levels"),
        ({"num_relations": 3, "relation_range": 3}, "levels"),
        ({**LEGAL, "relations_enter": "value"}, "score, key, query"),
        ({"share_layers": True}, "num_relations or levels"),
        ({"relations_enter": "key"}, "num_relations or levels"),
        ({**LEGAL, "share_layers": 1}, "share_layers"),
        ({**LEGAL, "trainable": "none"}, "'structure' or 'all'"),
        ({**LEGAL, "windowed": True}, "windowed"),
    ],
    ids=str,
)
def test_options_that_are_not_legal_or_not_read_are_refused(options, reason):
    with pytest.raises(ValueError, match=reason):
        longhand.with_structure(plain(), **options)


FULL = torch.zeros(2, 4, TOKENS, TOKENS)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"pair_map": map_of(3)}, "must be"),
        ({"pair_map": map_of()[:, :-1]}, "must be"),
        ({"pair_map": map_of(2, TOKENS, 3)}, "must be"),
        ({"pair_map": map_of() + 1}, "in -1..4"),
        ({"pair_map": map_of() - 1}, "in -1..4"),
        ({"pair_map": map_of().float()}, "integers"),
        ({"pair_map": map_of() > 0}, "integers"),
        ({"pair_map": map_of().tolist()}, "integers"),
        ({"position_bias": FULL.long()}, "floats"),
        ({"position_bias": FULL[:, :3]}, "must be"),
        ({"position_bias": FULL + float("nan")}, "nan"),
        ({"position_bias": FULL[0, 0]}, "must be"),
        ({"position_ids": torch.ones(2, 2, TOKENS).long()}, "levels"),
        ({"pair_map": map_of(), "position_ids": torch.ones(2, 2, TOKENS).long()}, "give one"),
        ({"pair_maps": map_of()}, "pair_map is meant"),
        ({"position_id": torch.ones(2, TOKENS).long()}, "position_ids is meant"),
        ({"position_biases": FULL}, "position_bias is meant"),
        ({"input_ids": None, "pair_map": map_of()}, "input_ids or inputs_embeds"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_structure_that_cannot_be_read_is_refused(given, reason):
    with pytest.raises(ValueError, match=reason):
        structured()(**{"input_ids": ids_of(), **given})


@pytest.mark.parametrize(
    ("ids", "reason"),
    [
        (torch.ones(2, 3, TOKENS).long(), "2 levels"),
        (torch.ones(2, 2, TOKENS + 1).long(), "must be"),
        (-torch.ones(2, 2, TOKENS).long(), "0, for no id, to"),
        (torch.ones(2, 2, TOKENS).long() + 2**32, "got 4294967297"),
        (torch.ones(2, 2, TOKENS), "integers"),
    ],
)
def test_ids_that_are_not_those_of_the_levels_are_refused(ids, reason):
    with pytest.raises(ValueError, match=reason):
        structured(levels=2)(ids_of(), position_ids=ids)


def test_a_map_for_a_model_without_tables_and_for_a_part_of_a_model_is_refused():
    with pytest.raises(ValueError, match="num_relations"):
        longhand.with_structure(plain())(ids_of(), pair_map=map_of())
    bias = torch.randn(2, 4, TOKENS, TOKENS, generator=torch.Generator().manual_seed(0))
    for implementation in ("eager", "sdpa"):
        assert not torch.equal(
            longhand.with_structure(plain("llama", implementation))(ids_of(), position_bias=bias).logits,
            plain("llama", implementation)(ids_of()).logits,
        )
    layer, hidden = structured().model.layers[0], torch.randn(2, TOKENS, 32)
    with pytest.raises(ValueError, match="with_structure returned"):
        layer(hidden, pair_map=map_of(), position_embeddings=(torch.ones(1, TOKENS, 8), torch.zeros(1, TOKENS, 8)))


@pytest.mark.parametrize(
    ("given", "reason"),
    [({"pair_map": map_of()}, "encoder_hidden_states"), ({"position_bias": torch.zeros(1, 1, TOKENS, TOKENS)}, "encoder")],
)
@pytest.mark.parametrize("others", [TOKENS - 2, TOKENS, TOKENS + 2])
def test_attention_to_another_text_takes_no_structure(given, reason, others):
    config = BertConfig(**SMALL, intermediate_size=48, is_decoder=True, add_cross_attention=True)
    model = longhand.with_structure(BertLMHeadModel(config).eval(), num_relations=RELATIONS)
    other_text = {"encoder_hidden_states": torch.randn(2, others, 32)}
    assert model(ids_of(), **other_text).logits.isfinite().all()
    with pytest.raises(ValueError, match=reason) as refusal:
        model(ids_of(), **other_text, **given)
    assert "\n" not in str(refusal.value)


def test_an_implementation_in_which_structure_would_be_ignored_is_refused():
    model = longhand.with_structure(upcast("sdpa"), num_relations=RELATIONS)
    for part in (model, model.base_model):
        with pytest.raises(ValueError, match="'eager', so it would be ignored"):
            part.set_attn_implementation("eager")
    assert model.config._attn_implementation == "sdpa"
    assert model(ids_of(), pair_map=map_of()).logits.isfinite().all()


@pytest.mark.parametrize("kind", ["llama", "gemma3", "bert"])
def test_the_base_of_a_model_reads_structure_too(kind):
    model = structured(kind)
    noted = []
    model.base_model.register_forward_hook(lambda module, arguments, output: noted.append(output[0]))
    model(ids_of(), pair_map=map_of())
    alone = model.base_model(ids_of(), pair_map=map_of())[0]
    assert torch.equal(alone, noted[0]) and not torch.equal(model.base_model(ids_of())[0], alone)
    copied = copy.deepcopy(model)
    with torch.no_grad():
        copied.structure.table.zero_()
    assert not torch.equal(copied.base_model(ids_of(), pair_map=map_of())[0], alone)
    assert "structure.table" not in model.base_model.state_dict()


def test_positional_arguments_and_a_head_of_labels():
    model = structured("bert")
    labels = torch.zeros(2, TOKENS, dtype=torch.long)
    named = model(input_ids=ids_of(), attention_mask=torch.ones(2, TOKENS), labels=labels, pair_map=map_of())
    placed = model(ids_of(), torch.ones(2, TOKENS), labels=labels, pair_map=map_of())
    assert torch.equal(named.loss, placed.loss) and torch.equal(named.logits, placed.logits)
    assert type(model).__name__ == "BertForTokenClassification"


@pytest.mark.parametrize("options", [LEGAL, {"levels": 2, "relation_range": (-1, 3)}, {**LEGAL, "relations_enter": "key"}])
@pytest.mark.parametrize("whole", [False, True])
def test_saved_structure_is_read_again(options, whole, tmp_path):
    model = structured(**options)
    given = (
        {"position_ids": torch.arange(2 * 2 * TOKENS).reshape(2, 2, TOKENS)}
        if "levels" in options
        else {"pair_map": map_of()}
    )
    expected = model(ids_of(), **given).logits
    if whole:
        model.save_pretrained(tmp_path)
        base = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager").eval()
    else:
        model.save_structure(tmp_path)
        assert sorted(file.name for file in tmp_path.iterdir()) == [
            "README.md",
            "structure.safetensors",
            "structure_config.json",
        ]
        base = plain()
    again = longhand.with_structure(base, tmp_path)
    assert torch.equal(again(ids_of(), **given).logits, expected)
    assert {name for name, weights in again.named_parameters() if weights.requires_grad} == {"structure.table"}
    everything = longhand.with_structure(plain(), str(tmp_path), trainable="all")
    assert all(weights.requires_grad for weights in everything.parameters())


def test_an_auto_class_says_that_it_does_not_use_the_structure_of_a_folder(tmp_path):
    model = structured()
    model.save_pretrained(tmp_path)
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_warning()
    transformers_logging.add_handler(handler)
    try:
        loaded, report = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    finally:
        transformers_logging.remove_handler(handler)
        transformers_logging.set_verbosity(before)
    assert type(loaded) is LlamaForCausalLM and {*report["unexpected_keys"]} == {"structure.table"}
    assert any("structure.table" in line for line in said)
    assert "longhand" not in (tmp_path / "config.json").read_text()


def test_structure_of_another_model_and_damaged_files_are_refused(tmp_path):
    structured("llama").save_structure(tmp_path)
    other = type(plain())(type(plain().config)(**{**GROUPED, "num_hidden_layers": 3}))
    with pytest.raises(ValueError, match="layers 2"):
        longhand.with_structure(other, tmp_path)
    with pytest.raises(ValueError, match="give a folder or relations"):
        longhand.with_structure(plain(), tmp_path, num_relations=RELATIONS)
    with pytest.raises(OSError, match=r"structure_config\.json"):
        longhand.with_structure(plain(), tmp_path / "nothing")
    for text in ("{", "[]", '{"num_relations": 5, "colour": 1}', json.dumps({"num_relations": 0})):
        (tmp_path / "structure_config.json").write_text(text)
        with pytest.raises(ValueError, match="structure_config"):
            longhand.with_structure(plain(), tmp_path)


def test_damaged_weights_are_refused_in_one_line(tmp_path):
    structured("llama").save_structure(tmp_path)
    (tmp_path / "structure.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="damaged"):
        longhand.with_structure(plain(), tmp_path)
    structured("llama", num_relations=RELATIONS + 1).save_structure(tmp_path / "other")
    structured("llama").save_structure(tmp_path)
    (tmp_path / "other" / "structure.safetensors").replace(tmp_path / "structure.safetensors")
    with pytest.raises(ValueError, match="must hold"):
        longhand.with_structure(plain(), tmp_path)


def test_the_base_of_a_model_is_saved_with_its_structure(tmp_path):
    model = structured("llama")
    model.base_model.save_pretrained(tmp_path)
    again = longhand.with_structure(AutoModel.from_pretrained(tmp_path, attn_implementation="eager"), tmp_path)
    assert torch.equal(again(ids_of(), pair_map=map_of())[0], model.base_model(ids_of(), pair_map=map_of())[0])


@pytest.mark.parametrize("kind", ["llama", "gemma3", "bert"])
def test_a_pickled_model_is_the_same_model(kind, tmp_path):
    model = structured(kind)
    expected = model(ids_of(), pair_map=map_of()).logits
    torch.save(model, tmp_path / "model.pt")
    for again in (pickle.loads(pickle.dumps(model)), torch.load(tmp_path / "model.pt", weights_only=False)):
        assert type(again) is type(model)
        assert torch.equal(again(ids_of(), pair_map=map_of()).logits, expected)
        assert again.base_model.has_tables == [again]


@pytest.mark.release
def test_a_pickled_model_is_the_same_where_no_model_has_structure_yet(tmp_path):
    model = structured()
    torch.save((model, ids_of(), map_of(), model(ids_of(), pair_map=map_of()).logits), tmp_path / "model.pt")
    program = (
        "import sys, torch; model, ids, given, expected = torch.load(sys.argv[1], weights_only=False); "
        "assert torch.equal(model(ids, pair_map=given).logits, expected)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "model.pt")], check=True)


@pytest.mark.parametrize("shape", [(1, 0), (0, 5)])
@pytest.mark.parametrize("part", ["pair_map", "position_bias", "position_ids"])
def test_structure_of_no_token_is_refused_in_a_line(shape, part):
    rows, tokens = shape
    model = structured("llama", levels=2) if part == "position_ids" else structured("llama")
    given = {
        "pair_map": torch.zeros(rows, tokens, tokens, dtype=torch.long),
        "position_bias": torch.zeros(rows, 1, tokens, tokens),
        "position_ids": torch.zeros(rows, 2, tokens, dtype=torch.long),
    }
    with pytest.raises(ValueError, match=f"{part}.*at least one"):
        model(torch.zeros(shape, dtype=torch.long), **{part: given[part]})
