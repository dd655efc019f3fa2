import itertools
import re

import numpy as np
import pytest

from longhand.data import SPLITS, TASKS, CouplingCollator, EvaluationBatches, FreshBatches, Multiplication, make_generator
from longhand.data.collator import IGNORED
from longhand.data.multiplication import multiply_digits
from longhand.data.sampling import split_of
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.vocabulary import EQUALS, decode

COLLATOR = CouplingCollator("multiplication", max_position_ids=60)


def to_digits(numbers, width):
    """(count, width) digits of Python integers, ones first."""
    text = "".join(str(number).zfill(width)[::-1] for number in numbers)
    return (np.frombuffer(text.encode(), dtype=np.uint8) - ord("0")).reshape(len(numbers), width)


def to_integers(digits):
    return [int("".join(map(str, row[::-1]))) for row in digits.tolist()]


def check_products(first, second, width, other_width):
    digits = multiply_digits(to_digits(first, width), to_digits(second, other_width))
    assert digits.shape == (len(first), width + other_width) and digits.max() < 10
    assert to_integers(digits) == [a * b for a, b in zip(first, second, strict=True)]


def test_all_products_of_two_digits_are_right():
    check_products(*zip(*itertools.product(range(100), range(100)), strict=True), 2, 2)


@pytest.mark.parametrize("other_width", [1, 2, 3, 9, 12, 40])
@pytest.mark.parametrize("width", [1, 2, 19, 40, 300])
def test_products_of_any_length_are_right(width, other_width):
    generator = make_generator(width, other_width)
    numbers = [
        [10**size - 1, 10 ** (size - 1), 1, 0, 10**size - 1, int("1" * size), int(("09" * size)[:size]), 10**size - 2]
        for size in (width, other_width)
    ]
    pairs = list(itertools.product(*numbers))
    digits = generator.integers(0, 10, (50, width + other_width))
    texts = ["".join(map(str, row)) for row in digits.tolist()]
    pairs += [(int(text[:width]), int(text[width:])) for text in texts]
    check_products(*zip(*pairs, strict=True), width, other_width)


@pytest.mark.parametrize("length", [5, 700])
def test_carry_runs_through_the_whole_product(length):
    # 142857...142858 times 7 is 1000...0006, a power of ten and 6 more.
    over = 10 ** (6 * length) // 7 + 1
    assert str(7 * over) == "1" + "0" * (6 * length - 1) + "6"
    check_products([over, over, over, int("01" * 3 * length), 10 ** (6 * length) - 1], [7, 70, 77, 99, 99], 6 * length, 2)


def test_an_empty_batch_has_no_products():
    assert multiply_digits(np.zeros((0, 4), np.uint8), np.zeros((0, 2), np.uint8)).shape == (0, 6)


def write(task, first, second):
    lengths = np.array([[len(str(first)), len(str(second))]])
    digits = np.stack([to_digits([number], lengths.max()) for number in (first, second)], axis=1)
    return decode(task.format(digits, lengths).tokens[0])


def test_format_is_written_as_in_the_paper():
    assert write(Multiplication(), 653, 49) == "$653*49=79913$"
    assert write(Multiplication(), 7, 12) == "$7*12=480$"
    assert write(Multiplication(separate_eos=True, multiplier_length=1), 0, 7) == "$0*7=00<eos>"
    assert write(Multiplication(multiplier_length=3), 12, 345) == "$12*345=04140$"


@pytest.mark.parametrize("multiplier_length", [1, 2, 3, 5])
@pytest.mark.parametrize("mixed", [False, True])
def test_text_of_every_example_is_the_product_of_its_operands(multiplier_length, mixed):
    task = Multiplication(multiplier_length=multiplier_length)
    for longest in (1, 2, 7, 40):
        lengths = task.sample_lengths(make_generator(longest), 200, 1, longest)
        if not mixed:
            lengths = task.group_lengths(make_generator(longest), lengths[0], 200, 1)
        examples = task.examples(make_generator(longest, 1), lengths, "train")
        assert examples.same_layout == (len(np.unique(lengths[:, 0])) == 1)
        for tokens, query, row in zip(examples.tokens, examples.query_lengths, lengths.tolist(), strict=True):
            text = decode(tokens)
            first, second = re.fullmatch(r"\$([0-9]+)\*([0-9]+)=[0-9]+\$", text).groups()
            assert [len(first), len(second)] == row == [row[0], multiplier_length]
            assert (len(first) == 1 or first[0] != "0") and (len(second) == 1 or second[0] != "0")
            assert text == f"${first}*{second}={str(int(first) * int(second)).zfill(sum(row))[::-1]}$"
            assert text.index("=") + 1 == query


def test_first_length_is_uniform_and_the_second_fixed():
    lengths = Multiplication(multiplier_length=3).sample_lengths(make_generator(0), 40_000, 3, 7)
    counts = np.bincount(lengths[:, 0])[3:]
    assert len(counts) == 5 and np.abs(counts - 8000).max() < 4.5 * 8000**0.5
    assert (lengths[:, 1] == 3).all()


def test_a_group_holds_one_length():
    task = Multiplication()
    lengths = task.sample_lengths(make_generator(0), 100, 1, 9)
    assert (task.group(lengths) == lengths[:, 0]).all()
    assert (task.group_lengths(make_generator(1), lengths[3], 7, 1) == lengths[3]).all()


@pytest.mark.parametrize("multiplier_length", [1, 2, 3])
def test_one_length_stands_for_that_first_operand(multiplier_length):
    task = Multiplication(multiplier_length=multiplier_length)
    assert task.operand_lengths(12) == (12, multiplier_length)
    batch = EvaluationBatches(task, task.operand_lengths(12), 5, 0, "test", 5, collator=COLLATOR)[0]
    response = 12 + multiplier_length + 1
    assert ((batch["labels"] != IGNORED).sum(1) == response).all()
    assert batch["logits_to_keep"] == response + 1
    assert len(batch["position_ids"]) == 1


def test_fresh_batches_have_one_layout_and_the_rules_ids():
    batches = FreshBatches(Multiplication(), 1, 20, 0, collator=COLLATOR, batch_size=8, num_batches=20)
    for index in range(20):
        batch = batches[index]
        assert len((batch["input_ids"] == EQUALS).int().argmax(1).unique()) == 1
        plan = COUPLING_RULES["multiplication"].plan(batch["input_ids"], batch["input_ids"].shape[1])
        assert (plan.position_ids == batch["position_ids"]).all()


@pytest.mark.parametrize("split", SPLITS)
def test_short_draws_belong_to_the_asked_split(split):
    lengths = np.tile([3, 2], (300, 1))
    digits = Multiplication().draw(make_generator(0), lengths, split)
    assert (split_of(digits, lengths) == SPLITS.index(split)).all()


def test_answer_is_read_back_as_the_integer_product():
    task, generator = Multiplication(), make_generator(0)
    numbers = [(0, 10), (653, 49), (10**40 - 1, 99), (1, 99), (12345678901234567890, 10)]
    numbers += zip(generator.integers(0, 10**9, 50).tolist(), generator.integers(10, 100, 50).tolist(), strict=True)
    for first, second in numbers:
        query, response = write(task, first, second).strip("$").split("=")
        assert task.prompt(f"{first}*{second}") == f"{query}="
        assert task.read_answer(response) == str(first * second)


@pytest.mark.parametrize("question", ["653*49", "653*49=", " 653 * 49 ", "653* 49 =\n"])
def test_question_may_have_spaces_and_an_equals_sign(question):
    assert Multiplication().prompt(question) == "653*49="


def test_a_shorter_second_number_is_padded_and_a_longer_one_refused():
    assert Multiplication(multiplier_length=3).prompt("653*4") == "653*004="
    with pytest.raises(ValueError, match=r"'4\*653' must have at most multiplier_length = 2 digits, got 3"):
        Multiplication().prompt("4*653")


@pytest.mark.parametrize(
    "question", ["", "*", "3*", "*4", "3*4*5", "3+4", "-3*4", "3**4", "3*4==", "3*4=12", "3.0*4", "3 4", "٣*4", "a*b", "3x4"]
)
def test_malformed_question_is_refused_by_name(question):
    with pytest.raises(ValueError, match=f"^the question {re.escape(repr(question))} is not a multiplication"):
        Multiplication().prompt(question)


@pytest.mark.parametrize("value", [0, -1, 2.0, True, None, "2"])
def test_illegal_multiplier_lengths_are_refused(value):
    with pytest.raises(ValueError, match=f"multiplier_length must be .* got {re.escape(repr(value))}"):
        Multiplication(multiplier_length=value)


def test_format_describes_itself():
    for task in (Multiplication(), Multiplication(separate_eos=True, multiplier_length=3)):
        description = task.describe()
        assert TASKS[description.pop("task")](**description) == task
    with pytest.raises(ValueError, match="separate_eos must be True or False, got 1"):
        Multiplication(separate_eos=1)
