"""Every command of README.md and of the guide, in the order of the pages, in a copy of the clone, with a Hub on loopback.

In `.ci/run`, one of the runs is trained until it is certified, a command measures a few problems of each size, and what
others show is left out. Before a release, every command runs as it stands, but for a dataset and runs that no later command
uses. This shows the seconds of each:

    python -m pytest -n 0 -m thorough -s tests/repository/test_readme_commands.py
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest
from forking import Forks
from loopback_hub import LoopbackHub

ROOT = Path(__file__).parents[2]
SET_UP = ("git clone", "python -m pip install")
"""What `.ci/run` does itself, in a new environment; the commands after `&&` on the same line are run here."""
TESTS = "python -m pytest"
SMALLER = {
    "--num_samples 1000000": "--num_samples 300",
    "--num_samples 20000": "--num_samples 300",
    "--max_length 10 30": "--max_length 3 4",
    "--lengths 10,70": "--lengths 10",
}
"""What a test makes smaller."""

FEW_STEPS = "--max_steps 4 --eval_steps 4 --until_certified False --validation_samples 10 --test_lengths 5 --test_samples 10"
"""Of a run that no later command uses: that it is certified, other runs show."""
FEW_PROBLEMS = {
    "--lengths": "--num_samples 10",
    "--decode": "--num_samples 10",
    "outputs/addition/best": "--num_samples 10",
    "python train.py": "--test_samples 10",
}
"""What a command is told besides in `.ci/run`, by what stands in it."""
CERTIFIED = ("outputs/luhn",)
"""The run that is trained to its end in `.ci/run` too; `main_job` in conftest.py is another one."""
LIKE_OTHERS = ("--name clock_time", "--learning_rate 3e-3", "push page")
"""Commands that run before a release alone, by what stands in them: others, and tests of their rooms, show the same."""


def commands() -> list[str]:
    """The lines of all blocks of commands, with their comments, of README.md and then of the guide."""
    text = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "hub_cards/GUIDE.md"))
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


def to_run(line: str) -> list[list[str]]:
    """The words of the commands of one line that are run here."""
    words = shlex.split(line, comments=True)
    found: list[list[str]] = [[]]
    for word in words:
        if word == "&&":
            found.append([])
        else:
            found[-1].append(word)
    left_out = (*SET_UP, "cd longhand", TESTS)
    return [command for command in found if not " ".join(command).startswith(left_out)]


def folder_of(words: list[str]) -> str | None:
    """The folder that a training writes; None if the command is no training."""
    if "train.py" not in words or "--list" in words:
        return None
    rest = words[words.index("train.py") + 1 :]
    named = dict(pairwise(rest))
    return named.get("--output_dir") or f"outputs/{named.get('--name') or [*rest, 'addition'][0]}"


def told_besides(words: list[str]) -> list[str]:
    """The options that make a command of `.ci/run` short."""
    if words[0] == "accelerate" or not {"train.py", "eval.py"} & {*words} or {"--list", "--dry_run"} & {*words}:
        return []
    folder = folder_of(words)
    if folder and folder not in CERTIFIED:
        return FEW_STEPS.split()
    more = next((more.split() for part, more in FEW_PROBLEMS.items() if part in " ".join(words)), [])
    return [] if {*more} & {*words} & {"--num_samples", "--test_samples"} else more


def answer_of(line: str) -> str | None:
    """The answer that the comment behind a question states, `# 408; ...`."""
    stated = re.search(r"--ask .*?# ([0-9a-f]+)(?:;.*)?$", line)
    return stated[1] if stated else None


@pytest.fixture
def clone(tmp_path) -> Path:
    """A copy of the tracked files, in a folder `longhand`."""
    folder = tmp_path / "clone" / "longhand"
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for name in listed.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def test_the_first_block_sets_up_trains_and_tests():
    first = "\n".join(commands()[:3])
    for command in (*SET_UP, "python train.py", TESTS):
        assert command in first


@pytest.mark.parametrize(
    "is_short",
    [pytest.param(True, marks=pytest.mark.thorough), pytest.param(False, marks=pytest.mark.release)],
    ids=["few steps", "as it stands"],
)
def test_every_command_runs_in_the_order_of_the_page(is_short, clone, tmp_path):
    with ExitStack() as stack:
        hub = stack.enter_context(LoopbackHub())
        hub.add_token("secret", "user")
        environment = os.environ | hub.environment(tmp_path / "home", token="secret") | {"PYTHONPATH": str(clone.parent)}
        environment |= {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "ACCELERATE_USE_CPU": "true",
        }
        forks = stack.enter_context(Forks(clone, environment, tmp_path))
        lines = commands()
        for place, line in enumerate(lines):
            small, begun = line, time.time()
            for large, smaller in SMALLER.items():
                small = small.replace(large, smaller)
            if is_short and (line in lines[:place] or any(part in line for part in LIKE_OTHERS)):
                continue
            for words in to_run(small):
                asked, folder = time.time(), folder_of(words)
                if folder and not any(folder in shlex.split(later, comments=True) for later in lines[place + 1 :]):
                    words += FEW_STEPS.split()
                elif is_short:
                    words += told_besides(words)
                done = forks.run(words)
                print(f"{time.time() - asked:6.1f} s  {small}", flush=True)
                assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
                answer = answer_of(line)
                is_untrained = is_short and "outputs/" in line and not any(run in line for run in CERTIFIED)
                assert answer is None or is_untrained or done.stdout.strip().splitlines()[-1] == answer, line
            if "# certified in" in line and not is_short:
                certificates = (clone / "outputs").glob("*/certificate.json")
                assert any(certificate.stat().st_mtime > begun for certificate in certificates), line
