import re

import pytest
from transformers import AutoTokenizer

from longhand.data import build_tokenizer, check_characters
from longhand.modeling.vocabulary import BOS, PAD, SEPARATE_EOS, TOKENS, UNKNOWN

ENDS = [BOS, SEPARATE_EOS]


@pytest.fixture(params=[(end, reloaded) for end in ENDS for reloaded in (False, True)], ids=str)
def tokenizer(request, tmp_path):
    """Every tokenizer, as built and as AutoTokenizer reloads it."""
    end, reloaded = request.param
    tokenizer = build_tokenizer(end)
    if reloaded:
        tokenizer.save_pretrained(tmp_path)
        tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    return tokenizer


@pytest.mark.parametrize("end", ENDS)
def test_saved_tokenizer_needs_no_code(end, tmp_path):
    build_tokenizer(end).save_pretrained(tmp_path)
    assert not list(tmp_path.rglob("*.py"))
    assert not any("auto_map" in file.read_text(encoding="utf-8") for file in tmp_path.glob("*.json"))


@pytest.mark.parametrize("end", ENDS)
def test_reloaded_tokenizer_has_the_same_tokens_and_settings(end, tmp_path):
    built = build_tokenizer(end)
    built.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.get_vocab() == built.get_vocab() == {token: index for index, token in enumerate(TOKENS)}
    for name in ("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "padding_side", "model_input_names"):
        assert getattr(loaded, name) == getattr(built, name)
    assert sorted(loaded.all_special_ids) == sorted(built.all_special_ids)


def test_begin_token_is_put_in_front(tokenizer):
    assert tokenizer("653+049=").input_ids == [BOS, 6, 5, 3, 10, 0, 4, 9, 13]
    assert tokenizer("653+049=", add_special_tokens=False).input_ids == [6, 5, 3, 10, 0, 4, 9, 13]
    assert tokenizer("").input_ids == [BOS]


@pytest.mark.parametrize("character", [token for token in TOKENS if len(token) == 1])
def test_every_character_makes_the_round_trip(tokenizer, character):
    ids = tokenizer(character * 2, add_special_tokens=False).input_ids
    assert ids == [TOKENS.index(character)] * 2
    assert tokenizer.decode(ids) == character * 2


def test_shorter_texts_are_padded_on_the_left(tokenizer):
    batch = tokenizer(["12+3=", "1+2="], padding=True)
    assert batch["input_ids"] == [[BOS, 1, 2, 10, 3, 13], [PAD, BOS, 1, 10, 2, 13]]
    assert batch["attention_mask"] == [[1] * 6, [0, 1, 1, 1, 1, 1]]


def test_special_tokens_are_skipped_when_decoding(tokenizer):
    ids = [PAD, BOS, 1, 10, 2, 13, 3, SEPARATE_EOS, BOS, PAD]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "1+2=3"
    assert tokenizer.batch_decode([ids, ids], skip_special_tokens=True) == ["1+2=3"] * 2


@pytest.mark.parametrize("end", ["$", "<eos>"])
def test_end_token_in_a_text_is_one_token(tokenizer, end):
    ids = tokenizer(f"1+2=3{end}").input_ids
    assert ids == [BOS, 1, 10, 2, 13, 3, TOKENS.index(end)]


@pytest.mark.parametrize("character", [" ", "\n", "a", "m", "٣", "\uff0d", "é", "😀", "."])
def test_every_unknown_character_becomes_one_unknown_token(tokenizer, character):
    assert tokenizer(f"1{character * 2}+").input_ids == [BOS, 1, UNKNOWN, UNKNOWN, 10]


@pytest.mark.parametrize(
    ("text", "character", "place"), [(" 1", " ", 0), ("12a+b", "a", 2), ("1+٣", "٣", 2), ("3\n", "\n", 1)]
)
def test_foreign_character_is_named_with_its_place(text, character, place):
    expected = f"character {character!r} at place {place} of {text!r} is not in the vocabulary"
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}"):
        check_characters(text)
