"""Tasks, their formats, and the arrays and batches made of them."""

from longhand.data.batches import EvaluationBatches, FixedBatches, FreshBatches
from longhand.data.builder import collate_rows, load_task_dataset
from longhand.data.collator import CouplingCollator
from longhand.data.formatting import Examples, LabelledTokens
from longhand.data.splits import SPLITS, make_generator
from longhand.data.tasks import (
    TASKS,
    Addition,
    AdditionScratchpad,
    Copy,
    EncoderAddition,
    EncoderMultiplication,
    IndexHintedAddition,
    Minesweeper,
    MultiOperandAddition,
    Multiplication,
    MultiplicationScratchpad,
    Parity,
    Reverse,
    Subtraction,
    Task,
)
from longhand.data.tokenization import build_tokenizer, check_characters

__all__ = [
    "SPLITS",
    "TASKS",
    "Addition",
    "AdditionScratchpad",
    "Copy",
    "CouplingCollator",
    "EncoderAddition",
    "EncoderMultiplication",
    "EvaluationBatches",
    "Examples",
    "FixedBatches",
    "FreshBatches",
    "IndexHintedAddition",
    "LabelledTokens",
    "Minesweeper",
    "MultiOperandAddition",
    "Multiplication",
    "MultiplicationScratchpad",
    "Parity",
    "Reverse",
    "Subtraction",
    "Task",
    "build_tokenizer",
    "check_characters",
    "collate_rows",
    "load_task_dataset",
    "make_generator",
]
