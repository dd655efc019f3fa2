"""Push files to a repository on the Hub atomically, in one commit.

A push compares its files with the last commit and sends those that differ, in one commit on top of that last commit. The
Hub's client repeats uploads that fail. Any other failure ends the push with one line and changes no file of the repository.
If a push was cut off, repeat it: nothing is sent twice, even if only the response to the commit was lost.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from json import JSONDecodeError
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationCopy, CommitOperationDelete, HfApi
from huggingface_hub.constants import REPOCARD_NAME
from huggingface_hub.errors import (
    HfHubHTTPError,
    HTTPError,  # of the HTTP client that huggingface_hub is built on; the base of all lost connections
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from longhand.hub_cards.hub import check_repo_id, check_revision, is_passing

TAG = "longhand"
"""Tag on every card of this package."""

TYPES = ("model", "dataset", "space")
"""The Hub's types of repositories."""

INITIAL_FILES = (".gitattributes", REPOCARD_NAME, "index.html", "style.css")
"""Files of the Hub's own first commit in a new repository; the last two are a static Space's."""

Files = Mapping[str, Path | bytes | CommitOperationCopy]
"""Files of a repository by path: a local file, the content itself, or a file that the repository has in another branch."""


class CannotPush(ValueError):
    """The Hub refuses a push, or cannot be reached. The message gives the reason; the repository's files are unchanged."""


@dataclass(frozen=True)
class Push:
    """The files that a push to a repository changed.

    Attributes:
        place: address of the repository.
        changed: paths that were written. Empty if the place held all files already; then there was no commit.
        removed: paths that were removed.
        sha: the commit that holds the files.
    """

    place: str
    changed: list[str]
    removed: tuple[str, ...]
    sha: str

    def __str__(self) -> str:
        if not self.changed and not self.removed:
            return f"{self.place}: holds all this already, nothing was changed"
        removed = f" and removed {len(self.removed)}" if self.removed else ""
        return f"{self.place}: wrote {len(self.changed)} file{'s' * (len(self.changed) != 1)}{removed}"


@dataclass(frozen=True)
class Repository:
    """A repository that a push goes to.

    Attributes:
        name: `user/name`.
        type: one of `TYPES`.
        kind: kind of its files, such as "model" or "metric". The card records the kind by the tag `longhand-KIND`, and a
            push of another kind is refused.
        private: make a new repository private, and refuse a public one.
        revision: branch; made if it does not exist.
        api: the Hub and its token.

    Raises:
        ValueError: the name of the repository or branch is not legal.
    """

    name: str
    type: str
    kind: str
    private: bool = False
    revision: str | None = None
    api: HfApi | None = None

    def __post_init__(self):
        check_repo_id(self.name)
        check_revision(self.revision)

    @property
    def hub(self) -> HfApi:
        return self.api or HfApi()

    @property
    def url(self) -> str:
        return f"{self.hub.endpoint}/{'' if self.type == 'model' else f'{self.type}s/'}{self.name}"

    def info(self, revision: str | None = None, **options: Any) -> Any:
        """The Hub's record of a branch's last commit; by default of `main`."""
        return self.hub.repo_info(self.name, repo_type=self.type, revision=revision, **options)


def kind_tag(kind: str) -> str:
    """The tag of a card that records the kind of its repository."""
    return f"{TAG}-{kind}"


def own_repo_id(name: str, api: HfApi) -> str:
    """The full name `USER/NAME`. A name without a user gets the user of the token.

    Raises:
        CannotPush: there is no token, the Hub refuses it, or the Hub cannot be reached.
        ValueError: the name is not legal.
    """
    if "/" not in name:
        with refusing(name):
            name = f"{api.whoami()['name']}/{name}"
    check_repo_id(name)
    return name


def check_push(repository: Repository) -> None:
    """Check that the Hub would accept a push, before the files are made. Nothing is changed on the Hub.

    Raises:
        CannotPush: see `commit_files`.
    """
    with refusing(repository.name):
        owner, user = repository.name.partition("/")[0], repository.hub.whoami()
        owners = [user["name"], *(organization["name"] for organization in user.get("orgs", []))]
        if owner not in owners:
            raise CannotPush(f"no permission to write to {owner}: the token may write to {' and '.join(owners)} only")
        if user.get("auth", {}).get("accessToken", {}).get("role") == "read":
            raise CannotPush(f"no permission to write to {owner}: the token of {user['name']} can only read")
        for other in TYPES:
            if other != repository.type and repository.hub.repo_exists(repository.name, repo_type=other):
                raise CannotPush(f"{repository.name} is a {other} already: choose another name for the {repository.type}")
        with suppress(RepositoryNotFoundError):
            _check_ours(repository, repository.info())
            with suppress(RevisionNotFoundError):
                # The branch may have been made for something else.
                _check_kind(repository, repository.info(repository.revision))


def commit_files(
    files: Files,
    repository: Repository,
    commit_message: str,
    is_ours: Callable[[str], bool] = lambda path: False,
    onto: str | None = None,
) -> Push:
    """Push files atomically, in one commit. A repository that does not exist is made.

    Args:
        files: all files that a push of this kind should leave in the repository. The Hub's client sends those that differ.
        is_ours: whether a push of this kind writes such a path. The commit removes a path of ours that is not in `files`;
            other paths stay. By default all stay.
        onto: sha of the only commit that the files may be added to, if they were made from it.

    Raises:
        CannotPush: there is no token or no permission; the name is taken or refused; the repository holds something else, or
            is public but should be private; the branch has changed meanwhile; the Hub refuses the card's metadata or cannot
            be reached. No file was changed, but a new repository may be left empty.
    """
    check_push(repository)
    with refusing(repository.name):
        head = _open(repository)
        held = _blobs(head)
        removed = tuple(path for path in held if path not in files and is_ours(path))
        operations: list[Any] = [
            content if isinstance(content, CommitOperationCopy) else CommitOperationAdd(path, content)
            for path, content in files.items()
        ]
        where: Any = {"repo_type": repository.type, "revision": repository.revision, "parent_commit": onto or head.sha}
        operations += map(CommitOperationDelete, removed)
        commit = repository.hub.create_commit(repository.name, operations, commit_message=commit_message, **where)
        now = _blobs(repository.info(commit.oid, files_metadata=True))
        return Push(repository.url, [path for path in now if now[path] != held.get(path)], removed, commit.oid)


def _blobs(head: Any) -> dict[str, str]:
    """The hash of every file of a commit, by path."""
    return {file.rfilename: file.blob_id for file in sorted(head.siblings or (), key=lambda file: file.rfilename)}


@contextmanager
def refusing(name: str) -> Iterator[None]:
    """Turn errors of the Hub and of its client into CannotPush.

    Args:
        name: of the repository, for the message.
    """
    try:
        yield
    except LocalTokenNotFoundError as error:
        raise CannotPush("no token for the Hub: run `hf auth login`, or set HF_TOKEN") from error
    except (HTTPError, OSError, RuntimeError, JSONDecodeError) as error:
        raise CannotPush(_diagnose(error, name)) from error


def _diagnose(error: BaseException, name: str) -> str:
    """The reason of a failure, and what would help."""
    # Failures of upload threads and of downloads arrive wrapped in other exceptions.
    chain: list[BaseException] = [error]
    while (wrapped := chain[-1].__cause__) is not None:
        chain.append(wrapped)
    if any(isinstance(link, OfflineModeIsEnabled) for link in chain):
        return "HF_HUB_OFFLINE is set: unset it to push"
    cause = next((link for link in chain if isinstance(link, HTTPError)), chain[-1])
    if not isinstance(cause, HfHubHTTPError):
        said = " ".join(str(cause).split()) or type(cause).__name__
        lost = "the connection to the Hub failed, push again" if isinstance(cause, HTTPError) else f"{name} cannot be pushed"
        return f"{lost}: {said}"
    status, said = cause.response.status_code, " ".join((cause.server_message or str(cause)).split())
    reasons = {
        401: f"the Hub refuses the token, or the token may not see {name}",
        403: f"no permission to write to {name}",
        # The parent of the commit is not the last commit of the branch.
        412: f"{name} has changed at the same moment: push again",
    }
    passing = "push again later" if is_passing(status) else f"the Hub refuses {name}"
    return f"{reasons.get(status, passing)} ({status}): {said}"


def _check_ours(repository: Repository, main: Any) -> None:
    """Raise CannotPush if a repository belongs to other people, is of another kind, or is public although `private` is set.

    A repository belongs to this package if its card has the tag of its kind. A repository whose only commit is the one that
    the Hub makes is free.
    """
    name, tag = repository.name, kind_tag(repository.kind)
    if not _check_kind(repository, main):
        foreign = [file.rfilename for file in main.siblings or () if file.rfilename not in INITIAL_FILES]
        if foreign or len(repository.hub.list_repo_commits(name, repo_type=repository.type)) > 1:
            raise CannotPush(
                f"{name} holds something else already ({(foreign or [REPOCARD_NAME])[0]}, no tag {tag!r}): choose another "
                f"name, or, if this package made it, put the tag {tag!r} into its card"
            )
    if repository.private and main.private is False:
        raise CannotPush(
            f"{name} is public already, and a push does not change that: make it private in its settings, choose another "
            "name, or leave out private"
        )


def _check_kind(repository: Repository, head: Any) -> bool:
    """Whether a branch's card records this kind. Raise CannotPush if it records another one."""
    tags = (head.card_data.get("tags") if head.card_data else None) or []
    kinds = [tag.removeprefix(kind_tag("")) for tag in tags if str(tag).startswith(kind_tag(""))]
    if kinds and repository.kind not in kinds:
        raise CannotPush(f"{repository.name} is a {kinds[0]} of longhand: choose another name for the {repository.kind}")
    return bool(kinds)


def _open(repository: Repository) -> Any:
    """What the Hub says of a branch's last commit. The repository and the branch are made if they do not exist."""
    where: Any = {"repo_type": repository.type, "exist_ok": True}
    try:
        repository.info()
    except RepositoryNotFoundError:
        # In a static Space users load the files and run them; the Hub does not.
        sdk = "static" if repository.type == "space" else None
        repository.hub.create_repo(repository.name, private=repository.private, space_sdk=sdk, **where)
    try:
        return repository.info(repository.revision, files_metadata=True)
    except RevisionNotFoundError:
        repository.hub.create_branch(repository.name, branch=str(repository.revision), **where)
        return repository.info(repository.revision, files_metadata=True)


def find_head(repository: Repository) -> str | None:
    """Sha of a branch's last commit; None if there is no such branch or repository.

    Raises:
        CannotPush: the Hub cannot be reached.
    """
    with refusing(repository.name), suppress(RepositoryNotFoundError):
        branches = repository.hub.list_repo_refs(repository.name, repo_type=repository.type).branches
        return {branch.name: branch.target_commit for branch in branches}.get(repository.revision or "main")
    return None
