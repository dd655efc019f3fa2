"""One encoder that adds and multiplies, with heads for each (paper 2, Sec. 3.3, Fig. 6)."""

import numpy as np
import pytest
import torch
from refusals import refusal

from longhand import eval as evaluation
from longhand import train as training
from longhand.data import EncoderCalculator, FreshBatches, load_task_dataset
from longhand.data.collator import collate_labels
from longhand.hub_cards.result_rows import read_results
from longhand.modeling.vocabulary import ENCODER_TOKENS, FIRST_TEXT, PLUS, TIMES

TASK = EncoderCalculator(field_width=9, text_tokens=2)


def test_fields_are_handed_on_to_the_members_that_have_them():
    sums, products = EncoderCalculator(field_width=9, text_tokens=2, multiplier_length=3).parts
    assert (sums.field_width, products.field_width, sums.text_tokens, products.multiplier_length) == (9, 9, 2, 3)
    assert TASK.most_text == sums.most_text


def test_batches_hold_sums_or_products_alike_often_with_text_around_them():
    batches = FreshBatches(TASK, 1, 4, 0, collator=collate_labels, batch_size=16, num_batches=60)
    tokens = [batches[index]["input_ids"] for index in range(60)]
    sums = [bool((batch == PLUS).any()) for batch in tokens]
    assert all((batch == (PLUS if is_sum else TIMES)).sum(1).eq(1).all() for batch, is_sum in zip(tokens, sums, strict=True))
    assert 15 < sum(sums) < 45 and all((batch >= FIRST_TEXT).any() for batch in tokens)


@pytest.mark.parametrize(("question", "prompt"), [("12+34", "_______12+_______34"), ("7*34", "7*_______34")])
def test_a_question_goes_to_the_part_that_it_is_of(question, prompt):
    assert TASK.prompt(question) == prompt
    assert TASK.prompt_format.fault(f"ab{prompt}") is None and TASK.prompt_format.fault("12-3") is not None


@pytest.mark.parametrize("question", ["Add 12 + 34!", "Größe: 7*34 ∑?", "12\tapples+34 = \n", "x 0*0"])
def test_text_of_any_characters_around_a_question_becomes_letters(question):
    """Numbers, operator and the tokens with labels are those of the question without its text."""
    prompt = TASK.prompt(question)
    plain = TASK.prompt("".join(character for character in question if character in "0123456789+*"))
    assert "".join(character for character in prompt if not "a" <= character <= "z") == plain
    tokens, alone = (np.array([ENCODER_TOKENS.index(character) for character in text]) for text in (prompt, plain))
    part = TASK.part_of(question)
    assert np.array_equal(part.has_label(tokens)[tokens < FIRST_TEXT], part.has_label(alone))
    assert not part.has_label(tokens)[tokens >= FIRST_TEXT].any()
    assert TASK.prompt_format.fault(prompt) is None


@pytest.mark.parametrize("question", ["1 or 12+34", "12+34 and 5", "C++ 12+34", "12+x34", "3-4"])
def test_other_numbers_and_signs_in_the_text_are_refused(question):
    with pytest.raises(ValueError, match="such as"):
        TASK.prompt(question)


def test_a_task_without_text_takes_none():
    with pytest.raises(ValueError, match="such as"):
        EncoderCalculator(field_width=9).prompt("Add 12+34")


def test_rows_of_both_tasks_stand_in_one_dataset():
    rows = load_task_dataset("encoder_calculator", max_length=3, num_samples=200, streaming=True)
    assert {row["task"] for row in rows} == {"encoder_addition", "encoder_multiplication"}


def test_a_run_is_trained_evaluated_and_asked_part_by_part(tmp_path, capsys):
    folder = tmp_path / "run"
    sizes = "--hidden_size 16 --num_hidden_layers 1 --intermediate_size 16 --max_length 2 --batch_size 8 --max_steps 4"
    lengths = "--eval_steps 2 --validation_lengths 2 --test_lengths 2 --test_samples 4 --validation_samples 4"
    training.main(["encoder-calculator", *sizes.split(), *lengths.split(), "--output_dir", str(folder)])
    assert {row["task"] for row in read_results(folder / "results.jsonl")} == {"encoder_addition", "encoder_multiplication"}
    checkpoint = evaluation.load_checkpoint(str(folder))
    assert all(checkpoint.answer(question).isdigit() or checkpoint.answer(question) == "" for question in ("12+34", "7*34"))
    assert checkpoint.model.config.head_maps == ["add", "add", "multiply", "multiply"]
    assert {*checkpoint.answer("Please add 12 + 34!")} <= {*"0123456789_"}
    texts = [f"ab{checkpoint.task.prompt(question)}c" for question in ("12+34", "7*34")]
    inputs = checkpoint.tokenizer(texts, return_tensors="pt", padding=True)
    with torch.inference_mode():
        assert np.isfinite(checkpoint.model(**inputs).logits.numpy()).all()
    card = (folder / "README.md").read_text()
    assert "in sums alone (`add`)" in card and "in products alone (`multiply`)" in card
    refused = refusal(capsys, training.main, "encoder-calculator", "--label_states", "True", "--output_dir", tmp_path / "no")
    assert "has no cases of its own" in refused or "label_states" in refused
