"""Models of others decode with the ids of a coupling rule, which they were trained on."""

import re

import pytest
import torch
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    FalconConfig,
    FalconForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
)

import longhand
from longhand.data.tasks.registry import build_tokenizer
from longhand.hub_cards.research import pages
from longhand.modeling import coupled_generate
from longhand.modeling.coupling import plan_position_ids

PAGE = (pages.HUB_CARDS / "LANGUAGE_MODELS.md").read_text()
(SNIPPET,) = re.findall(r"```python\n(.*?)```", PAGE.partition("## Training other models")[2], re.DOTALL)

tokenizer = build_tokenizer()


def build() -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    ends = {"bos_token_id": 17, "eos_token_id": 17, "pad_token_id": 19}
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes, **ends)).eval()


@pytest.mark.release
def test_the_snippet_ends_with_right_answers_of_gpt2_and_llama(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    exec(SNIPPET, {})
    expected = re.search(r"# (\[.*\])", SNIPPET)[1]
    assert capsys.readouterr().out.splitlines().count(expected) == 2


@pytest.mark.parametrize("options", [{}, {"use_cache": False}, {"num_beams": 3, "num_return_sequences": 2}], ids=str)
def test_every_token_has_its_id_of_the_rule(options):
    model, seen = build(), {}
    prompts = tokenizer(["653+049=", "7+1="], padding=True, return_tensors="pt")

    def note(_, arguments, inputs):
        for place in range(-inputs["input_ids"].shape[1], 0):
            seen[inputs["attention_mask"].shape[1] + place + 1] = inputs["position_ids"][:, place].tolist()

    hook = model.register_forward_pre_hook(note, with_kwargs=True)
    output = coupled_generate(model, "addition", **prompts, do_sample=False, suppress_tokens=[17], **options)
    planned, derived = plan_position_ids("addition", prompts["input_ids"], output.shape[1])[:, 0], dict(seen)
    seen.clear()
    given = coupled_generate(model, planned, **prompts, do_sample=False, suppress_tokens=[17], **options)
    hook.remove()
    assert torch.equal(given, output) and seen == derived
    rows = list(zip(*(seen[column] for column in sorted(seen)), strict=True))
    assert rows[0] == (0, 2, 3, 4, 5, 2, 3, 4, 5, 4, 3, 2, 1)
    assert rows[-1][:9] == (0, 0, 0, 0, 0, 2, 3, 2, 3)
    assert type(model) is LlamaForCausalLM and "structure_config" not in vars(model)


@pytest.mark.parametrize(
    ("ids", "options", "reason"),
    [
        (torch.ones(1, 6).long(), {}, "plan the response"),
        (torch.ones(2, 9).long(), {}, r"\(1, "),
        (torch.ones(1, 2, 9).long(), {}, "columns"),
        (torch.ones(1, 8).long(), {"max_new_tokens": 4}, "plan more"),
        (torch.ones(9).long(), {}, "columns"),
        (torch.ones(1, 9), {}, "integers"),
        (-torch.ones(1, 9).long(), {}, "0, for no id, to"),
    ],
    ids=str,
)
def test_ids_of_another_shape_or_kind_and_too_few_are_refused(ids, options, reason):
    prompt = tokenizer("12/3=", return_tensors="pt").input_ids
    with pytest.raises(ValueError, match=reason):
        coupled_generate(build(), ids, prompt, **options)


@pytest.mark.parametrize(
    ("model", "config"),
    [
        (BloomForCausalLM, BloomConfig(vocab_size=20, hidden_size=16, n_layer=1, n_head=2)),
        (MambaForCausalLM, MambaConfig(vocab_size=20, hidden_size=16, num_hidden_layers=1)),
        (
            FalconForCausalLM,
            FalconConfig(vocab_size=20, hidden_size=71, num_hidden_layers=1, alibi=True),
        ),
    ],
)
def test_models_that_read_no_ids_are_refused(model, config):
    prompt = tokenizer("12+34=", return_tensors="pt").input_ids
    with pytest.raises(ValueError, match="reads no position_ids"):
        coupled_generate(model(config), "addition", prompt)


def test_rules_with_several_ids_are_refused_unless_the_model_has_levels():
    prompt = tokenizer("653-049=", return_tensors="pt").input_ids
    for model in (build(), longhand.with_structure(build(), levels=3)):
        with pytest.raises(ValueError, match="levels=2"):
            coupled_generate(model, "subtraction", prompt)
    model, seen = longhand.with_structure(build(), levels=2), []
    with torch.no_grad():
        model.structure.table.normal_()
    model.register_forward_pre_hook(lambda _, arguments, inputs: seen.append(inputs), with_kwargs=True)
    output = coupled_generate(model, "subtraction", prompt, do_sample=False, suppress_tokens=[17])
    ids = plan_position_ids("subtraction", prompt, output.shape[1] - 1)
    logits = model(output[:, :-1], position_ids=ids).logits[:, prompt.shape[1] - 1 :]
    logits[..., 17] = -torch.inf
    assert torch.equal(logits.argmax(-1), output[:, prompt.shape[1] :]) and len(seen) == 5
