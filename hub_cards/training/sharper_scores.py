"""Sharper scores: the factors of the scores grow in the course of training.

A model attends to few tokens if their scores are far above all others. If scores are far apart from the beginning, a model
learns slowly, since nearly all its tokens have no weight and get no gradient. If they are never far apart, the tokens with
low scores keep a small weight each, which adds up in a longer text. So the scores begin close together and are spread later,
while training goes on.
"""

# Used by: trainer.py. Changed freely.

import torch
from transformers import PreTrainedModel, TrainerCallback

FIRST_SHARE, LAST_SHARE = 0.25, 0.75
"""The factors grow between these shares of the steps; the last quarter is trained with the factors that have grown."""

FACTOR = "qk_norm"
"""The weight (heads,) that holds the factors of a layer; see `qk_norm` of `CoupledGPTConfig`."""


class SharperScores(TrainerCallback):
    """Multiply the factors of the scores of every layer, a little behind every step, until they have grown as asked.

    What a step multiplies follows from its number. So a resumed run goes on as if it had not been cut off, and each of
    several processes has the same factors. Training goes on meanwhile, and changes the factors too.
    """

    def __init__(self, growth: float):
        """
        Args:
            growth: by what the factors are multiplied in all.
        """
        self.growth = growth

    def grown(self, step: int, steps: int) -> float:
        """By what the factors have been multiplied behind a step, of so many steps in all."""
        share = (step / steps - FIRST_SHARE) / (LAST_SHARE - FIRST_SHARE)
        return 1 + (self.growth - 1) * min(max(share, 0.0), 1.0)

    def on_step_end(self, args, state, control, model: PreTrainedModel | None = None, **kwargs):
        assert model is not None
        step, steps = state.global_step, state.max_steps
        ratio = self.grown(step, steps) / self.grown(step - 1, steps)
        if ratio == 1:
            return
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if name.endswith(FACTOR):
                    weight.mul_(ratio)
