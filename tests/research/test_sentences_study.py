"""The study of sums in sentences: its texts, what is trained, and a run that is cut off."""

import random
import time

import pytest
import torch

import longhand
from longhand.hub_cards.research.gpu.record import Record, read_rows
from longhand.hub_cards.research.structured import sentences, sentences_on_gpu
from longhand.hub_cards.research.structured.sentence_templates import OPERATIONS, answer_of, draw_problem
from longhand.hub_cards.research.structured.sentences import (
    ACTIVATED,
    CONDITIONS,
    LORA,
    SentenceOptions,
    Sentences,
    SentenceSettings,
    SentencesRun,
)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_templates_have_each_number_once_and_are_not_tested_where_they_are_trained(operation):
    trained, tested = OPERATIONS[operation]
    for template in (*trained, *tested):
        assert [template.count(f"{{{name}}}") for name in "abc"] == [1, 1, 1]
    assert not {*trained} & {*tested} and len({*trained}) == len(trained) >= 10


@pytest.mark.parametrize("operation", OPERATIONS)
def test_rows_are_always_the_same_and_their_words_are_known(operation):
    settings = SentenceSettings(operation=operation, steps=5, batch_size=20)
    tokenizer = sentences.word_tokenizer(operation)
    rows = Sentences(settings, tokenizer, 1)
    for index in range(len(rows)):
        row = rows[index]
        assert row == rows[index] and row != rows[index - 1] and row.keys() == {"input_ids", "labels"}
        assert tokenizer.unk_token_id not in row["input_ids"]


@pytest.mark.parametrize(
    ("operation", "first", "second", "answer"),
    [
        ("sum", 653, 49, "207=702"),
        ("sum", 999, 1, "0001=1000"),
        ("difference", 653, 649, "400=004"),
        ("difference", 7, 7, "0=0"),
        ("product", 653, 4, "2162=2612"),
        ("product", 0, 4, "0=0"),
        ("larger", 653, 49, "211=1"),
        ("larger", 49, 653, "122=2"),
        ("larger", 49, 49, "00=0"),
    ],
)
def test_answers_are_written_ones_first(operation, first, second, answer):
    assert answer_of(operation, first, second) == answer


@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_digit_follows_from_what_its_place_shows(operation):
    """So that a model may be right at every length: the digits of two places, and what was written of the first."""
    draws, seen = random.Random(0), {}
    for _ in range(4000):
        lengths = (draws.randint(1, 4), draws.randint(1, 4))
        question, answer = draw_problem(draws, ["{a} {b} {c}"], operation, *lengths)
        first, second, _ = question.split()
        written, read = answer.split("=")
        assert read == (written[-1] if operation == "larger" else written[::-1])
        factor = second if operation == "product" else None
        columns = [first[::-1], "" if factor else second[::-1]]
        for place, following in enumerate(f"{written}=", start=-1):
            near = [digits[max(0, place + ahead) : place + ahead + 1] for digits in columns for ahead in (0, 1)]
            shown = (place < 0, *near, factor, written[place] if place >= 0 else "")
            assert seen.setdefault(shown, following) == following, (question, answer, place)


def test_numbers_have_as_many_digits_as_are_asked_for():
    draws = random.Random(0)
    for first, second in ((1, 1), (3, 5), (100, 7)):
        question, answer = draw_problem(draws, ["{a} {b} {c}"], "sum", first, second)
        numbers = [int(number) for number in question.split()[:2]]
        assert [len(str(number)) for number in numbers] == [first, second]
        assert int(answer.split("=")[1]) == sum(numbers)


@pytest.mark.slow
@pytest.mark.parametrize("adapter", ["none", pytest.param(LORA, marks=pytest.mark.release)])
def test_a_run_that_is_cut_off_goes_on(adapter, tmp_path):
    settings, weights = SentenceSettings(steps=5, batch_size=4, adapter=adapter, rank=2), []
    for limits in ((None,), (0.0, None)):
        for minutes in limits:
            one = SentencesRun(settings, "all of it", 0, tmp_path / str(len(limits)))
            model, tokenizer, row = one.train(minutes)
            assert row["steps"] == (settings.steps if minutes is None else 1)
            one.measure(model, tokenizer, row, [2], 2)
            assert one.missing([1, 2], 2) == ([1] if minutes is None else [1, 2])
        weights.append(model.state_dict())
        if adapter == "none":  # An adapter's base is the language model of its name.
            assert isinstance(longhand.load(one.folder / one.name / "model")("On page 3, what is 653 + 49?"), str)
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


@pytest.mark.slow
def test_conditions_give_their_parts_and_rows_say_what_they_are_of(tmp_path):
    for condition, parts in CONDITIONS.items():
        model, _ = sentences.build_model(SentenceSettings(), condition, tmp_path)
        assert getattr(getattr(model, "structure_rule", None), "parts", ()) == parts
    settings = SentenceSettings(steps=1, batch_size=2, rank=2)
    for only in (["none"], ["all of it"]):
        options = SentenceOptions(seeds=[0], only=only, sizes=[1], num_samples=2, output_dir=tmp_path)
        sentences.run(settings, options, tmp_path / "rows.jsonl")
    rows = sentences.read_results(tmp_path / "rows.jsonl")
    assert [row["condition"] for row in rows] == ["all of it", "none"]
    assert all(row["steps"] == 1 and row["num_samples"] == 2 and row["hardware"] for row in rows)


@pytest.mark.parametrize("adapter", [LORA, ACTIVATED])
def test_activated_lora_changes_nothing_before_the_marker(adapter, tmp_path):
    pytest.importorskip("peft")
    torch.manual_seed(0)
    settings = SentenceSettings(adapter=adapter, rank=2)
    model, tokenizer = sentences.build_model(settings, "all of it", tmp_path)
    before = sentences.other_loss(model.eval(), tokenizer, settings)
    tokens = tokenizer("On page 7, what is 12 + 30?<answer>24=42", return_tensors="pt")["input_ids"]
    marker = tokens[0].tolist().index(tokenizer.convert_tokens_to_ids("<answer>"))
    logits = []
    for scale in (0.0, 1.0):
        for name, weights in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(weights, std=scale)
        with torch.no_grad():
            logits.append(model(input_ids=tokens, attention_mask=torch.ones_like(tokens)).logits[0])
    assert not torch.allclose(logits[0][marker:], logits[1][marker:])
    unchanged = torch.equal(logits[0][:marker], logits[1][:marker])
    same_loss = sentences.other_loss(model, tokenizer, settings) == before
    assert (unchanged, same_loss) == (adapter == ACTIVATED,) * 2
    prompt = {"input_ids": tokens[:, : marker + 1], "attention_mask": torch.ones(1, marker + 1)}
    options = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "suppress_tokens": [int(tokens[0, marker])]}
    written = model.generate(**prompt, **options)
    with torch.no_grad():
        scores = model(input_ids=written, attention_mask=torch.ones_like(written)).logits[0, marker:-1]
    scores[:, options["suppress_tokens"]] = -torch.inf
    assert written[0, marker + 1 :].tolist() == scores.argmax(-1).tolist()


@pytest.mark.slow
def test_a_part_of_the_gpu_script_goes_on_from_what_it_packed(tmp_path):
    pytest.importorskip("peft")
    until = time.time() + 600
    record = Record("sentences", tmp_path / "first", until, small=True)
    record.output.mkdir()
    sentences_on_gpu.measure_part(record)
    rows = read_rows(record.output)
    assert [row["done"] for row in rows] == [row["steps"] for row in rows] and not any("error" in row for row in rows)
    measured = sentences.read_results(record.output / "sentences.jsonl")
    assert [row["seed"] for row in measured] == [0, 1]
    # A further machine has no more than the packed files.
    other = Record("sentences", tmp_path / "second", until, small=True)
    other.output.mkdir()
    (record.output / "parts").rename(other.output / "parts")
    sentences_on_gpu.measure_part(other)
    again = sentences.read_results(other.output / "sentences.jsonl")
    assert [row["loss"] for row in again] == [row["loss"] for row in measured], "nothing is trained again"
