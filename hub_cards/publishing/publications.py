"""Publications of checkpoints, of the metric and of the page; those of datasets are in `dataset.py`.

A `Publication` describes the files of one repository. `publish` makes the files, shows them and commits them.
"""

import json
import re
import shlex
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from huggingface_hub import CommitOperationCopy, HfApi

from longhand.data.plugins import named_plugins
from longhand.hub_cards.checkpoints.certificate_file import VERIFIER
from longhand.hub_cards.checkpoints.files import (
    ANSWER_FILES,
    BEST_FOLDER,
    CERTIFICATE_FILE,
    TRAINING_ARGUMENTS,
    changed_code,
)
from longhand.hub_cards.checkpoints.folder import read_checkpoint
from longhand.hub_cards.checkpoints.zoo import locate
from longhand.hub_cards.evaluation.results import CERTIFICATES_FILE, RESULTS_FILE
from longhand.hub_cards.files import is_one_line
from longhand.hub_cards.hub import check_repo_id
from longhand.hub_cards.page.build import build_page, shown_by_default
from longhand.hub_cards.publishing.cards import CARD_FILE, render_card
from longhand.hub_cards.publishing.commits import (
    Files,
    Push,
    Repository,
    check_push,
    commit_files,
    find_head,
)
from longhand.hub_cards.publishing.examples import ENVIRONMENT
from longhand.hub_cards.publishing.privacy import check_private, published_recipe_text
from longhand.hub_cards.recipes import RECIPE_FILE, read_recipe

MODEL_FILES = (
    *(*ANSWER_FILES, "*.png"),
    *(RECIPE_FILE, RESULTS_FILE, CERTIFICATE_FILE, CERTIFICATES_FILE, CARD_FILE),
)
"""Names of the published files of a checkpoint's folder and of `best` in it. Training states and all other files stay."""

METRIC_FOLDER = Path(__file__).parents[1] / "metrics" / "exact_match_by_length"

PAGE_FILE = "index.html"


@dataclass(frozen=True)
class Publication:
    """Files for one repository on the Hub, before they are made.

    Attributes:
        repo_id: `user/name`.
        type: one of `commits.TYPES`.
        kind: see `Repository`.
        name: what is pushed, for the commit message.
        is_ours: tells whether pushes of this kind write a given path.
        make_files: the files, from an empty folder to write large ones to and from what `look` found, or None.
        look: what a push needs to know of the repository, from the repository and the last commit of its branch, if any.
        branch: where the files go, whatever the options of the push say; None if the options decide.
        notes: what is left out of a folder, and why; a line each.

    Raises:
        ValueError: the repository's name is not legal.
    """

    repo_id: str
    type: Literal["model", "dataset", "space"]
    kind: str
    name: str
    is_ours: Callable[[str], bool]
    make_files: Callable[[Path, Any], Files]
    look: Callable[[Repository, str | None], Any] = lambda repository, head: None
    branch: str | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self):
        check_repo_id(self.repo_id)


class PushOptions(TypedDict, total=False):
    """Options of every push.

    Attributes:
        private: make a new repository private, and refuse a public one; default False.
        revision: branch; made if it does not exist; default `main`.
        commit_message: title of the commit; default `Push NAME`.
        api: the Hub and its token; default: taken from the environment.
    """

    private: bool
    revision: str | None
    commit_message: str | None
    api: HfApi | None


def push_model(
    folder: Path | str, repo_id: str, *, dataset: str | None = None, with_code: bool = False, **options: Unpack[PushOptions]
) -> Push:
    """Push a checkpoint's folder, as train.py or transformers' Trainer writes it, with a card for the repository.

    The push writes the card anew, so changes that people made by hand on the Hub are lost.

    Args:
        repo_id: `user/name`; made if it does not exist.
        dataset: Hub id of a dataset of its task, for the card.
        with_code: push Python files too that this package did not write for this model.
        options: see `PushOptions`.

    Raises:
        ValueError: see `model_publication`.
        CannotPush: the Hub does not accept the push (see `commit_files`); the repository's files are unchanged.
    """
    return publish(model_publication(Path(folder), repo_id, dataset, with_code), **options)


def push_metric(repo_id: str, **options: Unpack[PushOptions]) -> Push:
    """Push the metric, exact match by length, as a Space for `evaluate.load(repo_id)`; see `metric_publication`."""
    return publish(metric_publication(repo_id), **options)


def publish(publication: Publication, show: Callable[[Files], None] | None = None, **options: Unpack[PushOptions]) -> Push:
    """Push a publication: check that the Hub would accept it, make its files, and commit them.

    Args:
        show: called with the files before they are committed.
        options: see `PushOptions`.

    Raises:
        ValueError, CannotPush: see `push_model`.
    """
    commit_message = options.pop("commit_message", None) or f"Push {publication.name}"
    if not is_one_line(commit_message):
        raise ValueError(f"commit_message must be one line of UTF-8, got {commit_message!r}")
    place: Any = {**options, "revision": publication.branch or options.get("revision")}
    repository = Repository(publication.repo_id, publication.type, publication.kind, **place)
    check_push(repository)
    found = publication.look(repository, head := find_head(repository))
    with tempfile.TemporaryDirectory() as folder:
        files = publication.make_files(Path(folder), found)
        if show is not None:
            show(files)
        return commit_files(files, repository, commit_message, publication.is_ours, head)


def describe_files(files: Files) -> str:
    """A line for each file that is sent: its size in bytes and its path."""
    sent = {path: content for path, content in files.items() if not isinstance(content, CommitOperationCopy)}
    sizes = {path: len(content) if isinstance(content, bytes) else content.stat().st_size for path, content in sent.items()}
    lines = [f"{size:>14,}  {path}" for path, size in sorted(sizes.items())]
    return "\n".join([*lines, f"{sum(sizes.values()):>14,}  bytes in {len(sizes)} files"])


def preview(publication: Publication) -> str:
    """The files that a push to a new repository would write, and the card if there is one, as text. The Hub is not asked."""
    with tempfile.TemporaryDirectory() as place:
        files = publication.make_files(Path(place), None)
        text = describe_files(files)
        if isinstance(card := files.get(CARD_FILE), bytes):
            text += f"\n\n{CARD_FILE}:\n\n{card.decode()}"
        return text


def push_command(folder: Path, repo_id: str, private: bool = False, revision: str | None = None) -> str:
    """The command that pushes a checkpoint's folder, with the plugins in it."""
    words = ["python", "-m", "longhand.hub_cards.push", "model", str(folder), repo_id]
    words += ["--private"] * private + (["--revision", revision] if revision else []) + ["--yes"]
    plugins = [str(folder / name) for name in named_plugins(read_recipe(folder / RECIPE_FILE))]
    words += ["--plugin", *plugins] if plugins else []
    return shlex.join(words)


def model_publication(folder: Path, repo_id: str, dataset: str | None = None, with_code: bool = False) -> Publication:
    """A checkpoint's folder for a repository on the Hub, with a card.

    Args:
        dataset: Hub id of a dataset of its task, for the card.
        with_code: publish Python files too that this package did not write for this model.

    Raises:
        ValueError: the folder is no checkpoint or holds files of another one (see `read_checkpoint`), a file is a link that
            leaves the folder, Python files are not as this package writes them, a file holds a token or a path of this
            machine, or a name is not legal. Making the files raises it too if the folder has changed since.
    """
    if dataset is not None:
        check_repo_id(dataset)
    checkpoint = read_checkpoint(folder)
    task, spare = checkpoint.task, checkpoint.spare_best
    # The push takes the verifier from this package, so a changed copy in the folder is never published.
    python_files = [path for path in published_files(folder) if path.endswith(".py") and Path(path).name != VERIFIER.name]
    if not with_code and (strange := changed_code(folder, python_files, checkpoint.config, task, checkpoint.recipe)):
        raise ValueError(
            f"{folder} holds Python files that this version of longhand did not write for this model: {', '.join(strange)}; "
            "read them, then push them with --with_code, or save the model again"
        )

    def make_files(place: Path, _: None) -> Files:
        files: dict[str, Any] = {
            path: file for path, file in published_files(folder).items() if not spare or "/" not in path
        }
        for path in files:
            if path.endswith(RECIPE_FILE):
                files[path] = published_recipe_text(folder / path).encode()
            if path.endswith(VERIFIER.name):
                files[path] = VERIFIER
        if spare and RESULTS_FILE in files:
            files[RESULTS_FILE] = "".join(json.dumps(row) + "\n" for row in checkpoint.rows).encode()
        files[CARD_FILE] = render_card(checkpoint, repo_id, dataset).encode()
        check_private(files, folder)
        return files

    notes = [f"{TRAINING_ARGUMENTS} is not pushed: it is a pickle"] * (folder / TRAINING_ARGUMENTS).is_file()
    notes += [f"{BEST_FOLDER}/ is not pushed: {spare}"] if spare else []
    return Publication(repo_id, "model", "model", checkpoint.name, is_model_file, make_files, notes=tuple(notes))


def model_files(folder: Path, repo_id: str, dataset: str | None = None) -> Files:
    """The files that pushing a checkpoint's folder to a new repository writes, by path; see `model_publication`."""
    return model_publication(folder, repo_id, dataset).make_files(folder, None)


def is_model_file(path: str) -> bool:
    """Whether a path in a repository is written by a push of a model."""
    folder, _, name = path.rpartition("/")
    return folder in ("", BEST_FOLDER) and any(fnmatch(name, pattern) for pattern in MODEL_FILES)


def published_files(folder: Path) -> dict[str, Path]:
    """The files of a checkpoint's folder that are published, by path.

    Raises:
        ValueError: a file is a link that leaves the folder, or the Hub cannot hold a name.
    """
    found = [file for place in (folder, folder / BEST_FOLDER) for file in sorted(place.glob("*")) if file.is_file()]
    files = {path: file for file in found if is_model_file(path := file.relative_to(folder).as_posix())}
    if unfit := [path for path in (folder.resolve().name, *files) if not is_one_line(path)]:
        raise ValueError(f"the Hub takes names of one line of UTF-8: rename {unfit[0]!r}")
    for path, file in files.items():
        if not file.resolve().is_relative_to(folder.resolve()):
            raise ValueError(
                f"{path} in {folder} is a link to {file.resolve()}, outside the folder: put a copy there instead"
            )
    return files


def metric_publication(repo_id: str) -> Publication:
    """The metric for a Space on the Hub. `evaluate.load` runs the file that has the name of the repository.

    Raises:
        ValueError: the repository's name is not legal, cannot be the name of a Python file, or is the name of another file
            of the metric.
    """
    name = repo_id.rpartition("/")[2]
    own, given = f"{METRIC_FOLDER.name}.py", f"{name}.py"
    found = {file.name: file for file in sorted(METRIC_FOLDER.iterdir()) if is_metric_file(file.name)}
    if not re.fullmatch(r"[\w-]+", name) or (given in found and given != own):
        raise ValueError(
            f"repository name {repo_id!r} cannot be the metric's, whose file is named after it: use only letters, "
            f"digits, `_` and `-`, for instance {METRIC_FOLDER.name}"
        )
    card = found[CARD_FILE].read_text(encoding="utf-8").replace(f"hub_cards/metrics/{METRIC_FOLDER.name}", repo_id)
    found[given] = found.pop(own)
    files: Files = {**found, CARD_FILE: card.encode()}
    return Publication(repo_id, "space", "metric", METRIC_FOLDER.name, is_metric_file, lambda place, _: files)


def is_metric_file(path: str) -> bool:
    """Whether a path in a repository is written by a push of the metric."""
    return path in (CARD_FILE, "requirements.txt", "index.html", "style.css") or ("/" not in path and path.endswith(".py"))


def page_publication(repo_id: str, models: Sequence[str] = ()) -> Publication:
    """The page of `longhand.hub_cards.page` for a static Space on the Hub: one HTML file and a card.

    Args:
        models: what the page shows: folders of runs, names of the zoo, or Hub ids; by default most of the zoo.

    Raises:
        ValueError: a name is not legal. Making the files raises what `build_page` does.
    """
    sources = [locate(source) for source in models or shown_by_default()]

    def make_files(place: Path, _: None) -> Files:
        on_the_hub = [source for source in sources if not Path(source).is_dir()]
        card = ENVIRONMENT.get_template("page_card.md").render(models=on_the_hub)
        return {PAGE_FILE: build_page(sources).encode(), CARD_FILE: f"{card}\n".encode()}

    return Publication(repo_id, "space", "page", "the page", is_page_file, make_files)


def is_page_file(path: str) -> bool:
    """Whether a path in a repository is written by a push of the page."""
    return path in (CARD_FILE, PAGE_FILE, "style.css")
