import re
import unicodedata

import numpy as np
import pytest
import torch
from refusals import refusal

from longhand import eval as evaluation
from longhand.data import (
    CouplingCollator,
    EvaluationBatches,
    FreshBatches,
    IndexHintedAddition,
    build_tokenizer,
    make_generator,
)
from longhand.data.collator import IGNORED
from longhand.data.columns import rows_of
from longhand.data.metrics import count_matches, right_tokens
from longhand.data.tasks.reader import digits_of
from longhand.hub_cards.checkpoints.load import read_checkpoint
from longhand.hub_cards.publishing.cards import render_card
from longhand.hub_cards.recipes import write_recipe
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.modeling.vocabulary import ALL_TOKENS, FIRST_HINT, HINTS, TOKENS, decode

COLLATOR = CouplingCollator("sequential", max_position_ids=1300)


def texts_of(examples):
    return [decode(row) for row in examples.tokens]


def start_of(text):
    """The first of the hints of a text, of all orders."""
    return min(map(HINTS.index, re.findall(f"[{HINTS}]", text)))


@pytest.mark.parametrize(
    ("order", "text"),
    [
        # The example of paper 1, Sec. 3.1, is the first.
        ("plain", "a0b6c5d3+a0b0c4d9=a0b7c0d2"),
        ("response_reversed", "a0b6c5d3+a0b0c4d9=d2c0b7a0"),
        ("all_reversed", "d3c5b6a0+d9c4b0a0=d2c0b7a0"),
    ],
)
def test_every_order_writes_the_papers_example(order, text):
    task = IndexHintedAddition(order=order)
    (written,) = texts_of(task.format(digits_of(["653", "49"]), np.array([[3, 2]])))
    assert written == f"${text.translate(str.maketrans('abcd', HINTS[:4]))}$"
    assert task.prompt_format.example == task.prompt("653+49") and task.reader.read(written.split("=")[1][:-1]) == "702"


def augmented(task, length, count, seed=0):
    examples = task.examples(make_generator(seed), np.full((count, 2), length), "train")
    return task.augment(make_generator(seed, "augment"), examples)


# Where hints start.


@pytest.mark.parametrize("order", ["response_reversed", "all_reversed", "plain"])
def test_starts_are_uniform_among_those_that_fit(order):
    count, starts = 20_000, len(HINTS) - 180
    tokens = augmented(IndexHintedAddition(order=order), 180, count).tokens
    found = np.bincount(np.where(tokens < FIRST_HINT, 255, tokens).min(1) - FIRST_HINT)
    assert len(found) == starts
    assert ((found - count / starts) ** 2).sum() / (count / starts) < starts - 1 + 5 * np.sqrt(2 * (starts - 1))


def test_fewer_hints_give_fewer_starts_and_shorter_operands():
    task = IndexHintedAddition(max_hints=7)
    assert {start_of(text) for text in texts_of(augmented(task, 4, 500))} == {0, 1, 2}
    with pytest.raises(ValueError, match="there are 7: the longest that fit have 6 digits"):
        task.prompt("1234567+1")


def batch_starts(batch):
    """The hint after each row's `$`, which is a number's first where operands are not reversed."""
    return (batch["input_ids"][:, 1] - FIRST_HINT).tolist()


def fresh(seed=0, task=None):
    return FreshBatches(task or IndexHintedAddition(), 1, 6, seed, collator=COLLATOR, batch_size=32, num_batches=20)


def test_new_batches_have_starts_that_follow_from_seed_and_index_alone():
    forward, backward = fresh(), fresh()
    first = [forward[index]["input_ids"] for index in range(20)]
    second = [backward[index]["input_ids"] for index in reversed(range(20))][::-1]
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))
    starts = [batch_starts({"input_ids": tokens}) for tokens in first]
    assert all(len(set(row)) > 16 for row in starts) and len(set(map(tuple, starts))) == 20
    assert batch_starts(fresh(seed=1)[0]) != starts[0]


# Which tokens count.


@pytest.mark.parametrize("supervise", [True, False])
def test_hints_count_only_where_they_are_supervised(supervise):
    task = IndexHintedAddition(supervise_hints=supervise)
    batch = EvaluationBatches(task, (3, 3), 4, 0, "test", 4, collator=COLLATOR)[0]
    tokens, kept = batch["input_ids"], batch["logits_to_keep"]
    right = torch.nn.functional.one_hot(tokens.roll(-1, 1), len(ALL_TOKENS)).float()
    wrong_hints = torch.where((tokens.roll(-1, 1) >= FIRST_HINT).unsqueeze(-1), 0.0, right)

    def matches(logits):
        return count_matches(*right_tokens(logits[:, -kept:], batch["labels"], ahead=1))

    for logits, exact, count in ((right, 1, 9 if supervise else 5), (wrong_hints, int(not supervise), 5)):
        assert matches(logits)[:, 0].tolist() == [exact] * 4 and matches(logits)[:, 1].tolist() == [count] * 4
    # A wrong digit counts in any case.
    right[0, -3] = right[0, -2]
    assert matches(right)[:, 0].tolist() == [0, 1, 1, 1]


def test_training_and_datasets_leave_out_the_same_labels():
    task = IndexHintedAddition(supervise_hints=False, order="plain")
    batches = FreshBatches(task, 1, 4, 0, mixed=True, collator=COLLATOR, batch_size=32, num_batches=1)
    lengths = np.array([[3, 3]])
    examples = task.format(digits_of(["653", "149"]), lengths)
    labels = rows_of(task).columns(task, digits_of(["653", "149"]), lengths, None)["labels"].to_pylist()[0]
    assert labels == COLLATOR(examples)["labels"][0].tolist() and len([label for label in labels if label >= 0]) == 5
    batch = batches[0]
    is_hint = batch["input_ids"] >= FIRST_HINT
    assert (batch["labels"][is_hint] == IGNORED).all() and (batch["labels"] != IGNORED).any(1).all()


# Questions and answers.


@pytest.mark.parametrize(
    ("response", "answer"), [("ă2ĂĂ0ā7Ā0", "702"), ("2070", "702"), ("Ā0ā0", "0"), ("Āā", ""), ("", "")]
)
def test_answers_are_read_whatever_hints_a_model_writes(response, answer):
    assert IndexHintedAddition().reader.read(response) == answer


# Vocabularies and tokenizers.


def test_hints_are_letters_of_their_own_after_all_other_tokens():
    assert len(HINTS) == len(set(HINTS)) == 202 and not set(HINTS) & set("".join(TOKENS))
    assert all(hint.isalpha() and hint.isprintable() and unicodedata.normalize("NFC", hint) == hint for hint in HINTS)
    assert ALL_TOKENS[: len(TOKENS)] == TOKENS and "".join(ALL_TOKENS[FIRST_HINT:]) == HINTS
    assert len(ALL_TOKENS) <= np.iinfo(np.uint8).max + 1


# Runs and checkpoints.


def tiny_model(task, vocab_size=None):
    config = CoupledGPTConfig(
        vocab_size=vocab_size or len(task.tokens),
        hidden_size=16,
        coupling="sequential",
        position_encoding="none",
        eos_token_id=task.end_token,
        **task.family.format_options(task),
    )
    torch.manual_seed(0)
    return CoupledGPTForCausalLM(config).eval()


def save_checkpoint(folder, task, vocab_size=None):
    model = tiny_model(task, vocab_size)
    model.save_pretrained(folder)
    build_tokenizer(task).save_pretrained(folder)
    write_recipe(task.describe(), folder / "recipe.yaml")
    return folder


def test_a_model_that_is_given_hints_is_not_asked_to_generate(tmp_path, capsys):
    task = IndexHintedAddition(supervise_hints=False)
    folder, output = save_checkpoint(tmp_path / "model", task), tmp_path / "output"
    common = [folder, "--output_dir", output, "--num_samples", "3", "--lengths", "2,5"]
    for arguments in ([*common, "--decode", "generate"], [folder, "--ask", "1+2"]):
        assert "choose --decode teacher_forced" in refusal(capsys, evaluation.main, *arguments)
        assert not output.exists()
    model = evaluation.load_checkpoint(str(folder)).model
    inputs = build_tokenizer(tokens=task.tokens)(task.prompt("653+49"), return_tensors="pt")
    with pytest.raises(ValueError, match="index hints of the response given to it"):
        model.generate(**inputs)
    evaluation.main(list(map(str, common)))
    assert (output / "results.jsonl").exists()
    assert "cannot write one by itself" in render_card(read_checkpoint(folder))


def test_answer_is_what_the_model_writes_without_its_hints(tmp_path, monkeypatch):
    checkpoint = evaluation.load_checkpoint(str(save_checkpoint(tmp_path, IndexHintedAddition())))
    sequence = checkpoint.tokenizer("Ā0ā6Ă5ă3+Ā0ā0Ă4ă9=ă2Ă0ā7Ā0$", return_tensors="pt").input_ids

    def generate(input_ids, **kwargs):
        assert torch.equal(input_ids, sequence[:, : input_ids.shape[1]])
        return sequence

    monkeypatch.setattr(checkpoint.model, "generate", generate)
    assert checkpoint.answer("653+49") == "702"
