"""The assumption of the proofs, measured: how far off torch's functions are in float32, and scores in kernels of attention.

PROOF.md assumes that exp, log, tanh, erf, roots and quotients are within 4 units in the last place, and that the products
of a score are rounded in float32 alone. Functions are measured on all float32 numbers of their domain, or on every so many,
against float64; quotients on pairs that are drawn. Scores are sums of 64 products that almost cancel: their error is counted
in roundings (2^-24) of the sum of the absolute products, of which PROOF.md allows 64. With all numbers, minutes on a GPU and
an hour on a CPU core:

python -m longhand.hub_cards.research arithmetic --stride 64
"""

# Used by: whoever runs or imports it. Changed freely.

import argparse
import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from longhand.hub_cards.research.gpu.record import Record
from longhand.hub_cards.research.output import show_row, write_output
from longhand.hub_cards.result_rows import Row, hardware, read_results

RESULTS = Path(__file__).with_suffix(".jsonl")

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": torch.exp,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
}
OF_POSITIVE = ("log", "sqrt", "rsqrt")
"""Functions of positive numbers alone."""

PATTERNS = 2**32
"""Patterns of bits of float32."""
AT_ONCE = 2**20
"""Numbers that are measured at once: few enough for the caches of a processor, which halves the time."""
NORMAL = 2.0**-126, 2.0**128
"""Between these absolute values a number of float32 has 24 bits; what underflows has a term of its own in PROOF.md."""
ROUNDING = 2.0**-24
"""Largest relative error of one rounding."""

WIDTH = 64
"""Products of a score."""
SCORES = 2**16
"""Scores that are measured in each kernel."""
SMALL_STRIDE = 2**16
"""Of so many numbers a test measures one."""

TF32 = "eager, TF32"
"""The products of the device's reduced precision: what the proofs exclude."""
BACKENDS = {
    "sdpa, math": SDPBackend.MATH,
    "sdpa, flash": SDPBackend.FLASH_ATTENTION,
    "sdpa, memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
    "sdpa, cuDNN": SDPBackend.CUDNN_ATTENTION,
}


def numbers(stride: int, device: torch.device) -> Iterator[Tensor]:
    """Yield the finite numbers of float32 whose patterns of bits are multiples of a stride, in parts."""
    for first in range(0, PATTERNS, AT_ONCE * stride):
        patterns = torch.arange(first, min(first + AT_ONCE * stride, PATTERNS), stride, device=device)
        signed = torch.where(patterns >= PATTERNS // 2, patterns - PATTERNS, patterns)
        values = signed.to(torch.int32).view(torch.float32)
        yield values[values.isfinite()]


def units_off(found: Tensor, right: Tensor) -> Tensor:
    """Return by how many units in the last place of float32 numbers are off, 0 where the right one is not normal."""
    smallest, largest = NORMAL
    exponents = torch.frexp(right).exponent
    units = (found.double() - right).abs() / torch.exp2(exponents.double() - 24)
    return units.where((right.abs() >= smallest) & (right.abs() < largest), 0.0)


def measure_function(name: str, stride: int, device: torch.device) -> Row:
    """Return the largest error of a function, and where it is."""
    function, count, worst, at = FUNCTIONS[name], 0, 0.0, 0.0
    for values in numbers(stride, device):
        taken = values[values > 0] if name in OF_POSITIVE else values
        if not len(taken):
            continue
        count += len(taken)
        units = units_off(function(taken), function(taken.double()))
        place = int(units.argmax())
        if float(units[place]) > worst:
            worst, at = float(units[place]), float(taken[place])
    return {"what": "function", "inputs": count, "units": worst, "at": at}


def measure_quotients(stride: int, device: torch.device) -> Row:
    """Return the largest error of quotients of numbers that are drawn, as many as a function's with this stride."""
    generator = torch.Generator().manual_seed(0)
    worst, at, drawn = 0.0, "", 0
    while drawn < PATTERNS // stride:
        count = min(AT_ONCE, PATTERNS // stride)
        above, below = (torch.exp2(40 * torch.rand(2, count, generator=generator) - 20)).to(device)
        units = units_off(above / below, above.double() / below.double())
        place = int(units.argmax())
        if float(units[place]) > worst:
            worst, at = float(units[place]), f"{float(above[place])!r} / {float(below[place])!r}"
        drawn += count
    return {"what": "function", "inputs": drawn, "units": worst, "at": at}


def attend_eager(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Attend by two products of matrices and a softmax, as eager attention does."""
    return torch.softmax(query @ key.transpose(-1, -2) + mask, -1) @ value


def attend_by(backend: SDPBackend, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Attend by a kernel of torch, with unscaled scores."""
    with sdpa_kernel(backend):
        return scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=1.0)


def measure_scores(attend: Callable[..., Tensor], device: torch.device) -> Row:
    """Return how far the scores of a kernel are off, in roundings of the sum of their absolute products.

    A query sees a key with its score, and one with the score 0. The weight of the first tells its score.
    """
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, SCORES, WIDTH, generator=generator)
    rest = (query[:, 1:].double() * key[:, 1:].double()).sum(-1)
    query[:, 0] = 1.0
    key[:, 0] = -rest.float()
    products = query.double() * key.double()
    keys = torch.stack([key, torch.zeros_like(key)], 1).unsqueeze(1)
    values = torch.zeros_like(keys)
    values[:, :, 0] = 1.0
    given = (query[:, None, None], keys, values, torch.zeros(1, 1, 1, 2))
    weights = attend(*(tensor.to(device) for tensor in given))[:, 0, 0, 0].double().cpu()
    roundings = (torch.logit(weights) - products.sum(-1)).abs() / (products.abs().sum(-1) * ROUNDING)
    return {"what": "scores", "inputs": SCORES, "roundings": float(roundings.max())}


def measure_reduced_scores(device: torch.device) -> Row:
    """Return as `measure_scores` how far products of TF32 are off."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        return measure_scores(attend_eager, device)
    finally:
        torch.set_float32_matmul_precision(before)


def measurements(stride: int, device: torch.device) -> dict[str, Callable[[], Row]]:
    """Return what is measured on a device, by its name; kernels that it lacks raise RuntimeError."""
    works: dict[str, Callable[[], Row]] = {name: partial(measure_function, name, stride, device) for name in FUNCTIONS}
    works["quotient"] = partial(measure_quotients, stride, device)
    works["eager"] = partial(measure_scores, attend_eager, device)
    if device.type == "cuda":
        works[TF32] = partial(measure_reduced_scores, device)
    works |= {name: partial(measure_scores, partial(attend_by, backend), device) for name, backend in BACKENDS.items()}
    return works


def measure_part(record: Record) -> None:
    """Measure all on the device of the script for a GPU."""
    for name, work in measurements(SMALL_STRIDE if record.small else 1, record.device).items():
        record.measure(name, partial(or_absent, work))


def or_absent(work: Callable[[], Row]) -> Row:
    """Return what was measured, or that the device has no such kernel."""
    try:
        return work()
    except RuntimeError as error:
        if "kernel" not in str(error):
            raise
        return {"what": "absent"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add how many numbers are measured, where, and where the rows are written."""
    parser.add_argument("--stride", type=int, default=1, help="measure one number in so many (default: all)")
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"), help="default: cpu")


def run(stride: int, device: torch.device, output: Path) -> None:
    """Measure, print and write the errors. What the file has with this stride on this hardware is not measured again."""
    kind = {"stride": stride, "hardware": hardware(device), "torch": torch.__version__}
    rows = read_results(output) if output.exists() else []
    done = {row["name"] for row in rows if row.items() >= kind.items()}
    torch.set_num_threads(1)
    for name, work in measurements(stride, device).items():
        if name in done:
            continue
        measured = or_absent(work)
        if measured["what"] == "absent":
            continue
        row = {"name": name, **measured, **kind}
        assert all(math.isfinite(value) for value in row.values() if isinstance(value, float))
        rows.append(row)
        show_row(row)
        write_output(rows, output)
