"""The format of prompts: what a configuration says of it, and the check of prompts against it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields

from torch import Tensor

from .input_checks import of_values
from .vocabulary import ALL_TOKENS, ENCODER_TOKENS, PAD, SEPARATE_EOS, TOKENS, UNKNOWN

_SPECIAL = {SEPARATE_EOS: "\x03", PAD: "\0", UNKNOWN: "\ufffd"}
"""One character for each token that has several."""

_SHOWN = {ord(character): TOKENS[token] for token, character in _SPECIAL.items()}


def _characters(tokens: tuple[str, ...]) -> list[str]:
    """Return the character of every token; the last one is of ids beyond all tokens."""
    return [*(_SPECIAL.get(token, character) for token, character in enumerate(tokens)), _SPECIAL[UNKNOWN]]


_DECODER_CHARACTERS, _ENCODER_CHARACTERS = _characters(ALL_TOKENS), _characters(ENCODER_TOKENS)


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

    Raises:
        ValueError: a value has the wrong type, an expression is not one, or the example is not legal.
    """

    pattern: str
    example: str = field(compare=False)
    response: str | None = None
    equal_widths: bool = False
    larger_first: bool = False
    ones_first: bool = False
    hint_step: int = 0

    def __post_init__(self):
        for option in fields(self):
            if not isinstance(value := getattr(self, option.name), option.type):
                raise ValueError(f"{option.name} of prompt_format must be {_type_name(option.type)}, got {value!r}")
        for name in ("pattern", "response"):
            try:
                re.compile(getattr(self, name) or "")
            except (re.error, OverflowError) as error:
                raise ValueError(
                    f"{name} of prompt_format is no regular expression, {error}: {getattr(self, name)!r}"
                ) from error
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
            if any(own != [first + self.hint_step * place for place in range(len(own))] for own in hints):
                return "the hints of every number must be the same and follow each other"
        return None

    def fault(self, text: str, end: str = "") -> str | None:
        """Return what is wrong with a text that begins with a prompt; None if it is legal.

        Args:
            text: for a decoder, `$`, the prompt, and the beginning of a response or nothing.
            end: character that may end a response.
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
        if response and not re.fullmatch(self.response, response.removesuffix(end)):
            return f"{response.translate(_SHOWN)!r} after the first '=' is not the beginning of a response"
        return None

    def mend(self, text: str) -> str | None:
        """Return the legal prompt with the numbers of this text, padded or stripped; None if none is found."""
        if self.response is not None:
            text = text.lstrip("$").partition("=")[0] + "="
        return next((prompt for prompt in self._rewritten(text) if self.prompt_fault(prompt) is None), None)

    def _rewritten(self, prompt: str) -> Iterator[str]:
        """Yield the prompt with its numbers in other widths, which leave their values as they are."""
        fill = "_" if self.response is None else "0"
        numbers = [number.strip("_") or "0" for number in re.findall("[0-9_]+", prompt)]
        around = re.split("[0-9_]+", prompt)
        example = [len(number) for number in re.findall("[0-9_]+", self.example)]
        for kept in (
            numbers,
            [(number.rstrip("0") if self.ones_first else number.lstrip("0")) or "0" for number in numbers],
        ):
            own = [len(number) for number in kept]
            yield prompt
            for width in range(max(own, default=0), max(own, default=0) + 5):
                yield _join(around, kept, [width] * len(kept), fill, self.ones_first)
            for more in range(10):
                yield _join(around, kept, [*own[:-1], *(width + more for width in own[-1:])], fill, self.ones_first)
            if len(example) == len(kept):
                yield _join(around, kept, example, fill, self.ones_first)


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
        return self.formats[0].response

    @property
    def shown(self) -> str:
        return " or ".join(each.shown for each in self.formats)

    def fault(self, text: str, end: str = "") -> str | None:
        """As `PromptFormat.fault`: what is wrong by the format whose numbers need only be padded or stripped, if any."""
        faults = [each.fault(text, end) for each in self.formats]
        if None in faults:
            return None
        by_format = zip(faults, self.formats, strict=True)
        return next((fault for fault, each in by_format if each.mend(text)), "it is of none of the model's formats")

    def mend(self, text: str) -> str | None:
        """As `PromptFormat.mend`, by the first format that can."""
        return next(filter(None, (each.mend(text) for each in self.formats)), None)


def read_format(values: dict) -> PromptFormat | PromptFormats:
    """Return the format, or formats, that a configuration holds as a mapping.

    Raises:
        ValueError: a field is missing or unknown, or its value is not legal.
    """
    try:
        return PromptFormats(**values) if "formats" in values else PromptFormat(**values)
    except TypeError as error:
        raise ValueError(f"prompt_format must hold the fields of a PromptFormat, got {values}") from error


def _type_name(kind) -> str:
    return {bool: "True or False", int: "an integer"}.get(kind, "text")


def _join(around: list[str], numbers: list[str], widths: list[int], fill: str, ones_first: bool) -> str:
    """Return numbers of at least these widths with the text around them."""
    pad = str.ljust if ones_first else str.rjust
    padded = [pad(number, width, fill) for number, width in zip(numbers, widths, strict=True)]
    return "".join(part for pair in zip(around, [*padded, ""], strict=True) for part in pair)


@of_values
def check_prompts(config, input_ids: Tensor, whole: bool = True) -> None:
    """Check token ids (batch, tokens), padded or not, against `config.prompt_format`; None there means no check.

    The beginning of a response is legal behind a prompt if it has a response's characters; whether it is right is not
    checked. The cost is some ten microseconds a row of 100 tokens.

    Args:
        whole: whether a response may be whole, with its end token.

    Raises:
        ValueError: a row is not legal. The message has the row, what is wrong, and the right prompt if numbers need only be
            padded or stripped.
    """
    if config.prompt_format is None:
        return
    prompt_format = read_format(config.prompt_format)
    is_encoder = prompt_format.response is None
    characters = _ENCODER_CHARACTERS if is_encoder else _DECODER_CHARACTERS
    end = characters[config.eos_token_id] if whole and not is_encoder else ""
    decoded = "".join(map(characters.__getitem__, input_ids.clamp(max=len(characters) - 1).flatten().tolist()))
    rows, columns = input_ids.shape
    for row in range(rows):
        text = decoded[row * columns : (row + 1) * columns].strip(characters[PAD])
        if fault := prompt_format.fault(text, end):
            mended = prompt_format.mend(text)
            shown = text.removeprefix("$").translate(_SHOWN)
            hint = f"write {mended!r}" if mended else f"a legal prompt is {prompt_format.shown}"
            raise ValueError(
                f"row {row} of input_ids, {shown!r}, is no prompt of {_describe(config.task)}: {fault}; {hint} (for a model "
                "of another task or format, set task and prompt_format of its config; None checks nothing)"
            )


def _describe(task: dict | None) -> str:
    """Return a task and its format in words."""
    options = [f"{name} {value}" for name, value in (task or {}).items() if name != "task"]
    return "this model" if not task else f"the task {task.get('task')!r}" + (f" ({', '.join(options)})" if options else "")
