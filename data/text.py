"""Problems as text, as a person asks and answers them, for language models of others."""

import numpy as np

from longhand.data.batches import evaluation_draw
from longhand.data.columns import example_columns
from longhand.data.tasks.column_task import ColumnTask
from longhand.data.tasks.questions import write_questions
from longhand.data.tasks.task import Task


def text_problems(task: Task, lengths: tuple[int, ...], count: int, seed: int, split: str) -> tuple[list[str], list[str]]:
    """Prompts such as `653+49=` and answers such as `702` of the problems that `EvaluationBatches` draws.

    Numbers have no zeros in front, no hints and no padding, whatever the task's format. A task whose questions are not
    numbers gives its own prompts, the column `prompt` of its datasets. Answers are the column `answer`.

    Args:
        lengths: digits of each operand.

    Raises:
        ValueError: the split holds no such problems, they do not fit into memory, or the format ends below these lengths.
    """
    generator, tiled = evaluation_draw(task, lengths, count, seed, split)
    digits = task.draw(generator, tiled, split)
    columns = example_columns(task, digits, tiled, np.dtype(np.int32))
    sign = getattr(task, "sign", None)
    if sign is None or isinstance(task, ColumnTask):
        return columns["prompt"].to_pylist(), columns["answer"].to_pylist()
    return [f"{question}=" for question in write_questions(digits, sign)], columns["answer"].to_pylist()
