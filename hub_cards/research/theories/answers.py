"""How many questions a second each shipped model answers, in one call with a list.

The questions are test problems of 8 digits, symbols, or rows and columns. With one thread of a processor, only seconds in
which it works count, so that other programs change little.

python -m longhand.hub_cards.research answers
"""

# Used by: hub_cards/research. Changed freely.

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from longhand.data.formatting import Examples
from longhand.data.splits import make_generator
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.task import Task
from longhand.hub_cards.checkpoints.load import list_zoo
from longhand.hub_cards.checkpoints.solver import load
from longhand.hub_cards.result_rows import Row, hardware
from longhand.modeling.vocabulary import decode

RESULTS = Path(__file__).with_suffix(".jsonl")
LENGTH = 8
SHARE = 0.1
"""How much of the questions is asked first, without a clock."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add how many questions are asked."""
    parser.add_argument("--num_questions", type=int, default=1000, help="questions of each model (default: %(default)s)")


def draw_questions(task: Task, count: int) -> list[str]:
    """Test problems of a task as questions."""
    part = task.parts[0]
    lengths = np.repeat([part.operand_lengths(LENGTH)], count, axis=0)
    examples = part.examples(make_generator("answers", part.name, LENGTH), lengths, "test")
    if not isinstance(examples, Examples):
        return [part.example_question] * count
    assert isinstance(part, DecoderTask)
    queries = zip(examples.tokens, examples.query_lengths, strict=True)
    return [decode(tokens[1:length], part.tokens) for tokens, length in queries]


def answer_row(name: str, num_questions: int) -> Row:
    """The row of a shipped model."""
    solver = load(name)
    questions = draw_questions(solver.checkpoint.task, num_questions)
    solver(questions[: int(SHARE * num_questions) + 1])
    is_one_thread = solver.model.device.type == "cpu" and torch.get_num_threads() == 1
    clock = time.process_time if is_one_thread else time.perf_counter
    begun = clock()
    solver(questions)
    seconds = clock() - begun
    return {
        "model": name,
        "example": questions[0],
        "num_questions": num_questions,
        "seconds": round(seconds, 3),
        "answers_per_second": round(num_questions / seconds),
        "threads": torch.get_num_threads(),
        "hardware": hardware(solver.model.device),
    }


def measure(num_questions: int) -> Iterator[Row]:
    """Ask every shipped model, and yield a row for each."""
    return (answer_row(name, num_questions) for name in list_zoo())
