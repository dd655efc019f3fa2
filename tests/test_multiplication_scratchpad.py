import itertools

import numpy as np
import pytest
import torch

from longhand.data import MultiplicationScratchpad, make_generator
from longhand.data.certificates import verify_certificate
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.vocabulary import decode

RULE = COUPLING_RULES["multiplication_scratchpad"]
SIZES = [(1, 1), (1, 2), (2, 1), (2, 2), (3, 2), (2, 3), (1, 15), (15, 1), (6, 6), (12, 12)]


def reversed_digits(number, width):
    return str(number).zfill(width)[::-1]


def expected_text(first, second):
    """The text of a problem, made of Python integers."""
    width, rows = len(str(first)), str(second)[::-1]
    partial = [reversed_digits(first * int(digit), width + 1) for digit in rows]
    sums = [reversed_digits(first * (second % 10 ** (row + 1)), width + len(rows)) for row in range(len(rows))]
    return f"${first}*{second}={'+'.join(partial)}={'>'.join(sums)}$"


def to_digits(pairs):
    """Digits (count, 2, width) and lengths (count, 2) of pairs of Python integers."""
    texts = [[str(number) for number in pair] for pair in pairs]
    lengths = np.array([[len(text) for text in pair] for pair in texts])
    digits = [[[int(digit) for digit in text.zfill(lengths.max())[::-1]] for text in pair] for pair in texts]
    return np.array(digits, dtype=np.uint8), lengths


def write(task, first, second):
    return decode(task.format(*to_digits([(first, second)])).tokens[0])


def hard_pairs(first_length, second_length):
    """Numbers whose products are full of carries, zeros or repeated digits."""

    def hard(length):
        repeated = [int(str(digit) * length) for digit in range(1, 10)]
        return [*repeated, 10 ** (length - 1), 10**length - 2, int(("90" * length)[:length]), *[0] * (length == 1)]

    return list(itertools.product(hard(first_length), hard(second_length)))


@pytest.mark.parametrize(("first_length", "second_length"), [*SIZES, (40, 3), (3, 40)])
def test_text_of_every_example_is_the_scratchpad_of_its_operands(first_length, second_length):
    task = MultiplicationScratchpad()
    lengths = np.tile([first_length, second_length], (100, 1))
    examples = task.examples(make_generator(first_length, second_length), lengths, "train")
    hard = hard_pairs(first_length, second_length)
    for written in (examples, task.format(*to_digits(hard))):
        assert written.same_layout
        for tokens, query in zip(written.tokens, written.query_lengths, strict=True):
            text = decode(tokens)
            numbers = text[1 : text.index("=")].split("*")
            assert [len(str(int(number))) for number in numbers] == [first_length, second_length]
            assert text == expected_text(*map(int, numbers))
            assert text.index("=") + 1 == query
            assert len(text.split(">")[-1].split("=")[-1]) == task.answer_length((first_length, second_length))


def planned_ids(text):
    """(three levels) ids of each column of a text that begins with `$`, by the rule."""
    tokens = torch.tensor([MultiplicationScratchpad().format(*to_digits([text])).tokens[0].tolist()])
    plan = RULE.plan(tokens, tokens.shape[1])
    assert plan.response_length == tokens.shape[1] - len(f"${text[0]}*{text[1]}=")
    return [tuple(ids) for ids in plan.position_ids[0].T.tolist()]


@pytest.mark.parametrize(("first_length", "second_length"), SIZES)
def test_ids_are_those_of_significance_row_and_place_in_the_product(first_length, second_length):
    rows, columns = range(second_length), range(first_length + second_length)
    in_first = [first_length + 1 - place for place in range(first_length + 1)]
    in_product = [first_length + second_length + 1 - column for column in columns]
    expected = [
        (0, 0, 0),
        *((level, 0, 0) for level in in_first[-2::-1]),
        (0, 0, 1),
        *((0, row + 1, 0) for row in rows[::-1]),
    ]
    for row in rows:
        expected.append((first_length + 2, row + 1, 0))
        expected += [(level, row + 1, in_product[place + row]) for place, level in enumerate(in_first)]
    for row in rows:
        expected.append((0, row + 1, first_length + second_length + 2))
        expected += [(0, row + 1, level) for level in in_product]
    assert planned_ids((10**first_length - 1, 10**second_length - 1)) == [*expected, (0, 0, 0)]


def test_in_base_two_answers_are_those_of_python_integers_and_both_searches_find_the_same_number_of_neighbourhoods():
    task, lengths = MultiplicationScratchpad(radix=2), np.tile([5, 3], (99, 1))
    digits = task.draw_operands(make_generator(0), lengths)
    for operands, response in zip(digits, task.format(digits, lengths).tokens, strict=True):
        first, second = (int("".join(map(str, bits[::-1])), 2) for bits in operands)
        assert task.reader.read(decode(response[:-1]).partition("=")[2]) == f"{first * second:b}"
    described = {"task": task.name, "separate_eos": False, "radix": 2}
    found = verify_certificate.list_neighbourhoods(verify_certificate.find_task(described))
    assert task.covering(RULE.relations, 1).count == len(found) == 167
