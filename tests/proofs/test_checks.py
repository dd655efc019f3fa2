"""Checks of arguments: what counts as an integer."""

import numpy as np
import pytest
import torch

from longhand.modeling.checks import check_integer

INTEGERS = [0, 7, np.int64(7), np.uint8(7), np.array(7), torch.tensor(7), 10**30]
OTHERS = [True, False, np.True_, np.array(True), torch.tensor(True), 7.0, np.float64(7), torch.tensor(7.0), "7", None, [7]]


@pytest.mark.parametrize("value", INTEGERS)
def test_integers_of_python_numpy_and_torch_are_integers(value):
    check_integer("start", value, 0)
    with pytest.raises(ValueError, match="start must be an integer from"):
        check_integer("start", value, 8 * 10**30, 9 * 10**30)


@pytest.mark.parametrize("value", OTHERS, ids=repr)
def test_truth_values_fractions_and_texts_are_none(value):
    with pytest.raises(ValueError, match="start must be an integer of at least 0"):
        check_integer("start", value, 0)
