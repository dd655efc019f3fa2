"""Model cards: their metadata and text. Every number is read from the files of the checkpoint's folder."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from longhand import __version__
from longhand.data import Task
from longhand.hub_cards.checkpoints.certificate_file import VERIFIER
from longhand.hub_cards.checkpoints.files import BEST_FOLDER, PLOT_FILE
from longhand.hub_cards.checkpoints.folder import CheckpointFolder, read_checkpoint
from longhand.hub_cards.checkpoints.zoo import is_in_zoo
from longhand.hub_cards.evaluation.results import Row, describe_length, wilson_interval
from longhand.hub_cards.files import write_atomically
from longhand.hub_cards.hub import check_repo_id
from longhand.hub_cards.publishing.commits import TAG
from longhand.hub_cards.publishing.families import TEMPLATES, family_card
from longhand.hub_cards.publishing.privacy import published_recipe, published_recipe_text
from longhand.hub_cards.publishing.wording import format_fields, sentence
from longhand.hub_cards.recipes import RECIPE_FILE

CARD_FILE = "README.md"
CITATION_FILE = Path(__file__).parents[2] / "CITATION.cff"
LICENSE = "apache-2.0"

RESULTS_BLOCK = re.compile(r"<!-- results -->\n.*?<!-- end -->", re.DOTALL)

TRAINED_ON = (
    ("task", "task"),
    ("min_length", "shortest trained length, {unit}s"),
    ("max_length", "longest trained length, {unit}s"),
    ("num_train_samples", "training examples"),
    ("position_sampling", "position ids in training"),
    ("max_steps", "optimizer steps, at most"),
    ("batch_size", "examples per step"),
    ("learning_rate", "largest learning rate"),
    ("muon_learning_rate", "largest learning rate of Muon, for the matrices of layers"),
    ("lr_scheduler_type", "schedule"),
    ("decay_steps", "steps of the schedule"),
    ("seed", "seed of the weights"),
    ("data_seed", "seed of the data"),
)
"""Arguments of a recipe that the card lists, and their meaning."""


def write_card(folder: Path, repo_id: str | None = None, dataset: str | None = None) -> Path:
    """Write the card of a checkpoint's folder into the folder; see `render_model_card`."""
    text = render_model_card(folder, repo_id, dataset)
    write_atomically(folder / CARD_FILE, text)
    return folder / CARD_FILE


def render_model_card(folder: Path, repo_id: str | None = None, dataset: str | None = None) -> str:
    """The card of a checkpoint's folder.

    Args:
        repo_id: repository that the code on the card loads the model from; default: the folder, or its name if its path
            is absolute.
        dataset: Hub id of a dataset of its task, for the metadata.

    Raises:
        ValueError: the folder is no checkpoint or holds files of another one (see `read_checkpoint`); or a name is not
            legal.
    """
    for name in (repo_id, dataset):
        if name is not None:
            check_repo_id(name)
    return render_card(read_checkpoint(folder), repo_id, dataset)


def render_card(checkpoint: CheckpointFolder, repo_id: str | None, dataset: str | None) -> str:
    """The card of a checkpoint whose folder has been read; see `render_model_card`."""
    folder, task, family = checkpoint.folder, checkpoint.task, family_card(checkpoint.task)
    checkpoint = replace(checkpoint, recipe=published_recipe(checkpoint.recipe))
    # An absolute path says where it was made, and helps nobody else.
    source = repo_id or (folder.resolve().name if folder.is_absolute() or ".." in folder.parts else folder.as_posix())
    shipped = repo_id is None and is_in_zoo(folder)
    title = repo_id.partition("/")[2] if repo_id else checkpoint.name
    card = ModelCard.from_template(
        _metadata(checkpoint, title, dataset),
        template_path=str(TEMPLATES / "model_card.md"),
        title=title,
        source=source,
        description=sentence(checkpoint.recipe.get("description") or f"A model of the task {task.name}"),
        introduction=family.introduction(task, checkpoint.config, checkpoint.parameters),
        snippet=family.snippet(task, source, shipped) if task.answers_questions else None,
        shipped=shipped,
        usage_note=family.usage_note.format(source=source),
        results=results_block(checkpoint),
        checkpoint=checkpoint,
        trained_on=TRAINED_ON,
        recipe_file=published_recipe_text(folder / RECIPE_FILE).strip() if checkpoint.recipe else None,
        format=format_fields(task),
        limits=family.limits(checkpoint.config),
        verifier=VERIFIER.name if (folder / VERIFIER.name).is_file() else None,
        dataset=dataset,
        versions=f"longhand {__version__}, transformers {transformers.__version__} and torch {torch.__version__}",
        address=_citation().get("repository-code"),
        citation=citations(),
    )
    return str(card).rstrip() + "\n"


def _metadata(checkpoint: CheckpointFolder, title: str, dataset: str | None) -> ModelCardData:
    results, task, config = eval_results(checkpoint, dataset), checkpoint.task, checkpoint.config
    family = family_card(task)
    widget = [{"example_title": task.name, "text": family.ask(task)[0]}] if task.answers_questions else None
    # The Hub's word for repositories with code that the Auto classes run.
    code = ["custom_code"] if getattr(config, "auto_map", None) else []
    return ModelCardData(
        # ISO 639's code of what is in no language.
        language="zxx",
        license=LICENSE,
        library_name="transformers",
        pipeline_tag=task.family.pipeline,
        tags=[TAG, config.model_type, "arithmetic", "length-generalization", *family.ideas(task, config), *code],
        widget=widget,
        base_model=checkpoint.recipe.get("base_model"),
        datasets=[dataset] if dataset else None,
        metrics=["exact_match"],
        model_name=title if results else None,
        eval_results=results or None,
    )


def eval_results(checkpoint: CheckpointFolder, dataset: str | None) -> list[EvalResult]:
    """The last checkpoint's results for the metadata's `model-index`, with two metrics for each size.

    Args:
        dataset: Hub id of a dataset of its task. The results say that their problems were drawn, not taken from its rows.
            Without one, the dataset that they name is the generated task.
    """
    task = checkpoint.task
    drawn = {"problems": "drawn by longhand, not rows of this dataset"} if dataset else {}
    results = []
    for row in checkpoint.rows:
        size = describe_length(row).replace(", ", "x")
        common: dict[str, Any] = {
            "task_type": task.family.pipeline,
            "task_name": task.name,
            "dataset_type": dataset or f"longhand-{row['task']}".replace("_", "-"),
            "dataset_name": f"{row['task']}, length {describe_length(row)}",
            "dataset_config": f"length_{size}",
            "dataset_split": "test",
            "dataset_args": {name: row[name] for name in ("num_samples", "seed", "decode")} | drawn,
        }
        for metric, name in (("exact_match", "exact match"), ("token_accuracy", "accuracy per token")):
            results.append(EvalResult(metric_type=metric, metric_name=name, metric_value=row[metric], **common))
    return results


def results_block(checkpoint: CheckpointFolder) -> str:
    """The tables of accuracy by length and the plot, between marks that `update_card` looks for."""
    parts = []
    if not checkpoint.rows and not checkpoint.best_rows:
        parts.append("Not evaluated.")
    if checkpoint.rows:
        parts += _size_tables(checkpoint.rows, checkpoint)
        parts.append(f"{_describe_samples(checkpoint.rows, checkpoint.task)} {_describe_sizes(checkpoint)}")
    if checkpoint.spare_best:
        parts.append(f"`{BEST_FOLDER}/` is left out: {checkpoint.spare_best}.")
    elif checkpoint.best_rows:
        parts.append(f"The weights with the best exact match in validation, in `{BEST_FOLDER}/`:")
        parts += _size_tables(checkpoint.best_rows, checkpoint)
        parts.append(_describe_samples(checkpoint.best_rows, checkpoint.task))
    if parts and checkpoint.has_plot:
        parts.append(f"![exact match by length]({PLOT_FILE})")
    body = "\n\n".join(parts)
    return f"<!-- results -->\n{body}\n<!-- end -->"


def _size_tables(rows: list[Row], checkpoint: CheckpointFolder) -> list[str]:
    """A table for each part of the task that was measured, below its name if there are several."""
    tables = []
    for part in checkpoint.task.parts:
        if own := [row for row in rows if row["task"] == part.name]:
            tables += [f"`{part.name}`:"] * (len(checkpoint.task.parts) > 1) + [size_table(own, _size_name(own, part))]
    return tables


def size_table(rows: list[Row], size_name: str) -> str:
    """Markdown table with a line for each size: exact match and its interval, and accuracy per token.

    With a scratchpad, it also has the exact match of the answer alone.
    """
    with_answer = any("answer_match" in row for row in rows)
    header = [size_name, "exact match", "95% interval", *(["answer alone"] if with_answer else []), "per token", "problems"]
    lines = [header, ["---:"] * len(header)]
    for row in sorted(rows, key=lambda row: (row["length"], row["length_b"])):
        low, high = wilson_interval(row["exact_match"] * row["num_samples"], row["num_samples"])
        answer = [f"{row['answer_match']:.4f}" if "answer_match" in row else ""] if with_answer else []
        values = [f"{row['exact_match']:.4f}", f"{low:.4f} to {high:.4f}", *answer, f"{row['token_accuracy']:.6f}"]
        lines.append([describe_length(row), *values, f"{row['num_samples']:,}"])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _describe_samples(rows: list[Row], task: Task) -> str:
    def listed(name: str) -> str:
        return ", ".join(dict.fromkeys(str(row.get(name, f"{name} not recorded")) for row in rows))

    family = family_card(task)
    decoding = f"; decoding {listed('decode').replace('_', ' ')}" if family.decodes else ""
    problems = f"Problems of the test split, seed {listed('seed')}{decoding}; {listed('hardware')}."
    return f"Exact match: {family.exact_match}. {problems}"


def _describe_sizes(checkpoint: CheckpointFolder) -> str:
    sizes = [row["length"] for row in checkpoint.rows]
    tested = f"The model was tested at {len(sizes)} {'size' if len(sizes) == 1 else 'sizes'}"
    tested += f" from {min(sizes):,} to {max(sizes):,}" if len(set(sizes)) > 1 else f", {sizes[0]:,}"
    certified = checkpoint.certificate is not None and checkpoint.certificate["certified"]
    return f"{tested}. Other sizes {'rest on the certificate alone' if certified else 'were not measured'}."


def _size_name(rows: list[Row], task: Task) -> str:
    """What the sizes of results are: one name if every row has one size."""
    if any(row["length"] != row["length_b"] for row in rows):
        return ", ".join(task.size_names)
    return family_card(task).size_name(task.size_names)


def _citation() -> dict[str, Any]:
    """CITATION.cff of this package."""
    return yaml.safe_load(CITATION_FILE.read_text(encoding="utf-8"))


def citations() -> str:
    """BibTeX of this package and of the papers that it implements, from CITATION.cff."""
    own = _citation()
    entries = []
    for work in (*own["references"], own):
        people = [
            f"{person['family-names']}, {person['given-names']}" if "given-names" in person else f"{{{person['name']}}}"
            for person in work["authors"]
        ]
        key = people[0].partition(",")[0].lower() if "year" in work else "longhand"
        kind = {"conference-paper": "inproceedings", "article": "article"}.get(work["type"], "software")
        container = {"booktitle": work.get("collection-title"), "journal": work.get("journal")}
        values = {"title": f"{{{work['title']}}}", "author": " and ".join(people), **container}
        values |= {"year": work.get("year"), "version": work.get("version")}
        listed = ",\n".join(f"  {name} = {{{value}}}" for name, value in values.items() if value is not None)
        entries.append(f"@{kind}{{{key}{work.get('year', '')},\n{listed}\n}}")
    return "\n\n".join(entries)
