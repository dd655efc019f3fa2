"""Copying a string: `$1809=1809$` (paper 1, App. C)."""

from dataclasses import dataclass
from typing import ClassVar

from longhand.data.tasks.registry import register_task
from longhand.data.tasks.strings import StringTask


@register_task
@dataclass(frozen=True)
class Copy(StringTask):
    """The same string of decimal digits again; symbols may repeat."""

    name: ClassVar[str] = "copy"
    coupling: ClassVar[str] = "copy"
    example_question: ClassVar[str] = "1809"

    def respond(self, strings):
        return strings
