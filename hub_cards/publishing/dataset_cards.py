"""Cards of generated datasets: what each configuration holds, and the call that makes it again."""

from collections.abc import Iterable
from typing import Any

from huggingface_hub import DatasetCard, DatasetCardData

from longhand.data import Task
from longhand.data.builder import build_task
from longhand.data.tasks.encoder_task import EncoderTask
from longhand.hub_cards.publishing.cards import LICENSE, TEMPLATES, citations, ideas_of, is_coupled, pipeline_of
from longhand.hub_cards.publishing.commits import TAG
from longhand.hub_cards.publishing.examples import draw_ids, draw_labels


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
        columns: type of every column, by the configuration's name.
    """
    listed, rules = [], {}
    for name, arguments in configurations.items():
        described = _task_of(task, arguments)
        form = ", ".join(f"{key} {value}" for key, value in described.describe().items() if key != "task")
        lengths = described.describe_lengths(arguments.get("min_length", 1), arguments["max_length"])
        listed.append({"name": name, "format": form, "lengths": lengths})
        if not isinstance(described, EncoderTask):
            rules[name] = f"`{described.coupling}`"
    (default, arguments), *_ = configurations.items()
    first = _task_of(task, arguments)
    data = DatasetCardData(
        license=LICENSE,
        task_categories=[pipeline_of(first)],
        tags=[TAG, "arithmetic", "length-generalization", *ideas_of(first), "synthetic"],
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
        task=task,
        seed=seed,
        num_samples=num_samples,
        configurations=listed,
        columns={
            column: _by_configuration({name: f"`{own[column]}`" for name, own in columns.items() if column in own}, columns)
            for column in dict.fromkeys(column for own in columns.values() for column in own)
        },
        split=split,
        unit=first.sized_problems[1],
        partitioned_digits=first.partitioned_digits,
        is_encoder=isinstance(first, EncoderTask),
        is_coupled=is_coupled(first),
        rules=_by_configuration(rules, configurations),
        drawing=draw_labels(first) if isinstance(first, EncoderTask) else draw_ids(first, first.coupling),
        call=f'load_task_dataset("{task}", split="{split}", num_samples={count}{given})',
        citation=citations(),
    )
    return str(card).rstrip() + "\n"


def _by_configuration(values: dict[str, str], configurations: Iterable[str]) -> str:
    """What holds for all configurations, or each value with the names of those for which it does."""
    if len(set(values.values())) == 1 and values.keys() == set(configurations):
        return next(iter(values.values()))
    groups: dict[str, list[str]] = {}
    for name, value in values.items():
        groups.setdefault(value, []).append(f"`{name}`")
    return "; ".join(f"{value} in {', '.join(names)}" for value, names in groups.items())


def _task_of(name: str, arguments: dict[str, Any]) -> Task:
    """The task with those of a configuration's arguments that are its format."""
    lengths = ("min_length", "max_length")
    return build_task(name, **{field: value for field, value in arguments.items() if field not in lengths})


def _size_category(count: int) -> str:
    bounds = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T")
    index = len(str(count)) - 4
    if index < 0:
        return "n<1K"
    return f"{bounds[index]}<n<{bounds[index + 1]}" if index + 1 < len(bounds) else "n>1T"
