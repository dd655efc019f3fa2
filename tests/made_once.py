"""Folders that several test processes read and one makes."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def make_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder `name` that the first test process to ask for it makes and all of them read."""
    place = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent
    folder, made = place / name, place / f"{name}.made"
    with FileLock(place / f"{name}.lock"):
        if not made.exists():
            # Left by a process that failed while it made them.
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            made.touch()
    return folder
