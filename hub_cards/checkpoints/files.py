"""The files of a checkpoint's folder: their names, and what they must be before they are loaded, shown or published."""

import os
import re
from pathlib import Path

from safetensors import SafetensorError, safe_open
from transformers import PreTrainedConfig

from longhand.hub_cards.checkpoints.certificate_file import CERTIFICATE_FILE
from longhand.hub_cards.evaluation.results import RESULTS_FILE
from longhand.hub_cards.files import read_object
from longhand.hub_cards.recipes import RECIPE_FILE

PLOT_FILE = "accuracy.png"
BEST_FOLDER = "best"
JSON_FILES = (
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    "model.safetensors.index.json",
)
TRAINING_ARGUMENTS = "training_args.bin"
"""A pickle that transformers' Trainer leaves beside the weights. It is never published."""

PICKLE_SUFFIXES = (".bin", ".ckpt", ".joblib", ".npy", ".npz", ".pickle", ".pkl", ".pt", ".pth")


def checkpoint_name(source: str) -> str:
    """Return a Hub id as it is, a folder's name, or `RUN/best`."""
    folder = Path(source)
    if not folder.is_dir():
        return source
    return "/".join(folder.resolve().parts[-2:]) if is_best(folder) else folder.resolve().name


def file_name(name: str) -> str:
    """Return a checkpoint's name as a part of a file's."""
    return name.replace("/", "--")


def check_weights(folder: Path) -> None:
    """Raise ValueError if the folder's weights are missing, truncated or not in safetensors format."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ValueError(f"{folder} is not a checkpoint: it holds no .safetensors file")
    for file in files:
        if not file.is_file():
            raise ValueError(f"{file} is not a regular file")
        try:
            with safe_open(file, framework="pt") as weights:
                weights.keys()
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{file} is truncated or damaged ({error}): download or save it again") from error


def check_side_files(folder: Path) -> None:
    """Raise ValueError if a file beside the weights is no file, or not the JSON object that it must be.

    A file that is missing is legal.
    """
    for name in JSON_FILES:
        if os.path.lexists(folder / name):
            read_object(folder / name)
    for name in (RECIPE_FILE, RESULTS_FILE, CERTIFICATE_FILE, PLOT_FILE, "README.md"):
        if os.path.lexists(folder / name) and not (folder / name).is_file():
            raise ValueError(f"{folder / name} is not a regular file: remove it")
    for name in (BEST_FOLDER, ".eval_results"):
        if os.path.lexists(folder / name) and not (folder / name).is_dir():
            raise ValueError(f"{folder / name} is not a folder: remove it")


def is_best(folder: Path) -> bool:
    """Whether a folder holds the best checkpoint of the run in whose folder it is. A run itself may have that name too."""
    return folder.is_dir() and folder.name == BEST_FOLDER and (folder.parent / RECIPE_FILE).is_file()


def check_pickles(folder: Path) -> None:
    """Raise ValueError if a file that would be published can run code when it is loaded."""
    files = [*sorted(folder.glob("*")), *sorted((folder / BEST_FOLDER).glob("*"))]
    if pickles := [file for file in files if file.suffix in PICKLE_SUFFIXES and file != folder / TRAINING_ARGUMENTS]:
        listed = ", ".join(str(file.relative_to(folder)) for file in pickles)
        raise ValueError(f"{folder} holds pickles ({listed}): only safetensors are published, remove them first")


def check_loadable(folder: Path, config: PreTrainedConfig) -> None:
    """Raise ValueError if others could not load the checkpoint: tokenizer and code must stand beside the weights."""
    auto_map = getattr(config, "auto_map", None) or {}
    if not isinstance(auto_map, dict):
        raise ValueError(f"{folder}, config.json: auto_map must map Auto classes to names, got {auto_map!r}")
    # An entry may be several names, and null where there is no such class.
    names = [
        name for entry in auto_map.values() for name in (entry if isinstance(entry, list) else [entry]) if name is not None
    ]
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(r"(\S+--)?\w+\.\w+", name):
            raise ValueError(f"{folder}, config.json: auto_map must name classes as 'module.Class', got {name!r}")
    modules = sorted({f"{name.rpartition('--')[2].partition('.')[0]}.py" for name in names})
    if missing := [name for name in ("tokenizer.json", *modules) if not os.path.isfile(folder / name)]:
        raise ValueError(
            f"{folder} is incomplete: it lacks {', '.join(missing)} (config.json names the code); save model and tokenizer "
            "into it again"
        )
