import itertools

import numpy as np
import pytest
import torch

from longhand.data import Multiplication, make_generator
from longhand.data.digits import multiply_digits
from longhand.data.proofs import CannotCertify, check_neighbourhoods, covering
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.relations import NOT_RELATED, coupled_pair_map

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


@pytest.mark.parametrize("base", [2, 10, 16, 17, 36, 128])
@pytest.mark.parametrize("widths", [(1, 1), (3, 2), (300, 299)])
def test_products_of_the_largest_digits_of_any_base_do_not_overflow(base, widths):
    largest = [np.full((1, width), base - 1, dtype=np.uint8) for width in widths]
    (product,) = multiply_digits(*largest, base)
    value = sum(int(digit) * base**place for place, digit in enumerate(product))
    assert value == (base ** widths[0] - 1) * (base ** widths[1] - 1)


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


def relations_of(tokens):
    """Relations of the tokens of the response and of `=` to all tokens before them, (tokens, columns); of one problem."""
    ids = RULE.plan(tokens, tokens.shape[1]).position_ids
    relations = coupled_pair_map(ids, ids, RULE.relations, True)[0]
    return relations.masked_fill(~torch.ones_like(relations).bool().tril(), NOT_RELATED)


def test_other_windows_and_longer_multipliers_are_refused():
    for task, window in ((Multiplication(), (0, 1)), (Multiplication(), RULE.relations[1:]),
                         (Multiplication(multiplier_length=3), RULE.relations)):  # fmt: skip
        with pytest.raises(ValueError, match=r"the neighbourhoods of multiplication are .* only, not for"):
            task.covering(window, 1)
    assert RULE.name not in Multiplication(multiplier_length=3).couplings


def untrained(**options):
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 2, "hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 7, "head_dim": 2}
    options = {"attention_scale": "zero", "coupling": RULE.name, **sizes, **options}
    return CoupledGPTForCausalLM(CoupledGPTConfig(**options)).eval()


def test_a_model_of_two_layers_is_checked_and_one_of_the_coupling_rule_of_the_paper_is_refused():
    task = Multiplication(multiplier_length=1)
    check = check_neighbourhoods(untrained(), task)
    assert 0 < check.wrong < check.predictions == 124_740 and len(check.failures) == 10
    with pytest.raises(CannotCertify, match="the window of the coupling rule 'multiplication_by_digits' only"):
        covering(untrained(coupling="multiplication"), task)


@pytest.mark.parametrize(("question", "prompt"), [("4*00002", "4*2="), ("0004*2", "4*2="), ("00*000", "0*0=")])
def test_leading_zeros_are_read_away(question, prompt):
    assert Multiplication(multiplier_length=1).prompt(question) == prompt
