"""The bound of rounding: against float32 in other orders of summation, and weights that only some orders get right."""

import json
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

import longhand
from longhand.data import Addition
from longhand.data.certificates import ROUNDING_FACTOR, certificate, certify, check, check_thoroughly, settling
from longhand.data.certificates import check as check_module
from longhand.data.certificates.certificate import STATEMENT
from longhand.data.certificates.check import _predictions, _Rounding
from longhand.data.certificates.decoder_rounding import DecoderRounding
from longhand.data.certificates.rounding import ACTIVATIONS, BENT
from longhand.hub_cards.checkpoints.load import load_checkpoint
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM

LARGE = 2.0**24
PROOF = Path(longhand.__file__).parent / "hub_cards" / "PROOF.md"

FORMS = {
    "default": {},
    "pre": {"norm_placement": "pre"},
    "post": {"norm_placement": "post"},
    "layer norms": {"norm": "layer", "norm_placement": "pre_post"},
    "no norms": {"norm": "none", "init": "t5", "attention_scale": "none"},
    "plain MLP": {"mlp": "plain", "hidden_act": "relu"},
    "other gates": {"hidden_act": "silu", "tie_word_embeddings": True},
    "relations alone": {"attention_scale": "zero", "tie_word_embeddings": True},
    "QK-norm": {"qk_norm": True, "attention_scale": "log_length", "hidden_act": "gelu"},
    "two layers": {"num_hidden_layers": 2},
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
def leads_and_bounds(model) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, list]:
    """Leads of the tokens that lead in exact arithmetic and their bounds, (neighbourhoods, vocabulary); and the tokens.

    Also returns the batch, sums of one digit, and the neighbourhood of each of its predictions.
    """
    digits = np.indices((10, 10), dtype=np.uint8).reshape(2, 100).T[..., None]
    batch = next(_predictions(model, Addition(), [(digits, np.ones((100, 2), dtype=int))]))
    layers = _Rounding(model)._neighbourhoods(batch)
    network, tokens = DecoderRounding(model), torch.arange(model.config.vocab_size)
    some = torch.zeros(len(layers[-1].queries), dtype=torch.long)
    right = network.lead_and_bound(tokens, layers, some)[0].scatter(1, some[:, None], 0.0).argmin(1)
    return *network.lead_and_bound(tokens, layers, right), right, [batch, layers[-1].index]


@torch.inference_mode()
@pytest.mark.parametrize("first", [1, 10**6], ids=["one first", "all first"])
def test_the_smallest_leads_are_bounded_first_and_no_neighbourhood_twice(first, monkeypatch):
    model = make_model(num_hidden_layers=2)
    _, bound, right, (batch, index) = leads_and_bounds(model)
    monkeypatch.setattr(check_module, "FIRST_BOUNDED", first)
    rounding, bounded = _Rounding(model), []
    monkeypatch.setattr(rounding, "_bound", lambda layers, right: bounded.append((len(layers), len(right))))
    batch = batch._replace(right=right[index])
    rounding.add(batch, computed_leads(model, batch, index, right).amin(-1))
    assert rounding.finish() is None
    assert {layers for layers, _ in bounded} == {2} and all(count for _, count in bounded)
    assert sum(count for _, count in bounded) == len(index.unique()) and bounded[0][1] == min(first, len(index.unique()))
    monkeypatch.undo()
    rounding = _Rounding(model)
    rounding.add(batch, computed_leads(model, batch, index, right).amin(-1))
    rounding.finish()
    used = index.unique()
    assert rounding.bound == pytest.approx(bound[used].max().item())


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
            elif "factor" in name:
                order = (heads,)
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


@torch.inference_mode()
def computed_leads(model, batch, index, right) -> torch.Tensor:
    """Leads that a forward pass computes, (predictions, vocabulary)."""
    logits = model(**batch.inputs, use_cache=False).logits[:, : batch.right.shape[1]].double()
    return logits.gather(-1, right[index].unsqueeze(-1)) - logits


@every_form
def test_exact_leads_are_those_of_the_model_in_float64(options):
    model = make_model(**options).double()
    lead, bound, right, (batch, index) = leads_and_bounds(model)
    computed = computed_leads(model, batch, index, right)
    assert (bound < 1e-6).all()
    others = lead[index].isfinite()
    torch.testing.assert_close(computed[others], lead[index][others], atol=1e-11, rtol=0)


@every_form
def test_no_order_of_summation_moves_a_lead_beyond_its_bound_and_bounds_are_not_idle(options):
    model = make_model(**options)
    lead, bound, right, (batch, index) = leads_and_bounds(model)
    others, largest = lead[index].isfinite(), 0.0
    for seed in range(8):
        other = permuted(model, seed)
        moved = (computed_leads(other, batch, index, right) - lead[index]).abs()[others]
        assert (moved <= bound[index][others]).all()
        largest = max(largest, (moved / bound[index][others]).max().item())
    assert largest > 1e-4


@every_form
def test_a_float32_lead_of_ten_bounds_is_common(options):
    lead, bound, _, _ = leads_and_bounds(make_model(**options))
    assert (lead > ROUNDING_FACTOR * bound).double().mean() > 0.9


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_no_derivative_of_an_activation_is_larger_than_the_lemma_says(name):
    """Between points of a grid of step 5e-5 a second derivative changes by less than 0.29, see PROOF.md."""
    x = torch.arange(-8, 8, 5e-5, dtype=torch.float64).requires_grad_()
    values, slopes = ACTIVATIONS[name].function(x)
    (derivative,) = torch.autograd.grad(values.sum(), x, retain_graph=True)
    torch.testing.assert_close(derivative.where(x != 0, 0.0), slopes.where(x != 0, 0.0))
    assert slopes.abs().max() <= ACTIVATIONS[name].steepest
    if name != "relu":
        (second,) = torch.autograd.grad(slopes.sum(), x)
        assert second.abs().max() + 0.29 <= 2 * BENT


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
    if where == "embedding":
        # Without norms, all that reads the state takes the difference of both.
        model.model.embed_tokens.weight[:, :2] = LARGE
        for reader in (attention.q_proj, attention.k_proj, attention.v_proj, mlp.up_proj, mlp.gate_proj, model.lm_head):
            reader.weight[:, 1] = -reader.weight[:, 0]
        return
    for norm in (layer.attention_norms.input, layer.attention_norms.output, norms.input, norms.output, model.model.norm):
        norm.weight[1] = norm.weight[0]
    readers = {"queries": attention.q_proj, "gates": mlp.gate_proj, "output matrix": model.lm_head, "norm": mlp.up_proj}
    if where == "norm":
        norms.input.weight[:2] *= LARGE
    size = 1.0 if where == "norm" else LARGE
    readers[where].weight[:, 0], readers[where].weight[:, 1] = size, -size


PLACES = ["hidden units", "attention values", "queries", "gates", "norm", "embedding", "output matrix"]


@pytest.mark.parametrize("where", PLACES)
def test_large_weights_that_cancel_are_refused_wherever_they_are(where):
    model = make_model(**FORMS["no norms" if where == "embedding" else "default"])
    cancel(model, where)
    lead, bound, _, _ = leads_and_bounds(model)
    assert (lead > 0).all()
    assert (lead / bound).min() < ROUNDING_FACTOR / 100


@pytest.mark.parametrize("size", [2.0**41, torch.nan, torch.inf])
def test_weights_beyond_the_range_of_the_lemmas_have_no_bound(size):
    model = make_model()
    model.lm_head.weight.data[3, 3] = size
    _, bound, _, _ = leads_and_bounds(model)
    assert bound.isinf().all()


@dataclass(frozen=True)
class FewSums(Addition):
    """Addition with a part of the neighbourhoods."""

    def covering(self, relation_range, layers):
        covering = super().covering(relation_range, layers)
        return replace(covering, batches=islice(covering.batches, 2))


@torch.no_grad()
def test_an_adder_that_only_some_orders_get_right_is_not_certified(main_job, monkeypatch):
    """Two hidden units with equal activations, read with weights 2^24 and -2^24, swallow what is added between them."""
    model = CoupledGPTForCausalLM.from_pretrained(main_job).eval()
    mlp = model.model.layers[0].mlp
    # The two units that matter least give way, and become active where the one that matters most is.
    first, second, *_, most = mlp.down_proj.weight.norm(dim=0).argsort().tolist()
    mlp.down_proj.weight[:, [first, second]] = 0.0
    assert certify(model, FewSums()).certified
    for weight in (mlp.up_proj.weight, mlp.gate_proj.weight):
        weight[first] = weight[second] = weight[most]
    mlp.down_proj.weight[:, first], mlp.down_proj.weight[:, second] = LARGE, -LARGE
    exact = certify(deepcopy(model).double(), FewSums())
    assert exact.wrong == 0 and exact.margin > 1 and exact.ratio > ROUNDING_FACTOR

    units = torch.arange(mlp.down_proj.in_features).tolist()
    between = [unit for unit in units if unit not in (first, second)]

    def in_order(order):
        def add_up(hidden):
            total = torch.zeros(*hidden.shape[:-1], mlp.down_proj.out_features)
            for unit in order:
                total = total + hidden[..., unit, None] * mlp.down_proj.weight[:, unit]
            return total

        return add_up

    for order, right in (([first, second, *between], True), ([first, *between, second], False)):
        monkeypatch.setattr(mlp.down_proj, "forward", in_order(order))
        certificate = certify(model, FewSums())
        assert (certificate.wrong == 0) == right and not certificate.certified
        assert not right or (certificate.margin > 1 and certificate.ratio == 0)


def test_the_statement_of_certificates_is_the_corollary_word_for_word():
    paragraphs = PROOF.read_text().split("\n\n")
    quoted = [text.removeprefix("> ").replace("\n> ", " ") for text in paragraphs if text.startswith("> ")]
    assert quoted == [statement.replace(":,", "") for statement in (STATEMENT, settling.STATEMENT)]


@pytest.mark.parametrize("name", ["addition-tiny", "encoder-addition-settling"])
def test_bounding_ends_at_the_first_ratio_that_is_not_enough(name, monkeypatch):
    checkpoint = load_checkpoint(str(PROOF.parent / "zoo" / name))
    model, task = checkpoint.model, checkpoint.task
    monkeypatch.setattr(check, "BOUNDED_AT_ONCE", 100)
    stated = json.loads((PROOF.parent / "zoo" / name / "certificate.json").read_text())
    rounding = check.encoder_rounding.EncoderRounding if model.config.model_type == "pairwise_bert" else DecoderRounding
    bounded, lead_and_bound = [], rounding.lead_and_bound

    def counted(self, *arguments):
        bounded.append(1)
        return lead_and_bound(self, *arguments)

    monkeypatch.setattr(rounding, "lead_and_bound", counted)
    monkeypatch.setattr(certificate, "_CHECKS", {})
    early = check_thoroughly(model, task, enough=1e9)
    assert len(bounded) == 1
    assert 0.99 * stated["ratio"] <= early.ratio < 1e9
    assert (early.wrong, early.predictions, early.neighbourhoods) == (0, stated["predictions"], stated["neighbourhoods"])
    # What ended early is no certificate's.
    assert not certificate._CHECKS
