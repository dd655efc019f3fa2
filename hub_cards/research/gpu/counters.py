"""Counters of what a device does: tensors alive, and how often the host waits for a value.

`LiveBytes` and `HostWaits` count operations as torch dispatches them, so they count on a CPU what a GPU would do;
`cuda_waits` asks CUDA itself.
"""

# Used by: memory.py, speed.py. Changed freely.

import traceback
import warnings
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

PACKAGE = Path(__file__).parents[3]

WAITING = frozenset(
    {
        "_local_scalar_dense",
        "is_nonzero",
        "item",
        "equal",
        "nonzero",
        "nonzero_numpy",
        "masked_select",
        "bincount",
        "_unique2",
        "unique_dim",
        "unique_consecutive",
    }
)
"""Operations that read a value, or whose result has a shape that depends on values: the host waits until it is known."""


class LiveBytes(TorchDispatchMode):
    """Bytes of the tensors that operations make while this mode is on and that are still alive.

    Attributes:
        now: bytes alive now.
        peak: most bytes that were alive at a time.
    """

    def __init__(self):
        super().__init__()
        self.now = self.peak = 0
        self._alive: dict[int, int] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(value, torch.Tensor):
                self._add(value.untyped_storage())
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        place = storage._cdata
        if place in self._alive:
            return
        self._alive[place] = storage.nbytes()
        self.now += storage.nbytes()
        weakref.finalize(storage, self._remove, place)
        self.peak = max(self.peak, self.now)

    def _remove(self, place: int) -> None:
        self.now -= self._alive.pop(place, 0)


class HostWaits(TorchDispatchMode):
    """How often the host waits for a value of a tensor while this mode is on, by the line of code that asks for it.

    Attributes:
        places: the count of each line of this package, as `file:line`, or of a library, as `elsewhere`.
    """

    def __init__(self):
        super().__init__()
        self.places: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """How often the host waited."""
        return self.places.total()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if _waits(func.__name__.partition(".")[0], args, kwargs or {}):
            self.places[_own_line()] += 1
        return func(*args, **(kwargs or {}))


def _waits(name: str, args: tuple, kwargs: dict[str, Any]) -> bool:
    if name in WAITING:
        return True
    if name == "repeat_interleave":
        return kwargs.get("output_size") is None
    if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
        # Rows that a mask chooses are counted first.
        return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    return False


def _own_line() -> str:
    own = [frame for frame in traceback.extract_stack() if Path(frame.filename).is_relative_to(PACKAGE)]
    # What measures is not counted among what waits.
    own = [frame for frame in own if Path(frame.filename).parent != Path(__file__).parent]
    return f"{Path(own[-1].filename).relative_to(PACKAGE)}:{own[-1].lineno}" if own else "elsewhere"


@contextmanager
def cuda_waits() -> Iterator[Counter[str]]:
    """Count how often CUDA makes the host wait, by the line of code; the counter is filled when the context ends."""
    places: Counter[str] = Counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield places
        finally:
            torch.cuda.set_sync_debug_mode("default")
    for warning in caught:
        if "synchronizing CUDA operation" in str(warning.message):
            file = Path(warning.filename)
            name = str(file.relative_to(PACKAGE)) if file.is_relative_to(PACKAGE) else "/".join(file.parts[-2:])
            places[f"{name}:{warning.lineno}"] += 1
