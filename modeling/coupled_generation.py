"""Generation by other models, such as GPT-2 or Llama, that were trained on a coupling rule's ids as their `position_ids`."""

from functools import wraps
from typing import Any

import torch
from torch import Tensor

from .coupling import CouplingRule, find_rule, plan_position_ids
from .vocabulary import PAD


def coupled_generate(
    model: Any, coupling: str | CouplingRule, input_ids: Tensor, attention_mask: Tensor | None = None, **options: Any
):
    """Return `model.generate(input_ids, **options)`, in which every token has the position id that a coupling rule gives.

    By itself `generate()` gives a new token the id of the last token plus one. Until this function returns,
    `model.prepare_inputs_for_generation` puts the rule's ids in their place.

        tokens          $ 6 5 3 + 0 4 9 = 2 0 7 0 $
        rule's ids      0 2 3 4 5 2 3 4 5 4 3 2 1 0
        by `generate`   0 2 3 4 5 2 3 4 5 6 7 8 9 10

    Args:
        model: a causal language model of transformers that takes `position_ids` (batch, tokens), with longhand's tokens.
        coupling: a rule with one level, or its name, such as "addition".
        input_ids: (batch, tokens), padded on the left or not at all.
        options: what else `generate()` takes; by default at most the rule's longest response is generated.

    Raises:
        ValueError: the rule has several ids for each token, and `position_ids` of such a model hold one; or a prompt is not
            of the rule's form.
    """
    rule = find_rule(coupling)
    if rule.levels > 1:
        raise ValueError(f"the coupling rule {rule.name!r} gives a token {rule.levels} ids, and position_ids hold one")
    prepare = model.prepare_inputs_for_generation

    @wraps(prepare)
    def prepare_coupled(input_ids: Tensor, **arguments: Any) -> dict[str, Any]:
        inputs = prepare(input_ids, **arguments)
        position_ids = plan_position_ids(coupling, input_ids, input_ids.shape[1]).expand(len(input_ids), -1, -1)[:, 0]
        inputs["position_ids"] = position_ids[:, -inputs["input_ids"].shape[1] :]
        if inputs.get("attention_mask") is None:
            # Without a mask, transformers takes an id that is not the last one plus one for the beginning of another text.
            inputs["attention_mask"] = torch.ones_like(input_ids)
        return inputs

    if attention_mask is None:
        attention_mask = (input_ids != PAD).long()
    if "max_length" not in options:
        options = {"max_new_tokens": rule.plan(input_ids, 1).response_length} | options
    model.prepare_inputs_for_generation = prepare_coupled
    try:
        return model.generate(input_ids, attention_mask=attention_mask, **options)
    finally:
        del model.prepare_inputs_for_generation
