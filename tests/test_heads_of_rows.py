"""Heads of encoders that give one label, or number, a row."""

import pytest
import torch
from given_subjects import given_encoder
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

from longhand.modeling import PairwiseBertForSequenceClassification

TOKENS = torch.tensor([[17, 19, 20, 13], [5, 6, 49, 3]])
MAP = torch.randint(-1, 3, (2, 4, 4), generator=torch.Generator().manual_seed(0))
KINDS = {
    "classes": ({"num_labels": 3}, torch.tensor([0, 2])),
    "two classes": ({"num_labels": 2}, torch.tensor([0, 1])),
    "a number": ({"num_labels": 1}, torch.tensor([0.5, -1.5])),
    "numbers": ({"num_labels": 3, "problem_type": "regression"}, torch.tensor([[0.5, 1.0, 2.0], [0.0, -1.5, 3.0]])),
    "several": ({"num_labels": 2, "problem_type": "multi_label_classification"}, torch.tensor([[1.0, 0.0], [1.0, 1.0]])),
}


def model_of(options: dict) -> PairwiseBertForSequenceClassification:
    config = given_encoder(num_relations=3, **options).config
    torch.manual_seed(1)
    return PairwiseBertForSequenceClassification(config)


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_of_rows_is_trained_by_a_plain_trainer_saved_and_loaded(kind, tmp_path):
    options, labels = KINDS[kind]
    model = model_of(options)
    rows = [
        {"input_ids": TOKENS[row], "pair_map": MAP[row], "labels": labels[row], "attention_mask": torch.ones(4).long()}
        for row in range(2)
    ]
    arguments = TrainingArguments(str(tmp_path / "run"), use_cpu=True, report_to="none", max_steps=30, learning_rate=3e-2)
    batch = torch.utils.data.default_collate(rows)
    before = model.eval()(**batch).loss
    Trainer(model, arguments, train_dataset=rows).train()
    assert model.eval()(**batch).loss < before / 2
    model.save_pretrained(tmp_path / "saved")
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved")
    assert type(loaded) is PairwiseBertForSequenceClassification
    assert loaded.config.auto_map["AutoModelForSequenceClassification"].endswith(type(loaded).__name__)
    torch.testing.assert_close(loaded(**batch).logits, model(**batch).logits)


def test_padding_changes_no_label_and_labels_are_one_a_row():
    model = model_of({"num_labels": 3}).eval()
    longer, map_of_longer = (
        torch.nn.functional.pad(each, pad, value=value)
        for each, pad, value in ((TOKENS, (0, 3), 0), (MAP, (0, 3, 0, 3), -1))
    )
    mask = (torch.arange(7) < 4).long().expand(2, -1)
    padded = model(longer, attention_mask=mask, pair_map=map_of_longer).logits
    torch.testing.assert_close(padded, model(TOKENS, pair_map=MAP).logits)
    with pytest.raises(ValueError, match="one a row"):
        model(TOKENS, pair_map=MAP, labels=TOKENS)
