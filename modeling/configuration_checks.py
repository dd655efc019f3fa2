"""Checks that the configurations of both families share."""

from collections.abc import Iterable

from transformers.configuration_utils import PreTrainedConfig


def check_at_least_one(config: PreTrainedConfig, names: Iterable[str]) -> None:
    """Raise ValueError if one of these fields is below 1; None is legal."""
    for name in names:
        if (value := getattr(config, name)) is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def check_heads(config: PreTrainedConfig, hint: str = "") -> None:
    """Raise ValueError, with a hint, if the heads do not divide `hidden_size`."""
    size, heads = config.hidden_size, config.num_attention_heads
    if heads < 1 or size % heads:
        raise ValueError(f"hidden_size {size} is not a multiple of num_attention_heads {heads}{hint}")
