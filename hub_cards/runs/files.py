"""Writing files so that a crash leaves the old file or the new one, never a part of it."""

import os
import secrets
from pathlib import Path


def write_atomically(file: Path, content: str | bytes) -> None:
    """Write text (UTF-8) or bytes to a new temporary file in the same folder, then move it into place.

    The temporary name is random and must not exist yet, so a link that somebody planted there is not followed.
    """
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(8)}.partial")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(temporary, flags, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
        os.replace(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)
