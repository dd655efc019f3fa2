"""The one loader of checkpoints, from a folder or the Hub: a model, its tokenizer and its task, ready to answer."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import hf_hub_download
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from longhand.data import TASKS, Task
from longhand.data.tasks.registry import task_from_recipe
from longhand.hub_cards.checkpoints.adapters import Adapter, find_adapter
from longhand.hub_cards.checkpoints.files import checkpoint_name, is_best
from longhand.hub_cards.checkpoints.loading import (
    describe_task,
    load_model,
    load_tokenizer,
    merge_adapter,
    register_own_table,
)
from longhand.hub_cards.checkpoints.sources import find_recipe
from longhand.hub_cards.console import one_line
from longhand.hub_cards.evaluation.results import RESULTS_FILE, read_results
from longhand.hub_cards.plugins import require_plugins
from longhand.hub_cards.recipes import RECIPE_FILE


@dataclass(frozen=True)
class Checkpoint:
    """A model with what is needed to evaluate it.

    Attributes:
        name: how results refer to it: a Hub id, the name of a folder, or for `best` that of its run too.
        task: the task whose problems it is tested on.
        trained_lengths: shortest and longest trained operand in digits; None if unknown.
        run_seconds: seconds of its training and first evaluation; None if unknown.
        recipe: the arguments that made it; empty if it has no recipe.
    """

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    task: Task
    trained_lengths: tuple[int, int] | None
    run_seconds: float | None
    recipe: dict[str, Any] = field(default_factory=dict)

    @property
    def recipe_task(self) -> Task | None:
        """The task that the recipe names, of which `task` may be a part; None if it names none."""
        return task_from_recipe(self.recipe).for_evaluation if "task" in self.recipe else None

    def answer(self, question: str, streamer: Any = None) -> str:
        """Return the model's answer to a question, see `Family.answer`."""
        return self.task.family.answer(self.task.part_of(question), self.model, self.tokenizer, question, streamer)

    def show_work(self, question: str, streamer: Any = None) -> str:
        """Return the model's answer to a question with the work before it, as on paper.

        Raises:
            ValueError: as `answer`, or the task has no work to show.
        """
        part = self.task.part_of(question)
        if not part.shows_work:
            raise ValueError(f"--show_work: a model of the task {part.name!r} writes the answer alone")
        family: Any = part.family
        return part.show_work(question, family.respond(part, self.model, self.tokenizer, question, streamer))

    def by_part(self) -> list["Checkpoint"]:
        """Return the checkpoint for each part of its task, to be tested on it."""
        return [replace(self, task=part) for part in self.task.parts]


def load_checkpoint(
    source: str, revision: str | None = None, task: str | None = None, trust_remote_code: bool = False
) -> Checkpoint:
    """Load a folder or a Hub repository, onto the accelerator if there is one. An adapter is merged into its base.

    Args:
        source: folder or `user/name`.
        revision: branch, tag or commit on the Hub.
        task: name of the task, for a checkpoint that has no recipe and whose configuration names no task; its format is
            then the default. Or a part of the checkpoint's task, to be tested alone.
        trust_remote_code: run the copies, beside the checkpoint, of plugins that it needs and that are not loaded.

    Raises:
        ValueError: `source` is neither, is damaged, its task is unknown, or it needs a plugin that is not loaded.
    """
    recipe = find_recipe(source, revision)
    if (adapter := find_adapter(source, revision)) is not None:
        return _load_adapted(source, adapter, recipe, task, trust_remote_code)
    if not register_own_table(source, revision):
        _load_plugins(recipe, source, revision, trust_remote_code)
    described, file = describe_task(recipe, source, revision)
    chosen = described.get("task", task)
    if not isinstance(chosen, str) or chosen not in TASKS:
        raise ValueError(f"task of {source}: got {chosen!r}, choose one of {', '.join(TASKS)} with --task")
    try:
        trained = task_from_recipe({**described, "task": chosen})
    except ValueError as error:
        raise ValueError(f"{source}, {file}: {error}") from error
    parts = {part.name: part for part in (trained, *trained.parts)}
    if task is not None and task not in parts:
        raise ValueError(
            f"--task {task} is for a checkpoint that names no task: {source} is of task {described['task']!r} ({file})"
        )
    model = load_model(source, trained, revision)
    tokenizer = load_tokenizer(source, trained, revision)
    return Checkpoint(
        name=checkpoint_name(source),
        model=model.eval().to("cuda" if torch.cuda.is_available() else "cpu"),
        tokenizer=tokenizer,
        task=parts[task or chosen].for_evaluation,
        trained_lengths=trained_lengths(recipe),
        run_seconds=_run_seconds(Path(source)),
        recipe=recipe,
    )


def _load_adapted(
    source: str, adapter: Adapter, own: dict[str, Any], task: str | None, trust_remote_code: bool
) -> Checkpoint:
    """Load the base of an adapter and merge the adapter into it. The task is the base's.

    Args:
        own: the adapter's recipe; empty if it has none.
    """
    try:
        if (adapter_of_adapter := find_adapter(adapter.base, adapter.base_revision)) is not None:
            raise ValueError(f"that is an adapter of {adapter_of_adapter.base} itself")
        where = (adapter.base, adapter.base_revision)
        made, _ = describe_task(find_recipe(*where), *where)
        base = load_checkpoint(*where, task or made.get("task", own.get("task")), trust_remote_code)
        made |= {"task": base.task.name}
        if "task" in own and (wanted := task_from_recipe(made | own)) != (trained := task_from_recipe(made)):
            raise ValueError(f"its {RECIPE_FILE} names the task {wanted.describe()}, its base {trained.describe()}")
    except ValueError as error:
        raise ValueError(f"{source} is an adapter of {adapter.base}: {error}") from error
    return replace(
        base,
        name=checkpoint_name(source),
        model=merge_adapter(source, adapter, base.model),
        trained_lengths=trained_lengths(own),
        run_seconds=_run_seconds(Path(source)),
        recipe=base.recipe | own,
    )


def _load_plugins(recipe: dict[str, Any], source: str, revision: str | None, trust_remote_code: bool) -> None:
    folder = Path(source)

    def advise(name: str) -> str:
        if folder.is_dir():
            return (
                f"read it, then pass --plugin {folder / name} (or --trust_remote_code to run the copy beside the checkpoint)"
            )
        return "read it on the Hub, then pass --trust_remote_code to run that copy (or --plugin with a copy of your own)"

    def fetch(name: str) -> Path:
        try:
            return folder / name if folder.is_dir() else Path(hf_hub_download(source, name, revision=revision))
        except OSError as error:
            raise ValueError(f"{source} lacks its plugin {name}: {one_line(error)}") from error

    require_plugins(recipe, source, advise, fetch if trust_remote_code else None)


def _run_seconds(folder: Path) -> float | None:
    """Return what train.py noted in the folder of a run, for its last checkpoint and for `best`."""
    file = (folder.parent if is_best(folder) else folder) / RESULTS_FILE
    rows = read_results(file) if file.is_file() else []
    return rows[0].get("run_seconds") if rows else None


def trained_lengths(recipe: dict[str, Any]) -> tuple[int, int] | None:
    """Return the shortest and longest trained operand in digits; None if a recipe names none, as that of a construction."""
    if not {"min_length", "max_length"} <= set(recipe):
        return None
    return recipe["min_length"], recipe["max_length"]
