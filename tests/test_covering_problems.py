"""Which short problems cover all that tokens of long sums see, against a search of it."""

import random
from collections import Counter, defaultdict

import numpy as np
import pytest
import torch
from certificate_subjects import load, untrained

from longhand.data import Addition
from longhand.data.certificates import CannotCertify, check_neighbourhoods
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.pair_maps import NOT_RELATED, coupled_pair_map
from longhand.modeling.vocabulary import EQUALS

ORDERS = ["response_reversed", "all_reversed"]
every_order = pytest.mark.parametrize("order", ORDERS)


def tokens_and_relations(task, digits, relation_range):
    """Problems of one width as tokens (count, columns), and what each token sees in one layer, (columns, columns)."""
    tokens = torch.from_numpy(task.format(digits, np.full(digits.shape[:2], digits.shape[2])).tokens).long()
    ids = COUPLING_RULES[task.coupling].plan(tokens[:1], tokens.shape[1]).position_ids
    relations = coupled_pair_map(ids, ids, relation_range, True)[0]
    return tokens, relations.masked_fill(~torch.ones_like(relations).bool().tril(), NOT_RELATED)


def neighbourhoods_and_next_tokens(task, digits, relation_range) -> Counter:
    """How often each (neighbourhood, right next token) occurs in the responses, one layer, found from all pairs."""
    tokens, relations = tokens_and_relations(task, digits, relation_range)
    begin = int((tokens[0] == EQUALS).int().argmax())
    seen = torch.where(relations >= 0, tokens.unsqueeze(1) * 100 + relations + 1, 0)[:, begin:-1]
    seen = seen.sort(-1, descending=True).values[..., :16]
    seen = torch.nn.functional.pad(seen, (0, 16 - seen.shape[-1]))
    rows = torch.cat([tokens[:, begin:-1, None], seen, tokens[:, begin + 1 :, None]], dim=-1).flatten(0, 1)
    distinct, counts = np.unique(rows.numpy().astype(np.int16), axis=0, return_counts=True)
    return Counter({(row[:-1].tobytes(), int(row[-1])): int(count) for row, count in zip(distinct, counts, strict=True)})


def all_covered(task, batches, relation_range) -> Counter:
    return sum((neighbourhoods_and_next_tokens(task, digits, relation_range) for digits, _ in batches), Counter())


# Other windows take millions of covering problems.
CHEAP_WINDOWS = [(order, window) for order in ORDERS for window in ((0, 1), (1, 1))]


@pytest.mark.parametrize(("order", "relation_range"), CHEAP_WINDOWS)
def test_what_tokens_of_long_sums_see_and_what_comes_next_occurs_in_the_covering_problems(order, relation_range):
    task, generator = Addition(order=order), np.random.default_rng(0)
    covered = all_covered(task, task.covering(relation_range, 1).batches, relation_range)
    for width in (4, 7, 20):
        digits = generator.integers(0, 10, size=(2000, 2, width), dtype=np.uint8)
        digits[:1000, 1] = np.where(generator.random((1000, width)) < 0.9, 9 - digits[:1000, 0], digits[:1000, 1])
        assert neighbourhoods_and_next_tokens(task, digits, relation_range).keys() <= covered.keys()


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
@every_order
def test_each_token_of_a_long_sum_knows_what_one_of_a_short_covering_problem_does(order, relation_range, layers):
    task, generator = Addition(order=order), random.Random(0)
    low, high = relation_range
    below, above = layers * max(-low, 0), layers * max(high, 0)
    reach = below + above + 1
    assert task.covering(relation_range, layers).count == sum(100**w for w in range(1, reach + 1)) + 2 * 100**reach
    number = {}

    def problem(digits):
        tokens, relations = tokens_and_relations(task, digits[None], relation_range)
        return classes(tokens[0], relations, layers, number), tokens[0].tolist(), digits.shape[1] * 2 + 2

    for width in (1, 2, 3, 4, 7, 20):
        first = [generator.randrange(10) for _ in range(width)]
        second = [9 - digit if generator.random() < 0.6 else generator.randrange(10) for digit in first]
        digits = np.array([first, second], dtype=np.uint8)
        known, tokens, equals = problem(digits)
        for step in range(width + 2):
            column = step - 1
            lowest = column - below
            short = digits[:, max(lowest, 0) : column + above + 1]
            if lowest > 0:
                # One column passes on the carry of all those below.
                carry = sum(int("".join(map(str, row[:lowest][::-1]))) for row in digits.tolist()) >= 10 ** min(
                    lowest, width
                )
                short = np.pad(short, ((0, 0), (1, 0)), constant_values=9 * carry)
                column += 1 - lowest
            assert short.shape[1] <= reach or (short.shape[1] == reach + 1 and short[0, 0] == short[1, 0] in (0, 9))
            short_known, short_tokens, short_equals = problem(short)
            short_step = column + 1
            assert short_known[short_equals + short_step] == known[equals + step]
            assert short_tokens[short_equals + short_step + 1] == tokens[equals + step + 1]


@pytest.mark.parametrize(("order", "relation_range"), [*CHEAP_WINDOWS, ("response_reversed", (-1, 1))])
def test_covering_problems_are_as_many_as_announced(order, relation_range):
    covering = Addition(order=order).covering(relation_range, 1)
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
