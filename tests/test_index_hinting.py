import re
import unicodedata

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from longhand import eval as evaluation
from longhand.data import (
    TASKS,
    Addition,
    CouplingCollator,
    FixedBatches,
    FreshBatches,
    IndexHintedAddition,
    build_tokenizer,
    check_characters,
    make_generator,
)
from longhand.data.tasks.column_task import ColumnTask
from longhand.data.tasks.covering import Problems
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.hub_cards.recipes import write_recipe
from longhand.hub_cards.training.arguments import parse_run
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.modeling.vocabulary import ALL_TOKENS, BOS, CHARACTERS, FIRST_HINT, HINTS, TOKENS, UNKNOWN, decode

TASKS_OF_ALL_ORDERS = [IndexHintedAddition(order=order) for order in ("response_reversed", "all_reversed", "plain")]
COLLATOR = CouplingCollator("sequential", max_position_ids=1300)


def texts_of(examples):
    return [decode(row) for row in examples.tokens]


def start_of(text):
    """The first of the hints of a text, of all orders."""
    return min(map(HINTS.index, re.findall(f"[{HINTS}]", text)))


def augmented(task, length, count, seed=0):
    examples = task.examples(make_generator(seed), np.full((count, 2), length), "train")
    return task.augment(make_generator(seed, "augment"), examples)


# Where hints start.


@pytest.mark.parametrize("task", TASKS_OF_ALL_ORDERS)
def test_starts_are_uniform_among_those_that_fit(task):
    count, starts = 20_000, len(HINTS) - 180
    tokens = augmented(task, 180, count).tokens
    found = np.bincount(np.where(tokens < FIRST_HINT, 255, tokens).min(1) - FIRST_HINT)
    assert len(found) == starts
    assert ((found - count / starts) ** 2).sum() / (count / starts) < starts - 1 + 5 * np.sqrt(2 * (starts - 1))


def test_fewer_hints_give_fewer_starts_and_shorter_operands():
    task = IndexHintedAddition(max_hints=7)
    assert {start_of(text) for text in texts_of(augmented(task, 4, 500))} == {0, 1, 2}
    with pytest.raises(ValueError, match="there are 7: the longest that fit have 6 digits"):
        task.prompt("1234567+1")


def test_a_start_changes_the_hints_alone():
    task = IndexHintedAddition()
    before = task.examples(make_generator(0), np.full((50, 2), 6), "train")
    written = before.tokens.copy()
    after = task.augment(make_generator(1), before)
    is_hint = before.tokens >= FIRST_HINT
    assert ((after.tokens >= FIRST_HINT) == is_hint).all() and (after.tokens == before.tokens)[~is_hint].all()
    assert after.tokens.dtype == np.uint8 and (before.tokens == written).all()
    assert after.same_layout and (after.query_lengths == before.query_lengths).all()


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


def test_a_fixed_training_set_gets_new_starts_every_epoch():
    task = IndexHintedAddition()
    batches = FixedBatches(task, 64, 3, 3, 0, collator=COLLATOR, batch_size=64, num_batches=3)
    epochs = []
    for epoch in range(3):
        texts = [decode(row) for row in batches[epoch]["input_ids"].tolist()]
        epochs.append({re.sub(f"[{HINTS}]", "", text): start_of(text) for text in texts})
    assert epochs[0].keys() == epochs[1].keys() == epochs[2].keys()
    for before, after in ((0, 1), (1, 2)):
        assert sum(epochs[before][problem] == epochs[after][problem] for problem in epochs[0]) < 8
    again = FixedBatches(task, 64, 3, 3, 0, collator=COLLATOR, batch_size=64, num_batches=3)
    assert torch.equal(again[1]["input_ids"], batches[1]["input_ids"])


def test_practised_problems_get_random_starts_too():
    batches = fresh()
    batches.practise([Problems(batches.task, np.full((4, 2, 3), 7, dtype=np.uint8), np.full((4, 2), 3))])
    batch = batches[0]
    assert "7" * 3 in re.sub(f"[{HINTS}]", "", decode(batch["input_ids"][0].tolist()))
    assert len(set(batch_starts(batch))) > 16


# Which tokens count.


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


def test_other_vocabularies_are_as_large_as_ever():
    assert len(TOKENS) == CoupledGPTConfig().vocab_size == len(build_tokenizer()) == 21
    decoders = {
        name: task for name, task in TASKS.items() if issubclass(task, DecoderTask) and not issubclass(task, ColumnTask)
    }
    larger = {name: len(task().tokens) for name, task in decoders.items() if len(task().tokens) != 21}
    assert larger == {"division": 22, "index_hinted_addition": 224}
    assert parse_run(["addition"]).config.vocab_size == 21
    assert build_tokenizer()("Ā").input_ids == [BOS, UNKNOWN]


def test_tokenizer_of_a_larger_vocabulary_is_reloaded_whole(tmp_path):
    build_tokenizer(tokens=ALL_TOKENS).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert len(tokenizer) == tokenizer.vocab_size == len(ALL_TOKENS)
    text = "".join(ALL_TOKENS)
    ids = tokenizer(text).input_ids
    assert ids == [BOS, *range(len(ALL_TOKENS))] and tokenizer.decode(ids) == f"${text}"
    assert tokenizer(chr(ord(HINTS[-1]) + 1)).input_ids == [BOS, UNKNOWN]
    assert tokenizer.decode(ids, skip_special_tokens=True) == CHARACTERS.replace("$", "") + "/" + HINTS


def test_hints_are_characters_of_the_larger_vocabulary_alone():
    check_characters(CHARACTERS + "/" + HINTS, ALL_TOKENS)
    with pytest.raises(
        ValueError, match=f"^character 'Ā' at place 1 of '1Ā' is not in the vocabulary {re.escape(repr(CHARACTERS))}$"
    ):
        check_characters("1Ā")
    with pytest.raises(ValueError, match="'a' at place 1 of 'Āa'"):
        check_characters("Āa", ALL_TOKENS)


# Runs and checkpoints.


def tiny_model(task, vocab_size=None):
    config = CoupledGPTConfig(
        vocab_size=vocab_size or len(task.tokens),
        hidden_size=16,
        coupling="sequential",
        position_encoding="none",
        eos_token_id=task.end_token,
    )
    torch.manual_seed(0)
    return CoupledGPTForCausalLM(config).eval()


def save_checkpoint(folder, task, vocab_size=None):
    model = tiny_model(task, vocab_size)
    model.save_pretrained(folder)
    build_tokenizer(task.end_token, task.tokens).save_pretrained(folder)
    write_recipe(task.describe(), folder / "recipe.yaml")
    return folder


def test_a_model_that_learns_hints_generates(tmp_path, capsys):
    folder = save_checkpoint(tmp_path / "model", IndexHintedAddition())
    checkpoint = evaluation.load_checkpoint(str(folder))
    lengths = evaluation.check_lengths(checkpoint.model, checkpoint.task, [(2, 2)])
    rows = evaluation.evaluate_lengths(checkpoint, lengths, num_samples=3, decode="generate")
    assert rows[0]["decode"] == "generate"
    evaluation.main([str(folder), "--ask", "1+2"])


def test_answer_is_what_the_model_writes_without_its_hints(tmp_path, monkeypatch):
    checkpoint = evaluation.load_checkpoint(str(save_checkpoint(tmp_path, IndexHintedAddition())))
    sequence = checkpoint.tokenizer("Ā0ā6Ă5ă3+Ā0ā0Ă4ă9=ă2Ă0ā7Ā0$", return_tensors="pt").input_ids

    def generate(input_ids, **kwargs):
        assert torch.equal(input_ids, sequence[:, : input_ids.shape[1]])
        return sequence

    monkeypatch.setattr(checkpoint.model, "generate", generate)
    assert checkpoint.answer("653+49") == "702"


def test_a_checkpoint_without_hints_cannot_be_evaluated_on_them(tmp_path):
    folder = save_checkpoint(tmp_path, Addition(), vocab_size=21)
    (folder / "recipe.yaml").unlink()
    with pytest.raises(ValueError, match="has a vocabulary of 21 tokens, but the task 'index_hinted_addition' needs 224"):
        evaluation.load_checkpoint(str(folder), task="index_hinted_addition")
