"""Causal language models of others: loaded from a folder or the Hub, asked in text, and measured as our own are.

The problems are the same as for our own models, see `text_problems`. Decoding is greedy, without the penalties and the other
settings that a model comes with. It ends with the model's own end token, after the first line (not in a chat), or at a limit
of one token for each character of the longest answer and `SPARE_TOKENS` more: no tokenizer cuts digits into more tokens. How
answers are read: `reading.py`.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from tqdm.auto import tqdm
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    StoppingCriteria,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from longhand.data import Task
from longhand.data.certificates import hash_weights
from longhand.data.checks import check_integer
from longhand.data.families.family import FAMILIES
from longhand.data.memory import check_memory
from longhand.data.text import text_problems
from longhand.hub_cards.checkpoints.adapters import find_adapter
from longhand.hub_cards.checkpoints.files import checkpoint_name
from longhand.hub_cards.checkpoints.load import Checkpoint
from longhand.hub_cards.checkpoints.loading import check_loaded, loading, merge_adapter
from longhand.hub_cards.checkpoints.sources import check_repository, find_recipe
from longhand.hub_cards.console import one_line
from longhand.hub_cards.evaluation.measure import describe
from longhand.hub_cards.evaluation.reading import is_exact, is_lenient_match
from longhand.hub_cards.evaluation.results import Row, hardware
from longhand.hub_cards.hub import find_file

PROMPTS = ("plain", "few_shot", "chat")
SPARE_TOKENS = {"plain": 16, "few_shot": 16, "chat": 256}
DEFAULT_SHOTS, MOST_SHOTS = 4, 16
TOKENS_PER_BATCH = 8192
"""Prompts and answers of one batch, padding included."""

READS_PADDING = 0.3
"""Largest change of a logit by padding, in standard deviations of all logits. Rounding changes them by 0.06 in bfloat16, and
padding by 0.6 and more if a model ignores the mask or counts positions from the padding on: measured on fifty architectures.
"""


@dataclass(frozen=True)
class LanguageModel(Checkpoint):
    """A causal language model of others.

    Attributes:
        prompt: `"plain"`: the problem alone, `653+49=`; `"few_shot"`: after solved problems of the same size, a line each;
            `"chat"`: with an instruction, in the tokenizer's chat template.
        shots: solved problems of `"few_shot"`, the first ones that are drawn from the train split with the seed.
        batch_size: prompts of one batch; None for as many as have `TOKENS_PER_BATCH`.
    """

    prompt: str = "plain"
    shots: int = DEFAULT_SHOTS
    batch_size: int | None = None

    def __post_init__(self):
        if self.prompt not in PROMPTS:
            raise ValueError(f"prompt {self.prompt!r} is unknown: choose one of {', '.join(PROMPTS)}")
        check_integer("shots", self.shots, 1, MOST_SHOTS)
        if self.batch_size is not None:
            check_integer("batch_size", self.batch_size, 1)
        if self.prompt == "chat" and self.tokenizer.chat_template is None:
            raise ValueError(f"the tokenizer of {self.name} has no chat template: choose --prompt plain or few_shot")


class FirstLine(StoppingCriteria):
    """Ends the sequences whose output has a line that is not blank, and a line break after it."""

    def __init__(self, tokenizer: Any, prompt_length: int):
        self.tokenizer, self.prompt_length = tokenizer, prompt_length

    def __call__(self, input_ids, scores, **kwargs):
        texts = self.tokenizer.batch_decode(input_ids[:, self.prompt_length :], skip_special_tokens=True)
        return torch.tensor(["\n" in text.lstrip() for text in texts], device=input_ids.device)


def is_language_model(source: str, revision: str | None = None) -> bool:
    """Whether a folder or repository holds a model of others: of no family of this package, and without a recipe.

    An adapter is what its base is. What is damaged is left to `load_checkpoint`, which says so.

    Raises:
        ValueError: there is no such folder and no such repository, or an adapter that cannot be read.
    """
    if not Path(source).is_dir():
        # Asks once, and transformers often.
        check_repository(source, revision)
    if (adapter := find_adapter(source, revision)) is not None:
        return _is_of_others(adapter.base, adapter.base_revision) and not _has_recipe(source, revision)
    return _is_of_others(source, revision)


def _is_of_others(source: str, revision: str | None) -> bool:
    try:
        model_type = PreTrainedConfig.get_config_dict(source, revision=revision)[0].get("model_type")
    # transformers raises whatever its code meets in a damaged file.
    except Exception:
        return False
    classes: list[Any] = [family.model_class for family in FAMILIES.values()]
    own = {model_class.config_class.model_type for model_class in classes}
    return isinstance(model_type, str) and model_type not in own and not _has_recipe(source, revision)


def _has_recipe(source: str, revision: str | None) -> bool:
    try:
        return bool(find_recipe(source, revision))
    except ValueError as error:
        # Without the Hub: nothing of this package is in a cache without its recipe, but a model of others is.
        if isinstance(error.__cause__, LocalEntryNotFoundError):
            return False
        raise


def load_language_model(
    source: str,
    task: Task,
    revision: str | None = None,
    trust_remote_code: bool = False,
    bf16: bool = False,
    **how: Any,
) -> LanguageModel:
    """Load a causal language model from safetensors, onto the accelerator if there is one; merge an adapter into its base.

    Args:
        bf16: load weights in bfloat16; by default in the type that they were saved in.
        how: fields of `LanguageModel`.

    Raises:
        ValueError: it is damaged, no causal language model or too large, or its tokenizer cannot write the prompts.
    """
    adapter = find_adapter(source, revision)
    base, base_revision = (source, revision) if adapter is None else (adapter.base, adapter.base_revision)
    where: dict[str, Any] = {"revision": base_revision, "trust_remote_code": trust_remote_code}
    # An adapter may have a tokenizer of its own, with another chat template.
    has_tokenizer = find_file(source, "tokenizer_config.json", revision) is not None
    written_by, written_where = (source, {**where, "revision": revision}) if has_tokenizer else (base, where)
    auto_class: Any = AutoModelForCausalLM
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with loading(base, "config.json"):
        config = AutoConfig.from_pretrained(base, **where)
    _check_causal(base, config)
    _check_weights_memory(base, config, torch.bfloat16 if bf16 else config.dtype, device)
    with loading(base, "the tokenizer or the weights"):
        tokenizer = AutoTokenizer.from_pretrained(written_by, padding_side="left", **written_where)
        model, report = auto_class.from_pretrained(
            base, use_safetensors=True, dtype=torch.bfloat16 if bf16 else "auto", output_loading_info=True, **where
        )
        model = model.eval().to(device)
    check_loaded(base, model, report)
    if adapter is not None:
        model = merge_adapter(source, adapter, model)
    given = model.generation_config.eos_token_id if model.generation_config else None
    ends = [end for end in (*(given if isinstance(given, list) else [given]), tokenizer.eos_token_id) if end is not None]
    # Any token that the model has will do: padding is masked, and what follows an end token is not read.
    known = config.get_text_config().vocab_size
    pad = next(token for token in (tokenizer.pad_token_id, *ends, 0) if token is not None and token < known)
    model.generation_config = GenerationConfig(do_sample=False, eos_token_id=ends or None, pad_token_id=pad)
    if tokenizer.pad_token is None:
        tokenizer.add_special_tokens({"pad_token": tokenizer.eos_token or "<pad>"})
    return LanguageModel(
        name=checkpoint_name(source),
        model=model,
        tokenizer=tokenizer,
        task=task,
        trained_lengths=None,
        run_seconds=None,
        **how,
    )


def _check_weights_memory(source: str, config: PreTrainedConfig, dtype: torch.dtype | None, device: torch.device) -> None:
    """Raise ValueError if the weights need more memory than there is, before they are downloaded.

    Weights that are quantized, or whose type or code is not known, are not estimated.
    """
    if dtype is None or getattr(config, "quantization_config", None) or getattr(config, "auto_map", None):
        return
    auto_class: Any = AutoModelForCausalLM
    with loading(source, "config.json"), torch.device("meta"):
        count = auto_class.from_config(config).num_parameters()
    what = f"the {count:,} weights of {source} in {str(dtype).removeprefix('torch.')}"
    check_memory(count * dtype.itemsize, what, "them, by --bf16 or another model,", device)


def _check_causal(source: str, config: PreTrainedConfig) -> None:
    """Raise ValueError unless a configuration is that of a causal language model with its output matrix."""
    if "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {}):
        return
    known = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(config.model_type, ())
    legal = (known,) if isinstance(known, str) else known
    named = config.architectures or legal or [type(config).__name__]
    if not set(named) & set(legal):
        raise ValueError(f"{source} is a {named[0]}, not a causal language model")


def write_prompts(
    model: LanguageModel, operands: tuple[int, ...], num_samples: int, seed: int
) -> tuple[list[str], list[str]]:
    """Prompts of one size, and their answers.

    Raises:
        ValueError: a split holds no such problems.
    """
    prompts, answers = text_problems(model.task, operands, num_samples, seed, "test")
    if model.prompt == "few_shot":
        solved = text_problems(model.task, operands, MOST_SHOTS, seed, "train")
        shots = "".join(f"{prompt}{answer}\n" for prompt, answer in list(zip(*solved, strict=True))[: model.shots])
        prompts = [shots + prompt for prompt in prompts]
    if model.prompt == "chat":
        prompts = [_write_chat(model, prompt) for prompt in prompts]
    return prompts, answers


def _write_chat(model: LanguageModel, prompt: str) -> str:
    """The chat that asks for one answer; without thinking, if the template leaves the choice."""
    task = model.task
    what = "Calculate, and answer" if hasattr(task, "sign") else f"Solve this {task.name} problem, and answer"
    message = {"role": "user", "content": f"{what} with {task.answer_form}: {prompt}"}
    template: Any = model.tokenizer.apply_chat_template
    return template([message], tokenize=False, add_generation_prompt=True, enable_thinking=False)


def check_text_problems(model: LanguageModel, lengths: list[tuple[int, ...]], num_samples: int, seed: int) -> None:
    """Check all prompts, and write a token after one of them, before any time is spent.

    Raises:
        ValueError: the model cannot read a prompt, has no room for an answer, writes nothing, or reads padding.
    """
    positions = getattr(model.model.config.get_text_config(), "max_position_embeddings", None)
    prompts, is_padded = [""], False
    for operands in lengths:
        prompts, answers = write_prompts(model, operands, num_samples, seed)
        tokens = _tokenize(model, prompts)["input_ids"]
        widths = list(map(len, tokens))
        longest, limit = max(widths), _answer_limit(model, answers)
        if positions and longest + limit > positions:
            raise ValueError(
                f"{model.name} has {positions:,} positions, but size {' x '.join(map(str, operands))} needs up to "
                f"{longest:,} for a prompt and {limit:,} for the answer: choose shorter --lengths"
            )
        _check_tokens(model, prompts, tokens)
        is_padded |= longest > min(widths) and model.batch_size != 1
    _check_writing(model, prompts[0], is_padded)


def _check_writing(model: LanguageModel, prompt: str, is_padded: bool) -> None:
    """Raise ValueError if the model cannot write after a prompt, or if padding changes what it says after two tokens of it.

    After more tokens, a recurrent model has forgotten the padding, but not quite.
    """
    network: Any = model.model
    options: dict[str, Any] = {"max_new_tokens": 1, "output_logits": True, "return_dict_in_generate": True}
    logits = []
    for kept, columns in ((None, 0), (2, 0), (2, 8))[: 3 if is_padded else 1]:
        with _generating(model, 1):
            inputs = _tokenize(model, [prompt], return_tensors="pt").to(network.device)
            for name, value in (("input_ids", network.generation_config.pad_token_id), ("attention_mask", 0)):
                inputs[name] = torch.nn.functional.pad(inputs[name][:, :kept], (columns, 0), value=value)
            logits.append(network.generate(**inputs, **options).logits[0].float())
    if any(part.isnan().any() for part in logits):
        raise ValueError(f"{model.name} cannot write answers: its logits are NaN in {_dtype(model)}")
    if is_padded and (logits[1] - logits[2]).abs().max() > READS_PADDING * logits[1].std():
        raise ValueError(
            f"{model.name} reads the padding before shorter prompts of a batch, which would change its answers: choose "
            "--batch_size 1"
        )


def _dtype(model: LanguageModel) -> str:
    """The type of the weights, such as `bfloat16`."""
    return str(model.model.dtype).removeprefix("torch.")


@contextmanager
def _generating(model: LanguageModel, prompts: int) -> Iterator[None]:
    """Generate without gradients. Raise ValueError with what to do if memory ends, or the model cannot generate."""
    try:
        with torch.inference_mode():
            yield
    # Code of others raises whatever it meets.
    except Exception as error:
        # On a CPU, torch raises a plain RuntimeError.
        if isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error):
            smaller = f"--batch_size below {prompts}, " if prompts > 1 else ""
            smaller += "--bf16 or " if _dtype(model) == "float32" else "or " if smaller else ""
            advice = f"choose {smaller}shorter --lengths"
            raise ValueError(f"{model.name}: the memory does not suffice for {prompts} prompts at once: {advice}") from error
        raise ValueError(f"{model.name} cannot write answers: {one_line(error)}") from error


def _check_tokens(model: LanguageModel, prompts: list[str], tokens: list[list[int]]) -> None:
    """Raise ValueError if a tokenizer cannot write a prompt, or ends it as if nothing were to follow."""
    unknown, end = model.tokenizer.unk_token_id, model.tokenizer.eos_token_id
    for prompt, ids in zip(prompts, tokens, strict=True):
        if unknown is not None and unknown != model.tokenizer.bos_token_id and unknown in ids:
            raise ValueError(f"the tokenizer of {model.name} has no tokens for the prompt {prompt!r}")
        if model.prompt != "chat" and end is not None and ids[-1] == end:
            raise ValueError(f"the tokenizer of {model.name} ends the prompt {prompt!r} with its end token")


def _tokenize(model: LanguageModel, prompts: list[str], **options: Any) -> Any:
    # A chat template writes the special tokens itself.
    options |= {"return_token_type_ids": False, "return_attention_mask": True}
    return model.tokenizer(prompts, add_special_tokens=model.prompt != "chat", **options)


def _answer_limit(model: LanguageModel, answers: list[str]) -> int:
    """Most tokens of an output."""
    return max(map(len, answers)) + SPARE_TOKENS[model.prompt]


def complete(model: LanguageModel, prompts: list[str], limit: int) -> list[str]:
    """What the model writes after each prompt, `limit` tokens at most."""
    longest = max(map(len, _tokenize(model, prompts)["input_ids"]))
    count = model.batch_size or max(1, TOKENS_PER_BATCH // (longest + limit))
    network: Any = model.model
    completions = []
    for start in range(0, len(prompts), count):
        inputs = _tokenize(model, prompts[start : start + count], padding=True, return_tensors="pt").to(network.device)
        inputs["input_ids"].masked_fill_(inputs["attention_mask"] == 0, network.generation_config.pad_token_id)
        width = inputs["input_ids"].shape[1]
        stopping = [] if model.prompt == "chat" else [FirstLine(model.tokenizer, width)]
        with _generating(model, len(inputs["input_ids"])):
            output = network.generate(**inputs, max_new_tokens=limit, stopping_criteria=stopping)
        completions += model.tokenizer.batch_decode(output[:, width:], skip_special_tokens=True)
    return completions


def measure_language_model(
    model: LanguageModel, lengths: list[tuple[int, ...]], num_samples: int = 200, seed: int = 0
) -> tuple[list[Row], list[Row]]:
    """Measure exact match by the strict reading, and `lenient_match`, by operand lengths.

    Args:
        lengths: digits of every operand.

    Returns:
        One row of results.jsonl for each of `lengths`, and one row for each problem: its prompt, answer, output and scores.

    Raises:
        ValueError: see `check_text_problems`, or the memory does not suffice.
    """
    check_text_problems(model, lengths, num_samples, seed)
    how: Row = {"decode": "generate", "dtype": _dtype(model), "prompt": model.prompt}
    how |= {"shots": model.shots} if model.prompt == "few_shot" else {}
    rows, problems, weights = [], [], hash_weights(model.model)
    for operands in tqdm(lengths, desc=f"evaluating {model.name}", disable=None, leave=False):
        began = time.perf_counter()
        prompts, answers = write_prompts(model, operands, num_samples, seed)
        completions = complete(model, prompts, _answer_limit(model, answers))
        shared = describe(model.name, model.task, operands, num_samples, seed)
        scores = [
            {"exact_match": is_exact(text, answer), "lenient_match": is_lenient_match(text, answer, model.prompt == "chat")}
            for text, answer in zip(completions, answers, strict=True)
        ]
        shares = {name: sum(score[name] for score in scores) / num_samples for name in scores[0]}
        took = {"seconds": round(time.perf_counter() - began, 3), "hardware": hardware(model.model.device)}
        rows.append({**shared, **how, **shares, **took, "weights": weights})
        texts = [
            {"prompt": prompt, "answer": answer, "output": text}
            for prompt, answer, text in zip(prompts, answers, completions, strict=True)
        ]
        size = {name: shared[name] for name in ("model", "task", "length", "length_b")}
        problems += [size | text | score for text, score in zip(texts, scores, strict=True)]
    return rows, problems
