"""Reading files with errors that name them, and writing so that a crash leaves the old file or the new one, never a part."""

import json
import os
import secrets
from pathlib import Path
from typing import Any


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


def read_object(file: Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        ValueError: the file cannot be read or holds no JSON object.
    """
    text = read_text(file)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{file} must be a JSON object, got {text[:40]!r}")
    return value


def is_one_line(name: str) -> bool:
    """Whether a name is one line of UTF-8, so that every file, and the Hub, can hold it."""
    return name.splitlines() == [name] and name == name.encode(errors="replace").decode()


def write_atomically(file: Path, content: str | bytes) -> None:
    """Write text (UTF-8) or bytes to a new temporary file, and then move it into place.

    The temporary name is random and must not exist yet, so a link that somebody planted there is not followed.

    Raises:
        OSError: the disk is full, or the folder cannot be written; the message names the file. What stood there is kept.
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
