"""The page of `longhand.hub_cards.space` as a Space: the app, the code of this package, and checkpoints that it shows."""

import json
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from longhand.hub_cards.checkpoints.files import checkpoint_name
from longhand.hub_cards.checkpoints.zoo import locate
from longhand.hub_cards.hub import check_repo_id
from longhand.hub_cards.publishing.card_updates import PushedResults
from longhand.hub_cards.publishing.cards import CARD_FILE
from longhand.hub_cards.publishing.commits import Files
from longhand.hub_cards.publishing.families import ENVIRONMENT
from longhand.hub_cards.publishing.privacy import check_private
from longhand.hub_cards.publishing.push import Publication, model_files

PACKAGE = Path(__file__).parents[2]

ROOMS = ("modeling", "data", "hub_cards")
"""Folders of the package's code and data. Others in a clone are not needed to run it."""

NOT_RUN = (".png", ".pyc")
"""Suffixes of files that no code reads."""

GRADIO = "6.31.0"
"""The version that the page was tested with, and the oldest that the extra `space` allows."""

CPU_WHEELS = "--extra-index-url https://download.pytorch.org/whl/cpu"
"""A free Space has no GPU, and the wheels with CUDA take gigabytes."""

APP = '''"""The page, see longhand/hub_cards/space."""

from longhand.hub_cards.space.__main__ import main

main({models})
'''


def space_publication(repo_id: str, models: Sequence[str] = ()) -> Publication:
    """The page for a Space on the Hub.

    Args:
        models: what it shows: folders of runs, which are copied, names of the zoo, or Hub ids; by default all of the zoo.

    Raises:
        ValueError: a name is not legal or twice there, a folder cannot be published (see `model_publication`), or this
            package is not installed, so that its requirements are unknown.
    """
    check_repo_id(repo_id)
    requirements = _requirements()
    folders: dict[str, Path] = {}
    shown = []
    for source in models:
        # The zoo travels with the package.
        in_zoo = locate(source) != source
        copied = not in_zoo and Path(source).is_dir()
        shown.append(f"models/{checkpoint_name(source)}" if copied else source)
        if copied:
            folders[shown[-1]] = Path(source)
        elif not in_zoo:
            check_repo_id(source)
    if len(set(shown)) < len(shown):
        raise ValueError(f"two checkpoints have one name, so they could not be told apart: {', '.join(models)}")

    def make_files(place: Path, pushed: PushedResults) -> Files:
        files: Files = {f"longhand/{path}": file for path, file in package_files().items()}
        for name, folder in folders.items():
            own = model_files(folder, repo_id)
            files |= {f"{name}/{path}": content for path, content in own.items() if path != CARD_FILE}
        on_the_hub = [source for source in shown if "/" in source and source not in folders]
        card = ENVIRONMENT.get_template("space_card.md").render(gradio=GRADIO, models=on_the_hub)
        files["app.py"] = APP.format(models=json.dumps(shown)).encode()
        files["requirements.txt"] = "\n".join([CPU_WHEELS, *requirements, ""]).encode()
        files[CARD_FILE] = f"{card}\n".encode()
        check_private(files, PACKAGE)
        return files

    return Publication(repo_id, "space", "the page", is_space_file, make_files)


def is_space_file(path: str) -> bool:
    """Whether a path in a repository is written by a push of the page."""
    return path in (CARD_FILE, "app.py", "requirements.txt") or path.startswith(("longhand/", "models/"))


def package_files() -> dict[str, Path]:
    """The files of this package that run, by their path in it."""
    found = [file for room in ROOMS for file in sorted((PACKAGE / room).rglob("*")) if file.is_file()]
    found += [*sorted(PACKAGE.glob("*.py")), PACKAGE / "py.typed"]
    return {file.relative_to(PACKAGE).as_posix(): file for file in found if file.suffix not in NOT_RUN}


def _requirements() -> list[str]:
    """What this package needs, without extras. The Space has Gradio already."""
    try:
        needed = requires("longhand") or []
    except PackageNotFoundError as error:
        raise ValueError("longhand is not installed, so its requirements are unknown: pip install it first") from error
    return [requirement for requirement in needed if "extra ==" not in requirement]
