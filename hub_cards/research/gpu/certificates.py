"""What is certified and proved on the device, beside the same on the CPU."""

# Used by: whoever runs or imports it. Changed freely.

import json
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch

from longhand import eval as evaluation
from longhand import train
from longhand.data.proofs.certificate import check_thoroughly
from longhand.data.proofs.lengths.up_to_length import LengthProver
from longhand.hub_cards.checkpoints.checkpoint import CERTIFICATE_FILE, Checkpoint
from longhand.hub_cards.checkpoints.load import list_zoo, load_checkpoint, zoo
from longhand.hub_cards.research.gpu.record import Record
from longhand.hub_cards.result_rows import RESULTS_FILE, Row, read_results

PROVED = "addition-absolute-proved"
"""The shipped checkpoint whose lengths are proved one by one."""

SMALL_STEPS = ["--batch_size", "64", "--validation_samples", "8", "--test_lengths", "5", "--test_samples", "8"]
SMALL_ZOO = ("copy", "parity")
LENGTHS = (1, 2, 3, 4)
CLOSE = 1e-3
"""The largest difference of margins, in logits of float32, that two devices may have."""


def run(record: Record) -> None:
    """Train and certify the main job, then certify what is shipped, and prove lengths."""
    folder = record.output / "addition"
    record.measure("addition", partial(train_certified, folder, record.small), needs=20)
    if (folder / CERTIFICATE_FILE).exists():
        record.measure("addition, verified", partial(verified, folder))
        record.measure("addition, certified on both", partial(same_certificate, str(folder), record.device), needs=5)
    for length in LENGTHS[: 1 if record.small else None]:
        record.measure(f"{PROVED}, length {length}", partial(same_length, length, record.device), needs=5)
    record.measure("worst problem", partial(worst, 1.0 if record.small else 5.0), needs=10)
    for name in SMALL_ZOO if record.small else by_size():
        record.measure(f"{name}, certified on both", partial(same_certificate, name, record.device), needs=5)


def train_certified(folder: Path, small: bool) -> Row:
    """Train the recipe `addition` until it is certified, and say what its folder says."""
    options = [*SMALL_STEPS, "--use_cpu", "True"] if small else []
    if folder.exists():
        options.append("--resume")
    began = time.perf_counter()
    with suppress(SystemExit):
        train.main(["addition", *options, "--output_dir", str(folder)])
    seconds = time.perf_counter() - began
    stated = json.loads((folder / CERTIFICATE_FILE).read_text(encoding="utf-8"))
    rows = [row for row in read_results(folder / RESULTS_FILE) if row["model"] == folder.name]
    least = min(row["exact_match"] for row in rows)
    return {"certified": stated["certified"], "ratio": stated["ratio"], "exact_match": least, "seconds": round(seconds, 1)}


def verified(folder: Path) -> Row:
    """What the verifier beside a certificate says."""
    command = [sys.executable, str(folder / "verify_certificate.py"), str(folder)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return {"verified": said.returncode == 0, "said": " ".join((said.stdout + said.stderr).split())[-200:]}


def by_size() -> list[str]:
    """The certified checkpoints of the zoo, those with the fewest predictions first."""
    sizes = {}
    for name in list_zoo():
        if (file := Path(zoo(name), CERTIFICATE_FILE)).is_file():
            stated = json.loads(file.read_text(encoding="utf-8"))
            if stated["certified"]:
                sizes[name] = stated["predictions"]
    return sorted(sizes, key=lambda name: sizes[name])


def on(checkpoint: Checkpoint, device: torch.device) -> Any:
    """The model of a checkpoint on a device."""
    model: Any = checkpoint.model
    return model.to(device)


def same_certificate(source: str, device: torch.device) -> Row:
    """The check of a checkpoint on a device and on the CPU."""
    checkpoint = load_checkpoint(zoo(source) if source in list_zoo() else source)
    checks, seconds = [], []
    for where in (device, torch.device("cpu")):
        began = time.perf_counter()
        checks.append(check_thoroughly(on(checkpoint, where), checkpoint.task))
        seconds.append(round(time.perf_counter() - began, 2))
    found, expected = checks
    same = (found.predictions, found.wrong) == (expected.predictions, expected.wrong)
    same &= abs(found.margin - expected.margin) < CLOSE
    row: Row = {"predictions": found.predictions, "wrong": found.wrong, "margin": found.margin, "ratio": found.ratio}
    row |= {"margin_on_cpu": expected.margin, "ratio_on_cpu": expected.ratio, "same": same}
    return row | {"seconds": seconds[0], "seconds_on_cpu": seconds[1]}


def same_length(length: int, device: torch.device) -> Row:
    """The verdict on a length, on a device and on the CPU."""
    checkpoint = load_checkpoint(zoo(PROVED))
    places = (device, torch.device("cpu"))
    found, expected = (LengthProver(on(checkpoint, place), checkpoint.task).verdict(length) for place in places)
    same = (found.verdict, found.cases, found.open) == (expected.verdict, expected.cases, expected.open)
    row: Row = {"verdict": found.verdict, "cases": found.cases, "same": same}
    return row | {"seconds": found.seconds, "seconds_on_cpu": expected.seconds}


def worst(seconds: float) -> Row:
    """What `eval.py --worst` finds of the model whose lengths are proved, beyond these lengths."""
    folder = Path(zoo(PROVED)).name
    with_folder = Path("outputs", "evaluation", f"gpu-{folder}")
    words = ["--lengths", "3,199", "--num_samples", "20", "--worst", str(seconds), "--output_dir", str(with_folder)]
    evaluation.main([PROVED, *words])
    rows = read_results(with_folder / RESULTS_FILE)
    return {"lengths": [row["length"] for row in rows], "tried": [row["worst_tried"] for row in rows]}
