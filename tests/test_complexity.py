"""Lengths of cascades, of runs of carries and of dependencies: against enumeration, and samples of given lengths."""

import re
from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from longhand.data import complexity
from longhand.data.complexity import carry_run_lengths, cascade_lengths, draw_carry_runs, draw_cascades
from longhand.data.splits import make_generator
from longhand.hub_cards.evaluation.results import read_results
from longhand.hub_cards.research.__main__ import main
from longhand.hub_cards.research.complexity import study as command
from longhand.hub_cards.research.complexity.distributions import (
    cascade_distribution,
    dependency_distribution,
    dependency_lengths,
)

WEIGHTS = {"L": 45, "N": 10, "H": 45}
"""Pairs of digits that sum to less than 9, to 9 and to more, of 100."""

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


def assert_frequencies(counts, shares):
    """Pearson's statistic is within five standard deviations of what such shares give."""
    expected = np.asarray(shares) * np.sum(counts)
    statistic = ((counts - expected) ** 2 / expected).sum()
    # Rare values add to the variance: Haldane's exact variance of the statistic.
    freedom = len(expected) - 1
    variance = 2 * freedom + ((1 / np.asarray(shares)).sum() - (freedom + 1) ** 2 - 2 * freedom) / np.sum(counts)
    assert abs(statistic - freedom) < 5 * max(variance, 1) ** 0.5


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


@pytest.mark.parametrize(
    ("first", "second", "cascade", "run"),
    [
        (123, 456, 0, 0),
        (95, 7, 2, 1),
        (999, 1, 3, 1),
        (555, 555, 1, 3),
        (990, 9, 0, 0),
        (49950, 50060, 4, 1),
        (95595, 55505, 2, 3),
    ],
)
def test_lengths_of_known_sums(first, second, cascade, run):
    numbers = to_digits([first], 6), to_digits([second], 6)
    assert cascade_lengths(*numbers).tolist() == [cascade]
    assert carry_run_lengths(*numbers).tolist() == [run]


@pytest.mark.parametrize("digits", [1, 2, 3])
def test_lengths_and_distribution_are_those_of_all_pairs(digits):
    first, second = all_pairs(digits)
    words = ["".join(word) for word in product("LNH", repeat=digits)]
    kinds = (first.astype(int) + second > 8).astype(int) + (first.astype(int) + second > 9)
    word = (kinds * 3 ** np.arange(digits - 1, -1, -1)).sum(axis=1)
    lengths = cascade_lengths(first, second)
    assert (lengths == np.array([longest_match("HN*", word) for word in words])[word]).all()
    assert (carry_run_lengths(first, second) == np.array([longest_match("H+", word) for word in words])[word]).all()
    exact = np.bincount(lengths, minlength=digits + 1) / 100**digits
    assert np.allclose(cascade_distribution(digits), exact, rtol=1e-12, atol=0)


def test_published_probabilities_of_cascades():
    assert cascade_distribution(5)[4] == pytest.approx(8.55e-4, rel=1e-9)
    assert cascade_distribution(50)[:5].sum() == pytest.approx(0.9979, abs=5e-5)


def test_every_probability_of_a_cascade_is_precise():
    digits = 50
    ways = Counter({(0, 0): 1})
    for _ in range(digits):
        following = Counter()
        for (live, longest), count in ways.items():
            for weight, after in ((45, 0), (10, live + 1 if live else 0), (45, 1)):
                following[after, max(longest, after)] += weight * count
        ways = following
    exact = [
        float(Fraction(sum(n for (_, longest), n in ways.items() if longest == k), 100**digits)) for k in range(digits + 1)
    ]
    assert np.allclose(cascade_distribution(digits), exact, rtol=1e-11, atol=0)


@pytest.mark.parametrize("distribution", [cascade_distribution, dependency_distribution])
def test_distribution_of_a_thousand_digits_is_whole(distribution):
    shares = distribution(1000)
    assert shares.shape == (1001,) and shares.min() >= 0
    assert shares.sum() == pytest.approx(1, abs=1e-12)
    # One more column is ten times as rare, down to the least float.
    assert np.allclose(shares[21:300] / shares[20:299], 0.1, rtol=0.01)


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("digits", [2, 3])
def test_drawn_pairs_are_uniform_in_their_class(draw, digits):
    first, second = all_pairs(digits)
    allowed = np.ones(len(first), bool) if draw is draw_cascades else cascade_lengths(first, second) <= 1
    lengths = np.where(allowed, DRAWS[draw](first, second), -1)
    count = 200_000
    for longest in range(digits + 1):
        drawn = draw(make_generator(digits, longest), np.full(count, longest), digits)
        code = (np.concatenate(drawn, axis=1) * 10 ** np.arange(2 * digits)).sum(axis=1)
        frequency = np.bincount(code, minlength=100**digits)
        members = np.flatnonzero(lengths == longest)
        assert frequency[members].sum() == count
        assert_frequencies(frequency[members], np.full(len(members), 1 / len(members)))


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
        assert_frequencies(np.array([counts[word] for word in shares]), list(shares.values()))


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


@pytest.mark.parametrize("draw", DRAWS)
def test_classes_hold_when_few_are_drawn_at_a_time(draw, monkeypatch):
    monkeypatch.setattr(complexity, "_MAX_CELLS", 200)
    longest = make_generator(1).integers(0, 13, size=500)
    assert (DRAWS[draw](*draw(make_generator(2), longest, 12)) == longest).all()


@pytest.mark.parametrize("draw", DRAWS)
def test_no_classes_give_no_sums(draw):
    first, second = draw(make_generator(0), np.array([], dtype=int), 5)
    assert first.shape == second.shape == (0, 5)


@pytest.mark.parametrize("digits", [1, 2, 3, 4])
def test_dependency_distribution_is_that_of_all_products(digits):
    numbers = to_digits(np.arange(10**digits), digits)
    counts = sum(
        np.bincount(dependency_lengths(np.full((10**digits, 1), multiplier, np.uint8), numbers), minlength=digits + 1)
        for multiplier in range(1, 10)
    )
    assert np.allclose(dependency_distribution(digits), counts / (9 * 10**digits), rtol=0, atol=1e-14)


def test_dependency_distribution_of_more_digits():
    digits, shares = 12, Counter()
    for multiplier in range(1, 10):
        # A number's last tens, the cascade under way, the longest one, and whether a product had two digits.
        ways = Counter({(0, 0, 0, False): 1})
        for _ in range(digits):
            following = Counter()
            for (tens, live, longest, moved), count in ways.items():
                for digit in range(10):
                    above, ones = divmod(multiplier * digit, 10)
                    column = ones + tens
                    after = 1 if column > 9 else live + 1 if column == 9 and live else 0
                    following[above, after, max(longest, after), moved or above > 0] += count
            ways = following
        for (_, _, longest, moved), count in ways.items():
            shares[longest + moved] += Fraction(count, 9 * 10**digits)
    exact = [float(shares[levels]) for levels in range(digits + 1)]
    assert np.allclose(dependency_distribution(digits), exact, rtol=0, atol=1e-14)


def test_published_probabilities_of_dependencies():
    assert dependency_distribution(5)[4] == pytest.approx(1.9e-3, rel=1e-9)
    assert dependency_distribution(20)[:5].sum() == pytest.approx(0.998, abs=5e-4)


@pytest.mark.parametrize("multiplier_digits", [1, 2, 3])
def test_dependency_lengths_are_the_levels_of_the_product(multiplier_digits):
    generator = make_generator(multiplier_digits)
    multipliers = generator.integers(0, 10**multiplier_digits, size=2000)
    numbers = generator.integers(0, 10**7, size=2000)
    # Products such as 3 * 3333...34 carry all the way.
    multipliers[:3], numbers[:3] = (3, 9, 10**multiplier_digits - 1), (333334, 1111112, 9999999)
    expected = [levels_of_product(*pair) for pair in zip(multipliers.tolist(), numbers.tolist(), strict=True)]
    factors = to_digits(multipliers, multiplier_digits), to_digits(numbers, 8)
    assert dependency_lengths(*factors).tolist() == expected
    alone = [
        dependency_lengths(*pair).item() for pair in zip(*(np.split(numbers, 2000) for numbers in factors), strict=True)
    ]
    assert alone == expected
    assert len(set(expected)) > 4


def test_a_product_may_carry_through_a_thousand_columns():
    multiplicand = np.full((2, 1000), 3, dtype=np.uint8)
    multiplicand[0, 0] = 4
    assert dependency_lengths(np.array([[3], [3]], dtype=np.uint8), multiplicand).tolist() == [1000, 0]


def zeros(*shapes):
    return [np.zeros(shape, dtype=np.uint8) for shape in shapes]


@pytest.mark.parametrize(
    ("call", "named"),
    [
        *((lambda draw=draw, own=own: draw(make_generator(0), np.array(own), 5), r"0\.\.5 .* got (6|-1)")
          for draw in DRAWS for own in ([0, 6], [3, -1])),
        *((lambda draw=draw, own=own: draw(make_generator(0), np.array(own), 5), r"\(count,\) integers")
          for draw in DRAWS for own in ([1.0], [[1]], 1)),
        *((lambda call=call, digits=digits: call(digits), "digits")
          for call in (cascade_distribution, dependency_distribution) for digits in (0, -1)),
        *((lambda draw=draw: draw(make_generator(0), np.array([0]), 0), "digits") for draw in DRAWS),
        *((lambda length=length, shapes=shapes: length(*zeros(*shapes)), "shape")
          for length in DRAWS.values() for shapes in (((2, 3), (2, 4)), ((3,), (3,)))),
        *((lambda shapes=shapes: dependency_lengths(*zeros(*shapes)), r"multiplier .*\(count, 1 to 3\)")
          for shapes in (((2, 4), (2, 5)), ((2, 0), (2, 5)), ((2,), (2, 5)))),
        (lambda: dependency_lengths(*zeros((2, 1), (3, 5))), r"multiplicand .*\(3, 5\)"),
    ],
)  # fmt: skip
def test_numbers_and_classes_that_do_not_fit_are_named(call, named):
    with pytest.raises(ValueError, match=named):
        call()


def test_command_writes_the_published_rows_and_draws_them(tmp_path, monkeypatch, capsys):
    published = read_results(command.RESULTS)
    monkeypatch.setattr(command, "RESULTS", tmp_path / "rows.jsonl")
    main(["complexity"])
    rows = read_results(tmp_path / "rows.jsonl")
    assert [(row["length"], row["digits"]) for row in rows] == list(command.PANELS)
    for row, kept in zip(rows, published, strict=True):
        assert row["probabilities"] == pytest.approx(kept["probabilities"], rel=1e-9, abs=1e-14)
        assert row["share_up_to_4"] == pytest.approx(sum(row["probabilities"][:5]))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["rows.jsonl", "rows.png"]
    assert "8.55e-04" in capsys.readouterr().out
