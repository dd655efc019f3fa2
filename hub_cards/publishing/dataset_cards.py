"""Cards of generated datasets: what each configuration holds, and the call that makes it again."""

from typing import Any

from datasets import DatasetInfo
from datasets.info import DatasetInfosDict
from huggingface_hub import DatasetCard, DatasetCardData

from longhand.data import Task, build_task
from longhand.hub_cards.publishing.cards import LICENSE, citations
from longhand.hub_cards.publishing.commits import TAG
from longhand.hub_cards.publishing.families import TEMPLATES, family_card
from longhand.hub_cards.publishing.wording import by_configuration, format_fields

COLUMNS = {
    "input_ids": "the tokens of the whole problem, with its answer, without padding",
    "labels": "what a model learns at these tokens, -100 where nothing",
    "prompt": "the text that a model is given",
    "completion": "the text that a model writes, in its own format, without the end token",
    "messages": "prompt and completion as a conversation",
    "answer": "the answer as a person writes it; no model writes it",
    "operand_lengths": "the size of each operand",
    "query_length": "tokens of the prompt, with the first `$`",
    "coupled_position_ids": "position ids; models derive them, so training needs no such column",
    "task": "which of the tasks the problem is of",
    "longest_cascade": "most columns that one carry passes through",
}
"""What a column holds; those of several levels of position ids have their number at the end."""


def render_dataset_card(
    task: str,
    repo_id: str,
    configurations: dict[str, dict[str, Any]],
    num_samples: dict[str, int],
    infos: dict[str, DatasetInfo],
    seed: int,
) -> str:
    """The card of a generated dataset.

    Args:
        configurations: arguments of `load_task_dataset` by the configuration's name; the first is the default one.
        num_samples: examples of each split, in configurations that name none of their own.
        infos: the types of a configuration's columns and the sizes of its splits, by its name.
    """
    columns = {name: info.features for name, info in infos.items()}
    tasks = {name: _task_of(task, arguments) for name, arguments in configurations.items()}
    counts = {name: arguments.get("num_samples", num_samples) for name, arguments in configurations.items()}
    (default, arguments), *_ = configurations.items()
    first = tasks[default]
    family = family_card(first)
    data = DatasetCardData(
        license=LICENSE,
        task_categories=[first.family.pipeline],
        tags=[TAG, "arithmetic", "length-generalization", *family.ideas(first), "synthetic"],
        size_categories=[_size_category(sum(sum(own.values()) for own in counts.values()))],
        configs=[
            {
                "config_name": name,
                "data_files": [{"split": split, "path": f"{name}/{split}-*.parquet"} for split in counts[name]],
                **({"default": True} if name == default else {}),
            }
            for name in configurations
        ],
    )
    DatasetInfosDict(infos).to_dataset_card_data(data)
    fixed = {name: value for name, value in arguments.items() if name != "num_samples"}
    given = "".join(f", {name}={value!r}" for name, value in {**fixed, "seed": seed}.items())
    split, count = next(iter(counts[default].items()))
    card = DatasetCard.from_template(
        data,
        template_path=str(TEMPLATES / "dataset_card.md"),
        title=repo_id.partition("/")[2],
        repo_id=repo_id,
        task=first,
        seed=seed,
        counts=counts,
        splits=list(dict.fromkeys(split for own in counts.values() for split in own)),
        configurations=configurations,
        tasks=tasks,
        format_fields=format_fields,
        columns={
            column: by_configuration({name: f"`{own[column]}`" for name, own in columns.items() if column in own}, columns)
            for column in dict.fromkeys(column for own in columns.values() for column in own)
        },
        meanings=COLUMNS,
        split=split,
        added_columns=family.dataset_columns(first),
        note=family.dataset_note(tasks),
        drawing=family.draw(first),
        call=f'load_task_dataset("{task}", split="{split}", num_samples={count}{given})',
        citation=citations(),
    )
    return str(card).rstrip() + "\n"


def _task_of(name: str, arguments: dict[str, Any]) -> Task:
    """The task in a configuration's format. All arguments of a configuration except four are fields of the format."""
    others = ("min_length", "max_length", "messages", "num_samples")
    return build_task(name, **{field: value for field, value in arguments.items() if field not in others})


def _size_category(count: int) -> str:
    """The Hub's category for a number of examples."""
    bounds = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T")
    index = len(str(count)) - 4
    if index < 0:
        return "n<1K"
    return f"{bounds[index]}<n<{bounds[index + 1]}" if index + 1 < len(bounds) else "n>1T"
