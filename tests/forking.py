"""Commands in forks of one process that has imported the libraries: each imports the package anew, but not torch."""

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

SERVER = """
import gc, json, os, runpy, shutil, sys
import accelerate, datasets, evaluate, matplotlib.pyplot, torch, torch.distributed.tensor
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Trainer
from transformers.models.t5 import modeling_t5

def next_command():
    # In a fork it returns; the process that has imported everything waits for each fork's end, and ends with its input.
    for line in sys.stdin:
        command = json.loads(line)
        child = os.fork()
        if child == 0:
            return command
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print("ended", status, flush=True)
    sys.exit()

# The libraries are left out whenever Python looks for garbage.
gc.freeze()
command = next_command()
os.chdir(command["folder"])
for stream, file in ((0, os.devnull), (1, command["out"]), (2, command["err"])):
    os.dup2(os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC), stream)
program, *words = command["words"]
if program == "python" and words[0] == "-m":
    sys.argv = words[1:]
    sys.path[0] = os.getcwd()
    runpy.run_module(words[1], run_name="__main__", alter_sys=True)
else:
    file, *rest = words if program == "python" else [shutil.which(program), *words]
    sys.argv = [file, *rest]
    sys.path[0] = os.path.dirname(os.path.abspath(file))
    runpy.run_path(file, run_name="__main__")
"""

SLOW = 900
"""Seconds after which a command hangs."""


class Done(NamedTuple):
    """How a command ended, and what it printed.

    Attributes:
        returncode: exit status, negative for a signal.
        stdout: what it printed.
        stderr: what it said of errors.
    """

    returncode: int
    stdout: str
    stderr: str


class Forks:
    """Runs commands one after the other, each in a fork that has imported the libraries and nothing of the package.

    Args:
        folder: in which commands run, unless another one is named.
        environment: of the commands.
        printed: a folder for what commands print.
    """

    def __init__(self, folder: Path, environment: dict[str, str], printed: Path):
        self.folder = folder
        self.out, self.err = printed / "stdout", printed / "stderr"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([sys.executable, "-c", SERVER], cwd=folder, env=environment, text=True, **pipes)

    def __enter__(self) -> "Forks":
        return self

    def __exit__(self, *raised: object) -> None:
        self.process.kill()
        self.process.wait()

    def run(self, words: list[str], folder: Path | None = None) -> Done:
        """Run `python FILE ...`, `python -m MODULE ...` or an installed script written in Python, in a folder."""
        assert self.process.stdin is not None and self.process.stdout is not None
        command = {
            "words": words,
            "folder": os.fspath(folder or self.folder),
            "out": os.fspath(self.out),
            "err": os.fspath(self.err),
        }
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], SLOW)
        assert ready, f"{' '.join(words)}: no end in {SLOW} seconds"
        ended = self.process.stdout.readline().split()
        assert ended, "the process that forks commands has ended"
        return Done(int(ended[1]), self.out.read_text(), self.err.read_text())
