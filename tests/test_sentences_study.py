"""The study of sums in sentences: its texts, and a run that is cut off."""

import random

import pytest
import torch

from longhand.hub_cards.research.structured import sentences
from longhand.hub_cards.research.structured.sentence_templates import TESTED, TRAINED
from longhand.hub_cards.research.structured.sentences import CONDITIONS, LLAMA, Sentences, Settings


def test_templates_have_each_number_once_and_are_not_tested_where_they_are_trained():
    for template in (*TRAINED, *TESTED):
        assert [template.count(f"{{{name}}}") for name in "abc"] == [1, 1, 1]
    assert not {*TRAINED} & {*TESTED} and len({*TRAINED}) == len(TRAINED) >= 40


def test_rows_are_right_and_always_the_same():
    settings = Settings(steps=5, batch_size=20)
    tokenizer = sentences.word_tokenizer()
    rows = Sentences(settings, tokenizer, 1)
    for index in range(len(rows)):
        row = rows[index]
        assert row == rows[index] and row != rows[index - 1] and row.keys() == {"input_ids", "labels"}
        text = tokenizer.decode([token for token in row["labels"] if token >= 0]).replace(" ", "")
        written, copy = text.removesuffix("<end>").split("=")
        assert written == copy[::-1] and tokenizer.unk_token_id not in row["input_ids"]
    draws = random.Random(0)
    for first, second in ((1, 1), (3, 5), (100, 7)):
        question, answer = sentences.draw_problem(draws, ["{a} {b} {c}"], first, second)
        numbers = [int(number) for number in question.split()[:2]]
        assert [len(str(number)) for number in numbers] == [first, second]
        assert int(answer.split("=")[1]) == sum(numbers)


@pytest.mark.slow
def test_a_run_that_is_cut_off_goes_on(tmp_path):
    settings, weights = Settings(steps=5, batch_size=4), []
    for limits in ((None,), (0.0, None)):
        folder = tmp_path / str(len(limits))
        for minutes in limits:
            torch.manual_seed(0)
            model, tokenizer = sentences.build_model(settings, "all of it", tmp_path)
            reached = sentences.train(model, Sentences(settings, tokenizer, 0), settings, 0, folder, minutes)
            assert reached["steps"] == (settings.steps if minutes is None else 1)
        weights.append(model.state_dict())
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


@pytest.mark.slow
def test_conditions_give_their_parts_and_rows_say_what_they_are_of(tmp_path):
    settings = Settings(steps=1, batch_size=2, num_samples=2, sizes=(1,))
    for condition, parts in CONDITIONS.items():
        model, _ = sentences.build_model(settings, condition, tmp_path)
        assert getattr(getattr(model, "structure_rule", None), "parts", ()) == parts
    common = {"device": "cpu", "minutes": None, "model": LLAMA, "steps": 1, "batch_size": 2, "num_samples": 2}
    for only in (["none"], ["all of it"]):
        sentences.run(tmp_path, tmp_path / "rows.jsonl", [0], only, (1,), rank=2, learning_rate=1e-3, **common)
    rows = sentences.read_results(tmp_path / "rows.jsonl")
    assert [row["condition"] for row in rows] == ["all of it", "none"]
    assert all(row["steps"] == 1 and row["num_samples"] == 2 and row["hardware"] for row in rows)
