"""Small models of sums whose tokens see all tokens before them, of every kind whose far tokens have a bound."""

import torch

from longhand.data import build_task
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM

SMALL = {"hidden_size": 24, "num_attention_heads": 2, "head_dim": 8, "intermediate_size": 20, "windowed": False}
RECIPE = {
    **SMALL,
    "position_encoding": "learned",
    "max_position_ids": 12,
    "norm_placement": "pre_post",
    "qk_norm": True,
    "attention_scale": "log_length",
}
KINDS = {
    "recipe": RECIPE,
    "post": {**RECIPE, "norm_placement": "post", "hidden_act": "gelu"},
    "pre, plain": {**RECIPE, "norm_placement": "pre", "mlp": "plain", "attention_scale": "sqrt", "qk_norm": False},
    "relu without norms": {**RECIPE, "norm": "none", "mlp": "plain", "hidden_act": "relu"},
    "no positions": {**RECIPE, "position_encoding": "none", "coupling": "sequential"},
    "uncoupled table": {**RECIPE, "coupling": "sequential", "max_position_ids": 30},
    "rotary": {**RECIPE, "position_encoding": "rotary", "qk_norm": False},
}


def small_model(seed=0, order="response_reversed", size=0.1, **settings):
    """A model of sums with random weights, in which attention differs little between tokens and adds little to states.

    Args:
        size: how much larger attention is than it would be by random weights.
    """
    torch.manual_seed(seed)
    task = build_task("addition", order=order)
    options = {"coupling": task.coupling, **settings}
    model = CoupledGPTForCausalLM(CoupledGPTConfig(**{**task.family.config_options(task), **options})).eval()
    with torch.no_grad():
        attention = model.model.layers[0].self_attn
        attention.o_proj.weight *= size
        attention.q_proj.weight *= 0.1
        if settings["qk_norm"]:
            attention.qk_norm *= 0.05
    return model, task
