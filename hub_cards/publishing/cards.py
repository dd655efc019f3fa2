"""Model cards: their metadata and text.

Every number is read from the files of the checkpoint's folder.
"""

# Used by: commits.py, dataset.py, publications.py, hub_cards, hub_cards/research, train.py. Changed freely.

import html
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import CardData, EvalResult, ModelCardData

from longhand import __version__
from longhand.data.tasks.column_task import CODE
from longhand.data.tasks.task import Task
from longhand.hub_cards.checkpoints.certificate_file import VERIFIER
from longhand.hub_cards.checkpoints.checkpoint import BEST_FOLDER, CARD_FILE, PLOT_FILE, Checkpoint
from longhand.hub_cards.checkpoints.load import is_in_zoo
from longhand.hub_cards.commands import check_repo_id, read_citation, write_atomically
from longhand.hub_cards.publishing.examples import ENVIRONMENT, count, describe_response, family_card, snippet
from longhand.hub_cards.recipes import RECIPE_FILE
from longhand.hub_cards.result_rows import Row, accuracy_columns, describe_length, describe_worst, worst_verdict
from longhand.hub_cards.training.run_folder import read_given_up
from longhand.modeling.coupling import COUPLING_RULES

TAG = "longhand"
"""Tag on every card of this package."""

SUBJECTS = ("arithmetic", "length-generalization")
"""Tags of every card."""

LICENSE = "apache-2.0"

MAIN_METRIC = "exact_match"

TRAINED_ON = (
    ("num_train_samples", "training examples"),
    ("position_sampling", "position ids in training"),
    ("max_steps", "optimizer steps, at most"),
    ("batch_size", "examples per step"),
    ("sharper_scores", "factors of scores, multiplied in the course of training by"),
    ("practise_worst", "worst problems of the trained lengths, searched and practised at every validation"),
    ("bf16", "computed in bfloat16 where autocast does"),
    ("fp16", "computed in float16 where autocast does"),
    ("torch_compile", "compiled"),
    ("seed", "seed of the weights"),
    ("data_seed", "seed of the data"),
)
"""Arguments of a recipe that the card lists, and their meaning."""


PAIR_MAPS = {
    "relative": "by their distance",
    "uniform": "by their distance and, if one is a digit of the multiplier, by this digit's place",
    "coupled": "by the columns that they stand in",
    "add": "by the difference of their places, in sums alone",
    "multiply": "by the difference of their places or, for a digit of the multiplier, by its place, in products alone",
    "listed": "by one list of places, the same for every token",
    "columns": "by the columns that they stand in",
    "grid": "by the cells of the grid that they stand in",
    "given": "as the caller says",
    "none": "not at all",
}
"""How each pair map relates two tokens; the cards of rules from plugins say that a plugin does."""


def kind_tag(kind: str) -> str:
    """The tag of a card that records the kind of its repository."""
    return f"{TAG}-{kind}"


def plain(value: object) -> Any:
    """Text of a recipe or of results as one line without Markdown and HTML; any other value unchanged."""
    if not isinstance(value, str):
        return value
    escaped = html.escape(" ".join(value.split()), quote=False).replace("`", "'")
    return re.sub(r"([\\*\[\]|])", r"\\\1", escaped)


def format_fields(task: Task) -> str:
    """The fields of the task's format with their values, such as "order plain"."""
    return ", ".join(f"{plain(name)} {plain(value)}" for name, value in task.describe().items() if name != "task")


def write_card(checkpoint: Checkpoint, repo_id: str | None = None, dataset: str | None = None) -> Path:
    """Write the card of a checkpoint into its folder; see `render_card`."""
    file = checkpoint.folder / CARD_FILE
    write_atomically(file, render_card(checkpoint, repo_id, dataset))
    return file


def render_card(checkpoint: Checkpoint, repo_id: str | None = None, dataset: str | None = None) -> str:
    """The card of a checkpoint whose folder has been read.

    Args:
        repo_id: repository that the code on the card loads the model from; default: the folder, or its name if its path
            is absolute.
        dataset: Hub id of a dataset of its task, for the metadata.

    Raises:
        ValueError: a name is not legal.
    """
    for name in (repo_id, dataset):
        if name is not None:
            check_repo_id(name)
    folder, task, config = checkpoint.folder, checkpoint.task, checkpoint.model.config
    shipped = repo_id is None and is_in_zoo(folder)
    # An absolute path names a place on the author's machine, so the card shows only the name of the folder.
    source = repo_id or (checkpoint.name if shipped or folder.is_absolute() or ".." in folder.parts else folder.as_posix())
    title = repo_id.partition("/")[2] if repo_id else checkpoint.name
    checkpoint = replace(checkpoint, recipe={name: plain(value) for name, value in checkpoint.recipe.items()})
    description = str(checkpoint.recipe.get("description") or f"A model of the task {task.name}")
    learned, is_code = task.learned or {}, description.startswith("lambda ")
    return render(
        "model_card.md",
        _metadata(checkpoint, title, dataset),
        title=plain(title),
        source=source,
        # The table of a machine that was found is beside the recipe, or in the repository.
        retrained=source if learned and (repo_id or shipped) else RECIPE_FILE,
        # With a capital at its beginning, unless that is code, and without a full stop.
        description=(description[:1] if is_code else description[:1].upper()) + description[1:].rstrip("."),
        ideas=family_card(task).ideas(task, config),
        drawing=family_card(task).draw(task, config),
        rules=COUPLING_RULES,
        pair_maps=PAIR_MAPS,
        count=count,
        snippet=snippet(task, source),
        answer=checkpoint.answer(task.example_question) if shipped else "",
        shipped=shipped,
        checkpoint=checkpoint,
        tables=_size_tables,
        is_sentence=_says_all_in_one_row,
        listed=_listed,
        plot=PLOT_FILE,
        best_folder=BEST_FOLDER,
        trained_on=TRAINED_ON,
        given_up=read_given_up(folder),
        learned={name: plain(text) for name, text in learned.items()},
        machine_proved=_proved_of_machine(task) if learned else "",
        code=learned.get(CODE, "").replace("```", "` ` `"),
        raw_text=describe_response(task) if learned else "",
        recipe_file=RECIPE_FILE if checkpoint.recipe else None,
        format=format_fields(task),
        verifier=VERIFIER.name if (folder / VERIFIER.name).is_file() else None,
        versions=f"longhand {__version__}, transformers {transformers.__version__} and torch {torch.__version__}",
    )


def _proved_of_machine(task: Task) -> str:
    """What is proved of a machine that was found, derived from its table: the words of the folder prove nothing."""
    from longhand.data.learning.proof import proved_of

    return proved_of(task)


def render(template: str, data: CardData, **values: object) -> str:
    """A card from its template, with its metadata and the citations of this package and of the papers."""
    return (
        ENVIRONMENT.get_template(template).render(card_data=data.to_yaml(), work=read_citation(), **values).rstrip() + "\n"
    )


def shown_folder(folder: Path) -> str:
    """The folder as a card names it, for code that runs where it was written; no path of this machine is shown."""
    return folder.name if folder.is_absolute() or ".." in folder.parts else folder.as_posix()


def _metadata(checkpoint: Checkpoint, title: str, dataset: str | None) -> ModelCardData:
    results, task, config = eval_results(checkpoint), checkpoint.task, checkpoint.model.config
    widget = [{"example_title": task.name, "text": family_card(task).ask(task)[0]}] if task.answers_questions else None
    # The Hub's word for repositories with code that the Auto classes run.
    code = ["custom_code"] if getattr(config, "auto_map", None) else []
    return ModelCardData(
        # ISO 639's code for content in no language.
        language="zxx",
        license=LICENSE,
        library_name="transformers",
        pipeline_tag=task.family.pipeline,
        tags=[TAG, kind_tag("model"), config.model_type, *SUBJECTS, *family_card(task).ideas(task, config), *code],
        widget=widget,
        base_model=checkpoint.recipe.get("base_model"),
        datasets=[dataset] if dataset else None,
        metrics=[MAIN_METRIC],
        model_name=title if results else None,
        eval_results=results or None,
    )


def eval_results(checkpoint: Checkpoint) -> list[EvalResult]:
    """The last checkpoint's exact match at each size, for the metadata's `model-index`; the card's table has more.

    The dataset that they name is the generated task: problems are drawn, and are no rows of a dataset on the Hub.
    """
    task = checkpoint.task
    results = []
    for row in checkpoint.rows:
        result = EvalResult(
            task_type=task.family.pipeline,
            task_name=task.name,
            dataset_type=f"longhand-{row['task']}".replace("_", "-"),
            dataset_name=row["task"],
            dataset_split="test",
            metric_type=MAIN_METRIC,
            metric_name=f"exact match, length {describe_length(row)}",
            metric_value=row[MAIN_METRIC],
        )
        results.append(result)
    return results


def _size_tables(rows: list[Row], task: Task) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """For each part of the task that was measured, its name and the columns of a table with a line for each size."""
    for part in task.parts:
        if part_rows := sorted(
            (row for row in rows if row["task"] == part.name), key=lambda row: (row["length"], row["length_b"])
        ):
            columns = {_size_name(part_rows, part): list(map(describe_length, part_rows)), **accuracy_columns(part_rows)}
            if any("worst_tried" in row for row in part_rows):
                columns["worst problem"] = [plain(_worst_found(row)) for row in part_rows]
            yield part.name, _join_alike({**columns, "problems": [f"{row['num_samples']:,}" for row in part_rows]})


def _join_alike(columns: dict[str, list[str]]) -> dict[str, list[str]]:
    """The columns of a table in which rows that differ in their size alone, the first column, are one row."""
    (size_name, sizes), *measured = columns.items()
    alike: dict[tuple[str, ...], list[str]] = {}
    for size, cells in zip(sizes, zip(*(values for _, values in measured), strict=True), strict=True):
        alike.setdefault(cells, []).append(size)
    joined = {name: list(values) for (name, _), values in zip(measured, zip(*alike, strict=True), strict=True)}
    return {size_name: [", ".join(group) for group in alike.values()], **joined}


def _says_all_in_one_row(columns: dict[str, list[str]]) -> bool:
    """Whether a table is one row of several sizes, so that a sentence says it all."""
    sizes, *_ = columns.values()
    return len(sizes) == 1 and ", " in sizes[0]


def _worst_found(row: Row) -> str:
    """`describe_worst` of a row that was read from a folder: its proof was not made here, so the card does not repeat it."""
    return "none found" if worst_verdict(row) == "proved" else describe_worst(row)


def _listed(rows: list[Row], name: str) -> str:
    """All values of a field."""
    return plain(", ".join(dict.fromkeys(str(row.get(name, f"{name} not recorded")) for row in rows)))


def _size_name(rows: list[Row], task: Task) -> str:
    """Name of the column of sizes: one name if both sizes of every row agree."""
    if any(row["length"] != row["length_b"] for row in rows):
        return ", ".join(task.size_names)
    return task.equal_size_name()
