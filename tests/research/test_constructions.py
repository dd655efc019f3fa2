"""Theorems as weights, against Python's integers."""

from functools import partial
from itertools import product

import numpy as np
import pytest
import torch

from longhand import eval as evaluation
from longhand.data import Addition, MultiOperandAddition, Multiplication
from longhand.hub_cards.recipes import read_recipe
from longhand.hub_cards.research.__main__ import main
from longhand.hub_cards.research.theories.constructions import (
    CONSTRUCTIONS,
    construct_addition,
    construct_multi_operand_addition,
    construct_multiplication,
)
from longhand.hub_cards.result_rows import read_results
from longhand.modeling.coupling import COUPLING_RULES, shift_position_ids
from longhand.modeling.vocabulary import EQUALS, TOKENS

OPERANDS = [2, 3, 4, 7, 10]
IDS = np.zeros(128, dtype=np.int64)
IDS[[ord(token) for token in TOKENS if len(token) == 1]] = [place for place, token in enumerate(TOKENS) if len(token) == 1]


def encode(texts: list[str]) -> torch.LongTensor:
    """Token ids of texts of one length."""
    return torch.from_numpy(IDS[np.frombuffer("".join(texts).encode(), dtype=np.uint8)].reshape(len(texts), -1))


def sum_text(*numbers: int, length: int) -> str:
    """As for `construct_addition`."""
    return "$" + "+".join(f"{n:0{length}d}" for n in numbers) + f"={str(sum(numbers)).zfill(length + 1)[::-1]}$"


def padded_sum_text(*numbers: int, length: int) -> str:
    """As for `construct_multi_operand_addition`."""
    width = length + 1
    return "$" + "+".join(f"{n:0{width}d}" for n in numbers) + f"={str(sum(numbers)).zfill(width)[::-1]}$"


def product_text(first: int, second: int) -> str:
    return f"${first}*{second:02d}={str(first * second).zfill(len(str(first)) + 2)[::-1]}$"


def response_logits(model, texts, start=1):
    """Logits (count, response and end token, vocabulary) and their targets, teacher-forced."""
    tokens = encode(texts)
    query = int((tokens[0] == EQUALS).int().argmax())
    ids = COUPLING_RULES[model.config.coupling].plan(tokens[:1], tokens.shape[1]).position_ids
    ids = shift_position_ids(ids, torch.tensor(start - 1), model.config.max_position_ids)
    with torch.inference_mode():
        logits = model(tokens, position_ids=ids, logits_to_keep=tokens.shape[1] - query, use_cache=False).logits
    return logits[:, :-1], tokens[:, query + 1 :]


def margins(model, texts, start=1):
    """By how much the right token's logit exceeds every other one, (count, response and end token)."""
    logits, targets = response_logits(model, texts, start)
    right = logits.gather(-1, targets.unsqueeze(-1))
    return (right - logits.scatter(-1, targets.unsqueeze(-1), -torch.inf).amax(-1, keepdim=True)).squeeze(-1)


def least_margin(model, texts, start=1):
    return min(float(margins(model, texts[i : i + 2000], start).min()) for i in range(0, len(texts), 2000))


def random_numbers(generator, length, count):
    """Python integers of exactly so many digits."""
    digits = generator.integers(0, 10, (count, length))
    digits[:, 0] = generator.integers(1, 10, count)
    return [int("".join(map(str, row))) for row in digits]


def hard_numbers(length):
    """Numbers that make long carry chains, and others."""
    nines = 10**length - 1
    alternating = int(("90" * length)[:length]), int(("09" * length)[:length])
    return [0, 1, nines, nines - 1, 10 ** (length - 1), 5 * (nines // 9), 4 * (nines // 9), *alternating]


def addition_problems(length, text=sum_text, operands=2, count=40):
    generator = np.random.default_rng(length)
    hard = hard_numbers(length)
    problems = [(a, b, *[0] * (operands - 2)) for a in hard for b in hard]
    problems += [(a,) * operands for a in hard]
    problems += [(a, *[nine] * (operands - 1)) for a in hard for nine in (10**length - 1, 9)]
    problems += [tuple(random_numbers(generator, length, operands)) for _ in range(count)]
    return [text(*numbers, length=length) for numbers in problems]


def multiplication_problems(length, count=200):
    generator = np.random.default_rng(length)
    hard = [number for number in hard_numbers(length) if len(str(number)) == length]
    problems = [(a, b) for a in hard for b in (0, 1, 9, 10, 11, 19, 90, 91, 98, 99)]
    problems += zip(random_numbers(generator, length, count), generator.integers(0, 100, count).tolist(), strict=True)
    return [product_text(*numbers) for numbers in problems]


def problems_of(model, length, operands=3):
    """Texts for a model whose longest operand has so many digits."""
    if model.config.coupling == "multiplication":
        return multiplication_problems(length)
    if model.config.coupling == "addition":
        return addition_problems(length)
    return addition_problems(length, padded_sum_text, operands)


def count_heads(model) -> int:
    """The number of heads with values other than 0, in all layers together."""
    values = [layer.self_attn.v_proj.weight.unflatten(0, (-1, model.config.head_dim)) for layer in model.model.layers]
    return sum(int((value != 0).flatten(1).any(1).sum()) for value in values)


def count_relus(model) -> int:
    """The number of hidden units with outputs other than 0, in all layers together."""
    return sum(int((layer.mlp.down_proj.weight != 0).any(0).sum()) for layer in model.model.layers)


@pytest.mark.parametrize("bits", [2, 5])
def test_sizes_are_those_of_the_theorems(bits):
    addition, product = construct_addition(bits), construct_multiplication(bits)
    assert addition.config.hidden_size == 2 * bits + 17
    assert (addition.config.num_hidden_layers, count_heads(addition), count_relus(addition)) == (1, 2, 82)
    for operands in OPERANDS:
        model = construct_multi_operand_addition(bits, operands)
        assert (model.config.num_hidden_layers, count_heads(model)) == (1, 2)
        assert count_relus(model) == 2 * (10 * operands + 1) + 2
    assert product.config.hidden_size == 6 * bits + 34
    assert count_heads(product) == 10
    # The third layer only carries a second hidden layer.
    assert not any(product.model.layers[2].self_attn.v_proj.weight.flatten())


@pytest.mark.parametrize("start", [1, 2, 3, 4])
def test_addition_is_exact_on_all_sums_of_the_smallest_models(start):
    for length in (1, 2):
        texts = [sum_text(a, b, length=length) for a, b in product(range(10**length), repeat=2)]
        assert least_margin(construct_addition(2), texts, start) > 0.9
    for operands in (2, 3):
        texts = [padded_sum_text(*digits, length=1) for digits in product(range(10), repeat=operands)]
        assert least_margin(construct_multi_operand_addition(2, operands), texts, start) > 0.9


def test_multiplication_is_exact_on_all_small_products():
    for bits, low, high in ((2, 0, 10), (3, 10, 100)):
        texts = [product_text(a, b) for a in range(low, high) for b in range(100)]
        assert least_margin(construct_multiplication(bits), texts) > 0.9


@pytest.mark.parametrize(("build", "spare", "operands"), [
    (construct_addition, 2, 2),
    *((partial(construct_multi_operand_addition, operands=operands), 3, operands) for operands in OPERANDS),
    pytest.param(construct_multiplication, 3, 2, marks=pytest.mark.thorough),
])  # fmt: skip
def test_a_construction_is_exact_at_every_length_up_to_its_capacity(build, spare, operands):
    model = build(bits=5)
    for length in (1, 2, 7, 31 - spare, 32 - spare):
        for start in (1, 17, 32):
            assert least_margin(model, problems_of(model, length, operands), start) > 0.9
    assert (response_logits(model, texts := problems_of(model, 32 - spare, operands))[0] - response_logits(
        model.double(), texts)[0]).abs().max() < 1e-3, "single and double precision agree"  # fmt: skip
    with pytest.raises(ValueError, match=r"must be in 0\.\.32"):
        model(encode(problems_of(model, 40, operands)[:1]))


@pytest.mark.parametrize(
    ("name", "task", "question", "answer"),
    [
        ("addition", Addition(), "7+99999999999", 100000000006),
        ("multi-operand-addition", MultiOperandAddition(), "999+1+99", 1099),
        ("multiplication", Multiplication(), "99999999999*99", 9899999999901),
    ],
)
def test_command_writes_a_folder_that_eval_evaluates(name, task, question, answer, tmp_path, capsys):
    folder, results = tmp_path / "model", tmp_path / "results"
    main(["constructions", name, "--max_length", "20", "--output_dir", str(folder)])
    assert f"up to {CONSTRUCTIONS[name].capacity(5)} digits" in capsys.readouterr().out
    assert read_recipe(folder / "recipe.yaml").items() >= task.describe().items()
    evaluation.main([str(folder), "--lengths", "1,20", "--num_samples", "20", "--output_dir", str(results)])
    assert [row["exact_match"] for row in read_results(results / "results.jsonl")] == [1, 1]
    capsys.readouterr()
    evaluation.main([str(folder), "--ask", question])
    assert capsys.readouterr().out.strip() == str(answer)


def test_the_command_refuses_what_it_cannot_do_and_writes_nothing(tmp_path, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("kept")
    for words in (["full"], ["new", "--max_length", str(10**9)]):
        with pytest.raises(SystemExit) as stop:
            main(["constructions", "multi-operand-addition", "--output_dir", str(tmp_path / words[0]), *words[1:]])
        assert stop.value.code == 2 and capsys.readouterr().err.count("\n") == 1
    assert {path.name for path in tmp_path.rglob("*")} == {"full", "notes.txt"}
