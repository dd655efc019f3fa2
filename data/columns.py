"""Columns of a dataset: problems as Arrow tables, without padding, with their text and how hard they are."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from longhand.data.tasks.task import Task

_MAP_CELLS = 2**22
"""Most pairs of tokens, of all rows together, whose relations are computed at once."""

_MOST_MAPPED = 2**13
"""Most tokens of a row with a pair map."""


@dataclass(frozen=True)
class Structure:
    """The structure that rows carry, as models take it; see `Family.rule_ids` and `Family.pair_map`.

    Attributes:
        position_ids: whether rows have `position_ids`: a list, or for a rule of several levels a list of each level.
        pair_map: whether rows have a `pair_map`, (tokens, tokens) of relations, -1 for pairs that are not related.
        coupling: name of the rule that both follow from; None for the task's own.
        relation_range: smallest and largest distinct difference of ids in a pair map, as in the models' configurations; None
            for their default.
        windowed: whether pairs outside the range are not related; None for the default of the configurations.
    """

    position_ids: bool = False
    pair_map: bool = False
    coupling: str | None = None
    relation_range: tuple[int, ...] | None = None
    windowed: bool | None = None

    def __post_init__(self):
        if self.relation_range is not None and not all(isinstance(bound, int) for bound in self.relation_range):
            raise ValueError(f"relation_range must be whole numbers, got {self.relation_range}")
        if self.coupling is not None and not (self.position_ids or self.pair_map):
            raise ValueError(f"coupling {self.coupling!r} is for position_ids or pair_map: set one of them to True")
        for name in ("relation_range", "windowed"):
            if (value := getattr(self, name)) is not None and not self.pair_map:
                raise ValueError(f"{name} is for pair_map: set that to True, got {name} {value}")

    @property
    def needs_ids(self) -> bool:
        """Whether ids have to be made: pair maps follow from them."""
        return self.position_ids or self.pair_map


NO_STRUCTURE = Structure()


def example_columns(
    part: Any,
    digits: np.ndarray,
    lengths: np.ndarray,
    generator: np.random.Generator | None = None,
    whole: Any = None,
    structure: Structure = NO_STRUCTURE,
) -> pa.Table:
    """Rows of a dataset, one for each problem of a group.

    Columns of every task: `input_ids`, without padding, and `labels`, as long, -100 for tokens that are not supervised;
    `prompt`, the text that a model is given, `completion`, the text that a model writes, without its end token, and
    `answer`, as a person writes it; `operand_lengths`, digits; `position_ids`, if they are asked for. Decoders add
    `query_length`, and a task may add columns: sums of two numbers have a `longest_cascade` in columns, and products of a
    number and a multiplier a `dependency_length` in levels, see `complexity.cascade_lengths` and
    `complexity.dependency_lengths`.

    Args:
        part: the task.
        digits, lengths: as `Task.draw` returns and takes them.
        generator: source of the text around the numbers, for an encoder task that has any.
        whole: the task that this one is a part of. If that task has several parts, all have the same columns: the position
            ids are those of its own coupling rule, the columns that a part may add are left out, and `task` is the name of
            the part.
        structure: whether there are position ids. Pair maps are added by `with_pair_maps`.
    """
    joined = whole is not None and len(whole.parts) > 1
    columns = part.family.columns(part, digits, lengths, generator, structure, whole if joined else part)
    own = {"task": pa.array([part.name] * len(digits))} if joined else part.extra_columns(digits)
    return pa.table(columns | own)


def with_pair_maps(table: pa.Table, task: "Task", structure: Structure) -> Iterator[pa.Table]:
    """The table of `example_columns` in parts of few rows, each with a column `pair_map`; as it is if none is asked for.

    Raises:
        ValueError: a row is too long, or its tokens are not of the rule's form.
    """
    if not structure.pair_map:
        yield table
        return
    longest = pc.max(pc.list_value_length(table["input_ids"])).as_py()
    if longest > _MOST_MAPPED:
        raise ValueError(f"pair_map is for rows of at most {_MOST_MAPPED:,} tokens, got {longest:,}: choose max_length")
    count = _MAP_CELLS // longest**2 + 1
    for first in range(0, len(table), count):
        part = table.slice(first, count)
        mapped = part.append_column("pair_map", _pair_maps(part, task, structure))
        yield mapped if structure.position_ids else mapped.drop_columns("position_ids")


def _pair_maps(table: pa.Table, task: "Task", structure: Structure) -> pa.ListArray:
    """The map of every row, lists of lists."""
    lengths = pc.list_value_length(table["input_ids"]).to_numpy().astype(np.int64)
    tokens, ids = (_leaves(table[name]) for name in ("input_ids", "position_ids"))
    levels = len(ids) // len(tokens)
    starts = np.cumsum(lengths) - lengths
    ends = np.cumsum(lengths**2)
    relations = np.empty(ends[-1], np.int8 if task.family.num_relations(task, structure) <= 128 else np.int16)
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        own_tokens = tokens[starts[rows, None] + np.arange(length)].astype(np.int64)
        own_ids = ids[levels * starts[rows, None] + np.arange(levels * length)].astype(np.int64)
        maps = task.family.pair_map(task, own_tokens, own_ids.reshape(len(rows), levels, length), structure)
        cells = (ends[rows] - length**2)[:, None] + np.arange(length**2)
        relations[cells] = maps.reshape(len(maps), -1)
    queries = pa.ListArray.from_arrays(_offsets(np.repeat(lengths, lengths)), pa.array(relations))
    return pa.ListArray.from_arrays(_offsets(lengths), queries)


def _leaves(column: pa.ChunkedArray) -> np.ndarray:
    """The numbers in a column of lists, or of lists of lists, one after the other."""
    values = column.combine_chunks()
    while pa.types.is_list(values.type):
        values = values.flatten()
    return values.to_numpy()


def _offsets(lengths: np.ndarray) -> pa.Array:
    """Where lists of these lengths begin and end."""
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))


def ids_column(position_ids: np.ndarray, kept: np.ndarray) -> pa.ListArray:
    """Position ids (count or 1, levels, columns) at the columns of each row that are `kept` (count, columns).

    A row is a list if there is one level, else a list of levels.
    """
    count, columns = kept.shape
    levels = position_ids.shape[1]
    spread = np.broadcast_to(position_ids, (count, levels, columns)).reshape(-1, columns)
    lists = list_column(spread.astype(np.int32), np.repeat(kept, levels, axis=0))
    return lists if levels == 1 else pa.ListArray.from_arrays(_offsets(np.full(count, levels)), lists)


def as_messages(table: pa.Table) -> pa.Table:
    """The rows with a conversation, `messages`, in place of `prompt` and `completion`."""
    texts = [table[name].combine_chunks() for name in ("prompt", "completion")]
    # The chunks' places in turn: the prompt of a row, then its completion.
    turns = np.arange(2 * len(table)).reshape(2, -1).T.reshape(-1)
    roles = pa.array(["user", "assistant"]).take(pa.array(np.arange(2 * len(table)) % 2))
    message = pa.StructArray.from_arrays([roles, pa.concat_arrays(texts).take(pa.array(turns))], ["role", "content"])
    offsets = np.arange(0, 2 * len(table) + 1, 2, dtype=np.int32)
    messages = pa.ListArray.from_arrays(pa.array(offsets), message)
    return table.drop_columns(["prompt", "completion"]).append_column("messages", messages)


def character_table(tokens: tuple[str, ...]) -> np.ndarray:
    """The one to four bytes of every token's character in UTF-8, (tokens, 4); zeros if there are none."""
    return np.array([list((token.encode() if len(token) == 1 else b"").ljust(4, b"\0")) for token in tokens], np.uint8)


def list_column(values: np.ndarray, kept: np.ndarray) -> pa.ListArray:
    """Lists of the values (count, columns) of each row that are `kept` (count or 1, columns)."""
    if len(kept) == 1:
        first, last = np.flatnonzero(kept[0])[[0, -1]]
        values, kept = values[:, first : last + 1], kept[:, first : last + 1]
    flat = values.reshape(-1) if kept.all() else values[np.broadcast_to(kept, values.shape)]
    offsets = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum(np.broadcast_to(kept.sum(axis=1, dtype=np.int32), len(values)), out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat))


def text_column(tokens: pa.ListArray, table: np.ndarray) -> pa.StringArray:
    """The text of each list of tokens whose characters are in a table, see `character_table`."""
    flat, offsets = tokens.values.to_numpy(), tokens.offsets.to_numpy()
    if table[: int(flat.max(initial=0)) + 1, 1].any():
        characters = table[flat]
        used = characters > 0
        characters = characters[used]
        offsets = np.concatenate([[0], np.cumsum(used.sum(axis=1))])[offsets].astype(np.int32)
    else:
        # Translating byte by byte is five times as fast as indexing.
        characters = flat.astype(np.uint8, copy=False).tobytes().translate(table[:, 0].tobytes().ljust(256, b"\0"))
    return pa.StringArray.from_buffers(len(tokens), pa.py_buffer(offsets), pa.py_buffer(characters))
