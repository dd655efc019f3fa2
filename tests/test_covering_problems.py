"""Which short problems cover all that tokens of long sums see, against a search of it."""

import random
import re
from collections import Counter, defaultdict

import numpy as np
import pytest
import torch
from certificate_subjects import load, untrained

from longhand.data import Addition
from longhand.data.certificates import CannotCertify, check_neighbourhoods
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.relations import NOT_RELATED, coupled_pair_map
from longhand.modeling.vocabulary import EQUALS, PAD, decode

ORDERS = ["response_reversed", "all_reversed"]


def layouts(task, digits, lengths):
    """The tokens of problems, (count, columns) for each layout: which columns hold a digit, and how many there are."""
    tokens = task.format(digits, lengths).tokens
    layout = np.where(tokens == PAD, 2, tokens < 10)
    rows, which = np.unique(layout, axis=0, return_inverse=True)
    return [torch.from_numpy(tokens[which.ravel() == number][:, row < 2]).long() for number, row in enumerate(rows)]


def relations_of(task, tokens, relation_range):
    """What each token of problems of one layout sees in one layer, (columns, columns)."""
    ids = COUPLING_RULES[task.coupling].plan(tokens[:1], tokens.shape[1]).position_ids
    relations = coupled_pair_map(ids, ids, relation_range, True)[0]
    return relations.masked_fill(~torch.ones_like(relations).bool().tril(), NOT_RELATED)


def neighbourhoods_and_next_tokens(task, tokens, relation_range) -> Counter:
    """How often each (neighbourhood, right next token) occurs in the responses, one layer, found from all pairs."""
    relations = relations_of(task, tokens, relation_range)
    begin = int((tokens[0] == EQUALS).int().argmax())
    seen = torch.where(relations >= 0, tokens.unsqueeze(1) * 100 + relations + 1, 0)[:, begin:-1]
    seen = seen.sort(-1, descending=True).values[..., :16]
    seen = torch.nn.functional.pad(seen, (0, 16 - seen.shape[-1]))
    rows = torch.cat([tokens[:, begin:-1, None], seen, tokens[:, begin + 1 :, None]], dim=-1).flatten(0, 1)
    distinct, counts = np.unique(rows.numpy().astype(np.int16), axis=0, return_counts=True)
    return Counter({(row[:-1].tobytes(), int(row[-1])): int(count) for row, count in zip(distinct, counts, strict=True)})


def all_covered(task, batches, relation_range) -> Counter:
    same_layout = (tokens for digits, lengths in batches for tokens in layouts(task, digits, lengths))
    return sum((neighbourhoods_and_next_tokens(task, tokens, relation_range) for tokens in same_layout), Counter())


FORMATS = [Addition(order=order, zero_padding=padded) for padded in (True, False) for order in ORDERS]
every_format = pytest.mark.parametrize("task", FORMATS, ids=lambda task: f"{task.order}-{task.zero_padding}")
# Other windows take millions of covering problems.
cheap_windows = pytest.mark.parametrize("relation_range", [(0, 1), (1, 1)])


def numbers(digits, lengths, padded):
    """Problems of numbers with these digits and lengths; a number without padding has no 0 on top."""
    if padded:
        return digits, np.full(digits.shape[:2], digits.shape[2])
    columns, lengths = np.arange(digits.shape[2]), lengths[..., None]
    digits = np.where(columns < lengths, digits, 0)
    return np.where((columns == lengths - 1) & (columns > 0) & (digits == 0), 1, digits).astype(np.uint8), lengths[..., 0]


@cheap_windows
@every_format
def test_what_tokens_of_other_sums_see_and_what_comes_next_occurs_in_the_covering_problems(task, relation_range):
    generator = np.random.default_rng(0)
    covered = all_covered(task, task.covering(relation_range, 1).batches, relation_range)
    four_digits = np.stack(np.meshgrid(*[np.array([0, 4, 9], dtype=np.uint8)] * 8), axis=-1).reshape(-1, 2, 4)
    problems = [numbers(four_digits, generator.integers(1, 5, size=(len(four_digits), 2)), task.zero_padding)]
    for width in (4, 7, 20):
        digits = generator.integers(0, 10, size=(2000, 2, width), dtype=np.uint8)
        digits[:1000, 1] = np.where(generator.random((1000, width)) < 0.9, 9 - digits[:1000, 0], digits[:1000, 1])
        problems.append(numbers(digits, generator.integers(1, width + 1, size=(2000, 2)), task.zero_padding))
    assert all_covered(task, problems, relation_range).keys() <= covered.keys()


@every_format
def test_covering_problems_are_legal_groups_of_one_longest_operand(task):
    for digits, lengths in task.covering((0, 1), 1).batches:
        assert lengths.max(axis=1).tolist() == [digits.shape[2]] * len(digits)
        examples = task.format(digits, lengths)
        for tokens, length in zip(examples.tokens, examples.query_lengths, strict=True):
            assert re.fullmatch(task.prompt_format.pattern, decode(tokens[1:length]))


@pytest.mark.parametrize(("order", "relation_range", "decided", "refused"), [
    ("response_reversed", (0, 1), True, False), ("all_reversed", (0, 1), True, False),
    ("response_reversed", (1, 1), False, False),
    ("all_reversed", (0, 0), False, True), ("response_reversed", (0, 0), False, True), ("plain", (-1, 0), False, True),
])  # fmt: skip
def test_one_neighbourhood_with_two_right_answers_is_wrong_for_every_model(order, relation_range, decided, refused):
    task, model = Addition(order=order), untrained(Addition(order=order), relation_range=list(relation_range))
    answers = defaultdict(Counter)
    some = Addition().covering((0, 1), 1).batches
    for (neighbourhood, token), count in all_covered(task, some, relation_range).items():
        answers[neighbourhood][token] += count
    unavoidable = sum(counts.total() - max(counts.values()) for counts in answers.values())
    assert (unavoidable == 0) == decided
    if refused:
        with pytest.raises(CannotCertify, match=r"no window can hold|no model can be right"):
            check_neighbourhoods(model, task)
    else:
        assert check_neighbourhoods(model, task).wrong >= unavoidable


def classes(tokens, relations, layers, number):
    """What each token of one problem can know after so many layers, as a number that equal knowledge shares."""
    known = tokens.tolist()
    relations = relations.tolist()
    for _ in range(layers):
        known = [
            number.setdefault(
                (own, tuple(sorted((known[k], r) for k, r in enumerate(row[: t + 1]) if r != NOT_RELATED))),
                len(number) + 100,
            )
            for t, (own, row) in enumerate(zip(known, relations, strict=True))
        ]
    return known


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("relation_range", [(0, 1), (-1, 1), (0, 2), (1, 2)])
@every_format
def test_each_token_of_a_long_sum_knows_what_one_of_a_short_covering_problem_does(task, relation_range, layers):
    generator, padded = random.Random(0), task.zero_padding
    low, high = relation_range
    below, above = layers * max(-low, 0), layers * max(high, 0)
    reach = below + above + 1
    largest = (100 if padded else 110) * 10 ** (reach - 2)
    number = {}

    def problem(operands):
        lengths = np.array([[len(operand) for operand in operands]])
        digits = np.array([operand + [0] * (lengths.max() - len(operand)) for operand in operands], dtype=np.uint8)
        (tokens,) = layouts(task, digits[None], lengths)
        known = classes(tokens[0], relations_of(task, tokens, relation_range), layers, number)
        return known, tokens[0].tolist(), tokens[0].tolist().index(EQUALS)

    for widths in [(1, 1), (2, 2), (3, 3), (4, 4), (7, 7), (20, 20)] + [(1, 3), (7, 2), (3, 9), (12, 5)] * (not padded):
        first = [generator.randrange(10) for _ in range(max(widths))]
        second = [9 - digit if generator.random() < 0.6 else generator.randrange(10) for digit in first]
        operands = [operand[:width] for operand, width in zip((first, second), widths, strict=True)]
        if not padded:
            operands = [[*operand[:-1], operand[-1] or 4] if len(operand) > 1 else operand for operand in operands]
        known, tokens, equals = problem(operands)
        for step in range(len(tokens) - equals - 1):
            column = step - 1
            lowest = max(column - below, 0)
            end = column + above + 1
            short = [operand[lowest:end] for operand in operands]
            if not padded:
                short = [
                    part + [1] * (len(operand) > end and part[-1] == 0)
                    for part, operand in zip(short, operands, strict=True)
                ]
            assert all(int("".join(map(str, part[::-1])) or 0) < largest for part in short)
            if lowest > 0:
                # One column passes on the carry of all those below.
                values = [int("".join(map(str, operand[:lowest][::-1]))) for operand in operands]
                carry = sum(values) >= 10 ** min(lowest, max(map(len, operands)))
                short = [[9 * carry, *part] for part in short]
                column += 1 - lowest
            short_known, short_tokens, short_equals = problem(short)
            short_step = column + 1
            assert short_known[short_equals + short_step] == known[equals + step]
            assert short_tokens[short_equals + short_step + 1] == tokens[equals + step + 1]


@pytest.mark.parametrize("relation_range", [(0, 1), (1, 1), (-1, 1)])
@pytest.mark.parametrize("padded", [True, False])
def test_covering_problems_are_as_many_as_announced(padded, relation_range):
    covering = Addition(zero_padding=padded).covering(relation_range, 1)
    assert sum(len(digits) for digits, _ in covering.batches) == covering.count


def test_covering_problems_are_all_short_ones_and_then_those_with_a_carry_column():
    widths = defaultdict(list)
    for digits, lengths in Addition().covering((0, 1), 1).batches:
        assert lengths.shape == digits.shape[:2] and (lengths == digits.shape[2]).all()
        widths[digits.shape[2]].append(digits)
    widths = {width: np.concatenate(parts) for width, parts in widths.items()}
    assert {width: len(digits) for width, digits in widths.items()} == {1: 100, 2: 100**2, 3: 2 * 100**2}
    for digits in widths.values():
        assert digits.max() == 9
        assert len(np.unique(digits.reshape(len(digits), -1), axis=0)) == len(digits)
    assert {tuple(ones) for ones in widths[3][:, :, 0].tolist()} == {(0, 0), (9, 9)}


def test_distinct_neighbourhoods_are_counted_as_a_search_finds_them(main_job):
    covered = all_covered(Addition(), Addition().covering((0, 1), 1).batches, (0, 1))
    check = check_neighbourhoods(load(main_job), Addition(), thorough=True)
    assert check.neighbourhoods == len({neighbourhood for neighbourhood, _ in covered})
