"""Two processes on one GPU: equal to one, and a run that was killed goes on to the bits of one that was not.

The processes exchange gradients by gloo: NCCL refuses two processes on one GPU.
"""

# Used by: whoever runs or imports it. Changed freely.

import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from longhand.hub_cards.research.gpu.record import Record
from longhand.hub_cards.result_rows import Row, read_results

STEPS, KILLED_AT, SAVED = 20, 12, 10
SIZES = (
    f"--max_steps {STEPS} --eval_steps {SAVED // 2} --batch_size 32 --validation_lengths 4 --validation_samples 11 "
    "--test_lengths 5 --test_samples 8 --max_length 4"
).split()
RECIPES = ("addition", "encoder-addition")
CLOSE = 1e-3
"""The largest difference that the order of additions may make in a weight after so many steps."""

SECONDS = 180
"""Seconds after which processes are killed."""

RUN = """
import os, signal, sys
from longhand import train
from longhand.hub_cards.training import trainer

step = int(sys.argv[1])
class Killed(trainer.BatchTrainer):
    def training_step(self, *args, **kwargs):
        if self.state.global_step == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().training_step(*args, **kwargs)

if step:
    trainer.BatchTrainer = Killed
train.main(sys.argv[2:])
"""
"""A run of train.py that is killed before a step, if one is given."""


def run(record: Record) -> None:
    """Compare two processes with one, and resumed runs with whole ones. The runs of a recipe go on at the same time."""
    killed_processes = (2,) if record.small else (1, 2)
    for recipe in RECIPES[: 1 if record.small else None]:
        with ThreadPoolExecutor(1 if record.small else 4) as pool:
            runs = [pool.submit(partial(whole, recipe, processes, record)) for processes in (1, 2)]
            runs += [pool.submit(partial(killed, recipe, processes, record)) for processes in killed_processes]
            for done in as_completed(runs):
                if error := done.exception():
                    print(f"{recipe}: {error}", flush=True)
        record.measure(f"{recipe}, two and one", partial(two_and_one, recipe, record), needs=10)
        for processes in killed_processes:
            name = f"{recipe}, killed and resumed, {processes}"
            record.measure(name, partial(killed_and_resumed, recipe, processes, record), needs=15)


def words_of(recipe: str, record: Record) -> list[str]:
    until = ["--until_certified", "False"] if recipe == "addition" else []
    device = ["--use_cpu", "True"] if record.small else ["--full_determinism", "True"]
    return [recipe, *SIZES, *until, *device]


def free_port() -> int:
    """A port where processes can meet."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def start(words: list[str], processes: int, killed_at: int = 0) -> str:
    """Run train.py in some processes; return what they printed.

    Raises:
        RuntimeError: a process failed.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    if processes > 1:
        environment |= {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        words = [*words, "--ddp_backend", "gloo"]
    command = [sys.executable, "-c", RUN, str(killed_at), *words]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    started = []
    for rank in range(processes):
        # Every process takes the first GPU: the only one, perhaps.
        own = {"RANK": str(rank), "LOCAL_RANK": "0"} if processes > 1 else {}
        started.append(subprocess.Popen(command, env=environment | own, start_new_session=True, **pipes))
    printed = []
    try:
        for process in started:
            printed.append(process.communicate(timeout=SECONDS)[0])
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    failed = [said for process, said in zip(started, printed, strict=True) if process.returncode]
    if failed and not killed_at:
        print("\n".join(failed), flush=True)
        raise RuntimeError(" | ".join(" ".join(said.split())[-150:] for said in failed))
    return "\n".join(printed)


def largest_difference(one: Path, other: Path) -> float:
    """The largest difference of weights."""
    own, others = (load_file(folder / "model.safetensors") for folder in (one, other))
    return max(float((own[name] - others[name]).abs().max()) for name in own)


def same_bits(one: Path, other: Path) -> bool:
    """Whether all weights are the same bits."""
    own, others = (load_file(folder / "model.safetensors") for folder in (one, other))
    return own.keys() == others.keys() and all(torch.equal(own[name], others[name]) for name in own)


def whole(recipe: str, processes: int, record: Record) -> Path:
    """The folder of a run that nothing stopped."""
    folder = record.output / "processes" / f"{recipe}-{processes}"
    if not (folder / "results.jsonl").exists():
        resumed = ["--resume"] if (folder / "recipe.yaml").exists() else []
        start([*words_of(recipe, record), *resumed, "--output_dir", str(folder)], processes)
    return folder


def killed(recipe: str, processes: int, record: Record) -> Path:
    """The folder of a run that was killed between two checkpoints."""
    folder = record.output / "processes" / f"{recipe}-{processes}-killed"
    if not folder.exists():
        start([*words_of(recipe, record), "--output_dir", str(folder)], processes, KILLED_AT)
    assert not (folder / "model.safetensors").exists(), "the run was not killed"
    return folder


def two_and_one(recipe: str, record: Record) -> Row:
    """Weights and validations of two processes and of one."""
    folders = [whole(recipe, processes, record) for processes in (2, 1)]
    rows = [read_results(folder / "validation.jsonl") for folder in folders]
    counts = [row["num_samples"] for validations in rows for row in validations[:1]]
    matches = [[(row["step"], row["exact_match"], row["token_accuracy"]) for row in validations] for validations in rows]
    difference = largest_difference(*folders)
    return {
        "recipe": recipe,
        "difference": difference,
        "validated": counts,
        "same_validations": matches[0] == matches[1],
        "passed": difference < CLOSE and matches[0] == matches[1],
    }


def killed_and_resumed(recipe: str, processes: int, record: Record) -> Row:
    """Whether a run that was killed between two checkpoints goes on to the same bits."""
    expected, folder = whole(recipe, processes, record), killed(recipe, processes, record)
    said = start([*words_of(recipe, record), "--output_dir", str(folder), "--resume"], processes)
    came_from = f"checkpoint-{SAVED}" in said
    same = same_bits(folder, expected)
    return {
        "recipe": recipe,
        "processes": processes,
        "resumed": came_from,
        "same_bits": same,
        "difference": largest_difference(folder, expected),
        "passed": same and came_from,
    }
