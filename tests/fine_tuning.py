"""Fine-tuning by a plain Trainer, for `test_fine_tuning.py`. Under torchrun, this file compares two processes with one."""

import sys
from itertools import islice
from pathlib import Path

import datasets
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
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


def small_model(task):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    if task == "addition":
        return CoupledGPTForCausalLM(CoupledGPTConfig(coupling=task, **sizes))
    sizes |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return PairwiseBertForTokenClassification(PairwiseBertConfig(**sizes))


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
    """The Trainer that README.md shows, with no more than a test changes."""
    settings = {"per_device_train_batch_size": 4, "per_device_eval_batch_size": 3, "learning_rate": 1e-2}
    settings |= {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "output_dir": str(folder)}
    options = Seq2SeqTrainingArguments if kind is Seq2SeqTrainer else TrainingArguments
    scores = {
        "compute_metrics": longhand.compute_metrics,
        "preprocess_logits_for_metrics": longhand.preprocess_logits,
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


def check_scores(task, folder):
    """Several lengths, an odd number of examples on two processes, and predictions in bfloat16."""
    model = small_model(task)
    rows = answered_by(model, some_rows(task, 13, streaming=True), right=10)
    metrics = make_trainer(model, folder, eval_dataset=rows).evaluate()
    assert metrics["eval_exact_match"] == 10 / 13 and 0.8 < metrics["eval_token_accuracy"] < 1, metrics
    metrics = make_trainer(model, folder, rows, rows, bf16=True, max_steps=1, eval_strategy="steps").evaluate()
    assert 0 < metrics["eval_token_accuracy"] <= 1, metrics


def check_resumed(task, folder, streaming):
    """A run of four steps, and one that goes on from its second step, end with the same weights on all processes."""
    accelerator = {"accelerator_config": {"dispatch_batches": False}} if streaming else {}
    rows = some_rows(task, 64, streaming=streaming, cache_dir=str(folder / "cache"))
    ends = []
    for checkpoint in (None, str(folder / "checkpoint-2")):
        options = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, **accelerator}
        trainer = make_trainer(small_model(task), folder, rows, **options)
        trainer.train(resume_from_checkpoint=checkpoint)
        ends.append([parameter.detach().clone() for parameter in trainer.model.parameters()])
    assert all(torch.equal(whole, resumed) for whole, resumed in zip(*ends, strict=True))
    for parameter in ends[0]:
        gathered = [torch.empty_like(parameter) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, parameter)
        assert all(torch.equal(parameter, other) for other in gathered)


def check_sharded(task):
    """Loss and gradients are those of one process when the parameters are sharded (FSDP2)."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    batch = longhand.collate_rows(list(islice(some_rows(task, 8, streaming=True), 8)))
    whole, sharded = small_model(task), small_model(task)
    for layer in sharded.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    losses = []
    for model in (whole, sharded):
        losses.append(model(**batch).loss)
        losses[-1].backward()
    torch.testing.assert_close(*losses)
    for parameter, part in zip(whole.parameters(), sharded.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, part.grad.full_tensor())


def main():
    folder = Path(sys.argv[1])
    for task in TASKS:
        check_scores(task, folder / task)
        for streaming in (False, True):
            check_resumed(task, folder / f"{task}-{streaming}", streaming)
        check_sharded(task)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
