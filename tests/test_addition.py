import itertools
import re

import numpy as np
import pytest

from longhand.data import SPLITS, TASKS, Addition, make_generator
from longhand.data.splits import problem_keys, split_of
from longhand.modeling.vocabulary import decode

ORDERS = ("response_reversed", "all_reversed", "plain")
FORMATS = [Addition(zero_padding=padding, order=order) for padding in (True, False) for order in ORDERS]
ALL_FORMATS = [
    Addition(zero_padding=padding, order=order, separate_eos=eos)
    for padding, order, eos in itertools.product((True, False), ORDERS, (False, True))
]
WRITTEN = {
    (True, "response_reversed"): "$653+049=2070$",
    (True, "all_reversed"): "$356+940=2070$",
    (True, "plain"): "$653+049=0702$",
    (False, "response_reversed"): "$653+49=207$",
    (False, "all_reversed"): "$356+94=207$",
    (False, "plain"): "$653+49=702$",
}


def write(task, first, second):
    """The text of one problem."""
    lengths = np.array([[len(str(first)), len(str(second))]])
    width = lengths.max()
    digits = [[[int(digit) for digit in str(number).zfill(width)[::-1]] for number in (first, second)]]
    return decode(task.format(np.array(digits, dtype=np.uint8), lengths).tokens[0])


def texts_of(examples):
    return [decode(row) for row in examples.tokens]


def expected_text(task, first, second, width):
    """The text of a problem, made of Python integers; `width` is the longer operand's number of digits."""
    numbers = [str(first), str(second), str(first + second)]
    if task.zero_padding:
        numbers = [number.zfill(size) for number, size in zip(numbers, (width, width, width + 1), strict=True)]
    reverse = {"response_reversed": (0, 0, 1), "all_reversed": (1, 1, 1), "plain": (0, 0, 0)}[task.order]
    first, second, total = (text[::-1] if flip else text for text, flip in zip(numbers, reverse, strict=True))
    return f"${first}+{second}={total}{'<eos>' if task.separate_eos else '$'}"


@pytest.mark.parametrize("task", FORMATS)
def test_format_is_written_as_in_the_paper(task):
    text = WRITTEN[task.zero_padding, task.order]
    assert write(task, 653, 49) == text


@pytest.mark.parametrize("task", ALL_FORMATS)
def test_text_of_every_example_is_the_sum_of_its_operands(task):
    for width in (1, 2, 5, 19, 40):
        if task.zero_padding:
            lengths = task.group_lengths(make_generator(width), np.array([width, width]), 200, 1)
        else:
            lengths = task.sample_lengths(make_generator(width), 200, 1, width)
        texts = texts_of(task.examples(make_generator(width, 1), lengths, "train"))
        assert len(texts) == 200
        for text, row in zip(texts, lengths.tolist(), strict=True):
            operands = re.fullmatch(r"\$([0-9]+)\+([0-9]+)=[0-9]+(?:\$|<eos>)", text).groups()
            flip = -1 if task.order == "all_reversed" else 1
            first, second = (int(operand[::flip]) for operand in operands)
            assert [len(str(first)), len(str(second))] == row
            assert text == expected_text(task, first, second, max(row))


@pytest.mark.parametrize("task", ALL_FORMATS)
def test_query_length_counts_tokens_up_to_the_equals_sign(task):
    lengths = np.array([[4, 4], [4, 1], [2, 4]])
    examples = task.examples(make_generator(0), lengths, "train")
    texts = texts_of(examples)
    assert examples.query_lengths.tolist() == [text.index("=") + 1 for text in texts]


@pytest.mark.parametrize("task", FORMATS)
def test_full_carry_chain_adds_a_digit(task):
    digits = str(10**30) if task.order == "plain" else str(10**30)[::-1]
    assert write(task, 10**30 - 1, 1).endswith(f"={digits}$")


@pytest.mark.parametrize("order", ORDERS)
def test_unpadded_batch_of_mixed_lengths_is_padded_on_the_right_only(order):
    task = Addition(zero_padding=False, order=order)
    examples = task.examples(make_generator(0), np.array([[1, 9], [9, 9], [2, 3]]), "train")
    assert not examples.same_layout
    for row, text in zip(examples.tokens, texts_of(examples), strict=True):
        assert decode(row[: len(text)]) == text


@pytest.mark.parametrize("lengths", [[[3, 3], [2, 2]], [[1, 1], [1, 2]], [[5, 5], [4, 4], [5, 1]]])
def test_mixed_lengths_in_one_zero_padded_batch_are_refused(lengths):
    with pytest.raises(ValueError, match="must have one longest operand"):
        Addition().examples(make_generator(0), np.array(lengths), "train")


@pytest.mark.parametrize(("low", "high"), [(1, 6), (3, 7), (4, 4)])
def test_lengths_of_each_operand_are_uniform_and_independent(low, high):
    lengths = Addition().sample_lengths(make_generator(0), 60_000, low, high)
    assert lengths.min() == low and lengths.max() == high
    size = high - low + 1
    counts = np.bincount((lengths[:, 0] - low) * size + lengths[:, 1] - low, minlength=size**2)
    assert np.abs(counts - 60_000 / size**2).max() <= 4.5 * np.sqrt(60_000) / size


@pytest.mark.parametrize("min_length", [1, 3])
@pytest.mark.parametrize("longest", [3, 4, 7])
def test_group_lengths_are_sampled_lengths_given_their_maximum(min_length, longest):
    task, count = Addition(), 30_000
    pairs = [pair for pair in itertools.product(range(min_length, longest + 1), repeat=2) if max(pair) == longest]
    sampled = task.sample_lengths(make_generator(0), 4 * count, min_length, longest)
    sampled = sampled[task.group(sampled) == longest]
    drawn = task.group_lengths(make_generator(1), np.array([min_length, longest]), count, min_length)
    assert drawn.shape == (count, 2)
    for lengths in (sampled, drawn):
        counts = np.array([(lengths == pair).all(axis=1).sum() for pair in pairs])
        assert counts.sum() == len(lengths)
        share = 1 / len(pairs)
        assert np.abs(counts - len(lengths) * share).max() <= 4.5 * np.sqrt(len(lengths) * share * (1 - share))


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("lengths", [(1, 1), (1, 2), (2, 3), (9, 9)])
def test_short_draws_belong_to_the_asked_split(split, lengths):
    rows = np.tile(lengths, (300, 1))
    digits = Addition().draw(make_generator(0), rows, split)
    assert (split_of(problem_keys(digits, rows)) == SPLITS.index(split)).all()


def test_draws_of_mixed_lengths_keep_lengths_and_split():
    lengths = make_generator(0).integers(1, 14, size=(2000, 2))
    digits = Addition().draw(make_generator(1), lengths, "test")
    assigned = split_of(problem_keys(digits, lengths))
    assert set(assigned.tolist()) == {-1, SPLITS.index("test")}
    place = np.arange(digits.shape[2])
    significant = np.where(digits > 0, place + 1, 1).max(axis=2)
    assert (significant == lengths).all()


def test_draws_of_one_split_are_uniform_over_its_problems():
    lengths = np.ones((40_000, 2), dtype=int)
    digits = Addition().draw(make_generator(0), lengths, "train")[:, :, 0]
    counts = np.bincount(digits[:, 0] * 10 + digits[:, 1], minlength=100)
    counts = counts[counts > 0]
    expected = 40_000 / len(counts)
    assert len(counts) > 70 and np.abs(counts - expected).max() < 5 * np.sqrt(expected)


@pytest.mark.parametrize("split", ["dev", "", "Train", "-1"])
def test_unknown_split_is_refused_with_the_choices(split):
    with pytest.raises(ValueError, match=f"{re.escape(repr(split))}.*train, validation, test"):
        Addition().draw(make_generator(0), np.array([[2, 2]]), split)


@pytest.mark.parametrize("task", FORMATS)
def test_answer_is_read_back_as_the_integer_sum(task):
    generator = make_generator(0)
    numbers = [(0, 0), (0, 7), (653, 49), (49, 653), (999, 1), (1, 99999), (10**40, 10**40 - 1), (5, 10**25)]
    numbers += [tuple(10 ** generator.integers(0, 9, 2) - generator.integers(0, 2, 2)) for _ in range(50)]
    for first, second in numbers:
        text = write(task, int(first), int(second))
        query, response = text.removesuffix("$").removeprefix("$").split("=")
        assert task.prompt(f"{first}+{second}") == f"{query}="
        assert task.reader.read(response) == str(int(first) + int(second))


@pytest.mark.parametrize("question", ["653+49", "653+49=", " 653 + 49 ", "653+ 49 =\n", "\t653 +49"])
def test_question_may_have_spaces_and_an_equals_sign(question):
    assert Addition().prompt(question) == "653+049="


@pytest.mark.parametrize(
    "question",
    ["", " ", "+", "=", "3", "3+", "+4", "3+4+5", "3-4", "-3+4", "3+-4", "+3+4", "3++4", "3+4==", "3+4=7", "3.0+4", "3 4",
     "1 2+3", "1,000+2", "1_0+2", "0x3+4", "a+b", "$3+4=", "3*4", "٣+4", "3+４", "²+3", "3\u00a0+4", "3+4;", "1e3+4"],  # noqa: RUF001
)  # fmt: skip
def test_malformed_question_is_refused_by_name(question):
    with pytest.raises(ValueError, match=f"^the question {re.escape(repr(question))} is not an addition"):
        Addition().prompt(question)


def test_formats_have_rules_of_their_own_and_describe_themselves():
    assert len({task.coupling for task in FORMATS}) == len(ORDERS)
    for task in ALL_FORMATS:
        description = task.describe()
        assert TASKS[description.pop("task")](**description) == task
