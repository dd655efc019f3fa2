"""Publications of checkpoints, of the metric, of the page and of parallel decoding; those of datasets are in `dataset.py`.

A `Publication` describes the files of one repository. `publish` makes the files and commits them.
"""

# Used by: dataset.py, hub_cards, train.py. Changed freely.

import json
import re
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

from huggingface_hub import HfApi, get_token

from longhand.data.tasks.plugins import named_plugins
from longhand.hub_cards.checkpoints.certificate_file import VERIFIER
from longhand.hub_cards.checkpoints.checkpoint import (
    ANSWER_FILES,
    BEST_FOLDER,
    CARD_FILE,
    CERTIFICATE_FILE,
    RESTARTS_FILE,
    Checkpoint,
    changed_code,
)
from longhand.hub_cards.checkpoints.load import locate, read_checkpoint
from longhand.hub_cards.commands import check_repo_id, is_one_line, read_citation
from longhand.hub_cards.page.build import build_page, default_sources
from longhand.hub_cards.publishing.cards import render_card, shown_folder
from longhand.hub_cards.publishing.commits import Files, Push, Repository, check_push, commit_files
from longhand.hub_cards.publishing.examples import ENVIRONMENT
from longhand.hub_cards.recipes import RECIPE_FILE, read_recipe
from longhand.hub_cards.result_rows import CERTIFICATES_FILE, RESULTS_FILE
from longhand.hub_cards.training.fields import PRIVATE_ARGUMENTS
from longhand.modeling import parallel_decoding, relations

BEST_FILES = (*ANSWER_FILES, RECIPE_FILE)
MODEL_FILES = (
    *BEST_FILES,
    *(f"{BEST_FOLDER}/{name}" for name in BEST_FILES),
    "*.png",
    RESULTS_FILE,
    RESTARTS_FILE,
    CERTIFICATE_FILE,
    CERTIFICATES_FILE,
    CARD_FILE,
)
"""The published files of a checkpoint's folder. Training states, pickles and all other files stay."""

METRIC_FOLDER = Path(__file__).parents[1] / "metrics" / "exact_match_by_length"
PAGE_FILE = "index.html"
SPACE_FILES = (PAGE_FILE, "style.css")
"""Files that the Hub puts into a new static Space."""

DECODING_FOLDER = "custom_generate"
"""Where transformers looks for `generate.py`, if `generate(custom_generate=...)` names a repository."""

METRIC_FILES = (CARD_FILE, "requirements.txt", "*.py", *SPACE_FILES)

TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{20,}")
TEXT_SUFFIXES = (".json", ".jsonl", ".md", ".py", ".yaml")


@dataclass(frozen=True)
class Publication:
    """Files for one repository on the Hub, before they are made.

    Attributes:
        repo_id: `user/name`.
        kind: a key of `commits.TYPES`.
        name: what is pushed, for the commit message.
        patterns: the paths that pushes of this kind write.
        make_files: the files, from an empty folder to write large ones to, and from the repository; without one, the files
            that a push to a new repository would write.
        branch: where the files go, whatever the options of the push say; None if the options decide.
        outline: what a preview shows of files that take long to make: their bytes, or what they will hold in words, by path.

    Raises:
        ValueError: the repository's name is not legal.
    """

    repo_id: str
    kind: str
    name: str
    patterns: Sequence[str]
    make_files: Callable[[Path, Repository | None], Files]
    branch: str | None = None
    outline: Callable[[], Mapping[str, str | bytes]] | None = None

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
        ValueError: see `read_checkpoint` and `model_publication`.
        CannotPush: the Hub does not accept the push (see `commit_files`); the repository's files are unchanged.
    """
    return publish(model_publication(read_checkpoint(Path(folder)), repo_id, dataset, with_code), **options)


def publish(publication: Publication, **options: Unpack[PushOptions]) -> Push:
    """Push a publication: check that the Hub would accept it, make its files, and commit them.

    Args:
        options: see `PushOptions`.

    Raises:
        ValueError, CannotPush: see `push_model`.
    """
    commit_message = options.pop("commit_message", None) or f"Push {publication.name}"
    if not is_one_line(commit_message):
        raise ValueError(f"the title of a commit must be one line, got {commit_message!r}")
    place: Any = {**options, "revision": publication.branch or options.get("revision")}
    repository = Repository(publication.repo_id, publication.kind, **place)
    check_push(repository)
    with tempfile.TemporaryDirectory() as folder:
        files = publication.make_files(Path(folder), repository)
        return commit_files(files, repository, commit_message, publication.patterns)


def preview(publication: Publication) -> str:
    """The files that a push to a new repository would write, and the card if there is one, as text. The Hub is not asked.

    Files that take long to make are not made, and the sizes that a card has of them are left out.
    """
    with tempfile.TemporaryDirectory() as place:
        files: Any = publication.make_files(Path(place), None) if publication.outline is None else publication.outline()
        sizes = {path: file.stat().st_size if isinstance(file, Path) else len(file) for path, file in files.items()}
    shown = {path: file if isinstance(file, str) else f"{sizes[path]:,}" for path, file in files.items()}
    lines = [f"{size:>14}  {path}" for path, size in sorted(shown.items())]
    made = [path for path, file in files.items() if not isinstance(file, str)]
    lines.append(f"{sum(sizes[path] for path in made):>14,}  bytes in {len(made)} files")
    if len(made) < len(files):
        lines.append(
            f"{len(files) - len(made):>14,}  files that --yes makes; the card's sizes are those of files that are made"
        )
    return "\n".join([*lines, *(["", f"{CARD_FILE}:", "", files[CARD_FILE].decode()] if CARD_FILE in files else [])])


def push_command(folder: Path, repo_id: str, private: bool = False, revision: str | None = None) -> str:
    """The command that pushes a checkpoint's folder, with the plugins in it."""
    words = ["python", "-m", "longhand.hub_cards.push", "model", str(folder), repo_id]
    if private:
        words.append("--private")
    if revision:
        words += ["--revision", revision]
    words.append("--yes")
    if plugins := [str(folder / name) for name in named_plugins(read_recipe(folder / RECIPE_FILE))]:
        words += ["--plugin", *plugins]
    return shlex.join(words)


def model_publication(
    checkpoint: Checkpoint, repo_id: str, dataset: str | None = None, with_code: bool = False
) -> Publication:
    """A checkpoint's folder for a repository on the Hub, with a card.

    Args:
        checkpoint: as `read_checkpoint` returns it.
        dataset: Hub id of a dataset of its task, for the card.
        with_code: publish Python files too that this package did not write for this model.

    Raises:
        ValueError: a file is a link that leaves the folder, Python files are not as this package writes them, a file holds a
            private argument, a token or a path of this machine, or a name is not legal.
    """
    folder = checkpoint.folder
    found = {file for pattern in MODEL_FILES for file in folder.glob(pattern) if file.is_file()}
    files: dict[str, Any] = {file.relative_to(folder).as_posix(): file for file in sorted(found)}
    if links := [path for path, file in files.items() if not file.resolve().is_relative_to(folder.resolve())]:
        raise ValueError(f"{links[0]} in {folder} is a link that leaves the folder: put a copy there instead")
    if private := [name for name in checkpoint.recipe if name in PRIVATE_ARGUMENTS or str(name).endswith("_token")]:
        raise ValueError(f"{RECIPE_FILE} holds {private[0]}, which is private, and would be published: remove it")
    if checkpoint.spare_best:
        files = {path: file for path, file in files.items() if not path.startswith(f"{BEST_FOLDER}/")}
    # The push takes the verifier from this package, so a changed copy in the folder is never published.
    files |= {path: VERIFIER for path in files if Path(path).name == VERIFIER.name}
    python_files = [path for path in files if path.endswith(".py") and files[path] != VERIFIER]
    if not with_code and (
        strange := changed_code(folder, python_files, checkpoint.model.config, checkpoint.task, checkpoint.recipe)
    ):
        raise ValueError(
            f"{folder} holds Python files that this version of longhand did not write for this model: {', '.join(strange)}; "
            "read them, then push them with --with_code, or save the model again"
        )
    if RESULTS_FILE in files:
        rows = [*checkpoint.rows, *checkpoint.best_rows]
        files[RESULTS_FILE] = "".join(json.dumps(row) + "\n" for row in rows).encode()
    files[CARD_FILE] = render_card(checkpoint, repo_id, dataset).encode()
    _check_private(files, folder)
    return Publication(repo_id, "model", checkpoint.name, MODEL_FILES, lambda *_: files)


def _check_private(files: Mapping[str, Path | bytes], folder: Path) -> None:
    """Raise ValueError if a text file holds a token, or a path in the folder or in the home of the user."""
    places = "|".join(re.escape(str(place)) for place in {folder.resolve(), Path.home()} if place != Path("/"))
    tokens = "|".join([TOKEN.pattern, *(re.escape(token) for token in [get_token()] if token)])
    private = re.compile(rf"(?P<token>{tokens})|(?<![\w.-])(?:{places})(?![\w-])")
    for path, content in files.items():
        if path.endswith(TEXT_SUFFIXES):
            text = content.decode() if isinstance(content, bytes) else content.read_text(encoding="utf-8", errors="replace")
            if found := private.search(text):
                line = text.count("\n", 0, found.start()) + 1
                held = "a token" if found["token"] else f"the path {found[0]}"
                raise ValueError(f"{path}, line {line}, holds {held} and would be published: remove it")


def metric_publication(repo_id: str) -> Publication:
    """The metric for a Space on the Hub. `evaluate.load` runs the file that has the name of the repository.

    Raises:
        ValueError: the repository's name is not legal, has a dot, or is the name of another file of the metric.
    """
    metric_file, given = f"{METRIC_FOLDER.name}.py", f"{repo_id.partition('/')[2]}.py"
    files: dict[str, Any] = {file.name: file for pattern in METRIC_FILES for file in METRIC_FOLDER.glob(pattern)}
    if (given in files and given != metric_file) or given.count(".") > 1:
        raise ValueError(f"no file of the metric can be {given}: name it otherwise, for instance {METRIC_FOLDER.name}")
    card = files[CARD_FILE].read_text(encoding="utf-8").replace(f"hub_cards/metrics/{METRIC_FOLDER.name}", repo_id)
    files[given] = files.pop(metric_file)
    files[CARD_FILE] = card.encode()
    return Publication(repo_id, "metric", METRIC_FOLDER.name, METRIC_FILES, lambda *_: files)


def page_publication(repo_id: str, models: Sequence[str] = ()) -> Publication:
    """The page of `longhand.hub_cards.page` for a static Space on the Hub: one HTML file and a card.

    Args:
        models: what the page shows: folders of runs, names of the zoo, or Hub ids; by default most of the zoo.

    Raises:
        ValueError: a name is not legal. Making the files raises what `build_page` does.
    """
    sources = [locate(source) for source in models] or default_sources()

    def make_files(*_: object) -> Files:
        on_the_hub = [source for source in sources if not Path(source).is_dir()]
        card = ENVIRONMENT.get_template("page_card.md").render(models=on_the_hub)
        page = build_page(sources, read_citation().get("repository-code"))
        return {PAGE_FILE: page.encode(), CARD_FILE: f"{card}\n".encode()}

    return Publication(repo_id, "page", "the page", (CARD_FILE, *SPACE_FILES), make_files)


def decoding_files(source: str) -> dict[str, Path | bytes]:
    """The files of parallel decoding, without a model: the code as it is here, and a card.

    Args:
        source: the repository's name, or the folder, that the card's code names.
    """
    card = ENVIRONMENT.get_template("decoding_card.md").render(source=source)
    code = {"generate.py": parallel_decoding.__file__, "relations.py": relations.__file__}
    return {CARD_FILE: f"{card}\n".encode()} | {f"{DECODING_FOLDER}/{name}": Path(file) for name, file in code.items()}


def decoding_publication(repo_id: str) -> Publication:
    """Parallel decoding for a repository on the Hub, from which `generate(custom_generate=repo_id)` takes it.

    It has a repository of its own: from a model's repository, transformers would put it in place of the model's `generate`.

    Raises:
        ValueError: the repository's name is not legal.
    """
    patterns = (CARD_FILE, f"{DECODING_FOLDER}/*.py")
    return Publication(repo_id, "decoding", "parallel decoding", patterns, lambda *_: decoding_files(repo_id))


def write_decoding(folder: Path) -> Path:
    """Write the files of parallel decoding into a new folder, and return it.

    Raises:
        ValueError: the folder is there already.
    """
    with new_folder(folder) as made:
        (made / DECODING_FOLDER).mkdir()
        for path, content in decoding_files(shown_folder(folder)).items():
            (made / path).write_bytes(content if isinstance(content, bytes) else content.read_bytes())
    return folder


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Give a place to write files, which becomes the folder when all are written; nothing is left if that fails.

    Raises:
        ValueError: the folder is there already.
    """
    if folder.exists():
        raise ValueError(f"{folder} is there already: choose a new folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", suffix=".partial", dir=folder.parent) as place:
        made = Path(place, folder.name)
        made.mkdir()
        yield made
        made.rename(folder)
