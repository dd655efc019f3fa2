"""An accelerator in simulation: its tensors have values, which the processor computes, and keep CUDA's rules about devices.

Torch's fake tensors (`torch._subclasses.FakeTensorMode`) keep these rules too. They have no values, so checks of values,
distinct rows and loops that end by values stop them.
"""

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")
_MOVES = ("to", "cpu", "cuda", "copy_", "type", "type_as")
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


def _device(value: Any) -> torch.device | None:
    named = isinstance(value, str) and value.split(":")[0] in ("cuda", "cpu")
    return torch.device(value) if named or isinstance(value, torch.device) else None


class Accelerator(TorchFunctionMode):
    """While this mode is on, `cuda` is a device.

    Raises:
        RuntimeError: an operation has tensors of both devices, other than indices and single numbers of the processor.
        TypeError: numpy is to read a tensor on the accelerator.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in _DEVICES:
            return _DEVICES[func](is_on(args[0]))
        name = func.__name__
        tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        on = [value for value in tensors if is_on(value)]
        device = next(filter(None, map(_device, (*kwargs.values(), *args))), None)
        if on and name in ("numpy", "__array__"):
            raise TypeError(f"{name} of a tensor on {CUDA}: call cpu() first")
        checked = tensors
        if name in ("__getitem__", "__setitem__") and is_on(args[0]):
            checked = [args[0], *(value for value in args[2:] if isinstance(value, Tensor))]
        if on and name not in _MOVES and (wrong := [value for value in checked if value.ndim and not is_on(value)]):
            raise RuntimeError(f"{name} of tensors on {CUDA} and on {CPU}, {tuple(wrong[0].shape)}")
        args, kwargs = tree_map(lambda value: CPU if _device(value) is not None else value, (args, kwargs))
        result = func(*args, **kwargs)
        goal = device == CUDA if device is not None else bool(on) and name != "cpu"
        if name == "cuda":
            goal = True
        elif name in _MOVES and device is None and len(tensors) > 1:
            goal = is_on(tensors[0 if name == "copy_" else 1])

        def mark(value: Any) -> Any:
            if not isinstance(value, Tensor) or is_on(value) == goal:
                return value
            return place(value.clone() if any(value is given for given in tensors) else value, goal)

        return result if isinstance(result, torch.Size) else tree_map(mark, result)
