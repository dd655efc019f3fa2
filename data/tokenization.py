"""Tokenizers of both families, with one token per character.

For decoders, `$` comes first and padding is on the left, for generation.
"""

# Used by: families.py, data/tasks. Changed freely.

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from longhand.modeling.vocabulary import BOS, ENCODER_TOKENS, PAD, SEPARATE_EOS, TOKENS, UNKNOWN


def build_decoder_tokenizer(eos_token_id: int = BOS, tokens: tuple[str, ...] = TOKENS) -> PreTrainedTokenizerFast:
    """A fast tokenizer over tokens that begin with `vocabulary.TOKENS`. `AutoTokenizer` reloads it without custom code.

    `tokenizer("653+049=")` gives the ids of `$653+049=`. A character outside the vocabulary becomes `<unk>`, which coupling
    rules refuse; call `check_characters` first for an error that names the character. With `skip_special_tokens`, decoding
    leaves out `$`, `<eos>` and `<pad>`.

    Args:
        eos_token_id: `vocabulary.BOS` for a shared `$`, or `vocabulary.SEPARATE_EOS`.
        tokens: the task's `tokens`.
    """
    # The template language reads a literal `$` as a placeholder, so the token has another name in the template.
    begin = processors.TemplateProcessing(
        single="begin $A", special_tokens=[{"id": "begin", "ids": [BOS], "tokens": [TOKENS[BOS]]}]
    )
    return _character_tokenizer(
        tokens,
        begin,
        bos_token=TOKENS[BOS],
        eos_token=TOKENS[eos_token_id],
        extra_special_tokens=[TOKENS[SEPARATE_EOS]] if eos_token_id == BOS else [],
        padding_side="left",
    )


def build_encoder_tokenizer(
    tokens: tuple[str, ...] = ENCODER_TOKENS, field_width: int | None = None
) -> PreTrainedTokenizerFast:
    """A fast tokenizer over the tokens of an encoder's task. No token comes first: `tokenizer("_123+4095")` gives nine ids.

    `_` is the padding of a number's field, an ordinary token; batches are padded with `<pad>` on the right.

    Args:
        field_width: the tokens to which numbers are padded, see `field_padding`; None pads none.
    """
    return _character_tokenizer(tokens, normalizer=field_padding(field_width), padding_side="right")


def field_padding(field_width: int | None) -> normalizers.Normalizer | None:
    """A normalizer that puts each number into its field (paper 2, Fig. 6); None for a width at which nothing is padded.

    It writes `_` before numbers of fewer characters, those that are padded already included. It leaves longer ones, and the
    multiplier before a `*`, as they are. With a width of 7:

        653+49      ____653+_____49
        7*653       7*____653

    Each step adds half as many characters as the step before, to the numbers that have room for them.
    """
    if field_width is None or field_width < 2:
        return None
    steps, added = [], 1 << (field_width - 1).bit_length() - 1
    while added:
        shorter = rf"(?<![0-9_])(?=[0-9_]{{1,{field_width - added}}}(?![0-9_]|[a-z]*\*))"
        steps.append(normalizers.Replace(Regex(shorter), "_" * added))
        added //= 2
    return normalizers.Sequence(steps)


def _character_tokenizer(
    tokens: tuple[str, ...],
    post_processor: processors.PostProcessor | None = None,
    normalizer: normalizers.Normalizer | None = None,
    **options: object,
) -> PreTrainedTokenizerFast:
    """A tokenizer of single characters over these tokens, in the order of their ids."""
    tokenizer = Tokenizer(models.WordLevel({token: index for index, token in enumerate(tokens)}, TOKENS[UNKNOWN]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
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


def check_characters(text: str, tokens: tuple[str, ...] = TOKENS) -> None:
    """Raise ValueError if a character is not in the vocabulary; the message names the first."""
    characters = "".join(token for token in tokens if len(token) == 1)
    shown = characters if len(characters) <= 100 else f"{characters[:50]}...{characters[-10:]}"
    for place, character in enumerate(text):
        if character not in characters:
            raise ValueError(f"character {character!r} at place {place} of {text[:60]!r} is not in the vocabulary {shown!r}")
