"""Tasks, their formats, and the arrays and batches made of them."""

from longhand.data import tasks
from longhand.data.batches import EvaluationBatches, FixedBatches, FreshBatches
from longhand.data.builder import collate_rows, load_task_dataset
from longhand.data.collator import CouplingCollator
from longhand.data.formatting import Examples, LabelledTokens
from longhand.data.splits import SPLITS, make_generator
from longhand.data.tasks import *  # noqa: F403
from longhand.data.tasks.registry import TASKS, build_task, register_task, task_from_recipe
from longhand.data.tasks.task import Task
from longhand.data.tokenization import build_tokenizer, check_characters

__all__ = [
    "SPLITS",
    "TASKS",
    "CouplingCollator",
    "EvaluationBatches",
    "Examples",
    "FixedBatches",
    "FreshBatches",
    "LabelledTokens",
    "Task",
    "build_task",
    "build_tokenizer",
    "check_characters",
    "collate_rows",
    "load_task_dataset",
    "make_generator",
    "register_task",
    "task_from_recipe",
]
__all__ += tasks.__all__
