"""What a card shows of a task: one problem, drawn with what the model adds to it, and the code that asks a model for it."""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from longhand.data import Task, make_generator
from longhand.data.collator import IGNORED
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.encoder_task import EncoderTask
from longhand.modeling.coupling import plan_position_ids
from longhand.modeling.vocabulary import ALL_TOKENS, ENCODER_TOKENS, LABELS, PAD, decode

EXAMPLE_LENGTH = 3
"""Digits of the problem that a card shows."""

TOKENS_PER_LINE = 36

READERS = (
    "response",
    "response[-1:]",
    'response.lstrip("0") or "0"',
    'response[::-1].lstrip("0") or "0"',
    're.split("[>=]", response)[-1][::-1].lstrip("0") or "0"',
    're.sub("[^0-9]", "", response)[::-1].lstrip("0") or "0"',
)
"""Python that reads the answer from a response, simplest first; a card shows the first that agrees with the task's own."""


def _example(task: DecoderTask, length: int = EXAMPLE_LENGTH) -> tuple[str, str]:
    """Query and right response of a problem, as text from the `$` to the end token. The same for the same task."""
    operands = np.array([task.operand_lengths(length)])
    examples = task.examples(make_generator("card", task.name, length), operands, "train")
    tokens, query_length = examples.tokens[0], examples.query_lengths[0]
    return decode(tokens[:query_length]), decode(tokens[query_length:])


def draw_ids(task: DecoderTask, coupling: str) -> str:
    """A problem's tokens over the position ids of a coupling rule, a line for each level, as an indented block."""
    operands = np.array([task.operand_lengths(EXAMPLE_LENGTH)])
    examples = task.examples(make_generator("card", task.name, EXAMPLE_LENGTH), operands, "train")
    tokens = examples.tokens[0][examples.tokens[0] != PAD]
    query = torch.from_numpy(tokens[: examples.query_lengths[0]].astype(np.int64)).unsqueeze(0)
    levels = plan_position_ids(coupling, query, len(tokens))[0]
    columns = [[ALL_TOKENS[token], *map(str, ids)] for token, ids in zip(tokens, levels.T.tolist(), strict=True)]
    names = ["tokens", *(["ids"] if len(levels) == 1 else [f"level {level}" for level in range(1, len(levels) + 1)])]
    return _draw(columns, names)


def draw_labels(task: EncoderTask) -> str:
    """A problem's tokens over the classes that are right, `.` where none is asked, as an indented block."""
    # In fields no wider than the example needs: those of a format may be long.
    return _draw(_labelled_example(replace(task.for_evaluation, field_width=None)), ["input", "label"])


def _labelled_example(task: EncoderTask) -> list[tuple[str, str]]:
    """Tokens and classes of a problem without text around it, `.` where none is asked. The same for the same task."""
    task = replace(task, text_tokens=0)
    generator = make_generator("card", task.name, EXAMPLE_LENGTH)
    digits = task.draw(generator, task.sample_lengths(generator, 1, 1, EXAMPLE_LENGTH), "train")
    _, field_width = task.field_widths(EXAMPLE_LENGTH)
    examples = task.write(digits, field_width)
    labels = ["." if label == IGNORED else LABELS[label] for label in examples.labels[0].tolist()]
    return list(zip((ENCODER_TOKENS[token] for token in examples.tokens[0].tolist()), labels, strict=True))


def _draw(columns: Sequence[Sequence[str]], names: list[str]) -> str:
    """Columns of cells side by side, a name before each line, in blocks that fit a page."""
    width = max(len(cell) for column in columns for cell in column)
    blocks = []
    for start in range(0, len(columns), TOKENS_PER_LINE):
        lines = zip(names, *columns[start : start + TOKENS_PER_LINE], strict=True)
        blocks.append("\n".join(f"    {name:<8}{' '.join(cell.rjust(width) for cell in cells)}" for name, *cells in lines))
    return "\n\n".join(blocks)


def write_snippet(task: Task, source: str) -> str:
    """Python that loads the model without this package, asks it a question and prints the answer."""
    return _encoder_snippet(task, source) if isinstance(task, EncoderTask) else _decoder_snippet(task, source)


def _encoder_snippet(task: EncoderTask, source: str) -> str:
    prompt, labels = map("".join, zip(*_labelled_example(task.for_evaluation), strict=True))
    right = labels.lstrip(".")
    lines = [
        "from transformers import AutoModelForTokenClassification, AutoTokenizer",
        "",
        f'model = AutoModelForTokenClassification.from_pretrained("{source}", trust_remote_code=True)',
        f'tokenizer = AutoTokenizer.from_pretrained("{source}", trust_remote_code=True)',
        "",
        f'inputs = tokenizer("{prompt}", return_tensors="pt")',
        f"labels = model(**inputs).logits[0, -{len(right)}:].argmax(-1)",
        'answer = "".join(model.config.id2label[label] for label in labels.tolist())',
        f'print(answer.strip("_"))  # right is {task.read_answer(right)}',
    ]
    return "\n".join(lines)


def _decoder_snippet(task: DecoderTask, source: str) -> str:
    query, response = _example(task)
    reader = _reader(task)
    answer = task.read_answer(_without_end(response))
    imports = ["import re", ""] if reader.startswith("re.") else []
    lines = [
        *imports,
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        f'model = AutoModelForCausalLM.from_pretrained("{source}", trust_remote_code=True)',
        f'tokenizer = AutoTokenizer.from_pretrained("{source}", trust_remote_code=True)',
        "",
        f'inputs = tokenizer("{query[1:]}", return_tensors="pt")',
        "output = model.generate(**inputs, do_sample=False)",
        'response = tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)',
        f"print({reader})  # right is {answer}",
    ]
    return "\n".join(lines)


def _reader(task: DecoderTask) -> str:
    responses = [_without_end(_example(task, length)[1]) for length in (3, 4, 5, 6, 7, 8)]
    for reader in READERS:
        # What is evaluated is a constant above: the very code that the card will show.
        if all(eval(reader, {"re": re, "response": response}) == task.read_answer(response) for response in responses):
            return reader
    return "response"


def _without_end(response: str) -> str:
    return response.removesuffix("$").removesuffix("<eos>")
