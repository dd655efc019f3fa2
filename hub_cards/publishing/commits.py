"""Push files to a repository on the Hub atomically, in one commit.

A push reads what the repository holds and sends only what differs, in one commit on top of exactly that state. If the
connection or the Hub fails in between, the push starts again. So a push that was cut off can always be repeated, even if its
commit was made and only the response was lost.
"""

import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from json import JSONDecodeError
from pathlib import Path
from typing import Any, TypeVar

from huggingface_hub import CommitOperationAdd, CommitOperationCopy, CommitOperationDelete, HfApi, RepoCard
from huggingface_hub.constants import REPOCARD_NAME
from huggingface_hub.errors import (
    HfHubHTTPError,
    HTTPError,  # of the HTTP client that huggingface_hub is built on; the base of all lost connections
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoSibling
from huggingface_hub.utils import parse_ratelimit_headers
from huggingface_hub.utils.sha import git_hash

from longhand.hub_cards.hub import check_repo_id, check_revision, is_passing

TAG = "longhand"
"""Tag on every card of this package. A push replaces only a repository whose card has it."""

WAITS = (1, 2, 4, 8, 16)
"""Seconds before each further attempt, if the Hub does not ask for longer ones."""

LONGEST_WAIT = 300
"""Seconds. If the Hub asks for a longer wait, the push ends with an error."""

CONFLICT = 412
"""HTTP status of a commit onto another one than the branch's last."""

KINDS = ("model", "dataset", "space")

STATIC_FILES = ("index.html", "style.css")
"""Files that the Hub puts into a new static Space, besides its card."""

Files = dict[str, Path | bytes]
"""Files of a repository by path: a local file, or the content itself."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class HeldFile:
    """A large file that the repository holds already, at the same path.

    Attributes:
        sha: commit that it is taken from.
        sha256: of its content.
    """

    sha: str
    sha256: str


Content = Path | bytes | HeldFile
"""What a commit writes at a path."""


class CannotPush(ValueError):
    """The Hub refuses a push. The message gives the reason; the repository's files are unchanged."""


class BranchMoved(CannotPush):
    """The branch has a newer commit than the commit that the push was prepared from."""


@dataclass(frozen=True)
class Push:
    """The outcome of a push.

    Attributes:
        url: address of the repository.
        sha: the commit that holds the files.
        changed: paths that the commit wrote. Empty if the repository held all files already; then there was no commit.
        removed: paths that the commit removed.
    """

    url: str
    sha: str
    changed: list[str]
    removed: list[str]

    def __str__(self) -> str:
        if not self.changed and not self.removed:
            return f"{self.url}: holds all this already, nothing was changed"
        removed = f" and removed {len(self.removed)}" if self.removed else ""
        return f"{self.url}: wrote {len(self.changed)} file{'s' * (len(self.changed) != 1)}{removed} in one commit"


def own_repo_id(name: str, api: HfApi) -> str:
    """The full name `USER/NAME`. A name without a user gets the user of the token.

    Raises:
        CannotPush: there is no token, the Hub refuses it, or the Hub cannot be reached.
        ValueError: the name is not legal.
    """
    if "/" not in name:
        name = f"{retry(api.whoami, name)['name']}/{name}"
    check_repo_id(name)
    return name


def check_push(
    repo_id: str, kind: str, api: HfApi | None = None, *, private: bool = False, revision: str | None = None
) -> None:
    """Check that the Hub would accept a push, before the files are made. Nothing is changed on the Hub.

    Raises:
        CannotPush, ValueError: see `commit_files`.
    """
    check_repo_id(repo_id)
    check_revision(revision)
    api = api or HfApi()

    def look() -> None:
        _check_rights(api, repo_id, kind)
        with suppress(RepositoryNotFoundError):
            _check_ours(api, api.repo_info(repo_id, repo_type=kind), repo_id, kind, private)

    retry(look, repo_id)


def commit_files(
    files: Mapping[str, Content],
    repo_id: str,
    kind: str,
    *,
    commit_message: str,
    is_ours: Callable[[str], bool] = lambda path: False,
    private: bool = False,
    revision: str | None = None,
    onto: str | None = None,
    api: HfApi | None = None,
) -> Push:
    """Push files atomically, in one commit.

    The call waits and tries again after lost connections, rate limits (as long as they ask for), failures of the server, and
    commits that others made at the same moment.

    Args:
        files: all files that a push of this kind should leave in the repository.
        kind: one of `KINDS`.
        is_ours: whether a push of this kind writes such a path. The commit removes a path of ours that is not in `files`;
            other paths stay. By default all stay.
        private: make a new repository private, and refuse a public one.
        revision: branch; made if it does not exist; default `main`.
        onto: sha of the only commit that the files may be added to, if they were made from it. Without it, a repository
            that does not exist is made.
        api: the Hub and its token, if not taken from the environment.

    Raises:
        BranchMoved: the branch is no longer at `onto`; nothing was changed.
        CannotPush: there is no token or no permission, the name is taken or refused, the repository is public but should be
            private, or the Hub cannot be reached; nothing was changed, but a new repository may be left empty.
        ValueError: the name of the repository or branch is not legal, or the Hub refuses the card's metadata.
    """
    check_repo_id(repo_id)
    check_revision(revision)
    api = api or HfApi()
    revision = revision or "main"
    sent: tuple[list[str], list[str]] = ([], [])
    sdk = _sdk(files[REPOCARD_NAME]) if kind == "space" else None

    def attempt() -> Push:
        nonlocal sent
        head = _open(api, repo_id, kind, private, revision, create=onto is None, sdk=sdk)
        held = {file.rfilename: file for file in head.siblings or ()}
        missing = (_missing(path, content, held.get(path)) for path, content in sorted(files.items()))
        added = [file for file in missing if file]
        removed = [CommitOperationDelete(path) for path in sorted(held) if path not in files and is_ours(path)]
        url = f"{api.endpoint}/{'' if kind == 'model' else f'{kind}s/'}{repo_id}"
        if not added and not removed:
            # Nothing is left to send. If an earlier attempt made the commit and its response was lost, `sent` names it.
            return Push(url, head.sha, *sent)
        if onto not in (None, head.sha):
            raise BranchMoved(f"{repo_id} has changed since {onto} was read: try again")
        sent = [file.path_in_repo for file in added], [file.path_in_repo for file in removed]
        where = {"repo_type": kind, "revision": revision, "parent_commit": head.sha}
        try:
            commit = api.create_commit(repo_id, [*added, *removed], commit_message=commit_message, **where)
        except HfHubHTTPError as error:
            if error.response.status_code == CONFLICT:
                # The Hub made no commit of ours. Others may have sent the same files at the same moment.
                sent = [], []
            raise
        # The library makes no commit if the Hub has the same files by now, from others.
        is_made = bool(removed) or any(isinstance(file, CommitOperationCopy) or file._is_committed for file in added)
        return Push(url, commit.oid, *(sent if is_made else ([], [])))

    retry(lambda: _check_rights(api, repo_id, kind), repo_id)
    return retry(attempt, repo_id)


def retry(attempt: Callable[[], Result], repo_id: str) -> Result:
    """The result of an attempt, which is repeated as long as its failure may be temporary.

    Raises:
        CannotPush: the Hub refuses, or every attempt failed.
    """
    waits = iter(WAITS)
    while True:
        try:
            return attempt()
        except LocalTokenNotFoundError as error:
            raise CannotPush("no token for the Hub: run `hf auth login`, or set HF_TOKEN") from error
        except (HTTPError, OSError, RuntimeError, JSONDecodeError) as error:
            reason, asked = _diagnose(error, repo_id)
            wait = next(waits, None)
            if wait is None:
                raise CannotPush(f"gave up after {len(WAITS) + 1} attempts: {reason}") from error
            if asked > LONGEST_WAIT:
                raise CannotPush(f"{reason} and asks to wait for {asked:.0f} seconds: push again then") from error
            delay = max(wait, asked)
        print(f"{reason}: trying again in {delay:.0f} seconds", file=sys.stderr)
        time.sleep(delay)


def _diagnose(error: BaseException, repo_id: str) -> tuple[str, float]:
    """The reason of a failure, and the seconds that the Hub asks to wait.

    Raises:
        CannotPush: another attempt would fail in the same way.
    """
    # Failures of upload threads and of downloads arrive wrapped in other exceptions.
    chain: list[BaseException] = [error]
    while (wrapped := chain[-1].__cause__) is not None:
        chain.append(wrapped)
    if any(isinstance(link, OfflineModeIsEnabled) for link in chain):
        raise CannotPush("HF_HUB_OFFLINE is set: unset it to push") from error
    if isinstance(error, JSONDecodeError):
        return "the Hub's answer was cut off", 0.0
    cause = next((link for link in chain if isinstance(link, HTTPError)), None)
    if cause is None:
        return _diagnose_upload(error, chain[-1], repo_id), 0.0
    if not isinstance(cause, HfHubHTTPError):
        return f"the connection to the Hub failed ({type(cause).__name__})", 0.0
    status = cause.response.status_code
    said = " ".join((cause.server_message or str(cause)).split())
    if status == 401:
        raise CannotPush(f"the Hub refuses the token, or the token may not see {repo_id}: {said}") from error
    if status == 403:
        raise CannotPush(f"no permission to write to {repo_id}: {said}") from error
    if is_passing(status):
        return f"the Hub answered {status}", _asked_wait(cause.response.headers)
    raise CannotPush(f"the Hub refuses {repo_id} ({status}): {said}") from error


def _asked_wait(headers: Mapping[str, str]) -> float:
    """Seconds that a response asks to wait: until the rate limit is reset, else the value of `Retry-After`."""
    if (limit := parse_ratelimit_headers(headers)) and limit.remaining == 0:
        # The reset is given in whole seconds, so wait one second more.
        return limit.reset_in_seconds + 1.0
    asked = headers.get("Retry-After", "")
    return float(asked) if asked.isdecimal() else 0.0


def _diagnose_upload(error: BaseException, cause: BaseException, repo_id: str) -> str:
    """The reason of a failure without an HTTP error: Xet, which uploads large files, raises Python's own exceptions.

    Raises:
        CannotPush: another attempt would fail in the same way.
    """
    said = " ".join(str(cause).split()) or type(cause).__name__
    lost = isinstance(cause, ConnectionError | TimeoutError) or "network error" in said.lower()
    if not lost or re.search(r"\b40[13]\b", said):
        raise CannotPush(f"{repo_id} cannot be pushed: {said}") from error
    return f"the connection to the Hub failed ({said})"


def _check_rights(api: HfApi, repo_id: str, kind: str) -> None:
    """Raise CannotPush if the token may not write to the repository, or if a repository of another kind has its name."""
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


def _check_ours(api: HfApi, main: Any, repo_id: str, kind: str, private: bool) -> None:
    """Raise CannotPush if the repository was not made by this package, or if it is public but should be private."""
    tags = (main.card_data.get("tags") if main.card_data else None) or []
    if TAG not in tags and (foreign := _foreign_file(api, main, repo_id, kind)):
        raise CannotPush(
            f"{repo_id} holds something else already ({foreign}, no tag {TAG!r}): choose another name, or, if this "
            f"package made it, put the tag {TAG!r} back into its card"
        )
    if private and main.private is False:
        raise CannotPush(
            f"{repo_id} is public already, and a push does not change that: make it private in its settings, choose another "
            "name, or leave out private"
        )


def _foreign_file(api: HfApi, main: Any, repo_id: str, kind: str) -> str | None:
    """A file in a repository that the Hub did not put there itself; None if there is none."""
    names = [file.rfilename for file in main.siblings or ()]
    foreign = [name for name in names if name not in (".gitattributes", REPOCARD_NAME)]
    # The Hub writes a page and a card into a new Space. Into other new repositories it writes at most a card of metadata, so
    # a card with text was written by a person.
    if kind == "space" and set(foreign) <= set(STATIC_FILES) and len(api.list_repo_commits(repo_id, repo_type=kind)) == 1:
        return None
    if not foreign and REPOCARD_NAME in names and _has_text(api, repo_id, kind):
        return f"a {REPOCARD_NAME} with text"
    return foreign[0] if foreign else None


def _has_text(api: HfApi, repo_id: str, kind: str) -> bool:
    """Whether a repository's card holds text besides its metadata."""
    with tempfile.TemporaryDirectory() as place:
        card = Path(api.hf_hub_download(repo_id, REPOCARD_NAME, repo_type=kind, local_dir=place)).read_text(encoding="utf-8")
    text = re.sub(r"\A\s*---\n.*?\n---\s*(\n|\Z)", "", card, flags=re.DOTALL)
    return bool(text.strip())


def _sdk(card: Content) -> str:
    """The SDK that a Space's card names. In a static Space users load the files and run them; the Hub does not."""
    # Only files of datasets are taken from elsewhere in the repository.
    assert not isinstance(card, HeldFile)
    text = card.decode() if isinstance(card, bytes) else card.read_text(encoding="utf-8")
    return RepoCard(text, ignore_metadata_errors=True).data.to_dict().get("sdk", "static")


def _open(api: HfApi, repo_id: str, kind: str, private: bool, revision: str, create: bool, sdk: str | None) -> Any:
    """What the Hub says of a branch's last commit. The repository and the branch are made if they do not exist.

    Args:
        sdk: of a new Space.

    Raises:
        CannotPush: the repository does not exist and `create` is False, or something else is in it.
    """
    try:
        main = api.repo_info(repo_id, repo_type=kind)
    except RepositoryNotFoundError as error:
        if not create:
            raise CannotPush(f"there is no {kind} {repo_id} on {api.endpoint}, or the token may not see it") from error
        api.create_repo(repo_id, repo_type=kind, private=private, exist_ok=True, space_sdk=sdk)
        main = api.repo_info(repo_id, repo_type=kind)
    _check_ours(api, main, repo_id, kind, private)
    try:
        return api.repo_info(repo_id, repo_type=kind, revision=revision, files_metadata=True)
    except RevisionNotFoundError:
        api.create_branch(repo_id, repo_type=kind, branch=revision, exist_ok=True)
        return api.repo_info(repo_id, repo_type=kind, revision=revision, files_metadata=True)


def _missing(path: str, content: Content, file: RepoSibling | None) -> CommitOperationAdd | CommitOperationCopy | None:
    """What sends a file's content; None if the Hub's file has it: a large one by its SHA-256, others by git's blob id."""
    if isinstance(content, HeldFile):
        same = file and file.lfs and file.lfs.sha256 == content.sha256
        return None if same else CommitOperationCopy(path, path, src_revision=content.sha)
    own = CommitOperationAdd(path, content)
    if file and file.lfs:
        return None if own.upload_info.sha256.hex() == file.lfs.sha256 else own
    with own.as_file() as opened:
        return None if file and git_hash(opened.read()) == file.blob_id else own
