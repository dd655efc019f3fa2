"""Columns of a dataset: problems as Arrow tables, without padding, with their text and how hard they are."""

from typing import Any

import numpy as np
import pyarrow as pa


def example_columns(
    part: Any, digits: np.ndarray, lengths: np.ndarray, generator: np.random.Generator | None = None, whole: Any = None
) -> pa.Table:
    """Rows of a dataset, one for each problem of a group.

    Columns of every task: `input_ids`, without padding, and `labels`, as long, -100 for tokens that are not supervised;
    `prompt`, the text that a model is given, `completion`, the text that a model writes, without its end token, and
    `answer`, as a person writes it; `operand_lengths`, digits. A family adds columns of its own, see `Decoder.columns` and
    `Encoder.columns`, and so may a task: sums of two numbers have a `longest_cascade` in columns, and products of a number
    and a multiplier a `dependency_length` in levels, see `complexity.cascade_lengths` and `complexity.dependency_lengths`.

    Args:
        part: the task.
        digits, lengths: as `Task.draw` returns and takes them.
        generator: source of the text around the numbers, for an encoder task that has any.
        whole: the task that this one is a part of. If that task has several parts, all have the same columns: the position
            ids are those of its own coupling rule, the columns that a part may add are left out, and `task` is the name of
            the part.
    """
    if whole is None or len(whole.parts) == 1:
        return pa.table(part.family.columns(part, digits, lengths, generator) | part.extra_columns(digits))
    columns = part.family.columns(part, digits, lengths, generator, whole.coupling)
    return pa.table(columns | {"task": pa.array([part.name] * len(digits))})


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
