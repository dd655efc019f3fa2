"""Tasks: what each token means, how problems are drawn, solved, written and read. Importing registers all of them."""

from longhand.data.tasks.addition import Addition
from longhand.data.tasks.addition_scratchpad import AdditionScratchpad
from longhand.data.tasks.copy import Copy
from longhand.data.tasks.encoder_addition import EncoderAddition
from longhand.data.tasks.encoder_multiplication import EncoderMultiplication
from longhand.data.tasks.index_hinted_addition import IndexHintedAddition
from longhand.data.tasks.minesweeper import Minesweeper
from longhand.data.tasks.multi_operand_addition import MultiOperandAddition
from longhand.data.tasks.multiplication import Multiplication
from longhand.data.tasks.multiplication_scratchpad import MultiplicationScratchpad
from longhand.data.tasks.parity import Parity
from longhand.data.tasks.reverse import Reverse
from longhand.data.tasks.subtraction import Subtraction
from longhand.data.tasks.task import TASKS, Task

__all__ = [
    "TASKS",
    "Addition",
    "AdditionScratchpad",
    "Copy",
    "EncoderAddition",
    "EncoderMultiplication",
    "IndexHintedAddition",
    "Minesweeper",
    "MultiOperandAddition",
    "Multiplication",
    "MultiplicationScratchpad",
    "Parity",
    "Reverse",
    "Subtraction",
    "Task",
]
