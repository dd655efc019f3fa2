"""What the configurations of both families share: the task and its format, and checks."""

from collections.abc import Iterable
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig

from .inputs import read_format


@strict
class TaskConfig(PreTrainedConfig):
    """A configuration that may say what its model is for. Neither field changes what the model computes.

    Args:
        task: name and format of the task as `Task.describe` gives them, such as `{"task": "addition", "order": "plain"}`.
        prompt_format: fields of the `PromptFormat` that prompts are checked against; None means no check.

    Raises:
        huggingface_hub.errors.StrictDataclassError: `prompt_format` is not legal.
    """

    task: dict[str, Any] | None = None
    prompt_format: dict[str, Any] | None = None

    def validate_prompt_format(self):
        """Check `prompt_format`; `@strict` calls this method."""
        if self.prompt_format is not None:
            read_format(self.prompt_format)


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
