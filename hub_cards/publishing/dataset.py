"""Generated datasets on the Hub: their Parquet files, their cards, and the shards that several machines make.

Each machine pushes one shard, its part of the files, and the last step publishes them all. Shards wait in a branch that is
named after all arguments, so shards of other arguments never meet there. The branch that users read changes once, when every
file is there.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Unpack

from datasets import DatasetInfo, SplitDict, SplitInfo
from datasets.info import DatasetInfosDict
from huggingface_hub import CommitOperationCopy, DatasetCard, DatasetCardData

from longhand.data import SPLITS, TASKS, Task, build_task, load_task_dataset
from longhand.data.builder import VERSION
from longhand.data.checks import check_integer
from longhand.data.plugins import plugin_hashes
from longhand.hub_cards.publishing.cards import CARD_FILE, LICENSE, SUBJECTS, citations, format_fields
from longhand.hub_cards.publishing.commits import (
    TAG,
    CannotPush,
    Files,
    Push,
    Repository,
    find_head,
    kind_tag,
    refusing,
)
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
class DatasetFile:
    """A file before it is made: rows `first` to `end`, without the latter, of a split of a configuration."""

    path: str
    configuration: str
    split: str
    first: int
    end: int


@dataclass(frozen=True)
class GeneratedDataset:
    """What a pushed dataset is made of. The same arguments give the same files, whichever are made together.

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
    def name(self) -> str:
        """What it is called in titles of commits."""
        return f"{self.task}, seed {self.seed}"

    def rows(self, configuration: str) -> dict[str, int]:
        """Rows of each split of a configuration."""
        return self.configurations[configuration].get("num_samples", self.num_samples)

    def files(self) -> list[DatasetFile]:
        """All files of the dataset."""
        files = []
        for name in self.configurations:
            for split, rows in self.rows(name).items():
                most = min(MOST_FILES, -(-rows // ROWS_PER_FILE))
                count = max(most, min(FEWEST_FILES, rows // FEWEST_ROWS))
                # The first files have one row more each, if rows are left over.
                ends = [file * (rows // count) + min(file, rows % count) for file in range(count + 1)]
                paths = [f"{name}/{split}-{file:05d}-of-{count:05d}.parquet" for file in range(count)]
                files += [
                    DatasetFile(*part) for part in zip(paths, [name] * count, [split] * count, ends, ends[1:], strict=False)
                ]
        return files

    def make(self, files: Iterable[DatasetFile], place: Path, num_proc: int | None = None) -> dict[str, Path]:
        """Write files into a folder, and make no other rows than theirs.

        Args:
            files: of one split one after the other, as `files` lists them.
            num_proc: number of processes that make shards.

        Returns:
            Where they are, by path.
        """
        made: dict[str, Path] = {}
        for (name, split), group in groupby(files, lambda file: (file.configuration, file.split)):
            own = list(group)
            first, end = own[0].first, own[-1].end
            with TemporaryDirectory(dir=place) as cache:
                rows = self._load(name, rows={split: (first, end)}, cache_dir=cache, num_proc=num_proc)[split]
                for file in own:
                    made[file.path] = place / file.path
                    made[file.path].parent.mkdir(parents=True, exist_ok=True)
                    rows.select(range(file.first - first, file.end - first)).to_parquet(made[file.path])
        return made

    def features(self, configuration: str) -> Any:
        """The types of a configuration's columns."""
        return next(iter(self._load(configuration, streaming=True).values())).features

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


def render_dataset_card(dataset: GeneratedDataset, repo_id: str, sizes: Mapping[str, int]) -> str:
    """The card of a generated dataset.

    Args:
        sizes: bytes of every file, by its path.
    """
    configurations = dataset.configurations
    features = {name: dataset.features(name) for name in configurations}
    tasks = {name: _task_of(dataset.task, arguments) for name, arguments in configurations.items()}
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
    infos = DatasetInfosDict()
    for name, rows in counts.items():
        size = sum(sizes[file.path] for file in dataset.files() if file.configuration == name)
        splits = SplitDict({split: SplitInfo(split, num_examples=count) for split, count in rows.items()})
        infos[name] = DatasetInfo(features=features[name], splits=splits, download_size=size)
    infos.to_dataset_card_data(data)
    for info in data["dataset_info"] if len(infos) > 1 else [data["dataset_info"]]:
        for split in info["splits"]:
            # The bytes of its rows in memory, which are not counted.
            del split["num_bytes"]
    fixed = {name: value for name, value in arguments.items() if name != "num_samples"}
    given = "".join(f", {name}={value!r}" for name, value in {**fixed, "seed": dataset.seed}.items())
    split, count = next(iter(counts[default].items()))
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
            column: by_configuration({name: f"`{own[column]}`" for name, own in features.items() if column in own}, features)
            for column in dict.fromkeys(column for own in features.values() for column in own)
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


def _task_of(name: str, arguments: dict[str, Any]) -> Task:
    """The task in a configuration's format. All arguments of a configuration except four are fields of the format."""
    others = ("min_length", "max_length", "messages", "num_samples")
    return build_task(name, **{field: value for field, value in arguments.items() if field not in others})


def _size_category(count: int) -> str:
    """The Hub's category for a number of examples."""
    bounds = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T")
    categories = ["n<1K", *(f"{least}<n<{most}" for least, most in pairwise(bounds)), "n>1T"]
    return categories[min(max(len(str(count)) - 3, 0), len(bounds))]


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

    def make_files(place: Path, _: None) -> Files:
        made = dataset.make(dataset.files(), place, num_proc)
        sizes = {path: file.stat().st_size for path, file in made.items()}
        return {**made, CARD_FILE: render_dataset_card(dataset, repo_id, sizes).encode()}

    return Publication(repo_id, "dataset", "dataset", dataset.name, is_dataset_file, make_files)


def shard_branch(dataset: GeneratedDataset) -> str:
    """The branch where the shards of a dataset wait: the same arguments, and code of a plugin, give the same one."""
    made_of = [
        VERSION,
        dataset.task,
        dataset.configurations,
        dataset.num_samples,
        dataset.seed,
        *map(asdict, dataset.files()),
        plugin_hashes(TASKS[dataset.task]),
    ]
    return f"shards-{hashlib.sha256(json.dumps(made_of, default=int).encode()).hexdigest()[:16]}"


def shard_files(dataset: GeneratedDataset, shard: int, num_shards: int) -> list[DatasetFile]:
    """The files of a shard: some of the dataset's, one after the other, in shares that differ by one file at most.

    Raises:
        ValueError: `shard` or `num_shards` is not legal.
    """
    files = dataset.files()
    check_integer("num_shards", num_shards, 1, len(files))
    check_integer("shard", shard, 0, num_shards - 1)
    return files[shard * len(files) // num_shards : (shard + 1) * len(files) // num_shards]


def shard_publication(
    dataset: GeneratedDataset, repo_id: str, shard: int, num_shards: int, num_proc: int | None = None
) -> Publication:
    """One shard of a dataset for `shard_branch`. A shard that is there is not made again. Nothing is generated yet.

    Raises:
        ValueError: a name or number is not legal.
    """
    own = shard_files(dataset, shard, num_shards)

    def make_files(place: Path, waiting: dict[str, Any] | None) -> Files:
        if all(file.path in (waiting or {}) for file in own):
            return {}
        return {f"{WAITING}{path}": file for path, file in dataset.make(own, place, num_proc).items()}

    return Publication(
        repo_id,
        "dataset",
        "dataset",
        f"{dataset.name}, shard {shard} of {num_shards}",
        is_ours=lambda path: False,
        make_files=make_files,
        look=lambda repository, _: _waiting_files(dataset, repository),
        branch=shard_branch(dataset),
    )


def joined_publication(dataset: GeneratedDataset, repo_id: str, num_shards: int) -> Publication:
    """The files of all shards, with the card. Nothing is made or sent again, and the branch where they waited stays.

    Raises:
        ValueError: a name or number is not legal. Making the files raises CannotPush if a shard is not there.
    """
    shards = [shard_files(dataset, shard, num_shards) for shard in range(max(1, num_shards))]

    def make_files(place: Path, waiting: dict[str, tuple[CommitOperationCopy, int]] | None) -> Files:
        if waiting is None:
            return {}
        if missing := [shard for shard, own in enumerate(shards) if any(file.path not in waiting for file in own)]:
            raise CannotPush(
                f"nothing was published: {repo_id} lacks {len(missing)} of {num_shards} shards of this dataset "
                f"({', '.join(map(str, missing[:20]))}{', ...' * (len(missing) > 20)}); push each of them by --shard, with "
                "all other options as they are here, and repeat this command"
            )
        card = render_dataset_card(dataset, repo_id, {path: size for path, (_, size) in waiting.items()})
        return {**{path: copied for path, (copied, _) in waiting.items()}, CARD_FILE: card.encode()}

    note = f"{len(dataset.files())} files of {num_shards} shards and the card are published once every shard is there"
    looked: dict[str, Any] = {"look": lambda repository, _: _waiting_files(dataset, repository), "notes": (note,)}
    return replace(dataset_publication(dataset, repo_id), make_files=make_files, **looked)


WAITING = "shards/"
"""Where shards wait in their branch. The branch begins with the files of the main branch, which may hold other rows."""


def _waiting_files(dataset: GeneratedDataset, repository: Repository) -> dict[str, tuple[CommitOperationCopy, int]]:
    """What copies the files that wait in the branch of a dataset into the repository, and their bytes, by path."""
    branch = replace(repository, revision=shard_branch(dataset))
    if (sha := find_head(branch)) is None:
        return {}
    with refusing(repository.name):
        siblings = branch.info(sha, files_metadata=True).siblings or ()
    paths = {file.rfilename.removeprefix(WAITING): file for file in siblings if file.rfilename.startswith(WAITING)}
    return {path: (CommitOperationCopy(file.rfilename, path, sha), file.size or 0) for path, file in paths.items()}
