"""Sums, differences, products, quotients and strings: what is written, drawn, shown and refused."""

import re
from itertools import combinations_with_replacement

import numpy as np
import pytest
import torch
from faults import truth
from task_subjects import described

from longhand.data import (
    Addition,
    AdditionScratchpad,
    Copy,
    Division,
    IndexHintedAddition,
    MultiOperandAddition,
    Multiplication,
    MultiplicationScratchpad,
    Parity,
    Reverse,
    SignedSubtraction,
    Subtraction,
    make_generator,
)
from longhand.data.digits import divide_digits, numbers_below
from longhand.modeling.vocabulary import decode

TENS = "+".join(["9"] * 10)
WRITTEN = [
    (Addition(), "653+49", "$653+049=2070$"),
    (Addition(order="all_reversed"), "653+49", "$356+940=2070$"),
    (Addition(order="plain"), "653+49", "$653+049=0702$"),
    (Addition(zero_padding=False), "653+49", "$653+49=207$"),
    (Addition(zero_padding=False, order="all_reversed"), "653+49", "$356+94=207$"),
    (Addition(zero_padding=False, order="plain", separate_eos=True), "653+49", "$653+49=702<eos>"),
    (IndexHintedAddition(), "653+49", "$Ā0ā6Ă5ă3+Ā0ā0Ă4ă9=ă2Ă0ā7Ā0$"),
    (MultiOperandAddition(), "653+49+871", "$0653+0049+0871=3751$"),
    (MultiOperandAddition(operands=2, separate_eos=True), "9+9", "$09+09=81<eos>"),
    (MultiOperandAddition(operands=10), TENS, f"${TENS.replace('9', '09')}=09$"),
    (AdditionScratchpad(), "57+48+96", "$057+048+096=000>750>501>102$"),
    (AdditionScratchpad(separate_eos=True), "5+0", "$05+00=00>50>50<eos>"),
    (Subtraction(), "653-49", "$653-049=406$"),
    (Subtraction(), "7-7", "$7-7=0$"),
    (Subtraction(separate_eos=True), "10-9", "$10-09=10<eos>"),
    (SignedSubtraction(), "653-49", "$653-049=406$"),
    (SignedSubtraction(), "49-653", "$049-653=693-406$"),
    (Multiplication(), "653*49", "$653*49=79913$"),
    (Multiplication(), "7*12", "$7*12=480$"),
    (Multiplication(multiplier_length=1, separate_eos=True), "0*7", "$0*7=00<eos>"),
    (Multiplication(multiplier_length=3), "12*345", "$12*345=04140$"),
    (MultiplicationScratchpad(), "294*68", "$294*68=2532+4671=25320>29991$"),
    (MultiplicationScratchpad(separate_eos=True), "9*7", "$9*7=36=36<eos>"),
    (MultiplicationScratchpad(), "0*10", "$0*10=00+00=000>000$"),
    (MultiplicationScratchpad(radix=2), "101*11", "$101*11=1010+1010=10100>11110$"),
    (Division(), "8764/7", "$8764/7=1310>1252$"),
    (Copy(), "1809", "$1809=1809$"),
    (Copy(separate_eos=True), "0", "$0=0<eos>"),
    (Reverse(), "5962", "$5962=2695$"),
    (Parity(), "1011", "$1011=1101$"),
    (Parity(scratchpad=False), "1011", "$1011=1$"),
]
"""Problems as the papers write them."""


def write(task, problems: list[list[str]]):
    """The examples of problems."""
    shortest = getattr(task, "multiplier_length", 0)
    words = [[first, *(other.zfill(shortest) for other in others)] for first, *others in problems]
    lengths = np.array([list(map(len, row)) for row in words])
    digits = [[[int(digit) for digit in word.zfill(lengths.max())[::-1]] for word in row] for row in words]
    return task.format(np.array(digits, dtype=np.uint8), lengths)


@pytest.mark.parametrize(("task", "question", "text"), WRITTEN, ids=lambda value: value if isinstance(value, str) else "")
def test_a_problem_is_written_as_in_the_papers(task, question, text):
    # The first symbol of a string is what the ones are of a number.
    words = re.findall("[0-9]+", question) if task.sign else [question[::-1]]
    examples = write(task, [words])
    query = int(examples.query_lengths[0])
    assert decode(examples.tokens[0], task.tokens) == text and f"${task.prompt(question)}" == text[:query]
    response = text[query:].removesuffix("<eos>").removesuffix("$")
    if task != MultiplicationScratchpad(radix=2):
        assert task.reader.read(response) == truth.answer(task.name, question)
    if task.coupling != "sequential" and getattr(task, "zero_padding", True) and getattr(task, "scratchpad", True):
        # A row ends where it is planned to end: its end token has no id, and nothing behind it.
        tokens = torch.from_numpy(examples.tokens).long()
        plan = task.rule.plan(tokens, tokens.shape[1] + 2)
        planned = tokens.shape[1] - query
        assert plan.response_length >= planned and (plan.position_ids[0, :, query : query + planned - 1] > 0).any(0).all()
        if task.name != "signed_subtraction" or text.count("-") > 1:
            assert plan.response_length == planned and not plan.position_ids[0, :, query + planned - 1 :].any()


def test_numbers_of_any_width_are_divided_alike():
    digits = make_generator("digits").integers(0, 10, size=(50, 1000), dtype=np.uint8)
    divisors = np.arange(50) % 9 + 1
    for width in (1, 2, 999, 1000):
        quotients, remainders = divide_digits(digits[:, 1000 - width :].astype(np.uint8), divisors.astype(np.uint8))
        for row, divisor in enumerate(divisors.tolist()):
            number, quotient = (
                int("".join(map(str, values[::-1]))) for values in (digits[row, 1000 - width :], quotients[row])
            )
            assert divmod(number, divisor) == (quotient, remainders[row, 0])


# What is drawn.


def even(counts: np.ndarray) -> bool:
    """Whether counts are those of equally likely cases."""
    share = counts.sum() / len(counts)
    return np.abs(counts - share).max() < 5 * share**0.5


@pytest.mark.parametrize(
    ("task", "low", "high"),
    [(Addition(), 1, 6), (Addition(), 4, 4), (SignedSubtraction(), 3, 7), (MultiOperandAddition(operands=4), 3, 5)],
    ids=str,
)
def test_lengths_of_each_operand_are_uniform_and_independent(task, low, high):
    lengths, size = task.sample_lengths(make_generator(0), 60_000, low, high), high - low + 1
    assert lengths.min() == low and lengths.max() == high
    assert even(np.bincount((lengths - low) @ size ** np.arange(task.operands), minlength=size**task.operands))


def test_lengths_of_a_difference_are_those_of_two_independent_numbers_the_longer_first():
    sampled = Subtraction().sample_lengths(make_generator(0), 60_000, 2, 4)
    for shorter, longer in combinations_with_replacement((2, 3, 4), 2):
        share = 60_000 / 9 * (1 if longer == shorter else 2)
        assert abs((sampled == (longer, shorter)).all(axis=1).sum() - share) < 5 * share**0.5


@pytest.mark.parametrize(
    ("task", "place", "width", "values"),
    [
        (Multiplication(multiplier_length=1), 1, 1, range(10)),
        (Multiplication(), 1, 2, range(100)),
        (Division(), 1, 1, range(1, 10)),
        (Copy(), 0, 2, range(100)),
        (Reverse(), 0, 2, range(100)),
        (Parity(), 0, 2, [0, 1, 10, 11]),
    ],
    ids=str,
)
def test_every_second_operand_and_every_string_is_drawn_as_often(task, place, width, values):
    lengths = np.full((60_000, 1), 2) if task.operands == 1 else task.sample_lengths(make_generator(0), 60_000, 2, 5)
    drawn = task.draw_operands(make_generator(1), lengths)[:, place, :width] @ 10 ** np.arange(width)
    counts = np.bincount(drawn, minlength=10**width)
    assert even(counts[list(values)]) and counts[list(values)].sum() == 60_000


def test_the_larger_number_is_first_and_all_pairs_are_equally_likely():
    digits = Subtraction().draw_operands(make_generator(0), np.tile([1, 1], (110_000, 1)))[:, :, 0].astype(int)
    counts = np.zeros((10, 10), dtype=int)
    np.add.at(counts, (digits[:, 0], digits[:, 1]), 1)
    assert (np.triu(counts, 1) == 0).all()
    share = np.tril(np.full((10, 10), 2200.0), -1) + np.diag(np.full(10, 1100.0))
    assert np.abs(counts - share).max() < 5 * 2200**0.5


def test_long_strings_of_bits_belong_to_one_split():
    """Bits are few: far longer strings of them are kept apart than of digits."""
    for task in (Copy(), Parity()):
        long = task.draw_operands(make_generator(1), np.full((50, 1), 40))
        assert (task.split_of(long, np.full((50, 1), 40)) >= 0).all() == (task.name == "parity")


@pytest.mark.parametrize("task", [Addition(), Subtraction(), MultiOperandAddition()], ids=described)
def test_variations_hold_the_same_columns(task):
    digits, widths = task.draw_operands(make_generator(0), np.tile([3, 2, 2][: task.operands], (50, 1))), set()
    for index in range(40):
        varied = task.vary(make_generator(index), digits, 8)
        widths.add(varied.shape[2])
        assert (np.sort(varied[:, :, :3], axis=1) == np.sort(digits, axis=1)).all()
        if task.name == "subtraction":
            assert not numbers_below(varied[:, 0], varied[:, 1]).any() and (varied[:, :, :3] == digits).all()
        assert (task.drawn_lengths(varied, np.full(varied.shape[:2], varied.shape[2])) <= varied.shape[2]).all()
    assert len(widths) > 1 and max(widths) <= 8 and task.vary(make_generator(0), digits, 3).shape[2] == 3


# What is read, shown and refused.


@pytest.mark.parametrize(("prompt", "legal"), [("049-653=", True), ("653-049=", True), ("0-0=", True), ("00-00=", False)])
def test_one_of_the_numbers_of_a_signed_difference_has_no_zero_in_front(prompt, legal):
    """Training has no other problems, and nothing tells a model what comes after a borrow from 0-0 at the top."""
    task = SignedSubtraction()
    assert (task.prompt_format.prompt_fault(prompt) is None) == legal
    assert task.prompt_format.prompt_fault(f"0{prompt.replace('-', '-0')}") is not None
    assert task.prompt(f"00{prompt}") == task.prompt(prompt)


@pytest.mark.parametrize(
    ("task", "question", "prompt"),
    [
        (Multiplication(multiplier_length=3), "653*4", "653*004="),
        (Multiplication(), "00653*04", "653*04="),
        (Multiplication(), "00*0", "0*00="),
        (Multiplication(), "4*653", None),
        (Subtraction(), "49-653", None),
        *((Division(), question, None) for question in ("8764/0", "0/00", "8764/17")),
    ],
    ids=str,
)
def test_numbers_of_a_question_are_padded_or_refused_by_name(task, question, prompt):
    if prompt:
        assert task.prompt(question) == prompt
    else:
        with pytest.raises(ValueError, match=re.escape(repr(question))):
            task.prompt(question)


def test_sizes_that_a_task_does_not_have_are_refused():
    for task, lengths in ((Division(), (12, 2)), (Subtraction(), (3, 5)), (Multiplication(), (3, 1))):
        with pytest.raises(ValueError, match=str(lengths[1])):
            task.operand_lengths(*lengths)
    with pytest.raises(ValueError, match="49-53"):
        write(Subtraction(), [["49", "53"]])


def test_the_answer_of_a_scratchpad_is_its_last_parity():
    assert Parity().answer_length((9,)) == 2
    assert Parity(scratchpad=False).answer_length((9,)) is None and Copy().answer_length((9,)) is None
