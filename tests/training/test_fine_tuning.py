from pathlib import Path

import numpy as np
import pytest
import torch
from fine_tuning import TASKS, answered_by, make_trainer, small_model, some_rows
from given_subjects import WORDS, built, given_subject
from transformers import (
    DataCollatorForSeq2Seq,
    DataCollatorForTokenClassification,
    DataCollatorWithFlattening,
    EvalPrediction,
    Seq2SeqTrainer,
    default_data_collator,
)

import longhand
from longhand.data import build_task, collate_rows, load_task_dataset
from longhand.modeling.vocabulary import PAD

every_family = pytest.mark.parametrize("task", TASKS)


def tokenizer_of(task):
    task = build_task(task)
    return task.family.tokenizer(task)


def count_exact(prediction):
    """What one writes without knowing this package; right for causal models in general."""
    predicted, labels = prediction.predictions[:, :-1].argmax(-1), prediction.label_ids[:, 1:]
    return {"exact_match": ((predicted == labels) | (labels == -100)).all(axis=1).mean()}


@every_family
def test_scores_are_right_for_several_lengths_with_and_without_the_helpers(task, tmp_path):
    model = small_model(task)
    rows = answered_by(model, some_rows(task, 20, streaming=True), right=15)
    assert len({len(row["input_ids"]) for row in rows}) > 3
    trainer = make_trainer(model, tmp_path, eval_dataset=rows)
    expected = trainer.evaluate()["eval_exact_match"], trainer.evaluate()["eval_token_accuracy"]
    tokens = sum(label >= 0 for row in rows for label in row["labels"])
    assert expected == (0.75, pytest.approx((tokens - 5) / tokens))
    trainer.preprocess_logits_for_metrics = None
    if task == "addition":
        trainer.compute_metrics = count_exact
        assert trainer.evaluate()["eval_exact_match"] == expected[0]
    trainer.compute_metrics = longhand.compute_metrics
    trainer.preprocess_logits_for_metrics = lambda logits, labels: logits.argmax(-1)
    with pytest.raises(ValueError, match="pass preprocess_logits_for_metrics="):
        trainer.evaluate()


def test_scores_of_fewer_logits_than_labels_are_refused():
    with pytest.raises(ValueError, match="logits must be"):
        longhand.preprocess_logits(small_model("addition"))(torch.zeros(2, 3, 22), torch.zeros(2, 5).long())
    with pytest.raises(ValueError, match="got none in example 1"):
        longhand.compute_metrics(EvalPrediction(np.array([[1, 5, 5], [1, 0, 0]]), np.full((2, 9), -100)))
    with pytest.raises(ValueError, match="at least one row"):
        longhand.compute_metrics(EvalPrediction(np.zeros((0, 3)), np.zeros((0, 9))))


def test_an_encoder_of_a_users_column_task_is_trained_and_scored(tmp_path):
    file = Path(__file__).parents[1] / "plugins" / "hex_addition.py"
    rows = load_task_dataset("settling_hex_addition", max_length=3, num_samples=24, plugin=file, cache_dir=str(tmp_path))
    task = build_task("settling_hex_addition")
    options = {"pair_maps": ["columns"], "windowed": True, "label_states": True, "sink": True}
    model = small_model(None, **options | task.family.config_options(task))
    trainer = make_trainer(model, tmp_path, rows, rows, max_steps=3)
    trainer.train()
    scores = trainer.evaluate()
    with torch.inference_mode():
        batch = [longhand.collate_rows([row]) for row in rows]
        right = torch.cat([(model(**row).logits.argmax(-1) == row["labels"])[row["labels"] >= 0] for row in batch])
    assert scores["eval_token_accuracy"] == pytest.approx(right.double().mean().item())


@every_family
def test_the_best_model_is_chosen_by_exact_match_with_default_columns(task, tmp_path):
    """Most columns are not the model's, and `remove_unused_columns` is True by default."""
    rows = some_rows(task, 32, cache_dir=str(tmp_path / "cache"))
    options = {"max_steps": 4, "eval_strategy": "steps", "save_strategy": "steps", "eval_steps": 2, "save_steps": 2}
    options |= {"load_best_model_at_end": True, "metric_for_best_model": "exact_match"}
    trainer = make_trainer(small_model(task), tmp_path, rows, rows, **options)
    trainer.train()
    assert trainer.state.best_metric == 0.0 and trainer.state.best_model_checkpoint.endswith("checkpoint-2")


@every_family
@pytest.mark.parametrize("kind", [DataCollatorForTokenClassification, DataCollatorForSeq2Seq])
def test_collators_of_transformers_give_the_same_loss(task, kind, tmp_path):
    rows = some_rows(task, 16, cache_dir=str(tmp_path / "cache"))
    model, losses = small_model(task), []
    for collator in (collate_rows, kind(tokenizer_of(task))):
        metrics = make_trainer(model, tmp_path, eval_dataset=rows, collator=collator).evaluate()
        losses.append((metrics["eval_loss"], metrics["eval_token_accuracy"]))
    assert losses[0] == pytest.approx(losses[1])


@every_family
def test_rows_of_one_length_need_no_collator(task, tmp_path):
    rows = some_rows(task, 16, streaming=True, **({"min_length": 6} if task == "addition" else {"text_tokens": 0}))
    rows = [{name: row[name] for name in ("input_ids", "labels")} for row in rows]
    assert default_data_collator(rows)["labels"].equal(collate_rows(rows)["labels"])
    trainer = make_trainer(small_model(task), tmp_path, rows, max_steps=1, collator=default_data_collator)
    assert np.isfinite(trainer.train().training_loss)


@every_family
def test_batches_hold_tensors_with_a_row_for_each_example(task):
    rows = list(some_rows(task, 10, streaming=True))
    batch = collate_rows(rows)
    width = max(len(row["input_ids"]) for row in rows)
    assert list(batch) == ["input_ids", "labels", "attention_mask"]
    assert all(value.shape == (10, width) and value.dtype == torch.int64 for value in batch.values())
    assert torch.equal(batch["attention_mask"], (batch["input_ids"] != PAD).long())
    for row, tokens, labels in zip(rows, batch["input_ids"], batch["labels"], strict=True):
        rest = width - len(row["input_ids"])
        assert tokens.tolist() == row["input_ids"] + [PAD] * rest and labels.tolist() == row["labels"] + [-100] * rest


def own_loss(outputs, labels, num_items_in_batch=None):
    """What a user passes as `compute_loss_func` for a model whose labels stand beside their tokens."""
    return torch.nn.functional.cross_entropy(outputs.logits.flatten(0, 1), labels.flatten())


@every_family
def test_a_loss_that_trainer_computes_trains_as_the_models_own(task, tmp_path):
    rows = some_rows(task, 16, cache_dir=str(tmp_path / "cache"))
    ways = {"own": {}, "smoothed": {"label_smoothing_factor": 1e-9}}
    if task != "addition":
        ways["passed"] = {"compute_loss_func": own_loss}
    weights, losses = {}, {}
    for name, options in ways.items():
        trainer = make_trainer(small_model(task), tmp_path, rows, rows, max_steps=1, **options)
        losses[name] = trainer.evaluate()["eval_loss"]
        trainer.train()
        weights[name] = trainer.model.lm_head.weight if task == "addition" else trainer.model.classifier.weight
    for name in ways:
        assert losses[name] == pytest.approx(losses["own"], rel=1e-4)
        torch.testing.assert_close(weights[name], weights["own"], rtol=1e-3, atol=1e-5)


@every_family
def test_rows_that_are_flattened_into_one_are_refused(task, tmp_path):
    rows = some_rows(task, 8, cache_dir=str(tmp_path / "cache"))
    options = {"collator": DataCollatorWithFlattening(), "max_steps": 1}
    own = build_task(task, **({"text_tokens": 3} if task != "addition" else {}))
    model = small_model(task) if task == "addition" else small_model(task, **own.family.config_options(own))
    with pytest.raises(ValueError, match=r"do not pack or flatten them|is no prompt of"):
        make_trainer(model, tmp_path, rows, **options).train()


JOINED = [name for name, (_, structure) in built().items() if structure.get("position_ids", WORDS).ndim == 2]


@pytest.mark.parametrize("name", JOINED)
def test_examples_of_given_structure_that_are_joined_to_one_row_are_refused(name, tmp_path):
    """Also through TRL's names: its packing and its padding-free batches have the same form."""
    model, structure = given_subject(name)
    rows = [{"input_ids": [17, 19, 20, 5], "labels": [-100, -100, 5, 6]}, {"input_ids": [4, 6, 3], "labels": [-100, 2, 3]}]
    for options in ({}, {"position_ids_start": 1}):
        batch = DataCollatorWithFlattening(**options)(rows)
        with pytest.raises(ValueError, match=r"one row, which would see each other: pad .*packing=False"):
            model(**batch)
    if set(structure) == {"position_ids"}:
        # One example of this kind is none, nor is what a mask says to be one.
        query_and_response = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3]])
        labels = torch.where(torch.arange(8) > 4, 5, -100).unsqueeze(0)
        for batch_of_one in ({"labels": labels}, {"labels": torch.full_like(labels, 5)}):
            assert model(WORDS, position_ids=query_and_response, **batch_of_one).loss.isfinite()
        flattened = DataCollatorWithFlattening(position_ids_start=1)(rows)
        assert model(**flattened, attention_mask=torch.ones_like(flattened["input_ids"])).loss.isfinite()


@every_family
def test_batches_of_predictions_need_not_be_joined(task, tmp_path):
    model = small_model(task)
    rows = answered_by(model, some_rows(task, 20, streaming=True), right=15)
    scores = [
        make_trainer(model, tmp_path, eval_dataset=rows, eval_do_concat_batches=joined).evaluate()
        for joined in (True, False)
    ]
    assert scores[0]["eval_exact_match"] == scores[1]["eval_exact_match"] == 0.75
    assert scores[0]["eval_token_accuracy"] == scores[1]["eval_token_accuracy"]


def test_a_collator_of_another_model_says_so(tmp_path):
    options = {"position_encoding": "learned", "max_position_ids": 50}
    first, second = (small_model("addition", **options) for _ in range(2))
    rows = some_rows("addition", 8, cache_dir=str(tmp_path / "cache"))
    make_trainer(first, tmp_path, rows, max_steps=1, collator=longhand.CouplingCollator.for_model(first)).train()
    with pytest.raises(ValueError, match=r"for another model: make its collator by CouplingCollator.for_model"):
        make_trainer(second, tmp_path, rows, max_steps=1, collator=longhand.CouplingCollator.for_model(first)).train()


def test_prediction_with_generate_is_refused_by_name(tmp_path):
    rows = some_rows("addition", 4, cache_dir=str(tmp_path / "cache"))
    options = {"kind": Seq2SeqTrainer, "predict_with_generate": True}
    with pytest.raises(ValueError, match="generate\\(\\) does not take labels"):
        make_trainer(small_model("addition"), tmp_path, eval_dataset=rows, **options).evaluate()
