"""Columns of a dataset: problems as Arrow tables, without padding, with what a person reads and how hard they are."""

import numpy as np
import pyarrow as pa
import torch

from longhand.data.collator import IGNORED
from longhand.data.complexity import cascade_lengths
from longhand.data.digits import number_lengths
from longhand.data.formatting import Examples
from longhand.data.tasks.addition import Addition
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.encoder_addition import EncoderAddition
from longhand.data.tasks.encoder_task import EncoderTask
from longhand.data.tasks.task import Task
from longhand.modeling.coupling import plan_position_ids
from longhand.modeling.vocabulary import ALL_TOKENS, ENCODER_TOKENS, FIRST_HINT, LABELS, PAD, PAD_LABEL


def _characters(tokens: tuple[str, ...]) -> np.ndarray:
    """The one or two bytes of every token's character in UTF-8, (tokens, 2); zeros for none."""
    return np.array([list(token.encode().ljust(2, b"\0")) if len(token) == 1 else [0, 0] for token in tokens], np.uint8)


_DECODER_CHARACTERS, _ENCODER_CHARACTERS, _LABEL_CHARACTERS = map(_characters, (ALL_TOKENS, ENCODER_TOKENS, LABELS))


def example_columns(
    task: Task,
    digits: np.ndarray,
    lengths: np.ndarray,
    position_id_type: np.dtype,
    generator: np.random.Generator | None = None,
) -> pa.Table:
    """Rows of a dataset, one for each problem of a group.

    Columns of every task: `tokens`, without padding; `prompt`, the text that a model is given, and `answer`, as a person
    writes it; `operand_lengths`, digits. Sums of two numbers have a `longest_cascade`, columns, see
    `complexity.cascade_lengths`.

    Of decoder tasks: `query_length`, how many tokens are the query; `position_ids` of the task's coupling rule, or
    `position_ids_0`, `position_ids_1`, ... where it has several levels; `supervised` tells which tokens of the response
    count, where not all do. Of encoder tasks: `labels`, the class of each token, -100 where it is not supervised.

    Args:
        digits, lengths: as `Task.draw` gives and takes them.
        position_id_type: an integer type.
        generator: of the text around the numbers, for an encoder task that has any.
    """
    if isinstance(task, EncoderTask):
        return _encoder_columns(task, digits, lengths, generator)
    return _decoder_columns(task, digits, lengths, position_id_type)


def _decoder_columns(task: DecoderTask, digits: np.ndarray, lengths: np.ndarray, position_id_type: np.dtype) -> pa.Table:
    examples = task.format(digits, lengths)
    tokens, query_lengths = examples.tokens, examples.query_lengths
    # Where all rows have one layout, one row of a mask stands for all.
    masked = slice(1) if examples.same_layout else slice(None)
    column, query_ends = np.arange(tokens.shape[1], dtype=np.int32), query_lengths[masked, None].astype(np.int32)
    present = tokens[masked] != PAD
    ends = present.sum(axis=1, keepdims=True, dtype=np.int32)
    columns = {
        "tokens": _lists(tokens.astype(np.min_scalar_type(task.vocab_size - 1), copy=False), present),
        "query_length": pa.array(query_lengths.astype(np.int32)),
    }
    if examples.supervised is not None:
        columns["supervised"] = _lists(np.broadcast_to(examples.supervised, tokens.shape), present)

    position_ids = planned_position_ids(task, examples, lengths, position_id_type)
    levels = position_ids.shape[1]
    for level in range(levels):
        name = f"position_ids_{level}" if levels > 1 else "position_ids"
        columns[name] = _lists(np.broadcast_to(position_ids[:, level], tokens.shape), present)

    columns["prompt"] = _texts(_lists(tokens, (column > 0) & (column < query_ends)), _DECODER_CHARACTERS)
    response = _texts(_lists(tokens, (column >= query_ends) & (column < ends - 1)), _DECODER_CHARACTERS)
    columns["answer"] = task.reader.read_column(response)

    columns["operand_lengths"] = _lists(lengths.astype(np.int32), lengths > 0)
    if isinstance(task, Addition):
        columns["longest_cascade"] = pa.array(cascade_lengths(digits[:, 0], digits[:, 1]).astype(np.int32))
    return pa.table(columns)


def _encoder_columns(
    task: EncoderTask, digits: np.ndarray, lengths: np.ndarray, generator: np.random.Generator | None
) -> pa.Table:
    _, field_width = task.field_widths(int(lengths[:, 0].max()))
    examples = task.write(digits, field_width, generator)
    tokens, labels = examples.tokens, examples.labels
    present = tokens != PAD
    written = number_lengths(digits).astype(np.int32)
    columns = {
        "tokens": _lists(tokens, present),
        "labels": _lists(labels, present),
        "prompt": _texts(_lists(tokens, present), _ENCODER_CHARACTERS),
        "answer": _texts(_lists(labels, (labels != IGNORED) & (labels != PAD_LABEL)), _LABEL_CHARACTERS),
        "operand_lengths": _lists(written, np.ones((1, written.shape[1]), dtype=bool)),
    }
    if isinstance(task, EncoderAddition):
        columns["longest_cascade"] = pa.array(cascade_lengths(digits[:, 0], digits[:, 1]).astype(np.int32))
    return pa.table(columns)


def planned_position_ids(task: DecoderTask, examples: Examples, lengths: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """(1 or count, levels, columns), as `CouplingCollator` gives them, in an integer type that holds them."""
    # Operands of the same lengths make the same layout up to `=`, which is all that a rule reads: each is planned once.
    problems, same = slice(1), slice(None)
    if not examples.same_layout:
        same = np.zeros(len(lengths), dtype=np.int64)
        # Operand by operand: sorting whole rows takes ten times as long.
        for operand in lengths.T:
            _, problems, same = np.unique(same * (lengths.max() + 1) + operand, return_index=True, return_inverse=True)
    planned = torch.from_numpy(examples.tokens[problems]).long()
    return plan_position_ids(task.coupling, planned, planned.shape[1]).numpy().astype(dtype)[same]


def _lists(values: np.ndarray, kept: np.ndarray) -> pa.ListArray:
    """Those values (count, columns) of each row that are `kept` (count or 1, columns)."""
    if len(kept) == 1:
        first, last = np.flatnonzero(kept[0])[[0, -1]]
        values, kept = values[:, first : last + 1], kept[:, first : last + 1]
    flat = values.reshape(-1) if kept.all() else values[np.broadcast_to(kept, values.shape)]
    offsets = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum(np.broadcast_to(kept.sum(axis=1, dtype=np.int32), len(values)), out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat))


def _texts(tokens: pa.ListArray, table: np.ndarray) -> pa.StringArray:
    """The text of each list of tokens whose characters are in a table, see `_characters`."""
    flat, offsets = tokens.values.to_numpy(), tokens.offsets.to_numpy()
    if table[:, 1].any() and flat.max(initial=0) >= FIRST_HINT:
        characters = table[flat]
        used = characters > 0
        characters = characters[used]
        offsets = np.concatenate([[0], np.cumsum(used.sum(axis=1))])[offsets].astype(np.int32)
    else:
        # Byte by byte, which indexing takes five times as long for.
        characters = flat.astype(np.uint8, copy=False).tobytes().translate(table[:, 0].tobytes().ljust(256, b"\0"))
    return pa.StringArray.from_buffers(len(tokens), pa.py_buffer(offsets), pa.py_buffer(characters))


def reorder(column: pa.Array, place: pa.Array) -> pa.Array:
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
