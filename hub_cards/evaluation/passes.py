"""The labels of an encoder that settles, pass by pass."""

from typing import Any

import torch
from torch import Tensor

from longhand.modeling.settling import NO_STATE
from longhand.modeling.vocabulary import NOT_KNOWN


@torch.inference_mode()
def passes_of(model: Any, input_ids: Tensor) -> list[Tensor]:
    """Return the states (batch, tokens) after each pass that changes one; the cost grows with tokens times passes.

    Args:
        model: a PairwiseBertForTokenClassification with `label_states`.
        input_ids: (batch, tokens).
    """
    places = model.model.find_answers(input_ids).places
    states, found = torch.full_like(input_ids, NO_STATE), []
    states.view(-1)[places] = NOT_KNOWN
    for _ in places:
        labels = model(input_ids, states=states).logits.argmax(-1)
        new = torch.full_like(states, NO_STATE)
        new.view(-1)[places] = labels.view(-1)[places]
        if torch.equal(new, states):
            break
        states = new
        found.append(states)
    return found
