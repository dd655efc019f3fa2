"""Generated datasets on the Hub: their Parquet files, their cards, and the shards that several machines make.

Each machine pushes one shard, its part of the files, and the last step publishes them all. Shards wait in a branch that is
named after all arguments, so shards of other arguments never meet there. The branch that users read changes once, when every
file is there.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Unpack

from datasets import DatasetInfo, SplitDict, SplitInfo
from datasets.info import DatasetInfosDict
from huggingface_hub import DatasetCard, DatasetCardData

from longhand.data import SPLITS, TASKS, Task, build_task, load_task_dataset
from longhand.data.builder import VERSION
from longhand.data.checks import check_integer
from longhand.data.plugins import plugin_hashes
from longhand.hub_cards.evaluation.results import Row
from longhand.hub_cards.hub import check_repo_id
from longhand.hub_cards.publishing.cards import CARD_FILE, LICENSE, SUBJECTS, citations, format_fields
from longhand.hub_cards.publishing.commits import (
    TAG,
    CannotPush,
    Content,
    Files,
    HeldFile,
    Push,
    Repository,
    check_push,
    commit_files,
    downloaded,
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
class Size:
    """Bytes of a file, and of its rows in memory."""

    file: int
    rows: int


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

    def make(self, files: Iterable[DatasetFile], place: Path, num_proc: int | None = None) -> dict[str, Size]:
        """Write files into a folder, and make no other rows than theirs.

        Args:
            files: of one split one after the other, as `files` lists them.
            num_proc: number of processes that make shards.

        Returns:
            Their sizes by path.
        """
        sizes = {}
        for (name, split), group in groupby(files, lambda file: (file.configuration, file.split)):
            own = list(group)
            first, end = own[0].first, own[-1].end
            with TemporaryDirectory(dir=place) as cache:
                made = self._load(name, rows={split: (first, end)}, cache_dir=cache, num_proc=num_proc)[split]
                for file in own:
                    rows = made.select(range(file.first - first, file.end - first))
                    (place / file.path).parent.mkdir(parents=True, exist_ok=True)
                    rows.to_parquet(place / file.path)
                    sizes[file.path] = Size((place / file.path).stat().st_size, rows.data.nbytes)
        return sizes

    def card(self, repo_id: str, sizes: Mapping[str, Size]) -> bytes:
        """The card, from the sizes of all files."""
        infos = {}
        for name in self.configurations:
            own = [file for file in self.files() if file.configuration == name]
            splits = SplitDict()
            for split, count in self.rows(name).items():
                splits.add(SplitInfo(split, sum(sizes[file.path].rows for file in own if file.split == split), count))
            infos[name] = DatasetInfo(
                features=next(iter(self._load(name, streaming=True).values())).features,
                splits=splits,
                download_size=sum(sizes[file.path].file for file in own),
                dataset_size=sum(sizes[file.path].rows for file in own),
            )
        return render_dataset_card(self.task, repo_id, self.configurations, self.num_samples, infos, self.seed).encode()

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
    check_repo_id(repo_id)

    def make_files(place: Path, rows: list[Row]) -> Files:
        sizes = dataset.make(dataset.files(), place, num_proc)
        return {path: place / path for path in sizes} | {CARD_FILE: dataset.card(repo_id, sizes)}

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


def shard_files(files: list[DatasetFile], shard: int, num_shards: int) -> list[DatasetFile]:
    """The files of a shard, from those of the dataset: one after the other, in shares that differ by one file at most.

    Raises:
        ValueError: `shard` or `num_shards` is not legal.
    """
    check_integer("num_shards", num_shards, 1, len(files))
    check_integer("shard", shard, 0, num_shards - 1)
    return files[shard * len(files) // num_shards : (shard + 1) * len(files) // num_shards]


def shard_publication(
    dataset: GeneratedDataset, repo_id: str, shard: int, num_shards: int, num_proc: int | None = None
) -> Publication:
    """One shard of a dataset, with a file that lists sizes and hashes of its files. Nothing is generated yet.

    Raises:
        ValueError: a name or number is not legal.
    """
    check_repo_id(repo_id)
    own, listing = shard_files(dataset.files(), shard, num_shards), f"shard-{shard:05d}-of-{num_shards:05d}.json"

    def make_files(place: Path, rows: list[Row]) -> Files:
        sizes = dataset.make(own, place, num_proc)
        listed = {path: {**asdict(size), "sha256": _sha256(place / path)} for path, size in sizes.items()}
        return {path: place / path for path in sizes} | {listing: json.dumps(listed, indent=1).encode()}

    name = f"{dataset.name}, shard {shard} of {num_shards}"
    return Publication(repo_id, "dataset", "dataset", name, lambda path: False, make_files)


def push_shard(
    dataset: GeneratedDataset,
    repo_id: str,
    shard: int,
    num_shards: int,
    num_proc: int | None = None,
    show: Callable[[Files], None] | None = None,
    **options: Unpack[PushOptions],
) -> Push:
    """Make one shard of a dataset and push it to `shard_branch`, in one commit. A shard that is there is not made again.

    Args:
        num_proc: number of processes that make rows.
        show: called with the files before they are committed.
        options: see `PushOptions`, without `revision`.

    Raises:
        ValueError: a name or number is not legal.
        CannotPush: see `push_model`.
    """
    publication = shard_publication(dataset, repo_id, shard, num_shards, num_proc)
    options["revision"] = shard_branch(dataset)
    repository = publication.repository(**options)
    check_push(repository)
    held = _held_files(dataset, repository)
    own = [held.get(file.path) for file in shard_files(dataset.files(), shard, num_shards)]
    if own[0] and all(own):
        return Push(repository.url, own[0][1].sha, [], [])
    return publish(publication, show, **options)


def join_shards(dataset: GeneratedDataset, repo_id: str, num_shards: int, **options: Unpack[PushOptions]) -> Push:
    """Publish the files of all shards, with the card, in one commit. Nothing is made or sent again.

    The branch where they waited stays, so that the call can be repeated.

    Raises:
        ValueError: a name or number is not legal.
        CannotPush: a shard is not there, or see `push_model`.
    """
    files = dataset.files()
    shards = [shard_files(files, shard, num_shards) for shard in range(max(1, num_shards))]
    publication = dataset_publication(dataset, repo_id)
    repository = publication.repository(**options)
    check_push(repository)
    held = _held_files(dataset, repository)
    if missing := [shard for shard, own in enumerate(shards) if any(file.path not in held for file in own)]:
        raise CannotPush(
            f"nothing was published: {repo_id} lacks {len(missing)} of {num_shards} shards of this dataset "
            f"({', '.join(map(str, missing[:20]))}{', ...' * (len(missing) > 20)}); push each of them by --shard, with all "
            "other options as they are here, and repeat this command"
        )
    content: dict[str, Content] = {file.path: held[file.path][1] for file in files}
    content[CARD_FILE] = dataset.card(repo_id, {file.path: held[file.path][0] for file in files})
    return commit_files(content, repository, options.get("commit_message") or f"Push {dataset.name}", is_dataset_file)


def _held_files(dataset: GeneratedDataset, repository: Repository) -> dict[str, tuple[Size, HeldFile]]:
    """The files that wait in the branch of a dataset, by path."""
    waiting = replace(repository, revision=shard_branch(dataset))
    if (sha := find_head(waiting)) is None:
        return {}
    with refusing(repository.name):
        siblings = waiting.info(sha, files_metadata=True).siblings
    hashes = {file.rfilename: file.lfs.sha256 for file in siblings or () if file.lfs}
    found = {}
    with downloaded(waiting, sha, ["shard-*.json"]) as place:
        for listing in place.glob("*.json"):
            for path, own in json.loads(listing.read_text()).items():
                # The branch began with the files of the main branch, which may have these names and hold other rows.
                if hashes.get(path) == own["sha256"]:
                    found[path] = Size(own["file"], own["rows"]), HeldFile(sha, own["sha256"])
    return found


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
