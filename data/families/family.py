"""What a family of models is: everything about a task's models that the task itself does not decide."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import torch
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from longhand.modeling.relations import Window


class Family(ABC):
    """Model class, inputs, metrics and answers of one family. `Task.family` names the family that learns a task.

    A task is the first argument of every method whose result depends on the task's format.

    Attributes:
        name: unique name.
        model_class: class of the models, with their output matrix.
        auto_class: Auto class of transformers that loads them.
        tokens: all tokens that a text can hold, in the order of their ids.
        forward_options: arguments of the forward pass in evaluation, besides the inputs.
        training_arguments: dataclass of the arguments that only this family's runs take; None if there are none.
        pipeline: the Hub's name of the models' task.
    """

    name: ClassVar[str]
    model_class: ClassVar[type[PreTrainedModel]]
    auto_class: ClassVar[type]
    tokens: ClassVar[tuple[str, ...]]
    forward_options: ClassVar[dict[str, Any]] = {}
    training_arguments: ClassVar[type | None] = None
    pipeline: ClassVar[str]

    @abstractmethod
    def tokenizer(self, task) -> PreTrainedTokenizerFast:
        """The tokenizer of the task's models."""

    @abstractmethod
    def config_options(self, task, arguments: Any = None) -> dict[str, Any]:
        """Options of a model's configuration that follow from the task's format, `format_options` among them.

        Args:
            arguments: an instance of `training_arguments`.

        Raises:
            ValueError: an argument does not fit the task.
        """

    def format_options(self, task) -> dict[str, Any]:
        """The part of `config_options` that says what a model is for; it changes nothing that the model computes."""
        prompt_format = task.prompt_format
        return {"task": task.describe(), "prompt_format": prompt_format and asdict(prompt_format)}

    @abstractmethod
    def check_config(self, task, config: PreTrainedConfig) -> None:
        """Raise ValueError if a model of this configuration cannot read the task. The message follows the model's name."""

    @abstractmethod
    def check_inputs(self, task, model: PreTrainedModel, batch: dict[str, Any]) -> None:
        """Raise ValueError if a batch of `collator` does not fit into the model's tables."""

    def check_generation(self, task) -> None:  # noqa: B027
        """Raise ValueError if the task's models cannot write a response token by token."""

    @abstractmethod
    def check_certifiable(self, task, model: PreTrainedModel) -> None:
        """Raise ValueError if no certificate is possible for the model, whatever its weights."""

    @abstractmethod
    def window(self, model: Any) -> Window:
        """The window of a model that `check_certifiable` accepts, see `modeling/relations.py`."""

    @abstractmethod
    def columns(
        self,
        task,
        digits: np.ndarray,
        lengths: np.ndarray,
        generator: np.random.Generator | None,
        coupling: str | None = None,
    ) -> dict[str, pa.Array]:
        """Columns of a dataset by name, see `data.columns.example_columns`.

        Args:
            coupling: name of the coupling rule, if not the task's own.
        """

    @abstractmethod
    def text_size(self, task, digits: np.ndarray, lengths: np.ndarray) -> tuple[int, int]:
        """The most tokens and the largest position id of some problems of one group; an encoder has no ids."""

    @abstractmethod
    def collator(self, config: PreTrainedConfig) -> Callable[..., dict[str, Any]]:
        """The collator that makes inputs for the evaluation of a model of this configuration."""

    def training_collator(self, config: PreTrainedConfig, arguments: Any = None) -> Callable[..., dict[str, Any]]:
        """The collator that makes inputs for training.

        Args:
            arguments: an instance of `training_arguments`.

        Raises:
            ValueError: an argument does not fit the configuration.
        """
        return self.collator(config)

    @abstractmethod
    def count_matches(self, logits: torch.Tensor, labels: torch.Tensor, answer_length: int | None = None) -> torch.Tensor:
        """Exact match, right tokens and supervised tokens of each example, see `data/metrics.py`."""

    @abstractmethod
    def right_tokens(self, logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Masks of the right tokens and of the supervised tokens, see `data/metrics.py`."""

    @abstractmethod
    def answer(self, task, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, question: str) -> str:
        """The model's answer to a question such as `Task.example_question`.

        Raises:
            ValueError: the question has unknown characters, is not of the task's form, or is too long for the model; or the
                model cannot generate.
        """

    def forward(self, model: PreTrainedModel, batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits and labels of a batch of `collator`, on the model's device."""
        inputs = to_device(batch, model.device)
        labels = inputs.pop("labels")
        return model(**inputs, **self.forward_options).logits, labels

    def forward_matches(
        self, model: PreTrainedModel, batch: dict[str, Any], answer_length: int | None = None
    ) -> torch.Tensor:
        """`count_matches` of a batch of `collator`, from one forward pass."""
        return self.count_matches(*self.forward(model, batch), answer_length).cpu()


def to_device(batch: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """The batch with every tensor on the device."""
    return {name: value.to(device) if torch.is_tensor(value) else value for name, value in batch.items()}
