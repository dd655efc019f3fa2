"""Division by a number of one digit."""

import numpy as np
import pytest
import torch
from test_signed_subtraction import to_digits

from longhand.data import Division, make_generator
from longhand.data.digits import divide_digits
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.vocabulary import PAD, decode

TASK = Division()
RULE = COUPLING_RULES[TASK.coupling]


def expected_text(dividend, divisor):
    """The text of a problem, made of Python integers."""
    digits = str(dividend)
    rests = "".join(str(int(digits[: place + 1]) % divisor) for place in range(len(digits)))
    return f"${digits}/{divisor}={rests}>{str(dividend // divisor).zfill(len(digits))}$"


def texts_of(problems):
    """The texts that the task writes for pairs of a dividend and a divisor, of any lengths."""
    digits, _ = to_digits(problems, max(len(str(dividend)) for dividend, _ in problems))
    examples = TASK.format(digits, np.array([[len(str(dividend)), 1] for dividend, _ in problems]))
    return examples, [decode(row) for row in examples.tokens]


@pytest.mark.parametrize("divisor", range(1, 10))
def test_every_text_holds_all_remainders_and_the_quotient(divisor):
    generator = make_generator("dividends", divisor)
    numbers = [*range(1100), *(10**length - 1 for length in (8, 9, 40)), 10**39]
    numbers += [int("".join(map(str, generator.integers(0, 10, length)))) for length in (17, 32, 33, 300) for _ in range(9)]
    _, texts = texts_of([(number, divisor) for number in numbers])
    for number, text in zip(numbers, texts, strict=True):
        assert text == expected_text(number, divisor)
        response = text.partition("=")[2].removesuffix("$")
        assert TASK.reader.read(response) == f"{number // divisor} remainder {number % divisor}"


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


def test_every_divisor_is_drawn_as_often_and_lengths_are_uniform():
    lengths = TASK.sample_lengths(make_generator(0), 9000, 2, 7)
    assert (lengths[:, 1] == 1).all() and set(lengths[:, 0].tolist()) == {2, 3, 4, 5, 6, 7}
    drawn = TASK.draw_operands(make_generator(1), lengths)
    counts = np.bincount(drawn[:, 1, 0], minlength=10)
    assert counts[0] == 0 and np.abs(counts[1:] - 1000).max() < 150 and not drawn[:, 1, 1:].any()
    assert TASK.operand_lengths(12) == TASK.operand_lengths(12, 1) == (12, 1)
    with pytest.raises(ValueError, match="the divisor has one digit, not 2"):
        TASK.operand_lengths(12, 2)


def test_rows_end_where_they_are_planned_to_end():
    examples, _ = texts_of([(8764, 7), (9, 2), (123456, 5)])
    tokens = torch.from_numpy(examples.tokens).long()
    plan = RULE.plan(tokens, tokens.shape[1])
    assert plan.response_length == 2 * 7
    for row, query, ids in zip(tokens, examples.query_lengths, plan.position_ids, strict=True):
        response = (row != PAD).sum() - query
        assert (ids[1, query : query + response - 1] > 0).all() and not ids[:, query + response - 1 :].any()


@pytest.mark.parametrize("text", ["$65/47=", "$65/=", "$/4=", "$65*4=", "$6/5/4="])
def test_a_malformed_query_is_refused_and_shown(text):
    tokens = torch.tensor([[("0123456789+-*=>M_$...".index(character) if character != "/" else 21) for character in text]])
    with pytest.raises(ValueError, match=f"the prompt '.{text[1:].replace('*', '.')}' is not of the form '.A/B='"):
        RULE.plan(tokens, 20)


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("8764/0", "has no answer: no number can be divided by 0"),
        ("0/00", "has no answer: no number can be divided by 0"),
        ("8764/17", "must have one digit, 1 to 9, got 17"),
    ],
)
def test_other_divisors_are_refused_by_name(question, reason):
    with pytest.raises(ValueError, match=f"the question '{question}'.*{reason}"):
        TASK.prompt(question)


def test_work_is_shown_as_on_paper():
    assert TASK.show_work("8764/7", "1310>1252").splitlines() == [
        " 8764 / 7 = 1252 remainder 0",
        *("-7", "--", " 17", "-14", "---", "  36", " -35", " ---", "   14", "  -14", "  ---", "    0"),
    ]
    assert TASK.show_work("7003/7", "0003>1000") == " 7003 / 7 = 1000 remainder 3\n-7\n--\n    3"
    # Of the right form, and a step is wrong.
    for wrong in ("1310>1253", "1311>1252", "9999>9999"):
        assert TASK.show_work("8764/7", wrong) == wrong
    assert TASK.show_work("3/7", "3>0") == " 3 / 7 = 0 remainder 3"


@pytest.mark.parametrize("response", ["", "1310", "1310>125", "131>01252", "1310>12M2"])
def test_a_response_without_work_is_shown_as_it_is(response):
    assert TASK.show_work("8764/7", response) == response


def test_work_of_a_long_division_is_shown_as_it_is():
    response = f"{'0' * 100_000}>{'1' * 100_000}"
    assert TASK.show_work(f"{'1' * 100_000}/1", response) == response
