"""A small Llama learns sums in sentences, from rows of text alone: a rule derives structure from the text.

It is trained on numbers of 1 to 5 digits by a plain Trainer, and asked for longer ones by a plain generate(). What it writes
is the shipped model `longhand.load("sums-in-sentences")`. With a GPU it takes a minute, on a processor core ten.
"""

import random
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

import longhand

SENTENCES = [
    "What is {a} + {b}?",
    "How much is {a} + {b}?",
    "{a} plus {b} is",
    "{a} + {b} =",
    "{a}+{b}",
    "Add {a} to {b}.",
    "Add {a} and {b}.",
    "What is the sum of {a} and {b}?",
    "On page {c}, what is {a} + {b}?",
    "In {c} weeks we add {a} to {b}.",
    "At {c} I have {a} apples and get {b} more; how many in all?",
    "The sum of {a} and {b} in room {c} is",
]
"""Numbers a and b are added, and c does not count."""
END, UNKNOWN, ANSWER, FOLDER, STEPS = "<end>", "<unknown>", "<answer>", "outputs/sentences", 3000
random.seed(0)
torch.manual_seed(0)

# A token is a digit, or a word, of which capital letters do not count.
normalizer = normalizers.Lowercase()
split = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)])
texts = [normalizer.normalize_str(sentence.format(a="", b="", c="")) for sentence in SENTENCES]
words = {word for text in texts for word, _ in split.pre_tokenize_str(text)} - {"="}
vocabulary = {word: token for token, word in enumerate([END, UNKNOWN, ANSWER, "=", *"0123456789", *sorted(words)])}
table = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
table.normalizer, table.pre_tokenizer = normalizer, split
tokenizer = transformers.PreTrainedTokenizerFast(
    tokenizer_object=table, eos_token=END, pad_token=END, unk_token=UNKNOWN, additional_special_tokens=[ANSWER]
)


def problem(digits: int) -> tuple[str, int]:
    """A question of two numbers of at most so many digits, and of another number, and its answer."""
    a, b, c = (random.randrange(10**length) for length in (random.randint(1, digits), digits, random.randint(1, 4)))
    return random.choice(SENTENCES).format(a=a, b=b, c=c), a + b


def row() -> dict[str, list[int]]:
    """Tokens and labels: an answer is written ones first, and then as people read it."""
    question, answer = problem(random.randint(1, 5))
    prompt, reply = (tokenizer(text)["input_ids"] for text in (question + ANSWER, f"{str(answer)[::-1]}={answer}{END}"))
    return {"input_ids": prompt + reply, "labels": [-100] * len(prompt) + reply}


sizes: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 4}
config = transformers.LlamaConfig(vocab_size=len(vocabulary), eos_token_id=0, pad_token_id=0, bos_token_id=None, **sizes)
rule = longhand.numbers_in_text(tokenizer, marker=ANSWER, separator="=")
model = longhand.with_structure(transformers.LlamaForCausalLM(config), rule=rule, trainable="all")

optimizer = torch.optim.AdamW(longhand.structure_parameters(model, learning_rate=3e-3))
options = transformers.TrainingArguments(FOLDER, max_steps=STEPS, per_device_train_batch_size=64, warmup_steps=50)
rows, collator = [row() for _ in range(STEPS * 64)], transformers.DataCollatorForSeq2Seq(tokenizer)
transformers.Trainer(model, options, train_dataset=rows, data_collator=collator, optimizers=(optimizer, None)).train()
model.save_pretrained(FOLDER)  # with tables and rule
tokenizer.save_pretrained(FOLDER)

solver = longhand.load(FOLDER)
print(solver("What is 653 + 49?"))  # 702
for digits in (10, 50, 100):
    questions, sums = zip(*[problem(digits) for _ in range(200)], strict=True)
    right = sum(written == str(answer) for written, answer in zip(solver(questions), sums, strict=True))
    print(f"{right} of {len(questions)} sums of {digits} digits are right")
