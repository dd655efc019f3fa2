"""Heads of encoders that give one label, or number, a row."""

import pytest
import torch
from given_subjects import given_encoder
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

from longhand.modeling import PairwiseBertForSequenceClassification

CLASSES, NUMBERS, SEVERAL = "single_label_classification", "regression", "multi_label_classification"
TOKENS = torch.tensor([[17, 19, 20, 13], [5, 6, 49, 3]])
MAP = torch.randint(-1, 3, (2, 4, 4), generator=torch.Generator().manual_seed(0))
KINDS = {
    "classes": ({"num_labels": 3}, torch.tensor([0, 2])),
    "two classes": ({"num_labels": 2}, torch.tensor([0, 1])),
    "a number": ({"num_labels": 1}, torch.tensor([0.5, -1.5])),
    "numbers": ({"num_labels": 3, "problem_type": NUMBERS}, torch.tensor([[0.5, 1.0, 2.0], [0.0, -1.5, 3.0]])),
    "several": ({"num_labels": 2, "problem_type": SEVERAL}, torch.tensor([[1.0, 0.0], [1.0, 1.0]])),
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
    # By this a pipeline knows what the numbers are.
    assert model.config.problem_type == options.get("problem_type", "regression" if kind == "a number" else CLASSES)
    Trainer(model, arguments, train_dataset=rows).train()
    assert model.eval()(**batch).loss < before / 2
    model.save_pretrained(tmp_path / "saved")
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved")
    assert type(loaded) is PairwiseBertForSequenceClassification
    assert loaded.config.auto_map["AutoModelForSequenceClassification"].endswith(type(loaded).__name__)
    torch.testing.assert_close(loaded(**batch).logits, model(**batch).logits)


@pytest.mark.parametrize("kind", KINDS)
def test_losses_of_the_parts_of_a_step_sum_to_that_of_the_whole(kind):
    options, labels = KINDS[kind]
    model = model_of({**options, "num_loops": 2, "settle_weight": 0.7}).train()

    def loss(rows: slice, **step) -> torch.Tensor:
        torch.manual_seed(0)
        return model(TOKENS[rows], pair_map=MAP[rows], labels=labels[rows], **step).loss

    every = slice(None)
    parts = [loss(slice(row, row + 1), num_items_in_batch=torch.tensor(labels.numel())) for row in range(2)]
    torch.testing.assert_close(sum(parts), loss(every))
    model.config.settle_weight = 0.0
    assert loss(every) < sum(parts)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.bool])
def test_labels_of_every_type_are_those_of_int64(dtype):
    for kind, options in (("classes", {"num_labels": 3}), ("several", {"num_labels": 2, "problem_type": SEVERAL})):
        if dtype == torch.bool and kind == "classes":
            continue
        labels, model = KINDS[kind][1].long(), model_of(options).eval()
        given = {"pair_map": MAP, "labels": labels}
        assert torch.equal(model(TOKENS, **given).loss, model(TOKENS, **{**given, "labels": labels.to(dtype)}).loss)


UNFIT = [
    (3, NUMBERS, torch.tensor([0.5, 1.0]), r"\(2, 3\)"),
    (3, None, torch.tensor([0.5, 1.0]), "integers"),
    (3, None, torch.tensor([True, False]), "integers"),
    (3, None, torch.tensor([0, 3]), r"in 0\.\.2.*got 3"),
    (3, None, torch.tensor([-1, 0]), "got -1"),
    (3, CLASSES, torch.zeros(2, 3).long(), r"\(2,\)"),
    (3, SEVERAL, torch.tensor([0, 1]), r"\(2, 3\)"),
    (3, SEVERAL, torch.full((2, 3), 2), "in 0..1"),
    (3, None, [0, 1], "list"),
]


@pytest.mark.parametrize(("classes", "problem", "labels", "reason"), UNFIT)
def test_labels_that_are_not_those_of_the_head_are_refused_in_one_line(classes, problem, labels, reason):
    model = model_of({"num_labels": classes, "problem_type": problem})
    with pytest.raises(ValueError, match=reason) as refusal:
        model(TOKENS, pair_map=MAP, labels=labels)
    assert "\n" not in str(refusal.value)


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
