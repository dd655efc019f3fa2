"""Sums of any number of numbers, differences in any order, and products, by one model."""

from dataclasses import dataclass, field
from typing import ClassVar

from longhand.data.families.decoder import DECODER
from longhand.data.tasks.addition_scratchpad import AdditionScratchpad
from longhand.data.tasks.composite import CompositeTask
from longhand.data.tasks.multiplication_scratchpad import MultiplicationScratchpad
from longhand.data.tasks.registry import register_task
from longhand.data.tasks.signed_subtraction import SignedSubtraction


@register_task
@dataclass(frozen=True)
class Calculator(CompositeTask):
    """The three operations that are local: each is written with the work that a person would write on paper."""

    family = DECODER
    name: ClassVar[str] = "calculator"
    coupling: ClassVar[str] = "calculator"
    members = (AdditionScratchpad, SignedSubtraction, MultiplicationScratchpad)
    shares = (1, 1, 2)

    separate_eos: bool = field(default=False, metadata={"help": "end sequences with a token of their own, not `$`"})
    max_operands: int = field(default=6, metadata={"help": "most operands of a drawn sum, 2 to 10,000"})
