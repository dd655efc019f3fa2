"""Tasks: what each token means, and how problems are drawn, solved, written and read.

The file of a task is imported when the task is asked for, so a new task takes a line here, which type checkers see, and one
in `TASK_PLACES`.
"""

from typing import TYPE_CHECKING

from longhand.data.on_demand import names_on_demand

if TYPE_CHECKING:
    from longhand.data.tasks.addition import Addition as Addition
    from longhand.data.tasks.addition import IndexHintedAddition as IndexHintedAddition
    from longhand.data.tasks.addition import MultiOperandAddition as MultiOperandAddition
    from longhand.data.tasks.addition_scratchpad import AdditionScratchpad as AdditionScratchpad
    from longhand.data.tasks.chomsky import CycleNavigation as CycleNavigation
    from longhand.data.tasks.chomsky import DuplicateString as DuplicateString
    from longhand.data.tasks.chomsky import EvenPairs as EvenPairs
    from longhand.data.tasks.chomsky import MissingDuplicate as MissingDuplicate
    from longhand.data.tasks.chomsky import ModularArithmetic as ModularArithmetic
    from longhand.data.tasks.chomsky import OddsFirst as OddsFirst
    from longhand.data.tasks.column_task import ColumnPass as ColumnPass
    from longhand.data.tasks.column_task import ColumnTask as ColumnTask
    from longhand.data.tasks.composite import Calculator as Calculator
    from longhand.data.tasks.composite import EncoderCalculator as EncoderCalculator
    from longhand.data.tasks.division import Division as Division
    from longhand.data.tasks.encoder_addition import EncoderAddition as EncoderAddition
    from longhand.data.tasks.encoder_multiplication import EncoderMultiplication as EncoderMultiplication
    from longhand.data.tasks.encoder_multiplication_grid import EncoderMultiplicationGrid as EncoderMultiplicationGrid
    from longhand.data.tasks.minesweeper import Minesweeper as Minesweeper
    from longhand.data.tasks.multiplication import Multiplication as Multiplication
    from longhand.data.tasks.multiplication_scratchpad import MultiplicationScratchpad as MultiplicationScratchpad
    from longhand.data.tasks.numbers_by_columns import BaseAddition as BaseAddition
    from longhand.data.tasks.numbers_by_columns import Bitwise as Bitwise
    from longhand.data.tasks.numbers_by_columns import Comparison as Comparison
    from longhand.data.tasks.numbers_by_columns import ConstantMultiplication as ConstantMultiplication
    from longhand.data.tasks.numbers_by_columns import DigitSum as DigitSum
    from longhand.data.tasks.numbers_by_columns import GrayCode as GrayCode
    from longhand.data.tasks.numbers_by_columns import LargerNumber as LargerNumber
    from longhand.data.tasks.numbers_by_columns import PlusOne as PlusOne
    from longhand.data.tasks.numbers_by_columns import Remainder as Remainder
    from longhand.data.tasks.strings import Copy as Copy
    from longhand.data.tasks.strings import Parity as Parity
    from longhand.data.tasks.strings import Reverse as Reverse
    from longhand.data.tasks.subtraction import SignedSubtraction as SignedSubtraction
    from longhand.data.tasks.subtraction import Subtraction as Subtraction
else:
    # Type checkers see the imports above instead.
    from longhand.data.tasks.registry import TASK_PLACES

    _PLACES = [*TASK_PLACES.values(), "column_task.ColumnPass", "column_task.ColumnTask"]
    __getattr__, __dir__ = names_on_demand(
        __name__, {name: f"{__name__}.{file}" for file, _, name in (place.partition(".") for place in _PLACES)}
    )
