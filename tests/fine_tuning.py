"""Fine-tuning by a plain Trainer, for `test_fine_tuning.py`."""

import datasets
import torch
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer, TrainingArguments

import longhand
from longhand.data import load_task_dataset
from longhand.modeling import (
    CoupledGPTConfig,
    CoupledGPTForCausalLM,
    PairwiseBertConfig,
    PairwiseBertForTokenClassification,
)

TASKS = ("addition", "encoder_addition")
"""A task of each family."""


def small_model(kind, **options):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    if kind == "addition":
        return CoupledGPTForCausalLM(CoupledGPTConfig(coupling=kind, **sizes | options))
    sizes |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return PairwiseBertForTokenClassification(PairwiseBertConfig(**sizes, **options))


def some_rows(task, count, **options):
    """Rows on disk or streamed; those of encoders have one length, unless text is around the numbers."""
    options = {"max_length": 6, "num_samples": count} | ({"text_tokens": 3} if task != "addition" else {}) | options
    return load_task_dataset(task, **options)


def answered_by(model, rows, right):
    """The rows with the model's own tokens as labels, so that it is exactly right, but for one label after `right` rows."""
    model.eval()
    answered = []
    for index, row in enumerate(rows):
        with torch.inference_mode():
            predicted = model(torch.tensor([row["input_ids"]])).logits[0].argmax(-1).tolist()
        if isinstance(model, CoupledGPTForCausalLM):
            predicted = [0, *predicted[:-1]]
        labels = [own if label >= 0 else -100 for own, label in zip(predicted, row["labels"], strict=True)]
        if index >= right:
            place = max(place for place, label in enumerate(labels) if label >= 0)
            labels[place] = (labels[place] + 1) % 10
        answered.append({"input_ids": row["input_ids"], "labels": labels})
    return datasets.Dataset.from_list(answered)


def make_trainer(
    model, folder, train_dataset=None, eval_dataset=None, kind=Trainer, collator=None, compute_loss_func=None, **arguments
):
    """The Trainer that the guide shows, with no more than a test changes."""
    settings = {"per_device_train_batch_size": 4, "per_device_eval_batch_size": 3, "learning_rate": 1e-2}
    settings |= {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "output_dir": str(folder)}
    options = Seq2SeqTrainingArguments if kind is Seq2SeqTrainer else TrainingArguments
    scores = {
        "compute_metrics": longhand.compute_metrics,
        "preprocess_logits_for_metrics": longhand.preprocess_logits(model),
    }
    return kind(
        model,
        options(**settings | {"save_strategy": "no"} | arguments),
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        data_collator=collator or longhand.collate_rows,
        compute_loss_func=compute_loss_func,
        **scores,
    )
