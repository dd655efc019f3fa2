"""A dataset that several machines make: each pushes one shard, its part of the files, and the last step publishes them all.

Shards wait in a branch that is named after all arguments, so shards of other arguments never meet there. The branch that
users read changes once, when every file is there.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Unpack

from huggingface_hub import HfApi
from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

from longhand.data import TASKS
from longhand.data.builder import VERSION
from longhand.data.checks import check_integer
from longhand.data.plugins import plugin_hashes
from longhand.hub_cards.hub import check_repo_id
from longhand.hub_cards.publishing.card_updates import PushedResults
from longhand.hub_cards.publishing.cards import CARD_FILE
from longhand.hub_cards.publishing.commits import CannotPush, Content, Files, HeldFile, Push, check_push, commit_files, retry
from longhand.hub_cards.publishing.dataset_files import DatasetFile, GeneratedDataset, Size, is_dataset_file
from longhand.hub_cards.publishing.push import Publication, PushOptions, publish


def shard_branch(dataset: GeneratedDataset) -> str:
    """The branch where the shards of a dataset wait: the same arguments, and code of a plugin, give the same one."""
    made_of = [
        VERSION,
        dataset.task,
        dataset.configurations,
        dataset.num_samples,
        dataset.seed,
        *map(asdict, dataset.files()),
        plugin_hashes(TASKS[dataset.task]),
    ]
    return f"shards-{hashlib.sha256(json.dumps(made_of, default=int).encode()).hexdigest()[:16]}"


def shard_files(files: list[DatasetFile], shard: int, num_shards: int) -> list[DatasetFile]:
    """The files of a shard, from those of the dataset: one after the other, in shares that differ by one file at most.

    Raises:
        ValueError: `shard` or `num_shards` is not legal.
    """
    check_integer("num_shards", num_shards, 1, len(files))
    check_integer("shard", shard, 0, num_shards - 1)
    return files[shard * len(files) // num_shards : (shard + 1) * len(files) // num_shards]


def shard_publication(
    dataset: GeneratedDataset, repo_id: str, shard: int, num_shards: int, num_proc: int | None = None
) -> Publication:
    """One shard of a dataset, with a file that lists sizes and hashes of its files. Nothing is generated yet.

    Raises:
        ValueError: a name or number is not legal.
    """
    check_repo_id(repo_id)
    own, listing = shard_files(dataset.files(), shard, num_shards), f"shard-{shard:05d}-of-{num_shards:05d}.json"

    def make_files(place: Path, pushed: PushedResults) -> Files:
        sizes = dataset.make(own, place, num_proc)
        listed = {path: {**asdict(size), "sha256": _sha256(place / path)} for path, size in sizes.items()}
        return {path: place / path for path in sizes} | {listing: json.dumps(listed, indent=1).encode()}

    name = f"{dataset.name}, shard {shard} of {num_shards}"
    return Publication(repo_id, "dataset", name, lambda path: False, make_files)


def push_shard(
    dataset: GeneratedDataset,
    repo_id: str,
    shard: int,
    num_shards: int,
    num_proc: int | None = None,
    show: Callable[[Files], None] | None = None,
    **options: Unpack[PushOptions],
) -> Push:
    """Make one shard of a dataset and push it to `shard_branch`, in one commit. A shard that is there is not made again.

    Args:
        num_proc: number of processes that make rows.
        show: called with the files before they are committed.
        options: see `PushOptions`, without `revision`.

    Raises:
        ValueError: a name or number is not legal.
        CannotPush: see `push_model`.
    """
    publication = shard_publication(dataset, repo_id, shard, num_shards, num_proc)
    api = options.get("api") or HfApi()
    check_push(repo_id, "dataset", api, private=options.get("private", False))
    held = _held_files(dataset, repo_id, api)
    own = [held.get(file.path) for file in shard_files(dataset.files(), shard, num_shards)]
    if own[0] and all(own):
        return Push(f"{api.endpoint}/datasets/{repo_id}", own[0][1].sha, [], [])
    options["revision"] = shard_branch(dataset)
    return publish(publication, show, **options)


def join_shards(dataset: GeneratedDataset, repo_id: str, num_shards: int, **options: Unpack[PushOptions]) -> Push:
    """Publish the files of all shards, with the card, in one commit. Nothing is made or sent again.

    The branch where they waited stays, so that the call can be repeated.

    Raises:
        ValueError: a name or number is not legal.
        CannotPush: a shard is not there, or see `push_model`.
    """
    files = dataset.files()
    shards = [shard_files(files, shard, num_shards) for shard in range(max(1, num_shards))]
    place: dict[str, Any] = dict(options)
    commit_message = place.pop("commit_message", None) or f"Push {dataset.name}"
    place["api"] = place.get("api") or HfApi()
    check_push(repo_id, "dataset", **place)
    held = _held_files(dataset, repo_id, place["api"])
    if missing := [shard for shard, own in enumerate(shards) if any(file.path not in held for file in own)]:
        raise CannotPush(
            f"nothing was published: {repo_id} lacks {len(missing)} of {num_shards} shards of this dataset "
            f"({', '.join(map(str, missing[:20]))}{', ...' * (len(missing) > 20)}); push each of them by --shard, with all "
            "other options as they are here, and repeat this command"
        )
    content: dict[str, Content] = {file.path: held[file.path][1] for file in files}
    content[CARD_FILE] = dataset.card(repo_id, {file.path: held[file.path][0] for file in files})
    return commit_files(content, repo_id, "dataset", commit_message=commit_message, is_ours=is_dataset_file, **place)


def _held_files(dataset: GeneratedDataset, repo_id: str, api: HfApi) -> dict[str, tuple[Size, HeldFile]]:
    """The files that wait in the branch of a dataset, by path."""

    def read() -> dict[str, tuple[Size, HeldFile]]:
        try:
            head = api.dataset_info(repo_id, revision=shard_branch(dataset), files_metadata=True)
        except (RepositoryNotFoundError, RevisionNotFoundError):
            return {}
        sha = str(head.sha)
        hashes = {file.rfilename: file.lfs.sha256 for file in head.siblings or () if file.lfs}
        found = {}
        with TemporaryDirectory() as place:
            api.snapshot_download(repo_id, repo_type="dataset", revision=sha, local_dir=place, allow_patterns="shard-*.json")
            for listing in Path(place).glob("*.json"):
                for path, own in json.loads(listing.read_text()).items():
                    # The branch began with the files of the main branch, which may have these names and hold other rows.
                    if hashes.get(path) == own["sha256"]:
                        found[path] = Size(own["file"], own["rows"]), HeldFile(sha, own["sha256"])
        return found

    return retry(read, repo_id)


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
