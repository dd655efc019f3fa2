"""Tasks, their formats, and the arrays and batches made of them."""

from longhand.data.addition import Addition
from longhand.data.addition_scratchpad import AdditionScratchpad
from longhand.data.batches import EvaluationBatches, FixedBatches, FreshBatches
from longhand.data.builder import collate_rows, load_task_dataset
from longhand.data.collator import CouplingCollator
from longhand.data.encoder_arithmetic import EncoderAddition, EncoderMultiplication
from longhand.data.formatting import Examples, LabelledTokens
from longhand.data.index_hinting import IndexHintedAddition
from longhand.data.minesweeper import Minesweeper
from longhand.data.multi_operand_addition import MultiOperandAddition
from longhand.data.multiplication import Multiplication
from longhand.data.multiplication_scratchpad import MultiplicationScratchpad
from longhand.data.sampling import SPLITS, make_generator
from longhand.data.strings import Copy, Parity, Reverse
from longhand.data.subtraction import Subtraction
from longhand.data.task import TASKS, Task
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
