"""How a model is compared with one that was saved and loaded, or made in another process.

Weights are the same to the bit, on every computer. What is computed from them is the same but for rounding: a loaded tensor
lies where it lies in its file, an allocated one at a multiple of 64 bytes, and matrix products of both may add up in another
order. So logits are compared within a tolerance.
"""

from collections.abc import Mapping

import torch


def assert_same_weights(actual: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> None:
    """Compare tensors by name and to the bit."""
    assert actual.keys() == expected.keys()
    assert [name for name, value in expected.items() if not torch.equal(actual[name], value)] == []
