"""Reversing a string: `$5962=2695$` (paper 1, App. C)."""

from dataclasses import dataclass
from typing import ClassVar

from longhand.data.tasks.registry import register_task
from longhand.data.tasks.strings import StringTask


@register_task
@dataclass(frozen=True)
class Reverse(StringTask):
    """The string of decimal digits backwards; symbols may repeat."""

    name: ClassVar[str] = "reverse"
    coupling: ClassVar[str] = "reverse"
    ones_come_first: ClassVar[bool] = False
    example_question: ClassVar[str] = "5962"

    def respond(self, strings):
        return strings[:, ::-1]
