"""The tokenizers: one token per character. For decoders, `$` comes first and padding is on the left, for generation."""

from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from longhand.modeling.vocabulary import (
    ALL_TOKENS,
    BOS,
    CHARACTERS,
    DIVIDED_BY,
    ENCODER_TOKENS,
    FIRST_HINT,
    PAD,
    SEPARATE_EOS,
    TOKENS,
    UNKNOWN,
)


def build_tokenizer(eos_token_id: int = BOS, vocab_size: int = len(TOKENS)) -> PreTrainedTokenizerFast:
    """A fast tokenizer over the first tokens of `vocabulary.ALL_TOKENS`. `AutoTokenizer` reloads it without custom code.

    `tokenizer("653+049=")` gives the ids of `$653+049=`. A character outside the vocabulary becomes `<unk>`, which coupling
    rules refuse; call `check_characters` first for an error that names the character. With `skip_special_tokens`, decoding
    leaves out `$`, `<eos>` and `<pad>`.

    Args:
        eos_token_id: `vocabulary.BOS` for a shared `$`, or `vocabulary.SEPARATE_EOS`.
        vocab_size: `vocab_size` of the task.

    Raises:
        ValueError: there is no vocabulary of this size.
    """
    if not len(TOKENS) <= vocab_size <= len(ALL_TOKENS):
        raise ValueError(f"vocab_size must be in {len(TOKENS)}..{len(ALL_TOKENS)}, got {vocab_size}")
    # The template language reads a literal `$` as a placeholder, so the token has another name in the template.
    begin = processors.TemplateProcessing(
        single="begin $A", special_tokens=[{"id": "begin", "ids": [BOS], "tokens": [TOKENS[BOS]]}]
    )
    return _character_tokenizer(
        ALL_TOKENS[:vocab_size],
        begin,
        bos_token=TOKENS[BOS],
        eos_token=TOKENS[eos_token_id],
        extra_special_tokens=[TOKENS[SEPARATE_EOS]] if eos_token_id == BOS else [],
        padding_side="left",
    )


def build_encoder_tokenizer() -> PreTrainedTokenizerFast:
    """A fast tokenizer over `vocabulary.ENCODER_TOKENS`. No token comes first: `tokenizer("_123+4095")` gives nine ids.

    `_` is the padding of a number's field, an ordinary token; batches are padded with `<pad>` on the right.
    """
    return _character_tokenizer(ENCODER_TOKENS, padding_side="right")


def _character_tokenizer(
    tokens: tuple[str, ...], post_processor: processors.PostProcessor | None = None, **options: Any
) -> PreTrainedTokenizerFast:
    """A tokenizer of single characters over these tokens, in the order of their ids."""
    tokenizer = Tokenizer(models.WordLevel({token: index for index, token in enumerate(tokens)}, TOKENS[UNKNOWN]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    if post_processor is not None:
        tokenizer.post_processor = post_processor
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=TOKENS[PAD],
        unk_token=TOKENS[UNKNOWN],
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
        **options,
    )


def check_characters(text: str, vocab_size: int = len(TOKENS)) -> None:
    """Raise ValueError if a character is not in the vocabulary; the message names the first."""
    characters = CHARACTERS + "".join(ALL_TOKENS[DIVIDED_BY : min(vocab_size, FIRST_HINT)])
    hints = ALL_TOKENS[FIRST_HINT:vocab_size]
    for place, character in enumerate(text):
        if character not in characters and character not in hints:
            raise ValueError(
                f"character {character!r} at place {place} of {text[:60]!r} is not in the vocabulary {characters!r}"
                + (f" or an index hint, {hints[0]!r} to {hints[-1]!r}" if hints else "")
            )
