"""When values of tensors are read: checks, and shapes that follow from values, without a wait for an accelerator.

The host reads tensors on the processor at no cost. To read one on an accelerator, it waits until all that was queued there
is done, and queues the next work only then. It waits as long for a copy from memory that is not pinned. A graph that is
traced has no values at all. So what goes to CUDA goes by `send`, which keeps the host's copy; a step of training reads the
tokens alone, by `on_host`, from this copy if there is one; the device itself checks all other values; and no shape depends
on them.
"""

# Used by: modeling, data, hub_cards/training. Bound by: the digest of the code that travels with a checkpoint: run .ci/code.

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

LONGEST_MESSAGE = 254
"""Bytes of a message that CUDA prints; it refuses longer ones."""


class Sent(NamedTuple):
    """What a tensor on a device keeps of its sending.

    Attributes:
        pinned: the copy that it was sent from, which nothing else writes.
        version: torch's count of the changes of the tensor, as it was then.
    """

    pinned: Tensor
    version: int


def reads_values(tensor: Tensor) -> bool:
    """Return whether values of this tensor may decide what is computed.

    They may not while `torch.compile` or `torch.export` traces, nor in a step of training on CUDA.
    """
    if torch.compiler.is_compiling():
        return False
    return tensor.device.type != "cuda" or not torch.is_grad_enabled()


def on_host(tensor: Tensor) -> Tensor:
    """Return a tensor whose values the host may read; in a traced graph, the tensor itself.

    The host waits for a tensor of a device, unless `send` sent it and nothing has changed it since.
    """
    if torch.compiler.is_compiling():
        return tensor
    sent: Sent | None = getattr(tensor, "sent", None)
    return tensor.cpu() if sent is None or tensor._version != sent.version else sent.pinned


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device. A copy to CUDA is queued, from memory that CUDA reads by itself, so the host goes on."""
    if torch.compiler.is_compiling() or device.type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    pinned = tensor.pin_memory()
    queued: Any = pinned.to(device, non_blocking=True)
    if not queued.is_inference():
        queued.sent = Sent(pinned, queued._version)
    return queued


def all_on_host(*values: Any) -> list[Any]:
    """Return tensors as `on_host`, after one wait for all if they have one shape and type; and other values as they are."""
    given = [value for value in values if isinstance(value, Tensor)]
    was_sent = all(hasattr(tensor, "sent") for tensor in given)
    if not was_sent and len({(tensor.shape, tensor.dtype) for tensor in given}) == 1:
        copied = iter(on_host(torch.stack(given)))
    else:
        copied = map(on_host, given)
    return [next(copied) if isinstance(value, Tensor) else value for value in values]


Kind = Literal["integers", "floats", "numbers"]
"""What a tensor may hold; numbers are both, and truth values."""

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64)
"""Types whose every value int64 has too. torch compares few of the unsigned ones: models read integers as int64."""

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

TYPES: dict[Kind, tuple[torch.dtype, ...]] = {
    "integers": INTEGERS,
    "floats": FLOATS,
    "numbers": (*INTEGERS, *FLOATS, torch.bool),
}
"""The types of each kind."""

Axis = tuple[str, tuple[int, ...]]
"""An axis in words, and the sizes that it may have; none are any size from 1 on."""


def describe_kind(values: object) -> str:
    """Return the type of a tensor's values, or of what is no tensor."""
    if not isinstance(values, Tensor):
        return type(values).__name__
    return f"{values.dtype} (take torch.int64)" if values.dtype == torch.uint64 else str(values.dtype)


def is_of_kind(values: object, kind: Kind) -> bool:
    """Return whether this is a tensor of a kind."""
    return isinstance(values, Tensor) and values.dtype in TYPES[kind]


def check_tensor(values: Any, name: str, kind: Kind, axes: Sequence[Axis] | None = None, meaning: str = "") -> None:
    """Raise ValueError unless this is a tensor of a kind and a shape.

    Args:
        axes: what is legal for each axis, of which none is empty; None for any shape.
        meaning: further words on what the tensor holds.
    """
    shown = "" if axes is None else f"({', '.join(words for words, _ in axes)})"
    if not is_of_kind(values, kind):
        raise ValueError(f"{name} must be a tensor of {kind}{meaning}{shown and f' {shown}'}, got {describe_kind(values)}")
    if axes is None:
        return
    sizes = tuple(values.shape)
    fits = len(sizes) == len(axes) and all(
        size > 0 and (size in legal or not legal) for size, (_, legal) in zip(sizes, axes, strict=True)
    )
    if not fits:
        least = ", at least one of each" if 0 in sizes or not all(legal for _, legal in axes) else ""
        raise ValueError(f"{name} must be {shown}{least}, got {sizes}")


def require(holds: Tensor, legal: str, found: Callable[[], object]) -> None:
    """Raise ValueError unless every value of a bool tensor is True.

    Where `reads_values` is False the device checks by itself, and so does a compiled graph. If a value is False, the
    processor raises RuntimeError with `legal`; CUDA prints its beginning, and the process ends with CUDA's error at its next
    wait. An exported graph checks nothing.

    Args:
        legal: what would be legal, the first part of the message.
        found: returns what is there, the second part.
    """
    if torch.compiler.is_exporting():
        return
    if not reads_values(holds):
        _leave_to_device(holds.all(), legal)
    elif not holds.all():
        raise ValueError(f"{legal}, got {found()}")


def require_range(values: Tensor, smallest: int, largest: int | None, legal: Callable[[], str]) -> None:
    """Raise ValueError, as `require`, unless integers are in a range; a largest of None is no bound.

    Args:
        legal: returns what would be legal, the first part of the message.
    """
    if torch.compiler.is_exporting():
        return
    low, high = values.aminmax()
    if not reads_values(values):
        _leave_to_device(low >= smallest if largest is None else (low >= smallest) & (high <= largest), legal())
    elif int(low) < smallest:
        raise ValueError(f"{legal()}, got {int(low)}")
    elif largest is not None and int(high) > largest:
        raise ValueError(f"{legal()}, got {int(high)}")


def _leave_to_device(holds: Tensor, legal: str) -> None:
    """Let the device check one truth value, without a wait for it."""
    encoded = legal.encode()
    if len(encoded) > LONGEST_MESSAGE:
        legal = encoded[: LONGEST_MESSAGE - len("...")].decode(errors="ignore") + "..."
    torch._assert_async(holds, legal)
