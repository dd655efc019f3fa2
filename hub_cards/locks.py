"""Folders that one process at a time writes into, or publishes from.

A file in the folder is locked. The system releases the lock when the process ends, however it ends, so a file that a kill
leaves behind blocks nobody.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from longhand.hub_cards.files import is_one_line

LOCK_FILE = ".longhand.lock"


class InUseError(ValueError):
    """Another process holds a folder."""


@contextmanager
def holding(folder: Path, reading: bool = False) -> Iterator[None]:
    """Hold a folder until the block ends. A process may hold a folder several times at once.

    Args:
        reading: whether it is enough that nobody else writes. Then a folder that is missing is not made, and one that is on
            a file system where nobody can write is not held. Otherwise the folder is made, and removed again if the block
            leaves nothing in it.

    Raises:
        InUseError: another process holds the folder.
        ValueError: it is a file, cannot be written, or has a name that no folder can have.
    """
    if "\0" in str(folder) or not is_one_line(str(folder.absolute())):
        raise ValueError(f"{str(folder)!r} cannot be the folder of a checkpoint: its name must be one line of UTF-8")
    if reading and not folder.exists():
        yield
        return
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: choose a folder")
    made = [] if reading else [path for path in (folder, *folder.parents) if not path.exists()]
    lock = FileLock(folder.resolve() / LOCK_FILE, blocking=False, is_singleton=True)
    try:
        if not reading:
            folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise InUseError(f"{folder} is in use by another process: wait until it ends, or choose another folder") from error
    except OSError as error:
        _remove_empty(made)
        if not reading or error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise ValueError(f"{folder} cannot be written: {error.strerror}") from error
    try:
        yield
    finally:
        if lock.lock_counter == 1:
            with suppress(OSError):
                (folder / LOCK_FILE).unlink()
        lock.release()
        _remove_empty(made)


def _remove_empty(folders: list[Path]) -> None:
    """Remove folders, the deepest first, as long as they are empty."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()
