"""Cards and pushes leave out tokens, and the names and paths of the run on its author's machine."""

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import yaml
from huggingface_hub import get_token

from longhand.hub_cards.files import read_text
from longhand.hub_cards.recipes import read_recipe
from longhand.hub_cards.training.arguments import PRIVATE_ARGUMENTS

ABSOLUTE_PATH = re.compile(r"(?<![\w.:/~<-])(?:~|file://|[A-Za-z]:(?=[\\/]))?(?:[\\/][\w.+@-]*\w){2,}")
TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{20,}")
TEXT_SUFFIXES = (".json", ".jsonl", ".md", ".py", ".yaml")


def published_recipe(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe as others may read it: without private arguments and tokens, and with the last part of absolute paths."""
    return {
        name: _without_places(value)
        for name, value in recipe.items()
        if name not in PRIVATE_ARGUMENTS and not str(name).endswith("_token")
    }


def published_recipe_text(file: Path) -> str:
    """A recipe file as others may read it: the file itself if all of it may be read."""
    recipe, text = read_recipe(file), read_text(file)
    published = published_recipe(recipe)
    if published == recipe and not ABSOLUTE_PATH.search(text) and not TOKEN.search(text):
        return text
    return yaml.safe_dump(published, sort_keys=False, allow_unicode=True)


def check_private(files: Mapping[str, Path | bytes], folder: Path) -> None:
    """Raise ValueError if a text file holds a token, or a path in the folder or in the home of the user."""
    places = "|".join(re.escape(str(place)) for place in {folder.resolve(), Path.home()} if place != Path("/"))
    tokens = "|".join([TOKEN.pattern, *(re.escape(token) for token in [get_token()] if token)])
    private = re.compile(rf"(?P<token>{tokens})|(?<![\w.-])(?:{places})(?![\w-])")
    for path, content in files.items():
        if path.endswith(TEXT_SUFFIXES):
            text = content.decode() if isinstance(content, bytes) else content.read_text(encoding="utf-8", errors="replace")
            if found := private.search(text):
                line, what = text.count("\n", 0, found.start()) + 1, "a token" if found["token"] else f"the path {found[0]}"
                raise ValueError(f"{path}, line {line}, holds {what} and would be published: remove it")


def _without_places(value: Any) -> Any:
    if isinstance(value, str):
        if PurePosixPath(value).is_absolute() or PureWindowsPath(value).is_absolute() or value.startswith("~"):
            return PureWindowsPath(value).name
        return ABSOLUTE_PATH.sub(lambda path: PureWindowsPath(path[0]).name, TOKEN.sub("TOKEN", value))
    if isinstance(value, list):
        return [_without_places(item) for item in value]
    return {name: _without_places(item) for name, item in value.items()} if isinstance(value, dict) else value
