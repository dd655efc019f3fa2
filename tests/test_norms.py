"""Norms of the decoder's states, and their gradients."""

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

from longhand.modeling.norms import RMSNorm, scaled_to_length


def make_norm(states: torch.Tensor) -> RMSNorm:
    norm = RMSNorm(states.shape[-1], eps=1e-3, dtype=states.dtype)
    with torch.no_grad():
        norm.weight.copy_(1 + torch.rand_like(norm.weight))
    return norm


def test_norm_has_the_values_and_gradients_of_rms_norm():
    torch.manual_seed(0)
    states = torch.randn(2, 3, 8, dtype=torch.double, requires_grad=True)
    norm = make_norm(states)

    def values(states, weight):
        return torch.func.functional_call(norm, {"weight": weight}, (states,))

    assert torch.equal(norm(states), nn.functional.rms_norm(states, (8,), norm.weight, 1e-3))
    assert gradcheck(values, (states, norm.weight), check_forward_ad=True)
    assert gradgradcheck(values, (states, norm.weight))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_in_half_precision_are_those_of_torch_for_large_states_too(dtype):
    states = (100 * torch.randn(4, 64)).to(dtype)
    norm = make_norm(states)
    gradients = []
    for forward in (norm, lambda states: nn.functional.rms_norm(states, (64,), norm.weight, 1e-3)):
        forward(given := states.clone().requires_grad_()).sin().sum().backward()
        gradients.append((given.grad, norm.weight.grad))
        norm.zero_grad()
    torch.testing.assert_close(*gradients)


def test_norm_has_gradients_of_single_examples():
    states = torch.randn(4, 8)
    norm = make_norm(states)

    def loss(weight, row):
        return torch.func.functional_call(norm, {"weight": weight}, (row,)).sin().sum()

    by_row = torch.func.vmap(torch.func.grad(loss), (None, 0))(norm.weight, states)
    for row, gradient in zip(states, by_row, strict=True):
        torch.testing.assert_close(gradient, torch.autograd.grad(loss(norm.weight, row), norm.weight)[0])


def test_norm_has_a_hessian():
    states = torch.randn(2, 8, dtype=torch.double)
    norm = make_norm(states)

    def hessian(norm):
        return torch.func.hessian(lambda states: norm(states).sin().sum())(states)

    expected = hessian(lambda states: nn.functional.rms_norm(states, (8,), norm.weight, 1e-3))
    torch.testing.assert_close(hessian(norm), expected)


def test_states_get_the_length_and_zeros_stay_zeros():
    states = torch.randn(3, 2, 8, dtype=torch.double, requires_grad=True)
    lengths = torch.tensor([[0.5], [2.0]], dtype=torch.double, requires_grad=True)
    torch.testing.assert_close(scaled_to_length(states, lengths).norm(dim=-1), lengths.squeeze(1).expand(3, 2))
    assert gradcheck(scaled_to_length, (states, lengths))
    assert not scaled_to_length(torch.zeros(1, 8), 1.0).any()
