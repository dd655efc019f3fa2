"""Folders that one process at a time writes into, or publishes from.

A process holds a folder by a lock on a file in it. The system releases the lock when the process ends, however it ends, so a
file that a kill leaves behind blocks nobody. The lock is of the process: forks, such as workers that load data, do not share
it, and a block inside another of the same folder frees it when it ends. Windows has no such locks: nothing is held there.
"""

import errno
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = ".longhand.lock"


class InUseError(ValueError):
    """Another process holds a folder."""


_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""How file systems without locks, such as some network ones, refuse to lock."""


@contextmanager
def holding(folder: Path, reading: bool = False) -> Iterator[None]:
    """Hold a folder until the block ends.

    Args:
        reading: whether it is enough that nobody else writes. Then a folder that is missing is not made, and one that is on
            a file system where nobody can write is not held. Otherwise the folder is made, and removed again if the block
            leaves nothing in it.

    Raises:
        InUseError: another process holds the folder.
        ValueError: it is a file, or it cannot be written.
    """
    if "\0" in str(folder):
        raise ValueError(f"{str(folder)!r} is no name of a folder")
    made: list[Path] = []
    try:
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{folder} is a file: choose a folder")
        if not reading:
            made = [path for path in (folder, *folder.parents) if not path.exists()]
            folder.mkdir(parents=True, exist_ok=True)
        descriptor = _lock(folder)
    except OSError as error:
        _remove_empty(made)
        if not reading or error.errno not in (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS):
            raise ValueError(f"{folder} cannot be written: {error.strerror}") from error
        descriptor = None
    try:
        yield
    finally:
        if descriptor is not None:
            # Removed while it is held: see `_lock`.
            with suppress(OSError):
                (folder / LOCK_FILE).unlink()
            os.close(descriptor)
        _remove_empty(made)


def _lock(folder: Path) -> int | None:
    """Return the open lock file of a folder that is held now; None if the system has no locks."""
    if fcntl is None:
        return None
    file = folder / LOCK_FILE
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The holder before may have removed the file since it was opened; then this lock holds nothing.
            if _is_same(descriptor, file):
                os.ftruncate(descriptor, 0)
                os.write(descriptor, _describe_process().encode())
                return descriptor
        except BlockingIOError as error:
            holder = os.read(descriptor, 1000).decode(errors="replace") or "another process"
            os.close(descriptor)
            raise InUseError(f"{folder} is in use by {holder}: wait until it ends, or choose another folder") from error
        except OSError as error:
            os.close(descriptor)
            if error.errno not in _UNSUPPORTED:
                raise
            print(f"warning: {folder} cannot be locked ({error.strerror}): start one process in it only", file=sys.stderr)
            return None
        os.close(descriptor)


def _is_same(descriptor: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(file))
    except FileNotFoundError:
        return False


def _describe_process() -> str:
    since = datetime.now().astimezone().isoformat(" ", "seconds")
    return f"process {os.getpid()} on {socket.gethostname()} since {since}"


def _remove_empty(folders: list[Path]) -> None:
    """Remove folders, the deepest first, as long as they are empty."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()
