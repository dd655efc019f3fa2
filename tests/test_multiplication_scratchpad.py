import itertools
import re

import numpy as np
import pytest
import torch

from longhand.data import SPLITS, TASKS, CouplingCollator, EvaluationBatches, MultiplicationScratchpad, make_generator
from longhand.data.collator import IGNORED
from longhand.data.splits import problem_keys, split_of
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.relations import NOT_RELATED, coupled_pair_map
from longhand.modeling.vocabulary import PAD, SEPARATE_EOS, decode

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


def test_format_holds_partial_products_and_running_sums():
    assert write(MultiplicationScratchpad(), 294, 68) == "$294*68=2532+4671=25320>29991$"
    assert write(MultiplicationScratchpad(), 94, 68) == "$94*68=257+465=2570>2936$"
    assert write(MultiplicationScratchpad(separate_eos=True), 9, 7) == "$9*7=36=36<eos>"
    assert write(MultiplicationScratchpad(), 0, 10) == "$0*10=00+00=000>000$"
    assert expected_text(294, 68) == "$294*68=2532+4671=25320>29991$"


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


def test_lengths_are_uniform_and_independent():
    lengths = MultiplicationScratchpad().sample_lengths(make_generator(0), 60_000, 3, 7)
    counts = np.bincount((lengths - 3) @ [5, 1], minlength=25)
    assert lengths.shape == (60_000, 2) and len(counts) == 25
    assert np.abs(counts - 2400).max() < 4.5 * 2400**0.5


def test_a_group_holds_problems_of_both_lengths():
    task = MultiplicationScratchpad()
    lengths = task.sample_lengths(make_generator(0), 500, 1, 9)
    groups = task.group(lengths)
    assert len(np.unique(groups)) == len(np.unique(lengths, axis=0)) == len(np.unique([groups, *lengths.T], axis=1).T)
    for row in lengths[:20]:
        assert (task.group_lengths(make_generator(1), row, 7, 1) == row).all()
    with pytest.raises(ValueError, match=r"must have one size \(digits of the first .*\), got 2 x 1 and 1 x 3"):
        task.examples(make_generator(0), np.array([[2, 1], [1, 3]]), "train")


def test_one_length_or_two_stand_for_the_sizes_of_a_problem():
    task = MultiplicationScratchpad()
    assert task.operand_lengths(12) == (12, 12) and task.operand_lengths(12, 3) == (12, 3)
    assert task.size((12, 3)) == (12, 3) and task.answer_length((12, 3)) == 16
    assert task.size_names == ("digits of the first operand", "digits of the second operand")


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("lengths", [(1, 3), (4, 4)])
def test_short_draws_belong_to_the_asked_split(split, lengths):
    lengths = np.tile(lengths, (300, 1))
    digits = MultiplicationScratchpad().draw(make_generator(0), lengths, split)
    assert (split_of(problem_keys(digits, lengths)) == SPLITS.index(split)).all()


def test_evaluation_batches_supervise_the_whole_scratchpad():
    task = MultiplicationScratchpad()
    collator = CouplingCollator(task.coupling, 30)
    batch = EvaluationBatches(task, (7, 4), 5, 0, "test", 5, collator=collator)[0]
    response = 4 * 8 + 4 * 11 + 3 + 1 + 3 + 1
    assert ((batch["labels"] != IGNORED).sum(1) == response).all() and batch["logits_to_keep"] == response + 1
    assert batch["position_ids"].shape == (1, 3, batch["input_ids"].shape[1])


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


def test_rows_of_different_layouts_are_planned_as_each_alone():
    task = MultiplicationScratchpad()
    pairs = [(294, 68), (7, 9), (12, 345)]
    alone = [torch.from_numpy(task.format(*to_digits([pair])).tokens).long() for pair in pairs]
    columns = 2 + max(tokens.shape[1] for tokens in alone)
    batch = torch.cat([torch.nn.functional.pad(tokens, (0, columns - tokens.shape[1]), value=PAD) for tokens in alone])
    plan = RULE.plan(batch, columns)
    assert torch.equal(plan.position_ids, torch.cat([RULE.plan(tokens, columns).position_ids for tokens in alone]))
    assert plan.response_length == max(RULE.plan(tokens, columns).response_length for tokens in alone)


def as_bytes(tokens, keys, right):
    """The set of (token, its key of every relation, right next token), each as bytes; of arrays (..., relations)."""
    rows = np.concatenate([tokens[..., None], keys, right[..., None]], axis=-1).astype(np.uint8)
    rows = rows.reshape(-1, rows.shape[-1]) + 1  # numpy drops trailing zero bytes
    return set(rows.copy().view(f"S{rows.shape[1]}").ravel().tolist())


def listed_neighbourhoods(task):
    covering = task.covering(RULE.relations, 1)
    found = set()
    for tokens, keys, relations, right, _ in covering.batches:
        assert relations.tolist() == list(range(len(RULE.relations)))
        assert tokens.shape == right.shape == keys.shape[:1]
        found |= as_bytes(tokens, keys, right)
    assert len(found) == covering.count
    return found


def neighbourhoods_of(task, digits, lengths):
    """What the tokens of problems of one layout see, found from all pairs of the planned ids, and what is right next."""
    examples = task.format(digits, lengths)
    first = int(examples.query_lengths[0]) - 1
    tokens = torch.from_numpy(examples.tokens[:1]).long()
    end = tokens.shape[1] - 1
    ids = RULE.plan(tokens, end + 1).position_ids
    relations = coupled_pair_map(ids, ids, RULE.relations, True)[0]
    relations = relations.masked_fill(~torch.ones_like(relations).bool().tril(), NOT_RELATED)[first:end].numpy()
    # `$` is seen from everywhere, and no other key without a relation of the list.
    assert (relations[:, 0] == len(RULE.relations)).all() and (relations[:, 1:] < len(RULE.relations)).all()
    columns = np.full((len(relations), len(RULE.relations)), end + 1)
    query, key = np.nonzero((relations >= 0) & (relations < len(RULE.relations)))
    assert len(np.unique([query, relations[query, key]], axis=1).T) == len(query), "two keys have one relation"
    columns[query, relations[query, key]] = key
    padded = np.pad(examples.tokens, ((0, 0), (0, 1)), constant_values=PAD)
    return as_bytes(padded[:, first:end], padded[:, columns], padded[:, first + 1 : end + 1])


def random_problems(first_length, second_length, count, generator):
    """Problems of one size, half of them with many digits 0, 1 and 9."""
    task, lengths = MultiplicationScratchpad(), np.tile([first_length, second_length], (count, 1))
    digits = task.draw_operands(generator, lengths)
    often = generator.choice(np.array([0, 1, 9], dtype=np.uint8), size=digits.shape)
    digits = np.where(generator.random(digits.shape) < generator.choice([0, 0.7], size=(count, 1, 1)), often, digits)
    for operand, length in enumerate((first_length, second_length)):
        digits[:, operand, length:] = 0
        if length > 1:
            leading = digits[:, operand, length - 1]
            leading[leading == 0] = 1
    return digits, lengths


@pytest.fixture(scope="module")
def listed():
    return listed_neighbourhoods(MultiplicationScratchpad())


def test_no_neighbourhood_has_two_right_next_tokens(listed):
    assert len({row[:-1] for row in listed}) == len(listed)


def test_all_products_of_two_digits_and_of_one_and_two_are_covered(listed):
    task = MultiplicationScratchpad()
    for first, second in itertools.product((range(10), range(10, 100)), repeat=2):
        assert not neighbourhoods_of(task, *to_digits(list(itertools.product(first, second)))) - listed


@pytest.mark.parametrize(("first_length", "second_length"), [*SIZES, (40, 2), (2, 40)])
def test_what_tokens_of_larger_problems_see_and_what_comes_next_is_listed(listed, first_length, second_length):
    task, generator = MultiplicationScratchpad(), make_generator(first_length, second_length)
    for problems in (
        random_problems(first_length, second_length, 500, generator),
        to_digits(hard_pairs(first_length, second_length)),
    ):
        assert not neighbourhoods_of(task, *problems) - listed


@pytest.mark.slow
def test_everything_that_is_listed_occurs(listed):
    task, generator, seen = MultiplicationScratchpad(), make_generator(0), set()
    for first_length, second_length, count in [
        (1, 1, 1000), (8, 1, 3000), (1, 12, 3000), (4, 2, 500), (12, 3, 20_000), (20, 8, 16_000)
    ]:  # fmt: skip
        seen |= neighbourhoods_of(task, *random_problems(first_length, second_length, count, generator))
    assert not seen - listed and not listed - seen


def test_the_last_running_sum_ends_with_the_end_token_of_the_format(listed):
    other = listed_neighbourhoods(MultiplicationScratchpad(separate_eos=True))
    ended = {row[:-1] for row in other if row[-1] == SEPARATE_EOS + 1}
    assert len(other - listed) == len(listed - other) == len(ended) == 9 + 9 * 2
    assert {row[:-1] for row in other} == {row[:-1] for row in listed}


@pytest.mark.parametrize(("window", "layers"), [((0, 1), 1), (RULE.relations[:-1], 1), (RULE.relations, 2)])
def test_other_windows_and_more_layers_are_refused(window, layers):
    with pytest.raises(ValueError, match="worked out for one layer and the window of the coupling rule"):
        MultiplicationScratchpad().covering(window, layers)


def test_answer_is_read_back_as_the_integer_product():
    task, generator = MultiplicationScratchpad(), make_generator(0)
    numbers = [(0, 0), (0, 10), (7, 0), (653, 49), (10**40 - 1, 10**12 - 1), (1, 99), (12345678901234567890, 10**19)]
    numbers += generator.integers(0, 10**9, (50, 2)).tolist()
    for first, second in numbers:
        query, response = write(task, first, second).strip("$").split("=", maxsplit=1)
        assert task.prompt(f"{first}*{second}") == f"{query}="
        assert task.reader.read(response) == str(first * second)


@pytest.mark.parametrize("question", ["294*68", "294*68=", " 294 * 68 ", "294* 68 =\n", "0294*068"])
def test_question_may_have_spaces_an_equals_sign_and_leading_zeros(question):
    assert MultiplicationScratchpad().prompt(question) == "294*68="


def test_zero_keeps_its_digit():
    assert MultiplicationScratchpad().prompt("000*0") == "0*0="
    assert MultiplicationScratchpad().reader.read("00+00=000>000") == "0"


@pytest.mark.parametrize("response", ["", "=", "25", "2532+4671", "2532+46>", "25>+=>"])
def test_answer_of_a_response_that_broke_off_is_some_text(response):
    assert isinstance(MultiplicationScratchpad().reader.read(response), str)


@pytest.mark.parametrize(
    "question", ["", "*", "3*", "*4", "3*4*5", "3+4", "-3*4", "3**4", "3*4==", "3*4=12", "3.0*4", "3 4", "٣*4", "a*b", "3x4"]
)
def test_malformed_question_is_refused_by_name(question):
    with pytest.raises(ValueError, match=f"^the question {re.escape(repr(question))} is not a multiplication"):
        MultiplicationScratchpad().prompt(question)


def test_example_question_is_one_of_the_task():
    assert MultiplicationScratchpad().prompt(MultiplicationScratchpad.example_question) == "294*68="


def test_format_describes_itself():
    for task in (MultiplicationScratchpad(), MultiplicationScratchpad(separate_eos=True)):
        description = task.describe()
        assert TASKS[description.pop("task")](**description) == task
    with pytest.raises(ValueError, match="separate_eos must be True or False, got 1"):
        MultiplicationScratchpad(separate_eos=1)
