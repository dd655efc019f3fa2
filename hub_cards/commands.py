"""Shared by all commands: errors of one line, files that are whole or absent, and folders that one process holds.

Reading gives errors that name the file. A crash while writing leaves the old file or the new one, never a part. A folder is
held by a locked file in it. The system releases the lock when the process ends, however it ends, so a file that a kill
leaves behind blocks nobody.
"""

# Used by: harness.py, push.py, recipes.py, result_rows.py, eval.py, hub_cards/checkpoints, hub_cards/evaluation,
# hub_cards/page, hub_cards/publishing, hub_cards/research, hub_cards/research/gpu, hub_cards/research/structured,
# hub_cards/research/theories, hub_cards/training, train.py. Changed freely.

import _thread
import errno
import io
import json
import os
import re
import secrets
import shlex
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

PACKAGE_FOLDER = Path(__file__).parents[1]
CITATION_FILE = PACKAGE_FOLDER / "CITATION.cff"
LOCK_FILE = ".longhand.lock"
TEMPORARY_FILES = ".*.partial"
"""The names under which `write_atomically` writes; a kill may leave such a file."""
MOST_CHARACTERS = 4000
"""Characters of a message. The longest lists of names have about 2,000; a question may have millions of digits."""


def one_line(error: BaseException) -> str:
    """Return the message of an error in one line. Of a very long message, the beginning and the end are kept."""
    line = " ".join(str(error).split())
    kept = MOST_CHARACTERS // 2
    return line if len(line) <= MOST_CHARACTERS else f"{line[:kept]} [...] {line[-kept:]}"


@contextmanager
def refusing_in_one_line(*more: type[Exception]) -> Iterator[None]:
    """End the program with one line on stderr and exit status 2 on a ValueError, or on one of `more`."""
    refusals: tuple[type[Exception], ...] = (ValueError, *more)
    try:
        yield
    except BrokenPipeError:
        raise  # The input is legal: `interruptible` says what happened.
    except refusals as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        raise SystemExit(2) from error


@contextmanager
def interruptible(advice: str) -> Iterator[None]:
    """End the program with one line on Ctrl-C (exit status 130), if nobody reads its output (141) or memory ends (1).

    Without a standard output, as by `>&-`, it ends at once (2). Without a standard error, nobody wants its lines.
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        print("error: standard output is closed, and nothing could be written to it: take > /dev/null", file=sys.stderr)
        raise SystemExit(2)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A log shows each line when it is written, not when a run of hours ends.
        sys.stdout.reconfigure(line_buffering=True)
    before = sys.unraisablehook

    def interrupt_again(unraisable: "sys.UnraisableHookArgs") -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            # Python cannot raise Ctrl-C out of the callback of a weak reference: we ask again a moment later.
            threading.Timer(0.05, _thread.interrupt_main).start()
        else:
            before(unraisable)

    sys.unraisablehook = interrupt_again
    try:
        try:
            yield
        finally:
            # Also after `--help`, which ends the program: what is left would fail when Python exits.
            sys.stdout.flush()
    except KeyboardInterrupt as error:
        print(f"\ninterrupted: {advice}", file=sys.stderr)
        raise SystemExit(130) from error
    except (MemoryError, RuntimeError) as error:
        # torch has a class of its own for the memory of an accelerator alone.
        if not isinstance(error, MemoryError) and "allocate" not in str(error):
            raise
        print(f"error: out of memory, take smaller batches or sizes ({one_line(error)[:200]})", file=sys.stderr)
        raise SystemExit(1) from error
    except BrokenPipeError as error:
        # Python writes what is left when it exits, and would fail once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"the output was closed, by `head` perhaps: {advice}", file=sys.stderr)
        raise SystemExit(141) from error
    finally:
        sys.unraisablehook = before


def read_text(file: Path) -> str:
    """Return the content of a text file in UTF-8.

    Raises:
        ValueError: it is no regular file, or cannot be read.
    """
    if not file.is_file():
        raise ValueError(f"{file} is not a regular file")
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error


def command_of(name: str) -> str:
    """How `train` or `eval` is called where the user stands: `python eval.py` beside the file, else as it is installed."""
    file = Path(f"{name}.py")
    if file.is_file() and file.samefile(PACKAGE_FOLDER / file):
        return f"python {file}"
    script = f"longhand-{name}"
    return script if shutil.which(script) else f"python -m longhand.{name}"


def launched_train(configuration: str, options: str = "") -> str:
    """What stands behind `accelerate launch --config_file`: a configuration of the package, and how it finds `train.py`."""
    is_here = command_of("train") == "python train.py"
    folder = Path("hub_cards", "launch") if is_here else PACKAGE_FOLDER / "hub_cards" / "launch"
    return f"{shell_word(folder / configuration)} {options}{'train.py' if is_here else '--module longhand.train'}"


def with_commands(text: str) -> str:
    """A text in which `python train.py` and `python eval.py` are called as by `command_of`; remarks stay aligned."""

    def called(found: re.Match[str]) -> str:
        new = command_of(found["name"]) + found["rest"]
        return f"{new}  ".ljust(len(found[0])) if found["gap"] else new

    for name in ("gpus.yaml", "cpus.yaml"):
        text = text.replace(f"hub_cards/launch/{name} train.py", launched_train(name))
    return re.sub(r"python (?P<name>train|eval)\.py(?P<rest>[^\n]*?)(?P<gap>   *(?=\S)|(?=\n|$))", called, text)


def read_citation() -> dict[str, Any]:
    """Return the fields of CITATION.cff. The address of the code is `repository-code`, here and nowhere else."""
    return yaml.safe_load(read_text(CITATION_FILE))


def read_object(file: Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        ValueError: the file cannot be read or holds no JSON object, or a key stands twice in one: readers differ in which of
            the two they take.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(pairs) > len(dict(pairs)):
            raise ValueError("a key stands twice")
        return dict(pairs)

    text = read_text(file)
    try:
        value = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{file} must be a JSON object, got {text[:40]!r}")
    return value


def check_repo_id(repo_id: str) -> None:
    """Raise ValueError if a repository cannot have this name."""
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise ValueError(f"repository name {repo_id!r} is not legal: {error}") from error
    if repo_id.count("/") != 1:
        raise ValueError(f"repository name {repo_id!r} must be of the form USER/NAME")


def is_one_line(name: str) -> bool:
    """Whether a name is one line of UTF-8, so that every file, and the Hub, can hold it."""
    return name.splitlines() == [name] and name == name.encode(errors="replace").decode()


def shell_word(file: Path | str) -> str:
    """Return a file or a folder as a shell and a command read it: in quotes if it has spaces, and never like an option."""
    text = str(file)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def write_atomically(file: Path, content: str | bytes) -> None:
    """Write text (UTF-8) or bytes to a new temporary file, and then move it into place.

    The temporary name is random and must not exist yet, so a link that somebody planted there is not followed.

    Raises:
        OSError: the disk is full, or the folder cannot be written; the message names the file, whose old content is kept.
    """
    temporary = file.parent / f".{file.name}.{secrets.token_hex(8)}.partial"
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
        os.replace(temporary, file)
    except OSError as error:
        kept = "what stood there is kept" if file.is_file() else "nothing was written"
        raise OSError(error.errno, f"{error.strerror or error}: {file} cannot be written, {kept}") from error
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def holding(folder: Path, reading: bool = False) -> Iterator[None]:
    """Hold a folder until the block ends. A process may hold a folder several times at once.

    Args:
        reading: whether it is enough that nobody else writes. Then a folder that is missing is not made, and one that is on
            a file system where nobody can write is not held. Otherwise the folder is made, and removed again if the block
            leaves nothing in it.

    Raises:
        ValueError: another process holds the folder, or it is a file, cannot be written or has an impossible name.
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
        raise ValueError(f"{folder} is in use by another process: wait until it ends, or choose another folder") from error
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
