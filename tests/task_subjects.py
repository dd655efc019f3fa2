"""Formats of every task, and problems of theirs."""

import re

import numpy as np
from faults import truth

from longhand.data import (
    TASKS,
    Addition,
    AdditionScratchpad,
    BaseAddition,
    Bitwise,
    EncoderAddition,
    EncoderMultiplication,
    IndexHintedAddition,
    Minesweeper,
    MultiOperandAddition,
    Multiplication,
    Parity,
    make_generator,
)
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.encoder_task import EncoderTask
from longhand.modeling.vocabulary import ENCODER_TOKENS, HINTS, PAD, decode

FORMATS = [
    *(task() for task in TASKS.values() if issubclass(task, DecoderTask)),
    Addition(zero_padding=False),
    Addition(zero_padding=False, order="plain", separate_eos=True),
    Addition(order="all_reversed"),
    MultiOperandAddition(operands=5),
    Multiplication(multiplier_length=1),
    Parity(scratchpad=False),
    AdditionScratchpad(length_sampling="uniform", max_operands=4),
]
ENCODER_FORMATS = [
    *(task() for task in TASKS.values() if issubclass(task, EncoderTask)),
    EncoderAddition(field_width=9, varied_field=True, sampling="shifted"),
    EncoderAddition(text_tokens=3, sampling="uniform_complexity"),
    EncoderAddition(field_width=8, sampling="mixed"),
    EncoderAddition(sampling="no_carries"),
    EncoderAddition(sampling="cascades"),
    EncoderAddition(sampling="carry_runs"),
    EncoderMultiplication(multiplier_length=3, spill=True, text_tokens=2),
    EncoderMultiplication(field_width=9, varied_field=True, sampling="shifted"),
    EncoderMultiplication(multiplier_length=3, sampling="sparse"),
    EncoderMultiplication(sampling="dependencies"),
    EncoderMultiplication(field_width=8, sampling="mixed"),
]
FURTHER_FORMATS = [
    Addition(zero_padding=False, order="all_reversed"),
    Addition(order="plain"),
    IndexHintedAddition(max_hints=60),
    IndexHintedAddition(order="plain"),
    IndexHintedAddition(order="all_reversed", supervise_hints=False),
    MultiOperandAddition(operands=2),
    Multiplication(multiplier_length=3),
    Minesweeper(min_mine_ratio=0.0, max_mine_ratio=1),
    Minesweeper(separators=False),
    BaseAddition(radix=2),
    Bitwise(operation="xor"),
    EncoderMultiplication(field_width=60, multiplier_length=2, spill=True),
]


def described(task) -> str:
    return ",".join(map(str, task.describe().values()))


def draw_group(task, length: int, count: int, split: str = "train", seed=0) -> tuple[np.ndarray, np.ndarray]:
    """Digits and lengths of problems of one group, whose longest operands have `length` digits."""
    generator = make_generator("group", seed)
    least = 1 if isinstance(task, EncoderTask) else length
    lengths = task.group_lengths(generator, task.sample_lengths(generator, 1, least, length)[0], count, 1)
    return task.draw(generator, lengths, split), lengths


def question_of(task, prompt: str) -> str:
    """The question that a prompt asks, without what the format adds: hints, text, fields and the order of digits."""
    if task.name == "encoder_multiplication_grid":
        first, *heads = re.findall("[0-9]+", prompt)
        return f"{int(first)}*{int(''.join(heads)[::-1])}"
    prompt = prompt.rstrip("=")
    if task.name.startswith("encoder"):
        return re.sub("[a-z_]", "", prompt)
    question = prompt.translate(dict.fromkeys(map(ord, HINTS)))
    if getattr(task, "order", "") == "all_reversed":
        question = "+".join(number[::-1] for number in question.split("+"))
    return re.sub("(?<![0-9])0+(?=[0-9])", "", question) if task.name in truth.SIGNS else question


def text_of(task, tokens) -> str:
    """A row of tokens as text, without what pads it."""
    if isinstance(task, EncoderTask):
        return "".join("" if token == PAD else ENCODER_TOKENS[token] for token in tokens)
    return decode(tokens, task.tokens) if hasattr(task, "tokens") else decode(tokens)
