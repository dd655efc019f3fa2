"""Cards of generated datasets: what each configuration holds, and the call that makes it again."""

from typing import Any

from huggingface_hub import DatasetCard, DatasetCardData

from longhand.data import Task, build_task
from longhand.hub_cards.publishing.cards import LICENSE, citations
from longhand.hub_cards.publishing.commits import TAG
from longhand.hub_cards.publishing.families import TEMPLATES, family_card
from longhand.hub_cards.publishing.wording import by_configuration, format_fields


def render_dataset_card(
    task: str,
    repo_id: str,
    configurations: dict[str, dict[str, Any]],
    num_samples: dict[str, int],
    columns: dict[str, dict[str, Any]],
    seed: int,
) -> str:
    """The card of a generated dataset.

    Args:
        configurations: arguments of `load_task_dataset` by the configuration's name; the first is the default one.
        num_samples: examples of each split.
        columns: the types of a configuration's columns, by its name.
    """
    tasks = {name: _task_of(task, arguments) for name, arguments in configurations.items()}
    (default, arguments), *_ = configurations.items()
    first = tasks[default]
    family = family_card(first)
    data = DatasetCardData(
        license=LICENSE,
        task_categories=[first.family.pipeline],
        tags=[TAG, "arithmetic", "length-generalization", *family.ideas(first), "synthetic"],
        size_categories=[_size_category(sum(num_samples.values()) * len(configurations))],
        configs=[
            {
                "config_name": name,
                "data_files": [{"split": split, "path": f"{name}/{split}-*.parquet"} for split in num_samples],
                **({"default": True} if name == default else {}),
            }
            for name in configurations
        ],
    )
    given = "".join(f", {name}={value!r}" for name, value in {**arguments, "seed": seed}.items())
    split, count = next(iter(num_samples.items()))
    card = DatasetCard.from_template(
        data,
        template_path=str(TEMPLATES / "dataset_card.md"),
        title=repo_id.partition("/")[2],
        repo_id=repo_id,
        task=first,
        seed=seed,
        num_samples=num_samples,
        configurations=configurations,
        tasks=tasks,
        format_fields=format_fields,
        columns={
            column: by_configuration({name: f"`{own[column]}`" for name, own in columns.items() if column in own}, columns)
            for column in dict.fromkeys(column for own in columns.values() for column in own)
        },
        split=split,
        added_columns=family.dataset_columns(first),
        note=family.dataset_note(tasks),
        drawing=family.draw(first),
        call=f'load_task_dataset("{task}", split="{split}", num_samples={count}{given})',
        citation=citations(),
    )
    return str(card).rstrip() + "\n"


def _task_of(name: str, arguments: dict[str, Any]) -> Task:
    """The task in a configuration's format. All arguments of a configuration except the lengths are fields of the format."""
    lengths = ("min_length", "max_length")
    return build_task(name, **{field: value for field, value in arguments.items() if field not in lengths})


def _size_category(count: int) -> str:
    """The Hub's category for a number of examples."""
    bounds = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T")
    index = len(str(count)) - 4
    if index < 0:
        return "n<1K"
    return f"{bounds[index]}<n<{bounds[index + 1]}" if index + 1 < len(bounds) else "n>1T"
