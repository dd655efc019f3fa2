"""How commands end: on Ctrl-C, wherever Python is when it comes, and when nobody reads their output."""

import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path

import pytest

from longhand.hub_cards import commands
from longhand.hub_cards.commands import interruptible


class Thing:
    """Something that a weak reference can refer to."""


@pytest.fixture
def interrupts():
    """Python's own handler: processes that run tests in parallel ignore the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("place", ["the command", "the callback of a weak reference"])
def test_ctrl_c_ends_a_command_in_one_line(place, capsys):
    with pytest.raises(SystemExit) as end, interruptible("go on by hand"):
        if place == "the command":
            signal.raise_signal(signal.SIGINT)
        thing = Thing()
        reference = weakref.ref(thing, lambda gone: signal.raise_signal(signal.SIGINT))
        del thing
        assert reference() is None
        for _ in range(200):
            time.sleep(0.01)
    assert end.value.code == 130
    assert capsys.readouterr().err.strip() == "interrupted: go on by hand"


@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_closed_output_ends_a_command_in_one_line(lines):
    """A single line is written when Python exits, many before."""
    code = f"""
from commands import interruptible, refusing_in_one_line
with interruptible("run it again"), refusing_in_one_line(OSError):
    input()
    for line in range({lines}):
        print("a line")
"""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    # Alone, without the package, which takes seconds to import.
    place = Path(commands.__file__).parent
    with subprocess.Popen([sys.executable, "-c", code], cwd=place, **pipes, text=True) as process:
        process.stdout.close()
        process.stdin.write("\n")
        process.stdin.close()
        assert process.stderr.read().strip() == "the output was closed, by `head` perhaps: run it again"
    assert process.returncode == 141


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("you tried to allocate 10 bytes")])
def test_a_machine_without_memory_ends_a_command_in_one_line(error, capsys):
    with pytest.raises(SystemExit) as end, interruptible("go on by hand"):
        raise error
    assert end.value.code == 1 and capsys.readouterr().err.count("\n") == 1
    with pytest.raises(RuntimeError), interruptible("go on by hand"):
        raise RuntimeError("something else")
