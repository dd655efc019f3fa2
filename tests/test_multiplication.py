import itertools

import numpy as np
import pytest
import torch

from longhand.data import Multiplication, make_generator
from longhand.data.certificates import CannotCertify, check_neighbourhoods, covering
from longhand.data.certificates.check import neighbourhood_predictions
from longhand.data.digits import multiply_digits
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.relations import NOT_RELATED, coupled_pair_map
from longhand.modeling.vocabulary import BOS, EQUALS, PAD, SEPARATE_EOS, decode

RULE = COUPLING_RULES["multiplication_by_digits"]


def to_digits(numbers, width):
    """(count, width) digits of Python integers, ones first."""
    text = "".join(str(number).zfill(width)[::-1] for number in numbers)
    return (np.frombuffer(text.encode(), dtype=np.uint8) - ord("0")).reshape(len(numbers), width)


def to_integers(digits):
    return [int("".join(map(str, row[::-1]))) for row in digits.tolist()]


def check_products(first, second, width, other_width):
    digits = multiply_digits(to_digits(first, width), to_digits(second, other_width))
    assert digits.shape == (len(first), width + other_width) and digits.max() < 10
    assert to_integers(digits) == [a * b for a, b in zip(first, second, strict=True)]


def test_all_products_of_two_digits_are_right():
    check_products(*zip(*itertools.product(range(100), range(100)), strict=True), 2, 2)


@pytest.mark.parametrize("other_width", [1, 2, 3, 9, 12, 40])
@pytest.mark.parametrize("width", [1, 2, 19, 40, 300])
def test_products_of_any_length_are_right(width, other_width):
    generator = make_generator(width, other_width)
    numbers = [
        [10**size - 1, 10 ** (size - 1), 1, 0, 10**size - 1, int("1" * size), int(("09" * size)[:size]), 10**size - 2]
        for size in (width, other_width)
    ]
    pairs = list(itertools.product(*numbers))
    digits = generator.integers(0, 10, (50, width + other_width))
    texts = ["".join(map(str, row)) for row in digits.tolist()]
    pairs += [(int(text[:width]), int(text[width:])) for text in texts]
    check_products(*zip(*pairs, strict=True), width, other_width)


@pytest.mark.parametrize("length", [5, 700])
def test_carry_runs_through_the_whole_product(length):
    # 142857...142858 times 7 is 1000...0006, a power of ten and 6 more.
    over = 10 ** (6 * length) // 7 + 1
    assert str(7 * over) == "1" + "0" * (6 * length - 1) + "6"
    check_products([over, over, over, int("01" * 3 * length), 10 ** (6 * length) - 1], [7, 70, 77, 99, 99], 6 * length, 2)


def test_an_empty_batch_has_no_products():
    assert multiply_digits(np.zeros((0, 4), np.uint8), np.zeros((0, 2), np.uint8)).shape == (0, 6)


def write(task, first, second):
    lengths = np.array([[len(str(first)), len(str(second))]])
    digits = np.stack([to_digits([number], lengths.max()) for number in (first, second)], axis=1)
    return decode(task.format(digits, lengths).tokens[0])


def test_format_is_written_as_in_the_paper():
    assert write(Multiplication(), 653, 49) == "$653*49=79913$"
    assert write(Multiplication(), 7, 12) == "$7*12=480$"
    assert write(Multiplication(separate_eos=True, multiplier_length=1), 0, 7) == "$0*7=00<eos>"
    assert write(Multiplication(multiplier_length=3), 12, 345) == "$12*345=04140$"


def test_first_length_is_uniform_and_the_second_fixed():
    lengths = Multiplication(multiplier_length=3).sample_lengths(make_generator(0), 40_000, 3, 7)
    counts = np.bincount(lengths[:, 0])[3:]
    assert len(counts) == 5 and np.abs(counts - 8000).max() < 4.5 * 8000**0.5
    assert (lengths[:, 1] == 3).all()


@pytest.mark.parametrize("multiplier_length", [1, 2])
def test_every_second_operand_is_drawn_as_often(multiplier_length):
    task = Multiplication(multiplier_length=multiplier_length)
    lengths = task.sample_lengths(make_generator(0), 40_000, 1, 5)
    second = task.draw_operands(make_generator(1), lengths)[:, 1, :2] @ np.array([1, 10])
    expected = 40_000 / 10**multiplier_length
    counts = np.bincount(second)
    assert len(counts) == 10**multiplier_length and np.abs(counts - expected).max() < 4.5 * expected**0.5


def test_a_shorter_second_number_is_padded_and_a_longer_one_refused():
    assert Multiplication(multiplier_length=3).prompt("653*4") == "653*004="
    assert Multiplication().prompt("00653*04") == "653*04=" and Multiplication().prompt("00*0") == "0*00="
    with pytest.raises(ValueError, match=r"'4\*653' must have at most multiplier_length = 2 digits, got 3"):
        Multiplication().prompt("4*653")


def as_codes(tokens, keys, right):
    """Every distinct (token, its keys, right next token) as a number, ascending; of arrays (...), (..., slots), (...)."""
    rows = np.concatenate([tokens[..., None], keys, right[..., None]], axis=-1).astype(np.int64)
    return np.unique(rows @ 32 ** np.arange(rows.shape[-1]))


def listed_neighbourhoods(task):
    covering = task.covering(RULE.relations, 2)
    batches = list(covering.batches)
    assert all(relations.tolist() == list(range(len(RULE.relations))) for _, _, relations, *_ in batches)
    codes = as_codes(*(np.concatenate([batch[part] for batch in batches]) for part in (0, 1, 3)))
    assert len(codes) == covering.count == sum(len(tokens) for tokens, *_ in batches)
    return codes


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.thorough)])
def task_and_listed(request):
    task = Multiplication(multiplier_length=request.param)
    return task, listed_neighbourhoods(task)


def relations_of(tokens):
    """Relations of the tokens of the response and of `=` to all tokens before them, (tokens, columns); of one problem."""
    ids = RULE.plan(tokens, tokens.shape[1]).position_ids
    relations = coupled_pair_map(ids, ids, RULE.relations, True)[0]
    return relations.masked_fill(~torch.ones_like(relations).bool().tril(), NOT_RELATED)


def neighbourhoods_of(task, digits, lengths):
    """What the tokens of problems of one layout see, found from all pairs of the planned ids, and what is right next."""
    examples = task.format(digits, lengths)
    first, end = int(examples.query_lengths[0]) - 1, examples.tokens.shape[1] - 1
    relations = relations_of(torch.from_numpy(examples.tokens[:1]).long())[first:end].numpy()
    assert (relations[:, 0] == len(RULE.relations)).all() and (relations[:, 1:] < len(RULE.relations)).all()
    columns = np.full((len(relations), len(RULE.relations)), end + 1)
    query, key = np.nonzero((relations >= 0) & (relations < len(RULE.relations)))
    assert len(np.unique([query, relations[query, key]], axis=1).T) == len(query), "two keys have one relation"
    columns[query, relations[query, key]] = key
    padded = np.pad(examples.tokens, ((0, 0), (0, 1)), constant_values=PAD)
    return as_codes(padded[:, first:end], padded[:, columns], padded[:, first + 1 : end + 1])


def problems_of_length(task, length, count, generator):
    """All problems of the length if there are no more than `count`, else so many, half of them of few digits."""
    width = task.multiplier_length
    lengths = [length, width]
    if 10 ** (length + width) <= count:
        pairs = itertools.product(range(10 ** (length - 1) * (length > 1), 10**length), range(10**width))
        first, second = zip(*pairs, strict=True)
        digits = np.stack([to_digits(first, max(lengths)), to_digits(second, max(lengths))], axis=1)
        return digits, np.tile(lengths, (len(digits), 1))
    lengths = np.tile(lengths, (count, 1))
    digits = task.draw_operands(generator, lengths)
    few = generator.choice(np.array([0, 1, 9], dtype=np.uint8), size=(count, 2, length))
    few[:, 1, width:], few[:, 0, -1] = 0, np.maximum(few[:, 0, -1], 1)
    return np.where(generator.random((count, 1, 1)) < 0.5, few, digits), lengths


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 9, 40])
def test_what_tokens_see_and_what_comes_next_is_listed(task_and_listed, length):
    task, listed = task_and_listed
    problems = problems_of_length(task, length, 10_000, make_generator(length))
    seen = neighbourhoods_of(task, *problems)
    assert (listed[np.searchsorted(listed, seen).clip(max=len(listed) - 1)] == seen).all()


def test_no_neighbourhood_has_two_right_next_tokens(task_and_listed):
    _, listed = task_and_listed
    assert len(np.unique(listed % 32 ** (len(RULE.relations) + 1))) == len(listed)


def test_nearly_all_that_is_listed_for_one_digit_occurs():
    task = Multiplication(multiplier_length=1)
    listed, generator = listed_neighbourhoods(task), make_generator(0)
    seen = [neighbourhoods_of(task, *problems_of_length(task, length, 10_000, generator)) for length in (1, 2, 3, 5, 80)]
    assert len(np.unique(np.concatenate(seen))) > 0.97 * len(listed)


def test_operands_see_nothing_but_the_beginning():
    tokens = torch.from_numpy(Multiplication().format(*problems_of_length(Multiplication(), 5, 3, make_generator(0))).tokens)
    equals = int((tokens[0] == EQUALS).int().argmax())
    assert (relations_of(tokens[:1].long())[:equals, 1:] == NOT_RELATED).all()


def test_the_product_ends_with_the_end_token_of_the_format():
    listed = listed_neighbourhoods(Multiplication(multiplier_length=1))
    other = listed_neighbourhoods(Multiplication(multiplier_length=1, separate_eos=True))
    place = 32 ** (len(RULE.relations) + 1)
    assert (np.sort(listed % place) == np.sort(other % place)).all()
    assert len(np.setdiff1d(other, listed)) == (other // place == SEPARATE_EOS).sum() == (listed // place == BOS).sum() > 0


def test_other_windows_and_longer_multipliers_are_refused():
    for task, window in ((Multiplication(), (0, 1)), (Multiplication(), RULE.relations[1:]),
                         (Multiplication(multiplier_length=3), RULE.relations)):  # fmt: skip
        with pytest.raises(ValueError, match="searched for a multiplier_length of 1 or 2 and the window of the coupling"):
            task.covering(window, 1)
    assert RULE.name not in Multiplication(multiplier_length=3).couplings


def untrained(**options):
    torch.manual_seed(0)
    options = {"num_hidden_layers": 2, "coupling": RULE.name, "num_attention_heads": 7, "head_dim": 2, **options}
    return CoupledGPTForCausalLM(CoupledGPTConfig(hidden_size=16, intermediate_size=16, **options)).eval()


@pytest.mark.slow
@torch.inference_mode()
def test_two_layers_give_listed_neighbourhoods_the_logits_that_they_have_in_problems():
    task, model = Multiplication(multiplier_length=1), untrained(relation_init="one_per_head")
    digits, lengths = problems_of_length(task, 7, 300, make_generator(0))
    examples = task.format(digits, lengths)
    tokens = torch.from_numpy(examples.tokens).long()
    logits, relations = model(tokens).logits, relations_of(tokens[:1])
    in_problems = {}
    for row in range(len(tokens)):
        for column in range(int(examples.query_lengths[0]) - 1, tokens.shape[1] - 1):
            keys = [PAD] * len(RULE.relations)
            for key in range(1, column + 1):
                if relations[column, key] != NOT_RELATED:
                    keys[relations[column, key]] = int(tokens[row, key])
            in_problems[(int(tokens[row, column]), *keys)] = logits[row, column]
    found = 0
    for listed in neighbourhood_predictions(model, task.covering(RULE.relations, 2).batches):
        names = torch.cat([listed.inputs["input_ids"][:, -1:], listed.inputs["input_ids"][:, 1:-1]], dim=1).tolist()
        rows = [row for row, name in enumerate(names) if tuple(name) in in_problems]
        found += len(rows)
        computed = model(**listed.inputs).logits[rows, 0]
        torch.testing.assert_close(computed, torch.stack([in_problems[tuple(names[row])] for row in rows]))
    assert found == len(in_problems) > 1000


def test_a_model_of_two_layers_is_checked_and_one_of_the_coupling_rule_of_the_paper_is_refused():
    task = Multiplication(multiplier_length=1)
    check = check_neighbourhoods(untrained(), task)
    assert 0 < check.wrong < check.predictions == 124_740 and len(check.failures) == 10
    with pytest.raises(CannotCertify, match="and the window of the coupling rule 'multiplication_by_digits' only"):
        covering(untrained(coupling="multiplication"), task)
