"""The files of a checkpoint that a certificate covers, and what they may say.

The verifier has lists and checks of its own, so that it can be a witness; `tests/proofs/test_covered_files.py` compares
both.
"""

# Used by: certificate_file.py, load.py. Changed freely.

import math
import re
import sys
import tempfile
from collections.abc import Mapping
from importlib.machinery import PathFinder
from pathlib import Path

from safetensors import SafetensorError, safe_open

from longhand.data.tasks.task import Task
from longhand.hub_cards.commands import one_line, read_object
from longhand.modeling.relations import MOST_TOKENS

READ = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
"""Files that libraries read to answer. An encoder has no generation_config.json."""

IDLE = ("certificate.json", "verify_certificate.py", "pushed.json", "training_args.bin")
"""Files that no library reads to answer."""

LOADED = (
    "*.json",
    "*.py",
    "custom_generate/*.py",
    "*.safetensors",
    "*.bin",
    "*.pt",
    "*.model",
    "*.jinja",
    "*.pyc",
    "*.pyw",
    "*.so",
    "*.pyd",
    "*/__init__.*",
)
"""All that a library might read, and that Python might import from the folder in which a program is started."""

OTHERS = """
    aalpy accelerate anyio attr certifi charset_normalizer click cloudpickle colorama cuda datasets dateutil dill evaluate
    filelock flash_attn fsspec functorch h11 hf_xet httpcore httpcore2 httpx httpx2 huggingface_hub idna isympy jinja2
    kernels longhand markupsafe matplotlib mpl_toolkits mpmath multiprocess networkx numpy nvidia packaging pandas peft
    PIL pkg_resources psutil pyarrow pydot pylab pytest pytz regex requests rich safetensors scipy setuptools shellingham
    sitecustomize six sniffio sympy tokenizers torch torchgen torchvision tqdm transformers triton truststore typer
    typing_extensions urllib3 usercustomize xformers xxhash yaml
"""
LIBRARIES = {*sys.stdlib_module_names, *OTHERS.split()}
"""Names of libraries, and of what these import. A program that is started in the folder runs a file of such a name in the
place of the library."""

INSTALLED = {"site-packages", "dist-packages"}
"""Folders in which Python finds other libraries."""

IGNORED_OF_TOKENIZERS = {"is_local", "local_files_only"}
"""What loading leaves in tokenizer_config.json, and nothing reads."""

TOKENIZER_CLASSES = ("TokenizersBackend", "PreTrainedTokenizerFast")
"""Two names of one class."""

MOST_CHARACTERS = 100


def check_covered(folder: Path, task: Task) -> None:
    """Raise ValueError if a folder holds files that no certificate covers, or files that are not the task's own.

    Refused are, among others, other weights beside the weights, settings of a tokenizer that cut or pad, and classes in
    `auto_map` from elsewhere.
    """
    try:
        _check_names(folder, writes=bool(task.family.ahead))
        config = read_object(folder / "config.json")
        _check_imports(folder, f"{task.family.model_class.__module__.rpartition('.')[2]}.py")
        _check_words(config.get("task"))
        _check_auto_map(folder, config.get("auto_map", {}))
        with safe_open(folder / "model.safetensors", "pt") as weights:
            if config.get("tie_word_embeddings") is True and "lm_head.weight" in weights.keys():  # noqa: SIM118
                raise ValueError("config.json: tie_word_embeddings true beside lm_head.weight: software may take either")
        _check_tokenizer(folder, task)
    except (ValueError, OSError, SafetensorError) as error:
        raise ValueError(f"no certificate covers {folder}: {one_line(error)}") from error


def _check_names(folder: Path, writes: bool) -> None:
    """Refuse files that are missing, and files that may change how answers are written."""
    found = {file.relative_to(folder).as_posix() for pattern in LOADED for file in folder.glob(pattern)} - {*IDLE}
    read = {name for name in READ if writes or name != "generation_config.json"}
    if missing := sorted(read - found):
        raise ValueError(f"{missing[0]} is missing")
    for name in sorted(found - read):
        if not name.endswith(".py") or "/" in name:
            raise ValueError(f"{name} may change how answers are written: remove it")
    for name in sorted(read):
        if name.endswith(".json"):
            read_object(folder / name)


def _check_imports(folder: Path, first: str) -> None:
    """Refuse a file of Python that would be imported in the place of a library.

    Args:
        first: the file of code by which the model is loaded. What it imports beside it is not looked at.
    """
    code = {file.name: file.read_bytes() for file in folder.glob("*.py")}
    installed = [place for place in sys.path if INSTALLED & {*Path(place).parts}]
    for name in sorted({*code} - imported_files(first, code) - {*IDLE}):
        module = name.removesuffix(".py")
        if module.startswith("__") or module in LIBRARIES or PathFinder.find_spec(module, installed):
            raise ValueError(f"{name} has the name of a library, and may be run in its place: rename or remove it")


def _check_words(described: object) -> None:
    """The name and the options of a task, which are printed and shown on cards, are short words on one line, or numbers."""
    if not isinstance(described, dict | None):
        raise ValueError(f"config.json: task must be a mapping, got {described!r:.50}")
    for word in (word for pair in (described or {}).items() for word in pair):
        if isinstance(word, str):
            legal = len(word) <= MOST_CHARACTERS and word.isprintable() and not {*word} & {*"<>`"}
        else:
            legal = isinstance(word, bool | int | float | None)
        if not legal:
            raise ValueError(f"config.json: task: {word!a:.50} must be a number, or a short word without <, > and `")


def _check_auto_map(folder: Path, auto_map: object) -> None:
    """The classes of a configuration are those of files in this folder, which has all that these import."""
    if not isinstance(auto_map, dict):
        raise ValueError(f"config.json: auto_map must be a mapping, got {auto_map!r:.50}: remove it or save the model again")
    code = {file.name: file.read_bytes() for file in folder.glob("*.py")}
    for key, place in auto_map.items():
        module = f"{str(place).partition('.')[0]}.py"
        if not isinstance(place, str) or module not in code:
            raise ValueError(f"config.json: auto_map: {key} {place!r} must be a class of a file in this folder")
        if missing := sorted(imported_files(module, code) - {*code}):
            raise ValueError(f"{missing[0]} is missing, which the code in this folder imports")


def imported_files(first: str, code: Mapping[str, bytes]) -> set[str]:
    """The name of a file of code, and those of all files beside it that it imports, directly or not, present or not."""
    found, waiting = set(), [first]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            text = code.get(name, b"").decode(errors="replace")
            waiting += [f"{module}.py" for module in re.findall(r"^\s*from \.(\w+) import", text, re.MULTILINE)]
    return found


def _check_tokenizer(folder: Path, task: Task) -> None:
    """Refuse what the loader does not compare: padding, cut prompts, and settings of another tokenizer than the task's."""
    rules = read_object(folder / "tokenizer.json")
    for name in ("truncation", "padding"):
        if rules.get(name) is not None:
            raise ValueError(f"tokenizer.json: {name} must be null, got {rules[name]!r:.80}")
    settings = read_object(folder / "tokenizer_config.json")
    with tempfile.TemporaryDirectory() as place:
        task.family.tokenizer(task).save_pretrained(place)
        expected = read_object(Path(place, "tokenizer_config.json"))
    for name in sorted({*expected, *settings} - IGNORED_OF_TOKENIZERS):
        value = settings.get(name)
        if name == "model_max_length":
            legal = isinstance(value, int | float) and MOST_TOKENS <= value < math.inf
        elif name == "tokenizer_class":
            legal = value in TOKENIZER_CLASSES
        else:
            legal = name in expected and name in settings and type(value) is type(expected[name]) and value == expected[name]
        if not legal:
            raise ValueError(f"tokenizer_config.json: {name} must be {expected.get(name)!r}, got {value!r:.80}")
