"""Models of others decode with the ids of a coupling rule, which they were trained on."""

import re

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from longhand.data.tokenization import build_tokenizer
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


@pytest.mark.thorough
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
    assert "prepare_inputs_for_generation" not in vars(model)


@pytest.mark.parametrize(
    ("shape", "options"), [((1, 6), {}), ((2, 9), {}), ((1, 2, 9), {}), ((1, 8), {"max_new_tokens": 3})]
)
def test_ids_of_another_shape_and_too_few_are_refused(shape, options):
    prompt = tokenizer("12/3=", return_tensors="pt").input_ids
    with pytest.raises(ValueError, match="position ids must be"):
        coupled_generate(build(), torch.ones(shape, dtype=torch.long), prompt, **options)


def test_rules_with_several_ids_are_refused():
    with pytest.raises(ValueError, match="position_ids hold one"):
        coupled_generate(build(), "division", tokenizer("12/3=", return_tensors="pt").input_ids)
