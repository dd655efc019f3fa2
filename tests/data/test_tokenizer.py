import json
import random
import re
import shutil

import pytest
from transformers import AutoTokenizer, pipeline

import longhand
from longhand.data import build_task, build_tokenizer, check_characters
from longhand.data.proofs.verify_certificate import Refused, check_tokenizer
from longhand.data.tokenization import build_encoder_tokenizer
from longhand.hub_cards.checkpoints.load import load_checkpoint
from longhand.modeling.vocabulary import BOS, ENCODER_TOKENS, PAD, SEPARATE_EOS, TOKENS, UNKNOWN

ENDS = [BOS, SEPARATE_EOS]


@pytest.fixture(params=[(end, reloaded) for end in ENDS for reloaded in (False, True)], ids=str)
def tokenizer(request, tmp_path):
    """Every tokenizer, as built and as AutoTokenizer reloads it."""
    end, reloaded = request.param
    tokenizer = build_tokenizer(eos_token_id=end)
    if reloaded:
        tokenizer.save_pretrained(tmp_path)
        tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    return tokenizer


@pytest.mark.parametrize("end", ENDS)
def test_saved_tokenizer_needs_no_code(end, tmp_path):
    build_tokenizer(eos_token_id=end).save_pretrained(tmp_path)
    assert not list(tmp_path.rglob("*.py"))
    assert not any("auto_map" in file.read_text(encoding="utf-8") for file in tmp_path.glob("*.json"))


@pytest.mark.parametrize("end", ENDS)
def test_reloaded_tokenizer_has_the_same_tokens_and_settings(end, tmp_path):
    built = build_tokenizer(eos_token_id=end)
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


# Fields of numbers.


def padded(text: str, width: int) -> str:
    """The text with `_` before every number that is shorter than its field, but for a multiplier."""
    parts = re.split("([0-9_]+)", text)
    for place in range(1, len(parts), 2):
        if not parts[place + 1].lstrip("abc").startswith("*"):
            parts[place] = parts[place].rjust(width, "_")
    return "".join(parts)


@pytest.mark.parametrize("width", [1, 2, 3, 7, 8, 9, 23, 1000])
def test_a_tokenizer_puts_numbers_into_their_fields(width, tmp_path):
    build_encoder_tokenizer(field_width=width).save_pretrained(tmp_path)
    tokenizer, draw = AutoTokenizer.from_pretrained(tmp_path), random.Random(width)

    def numbers(alphabet: str) -> str:
        return "".join(draw.choices(alphabet, k=draw.randint(0, width + 3)))

    for sign in "+*" * 50:
        before, between, after = (draw.choice(("", "a", "cab")) for _ in range(3))
        text = f"{before}{numbers('_0123')}{between}{sign}{numbers('_789')}{after}"
        ids = tokenizer(text).input_ids
        assert tokenizer.decode(ids) == padded(text, width), text
        # What is padded already stays as it is.
        assert tokenizer(tokenizer.decode(ids)).input_ids == ids


def test_the_task_says_how_wide_its_tokenizer_pads():
    for name, options, question, expected in [
        ("encoder_addition", {"field_width": 5}, "1+23", "____1+___23"),
        ("encoder_addition", {}, "1+23", "1+23"),
        ("encoder_multiplication", {"field_width": 5}, "1*23", "1*___23"),
        ("encoder_calculator", {"field_width": 5, "text_tokens": 3}, "ab1cd+23", "ab____1cd+___23"),
        ("encoder_multiplication_grid", {}, "01*-_-_1", "01*-_-_1"),
    ]:
        task = build_task(name, **options)
        tokenizer = task.family.tokenizer(task)
        assert tokenizer.decode(tokenizer(question).input_ids) == expected


SHIPPED = {
    "encoder-addition": [("653+49", 702), ("1+1", 2)],
    "encoder-addition-settling": [("653+49", 702), ("9999999+1", 10**7), ("12345678+87654329", 100000007)],
    "encoder-multiplication-1-settling": [("7*653", 4571), ("9*0", 0)],
}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_pipeline_answers_with_a_shipped_encoder_from_plain_text(name):
    answer = pipeline("token-classification", longhand.zoo(name))
    for questions in (SHIPPED[name], list(reversed(SHIPPED[name]))):
        labels = answer([question for question, _ in questions], batch_size=2)
        for (question, right), found in zip(questions, labels, strict=True):
            operator = next(place for place, label in enumerate(found) if label["word"] in "+*")
            written = "".join(label["entity"] for label in found[operator:])
            assert written.lstrip("_") == str(right)
            assert all(0 <= label["start"] <= label["end"] <= len(question) for label in found)
    # A number that is longer than the field stands beside one that is padded to it.
    question, reason = ("12345678901234+1", "one width") if "addition" in name else ("77*653", "form")
    with pytest.raises(ValueError, match=reason):
        answer(question)


def test_checkpoints_with_either_tokenizer_load_and_no_others(tmp_path):
    folder = shutil.copytree(longhand.zoo("encoder-addition"), tmp_path / "encoder")
    file = folder / "tokenizer.json"
    values = json.loads(file.read_text(encoding="utf-8"))
    assert load_checkpoint(str(folder)).tokenizer("1+1").input_ids == [*[16] * 11, 1, 10, *[16] * 11, 1]
    steps = values["normalizer"]["normalizers"]
    for unfit in (steps[1:], steps[::-1], [*steps, {"type": "Lowercase"}]):
        file.write_text(json.dumps(values | {"normalizer": {"type": "Sequence", "normalizers": unfit}}))
        with pytest.raises(ValueError, match="does not read and write"):
            load_checkpoint(str(folder))
    file.write_text(json.dumps(values | {"normalizer": None}))
    assert load_checkpoint(str(folder)).tokenizer("1+1").input_ids == [1, 10, 1]


@pytest.mark.parametrize("width", [None, 1, 2, 7, 12, 64])
def test_the_verifier_knows_the_fields_of_the_configurations_task_and_no_other_normalizer(width, tmp_path):
    def verify(normalizer):
        own = {**values, "normalizer": normalizer}
        return check_tokenizer({**files, "tokenizer.json": json.dumps(own).encode()}, True, None, width)

    build_encoder_tokenizer(field_width=width).save_pretrained(tmp_path)
    files = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    values = json.loads(files["tokenizer.json"])
    written = values["normalizer"]
    assert (written is None) == (width in (None, 1))
    assert verify(written) == verify(None) == list(ENCODER_TOKENS)
    others = [{"type": "Lowercase"}, {"type": "Sequence", "normalizers": []}]
    for other in (3, 7, 13):
        if other != width:
            build_encoder_tokenizer(field_width=other).save_pretrained(tmp_path / str(other))
            others.append(json.loads((tmp_path / str(other) / "tokenizer.json").read_text())["normalizer"])
    if written:
        others.append({**written, "normalizers": written["normalizers"][::-1]} if width > 2 else {**written, "more": 1})
    for other in others:
        with pytest.raises(Refused, match="normalizer"):
            verify(other)
