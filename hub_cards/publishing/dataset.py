"""Generated datasets on the Hub: their Parquet files, their cards, and the shards that several machines make.

Each machine pushes one shard, its part of the files, and the last step publishes them all. Shards wait in a branch that is
named after all arguments, so shards of other arguments never meet there. The branch that users read changes once, when every
file is there.
"""

# Used by: hub_cards, hub_cards/research. Changed freely.

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from inspect import signature
from itertools import groupby, pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Unpack

from datasets import DatasetInfo, Features, SplitDict, SplitInfo
from datasets.info import DatasetInfosDict
from huggingface_hub import CommitOperationCopy, DatasetCardData
from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

from longhand.data.builder import VERSION, load_task_dataset
from longhand.data.splits import SPLITS
from longhand.data.tasks.plugins import plugin_hashes
from longhand.data.tasks.registry import build_task, build_tokenizer, find_task
from longhand.data.tasks.task import Task
from longhand.hub_cards.checkpoints.checkpoint import CARD_FILE
from longhand.hub_cards.commands import write_atomically
from longhand.hub_cards.publishing.cards import LICENSE, SUBJECTS, TAG, format_fields, kind_tag, render, shown_folder
from longhand.hub_cards.publishing.commits import CannotPush, Files, Push, Repository, refusing
from longhand.hub_cards.publishing.examples import EXAMPLE_LENGTH, about, example_row, family_card
from longhand.hub_cards.publishing.publications import Publication, PushOptions, new_folder, publish
from longhand.modeling.checks import check_integer

TOKENIZER_FOLDER = "tokenizer"

DATASET_FILES = (CARD_FILE, f"{TOKENIZER_FOLDER}/*", *(f"*/{split}-?????-of-?????.parquet" for split in SPLITS))
"""The paths that pushes of datasets write."""

ROWS_PER_FILE = 500_000
PREVIEWED_ROWS = 20_000
"""A preview makes the files of a push if they have no more rows than this."""

FEWEST_FILES, FEWEST_ROWS = 8, 10_000
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
class MadeFile:
    """A file that is made.

    Attributes:
        file: where it is.
        size: its bytes.
        in_memory: bytes of its rows in memory.
    """

    file: Path
    size: int
    in_memory: int


READ_FIRST = ("prompt", "answer", "messages", "completion")
"""The columns that a person reads, in this order; the Hub shows the first columns of a row first."""


def in_order_of_reading(features: Mapping[str, Any]) -> dict[str, Any]:
    """Columns with those first that a person reads."""
    names = [*(name for name in READ_FIRST if name in features), *(name for name in features if name not in READ_FIRST)]
    return {name: features[name] for name in names}


@dataclass(frozen=True)
class GeneratedDataset:
    """The choices that make a pushed dataset. The same arguments give the same files, whichever are made together.

    Attributes:
        task: name of the task.
        configurations: arguments of `load_task_dataset` by the configuration's name; the first is the default one.
        num_samples: examples of each split.
        seed: seed of all problems.

    Raises:
        ValueError: a name, task, argument or number is not legal. Nothing is generated.
    """

    task: str
    configurations: dict[str, dict[str, object]]
    num_samples: dict[str, int]
    seed: int = 0

    def __post_init__(self):
        if not self.configurations:
            raise ValueError("configurations must name at least one, got none")
        for name in self.configurations:
            # The name becomes a folder beside the card.
            if not re.fullmatch(r"\w[\w-]*", name, re.ASCII) or name == TOKENIZER_FOLDER:
                legal = f"letters, digits, `_` and `-`, and not {TOKENIZER_FOLDER!r}"
                raise ValueError(f"a configuration's name must be of {legal}, got {name!r}")
            self.load(name, streaming=True)

    def files(self) -> list[DatasetFile]:
        """All files of the dataset."""
        files = []
        for name, (split, rows) in product(self.configurations, self.num_samples.items()):
            count = max(-(-rows // ROWS_PER_FILE), min(FEWEST_FILES, rows // FEWEST_ROWS))
            # The first files have one row more each, if rows are left over.
            ends = [file * (rows // count) + min(file, rows % count) for file in range(count + 1)]
            paths = [f"{name}/{split}-{file:05d}-of-{count:05d}.parquet" for file in range(count)]
            files += [DatasetFile(path, name, split, *rows) for path, rows in zip(paths, pairwise(ends), strict=True)]
        return files

    def make(self, files: Iterable[DatasetFile], place: Path, num_proc: int | None = None) -> dict[str, "MadeFile"]:
        """Write files into a folder, and make no other rows than theirs.

        Args:
            files: of one split one after the other, as `files` lists them.
            num_proc: number of processes that make shards.

        Returns:
            Where they are, by path.
        """
        made: dict[str, MadeFile] = {}
        for (name, split), group in groupby(files, lambda file: (file.configuration, file.split)):
            split_files = list(group)
            first, end = split_files[0].first, split_files[-1].end
            with TemporaryDirectory(dir=place) as cache:
                rows = self.load(name, rows={split: (first, end)}, cache_dir=cache, num_proc=num_proc)[split]
                rows = rows.select_columns(list(in_order_of_reading(rows.features)))
                for file in split_files:
                    part = rows.select(range(file.first - first, file.end - first))
                    (place / file.path).parent.mkdir(parents=True, exist_ok=True)
                    part.to_parquet(place / file.path)
                    in_memory = rows.data.nbytes * len(part) // len(rows)
                    made[file.path] = MadeFile(place / file.path, (place / file.path).stat().st_size, in_memory)
        return made

    @property
    def tasks(self) -> dict[str, Task]:
        """The task in the format of each configuration."""
        return {name: _task_of(self.task, arguments) for name, arguments in self.configurations.items()}

    def tokenizer_files(self) -> dict[str, bytes]:
        """The files of the tokenizer that `input_ids` are of, by path."""
        with TemporaryDirectory() as place:
            build_tokenizer(next(iter(self.tasks.values()))).save_pretrained(place)
            return {f"{TOKENIZER_FOLDER}/{file.name}": file.read_bytes() for file in sorted(Path(place).iterdir())}

    def load(self, configuration: str, **options: Any) -> Any:
        """The rows of a configuration, by split."""
        options = {"num_samples": self.num_samples, "seed": self.seed, **options, **self.configurations[configuration]}
        return load_task_dataset(self.task, split=None, **options)


COLUMNS = {
    "input_ids": "the tokens of the whole problem, with its answer, without padding",
    "labels": "what a model learns at these tokens, -100 where nothing",
    "prompt": "the text that a model is given",
    "completion": "the text that a model writes, in its own format, without the end token",
    "messages": "prompt and completion as a conversation",
    "answer": "the answer in the usual notation; models write `completion`, in their own format",
    "operand_lengths": "the size of each operand",
    "query_length": "tokens of the prompt, with the first `$`",
    "position_ids": "position ids, as models take them: one for each token, or a list of each level; models derive the same",
    "pair_map": "the relation of each token, as a query, to each token, as models take it; -1 if there is none",
    "task": "which of the tasks the problem is of",
    "longest_cascade": "most columns that one carry passes through",
    "dependency_length": "levels that the carries of the product take, the first being the multiplier times each digit",
}
"""The content of each column."""


def size_category(rows: int) -> str:
    """The Hub's word for a dataset of so many rows, such as `10K<n<100K`."""
    powers = ["1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T"]
    rank = sum(rows >= 1000 * 10**power for power in range(len(powers)))
    if rank == 0:
        return f"n<{powers[0]}"
    return f"n>{powers[-1]}" if rank == len(powers) else f"{powers[rank - 1]}<n<{powers[rank]}"


def render_dataset_card(
    dataset: GeneratedDataset,
    repo_id: str,
    sizes: Mapping[str, int],
    in_memory: Mapping[str, int],
    is_on_hub: bool = True,
) -> str:
    """The card of a generated dataset.

    Args:
        repo_id: where the code on the card loads it from, `user/name` or a folder.
        sizes: bytes of every file, by its path.
        in_memory: bytes of the rows of every file in memory.
        is_on_hub: whether `repo_id` is a repository, and no folder.
    """
    configurations, counts, tasks = dataset.configurations, dataset.num_samples, dataset.tasks
    features = _features(dataset)
    default, arguments = next(iter(configurations.items()))
    first = tasks[default]
    given = "".join(f", {name}={value!r}" for name, value in {**arguments, "seed": dataset.seed}.items())
    split, count = next(iter(counts.items()))
    rules = [f"`{rule}`" for rule in (family_card(task).rule_on_card(task) for task in tasks.values()) if rule is not None]
    return render(
        "dataset_card.md",
        _metadata(dataset, features, sizes, in_memory),
        title=Path(repo_id).name,
        repo_id=repo_id,
        is_on_hub=is_on_hub,
        task=first,
        about=about(first),
        examples=[example_row(asked, part, EXAMPLE_LENGTH) for asked in [first.for_evaluation] for part in asked.parts],
        seed=dataset.seed,
        counts=counts,
        configurations=configurations,
        tasks=tasks,
        format_fields=format_fields,
        # A column is of one type in all configurations that have it.
        columns={column: kind for kinds in features.values() for column, kind in kinds.items()},
        meanings=COLUMNS,
        split=split,
        is_coupled="position-coupling" in family_card(first).ideas(first),
        rules=" or ".join(dict.fromkeys(rules)) or None,
        drawing=family_card(first).draw(first),
        call=f'load_task_dataset("{dataset.task}", split="{split}", num_samples={count}{given})',
    )


def _features(dataset: GeneratedDataset) -> dict[str, Features]:
    """The columns of each configuration with their types, in the order in which a reader meets them."""
    first_split = next(iter(dataset.num_samples))
    streams = {name: dataset.load(name, streaming=True)[first_split] for name in dataset.configurations}
    return {name: Features(in_order_of_reading(stream.features)) for name, stream in streams.items()}


def _metadata(
    dataset: GeneratedDataset, features: Mapping[str, Features], sizes: Mapping[str, int], in_memory: Mapping[str, int]
) -> DatasetCardData:
    """The head of a card, which the Hub reads; arguments as of `render_dataset_card`."""
    counts, tasks = dataset.num_samples, dataset.tasks
    task = tasks[next(iter(dataset.configurations))]
    configs: list[dict[str, object]] = [
        {
            "config_name": name,
            "data_files": [{"split": split, "path": f"{name}/{split}-*.parquet"} for split in counts],
        }
        for name in dataset.configurations
    ]
    configs[0]["default"] = True
    data = DatasetCardData(
        license=LICENSE,
        pretty_name=f"{task.name.replace('_', ' ').capitalize()}, {' and '.join(name.replace('_', ' ') for name in tasks)}",
        # Digits are of no language.
        language=["zxx"],
        task_categories=[task.family.pipeline],
        size_categories=[size_category(len(configs) * sum(counts.values()))],
        tags=[TAG, kind_tag("dataset"), *SUBJECTS, *family_card(task).ideas(task), "synthetic"],
        configs=configs,
    )
    infos = DatasetInfosDict()
    for name in dataset.configurations:
        split_paths = {
            split: [file.path for file in dataset.files() if (file.configuration, file.split) == (name, split)]
            for split in counts
        }
        stored = {split: sum(in_memory.get(path, 0) for path in paths) for split, paths in split_paths.items()}
        splits = SplitDict({split: SplitInfo(split, stored[split], count) for split, count in counts.items()})
        infos[name] = DatasetInfo(
            features=features[name],
            splits=splits,
            download_size=sum(sizes.get(path, 0) for paths in split_paths.values() for path in paths),
            dataset_size=sum(stored.values()),
        )
    infos.to_dataset_card_data(data)
    return data


def _task_of(name: str, arguments: dict[str, object]) -> Task:
    """The task in a configuration's format. Arguments that `load_task_dataset` does not name are fields of the format."""
    others = signature(load_task_dataset).parameters
    return build_task(name, **{field: value for field, value in arguments.items() if field not in others})


def push_dataset(
    task: str,
    repo_id: str,
    configurations: dict[str, dict[str, object]],
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
        num_samples: examples of each split.
        num_proc: number of processes that make rows.
        options: see `PushOptions`.

    Raises:
        ValueError: a name, task, argument or number is not legal.
        CannotPush: see `push_model`.
    """
    dataset = GeneratedDataset(task, configurations, num_samples, seed)
    return publish(dataset_publication(dataset, repo_id, num_proc), **options)


def write_dataset(
    task: str,
    folder: Path | str,
    configurations: dict[str, dict[str, object]],
    *,
    num_samples: dict[str, int],
    seed: int = 0,
    num_proc: int | None = None,
) -> Path:
    """Generate a dataset as a folder with the files that `push_dataset` would push; `load_dataset(folder)` reads it.

    Args:
        folder: a new folder.
        configurations, num_samples, num_proc: see `push_dataset`.

    Returns:
        The folder.

    Raises:
        ValueError: a name, task, argument or number is not legal, or the folder is there already.
    """
    return write_generated(GeneratedDataset(task, configurations, num_samples, seed), Path(folder), num_proc)


def write_generated(dataset: GeneratedDataset, folder: Path, num_proc: int | None = None) -> Path:
    """Write files and card of a dataset into a new folder, all or nothing, and return the folder; see `write_dataset`."""
    with new_folder(folder) as made:
        files = dataset.make(dataset.files(), made, num_proc)
        for path, content in dataset.tokenizer_files().items():
            (made / path).parent.mkdir(exist_ok=True)
            (made / path).write_bytes(content)
        write_atomically(made / CARD_FILE, _card_of(dataset, shown_folder(folder), files, is_on_hub=False))
    return folder


def _card_of(
    dataset: GeneratedDataset, source: str, files: "Mapping[str, MadeFile | WaitingFile]", is_on_hub: bool = True
) -> str:
    """The card of a dataset of these files, by path."""
    sizes, in_memory = ({path: getattr(file, name) for path, file in files.items()} for name in ("size", "in_memory"))
    return render_dataset_card(dataset, source, sizes, in_memory, is_on_hub)


def dataset_publication(
    dataset: GeneratedDataset,
    repo_id: str,
    num_proc: int | None = None,
    num_shards: int | None = None,
    shard: int | None = None,
) -> Publication:
    """A generated dataset for a repository on the Hub. Nothing is generated yet.

    Args:
        num_proc: number of processes that make rows.
        num_shards: shards that the files are divided into, in shares that differ by one file at most. Without `shard`, the
            files that wait in the branch of shards are published, with the card; nothing is made or sent again.
        shard: make this shard alone, for the branch of shards. A shard that is there is not made again.

    Raises:
        ValueError: a name or a number is not legal. Making the files raises CannotPush if a shard is not there.
    """
    files, name = dataset.files(), f"{dataset.task}, seed {dataset.seed}"
    shards = [] if num_shards is None and shard is None else divide(files, num_shards or 0)
    if shard is not None:
        check_integer("shard", shard, 0, len(shards) - 1)
        shard_files, name = shards[shard], f"{name}, shard {shard} of {num_shards}"

        def make_shard(place: Path, repository: Repository | None) -> Files:
            waiting = _waiting_files(dataset, repository)
            missing = [] if all(file.path in waiting for file in shard_files) else shard_files
            made = dataset.make(missing, place, num_proc)
            return {f"{WAITING}{made_file.in_memory}/{path}": made_file.file for path, made_file in made.items()}

        return Publication(repo_id, "dataset", name, (), make_shard, shard_branch(dataset), _outline_of(shard_files))

    def make_files(place: Path, repository: Repository | None) -> Files:
        waiting = _waiting_files(dataset, repository) if shards else {}
        lacking = [
            index for index, shard_files in enumerate(shards) if any(file.path not in waiting for file in shard_files)
        ]
        if lacking and repository is not None:
            named = ", ".join(map(str, lacking[:20])) + (", ..." if len(lacking) > 20 else "")
            raise CannotPush(
                f"nothing was published: {repo_id} lacks {len(lacking)} of {num_shards} shards of this dataset "
                f"({named}); push each of them by --shard, with "
                "all other options as they are here, and repeat this command"
            )
        made = {} if shards else dataset.make(files, place, num_proc)
        card = _card_of(dataset, repo_id, {**made, **waiting}).encode()
        copied = {path: waiting_file.copy for path, waiting_file in waiting.items()}
        written = {path: made_file.file for path, made_file in made.items()}
        return {**written, **copied, **dataset.tokenizer_files(), CARD_FILE: card}

    def others() -> dict[str, str | bytes]:
        return {**dataset.tokenizer_files(), CARD_FILE: render_dataset_card(dataset, repo_id, {}, {}).encode()}

    return Publication(repo_id, "dataset", name, DATASET_FILES, make_files, outline=_outline_of(files, others))


def _outline_of(
    files: list[DatasetFile], others: Callable[[], dict[str, str | bytes]] = dict
) -> Callable[[], dict[str, str | bytes]] | None:
    """What a preview shows in place of files of many rows, by path; None if the files can be made for it.

    Args:
        others: the files beside them.
    """
    if sum(file.end - file.first for file in files) <= PREVIEWED_ROWS:
        return None
    return lambda: {file.path: f"{file.end - file.first:,} rows" for file in files} | others()


def divide(files: list[DatasetFile], num_shards: int) -> list[list[DatasetFile]]:
    """Shards of files, one after the other.

    Raises:
        ValueError: `num_shards` is not legal.
    """
    check_integer("num_shards", num_shards, 1, len(files))
    ends = [shard * len(files) // num_shards for shard in range(num_shards + 1)]
    return [files[first:end] for first, end in pairwise(ends)]


def shard_branch(dataset: GeneratedDataset) -> str:
    """The branch where the shards of a dataset wait: the same arguments, and code of a plugin, give the same one."""
    made_of = [VERSION, WAITING, asdict(dataset), *map(asdict, dataset.files()), plugin_hashes(find_task(dataset.task))]
    return f"shards-{hashlib.sha256(json.dumps(made_of, default=int).encode()).hexdigest()[:16]}"


WAITING = "shards/in_memory/"
"""Where shards wait in their branch, in folders that are named by the bytes of a file's rows in memory, which cards say.
The branch begins with the files of the main branch, which may hold other rows."""


@dataclass(frozen=True)
class WaitingFile:
    """A file in the branch of shards.

    Attributes:
        copy: the operation that copies it into the repository.
        size: its bytes.
        in_memory: bytes of its rows in memory.
    """

    copy: CommitOperationCopy
    size: int
    in_memory: int


def _waiting_files(dataset: GeneratedDataset, repository: Repository | None) -> dict[str, WaitingFile]:
    """The files in the branch of a dataset, by path."""
    if repository is None:
        return {}
    with refusing(repository.name), suppress(RepositoryNotFoundError, RevisionNotFoundError):
        head = repository.info(shard_branch(dataset), files_metadata=True)
        waiting = {}
        for file in head.siblings:
            if found := re.fullmatch(rf"{WAITING}(\d+)/(.+)", file.rfilename):
                operation = CommitOperationCopy(file.rfilename, found[2], head.sha)
                waiting[found[2]] = WaitingFile(operation, file.size or 0, int(found[1]))
        return waiting
    return {}
