"""The families of models, decoders and encoders: all that a task's models are, apart from how the task writes its text."""

# Used by: columns.py, data/proofs, data/proofs/lengths, data/tasks, hub_cards, hub_cards/checkpoints, hub_cards/evaluation,
# hub_cards/publishing, hub_cards/research/gpu, hub_cards/training. Changed freely.

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForTokenClassification,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from longhand.data.collator import IGNORED, CouplingCollator, collate_labels
from longhand.data.formatting import Batch, as_batch, move_rows
from longhand.data.metrics import count_matches, right_tokens
from longhand.data.tokenization import build_decoder_tokenizer, build_encoder_tokenizer, check_characters
from longhand.modeling import CoupledGPTForCausalLM, PairwiseBertForTokenClassification
from longhand.modeling.coupling import any_text_rules
from longhand.modeling.encoder_maps import GRID, virtual_indices
from longhand.modeling.inputs import PromptFormat, PromptFormats
from longhand.modeling.parallel_decoding import OUTPUTS, parallel_greedy
from longhand.modeling.position_encodings import POSITION_ENCODINGS
from longhand.modeling.transducer import table_of
from longhand.modeling.vocabulary import ALL_TOKENS, BOS, ENCODER_TOKENS, LABELS, PAD

HARMLESS_SETTINGS = ("eos_token_id", "transformers_version", "_from_model_config")
"""Settings of generation_config that may have any value; the end token is checked separately."""

HARMLESS_FLAGS = (
    "use_cache",
    "return_dict_in_generate",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "output_logits",
)
"""Settings that may be True or False: they do not change what greedy decoding writes."""

GREEDY_SETTINGS = {"do_sample": False, "pad_token_id": PAD, "bos_token_id": BOS}
"""Settings that must have this value, or none. Transformers hides `pad_token_id` in every prompt that has no mask."""


@dataclass(frozen=True)
class Question:
    """A question as a model reads it.

    Attributes:
        prompt: the text that the tokenizer takes.
        position_ids: (1, levels, tokens) of prompt and response, where the prompt does not tell them; None if the model
            derives them.
    """

    prompt: str
    position_ids: torch.Tensor | None = None

    @property
    def layout(self) -> tuple[object, ...]:
        """Questions of equal layouts can be answered in one batch: without padding, and with the same given ids."""
        ids = None if self.position_ids is None else tuple(self.position_ids.flatten().tolist())
        return len(self.prompt), ids


@dataclass(frozen=True)
class Questions:
    """Questions of one layout as a model's inputs.

    Attributes:
        input_ids: (questions, tokens) of the prompts.
        tokens: of a prompt and the longest response.
        position_ids: see `Question`.
    """

    input_ids: torch.Tensor
    tokens: int
    position_ids: torch.Tensor | None = None

    def split(self, most_tokens: int) -> "list[Questions]":
        """Batches of at most so many tokens, responses included, or of one question."""
        rows = max(1, most_tokens // self.tokens)
        return [replace(self, input_ids=part) for part in self.input_ids.split(rows)]


class Format(Protocol):
    """What every family reads of a task; `Decoder` and `Encoder` also read what `DecoderTask` and `EncoderTask` add."""

    name: ClassVar[str]

    @property
    def prompt_format(self) -> PromptFormat | PromptFormats | None: ...

    def describe(self) -> dict[str, object]: ...


class Family(ABC):
    """Model class, inputs, metrics and answers of one family. `Task.family` names the family that learns a task.

    A task is the first argument of every method whose result depends on the task's format.

    Attributes:
        name: unique name.
        model_class: class of the models, with their output matrix.
        auto_class: Auto class of transformers that loads them.
        tokens: all tokens that a text can hold, in the order of their ids.
        ahead: 1 if the logits at a token are those of the next token, 0 if they are the token's own.
        writes: whether a model writes its response token by token, and so has generation settings.
        forward_options: arguments of the forward pass in evaluation, besides the inputs.
        training_arguments: dataclass of the arguments that only this family's runs take; None if there are none.
        pipeline: the Hub's name of the models' task.
    """

    name: ClassVar[str]
    model_class: ClassVar[type[PreTrainedModel]]
    auto_class: ClassVar[type]
    tokens: ClassVar[tuple[str, ...]]
    ahead: ClassVar[int]
    writes: ClassVar[bool]
    forward_options: ClassVar[dict[str, object]] = {}
    training_arguments: ClassVar[type | None] = None
    pipeline: ClassVar[str]

    @abstractmethod
    def tokenizer(self, task: Format) -> PreTrainedTokenizerFast:
        """The tokenizer of the task's models."""

    def older_tokenizers(self, task: Format) -> list[PreTrainedTokenizerFast]:
        """Other tokenizers that a checkpoint of the task may have."""
        return []

    @abstractmethod
    def config_options(self, task: Format, arguments: Any = None) -> dict[str, object]:
        """Options of a model's configuration that follow from the task's format, `format_options` among them.

        Args:
            arguments: an instance of `training_arguments`.

        Raises:
            ValueError: an argument does not fit the task.
        """

    def format_options(self, task: Format) -> dict[str, object]:
        """The part of `config_options` that says what a model is for; it changes nothing that the model computes."""
        prompt_format = task.prompt_format
        return {"task": task.describe(), "prompt_format": prompt_format and asdict(prompt_format)}

    @abstractmethod
    def check_config(self, task: Format, config: PreTrainedConfig) -> None:
        """Raise ValueError if a model of this configuration cannot read the task. The message follows the model's name."""

    @abstractmethod
    def check_inputs(self, task: Format, model: PreTrainedModel, batch: Batch) -> None:
        """Raise ValueError if a batch of `collator` does not fit into the model's tables."""

    def check_generation(self, task: Format) -> None:  # noqa: B027
        """Raise ValueError if the task's models cannot write a response token by token."""

    @abstractmethod
    def collator(self, config: PreTrainedConfig, start: int = 1) -> Callable[..., Batch]:
        """The collator that makes inputs for the evaluation of a model of this configuration.

        Args:
            start: the smallest position id of every problem.

        Raises:
            ValueError: the model reads no ids that could start elsewhere.
        """

    def training_collator(self, config: PreTrainedConfig, arguments: Any = None) -> Callable[..., Batch]:
        """The collator that makes inputs for training.

        Args:
            arguments: an instance of `training_arguments`.

        Raises:
            ValueError: an argument does not fit the configuration.
        """
        return self.collator(config)

    def check_answers(self, task: Format, model: PreTrainedModel) -> None:  # noqa: B027
        """Raise ValueError if the model cannot answer questions."""

    @abstractmethod
    def read(self, task: Format, model: PreTrainedModel, question: str) -> Question:
        """A question such as `Task.example_question`, as the model reads it.

        Raises:
            ValueError: the question is not of the task's form.
        """

    @abstractmethod
    def encode(
        self, task: Format, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, questions: Sequence[Question]
    ) -> Questions:
        """Questions of one layout as inputs.

        Raises:
            ValueError: a question has unknown characters, or is too long for the model.
        """

    @abstractmethod
    def answers(
        self, task: Format, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, questions: Questions
    ) -> list[str]:
        """The model's answers to a batch of questions.

        Raises:
            ValueError: the model has no answer to one of them.
        """

    def answer(self, task: Format, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, question: str) -> str:
        """The model's answer to one question; raises ValueError as `check_answers`, `read`, `encode` and `answers` do."""
        self.check_answers(task, model)
        questions = self.encode(task, model, tokenizer, [self.read(task, model, question)])
        return self.answers(task, model, tokenizer, questions)[0]

    def right_tokens(self, model: PreTrainedModel, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """`metrics.right_tokens` of a batch of `collator`, from one forward pass."""
        inputs = to_device(batch, model.device)
        labels = inputs.pop("labels")
        return right_tokens(model(**inputs, **self.forward_options).logits, labels, self.ahead)

    def forward_matches(self, model: PreTrainedModel, batch: Batch, answer_length: int | None = None) -> torch.Tensor:
        """`count_matches` of a batch of `collator`, from one forward pass."""
        return count_matches(*self.right_tokens(model, batch), answer_length).cpu()


def prompt_tokens(tokenizer: PreTrainedTokenizerBase, questions: Sequence[Question]) -> torch.Tensor:
    """The tokens (questions, tokens) of prompts of one length."""
    prompts = [question.prompt for question in questions]
    return tokenizer(prompts, return_attention_mask=False, return_tensors="pt")["input_ids"]


def to_device(batch: Batch, device: torch.device) -> Batch:
    """The batch with every tensor on the device."""
    moved = {name: move_rows(value, device) if isinstance(value, torch.Tensor) else value for name, value in batch.items()}
    return as_batch(moved)


@dataclass
class PositionArguments:
    """Which position ids a decoder is trained on."""

    _argument_group_name: ClassVar[str] = "position ids"

    position_sampling: Literal["fixed", "random_start", "batch_start", "multiplier", "randomized"] = field(
        default="fixed", metadata={"help": "how position ids vary in training, see POSITION_SAMPLINGS of data/collator.py"}
    )
    max_multiplier: int | None = field(
        default=None,
        metadata={
            "help": "largest factor of position ids, for position_sampling multiplier; at least 2",
            "bounds": {"least": 2},
            "needs": {"position_sampling": "multiplier"},
        },
    )
    level_position_ids: list[int] | None = field(
        default=None,
        metadata={
            "help": "largest id of every level, for position_sampling random_start; unset, max_position_ids",
            "bounds": {"least": 1},
            "needs": {"position_sampling": "random_start", "wrap_position_ids": False},
        },
    )
    coupling: str | None = field(
        default=None,
        metadata={"help": "coupling rule, if not the task's; `sequential` numbers tokens and `abacus` digits of any task"},
    )


class Decoder(Family):
    name = "decoder"
    model_class = CoupledGPTForCausalLM
    auto_class = AutoModelForCausalLM
    tokens = ALL_TOKENS
    ahead = 1
    writes = True
    forward_options = {"use_cache": False}  # noqa: RUF012
    training_arguments = PositionArguments
    pipeline = "text-generation"

    def tokenizer(self, task):
        return build_decoder_tokenizer(task.end_token, task.tokens)

    def config_options(self, task, arguments=None):
        arguments = arguments or PositionArguments()
        if arguments.coupling is not None and arguments.coupling not in (legal := legal_rules(task)):
            raise ValueError(
                f"coupling {arguments.coupling!r} does not read this format of {task.name!r}: "
                f"choose one of {', '.join(legal)}"
            )
        return {
            **self.format_options(task),
            "vocab_size": len(task.tokens),
            "transducer": table_of(task.transducer),
            "eos_token_id": task.end_token,
            "coupling": arguments.coupling or task.coupling,
            "randomized_positions": arguments.position_sampling == "randomized",
        }

    def check_config(self, task, config):
        if config.is_encoder_decoder:
            raise ValueError(f"is_encoder_decoder must be False for a decoder, got {config.is_encoder_decoder!r}")
        if config.coupling not in legal_rules(task):
            raise ValueError(
                f"was made for the coupling rule {config.coupling!r}, "
                f"but its recipe's format has {' or '.join(map(repr, task.couplings))}"
            )
        if config.transducer != table_of(task.transducer):
            raise ValueError(f"was made for another step than that of the task {task.name!r}: its transducer is another")
        if config.vocab_size < len(task.tokens):
            raise ValueError(
                f"has a vocabulary of {config.vocab_size} tokens, but the task {task.name!r} needs {len(task.tokens)}"
            )

    def check_inputs(self, task, model, batch):
        model.model.position_encoding.check(batch["position_ids"])

    def check_generation(self, task):
        if not task.answers_questions:
            raise ValueError(
                f"a model of the task {task.name!r} cannot write a response whose index hints are given to it: it answers "
                "no question and has no --decode generate, choose --decode teacher_forced"
            )

    def check_greedy(self, task, model):
        """Raise ValueError if the settings in generation_config or config change what greedy decoding writes."""
        ends, end_token = (model.config.eos_token_id, model.generation_config.eos_token_id), task.end_token
        if any(end not in (end_token, [end_token]) for end in ends):
            raise ValueError(
                f"the task ends with token {end_token}, but decoding stops at eos_token_id {ends[1]} "
                f"(generation_config; {ends[0]} in config)"
            )
        # The model's own settings name more, for pipelines.
        settings = GenerationConfig.to_diff_dict(model.generation_config)
        harmless = {*HARMLESS_SETTINGS, *(name for name in HARMLESS_FLAGS if isinstance(settings.get(name), bool))}
        harmless |= {name for name, value in GREEDY_SETTINGS.items() if settings.get(name) == value}
        # What is not set may be named all the same, see `PlannedGenerationConfig`.
        harmless |= {name for name in settings if getattr(model.generation_config, name, None) is None}
        if changed := [f"{name}={value!r}" for name, value in settings.items() if name not in harmless]:
            raise ValueError(f"generation_config changes how tokens are chosen ({', '.join(changed)})")

    def collator(self, config, start=1):
        encoding = POSITION_ENCODINGS[config.position_encoding]
        if start != 1 and (config.randomized_positions or not encoding.uses_position_ids):
            raise ValueError(
                f"a start of ids is for models whose ids can move, not for position_encoding {config.position_encoding!r} "
                f"with randomized_positions {config.randomized_positions}"
            )
        return CouplingCollator.for_evaluation(config, start)

    def training_collator(self, config, arguments=None):
        levels = arguments.level_position_ids
        return CouplingCollator.for_training(
            config,
            arguments.position_sampling,
            max_multiplier=arguments.max_multiplier,
            level_position_ids=None if levels is None else tuple(levels),
        )

    def check_answers(self, task, model):
        self.check_generation(task)
        self.check_greedy(task, model)

    def read(self, task, model, question):
        prompt = task.prompt(question)
        if model.config.prompt_format is not None and (fault := task.prompt_fault(prompt)):
            raise ValueError(f"the question {question!r} is not of the task {task.name!r}: {fault}")
        return Question(prompt, None if model.config.rule.reads_any_text else task.question_ids(question))

    def encode(self, task, model, tokenizer, questions):
        for question in questions:
            check_characters(question.prompt, task.tokens)
        input_ids = prompt_tokens(tokenizer, questions)
        position_ids = questions[0].position_ids
        if position_ids is None:
            tokens = input_ids.shape[1] + int(model.config.rule.plan(input_ids, 1).response_length)
        else:
            tokens = position_ids.shape[-1]
        task.check_answered(tokens)
        return Questions(input_ids, tokens, position_ids)

    def answers(self, task, model, tokenizer, questions):
        """Answers by greedy decoding."""
        options = greedy_options(model) | {"max_new_tokens": questions.tokens - questions.input_ids.shape[1]}
        if questions.position_ids is not None:
            options["position_ids"] = questions.position_ids.to(model.device)
        with torch.inference_mode():
            input_ids = questions.input_ids.to(model.device)
            output = model.generate(input_ids, attention_mask=torch.ones_like(input_ids), **options)
        responses = output[:, input_ids.shape[1] :]
        return [task.reader.read(text) for text in tokenizer.batch_decode(responses, skip_special_tokens=True)]


def greedy_options(model: CoupledGPTForCausalLM) -> dict[str, Any]:
    """Options of `generate()` for greedy decoding, which is done in parallel under a window."""
    options: dict[str, Any] = {"do_sample": False}
    if model.model.position_encoding.windowed:
        # It predicts tokens again whose keys would be kept.
        options |= {"custom_generate": parallel_greedy, "use_cache": False, **dict.fromkeys(OUTPUTS, False)}
    return options


def legal_rules(task) -> tuple[str, ...]:
    """The coupling rules that a model of the task may have. The table of a column task is for the task's own alone."""
    if task.transducer:
        return task.couplings
    return tuple(dict.fromkeys((*task.couplings, *task.further_couplings, *any_text_rules())))


DECODER = Decoder()


class Encoder(Family):
    name = "encoder"
    model_class = PairwiseBertForTokenClassification
    auto_class = AutoModelForTokenClassification
    tokens = ENCODER_TOKENS
    ahead = 0
    writes = False
    pipeline = "token-classification"

    def tokenizer(self, task):
        return build_encoder_tokenizer(task.tokens, task.padded_width)

    def older_tokenizers(self, task):
        """The tokenizer of checkpoints before 0.3.0, which padded no numbers."""
        return [build_encoder_tokenizer(task.tokens)]

    def config_options(self, task, arguments=None):
        return {
            **self.format_options(task),
            "vocab_size": len(task.tokens),
            "transducer": table_of(task.transducer),
        }

    def check_config(self, task, config):
        settles = getattr(config, "label_states", False)
        labels = len(task.labels if settles else LABELS)
        if config.transducer != table_of(task.transducer):
            raise ValueError(f"was made for another step than that of the task {task.name!r}: its transducer is another")
        if (config.vocab_size, config.num_labels) != (len(task.tokens), labels):
            raise ValueError(
                f"has {config.vocab_size} tokens and {config.num_labels} classes, "
                f"but the task {task.name!r} has {len(task.tokens)} and {labels}"
            )
        if task.settling_map == GRID and not (settles and config.head_maps[0] == task.settling_map):
            raise ValueError(
                f"must have label_states True and pair_maps {task.settling_map!r} for the task {task.name!r}, "
                f"got {settles} and {', '.join(config.pair_maps)!r}"
            )
        if settles:
            task.check_settling()

    def check_inputs(self, task, model, batch):
        model.model.check_inputs(batch["input_ids"])
        # Other examples may have more text than this batch.
        model.model.check_tokens(int(virtual_indices(batch["input_ids"]).max()) + task.most_text)

    def check_generation(self, task):
        raise ValueError(f"a model of the task {task.name!r} is an encoder and generates nothing: leave out --decode")

    def collator(self, config, start=1):
        if start != 1:
            raise ValueError("a start of ids is for decoders: encoders of tasks have no coupled ids")
        return collate_labels

    def read(self, task, model, question):
        return Question(task.prompt(question))

    def encode(self, task, model, tokenizer, questions):
        task.check_answered(len(questions[0].prompt))
        input_ids = prompt_tokens(tokenizer, questions)
        return Questions(input_ids, input_ids.shape[1])

    def answers(self, task, model, tokenizer, questions):
        """Answers from one forward pass."""
        with torch.inference_mode():
            predicted = model(questions.input_ids.to(model.device)).logits.argmax(-1).numpy(force=True)
        return [self._answer(task, *row) for row in zip(questions.input_ids.numpy(), predicted, strict=True)]

    def _answer(self, task, tokens: np.ndarray, predicted: np.ndarray) -> str:
        """The answer in the labels that are predicted for the tokens (tokens,) of one problem."""
        labels, kept = task.answer_labels(tokens[None], np.where(task.has_label(tokens), predicted, IGNORED)[None])
        answer = labels[kept].tolist()
        if len(task.labels) - 1 in answer:
            raise ValueError("the model has no answer: its labels had not settled after one pass more than there are labels")
        return task.reader.read("".join(task.labels[label] for label in answer))


ENCODER = Encoder()
