import itertools
import re
from collections import Counter
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest
import torch

from longhand.data import SPLITS, TASKS, AdditionScratchpad, CouplingCollator, EvaluationBatches, make_generator
from longhand.data.collator import IGNORED
from longhand.data.tasks.addition_scratchpad import LengthSampling
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.relations import coupled_pair_map
from longhand.modeling.vocabulary import BOS, EQUALS, GREATER, PAD, SEPARATE_EOS, TOKENS, decode

RULE = COUPLING_RULES["addition_scratchpad"]
SAMPLINGS = get_args(LengthSampling)
SIZES = [(1, 2), (1, 9), (1, 10), (1, 11), (1, 12), (2, 2), (2, 100), (2, 101), (3, 5), (10, 10), (30, 30), (60, 3)]
"""Digits of the operands, operands."""


def as_digits(problems: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Digits and lengths of problems with equally many operands."""
    lengths = np.array([[len(str(number)) for number in numbers] for numbers in problems])
    width = lengths.max()
    digits = [[[int(digit) for digit in str(number).zfill(width)[::-1]] for number in numbers] for numbers in problems]
    return np.array(digits, dtype=np.uint8), lengths


def write(task, *numbers: int) -> str:
    """The text of one problem."""
    return decode(task.format(*as_digits([list(numbers)])).tokens[0])


def expected_text(*numbers: int) -> str:
    """The text of a problem, made of Python integers."""
    width = max(len(str(number)) for number in numbers) + len(str(len(numbers) - 1))
    sums = [0, *itertools.accumulate(numbers)]
    query = "+".join(str(number).zfill(width) for number in numbers)
    return f"${query}={'>'.join(str(total).zfill(width)[::-1] for total in sums)}$"


def draw(length: int, operands: int, count: int, *seed: int) -> np.ndarray:
    """Digits of any operands of up to `length` digits; the last problems are full of nines and zeros."""
    generator = make_generator(length, operands, *seed)
    digits = generator.integers(0, 10, (count, operands, length)).astype(np.uint8)
    digits[count // 2 :] = 9 * generator.integers(0, 2, digits[count // 2 :].shape)
    digits[-1] = 9
    return digits


def test_format_is_zero_padded_running_sums_with_the_ones_first():
    assert write(AdditionScratchpad(), 57, 48, 96) == "$057+048+096=000>750>501>102$"
    assert write(AdditionScratchpad(), 512, 880, 300) == "$0512+0880+0300=0000>2150>2931>2961$"
    assert write(AdditionScratchpad(separate_eos=True), 5, 0) == "$05+00=00>50>50<eos>"
    assert write(AdditionScratchpad(), *[9] * 11).endswith(">090>990$")


@pytest.mark.parametrize(("longest", "operands"), SIZES)
def test_width_is_that_of_the_largest_sum(longest, operands):
    text = write(AdditionScratchpad(), *[10**longest - 1] * operands)
    width, needed = len(text.split(">")[-1]) - 1, len(str(operands * (10**longest - 1)))
    assert width == needed if operands <= 10**longest else width >= needed


@pytest.mark.parametrize(("longest", "operands"), SIZES)
def test_text_of_every_example_is_the_running_sums_of_its_operands(longest, operands):
    task = AdditionScratchpad(max_operands=operands + 3)
    lengths = task.group_lengths(make_generator(longest), np.array([longest] * operands + [0] * 3), 40, 1)
    lengths[:, 0] = longest
    examples = task.examples(make_generator(longest, 1), lengths, "train")
    assert examples.same_layout and len(examples) == 40
    for tokens, query, row in zip(examples.tokens, examples.query_lengths, lengths.tolist(), strict=True):
        text = decode(tokens)
        numbers = [int(number) for number in text[1 : text.index("=")].split("+")]
        assert [len(str(number)) for number in numbers] + [0] * 3 == row
        assert text == expected_text(*numbers)
        assert text.index("=") + 1 == query


def test_carries_run_through_all_running_sums():
    nines = 10**50 - 1
    for numbers in ([nines] * 12, [nines, 1, nines, 1], [1] + [0] * 20 + [nines], [0, 0]):
        assert write(AdditionScratchpad(), *numbers) == expected_text(*numbers)


def expected_lengths(sampling: str, low: int, high: int, max_operands: int) -> dict[tuple[int, ...], Fraction]:
    """Probability of every row of lengths, by enumeration."""
    shares, lengths = Counter(), range(low, high + 1)
    for operands in range(2, max_operands + 1):
        for row in itertools.product(lengths, repeat=operands):
            own = Fraction(1, len(lengths) ** operands)
            shared = Fraction(len(set(row)) == 1, len(lengths))
            if sampling == "uniform":
                share = own
            elif sampling == "partially_uniform":
                share = (own + shared) / 2
            elif sampling == "uniform_with_longest":
                share = own * len(lengths) * Fraction(row.count(high), operands)
            else:
                numbers = {length: 10**length - (10 ** (length - 1) if length > 1 else 0) for length in lengths}
                share = Fraction()
                for longest in range(max(row), high + 1):
                    total = sum(numbers[length] for length in range(low, longest + 1))
                    share += Fraction(np.prod([numbers[length] for length in row], dtype=object), total**operands)
                share /= len(lengths)
            shares[(*row, *[0] * (max_operands - operands))] += share / (max_operands - 1)
    assert sum(shares.values()) == 1
    return shares


def assert_distributed(lengths: np.ndarray, shares: dict[tuple[int, ...], Fraction]) -> None:
    counts, total = Counter(map(tuple, lengths.tolist())), sum(shares.values())
    assert not set(counts) - {row for row, share in shares.items() if share}
    for row, share in shares.items():
        expected = float(share / total) * len(lengths)
        assert abs(counts[row] - expected) <= 5 * max(expected, 1) ** 0.5 + 1, row


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize(("low", "high", "max_operands"), [(1, 3, 4), (2, 3, 3), (4, 4, 2), (1, 1, 5)])
def test_lengths_are_distributed_as_described(sampling, low, high, max_operands):
    task = AdditionScratchpad(max_operands=max_operands, length_sampling=sampling)
    lengths = task.sample_lengths(make_generator(0), 60_000, low, high)
    assert lengths.shape == (60_000, max_operands)
    assert_distributed(lengths, expected_lengths(sampling, low, high, max_operands))


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize(("low", "high", "max_operands"), [(1, 3, 4), (2, 3, 3), (1, 1, 2)])
def test_group_lengths_are_sampled_lengths_given_their_group(sampling, low, high, max_operands):
    """For `partially_uniform` given also whether all are equal, which every batch keeps."""
    task = AdditionScratchpad(max_operands=max_operands, length_sampling=sampling)
    shares = expected_lengths(sampling, low, high, max_operands)

    def batch_of(row):
        equal = sampling == "partially_uniform" and len(set(row) - {0}) == 1
        return *task.size(row), equal

    for group in {batch_of(row) for row, share in shares.items() if share}:
        same = {row: share for row, share in shares.items() if share and batch_of(row) == group}
        for given in (min(same), max(same)):
            drawn = task.group_lengths(make_generator(1), np.array(given), 10_000, low)
            assert_distributed(drawn, same)
            assert len(np.unique(task.group(drawn))) == 1


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("longest", [40, 500])
def test_lengths_of_large_groups_are_legal(sampling, longest):
    task = AdditionScratchpad(max_operands=60, length_sampling=sampling)
    for lengths in task.sample_lengths(make_generator(longest), 20, 3, longest):
        drawn = task.group_lengths(make_generator(2), lengths, 50, 3)
        assert (task.group(drawn) == task.group(lengths[None])).all()
        assert drawn[drawn > 0].min() >= 3 and ((drawn > 0) == (lengths > 0)).all()


@pytest.mark.parametrize("lengths", [[[2, 2, 0], [2, 2, 1]], [[1, 1, 2], [1, 1, 1]]])
def test_groups_are_not_mixed_in_one_batch(lengths):
    message = r"one size \(digits of the operands x number of operands\), got 2 x [23] and [12] x 3$"
    with pytest.raises(ValueError, match=message):
        AdditionScratchpad().examples(make_generator(0), np.array(lengths), "train")


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("lengths", [[1, 1], [2, 1, 3, 0, 0], [1] * 18])
def test_short_draws_belong_to_the_asked_split(split, lengths):
    task, lengths = AdditionScratchpad(), np.tile(lengths, (300, 1))
    digits = task.draw(make_generator(0), lengths, split)
    assert (task.split_of(digits, lengths) == SPLITS.index(split)).all()


@pytest.mark.parametrize("lengths", [[1, 1], [3, 3], [1, 2, 3], [1] * 18, [17, 1]])
def test_split_does_not_depend_on_the_room_for_further_operands_and_digits(lengths):
    task = AdditionScratchpad()
    digits = draw(max(lengths), len(lengths), 200)
    digits *= np.arange(max(lengths)) < np.array(lengths)[:, None]
    lengths = np.tile(lengths, (200, 1))
    split = task.split_of(digits, lengths)
    assert set(split) == {0, 1, 2}
    for operands, width in ((1, 0), (30, 0), (0, 25), (4, 3)):
        wider = np.pad(digits, ((0, 0), (0, operands), (0, width)))
        assert (task.split_of(wider, np.pad(lengths, ((0, 0), (0, operands)))) == split).all()


@pytest.mark.parametrize("lengths", [[10, 9], [1] * 19, [1] * 40])
def test_long_problems_belong_to_no_split(lengths):
    digits = draw(max(lengths), len(lengths), 100)
    assert (AdditionScratchpad().split_of(digits, np.tile(lengths, (100, 1))) == -1).all()


@pytest.mark.parametrize(("digits", "operands"), SIZES)
def test_evaluation_batches_supervise_the_response(digits, operands):
    task = AdditionScratchpad()
    lengths = task.operand_lengths(digits, operands)
    assert lengths == (digits,) * operands and task.size(lengths) == (digits, operands)
    batch = EvaluationBatches(task, lengths, 3, 0, "test", 3, collator=CouplingCollator(task.coupling, 999))[0]
    response = (operands + 1) * task.answer_length(lengths)
    assert ((batch["labels"] != IGNORED).sum(1) == response).all() and batch["logits_to_keep"] == response + 1
    assert len(batch["position_ids"]) == 1
    answer = decode(batch["input_ids"][0, -task.answer_length(lengths) :])
    assert re.fullmatch("[0-9]+[$]", answer)


def test_sizes_are_digits_and_operands():
    task = AdditionScratchpad()
    assert task.operand_lengths(5) == (5,) * 5 and task.operand_lengths(1) == (1, 1)
    assert task.size((3, 12, 1, 0, 0)) == (12, 3)
    with pytest.raises(ValueError, match="number of operands must be at least 2, got 1"):
        task.operand_lengths(5, 1)


@pytest.mark.parametrize(("length", "operands"), SIZES)
def test_answer_is_read_back_as_the_integer_sum(length, operands):
    generator = make_generator(length, operands)
    top = 10 ** min(length, 18)
    rows = [[0] * operands, [10**length - 1] * operands, *generator.integers(0, top, (20, operands)).tolist()]
    for numbers in rows:
        query, response = write(AdditionScratchpad(), *numbers).strip("$").split("=")
        assert AdditionScratchpad().prompt("+".join(map(str, numbers))) == f"{query}="
        assert AdditionScratchpad().reader.read(response) == str(sum(numbers))


@pytest.mark.parametrize("question", ["653+49+871", "653+49+871=", " 653 + 49 + 871 ", "653+ 49 +871 =\n"])
def test_question_may_have_spaces_and_an_equals_sign(question):
    assert AdditionScratchpad().prompt(question) == "0653+0049+0871="


@pytest.mark.parametrize(
    "question",
    ["", "+", "3", "3+", "+3+4", "3++4", "3+4-5", "3+4==", "3+4=7", "3+4+5.0", "3+4 5", "٣+4", "3+4\u00a0", "a+b", "3*4"],
)
def test_malformed_question_is_refused_by_name(question):
    with pytest.raises(ValueError, match=f"^the question {re.escape(repr(question))} is not an addition of two or more"):
        AdditionScratchpad().prompt(question)


@pytest.mark.parametrize("value", [1, 0, -2, 3.0, True, None, "3"])
def test_illegal_numbers_of_operands_are_refused(value):
    with pytest.raises(ValueError, match=f"max_operands must be .* got {re.escape(repr(value))}"):
        AdditionScratchpad(max_operands=value)


@pytest.mark.parametrize("value", ["", "longest", None, 1])
def test_unknown_length_sampling_is_refused(value):
    with pytest.raises(ValueError, match=f"length_sampling {re.escape(repr(value))} is unknown: .*{', '.join(SAMPLINGS)}"):
        AdditionScratchpad(length_sampling=value)


def test_format_describes_itself():
    for task in (AdditionScratchpad(), AdditionScratchpad(True, 7, "uniform_values")):
        description = task.describe()
        assert TASKS[description.pop("task")](**description) == task
    with pytest.raises(ValueError, match="separate_eos must be True or False, got 1"):
        AdditionScratchpad(separate_eos=1)


@pytest.mark.parametrize(("width", "operands"), [(2, 2), (1, 3), (4, 2), (3, 12)])
def test_ids_are_significance_and_row(width, operands):
    significance = list(range(2, width + 2))
    expected = [(0, 0)]
    for operand in range(1, operands + 1):
        expected += [(column, operand) for column in significance]
        expected.append((1, operand) if operand < operands else (1, 0))
    for row in range(1, operands + 2):
        expected += [(column, row) for column in reversed(significance)]
        expected.append((width + 2, row + 1) if row <= operands else (0, 0))
    text = "$" + "+".join(["1" * width] * operands) + "="
    plan = RULE.plan(torch.tensor([[TOKENS.index(token) for token in text]]), len(expected) + 2)
    assert plan.position_ids[0].T.tolist() == [*map(list, expected), [0, 0], [0, 0]]
    assert plan.response_length == (operands + 1) * (width + 1)


@pytest.mark.parametrize("limit", [6, 13])
def test_capacity_is_the_largest_problem_whose_ids_fit(limit):
    operands, width = map(int, re.findall(r"(\d+)", RULE.capacity(limit)))
    text = "$" + "+".join(["1" * width] * operands) + "="
    plan = RULE.plan(torch.tensor([[TOKENS.index(token) for token in text]]), 500)
    assert plan.position_ids.amax((0, 2)).tolist() == [limit, limit]


@pytest.mark.parametrize("text", ["$65=", "$65+4=", "$6+54=", "$65+49+=", "$65-49=", "$65+49", "$65+49>12=", "+65+49="])
def test_malformed_prompt_is_refused_and_shown(text):
    with pytest.raises(ValueError, match=re.escape(repr(text)) + " is not of the form '[$]A[+]B[+]...='"):
        RULE.plan(torch.tensor([[TOKENS.index(token) for token in text]]), 20)


def code(token: np.ndarray, keys: np.ndarray, relations: np.ndarray) -> np.ndarray:
    """One number for a token and the multiset of its keys (..., slots) with relations, `PAD` where there is none."""
    seen = np.sort(np.where(keys == PAD, 0, keys.astype(np.int64) * 8 + relations + 1), axis=-1)
    seen = np.pad(seen, [(0, 0)] * (seen.ndim - 1) + [(5 - seen.shape[-1], 0)])
    return token + (seen << 8 * np.arange(1, 6)).sum(-1)


def listed_neighbourhoods(task: AdditionScratchpad) -> dict[int, int]:
    """Right next token of every neighbourhood that the task lists."""
    covering = task.covering(RULE.relations, 1)
    found = [
        pair
        for token, keys, relations, right, _ in covering.batches
        for pair in zip(code(token, keys, relations).tolist(), right.tolist(), strict=True)
    ]
    assert len(dict(found)) == len(found) == covering.count
    return dict(found)


def occurring_neighbourhoods(task: AdditionScratchpad, digits: np.ndarray) -> dict[int, int]:
    """Right next token of every neighbourhood in problems of one size, by the pair map of the planned ids."""
    examples = task.format(digits, np.full(digits.shape[:2], digits.shape[2]))
    tokens, query = examples.tokens, int(examples.query_lengths[0])
    ids = RULE.plan(torch.from_numpy(tokens[:1]).long(), tokens.shape[1]).position_ids
    relations = coupled_pair_map(ids[:, :, query - 1 : -1], ids, RULE.relations, windowed=True)[0].numpy()
    query_columns = np.arange(query - 1, tokens.shape[1] - 1)
    related = (relations >= 0) & (np.arange(tokens.shape[1]) <= query_columns[:, None])
    assert related[:, 0].all() and (relations[:, 0] == len(RULE.relations)).all()
    related[:, 0] = False
    assert not related[np.arange(len(query_columns)), query_columns].any()
    most = related.sum(1).max()
    columns = np.argsort(~related, axis=1, kind="stable")[:, :most]
    keys = np.where(np.take_along_axis(related, columns, 1), tokens[:, columns], PAD)
    found = code(tokens[:, query_columns], keys, np.take_along_axis(relations, columns, 1))
    pairs = np.unique(np.stack([found, tokens[:, query_columns + 1]], axis=-1).reshape(-1, 2), axis=0).tolist()
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def ending_after(total: int, length: int, operands: int, last: int) -> list[int]:
    """Operands of which all but the last add up to `total`."""
    numbers = []
    for _ in range(operands - 1):
        numbers.append(min(total - sum(numbers), 10**length - 1))
    return [*numbers, last]


@pytest.mark.parametrize("separate_eos", [False, True])
def test_listed_neighbourhoods_are_those_that_occur(separate_eos):
    task = AdditionScratchpad(separate_eos=separate_eos)
    listed = listed_neighbourhoods(task)
    occurring = occurring_neighbourhoods(task, draw(30, 30, 400))
    for length, operands in [*SIZES, (1, 112), (1, 30), (30, 2), (8, 40)]:
        occurring |= occurring_neighbourhoods(task, draw(length, operands, 40))
    # Every digit at the top of the last running sum but one, with and without a carry into it.
    tops = [ending_after(min(1000 * top + 999, 9801), 2, 100, last) for top in range(10) for last in (0, 1)]
    occurring |= occurring_neighbourhoods(task, as_digits(tops)[0])
    every_pair = np.indices((10, 10)).reshape(2, -1).T.astype(np.uint8)[:, :, None]
    occurring |= occurring_neighbourhoods(task, every_pair)
    assert occurring == listed
    ends = {SEPARATE_EOS if separate_eos else BOS, *range(10), GREATER}
    assert set(listed.values()) == ends and {key % 256 for key in listed} == {*range(10), EQUALS, GREATER}


def test_neighbourhoods_are_refused_for_other_windows():
    for window, layers in ((RULE.relations[:2], 1), (RULE.relations, 2), ((0, 1), 1)):
        with pytest.raises(ValueError, match=f"addition_scratchpad have been worked out for one layer .* not for {layers} "):
            AdditionScratchpad().covering(window, layers)
