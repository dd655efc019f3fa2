"""The leads of the verifier are those of the package, and no order of summation moves one beyond its bound."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from cases import drawn
from certificate_subjects import untrained
from neighbourhood_search import rows_of
from test_rounding import computed_leads, permuted
from test_settling import GRIDS, MAPS, PRODUCTS, SUMS, lively

from longhand.data import Multiplication
from longhand.data.proofs import verify_certificate
from longhand.data.proofs.check import covering
from longhand.data.proofs.verify_certificate import RELATED, Network, bound_leads
from longhand.data.proofs.windows import networks
from longhand.data.proofs.windows.networks import DecoderRounding, EncoderRounding
from longhand.hub_cards.checkpoints.certificate_file import VERIFIER
from longhand.hub_cards.checkpoints.load import load_checkpoint, unpack, zoo
from longhand.hub_cards.research import worked_example
from longhand.modeling.vocabulary import BOS, PAD


def network_of(model) -> Network:
    weights = model.state_dict().items()
    return Network(
        {verify_certificate.rename(name): weight.double().numpy() for name, weight in weights}, model.config.to_dict()
    )


def same_leads(found, expected, bound) -> None:
    """Both find the same leads; and the same bounds, where the package takes all its effort too, but for empty slots."""
    leads, bounds = found
    np.testing.assert_allclose(leads, expected.numpy(), rtol=1e-9, atol=1e-11)
    assert np.isfinite(bounds).mean() > 0.9 and bound.isfinite().double().mean() > 0.9
    hard = (expected < 10 * bound).numpy() & np.isfinite(leads)
    quotients = bounds[hard] / bound.numpy()[hard]
    assert hard.any() and quotients.min() > 0.7 and quotients.max() < 1 + 1e-6


LAYERS = {"one layer": {}, "two layers": {"num_hidden_layers": 2, "attention_scale": "zero", "norm_placement": "pre"}}


@torch.inference_mode()
@pytest.mark.parametrize("options", LAYERS.values(), ids=LAYERS)
def test_leads_of_decoders_are_those_of_the_package_and_rounding_keeps_to_the_bounds(options):
    task = Multiplication(multiplier_length=1)
    model = untrained(task, coupling="multiplication_by_digits", eos_token_id=task.end_token, **options)
    listed = next(iter(task.covering(model.model.position_encoding.window, 1).batches))
    batch = replace(listed.take(np.arange(0, len(listed.tokens), 100)), beginning=listed.keys.shape[1])
    sees = RELATED * (batch.relations + 1) + batch.keys
    sees = np.column_stack([np.where(batch.keys == PAD, 0, sees), np.full(len(sees), RELATED * (sees.shape[1] + 1) + BOS)])
    rows = np.column_stack([batch.tokens, batch.right, sees])
    network, others = network_of(model), np.arange(len(task.tokens)) != batch.right[:, None]
    same_leads(network.leads_and_bounds(rows, effort=2), *DecoderRounding(model).lead_and_bound(batch))
    computed = [computed_leads(permuted(model, seed), batch).numpy()[others] for seed in range(4)]
    for effort in range(3):
        leads, bounds = (part[others] for part in network.leads_and_bounds(rows, effort))
        moved = np.abs(np.array(computed) - leads).max(axis=0)
        assert (moved <= bounds).all() and (moved / bounds).max() > 1e-4


@torch.inference_mode()
@pytest.mark.parametrize("name", ["addition", pytest.param("encoder-addition-settling", marks=pytest.mark.release)])
def test_overflow_in_any_weight_is_no_lead_that_a_bound_allows(name, monkeypatch):
    """Neither program calls a neighbourhood proved in which a number overflows, though each looks at it by itself."""
    checkpoint = load_checkpoint(zoo(name))
    model, task = checkpoint.model, checkpoint.task
    batch = next(iter(covering(model, task).batches)).take(np.arange(0, 40, 8))
    rows = verify_certificate.list_neighbourhoods(verify_certificate.find_task(task.describe(), None, name != "addition"))[
        :8
    ]
    kind = DecoderRounding if name == "addition" else EncoderRounding

    @np.errstate(all="ignore")
    def are_proved():
        lead, bound = kind(model).lead_and_bound(batch)
        leads, bounds = network_of(model).leads_and_bounds(rows, effort=2)
        return bool((lead / bound >= 2).all(1).any()), bool((leads / bounds >= 2).all(1).any())

    assert are_proved() == (True, True)
    # All weights, however large, get past what refuses them.
    monkeypatch.setattr(networks, "LARGEST", math.inf)
    for label, weight in model.named_parameters():
        own = weight.clone()
        for size in (2.0**60, 3.2e38):
            # In each row a pair that cancels.
            weight.view(-1, weight.shape[-1])[:, :2] = torch.tensor([size, -size])
            assert are_proved() == (False, False), (label, size)
        weight.copy_(own)


@torch.inference_mode()
@pytest.mark.parametrize("task", [SUMS, PRODUCTS, GRIDS], ids=["sums", "products", "grids"])
def test_leads_of_encoders_are_those_of_the_package_and_rounding_keeps_to_the_bounds(task):
    covered, model = task.covering(MAPS[task][1], 1), lively(task, torch.float32)
    some = covered.take(np.random.default_rng(0).permutation(covered.count)[:200])
    rows, network = rows_of(task, some.cases, some.right), network_of(model)
    same_leads(network.leads_and_bounds(rows, effort=2), *EncoderRounding(model).lead_and_bound(some))
    logits = model.label_cases(some.cases).double().numpy()
    computed = np.take_along_axis(logits, rows[:, 1:2], 1) - logits
    for effort in range(3):
        leads, bounds = network.leads_and_bounds(rows, effort)
        others = np.isfinite(leads)
        moved = np.abs(computed - leads)[others]
        assert (moved <= bounds[others]).all() and (moved / bounds[others]).max() > 1e-4


def test_the_example_on_the_page_of_proofs_has_the_numbers_that_the_verifier_finds():
    """If this fails, take over what hub_cards/research/worked_example.py prints, and the sentence above it."""
    page, table = (VERIFIER.parents[2] / "hub_cards" / "PROOF.md").read_text(), worked_example.render()
    lead, bound, ratio = (cell.strip() for cell in table.splitlines()[3].split("|")[-4:-1])
    assert table in page
    sentence = " ".join(page.split())
    for number in (f"by {lead.split()[0]}, and", f"move this lead by {bound} at", f"the lead is {ratio} times"):
        assert number in sentence


LONG = (
    *("calculator", "encoder-multiplication-1-settling", "encoder-multiplication-grid", "multiplication-1"),
    "three-summands",
)
"""Checkpoints of the zoo that take long to verify: some leads of each are found here. `.ci/run` verifies the whole zoo."""


@pytest.mark.parametrize("name", drawn(LONG, 2))
def test_a_large_checkpoint_of_the_zoo_is_known_and_some_of_its_leads_are_clear(name, tmp_path):
    _, certificate, task, config, weights = verify_certificate.read_checkpoint(unpack(name, tmp_path))
    rows = verify_certificate.list_neighbourhoods(task)
    assert len(rows) == certificate["neighbourhoods"] and certificate["limits"] == task.limits
    some = rows[np.random.default_rng(0).permutation(len(rows))[:200]]
    # The package's own bounds may be a little less.
    ratio, bound = 0.99 * certificate["ratio"], 1.01 * certificate["bound"]
    for leads, bounds in bound_leads(Network(weights, config), some, ratio, bound):
        assert (leads >= ratio * bounds).all() and (bounds <= bound).all()
    weights["0.up_proj"] = weights["0.up_proj"][::-1].copy()
    assert Network(weights, config).leads_and_bounds(some, effort=0)[0].min() < 0
