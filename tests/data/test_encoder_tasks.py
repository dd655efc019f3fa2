"""Sums and products in the encoder's format."""

import inspect
import math
import re

import numpy as np
import pytest
import torch

from longhand.data import EncoderAddition, EncoderMultiplication, FixedBatches, make_generator
from longhand.data.collator import IGNORED, collate_labels
from longhand.data.families import ENCODER
from longhand.data.metrics import count_matches, right_tokens
from longhand.data.tasks.complexity import cascade_lengths, dependency_lengths
from longhand.data.tasks.reader import digits_of
from longhand.hub_cards.research.theories.complexity import dependency_distribution
from longhand.modeling.vocabulary import ENCODER_TOKENS, LABELS, PAD


def text(tokens) -> str:
    return "".join("" if token == PAD else ENCODER_TOKENS[token] for token in tokens)


def examples_of(task, count=200, length=5, split="train", seed=0):
    lengths = task.group_lengths(None, task.sample_lengths(make_generator(0), 1, 1, length)[0], count, 1)
    return task.examples(make_generator(seed), lengths, split)


def numbers(row) -> tuple[int, int]:
    """The two numbers of a row of tokens, text and padding left out."""
    first, second = re.split("[+*]", re.sub("[a-z_]", "", text(row)))
    return int(first), int(second)


def drawings(task) -> list[tuple[str, str]]:
    """Pairs of an input and its labels, `.` where there is none, that a task's docstring shows side by side."""
    ((inputs, labels),) = re.findall("^ +input(.+)\n +label(.+)$", inspect.getdoc(task), re.M)
    parts = ([part.replace(" ", "") for part in re.split("input|label", line)] for line in (inputs, labels))
    return list(zip(*parts, strict=True))


@pytest.mark.parametrize(
    "tasks",
    [
        [EncoderAddition()],
        [EncoderMultiplication(multiplier_length=2), EncoderMultiplication(multiplier_length=2, spill=True)],
    ],
)
def test_docstring_drawings_are_what_the_tasks_write(tasks):
    for task, (written, labels) in zip(tasks, drawings(type(tasks[0])), strict=True):
        first, second = numbers(map(ENCODER_TOKENS.index, written))
        digits = np.array([[[int(digit) for digit in f"{number:06}"[::-1]] for number in (first, second)]], np.uint8)
        examples = task.write(digits, len(written) - re.search("[+*]", written).end())
        assert text(examples.tokens[0]) == written
        assert "".join("." if label == IGNORED else LABELS[label] for label in examples.labels[0]) == labels


def test_examples_of_the_paper():
    digits = np.zeros((1, 2, 20), dtype=np.uint8)
    digits[0, 0, :3], digits[0, 1, :4] = (3, 2, 1), (5, 9, 0, 4)
    sums = EncoderAddition(field_width=20).write(digits, 20)
    assert text(sums.tokens[0]) == "_" * 17 + "123+" + "_" * 16 + "4095"
    assert [label for label in sums.labels[0] if label != IGNORED] == [10] * 17 + [4, 2, 1, 8]
    digits[0, 0, :3], digits[0, 1, :4] = (6, 5, 0), (7, 9, 2, 4)
    products = EncoderMultiplication(field_width=20, multiplier_length=2, spill=True).write(digits, 20)
    assert text(products.tokens[0]) == "56*" + "_" * 16 + "4297"
    assert products.labels[0].tolist() == [IGNORED, *[10] * 16, 2, 4, 0, 6, 3, 2]


def test_shifting_appends_the_same_zeros_to_both_numbers():
    task = EncoderAddition(field_width=8, sampling="shifted")
    digits = task.draw_operands(make_generator(2), np.full((30_000, 1), 1))
    values = digits.astype(np.int64) @ 10 ** np.arange(8)
    both = (values > 0).all(axis=1)
    zeros = (
        np.log10(values[both] // (values[both] / 10.0 ** np.floor(np.log10(values[both]))).astype(int)).round().astype(int)
    )
    assert (zeros[:, 0] == zeros[:, 1]).all()
    assert (abs(np.bincount(zeros[:, 0], minlength=8) / both.sum() - 1 / 8) < 0.01).all()


def test_sparse_products_have_every_share_of_zeros_alike():
    task = EncoderMultiplication(multiplier_length=3, sampling="sparse")
    digits = task.draw_operands(make_generator(2), np.full((30_000, 1), 5))
    assert (digits[:, 0, 2] > 0).all() and (digits[:, 0, 3:] == 0).all()
    # A digit is 0 in a share p of a problem, p uniform in 0..1, and in a tenth of the rest: k of 7 digits that are not the
    # multiplier's first are left with probability 1/8 before that tenth is taken off.
    drawn = (digits[:, 1] > 0).sum(axis=1) + (digits[:, 0, :2] > 0).sum(axis=1)
    expected = [sum(math.comb(kept, k) * 0.9**k * 0.1 ** (kept - k) / 8 for kept in range(8)) for k in range(8)]
    assert (abs(np.bincount(drawn, minlength=8) / 30_000 - expected) < 0.01).all()


@pytest.mark.parametrize("sampling", EncoderAddition.class_samplings)
def test_classes_hold(sampling):
    task = EncoderAddition(sampling=sampling)
    lengths = np.array([[30, longest] for longest in (0, 1, 5, 12, 30) for _ in range(20)])
    digits = task.draw(make_generator(3), lengths, "test")
    longest = (
        cascade_lengths(digits[:, 0], digits[:, 1])
        if sampling == "cascades"
        else [
            max(map(len, re.findall("1*", "".join(map(str, row))))) for row in (digits.sum(axis=1) > 9).astype(int).tolist()
        ]
    )
    assert list(longest) == lengths[:, 1].tolist()
    assert task.operand_lengths(30, 7) == (30, 7) and task.for_evaluation is task


def test_complexity_is_uniform_or_half_uniform():
    for sampling, rest in (("uniform_complexity", 0.0), ("mixed", 0.5)):
        digits = EncoderAddition(sampling=sampling).draw_operands(make_generator(4), np.full((30_000, 1), 5))
        found = np.bincount(cascade_lengths(digits[:, 0], digits[:, 1]), minlength=6) / 30_000
        plain = EncoderAddition().draw_operands(make_generator(5), np.full((30_000, 1), 5))
        uniform = np.bincount(cascade_lengths(plain[:, 0], plain[:, 1]), minlength=6) / 30_000
        assert (abs(found - (1 - rest) / 6 - rest * uniform) < 0.015).all()


@pytest.mark.parametrize("sampling", ["uniform_complexity", "mixed", "dependencies"])
def test_products_are_drawn_by_their_dependency_length(sampling):
    task = EncoderMultiplication(sampling=sampling)
    lengths = task.sample_lengths(make_generator(3), 30_000, 1, 5)
    digits = task.draw_operands(make_generator(4), lengths)
    found = np.bincount(dependency_lengths(digits[:, 0, :1], digits[:, 1]), minlength=6) / 30_000
    rest = 0.5 if sampling == "mixed" else 0
    assert (abs(found - (1 - rest) / 6 - rest * dependency_distribution(5)) < 0.015).all()
    assert (digits[:, 0, 0] > 0).all() and not digits[:, 0, 1:].any()
    if sampling == "dependencies":
        assert (dependency_lengths(digits[:, 0, :1], digits[:, 1]) == lengths[:, 1]).all()
        assert task.operand_lengths(30, 7) == (30, 7) and task.for_evaluation is task
    else:
        assert task.for_evaluation == EncoderMultiplication()
    with pytest.raises(ValueError, match="known for a multiplier_length of 1, not 3"):
        EncoderMultiplication(sampling=sampling, multiplier_length=3)


@pytest.mark.parametrize(
    "task",
    [
        EncoderAddition(field_width=7, sampling="shifted"),
        EncoderAddition(field_width=6, sampling="shifted", text_tokens=3),
        EncoderMultiplication(field_width=7, sampling="shifted", multiplier_length=2),
        EncoderMultiplication(field_width=6, sampling="shifted", multiplier_length=2, spill=True, text_tokens=2),
    ],
    ids=repr,
)
def test_a_training_set_shows_all_shifted_versions_of_its_problems_in_time(task):
    def problems(examples):
        return {numbers(row) for row in examples.tokens}

    def make():
        return FixedBatches(task, 32, 1, 2, seed=0, collator=collate_labels, batch_size=32, num_batches=200)

    batches, again, seen = make(), make(), set()
    room = task.field_width - task.needed_field(0)
    moves_first = task.sign == "+"
    shifted = set()
    for first, second in problems(batches.groups[0]):
        longest = len(str(max(first, second))) if moves_first else len(str(second))
        shifted |= {(first * 10 ** (zeros * moves_first), second * 10**zeros) for zeros in range(room - longest + 1)}
    for index in range(100):
        examples, _ = batches.global_batch(index)
        seen |= problems(examples)
        for row, labels in zip(examples.tokens, examples.labels, strict=True):
            first, second = numbers(row)
            answer = int("".join(str(label) for label in labels if 0 <= label <= 9))
            assert answer == (first + second if moves_first else first * second)
    is_trained = {
        problem
        for problem in shifted
        if task.split_of(digits_of([str(number) for number in problem]), np.array([[len(str(n)) for n in problem]]))[0] <= 0
    }
    assert seen == is_trained and len(seen) > 3 * 32
    one, other = batches.global_batch(101)[0], again.global_batch(101)[0]
    assert np.array_equal(one.tokens, other.tokens) and np.array_equal(one.labels, other.labels)


def test_no_column_carries_without_carries():
    digits = EncoderAddition(sampling="no_carries").draw_operands(make_generator(6), np.full((5000, 1), 4))
    assert digits.sum(axis=1).max() == 9
    pairs = np.bincount((digits[:, 0] * 10 + digits[:, 1]).ravel(), minlength=100)
    assert (pairs > 0).sum() == 55 and pairs[pairs > 0].min() > 20_000 / 55 * 0.7


def test_fields_vary_in_training_and_are_as_narrow_as_can_be_in_evaluation():
    task = EncoderAddition(field_width=9, varied_field=True)
    widths = {examples_of(task, count=2, seed=seed).tokens.shape[1] for seed in range(100)}
    assert widths == {2 * width + 1 for width in range(5, 10)}
    assert examples_of(task.for_evaluation, length=30).tokens.shape[1] == 61
    assert EncoderAddition(field_width=9, sampling="mixed").for_evaluation == EncoderAddition(field_width=9)
    assert EncoderMultiplication(sampling="shifted").for_evaluation == EncoderMultiplication()


def test_collator_masks_only_padding_of_the_batch():
    batch = collate_labels(examples_of(EncoderAddition(field_width=6)))
    assert set(batch) == {"input_ids", "labels"} and batch["labels"].dtype == torch.int64
    examples = examples_of(EncoderAddition(field_width=6, text_tokens=5))
    batch = collate_labels(examples)
    assert torch.equal(batch["attention_mask"] == 0, batch["input_ids"] == PAD)
    assert (batch["labels"][batch["input_ids"] == PAD] == IGNORED).all()


def test_tokenizer_gives_a_token_for_every_character_and_pads_on_the_right():
    tokenizer = ENCODER.tokenizer(EncoderAddition())
    batch = tokenizer(["_123+4095", "ab*z"], padding=True)
    assert [text(tokens) for tokens in batch.input_ids] == ["_123+4095", "ab*z"]
    assert batch.attention_mask == [[1] * 9, [1] * 4 + [0] * 5]
    assert tokenizer.decode(batch.input_ids[1], skip_special_tokens=True) == "ab*z"
    assert tokenizer("1?").input_ids == [1, ENCODER_TOKENS.index("<unk>")]


def test_matches_count_supervised_labels_at_the_tokens_themselves():
    labels = torch.tensor([[IGNORED, 3, 10], [IGNORED, 3, 10], [5, IGNORED, IGNORED]])
    predicted = torch.tensor([[7, 3, 10], [7, 3, 9], [5, 0, 0]])
    logits = torch.nn.functional.one_hot(predicted, len(LABELS)).float()
    right, supervised = right_tokens(logits, labels, 0)
    assert count_matches(right, supervised).tolist() == [[1, 2, 2], [0, 1, 2], [1, 1, 1]]
    assert right.tolist() == [[False, True, True], [False, True, False], [True, False, False]]
    assert torch.equal(supervised, labels != IGNORED)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: EncoderAddition(varied_field=True), "varied_field needs field_width"),
        (lambda: EncoderAddition(text_tokens=10**9), "text_tokens must be an integer from 0 to 1,000,000"),
        (lambda: EncoderMultiplication().prompt("56*653"), "must have multiplier_length = 1 digits, got 2"),
        (
            lambda: examples_of(EncoderAddition(field_width=4)),
            "numbers and answers of 5 digits do not fit into field_width = 4",
        ),
        (lambda: EncoderAddition().sample_lengths(None, 1, 2, 5), "min_length must be 1, got 2"),
        (lambda: EncoderAddition().operand_lengths(5, 3), "have one size, digits, not two"),
        (lambda: EncoderAddition(sampling="cascades").operand_lengths(5, 6), "have a class of 0..5, got 6"),
        (lambda: ENCODER.check_generation(EncoderAddition()), "is an encoder and generates nothing"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


@pytest.mark.parametrize(("task", "first"), [(EncoderAddition(), 3), (EncoderMultiplication(multiplier_length=2), 2)])
def test_the_tokens_that_decide_a_label_are_those_whose_digits_change_it(task, first):
    """Sigma of paper 2: every other token may change as it likes, and each of these changes the label of some problem."""
    generator = make_generator(0)
    digits = generator.integers(0, 10, size=(4000, 2, 3), dtype=np.uint8)
    digits[:, 0, first:] = 0
    # A new leading zero would be a pad.
    digits[:, 0, first - 1] = generator.integers(1, 10, size=4000)
    digits[:, 1, 2] = generator.integers(1, 10, size=4000)
    width = 3 if first == 3 else 5
    before = task.write(digits, width)
    decides, last = task.deciding_keys(before.tokens[0]), before.tokens.shape[1] - 1
    for number, place in [*((0, place) for place in range(first)), *((1, place) for place in range(3))]:
        changed = digits.copy()
        changed[:, number, place] = digits[:, number, place] % 9 + 1
        key = last - place if number else last - width - 1 - place
        found = (task.write(changed, width).labels != before.labels).any(axis=0)
        assert np.array_equal(found, decides[:, key])
