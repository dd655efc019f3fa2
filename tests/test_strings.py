import itertools
import re

import numpy as np
import pytest
import torch

from longhand.data import SPLITS, TASKS, Copy, CouplingCollator, EvaluationBatches, Parity, Reverse, make_generator
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.relations import NOT_RELATED, coupled_pair_map
from longhand.modeling.vocabulary import decode

ANSWERS = {
    Copy(): lambda text: text,
    Reverse(): lambda text: text[::-1],
    Parity(): lambda text: "".join(str(text[: end + 1].count("1") % 2) for end in range(len(text))),
    Parity(scratchpad=False): lambda text: str(text.count("1") % 2),
}
every_task = pytest.mark.parametrize("task", ANSWERS, ids=lambda task: f"{task.name}-{getattr(task, 'scratchpad', '')}")
windowed_tasks = pytest.mark.parametrize("task", [Copy(), Reverse(), Parity()], ids=lambda task: task.name)


@pytest.mark.parametrize(("task", "question", "text"), [
    (Copy(), "1809", "$1809=1809$"),
    (Reverse(), "5962", "$5962=2695$"),
    (Parity(), "1011", "$1011=1101$"),
    (Parity(scratchpad=False), "1011", "$1011=1$"),
    (Copy(separate_eos=True), "0", "$0=0<eos>"),
])  # fmt: skip
def test_text_of_a_string(task, question, text):
    digits = np.array([[[int(symbol) for symbol in question]]], dtype=np.uint8)
    assert decode(task.format(digits, np.array([[len(question)]])).tokens[0]) == text
    assert f"${task.prompt(question)}" == text[: text.index("=") + 1]


@every_task
@pytest.mark.parametrize("length", [1, 2, 7, 100])
def test_every_response_is_made_again_from_the_text(task, length):
    examples = task.examples(make_generator(length), np.full((300, 1), length), "train")
    assert examples.same_layout
    for tokens, query in zip(examples.tokens, examples.query_lengths, strict=True):
        text = decode(tokens)
        assert text.index("=") + 1 == query == length + 2
        string = text[1 : query - 1]
        assert text == f"${string}={ANSWERS[task](string)}$"
        assert task.reader.read(text[query:-1]) == ANSWERS[task](string)[-1 if task.name == "parity" else 0 :]


@every_task
def test_all_strings_are_equally_likely(task):
    drawn = task.draw_operands(make_generator(0), np.full((80_000, 1), 2))[:, 0]
    counts = np.bincount(drawn @ [task.symbols, 1], minlength=task.symbols**2)
    share = 80_000 / task.symbols**2
    assert len(counts) == task.symbols**2 and np.abs(counts - share).max() < 5 * share**0.5


@every_task
def test_lengths_are_uniform_and_a_group_has_one(task):
    lengths = task.sample_lengths(make_generator(0), 30_000, 3, 5)
    assert lengths.shape == (30_000, 1) and np.abs(np.bincount(lengths[:, 0])[3:] - 10_000).max() < 400
    same_group, same_length = (np.equal.outer(values, values) for values in (task.group(lengths[:99]), lengths[:99, 0]))
    assert (same_group == same_length).all()
    assert (task.group_lengths(make_generator(0), lengths[0], 9, 3) == lengths[0]).all()
    with pytest.raises(ValueError, match="must have one longest operand, got 2 and 3 digits"):
        task.format(np.zeros((2, 1, 3), dtype=np.uint8), np.array([[3], [2]]))


@every_task
def test_short_strings_belong_to_one_split(task):
    lengths = np.full((200, 1), 9)
    drawn = {split: {bytes(row) for row in task.draw(make_generator(0), lengths, split)[:, 0]} for split in SPLITS}
    for first, second in itertools.combinations(SPLITS, 2):
        assert not drawn[first] & drawn[second]
    # Bits are few: far longer strings of them are kept apart too.
    long = task.draw_operands(make_generator(1), np.full((50, 1), 40))
    assert (task.split_of(long, np.full((50, 1), 40)) >= 0).all() == (task.name == "parity")


def test_the_answer_of_a_scratchpad_is_its_last_parity():
    assert Parity().answer_length((9,)) == 2
    assert Parity(scratchpad=False).answer_length((9,)) is None and Copy().answer_length((9,)) is None


def seen(task, strings):
    """What every token of the responses sees, the token first, and what comes next."""
    examples = task.format(strings[:, None], np.full((len(strings), 1), strings.shape[1]))
    batch = CouplingCollator(task.coupling, 100)(examples)
    relations = COUPLING_RULES[task.coupling].relations
    related = coupled_pair_map(batch["position_ids"], batch["position_ids"], relations, True)[0]
    tokens = batch["input_ids"]
    for column in range(tokens.shape[1] - batch["logits_to_keep"], tokens.shape[1] - 1):
        keys = [key for key in range(1, column + 1) if related[column, key] != NOT_RELATED]
        for row in tokens.tolist():
            yield (row[column], *((int(related[column, key]), row[key]) for key in keys)), row[column + 1]


@windowed_tasks
def test_other_windows_are_refused(task):
    for window, layers in (((0, 1), 1), (((0,),), 1), (COUPLING_RULES[task.coupling].relations, 2)):
        with pytest.raises(ValueError, match=f"neighbourhoods of {task.name} have been worked out for one layer"):
            task.covering(window, layers)
    with pytest.raises(ValueError, match="depends on the whole string"):
        Parity(scratchpad=False).covering(((-1,),), 1)


@every_task
@pytest.mark.parametrize("question", ["", "=", "a", "12+3", "1 2", "1==", "-1"])
def test_other_questions_are_refused(task, question):
    with pytest.raises(ValueError, match=f"^the question {re.escape(repr(question))} is not a string"):
        task.prompt(question)


def test_a_digit_is_no_bit():
    with pytest.raises(ValueError, match="'102' is not a string of 0 to 1"):
        Parity().prompt("102")


@every_task
def test_format_describes_itself(task):
    description = task.describe()
    assert TASKS[description.pop("task")](**description) == task
    assert task.prompt(task.example_question) == task.example_question + "="
    with pytest.raises(ValueError, match="separate_eos must be True or False"):
        type(task)(separate_eos="yes")
    with pytest.raises(ValueError, match="have one size"):
        task.operand_lengths(3, 4)


def test_scratchpad_must_be_a_bool():
    with pytest.raises(ValueError, match="scratchpad must be True or False, got 1"):
        Parity(scratchpad=1)


@every_task
def test_evaluation_batches_fit_the_model(task):
    batch = EvaluationBatches(task, (6,), 5, 0, "test", 5, collator=CouplingCollator(task.coupling, 30))[0]
    assert len(batch["position_ids"]) == 1 and torch.equal(batch["labels"][:, 8:], batch["input_ids"][:, 8:])
