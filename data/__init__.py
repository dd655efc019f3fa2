"""Tasks, their formats, and the arrays and batches made of them, imported when they are asked for."""

from typing import TYPE_CHECKING

from longhand.data.on_demand import names_on_demand

if TYPE_CHECKING:
    from longhand.data.batches import EvaluationBatches as EvaluationBatches
    from longhand.data.batches import FixedBatches as FixedBatches
    from longhand.data.batches import FreshBatches as FreshBatches
    from longhand.data.builder import load_task_dataset as load_task_dataset
    from longhand.data.collator import CouplingCollator as CouplingCollator
    from longhand.data.collator import collate_rows as collate_rows
    from longhand.data.formatting import Examples as Examples
    from longhand.data.formatting import LabelledTokens as LabelledTokens
    from longhand.data.learning.learn import learn_task as learn_task
    from longhand.data.metrics import compute_metrics as compute_metrics
    from longhand.data.metrics import preprocess_logits as preprocess_logits
    from longhand.data.splits import SPLITS as SPLITS
    from longhand.data.splits import make_generator as make_generator
    from longhand.data.tasks import *  # noqa: F403
    from longhand.data.tasks.registry import TASKS as TASKS
    from longhand.data.tasks.registry import build_task as build_task
    from longhand.data.tasks.registry import build_tokenizer as build_tokenizer
    from longhand.data.tasks.registry import register_task as register_task
    from longhand.data.tasks.registry import task_from_recipe as task_from_recipe
    from longhand.data.tasks.task import Task as Task
    from longhand.data.tokenization import check_characters as check_characters
else:
    # Type checkers see the imports above instead.
    __getattr__, __dir__ = names_on_demand(
        __name__,
        {
            "CouplingCollator": "longhand.data.collator",
            "EvaluationBatches": "longhand.data.batches",
            "Examples": "longhand.data.formatting",
            "FixedBatches": "longhand.data.batches",
            "FreshBatches": "longhand.data.batches",
            "LabelledTokens": "longhand.data.formatting",
            "SPLITS": "longhand.data.splits",
            "TASKS": "longhand.data.tasks.registry",
            "Task": "longhand.data.tasks.task",
            "build_task": "longhand.data.tasks.registry",
            "build_tokenizer": "longhand.data.tasks.registry",
            "check_characters": "longhand.data.tokenization",
            "collate_rows": "longhand.data.collator",
            "compute_metrics": "longhand.data.metrics",
            "learn_task": "longhand.data.learning.learn",
            "load_task_dataset": "longhand.data.builder",
            "make_generator": "longhand.data.splits",
            "preprocess_logits": "longhand.data.metrics",
            "register_task": "longhand.data.tasks.registry",
            "task_from_recipe": "longhand.data.tasks.registry",
        },
        source="longhand.data.tasks",
    )
