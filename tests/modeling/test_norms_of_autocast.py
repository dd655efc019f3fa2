"""Norms in mixed precision: weights that autocast leaves in float32 are given as the states are, or no kernel is fused."""

from unittest.mock import patch

import pytest
import torch
from kinds import recipes_of_kinds

from longhand.data.batches import draw_batch
from longhand.hub_cards.training.arguments import parse_run


@pytest.mark.parametrize("recipe", [name for name in recipes_of_kinds() if not name.startswith(("paper-", "encoder-"))])
def test_norms_get_weights_of_the_type_of_the_states(recipe):
    run = parse_run([recipe, "--use_cpu", "True"])
    torch.manual_seed(0)
    model = run.task.family.model_class(run.config)
    part = run.task.parts[0]
    batch = draw_batch(model, part, part.operand_lengths(run.data.min_length), split="train")
    taken = []
    rms_norm = torch.nn.functional.rms_norm

    def noted(states, shape, weight, eps):
        taken.append((states.dtype, weight.dtype))
        return rms_norm(states, shape, weight, eps)

    with patch.object(torch.nn.functional, "rms_norm", noted), torch.autocast("cpu", dtype=torch.bfloat16):
        model(**batch, use_cache=False)
    assert all(states == weight for states, weight in taken), taken
    assert taken or getattr(run.config, "norm", "layer") != "rms"
