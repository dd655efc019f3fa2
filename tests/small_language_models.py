"""Small language models of others, random ones of known architectures."""

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

LINES = ["653+49=702", "12+3=15", "The answer is **702**.", "M__>__M=M2112M"]
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


def save_random_model(folder: Path, kind: str = "llama", seed: int = 0, **options) -> Path:
    """The folder of a model that has learned nothing."""
    tokenizer = make_tokenizer()
    config_class, model_class, more = ARCHITECTURES[kind]
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 512}
    more = {"intermediate_size": 16, "eos_token_id": 0, "bos_token_id": 0, **sizes, **more, **options}
    torch.manual_seed(seed)
    model_class(config_class(vocab_size=len(tokenizer), initializer_range=0.5, **more)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
