"""From formatted examples to the inputs of a model: ids, labels, position ids."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from longhand.data.formatting import Examples
from longhand.modeling.coupling import COUPLING_RULES, shift_position_ids
from longhand.modeling.vocabulary import PAD

IGNORED = -100
"""Label of a token that is not supervised."""


@dataclass(frozen=True)
class CouplingCollator:
    """Makes a batch of inputs, and draws starts of position ids if `random_start` is set.

    Attributes:
        coupling: name of the coupling rule.
        max_position_ids: starts are drawn so that no id is larger; with `wrap_position_ids`, uniformly on the whole ring
            of so many ids.
        random_start: whether every example gets a start of its own (training with a learned table).
        wrap_position_ids: whether ids continue at 1 after the largest.
    """

    coupling: str
    max_position_ids: int
    random_start: bool = False
    wrap_position_ids: bool = False

    def __call__(self, examples: Examples, generator: np.random.Generator | None = None) -> dict[str, Any]:
        """Batch for `CoupledGPTForCausalLM.forward`.

        `position_ids` is (1 or count, levels, columns), one row where all examples have the same; `logits_to_keep` counts
        the columns from the first `=` on; labels are the response with its end token; `attention_mask` comes with padding.

        Raises:
            ValueError: the ids of the examples do not fit into the learned table, for `random_start` without wrap.
        """
        input_ids = torch.from_numpy(examples.tokens).long()
        columns = input_ids.shape[1]
        rule = COUPLING_RULES[self.coupling]
        position_ids = rule.plan(input_ids[:1] if examples.same_layout else input_ids, columns).position_ids
        if self.random_start:
            position_ids = self._shift(position_ids, len(examples), generator)
        labels = input_ids
        if examples.same_layout:
            labels = input_ids.clone()
            labels[:, : examples.query_lengths[0]] = IGNORED
        else:
            query = torch.arange(columns) < torch.from_numpy(examples.query_lengths).unsqueeze(1)
            labels = input_ids.masked_fill(query | (input_ids == PAD), IGNORED)
        batch = {
            "input_ids": input_ids,
            "labels": labels,
            "position_ids": position_ids,
            "logits_to_keep": columns - int(examples.query_lengths.min()) + 1,
        }
        return batch if examples.same_layout else batch | {"attention_mask": (input_ids != PAD).long()}

    def _shift(self, position_ids: torch.LongTensor, count: int, generator: np.random.Generator) -> torch.LongTensor:
        starts = self.max_position_ids
        if not self.wrap_position_ids:
            starts -= int(position_ids.max()) - 1
        if starts < 1 or int(position_ids.max()) > self.max_position_ids:
            longest = COUPLING_RULES[self.coupling].capacity(self.max_position_ids)
            raise ValueError(
                f"examples need {int(position_ids.max())} position ids but max_position_ids is {self.max_position_ids}: "
                f"the longest that fits is {longest}"
            )
        offset = torch.from_numpy(generator.integers(0, starts, size=(count, position_ids.shape[1], 1)))
        return shift_position_ids(position_ids, offset, self.max_position_ids if self.wrap_position_ids else None)
