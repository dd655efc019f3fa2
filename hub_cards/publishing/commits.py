"""Push files to a repository on the Hub atomically, in one commit.

A push compares its files with the last commit and sends those that differ, in one commit on top of that last commit. The
Hub's client repeats uploads that fail. Any other failure ends the push with one line and changes no file of the repository.
If a push was cut off, repeat it: nothing is sent twice, even if only the response to the commit was lost.
"""

# Used by: dataset.py, publications.py, train.py. Changed freely.

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationCopy, CommitOperationDelete, HfApi
from huggingface_hub.constants import REPOCARD_NAME
from huggingface_hub.errors import HTTPError, RepositoryNotFoundError

from longhand.hub_cards.commands import check_repo_id, is_one_line, one_line
from longhand.hub_cards.publishing.cards import kind_tag

TYPES = {"model": "model", "dataset": "dataset", "metric": "space", "page": "space", "decoding": "model"}
"""The Hub's type of repository for each kind of publication."""

INITIAL_FILES = (".gitattributes", REPOCARD_NAME, "index.html", "style.css")
"""Files of the Hub's own first commit in a new repository; the last two are a static Space's."""

Files = Mapping[str, Path | bytes | CommitOperationCopy]
"""Files of a repository by path: a local file, the content itself, or a file that the repository has in another branch."""


class CannotPush(ValueError):
    """The Hub refuses a push, or cannot be reached. The message gives the reason; the repository's files are unchanged."""


@dataclass(frozen=True)
class Push:
    """A push that the Hub took.

    Attributes:
        place: address of the repository.
        sha: the commit that holds the files.
        is_new: whether the push made this commit; False if the repository held all files already.
    """

    place: str
    sha: str
    is_new: bool

    def __str__(self) -> str:
        return f"{self.place}: {'pushed in one commit' if self.is_new else 'holds all this already, nothing was changed'}"


@dataclass(frozen=True)
class Repository:
    """A repository that a push goes to.

    Attributes:
        name: `user/name`.
        kind: kind of its files, a key of `TYPES`. The card records the kind by the tag `longhand-KIND`, and a push of
            another kind is refused.
        private: make a new repository private, and refuse a public one.
        revision: branch; made if it does not exist.
        api: the Hub and its token.

    Raises:
        ValueError: a name is not legal.
    """

    name: str
    kind: str
    private: bool = False
    revision: str | None = None
    api: HfApi | None = None

    def __post_init__(self):
        check_repo_id(self.name)
        if self.revision is not None and not is_one_line(self.revision):
            raise ValueError(f"the name of a branch must be one line, got {self.revision!r}")

    @property
    def hub(self) -> HfApi:
        """The client that was given, or a new one."""
        return self.api or HfApi()

    @property
    def type(self) -> str:
        """The Hub's type of repository."""
        return TYPES[self.kind]

    def info(self, revision: str | None = None, **options: Any) -> Any:
        """The Hub's record of a branch's last commit; by default of `main`."""
        return self.hub.repo_info(self.name, repo_type=self.type, revision=revision, **options)


def own_repo_id(name: str, api: HfApi) -> str:
    """The full name `USER/NAME`. A name without a user gets the user of the token.

    Raises:
        CannotPush: there is no token, the Hub refuses it, or the Hub cannot be reached.
    """
    with refusing(name):
        return name if "/" in name else f"{api.whoami()['name']}/{name}"


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
        with suppress(RepositoryNotFoundError):
            _check_ours(repository, repository.info())


def commit_files(files: Files, repository: Repository, commit_message: str, patterns: Sequence[str]) -> Push:
    """Push files atomically, in one commit. A repository that does not exist is made.

    Args:
        files: all files that a push of this kind should leave in the repository. The Hub's client sends those that differ.
        patterns: the paths that pushes of this kind write. The commit removes such a path that is not in `files`; other
            paths stay.

    Raises:
        CannotPush: there is no token or no permission; the name is refused; the repository holds something else, or is
            public but should be private; the branch has changed meanwhile; the Hub refuses the card's metadata or cannot be
            reached. No file was changed, but a new repository may be left empty.
    """
    check_push(repository)
    with refusing(repository.name):
        where: Any = {"repo_type": repository.type, "exist_ok": True}
        # In a static Space users load the files and run them; the Hub does not.
        sdk = "static" if repository.type == "space" else None
        place = repository.hub.create_repo(repository.name, private=repository.private, space_sdk=sdk, **where)
        if repository.revision is not None:
            repository.hub.create_branch(repository.name, branch=repository.revision, **where)
        head = repository.info(repository.revision)
        gone = [path for path in (file.rfilename for file in head.siblings) if path not in files and _fits(path, patterns)]
        operations: list[Any] = [
            content if isinstance(content, CommitOperationCopy) else CommitOperationAdd(path, content)
            for path, content in files.items()
        ]
        operations += map(CommitOperationDelete, gone)
        onto: Any = {"repo_type": repository.type, "revision": repository.revision, "parent_commit": head.sha}
        commit = repository.hub.create_commit(repository.name, operations, commit_message=commit_message, **onto)
        return Push(str(place), commit.oid, commit.oid != head.sha)


def _fits(path: str, patterns: Sequence[str]) -> bool:
    """Whether a path has the form of a pattern, in a folder as deep."""
    return any(fnmatch(path, pattern) and path.count("/") == pattern.count("/") for pattern in patterns)


@contextmanager
def refusing(name: str) -> Iterator[None]:
    """Turn errors of the Hub and of its client into CannotPush.

    Args:
        name: of the repository, for the message.
    """
    try:
        yield
    # The client's errors, and RuntimeError of its upload threads.
    except (HTTPError, OSError, RuntimeError) as error:
        raise CannotPush(f"{name} cannot be pushed to the Hub and is unchanged: {one_line(error)}") from error


def _check_ours(repository: Repository, main: Any) -> None:
    """Raise CannotPush if a repository belongs to other people, is of another kind, or is public although `private` is set.

    A repository belongs to this package if its card has the tag of its kind. A repository whose only commit is the one that
    the Hub makes is free.
    """
    name, tag = repository.name, kind_tag(repository.kind)
    tags = (main.card_data.get("tags") if main.card_data else None) or []
    if kinds := [kind for kind in TYPES if kind_tag(kind) in tags and kind != repository.kind]:
        raise CannotPush(f"{name} is a {kinds[0]} of longhand: choose another name for the {repository.kind}")
    if tag not in tags:
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
