"""The Parquet files of a generated dataset: which there are, and the making of all of them or of some."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from datasets import DatasetInfo, SplitDict, SplitInfo

from longhand.data import SPLITS, load_task_dataset
from longhand.hub_cards.publishing.cards import CARD_FILE
from longhand.hub_cards.publishing.dataset_cards import render_dataset_card

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
