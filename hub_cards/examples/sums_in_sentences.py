"""A language model learns sums in sentences, from rows of text alone: it derives structure from its own tokens, by a rule.

A small Llama, trained on numbers of 1 to 5 digits by a plain Trainer, writes longer sums by a plain generate().
"""

import random

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    DataCollatorForSeq2Seq,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)

import longhand

SENTENCES = [
    "What is {a} + {b}?",
    "On page {c}, what is {a} + {b}?",
    "In {c} weeks we add {a} to {b}.",
    "At {c} I have {a} apples and get {b} more; how many in all?",
    "{a} plus {b} equals what? It is question {c}.",
]
MARKER, SEPARATOR, END = "<answer>", "=", "<end>"

splits = [pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)]
split = pre_tokenizers.Sequence(splits)
words = {word for sentence in SENTENCES for word, _ in split.pre_tokenize_str(sentence)}
vocabulary = [END, MARKER, SEPARATOR, *"0123456789", *sorted(words - {SEPARATOR})]
table = Tokenizer(models.WordLevel({word: token for token, word in enumerate(vocabulary)}, unk_token=END))
table.pre_tokenizer = split
tokenizer = PreTrainedTokenizerFast(tokenizer_object=table, additional_special_tokens=[MARKER], eos_token=END, pad_token=END)


def problem(first: int, second: int) -> tuple[str, str]:
    """A question of numbers with so many digits, and its answer: ones first, then as people read it."""
    a, b, c = (random.randrange(10**digits) for digits in (first, second, random.randint(1, 4)))
    return random.choice(SENTENCES).format(a=a, b=b, c=c), f"{str(a + b)[::-1]}{SEPARATOR}{a + b}"


def row(index: int) -> dict[str, list[int]]:
    """A row of the training: tokens and labels, and nothing else."""
    question, answer = problem(random.randint(1, 5), random.randint(1, 5))
    prompt, reply = (tokenizer(text)["input_ids"] for text in (question + MARKER, answer + END))
    return {"input_ids": prompt + reply, "labels": [-100] * len(prompt) + reply}


random.seed(0)
torch.manual_seed(0)
sizes = {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 4}
base = LlamaForCausalLM(LlamaConfig(vocab_size=len(vocabulary), eos_token_id=0, pad_token_id=0, bos_token_id=None, **sizes))
rule = longhand.numbers_in_text(tokenizer, marker=MARKER, separator=SEPARATOR)
model = longhand.with_structure(base, rule=rule, trainable="all")

optimizer = torch.optim.AdamW(longhand.structure_parameters(model, learning_rate=3e-3))
arguments = TrainingArguments(
    "outputs/sentences", max_steps=800, per_device_train_batch_size=64, warmup_steps=50, report_to="none"
)
rows, collator = [row(index) for index in range(800 * 64)], DataCollatorForSeq2Seq(tokenizer)
Trainer(model, arguments, train_dataset=rows, data_collator=collator, optimizers=(optimizer, None)).train()

model.eval().save_pretrained("outputs/sentences")  # with tables and rule
tokenizer.save_pretrained("outputs/sentences")
solver = longhand.load("outputs/sentences")
print(solver("What is 653 + 49?"))  # 702
print(solver("On page 37, what is 123456789 + 987654321?"))  # 1111111110
problems = [problem(10, 10) for _ in range(50)]
answers = solver([question for question, _ in problems])
right = sum(written == answer.split(SEPARATOR)[1] for written, (_, answer) in zip(answers, problems, strict=True))
print(f"{right} of {len(problems)} sums of 10 digits are right")
