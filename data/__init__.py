"""Tasks, their formats, and the arrays and batches made of them."""

from longhand.data.addition import Addition
from longhand.data.batches import EvaluationBatches, FixedBatches, FreshBatches
from longhand.data.collator import CouplingCollator
from longhand.data.formatting import Examples
from longhand.data.multi_operand_addition import MultiOperandAddition
from longhand.data.multiplication import Multiplication
from longhand.data.sampling import SPLITS, make_generator
from longhand.data.task import TASKS, Task
from longhand.data.tokenization import build_tokenizer, check_characters

__all__ = [
    "SPLITS",
    "TASKS",
    "Addition",
    "CouplingCollator",
    "EvaluationBatches",
    "Examples",
    "FixedBatches",
    "FreshBatches",
    "MultiOperandAddition",
    "Multiplication",
    "Task",
    "build_tokenizer",
    "check_characters",
    "make_generator",
]
