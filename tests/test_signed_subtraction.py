import numpy as np
import pytest
import torch

from longhand.data import SignedSubtraction, make_generator
from longhand.hub_cards.evaluation.reading import is_lenient_match
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.vocabulary import decode

TASK = SignedSubtraction()
RULE = COUPLING_RULES[TASK.coupling]


def expected_text(first, second, width):
    """The text of a problem, made of Python integers."""
    difference = str((first - second) % 10**width).zfill(width)[::-1]
    missing = f"-{str(second - first).zfill(width)[::-1]}" if first < second else ""
    return f"${str(first).zfill(width)}-{str(second).zfill(width)}={difference}{missing}$"


def to_digits(pairs, width):
    digits = [[[int(digit) for digit in str(number).zfill(width)[::-1]] for number in pair] for pair in pairs]
    return np.array(digits, dtype=np.uint8), np.full((len(pairs), 2), width)


def drawn_pairs(width, count):
    """Pairs of numbers, the longer of `width` digits: uniform, equal, next to each other, full of zeros and nines."""
    generator = make_generator("pairs", width)
    digits = generator.integers(0, 10, size=(count, 2, width))
    often = generator.choice([0, 9], size=digits.shape)
    digits = np.where(generator.random(digits.shape) < generator.choice([0, 0.8], size=(count, 1, 1)), often, digits)
    first, second = ([int("".join(map(str, row))) for row in digits[:, operand].tolist()] for operand in (0, 1))
    steps = generator.integers(0, 3, count).tolist()
    near = [min(number + step, 10**width - 1) for number, step in zip(first, steps, strict=True)]
    pairs = [*zip(first, second, strict=True), *zip(first, near, strict=True), *zip(near, first, strict=True)]
    return [pair for pair in pairs if len(str(max(pair))) == width]


@pytest.mark.parametrize("width", [1, 2, 3, 8, 40])
def test_text_of_every_problem_is_the_difference_and_what_is_missing_if_it_is_negative(width):
    pairs = drawn_pairs(width, 100)
    examples = TASK.format(*to_digits(pairs, width))
    for (first, second), row, query in zip(pairs, examples.tokens, examples.query_lengths, strict=True):
        text = decode(row)
        assert text == expected_text(first, second, width)
        assert TASK.reader.read(text[query:-1]) == str(first - second)


def test_lengths_are_independent_and_either_number_may_be_the_larger():
    generator = make_generator(0)
    lengths = TASK.group_lengths(generator, np.array([3, 1]), 3000, 1)
    assert {tuple(pair) for pair in lengths.tolist()} == {(3, 1), (3, 2), (3, 3), (1, 3), (2, 3)}
    examples = TASK.examples(generator, lengths, "train")
    negative = np.mean(["-" in decode(row).partition("=")[2] for row in examples.tokens])
    assert 0.4 < negative < 0.6 and not examples.same_layout


@pytest.mark.parametrize(("prompt", "legal"), [("049-653=", True), ("653-049=", True), ("0-0=", True), ("00-00=", False)])
def test_one_of_the_numbers_has_no_zero_in_front(prompt, legal):
    """Training has no other problems, and nothing tells a model what comes after a borrow from 0-0 at the top."""
    assert (TASK.prompt_format.prompt_fault(prompt) is None) == legal
    assert TASK.prompt_format.prompt_fault(f"0{prompt.replace('-', '-0')}") is not None
    assert TASK.prompt(f"00{prompt}") == TASK.prompt(prompt)


def test_a_row_ends_where_it_is_planned_to_end():
    tokens = torch.from_numpy(TASK.format(*to_digits([(49, 653)], 3)).tokens).long()
    plan = RULE.plan(tokens, tokens.shape[1])
    assert tokens.shape[1] - 9 == plan.response_length == 8
    assert (plan.position_ids[0, :, 1:-1] > 0).all() and (plan.position_ids[0, :, -1] == 0).all()


@pytest.mark.parametrize("written", ["-1604", "-1,604", "49-1653=-1604", "-1604, and 1-2=-1"])
def test_a_negative_answer_of_a_language_model_is_read(written):
    assert is_lenient_match(written, "-1604") and not is_lenient_match(written.replace("-", ""), "-1604")


def test_work_is_shown_as_on_paper():
    assert TASK.show_work("49-653", "693-406") == "    49\n-  653\n------\n   396\n- 1000\n------\n  -604"
    assert TASK.show_work("653-049", "406") == " 653\n- 49\n----\n 604"
