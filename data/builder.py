"""Datasets of formatted problems: rows in Arrow tables, on disk or streamed. The same seed gives the same rows."""

# Used by: hub_cards/publishing. Changed freely.

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from itertools import pairwise
from os import PathLike
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import torch
from datasets.builder import Key
from datasets.exceptions import DatasetGenerationError

from longhand.data.columns import NO_STRUCTURE, RowStructure, as_messages, example_columns, rows_of, with_pair_maps
from longhand.data.splits import SPLITS, make_generator
from longhand.data.tasks.plugins import load_plugin, plugin_hashes
from longhand.data.tasks.registry import build_task, find_task
from longhand.data.tasks.task import Task
from longhand.modeling.checks import check_integer

VERSION = "2.5.0"
"""Change it whenever the same arguments give other rows; otherwise the cache goes on giving the old rows."""

MOST_SHARDS = 2**20
"""Most shards of a split: 69 billion rows of short problems, fewer of long ones."""

_SHARD_ROWS = 2**16
_SHARD_TOKENS = 2**25
"""Most rows, and most tokens, of a shard. One process makes a shard as a whole, in memory."""


STREAMED_SHARDS = 8
"""A stream has at least so many shards, which workers of a loader or nodes share, if no number is asked for. They are parts
of the shards that are made as a whole, so rows and their order are the same with any number."""


DISTINCT_SHARDS = 2**6
"""Shards in a row, from the first on, that share no short problem. Each draws anew what the shards before it hold."""

_FEWEST_DRAWN = 2**10
"""Fewest problems that are drawn in place of repeated ones."""

_MOST_DRAWN = 16
"""If this many times the rows of a shard are drawn at once and none is new, the split is taken to hold no others."""


@dataclass(frozen=True)
class ProblemGroup:
    """Problems that are written at once.

    Attributes:
        task: the task that writes them.
        digits: (count, operands, width).
        lengths: (count, operands).
        rows: (count,), their rows in the shard.
    """

    task: Task
    digits: np.ndarray
    lengths: np.ndarray
    rows: np.ndarray


@dataclass(eq=False)
class Shards:
    """The problems of a split by shard; the same whatever the number of processes, and whichever shards one asks for.

    Attributes:
        task: draws the problems.
        split: name of the split.
        num_rows: rows of the split.
        shard_rows: rows of a shard; the last one may have fewer.
        lengths: `min_length` and `max_length` of `Task.sample_lengths`.
        seed: seed of everything that is drawn.
    """

    task: Task
    split: str
    num_rows: int
    shard_rows: int
    lengths: tuple[int, int]
    seed: int
    _drawn: tuple[int, np.ndarray] = field(default=(0, np.empty(0, np.uint64)), init=False)

    def __len__(self) -> int:
        return -(-self.num_rows // self.shard_rows)

    def draw(self, shard: int) -> tuple[list[ProblemGroup], np.random.Generator]:
        """The problems of a shard, and the generator that goes on to draw the text around them."""
        first = shard - shard % DISTINCT_SHARDS
        drawn, known = self._drawn
        if not first < drawn <= shard:
            drawn, known = first, np.empty(0, np.uint64)
        # If the first shard holds no short problem, they are too rare to meet, and shards need not know of each other.
        while drawn < shard and (drawn == first or len(known)):
            known = self._draw(drawn, known)[2]
            drawn += 1
        layouts, generator, with_own = self._draw(shard, known)
        self._drawn = shard + 1, with_own if shard == first or len(known) else known
        return layouts, generator

    def _draw(self, shard: int, known: np.ndarray) -> tuple[list[ProblemGroup], np.random.Generator, np.ndarray]:
        """As `draw`, and the sorted keys of all known problems, of earlier shards and of this one."""
        generator = make_generator(self.seed, self.split, "dataset", shard)
        missing = count = min(self.shard_rows, self.num_rows - shard * self.shard_rows)
        parts = defaultdict(list)
        drawn, fewest = count, _FEWEST_DRAWN
        while missing:
            keys, layouts = self._draw_any(generator, drawn)
            chosen = np.flatnonzero(_is_new(keys, known))[:missing]
            # A shard without a single new problem comes after shards that have looked for all of them.
            if len(chosen) == 0 and missing < count and drawn < _MOST_DRAWN * count:
                drawn = fewest = 4 * drawn
                continue
            if len(chosen) == 0:
                chosen = np.arange(missing)
            chosen_keys = keys[chosen]
            known = np.sort(np.concatenate([known, chosen_keys[chosen_keys > 0]]), kind="stable")
            row = np.full(drawn, -1)
            row[chosen] = count - missing + np.arange(len(chosen))
            missing -= len(chosen)
            drawn = max(missing, fewest)
            for layout in layouts:
                kept = row[layout.rows] >= 0
                group = layout.task, int(layout.task.group(layout.lengths[:1])[0])
                parts[group].append((layout.digits[kept], layout.lengths[kept], row[layout.rows][kept]))
        merged = [ProblemGroup(task, *map(np.concatenate, zip(*same, strict=True))) for (task, _), same in parts.items()]
        return [layout for layout in merged if len(layout.rows)], generator, known

    def _draw_any(self, generator: np.random.Generator, count: int) -> tuple[np.ndarray, list[ProblemGroup]]:
        """Problems that may repeat, and their keys (count,), see `splits.problem_keys`."""
        keys = np.zeros(count, np.uint64)
        layouts = []
        names = [part.name for part in self.task.parts]
        for part, places in self.task.choose_tasks(generator, count, self.split):
            lengths = part.sample_lengths(generator, len(places), *self.lengths)
            for task, rows in part.layouts(generator, lengths):
                digits = task.draw(generator, lengths[rows], self.split)
                keys[places[rows]] = _mark(task.problem_keys(digits, lengths[rows]), names.index(part.name))
                layouts.append(ProblemGroup(task, digits, lengths[rows], places[rows]))
        return keys, layouts


def _mark(keys: np.ndarray, part: int) -> np.ndarray:
    """The keys of problems of one part, so that problems of two parts with the same operands have different ones."""
    return np.where(keys > 0, keys ^ (np.uint64(part) << np.uint64(56)), keys)


def _is_new(keys: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Which problems (count,) are the first with their key and not among the sorted `known`, or have no key, which is 0."""
    new = keys == 0
    short = np.flatnonzero(~new)
    distinct, first = np.unique(keys[short], return_index=True)
    place = np.searchsorted(known, distinct)
    new[short[first[(place == len(known)) | (np.append(known, 0)[place] != distinct)]]] = True
    return new


@dataclass(eq=False)
class TaskDatasetConfig(datasets.BuilderConfig):
    """The choices that make a dataset. Its name consists of the task and of the fields that differ from the defaults.

    Attributes:
        task: a name of `TASKS`.
        task_fields: the task's fields; a field that is not given has its default.
        max_length: digits of the longest operand.
        num_samples: rows of each split.
        min_length: digits of the shortest operand; None for the shortest of which a split holds problems, which is 1 unless
            there are few problems of that length.
        seed: seed of everything that is drawn.
        messages: whether rows have a conversation in place of `prompt` and `completion`.
        structure: whether rows have position ids and pair maps, and by which rule.
        rows: by split, the first row that is made and the one after the last; None for all rows of all splits.

    Raises:
        ValueError: an argument is not legal.
    """

    task: str = "addition"
    task_fields: Mapping[str, object] = field(default_factory=dict)
    max_length: int = 30
    num_samples: Mapping[str, int] = field(default_factory=dict)
    min_length: int | None = None
    seed: int = 0
    messages: bool = False
    structure: RowStructure = NO_STRUCTURE
    rows: Mapping[str, tuple[int, int]] | None = None

    def __post_init__(self):
        default, task = build_task(self.task), build_task(self.task, **self.task_fields)
        self.task_fields = {option.name: getattr(task, option.name) for option in fields(task)}
        changed = [f"{name}={value}" for name, value in self.task_fields.items() if value != getattr(default, name)]
        self.name = ",".join([self.task, *changed])
        super().__post_init__()
        if self.min_length is not None:
            check_integer("min_length", self.min_length, 1)
        check_integer("max_length", self.max_length, self.min_length or 1, task.most_digits)
        check_integer("seed", self.seed, 0)
        self.num_samples = {str(split): count for split, count in self.num_samples.items()}
        if not self.num_samples:
            raise ValueError(f"num_samples must name the rows of one of {', '.join(SPLITS)} or more, got none")
        for split, count in self.num_samples.items():
            if split not in SPLITS:
                raise ValueError(f"split {split!r} is unknown: choose one of {', '.join(SPLITS)}")
            check_integer("num_samples", count, 1)
        if self.rows is not None:
            _check_rows(self.rows, self.num_samples)
        rows_of(task).check_structure(task, self.structure)

    @property
    def made(self) -> dict[str, tuple[int, int]]:
        """The first row that is made of every split that is, and the one after the last."""
        return dict(self.rows or {split: (0, count) for split, count in self.num_samples.items()})

    def create_config_id(self, config_kwargs, custom_features=None):
        """The name of the cache's folder. It covers every argument, given or not."""
        made_of = [self.task_fields, self.min_length, self.max_length, dict(self.num_samples), self.seed, self.messages]
        made_of += [asdict(self.structure)] if self.structure != NO_STRUCTURE else []
        made_of += [self.made] if self.rows else []
        if plugin_hashes(find_task(self.task)):
            # A plugin may open a table of its own not before its first problem.
            _longest_rows(build_task(self.task, **self.task_fields), self.max_length, self.structure)
        made_of += plugin_hashes(find_task(self.task))
        return f"{self.name}-{hashlib.sha256(json.dumps(made_of, sort_keys=True, default=int).encode()).hexdigest()[:16]}"


def _longest_rows(task: Task, max_length: int, structure: RowStructure) -> tuple[pa.Table, int]:
    """The largest problem of each part of a task, as a row each, and the most tokens that a row can have."""
    rows = []
    for part in task.parts:
        lengths, generator = part.widest.longest_lengths(max_length), make_generator("longest")
        digits = part.widest.draw_operands(generator, lengths)
        rows.append(example_columns(part.widest, digits, lengths, generator, task, structure))
    tokens = (len(row["input_ids"][0]) + part.most_text for row, part in zip(rows, task.parts, strict=True))
    return pa.concat_tables(with_pair_maps(pa.concat_tables(rows), task, structure)), max(tokens)


# Each file of a push is a dataset of its own, of the same task and lengths.
@lru_cache(maxsize=64)
def _shortest(task: Task, split: str, min_length: int | None, max_length: int) -> int:
    """The shortest length of the problems of a split.

    Raises:
        ValueError: the split holds no problem of some size.
    """
    if min_length is not None and all(part.has_problems(split, min_length, max_length) for part in task.parts):
        return min_length
    least = max(part.shortest_of(split, max_length) for part in task.parts)
    if min_length is None and least <= max_length:
        return least
    least = max(part.shortest_of(split, part.most_digits) for part in task.parts)
    name, given = ("max_length", max_length) if min_length is None else ("min_length", min_length)
    raise ValueError(
        f"{name} must be at least {least} for the {split} split, which holds no problem of the task {task.name!r} of some "
        f"smaller size, got {given}"
    )


class TaskDatasetBuilder(datasets.ArrowBasedBuilder):
    """Makes a task's splits in shards. Boundaries and seeds of shards do not depend on the number of processes.

    Lengths are drawn as for training. Index hints begin with the first hint in every row. If fields have random widths,
    every row has its own width. Validation and test hold the problems of `Task.for_evaluation`.
    """

    BUILDER_CONFIG_CLASS = TaskDatasetConfig
    # A shard is one record batch. Whoever opens a dataset holds a description of every batch in memory.
    DEFAULT_WRITER_BATCH_SIZE = _SHARD_ROWS
    VERSION = datasets.Version(VERSION)

    fewest_parts = 1
    """Parts of a split, at least, which are whole shards or rows of one; fewer if the split has fewer rows."""

    _made: tuple[str, int, pa.Table] | None = None
    """Split, number and rows of the shard that was made last."""

    def _info(self):
        config = self.config
        self.task = build_task(config.task, **config.task_fields)
        rows, most_tokens = _longest_rows(self.task, config.max_length, config.structure)
        schema = as_messages(rows.slice(0, 0)).schema if config.messages else rows.schema
        self.shard_rows = max(1, min(_SHARD_ROWS, _SHARD_TOKENS // most_tokens))
        for count in config.num_samples.values():
            check_integer("num_samples", count, 1, MOST_SHARDS * self.shard_rows)
        tasks = {split: self.task if split == "train" else self.task.for_evaluation for split in config.num_samples}
        shortest = {split: _shortest(task, split, config.min_length, config.max_length) for split, task in tasks.items()}
        self.shards = {
            split: Shards(tasks[split], split, count, self.shard_rows, (shortest[split], config.max_length), config.seed)
            for split, count in config.num_samples.items()
        }
        return datasets.DatasetInfo(
            description=f"{type(self.task).__doc__}\nFormat: {json.dumps(config.task_fields)}. "
            f"Lengths: {config.min_length or 1} to {config.max_length}. Seed: {config.seed}.",
            features=datasets.Features.from_arrow_schema(schema),
            license="apache-2.0",
        )

    def _split_generators(self, dl_manager):
        made = self.config.made
        return [
            datasets.SplitGenerator(name=split, gen_kwargs={"split": split, "parts": self._parts(*made[split])})
            for split in SPLITS
            if split in made
        ]

    def _parts(self, first: int, end: int) -> list[tuple[int, int]]:
        """The rows from `first` to `end`, without the latter, in parts that each lie in one shard."""
        edges = {first, end, *range(first - first % self.shard_rows + self.shard_rows, end, self.shard_rows)}
        if len(edges) <= self.fewest_parts:
            edges.update(first + (end - first) * part // self.fewest_parts for part in range(self.fewest_parts))
        return list(pairwise(sorted(edges)))

    def _generate_tables(self, split: str, parts: list[tuple[int, int]]) -> Iterator[tuple[Key, pa.Table]]:
        for place, (first, end) in enumerate(parts):
            shard, row = divmod(first, self.shard_rows)
            rows = self._whole_shard(split, shard)[row : row + end - first]
            for part, mapped in enumerate(with_pair_maps(rows, self.task, self.config.structure)):
                yield Key(place, part), mapped

    def _whole_shard(self, split: str, shard: int) -> pa.Table:
        """The rows of a shard, which may be asked for part by part."""
        if self._made is None or self._made[:2] != (split, shard):
            self._made = None
            # A forked process must not use the threads of its parent process.
            threads = torch.get_num_threads()
            torch.set_num_threads(1)
            try:
                self._made = split, shard, self._table(*self.shards[split].draw(shard))
            finally:
                torch.set_num_threads(threads)
        return self._made[2]

    def _table(self, layouts: list[ProblemGroup], generator: np.random.Generator) -> pa.Table:
        """The rows of a shard, written layout by layout and put into the order in which they were drawn."""
        structure = self.config.structure
        tables = [example_columns(part.task, part.digits, part.lengths, generator, self.task, structure) for part in layouts]
        rows = np.concatenate([part.rows for part in layouts])
        place = np.empty_like(rows)
        place[rows] = np.arange(len(rows))
        table = pa.concat_tables(tables).combine_chunks().take(pa.array(place))
        return as_messages(table) if self.config.messages else table


def _check_rows(rows: Mapping[str, tuple[int, int]], num_samples: Mapping[str, int]) -> None:
    """Raise ValueError unless rows name parts of splits that hold so many rows."""
    is_mapping = isinstance(rows, Mapping) and len(rows) > 0
    pairs = [part for part in rows.values() if isinstance(part, Sequence)] if is_mapping else []
    if not is_mapping or len(pairs) < len(rows) or not all([type(end) for end in pair] == [int, int] for pair in pairs):
        raise ValueError(
            f"rows must be the first row and the one after the last by split, such as {{'train': (0, 10)}}, got {rows!r}"
        )
    for split, (first, end) in rows.items():
        held = num_samples.get(split, 0)
        if not 0 <= first < end <= held:
            raise ValueError(f"rows must lie in 0 to {held:,} of {split}, got {first:,} to {end:,}")


def _read_split(split: object) -> tuple[str | None, Sequence[str]]:
    """A split as text, and the names of the splits in it; None stands for all."""
    if isinstance(split, (list, tuple)):
        raise ValueError(f"split must be one text, such as 'train', or None for all splits, got {split!r}")
    if split is None:
        return None, SPLITS
    return str(split), [part.partition("[")[0] for part in str(split).split("+")]


def load_task_dataset(
    task: str,
    *,
    split: str | None = "train",
    max_length: int,
    num_samples: int | Mapping[str, int],
    min_length: int | None = None,
    seed: int = 0,
    messages: bool = False,
    position_ids: bool = False,
    pair_map: bool = False,
    coupling: str | None = None,
    relation_range: Sequence[int] | None = None,
    windowed: bool | None = None,
    streaming: bool = False,
    num_proc: int | None = None,
    cache_dir: str | None = None,
    rows: Mapping[str, tuple[int, int]] | None = None,
    plugin: str | PathLike[str] | Iterable[str | PathLike[str]] = (),
    **task_fields: Any,
) -> Any:
    """Problems of a task as a dataset, see `example_columns` for its columns.

    The same arguments give the same rows, with any number of processes, streamed or not. No short problem is in two splits,
    and none stands twice in the rows of `DISTINCT_SHARDS` shards of a split, unless it holds fewer problems than
    rows. There are so many longer problems that practically none is drawn twice (see `splits.PARTITIONED_DIGITS`).

        load_task_dataset("addition", max_length=30, num_samples=1_000_000, zero_padding=False)
        load_task_dataset("copy", max_length=10, num_samples=1000, position_ids=True, coupling="sequential")
        load_task_dataset("my_task", max_length=30, num_samples=1_000_000, plugin="my_task.py")

    Args:
        task: a name of `TASKS`.
        split: `"train"`, `"validation"` or `"test"`, on disk also parts of them such as `"train[:10%]"`; None for a
            dictionary of splits.
        max_length: digits of the longest operand, at most `Task.most_digits` of the task.
        num_samples: number of rows, at most `MOST_SHARDS` shards. If `split` is None, the rows of each of the three splits,
            or a mapping from splits to their rows.
        min_length: digits of the shortest operand; by default the shortest of which the split holds problems, which is 1
            unless there are few problems of that length.
        seed: seed of everything that is drawn.
        messages: give rows a conversation, `messages`, in place of `prompt` and `completion`: the prompt is the user's turn,
            the completion the assistant's.
        position_ids: give rows `position_ids`, as models take them: one for each token, or a list of each level.
        pair_map: give rows a `pair_map`, as models take it: the relation of each token, as a query, to each token, -1 for
            pairs that are not related.
        coupling: the rule that ids and pair maps follow from, if it is not the task's own: a coupling rule for decoders, a
            rule of pair maps for encoders.
        relation_range, windowed: which relations a pair map has, as in the models' configurations, which have the defaults.
        streaming: make rows when they are asked for, and write nothing.
        num_proc: number of processes that make shards of a dataset on disk; of a stream, the least number of its shards,
            `STREAMED_SHARDS` by default, which is the largest useful number of workers of a loader.
        cache_dir: folder for datasets on disk; by default the folder that `datasets` uses.
        rows: make a part of the dataset only: by split, the first row and the one after the last, the same rows as in the
            whole dataset.
        plugin: a Python file, or files, to load first: it registers the task or what the task needs, see `load_plugin`.
        task_fields: the task's format, such as `zero_padding` of `Addition`.

    Raises:
        ValueError: an argument is not legal, or a split holds no problem of some size.
    """
    for file in [plugin] if isinstance(plugin, str | PathLike) else plugin:
        load_plugin(file)
    flags = {"messages": messages, "position_ids": position_ids, "pair_map": pair_map, "streaming": streaming}
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise ValueError(f"{name} must be True or False, got {flag!r}")
    split, names = _read_split(split)
    if not isinstance(num_samples, Mapping):
        num_samples = dict.fromkeys(names, num_samples)
    elif split is not None:
        raise ValueError(f"num_samples must be an integer with split={split!r}, got {num_samples!r}")
    builder = TaskDatasetBuilder(
        cache_dir=cache_dir,
        dataset_name="longhand",
        task=task,
        task_fields=task_fields,
        max_length=max_length,
        num_samples=num_samples,
        min_length=min_length,
        seed=seed,
        messages=messages,
        structure=RowStructure(
            position_ids, pair_map, coupling, None if relation_range is None else tuple(relation_range), windowed
        ),
        rows=rows,
    )
    if num_proc is not None:
        check_integer("num_proc", num_proc, 1)
    if streaming:
        builder.fewest_parts = num_proc or STREAMED_SHARDS
        return builder.as_streaming_dataset(split)
    try:
        builder.download_and_prepare(num_proc=num_proc)
    except DatasetGenerationError as error:
        # The task refuses some requests only while rows are made, such as a split without problems of some size.
        if isinstance(error.__cause__, ValueError):
            raise error.__cause__ from None
        raise
    return builder.as_dataset(split)
