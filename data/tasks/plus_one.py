"""The next number: `$199=0020$`."""

from longhand.data.tasks.column_task import ColumnTask
from longhand.data.tasks.registry import register_task


@register_task
class PlusOne(ColumnTask):
    """A number and one more: 199 -> 200."""

    name = "plus_one"
    flush = 1
    start = 1
    example_question = "199"

    def step(self, carry, symbols):
        total = symbols[0] + carry
        return total % 10, total // 10
