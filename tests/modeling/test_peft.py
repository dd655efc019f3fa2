"""LoRA by PEFT on both families: the merged model is a checkpoint, the adapter is none."""

import pytest
import torch
from fine_tuning import TASKS as NAMES
from fine_tuning import small_model
from refusals import refusal

from longhand import eval as evaluation
from longhand.data import TASKS, EvaluationBatches
from longhand.hub_cards.checkpoints.load import load_checkpoint

peft = pytest.importorskip("peft", reason="pip install peft")


@pytest.mark.parametrize("name", NAMES)
def test_a_merged_model_answers_and_an_adapter_is_refused_with_the_way_to_merge_it(name, tmp_path, capsys):
    task = TASKS[name]()
    config = peft.LoraConfig(target_modules=["q_proj", "v_proj"], r=4, init_lora_weights=False)
    adapted = peft.get_peft_model(small_model(name), config)
    batch = EvaluationBatches(task, (3, 3), 8, 0, "test", 8, collator=task.family.collator(adapted.config))[0]
    adapted(**batch).loss.backward()
    expected = adapted.eval()(**batch).logits
    adapted.save_pretrained(tmp_path / "adapter")
    said = refusal(capsys, evaluation.main, tmp_path / "adapter", "--ask", "12+34")
    assert "merge_and_unload()" in said and "save_pretrained" in said
    adapted.merge_and_unload().save_pretrained(tmp_path / "merged")
    task.family.tokenizer(task).save_pretrained(tmp_path / "merged")
    merged = load_checkpoint(str(tmp_path / "merged"), task=name)
    torch.testing.assert_close(merged.model.cpu()(**batch).logits, expected, atol=1e-4, rtol=1e-4)
    assert merged.answer("12+34")
