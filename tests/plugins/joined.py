"""A task of a user's own made of two others: strings are copied (`1809=`), and numbers are subtracted (`653-49=`)."""

from dataclasses import dataclass
from typing import ClassVar

from longhand.data.families import DECODER
from longhand.data.tasks.composite import CompositeTask
from longhand.data.tasks.registry import register_task
from longhand.data.tasks.strings import Copy
from longhand.data.tasks.subtraction import Subtraction
from longhand.modeling.coupling import joined_rule, plan_joined
from longhand.modeling.vocabulary import EQUALS, MINUS

_MEMBERS = {EQUALS: "copy", MINUS: "subtraction"}


@joined_rule(_MEMBERS)
def copy_or_subtract(input_ids, columns):
    """Plan copies at level 1 and differences at levels 2 and 3.

    $ 8 = 8 $
    0 2 1 2 0
    0 0 0 0 0
    0 0 0 0 0
    """
    return plan_joined(_MEMBERS, input_ids, columns)


@register_task
@dataclass(frozen=True)
class CopyOrSubtract(CompositeTask):
    """Copies of strings and differences of numbers."""

    family = DECODER
    name: ClassVar[str] = "copy_or_subtract"
    coupling: ClassVar[str] = "copy_or_subtract"
    members = (Copy, Subtraction)
    trained = {Copy: 1, Subtraction: 3}  # noqa: RUF012

    separate_eos: bool = False
