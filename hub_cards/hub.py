"""What runs and pushes both ask of the Hub: legal names, and files."""

from pathlib import Path

from huggingface_hub import hf_hub_download
from huggingface_hub.errors import HFValidationError, HTTPError
from huggingface_hub.utils import validate_repo_id


def check_repo_id(repo_id: str) -> None:
    """Raise ValueError if a repository cannot have this name."""
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise ValueError(f"repository name {repo_id!r} is not legal: {error}") from error
    if repo_id.count("/") != 1:
        raise ValueError(f"repository name {repo_id!r} must be of the form USER/NAME")


def find_file(source: str, name: str) -> Path | None:
    """Return a file of a folder, or of a repository after its download; None if it is not there.

    Returns None also if the repository is missing or the Hub is down; the loader reports those.
    """
    if (folder := Path(source)).is_dir():
        return folder / name if (folder / name).is_file() else None
    try:
        return Path(hf_hub_download(source, name))
    except (HFValidationError, HTTPError, OSError):
        return None
