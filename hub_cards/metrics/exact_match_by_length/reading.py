"""What the metric takes: sequences of token ids, or texts; anything else is refused. Imports numpy alone."""

# Used by: counting.py, exact_match_by_length.py. Changed freely.

from collections.abc import Iterable, Mapping, Set
from typing import Any

import numpy as np

IGNORED = -100
"""Reference tokens with this id do not count."""

ENDED = -1
"""The id of a character that a text does not have, since it has ended before."""


def read_rows(values: object, name: str, rows: str) -> list[Any]:
    """Return the elements of a list, an array or a tensor.

    Args:
        name: what to call the values.
        rows: what the elements are, for messages.

    Raises:
        ValueError: it is a text, has no order, or is nothing that has elements.
    """
    values = _on_host(values, name)
    is_scalar = isinstance(values, np.ndarray) and values.ndim == 0
    if isinstance(values, str | bytes | bytearray | Mapping | Set) or not isinstance(values, Iterable) or is_scalar:
        raise ValueError(f"{name} must be a list of {rows}, got {_shown(values)}")
    return list(values)


def check_counts(**counts: int) -> None:
    """Raise ValueError unless there are as many elements under every name."""
    if len(set(counts.values())) > 1:
        raise ValueError(f"{' and '.join(counts)} must be equally many, got {' and '.join(map(str, counts.values()))}")


def read_whole_numbers(values: object, name: str, axes: int) -> np.ndarray:
    """Return whole numbers as int64.

    Args:
        axes: the axes that the numbers must have.

    Raises:
        ValueError: they are no numbers, or have other axes; or one is not whole, is not exact, or has more than 64 bits.
    """
    values = _on_host(values, name)
    legal = f"{name} must be " + ("a list of whole numbers" if axes else "a whole number")
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):
        array = np.empty(0, object)
    if array.dtype.kind not in "iuf" or array.ndim != axes:
        raise ValueError(f"{legal}, got {_shown(values)}")
    if array.dtype.kind == "f":
        # From here on, floats are not equal to the integers that they were made from. Infinite ones are not below.
        bits = min(np.finfo(array.dtype).nmant + 1, 63)
        is_exact, most = (np.abs(array) < 2**bits) & (array == np.rint(array)), f"{array.dtype} below 2^{bits}"
    else:
        is_exact, most = array < 2**63, "at most 64 bits"
    if not is_exact.all():
        raise ValueError(f"{legal} of {most}, got {array[~is_exact].flat[0]}")
    return array.astype(np.int64)


def read_sequence(prediction: object, reference: object, number: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Return a prediction and its reference as ids, equally many, and how many of them count.

    The ids of texts are those of their characters, as far as the longer text goes.

    Args:
        number: the place of the sequence, for messages.

    Raises:
        ValueError: they are neither two texts nor two equally long lists of ids, or no token counts.
    """
    if isinstance(prediction, str) != isinstance(reference, str):
        raise ValueError(
            f"predictions and references must both be texts or both be ids, got {_shown(prediction)} and "
            f"{_shown(reference)} in sequence {number}"
        )
    if isinstance(prediction, str) and isinstance(reference, str):
        length = max(len(prediction), len(reference))
        predicted, right = (
            np.array([*map(ord, text), *[ENDED] * (length - len(text))], np.int64) for text in (prediction, reference)
        )
        counted = length
    else:
        predicted, right = (
            read_whole_numbers(values, f"token ids of sequence {number} of {name}", 1)
            for name, values in (("predictions", prediction), ("references", reference))
        )
        if len(predicted) != len(right):
            raise ValueError(
                f"references and predictions must be equally long, got {len(right)} and {len(predicted)} tokens in sequence "
                f"{number}"
            )
        counted = int((right != IGNORED).sum())
    if counted == 0:
        raise ValueError(f"references must have tokens that count (not {IGNORED}), got none in sequence {number}")
    return predicted, right, counted


def read_text(value: object, name: str, number: int) -> str:
    """Return a text, or that of the last message of a conversation.

    Raises:
        ValueError: it is neither.
    """
    text = value
    if isinstance(value, list | tuple) and value and isinstance(value[-1], Mapping):
        text = value[-1].get("content")
    if not isinstance(text, str):
        raise ValueError(f"{name} must be texts, or conversations that end with one, got {_shown(value)} at place {number}")
    return text


def _on_host(values: Any, name: str) -> Any:
    """A tensor of whatever device, or a column of a table, as an array; other things as they are.

    Raises:
        ValueError: it is a tensor in half precision, which rounds numbers above 256, or an array that hides some.
    """
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(f"{name} must be an array that hides nothing, got {_shown(values)}: {IGNORED} does not count")
    if hasattr(values, "detach"):
        if values.is_floating_point() and values.element_size() < 4:
            raise ValueError(f"{name} must be whole numbers, got a tensor of {values.dtype}, which rounds them")
        return values.detach().cpu().numpy()
    return values.to_numpy() if hasattr(values, "to_numpy") else values


def _shown(value: object) -> str:
    """A value in one short line."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype}, {value.shape}"
    return " ".join(f"{value!r:.60}".split())
