"""The ceiling of one layer without position encoding, and the invariance of the model that it follows from."""

from collections import Counter, defaultdict
from itertools import permutations

import numpy as np
import pytest
import torch
from cases import all_but

from longhand.hub_cards.research.__main__ import main
from longhand.hub_cards.research.theories import nope_ceiling as command
from longhand.hub_cards.research.theories.nope_ceiling import nope_ceiling
from longhand.hub_cards.result_rows import read_results
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


@pytest.mark.parametrize("digits", all_but({3}, [1, 2, 3]))
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


def test_the_published_rows_are_the_ceilings(tmp_path, monkeypatch):
    published = read_results(command.RESULTS)
    assert {row["length"]: (row["right"], row["num_pairs"]) for row in published} == {**KNOWN, 5: (10033314, 8100000000)}
    monkeypatch.setattr(command, "RESULTS", tmp_path / "rows.jsonl")
    monkeypatch.setattr(command, "MAX_DIGITS", 4)
    main(["nope_ceiling"])
    assert read_results(tmp_path / "rows.jsonl") == published[:4]
