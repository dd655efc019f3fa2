"""Lengths of cascades, of runs of carries and of dependencies: against enumeration, and samples of given lengths."""

import re
from collections import Counter
from itertools import product

import numpy as np
import pytest

from longhand.data.splits import make_generator
from longhand.data.tasks import complexity
from longhand.data.tasks.complexity import (
    cascade_lengths,
    dependency_lengths,
    draw_carry_runs,
    draw_cascades,
    draw_dependencies,
)
from longhand.hub_cards.research.__main__ import main
from longhand.hub_cards.research.theories import complexity as command
from longhand.hub_cards.research.theories.complexity import cascade_distribution, dependency_distribution
from longhand.hub_cards.result_rows import read_results

WEIGHTS = {"L": 45, "N": 10, "H": 45}
"""Pairs of digits that sum to less than 9, to 9 and to more, of 100."""


def carry_run_lengths(first, second):
    """The most columns in a row that carry on their own."""
    return np.array([longest_match("H+", "".join(word)) for word in drawn_words(first, second)])


DRAWS = {draw_cascades: cascade_lengths, draw_carry_runs: carry_run_lengths}


def to_digits(numbers, width):
    return (np.asarray(numbers)[:, None] // 10 ** np.arange(width) % 10).astype(np.uint8)


def all_pairs(digits):
    first, second = np.meshgrid(np.arange(10**digits), np.arange(10**digits))
    return to_digits(first.ravel(), digits), to_digits(second.ravel(), digits)


def longest_match(pattern, word):
    """Characters of the longest piece of the word, its ones column first, that matches."""
    return max(map(len, re.findall(pattern, word)), default=0)


def words_by_class(digits, draw):
    """For each class, what share each kind-by-column word has of the sums that `draw` draws from."""
    words = {"".join(word): float(np.prod([WEIGHTS[kind] for kind in word])) for word in product("LNH", repeat=digits)}
    pattern = "HN*" if draw is draw_cascades else "H+"
    if draw is draw_carry_runs:
        words = {word: weight for word, weight in words.items() if "HN" not in word}
    classes = {}
    for word, weight in words.items():
        classes.setdefault(longest_match(pattern, word), {})[word] = weight
    return {longest: {word: w / sum(own.values()) for word, w in own.items()} for longest, own in classes.items()}


def drawn_words(first, second):
    sums = first + second
    return np.array(list("LNH"))[(sums > 8).astype(int) + (sums > 9)]


def levels_of_product(multiplier, multiplicand):
    """Fig. 3a with Python's lists: one pass for each level."""
    columns = [multiplier * int(digit) for digit in str(multiplicand)[::-1]]
    levels = 0
    while max(columns) > 9:
        passed = Counter()
        for place, value in enumerate(columns):
            for offset, digit in enumerate(str(value)[::-1]):
                passed[place + offset] += int(digit)
        columns = [passed[place] for place in range(max(passed) + 1)]
        levels += 1
    assert int("".join(map(str, columns[::-1]))) == multiplier * multiplicand
    return levels


@pytest.mark.parametrize("digits", [1, 2, 3])
def test_lengths_and_distribution_are_those_of_all_pairs(digits):
    first, second = all_pairs(digits)
    words = ["".join(word) for word in product("LNH", repeat=digits)]
    kinds = (first.astype(int) + second > 8).astype(int) + (first.astype(int) + second > 9)
    word = (kinds * 3 ** np.arange(digits - 1, -1, -1)).sum(axis=1)
    lengths = cascade_lengths(first, second)
    assert (lengths == np.array([longest_match("HN*", word) for word in words])[word]).all()
    exact = np.bincount(lengths, minlength=digits + 1) / 100**digits
    assert np.allclose(cascade_distribution(digits), exact, rtol=1e-12, atol=0)


@pytest.mark.parametrize("distribution", [cascade_distribution, dependency_distribution])
def test_distribution_of_a_thousand_digits_is_whole(distribution):
    shares = distribution(1000)
    assert shares.shape == (1001,) and shares.min() >= 0
    assert shares.sum() == pytest.approx(1, abs=1e-12)
    # One more column is ten times as rare, down to the least float.
    assert np.allclose(shares[21:300] / shares[20:299], 0.1, rtol=0.01)


@pytest.mark.parametrize("draw", DRAWS)
def test_drawn_columns_have_the_frequencies_of_their_class(draw):
    digits, each = 6, 30_000
    exact = words_by_class(digits, draw)
    assert sorted(exact) == list(range(digits + 1))
    longest = np.tile(np.arange(digits + 1), each)
    words = drawn_words(*draw(make_generator("words"), longest, digits))
    for own, shares in exact.items():
        counts = Counter(map("".join, words[longest == own]))
        assert counts.keys() <= shares.keys()
        for word, share in shares.items():
            assert abs(counts[word] - share * each) < 5 * (share * each) ** 0.5 + 5, word


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize(
    ("digits", "classes"), [(1, [0, 1]), (40, range(41)), (150, [0, 150]), (1000, [0, 1, 2, 400, 1000])]
)
def test_given_classes_hold(draw, digits, classes):
    longest = np.tile(classes, 50 if digits < 1000 else 4).astype(np.min_scalar_type(digits))
    first, second = draw(make_generator(0), longest, digits)
    for numbers in (first, second):
        assert numbers.shape == (len(longest), digits) and numbers.dtype == np.uint8 and numbers.max() <= 9
    assert (DRAWS[draw](first, second) == longest).all()
    if draw is draw_carry_runs:
        assert (cascade_lengths(first, second) == np.minimum(longest, 1)).all()


@pytest.mark.parametrize("digits", [1, 2, 3])
def test_dependency_distribution_is_that_of_all_products(digits):
    levels = Counter(levels_of_product(a, b) for a in range(1, 10) for b in range(10**digits))
    exact = [levels[length] / (9 * 10**digits) for length in range(digits + 1)]
    assert np.allclose(dependency_distribution(digits), exact, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("first", "second"), [(1, 1), (1, 9), (2, 3), (3, 6), (7, 4)])
def test_dependency_lengths_are_those_of_the_levels(first, second):
    generator = make_generator("levels", first, second)
    factors = generator.integers(0, 10**first, size=500), generator.integers(0, 10**second, size=500)
    lengths = dependency_lengths(to_digits(factors[0], first), to_digits(factors[1], second))
    assert lengths.tolist() == [levels_of_product(*map(int, pair)) for pair in zip(*factors, strict=True)]


def test_a_carry_may_pass_through_every_level():
    # 9 * 11...12 = 100...08: one level for each digit.
    number = np.ones((1, 500), dtype=np.uint8)
    number[0, 0] = 2
    assert dependency_lengths(np.array([[9]], dtype=np.uint8), number) == [500]


def test_drawn_products_are_uniform_among_those_of_their_length():
    digits, each = 3, 40_000
    first, second = (numbers.ravel() for numbers in np.meshgrid(np.arange(1, 10), np.arange(10**digits)))
    lengths = dependency_lengths(to_digits(first, 1), to_digits(second, digits))
    for length in range(digits + 1):
        multipliers, numbers = draw_dependencies(make_generator(length), np.full(each, length), digits)
        drawn = Counter(zip(multipliers[:, 0].tolist(), (numbers @ 10 ** np.arange(digits)).tolist(), strict=True))
        legal = set(zip(first[lengths == length].tolist(), second[lengths == length].tolist(), strict=True))
        share = each / len(legal)
        assert drawn.keys() <= legal
        assert abs(sum((drawn[pair] - share) ** 2 / share for pair in legal) / len(legal) - 1) < 5 * (2 / len(legal)) ** 0.5


def test_every_length_is_drawn_and_others_are_refused():
    longest = np.repeat(np.arange(21), 3)
    assert (dependency_lengths(*draw_dependencies(make_generator(0), longest, 20)) == longest).all()
    for wrong, digits, said in (([0, 6], 5, "6"), ([-1], 5, "-1"), ([0], 0, "digits"), ([0], 65, "digits")):
        with pytest.raises(ValueError, match=said):
            draw_dependencies(make_generator(0), np.array(wrong), digits)


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("few", [False, True])
def test_sums_of_a_class_follow_from_the_seed(draw, few, monkeypatch):
    if few:
        monkeypatch.setattr(complexity, "_MAX_CELLS", 200)
    longest = make_generator(1).integers(0, 13, size=500)
    first, again, other = (np.stack(draw(make_generator(seed), longest, 12)) for seed in (0, 0, 1))
    assert (first == again).all() and (first != other).any() and (DRAWS[draw](*first) == longest).all()
    assert draw(make_generator(0), longest[:0], 5)[0].shape == (0, 5)


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize(("longest", "digits", "said"), [([0, 6], 5, "6"), ([3, -1], 5, "-1"), ([0], 0, "digits")])
def test_classes_that_no_sum_has_are_refused(draw, longest, digits, said):
    with pytest.raises(ValueError, match=said):
        draw(make_generator(0), np.array(longest), digits)


@pytest.mark.release
def test_the_published_rows_are_those_of_the_command(tmp_path, monkeypatch):
    published = read_results(command.RESULTS)
    monkeypatch.setattr(command, "RESULTS", tmp_path / "rows.jsonl")
    main(["complexity"])
    for row, kept in zip(read_results(tmp_path / "rows.jsonl"), published, strict=True):
        assert row["probabilities"] == pytest.approx(kept["probabilities"], rel=1e-9, abs=1e-14)
        assert row["shares"] == kept["shares"]
        for share, probability in zip(row["shares"], row["probabilities"], strict=True):
            assert abs(share - probability) < 5 * (probability / row["drawn"]) ** 0.5 + 5 / row["drawn"]
        assert row["share_up_to_4"] == pytest.approx(sum(row["probabilities"][:5]))
