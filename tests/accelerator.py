"""An accelerator in simulation: its tensors have values, which the processor computes, and keep CUDA's rules about devices.

It notes where the host would wait for the device: where values are read, and where shapes depend on values.

Torch's fake tensors (`torch._subclasses.FakeTensorMode`) keep these rules too. They have no values, so checks of values,
distinct rows and loops that end by values stop them.
"""

import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn.parallel import scatter_gather
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

replicating = sys.modules["torch.nn.parallel.replicate"]
"""The module, whose name in `torch.nn.parallel` is that of its function."""

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")
TOO_LONG_MESSAGE = 255
"""Bytes of the message of a check on the device that CUDA refuses, in its own words."""

_MOVES = ("to", "cpu", "cuda", "copy_", "type", "type_as")
_READ = ("tolist", "cpu")
_SENT = ("to", "cuda", "tensor", "as_tensor")
"""What copies from the processor; the host waits for the copy unless its source is pinned and it is `non_blocking`."""
_WAITING = {
    *("_local_scalar_dense", "equal", "is_nonzero", "bincount", "repeat_interleave"),
    *("nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive"),
}
"""Operations that read values, or whose results have as many entries as values say; indices by a bool tensor do too."""

_DEVICES = {
    Tensor.device.__get__: lambda is_on: CUDA if is_on else CPU,
    Tensor.is_cuda.__get__: lambda is_on: is_on,
    Tensor.is_cpu.__get__: lambda is_on: not is_on,
}


def is_on(value: Any) -> bool:
    """Whether a tensor lies on the simulated accelerator."""
    return vars(value).get("is_on_accelerator", False)


def place(tensor: Tensor, on: bool = True) -> Tensor:
    """Say of a tensor where it lies."""
    tensor.is_on_accelerator = on
    return tensor


def place_training(trainer: Any, optimizer: Any) -> None:
    """Say that a trainer's model, its gradients, the optimizer's state and the loss lie on the accelerator."""
    model = trainer.model
    gradients = [weights.grad for weights in model.parameters() if weights.grad is not None]
    state = tree_leaves(list(optimizer.state_dict()["state"].values()))
    for tensor in (*model.parameters(), *model.buffers(), *gradients, *state, trainer._tr_loss):
        place(tensor)


def _is_pinned(value: Any) -> bool:
    return vars(value).get("is_pinned_here", False)


def _device(value: Any) -> torch.device | None:
    named = isinstance(value, str) and value.split(":")[0] in ("cuda", "cpu")
    return torch.device(value) if named or isinstance(value, torch.device) else None


def _tensors_of(values: Any) -> Iterator[Tensor]:
    """All tensors of arguments. This is asked for every operation, and torch's `tree_leaves` takes several times as long."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from _tensors_of(value)
    elif isinstance(values, dict):
        yield from _tensors_of([*values.values()])


_HERE = ("accelerator.py", "_python_dispatch.py", "_tensor.py", "overrides.py", "_ops.py", "eval_frame.py")


class _Waits(TorchDispatchMode):
    """Says of each operation that reads values."""

    def __init__(self, note):
        super().__init__()
        self.note = note

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.__name__.split(".")[0]
        by_mask = name.startswith(("index", "_index_put")) and any(
            isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8)
            for index in (args[1] if len(args) > 1 and isinstance(args[1], (list, tuple)) else ())
        )
        if name in _WAITING or by_mask:
            self.note(name)
        return func(*args, **(kwargs or {}))


class Accelerator(TorchFunctionMode):
    """While this mode is on, `cuda` is a device.

    Attributes:
        waits: an operation and a line of code for each time that the host waits.
        copies: how many tensors were sent to it from memory that is pinned, and from memory that is not.

    Raises:
        RuntimeError: an operation has tensors of both devices, other than indices and single numbers of the processor; or
            a check that is left to the device has a message that CUDA does not take.
        TypeError: numpy is to read a tensor on the accelerator.
    """

    def __init__(self):
        super().__init__()
        self.waits: list[str] = []
        self.copies = {"pinned": 0, "unpinned": 0}

    def _note(self, operation: str) -> None:
        lines = [line for line in traceback.extract_stack() if Path(line.filename).name not in _HERE]
        self.waits.append(f"{operation} at {lines[-1].filename}:{lines[-1].lineno}")

    def _run(self, func, args, kwargs):
        with _Waits(self._note):
            return func(*args, **kwargs)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in _DEVICES:
            return _DEVICES[func](is_on(args[0]))
        name = func.__name__
        tensors = [*_tensors_of((args, kwargs))]
        if name == "pin_memory":
            pinned = args[0].clone()
            pinned.is_pinned_here = True
            return pinned
        on = [value for value in tensors if is_on(value)]
        device = next(filter(None, map(_device, (*kwargs.values(), *args))), None)
        if on and name in ("numpy", "__array__"):
            raise TypeError(f"{name} of a tensor on {CUDA}: call cpu() first")
        if on and name == "_assert_async" and len(args[1].encode()) >= TOO_LONG_MESSAGE:
            raise RuntimeError(f"Message length must be smaller than {TOO_LONG_MESSAGE}")
        checked = tensors
        if name in ("__getitem__", "__setitem__") and is_on(args[0]):
            checked = [args[0], *(value for value in args[2:] if isinstance(value, Tensor))]
        if on and name not in _MOVES and (wrong := [value for value in checked if value.ndim and not is_on(value)]):
            raise RuntimeError(f"{name} of tensors on {CUDA} and on {CPU}, {tuple(wrong[0].shape)}")
        if device is not None:
            args, kwargs = tree_map(lambda value: CPU if _device(value) is not None else value, (args, kwargs))
        if on and (name in _READ or (name in _MOVES and device == CPU)):
            self._note(name)
        if not on and name in _SENT and (device == CUDA or name == "cuda"):
            is_sent_pinned = bool(kwargs.get("non_blocking")) and all(map(_is_pinned, tensors))
            self.copies["pinned" if is_sent_pinned else "unpinned"] += 1
            if not is_sent_pinned:
                self._note(name)
        result = self._run(func, args, kwargs) if on else func(*args, **kwargs)
        goal = device == CUDA if device is not None else bool(on) and name != "cpu"
        if name == "cuda":
            goal = True
        elif name in _MOVES and device is None and len(tensors) > 1:
            goal = is_on(tensors[0 if name == "copy_" else 1])

        def mark(value: Any) -> Any:
            if not isinstance(value, Tensor) or is_on(value) == goal:
                return value
            return place(value.clone() if any(value is given for given in tensors) else value, goal)

        if isinstance(result, Tensor):
            return mark(result)
        return tree_map(mark, result) if isinstance(result, (list, tuple)) and not isinstance(result, torch.Size) else result


class _Scattered:
    """In the place of torch's `Scatter`: rows in chunks, as CUDA's are."""

    @staticmethod
    def apply(devices, sizes, dim, tensor):
        return tuple(chunk.clone() for chunk in tensor.chunk(len(devices), dim))


class _Gathered:
    """In the place of torch's `Gather`: numbers become a vector."""

    @staticmethod
    def apply(device, dim, *tensors):
        return torch.cat([tensor.reshape(1) if tensor.ndim == 0 else tensor for tensor in tensors], dim)


def _broadcast(tensors, devices, detach=False):
    """In the place of torch's broadcast: a copy of each tensor for each device."""
    return [[tensor.detach().clone() if detach else tensor.clone() for tensor in tensors] for _ in devices]


class SeveralGPUs(nn.DataParallel):
    """`torch.nn.DataParallel` over two simulated GPUs: torch's own code scatters, replicates and gathers.

    Attributes:
        rows: how many rows each replica got, in each call.
    """

    def __init__(self, module: nn.Module, devices: int = 2):
        super().__init__(module)
        self.device_ids, self.output_device, self.dim, self.src_device_obj = list(range(devices)), 0, 0, CPU
        self.rows: list[list[int]] = []

    def forward(self, *inputs, **named):
        with (
            patch.object(scatter_gather, "Scatter", _Scattered),
            patch.object(scatter_gather, "Gather", _Gathered),
            patch.object(replicating, "_broadcast_coalesced_reshape", _broadcast),
        ):
            return super().forward(*inputs, **named)

    def parallel_apply(self, replicas, inputs, named):
        self.rows.append([len(own["input_ids"]) for own in named])
        return [replica(*own, **options) for replica, own, options in zip(replicas, inputs, named, strict=True)]
