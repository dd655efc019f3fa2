"""How commands end: on Ctrl-C, wherever Python is when it comes."""

import signal
import time
import weakref

import pytest

from longhand.hub_cards.runs.console import interruptible


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
