"""The bound of rounding: against float32 in other orders of summation, and weights that only some orders get right."""

from copy import deepcopy

import pytest
import torch

from longhand.data import Addition
from longhand.data.certificates import ROUNDING_FACTOR, certify, check_neighbourhoods
from longhand.data.certificates.check import _predictions, _Rounding
from longhand.data.certificates.decoder_rounding import DecoderRounding
from longhand.data.certificates.rounding import ACTIVATIONS, BENT
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM

LARGE = 2.0**24

FORMS = {
    "default": {},
    "pre": {"norm_placement": "pre"},
    "post": {"norm_placement": "post"},
    "layer norms": {"norm": "layer", "norm_placement": "pre_post"},
    "no norms": {"norm": "none", "init": "t5", "attention_scale": "none"},
    "plain MLP": {"mlp": "plain", "hidden_act": "relu"},
    "other gates": {"hidden_act": "silu", "tie_word_embeddings": True},
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

    Also returns the batch, and the neighbourhood of each of its predictions: all tokens of the response, of sums of one digit
    and of some sums of two.
    """
    problems = Addition().covering((0, 1), 1).batches
    digits, lengths = next(iter(problems)) if not isinstance(problems, list) else problems[0]
    batch = next(_predictions(model, Addition(), [(digits[:200], lengths[:200])]))
    layers = _Rounding(model)._neighbourhoods(batch)
    network, tokens = DecoderRounding(model), torch.arange(model.config.vocab_size)
    some = torch.zeros(len(layers[-1].queries), dtype=torch.long)
    right = network.lead_and_bound(tokens, layers, some)[0].scatter(1, some[:, None], 0.0).argmin(1)
    return *network.lead_and_bound(tokens, layers, right), right, [batch, layers[-1].index]


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
    assert (bound < 1e-9).all()
    others = lead[index].isfinite()
    torch.testing.assert_close(computed[others], lead[index][others], atol=1e-11, rtol=0)


@every_form
def test_no_order_of_summation_moves_a_lead_beyond_its_bound_and_bounds_are_not_idle(options):
    model = make_model(**options)
    lead, bound, right, (batch, index) = leads_and_bounds(model)
    others, largest = lead[index].isfinite(), 0.0
    batch.inputs["position_ids"] = batch.inputs["position_ids"].clone()
    for seed in range(8):
        other = permuted(model, seed)
        moved = (computed_leads(other, batch, index, right) - lead[index]).abs()[others]
        assert (moved <= bound[index][others]).all()
        largest = max(largest, (moved / bound[index][others]).max().item())
    print("largest share", largest, "median bound", bound.median().item())
    assert largest > 1e-4


@every_form
def test_a_float32_lead_of_ten_bounds_is_common(options):
    lead, bound, _, _ = leads_and_bounds(make_model(**options))
    assert (lead > ROUNDING_FACTOR * bound).double().mean() > 0.9
