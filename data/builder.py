"""Datasets of formatted problems: rows in Arrow tables, on disk or streamed, the same for the same seed."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from datasets.builder import Key

from longhand.data.addition import Addition
from longhand.data.collator import IGNORED
from longhand.data.complexity import cascade_lengths
from longhand.data.formatting import Examples
from longhand.data.sampling import SPLITS, make_generator
from longhand.data.task import TASKS, Task
from longhand.modeling.coupling import plan_position_ids
from longhand.modeling.vocabulary import ALL_TOKENS, FIRST_HINT, PAD

VERSION = "1.0.0"
"""Changes whenever the same arguments give other rows: without that, the cache would go on giving the old ones."""

_SHARD_ROWS = 2**16
_SHARD_TOKENS = 2**25
"""Most rows, and most tokens, of a shard: the unit that one process makes, all in memory."""

_CHARACTERS = np.array(
    [list(token.encode().ljust(2, b"\0")) if len(token) == 1 else [0, 0] for token in ALL_TOKENS], np.uint8
)
"""The one or two bytes of every token's character in UTF-8, (tokens, 2); zeros for none."""


def example_columns(task: Task, digits: np.ndarray, lengths: np.ndarray, position_id_type: np.dtype) -> pa.Table:
    """Rows of a dataset, one for each problem of a group.

    Columns: `tokens`, without padding; `query_length`, how many of them are the query; `position_ids` of the task's coupling
    rule, or `position_ids_0`, `position_ids_1`, ... where it has several levels; `prompt`, the text that a model is given,
    and `answer`, as a person writes it; `operand_lengths`, digits. `supervised` tells which tokens of the response count,
    where not all do. Sums of two numbers have a `longest_cascade`, columns, see `complexity.cascade_lengths`.

    Args:
        digits, lengths: as for `Task.format`.
        position_id_type: an integer type.
    """
    examples = task.format(digits, lengths)
    tokens, query_lengths = examples.tokens, examples.query_lengths
    # Where all rows have one layout, one row of a mask stands for all.
    masked = slice(1) if examples.same_layout else slice(None)
    column, query_ends = np.arange(tokens.shape[1]), query_lengths[masked, None]
    present = tokens[masked] != PAD
    ends = present.sum(axis=1, keepdims=True)
    columns = {
        "tokens": _lists(tokens.astype(np.min_scalar_type(task.vocab_size - 1), copy=False), present),
        "query_length": pa.array(query_lengths.astype(np.int32)),
    }
    if examples.supervised is not None:
        columns["supervised"] = _lists(np.broadcast_to(examples.supervised, tokens.shape), present)

    position_ids = _position_ids(task, examples, lengths).astype(position_id_type)
    levels = position_ids.shape[1]
    for level in range(levels):
        name = f"position_ids_{level}" if levels > 1 else "position_ids"
        columns[name] = _lists(np.broadcast_to(position_ids[:, level], tokens.shape), present)

    columns["prompt"] = _texts(_lists(tokens, (column > 0) & (column < query_ends)))
    answer_length = task.answer_length(tuple(lengths[0].tolist()))
    begins = query_ends if answer_length is None else ends - answer_length
    in_answer = (column >= begins) & (column < ends - 1) & (tokens[masked] < FIRST_HINT)
    columns["answer"] = _read_answers(task, _texts(_lists(tokens, in_answer)))

    columns["operand_lengths"] = _lists(lengths.astype(np.int32), lengths > 0)
    if isinstance(task, Addition):
        columns["longest_cascade"] = pa.array(cascade_lengths(digits[:, 0], digits[:, 1]).astype(np.int32))
    return pa.table(columns)


def _position_ids(task: Task, examples: Examples, lengths: np.ndarray) -> np.ndarray:
    """(1 or count, levels, columns), as `CouplingCollator` gives them."""
    # Operands of the same lengths make the same layout up to `=`, which is all that a rule reads: each is planned once.
    problems, same = slice(1), slice(None)
    if not examples.same_layout:
        _, problems, same = np.unique(lengths, axis=0, return_index=True, return_inverse=True)
    planned = torch.from_numpy(examples.tokens[problems]).long()
    return plan_position_ids(task.coupling, planned, planned.shape[1]).numpy()[same]


def _lists(values: np.ndarray, kept: np.ndarray) -> pa.ListArray:
    """Those values (count, columns) of each row that are `kept` (count or 1, columns)."""
    first, last = np.flatnonzero(kept.any(axis=0))[[0, -1]]
    values, kept = values[:, first : last + 1], kept[:, first : last + 1]
    flat = values.reshape(-1) if kept.all() else values[np.broadcast_to(kept, values.shape)]
    offsets = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum(np.broadcast_to(kept.sum(axis=1), len(values)), out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat))


def _texts(tokens: pa.ListArray) -> pa.StringArray:
    """The text of each list of tokens."""
    flat, offsets = tokens.values.to_numpy(), tokens.offsets.to_numpy()
    characters = _CHARACTERS[flat, 0]
    if flat.max(initial=0) >= FIRST_HINT:
        characters = _CHARACTERS[flat]
        used = characters > 0
        characters = characters[used]
        offsets = np.concatenate([[0], np.cumsum(used.sum(axis=1))])[offsets].astype(np.int32)
    return pa.StringArray.from_buffers(len(tokens), pa.py_buffer(offsets), pa.py_buffer(characters))


def _read_answers(task: Task, texts: pa.StringArray) -> pa.StringArray:
    """`Task.read_answer` of many answers at once; which way it reads numbers is seen from one of them."""
    reading = task.read_answer("01")
    if reading == "01":
        return texts
    if reading not in ("1", "10"):
        raise NotImplementedError(f"the task {task.name!r} reads the response '01' as {reading!r}")
    if reading == "10":
        texts = pc.ascii_reverse(texts)
    trimmed = pc.ascii_ltrim(texts, characters="0")
    return pc.if_else(pc.equal(pc.binary_length(trimmed), 0), "0", trimmed)


def _reorder(column: pa.Array, place: pa.Array) -> pa.Array:
    """As `take`, which is ten times slower on lists because it copies them value by value, not row by row."""
    if not pa.types.is_list(column.type) or column.type.value_type.bit_width % 8:
        return column.take(place)
    width = column.type.value_type.bit_width // 8
    offsets, values = column.offsets.to_numpy() * width, column.values
    rows = pa.Array.from_buffers(pa.binary(), len(column), [None, pa.py_buffer(offsets), values.buffers()[1]]).take(place)
    _, offsets, values = rows.buffers()
    offsets = np.frombuffer(offsets, dtype=np.int32) // width
    values = pa.Array.from_buffers(column.type.value_type, int(offsets[-1]), [None, values])
    return pa.ListArray.from_arrays(pa.array(offsets), values)


@dataclass(eq=False)
class TaskDatasetConfig(datasets.BuilderConfig):
    """What a dataset is made of. The name is made of the task and of the fields that are not its defaults.

    Attributes:
        task: a name of `TASKS`.
        task_fields: the task's fields, those that are not given being the defaults.
        max_length: digits of the longest operand.
        num_samples: rows of each split.
        min_length: digits of the shortest operand.
        seed: of everything that is drawn.

    Raises:
        ValueError: an argument is not legal.
    """

    task: str = "addition"
    task_fields: Mapping[str, Any] = field(default_factory=dict)
    max_length: int = 30
    num_samples: Mapping[str, int] = field(default_factory=dict)
    min_length: int = 1
    seed: int = 0

    def __post_init__(self):
        default, task = build_task(self.task), build_task(self.task, **self.task_fields)
        self.task_fields = {option.name: getattr(task, option.name) for option in fields(task)}
        changed = [f"{name}={value}" for name, value in self.task_fields.items() if value != getattr(default, name)]
        self.name = ",".join([self.task, *changed])
        super().__post_init__()
        for name, least in (("min_length", 1), ("max_length", self.min_length), ("seed", 0)):
            _check_integer(name, getattr(self, name), least)
        if not self.num_samples:
            raise ValueError(f"num_samples must name the rows of one of {', '.join(SPLITS)} or more, got none")
        for split, count in self.num_samples.items():
            if split not in SPLITS:
                raise ValueError(f"split {split!r} is unknown: choose one of {', '.join(SPLITS)}")
            _check_integer("num_samples", count, 1)
            _check_split(task, split, self.min_length, self.max_length)

    def create_config_id(self, config_kwargs, custom_features=None):
        """Covers every argument, given or not: it names the folder of the cache."""
        made_of = [self.task_fields, self.min_length, self.max_length, dict(self.num_samples), self.seed]
        return f"{self.name}-{hashlib.sha256(json.dumps(made_of, sort_keys=True, default=int).encode()).hexdigest()[:16]}"


def build_task(name: str, **task_fields: Any) -> Task:
    """The task of a name and a format.

    Raises:
        ValueError: there is no such task or field, or a value is not legal.
    """
    if name not in TASKS:
        raise ValueError(f"task {name!r} is unknown: choose one of {', '.join(TASKS)}")
    legal = [option.name for option in fields(TASKS[name])]
    if unknown := [given for given in task_fields if given not in legal]:
        raise ValueError(f"the task {name!r} has no field {unknown[0]!r}: choose one of {', '.join(legal)}")
    return TASKS[name](**task_fields)


def _check_integer(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")


def _check_split(task: Task, split: str, min_length: int, max_length: int) -> None:
    """Raises ValueError where a split holds none of the shortest problems, of which there are few; says where it does."""
    for length in range(min_length, max_length + 1):
        generator = make_generator("shortest", length)
        try:
            task.draw(generator, task.sample_lengths(generator, 1, length, length), split)
        except ValueError:
            continue
        if length == min_length:
            return
        raise ValueError(
            f"min_length {min_length} is too short: none of the few such problems of {task.name!r} is in "
            f"the {split} split, take {length}"
        )
    raise ValueError(f"max_length {max_length} is too short: the {split} split holds no such problem of {task.name!r}")


class TaskDatasetBuilder(datasets.ArrowBasedBuilder):
    """Makes splits of the problems of a task in shards whose boundaries and seeds do not depend on how many processes work.

    Lengths are drawn as the task does for training. Index hints begin with the first one in every row.
    """

    BUILDER_CONFIG_CLASS = TaskDatasetConfig
    VERSION = datasets.Version(VERSION)

    def _info(self):
        config = self.config
        self.task = build_task(config.task, **config.task_fields)
        # The problem with the most tokens tells all types.
        lengths = self.task.sample_lengths(make_generator("longest"), 1, config.max_length, config.max_length)
        lengths = np.where(lengths > 0, lengths, config.max_length)
        digits = self.task.draw_operands(make_generator("longest"), lengths)
        examples = self.task.format(digits, lengths)
        largest_id = int(_position_ids(self.task, examples, lengths).max())
        self.position_id_type = np.dtype(np.int16 if largest_id <= np.iinfo(np.int16).max else np.int32)
        self.shard_rows = max(1, min(_SHARD_ROWS, _SHARD_TOKENS // examples.tokens.shape[1]))
        schema = example_columns(self.task, digits, lengths, self.position_id_type).schema
        return datasets.DatasetInfo(
            description=f"{type(self.task).__doc__}\nFormat: {json.dumps(config.task_fields)}. "
            f"Lengths: {config.min_length} to {config.max_length}. Seed: {config.seed}.",
            features=datasets.Features.from_arrow_schema(schema),
            license="apache-2.0",
        )

    def _split_generators(self, dl_manager):
        return [
            datasets.SplitGenerator(
                name=split,
                gen_kwargs={"split": split, "shards": list(range(-(-self.config.num_samples[split] // self.shard_rows)))},
            )
            for split in SPLITS
            if split in self.config.num_samples
        ]

    def _generate_tables(self, split: str, shards: list[int]) -> Iterator[tuple[Key, pa.Table]]:
        for place, shard in enumerate(shards):
            count = min(self.shard_rows, self.config.num_samples[split] - shard * self.shard_rows)
            generator = make_generator(self.config.seed, split, "dataset", shard)
            yield Key(place, 0), self._table(generator, count, split)

    def _table(self, generator: np.random.Generator, count: int, split: str) -> pa.Table:
        """Problems are made group by group and put back into the order in which their lengths were drawn."""
        lengths = self.task.sample_lengths(generator, count, self.config.min_length, self.config.max_length)
        _, group, sizes = np.unique(self.task.group(lengths), return_inverse=True, return_counts=True)
        by_group = np.argsort(group, kind="stable")
        tables = []
        # A forked process must not use the threads of the one that it was forked from.
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            for rows in np.split(by_group, np.cumsum(sizes)[:-1]):
                digits = self.task.draw(generator, lengths[rows], split)
                tables.append(example_columns(self.task, digits, lengths[rows], self.position_id_type))
        finally:
            torch.set_num_threads(threads)
        place = np.empty_like(by_group)
        place[by_group] = np.arange(count)
        return pa.table(
            {
                name: _reorder(pa.concat_arrays([table[name].chunk(0) for table in tables]), pa.array(place))
                for name in tables[0].column_names
            }
        )


def load_task_dataset(
    task: str,
    *,
    split: str | None = "train",
    max_length: int,
    num_samples: int | Mapping[str, int],
    min_length: int = 1,
    seed: int = 0,
    streaming: bool = False,
    num_proc: int | None = None,
    cache_dir: str | None = None,
    **task_fields: Any,
) -> datasets.Dataset | datasets.DatasetDict | datasets.IterableDataset | datasets.IterableDatasetDict:
    """Problems of a task as a dataset, see `example_columns` for its columns.

    The rows are the same for the same arguments, however many processes make them, and streamed or not. No problem is in
    two splits if it is short; of longer ones there are so many that practically none is (see `sampling.PARTITIONED_DIGITS`).

        load_task_dataset("addition", max_length=30, num_samples=1_000_000, zero_padding=False)

    Args:
        task: a name of `TASKS`.
        split: `"train"`, `"validation"` or `"test"`; None for a dictionary of splits.
        max_length: digits of the longest operand.
        num_samples: rows; without `split`, of all three splits each, or a mapping from splits to their rows.
        min_length: digits of the shortest operand.
        seed: of everything that is drawn.
        streaming: make rows as they are asked for, and write nothing.
        num_proc: processes that make shards of a dataset on disk.
        cache_dir: folder of datasets on disk; default, that of `datasets`.
        task_fields: the task's format, such as `zero_padding` of `Addition`.

    Raises:
        ValueError: an argument is not legal; nothing has been made yet.
    """
    if num_proc is not None:
        _check_integer("num_proc", num_proc, 1)
        if streaming:
            raise ValueError(f"num_proc is for datasets on disk, got {num_proc} with streaming=True")
    if split is not None and split not in SPLITS:
        raise ValueError(f"split {split!r} is unknown: choose one of {', '.join(SPLITS)}")
    if not isinstance(num_samples, Mapping):
        num_samples = dict.fromkeys(SPLITS if split is None else (split,), num_samples)
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
    )
    if streaming:
        return builder.as_streaming_dataset(split)
    builder.download_and_prepare(num_proc=num_proc)
    return builder.as_dataset(split)


def collate_rows(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """A batch for `CoupledGPTForCausalLM` from rows of a dataset, as a `data_collator` of Trainer.

    Trainer needs `remove_unused_columns=False` to leave the rows whole. Ids are those of the columns, nothing random; for
    that, see `CouplingCollator`.

    Returns:
        `input_ids` and `labels` (count, columns), -100 where not supervised; `position_ids` (count, levels, columns);
        `attention_mask` (count, columns); `logits_to_keep`. Padding is on the right.
    """

    def pad(name: str, value: int) -> torch.Tensor:
        values = [torch.as_tensor(row[name]).long() for row in rows]
        return torch.nn.utils.rnn.pad_sequence(values, batch_first=True, padding_value=value)

    input_ids = pad("tokens", PAD)
    query_lengths = torch.tensor([row["query_length"] for row in rows])
    labels = input_ids.masked_fill(torch.arange(input_ids.shape[1]) < query_lengths[:, None], IGNORED)
    labels = labels.masked_fill(input_ids == PAD, IGNORED)
    if "supervised" in rows[0]:
        labels = labels.masked_fill(pad("supervised", 0) == 0, IGNORED)
    levels = [name for name in rows[0] if name.startswith("position_ids")]
    return {
        "input_ids": input_ids,
        "labels": labels,
        "position_ids": torch.stack([pad(name, 0) for name in levels], dim=1),
        "attention_mask": (input_ids != PAD).long(),
        "logits_to_keep": int(input_ids.shape[1] - query_lengths.min()) + 1,
    }
