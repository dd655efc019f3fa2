"""Division by a number of one digit."""

import re

import numpy as np
import pytest
import torch
from neighbourhood_search import listed_neighbourhoods, neighbourhoods
from test_signed_subtraction import to_digits

from longhand.data import SPLITS, Division, make_generator
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


def test_splits_share_no_short_problem():
    drawn = [
        {row.tobytes() for row in TASK.draw(make_generator(split), np.tile((3, 1), (2000, 1)), split)} for split in SPLITS
    ]
    assert not (drawn[0] & drawn[1] or drawn[0] & drawn[2] or drawn[1] & drawn[2])


def seen_in_quotients(dividends) -> set:
    """The neighbourhoods of dividends of one length by every divisor."""
    return neighbourhoods(RULE, texts_of([(dividend, divisor) for dividend in dividends for divisor in range(1, 10)])[0])


def test_listed_neighbourhoods_are_exactly_those_that_occur():
    listed = listed_neighbourhoods(TASK.covering(RULE.relations, 1))
    occurring = set()
    for shortest, longest in ((0, 10), (10, 100), (100, 1000), (1000, 10_000)):
        occurring |= neighbourhoods(
            RULE, texts_of([(number, divisor) for number in range(shortest, longest) for divisor in range(1, 10)])[0]
        )
    long = make_generator("long").integers(10**14, 10**15, 200).tolist()
    occurring |= seen_in_quotients(long)
    assert occurring == set(listed)


@pytest.mark.parametrize(("window", "layers"), [((0, 1), 1), (RULE.relations[:-1], 1), (RULE.relations, 2)])
def test_other_windows_and_more_layers_are_refused(window, layers):
    with pytest.raises(ValueError, match="worked out for one layer and the window of the coupling rule"):
        TASK.covering(window, layers)


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


@pytest.mark.parametrize("question", ["8764", "8764/", "/7", "8764//7", "-8764/7", "8764/7/1", "87.64/7", "8764*7"])
def test_malformed_questions_are_refused(question):
    with pytest.raises(ValueError, match="is not a division such as '8764/7'"):
        TASK.prompt(question)


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


@pytest.mark.parametrize(("question", "prompt"), [("08764 / 07 =", "8764/7="), ("0/3", "0/3="), ("00/3", "0/3=")])
def test_numbers_of_a_question_lose_leading_zeros(question, prompt):
    assert TASK.prompt(question) == prompt


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


def test_a_card_reads_answers_as_the_task_does():
    reader = Division().reader
    for response in ("1310>1252", "1>", ">", "", "12>0>3", "0003>0001"):
        assert eval(reader.code("response"), {"response": response, "re": re}) == reader.read(response)
