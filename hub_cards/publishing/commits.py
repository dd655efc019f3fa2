"""One commit on the Hub that makes a repository hold some files, or nothing: never a half.

A push looks at what is there, sends what differs in one commit on top of exactly that state, and begins anew wherever the
connection or the Hub failed in between. So a push that was cut off, even after its commit was made, can always be repeated.
"""

import hashlib
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, DatasetInfo, HfApi, ModelInfo, SpaceInfo
from huggingface_hub.constants import REPOCARD_NAME
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    HTTPError,  # of whichever client huggingface_hub is built on; the base of all lost connections
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import parse_ratelimit_headers, validate_repo_id

TAG = "longhand"
"""On every card of this package, by which a push knows a repository as its own to replace."""

WAITS = (1, 2, 4, 8, 16)
"""Seconds before each further attempt, where the Hub does not name longer ones."""

LONGEST_WAIT = 300
"""Seconds; a Hub that asks for more is not waited for."""

KINDS = ("model", "dataset", "space")

STATIC_FILES = ("index.html", "style.css")
"""A page that the Hub puts into a new Space of this kind, besides its card."""

Files = dict[str, Path | bytes]
"""What a repository is to hold: a file or its content by its path."""


class CannotPush(ValueError):
    """The Hub does not take a push; says why. The repository's files are as they were."""


class BranchMoved(CannotPush):
    """Another commit has been made since the one that a push is made from."""


@dataclass(frozen=True)
class Push:
    """How a push ended.

    Attributes:
        url: of the repository.
        sha: of the commit that holds the files.
        changed: paths that it wrote; empty where the repository held them already and no commit was made.
        removed: paths that it removed.
    """

    url: str
    sha: str
    changed: list[str]
    removed: list[str]

    def __str__(self) -> str:
        if not self.changed and not self.removed:
            return f"{self.url}: holds all this already, nothing was changed"
        return f"{self.url}: wrote {len(self.changed)} files and removed {len(self.removed)} in one commit"


def check_repo_id(repo_id: str) -> None:
    """Raises ValueError for a name that no repository can have."""
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise ValueError(f"repository name {repo_id!r} is not legal: {error}") from error
    if repo_id.count("/") != 1:
        raise ValueError(f"repository name {repo_id!r} must be of the form USER/NAME")


def check_revision(revision: str | None) -> None:
    """Raises ValueError for what no branch can be called: git's rules, and no full reference or commit."""
    if revision is None:
        return
    parts = revision.split("/")
    legal = all(re.fullmatch(r"\w[\w.-]*", part, re.ASCII) and not part.endswith((".", ".lock")) for part in parts)
    if not legal or ".." in revision or parts[0] == "refs" or re.fullmatch("[0-9a-f]{40}", revision):
        raise ValueError(f"revision must be the name of a branch, such as main or trial/wide, got {revision!r}")


def own_repo_id(name: str, api: HfApi) -> str:
    """`USER/NAME`: a name without a user is one of the token's user.

    Raises:
        CannotPush: there is no token, or the Hub refuses it or stays away.
        ValueError: the name is not legal.
    """
    if "/" not in name:
        name = f"{repeat(api.whoami, name)['name']}/{name}"
    check_repo_id(name)
    return name


def check_push(
    repo_id: str, kind: str, api: HfApi | None = None, *, private: bool = False, revision: str | None = None
) -> None:
    """Looks, before there is anything to push, whether the Hub would take it; changes nothing.

    Raises:
        CannotPush, ValueError: see `commit_files`.
    """
    check_repo_id(repo_id)
    check_revision(revision)
    api = api or HfApi()

    def look() -> None:
        _check_rights(api, repo_id, kind)
        try:
            main = api.repo_info(repo_id, repo_type=kind)
        except RepositoryNotFoundError:
            return
        _check_ours(api, main, repo_id, kind, private)

    repeat(look, repo_id)


def commit_files(
    files: Files,
    repo_id: str,
    kind: str,
    *,
    is_ours: Callable[[str], bool],
    commit_message: str,
    private: bool = False,
    revision: str | None = None,
    create: bool = True,
    onto: str | None = None,
    api: HfApi | None = None,
) -> Push:
    """Makes the repository hold exactly these files among those that are ours, by one commit or none.

    Waits and tries again after lost connections, rate limits (as long as they ask for), failures of the server, and commits
    that others made at the same moment.

    Args:
        kind: one of `KINDS`.
        is_ours: whether a path in the repository is one that this kind of push writes; such a file is removed where `files`
            does not have it, others stay.
        private: make the repository a private one; one that is there already must be private.
        revision: branch, made if there is none of the name; default `main`.
        create: whether to make the repository if there is none.
        onto: sha of the commit that the files were made from, where they are for no other.
        api: the Hub and its token, if not the environment's.

    Raises:
        BranchMoved: the branch is not at `onto`; nothing was changed.
        CannotPush: no token, no permission, the name is taken or refused, what is to be private is public, or the Hub stays
            away; nothing was changed, but for a new repository that may be left empty.
        ValueError: the name or the branch's is not legal, or the Hub refuses the card's metadata.
    """
    check_repo_id(repo_id)
    check_revision(revision)
    api = api or HfApi()
    revision = revision or "main"
    sent: tuple[list[str], list[str]] = ([], [])

    def attempt() -> Push:
        nonlocal sent
        head, held = _open(api, repo_id, kind, private, revision, create)
        changed = sorted(path for path, content in files.items() if path not in held or not _is_held(content, *held[path]))
        removed = sorted(path for path in held if path not in files and is_ours(path))
        url = f"{api.endpoint}/{'' if kind == 'model' else f'{kind}s/'}{repo_id}"
        if not changed and not removed:
            # All is there: since before, or by a commit of ours whose response was lost.
            return Push(url, head, *sent)
        if onto not in (None, head):
            raise BranchMoved(f"{repo_id} has changed since {onto} was read: try again")
        operations = [CommitOperationAdd(path, files[path]) for path in changed]
        operations += [CommitOperationDelete(path) for path in removed]
        sent = (changed, removed)
        commit = api.create_commit(
            repo_id,
            operations,
            repo_type=kind,
            revision=revision,
            commit_message=commit_message,
            parent_commit=head,
        )
        return Push(url, commit.oid, changed, removed)

    repeat(lambda: _check_rights(api, repo_id, kind), repo_id)
    return repeat(attempt, repo_id)


def repeat(attempt: Callable, repo_id: str):
    """The result of an attempt, repeated while what fails can pass.

    Raises:
        CannotPush: the Hub refuses, or failed every time.
    """
    for wait in (*WAITS, None):
        try:
            return attempt()
        except LocalTokenNotFoundError as error:
            raise CannotPush("no token for the Hub: run `hf auth login`, or set HF_TOKEN") from error
        except (HTTPError, OSError, RuntimeError) as error:
            reason, asked = _diagnose(error, repo_id)
            if wait is None:
                raise CannotPush(f"gave up after {len(WAITS) + 1} attempts: {reason}") from error
            if asked > LONGEST_WAIT:
                raise CannotPush(f"{reason} and asks to wait for {asked:.0f} seconds: push again then") from error
            delay = max(wait, asked)
        print(f"{reason}: trying again in {delay:.0f} seconds", file=sys.stderr)
        time.sleep(delay)


def is_passing(status: int) -> bool:
    """Whether an answer of this status can be another one soon."""
    return status in (408, 412, 429) or status >= 500


def _diagnose(error: BaseException, repo_id: str) -> tuple[str, float]:
    """What happened, and the seconds that the Hub asks to wait.

    Raises:
        CannotPush: another attempt would end in the same way.
    """
    # Failures in upload threads, and of downloads, arrive wrapped.
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    if any(isinstance(link, OfflineModeIsEnabled) for link in chain):
        raise CannotPush("HF_HUB_OFFLINE is set: unset it to push") from error
    cause = next((link for link in chain if isinstance(link, HTTPError)), None)
    if cause is None:
        return _diagnose_upload(error, chain[-1], repo_id), 0.0
    if not isinstance(cause, HfHubHTTPError):
        return f"the connection to the Hub failed ({type(cause).__name__})", 0.0
    status = cause.response.status_code
    said = " ".join((cause.server_message or str(cause)).split())
    if status == 401:
        raise CannotPush(f"the Hub refuses the token, or it may not see {repo_id}: {said}") from error
    if status == 403:
        raise CannotPush(f"no permission to write to {repo_id}: {said}") from error
    if is_passing(status):
        return f"the Hub answered {status}", _asked_wait(cause.response.headers)
    raise CannotPush(f"the Hub refuses {repo_id} ({status}): {said}") from error


def _asked_wait(headers: Mapping[str, str]) -> float:
    """Seconds that a response asks to wait: until the limit of requests is reset, else what `Retry-After` says."""
    if (limit := parse_ratelimit_headers(headers)) and limit.remaining == 0:
        # One more: the reset is given in whole seconds.
        return limit.reset_in_seconds + 1.0
    asked = headers.get("Retry-After", "")
    return float(asked) if asked.isdecimal() else 0.0


def _diagnose_upload(error: BaseException, cause: BaseException, repo_id: str) -> str:
    """What happened where no HTTP client says it: Xet, which carries large files, has errors of Python's own types.

    Raises:
        CannotPush: another attempt would end in the same way.
    """
    said = " ".join(str(cause).split()) or type(cause).__name__
    lost = isinstance(cause, ConnectionError | TimeoutError) or "network error" in said.lower()
    if not lost or re.search(r"\b40[13]\b", said):
        raise CannotPush(f"{repo_id} cannot be pushed: {said}") from error
    return f"the connection to the Hub failed ({said})"


def _check_rights(api: HfApi, repo_id: str, kind: str) -> None:
    """Raises CannotPush where the token may not write there, or the name belongs to a repository of another kind."""
    user = api.whoami()
    owner = repo_id.partition("/")[0]
    owners = [user["name"], *(organization["name"] for organization in user.get("orgs", []))]
    if owner not in owners:
        raise CannotPush(f"no permission to write to {repo_id}: the token may write to {' and '.join(owners)} only")
    if user.get("auth", {}).get("accessToken", {}).get("role") == "read":
        raise CannotPush(f"no permission to write to {repo_id}: the token of {user['name']} can only read")
    for other in KINDS:
        if other != kind and api.repo_exists(repo_id, repo_type=other):
            raise CannotPush(f"{repo_id} is a {other} already: choose another name for the {kind}")


def _check_ours(api: HfApi, main: ModelInfo | DatasetInfo | SpaceInfo, repo_id: str, kind: str, private: bool) -> None:
    """Raises CannotPush for a repository that this package has not made, or that is public where it should be private."""
    tags = (main.card_data.get("tags") if main.card_data else None) or []
    names = [file.rfilename for file in main.siblings]
    foreign = [name for name in names if name not in (".gitattributes", REPOCARD_NAME)]
    # The Hub writes a page and a card into a new Space; elsewhere its cards are metadata alone: text was written by someone.
    if kind == "space" and set(foreign) <= set(STATIC_FILES) and len(api.list_repo_commits(repo_id, repo_type=kind)) == 1:
        foreign = []
    elif not foreign and TAG not in tags and REPOCARD_NAME in names and _has_text(api, repo_id, kind):
        foreign = [f"a {REPOCARD_NAME} with text"]
    if foreign and TAG not in tags:
        raise CannotPush(
            f"{repo_id} holds something else already ({foreign[0]}, no tag {TAG!r}): choose another name, or, if this "
            f"package made it, put the tag {TAG!r} back into its card"
        )
    if private and main.private is False:
        raise CannotPush(
            f"{repo_id} is public already, and a push does not change that: make it private in its settings, choose another "
            "name, or leave out private"
        )


def _has_text(api: HfApi, repo_id: str, kind: str) -> bool:
    """Whether a repository's card says anything besides its metadata."""
    with tempfile.TemporaryDirectory() as place:
        card = Path(api.hf_hub_download(repo_id, REPOCARD_NAME, repo_type=kind, local_dir=place)).read_text(encoding="utf-8")
    text = re.sub(r"\A\s*---\n.*?\n---\s*(\n|\Z)", "", card, flags=re.DOTALL)
    return bool(text.strip())


def _open(
    api: HfApi, repo_id: str, kind: str, private: bool, revision: str, create: bool
) -> tuple[str, dict[str, tuple[bool, str]]]:
    """The branch's head, and the hash of every file there; repository and branch are made if there are none.

    Raises:
        CannotPush: there is none and none is to be made, or what is there is something else.
    """
    try:
        main = api.repo_info(repo_id, repo_type=kind)
    except RepositoryNotFoundError as error:
        if not create:
            raise CannotPush(f"there is no {kind} {repo_id} on {api.endpoint}, or the token may not see it") from error
        # What is pushed to a Space is run where it is loaded, never there.
        sdk = {"space_sdk": "static"} if kind == "space" else {}
        api.create_repo(repo_id, repo_type=kind, private=private, exist_ok=True, **sdk)
        main = api.repo_info(repo_id, repo_type=kind)
    _check_ours(api, main, repo_id, kind, private)
    try:
        head = api.repo_info(repo_id, repo_type=kind, revision=revision, files_metadata=True)
    except RevisionNotFoundError:
        api.create_branch(repo_id, repo_type=kind, branch=revision, exist_ok=True)
        head = api.repo_info(repo_id, repo_type=kind, revision=revision, files_metadata=True)
    held = {file.rfilename: (True, file.lfs.sha256) if file.lfs else (False, file.blob_id) for file in head.siblings}
    return head.sha, held


def _is_held(content: Path | bytes, large: bool, digest: str) -> bool:
    """Whether a file of this hash has this content; the Hub lists large files under another hash than those in git."""
    if large and isinstance(content, Path):
        with content.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == digest
    data = content if isinstance(content, bytes) else content.read_bytes()
    if large:
        return hashlib.sha256(data).hexdigest() == digest
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest() == digest
