"""Small language models of others, made here: random ones of known architectures, and ones whose answers Python decides."""

import re
from collections.abc import Callable
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.generation import GenerateDecoderOnlyOutput

from longhand.hub_cards.evaluation.language_models import LanguageModel

LINES = ["653+49=702", "12+3=15", "The answer is **702**.", "M__>__M=M2112M"]
CHAT = "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}{% endfor %}<|assistant|>"
ARCHITECTURES = {
    "llama": (LlamaConfig, LlamaForCausalLM, {"num_key_value_heads": 1}),
    "gpt2": (GPT2Config, GPT2LMHeadModel, {}),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {"num_key_value_heads": 1}),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {"num_key_value_heads": 1, "head_dim": 8}),
}


def make_tokenizer(**options) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer, trained on a few lines, without a token for padding."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(LINES * 4, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **{"eos_token": "<end>", **options})


def save_random_model(folder: Path, kind: str = "llama", chat: bool = False, seed: int = 0, **options) -> Path:
    """The folder of a model that has learned nothing."""
    tokenizer = make_tokenizer()
    if chat:
        tokenizer.chat_template = CHAT
    config_class, model_class, more = ARCHITECTURES[kind]
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 512}
    more = {"intermediate_size": 16, "eos_token_id": 0, "bos_token_id": 0, **sizes, **more, **options}
    torch.manual_seed(seed)
    model_class(config_class(vocab_size=len(tokenizer), initializer_range=0.5, **more)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


class Calculator(LlamaForCausalLM):
    """Writes what a function of the prompt says, up to its limit."""

    def generate(self, input_ids, attention_mask, max_new_tokens=None, max_length=None, **options):
        if options.get("output_logits"):
            return GenerateDecoderOnlyOutput(input_ids, logits=(torch.eye(len(input_ids), len(self.tokenizer)),))
        max_new_tokens = max_new_tokens or max_length - input_ids.shape[1]
        assert attention_mask[:, -1].all(), "padding stands on the left"
        prompts = [self.tokenizer.decode(ids[mask.bool()]) for ids, mask in zip(input_ids, attention_mask, strict=True)]
        outputs = [self.tokenizer(self.reply(prompt) + "<end>").input_ids[:max_new_tokens] for prompt in prompts]
        padded = [torch.tensor(ids + [0] * (max_new_tokens - len(ids))) for ids in outputs]
        return torch.cat([input_ids, torch.stack(padded)], dim=1)


def calculator(task, reply: Callable[[str], str], **options) -> LanguageModel:
    """A language model that replies to a prompt as the function does."""
    tokenizer = make_tokenizer(padding_side="left", pad_token="<end>")
    tokenizer.chat_template = CHAT
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    model = Calculator(LlamaConfig(vocab_size=len(tokenizer), pad_token_id=0, **sizes))
    model.generation_config.pad_token_id = 0
    model.tokenizer, model.reply = tokenizer, reply
    return LanguageModel(
        name="calculator", model=model, tokenizer=tokenizer, task=task, trained_lengths=None, run_seconds=None, **options
    )


def last_sum(prompt: str) -> tuple[int, int]:
    """The numbers of the sum that a prompt ends with."""
    first, second = re.findall(r"(\d+)\+(\d+)=", prompt)[-1]
    return int(first), int(second)


def add(prompt: str) -> str:
    return str(sum(last_sum(prompt)))


def add_without_carries(prompt: str) -> str:
    """The sum of each column alone, modulo 10."""
    first, second = map(str, last_sum(prompt))
    width = max(len(first), len(second))
    columns = zip(first.zfill(width), second.zfill(width), strict=True)
    return "".join(str((int(above) + int(below)) % 10) for above, below in columns).lstrip("0") or "0"
