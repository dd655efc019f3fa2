"""Fine-tune a shipped model of two summands on sums of three, by a plain Trainer. About a minute on two cores."""

from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

import longhand
from longhand.data import MultiOperandAddition, load_task_dataset

task = MultiOperandAddition()
train_rows = load_task_dataset("multi_operand_addition", split="train", max_length=10, num_samples=20_000)
test_rows = load_task_dataset("multi_operand_addition", split="validation", max_length=10, num_samples=200)
folder = longhand.zoo("addition")
# A checkpoint names its task and format; these options replace them.
model = AutoModelForCausalLM.from_pretrained(folder, **task.family.config_options(task))
arguments = TrainingArguments(
    "outputs/sums-of-three",
    max_steps=400,
    per_device_train_batch_size=128,
    learning_rate=4e-3,
    warmup_steps=50,
    lr_scheduler_type="cosine",
    eval_strategy="steps",
    eval_steps=100,
)
trainer = Trainer(
    model,
    arguments,
    train_dataset=train_rows,
    eval_dataset=test_rows,
    data_collator=longhand.collate_rows,
    processing_class=AutoTokenizer.from_pretrained(folder),
    compute_metrics=longhand.compute_metrics,
    preprocess_logits_for_metrics=longhand.preprocess_logits(model),
)
trainer.train()
print(trainer.evaluate()["eval_exact_match"])
