"""Generated datasets on the Hub: their Parquet files and their cards."""

import re
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Unpack

from datasets import DatasetInfo, SplitDict, SplitInfo
from datasets.info import DatasetInfosDict
from huggingface_hub import DatasetCard, DatasetCardData

from longhand.data import SPLITS, Task, build_task, load_task_dataset
from longhand.hub_cards.evaluation.results import Row
from longhand.hub_cards.publishing.cards import CARD_FILE, LICENSE, SUBJECTS, citations, format_fields
from longhand.hub_cards.publishing.commits import TAG, Files, Push, kind_tag
from longhand.hub_cards.publishing.examples import TEMPLATES, by_configuration, family_card
from longhand.hub_cards.publishing.publications import Publication, PushOptions, publish

DATASET_FILE = rf"[^/]+/({'|'.join(SPLITS)})-\d{{5}}-of-\d{{5}}\.parquet"
"""Paths of a dataset's files, as a regular expression."""

ROWS_PER_FILE = 500_000
MOST_FILES = 10_000
"""A split has more rows in a file rather than more files: the Hub advises against more in one folder."""

FEWEST_FILES, FEWEST_ROWS = 8, 1000
"""A split has this many files, so that several nodes read different ones, if each then has this many rows."""


@dataclass(frozen=True)
class GeneratedDataset:
    """What a pushed dataset is made of. The same arguments give the same files.

    Attributes:
        task: name of the task.
        configurations: arguments of `load_task_dataset` by the configuration's name; the first is the default one.
        num_samples: examples of each split, in configurations that name none of their own.
        seed: seed of all problems.

    Raises:
        ValueError: a name, task, argument or number is not legal. Nothing is generated.
    """

    task: str
    configurations: dict[str, dict[str, Any]]
    num_samples: dict[str, int]
    seed: int = 0

    def __post_init__(self):
        if not self.configurations:
            raise ValueError("configurations must name at least one, got none")
        for name in self.configurations:
            # The name becomes a folder beside the card. It must not be a path that leads elsewhere.
            if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name, re.ASCII) or name == CARD_FILE:
                raise ValueError(
                    "a configuration's name must be of letters, digits, `.`, `_` and `-`, begin with a letter or digit, and "
                    f"not be {CARD_FILE}, got {name!r}"
                )
            self._load(name, streaming=True)

    @property
    def task_formats(self) -> dict[str, Task]:
        """The task in the format of every configuration: all arguments except four are fields of the format."""
        others = ("min_length", "max_length", "messages", "num_samples")
        fields = {
            name: {field: value for field, value in arguments.items() if field not in others}
            for name, arguments in self.configurations.items()
        }
        return {name: build_task(self.task, **own) for name, own in fields.items()}

    def rows(self, configuration: str) -> dict[str, int]:
        """Rows of each split of a configuration."""
        return self.configurations[configuration].get("num_samples", self.num_samples)

    def make(self, place: Path, num_proc: int | None = None) -> dict[str, DatasetInfo]:
        """Write all files into a folder.

        Args:
            num_proc: number of processes that make rows.

        Returns:
            The types of the columns and the sizes of the splits of every configuration, by its name.
        """
        infos = {}
        for name in self.configurations:
            (place / name).mkdir()
            sizes = SplitDict()
            with TemporaryDirectory(dir=place) as cache:
                made = self._load(name, cache_dir=cache, num_proc=num_proc)
                for split, rows in made.items():
                    sizes.add(SplitInfo(split, rows.data.nbytes, len(rows)))
                    most = min(MOST_FILES, -(-len(rows) // ROWS_PER_FILE))
                    count = max(most, min(FEWEST_FILES, len(rows) // FEWEST_ROWS))
                    for part in range(count):
                        file = place / name / f"{split}-{part:05d}-of-{count:05d}.parquet"
                        rows.shard(count, part, contiguous=True).to_parquet(file)
            infos[name] = DatasetInfo(
                features=rows.features,
                splits=sizes,
                download_size=sum(file.stat().st_size for file in (place / name).iterdir()),
                dataset_size=sum(split.num_bytes for split in sizes.values()),
            )
        return infos

    def _load(self, configuration: str, **options: Any) -> Any:
        options = {"num_samples": self.num_samples, "seed": self.seed, **options, **self.configurations[configuration]}
        return load_task_dataset(self.task, split=None, **options)


def is_dataset_file(path: str) -> bool:
    """Whether a path in a repository is written by a push of a dataset."""
    return path == CARD_FILE or re.fullmatch(DATASET_FILE, path, re.ASCII) is not None


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


def render_dataset_card(dataset: GeneratedDataset, repo_id: str, infos: dict[str, DatasetInfo]) -> str:
    """The card of a generated dataset.

    Args:
        infos: the types of the columns and the sizes of the splits of every configuration, by its name.
    """
    columns = {name: info.features for name, info in infos.items()}
    tasks, configurations = dataset.task_formats, dataset.configurations
    counts = {name: dataset.rows(name) for name in configurations}
    (default, arguments), *_ = configurations.items()
    first = tasks[default]
    family = family_card(first)
    data = DatasetCardData(
        license=LICENSE,
        task_categories=[first.family.pipeline],
        tags=[TAG, kind_tag("dataset"), *SUBJECTS, *family.ideas(first), "synthetic"],
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
    split, count = next(iter(counts[default].items()))
    fixed = {name: value for name, value in arguments.items() if name != "num_samples"}
    given = "".join(f", {name}={value!r}" for name, value in {**fixed, "seed": dataset.seed}.items())
    card = DatasetCard.from_template(
        data,
        template_path=str(TEMPLATES / "dataset_card.md"),
        title=repo_id.partition("/")[2],
        repo_id=repo_id,
        task=first,
        seed=dataset.seed,
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
        call=f'load_task_dataset("{dataset.task}", split="{split}", num_samples={count}{given})',
        citation=citations(),
    )
    return str(card).rstrip() + "\n"


def _size_category(count: int) -> str:
    """The Hub's category for a number of examples."""
    bounds = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B")
    index = len(str(count)) - 4
    return "n<1K" if index < 0 else f"{bounds[index]}<n<{bounds[index + 1]}"


def push_dataset(
    task: str,
    repo_id: str,
    configurations: dict[str, dict[str, Any]],
    *,
    num_samples: dict[str, int],
    seed: int = 0,
    num_proc: int | None = None,
    **options: Unpack[PushOptions],
) -> Push:
    """Generate a dataset and push it. Nothing is generated if the Hub would not accept it.

    Args:
        task: name of the task.
        repo_id: `user/name`; made if it does not exist.
        configurations: arguments of `load_task_dataset` by the configuration's name; the first is the default one.
        num_samples: examples of each split, in configurations that name none of their own.
        num_proc: number of processes that make rows.
        options: see `PushOptions`.

    Raises:
        ValueError: a name, task, argument or number is not legal.
        CannotPush: see `push_model`.
    """
    dataset = GeneratedDataset(task, configurations, num_samples, seed)
    return publish(dataset_publication(dataset, repo_id, num_proc), **options)


def dataset_publication(dataset: GeneratedDataset, repo_id: str, num_proc: int | None = None) -> Publication:
    """A generated dataset for a repository on the Hub. Nothing is generated yet.

    Args:
        num_proc: number of processes that make rows.

    Raises:
        ValueError: the repository's name is not legal.
    """

    def make_files(place: Path, rows: list[Row]) -> Files:
        card = render_dataset_card(dataset, repo_id, dataset.make(place, num_proc)).encode()
        return {file.relative_to(place).as_posix(): file for file in place.glob("*/*.parquet")} | {CARD_FILE: card}

    name = f"{dataset.task}, seed {dataset.seed}"
    return Publication(repo_id, "dataset", "dataset", name, is_dataset_file, make_files)
