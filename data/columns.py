"""Columns of a dataset: problems as Arrow tables, without padding, with their text and how hard they are."""

# Used by: builder.py, hub_cards/evaluation, hub_cards/publishing. Changed freely.

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from longhand.data.collator import IGNORED
from longhand.data.digits import number_lengths
from longhand.data.families import DECODER, legal_rules
from longhand.data.formatting import Examples
from longhand.data.tasks.task import Task
from longhand.modeling import PairwiseBertConfig
from longhand.modeling.coupling import CouplingRule, find_rule, plan_position_ids
from longhand.modeling.encoder_maps import COLUMNS, GRID, RULE_IDS, num_relations, relate_ids, virtual_indices
from longhand.modeling.relations import Window, coupled_pair_map, level_ranges, num_coupled_relations
from longhand.modeling.settling import answer_relations, find_answers, find_labels
from longhand.modeling.vocabulary import PAD

_MAP_CELLS = 2**22
"""Most pairs of tokens, of all rows together, whose relations are computed at once."""

_MOST_MAPPED = 2**13
"""Most tokens of a row with a pair map."""


@dataclass(frozen=True)
class RowStructure:
    """The structure that rows carry, as models take it; see `FamilyRows.columns` and `FamilyRows.pair_map`.

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


NO_STRUCTURE = RowStructure()


def example_columns(
    part: Task,
    digits: np.ndarray,
    lengths: np.ndarray,
    generator: np.random.Generator | None = None,
    whole: Task | None = None,
    structure: RowStructure = NO_STRUCTURE,
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
    columns = rows_of(part).columns(part, digits, lengths, generator, structure, whole if joined else part)
    added = {"task": pa.array([part.name] * len(digits))} if joined else part.extra_columns(digits)
    return pa.table(columns | added)


def with_pair_maps(table: pa.Table, task: Task, structure: RowStructure) -> Iterator[pa.Table]:
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


def _pair_maps(table: pa.Table, task: Task, structure: RowStructure) -> pa.ListArray:
    """The map of every row, lists of lists."""
    lengths = pc.list_value_length(table["input_ids"]).to_numpy().astype(np.int64)
    tokens, ids = (_leaves(table[name]) for name in ("input_ids", "position_ids"))
    levels = len(ids) // len(tokens)
    starts = np.cumsum(lengths) - lengths
    ends = np.cumsum(lengths**2)
    relations = np.empty(ends[-1], np.int8 if rows_of(task).num_relations(task, structure) <= 128 else np.int16)
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        own_tokens = tokens[starts[rows, None] + np.arange(length)].astype(np.int64)
        own_ids = ids[levels * starts[rows, None] + np.arange(levels * length)].astype(np.int64)
        maps = rows_of(task).pair_map(task, own_tokens, own_ids.reshape(len(rows), levels, length), structure)
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


class FamilyRows(ABC):
    """What a dataset holds of the tasks of one family of models: columns, and the structure that rows can carry."""

    @abstractmethod
    def columns(
        self,
        task: Task,
        digits: np.ndarray,
        lengths: np.ndarray,
        generator: np.random.Generator | None,
        structure: RowStructure = NO_STRUCTURE,
        whole: Task | None = None,
    ) -> dict[str, pa.Array]:
        """Columns of a dataset by name, see `data.columns.example_columns`.

        Args:
            structure: whether there are position ids, and by which rule.
            whole: the task whose own rule it is; None for this task.
        """

    @abstractmethod
    def rules(self, task: Task) -> tuple[str, ...]:
        """The rules by which a task's rows may have structure, the task's own first."""

    @abstractmethod
    def num_relations(self, task: Task, structure: RowStructure) -> int:
        """The number of relations in the pair maps of a task's rows, 0 to this number - 1.

        Raises:
            ValueError: a field of the structure does not fit the rule.
        """

    @abstractmethod
    def pair_map(self, task: Task, tokens: np.ndarray, ids: np.ndarray, structure: RowStructure) -> np.ndarray:
        """The relations (count or 1, columns, columns) of the tokens (count, columns) of whole rows, without padding.

        They are what a model derives with these fields in its configuration. One row stands for all if they are the same.

        Args:
            ids: (count, levels, columns), their position ids.

        Raises:
            ValueError: the rule cannot read a row.
        """

    def check_structure(self, task: Task, structure: RowStructure) -> None:
        """Raise ValueError if a task's rows cannot carry this structure."""
        if structure.coupling not in (None, *(legal := self.rules(task))):
            raise ValueError(
                f"coupling {structure.coupling!r} does not read this format of {task.name!r}: "
                f"choose one of {', '.join(legal)}"
            )
        if structure.pair_map:
            self.num_relations(task, structure)


class DecoderRows(FamilyRows):
    """Query and response in one row, with the ids of a coupling rule."""

    def rules(self, task):
        return legal_rules(task)

    def rule_of(self, task, coupling: str | None) -> CouplingRule:
        """The rule of this name, the task's own if it is that one's or None."""
        return task.rule if coupling in (None, task.coupling) else find_rule(coupling)

    def window_of(self, task, structure: RowStructure) -> tuple[Window, bool]:
        """The window of pair maps, and whether it hides pairs outside: by default as `CoupledGPTConfig` chooses them."""
        rule = self.rule_of(task, structure.coupling)
        bounds, windowed = structure.relation_range, structure.windowed is not False
        if bounds is None and rule.relations:
            if not windowed:
                raise ValueError(
                    f"the coupling rule {rule.name!r} names only the relations of a window: give relation_range, or "
                    "set windowed"
                )
            return rule.relations, windowed
        bounds = bounds or (0, 1)
        if len(bounds) not in (2, 2 * rule.levels) or any(low > high for low, high in level_ranges(bounds, rule.levels)):
            raise ValueError(
                f"relation_range must be two integers, low <= high, or two for each of {rule.levels} level(s), got {bounds}"
            )
        return bounds, windowed

    def num_relations(self, task, structure):
        return num_coupled_relations(self.window_of(task, structure)[0], self.rule_of(task, structure.coupling).levels)

    def pair_map(self, task, tokens, ids, structure):
        token_ids = torch.from_numpy(ids)
        return coupled_pair_map(token_ids, token_ids, *self.window_of(task, structure)).numpy()

    def columns(self, task, digits, lengths, generator, structure=NO_STRUCTURE, whole=None):
        """Its own columns are `query_length`, the number of tokens of the query, and the ids of a coupling rule."""
        examples = task.format(digits, lengths)
        tokens, query_lengths = examples.tokens, examples.query_lengths
        # If all rows have one layout, one row of a mask stands for all.
        masked = slice(1) if examples.same_layout else slice(None)
        column, query_ends = np.arange(tokens.shape[1], dtype=np.int32), query_lengths[masked, None].astype(np.int32)
        present = tokens[masked] != PAD
        ends = present.sum(axis=1, keepdims=True, dtype=np.int32)
        kind = np.min_scalar_type(-max(len(task.tokens), -IGNORED))
        ignored = column < query_ends
        if examples.supervised is not None:
            ignored = ignored | ~examples.supervised
        columns = {
            "input_ids": list_column(tokens.astype(np.min_scalar_type(len(task.tokens) - 1), copy=False), present),
            "labels": list_column(np.where(ignored, IGNORED, tokens.astype(kind)), present),
            "query_length": pa.array(query_lengths.astype(np.int32)),
        }
        if structure.needs_ids:
            rule = self.rule_of(whole or task, structure.coupling)
            if examples.position_ids is not None and not rule.reads_any_text:
                ids = examples.position_ids
            else:
                ids = planned_position_ids(rule, examples, lengths)
            columns["position_ids"] = ids_column(ids, np.broadcast_to(present, tokens.shape))
        characters = character_table(task.tokens)
        columns["prompt"] = text_column(list_column(tokens, (column > 0) & (column < query_ends)), characters)
        columns["completion"] = text_column(list_column(tokens, (column >= query_ends) & (column < ends - 1)), characters)
        columns["answer"] = pa.array(map(task.reader.read, columns["completion"].to_pylist()), pa.string())
        columns["operand_lengths"] = list_column(lengths.astype(np.int32), lengths > 0)
        return columns


def planned_position_ids(coupling: str | CouplingRule, examples: Examples, lengths: np.ndarray) -> np.ndarray:
    """(1 or count, levels, columns), as `CouplingCollator` gives them."""
    planned = torch.from_numpy(examples.tokens).long()
    if examples.same_layout:
        return plan_position_ids(coupling, planned[:1], planned.shape[1]).numpy()
    # A rule reads the query only, whose layout follows from the lengths of the operands: plan each layout once.
    layout = np.zeros(len(lengths), dtype=np.int64)
    # Sorting operand by operand is ten times as fast as sorting whole rows.
    for operand in lengths.T:
        _, problems, layout = np.unique(layout * (lengths.max() + 1) + operand, return_index=True, return_inverse=True)
    ids = plan_position_ids(coupling, planned[problems], planned.shape[1])
    return ids.expand(len(problems), -1, -1).numpy()[layout]


_ENCODER_DEFAULTS: Any = PairwiseBertConfig()  # type: ignore[call-arg]
"""The configuration that says which relations the pair maps of rows have by default."""


class EncoderRows(FamilyRows):
    """Tokens with a label each, and relations between them."""

    def rules(self, task):
        others = ("relative",) if task.settling_map in (GRID, COLUMNS) else RULE_IDS
        return tuple(dict.fromkeys((*filter(None, [task.settling_map]), *others)))

    def rule_of(self, task, coupling: str | None) -> str:
        """The name of the rule, the task's own if it is None."""
        return coupling or self.rules(task)[0]

    def window_of(self, task, structure: RowStructure) -> tuple[tuple[int, ...], bool]:
        """The range of differences, and whether it is a window: by default as `PairwiseBertConfig` chooses them."""
        rule, bounds = self.rule_of(task, structure.coupling), structure.relation_range
        if rule in (GRID, COLUMNS) and (bounds is not None or structure.windowed is not None):
            raise ValueError(f"pair maps of {rule!r} have no differences: leave out relation_range and windowed")
        if bounds is not None and (len(bounds) != 2 or not bounds[0] <= 0 <= bounds[1]):
            raise ValueError(f"relation_range must be two integers, low <= 0 <= high, got {bounds}")
        return tuple(bounds or _ENCODER_DEFAULTS.relation_range), structure.windowed is True

    def num_relations(self, task, structure):
        bounds, _ = self.window_of(task, structure)
        rule = self.rule_of(task, structure.coupling)
        if rule == COLUMNS:
            return task.transducer.label_relations
        return num_relations(rule, bounds, _ENCODER_DEFAULTS.max_multiplier_length)

    def rule_ids(self, task, tokens: np.ndarray, coupling: str | None) -> np.ndarray:
        """Ids (count, 1, columns) of tokens (count, columns): those whose differences are the rule's relations.

        The rules `grid` and `columns` relate tokens by other means: their ids number the tokens.
        """
        rule, ids = self.rule_of(task, coupling), torch.from_numpy(tokens.astype(np.int64))
        if rule in RULE_IDS and task.settling_map != COLUMNS:
            return RULE_IDS[rule](ids, virtual_indices(ids)).unsqueeze(1).numpy()
        present = ids != PAD
        return present.cumsum(1).masked_fill(~present, 0).unsqueeze(1).numpy()

    def pair_map(self, task, tokens, ids, structure):
        rule, input_ids = self.rule_of(task, structure.coupling), torch.from_numpy(tokens)
        if rule == COLUMNS:
            return answer_relations(find_labels(task.transducer, input_ids), input_ids.shape).numpy()
        if rule == GRID:
            return answer_relations(find_answers(GRID, input_ids, (), 0), input_ids.shape).numpy()
        longest = _ENCODER_DEFAULTS.max_multiplier_length
        return relate_ids(rule, torch.from_numpy(ids[:, 0]), input_ids, *self.window_of(task, structure), longest).numpy()

    def columns(self, task, digits, lengths, generator, structure=NO_STRUCTURE, whole=None):
        """Labels are the class of each token; the completion is the text of those that give the answer."""
        examples = task.write(digits, *task.layout(lengths), generator=generator)
        tokens, labels = examples.tokens, examples.labels
        present = tokens != PAD
        written = number_lengths(digits).astype(np.int32)
        characters = character_table(task.tokens)
        completion = text_column(list_column(*task.answer_labels(tokens, labels)), character_table(task.labels))
        columns = {
            "input_ids": list_column(tokens, present),
            "labels": list_column(labels, present),
            "prompt": text_column(list_column(tokens, present), characters),
            "completion": completion,
            "answer": pa.array(map(task.reader.read, completion.to_pylist()), pa.string()),
            "operand_lengths": list_column(written, np.ones((1, written.shape[1]), dtype=bool)),
        }
        if structure.needs_ids:
            columns["position_ids"] = ids_column(self.rule_ids(task, tokens, structure.coupling), present)
        return columns


_DECODER_ROWS = DecoderRows()
_ENCODER_ROWS = EncoderRows()


def rows_of(task: Task) -> FamilyRows:
    """What a dataset holds of a task."""
    return _DECODER_ROWS if task.family is DECODER else _ENCODER_ROWS
