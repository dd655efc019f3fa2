"""The code that travels with a checkpoint: which of it this package would not have written there."""

import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig
from transformers.dynamic_module_utils import custom_object_save

from longhand.data import Task
from longhand.hub_cards.checkpoints.certificate_file import CERTIFICATE_FILE, copy_verifier, hash_files
from longhand.hub_cards.checkpoints.load import load_checkpoint
from longhand.hub_cards.checkpoints.zoo import zoo
from longhand.hub_cards.files import read_object, write_atomically
from longhand.hub_cards.plugins import require_plugins


def save_code(config: PreTrainedConfig, task: Task, folder: Path) -> None:
    """Write a model's configuration and its code into a folder, as `save_pretrained` of the model does."""
    model_class: Any = task.family.model_class
    config.save_pretrained(folder)
    if model_class._auto_class is not None:
        custom_object_save(model_class, folder)


def changed_code(
    folder: Path, paths: Iterable[str], config: PreTrainedConfig, task: Task, recipe: Mapping[str, Any]
) -> list[str]:
    """Return the Python files that this version of the package, with the plugins of a recipe, would not save for a model.

    Args:
        paths: the files to look at, in the folder.
        config: the model's configuration.
    """
    own = {plugin.name: plugin.code for plugin in require_plugins(recipe, str(folder), str)}
    with tempfile.TemporaryDirectory() as place:
        save_code(config, task, Path(place))
        own |= {file.name: file.read_bytes() for file in Path(place).glob("*.py")}
    return [path for path in paths if (folder / path).read_bytes() != own.get(Path(path).name)]


def folder_bytes(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def unpack(name: str, place: Path) -> Path:
    """Write a checkpoint of the zoo as its run left it, with the code that runs it where this package is not installed.

    Args:
        place: an existing folder; the checkpoint's folder is made in it.

    Returns:
        The checkpoint's folder, whose certificate names the code too.
    """
    folder = Path(shutil.copytree(zoo(name), place / name))
    checkpoint = load_checkpoint(str(folder))
    save_code(checkpoint.model.config, checkpoint.task, folder)
    certificate = read_object(folder / CERTIFICATE_FILE) | {"files": hash_files(folder)}
    write_atomically(folder / CERTIFICATE_FILE, json.dumps(certificate, indent=2) + "\n")
    copy_verifier(folder)
    return folder
