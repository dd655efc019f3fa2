"""How much memory there is, and a refusal of what needs more, before any of it is taken.

Estimates multiply sizes (problems, tokens, pairs of tokens) with bytes that were measured, so they are right within a factor
of 3; `Family.forward_bytes` estimates a model, `PROBLEM_BYTES` the problems. Frameworks and weights are counted as used.
"""

import re
from contextlib import suppress
from pathlib import Path

import psutil
import torch

PROBLEM_BYTES = 10
"""Memory that a token of a problem takes while problems are drawn and written."""

INPUT_BYTES = 40
"""Memory that a token takes while problems become the inputs of a model."""

_GROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "inactive_file"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes", "total_inactive_file"),
)
"""Files of Linux with the limit of a control group, versions 2 and 1, and with what is used; what of it is only a cache."""


def available_memory(device: torch.device | None = None) -> int:
    """Bytes that this process can still take: of the accelerator if `device` is one, else of the machine.

    The least of what the machine has free, what its control group (a container, a job) may still take, and `ulimit -v`.
    """
    if device is not None and device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    rooms = [psutil.virtual_memory().available]
    # Files that a system does not have, and limits that are not numbers ("max"), limit nothing.
    for limit, used, cached in _GROUPS:
        with suppress(OSError, ValueError):
            cache = re.findall(rf"^{cached} (\d+)", _read(str(Path(limit).with_name("memory.stat"))), re.MULTILINE)
            rooms.append(int(_read(limit)) - int(_read(used)) + sum(map(int, cache)))
    # Only Unix has limits of a process.
    with suppress(ImportError):
        import resource

        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        if most != resource.RLIM_INFINITY:
            rooms.append(most - psutil.Process().memory_info().vms)
    return max(0, min(rooms))


def _read(file: str) -> str:
    return Path(file).read_text()


def check_memory(needed: float, what: str, smaller: str, device: torch.device | None = None) -> None:
    """Raise ValueError if something needs more bytes than there are.

    Args:
        what: what needs them, in the plural.
        smaller: which arguments to make smaller.
    """
    if needed > (available := available_memory(device)):
        raise ValueError(
            f"{what} need about {needed / 2**30:,.1f} GiB of memory, this machine has {available / 2**30:,.1f} GiB free: "
            f"make {smaller} smaller"
        )
