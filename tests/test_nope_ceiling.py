"""The ceiling of one layer without position encoding, and the invariance of the model that it follows from."""

import shutil
from collections import Counter, defaultdict
from itertools import permutations

import numpy as np
import pytest
import torch

from longhand import train
from longhand.eval import load_checkpoint
from longhand.hub_cards.evaluation.results import read_results
from longhand.hub_cards.recipes import read_recipe, write_recipe
from longhand.hub_cards.research.__main__ import main
from longhand.hub_cards.research.nope_ceiling import study as command
from longhand.hub_cards.research.nope_ceiling.ceiling import nope_ceiling
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.modeling.vocabulary import TOKENS

KNOWN = {1: (81, 81), 2: (2668, 8100), 3: (50150, 810000), 4: (765139, 81000000)}
"""Right pairs and all pairs, as published (paper 1, Sec. 5.2 and App. F). The one for 5 digits, 10033314 / 8100000000,
takes the command's time and is held to its results."""


def sums_by_multiset(digits):
    """For each multiset of digits, how many pairs have each sum: all pairs of Python integers."""
    numbers = [str(number) for number in range(10 ** (digits - 1), 10**digits)]
    table = defaultdict(Counter)
    for first in numbers:
        for second in numbers:
            table["".join(sorted(first + second))][int(first) + int(second)] += 1
    return table


def random_model(seed=0, **options):
    torch.manual_seed(seed)
    config = CoupledGPTConfig(
        **{"hidden_size": 32, "intermediate_size": 64, "position_encoding": "none", "coupling": "sequential", **options}
    )
    return CoupledGPTForCausalLM(config).eval()


@torch.inference_mode()
def next_logits(model, *texts):
    """(texts, vocabulary), what follows each text."""
    return model(torch.tensor([[TOKENS.index(c) for c in text] for text in texts]), use_cache=False).logits[:, -1]


@pytest.mark.parametrize("digits", KNOWN)
def test_ceiling_is_the_known_value(digits):
    assert nope_ceiling(digits) == KNOWN[digits]


@pytest.mark.parametrize("digits", [1, 2, 3])
def test_ceiling_is_that_of_all_pairs(digits):
    table = sums_by_multiset(digits)
    assert nope_ceiling(digits) == (sum(max(sums.values()) for sums in table.values()), 81 * 100 ** (digits - 1))


@pytest.mark.parametrize("options", [{}, {"norm_placement": "pre_post", "attention_scale": "log_length", "qk_norm": True}])
def test_one_layer_without_positions_sees_the_multiset_and_the_last_token(options):
    model = random_model(**options)
    query = "$653+049="
    generator = np.random.default_rng(0)
    shuffled = ["".join(generator.permutation(list(query[:-1]))) + query[-1] for _ in range(20)]
    assert len(set(shuffled)) > 15
    logits = next_logits(model, query, *shuffled)
    assert torch.allclose(logits, logits[:1].expand_as(logits), atol=1e-5)
    assert not torch.allclose(next_logits(model, query), next_logits(model, "$653+048="), atol=1e-3)
    assert not torch.allclose(next_logits(model, query), next_logits(model, "$653=049+"), atol=1e-3)


def test_ceiling_of_two_digits_can_be_reached_by_one_layer():
    """Some choice of most frequent sums makes every next token a function of the tokens so far, unordered, and the last."""
    following, right = {}, 0
    table = sums_by_multiset(2)
    best = {m: [total for total, count in sums.items() if count == max(sums.values())] for m, sums in table.items()}
    for multiset in sorted(best, key=lambda m: len(best[m])):
        for total in best[multiset]:
            response = f"{total:03}"[::-1]
            seen = [("".join(sorted(multiset + response[:k])), response[k - 1 : k]) for k in range(3)]
            if all(following.get(view, token) == token for view, token in zip(seen, response, strict=True)):
                following.update(zip(seen, response, strict=True))
                right += table[multiset][total]
                break
    assert right == nope_ceiling(2)[0]


def test_ceiling_of_three_digits_cannot_be_reached_by_one_layer():
    """Two multisets with one most frequent sum each: writing it, both come to what one layer cannot tell apart."""
    texts, following = [], set()
    for multiset, total in (("112468", 742), ("112268", 344)):
        numbers = ["".join(order) for order in permutations(multiset)]
        sums = Counter(int(number[:3]) + int(number[3:]) for number in numbers)
        (best, count), (_, second) = sums.most_common(2)
        assert best == total and count > second
        query = next(f"${n[:3]}+{n[3:]}=" for n in numbers if int(n[:3]) + int(n[3:]) == total)
        response = str(total)[::-1]
        texts.append(query + response[:2])
        following.add(response[2])
    assert len(following) == 2
    assert torch.allclose(*next_logits(random_model(), *texts), atol=1e-5)


@pytest.mark.parametrize(("digits", "count"), [(1, 81), (2, 8100), (3, 500), (5, 500)])
def test_pairs_are_all_or_a_sample_of_all(digits, count):
    pairs = command.operand_pairs(digits, max(count, 500), 0)
    assert pairs.shape == (count, 2, digits) and pairs.dtype == np.uint8
    assert pairs[..., -1].min() >= 1 and pairs.max() == 9
    if digits <= 2:
        assert len(np.unique(pairs.reshape(count, -1), axis=0)) == count


@pytest.fixture(scope="module")
def short_run(tmp_path_factory):
    """A run on one digit, too short to be always right."""
    folder = tmp_path_factory.mktemp("runs") / "short"
    lengths = [
        word for name in ("min_length", "max_length", "validation_lengths", "test_lengths") for word in (f"--{name}", "1")
    ]
    sizes = ["--hidden_size", "16", "--intermediate_size", "16", "--max_steps", "150", "--eval_steps", "150"]
    samples = ["--validation_samples", "10", "--test_samples", "10", "--output_dir", str(folder)]
    train.main(["nope-ceiling", *lengths, *sizes, *samples])
    return folder


def test_command_writes_ceilings_and_runs_and_draws_them(short_run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "RESULTS", tmp_path / "rows.jsonl")
    monkeypatch.setattr(command, "MAX_DIGITS", 3)
    main(["nope_ceiling", str(short_run), "--num_samples", "81"])
    *ceilings, row = read_results(tmp_path / "rows.jsonl")
    assert [(ceiling["right"], ceiling["num_pairs"]) for ceiling in ceilings] == [KNOWN[digits] for digits in (1, 2, 3)]
    assert row["model"] == "short" and row["length"] == 1 and row["num_samples"] == 81 and row["all_pairs"]
    assert command.interval(row) == (row["exact_match"], row["exact_match"])
    assert (tmp_path / "rows.png").stat().st_size > 0
    assert f"{row['exact_match']:.5f}" in capsys.readouterr().out


def test_exact_match_counts_the_right_answers_of_greedy_decoding(short_run):
    checkpoint = load_checkpoint(str(short_run))
    right = sum(checkpoint.answer(f"{a}+{b}") == str(a + b) for a in range(1, 10) for b in range(1, 10))
    assert 0 < right < 81
    assert command.evaluate_run(short_run, 81, 0)["exact_match"] == right / 81


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"max_length": 30}, "got 'addition' of 1 to 30"),
        ({"min_length": 6, "max_length": 6}, "got 'addition' of 6 to 6"),
        ({"task": "copy"}, "config.json is of another task or format"),
    ],
)
def test_runs_of_other_data_are_refused(short_run, tmp_path, capsys, change, reason):
    folder = shutil.copytree(short_run, tmp_path / "run")
    write_recipe({**read_recipe(folder / "recipe.yaml"), **change}, folder / "recipe.yaml")
    assert_refused(folder, reason, capsys)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"num_hidden_layers": 2}, "got 2 and 'none'"),
        ({"position_encoding": "learned"}, "got 1 and 'learned'"),
    ],
)
def test_models_that_the_ceiling_does_not_bound_are_refused(short_run, tmp_path, capsys, options, reason):
    folder = shutil.copytree(short_run, tmp_path / "run")
    random_model(**options).save_pretrained(folder)
    assert_refused(folder, reason, capsys)


@pytest.mark.parametrize("missing", ["config.json", "recipe.yaml", "results.jsonl"])
def test_unfinished_runs_are_refused(short_run, tmp_path, capsys, missing):
    folder = shutil.copytree(short_run, tmp_path / "run")
    (folder / missing).unlink()
    assert_refused(folder, f"it has no {missing}", capsys)


def assert_refused(folder, reason, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["nope_ceiling", str(folder)])
    assert stop.value.code == 2 and reason in capsys.readouterr().err


def test_published_rows_are_the_ceiling_and_below_it():
    rows = read_results(command.RESULTS)
    ceilings = {row["length"]: row for row in rows if row["model"] == command.CEILING}
    assert {digits: (row["right"], row["num_pairs"]) for digits, row in ceilings.items()} == {
        **KNOWN,
        5: (10033314, 8100000000),
    }
    runs = [row for row in rows if row["model"] != command.CEILING]
    assert {row["length"] for row in runs} == {1, 2, 3, 4, 5}
    for row in runs:
        assert command.interval(row)[0] <= ceilings[row["length"]]["exact_match"]
