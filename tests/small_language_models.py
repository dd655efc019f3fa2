"""A small language model of others, with random weights."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

LINES = ["653+49=702", "12+3=15", "The answer is **702**.", "M__>__M=M2112M"]


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer, trained on a few lines, without a token for padding."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(LINES * 4, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")


def save_random_model(folder: Path, seed: int = 0) -> Path:
    """The folder of a Llama that has learned nothing."""
    tokenizer = make_tokenizer()
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "max_position_embeddings": 512}
    sizes |= {"num_attention_heads": 2, "num_key_value_heads": 1, "eos_token_id": 0, "bos_token_id": 0}
    torch.manual_seed(seed)
    LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), initializer_range=0.5, **sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
