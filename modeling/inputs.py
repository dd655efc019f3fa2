"""What a model may read: checks of what a user passes, and the format that a prompt must have.

Each check raises ValueError with the value received and what is legal.
"""

# Used by: generation_coupled_gpt.py, modeling_coupled_gpt.py, modeling_pairwise_bert.py, plugins.py, data, data/proofs,
# data/proofs/lengths, data/tasks, hub_cards/checkpoints. Bound by: the digest of the code that travels with a checkpoint:
# run .ci/code.

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cache, lru_cache
from typing import Any, ClassVar

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from transformers.configuration_utils import PreTrainedConfig

from .structure import PAD_INSTEAD
from .transducer import read_transducer
from .values import check_tensor, require, require_range
from .vocabulary import ALL_TOKENS, BOS, ENCODER_TOKENS, EQUALS, PAD, SEPARATE_EOS, TOKENS, UNKNOWN, decode


def check_input_ids(input_ids: Any, vocab_size: int) -> Tensor:
    """Return token ids (batch, tokens) as int64.

    Raises:
        ValueError: they are no tensor of integers of this shape, there are none, or one is outside the vocabulary.
    """
    check_tensor(input_ids, "input_ids", "integers", [("batch", ()), ("tokens", ())])
    tokens = input_ids.long()
    require_range(tokens, 0, vocab_size - 1, lambda: f"input_ids must be in 0..{vocab_size - 1}, the vocabulary")
    return tokens


def check_mask(attention_mask: Tensor | None, batch: int, columns: int) -> None:
    """Raise ValueError for a mask of another shape than (batch, columns), or that hides a whole row; None is legal."""
    if attention_mask is None:
        return
    check_tensor(attention_mask, "attention_mask", "numbers", [(f"{batch}", (batch,)), (f"{columns}", (columns,))])
    legal = (
        "attention_mask (batch, tokens) must be of 0, for padding, and 1 (a mask that is added to scores is (batch or 1, "
        "heads or 1, tokens, keys))"
    )
    is_legal = (attention_mask == 0) | (attention_mask == 1)
    require(is_legal, legal, lambda: attention_mask[~is_legal][0].item())
    require(attention_mask.any(1), "attention_mask must show a token of every row", lambda: "a row of zeros")


def check_padding(input_ids: Tensor, attention_mask: Tensor | None, query_only: bool = False) -> None:
    """Raise ValueError if a mask (batch, tokens) shows padding or hides another token, or a character was not known.

    Args:
        query_only: whether only tokens up to the first `=` are checked, because a response may hold any token.
    """
    is_equals = input_ids == EQUALS
    checked = is_equals.cumsum(1) - is_equals.long() <= 0 if query_only else torch.ones_like(is_equals)
    hidden = torch.zeros_like(checked) if attention_mask is None else attention_mask == 0
    wrong = checked & (hidden != (input_ids == PAD))

    def describe() -> str:
        row = int(wrong.any(1).int().argmax())
        mask = "no mask" if attention_mask is None else attention_mask[row].int().tolist()
        return f"{mask} for {decode(input_ids[row].tolist())!r} in row {row}"

    require(~wrong, "attention_mask must be 0 at <pad> and 1 at every other token", describe)
    unknown = checked & (input_ids == UNKNOWN)
    require(~unknown, "input_ids must be of characters of the vocabulary", lambda: f"<unk> at {_first_place(unknown)}")


def _first_place(found: Tensor) -> str:
    """Return where the first True of (batch, tokens) stands, in words."""
    row, column = found.nonzero()[0].tolist()
    return f"column {column} of row {row} of input_ids"


def check_hidden(input_ids: Tensor, attention_mask: Tensor | None, pad_token_id: int) -> None:
    """Raise ValueError if a mask (batch, tokens) shows a token of padding, for a vocabulary of the caller's."""
    shown = input_ids == pad_token_id
    if attention_mask is not None:
        shown = shown & (attention_mask != 0)
    legal = (
        f"attention_mask must be 0 at pad_token_id {pad_token_id} (if this is a word of your vocabulary, set pad_token_id "
        "of the config to your own, or None)"
    )
    require(~shown, legal, lambda: f"1 at {_first_place(shown)}")


def check_unpacked(input_ids: Tensor, eos_token_id: Any) -> None:
    """Raise ValueError if a row (batch, tokens) holds a second example: `$` after the end token, which nothing follows."""
    before = nn.functional.pad(input_ids, (1, 0), value=PAD)[:, :-1]
    packed = (input_ids == BOS) & (before == eos_token_id)
    legal = f"a row of input_ids must be one example ({PAD_INSTEAD})"
    require(~packed, legal, lambda: f"another at {_first_place(packed)}")


_SPECIAL = {SEPARATE_EOS: "\x03", PAD: "\0", UNKNOWN: "\ufffd"}
"""One character for each token that has several."""

_SHOWN = {ord(character): TOKENS[token] for token, character in _SPECIAL.items()}


def _characters(tokens: tuple[str, ...]) -> list[str]:
    """Return the character of every token; the last one is of ids beyond all tokens."""
    return [*(_SPECIAL.get(token, character) for token, character in enumerate(tokens)), _SPECIAL[UNKNOWN]]


@dataclass(frozen=True)
class PromptFormat:
    r"""Which prompts a model was made for. `PromptFormat("[0-9]+\\+[0-9]+=", "653+049=", "[0-9]*", equal_widths=True)`.

    Attributes:
        pattern: regular expression of a whole prompt, without `$` and up to the first `=`.
        example: a legal prompt, for messages alone: formats that differ in it are equal.
        response: regular expression of the beginnings of a response, which may follow a prompt; None for an encoder, whose
            prompt is its whole input.
        equal_widths: whether all numbers of a prompt, or rows of a board, have one width.
        larger_first: whether the first number must not be smaller than the second, for numbers of one width.
        ones_first: whether numbers begin with the ones digit.
        hint_step: step between the index hints before a number's digits, 1 or -1, which all numbers share; 0 without hints.
        hints_given: whether a response's hints are given to the model, which so cannot write a response by itself.

    Raises:
        ValueError: the example is not legal.
    """

    pattern: str
    example: str = field(compare=False)
    response: str | None = None
    equal_widths: bool = False
    larger_first: bool = False
    ones_first: bool = False
    hint_step: int = 0
    hints_given: bool = False

    @property
    def formats(self) -> "list[PromptFormat]":
        """The formats of several tasks, of which `PromptFormats` is made: none."""
        return []

    def __post_init__(self):
        re.compile(self.response or "")
        if fault := self.prompt_fault(self.example):
            raise ValueError(f"example of prompt_format, {self.example!r}, is not legal: {fault}")

    @property
    def shown(self) -> str:
        """The example, as a message shows it."""
        return repr(self.example)

    def prompt_fault(self, prompt: str) -> str | None:
        """Return what is wrong with a prompt; None if it is legal."""
        if not re.fullmatch(self.pattern, prompt):
            return f"it is not of the form {self.example!r}"
        parts = re.findall(r"[^-+*/>=a-z]+", prompt)
        widths = sorted(set(map(len, parts)), reverse=True)
        if self.equal_widths and len(widths) > 1:
            return f"its parts must have one width, got {' and '.join(map(str, widths))}"
        if self.larger_first and parts[0] < parts[1]:
            return "its first number must not be smaller than the second"
        if self.hint_step:
            hints = [[ord(hint) for hint in part[::2]] for part in parts]
            first = hints[0][0]
            if any(
                number_hints != [first + self.hint_step * place for place in range(len(number_hints))]
                for number_hints in hints
            ):
                return "the hints of every number must be the same and follow each other"
        return None

    def fault(self, text: str) -> str | None:
        """Return what is wrong with a text that begins with a prompt; None if it is legal.

        Args:
            text: for a decoder, `$`, the prompt, and the beginning of a response or nothing.
        """
        if _SPECIAL[UNKNOWN] in text:
            return "it holds a character outside the vocabulary"
        if self.response is None:
            return self.prompt_fault(text)
        if not text.startswith("$"):
            return "it does not begin with '$'"
        prompt, equals, response = text[1:].partition("=")
        if fault := self.prompt_fault(prompt + equals):
            return fault
        if response and not re.fullmatch(self.response, response):
            return f"{response.translate(_SHOWN)!r} after the first '=' is not the beginning of a response"
        return None


@dataclass(frozen=True)
class PromptFormats:
    """The formats of a model of several tasks: a prompt is legal if it is legal in one of them.

    Attributes:
        formats: each a `PromptFormat` of a decoder, or its fields.
    """

    formats: list

    def __post_init__(self):
        if not isinstance(self.formats, list) or not self.formats:
            raise ValueError(f"formats of prompt_format must be a list of formats, got {self.formats!r}")
        read = [value if isinstance(value, PromptFormat) else read_format(value) for value in self.formats]
        object.__setattr__(self, "formats", read)

    @property
    def response(self) -> str | None:
        """The regular expression of the beginnings of responses, that of the first format."""
        return self.formats[0].response

    @property
    def hints_given(self) -> bool:
        """Whether the prompts of a format contain hints."""
        return any(prompt_format.hints_given for prompt_format in self.formats)

    @property
    def shown(self) -> str:
        """A legal prompt of each format, for messages."""
        return " or ".join(prompt_format.shown for prompt_format in self.formats)

    def fault(self, text: str) -> str | None:
        """As `PromptFormat.fault`."""
        is_legal = any(prompt_format.fault(text) is None for prompt_format in self.formats)
        return None if is_legal else "it is of none of the model's formats"


def read_format(values: dict) -> PromptFormat | PromptFormats:
    """Return the format, or formats, that a configuration holds as a mapping.

    Raises:
        ValueError: a field is missing or unknown, or its value is not legal.
    """
    try:
        return PromptFormats(**values) if "formats" in values else _format_of(tuple(values.items()))
    except (TypeError, re.error, OverflowError) as error:
        raise ValueError(f"prompt_format must hold the fields of a PromptFormat: {error}") from error


@lru_cache(maxsize=64)
def _format_of(items: tuple[tuple[str, Any], ...]) -> PromptFormat:
    """Return a format by its fields, whose example is checked once."""
    return PromptFormat(**dict(items))


@cache
def _fields_of_others() -> frozenset[str]:
    """Return what well-known configurations of transformers call the parts of their models."""
    # Loaded where a name is unknown.
    from transformers import BartConfig, BertConfig, GPT2Config, GPTNeoXConfig, LlamaConfig, T5Config

    kinds: tuple[Any, ...] = (BartConfig, BertConfig, GPT2Config, GPTNeoXConfig, LlamaConfig, T5Config)
    named = {name for kind in kinds for name in (*(field.name for field in fields(kind)), *kind.attribute_map)}
    changes_nothing = {"use_cache", *(name for name in named if name.endswith("_token_id"))}
    return frozenset(named - changes_nothing - {field.name for field in fields(PreTrainedConfig)})


@strict
class TaskConfig(PreTrainedConfig):
    """A configuration that may say what its model is for. Neither field changes what the model computes.

    Args:
        task: name and format of the task as `Task.describe` gives them, such as `{"task": "addition", "order": "plain"}`.
        prompt_format: fields of the `PromptFormat` that prompts are checked against; None means no check.

    Attributes:
        later_fields: fields that are younger than the first certificates, with the values that leave a model as it was.
            Files and hashes name them only if they have another value, so that old certificates stay those of their models.
        structure_fields: fields that say which structure a model reads and how. A model is made by them, once for all.

    Raises:
        huggingface_hub.errors.StrictDataclassError: `prompt_format` is not legal.
    """

    later_fields: ClassVar[Mapping[str, object]] = {}
    structure_fields: ClassVar[tuple[str, ...]] = ()

    task: dict[str, object] | None = None
    prompt_format: dict[str, object] | None = None

    def __post_init__(self, **kwargs):
        for name in kwargs:
            # Stock configurations keep whatever they are given. A name like these would change a model.
            meant = get_close_matches(name, self.structure_fields, n=1, cutoff=0.85)
            is_asked_for = not self.is_of_file and kwargs[name] is not None
            if meant or (is_asked_for and name in _fields_of_others()):
                meant = meant or get_close_matches(name, [field.name for field in fields(self)], n=1)
                shown = f"{meant[0]!r} is meant" if meant else "nothing would read it"
                raise ValueError(f"{type(self).__name__} has no field {name!r}: {shown}")
        super().__post_init__(**kwargs)

    @property
    def is_of_file(self) -> bool:
        """Whether the values were written by a configuration, which may have had further attributes or older rules."""
        return self.transformers_version is not None

    def to_dict(self):
        """Leave out later fields that change nothing."""
        values = super().to_dict()
        return {name: value for name, value in values.items() if not self.is_unset(name, value)}

    def is_unset(self, name: str, value: object) -> bool:
        """Return whether this is the value of a later field that changes nothing."""
        return name in self.later_fields and value == self.later_fields[name]

    def validate_prompt_format(self):
        """Check `prompt_format`; `@strict` calls this method."""
        if self.prompt_format is not None:
            read_format(self.prompt_format)


def check_prompts(config, input_ids: Tensor, with_response: bool = False) -> None:
    """Check token ids (batch, tokens), padded or not, against `config.prompt_format`; None there means no check.

    The prompt of a decoder ends with the first `=`. What follows it may be anything, such as a response that no problem has
    and that the model itself has drawn at random. The cost is some ten microseconds a row of 100 tokens.

    Args:
        input_ids: on the processor, or the host waits for them (see `on_host`).
        with_response: whether what follows a prompt must be the beginning of a response, by its characters.

    Raises:
        ValueError: a row is not legal. The message has the row, what is wrong, and a legal prompt.
    """
    if torch.compiler.is_compiling():
        return
    prompt_format: Any = None
    if config.prompt_format is not None:
        prompt_format = read_format(config.prompt_format)
    elif config.transducer and not getattr(config, "label_states", False):
        # `find_labels` checks the inputs of encoders that settle.
        prompt_format = read_transducer(config.transducer)
    if prompt_format is None:
        return
    is_encoder = prompt_format.response is None
    characters = _characters(getattr(prompt_format, "tokens", ENCODER_TOKENS if is_encoder else ALL_TOKENS))
    decoded = "".join(map(characters.__getitem__, input_ids.clamp(max=len(characters) - 1).flatten().tolist()))
    rows, columns = input_ids.shape
    for row in range(rows):
        text = decoded[row * columns : (row + 1) * columns].strip(characters[PAD])
        if not (is_encoder or with_response):
            prompt, equals, _ = text.partition("=")
            text = prompt + equals
        if fault := prompt_format.fault(text):
            shown = text.removeprefix("$").translate(_SHOWN)
            raise ValueError(
                f"row {row} of input_ids, {shown!r}, is no prompt of {_describe(config.task)}: {fault}; a legal prompt is "
                f"{prompt_format.shown} (for a model of another task or format, set task and prompt_format of its config; "
                "None checks nothing)"
            )


def _describe(task: dict | None) -> str:
    """Return a task and its format in words."""
    options = [f"{name} {value}" for name, value in (task or {}).items() if name != "task"]
    return "this model" if not task else f"the task {task.get('task')!r}" + (f" ({', '.join(options)})" if options else "")
