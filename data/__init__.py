"""Tasks, their formats, and the arrays and batches made of them."""

from typing import TYPE_CHECKING

from longhand.data.batches import EvaluationBatches as EvaluationBatches
from longhand.data.batches import FixedBatches as FixedBatches
from longhand.data.batches import FreshBatches as FreshBatches
from longhand.data.collator import CouplingCollator as CouplingCollator
from longhand.data.collator import collate_rows as collate_rows
from longhand.data.formatting import Examples as Examples
from longhand.data.formatting import LabelledTokens as LabelledTokens
from longhand.data.metrics import compute_metrics as compute_metrics
from longhand.data.metrics import preprocess_logits as preprocess_logits
from longhand.data.splits import SPLITS as SPLITS
from longhand.data.splits import make_generator as make_generator
from longhand.data.tasks import *  # noqa: F403
from longhand.data.tasks.registry import TASKS as TASKS
from longhand.data.tasks.registry import build_task as build_task
from longhand.data.tasks.registry import register_task as register_task
from longhand.data.tasks.registry import task_from_recipe as task_from_recipe
from longhand.data.tasks.task import Task as Task
from longhand.data.tokenization import build_tokenizer as build_tokenizer
from longhand.data.tokenization import check_characters as check_characters

if TYPE_CHECKING:
    from longhand.data.builder import load_task_dataset as load_task_dataset
    from longhand.data.learning.learn import learn_task as learn_task

else:

    def __getattr__(name):
        """Functions that need `datasets` or `aalpy`, which few commands need, are imported when asked for."""
        if name == "load_task_dataset":
            from longhand.data.builder import load_task_dataset

            return load_task_dataset
        if name == "learn_task":
            from longhand.data.learning.learn import learn_task

            return learn_task
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
