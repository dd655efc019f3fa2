"""What MODEL names on a command line: a folder that holds a checkpoint, or a repository on the Hub; and its recipe."""

from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import (
    HfHubHTTPError,
    HTTPError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from longhand.hub_cards.checkpoints.adapters import ADAPTER_CONFIG
from longhand.hub_cards.checkpoints.files import check_side_files, check_weights
from longhand.hub_cards.checkpoints.zoo import list_zoo
from longhand.hub_cards.console import one_line
from longhand.hub_cards.hub import check_repo_id, is_passing
from longhand.hub_cards.recipes import RECIPE_FILE, read_recipe


def find_recipe(source: str, revision: str | None) -> dict[str, Any]:
    """Return the recipe of a folder or repository; empty if it has none.

    Raises:
        ValueError: `source` is neither, or its weights are missing or damaged.
    """
    folder = Path(source)
    if folder.is_dir():
        if revision is not None:
            raise ValueError(f"--revision {revision} is for a repository on the Hub, but {source} is a folder")
        if (folder / "config.json").is_file():
            check_weights(folder)
        elif not (folder / ADAPTER_CONFIG).is_file():
            raise ValueError(f"{source} is not a checkpoint: it holds no config.json")
        check_side_files(folder)
        return read_recipe(folder / RECIPE_FILE) if (folder / RECIPE_FILE).is_file() else {}
    check_repository(source, revision)
    try:
        return read_recipe(Path(hf_hub_download(source, RECIPE_FILE, revision=revision)))
    except RemoteEntryNotFoundError:
        return {}
    except OSError as error:
        raise ValueError(f"MODEL {source!r} cannot be read from the Hub: {one_line(error)}") from error


_FOUND: set[tuple[str, str, str | None]] = set()
"""Repositories that were asked for in this process: endpoint, name and revision."""


def check_repository(source: str, revision: str | None) -> None:
    """Raise ValueError if what is not a folder is no repository either. Ask the Hub once; a download asks often."""
    api = HfApi()
    if (api.endpoint, source, revision) not in _FOUND:
        _ask_for_repository(api, source, revision)
        _FOUND.add((api.endpoint, source, revision))


def _ask_for_repository(api: HfApi, source: str, revision: str | None) -> None:
    try:
        check_repo_id(source)
    except ValueError as error:
        what = "it is a file" if Path(source).exists() else "there is no such folder"
        shipped = "" if "/" in source else f"; with the package come {', '.join(list_zoo())}"
        said = f"MODEL {source!r} is neither a folder nor a repository: {what}, and the {error}{shipped}"
        raise ValueError(said) from error
    try:
        api.model_info(source, revision=revision)
    except RevisionNotFoundError as error:
        raise ValueError(f"--revision {revision} is no branch, tag or commit of {source}") from error
    except RepositoryNotFoundError as error:
        raise ValueError(
            f"MODEL {source!r} is neither a folder nor a repository: {api.endpoint} has no such model, or does not show it "
            "to this token"
        ) from error
    except (HTTPError, OfflineModeIsEnabled) as error:
        if isinstance(error, HfHubHTTPError) and is_passing(error.response.status_code):
            return
        cached = (try_to_load_from_cache(source, name, revision=revision) for name in ("config.json", ADAPTER_CONFIG))
        if any(isinstance(file, str) for file in cached):
            return
        raise ValueError(
            f"MODEL {source!r}: there is no such folder, and no such repository in the cache; {api.endpoint} cannot be "
            f"asked: {one_line(error)}"
        ) from error
