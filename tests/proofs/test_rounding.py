"""The bound of rounding: against float32 in other orders of summation, and weights that only some orders get right."""

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import longhand
from longhand.data import Addition
from longhand.data.machines.covering import NeighbourhoodBatch
from longhand.data.proofs import ROUNDING_FACTOR, certify, check_thoroughly
from longhand.data.proofs.certificate import read_words
from longhand.data.proofs.windows.networks import DecoderRounding, NetworkRounding
from longhand.data.proofs.windows.rounding import ACTIVATIONS, BENT, STEEPEST
from longhand.hub_cards.checkpoints.load import load_checkpoint
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM

LARGE = 2.0**24
PROOF = Path(longhand.__file__).parent / "hub_cards" / "PROOF.md"

FORMS = {
    "default": {},
    "pre": {"norm_placement": "pre", "hidden_act": "gelu"},
    "relations alone": {"attention_scale": "zero", "tie_word_embeddings": True},
    "two layers": {"num_hidden_layers": 2, "attention_scale": "zero"},
}
every_form = pytest.mark.parametrize("options", FORMS.values(), ids=FORMS)


def make_model(**options) -> CoupledGPTForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
    model = CoupledGPTForCausalLM(CoupledGPTConfig(**(sizes | options))).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 1:
                weight += 0.3 * torch.randn_like(weight)
            elif "lm_head" in name:
                weight *= 3
    return model


@torch.inference_mode()
def leads_and_bounds(model) -> tuple[torch.Tensor, torch.Tensor, NeighbourhoodBatch]:
    """Leads of the tokens that a model writes and their bounds, (neighbourhoods, vocabulary), in some neighbourhoods."""
    (listed,) = Addition().covering((0, 1), 1).batches
    listed = replace(listed, beginning=2)
    some = listed.take(np.random.default_rng(0).permutation(len(listed.tokens))[:200])
    batch = replace(some, right=some.logits(model).argmax(1).numpy())
    return *DecoderRounding(model).lead_and_bound(batch), batch


@torch.inference_mode()
def computed_leads(model, batch) -> torch.Tensor:
    """Leads that a forward pass computes, infinite of the right token over itself."""
    logits, right = batch.logits(model).double(), batch.targets.unsqueeze(1)
    return (logits.gather(1, right) - logits).scatter(1, right, torch.inf)


def permuted(model, seed: int) -> CoupledGPTForCausalLM:
    """The same function with its hidden units, heads and dimensions in another order."""
    model, config = deepcopy(model), model.config
    generator = torch.Generator().manual_seed(seed)
    state, heads, units = (
        torch.randperm(size, generator=generator)
        for size in (config.hidden_size, config.num_attention_heads, config.intermediate_size)
    )
    rows = (heads[:, None] * config.head_dim + torch.arange(config.head_dim)).flatten()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "relation_bias" in name:
                order = (slice(None), slice(None), heads)
            elif weight.ndim == 1:
                order = (state,)
            elif "o_proj" in name or "down_proj" in name:
                order = (state[:, None], rows if "o_proj" in name else units)
            elif "_proj" in name:
                order = ((rows if "attn" in name else units)[:, None], state)
            else:
                order = (slice(None), state)
            weight.copy_(weight[order].clone())
    return model


@every_form
def test_exact_leads_are_those_of_the_model_and_no_order_of_summation_moves_one_beyond_its_bound(options):
    exact, fine, batch = leads_and_bounds(make_model(**options).double())
    torch.testing.assert_close(computed_leads(make_model(**options).double(), batch), exact, atol=1e-11, rtol=0)
    assert (fine < 1e-6).all()
    model = make_model(**options)
    lead, bound = DecoderRounding(model).lead_and_bound(batch)
    assert (lead > ROUNDING_FACTOR * bound).double().mean() > 0.9
    others, largest = lead.isfinite(), 0.0
    for seed in range(8):
        moved = (computed_leads(permuted(model, seed), batch) - lead).abs()[others]
        assert (moved <= bound[others]).all()
        largest = max(largest, (moved / bound[others]).max().item())
    assert largest > 1e-4


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_no_derivative_of_an_activation_is_larger_than_the_lemma_says(name):
    """Between points of a grid of step 5e-5 a second derivative changes by less than 0.29, see PROOF.md."""
    x = torch.arange(-8, 8, 5e-5, dtype=torch.float64).requires_grad_()
    values, slopes = ACTIVATIONS[name](x)
    (derivative,) = torch.autograd.grad(values.sum(), x, retain_graph=True)
    torch.testing.assert_close(derivative, slopes)
    (second,) = torch.autograd.grad(slopes.sum(), x)
    assert slopes.abs().max() <= STEEPEST and second.abs().max() + 0.29 <= 2 * BENT


@torch.no_grad()
def cancel(model, where: str) -> None:
    """Give two equal numbers of a model large weights that cancel in exact arithmetic, and so change nothing there."""
    layer = model.model.layers[0]
    norms, mlp, attention = layer.mlp_norms, layer.mlp, layer.self_attn
    if where == "hidden units":
        for weight in (mlp.up_proj.weight, mlp.gate_proj.weight):
            weight[1] = weight[0]
        mlp.down_proj.weight[:, 0], mlp.down_proj.weight[:, 1] = LARGE, -LARGE
        return
    if where == "attention values":
        attention.v_proj.weight[1] = attention.v_proj.weight[0]
        attention.o_proj.weight[:, 0], attention.o_proj.weight[:, 1] = LARGE, -LARGE
        return
    # Two dimensions of every state are equal.
    for weight in (model.model.embed_tokens.weight.T, attention.o_proj.weight, mlp.down_proj.weight):
        weight[1] = weight[0]
    for norm in (layer.attention_norms.input, layer.attention_norms.output, norms.input, norms.output, model.model.norm):
        norm.weight[1] = norm.weight[0]
    readers = {"queries": attention.q_proj, "gates": mlp.gate_proj, "output matrix": model.lm_head, "norm": mlp.up_proj}
    if where == "norm":
        norms.input.weight[:2] *= LARGE
    size = 1.0 if where == "norm" else LARGE
    readers[where].weight[:, 0], readers[where].weight[:, 1] = size, -size


@pytest.mark.parametrize("where", ["hidden units", "attention values", "queries", "gates", "norm", "output matrix"])
def test_large_weights_that_cancel_are_refused_wherever_they_are(where):
    model = make_model()
    cancel(model, where)
    lead, bound, _ = leads_and_bounds(model)
    assert (lead / bound).min() < ROUNDING_FACTOR / 100


@pytest.mark.parametrize("size", [2.0**41, torch.nan, torch.inf])
def test_weights_beyond_the_range_of_the_lemmas_have_no_bound(size):
    model = make_model()
    model.lm_head.weight.data[3, 3] = size
    assert leads_and_bounds(model)[1].isinf().all()


@torch.no_grad()
@pytest.mark.thorough
def test_an_adder_that_only_some_orders_get_right_is_not_certified(main_job, monkeypatch):
    """Two hidden units with equal activations, read with weights 2^24 and -2^24, swallow what is added between them."""
    model = CoupledGPTForCausalLM.from_pretrained(main_job).eval()
    mlp = model.model.layers[0].mlp
    # The two units that matter least give way, and become active where the one that matters most is.
    first, second, *_, most = mlp.down_proj.weight.norm(dim=0).argsort().tolist()
    for weight in (mlp.up_proj.weight, mlp.gate_proj.weight):
        weight[first] = weight[second] = weight[most]
    mlp.down_proj.weight[:, first], mlp.down_proj.weight[:, second] = LARGE, -LARGE
    between = [unit for unit in range(mlp.down_proj.in_features) if unit not in (first, second)]

    def in_order(order):
        def add_up(hidden):
            total = torch.zeros(*hidden.shape[:-1], mlp.down_proj.out_features)
            for units in order:
                total = total + hidden[..., units] @ mlp.down_proj.weight[:, units].T
            return total

        return add_up

    for order, right in ((([first], [second], between), True), (([first], between, [second]), False)):
        monkeypatch.setattr(mlp.down_proj, "forward", in_order(order))
        found = certify(model, Addition())
        assert (found.wrong == 0) == right and not found.certified
        assert not right or (found.margin > 0.5 and found.ratio == 0)


def test_the_statement_of_certificates_is_the_corollary_word_for_word():
    paragraphs = PROOF.read_text().split("\n\n")
    quoted = [text.removeprefix("> ").replace("\n> ", " ") for text in paragraphs if text.startswith("> ")]
    assert quoted == [
        statement.replace(":,", "") for kind in ("decoder", "encoder") for statement in read_words(kind)["statement"]
    ]


@pytest.mark.parametrize("name", ["addition-tiny", "encoder-multiplication-1-settling"])
def test_bounding_begins_with_the_smallest_leads_and_ends_at_the_first_ratio_that_is_not_enough(name, monkeypatch):
    checkpoint = load_checkpoint(str(PROOF.parent / "zoo" / name))
    stated, bounded = json.loads((PROOF.parent / "zoo" / name / "certificate.json").read_text()), []
    bound_leads = NetworkRounding.bound_leads
    monkeypatch.setattr(NetworkRounding, "bound_leads", lambda *given: bounded.append(given) or bound_leads(*given))
    early = check_thoroughly(checkpoint.model, checkpoint.task, enough=1e9)
    assert len(bounded) == 1
    assert 0.99 * stated["ratio"] <= early.ratio < 1e9
    assert (early.wrong, early.predictions) == (0, stated["predictions"])
    # What ended early is no certificate's.
    with pytest.raises(ValueError, match="must not end early"):
        certify(checkpoint.model, checkpoint.task, early)
