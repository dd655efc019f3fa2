import numpy as np
import pytest
import torch

from longhand.data import MultiplicationScratchpad, make_generator
from longhand.data.proofs import verify_certificate
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.vocabulary import decode

RULE = COUPLING_RULES["multiplication_scratchpad"]
SIZES = [(1, 1), (1, 2), (2, 1), (2, 2), (3, 2), (2, 3), (1, 15), (15, 1), (6, 6), (12, 12)]


def to_digits(pairs):
    """Digits (count, 2, width) and lengths (count, 2) of pairs of Python integers."""
    texts = [[str(number) for number in pair] for pair in pairs]
    lengths = np.array([[len(text) for text in pair] for pair in texts])
    digits = [[[int(digit) for digit in text.zfill(lengths.max())[::-1]] for text in pair] for pair in texts]
    return np.array(digits, dtype=np.uint8), lengths


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
