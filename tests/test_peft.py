"""LoRA by PEFT on both families: trained, saved, loaded, merged."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification

from longhand.data import EvaluationBatches
from longhand.hub_cards.training.arguments import parse_run

peft = pytest.importorskip("peft", reason="pip install peft")

KINDS = {
    "decoder": (AutoModelForCausalLM, "CAUSAL_LM", ["addition", "--hidden_size", "16", "--intermediate_size", "16"], None),
    # PEFT would adapt the classifier and also train it whole, which it refuses: leave it out of all-linear.
    "encoder": (
        AutoModelForTokenClassification,
        "TOKEN_CLS",
        ["encoder-addition", "--num_hidden_layers", "1"],
        "classifier",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("targets", ["all-linear", ["q_proj", "v_proj"]], ids=["all-linear", "two"])
def test_lora_trains_saves_loads_and_merges(kind, targets, tmp_path):
    auto, task_type, arguments, excluded = KINDS[kind]
    run = parse_run(arguments)
    task = run.task.for_evaluation
    torch.manual_seed(0)
    run.task.family.model_class(run.config).save_pretrained(tmp_path / "base")
    model = auto.from_pretrained(tmp_path / "base")
    exclude = [excluded] if excluded and targets == "all-linear" else None
    adapted = peft.get_peft_model(
        model, peft.LoraConfig(target_modules=targets, exclude_modules=exclude, task_type=task_type, r=4)
    )
    collator = task.family.collator(run.config)
    batch = EvaluationBatches(task, task.operand_lengths(3), 8, 0, "train", 8, collator=collator)[0]
    optimizer = torch.optim.AdamW([weights for weights in adapted.parameters() if weights.requires_grad], lr=1e-2)
    losses = []
    for _ in range(10):
        loss = adapted(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    assert losses[-1] < losses[0]
    adapted.eval().save_pretrained(tmp_path / "adapter")
    expected = adapted(**batch).logits
    again = peft.PeftModel.from_pretrained(auto.from_pretrained(tmp_path / "base"), tmp_path / "adapter").eval()
    torch.testing.assert_close(again(**batch).logits, expected, atol=1e-4, rtol=1e-4)
    merged = again.merge_and_unload()
    torch.testing.assert_close(merged(**batch).logits, expected, atol=1e-4, rtol=1e-4)
    merged.save_pretrained(tmp_path / "merged")
    torch.testing.assert_close(auto.from_pretrained(tmp_path / "merged")(**batch).logits, expected, atol=1e-4, rtol=1e-4)
